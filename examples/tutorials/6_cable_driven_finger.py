"""A cable-driven finger

A finger of three bones is closed by one cable on its palm side and opened by springs. How the joints share the motion
depends on where the cable runs. First it is pulled; then the guides of the cable are moved, by gradients, until the
fingertip ends where it should; last the two outer joints are coupled, as the ligaments of a hand do.
"""

# ## Bones, springs and a cable
#
# Bones lie along x, joints turn about y; positive angles close the finger, downward. The cable runs from the palm
# through a guide on each bone, 8 to 12 mm below its axis, and ends near the tip.
import numpy as np
from matplotlib.figure import Figure
from scipy.optimize import minimize

import torsor as ts

lengths, names = (0.05, 0.03, 0.025), ("proximal", "middle", "distal")
b = ts.ModelBuilder("finger", gravity=(0, 0, 0))
parent, at = "world", 0.0
for name, length in zip(names, lengths, strict=True):
    bone = ts.Inertia.capsule(radius=0.008, length=length, mass=0.02, com=(length / 2, 0, 0))
    b.add_body(name, parent, ts.Revolute((0, 1, 0)), ts.SE3.translation(at, 0, 0), bone, joint_name=f"{name}_joint")
    parent, at = name, length
finger = b.build()
tip = (lengths[-1], 0, 0)
opening = [
    ts.JointSpring(f"{name}_joint", stiffness=k, rest=0.0, damping=0.003)
    for name, k in zip(names, (0.08, 0.06, 0.05), strict=True)
]


def cable(depths):
    """The cable through guides at these depths below the bones: two on each bone, and one on the palm."""
    bodies, points = ["world"], [(-0.02, 0, -0.012)]
    for name, length, (near, far) in zip(names, lengths, np.reshape(depths, (3, 2)), strict=True):
        bodies += [name, name]
        points += [(0.2 * length, 0, -near), (0.8 * length, 0, -far)]
    return ts.Cable(bodies, points, stiffness=2e3, damping=2.0).at_rest(finger, finger.neutral)


# ## Pull
#
# A winch shortens the cable by 15 mm in half a second, and holds. The rest length is a parameter of the force;
# `signals` gives it a value for each step.
steps, h = 100, 0.01
pull = 0.015 * np.clip(np.arange(1, steps + 1) / 50, 0, 1)


def close(model, depths):
    """The motion under the pull."""
    tendon = cable(depths)
    signals = [{"rest_length": tendon.parameters["rest_length"] - pull}, *[None] * len(opening)]
    return ts.simulate(
        model, model.neutral, steps=steps, integrator=ts.BDF2(h), forces=[tendon, *opening], signals=signals
    )


depths0 = np.array([0.012, 0.012, 0.010, 0.010, 0.008, 0.008])
motion = close(finger, depths0)
print("angles in degrees:", np.degrees(motion.q[-1]).round(1))
print("the tip is at", (1e3 * ts.point_positions(finger, motion.q[-1], "distal", tip)).round(1), "mm")
assert np.all(motion.q[-1] > 0.1)

# ## Where should the guides be?
#
# The tip shall end elsewhere, at rest. `adjoint` has the gradient by the points that the cable passes, and by the
# rest length, which moves with them.
target = np.array([0.066, 0.0, -0.076])
cost = ts.PointTarget("distal", tip, target, weight=1e4) + 1e-3 * ts.VelocityTarget()


def objective(depths):
    """The cost and its gradient by the six depths."""
    motion = close(finger, depths)
    loss = ts.loss(motion, cost)
    g = ts.adjoint(motion, loss).forces[0]
    e = 1e-6 * np.eye(6)
    slack = [
        (cable(depths + d).parameters["rest_length"] - cable(depths - d).parameters["rest_length"]) / 2e-6 for d in e
    ]
    return float(loss.value), -g["points"][1:, 2] + g["rest_length"] * np.ravel(slack)


value, gradient = objective(depths0)
differences = [(objective(depths0 + d)[0] - objective(depths0 - d)[0]) / 2e-6 for d in 1e-6 * np.eye(6)]
assert np.allclose(gradient, differences, rtol=1e-4, atol=1e-4 * np.abs(gradient).max())
scale = 0.01  # depths in centimetres, so that the optimizer sees numbers near 1
best = minimize(
    lambda x: (lambda value, slope: (value, scale * slope))(*objective(scale * x)),
    depths0 / scale, jac=True, method="L-BFGS-B", bounds=[(0.4, 1.8)] * 6, options={"maxiter": 60},
)  # fmt: skip
depths = scale * best.x
designed = close(finger, depths)
off = np.linalg.norm(ts.point_positions(finger, designed.q[-1], "distal", tip) - target)
print("guides at", (1e3 * depths).round(1), f"mm: the tip is {1e3 * off:.2f} mm from its target")
assert off < 1e-3

# ## Coupled joints
#
# In a hand the outer joint cannot bend alone. `couple` makes it follow the middle one, in two coordinates instead of
# three; forces, cable and simulation stay as they are.
coupled = finger.couple(ts.Mimic("distal_joint", of="middle_joint", ratio=2 / 3))
together = close(coupled, depths)
angles = coupled.expand(together.q)  # of all three joints
print(f"{finger.nv} coordinates become {coupled.nv}; angles in degrees:", np.degrees(angles[-1]).round(1))
assert np.allclose(angles[:, 2], 2 / 3 * angles[:, 1])

# The three ends: with the guides of the start, with those that were found, and coupled.
figure = Figure(figsize=(9, 3.6), dpi=110, layout="constrained")
panels = figure.subplots(1, 3, sharex=True, sharey=True)
cases = (("first guides", motion.q, depths0), ("guides found", designed.q, depths), ("coupled", angles, depths))
for axes, (title, rows, guides) in zip(panels, cases, strict=True):
    tendon = cable(guides)
    for row, alpha in ((0, 0.15), (20, 0.3), (35, 0.45), (100, 1.0)):
        q = rows[row]
        bones = np.vstack([ts.body_poses(finger, q)[:, :3, 3], ts.point_positions(finger, q, "distal", tip)])
        axes.plot(
            *1e3 * bones[:, [0, 2]].T, color="#3578b5", lw=7, alpha=alpha, solid_capstyle="round", marker="o", ms=3
        )
    passes = [
        point if body == "world" else ts.point_positions(finger, q, body, point)
        for body, point in zip(tendon.bodies, tendon.points, strict=True)
    ]
    axes.plot(*1e3 * np.array(passes)[:, [0, 2]].T, color="#c8374b", lw=1.6, marker="o", ms=3)
    axes.plot(*1e3 * target[[0, 2]], "*", color="#e0a030", ms=13, mec="#30363c")
    axes.set_title(title, loc="left", weight="bold")
    axes.set_aspect("equal")
    axes.grid(color="#e8ebee")
    axes.spines[:].set_visible(False)
    axes.set_xlabel("x [mm]")
panels[0].set_ylabel("z [mm]")
figure.savefig("finger.png")

# ## Watch it
#
# The finger with the guides that were found, as a page that plays. Bodies without visuals are drawn by their inertia.
designed.html("finger.html")
