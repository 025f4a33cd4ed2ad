"""An acrobot balances on its hands: linear-quadratic feedback from the exact derivatives of a step."""

import numpy as np
from scipy.linalg import solve_discrete_are

import torsor as ts

model = ts.models.acrobot()
integrator = ts.BDF1(h=0.01)
upright, rest = np.array([np.pi, 0.0]), np.zeros(2)
motor = ["elbow"]

# x1 = A x + B u about the equilibrium, x = (q - upright, v), u the torque at the elbow alone.
d = ts.step_derivatives(model, integrator, upright, rest, actuation=motor)
A = np.block([[d.dq1_dq, d.dq1_dv], [d.dv1_dq, d.dv1_dv]])
B = np.vstack([d.dq1_du, d.dv1_du])
assert np.allclose(d.q1, upright)
print("without feedback, deviations grow by up to", np.round(np.abs(np.linalg.eigvals(A)).max(), 3), "in each step")

Q, R = np.diag([10.0, 10.0, 1.0, 1.0]), np.eye(1)
P = solve_discrete_are(A, B, Q, R)
K = np.linalg.solve(R + B.T @ P @ B, B.T @ P @ A)
print("with it, they shrink to at most", np.round(np.abs(np.linalg.eigvals(A - B @ K)).max(), 3))


def feedback(t, q, v):
    return -np.concatenate([model.minus(q, upright), v], axis=-1) @ K.T


policy = ts.Policy(feedback, derivatives=lambda t, q, v: (-K[:, :2], -K[:, 2:]))
start = upright + np.array([0.1, -0.1])
run = ts.simulate(model, start, rest, steps=500, integrator=integrator, controls=policy, actuation=motor)
for row in range(0, 501, 100):
    print(f"t = {run.t[row]:.0f}: {np.round(run.q[row] - upright, 5)} {np.round(run.v[row], 5)}")
assert np.abs(run.q[-1] - upright).max() < 1e-3

# The gradient includes the feedback: the final state hardly depends on the initial one.
first, last = (ts.adjoint(run, dloss_dq=np.eye(501)[row, :, None] * [1.0, 0.0]).q0 for row in (1, 500))
print("derivative of the shoulder's angle by the start, after one step and after 5 s:", first, last)
assert np.abs(last).max() < 1e-2 * np.abs(first).max()

try:
    run.html("balance.html")  # a page that plays the motion
except ImportError as error:
    print(error)
