"""Single steps of an integrator, alone and with their exact Jacobians. Sueda 2021, 3.5."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from torsor import _core
from torsor._check import StepFailed, as_array, record_of, require_finite
from torsor.forces.custom import CustomForce
from torsor.forces.force import Force, compile_forces
from torsor.integrators import Adaptive, Integrator, LinearlyImplicitEuler
from torsor.model import Model
from torsor.simulation.controls import Actuation, read_actuation
from torsor.simulation.failures import step_error

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    FloatArray = NDArray[np.float64]


@record_of("step")
class Step(NamedTuple):
    """The state after a step: q1 (..., nq), v1 (..., nv)."""

    q1: FloatArray
    v1: FloatArray


@record_of("step_derivatives")
class StepDerivatives(NamedTuple):
    """One step and its exact Jacobian: q1 (..., nq), v1 (..., nv), and derivatives (..., nv, nv) of both by q, v and u,
    those by u (..., nv, nu).

    Those of and by configurations are in the tangent space. For a step of `BDF2` from two states those by the state
    before come too, else None.
    """

    q1: FloatArray
    v1: FloatArray
    dq1_dq: FloatArray
    dq1_dv: FloatArray
    dq1_du: FloatArray
    dv1_dq: FloatArray
    dv1_dv: FloatArray
    dv1_du: FloatArray
    dq1_dprevious_q: FloatArray | None = None
    dq1_dprevious_v: FloatArray | None = None
    dv1_dprevious_q: FloatArray | None = None
    dv1_dprevious_v: FloatArray | None = None


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
    t: ArrayLike = _NOW,
    previous: tuple[ArrayLike, ArrayLike] | None = None,
    out: Step | None = None,
    threads: int = 1,
) -> Step:
    """The state (q1, v1) one step after q (..., nq), v (..., nv) under controls u (..., nu): for loops of one's own.

    `actuation` says where the controls act, as for `simulate`; by default u are the nv torques. `t` is the time at the
    beginning. `previous` is the state (q, v) one step before, for `BDF2`; without it BDF2 takes its first step, by
    SDIRK2. Coordinates are those of the model: no charts are switched. Forces are compiled once for a model and the
    same force objects.

    Raises
    ------
    ConvergenceError
        If the step cannot be taken, in any state of the batch; `index` is that state (flat).
    """
    options, parameters = _require_steps(integrator)._options, None
    if forces is not _NONE:
        options, parameters, _ = _with_forces(options, model, forces)
    if actuation is not None:
        u = _torques(u, read_actuation(model, actuation))
    before_q, before_v = (None, None) if previous is None else _previous(integrator, previous)
    try:
        return _core.step(model, q, v, u, _time(t), parameters, before_q, before_v, options, out, threads)
    except StepFailed as failed:
        raise step_error(model, integrator, failed) from None


def step_derivatives(
    model: Model,
    integrator: Integrator,
    q: ArrayLike,
    v: ArrayLike,
    u: ArrayLike | None = None,
    *,
    actuation: Sequence[str] | ArrayLike | None = None,
    forces: Sequence[Force] = _NONE,
    t: ArrayLike = _NOW,
    previous: tuple[ArrayLike, ArrayLike] | None = None,
    threads: int = 1,
) -> StepDerivatives:
    """One step from q (..., nq), v (..., nv) under controls u (..., nu), with its derivatives.

    The parameters and the errors are those of `step`.
    """
    if actuation is not None:
        acting = read_actuation(model, actuation)
        full = step_derivatives(
            model, integrator, q, v, _torques(u, acting), forces=forces, t=t, previous=previous, threads=threads
        )
        return full._replace(dq1_du=acting.pull_back(full.dq1_du), dv1_du=acting.pull_back(full.dv1_du))
    integrator = _require_steps(integrator)
    options, parameters = integrator._options if previous is not None else integrator._options_of_one_step, None
    if forces is not _NONE:
        options, parameters, given = _with_forces(options, model, forces)
        require_second_derivatives(integrator, given)
    before_q, before_v = (None, None) if previous is None else _previous(integrator, previous)
    try:
        return _core.step_derivatives(model, q, v, u, _time(t), parameters, before_q, before_v, options, None, threads)
    except StepFailed as failed:
        raise step_error(model, integrator, failed) from None


def _time(t: Any) -> FloatArray:
    return _START if t is _NOW else np.array(t) if type(t) is float else as_array("t", t)


def _with_forces(
    options: dict[str, Any], model: Model, forces: Sequence[Force]
) -> tuple[dict[str, Any], FloatArray | None, tuple[Force, ...]]:
    """Options of the core with forces, their parameters, and the forces as they were given."""
    compiled = compile_forces(model, forces)
    if not compiled.given:
        return options, None, ()
    return {**options, "forces": compiled.core}, compiled.parameters, compiled.given


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
        raise TypeError(f"integrator must be one with steps, such as BDF1(h=1e-2), got {integrator!r}")
    return integrator


def _previous(integrator: Integrator, previous: Any) -> tuple[Any, Any]:
    if getattr(integrator, "_multistep", None) is None:
        raise TypeError(f"previous is for BDF2, which has two steps; {type(integrator).__name__} has one")
    if not isinstance(previous, (tuple, list)) or len(previous) != 2 or previous[0] is None or previous[1] is None:
        raise TypeError(f"previous must be the state (q, v) one step before, got {previous!r}")
    require_finite(previous_q=previous[0], previous_v=previous[1])  # without which a divided step would do
    return previous[0], previous[1]


def require_second_derivatives(integrator: Integrator, forces: Sequence[Force]) -> None:
    """Refuses forces whose second derivatives the Jacobian of a step needs and does not have."""
    if isinstance(integrator, LinearlyImplicitEuler):
        for force in forces:
            if isinstance(force, CustomForce) and not force.complex_derivatives:
                raise TypeError(
                    "LinearlyImplicitEuler has stiffness and damping in its steps, so its derivatives need second ones "
                    f"of {type(force).__name__}; write its methods for complex arrays and say so by "
                    "complex_derivatives = True in the class, or use BDF1"
                )
