"""A slider-crank driven at constant speed: the torque at the crank and the forces of its bearings from multipliers."""

import numpy as np

import torsor as ts

r, l, speed = 0.05, 0.16, 2 * np.pi * 20  # crank and rod in m, 20 turns per second
builder = ts.ModelBuilder("slider-crank")
hinge = ts.Revolute((0, -1, 0))  # counterclockwise in the x-z plane
for name, parent, joint, x, mass, length in (
    ("crank", "world", hinge, 0.0, 0.8, r),
    ("rod", "crank", hinge, r, 0.4, l),
    ("piston", "world", ts.Prismatic((1, 0, 0)), 0.0, 0.5, 0.05),
):
    centre = 0.0 if name == "piston" else length / 2
    inertia = ts.Inertia.box(mass=mass, size=(length, 0.02, 0.02), com=(centre, 0, 0))
    builder.add_body(name, parent, joint, ts.SE3.translation(x, 0, 0), inertia)
model = builder.build()

pin = ts.Loop("rod", "piston", hinge, ts.SE3.translation(l, 0, 0), name="pin")
drive = ts.PrescribedJoint("crank", lambda t: (speed * t, speed, 0.0), name="drive")  # value, rate, second rate
constraints = [pin, drive]

# The nearest state that satisfies both: all of it is determined, because the drive takes the last freedom.
q0, v0 = ts.project(model, constraints, [0.0, 0.0, r + l], [0.0, 0.0, 0.0])
print(ts.mobility(model, constraints, q0))
motion = ts.simulate(model, q0, v0, steps=400, integrator=ts.SDIRK3(h=0.1 / 400), constraints=constraints)

# The closed form: x = r cos + sqrt(l^2 - r^2 sin^2).
angle = speed * motion.t
s, c = r * np.sin(angle), r * np.cos(angle)
root = np.sqrt(l**2 - s**2)
print(f"piston against the closed form: {np.abs(motion.q[:, 2] - (c + root)).max():.0e} m, ", end="")
print(f"speed {np.abs(motion.v[:, 2] + speed * s * (1 + c / root)).max():.0e} m/s")
assert np.allclose(motion.q[:, 2], c + root, rtol=0, atol=1e-12)

# Rows of multipliers are those of the list: five of the pin, then the drive, whose multiplier is its torque.
torque = motion.multipliers[:, 5]
on_piston = motion.reactions[:, 0]  # the wrench of the pin on the piston: moment, force
a = ts.constrained_forward_dynamics(model, constraints, motion.q, motion.v, np.zeros(3), t=motion.t).a
assert np.allclose(
    on_piston[:, 3], 0.5 * a[:, 2], rtol=0, atol=1e-9
)  # mass times acceleration: nothing else is along x
print(f"largest force along the piston {np.abs(on_piston[:, 3]).max():.0f} N, ", end="")
print(
    f"on its wall {np.abs(on_piston[:, 5] - 0.5 * 9.81).max():.0f} N, torque at the crank {np.abs(torque).max():.1f} Nm"
)

# Power: what the drive puts in is what energy gains.
energy = motion.energies.total
work = np.sum((torque[1:] + torque[:-1]) / 2 * speed * np.diff(motion.t))
print(f"work over two turns {work:+.4f} J; largest kinetic energy {motion.energies.kinetic.max():.2f} J")
assert abs(work - (energy[-1] - energy[0])) < 1e-2 * np.ptp(energy)

# The same torque by inverse dynamics, from the motion alone.
tau, _ = ts.constrained_inverse_dynamics(model, [pin], motion.q, motion.v, a, actuated=["crank"])
print(f"torque by inverse dynamics: the same to {np.abs(tau[:, 0] - torque).max():.0e} Nm")
assert np.allclose(tau[:, 0], torque, rtol=0, atol=1e-9)

try:
    from matplotlib.figure import Figure
except ImportError:
    print("Matplotlib is not installed; `pip install matplotlib` adds a picture.")
else:
    figure = Figure(figsize=(10, 3.6), dpi=110, layout="constrained")
    for axes, title, lines in zip(
        figure.subplots(1, 2),
        ("Force of the pin on the piston [N]", "Torque that drives the crank [Nm]"),
        ({"along": on_piston[:, 3], "across": on_piston[:, 5]}, {"torque": torque}),
        strict=True,
    ):
        for (label, y), color in zip(lines.items(), ("#3578b5", "#c8374b"), strict=False):
            axes.plot(np.degrees(angle), y, color=color, lw=1.8, label=label)
        axes.set_title(title, loc="left", weight="bold")
        axes.set_xlabel("angle of the crank [degrees]")
        axes.set_xticks(np.arange(0, 721, 180))
        axes.grid(color="#e8ebee")
        axes.spines[:].set_visible(False)
        axes.legend(frameon=False)
    figure.savefig("slider_crank.png")
    print("slider_crank.png")

try:
    motion.html("slider_crank.html", speed=0.05)  # a page that plays the motion
except ImportError as error:
    print(error)
