"""An acrobot balances on its hands: linear-quadratic feedback from the exact derivatives of a step."""

import numpy as np
from scipy.linalg import solve_discrete_are

import torsor as ts

model = ts.models.acrobot()
integrator = ts.BDF1(h=0.01)
upright, rest = np.array([np.pi, 0.0]), np.zeros(2)

# x1 = A x + B u about the equilibrium, x = (q - upright, v), u the torque at the elbow alone.
d = ts.step_derivatives(model, integrator, upright, rest)
A = np.block([[d.dq1_dq, d.dq1_dv], [d.dv1_dq, d.dv1_dv]])
elbow = model.joint("elbow").v_slice
B = np.vstack([d.dq1_du[:, elbow], d.dv1_du[:, elbow]])
assert np.allclose(d.q1, upright)
print("without feedback, deviations grow by up to", np.round(np.abs(np.linalg.eigvals(A)).max(), 3), "in each step")

Q, R = np.diag([10.0, 10.0, 1.0, 1.0]), np.eye(1)
P = solve_discrete_are(A, B, Q, R)
K = np.linalg.solve(R + B.T @ P @ B, B.T @ P @ A)
print("with it, they shrink to at most", np.round(np.abs(np.linalg.eigvals(A - B @ K)).max(), 3))

q, v = upright + [0.1, -0.1], rest
for step in range(501):
    x = np.concatenate([model.minus(q, upright), v])
    if step % 100 == 0:
        print(f"t = {step * integrator.h:.0f}: {np.round(x, 5)}")
    u = np.zeros(model.nv)
    u[elbow] = -K @ x
    after = ts.simulate(model, q, v, steps=1, integrator=integrator, controls=u)
    q, v = after.q[-1], after.v[-1]
assert np.abs(x).max() < 1e-3
