"""Single steps of an integrator, with their exact Jacobians. Sueda 2021, 3.5."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from torsor import _core
from torsor._check import as_array, record_of, require_finite
from torsor._errors import ConvergenceError
from torsor.forces import CustomForce
from torsor.forces.force import Force, compile_forces, require_forces
from torsor.integrators import BDF2, Adaptive, Integrator, LinearlyImplicitEuler, Variational
from torsor.model import Model
from torsor.simulation.variational import step_options, taking_step

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    FloatArray = NDArray[np.float64]


@record_of("step_derivatives")
class StepDerivatives(NamedTuple):
    """One step and its exact Jacobian: q1 (..., nq), v1 (..., nv), and derivatives (..., nv, nv) of both by q, v and u.

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


_NOW = 0.0  # the time if none is given
_START = np.array(_NOW)
_ALL, _ALL_BUT_PREVIOUS = 0xFFF, 0xFF  # outputs, by bit


def step_derivatives(
    model: Model,
    integrator: Integrator,
    q: ArrayLike,
    v: ArrayLike,
    u: ArrayLike | None = None,
    *,
    forces: Sequence[Force] = (),
    t: float = _NOW,
    previous: tuple[ArrayLike, ArrayLike] | None = None,
    threads: int = 1,
) -> StepDerivatives:
    """One step from q (..., nq), v (..., nv) under torques u (..., nv), with its derivatives.

    `previous` is the state (q, v) one step before, for `BDF2`. Without it BDF2 takes its first step, by SDIRK2.

    Raises
    ------
    ConvergenceError
        If the step cannot be taken, in any state of the batch.
    """
    if not isinstance(integrator, Integrator) or isinstance(integrator, Adaptive):
        raise TypeError(f"integrator must be one with steps, such as BDF1(h=1e-2), got {integrator!r}")
    if isinstance(integrator, Variational):
        if previous is not None:
            raise TypeError("previous is for BDF2, which has two steps; Variational has one")
        return _variational_step(model, integrator, q, v, u, forces, t, threads)
    before: tuple[Any, Any] = (None, None)
    if previous is not None:
        if not isinstance(integrator, BDF2):
            raise TypeError(f"previous is for BDF2, which has two steps; {type(integrator).__name__} has one")
        if not isinstance(previous, (tuple, list)) or len(previous) != 2:
            raise TypeError(f"previous must be the state (q, v) one step before, got {previous!r}")
        before = (previous[0], previous[1])
        require_finite(previous_q=before[0], previous_v=before[1])  # without which a divided step would do
    options: dict[str, Any] = {
        "integrator": integrator._numbers,
        "wanted": _ALL_BUT_PREVIOUS if previous is None else _ALL,
    }
    parameters = None
    if forces:
        forces = require_forces(forces)
        require_second_derivatives(integrator, forces)
        scene = compile_forces(model, forces)
        options["forces"], parameters = scene.core, scene.parameters
    time = _START if t is _NOW else as_array("t", t)
    try:
        return _core.step_derivatives(model, q, v, u, time, parameters, *before, options, None, threads)
    except RuntimeError as error:
        if str(error) != "the step could not be taken":
            raise
    require_finite(q=q, v=v, u=u, t=t)  # of which one that is not lets no step succeed
    raise ConvergenceError(
        f"a step of {integrator!r} could not be taken: its equations have no solution near the state, or the mass "
        "matrix is singular and no spring or damper determines the motion that moves no mass; try a smaller h"
    )


def _variational_step(
    model: Model,
    integrator: Variational,
    q: ArrayLike,
    v: ArrayLike,
    u: ArrayLike | None,
    forces: Sequence[Force],
    t: float,
    threads: int,
) -> StepDerivatives:
    options, parameters = step_options(model, integrator, forces)
    time = as_array("t", t)
    with taking_step(integrator, q=q, v=v, u=u, t=t):
        return StepDerivatives(
            *_core.variational_step_derivatives(model, q, v, u, time, parameters, options, None, threads)
        )


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
