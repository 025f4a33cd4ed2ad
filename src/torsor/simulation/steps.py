"""Single steps of an integrator, alone and with their exact Jacobians. Sueda 2021, 3.5; Fan 2018."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import numpy as np

from torsor import _core
from torsor._check import StepFailed, as_array, record_of, require_finite
from torsor.constraints.constraint import Constraint, compile_constraints
from torsor.forces.custom import CustomForce
from torsor.forces.force import CompiledForces, Force, compile_forces
from torsor.integrators import Adaptive, Integrator, LinearlyImplicitEuler, Variational
from torsor.model import Model
from torsor.simulation.consistency import require_accelerations, require_holonomic
from torsor.simulation.controls import Actuation, read_actuation
from torsor.simulation.failures import step_error

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from torsor._typing import FloatArray, Threads


@record_of("step")
class Step(NamedTuple):
    """The state after a step: q1 (..., nq), v1 (..., nv)."""

    q1: FloatArray
    v1: FloatArray


@record_of("step_derivatives")
class StepDerivatives(NamedTuple):
    """One step and its Jacobian: q1 (..., nq), v1 (..., nv), and derivatives (..., nv, nv) of both with respect to q
    and v, (..., nv, nu) with respect to u.

    Derivatives of and with respect to configurations are in the tangent space.
    """

    q1: FloatArray
    v1: FloatArray
    dq1_dq: FloatArray
    dq1_dv: FloatArray
    dq1_du: FloatArray
    dv1_dq: FloatArray
    dv1_dv: FloatArray
    dv1_du: FloatArray


@record_of("two_step_derivatives")
class TwoStepDerivatives(NamedTuple):
    """One step of `BDF2` from two states and its Jacobian: the fields of `StepDerivatives`, and derivatives (..., nv,
    nv) with respect to the state `previous`, one step earlier."""

    q1: FloatArray
    v1: FloatArray
    dq1_dq: FloatArray
    dq1_dv: FloatArray
    dq1_du: FloatArray
    dv1_dq: FloatArray
    dv1_dv: FloatArray
    dv1_du: FloatArray
    dq1_dprevious_q: FloatArray
    dq1_dprevious_v: FloatArray
    dv1_dprevious_q: FloatArray
    dv1_dprevious_v: FloatArray


@record_of("momentum_step_derivatives")
class MomentumStepDerivatives(NamedTuple):
    """One step of `Variational` in momenta and its Jacobian: q1 (..., nq), p1 (..., nv), and derivatives (..., nv, nv)
    of both with respect to q and p, (..., nv, nu) with respect to u.

    Derivatives of and with respect to configurations are in the tangent space. `dq1_dforces` and `dp1_dforces` are
    derivatives with respect to the parameters of the forces: for each force a dict, name -> (..., nv, *shape of the
    parameter); None without forces.
    """

    q1: FloatArray
    p1: FloatArray
    dq1_dq: FloatArray
    dq1_dp: FloatArray
    dq1_du: FloatArray
    dp1_dq: FloatArray
    dp1_dp: FloatArray
    dp1_du: FloatArray
    dq1_dforces: tuple[dict[str, FloatArray], ...] | None = None
    dp1_dforces: tuple[dict[str, FloatArray], ...] | None = None


_NONE: tuple[Force, ...] = ()
_NOW = 0.0  # the time if none is given
_START = np.array(_NOW)


def step(
    model: Model,
    integrator: Integrator,
    q: ArrayLike,
    v: ArrayLike,
    u: ArrayLike | None = None,
    *,
    actuation: Sequence[str] | ArrayLike | None = None,
    forces: Sequence[Force] = _NONE,
    constraints: Sequence[Constraint] | None = None,
    t: ArrayLike = _NOW,
    previous: tuple[ArrayLike, ArrayLike] | None = None,
    out: Step | None = None,
    threads: Threads = 1,
) -> Step:
    """Takes one step of an integrator, for user-defined simulation loops.

    Parameters
    ----------
    model : Model
    integrator : Integrator
        Any but `Adaptive`.
    q : (..., nq) array_like
        Configurations at the beginning of the step. No charts are switched.
    v : (..., nv) array_like
        Velocities.
    u : (..., nu) array_like, optional
        Controls, constant over the step; zero by default.
    actuation : sequence of str, or (nv, nu) array_like, optional
        The joints on which the controls act, or the matrix B of the torques B u. By default u are the nv torques.
    forces : sequence of Force
        Forces in addition to gravity. They are compiled once for the same model and force objects.
    constraints : sequence of Constraint, optional
        Loops, couplings and prescribed motions, compiled likewise; those of the model by default, () for none. The
        state need not satisfy them.
    t : (...) array_like
        Time at the beginning of the step.
    previous : (q, v), optional
        The state one step earlier, for `BDF2`. Without it BDF2 takes its first step, by SDIRK2.
    out : Step, optional
        Arrays to write the result to.
    threads : int or "auto"
        Number of threads for a batch; "auto" for one per core.

    Returns
    -------
    Step
        q1 (..., nq) and v1 (..., nv).

    Raises
    ------
    ConvergenceError
        If the step cannot be taken for some state of the batch; `index` is its flat index.

    Examples
    --------
    >>> for _ in range(100):
    ...     q, v = ts.step(model, ts.BDF1(h=1e-2), q, v)
    """
    options, parameters = _require_steps(integrator)._options, None
    if forces is not _NONE:
        options, parameters, _ = _with_forces(options, model, integrator, forces, constraints)
    if constraints is not None or _has_own(model):
        options = _with_constraints(options, model, integrator, constraints)
    if actuation is not None:
        u = _torques(u, read_actuation(model, actuation))
    before_q, before_v = (None, None) if previous is None else _previous(integrator, previous)
    try:
        return _core.step(model, q, v, u, _time(t), parameters, before_q, before_v, options, out, threads)
    except StepFailed as failed:
        raise step_error(model, integrator, failed, bool(options.get("constraints"))) from None


@overload
def step_derivatives(
    model: Model,
    integrator: Integrator,
    q: ArrayLike,
    v: ArrayLike,
    u: ArrayLike | None = ...,
    *,
    p: None = ...,
    actuation: Sequence[str] | ArrayLike | None = ...,
    forces: Sequence[Force] = ...,
    constraints: Sequence[Constraint] | None = ...,
    t: ArrayLike = ...,
    previous: None = ...,
    threads: Threads = ...,
) -> StepDerivatives: ...
@overload
def step_derivatives(
    model: Model,
    integrator: Integrator,
    q: ArrayLike,
    v: ArrayLike,
    u: ArrayLike | None = ...,
    *,
    p: None = ...,
    actuation: Sequence[str] | ArrayLike | None = ...,
    forces: Sequence[Force] = ...,
    constraints: Sequence[Constraint] | None = ...,
    t: ArrayLike = ...,
    previous: tuple[ArrayLike, ArrayLike],
    threads: Threads = ...,
) -> TwoStepDerivatives: ...
@overload
def step_derivatives(
    model: Model,
    integrator: Integrator,
    q: ArrayLike,
    v: None = ...,
    u: ArrayLike | None = ...,
    *,
    p: ArrayLike,
    actuation: Sequence[str] | ArrayLike | None = ...,
    forces: Sequence[Force] = ...,
    constraints: Sequence[Constraint] | None = ...,
    t: ArrayLike = ...,
    previous: None = ...,
    threads: Threads = ...,
) -> MomentumStepDerivatives: ...


def step_derivatives(
    model: Model,
    integrator: Integrator,
    q: ArrayLike,
    v: ArrayLike | None = None,
    u: ArrayLike | None = None,
    *,
    p: ArrayLike | None = None,
    actuation: Sequence[str] | ArrayLike | None = None,
    forces: Sequence[Force] = _NONE,
    constraints: Sequence[Constraint] | None = None,
    t: ArrayLike = _NOW,
    previous: tuple[ArrayLike, ArrayLike] | None = None,
    threads: Threads = 1,
) -> StepDerivatives | TwoStepDerivatives | MomentumStepDerivatives:
    """Takes one step of an integrator and differentiates it, exactly.

    Parameters
    ----------
    model : Model
    integrator : Integrator
        Any but `Adaptive`; a `Variational` one with `p`.
    q : (..., nq) array_like
        Configurations at the beginning of the step.
    v : (..., nv) array_like
        Velocities; or give `p`.
    u : (..., nu) array_like, optional
        Controls, constant over the step; zero by default.
    p : (..., nv) array_like, optional
        Momenta M(q) v in place of v: the step from (q, p) to (q1, p1), whose Jacobian is symplectic without forces and
        controls. Fan 2018, propositions 3 and 4.
    actuation : sequence of str, or (nv, nu) array_like, optional
        The joints on which the controls act, or the matrix B of the torques B u. By default u are the nv torques.
    forces : sequence of Force
        Forces in addition to gravity.
    constraints : sequence of Constraint, optional
        Loops, couplings and prescribed motions; those of the model by default, () for none. The derivatives are those
        of the step from any state, also from one that does not satisfy them.
    t : (...) array_like
        Time at the beginning of the step.
    previous : (q, v), optional
        The state one step earlier, for `BDF2`.
    threads : int or "auto"
        Number of threads for a batch; "auto" for one per core.

    Returns
    -------
    StepDerivatives
        q1, v1 and their derivatives with respect to q, v and u; with `previous` `TwoStepDerivatives`, with `p`
        `MomentumStepDerivatives`.

    Raises
    ------
    ConvergenceError
        If the step cannot be taken for some state of the batch; `index` is its flat index.

    Examples
    --------
    >>> d = ts.step_derivatives(model, ts.BDF1(h=1e-2), q, v)
    >>> A = np.block([[d.dq1_dq, d.dq1_dv], [d.dv1_dq, d.dv1_dv]])
    """
    integrator = _require_steps(integrator)
    options, parameters = integrator._options, None
    if (v is None) == (p is None):
        count = "both" if v is not None else "neither"
        raise TypeError(f"step_derivatives takes either v, the velocities, or p, the momenta: got {count}")
    acting = None if actuation is None else read_actuation(model, actuation)
    if acting is not None:
        u = _torques(u, acting)
    before_q, before_v = (None, None) if previous is None else _previous(integrator, previous)
    try:
        if p is not None:
            return _by_momenta(model, integrator, q, p, u, acting, forces, constraints, t, threads)
        if forces is not _NONE:
            options, parameters, given = _with_forces(options, model, integrator, forces, constraints)
            require_second_derivatives(integrator, given)
        if constraints is not None or _has_own(model):
            options = _with_constraints(options, model, integrator, constraints)
        kernel = _core.step_derivatives if previous is None else _core.two_step_derivatives
        made = kernel(model, q, v, u, _time(t), parameters, before_q, before_v, options, None, threads)
    except StepFailed as failed:
        raise step_error(model, integrator, failed, bool(options.get("constraints"))) from None
    if acting is not None:
        made = made._replace(dq1_du=acting.pull_back(made.dq1_du), dv1_du=acting.pull_back(made.dv1_du))
    return made


def _by_momenta(
    model: Model,
    integrator: Integrator,
    q: ArrayLike,
    p: ArrayLike,
    u: ArrayLike | None,
    acting: Actuation | None,
    forces: Sequence[Force],
    constraints: Sequence[Constraint] | None,
    t: ArrayLike,
    threads: Threads,
) -> MomentumStepDerivatives:
    if not isinstance(integrator, Variational):
        raise TypeError(f"p is for Variational, whose steps are of momenta; give v to {type(integrator).__name__}")
    options, compiled = variational_options(model, integrator, forces)
    if constraints is not None or _has_own(model):
        options = _with_constraints(options, model, integrator, constraints)
    parameters = None if compiled is None else compiled.parameters
    options["wanted"] = 0xFF if compiled is None else 0x3FF
    made = _core.momentum_step_derivatives(model, q, p, u, _time(t), parameters, options, None, threads)
    if acting is not None:
        made = made._replace(dq1_du=acting.pull_back(made.dq1_du), dp1_du=acting.pull_back(made.dp1_du))
    if compiled is None:
        return made
    by_parameters: Any = made[8:]
    dq1, dp1 = (compiled.unflatten(x) for x in by_parameters)
    return made._replace(dq1_dforces=dq1, dp1_dforces=dp1)


def variational_options(
    model: Model, integrator: Variational, forces: Sequence[Force]
) -> tuple[dict[str, Any], CompiledForces | None]:
    """Options of the core for steps of a variational integrator, and the compiled forces, None without any."""
    if not isinstance(integrator, Variational):
        raise TypeError(f"integrator must be Variational(h, order), got {integrator!r}")
    options: dict[str, Any] = {"integrator": integrator._numbers}
    if not forces:
        return options, None
    compiled = compile_forces(model, forces)
    compiled.refuse_accelerated("for which Variational does not solve")
    return {**options, **compiled.options}, compiled


def _time(t: Any) -> FloatArray:
    return _START if t is _NOW else np.array(t) if type(t) is float else as_array("t", t)


def _with_forces(
    options: dict[str, Any],
    model: Model,
    integrator: Integrator,
    forces: Sequence[Force],
    constraints: Sequence[Constraint] | None,
) -> tuple[dict[str, Any], FloatArray | None, tuple[Force, ...]]:
    """Options of the core with forces, their parameters, and the forces as they were given."""
    compiled = compile_forces(model, forces)
    if not compiled.given:
        return options, None, ()
    if compiled.accelerated is not None:
        require_accelerations(integrator, compiled, model.constraints if constraints is None else constraints)
    return {**options, "forces": compiled.core}, compiled.parameters, compiled.given


def _has_own(model: Model) -> bool:
    return isinstance(model, Model) and bool(model.constraints)


def _with_constraints(
    options: dict[str, Any], model: Model, integrator: Integrator, constraints: Sequence[Constraint] | None
) -> dict[str, Any]:
    """Options of the core with constraints."""
    compiled = compile_constraints(model, model.constraints if constraints is None else constraints)
    require_holonomic(integrator, compiled.constraints)
    return {**options, **compiled.options} if compiled.constraints else options


def _torques(u: ArrayLike | None, actuation: Actuation) -> FloatArray | None:
    """Torques (..., nv) of controls u (..., nu)."""
    if u is None:
        return None
    array, size = as_array("u", u), actuation.matrix.shape[1]
    if array.ndim == 0 or array.shape[-1] != size:
        raise ValueError(f"u has shape {array.shape}, expected (..., {size}): the actuation has {size} controls")
    return actuation.torques(array)


def _require_steps(integrator: Integrator) -> Integrator:
    if not isinstance(integrator, Integrator) or isinstance(integrator, Adaptive):
        raise TypeError(f"integrator must have steps, such as BDF1(h=1e-2), got {integrator!r}")
    return integrator


def _previous(integrator: Integrator, previous: Any) -> tuple[Any, Any]:
    if getattr(integrator, "_multistep", None) is None:
        raise TypeError(f"previous is for BDF2, which has two steps; {type(integrator).__name__} has one")
    if not isinstance(previous, (tuple, list)) or len(previous) != 2 or previous[0] is None or previous[1] is None:
        raise TypeError(f"previous must be the state (q, v) one step before, got {previous!r}")
    require_finite(previous_q=previous[0], previous_v=previous[1])  # a divided step would succeed without them
    return previous[0], previous[1]


def require_second_derivatives(integrator: Integrator, forces: Sequence[Force]) -> None:
    """Refuses forces without the second derivatives that the Jacobian of a step needs."""
    if isinstance(integrator, LinearlyImplicitEuler):
        for force in forces:
            if isinstance(force, CustomForce) and not force.complex_derivatives:
                raise TypeError(
                    "LinearlyImplicitEuler has stiffness and damping in its steps, so its derivatives need second "
                    f"derivatives of {type(force).__name__}; write its methods for complex arrays and declare it by "
                    "complex_derivatives = True in the class, or use BDF1"
                )
