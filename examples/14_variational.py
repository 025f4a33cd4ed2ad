"""The energy of a double pendulum over 50 000 steps: variational integrators keep it, the others lose it."""

import numpy as np

import torsor as ts

model = ts.models.acrobot()
h, q0 = 0.02, np.array([np.pi / 2, 0.0])  # let go from the side, stretched: 24.5 J above hanging at rest
integrators = {
    "SymplecticEuler": (ts.SymplecticEuler(h), "#e0a030"),
    "BDF1": (ts.BDF1(h), "#8a949e"),
    "BDF2": (ts.BDF2(h), "#2a9d5c"),
    "SDIRK2": (ts.SDIRK2(h), "#3578b5"),
    "Variational, order 2": (ts.Variational(h), "#c8374b"),
    "Variational, order 4": (ts.Variational(h, order=4), "#7a1f3d"),
}

errors = {}
print("                         largest error    mean of the first and the last tenth")
for name, (integrator, _) in integrators.items():
    motion = ts.simulate(model, q0, steps=50_000, integrator=integrator)
    error = errors[name] = motion.energies.total - motion.energies.total[0]
    largest, tenths = np.abs(error).max(), error[1:].reshape(10, -1).mean(axis=1)
    print(f"{name:22} {largest:13.1e} J {tenths[0]:18.1e} J {tenths[-1]:12.1e} J")
    if isinstance(integrator, ts.Variational):
        # It oscillates with the motion and does not drift: the means hardly differ.
        assert abs(tenths[-1] - tenths[0]) < 0.01 * largest
assert np.abs(errors["Variational, order 4"]).max() < 0.01 * np.abs(errors["Variational, order 2"]).max()

try:
    from matplotlib.figure import Figure
except ImportError:
    print("Matplotlib is not installed; `pip install matplotlib` adds a picture.")
else:
    figure = Figure(figsize=(10, 4.6), dpi=150, layout="constrained")
    figure.get_layout_engine().set(w_pad=0.1, h_pad=0.1, wspace=0.05)
    left, right = figure.subplots(1, 2)
    for name, (_, color) in integrators.items():
        style = {"color": color, "lw": 1.8, "label": name}
        windows = errors[name][1:].reshape(200, 250)  # of 5 s
        times = motion.t[1:].reshape(200, 250).mean(axis=1)
        left.plot(times, windows.mean(axis=1), **style)
        right.plot(times, np.abs(windows).max(axis=1), **style)
    left.set_title("Change of energy [J], mean of 5 s", loc="left", weight="bold")
    right.set_title("Size of the change [J], largest in 5 s", loc="left", weight="bold")
    right.set_yscale("log")
    for axes in (left, right):
        axes.set_xlabel("t [s]")
        axes.grid(color="#e8ebee")
        axes.set_axisbelow(True)
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0, which="both")
        axes.set_xlim(0, motion.t[-1])
    handles, labels = left.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    figure.savefig("energy.png")
    print("energy.png")
