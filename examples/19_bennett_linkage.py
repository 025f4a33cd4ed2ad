"""Bennett's linkage: four hinges that are skew in space, which by counting cannot move, and which do."""

import numpy as np

import torsor as ts

# Links of two lengths and twists in turn, with sin(alpha) / a = sin(beta) / b. Hinges are about z of their frames; the
# next one is a length along x away, and turned about x.
alpha, beta, a = 0.6, 1.1, 1.0
b = a * np.sin(beta) / np.sin(alpha)
hinge = ts.Revolute((0, 0, 1))
sizes = {"one": (a, alpha), "two": (b, beta), "three": (a, alpha), "world": (b, beta)}
across = {k: ts.SE3.translation(l, 0, 0) @ ts.SE3.rotation((1, 0, 0), turn) for k, (l, turn) in sizes.items()}
builder = ts.ModelBuilder("Bennett linkage", gravity=(0, 0, 0))
for name, parent in (("one", "world"), ("two", "one"), ("three", "two")):
    length = sizes[name][0]
    inertia = ts.Inertia.box(mass=length, size=(length, 0.1, 0.1), com=(length / 2, 0, 0))
    builder.add_body(name, parent, hinge, None if parent == "world" else across[parent], inertia)
model = builder.build()
loops = [ts.Loop("world", "three", hinge, across["world"].inverse(), across["three"], name="fourth hinge")]

# Three velocities less five rows are -2 freedoms. But only two rows are independent wherever the loop is closed.
q0, v0 = ts.project(model, loops, [1.0, 1.0, 1.0], [2.0, 0.0, 0.0], keep=["one"])
found = ts.mobility(model, loops, q0)
print(found)
assert (found.gruebler, found.freedoms) == (-2, 1)

motion = ts.simulate(model, q0, v0, T=10.0, integrator=ts.Variational(h=0.01, order=4), constraints=loops)
energy, errors = motion.energies.total, ts.constraint_errors(model, loops, motion.q, motion.v)
print(
    f"{np.ptp(motion.q[:, 0]) / (2 * np.pi):.2f} turns in 10 s: energy {energy[0]:.4f} J within {np.ptp(energy):.0e} J"
)
print(f"all five rows are within {np.abs(errors.g).max():.0e}, their rates within {np.abs(errors.gdot).max():.0e}")
assert np.abs(errors.g).max() < 1e-10
assert np.ptp(energy) < 1e-6

# Bennett's relation between neighbouring hinges holds all the way, and opposite hinges turn by opposite angles.
ratio = np.tan(motion.q[:, 0] / 2) * np.tan(motion.q[:, 1] / 2)
exact = np.sin((beta + alpha) / 2) / np.sin((beta - alpha) / 2)
print(f"tan(q1 / 2) tan(q2 / 2) = {exact:.6f} to {np.abs(ratio / exact - 1).max():.0e}")
assert np.allclose(ratio, exact, rtol=1e-7)
assert np.allclose(motion.q[:, 0], -motion.q[:, 2], rtol=0, atol=1e-9)

# It moves because the lengths fit. With a base that is 1 cm shorter it does not even close.
shorter = [loops[0].with_parameters({"placement_a": [0, 0, 0, 0.01, 0, 0]})]
try:
    ts.project(model, shorter, q0)
except ts.ConvergenceError as error:
    print(f"with a base that is 1 cm shorter, {error}")

try:
    from matplotlib.figure import Figure
except ImportError:
    print("Matplotlib is not installed; `pip install matplotlib` adds a picture.")
else:
    figure = Figure(figsize=(7, 4.4), dpi=110)
    view = figure.add_axes((0, -0.15, 1, 1.3), projection="3d")
    colors = ("#3578b5", "#2a9d5c", "#e0a030", "#30363c")
    for q1 in (1.9, 0.7, 1.1, 1.5, 2.3, 2.7):
        bold, T = q1 == 1.9, ts.body_poses(model, ts.project(model, loops, [q1, 2.0, -q1], keep=["one"]))
        base = loops[0].placement_a
        corners = np.array([*T[:, :3, 3], base.p, T[0, :3, 3]])
        for i, axis in enumerate([*T[:, :3, 2], base.R[:, 2]]):
            view.plot(*corners[i : i + 2].T, color=colors[i], lw=5 if bold else 1.3, alpha=1.0 if bold else 0.45)
            if bold:  # the axes of the hinges
                view.plot(*np.array([corners[i] - 0.3 * axis, corners[i] + 0.3 * axis]).T, color="#c8374b", lw=2)
    view.set_aspect("equal")
    view.set_box_aspect(None, zoom=1.6)
    view.view_init(50, -75)
    view.set_axis_off()
    figure.savefig("bennett.png")
    print("bennett.png")

try:
    motion.html("bennett.html")  # a page that plays the motion
except ImportError as error:
    print(error)
