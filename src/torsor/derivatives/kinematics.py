"""First derivatives of twists, accelerations, Jacobians and momentum, exact and in closed form.

Derivatives with respect to q are in the tangent space: of f(model.plus(q, dq)) at dq = 0. The last index of
every result is the direction. Batches, `out`, `threads` and `frame` are as in `torsor.kinematics`; `out`
takes a record where the function returns one. `outputs` names the arrays to compute, all by default; the
others are None in the record and cost nothing.

The derivative of a pose needs no function of its own. Along direction k a body moves with the twist that is
column k of its `jacobian`: dT/dq_k = T @ spatial.hat6(J[:, k]) with J in "body". `point_jacobian` is the
derivative of `point_positions`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from torsor import _core
from torsor._check import axes, record_of
from torsor.derivatives.matrices import output_bits
from torsor.dynamics import about_point
from torsor.kinematics import body_indices, of_list

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from torsor._typing import FloatArray, Frame, ReferencePoint
    from torsor.model import Model


@record_of("body_velocities_derivatives")
class BodyVelocitiesDerivatives(NamedTuple):
    """Derivatives of V = body_velocities(q, v), each (..., nbodies, 6, nv)."""

    dV_dq: FloatArray
    dV_dv: FloatArray


@record_of("body_accelerations_derivatives")
class BodyAccelerationsDerivatives(NamedTuple):
    """Derivatives of A = body_accelerations(q, v, a), each (..., nbodies, 6, nv)."""

    dA_dq: FloatArray
    dA_dv: FloatArray
    dA_da: FloatArray


@record_of("maximal_jacobian_derivatives")
class MaximalJacobianDerivatives(NamedTuple):
    """Derivatives of J = maximal_jacobian(q) and of its rate Jdot (..., 6 nbodies, nv).

    dJ_dq and dJdot_dq are (..., 6 nbodies, nv, nv): the indices of J, then the direction. dJ_dq[..., r, j, k]
    is the derivative of J[..., r, j] along direction k. The derivative of Jdot with respect to v is dJ_dq.
    Jdot and dJdot_dq are None if v was not given.
    """

    dJ_dq: FloatArray
    Jdot: FloatArray
    dJdot_dq: FloatArray


@record_of("momentum_derivatives")
class MomentumDerivatives(NamedTuple):
    """Derivatives of h = momentum(q, v) and of its rate hdot(q, v, a), each (..., 6, nv).

    hdot is dh_dq v + dh_dv a, and its derivative with respect to a is dh_dv. Its derivatives are None if
    a was not given.
    """

    dh_dq: FloatArray
    dh_dv: FloatArray
    dhdot_dq: FloatArray
    dhdot_dv: FloatArray


def body_velocities_derivatives(
    model: Model,
    q: ArrayLike,
    v: ArrayLike,
    frame: Frame = "body",
    out: BodyVelocitiesDerivatives | None = None,
    threads: int = 1,
    outputs: Sequence[str] | None = None,
) -> BodyVelocitiesDerivatives:
    """dV_dq and dV_dv (the Jacobians of all bodies) of `body_velocities`."""
    options = {"axes": axes(frame), "wanted": output_bits(BodyVelocitiesDerivatives._fields, outputs)}
    return _core.body_velocities_derivatives(model, q, v, options, out, threads)


def body_accelerations_derivatives(
    model: Model,
    q: ArrayLike,
    v: ArrayLike,
    a: ArrayLike,
    frame: Frame = "body",
    out: BodyAccelerationsDerivatives | None = None,
    threads: int = 1,
    outputs: Sequence[str] | None = None,
) -> BodyAccelerationsDerivatives:
    """dA_dq, dA_dv and dA_da (the Jacobians of all bodies) of `body_accelerations`."""
    options = {"axes": axes(frame), "wanted": output_bits(BodyAccelerationsDerivatives._fields, outputs)}
    return _core.body_accelerations_derivatives(model, q, v, a, options, out, threads)


def maximal_jacobian_derivatives(
    model: Model,
    q: ArrayLike,
    v: ArrayLike | None = None,
    out: MaximalJacobianDerivatives | None = None,
    threads: int = 1,
    outputs: Sequence[str] | None = None,
) -> MaximalJacobianDerivatives:
    """dJ_dq of `maximal_jacobian` and, if v is given, Jdot and dJdot_dq. Sueda 2021, Alg. 11."""
    if outputs is None and v is None:
        outputs = ("dJ_dq",)
    wanted = output_bits(MaximalJacobianDerivatives._fields, outputs)
    return _core.maximal_jacobian_derivatives(model, q, v, {"wanted": wanted}, out, threads)


def point_hessian(
    model: Model,
    q: ArrayLike,
    body: str | Sequence[str],
    points: ArrayLike = (0.0, 0.0, 0.0),
    out: FloatArray | None = None,
    threads: int = 1,
) -> FloatArray:
    """Derivatives of `point_jacobian`: (..., 3, nv, nv) for a point given as (3,), else (..., n, 3, nv, nv).

    H[..., i, j, k] is the derivative along direction k of J[..., i, j]: the second derivative of the
    position, first along j, then along k. It is symmetric in j and k, except that the directions of one
    spherical or free joint do not commute.
    """
    named, frames, points = body_indices(model, body, points)
    if not named or np.ndim(points) > 1:
        return _core.point_hessians(model, q, points, {"frames": frames}, out, threads)
    result = _core.point_hessians(model, q, np.asarray(points)[None], {"frames": frames}, of_list(out, -4), threads)
    return result[..., 0, :, :, :] if out is None else out


def momentum_derivatives(
    model: Model,
    q: ArrayLike,
    v: ArrayLike,
    a: ArrayLike | None = None,
    about: ReferencePoint = "com",
    out: MomentumDerivatives | None = None,
    threads: int = 1,
    outputs: Sequence[str] | None = None,
) -> MomentumDerivatives:
    """dh_dq and dh_dv (the centroidal momentum matrix) of `momentum` and, if a is given, those of its rate.

    `about` is as for `momentum`; bodies fixed to the world do not count.
    """
    if outputs is None and a is None:
        outputs = ("dh_dq", "dh_dv")
    options = {"axes": about_point(about), "wanted": output_bits(MomentumDerivatives._fields, outputs)}
    return _core.momentum_derivatives(model, q, v, a, options, out, threads)
