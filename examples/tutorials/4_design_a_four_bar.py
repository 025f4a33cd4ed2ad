"""Design a four-bar linkage

Four bars shall do the work of a pair of gears: while the crank turns by 100 degrees, the rocker turns by 50, evenly.
The lengths of the bars follow from exact derivatives of the closed linkage with respect to its geometry.
"""

# ## A linkage from its lengths
#
# Crank and rocker turn on the ground, the coupler on the crank; a loop closes the chain. Lengths of the crank and of
# the ground are placements of joints, those of coupler and rocker are placements of the loop.
import numpy as np
from matplotlib.figure import Figure
from scipy.optimize import least_squares

import torsor as ts

hinge = ts.Revolute((0, -1, 0))


def linkage(x):
    """The tree and the loop for lengths x = (crank, coupler, rocker, ground)."""
    crank, coupler, rocker, ground = x
    b = ts.ModelBuilder("four-bar")
    for name, parent, at, length in (
        ("crank", "world", 0.0, crank),
        ("coupler", "crank", crank, coupler),
        ("rocker", "world", ground, rocker),
    ):
        inertia = ts.Inertia.box(mass=length, size=(length, 0.05, 0.05), com=(length / 2, 0, 0))
        b.add_body(name, parent, hinge, ts.SE3.translation(at, 0, 0), inertia)
    ends = ts.SE3.translation(coupler, 0, 0), ts.SE3.translation(rocker, 0, 0)
    return b.build(), [ts.Loop("coupler", "rocker", hinge, *ends, name="closing")]


# ## The angle of the rocker, and its derivatives
#
# `project` closes the linkage at given angles of the crank, for all of them as one batch. `project_vjp` gives the exact
# gradient of the rocker's angle by all placements. A placement counts as a twist: its fourth number is a shift along x,
# which is the length.
cranks = np.radians(np.linspace(40, 140, 41))
guess = np.stack([cranks, 0.2 - 0.8 * cranks, 1.6 + 0 * cranks], axis=1)


def rocker(x):
    """Angles (41,) of the rocker, and their derivatives (41, 4) by the lengths."""
    model, loops = linkage(x)
    q = ts.project(model, loops, guess, keep=["crank"])
    weights = np.tile([0.0, 0.0, 1.0], (len(q), 1))  # on the rocker
    g = ts.project_vjp(model, loops, guess, None, weights, None, keep=["crank"])
    closing = g.constraints[0]
    by_length = [
        g.placement[:, model.body_index("coupler"), 3],
        closing["placement_a"][:, 3],
        closing["placement_b"][:, 3],
        g.placement[:, model.body_index("rocker"), 3],
    ]
    return q[:, 2], np.stack(by_length, axis=1)


x0 = np.array([0.5, 1.0, 0.9, 1.0])
step = 1e-6
columns = [(rocker(x0 + step * e)[0] - rocker(x0 - step * e)[0]) / (2 * step) for e in np.eye(4)]
print("largest derivative", np.abs(rocker(x0)[1]).max().round(3), "differs from differences by ", end="")
print(f"{np.abs(rocker(x0)[1] - np.transpose(columns)).max():.0e}")
assert np.allclose(rocker(x0)[1], np.transpose(columns), atol=1e-7)

# ## The design
#
# The angle itself does not matter, only that it is even: a fifth unknown is where it starts. Only ratios of lengths
# matter too, so that the ground stays 1 m; no bar is to be longer than 1.5 m.
wanted = 0.5 * (cranks - cranks[0])


def residuals(z):
    """What the angles are off, in degrees."""
    return np.degrees(rocker([*z[:3], 1.0])[0] - z[3] - wanted)


def jacobian(z):
    """Its derivatives by crank, coupler, rocker and the start."""
    return np.degrees(np.column_stack([rocker([*z[:3], 1.0])[1][:, :3], -np.ones(len(cranks))]))


z0 = np.array([*x0[:3], rocker(x0)[0][0]])
design = least_squares(residuals, z0, jacobian, bounds=([0.2, 0.3, 0.3, -4], [1.5, 1.5, 1.5, 4]))
lengths = np.array([*design.x[:3], 1.0])
before, after = np.abs(residuals(z0)).max(), np.abs(design.fun).max()
print(f"crank {lengths[0]:.3f}, coupler {lengths[1]:.3f}, rocker {lengths[2]:.3f} m for a ground of 1 m")
print(f"uneven by at most {before:.1f} degrees before, {after:.2f} after, in {design.nfev} evaluations")
assert after < 1.0

# ## Does it run?
#
# The crank is driven at a constant speed; the multiplier of the drive is the torque that this takes.
model, loops = linkage(lengths)
drive = ts.PrescribedJoint("crank", lambda t: (cranks[0] + t, 1.0, 0.0), name="drive")
q0 = ts.project(model, loops, guess[0], keep=["crank"])
start = ts.project(model, [*loops, drive], q0, np.zeros(3))
T = round(float(np.ptp(cranks)), 2)
motion = ts.simulate(model, *start, T=T, integrator=ts.SDIRK2(h=0.01), constraints=[*loops, drive])
ratio = motion.v[:, 2] / motion.v[:, 0]
gap = np.abs(ts.constraint_errors(model, loops, motion.q).g).max()
print(
    f"the ratio of speeds is between {ratio.min():.3f} and {ratio.max():.3f}; the loop is open by at most {gap:.0e} m"
)

figure = Figure(figsize=(9, 3.6), dpi=110, layout="constrained")
left, right = figure.subplots(1, 2, width_ratios=(1.1, 1))
for row, alpha in zip(np.linspace(0, len(motion.q) - 1, 5).astype(int), np.linspace(0.2, 1.0, 5), strict=True):
    A, B = (
        ts.point_positions(model, motion.q[row], body, (length, 0, 0))[[0, 2]]
        for body, length in (("crank", lengths[0]), ("rocker", lengths[2]))
    )
    for ends, color in ((((0, 0), A), "#3578b5"), ((A, B), "#2a9d5c"), ((B, (1, 0)), "#e0a030")):
        left.plot(*np.transpose(ends), color=color, lw=4, alpha=alpha, solid_capstyle="round")
left.plot([0, 1], [0, 0], "^", color="#30363c", ms=11)
left.set_aspect("equal")
left.axis("off")
left.set_title("The design at five angles", loc="left", weight="bold")
turned = np.degrees(cranks - cranks[0])
right.plot(turned, residuals(z0), color="#8a949e", lw=1.8, label="before")
right.plot(turned, design.fun, color="#c8374b", lw=1.8, label="after")
right.set_title("Error of the rocker's angle [degrees]", loc="left", weight="bold")
right.set_xlabel("turn of the crank [degrees]")
right.legend(frameon=False)
right.grid(color="#e8ebee")
right.spines[:].set_visible(False)
figure.savefig("four_bar_design.png")

# ## Watch it
#
# At half speed, as a page that plays.
motion.html("four_bar_design.html", speed=0.5)
