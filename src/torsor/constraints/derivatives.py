"""Derivatives of constrained forward dynamics, exact: along one direction, of one weighted sum of the results, and
second derivatives of such a sum. `torsor.constraints.dynamics` has the matrices of first derivatives.

Results are derivatives of the accelerations and multipliers of `constrained_forward_dynamics`, at any state, on the
constraint or off it. Where rows depend on each other they are those of the multipliers of least norm, if the rank of
the rows is the same around the state, as in planar mechanisms; if it is so on the constraint alone, they are exact
along the constraint.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from torsor import _core
from torsor._check import record_of
from torsor._errors import ConstraintError
from torsor.constraints.constraint import CompiledConstraints, Constraint, compile_constraints
from torsor.constraints.dynamics import constrained_options
from torsor.derivatives.matrices import output_bits

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from torsor._typing import FloatArray, Frame, Threads, Wrenches
    from torsor.model import Model


@record_of("constrained_forward_dynamics_jvp")
class ConstrainedForwardDynamicsJVP(NamedTuple):
    """Accelerations and multipliers, and their derivatives along a direction: a, da (..., nv); multipliers,
    dmultipliers (..., m)."""

    a: FloatArray
    multipliers: FloatArray
    da: FloatArray
    dmultipliers: FloatArray


class ConstrainedForwardDynamicsVJP(NamedTuple):
    """Gradients of w_a . a + w_multipliers . multipliers.

    Attributes
    ----------
    q, v, tau : (..., nv)
    f_ext : (..., nbodies, 6)
    inertia : (..., nbodies, 10)
        With respect to `Inertia.parameters` of every body.
    placement : (..., nbodies, 6)
        With respect to twists x of the placements, placement @ SE3.exp(x).
    gravity : (..., 3)
    armature : (..., nv)
    parameters : tuple of dicts
        For each constraint the gradients with respect to its parameters: name -> (..., *shape of the parameter).
    """

    q: FloatArray
    v: FloatArray
    tau: FloatArray
    f_ext: FloatArray
    inertia: FloatArray
    placement: FloatArray
    gravity: FloatArray
    armature: FloatArray
    parameters: tuple[dict[str, FloatArray], ...]


@record_of("constrained_forward_dynamics_hessians")
class ConstrainedForwardDynamicsHessians(NamedTuple):
    """Second derivatives of w_a . a + w_multipliers . multipliers, each (..., nv, nv), and its gradients dq, dv and
    dtau, each (..., nv).

    `dqdv[..., j, k]` is d/dv_k of dq[j], `dtaudq[..., j, k]` is d/dq_k of dtau[j]. Those with respect to v and tau, and
    to tau twice, are zero.
    """

    dqdq: FloatArray
    dqdv: FloatArray
    dvdv: FloatArray
    dtaudq: FloatArray
    dq: FloatArray
    dv: FloatArray
    dtau: FloatArray


def constrained_forward_dynamics_jvp(
    model: Model,
    constraints: Iterable[Constraint],
    q: ArrayLike,
    v: ArrayLike,
    tau: ArrayLike,
    *,
    dq: ArrayLike | None = None,
    dv: ArrayLike | None = None,
    dtau: ArrayLike | None = None,
    f_ext: Wrenches | None = None,
    df_ext: Wrenches | None = None,
    f_ext_frame: Frame = "body",
    t: ArrayLike = 0.0,
    baumgarte: Sequence[float] | None = None,
    compliance: float = 0.0,
    out: ConstrainedForwardDynamicsJVP | None = None,
    threads: Threads = 1,
) -> ConstrainedForwardDynamicsJVP:
    """Constrained forward dynamics and its derivative along one direction, exact.

    Parameters
    ----------
    model : Model
    constraints : iterable of Constraint
    q : (..., nq) array_like
        Configurations.
    v, tau : (..., nv) array_like
        Velocities and generalized forces.
    dq, dv, dtau : (..., nv) array_like, optional
        The direction, zero by default; dq is in the tangent space.
    f_ext, df_ext : (..., nbodies, 6) array_like or dict, optional
        External wrenches on the bodies, moment first, and their part of the direction.
    f_ext_frame : {"body", "world", "local_world_aligned"}
        Frame in which `f_ext` and `df_ext` are given.
    t : (...) array_like
        Time.
    baumgarte : pair of float, optional
        Gains (alpha, beta), as for `constrained_forward_dynamics`.
    compliance : float
        As for `constrained_forward_dynamics`.
    out : ConstrainedForwardDynamicsJVP, optional
        Record of arrays for the results.
    threads : int or "auto"
        Most threads for a batch, of which as many take part as pay; "auto" for at most one per core.

    Returns
    -------
    ConstrainedForwardDynamicsJVP
        a, multipliers, da and dmultipliers.

    Raises
    ------
    ConstraintError
        If rows contradict each other, in any state of the batch.
    SingularMassMatrixError
        If some motion of a joint moves no mass, in any state of the batch.

    Examples
    --------
    >>> pin = ts.Loop("world", "hand", ts.Spherical()).at(model, q)  # the hand stays where it is
    >>> t = ts.constrained_forward_dynamics_jvp(model, [pin], q, v, tau, dtau=w)
    >>> d = ts.constrained_forward_dynamics_derivatives(model, [pin], q, v, tau)
    >>> np.allclose(t.da, d.da_dtau @ w)
    True
    """
    options = constrained_options(model, constraints, f_ext_frame, baumgarte, compliance)
    return _core.constrained_forward_dynamics_jvp(
        model, q, v, t, tau, f_ext, dq, dv, dtau, df_ext, options, out, threads
    )


def constrained_forward_dynamics_vjp(
    model: Model,
    constraints: Iterable[Constraint],
    q: ArrayLike,
    v: ArrayLike,
    tau: ArrayLike,
    *,
    w_a: ArrayLike | None = None,
    w_multipliers: ArrayLike | None = None,
    f_ext: Wrenches | None = None,
    f_ext_frame: Frame = "body",
    t: ArrayLike = 0.0,
    baumgarte: Sequence[float] | None = None,
    compliance: float = 0.0,
    threads: Threads = 1,
) -> ConstrainedForwardDynamicsVJP:
    """Gradients of w_a . a + w_multipliers . multipliers with respect to all inputs, parameters of the model and
    parameters of the constraints: one solution and sweeps in O(n).

    Parameters
    ----------
    model : Model
    constraints : iterable of Constraint
    q : (..., nq) array_like
        Configurations.
    v, tau : (..., nv) array_like
        Velocities and generalized forces.
    w_a : (..., nv) array_like, optional
        Cotangents: weights on the accelerations, zero by default.
    w_multipliers : (..., m) array_like, optional
        Cotangents: weights on the multipliers, zero by default.
    f_ext : (..., nbodies, 6) array_like or dict, optional
        External wrenches on the bodies, moment first.
    f_ext_frame : {"body", "world", "local_world_aligned"}
        Frame in which `f_ext` is given.
    t : (...) array_like
        Time.
    baumgarte : pair of float, optional
        Gains (alpha, beta), as for `constrained_forward_dynamics`.
    compliance : float
        As for `constrained_forward_dynamics`.
    threads : int or "auto"
        Most threads for a batch, of which as many take part as pay; "auto" for at most one per core.

    Returns
    -------
    ConstrainedForwardDynamicsVJP
        q, v, tau (..., nv); f_ext (..., nbodies, 6); inertia (..., nbodies, 10); placement (..., nbodies, 6); gravity
        (..., 3); armature (..., nv); and for each constraint a dict of gradients by name of the parameter.

    Raises
    ------
    ConstraintError
        If rows contradict each other, in any state of the batch.
    SingularMassMatrixError
        If some motion of a joint moves no mass, in any state of the batch.

    Examples
    --------
    >>> pin = ts.Loop("world", "hand", ts.Spherical()).at(model, q)  # the hand stays where it is
    >>> g = ts.constrained_forward_dynamics_vjp(model, [pin], q, v, tau, w_a=w)
    >>> g.q.shape  # w . da/dq
    (7,)
    >>> sorted(g.parameters[0])  # and with respect to the geometry of the loop
    ['placement_a', 'placement_b']
    """
    constraints = tuple(constraints)
    options = constrained_options(model, constraints, f_ext_frame, baumgarte, compliance)
    *states, flat = _core.constrained_forward_dynamics_vjp(
        model, q, v, t, tau, w_a, w_multipliers, f_ext, options, None, threads
    )
    parameters = compile_constraints(model, constraints).unflatten(flat)
    return ConstrainedForwardDynamicsVJP._make([*states, parameters])


def constrained_forward_dynamics_hessians(
    model: Model,
    constraints: Iterable[Constraint],
    q: ArrayLike,
    v: ArrayLike,
    tau: ArrayLike,
    *,
    f_ext: Wrenches | None = None,
    f_ext_frame: Frame = "body",
    contract: tuple[ArrayLike | None, ArrayLike | None],
    outputs: Sequence[str] | None = None,
    t: ArrayLike = 0.0,
    baumgarte: Sequence[float] | None = None,
    compliance: float = 0.0,
    out: ConstrainedForwardDynamicsHessians | None = None,
    threads: Threads = 1,
) -> ConstrainedForwardDynamicsHessians:
    """Second derivatives of w_a . a + w_multipliers . multipliers, exact.

    Directions of q are in the tangent space, applied successively, as for `forward_dynamics_hessians`.

    Parameters
    ----------
    model : Model
    constraints : iterable of Constraint
        Without user-defined ones, which have no derivatives of that order.
    q : (..., nq) array_like
        Configurations.
    v, tau : (..., nv) array_like
        Velocities and generalized forces.
    f_ext : (..., nbodies, 6) array_like or dict, optional
        External wrenches on the bodies, moment first.
    f_ext_frame : {"body", "world", "local_world_aligned"}
        Frame in which `f_ext` is given.
    contract : tuple of (..., nv) and (..., m) array_like
        Weights (w_a, w_multipliers) on accelerations and multipliers; None for zeros.
    outputs : sequence of str, optional
        Names of the fields to compute, all by default; the others are None.
    t : (...) array_like
        Time.
    baumgarte : pair of float, optional
        Gains (alpha, beta), as for `constrained_forward_dynamics`.
    compliance : float
        As for `constrained_forward_dynamics`.
    out : ConstrainedForwardDynamicsHessians, optional
        Record of arrays for the results.
    threads : int or "auto"
        Most threads for a batch, of which as many take part as pay; "auto" for at most one per core.

    Returns
    -------
    ConstrainedForwardDynamicsHessians
        dqdq, dqdv, dvdv and dtaudq, each (..., nv, nv), and dq, dv and dtau, each (..., nv).

    Raises
    ------
    ConstraintError
        If rows contradict each other, in any state of the batch, or if there are user-defined constraints.
    SingularMassMatrixError
        If some motion of a joint moves no mass, in any state of the batch.

    Examples
    --------
    >>> pin = ts.Loop("world", "hand", ts.Spherical()).at(model, q)  # the hand stays where it is
    >>> h = ts.constrained_forward_dynamics_hessians(model, [pin], q, v, tau, contract=(w, None))
    >>> h.dqdq.shape  # of w . a
    (7, 7)
    """
    constraints = tuple(constraints)
    _refuse_custom(compile_constraints(model, constraints))
    if not isinstance(contract, (tuple, list)) or len(contract) != 2:
        raise TypeError(f"contract is {contract!r}, expected (w_a, w_multipliers): two arrays, or None for zeros")
    options = constrained_options(model, constraints, f_ext_frame, baumgarte, compliance)
    options = {**options, "wanted": output_bits(ConstrainedForwardDynamicsHessians._fields, outputs)}
    return _core.constrained_forward_dynamics_hessians(model, q, v, t, tau, *contract, f_ext, options, out, threads)


def _refuse_custom(compiled: CompiledConstraints) -> None:
    """Rejects constraints whose rows are computed in Python, which has no third derivatives of them."""
    for k, part in compiled.parts:
        if part[0] == "custom":
            raise ConstraintError(
                f"{compiled.names[k]} is computed in Python: its rows have no third derivatives, which second "
                "derivatives of dynamics need; leave it out, or differentiate constrained_forward_dynamics_vjp by "
                "differences",
                compiled.row_names[compiled.row_slices[k]],
            )
