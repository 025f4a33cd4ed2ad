"""Identify a payload

An arm holds something of unknown mass, centre of mass and moments of inertia. They follow from the torques of its
motors along one motion, by linear least squares, because torques are linear in the inertial parameters. Then they are
found again without torques of good quality: from positions alone, by the gradient of a simulation.
"""

# ## What is measured
#
# The truth is a box of 1.2 kg that the hand holds off its axis. The arm moves along sums of sines, so that all
# parameters show; angles are known well, torques with noise of 0.5 Nm.
import numpy as np
from matplotlib.figure import Figure
from scipy.optimize import minimize

import torsor as ts

arm = ts.models.arm7()
truth = ts.Inertia.box(mass=1.2, size=(0.1, 0.15, 0.2), com=(0.03, -0.02, 0.12))
loaded = arm.with_inertia("hand", arm.body("hand").inertia + truth)

rng = np.random.default_rng(1)
t = np.linspace(0.0, 6.0, 601)[:, None, None]
rates, sizes, phases = np.array([1.0, 2.3, 3.7])[:, None], rng.uniform(0.1, 0.4, (3, 7)), rng.uniform(0, 6.28, (3, 7))
q = (sizes * np.sin(rates * t + phases)).sum(axis=1) + [0, 0.6, 0, 1.2, 0, 0.6, 0]
v = (sizes * rates * np.cos(rates * t + phases)).sum(axis=1)
a = -(sizes * rates**2 * np.sin(rates * t + phases)).sum(axis=1)
measured = ts.inverse_dynamics(loaded, q, v, a) + 0.5 * rng.standard_normal(v.shape)

# ## Linear least squares
#
# `inertial_regressor` is the matrix Y in tau = Y p. The ten columns of the hand belong to what it holds; what the empty
# arm needs is subtracted. All 601 states are one batch.
hand = arm.body_index("hand")
Y = ts.inertial_regressor(arm, q, v, a)[..., 10 * hand : 10 * hand + 10]
missing = measured - ts.inverse_dynamics(arm, q, v, a)
A, y = Y.reshape(-1, 10), missing.ravel()
p, *_ = np.linalg.lstsq(A, y, rcond=None)
deviation = np.sqrt(np.diag(np.linalg.inv(A.T @ A)) * ((A @ p - y) ** 2).mean())
names = ["mass", "mass x", "mass y", "mass z", "Ixx", "Ixy", "Iyy", "Ixz", "Iyz", "Izz"]
for name, value, sigma, true in zip(names, p, deviation, truth.parameters, strict=True):
    print(f"{name:8} {value:9.4f} +- {sigma:.4f}   true {true:9.4f}")
assert np.all(np.abs(p - truth.parameters) < 5 * deviation)

# Moments of inertia are the least certain, and nothing in least squares makes them those of a body. The nearest ones
# that a body can have are taken:
found = ts.Inertia.from_parameters(p, allow_unphysical=True)
print("physical as it is:", found.physical)
found = found.nearest_physical()
print(f"mass {found.mass:.3f} kg, centre of mass {np.round(1e3 * found.com, 1)} mm")
assert abs(found.mass - truth.mass) < 0.02
assert np.abs(found.com - truth.com).max() < 0.01

# ## From positions alone
#
# A cheap arm has no torque sensors. It is let go against weak springs, and only angles are recorded. Mass and first
# moments of the load are varied until the simulation moves as the arm did. `adjoint` has the gradient by all inertial
# parameters of all bodies from one sweep; four of them are used.
start = np.array([0.3, 0.6, -0.2, 1.2, 0.1, 0.6, 0.0])
springs = [ts.JointSpring(None, stiffness=30.0, rest=start, damping=3.0)]
settings = {"steps": 100, "integrator": ts.BDF2(h=0.01), "forces": springs}
record = ts.simulate(loaded, start, **settings).q + 1e-4 * rng.standard_normal((101, 7))


def with_load(x):
    """The arm with a load of mass x[0] and first moments x[1:]."""
    return arm.with_inertia("hand", arm.body("hand").inertia + ts.Inertia.point(x[0], x[1:] / x[0]))


def objective(x):
    """Half the sum of squares of what the angles are off, and its gradient."""
    motion = ts.simulate(with_load(x), start, **settings)
    off = motion.q - record
    return 0.5 * (off**2).sum(), ts.adjoint(motion, dloss_dq=off).inertia[hand, :4]


fit = minimize(objective, [0.5, 0.0, 0.0, 0.05], jac=True, method="L-BFGS-B", bounds=[(0.05, 5)] + [(-1, 1)] * 3)
print(f"from positions: mass {fit.x[0]:.3f} kg, centre of mass {np.round(1e3 * fit.x[1:] / fit.x[0], 1)} mm")
assert abs(fit.x[0] - truth.mass) < 0.1

# The moments of inertia about the load's own centre are left out here, which is why the answer is a little off: what a
# model leaves out goes into what it has.
figure = Figure(figsize=(9, 3.4), dpi=110, layout="constrained")
left, right = figure.subplots(1, 2, width_ratios=(1.5, 1))
left.plot(t[:, 0, 0], missing[:, 1], color="#cfd6dc", lw=0.8, label="measured")
left.plot(t[:, 0, 0], (Y @ p)[:, 1], color="#c8374b", lw=1.6, label="of the load that was found")
left.set_title("Torque of the load at the shoulder's pitch [Nm]", loc="left", weight="bold")
left.set_xlabel("t [s]")
left.legend(frameon=False)
rows = np.arange(4)
right.bar(rows - 0.2, truth.parameters[:4], width=0.35, color="#8a949e", label="true")
right.bar(rows + 0.2, p[:4], width=0.35, color="#3578b5", yerr=2 * deviation[:4], label="found")
right.set_xticks(rows, ["mass [kg]", "x", "y", "z [kg m]"])
right.set_title("Mass and first moments", loc="left", weight="bold")
right.legend(frameon=False)
for axes in (left, right):
    axes.grid(color="#e8ebee")
    axes.set_axisbelow(True)
    axes.spines[:].set_visible(False)
figure.savefig("payload.png")
