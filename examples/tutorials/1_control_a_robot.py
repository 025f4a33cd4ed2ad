"""Load a robot and control it

An arm is read from a URDF file, its hand is to follow a circle, and a controller computes torques from inverse
dynamics. The arm that is simulated is not the one of the file: its joints have friction and it carries a load. The
result is how far the hand is off, with and without knowing the load.
"""

# ## The model
#
# Any URDF file will do: `ts.load_urdf("panda.urdf")`. To need no download, this one is written first, from an arm that
# ships with the package.
import numpy as np
from matplotlib.figure import Figure
from scipy.interpolate import CubicSpline

import torsor as ts

ts.to_urdf(ts.models.arm7(), "arm.urdf")
arm = ts.load_urdf("arm.urdf")
print(arm)

# ## The path
#
# Inverse kinematics finds a configuration for each point of the circle, each from the one before. A spline through
# them has velocities and accelerations.
centre, radius, period = np.array([0.55, 0.0, 0.55]), 0.15, 2.0
angles = np.linspace(0.0, 2 * np.pi, 33)
circle = centre + radius * np.stack([0 * angles, np.cos(angles), np.sin(angles)], axis=1)
found = [ts.inverse_kinematics(arm, {"hand": circle[0]}, [0, 0.6, 0, 1.2, 0, 0.6, 0])]
for point in circle[1:]:
    found.append(ts.inverse_kinematics(arm, {"hand": point}, found[-1].q))
assert all(step.converged for step in found)
path = CubicSpline(period * angles / (2 * np.pi), [step.q for step in found])

# ## The controller
#
# Computed torque: the torques that inverse dynamics asks for, with an acceleration that also pulls the arm back to the
# path. A policy is a function of time and state; it is called once a step, and works for batches as it stands.
stiffness, damping = 100.0, 20.0


def controller(model):
    """A policy that believes the arm to be `model`."""

    def torques(t, q, v):
        a = path(t, 2) + stiffness * (path(t) - q) + damping * (path(t, 1) - v)
        return ts.inverse_dynamics(model, q, v, a)

    return ts.Policy(torques)


# ## The robot
#
# Friction in all joints, and 1 kg in the hand: what the controller of the first run does not know.
load = ts.Inertia.sphere(radius=0.04, mass=1.0, com=(0, 0, 0.08))
loaded = arm.with_inertia("hand", arm.body("hand").inertia + load)
friction = [ts.JointDamping(None, 0.5), ts.JointFriction(None, 0.3)]


def follow(policy):
    """The motion of the loaded arm, from the start of the path."""
    integrator = ts.BDF2(h=5e-3)
    return ts.simulate(loaded, path(0), path(0, 1), T=period, integrator=integrator, controls=policy, forces=friction)


# ## The result
def errors(motion):
    """Distance of the hand from where it should be, at each row."""
    hand = ts.point_positions(arm, motion.q, "hand", (0, 0, 0))
    wanted = ts.point_positions(arm, path(motion.t), "hand", (0, 0, 0))
    return np.linalg.norm(hand - wanted, axis=-1)


runs = {"load unknown": follow(controller(arm)), "load known": follow(controller(loaded))}
for name, motion in runs.items():
    print(f"{name}: the hand is off by at most {1e3 * errors(motion).max():.1f} mm")
assert errors(runs["load known"]).max() < 0.3 * errors(runs["load unknown"]).max()

# The hand's paths, and their errors. What is left with the load known is the friction of the joints.
figure = Figure(figsize=(9, 3.6), dpi=110, layout="constrained")
left, right = figure.subplots(1, 2, width_ratios=(1, 1.4))
left.plot(*circle[:, 1:].T, color="#8a949e", lw=1.2, ls="--", label="wanted")
for (name, motion), color in zip(runs.items(), ("#c8374b", "#3578b5"), strict=True):
    left.plot(*ts.point_positions(arm, motion.q, "hand", (0, 0, 0))[:, 1:].T, color=color, lw=1.8, label=name)
    right.plot(motion.t, 1e3 * errors(motion), color=color, lw=1.8)
left.set_aspect("equal")
left.set_title("Path of the hand [m]", loc="left", weight="bold")
left.legend(frameon=False, loc="center", fontsize=9)
right.set_title("How far it is off [mm]", loc="left", weight="bold")
right.set(xlabel="t [s]", ylim=(0, None))
for axes in (left, right):
    axes.grid(color="#e8ebee")
    axes.spines[:].set_visible(False)
figure.savefig("control.png")

# ## Watch it
#
# A page with a time line, in one file that plays anywhere. In a notebook a trajectory shows itself.
runs["load known"].html("control.html")

# Next: feedback from a linear model of one step, with `step_derivatives` and a Riccati equation
# (`examples/13_linear_feedback.py`); the load itself, in the tutorial on identification.
