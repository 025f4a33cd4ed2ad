"""Gradients through impacts: when those of the steps are those of the motion, and when they are not.

A ball falls obliquely on a rough plane, without gravity, at speed 1 along x and along -z. It touches after z0, loses
mu (1 + e) of its speed along x and goes on with e along z, so that in the end dx/dz0 = mu (1 + e) and dz/dz0 = -e. The
steps' own gradient is exact in all rows below. It agrees with that of the motion if it does not depend on where in a
step the ball touches.
"""

import warnings

import numpy as np

import torsor as ts

warnings.simplefilter("ignore", ts.ImpactWarning)  # which `adjoint` gives for those that are in between
MU, H, PHASES = 0.3, 5e-3, 96
builder = ts.ModelBuilder("ball", gravity=(0, 0, 0))
builder.add_body("ball", "world", ts.Translational(), inertia=ts.Inertia.sphere(0.05, mass=1.0))
model = builder.build()


def falls(hw, dissipation=0.0, onset=0.0, h=H, integrator=ts.BDF1, phases=PHASES):
    """Rebound e, dx/dz0 and dz/dz0, each (phases,), for starts that differ by parts of a step.

    hw: step size times the contact's own frequency sqrt(stiffness / mass). onset: in units of the way of a step.
    """
    contact = ts.Contact(
        "ball", ts.shapes.Sphere(0.05), "world", ts.shapes.HalfSpace(), stiffness=(hw / h) ** 2,
        dissipation=dissipation, friction=MU, slip=1e-4, onset=onset * h,
    )  # fmt: skip
    q = np.zeros((phases, 3))
    q[:, 2] = 0.35 + h * np.arange(phases) / phases
    v = np.tile([1.0, 0.0, -1.0], (phases, 1))
    motion = ts.simulate(model, q, v, T=1.0, integrator=integrator(h), forces=[contact])
    slopes = []
    for axis in (0, 2):
        last = np.zeros(motion.v.shape)
        last[:, -1, axis] = 1.0
        slopes.append(ts.adjoint(motion, dloss_dq=last, parameters=False).q0[:, 2])
    return motion.v[:, -1, 2], *slopes


def velocity_level(z0, h=0.02):
    """The end of the same motion by impulses that stop what has penetrated, as engines without the gap in their
    equations have it."""
    x, z, vx, vz = 0.0, z0, 1.0, -1.0
    for _ in range(round(1 / h)):
        if z <= 0 and vz < 0:
            vx, vz = vx + MU * vz, 0.0
        x, z = x + h * vx, z + h * vz
    return np.array([x, z])


ROWS = {
    "unresolved, h w = 200": {"hw": 200, "dissipation": 1.0, "h": 0.02},
    "unresolved, h w = 50": {"hw": 50, "dissipation": 1.0},
    "unresolved, h w = 20": {"hw": 20, "dissipation": 1.0},
    "in between, h w = 5": {"hw": 5, "dissipation": 1.0},
    "in between, h w = 1.6": {"hw": 1.6, "dissipation": 1.0},
    "overdamped, h w = 0.5": {"hw": 0.5, "dissipation": 100.0},
    "elastic, h w = 0.1": {"hw": 0.1},
    "elastic, h w = 0.1, onset 4 h v": {"hw": 0.1, "onset": 4.0},
    "elastic, h w = 0.1, onset 16 h v": {"hw": 0.1, "onset": 16.0},
    "elastic, h w = 0.03, onset 4 h v": {"hw": 0.03, "onset": 4.0},
    "the same with BDF2": {"hw": 0.03, "onset": 4.0, "integrator": ts.BDF2},
}

results = {}
print(f"{'':34}{'expected':>8}   {'dx/dz0, 90 % of phases':>24}{'all':>18}   {'dz/dz0, 90 %':>16}{'e':>8}")
for name, given in ROWS.items():
    e, dx, dz = results[name] = falls(**given)
    ranges = np.percentile(dx, (5, 95)), (dx.min(), dx.max()), np.percentile(dz, (5, 95))
    most, whole, along = (f"{a:.3f} .. {b:.3f}" for a, b in ranges)
    print(f"{name:34}{MU * (1 + e.mean()):8.3f}   {most:>24}{whole:>18}   {along:>16}{e.mean():8.3f}")
x = (velocity_level(0.307 + 1e-5) - velocity_level(0.307 - 1e-5)) / 2e-5
print(f"{'impulses without the gap':34}{MU:8.3f}   {x[0]:24.3f}{x[0]:18.3f}   {x[1]:16.3f}{0.0:8.3f}")

for name in ("unresolved, h w = 200", "elastic, h w = 0.03, onset 4 h v", "the same with BDF2"):
    e, dx, _ = results[name]
    assert np.percentile(np.abs(dx - MU * (1 + e)), 90) < 5e-3
assert np.ptp(results["in between, h w = 5"][1]) > 1.0
assert abs(x[0]) < 1e-6

try:
    from matplotlib.figure import Figure
except ImportError:
    print("Matplotlib is not installed; `pip install matplotlib` adds a picture.")
else:
    figure = Figure(figsize=(10, 3.8), dpi=110, layout="constrained")
    left, right = figure.subplots(1, 2)
    frequencies = np.geomspace(0.03, 500, 60)
    for label, color, given in (
        ("elastic", "#e0a030", {"dissipation": 0.0}),
        ("elastic, onset 4 h v", "#2a9d5c", {"dissipation": 0.0, "onset": 4.0}),
        ("dissipation 1 s/m", "#3578b5", {"dissipation": 1.0}),
    ):
        below = frequencies < 1.0 if "elastic" in label else frequencies > 1.0
        found = [falls(hw, phases=32, **given) for hw in frequencies[below]]
        off = np.array([np.percentile(np.abs(dx - MU * (1 + e.mean())), (90, 100)) for e, dx, _ in found])
        left.loglog(frequencies[below], off[:, 0], color=color, lw=1.8, label=label)
        left.loglog(frequencies[below], off[:, 1], color=color, lw=0.8, ls=":")
    left.axvspan(1, 10, color="#c8374b", alpha=0.12, lw=0)
    left.text(3.2, 2e-4, "avoid", ha="center", color="#c8374b")
    left.set(xlabel="h sqrt(k / m)", xlim=(0.025, 1e3), ylim=(1e-4, 30))
    left.set_title("Error of dx/dz0 in 90 % of the phases, dotted: in all", loc="left", weight="bold", fontsize=11)
    left.legend(frameon=False, loc="upper right", fontsize=9)
    phase = np.arange(PHASES) / PHASES
    for name, color in (
        ("in between, h w = 5", "#c8374b"),
        ("unresolved, h w = 20", "#3578b5"),
        ("elastic, h w = 0.1", "#e0a030"),
        ("elastic, h w = 0.1, onset 4 h v", "#2a9d5c"),
    ):
        e, dx, _ = results[name]
        right.plot(phase, dx - MU * (1 + e.mean()), color=color, lw=1.8, label=name)
    right.axhline(0.0, color="#222222", lw=0.8)
    right.set(xlabel="part of a step after which the ball touches", ylim=(-1, 1.2))
    right.set_title("Error of dx/dz0 over the phases of a step", loc="left", weight="bold", fontsize=11)
    right.legend(frameon=False, loc="upper right", fontsize=9)
    for axes in (left, right):
        axes.grid(color="#e8ebee")
        axes.spines[:].set_visible(False)
    figure.savefig("impact_gradients.png")
    print("impact_gradients.png")
