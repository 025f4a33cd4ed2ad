"""Swing up a pendulum, by gradients and by optimal control

A cart pulls a pole from hanging to standing. First the forces on the cart are found by shooting: the gradient of a
simulation, by the adjoint method, in SciPy's L-BFGS. Then the same is written as a transcription: states and forces of
all steps are unknowns, the steps are constraints, and SciPy's SLSQP gets their exact Jacobian.
"""

# ## The cart and the pole
import numpy as np
from matplotlib.figure import Figure
from scipy.optimize import minimize

import torsor as ts

b = ts.ModelBuilder("cart-pole")
b.add_body("cart", joint=ts.Prismatic((1, 0, 0)), inertia=ts.Inertia.box(mass=1.0, size=(0.3, 0.2, 0.1)))
rod = ts.Inertia.cylinder(radius=0.02, length=0.8, mass=0.3, com=(0, 0, -0.4))
b.add_body("pole", "cart", ts.Revolute((0, -1, 0)), inertia=rod)
model = b.build()
steps, h = 60, 0.03
integrator = ts.BDF1(h)
goal = np.array([0.0, np.pi])  # the cart where it began, the pole up

# ## By gradients
#
# The cost is that of the last state and of the forces. `adjoint` differentiates the whole simulation, at about the cost
# of another one. From zero force nothing moves and the gradient vanishes, so the search begins with a small push and
# pull.
cost = ts.PositionTarget(goal, weight=[20.0, 50.0]) + ts.VelocityTarget(weight=[10.0, 10.0]) + 2e-3 * ts.ControlEffort()


def simulate(u):
    """The motion under forces u (steps,) on the cart."""
    controls = u[:, None]
    return ts.simulate(model, model.neutral, steps=steps, integrator=integrator, controls=controls, actuation=["cart"])


def objective(u):
    """The cost and its gradient."""
    motion = simulate(u)
    return float(ts.loss(motion, cost).value), ts.adjoint(motion, cost, parameters=False).controls[:, 0]


guess = 3.0 * np.sin(np.linspace(0, 3 * np.pi, steps))
shot = minimize(objective, guess, jac=True, method="L-BFGS-B", options={"maxiter": 300})
by_gradients = simulate(shot.x)
print(f"shooting: cost {objective(guess)[0]:.1f} to {shot.fun:.2f} in {shot.nit} iterations, ", end="")
print(f"the pole ends {np.degrees(by_gradients.q[-1, 1] - np.pi):.1f} degrees from upright")
assert abs(by_gradients.q[-1, 1] - np.pi) < 0.1

# ## By optimal control
#
# Shooting has to reach the goal by a weight. A transcription has it as a constraint, and limits of the track and of the
# force as bounds. Unknowns are z = (q, v, u) of all steps; each step of the integrator gives the constraint
#
# $$x_{k+1} - \mathrm{step}(x_k, u_k) = 0,$$
#
# and `step_derivatives` has the blocks of its Jacobian. All steps are one batch: one call evaluates all of them.
n, track, strongest = 2 * model.nv, 0.6, 20.0
bounds = [(-track, track), (None, None), (None, None), (None, None), (-strongest, strongest)] * steps
bounds += [(-track, track), (None, None), (None, None), (None, None)]  # the last state


def split(z):
    """States (steps + 1, 4) and forces (steps, 1)."""
    rows = np.append(z, 0.0).reshape(steps + 1, n + 1)
    return rows[:, :n], rows[:-1, n:]


def defects(z):
    """What the steps miss, the first and the last state."""
    x, u = split(z)
    q1, v1 = ts.step(model, integrator, x[:-1, :2], x[:-1, 2:], u, actuation=["cart"])
    ends = [*(x[0] - [*model.neutral, 0, 0]), *(x[-1] - [*goal, 0, 0])]
    return np.concatenate([(x[1:] - np.hstack([q1, v1])).ravel(), ends])


def jacobian(z):
    """Its derivative, in blocks."""
    x, u = split(z)
    d = ts.step_derivatives(model, integrator, x[:-1, :2], x[:-1, 2:], u, actuation=["cart"])
    blocks = -np.block([[d.dq1_dq, d.dq1_dv, d.dq1_du], [d.dv1_dq, d.dv1_dv, d.dv1_du]])  # (steps, 4, 5)
    J = np.zeros((n * (steps + 2), z.size))
    for k in range(steps):
        J[n * k : n * (k + 1), (n + 1) * k : (n + 1) * (k + 1)] = blocks[k]
        J[n * k : n * (k + 1), (n + 1) * (k + 1) : (n + 1) * (k + 1) + n] = np.eye(n)
    J[-2 * n : -n, :n] = J[-n:, -n:] = np.eye(n)
    return J


def effort(z):
    """The sum of squares of the forces, and its gradient."""
    _, u = split(z)
    gradient = np.zeros((steps + 1, n + 1))
    gradient[:-1, n:] = h * u
    return 0.5 * h * float((u**2).sum()), gradient.ravel()[:-1]


# The guess is a straight line from hanging to standing, which no forces make. The solver repairs it.
line = np.zeros((steps + 1, n + 1))
line[:, 1] = np.linspace(0, np.pi, steps + 1)
z0 = line.ravel()[:-1]
direction = np.random.default_rng(0).standard_normal(z0.size)
difference = (defects(z0 + 1e-6 * direction) - defects(z0 - 1e-6 * direction)) / 2e-6
assert np.allclose(jacobian(z0) @ direction, difference, atol=1e-6)
best = minimize(
    effort, z0, jac=True, method="SLSQP", bounds=bounds, options={"maxiter": 200, "ftol": 1e-6},
    constraints={"type": "eq", "fun": defects, "jac": jacobian},
)  # fmt: skip
x, u = split(best.x)
print(
    f"transcription: {best.message.lower()} after {best.nit} iterations; steps miss {np.abs(defects(best.x)).max():.0e}"
)
print(f"the cart moves by {np.abs(x[:, 0]).max():.2f} m, with at most {np.abs(u).max():.1f} N")
assert best.success

# The forces are exactly those that `simulate` would need: played back, they give the same motion.
by_control = simulate(u[:, 0])
assert np.abs(by_control.q - x[:, :2]).max() < 1e-4

# ## Both
figure = Figure(figsize=(9, 5.6), dpi=110, layout="constrained")
grid = figure.add_gridspec(2, 2, height_ratios=(1, 1.1))
plots = [figure.add_subplot(grid[0, k]) for k in range(2)]
for motion, name, color in ((by_gradients, "shooting", "#c8374b"), (by_control, "transcription", "#3578b5")):
    plots[0].plot(motion.t, np.degrees(motion.q[:, 1]), color=color, lw=1.8, label=name)
    plots[1].step(motion.t[:-1], motion.controls[:, 0], color=color, lw=1.6, where="post")
plots[0].axhline(180, color="#8a949e", lw=0.8, ls="--")
plots[0].set_title("Angle of the pole [degrees]", loc="left", weight="bold")
plots[0].legend(frameon=False)
plots[1].set_title("Force on the cart [N]", loc="left", weight="bold")
for axes in plots:
    axes.set_xlabel("t [s]")
    axes.grid(color="#e8ebee")
    axes.spines[:].set_visible(False)
strip = figure.add_subplot(grid[1, :])
for k, row in enumerate(range(0, steps + 1, 4)):
    cart = np.array([0.75 * k, 0.0])
    tip = ts.point_positions(model, by_control.q[row], "pole", (0, 0, -0.8))[[0, 2]]
    cart[0] += by_control.q[row, 0]
    tip = tip + [0.75 * k, 0]
    strip.plot(*cart, "s", color="#30363c", ms=9)
    strip.plot(*np.transpose([cart, tip]), color="#3578b5", lw=3, solid_capstyle="round")
    strip.plot(*tip, "o", color="#e0a030", ms=6)
strip.set_title("The second motion, every 0.12 s, drawn side by side", loc="left", weight="bold")
strip.set_aspect("equal")
strip.axis("off")
figure.savefig("swing_up.png")

# ## Watch it
#
# The second motion as a page that plays.
by_control.html("swing_up.html")
