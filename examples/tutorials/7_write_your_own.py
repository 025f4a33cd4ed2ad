"""Write a joint, a force and a constraint

What the library does not have can be written in Python, as a few functions. Each part is checked by the library, and
then takes part in everything: dynamics, derivatives, simulation, gradients. Here: a joint in which one circle rolls on
another, as in a knee; a torque with detents, as of a stepping motor; and a tip that runs on an ellipse.
"""

# ## A joint
#
# Two circles of radius r roll on each other. While the child turns by q, its centre moves around that of the parent by
# q/2. A joint is its pose T(q), the matrix S(q) of its twist $V = S \dot q$ in the child's frame, angular part first,
# and the first and second derivatives of S.
import numpy as np
from matplotlib.figure import Figure

import torsor as ts
from torsor import testing


class Rolling(ts.CustomJoint):
    """A circle of radius r that rolls on another one, in the x-z plane."""

    dofs = 1

    def __init__(self, r):
        self.r = r

    def __repr__(self):
        return f"{type(self).__name__}({self.r})"

    def T(self, q):
        c, s, c2, s2 = np.cos(q[0]), np.sin(q[0]), np.cos(q[0] / 2), np.sin(q[0] / 2)
        x, z = 2 * self.r * s2, 2 * self.r * c2  # the centre of the child
        return np.array([[c, 0, s, x], [0, 1, 0, 0], [-s, 0, c, z], [0, 0, 0, 1]])

    def S(self, q):
        c2, s2 = np.cos(q[0] / 2), np.sin(q[0] / 2)
        return np.array([0, 1, 0, self.r * c2, 0, self.r * s2]).reshape(6, 1)

    def dS(self, q):
        c2, s2 = np.cos(q[0] / 2), np.sin(q[0] / 2)
        return np.array([0, 0, 0, -self.r * s2 / 2, 0, self.r * c2 / 2]).reshape(6, 1, 1)

    def d2S(self, q):
        c2, s2 = np.cos(q[0] / 2), np.sin(q[0] / 2)
        return np.array([0, 0, 0, -self.r * c2 / 4, 0, -self.r * s2 / 4]).reshape(6, 1, 1, 1)


# `check_joint` compares all of them, by complex step. A mistake in any raises an error that names it.
testing.check_joint(Rolling(0.04))


class Wrong(Rolling):
    """A slip of the pen: a factor of 2 in the derivative."""

    def dS(self, q):
        return 2 * super().dS(q)


try:
    testing.check_joint(Wrong(0.04))
except AssertionError as error:
    print("refused:", str(error).splitlines()[0])
else:
    raise SystemExit("the mistake was not found")

# It is used as any other joint.
b = ts.ModelBuilder("leg")
bone = ts.Inertia.cylinder(radius=0.03, length=0.4, mass=2.0, com=(0, 0, -0.2))
shank = ts.Inertia.cylinder(radius=0.03, length=0.4, mass=1.0, com=(0, 0, -0.2))
b.add_body("thigh", joint=ts.Revolute((0, 1, 0)), inertia=bone, joint_name="hip")
upside_down = ts.SE3.translation(0, 0, -0.4) @ ts.SE3.exp([0, np.pi, 0, 0, 0, 0])
b.add_body("knee", "thigh", Rolling(0.04), upside_down, ts.Inertia.point(0.1))
b.add_body("shank", "knee", ts.Fixed(), ts.SE3.exp([0, np.pi, 0, 0, 0, 0]), shank)
leg = b.build()
foot = (0, 0, -0.4)

# ## A force
#
# A torque with n detents to a turn, at one joint: $\tau = -A \sin(n q)$. A force is its value, its derivatives by q and
# v, its energy if it has one, and the gradient by its parameters p if these are to be found or designed.


class Detents(ts.CustomForce):
    """Detents at the hip: p is their strength."""

    def __init__(self, strength, n):
        self.p, self.n = (strength,), n

    def value(self, q, v, t, p):
        tau = np.zeros_like(v)
        tau[0] = -p[0] * np.sin(self.n * q[0])
        return tau

    def derivatives(self, q, v, t, p):
        K = np.zeros((v.size, v.size))
        K[0, 0] = -p[0] * self.n * np.cos(self.n * q[0])
        return K, np.zeros_like(K)

    def energy(self, q, t, p):
        return p[0] * (1 - np.cos(self.n * q[0])) / self.n

    def gradient(self, q, v, t, p, w):
        return [-w[0] * np.sin(self.n * q[0])]


detents = Detents(1.0, 12)
testing.check_force(detents, leg)
forces = [detents, ts.JointDamping(None, 0.05)]

# ## A constraint
#
# The foot runs on an ellipse. A constraint is a function that is zero, of q, the time and parameters, and that accepts
# complex arrays; all of its derivatives are made from it. `batched` says that it takes many states at once, which is
# many times as fast.


class OnEllipse(ts.CustomConstraint):
    """A point stays on an ellipse in the x-z plane: p are its half axes and the height of its centre."""

    rows = 1
    p = (0.35, 0.2, -0.7)
    batched = True

    def value(self, q, t, p):
        at = ts.point_positions(leg, q, "shank", foot)
        x, z = at[..., 0] / p[..., 0], (at[..., 2] - p[..., 2]) / p[..., 1]
        return (x**2 + z**2 - 1)[..., None]


ellipse = OnEllipse()
q0 = ts.project(leg, [ellipse], [0.5, -0.6])
print(ts.mobility(leg, [ellipse], q0))

# ## All three at once
#
# Energy is what the damper leaves; the foot stays on its ellipse; and the gradient by the strength of the detents, and
# by the axes of the ellipse, is exact.
motion = ts.simulate(leg, q0, T=0.6, integrator=ts.BDF2(h=0.01), forces=forces, constraints=[ellipse])
gap = np.abs(ts.constraint_errors(leg, [ellipse], motion.q).g).max()
total = motion.energies.total
print(f"the foot is off by {gap:.0e}; energy falls from {total[0]:.2f} to {total[-1]:.2f} J")
cost = ts.VelocityTarget()
g = ts.adjoint(motion, cost)


def end(strength):
    """The cost with detents of another strength."""
    others = [Detents(strength, 12), forces[1]]
    run = ts.simulate(leg, q0, T=0.6, integrator=ts.BDF2(h=0.01), forces=others, constraints=[ellipse])
    return float(ts.loss(run, cost).value)


difference = (end(1.0 + 1e-5) - end(1.0 - 1e-5)) / 2e-5
by_strength = float(np.ravel(g.forces[0]["p"])[0])
print(f"by the strength of the detents: {by_strength:.6f}, by differences {difference:.6f}")
assert np.isclose(by_strength, difference, rtol=1e-4, atol=1e-7)
print("by the axes of the ellipse, and its height:", np.round(g.constraints[0]["p"], 4))

figure = Figure(figsize=(9, 3.6), dpi=110, layout="constrained")
left, right = figure.subplots(1, 2, width_ratios=(1, 1.3))
around = np.linspace(0, 2 * np.pi, 200)
left.plot(0.35 * np.cos(around), 0.2 * np.sin(around) - 0.7, color="#8a949e", lw=1.2, ls="--")
for row, alpha in zip((0, 15, 30, 60), (0.2, 0.35, 0.5, 1.0), strict=True):
    hip, knee, ankle = (
        ts.point_positions(leg, motion.q[row], body, point)[[0, 2]]
        for body, point in (("thigh", (0, 0, 0)), ("thigh", (0, 0, -0.4)), ("shank", foot))
    )
    centre = ts.body_pose(leg, motion.q[row], "knee")[[0, 2], 3]
    left.plot(*np.transpose([hip, knee]), color="#3578b5", lw=4, alpha=alpha, solid_capstyle="round")
    left.plot(*np.transpose([centre, ankle]), color="#2a9d5c", lw=4, alpha=alpha, solid_capstyle="round")
    for place in (knee, centre):
        left.plot(
            *(place[:, None] + 0.04 * np.array([np.cos(around), np.sin(around)])), color="#30363c", alpha=alpha, lw=1
        )
left.set_aspect("equal")
left.axis("off")
left.set_title("Rolling knee, foot on an ellipse", loc="left", weight="bold")
right.plot(motion.t, np.degrees(motion.q[:, 0]), color="#3578b5", lw=1.8, label="hip")
right.plot(motion.t, np.degrees(motion.q[:, 1]), color="#2a9d5c", lw=1.8, label="knee")
right.set_title("Angles [degrees]", loc="left", weight="bold")
right.set_xlabel("t [s]")
right.legend(frameon=False)
right.grid(color="#e8ebee")
right.spines[:].set_visible(False)
figure.savefig("own_parts.png")

# ## Watch it
#
# At a third of its speed, as a page that plays.
motion.html("own_parts.html", speed=1 / 3)
