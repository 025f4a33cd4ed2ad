"""A four-bar linkage, closed by a hinge: its freedoms, the curve that a point of its coupler draws, its free motion."""

import numpy as np

import torsor as ts

# Three links in the x-z plane, on hinges about -y: angles are counterclockwise.
crank, coupler, rocker, ground = 0.4, 1.2, 1.0, 1.1
hinge = ts.Revolute((0, -1, 0))
builder = ts.ModelBuilder("four-bar")
for name, parent, x, length in (
    ("crank", "world", 0.0, crank),
    ("coupler", "crank", crank, coupler),
    ("rocker", "world", ground, rocker),
):
    inertia = ts.Inertia.box(mass=length, size=(length, 0.05, 0.05), com=(length / 2, 0, 0))
    builder.add_body(name, parent, hinge, ts.SE3.translation(x, 0, 0), inertia)
model = builder.build()

# The ends of coupler and rocker meet in a hinge. Of its five rows two are independent, because all moves in a plane.
closing = ts.Loop(
    "coupler", "rocker", hinge, ts.SE3.translation(coupler, 0, 0), ts.SE3.translation(rocker, 0, 0), name="closing"
)
loops = [closing]
q0 = ts.project(model, loops, [1.0, -0.4, 1.8], keep=["crank"])  # the crank stays at 1 rad, the others close the loop
print(ts.mobility(model, loops, q0))

# Once around: the configuration at each angle of the crank is found from the one before.
angles = 1.0 + np.linspace(0.0, 2 * np.pi, 145)
turn = [q0]
for angle in angles[1:]:
    turn.append(ts.project(model, loops, [angle, *turn[-1][1:]], keep=["crank"]))
turn = np.array(turn)
points = {"1": (0.5, 0, 0.35), "2": (0.9, 0, -0.45), "3": (0.0, 0, 0.6)}  # of the coupler
curves = {name: ts.point_positions(model, turn, "coupler", p)[:, [0, 2]] for name, p in points.items()}
assert np.abs(np.diff(turn, axis=0)).max() < 0.2  # it stays on one branch: the crank is a crank
gap = np.abs(ts.constraint_errors(model, loops, turn).g).max()
print(f"once around, the loop is open by at most {gap:.0e}; the rocker swings by {np.ptp(turn[:, 2]):.3f} rad")

# Let go from rest: energy is kept without drift, the loop stays closed, and the points stay on their curves.
motion = ts.simulate(model, q0, T=20.0, integrator=ts.Variational(h=5e-3, order=4), constraints=loops)
energy = motion.energies.total
errors = ts.constraint_errors(model, loops, motion.q, motion.v)
print(f"20 s of free motion: energy within {np.ptp(energy):.1e} J of {energy[0]:.3f} J, ", end="")
print(f"gap {np.abs(errors.g).max():.0e}, speed of the gap {np.abs(errors.gdot).max():.0e}")
assert max(np.abs(errors.g).max(), np.abs(errors.gdot).max()) < 1e-10
assert np.ptp(energy) < 1e-4
pin = np.linalg.norm(motion.reactions[:, 0, 3:], axis=-1)  # the force in the hinge that closes the loop
print(f"the force in the closing hinge is between {pin.min():.2f} and {pin.max():.2f} N")

try:
    from matplotlib.figure import Figure
except ImportError:
    print("Matplotlib is not installed; `pip install matplotlib` adds a picture.")
else:
    figure = Figure(figsize=(6.4, 4.0), dpi=100, layout="constrained")
    axes = figure.subplots()
    colors = ("#c8374b", "#7a1f3d", "#8a949e")
    A, B = (ts.point_positions(model, turn, b, (x, 0, 0))[:, [0, 2]] for b, x in (("crank", crank), ("rocker", rocker)))
    for path in (A, B):  # of the two hinges that move
        axes.plot(*path.T, color="#cfd6dc", lw=1.2, ls="--", zorder=1)
    for p, color in zip(curves.values(), colors, strict=True):
        axes.fill(*np.transpose((A[0], p[0], B[0])), color="#2a9d5c", alpha=0.10, lw=0, zorder=2)
        axes.plot(*p.T, color=color, lw=2, zorder=3)
        axes.plot(*p[0], "o", color=color, ms=7, zorder=6)
    for ends, color in (((0, 0), A[0]), "#3578b5"), ((A[0], B[0]), "#2a9d5c"), ((B[0], (ground, 0)), "#e0a030"):
        axes.plot(*np.transpose(ends), color=color, lw=5, solid_capstyle="round", zorder=4)
    hinges = np.array([(0, 0), A[0], B[0], (ground, 0)])
    axes.plot(*hinges.T, "o", color="white", mec="#30363c", ms=8, mew=1.6, zorder=5)
    axes.plot(*hinges[[0, 3]].T, "^", color="#30363c", ms=13, zorder=1.5)
    axes.set_title("Curves of three points of a coupler", loc="left", weight="bold")
    axes.set_aspect("equal")
    axes.axis("off")
    figure.savefig("four_bar.png")
    print("four_bar.png")

try:
    motion.html("four_bar.html")  # a page that plays the motion
except ImportError as error:
    print(error)
