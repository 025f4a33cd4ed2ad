"""Whether forces and constraints fit an integrator, and initial states satisfy constraints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from torsor import _core
from torsor._errors import ConstraintError
from torsor.constraints.constraint import Constraint
from torsor.constraints.custom import CustomConstraint
from torsor.constraints.twists import TwistConstraint
from torsor.integrators import HardContact, Integrator
from torsor.integrators.base import Explicit, Implicit

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from torsor._typing import FloatArray
    from torsor.forces.force import CompiledForces
    from torsor.simulation.batch import Batch

_GAP = 1e-6  # largest error of a row that a start may have, relative to 1 and to the largest coordinate
_RATE = 1e-6  # the same for its rate, relative to 1 and to the largest velocity


def require_holonomic(integrator: Integrator, constraints: Sequence[Constraint]) -> None:
    """Rejects rows on velocities alone where an integrator imposes positions."""
    if isinstance(integrator, Explicit):
        return
    for constraint in constraints:
        if isinstance(constraint, TwistConstraint):
            raise TypeError(
                f"{constraint.shown_name} is a row on velocities, and {type(integrator).__name__} imposes constraints "
                "on positions; use SymplecticEuler or LinearlyImplicitEuler, or a constraint with positions, such as "
                "PrescribedBody or PrescribedJoint"
            )


def require_accelerations(integrator: Integrator, forces: CompiledForces, constraints: Sequence[Constraint]) -> None:
    """Rejects forces that depend on accelerations where a step does not solve for these, and under constraints."""
    if forces.accelerated is None:
        return
    if isinstance(integrator, HardContact):
        for constraint in constraints:
            if isinstance(constraint, CustomConstraint):
                name = type(constraint).__name__
                forces.refuse_accelerated(f"and user-defined constraints, as {name}, do not say how they load joints")
        return
    if not isinstance(integrator, Implicit):
        forces.refuse_accelerated(f"for which {type(integrator).__name__} does not solve")
    if constraints:
        forces.refuse_accelerated("and is not available under constraints")


def require_consistent(batch: Batch, integrator: Integrator, t: float, q: FloatArray, v: FloatArray) -> None:
    """Rejects initial states (size, nq), (size, nv) that do not satisfy the constraints."""
    assert batch.rows is not None
    velocities = not isinstance(integrator, Explicit)  # explicit steps impose velocities by themselves
    for m, model in enumerate(batch.models):
        of = np.flatnonzero(batch.model_of == m)
        if not len(of):
            continue
        options = {"constraints": batch.ready(batch.charts, m)[2]}
        g, gdot, _ = _core.constraint_errors(model, q[of], v[of], t, None, options, None, 1)
        reach = 1.0 + np.abs(q[of]).max(axis=-1, initial=0.0)[:, None]
        speed = 1.0 + np.abs(v[of]).max(axis=-1, initial=0.0)[:, None]
        _refuse(batch, of, np.abs(g) / reach > _GAP, g, "g", "stays open by")
        if velocities:
            _refuse(batch, of, np.abs(gdot) / speed > _RATE, gdot, "dg/dt", "moves at")
        for k, constraint in enumerate(batch.constraints):
            for i in of.tolist():
                if constraint.flipped(model, q[i], t=t):
                    where = f" in trajectory {i} of the batch" if batch.shape else ""
                    raise ConstraintError(
                        f"{batch.rows.names[k]} is closed half a turn from what it means{where}: its rows are zero "
                        "there too; turn one of its bodies, or start from ts.project(model, constraints, q0)"
                    )


def _refuse(
    batch: Batch, of: NDArray[np.int64], bad: NDArray[np.bool_], value: FloatArray, what: str, verb: str
) -> None:
    """Raises the error for the first state with bad rows (states, rows), naming the one that is out most."""
    if not bad.any():
        return
    assert batch.rows is not None
    i = int(np.argmax(bad.any(axis=1)))
    row = int(np.argmax(np.where(bad[i], np.abs(value[i]), 0.0)))
    where = f" in trajectory {of[i]} of the batch" if batch.shape else ""
    raise ConstraintError(
        f"the initial state does not satisfy the constraints{where}: {batch.rows.row_names[row]!r} {verb} "
        f"{abs(value[i, row]):.3g} ({what}); q0, v0 = ts.project(model, constraints, q0, v0) makes it consistent",
        [batch.rows.row_names[k] for k in np.flatnonzero(bad[i])],
    )
