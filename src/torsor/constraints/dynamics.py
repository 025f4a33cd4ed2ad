"""Forward dynamics under constraints, and its derivatives.

Constraints hold at the level of accelerations: gamma = 0, the second time derivative of their rows g. Torques of
reaction are G^T multipliers, G being dg/dq. Batches, `out`, `threads`, `f_ext` and `f_ext_frame` are as in
`torsor.dynamics`; t broadcasts with the states.

The choice off the constraints
    Derivatives with respect to q at fixed v leave the constraints, and two formulations that agree on them differ
    there. Here g of a pair of markers are coordinates of one marker in the axes of the other, gamma is their true
    second derivative, and the reaction acts at one point of both bodies. So gdot, gamma, Baumgarte's terms, steps at
    the level of positions and all derivatives belong to one function g. Others, such as differences of accelerations
    of points in the world's axes, give the same accelerations on the constraints, and the same derivatives along them,
    in directions with G dq = 0 and d(gdot) = 0, but other matrices.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from torsor import _core
from torsor._check import axes, direct, record_of
from torsor.constraints.constraint import Constraint, compile_constraints
from torsor.derivatives.matrices import output_bits

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from torsor._typing import FloatArray, Frame, Threads, Wrenches
    from torsor.model import Model


@record_of("constrained_forward_dynamics")
class ConstrainedForwardDynamics(NamedTuple):
    """Accelerations and multipliers of a model under constraints.

    Attributes
    ----------
    a : (..., nv)
    multipliers : (..., rows)
        Those of least norm, if rows depend on each other.
    rank : (...)
        Number of rows that do not depend on others. Where it changes, accelerations are not differentiable.
    """

    a: FloatArray
    multipliers: FloatArray
    rank: FloatArray


@record_of("constrained_forward_dynamics_derivatives")
class ConstrainedForwardDynamicsDerivatives(NamedTuple):
    """Derivatives of (a, multipliers) = constrained_forward_dynamics(q, v, tau).

    Attributes
    ----------
    da_dq, da_dv, da_dtau : (..., nv, nv)
    dmultipliers_dq, dmultipliers_dv, dmultipliers_dtau : (..., rows, nv)
    """

    da_dq: FloatArray
    da_dv: FloatArray
    da_dtau: FloatArray
    dmultipliers_dq: FloatArray
    dmultipliers_dv: FloatArray
    dmultipliers_dtau: FloatArray


@direct("constrained_forward_dynamics")
def constrained_forward_dynamics(
    model: Model,
    constraints: Iterable[Constraint],
    q: ArrayLike,
    v: ArrayLike,
    tau: ArrayLike,
    *,
    f_ext: Wrenches | None = None,
    f_ext_frame: Frame = "body",
    t: ArrayLike = 0.0,
    baumgarte: Sequence[float] | None = None,
    compliance: float = 0.0,
    out: ConstrainedForwardDynamics | None = None,
    threads: Threads = 1,
) -> ConstrainedForwardDynamics:
    """Accelerations and multipliers of a model under constraints.

    They solve inverse_dynamics(q, v, a) = tau + G^T multipliers with gamma = 0 (Sueda 2021, eqs. (2.105) and (1.97)),
    by articulated bodies and one small system for the multipliers. The state need not fulfil the constraints:
    accelerations are those that keep g changing at its present rate.

    Rows may depend on each other, as those of a planar linkage that is closed by a hinge. Accelerations are unique
    then, multipliers are those of least norm, and `rank` says how many rows are independent.

    Parameters
    ----------
    model : Model
    constraints : iterable of Constraint
        Compiled once for the same model and constraint objects.
    q : (..., nq) array_like
        Configurations.
    v, tau : (..., nv) array_like
        Velocities and generalized forces.
    f_ext : (..., nbodies, 6) array_like or dict, optional
        External wrenches on the bodies, moment first.
    f_ext_frame : {"body", "world", "local_world_aligned"}
        Frame in which `f_ext` is given.
    t : (...) array_like
        Time, for constraints that depend on it.
    baumgarte : pair of float, optional
        Gains (alpha, beta) of Baumgarte's stabilisation: gamma + 2 alpha gdot + beta^2 g = 0. None by default: drift is
        the matter of integrators.
    compliance : float
        e of rows that give way, gamma + ... + e multipliers = 0, which makes multipliers unique and smooth; 0 by
        default.
    out : ConstrainedForwardDynamics, optional
        Record of arrays for the results.
    threads : int or "auto"
        Most threads for a batch, of which as many take part as pay; "auto" for at most one per core.

    Returns
    -------
    ConstrainedForwardDynamics
        a (..., nv), multipliers (..., rows) and rank (...).

    Raises
    ------
    ConstraintError
        If rows that depend on each other ask for different accelerations, in any state of the batch.
    SingularMassMatrixError
        If some motion of a joint moves no mass, in any state of the batch.

    Examples
    --------
    >>> pin = ts.Loop("world", "hand", ts.Spherical()).at(model, q)  # the hand stays where it is
    >>> c = ts.constrained_forward_dynamics(model, [pin], q, v, tau)
    >>> c.a.shape, c.multipliers.shape  # the force on the hand is what the multipliers are
    ((7,), (3,))
    >>> np.allclose(ts.constraint_errors(model, [pin], q, v, c.a).gamma, 0)
    True
    """
    options = constrained_options(model, constraints, f_ext_frame, baumgarte, compliance)
    return _core.constrained_forward_dynamics(model, q, v, t, tau, f_ext, options, out, threads)


@direct("constrained_forward_dynamics_derivatives")
def constrained_forward_dynamics_derivatives(
    model: Model,
    constraints: Iterable[Constraint],
    q: ArrayLike,
    v: ArrayLike,
    tau: ArrayLike,
    *,
    f_ext: Wrenches | None = None,
    f_ext_frame: Frame = "body",
    outputs: Sequence[str] | None = None,
    t: ArrayLike = 0.0,
    baumgarte: Sequence[float] | None = None,
    compliance: float = 0.0,
    out: ConstrainedForwardDynamicsDerivatives | None = None,
    threads: Threads = 1,
) -> ConstrainedForwardDynamicsDerivatives:
    """Derivatives of `constrained_forward_dynamics`, exact.

    They are those of a and multipliers as functions of any (q, v, tau), on the constraints or not. Where another
    library differs in da_dq or da_dv as matrices, see the choice off the constraints in `torsor.constraints.dynamics`:
    along the constraints all agree.

    If rows depend on each other, derivatives of a hold where the rank does not change nearby, as in planar linkages; if
    it is constant on the constraints alone, as in a Bennett linkage, along these. The range of G turns with q, which
    dmultipliers_dq includes.

    Parameters
    ----------
    model : Model
    constraints : iterable of Constraint
        Compiled once for the same model and constraint objects.
    q : (..., nq) array_like
        Configurations.
    v, tau : (..., nv) array_like
        Velocities and generalized forces.
    f_ext : (..., nbodies, 6) array_like or dict, optional
        External wrenches on the bodies, moment first.
    f_ext_frame : {"body", "world", "local_world_aligned"}
        Frame in which `f_ext` is given.
    outputs : sequence of str, optional
        Names of the fields to compute, all by default; the others are None.
    t : (...) array_like
        Time, for constraints that depend on it.
    baumgarte : pair of float, optional
        Gains (alpha, beta), as for `constrained_forward_dynamics`.
    compliance : float
        As for `constrained_forward_dynamics`.
    out : ConstrainedForwardDynamicsDerivatives, optional
        Record of arrays for the results.
    threads : int or "auto"
        Most threads for a batch, of which as many take part as pay; "auto" for at most one per core.

    Returns
    -------
    ConstrainedForwardDynamicsDerivatives
        da_dq, da_dv, da_dtau, each (..., nv, nv), and dmultipliers_dq, dmultipliers_dv, dmultipliers_dtau, each
        (..., rows, nv).

    Raises
    ------
    ConstraintError
        If rows that depend on each other ask for different accelerations, in any state of the batch.
    SingularMassMatrixError
        If some motion of a joint moves no mass, in any state of the batch.

    Examples
    --------
    >>> pin = ts.Loop("world", "hand", ts.Spherical()).at(model, q)  # the hand stays where it is
    >>> d = ts.constrained_forward_dynamics_derivatives(model, [pin], q, v, tau)
    >>> d.da_dq.shape, d.dmultipliers_dq.shape
    ((7, 7), (3, 7))
    """
    options = constrained_options(model, constraints, f_ext_frame, baumgarte, compliance)
    if outputs is not None:
        fields = ConstrainedForwardDynamicsDerivatives._fields
        options = {**options, "wanted": output_bits(fields, outputs)}
    return _core.constrained_forward_dynamics_derivatives(model, q, v, t, tau, f_ext, options, out, threads)


def constrained_options(
    model: Model,
    constraints: Iterable[Constraint],
    f_ext_frame: Frame = "body",
    baumgarte: Any = None,
    compliance: Any = 0.0,
) -> dict[str, Any]:
    """Options of a function of the core, with the constraints compiled.

    Later calls with the same constraints, and no other options, find them without running Python
    (core/bind/function.cpp).
    """
    compiled = compile_constraints(model, constraints)
    if not compiled.changeable:
        model._cache["last_constraints"] = (compiled.core, *compiled.constraints)
    options = compiled.options
    if f_ext_frame != "body":
        options = {**options, "axes": axes(f_ext_frame, "f_ext_frame")}
    if baumgarte is not None:
        options = {**options, "baumgarte": require_gains(baumgarte)}
    if type(compliance) is not float or compliance != 0.0:
        options = {**options, "compliance": require_compliance(compliance)}
    return options


def require_gains(baumgarte: Any) -> tuple[float, float]:
    """Gains of Baumgarte's stabilisation, checked."""
    expected = "expected a pair (alpha, beta) of finite numbers of 0 at least"
    try:
        alpha, beta = (float(x) for x in baumgarte)
    except (TypeError, ValueError):
        raise TypeError(f"baumgarte is {baumgarte!r}, {expected}") from None
    if not 0.0 <= alpha < float("inf") or not 0.0 <= beta < float("inf"):
        raise ValueError(f"baumgarte is {baumgarte!r}, {expected}")
    return alpha, beta


def require_compliance(compliance: Any) -> float:
    """A compliance, checked."""
    expected = "expected a finite number of 0 at least"
    try:
        e = float(compliance)
    except (TypeError, ValueError):
        raise TypeError(f"compliance is {compliance!r}, {expected}") from None
    if not 0.0 <= e < float("inf"):
        raise ValueError(f"compliance is {compliance!r}, {expected}")
    return e
