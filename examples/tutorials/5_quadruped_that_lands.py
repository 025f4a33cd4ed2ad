"""A quadruped that lands

A quadruped falls from half a metre, leaning and moving forward. Its legs are springs with a posture. Which posture, and
how much damping, let it come to rest and level? The gradient of the whole landing, through the impacts of four feet,
tells: six numbers are found in some dozens of simulations.
"""

# ## The robot and the ground
#
# Feet are spheres on a half-space. `Contact.rigid` chooses stiffness and dissipation such that one step of length h
# ends an impact: contact is then as good as rigid, and gradients are right (see the page on impacts).
import numpy as np
from matplotlib.figure import Figure
from scipy.optimize import minimize

import torsor as ts

model = ts.models.quadruped()
legs = ["front_left", "front_right", "rear_left", "rear_right"]
h = 0.01
rigid = ts.Contact.rigid(h, mass=model.mass / 4)
ground = ts.shapes.HalfSpace()
feet = [ts.Contact(f"{leg}_foot", ts.shapes.Sphere(0.022), "world", ground, friction=0.7, **rigid) for leg in legs]

# ## The fall
#
# It starts with the posture of its legs, 0.5 m above the ground, pitched nose-down, with half a metre a second forward.
pitch = 0.15
fall = model.neutral
fall[2], fall[3:7] = 0.75, (0, np.sin(pitch / 2), 0, np.cos(pitch / 2))
v0 = np.zeros(model.nv)
v0[model.joint("trunk").v_slice] = (0, 0.5, 0, 0.5, 0, 0)

# Unknowns are the angles of thighs and calves in front and in the rear, which are the rest positions of springs, and a
# damping for each pair of legs, in units of 10 Nm s so that all are near 1.
parts = ("hip", "thigh", "calf")


def springs(x):
    """Springs that hold a posture x = (thigh, calf, damping) of the front and of the rear legs."""
    return [
        ts.JointSpring(f"{leg}_{part}", stiffness=250.0, rest=rest, damping=10 * x[k + 2])
        for leg, k in zip(legs, (0, 0, 3, 3), strict=True)
        for part, rest in zip(parts, (0.0, x[k], x[k + 1]), strict=True)
    ]


def land(x):
    """The motion of 1.2 s, with the legs in their posture at the start."""
    q0 = fall.copy()
    for leg, k in zip(legs, (0, 0, 3, 3), strict=True):
        for part, angle in zip(parts, (0.0, x[k], x[k + 1]), strict=True):
            q0[model.joint(f"{leg}_{part}").q_slice] = angle
    return ts.simulate(model, q0, v0, T=1.2, integrator=ts.BDF1(h), forces=[*springs(x), *feet])


# ## What is wanted
#
# In the end the trunk is level, at 0.42 m, and nothing moves; on the way it does not pitch fast. Costs at every row are
# integrals over time.
final = fall.copy()
final[2], final[3:7] = 0.42, (0, 0, 0, 1)
on_trunk = np.zeros(model.nv)
on_trunk[[0, 1, 2, 5]] = 50.0, 50.0, 0.0, 200.0  # weights: roll, pitch, heading, height
calm = np.zeros(model.nv)
calm[[0, 1]] = 2.0
cost = (
    ts.PositionTarget(final, weight=on_trunk)
    + ts.VelocityTarget(weight=0.5)
    + ts.VelocityTarget(weight=calm, at="time")
)

# ## The gradient
#
# `adjoint` has gradients by every parameter of every force, and by the start. The posture is in both: rest positions of
# the springs and angles at the start are the same numbers, so their gradients are added.


def objective(x):
    """The cost and its gradient by the six numbers."""
    motion = land(x)
    loss = ts.loss(motion, cost)
    g = ts.adjoint(motion, loss)
    gradient = np.zeros(6)
    for i, (leg, k) in enumerate(zip(legs, (0, 0, 3, 3), strict=True)):
        for j, part in enumerate(parts):
            force = g.forces[3 * i + j]
            gradient[k + 2] += 10 * force["damping"].sum()
            if part != "hip":
                start = g.q0[model.joint(f"{leg}_{part}").v_slice]
                gradient[k + j - 1] += (force["rest"] + start).sum()
    return float(loss.value), gradient


x0 = np.array([0.6, -1.2, 0.6, 0.6, -1.2, 0.6])
value, gradient = objective(x0)
differences = [(objective(x0 + e)[0] - objective(x0 - e)[0]) / 2e-6 for e in 1e-6 * np.eye(6)]
print("gradient   ", gradient.round(4))
print("differences", np.round(differences, 4))
assert np.allclose(gradient, differences, rtol=1e-3, atol=1e-3)

# ## The landing
bounds = [(0.2, 1.2), (-2.0, -0.6), (0.2, 4.0)] * 2
best = minimize(objective, x0, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 25})
before, after = land(x0), land(best.x)
print(f"cost {value:.2f} to {best.fun:.2f} with {best.nfev} simulations")
print(f"front legs {best.x[:3].round(2)}, rear legs {best.x[3:].round(2)} (thigh, calf, damping)")
assert best.fun < 0.6 * value


def trunk(motion):
    """Height, and pitch in degrees."""
    R = ts.body_poses(model, motion.q)[:, 0, :3, :3]
    return motion.q[:, 2], np.degrees(np.arctan2(-R[:, 2, 0], np.hypot(R[:, 0, 0], R[:, 1, 0])))


states = ts.contact_states(model, feet, after.q, after.v)
first = ", ".join(f"{after.t[np.argmax(states.gap[:, k] < 0)]:.2f}" for k in range(4))
print(
    f"feet touch after {first} s; at the end they carry {states.force[-1, :, 2].sum():.0f} of {9.81 * model.mass:.0f} N"
)

figure = Figure(figsize=(9, 5.4), dpi=110, layout="constrained")
grid = figure.add_gridspec(2, 2, height_ratios=(1, 1))
plots = [figure.add_subplot(grid[1, k]) for k in range(2)]
for motion, name, color in ((before, "before", "#8a949e"), (after, "after", "#c8374b")):
    for axes, values in zip(plots, trunk(motion), strict=True):
        axes.plot(motion.t, values, color=color, lw=1.8, label=name)
plots[0].set_title("Height of the trunk [m]", loc="left", weight="bold")
plots[1].set_title("Its pitch [degrees]", loc="left", weight="bold")
plots[0].legend(frameon=False)
for axes in plots:
    axes.set_xlabel("t [s]")
    axes.grid(color="#e8ebee")
    axes.spines[:].set_visible(False)
side = figure.add_subplot(grid[0, :])
origins = ts.body_poses(model, after.q)[..., :3, 3][..., [0, 2]]
for k, row in enumerate(range(0, len(after.t), 20)):
    for leg, color in zip(legs, ("#3578b5", "#9fc0dd", "#2a9d5c", "#a3d3b8"), strict=True):
        chain = [model.body_index(f"{leg}_{part}") for part in (*parts, "foot")]
        side.plot(*(origins[row, chain] + [0.95 * k, 0]).T, color=color, lw=2.5, marker="o", ms=3)
    body = [model.body_index(f"{end}_left_hip") for end in ("rear", "front")]
    side.plot(*(origins[row, body] + [0.95 * k, 0]).T, color="#30363c", lw=6, solid_capstyle="round")
side.axhline(0, color="#8a949e", lw=1)
side.set_title("The landing that was found, every 0.2 s", loc="left", weight="bold")
side.set_aspect("equal")
side.axis("off")
figure.savefig("landing.png")

# ## Watch it
#
# The landing as a page that plays, at a third of its speed, with the forces of the ground.
after.html("landing.html", speed=1 / 3)
