"""Torques at every step that bring an arm's hand to a point, at rest: the adjoint gradient in SciPy's minimize."""

import numpy as np
from scipy.optimize import minimize

import torsor as ts

model = ts.models.arm7()
steps, integrator = 50, ts.BDF2(h=0.02)
q0 = np.array([0.0, 0.6, 0.0, 1.2, 0.0, 0.6, 0.0])
forces = [ts.JointDamping(None, 2.0)]
hold = ts.gravity_forces(model, q0)  # the torques that keep the arm where it is
hand = ts.point_positions(model, q0, "hand", (0, 0, 0))
target = hand + [-0.1, 0.4, 0.2]
reach = ts.PointTarget("hand", (0, 0, 0), target, weight=1e3)
cost = reach + ts.VelocityTarget(weight=1.0) + 1e-3 * ts.ControlEffort()


def simulate(u):
    """The motion under torques (steps * nv,) in addition to those that hold the arm."""
    controls = hold + u.reshape(steps, model.nv)
    return ts.simulate(model, q0, steps=steps, integrator=integrator, forces=forces, controls=controls)


def objective(u):
    """The cost and its gradient with respect to all 350 torques, by one simulation and one sweep backward."""
    motion = simulate(u)
    loss = ts.loss(motion, cost)
    return float(loss.value), ts.adjoint(motion, loss, parameters=False).controls.ravel()


u0 = np.zeros(steps * model.nv)
rng = np.random.default_rng(0)
direction = rng.standard_normal(u0.size)
value, gradient = objective(u0)
difference = (objective(u0 + 1e-5 * direction)[0] - objective(u0 - 1e-5 * direction)[0]) / 2e-5
print(f"gradient along a direction {gradient @ direction:.8f}, by differences {difference:.8f}")
assert np.isclose(gradient @ direction, difference, rtol=1e-6)

result = minimize(objective, u0, jac=True, method="L-BFGS-B", options={"maxiter": 100})
motion = simulate(result.x)
off = np.linalg.norm(ts.point_positions(model, motion.q[-1], "hand", (0, 0, 0)) - target)
print(f"cost from {value:.2f} to {result.fun:.4f} in {result.nit} iterations")
print(f"the hand is {1e3 * off:.2f} mm from its target; no joint is faster than {np.abs(motion.v[-1]).max():.2f} rad/s")
assert off < 5e-3

# The same sweep has the gradients with respect to all parameters: here the effect of a link that is 1 % heavier.
inertia = ts.adjoint(motion, reach).inertia
for body, slope in zip(model.bodies[3:], inertia[3:], strict=True):
    print(f"  {body.name:10} {0.01 * slope @ body.inertia.parameters:+.5f}")

try:
    from matplotlib.figure import Figure
except ImportError:
    print("Matplotlib is not installed; `pip install matplotlib` adds a picture.")
else:
    figure = Figure(figsize=(10, 3.8), dpi=110, layout="constrained")
    grid = figure.add_gridspec(1, 2, width_ratios=(1, 1))
    space, plane = figure.add_subplot(grid[0], projection="3d"), figure.add_subplot(grid[1])
    motion.draw(rows=range(0, steps + 1, 10), ax=space, trace="hand")
    space.plot(*target, "*", color="#e0a030", ms=14, mec="#30363c", zorder=100)
    space.set_box_aspect(np.ptp([space.get_xlim3d(), space.get_ylim3d(), space.get_zlim3d()], axis=1), zoom=1.75)
    space.set_title("The arm every 0.2 s", weight="bold", y=1.0)
    moving = [joint for joint in model.joints if joint.nv]
    for joint, torque in zip(moving, (motion.controls - hold).T, strict=True):
        plane.plot(motion.t[:-1], torque, lw=1.6, label=joint.name.replace("_", " "))
    plane.set_title("Torques found, beyond those that hold it [Nm]", loc="left", weight="bold")
    plane.set_xlabel("t [s]")
    plane.grid(color="#e8ebee")
    plane.spines[:].set_visible(False)
    plane.legend(frameon=False, ncols=2, fontsize=8)
    figure.savefig("reach.png")
    print("reach.png")

try:
    motion.html("reach.html")  # a page that plays the motion
except ImportError as error:
    print(error)
