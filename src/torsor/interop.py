"""States and matrices of other libraries: conversion to and from the layouts of Pinocchio and MuJoCo.

Neither library is imported. Functions of states take q and optionally v, a and tau, all with any leading batch shape,
and return those that are given; `convert_matrix`, `convert_jacobian` and `convert_derivatives` convert what algorithms
give. With w and u the angular and linear velocity of a free body in its own frame and R its
rotation:

========== ========================== =========================== ==============================
joint      torsor                     Pinocchio                   MuJoCo
========== ========================== =========================== ==============================
Free       q = p, quaternion xyzw;    q the same;                 q = p, quaternion wxyz;
           v = w, u                   v = u, w                    v = R u, w
Spherical  q = quaternion xyzw; v = w the same                    q = quaternion wxyz; v the same
Revolute   q = angle                  the same; for JointModelRUB the same
                                      q = cos, sin
planar     q = x, y, angle            for JointModelPlanar        the same
                                      q = x, y, cos, sin and v in
                                      the frame of the child
the rest   as they are                the same                    the same
========== ========================== =========================== ==============================

MuJoCo has coordinates for all joints. So has Pinocchio, unless its model was built with mimic joints, which have none;
`order` tells which it is, and without it joints that follow others by `Mimic` have none. States of models with
couplings are expanded to those of all joints and back (`Model.expand`, `Model.reduce`): forces are those of leaders,
and matrices are converted for `model.tree`.

A composite is converted part by part. "Planar" here is Free2D, or the Composite of a Planar and a Revolute
that `load_urdf` makes of planar joints. Quaternions keep their length, which Pinocchio takes to be 1: where it
may not be, convert `model.normalize(q)`. Accelerations are time derivatives of v, and tau . v is power, so
both change with v.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, overload, runtime_checkable

import numpy as np

from torsor._check import complex_allowed, listed
from torsor._core import complex_step
from torsor._errors import CouplingError
from torsor.derivatives.matrices import ForwardDynamicsDerivatives, InverseDynamicsDerivatives
from torsor.joints import Composite, Free, Free2D, Joint, Planar, Revolute, Spherical
from torsor.model import Model, ModelJoint
from torsor.spatial import quaternion_to_matrix, refuse_mask

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from torsor._typing import Array


Library = Literal["pinocchio", "mujoco"]
D = TypeVar("D", InverseDynamicsDerivatives, ForwardDynamicsDerivatives)


@runtime_checkable
class PinocchioModel(Protocol):
    """The attributes of a `pinocchio.Model` that are used: names and sizes of its joints, the universe first."""

    @property
    def names(self) -> Sequence[str]: ...
    @property
    def joints(self) -> Sequence[Any]: ...


@overload
def to_pinocchio(model: Model, q: ArrayLike, *, order: Sequence[str] | PinocchioModel | None = ...) -> Array: ...
@overload
def to_pinocchio(
    model: Model,
    q: ArrayLike,
    v: ArrayLike | None,
    a: ArrayLike | None = ...,
    tau: ArrayLike | None = ...,
    *,
    order: Sequence[str] | PinocchioModel | None = ...,
) -> tuple[Array, ...]: ...
def to_pinocchio(
    model: Model,
    q: ArrayLike,
    v: ArrayLike | None = None,
    a: ArrayLike | None = None,
    tau: ArrayLike | None = None,
    *,
    order: Sequence[str] | PinocchioModel | None = None,
) -> Array | tuple[Array, ...]:
    """Converts a state to Pinocchio's layout.

    Parameters
    ----------
    model : Model
    q : (..., nq) array_like
        Configurations.
    v, a, tau : (..., nv) array_like, optional
        Velocities, accelerations and generalized forces; `a` needs `v`.
    order : sequence of str, or pinocchio.Model, optional
        The joints in Pinocchio's order, which differs from that of the file when Pinocchio reads a URDF. Preferably the
        Pinocchio model, from which it is also known which joints are stored as (cos, sin). By default the joints are in
        the same order as in `model`, and none is stored so.

    Returns
    -------
    array or tuple of arrays
        q alone, or (q, v, ...): the given quantities, converted.
    """
    return _convert(_pinocchio(model, order), True, q, v, a, tau)


@overload
def from_pinocchio(model: Model, q: ArrayLike, *, order: Sequence[str] | PinocchioModel | None = ...) -> Array: ...
@overload
def from_pinocchio(
    model: Model,
    q: ArrayLike,
    v: ArrayLike | None,
    a: ArrayLike | None = ...,
    tau: ArrayLike | None = ...,
    *,
    order: Sequence[str] | PinocchioModel | None = ...,
) -> tuple[Array, ...]: ...
def from_pinocchio(
    model: Model,
    q: ArrayLike,
    v: ArrayLike | None = None,
    a: ArrayLike | None = None,
    tau: ArrayLike | None = None,
    *,
    order: Sequence[str] | PinocchioModel | None = None,
) -> Array | tuple[Array, ...]:
    """Converts a state from Pinocchio's layout: the inverse of `to_pinocchio`.

    Angles that Pinocchio stores as (cos, sin) are between -pi and pi.

    Parameters
    ----------
    model : Model
    q : (..., nq) array_like
        Configurations of Pinocchio.
    v, a, tau : (..., nv) array_like, optional
        Velocities, accelerations and generalized forces; `a` needs `v`.
    order : sequence of str, or pinocchio.Model, optional
        As for `to_pinocchio`.

    Returns
    -------
    array or tuple of arrays
        q alone, or (q, v, ...): the given quantities, converted.
    """
    return _convert(_pinocchio(model, order), False, q, v, a, tau)


@overload
def to_mujoco(model: Model, q: ArrayLike, *, order: Sequence[str] | None = ...) -> Array: ...
@overload
def to_mujoco(
    model: Model,
    q: ArrayLike,
    v: ArrayLike | None,
    a: ArrayLike | None = ...,
    tau: ArrayLike | None = ...,
    *,
    order: Sequence[str] | None = ...,
) -> tuple[Array, ...]: ...
def to_mujoco(
    model: Model,
    q: ArrayLike,
    v: ArrayLike | None = None,
    a: ArrayLike | None = None,
    tau: ArrayLike | None = None,
    *,
    order: Sequence[str] | None = None,
) -> Array | tuple[Array, ...]:
    """Converts a state to MuJoCo's `qpos`, `qvel`, `qacc` and generalized forces.

    Parameters
    ----------
    model : Model
    q : (..., nq) array_like
        Configurations.
    v, a, tau : (..., nv) array_like, optional
        Velocities, accelerations and generalized forces; `a` needs `v`.
    order : sequence of str, optional
        Names of the joints of `model` in MuJoCo's order; a model from `load_mjcf` already has that order.

    Returns
    -------
    array or tuple of arrays
        q alone, or (q, v, ...): the given quantities, converted.
    """
    return _convert(_mujoco(model, order), True, q, v, a, tau)


@overload
def from_mujoco(model: Model, q: ArrayLike, *, order: Sequence[str] | None = ...) -> Array: ...
@overload
def from_mujoco(
    model: Model,
    q: ArrayLike,
    v: ArrayLike | None,
    a: ArrayLike | None = ...,
    tau: ArrayLike | None = ...,
    *,
    order: Sequence[str] | None = ...,
) -> tuple[Array, ...]: ...
def from_mujoco(
    model: Model,
    q: ArrayLike,
    v: ArrayLike | None = None,
    a: ArrayLike | None = None,
    tau: ArrayLike | None = None,
    *,
    order: Sequence[str] | None = None,
) -> Array | tuple[Array, ...]:
    """Converts a state from MuJoCo's layout: the inverse of `to_mujoco`.

    Parameters
    ----------
    model : Model
    q : (..., nq) array_like
        `qpos` of MuJoCo.
    v, a, tau : (..., nv) array_like, optional
        `qvel`, `qacc` and generalized forces; `a` needs `v`.
    order : sequence of str, optional
        As for `to_mujoco`.

    Returns
    -------
    array or tuple of arrays
        q alone, or (q, v, ...): the given quantities, converted.
    """
    return _convert(_mujoco(model, order), False, q, v, a, tau)


# ---- matrices


def convert_matrix(
    model: Model,
    q: ArrayLike,
    M: ArrayLike,
    *,
    to: Library | None = None,
    source: Library | None = None,
    order: Sequence[str] | PinocchioModel | None = None,
) -> Array:
    """Converts a matrix from velocities to forces or back: the mass matrix, its inverse, Coriolis matrix, damping.

    Parameters
    ----------
    model : Model
    q : (..., nq) array_like
        Configurations, of torsor.
    M : (..., nv, nv) array_like
        Matrices, of torsor with `to`, of the other library with `source`.
    to, source : {"pinocchio", "mujoco"}
        The library to convert to, or that the matrix is from: one of both.
    order : optional
        As for `to_pinocchio` and `to_mujoco`.

    Returns
    -------
    M : (..., nv, nv) array
    """
    layout, forward = _direction(model, to, source, order)
    _refuse_expansion(layout, "a matrix", "M")
    X = _velocity_matrix(layout, _numbers(q, "q", (model.nq,)))
    X = X if forward else np.swapaxes(X, -1, -2)
    return np.asarray(X @ _numbers(M, "M", (model.nv, model.nv)) @ np.swapaxes(X, -1, -2))


def convert_jacobian(
    model: Model,
    q: ArrayLike,
    J: ArrayLike,
    *,
    to: Library | None = None,
    source: Library | None = None,
    order: Sequence[str] | PinocchioModel | None = None,
) -> Array:
    """Converts a Jacobian: its columns, and for twists its rows, whose linear part comes first in Pinocchio.

    Rows of MuJoCo are those of (jacp, jacr), stacked: linear first too, in "local_world_aligned". From a library that
    has coordinates for all joints, columns are those of the model's reduced coordinates, J P.

    Parameters
    ----------
    model : Model
    q : (..., nq) array_like
        Configurations, of torsor.
    J : (..., 6, nv) or (..., 3, nv) array_like
        Jacobians of twists, or of points and centres of mass; of torsor with `to`, of the other library with `source`.
    to, source : {"pinocchio", "mujoco"}
        The library to convert to, or that the Jacobian is from: one of both.
    order : optional
        As for `to_pinocchio` and `to_mujoco`.

    Returns
    -------
    J : array of the same shape
    """
    layout, forward = _direction(model, to, source, order)
    if forward:
        _refuse_expansion(layout, "a Jacobian", "J")
    nv = layout.model.nv
    refuse_mask("J", J)
    rows = np.shape(J)[-2] if np.ndim(J) > 1 else 0
    if rows not in (3, 6):
        raise ValueError(f"J has shape {np.shape(J)}, expected (..., 6, {nv}) or (..., 3, {nv})")
    given = _numbers(J, "J", (rows, nv))
    given = np.roll(given, 3, axis=-2) if rows == 6 else given
    at = _numbers(q, "q", (model.nq,))
    X = _velocity_matrix(replace(layout, coupled=None), at if layout.coupled is None else model.expand(at))
    out = given @ (np.swapaxes(X, -1, -2) if forward else X)
    return np.asarray(out if layout.coupled is None else out @ model.coupling_jacobian(at))


def convert_derivatives(
    model: Model,
    derivatives: D,
    q: ArrayLike,
    v: ArrayLike,
    a: ArrayLike,
    tau: ArrayLike,
    *,
    to: Library | None = None,
    source: Library | None = None,
    order: Sequence[str] | PinocchioModel | None = None,
) -> D:
    """Converts derivatives of inverse or forward dynamics.

    Those with respect to q are at fixed v and a, or tau, of the library itself: where these are in other axes, as those
    of a free body in MuJoCo, derivatives of the axes are added.

    Parameters
    ----------
    model : Model
    derivatives : InverseDynamicsDerivatives or ForwardDynamicsDerivatives
        Of one state: of torsor with `to`; with `source` a record that is made of the matrices of the other library.
    q, v, a, tau : (nq,) and (nv,) array_like
        The state, of torsor, with a and tau that belong to each other.
    to, source : {"pinocchio", "mujoco"}
        The library to convert to, or that the derivatives are from: one of both.
    order : optional
        As for `to_pinocchio` and `to_mujoco`.

    Returns
    -------
    record of the same type

    Examples
    --------
    >>> d = ts.inverse_dynamics_derivatives(model, q, v, a)
    >>> theirs = ts.interop.convert_derivatives(model, d, q, v, a, tau, to="mujoco")
    """
    layout, forward = _direction(model, to, source, order)
    _refuse_expansion(layout, "a record of derivatives", "derivatives")
    forward_dynamics = isinstance(derivatives, ForwardDynamicsDerivatives)
    if not forward_dynamics and not isinstance(derivatives, InverseDynamicsDerivatives):
        raise TypeError(
            "derivatives must be InverseDynamicsDerivatives or ForwardDynamicsDerivatives of torsor.derivatives, got "
            f"{type(derivatives).__name__}"
        )
    nv = model.nv
    at = _numbers(q, "q", (model.nq,), True)
    rates = tuple(_numbers(x, n, (nv,), True) for x, n in ((v, "v"), (a, "a"), (tau, "tau")))
    Dq, Dv, Df = (_numbers(x, n, (nv, nv), True) for x, n in zip(derivatives, derivatives._fields, strict=True))
    X = _velocity_matrix(layout, at)
    # Changes of our v, a and tau by theirs, at a displacement Q dq of ours: v' = X v, a' = X a + drift, tau' = X tau.
    Cv, Ca, Ct = _along_q(layout, at, rates)
    Ca_v = _along_v(layout, at, rates[0])
    Q = X.T
    V_q, V_v = -X.T @ Cv @ Q, X.T
    A_q, A_v = -X.T @ (Ca @ Q + Ca_v @ V_q), -X.T @ Ca_v @ V_v
    T_q = -X.T @ Ct @ Q
    if forward_dynamics:
        inner_q, inner_v, extra_q, extra_v = T_q, np.zeros_like(T_q), Ca @ Q + Ca_v @ V_q, Ca_v @ V_v
    else:
        inner_q, inner_v, extra_q, extra_v = A_q, A_v, Ct @ Q, np.zeros_like(T_q)
    if forward:
        made = (
            X @ (Dq @ Q + Dv @ V_q + Df @ inner_q) + extra_q,
            X @ (Dv @ V_v + Df @ inner_v) + extra_v,
            X @ Df @ X.T,
        )
    else:
        F = X.T @ Df @ X
        V = (X.T @ (Dv - extra_v) - F @ inner_v) @ X
        made = ((X.T @ (Dq - extra_q) - V @ V_q - F @ inner_q) @ X, V, F)
    return type(derivatives)(*made)


def _direction(
    model: Model, to: Library | None, source: Library | None, order: Sequence[str] | PinocchioModel | None
) -> tuple[_Layout, bool]:
    """The layout of the other library, and whether to convert to it."""
    name = source if to is None else to
    if (to is None) == (source is None) or name not in ("pinocchio", "mujoco"):
        raise ValueError(f"to is {to!r} and source {source!r}, expected 'pinocchio' or 'mujoco' for one of both")
    if name == "pinocchio":
        return _pinocchio(model, order), to is not None
    if isinstance(order, PinocchioModel):
        raise TypeError("order is a model of Pinocchio, expected names of joints in the order of MuJoCo")
    return _mujoco(model, order), to is not None


def _refuse_expansion(layout: _Layout, what: str, name: str) -> None:
    """Rejects what cannot be expanded to all joints, or projected from them."""
    if layout.coupled is not None:
        raise CouplingError(
            f"{what} of a model with couplings has no counterpart in a library with coordinates for all joints; "
            f"convert that of model.tree at model.expand(q), and project {name} with P = model.coupling_jacobian(q)"
        )


def _numbers(x: ArrayLike, name: str, tail: tuple[int, ...], single: bool = False) -> Array:
    refuse_mask(name, x)
    array = np.asarray(x, dtype=np.float64)
    if array.shape[max(array.ndim - len(tail), 0) :] != tail or (single and array.ndim != len(tail)):
        batch = "" if single else "..., "
        raise ValueError(f"{name} has shape {array.shape}, expected ({batch}{', '.join(map(str, tail))})")
    return array


def _velocity_matrix(layout: _Layout, q: Array) -> Array:
    """X (..., nv, nv): their v is X v, and X is orthogonal."""
    rows = _convert(layout, True, q[..., None, :], np.eye(layout.model.nv), None, None)[1]
    return np.swapaxes(np.asarray(rows), -1, -2)


def _along_q(layout: _Layout, q: Array, rates: tuple[Array, ...]) -> list[Array]:
    """Derivatives (nv, nv) of their v, a and tau by our q, at fixed ones of ours."""
    token = complex_allowed.set(True)
    try:
        moved = layout.model.plus(q, 1j * complex_step * np.eye(layout.model.nv))
    finally:
        complex_allowed.reset(token)
    v, a, tau = rates
    return [np.asarray(x.imag.T / complex_step) for x in _convert(layout, True, moved, v, a, tau)[1:]]


def _along_v(layout: _Layout, q: Array, v: Array) -> Array:
    """Derivatives (nv, nv) of their a by our v, at fixed q and a of ours."""
    moved = v + 1j * complex_step * np.eye(layout.model.nv)
    return np.asarray(_convert(layout, True, q, moved, np.zeros_like(v), None)[2].imag.T / complex_step)


# ---- one joint ---------------------------------------------------------------------------------------------


class _Same:
    """A joint with the same layout in both libraries, and the base class of the others.

    Their velocity is X(q) v, with X orthogonal; so their force is X(q) tau and their acceleration
    X(q) a + Xdot v.
    """

    def q_to(self, q: Array) -> Array:
        return q

    def q_from(self, q: Array) -> Array:
        return q

    def v_to(self, q: Array, v: Array) -> Array:
        """X(q) v, with our q."""
        return v

    def v_from(self, q: Array, v: Array) -> Array:
        """X(q)^T v, with our q."""
        return v

    def drift(self, q: Array, v: Array) -> Array:
        """Xdot v, with our q and v."""
        return np.zeros_like(v)


class _PinocchioFree(_Same):
    def v_to(self, q: Array, v: Array) -> Array:
        return np.roll(v, 3, axis=-1)

    v_from = v_to


class _PinocchioUnbounded(_Same):
    def q_to(self, q: Array) -> Array:
        return np.concatenate([np.cos(q), np.sin(q)], axis=-1)

    def q_from(self, q: Array) -> Array:
        return np.arctan2(q[..., 1:], q[..., :1])


class _PinocchioPlanar(_Same):
    def q_to(self, q: Array) -> Array:
        return np.concatenate([q[..., :2], np.cos(q[..., 2:]), np.sin(q[..., 2:])], axis=-1)

    def q_from(self, q: Array) -> Array:
        return np.concatenate([q[..., :2], np.arctan2(q[..., 3:], q[..., 2:3])], axis=-1)

    def _turn(self, angle: Array, v: Array) -> Array:
        c, s, (x, y, w) = np.cos(angle), np.sin(angle), np.moveaxis(v, -1, 0)
        return np.stack(np.broadcast_arrays(c * x - s * y, s * x + c * y, w), axis=-1)

    def v_to(self, q: Array, v: Array) -> Array:
        return self._turn(-q[..., 2], v)

    def v_from(self, q: Array, v: Array) -> Array:
        return self._turn(q[..., 2], v)

    def drift(self, q: Array, v: Array) -> Array:
        x, y, _ = np.moveaxis(self.v_to(q, v), -1, 0)
        w = v[..., 2]
        return np.stack([w * y, -w * x, np.zeros_like(x)], axis=-1)


class _MujocoSpherical(_Same):
    def q_to(self, q: Array) -> Array:
        return np.roll(q, 1, axis=-1)

    def q_from(self, q: Array) -> Array:
        return np.roll(q, -1, axis=-1)


class _MujocoFree(_Same):
    def q_to(self, q: Array) -> Array:
        return np.concatenate([q[..., :3], np.roll(q[..., 3:], 1, axis=-1)], axis=-1)

    def q_from(self, q: Array) -> Array:
        return np.concatenate([q[..., :3], np.roll(q[..., 3:], -1, axis=-1)], axis=-1)

    def v_to(self, q: Array, v: Array) -> Array:
        R = quaternion_to_matrix(q[..., 3:])
        linear = (R @ v[..., 3:, None])[..., 0]
        return np.concatenate([linear, np.broadcast_to(v[..., :3], linear.shape)], axis=-1)

    def v_from(self, q: Array, v: Array) -> Array:
        R = quaternion_to_matrix(q[..., 3:])
        linear = (np.swapaxes(R, -1, -2) @ v[..., :3, None])[..., 0]
        return np.concatenate([np.broadcast_to(v[..., 3:], linear.shape), linear], axis=-1)

    def drift(self, q: Array, v: Array) -> Array:
        turning = np.cross(v[..., :3], v[..., 3:])
        return self.v_to(q, np.concatenate([np.zeros_like(turning), turning], axis=-1))


# ---- a whole model -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Part:
    """A joint, or a joint of a composite, and where it is in our arrays and in theirs."""

    rule: _Same
    q_ours: slice
    v_ours: slice
    q_theirs: slice
    v_theirs: slice


@dataclass(frozen=True)
class _Layout:
    """How the arrays of a model are laid out in another library."""

    model: Model
    parts: tuple[_Part, ...]
    nq: int  # theirs; nv is the same
    coupled: Model | None = None  # if this is the layout of its tree


def _leaves(joint: Joint) -> Iterator[Joint]:
    """The joints of a composite in order, those of composites in it included; or the joint itself."""
    if isinstance(joint, Composite):
        for part in joint.joints:
            yield from _leaves(part)
    else:
        yield joint


def _in_order(model: Model, order: Sequence[str] | None) -> list[ModelJoint]:
    """The joints that move, in the order of the other library."""
    moving = [joint for joint in model.joints if joint.nv]
    if order is None:
        return moving
    by_name = {joint.name: joint for joint in moving}
    wrong = [name for name in order if name not in by_name]
    missing = [name for name in by_name if name not in set(order)]
    if wrong or missing or len(order) != len(by_name):
        raise ValueError(
            f"order must name each joint that moves once, has {len(order)} names for {len(by_name)} joints; "
            f"missing: {missing[:5]}, not joints that move: {wrong[:5]}"
        )
    return [by_name[name] for name in order]


def _layout(model: Model, rules: list[tuple[ModelJoint, list[tuple[_Same, int, int, int]]]]) -> _Layout:
    """The layout of parts in sequence, each a rule with our nq, their nq and the nv of both."""
    parts = []
    q_theirs = v_theirs = 0
    for joint, pieces in rules:
        q, v = joint.q_slice.start, joint.v_slice.start
        for rule, ours, theirs, nv in pieces:
            starts, counts = (q, v, q_theirs, v_theirs), (ours, nv, theirs, nv)
            q, v, q_theirs, v_theirs = (start + count for start, count in zip(starts, counts, strict=True))
            parts.append(_Part(rule, *map(slice, starts, (q, v, q_theirs, v_theirs))))
    return _Layout(model, tuple(parts), q_theirs)


def _pinocchio(model: Model, order: Sequence[str] | PinocchioModel | None) -> _Layout:
    if model.couplings and _has_followers(model, order):
        return replace(_pinocchio(model.tree, order), coupled=model)
    sizes: dict[str, int] = {}
    if isinstance(order, PinocchioModel):
        sizes = {name: joint.nq for name, joint in zip(order.names, order.joints, strict=True)}
        joints = [*zip(order.names, order.joints, strict=True)][1:]  # without the universe
        order = [name for name, joint in joints if joint.nq]  # joints that mimic others have no coordinates
    rules: list[tuple[ModelJoint, list[tuple[_Same, int, int, int]]]] = []
    for joint in _in_order(model, order):
        leaves = list(_leaves(joint.joint))
        nq = sizes.get(joint.name, joint.nq)
        if nq == joint.nq:
            pieces = [
                (_PinocchioFree() if isinstance(leaf, Free) else _Same(), leaf.nq, leaf.nq, leaf.nv) for leaf in leaves
            ]
        elif nq == 2 and isinstance(joint.joint, Revolute):
            pieces = [(_PinocchioUnbounded(), 1, 2, 1)]
        elif nq == 4 and [type(leaf) for leaf in leaves] in ([Free2D], [Planar, Revolute]):
            pieces = [(_PinocchioPlanar(), 3, 4, 3)]
        else:
            raise ValueError(f"joint {joint.name!r} has nq = {joint.nq} here and {nq} in Pinocchio")
        rules.append((joint, pieces))
    return _layout(model, rules)


def _has_followers(model: Model, order: Sequence[str] | PinocchioModel | None) -> bool:
    """Whether Pinocchio has coordinates for joints that follow others."""
    joints = [*zip(model.joints, model.tree.joints, strict=True)]
    whole = all(joint.nv in (0, full.nv) for joint, full in joints)
    if not whole or sum(joint.nv for joint, _ in joints) != model.nv:
        return True  # couplings that are not mimics
    if isinstance(order, PinocchioModel):
        order = [name for name, joint in zip(order.names, order.joints, strict=True) if joint.nq]
    return bool({full.name for joint, full in joints if joint.nv < full.nv} & {*(order or ())})


def _mujoco(model: Model, order: Sequence[str] | None) -> _Layout:
    def rule(leaf: Joint) -> _Same:
        if isinstance(leaf, Free):
            return _MujocoFree()
        return _MujocoSpherical() if isinstance(leaf, Spherical) else _Same()

    if model.couplings:
        return replace(_mujoco(model.tree, order), coupled=model)
    return _layout(
        model,
        [
            (joint, [(rule(leaf), leaf.nq, leaf.nq, leaf.nv) for leaf in _leaves(joint.joint)])
            for joint in _in_order(model, order)
        ],
    )


def _convert(
    layout: _Layout,
    to: bool,
    q: ArrayLike,
    v: ArrayLike | None,
    a: ArrayLike | None,
    tau: ArrayLike | None,
) -> Array | tuple[Array, ...]:
    """Converts from our layout to theirs, or back."""
    if layout.coupled is not None:
        return _convert_coupled(layout, layout.coupled, to, q, v, a, tau)
    model, parts = layout.model, layout.parts

    def array(x: ArrayLike, name: str, size: int) -> Array:
        refuse_mask(name, x)
        x = np.asarray(x)
        x = x.astype(np.result_type(x, np.float64), copy=False)
        if x.ndim == 0 or x.shape[-1] != size:
            raise ValueError(f"{name} has shape {x.shape}, expected (..., {size})")
        return x

    q_in = array(q, "q", model.nq if to else layout.nq)
    q_out = np.empty((*q_in.shape[:-1], layout.nq if to else model.nq), q_in.dtype)
    for part in parts:
        if to:
            q_out[..., part.q_theirs] = part.rule.q_to(q_in[..., part.q_ours])
        else:
            q_out[..., part.q_ours] = part.rule.q_from(q_in[..., part.q_theirs])
    if v is None and a is None and tau is None:
        return q_out
    q_ours = q_in if to else q_out

    def tangent(x: Array, v_ours: Array | None) -> Array:
        """X x, or X^T x; with v_ours also the drift, for accelerations."""
        batch = np.broadcast_shapes(*(y.shape[:-1] for y in (q_ours, x, v_ours) if y is not None))
        out = np.empty((*batch, model.nv), np.result_type(*(y for y in (q_ours, x, v_ours) if y is not None)))
        for part in parts:
            q_part = q_ours[..., part.q_ours]
            drift = 0.0 if v_ours is None else part.rule.drift(q_part, v_ours[..., part.v_ours])
            if to:
                out[..., part.v_theirs] = part.rule.v_to(q_part, x[..., part.v_ours]) + drift
            else:
                out[..., part.v_ours] = part.rule.v_from(q_part, x[..., part.v_theirs] - drift)
        return out

    results = [q_out]
    v_ours = None
    if v is not None:
        v_in = array(v, "v", model.nv)
        results.append(tangent(v_in, None))
        v_ours = v_in if to else results[-1]
    if a is not None:
        if v_ours is None:
            raise ValueError("a cannot be converted without v: pass v too")
        results.append(tangent(array(a, "a", model.nv), v_ours))
    if tau is not None:
        results.append(tangent(array(tau, "tau", model.nv), None))
    return tuple(results)


def _convert_coupled(
    layout: _Layout,
    model: Model,
    to: bool,
    q: ArrayLike,
    v: ArrayLike | None,
    a: ArrayLike | None,
    tau: ArrayLike | None,
) -> Array | tuple[Array, ...]:
    """The same for a model with couplings, whose tree has the layout."""
    tree = replace(layout, coupled=None)
    if a is not None and v is None:
        raise ValueError("a cannot be converted without v: pass v too")
    if to:
        return _convert(
            tree, True, model.expand(q), None if v is None else model.expand_velocity(q, v),
            None if a is None or v is None else model.expand_acceleration(q, v, a),
            None if tau is None else _leader_forces(model, tau),
        )  # fmt: skip
    found = _convert(tree, False, q, v, a, tau)
    if not isinstance(found, tuple):
        reduced: Array = model.reduce(found)
        return reduced
    names = [name for name, x in (("v", v), ("a", a), ("tau", tau)) if x is not None]
    given = dict(zip(names, found[1:], strict=True))
    q_ours = model.reduce(found[0])
    results = [q_ours]
    if "v" in given:
        results.append(model.reduce(found[0], given["v"], near=q_ours)[1])
    if "a" in given:  # P a = tree_a - dP/dt v
        bias = model.expand_acceleration(q_ours, results[1], np.zeros(model.nv))
        results.append(model.reduce(found[0], given["a"] - bias, near=q_ours)[1])
    if "tau" in given:
        P = model.coupling_jacobian(q_ours)
        results.append(np.einsum("...ij,...i->...j", P, given["tau"]))
    return tuple(results)


def _leader_forces(model: Model, tau: ArrayLike) -> Array:
    """Forces of all joints: those of leaders, and zeros for followers."""
    given, coupling = _numbers(tau, "tau", (model.nv,)), model._map
    assert coupling is not None
    if coupling.new:
        raise CouplingError(
            f"tau has forces of new coordinates {listed(coupling.new)}, which are on no joint; convert forces of "
            "model.tree that have the same effect, P.T @ tree_tau = tau with P = model.coupling_jacobian(q)"
        )
    out = np.zeros((*given.shape[:-1], model.tree.nv))
    for tree, reduced, count in coupling.runs_v:
        out[..., tree : tree + count] = given[..., reduced : reduced + count]
    return out
