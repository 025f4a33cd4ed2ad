"""Whether gradients through impacts are those of the continuous motion."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import numpy as np

from torsor._errors import ImpactWarning
from torsor.dynamics import mass_matrix_solve
from torsor.forces import Contact
from torsor.integrators.base import Implicit
from torsor.kinematics import body_poses, place_poses, point_jacobian
from torsor.model import WORLD

if TYPE_CHECKING:
    from torsor._typing import FloatArray
    from torsor.model import Model
    from torsor.simulation.trajectory import Trajectory

_UNRESOLVED = 1.0, 20.0  # h sqrt(k / m) where the rebound depends on the phase of the step
_MOST = 16  # contacts of which an impact is looked at, each for one model and one stiffness


def warn_of_impacts(trajectory: Trajectory) -> None:
    """Warns if an impact is neither resolved by the steps nor as good as rigid: docs/impacts.md. Only impacts that are
    open at one row and closed at the next are seen."""
    if not isinstance(trajectory.integrator, Implicit) or not any(isinstance(f, Contact) for f in trajectory.forces):
        return
    h, states, rows = trajectory.integrator.h, trajectory.contacts, len(trajectory.t)
    gap = states.gap.reshape(-1, rows, states.gap.shape[-1])
    found = np.argwhere((gap[:, 1:] < 0) & (gap[:, :-1] >= 0))
    alike = not (trajectory.models or any(trajectory.parameters) or any(trajectory.signals))
    first = states.force_index[found[:, -1]] + (0 if alike else len(trajectory.forces)) * found[:, 0]
    seen: set[tuple[int, int, float]] = set()
    for track, before, k in found[np.unique(first, return_index=True)[1]].tolist():
        row, index = before + 1, int(states.force_index[k])
        at = (*map(int, np.unravel_index(track, trajectory.batch_shape)), row)
        contact, stiffness = trajectory.forces[index], _stiffness(trajectory, index, at)
        model = _model(trajectory, track, row)
        if (index, id(model), stiffness) in seen or not isinstance(contact, Contact):
            continue
        if len(seen) == _MOST:
            return
        seen.add((index, id(model), stiffness))
        place = (*at, k)
        mass = _mass(model, trajectory.q[at], contact, states.point[place], states.normal[place])
        ratio = h * float(np.sqrt(stiffness / mass))
        if _UNRESOLVED[0] < ratio < _UNRESOLVED[1]:
            warnings.warn(
                f"the impact of {contact.body!r} on {contact.other!r} at t = {trajectory.t[row]:.4g} has "
                f"h sqrt(k / m) = {ratio:.2g}, with an effective mass m of {mass:.3g}: between {_UNRESOLVED[0]:g} and "
                f"{_UNRESOLVED[1]:g} the rebound depends on when in a step the impact happens. The gradient is that of "
                "the discrete motion, not of the continuous one; use Contact.rigid(h, m), or a smaller h with an onset",
                ImpactWarning,
                stacklevel=3,
            )
            return


def _model(trajectory: Trajectory, track: int, row: int) -> Model:
    """The model of a trajectory in the coordinates of a row."""
    if not trajectory.models and not trajectory.charts:
        return trajectory.model
    return next(m for i, first, last, m in trajectory.segments() if i == track and first <= row <= last)


def _stiffness(trajectory: Trajectory, index: int, at: tuple[int, ...]) -> float:
    """That of a force at a row, which parameters or signals of the simulation may have replaced."""
    for given, tail in ((trajectory.parameters, ()), (trajectory.signals, (trajectory.steps,))):
        if given and "stiffness" in given[index]:
            values = np.broadcast_to(given[index]["stiffness"], (*trajectory.batch_shape, *tail))
            step = (max(trajectory.every * at[-1] - 1, 0),)
            return float(values[(*at[:-1], *step) if tail else at[:-1]])
    return float(trajectory.forces[index].parameters["stiffness"])


def _mass(model: Model, q: FloatArray, contact: Contact, point: FloatArray, normal: FloatArray) -> float:
    """The mass that an impact at a point feels along the normal."""
    row = np.zeros(model.nv)
    poses = body_poses(model, q)
    for sign, name in ((1.0, contact.body), (-1.0, contact.other)):
        if name != WORLD:
            (pose,) = place_poses(model, poses, [model._find(name, "frame")])
            local = pose[:3, :3].T @ (point - pose[:3, 3])
            row += sign * normal @ point_jacobian(model, q, name, local)
    return 1.0 / max(float(row @ mass_matrix_solve(model, q, row)), 1e-300)
