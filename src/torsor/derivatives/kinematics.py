"""First derivatives of twists, accelerations, Jacobians and momentum, exact and in closed form.

Derivatives with respect to q are in the tangent space: of f(model.plus(q, dq)) at dq = 0. The last index of every
result is the direction. Batches, `out`, `threads` and `frame` are as in `torsor.kinematics`; `out` takes a record where
the function returns one. `outputs` names the fields to compute, all by default; the others are None in the record and
are not computed.

The derivative of a pose needs no separate function. Along direction k a body moves with the twist in column k of its
`jacobian`: dT/dq_k = T @ spatial.hat6(J[:, k]) with J in "body". `point_jacobian` is the derivative of
`point_positions`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from torsor import _core
from torsor._check import axes, direct, record_of
from torsor.derivatives.matrices import output_bits
from torsor.dynamics import about_point
from torsor.kinematics import Places, body_indices, given, of_list

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from torsor._typing import FloatArray, Frame, ReferencePoint, Threads
    from torsor.model import Model


R = TypeVar("R", bound="BodyVelocitiesDerivatives | BodyAccelerationsDerivatives")


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

    dJ_dq and dJdot_dq are (..., 6 nbodies, nv, nv): the indices of J, then the direction. dJ_dq[..., r, j, k] is the
    derivative of J[..., r, j] along direction k. The derivative of Jdot with respect to v is dJ_dq. Jdot and dJdot_dq
    are None if v was not given.
    """

    dJ_dq: FloatArray
    Jdot: FloatArray
    dJdot_dq: FloatArray


@record_of("momentum_derivatives")
class MomentumDerivatives(NamedTuple):
    """Derivatives of h = momentum(q, v) and of its rate hdot(q, v, a), each (..., 6, nv).

    hdot is dh_dq v + dh_dv a, and its derivative with respect to a is dh_dv. Its derivatives are None if a was not
    given.
    """

    dh_dq: FloatArray
    dh_dv: FloatArray
    dhdot_dq: FloatArray
    dhdot_dv: FloatArray


@direct("body_velocities_derivatives")
def body_velocities_derivatives(
    model: Model,
    q: ArrayLike,
    v: ArrayLike,
    *,
    bodies: str | Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
    frame: Frame = "body",
    out: BodyVelocitiesDerivatives | None = None,
    threads: Threads = 1,
) -> BodyVelocitiesDerivatives:
    """Derivatives of `body_velocities`.

    Parameters
    ----------
    model : Model
    q : (..., nq) array_like
        Configurations.
    v : (..., nv) array_like
        Velocities.
    bodies : str or sequence of n str, optional
        Names of bodies or frames; results are those of the one, without their axis of bodies, or of the n, in place of
        all bodies.
    outputs : sequence of str, optional
        Names of the fields to compute, all by default; the others are None.
    frame : {"body", "world", "local_world_aligned"}
        Frame in which results are expressed.
    out : BodyVelocitiesDerivatives, optional
        Record of arrays for the results.
    threads : int or "auto"
        Most threads for a batch, of which as many take part as pay; "auto" for at most one per core.

    Returns
    -------
    BodyVelocitiesDerivatives
        dV_dq and dV_dv (the Jacobians of all bodies), each (..., nbodies, 6, nv).

    Examples
    --------
    >>> d = ts.body_velocities_derivatives(model, q, v)
    >>> np.allclose(d.dV_dv @ v, ts.body_velocities(model, q, v))
    True
    """
    options = {"axes": axes(frame), "wanted": output_bits(BodyVelocitiesDerivatives._fields, outputs)}
    if bodies is None:
        return _core.body_velocities_derivatives(model, q, v, options, out, threads)
    at = Places(model, q, bodies, frame)
    V = _core.body_velocities(model, q, v, {"axes": at.core_axes}, None, threads)
    d = _core.body_velocities_derivatives(model, q, v, {"axes": at.core_axes}, None, threads)
    found: list[list[FloatArray]] = [[], []]
    for k in range(len(at.rows)):
        dq, J = (at.of_body(x, k, -3) for x in d)
        found[0].append(at.turned(dq + _turning(J, at.of_body(V, k, -2)), k) if at.R else dq)
        found[1].append(at.turned(J, k) if at.R else J)
    return _record(BodyVelocitiesDerivatives, at, found, outputs, out)


@direct("body_accelerations_derivatives")
def body_accelerations_derivatives(
    model: Model,
    q: ArrayLike,
    v: ArrayLike,
    a: ArrayLike,
    *,
    bodies: str | Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
    frame: Frame = "body",
    out: BodyAccelerationsDerivatives | None = None,
    threads: Threads = 1,
) -> BodyAccelerationsDerivatives:
    """Derivatives of `body_accelerations`.

    Parameters
    ----------
    model : Model
    q : (..., nq) array_like
        Configurations.
    v, a : (..., nv) array_like
        Velocities and accelerations.
    bodies : str or sequence of n str, optional
        Names of bodies or frames; results are those of the one, without their axis of bodies, or of the n, in place of
        all bodies.
    outputs : sequence of str, optional
        Names of the fields to compute, all by default; the others are None.
    frame : {"body", "world", "local_world_aligned"}
        Frame in which results are expressed.
    out : BodyAccelerationsDerivatives, optional
        Record of arrays for the results.
    threads : int or "auto"
        Most threads for a batch, of which as many take part as pay; "auto" for at most one per core.

    Returns
    -------
    BodyAccelerationsDerivatives
        dA_dq, dA_dv and dA_da (the Jacobians of all bodies), each (..., nbodies, 6, nv).

    Examples
    --------
    >>> ts.body_accelerations_derivatives(model, q, v, a).dA_da.shape
    (9, 6, 7)
    """
    options = {"axes": axes(frame), "wanted": output_bits(BodyAccelerationsDerivatives._fields, outputs)}
    if bodies is None:
        return _core.body_accelerations_derivatives(model, q, v, a, options, out, threads)
    at = Places(model, q, bodies, frame)
    own = {"axes": at.core_axes}
    V = _core.body_velocities(model, q, v, own, None, threads)
    A = _core.body_accelerations(model, q, v, a, own, None, threads)
    dV = _core.body_velocities_derivatives(model, q, v, own, None, threads)
    dA = _core.body_accelerations_derivatives(model, q, v, a, own, None, threads)
    found: list[list[FloatArray]] = [[], [], []]
    for k in range(len(at.rows)):
        parts = [at.of_body(x, k, -3) for x in dA]
        if at.R:  # of (alpha, a + w x u), which turns with the frame
            twist, rate = at.of_body(V, k, -2), at.of_body(A, k, -2)
            V_q, J = (at.of_body(x, k, -3) for x in dV)
            classic = np.concatenate([rate[..., :3], rate[..., 3:] + np.cross(twist[..., :3], twist[..., 3:])], axis=-1)
            parts[0] = parts[0] + _centripetal(V_q, twist) + _turning(J, classic)
            parts[1] = parts[1] + _centripetal(J, twist)
        for column, x in zip(found, parts, strict=True):
            column.append(at.turned(x, k) if at.R else x)
    return _record(BodyAccelerationsDerivatives, at, found, outputs, out)


def _cross(a: FloatArray, b: FloatArray) -> FloatArray:
    """Cross products of columns (..., 3, n)."""
    return np.cross(a, b, axis=-2)


def _turning(J: FloatArray, x: FloatArray) -> FloatArray:
    """The change of x (..., 6), two vectors in axes that turn by the angular part of each column of J."""
    w = J[..., :3, :]
    return np.concatenate([_cross(w, x[..., :3, None]), _cross(w, x[..., 3:, None])], axis=-2)


def _centripetal(dV: FloatArray, V: FloatArray) -> FloatArray:
    """The change of (0, w x u) with twists V by changes dV (..., 6, n)."""
    w, u = V[..., :3, None], V[..., 3:, None]
    change = _cross(dV[..., :3, :], u) + _cross(w, dV[..., 3:, :])
    return np.concatenate([np.zeros_like(change), change], axis=-2)


def _record(kind: type[R], at: Places, found: list[list[FloatArray]], outputs: Sequence[str] | None, out: Any) -> R:
    """The record of results of places, without those that are not requested."""
    parts: list[Any] = []
    for k, (name, rows) in enumerate(zip(kind._fields, found, strict=True)):
        wanted = outputs is None or name in outputs
        parts.append(given(at.only(rows, -3), None if out is None else out[k]) if wanted else None)
    return kind(*parts)


def maximal_jacobian_derivatives(
    model: Model,
    q: ArrayLike,
    v: ArrayLike | None = None,
    *,
    outputs: Sequence[str] | None = None,
    out: MaximalJacobianDerivatives | None = None,
    threads: Threads = 1,
) -> MaximalJacobianDerivatives:
    """Derivatives of `maximal_jacobian` and of its rate. Sueda 2021, Alg. 11.

    Parameters
    ----------
    model : Model
    q : (..., nq) array_like
        Configurations.
    v : (..., nv) array_like, optional
        Velocities, for Jdot and dJdot_dq.
    outputs : sequence of str, optional
        Names of the fields to compute, all by default; the others are None.
    out : MaximalJacobianDerivatives, optional
        Record of arrays for the results.
    threads : int or "auto"
        Most threads for a batch, of which as many take part as pay; "auto" for at most one per core.

    Returns
    -------
    MaximalJacobianDerivatives
        dJ_dq (..., 6 nbodies, nv, nv) and, if v is given, Jdot (..., 6 nbodies, nv) and dJdot_dq, shaped as dJ_dq.

    Examples
    --------
    >>> d = ts.maximal_jacobian_derivatives(model, q, v)
    >>> np.allclose(np.einsum("...ijk,k->...ij", d.dJ_dq, v), d.Jdot)
    True
    """
    if outputs is None and v is None:
        outputs = ("dJ_dq",)
    wanted = output_bits(MaximalJacobianDerivatives._fields, outputs)
    return _core.maximal_jacobian_derivatives(model, q, v, {"wanted": wanted}, out, threads)


def point_hessian(
    model: Model,
    q: ArrayLike,
    body: str | Sequence[str],
    points: ArrayLike = (0.0, 0.0, 0.0),
    *,
    out: FloatArray | None = None,
    threads: Threads = 1,
) -> FloatArray:
    """Derivatives of `point_jacobian`: second derivatives of the positions of points.

    Parameters
    ----------
    model : Model
    q : (..., nq) array_like
        Configurations.
    body : str or sequence of n str
        The body or frame of all points, or of each.
    points : (3,) or (..., n, 3) array_like
        Points in the frames of their bodies, or in these frames.
    out : (..., 3, nv, nv) or (..., n, 3, nv, nv) array, optional
        Array for the result.
    threads : int or "auto"
        Most threads for a batch, of which as many take part as pay; "auto" for at most one per core.

    Returns
    -------
    H : (..., 3, nv, nv) or (..., n, 3, nv, nv) array
        H[..., i, j, k] is the derivative of J[..., i, j] along direction k. It is symmetric in j and k, except that the
        directions of one spherical or free joint do not commute. (..., 3, nv, nv) for one point given as (3,).

    Examples
    --------
    >>> ts.point_hessian(model, q, "hand", (0, 0, 0.1)).shape
    (3, 7, 7)
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
    *,
    outputs: Sequence[str] | None = None,
    about: ReferencePoint = "com",
    out: MomentumDerivatives | None = None,
    threads: Threads = 1,
) -> MomentumDerivatives:
    """Derivatives of `momentum` and of its rate.

    Bodies fixed to the world do not contribute.

    Parameters
    ----------
    model : Model
    q : (..., nq) array_like
        Configurations.
    v : (..., nv) array_like
        Velocities.
    a : (..., nv) array_like, optional
        Accelerations, for dhdot_dq and dhdot_dv.
    outputs : sequence of str, optional
        Names of the fields to compute, all by default; the others are None.
    about : {"com", "world"}
        Reference point of the angular part: the centre of mass, or the origin of the world.
    out : MomentumDerivatives, optional
        Record of arrays for the results.
    threads : int or "auto"
        Most threads for a batch, of which as many take part as pay; "auto" for at most one per core.

    Returns
    -------
    MomentumDerivatives
        dh_dq and dh_dv (the matrix of `momentum_matrix`) and, if a is given, dhdot_dq and dhdot_dv, each (..., 6, nv).

    Examples
    --------
    >>> d = ts.momentum_derivatives(model, q, v, a)
    >>> np.allclose(d.dh_dv @ v, ts.momentum(model, q, v))
    True
    """
    if outputs is None and a is None:
        outputs = ("dh_dq", "dh_dv")
    options = {"axes": about_point(about), "wanted": output_bits(MomentumDerivatives._fields, outputs)}
    return _core.momentum_derivatives(model, q, v, a, options, out, threads)
