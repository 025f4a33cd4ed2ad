"""A quadruped is thrown so that it lands, slides and stands at a given place: Newton's method through touch-downs.

Four feet touch, slip and stick one after the other, with steps of 20 ms and rigid contact. The gradient of all that is
exact, so that shooting at a target converges as it would without contact.
"""

import numpy as np

import torsor as ts

model = ts.models.quadruped()
legs = ["front_left", "front_right", "rear_left", "rear_right"]
q0, posture = model.neutral, {"hip": 0.0, "thigh": 0.6, "calf": -1.2}
for leg in legs:
    for part, angle in posture.items():
        q0[model.joint(f"{leg}_{part}").q_slice] = angle
q0[2] = 0.7

springs = [
    ts.JointSpring(f"{leg}_{part}", stiffness=300.0, rest=angle, damping=10.0)
    for leg in legs
    for part, angle in posture.items()
]
h = 0.02
rigid = ts.Contact.rigid(h, mass=model.mass / 4)  # stiff enough that a step ends an impact: see docs/impacts.md
feet = [
    ts.Contact(f"{leg}_foot", ts.shapes.Sphere(0.022), "world", ts.shapes.HalfSpace(), friction=0.6, **rigid)
    for leg in legs
]
forces = [*springs, *feet]


def throw(x):
    """The motion of 1.5 s from velocities x = (along x, along y, about z) of the trunk that falls at 1 m/s."""
    v0 = np.zeros(model.nv)
    v0[[3, 4, 2]], v0[:2], v0[5] = x, (0.4, 0.3), -1.0
    return ts.simulate(model, q0, v0, T=1.5, integrator=ts.BDF1(h), forces=forces)


def end(motion):
    """Where the trunk is in the end, x and y, and its heading; and their derivatives by x, from one sweep back each."""
    R = ts.body_poses(model, motion.q[-1])[0, :3, :3]
    heading = np.array([-R[1, 0], R[0, 0]]) @ -R[:2] @ ts.spatial.hat((1, 0, 0)) / (R[0, 0] ** 2 + R[1, 0] ** 2)
    rows = []
    for part, row in ((slice(3, 6), R[0]), (slice(3, 6), R[1]), (slice(0, 3), heading)):  # by the trunk's own twist
        loss = np.zeros(motion.v.shape)
        loss[-1, part] = row
        rows.append(ts.adjoint(motion, dloss_dq=loss, parameters=False).v0[[3, 4, 2]])
    return np.array([*motion.q[-1, :2], np.arctan2(R[1, 0], R[0, 0])]), np.array(rows)


x, d, target, misses = np.array([0.8, 0.2, 0.3]), np.zeros(3), np.array([0.2, 0.1, 0.2]), [np.inf]
for _ in range(20):
    motion = throw(x - d)
    place, J = end(motion)
    miss = np.abs(place - target).max()
    print(f"{(x - d).round(4)} leads to x, y, heading {place.round(6)}, off by {miss:.1e}")
    if miss >= misses[-1]:
        d = d / 2  # not so far
        continue
    misses.append(miss)
    x, d = x - d, np.linalg.solve(J, place - target)
    if miss < 1e-9:
        break
assert misses[-1] < 1e-9
assert misses[-1] < misses[-2] ** 1.5  # faster than any linear rate

e = 1e-5
differences = np.stack([(end(throw(x + e * d))[0] - end(throw(x - e * d))[0]) / (2 * e) for d in np.eye(3)], axis=1)
off = np.abs(J - differences).max() / np.abs(J).max()
print(f"the Jacobian agrees with differences of throws to {off:.0e}")
assert off < 1e-4

states = ts.contact_states(model, feet, motion.q, motion.v)
first = [motion.t[np.argmax(states.gap[:, k] < 0)] for k in range(4)]
print(
    "feet touch after", ", ".join(f"{t:.2f}" for t in first), "s;", f"{(motion.substeps > 1).sum()} steps were divided"
)
weight = model.mass * 9.81
print(f"in the end they carry {states.force[-1, :, 2].sum():.1f} N of {weight:.1f} N")

try:
    from matplotlib.figure import Figure
except ImportError:
    print("Matplotlib is not installed; `pip install matplotlib` adds a picture.")
else:
    figure = Figure(figsize=(10, 3.6), dpi=110, layout="constrained")
    left, right = figure.subplots(1, 2)
    speed = np.linalg.norm(states.slip, axis=-1)
    for k, color in enumerate(("#3578b5", "#7a1f3d", "#2a9d5c", "#e0a030")):
        name = legs[k].replace("_", " ")
        left.plot(motion.t, states.force[:, k, 2], color=color, lw=1.8, label=name)
        touching = states.gap[:, k] < 0
        right.semilogy(motion.t, np.where(touching, np.maximum(speed[:, k], 1e-7), np.nan), color=color, lw=1.8)
    left.axhline(weight / 4, color="#8a949e", lw=0.8, ls="--")
    left.set_title("Normal forces of the feet [N]", loc="left", weight="bold")
    left.legend(frameon=False)
    right.axhline(rigid["slip"], color="#8a949e", lw=0.8, ls="--")
    right.set_title("Their slip while they touch [m/s]", loc="left", weight="bold")
    for axes in (left, right):
        axes.set_xlabel("t [s]")
        axes.grid(color="#e8ebee")
        axes.spines[:].set_visible(False)
    figure.savefig("quadruped_landing.png")
    print("quadruped_landing.png")

try:
    motion.html("quadruped_landing.html")  # a page that plays the motion
except ImportError as error:
    print(error)
