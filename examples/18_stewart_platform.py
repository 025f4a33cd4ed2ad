"""A Stewart platform: forces of its six legs for a motion of the plate, and gradients by the geometry."""

import numpy as np

import torsor as ts


def circle(radius, half_angle, height=0.0):
    """Six points on a circle, in three pairs."""
    angles = np.array([2 * np.pi * k / 3 + s * half_angle for k in range(3) for s in (-1, 1)])
    return np.stack([radius * np.cos(angles), radius * np.sin(angles), np.full(6, height)], axis=-1)


legs, rods = range(6), [f"rod {k}" for k in range(6)]
base, top = circle(1.2, 0.3), circle(0.7, 0.75, -0.05)


def platform(base, top):
    """A plate, free, and six legs of two parts: a cardan joint on the ground, and a cylinder that drives a rod."""
    builder = ts.ModelBuilder("Stewart platform")
    builder.add_body("plate", "world", ts.Free(), None, ts.Inertia.cylinder(mass=20.0, radius=0.7, length=0.1))
    for k in legs:
        cylinder = ts.Inertia.cylinder(mass=3.0, radius=0.05, length=0.7, com=(0, 0, 0.35))
        rod = ts.Inertia.cylinder(mass=1.5, radius=0.03, length=0.7, com=(0, 0, -0.35))
        builder.add_body(f"cylinder {k}", "world", ts.Universal(), ts.SE3.translation(*base[k]), cylinder)
        builder.add_body(f"rod {k}", f"cylinder {k}", ts.Prismatic((0, 0, 1)), None, rod)
    # Each rod ends in a ball joint of the plate: six loops of three rows, which leave the six freedoms of the plate.
    balls = [ts.Loop("plate", f"rod {k}", ts.Spherical(), ts.SE3.translation(*top[k]), name=f"ball {k}") for k in legs]
    return builder.build(), balls


def course(t):
    """The motion of the plate, which circles and nods: pose, twist in its own frame, and the rate of that."""
    w, s, c = np.pi, np.sin(np.pi * t), np.cos(np.pi * t)
    pose = ts.SE3.translation(0.15 * c, 0.15 * s, 1.3 + 0.1 * s) @ ts.SE3.rotation((0, 1, 0), 0.2 * s)
    turn, turning = np.array([0, 0.2 * w * c, 0]), np.array([0, -0.2 * w**2 * s, 0])
    speed = pose.R.T @ [-0.15 * w * s, 0.15 * w * c, 0.1 * w * c]
    rate = pose.R.T @ [-0.15 * w**2 * c, -0.15 * w**2 * s, -0.1 * w**2 * s] - np.cross(turn, speed)
    return pose, np.concatenate([turn, speed]), np.concatenate([turning, rate])


model, loops = platform(base, top)
guess = model.neutral
guess[:3] = 0, 0, 1.3
for rod in rods:
    guess[model.joint(rod).q_slice] = 1.4
print(ts.mobility(model, loops, ts.project(model, loops, guess, keep=["plate"])))

# With the plate prescribed nothing is free: projection gives the states, and forward dynamics the accelerations.
steps, h = 100, 0.01
t = h * np.arange(steps + 1)
led = [*loops, ts.PrescribedBody("plate", course)]
q, v = ts.project(model, led, np.tile(guess, (steps + 1, 1)), np.zeros(model.nv), t=t)
a = ts.constrained_forward_dynamics(model, led, q, v, np.zeros(model.nv), t=t).a

# Inverse dynamics without the leading hand: what the six rods must push, the only joints with motors.
tau, multipliers = ts.constrained_inverse_dynamics(model, loops, q, v, a, actuated=rods)
force = np.stack([tau[:, model.joint(rod).v_slice.start] for rod in rods], axis=-1)  # (101, 6)
weight = 9.81 * sum(body.inertia.mass for body in model.bodies)
print(f"forces of the legs between {force.min():.0f} and {force.max():.0f} N; the whole weighs {weight:.0f} N")

# These forces, held over each step, and nothing else: where does the plate go?


def rollout(model, loops):
    """The motion from the state with the plate on its course, in which the legs push as computed."""
    start = ts.project(model, loops, q[0], v[0], keep=["plate"])
    return ts.simulate(
        model, *start, steps=steps, integrator=ts.SDIRK2(h), constraints=loops,
        controls=(force[1:] + force[:-1]) / 2, actuation=rods,
    )  # fmt: skip


motion = rollout(model, loops)
off = np.linalg.norm(motion.q[-1, :3] - course(1.0)[0].p)
gap = np.abs(ts.constraint_errors(model, loops, motion.q).g).max()
print(f"driven by forces alone, the plate is {1e3 * off:.2f} mm off after 1 s; loops are open by {gap:.0e} m at most")
assert off < 0.02

# Gradients with respect to the geometry: of the steps by the adjoint method, and of the start, which moves with the
# joints, by projection in reverse.
goal = ts.PointTarget("plate", (0, 0, 0), course(1.0)[0].p + [0, 0, 0.05], weight=1.0)  # higher, with the same forces
along = ts.adjoint(motion, goal)
first = ts.project_vjp(model, loops, q[0], v[0], along.q0, along.v0, keep=["plate"])
feet = (along.placement + first.placement)[1::2, 3:]  # those of the cylinders: every other body after the plate
balls = np.array([along.constraints[k]["placement_a"] + first.constraints[k]["placement_a"] for k in legs])[:, 3:]

rng = np.random.default_rng(0)
dfeet, dballs = rng.standard_normal((2, 6, 3))
values = [ts.loss(rollout(*platform(base + e * dfeet, top + e * dballs)), goal).value for e in (1e-5, -1e-5)]
slope, difference = np.sum(feet * dfeet) + np.sum(balls * dballs), (values[0] - values[1]) / 2e-5
print(f"slope along a change of all 36 coordinates of joints {slope:.9f}, by differences {difference:.9f}")
assert np.isclose(slope, difference, rtol=1e-5)

try:
    from matplotlib.figure import Figure
except ImportError:
    print("Matplotlib is not installed; `pip install matplotlib` adds a picture.")
else:
    figure = Figure(figsize=(9, 4.2), dpi=100)
    view = figure.add_axes((-0.06, -0.12, 0.6, 1.22), projection="3d", computed_zorder=False)
    axes = figure.add_axes((0.58, 0.13, 0.4, 0.74))
    colors = ["#3578b5", "#7a1f3d", "#2a9d5c", "#e0a030", "#c8374b", "#8a949e"]
    pose = course(0.0)[0]
    ends = top @ pose.R.T + pose.p
    for corners, color, zorder in ((base, "#d5dadf", 1), (ends, "#b7c6d6", 3)):
        view.plot_trisurf(
            *corners.T, triangles=[(0, k, k + 1) for k in range(1, 5)], color=color, alpha=0.55, lw=0, zorder=zorder
        )
        view.plot(*np.vstack([corners, corners[:1]]).T, color="#30363c", lw=1.2, zorder=zorder)
    for k in legs:
        middle = base[k] + 0.7 * (ends[k] - base[k]) / np.linalg.norm(ends[k] - base[k])
        view.plot(*np.transpose([base[k], middle]), color=colors[k], lw=6, solid_capstyle="round", zorder=2)
        view.plot(*np.transpose([middle, ends[k]]), color=colors[k], lw=2.5, zorder=2)
    view.plot(
        *np.transpose([course(x)[0].p for x in np.linspace(0, 2, 100)]), color="#c8374b", lw=1.5, ls="--", zorder=4
    )
    view.set_box_aspect((1, 1, 0.62), zoom=1.15)
    view.set(xlim=(-1.1, 1.1), ylim=(-1.1, 1.1), zlim=(0, 1.36))
    view.view_init(18, -62)
    view.set_axis_off()
    for k in legs:
        axes.plot(t, force[:, k], color=colors[k], lw=1.8)
    axes.set_title("Forces of the legs [N]", loc="left", weight="bold")
    axes.set_xlabel("t [s]")
    axes.set_xlim(0, 1)
    axes.grid(color="#e8ebee")
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    figure.savefig("stewart_platform.png")
    print("stewart_platform.png")

try:
    motion.html("stewart_platform.html")  # a page that plays the motion
except ImportError as error:
    print(error)
