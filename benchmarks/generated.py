"""Second derivatives of inverse dynamics as CasADi makes them: C code for one robot, differentiated symbolically."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import casadi as ca
import numpy as np
from numpy.typing import NDArray

AXES = {"JointModelRX": 0, "JointModelRY": 1, "JointModelRZ": 2}


def inverse_dynamics(peer: Any, q: ca.SX, v: ca.SX, a: ca.SX) -> ca.SX:
    """The torques (nv,) of a pinocchio.Model of revolutes about x, y or z; Newton-Euler in the frames of the bodies."""
    joints = range(1, peer.njoints)
    axes = [None, *(AXES[peer.joints[i].shortname()] for i in joints)]
    w, wdot, acc = [ca.SX(3, 1)], [ca.SX(3, 1)], [_constant(-peer.gravity.linear)]  # angular; linear, of the origin
    R, p, force, moment = [None], [None], [None], [None]
    for i in joints:
        parent, placement, inertia = peer.parents[i], peer.jointPlacements[i], peer.inertias[i]
        axis = ca.SX(3, 1)
        axis[axes[i]] = 1
        R.append(_constant(placement.rotation) @ _rotation(axes[i], q[i - 1]))
        p.append(_constant(placement.translation))
        turned = R[i].T @ w[parent]
        w.append(turned + axis * v[i - 1])
        wdot.append(R[i].T @ wdot[parent] + axis * a[i - 1] + ca.cross(turned, axis * v[i - 1]))
        acc.append(R[i].T @ (acc[parent] + _swing(w[parent], wdot[parent], p[i])))
        com, I = _constant(inertia.lever), _constant(inertia.inertia)
        force.append(inertia.mass * (acc[i] + _swing(w[i], wdot[i], com)))
        moment.append(I @ wdot[i] + ca.cross(w[i], I @ w[i]) + ca.cross(com, force[i]))
    for i in reversed(joints):
        parent = peer.parents[i]
        if parent:
            passed = R[i] @ force[i]
            force[parent] += passed
            moment[parent] += R[i] @ moment[i] + ca.cross(p[i], passed)
    return ca.vertcat(*(moment[i][axes[i]] for i in joints))


def second_order(peer: Any) -> ca.Function:
    """The function (q, v, a) -> (d2tau_dqdq, d2tau_dqdv, d2tau_dvdv, d2tau_dadq), each of shape (nv nv, nv).

    Of the ways to write it in CasADi, Hessians of the torques with common subexpressions merged make the least code.
    """
    n = peer.nv
    q, v, a = (ca.SX.sym(name, n) for name in "qva")
    hessians = [ca.hessian(tau, ca.vertcat(q, v, a))[0] for tau in ca.vertsplit(inverse_dynamics(peer, q, v, a))]
    of_q, of_v, of_a = slice(0, n), slice(n, 2 * n), slice(2 * n, 3 * n)
    blocks = ((of_q, of_q), (of_q, of_v), (of_v, of_v), (of_a, of_q))
    tensors = ca.cse([ca.vertcat(*(H[block] for H in hessians)) for block in blocks])
    return ca.Function("second_order", [q, v, a], [ca.densify(tensor) for tensor in tensors])


def code(peer: Any) -> str:
    """The C code of `second_order`."""
    with tempfile.TemporaryDirectory() as directory:
        generator = ca.CodeGenerator("second_order.c")
        generator.add(second_order(peer))
        return Path(generator.generate(f"{directory}/")).read_text()


def tensors(stored: NDArray[np.float64], n: int) -> NDArray[np.float64]:
    """Tensors (4, n, n, n) by output, first and second direction, from matrices (n n, n) stored by columns."""
    return stored.reshape(4, n, n, n).transpose(0, 2, 3, 1)


def _constant(x: NDArray[np.float64]) -> ca.SX:
    return ca.sparsify(ca.SX(ca.DM(x)))  # without what is zero


def _rotation(axis: int, angle: ca.SX) -> ca.SX:
    i, j = (axis + 1) % 3, (axis + 2) % 3
    R = ca.SX(3, 3)
    R[axis, axis] = 1
    R[i, i] = R[j, j] = ca.cos(angle)
    R[j, i] = ca.sin(angle)
    R[i, j] = -R[j, i]
    return R


def _swing(w: ca.SX, wdot: ca.SX, p: ca.SX) -> ca.SX:
    """The acceleration of a point at p of a turning body."""
    return ca.cross(wdot, p) + ca.cross(w, ca.cross(w, p))
