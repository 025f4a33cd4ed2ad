"""Optimise a motion by Newton's method: exact second derivatives converge quadratically, Gauss-Newton linearly.

An arm is to be lifted along a reference, with little effort: the displacements x of its nodes minimise

    cost(x) = 1/2 sum_k |tau_k|^2 + weight/2 |x|^2,      tau_k = inverse_dynamics(q_k, v_k, a_k),

where v and a are differences of q in time. Gauss-Newton leaves sum_k tau_k . d2tau_k/dx2 out of the Hessian. That would
do if efforts vanished at the minimum, and against gravity they do not.
"""

import numpy as np

import torsor as ts
from torsor.testing import complex_step

b = ts.ModelBuilder("arm")
rod = ts.Inertia.cylinder(radius=0.02, length=0.5, mass=0.8, com=(0, 0, -0.25))
b.add_body("upper", joint=ts.Revolute((0, 1, 0)), inertia=rod)
b.add_body("lower", "upper", ts.Revolute((0, 1, 0)), ts.SE3.translation(0, 0, -0.5), rod)
model = b.build()

# From hanging to angles of 2 and -1 in two seconds. Two nodes at each end stay, so the arm begins and ends at rest.
steps, h, weight = 20, 0.1, 60.0
s = np.clip((np.arange(steps + 1) - 1) / (steps - 2), 0, 1)[:, None]
reference = (10 * s**3 - 15 * s**4 + 6 * s**5) * [2.0, -1.0]

# q, v and a at the nodes between, as combinations of nodes; and dq/dx, dv/dx, da/dx, each (nodes, nv, size of x).
eye = np.eye(steps + 1)
before, here, after = eye[:-2], eye[1:-1], eye[2:]
differences = np.stack([here, (after - before) / (2 * h), (after - 2 * here + before) / h**2])
moves = np.einsum("dkm,ij->dkimj", differences[..., 2:-2], np.eye(model.nv)).reshape(3, steps - 1, model.nv, -1)
Q, V, A = moves
QT, VT, AT = moves.swapaxes(-1, -2)


def efforts(x):
    """q, v, a and tau at the nodes, and dtau/dx."""
    q, v, a = differences @ reference + moves @ x
    d = ts.inverse_dynamics_derivatives(model, q, v, a)
    return q, v, a, ts.inverse_dynamics(model, q, v, a), d.dtau_dq @ Q + d.dtau_dv @ V + d.dtau_da @ A


def gradient(x):
    *_, tau, J = efforts(x)
    return np.einsum("ki,kix->x", tau, J) + weight * x


def hessian(x, exact):
    q, v, a, tau, J = efforts(x)
    H = np.einsum("kix,kiy->xy", J, J) + weight * np.eye(x.size)  # Gauss-Newton's
    if exact:  # the rest: second derivatives of w . tau for w = tau, without any tensor
        d2 = ts.inverse_dynamics_hessians(model, q, v, a, contract=tau)
        mixed = np.sum(QT @ d2.d2tau_dqdv @ V + AT @ d2.d2tau_dadq @ Q, axis=0)
        H += np.sum(QT @ d2.d2tau_dqdq @ Q + VT @ d2.d2tau_dvdv @ V, axis=0) + mixed + mixed.T
    return H


def minimise(exact, tolerance=1e-9):
    """Full steps from the reference. The minimiser, and the norms of the gradient on the way."""
    x, norms = np.zeros(moves.shape[-1]), []
    while len(norms) < 100:
        g = gradient(x)
        norms.append(np.linalg.norm(g))
        if norms[-1] < tolerance:
            break
        x = x - np.linalg.solve(hessian(x, exact), g)
    return x, norms


x, newton = minimise(exact=True)
same, gauss_newton = minimise(exact=False)

# The Hessian is the derivative of the gradient, to the last digits, and both methods have found the same minimum.
H = hessian(x, exact=True)
assert np.abs(H - complex_step(gradient, x)).max() < 1e-12 * np.abs(H).max()
assert np.linalg.eigvalsh(H)[0] > 0
assert np.abs(x - same).max() < 1e-9

print("norm of the gradient\nstep   Newton   Gauss-Newton")
for k in range(len(newton) + 4):
    print(f"{k:4}  {f'{newton[k]:.1e}' if k < len(newton) else '':>7}   {gauss_newton[k]:12.1e}")
print(f"{len(gauss_newton) - 1:4}{gauss_newton[-1]:24.1e}")

# Newton squares the error, until only rounding is left; Gauss-Newton, with G for H, multiplies it by 1 - G^-1 H.
norms = np.array(newton[:-1])
rate = np.abs(np.linalg.eigvals(np.eye(x.size) - np.linalg.solve(hessian(x, exact=False), H))).max()
print("Newton: each over the square of the one before", np.round(norms[1:] / norms[:-1] ** 2, 4))
print(f"Gauss-Newton: over the one before {gauss_newton[-1] / gauss_newton[-2]:.3f}, from eigenvalues {rate:.3f}")
