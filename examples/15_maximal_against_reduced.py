"""One mechanism in joint coordinates and in maximal ones: how exact steps are, and how far joints open."""

import numpy as np

import torsor as ts

# A tree of five bodies on joints of five kinds.
rng = np.random.default_rng(5)
rail = ts.SplineCurve([ts.SE3.exp([0.1 * k, 0.2, 0.05 * k * k, 0.3 * k, 0.1 * k, 0.0]) for k in range(6)])
builder = ts.ModelBuilder("tree")
for name, parent, joint in (
    ("arm", "world", ts.Revolute((0, 1, 0))),
    ("elbow", "arm", ts.Universal()),
    ("ball", "elbow", ts.Spherical()),
    ("nut", "elbow", ts.Screw((0, 0, 1), 0.2)),
    ("slider", "arm", rail),
):
    inertia = ts.Inertia.box(mass=rng.uniform(0.5, 2.0), size=rng.uniform(0.2, 0.5, 3), com=rng.uniform(-0.1, 0.1, 3))
    builder.add_body(name, parent, joint, ts.SE3.exp(0.4 * rng.standard_normal(6)), inertia)
model = builder.build()
q0 = model.neutral
q0[model.joint("slider").q_slice] = 1.5
q0, v0 = model.plus(q0, 0.3 * rng.standard_normal(model.nv)), 0.3 * rng.standard_normal(model.nv)

# Every body free, every joint a constraint. Screw and rail keep their coordinates, after those of the bodies.
free, joints = model.maximal()
Q0, V0 = ts.to_maximal(model, q0, v0)
print(
    f"{model.nv} velocities in joint coordinates; {free.nv} in maximal ones, with {len(joints)} joints as constraints"
)

T = 0.4
exact = ts.body_poses(model, ts.simulate(model, q0, v0, steps=4000, integrator=ts.SDIRK2(h=T / 4000)).q[-1])

schemes = {
    "reduced, Euler": (False, lambda h: ts.SymplecticEuler(h), "#e0a030"),
    "maximal, Euler": (True, lambda h: ts.SymplecticEuler(h, baumgarte=0.0), "#8a949e"),
    "maximal, Baumgarte 0.2 / h": (True, lambda h: ts.SymplecticEuler(h, baumgarte=0.2 / h), "#3578b5"),
    "maximal, post-stabilised": (True, lambda h: ts.SymplecticEuler(h, stabilization="post"), "#2a9d5c"),
    "reduced, BDF1": (False, lambda h: ts.BDF1(h), "#c8374b"),
    "maximal, BDF1": (True, lambda h: ts.BDF1(h), "#7a1f3d"),
}
counts = np.array([40, 80, 160, 320])
errors = {name: np.zeros(len(counts)) for name in schemes}
gaps = {name: np.zeros(len(counts)) for name, (maximal, _, _) in schemes.items() if maximal}
for k, steps in enumerate(counts):
    for name, (maximal, kind, _) in schemes.items():
        integrator = kind(T / steps)
        if maximal:
            motion = ts.simulate(free, Q0, V0, steps=int(steps), integrator=integrator, constraints=joints)
            gaps[name][k] = np.abs(ts.constraint_errors(free, joints, motion.q[-1]).g).max()
        else:
            motion = ts.simulate(model, q0, v0, steps=int(steps), integrator=integrator)
        poses = ts.body_poses(motion.model, motion.q[-1])[: model.nbodies]
        errors[name][k] = np.abs(poses - exact).max()

print("\nlargest error of a pose after 0.4 s (and how far joints are open)")
print("steps".rjust(27), *(f"{steps:19}" for steps in counts))
for name, row in errors.items():
    cells = [f"{e:9.1e} " + (f"({gaps[name][k]:.0e})" if name in gaps else " " * 7) for k, e in enumerate(row)]
    print(f"{name:27}", *(cell.rjust(19) for cell in cells))

orders = {name: np.log2(row[-2] / row[-1]) for name, row in errors.items()}
assert all(0.8 < order < 1.2 for order in orders.values())  # all are of order 1
drift = {name: np.log2(row[-2] / row[-1]) for name, row in gaps.items()}
assert abs(drift["maximal, Euler"] - 1) < 0.3
assert drift["maximal, post-stabilised"] > 3
assert gaps["maximal, BDF1"].max() < 1e-10  # no drift: positions are part of the step, to the tolerance of its Newton

try:
    from matplotlib.figure import Figure
except ImportError:
    print("Matplotlib is not installed; `pip install matplotlib` adds a picture.")
else:
    figure = Figure(figsize=(10, 4.6), dpi=150, layout="constrained")
    figure.get_layout_engine().set(w_pad=0.1, h_pad=0.1, wspace=0.05)
    left, right = figure.subplots(1, 2)
    for name, (maximal, _, color) in schemes.items():
        left.loglog(counts, errors[name], "o-" if maximal else "s--", color=color, lw=1.8, ms=5, label=name)
        if maximal:
            right.loglog(counts, np.maximum(gaps[name], 1e-16), "o-", color=color, lw=1.8, ms=5, label=name)
    left.set_yticks([5e-3, 1e-2, 2e-2, 4e-2], ["0.005", "0.01", "0.02", "0.04"])
    left.legend(fontsize=9, frameon=False)
    left.set_title("error of poses against a fine solution", fontsize=11)
    right.set_title("how far joints are open", fontsize=11)
    for axes in (left, right):
        axes.set_xlabel("steps in 0.4 s")
        axes.set_xticks(counts, [str(n) for n in counts])
        axes.minorticks_off()
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig("maximal.png")
    print("maximal.png")
