"""Inverse dynamics under constraints: the torques of actuated joints, and the multipliers, that a motion takes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from torsor import _core
from torsor._check import axes, listed, record_of
from torsor._errors import ConstraintError
from torsor.constraints.constraint import CompiledConstraints, Constraint, compile_constraints
from torsor.constraints.couplings import PrescribedJoint
from torsor.derivatives.matrices import output_bits
from torsor.spatial import refuse_mask

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from torsor._typing import FloatArray, Frame, Threads, Wrenches
    from torsor.model import Model

# What torques may leave of those that are needed, relative to them. Solutions are exact to 1e-13; where joints cannot
# be moved, 1e-3 and more is left.
_BEYOND_ROUNDING = 1e-8


class ConstrainedInverseDynamics(NamedTuple):
    """Generalized forces tau (..., nv), zero where no joint is actuated, and multipliers (..., m)."""

    tau: FloatArray
    multipliers: FloatArray


@record_of("constrained_inverse_dynamics_derivatives")
class ConstrainedInverseDynamicsDerivatives(NamedTuple):
    """Derivatives of the generalized forces, each (..., nv, nv), and of the multipliers, each (..., m, nv)."""

    dtau_dq: FloatArray
    dtau_dv: FloatArray
    dtau_da: FloatArray
    dmultipliers_dq: FloatArray
    dmultipliers_dv: FloatArray
    dmultipliers_da: FloatArray


def constrained_inverse_dynamics(
    model: Model,
    constraints: Iterable[Constraint],
    q: ArrayLike,
    v: ArrayLike,
    a: ArrayLike,
    *,
    actuated: Sequence[str] | ArrayLike | None = None,
    f_ext: Wrenches | None = None,
    f_ext_frame: Frame = "body",
    t: ArrayLike = 0.0,
    out: ConstrainedInverseDynamics | None = None,
    threads: Threads = 1,
) -> ConstrainedInverseDynamics:
    """Torques of actuated joints and multipliers that a motion takes: ID(q, v, a) = tau + G^T multipliers.

    The motion should fulfil the constraints; then `constrained_forward_dynamics` with these torques gives back a. Where
    torques and multipliers are not unique, as with more actuators than degrees of freedom, or with redundant
    constraints, the sum of the squares of all of them is least: in newtons and newton-metres as they are.

    Parameters
    ----------
    model : Model
    constraints : iterable of Constraint
    q : (..., nq) array_like
        Configurations.
    v, a : (..., nv) array_like
        Velocities and accelerations.
    actuated : sequence of str, or (nv,) array_like of bool, optional
        Names of the joints that have motors, or a mask over velocities. By default all joints but those with a
        `PrescribedJoint`, whose multipliers are their torques.
    f_ext : (..., nbodies, 6) array_like or dict, optional
        External wrenches on the bodies, moment first.
    f_ext_frame : {"body", "world", "local_world_aligned"}
        Frame in which `f_ext` is given.
    t : (...) array_like
        Time.
    out : ConstrainedInverseDynamics, optional
        Record of arrays for the results.
    threads : int or "auto"
        Most threads for a batch, of which as many take part as pay; "auto" for at most one per core.

    Returns
    -------
    ConstrainedInverseDynamics
        tau (..., nv), zero at joints without motors, and multipliers (..., m).

    Raises
    ------
    ConstraintError
        If neither motors nor constraints can give the forces that the motion takes, in any state of the batch.

    Examples
    --------
    >>> pin = ts.Loop("world", "hand", ts.Spherical()).at(model, q)  # the hand stays where it is
    >>> rest = np.zeros(model.nv)
    >>> c = ts.constrained_inverse_dynamics(model, [pin], q, rest, rest)
    >>> np.allclose(ts.constrained_forward_dynamics(model, [pin], q, rest, c.tau).a, 0)
    True
    """
    compiled = compile_constraints(model, constraints)
    mask = _actuated_mask(model, compiled, actuated)
    options = {**compiled.options, "prescribed": mask, "axes": axes(f_ext_frame, "f_ext_frame")}
    outs: tuple[Any, ...] | None = None
    if out is not None:
        if not isinstance(out, (tuple, list)) or len(out) != 2:
            got = len(out) if isinstance(out, (tuple, list)) else type(out).__name__
            raise TypeError(f"out must be a tuple of 2 arrays, got {got}")
        outs = (*out, np.empty(np.shape(out[0])))
    tau, multipliers, rest = _core.constrained_inverse_dynamics(model, q, v, t, a, f_ext, options, outs, threads)
    _require_forces(model, rest)
    return ConstrainedInverseDynamics(tau, multipliers)


def constrained_inverse_dynamics_derivatives(
    model: Model,
    constraints: Iterable[Constraint],
    q: ArrayLike,
    v: ArrayLike,
    a: ArrayLike,
    *,
    actuated: Sequence[str] | ArrayLike | None = None,
    f_ext: Wrenches | None = None,
    f_ext_frame: Frame = "body",
    outputs: Sequence[str] | None = None,
    t: ArrayLike = 0.0,
    out: ConstrainedInverseDynamicsDerivatives | None = None,
    threads: Threads = 1,
) -> ConstrainedInverseDynamicsDerivatives:
    """Derivatives of `constrained_inverse_dynamics`, exact, of solutions of least norm too.

    Where motors and constraints cannot give all forces, though they can give those of the motion, derivatives are exact
    along directions in which this remains so.

    Parameters
    ----------
    model : Model
    constraints : iterable of Constraint
    q : (..., nq) array_like
        Configurations.
    v, a : (..., nv) array_like
        Velocities and accelerations.
    actuated : sequence of str, or (nv,) array_like of bool, optional
        As for `constrained_inverse_dynamics`.
    f_ext : (..., nbodies, 6) array_like or dict, optional
        External wrenches on the bodies, moment first.
    f_ext_frame : {"body", "world", "local_world_aligned"}
        Frame in which `f_ext` is given.
    outputs : sequence of str, optional
        Names of the fields to compute, all by default; the others are None.
    t : (...) array_like
        Time.
    out : ConstrainedInverseDynamicsDerivatives, optional
        Record of arrays for the results.
    threads : int or "auto"
        Most threads for a batch, of which as many take part as pay; "auto" for at most one per core.

    Returns
    -------
    ConstrainedInverseDynamicsDerivatives
        dtau_dq, dtau_dv and dtau_da, each (..., nv, nv); dmultipliers_dq, dmultipliers_dv and dmultipliers_da, each
        (..., m, nv).

    Examples
    --------
    >>> pin = ts.Loop("world", "hand", ts.Spherical()).at(model, q)  # the hand stays where it is
    >>> rest = np.zeros(model.nv)
    >>> d = ts.constrained_inverse_dynamics_derivatives(model, [pin], q, rest, rest)
    >>> d.dtau_dq.shape, d.dmultipliers_dq.shape
    ((7, 7), (3, 7))
    """
    compiled = compile_constraints(model, constraints)
    options = {
        **compiled.options,
        "prescribed": _actuated_mask(model, compiled, actuated),
        "axes": axes(f_ext_frame, "f_ext_frame"),
        "wanted": output_bits(ConstrainedInverseDynamicsDerivatives._fields, outputs),
    }
    return _core.constrained_inverse_dynamics_derivatives(model, q, v, t, a, f_ext, options, out, threads)


def _actuated_mask(model: Model, compiled: CompiledConstraints, actuated: Any) -> bytes:
    """One byte for each velocity: 1 if there is a torque on it."""
    if actuated is None:
        mask = np.ones(model.nv, np.bool_)
        for constraint in compiled.constraints:
            if isinstance(constraint, PrescribedJoint):
                mask[model.joint(constraint.joint).v_slice] = False
        return mask.tobytes()
    if isinstance(actuated, str):
        raise TypeError(f"actuated is {actuated!r}, expected a sequence of names, [{actuated!r}], or a mask")
    refuse_mask("actuated", actuated)
    array = np.asarray(list(actuated) if isinstance(actuated, (set, frozenset, dict)) else actuated)
    if array.dtype == np.bool_ and array.shape == (model.nv,):
        return array.tobytes()
    if array.dtype.kind != "U" and array.size:
        raise TypeError(
            f"actuated has dtype {array.dtype} and shape {array.shape}, expected names of joints or a mask of bool of "
            f"shape ({model.nv},)"
        )
    mask = np.zeros(model.nv, np.bool_)
    for name in array.ravel().tolist():
        mask[model._velocities(name, "actuate")] = True
    return mask.tobytes()


def _require_forces(model: Model, rest: FloatArray) -> None:
    """Raises the error for torques `rest` (..., nv) that are left, relative to those that are needed."""
    size = np.abs(rest)
    if not size.size or not (size > _BEYOND_ROUNDING).any():
        return
    rows = size.reshape(-1, model.nv)
    state = int(np.argmax((rows > _BEYOND_ROUNDING).any(axis=1)))
    large = rows[state] > 1e-3 * np.nanmax(rows[state])
    names, owners = [], np.array(model._owners)
    for name in dict.fromkeys(model._owners):
        of_joint = large[owners == name]
        names += [name] if of_joint.all() else [f"{name}[{k}]" for k in np.flatnonzero(of_joint)]
    where = "" if rest.ndim == 1 else f" in state {state} of the batch (counted flat)"
    raise ConstraintError(
        f"velocities of {listed(names)} lack actuation{where}: neither motors nor constraints can give "
        f"{np.linalg.norm(rows[state]):.2g} of the forces that the motion takes; add joints to actuated="
    )
