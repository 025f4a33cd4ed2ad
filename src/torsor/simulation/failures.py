"""Steps that cannot be taken, and their error messages."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from torsor import _check
from torsor._check import listed
from torsor._core import Outcome
from torsor._errors import ConstraintError, ConvergenceError, TorsorError
from torsor.constraints.constraint import Constraint
from torsor.constraints.dynamics import constrained_forward_dynamics
from torsor.constraints.mobility import mobility
from torsor.integrators import HardContact, Integrator, SymplecticEuler, Variational
from torsor.integrators.base import Explicit, Implicit
from torsor.model import Model

if TYPE_CHECKING:
    from torsor._typing import FloatArray


@dataclass(frozen=True, slots=True)
class Failure:
    """A trajectory that could not take a step, in `Trajectory.failed`.

    Attributes
    ----------
    index : tuple of int
        Index of the trajectory in the batch, () for a single one: `trajectory.q[failure.index]` has its rows.
    step : int
        Number of the step that failed, from 0; the rows after it are NaN.
    t : float
        Time at the beginning of the step.
    reason : str
        Why it failed and what helps.
    """

    index: tuple[int, ...]
    step: int
    t: float
    reason: str


class Failed(NamedTuple):
    """A trajectory of a run that could not take a step: its number, the reason, with a placeholder {where} for the
    time, and the state from which it failed."""

    step: int
    reason: str
    q: FloatArray
    v: FloatArray


def add_note(error: BaseException, note: str) -> None:
    """Adds a note to an exception, which Python shows below its message (from 3.11 on)."""
    with suppress(AttributeError):  # of an exception that cannot be changed
        error.__notes__ = [*getattr(error, "__notes__", ()), note]  # type: ignore[attr-defined, unused-ignore]


def reason_of(model: Model, integrator: Integrator, outcome: int, error: Sequence[float]) -> str:
    """The message for a failed step, with a placeholder {where}; `error` is the correction that Newton's method reached
    and the allowed one, or for a singular mass matrix the index of the joint."""
    name = type(integrator).__name__
    if outcome == Outcome.singular:
        joint = model.joints[int(error[0])].name
        singular = f"{name} stopped {{where}}: the mass matrix is singular at joint {joint!r}"
        remedy = "give the bodies beyond it inertia, or remove redundant degrees of freedom"
        if isinstance(integrator, (HardContact, SymplecticEuler, Variational)):
            return (
                f"{singular}, as forward_dynamics would say; {remedy}; or let springs or dampers act on the motion "
                "that moves no mass, and take an implicit integrator, as BDF1, for which they determine it"
            )
        return (
            f"{singular}, and no spring or damper determines its motion that moves no mass; add one, as JointSpring or "
            f"JointDamping, {remedy}"
        )
    if isinstance(integrator, HardContact) and isfinite(error[0]):
        return f"{name} stopped {{where}}: {_contact_reason(integrator, *error)}"
    if isinstance(integrator, Explicit):
        return (
            f"{name} stopped {{where}}: the motion diverges, or a joint turns by half a turn in one "
            "step; try a smaller h, or an implicit integrator"
        )
    if isfinite(error[0]):
        missing = f"correction of v {error[0]:.1e} > {error[1]:.1e}"
    else:
        missing = "its matrix is singular, a joint turns by half a turn or more, or numbers overflow"
    if isinstance(integrator, Variational):
        return (
            f"Newton's method of {name} stopped {{where}} within {integrator.iterations} iterations: {missing}; "
            "try a smaller h or softer forces"
        )
    assert isinstance(integrator, Implicit)
    h, iterations, substeps = integrator.h, integrator.iterations, integrator.substeps
    divided = f", also with the step h = {h:g} divided by {substeps}" if substeps > 1 else f" with the step h = {h:g}"
    if outcome == Outcome.gained:
        return (
            f"{name} stopped {{where}}: all solutions that Newton's method found gain energy{divided}; "
            "try a smaller h, more substeps, or softer forces"
        )
    return (
        f"Newton's method of {name} stopped {{where}} within {iterations} iterations{divided}: {missing}; "
        "try a smaller h, more substeps, or softer forces"
    )


def _contact_reason(integrator: HardContact, error: float, allowed: float) -> str:
    if error < 0.0:
        return (
            "contacts, limits and constraints contradict each other, as where a body is between two that come closer "
            "than it is wide; try forces that give way, as Contact with an implicit integrator"
        )
    return (
        f"no impulses with friction were found within {integrator.iterations} iterations: error of v {error:.1e} > "
        f"{allowed:.1e}; try a smaller h, more iterations or less friction"
    )


def hint_of_rows(model: Model, constraints: Sequence[Constraint], q: FloatArray, v: FloatArray, t: float) -> str:
    """What is wrong with constraints at the state from which a step failed, for the end of its message."""
    try:
        rank = constrained_forward_dynamics(model, constraints, q, v, np.zeros(model.nv), t=t).rank
        found = mobility(model, constraints, q, t=t)
    except ConstraintError as error:
        return f"; {error}"
    except (TorsorError, ArithmeticError, ValueError):
        return "; or the constraints cannot be satisfied"
    rows = listed(found.redundant)
    if found.singular:
        return f"; the mechanism is at or near a dead point, where {rows} depend on other rows"
    if rank < sum(len(c.row_names(model)) for c in constraints):
        return f"; or constraints contradict each other: {rows} depend on other rows"
    return "; or the constraints cannot be satisfied, as beyond the reach of a mechanism"


def step_error(
    model: Model, integrator: Integrator, failed: _check.StepFailed, constrained: bool = False
) -> ConvergenceError:
    """The error that is raised where the core cannot take a single step."""
    outcome, *error = failed.failure
    state = "the given state" if failed.state is None else f"state {failed.state} of the batch (counted flat)"
    reason = reason_of(model, integrator, outcome, error).format(where=f"in the step from {state}")
    if constrained:
        reason += "; or the constraints contradict each other or cannot be satisfied"
    return ConvergenceError(reason, index=failed.state)
