"""Whether gradients through impacts are those of the continuous motion."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import numpy as np

from torsor._errors import ImpactWarning
from torsor.dynamics import mass_matrix_solve
from torsor.forces import Contact, contact_states
from torsor.integrators.base import Implicit
from torsor.kinematics import body_poses, place_poses, point_jacobian
from torsor.model import WORLD

if TYPE_CHECKING:
    from torsor._typing import FloatArray
    from torsor.model import Model
    from torsor.simulation.trajectory import Trajectory

_UNRESOLVED = 1.0, 20.0  # h sqrt(k / m) where the rebound depends on the phase of the step
_MOST = 8  # contacts of which an impact is looked at


def warn_of_impacts(trajectory: Trajectory) -> None:
    """Warns if an impact is neither resolved by the steps nor as good as rigid: docs/impacts.md."""
    contacts = [force for force in trajectory.forces if isinstance(force, Contact)]
    if not contacts or trajectory.models or not isinstance(trajectory.integrator, Implicit):
        return
    model, h = trajectory.model, trajectory.integrator.h
    states = contact_states(model, contacts, trajectory.q, trajectory.v)
    closes = (states.gap[..., 1:, :] < 0) & (states.gap[..., :-1, :] >= 0)
    found = np.argwhere(closes)
    _, firsts = np.unique(states.force_index[found[:, -1]], return_index=True)
    for index in found[firsts[:_MOST]]:
        row = (*index[:-2], index[-2] + 1)
        place = (*row, index[-1])
        contact = contacts[states.force_index[index[-1]]]
        mass = _mass(model, trajectory.q[row], contact, states.point[place], states.normal[place])
        ratio = h * float(np.sqrt(contact.stiffness / mass))
        if _UNRESOLVED[0] < ratio < _UNRESOLVED[1]:
            warnings.warn(
                f"the impact of {contact.body!r} on {contact.other!r} at t = {trajectory.t[row[-1]]:.4g} has "
                f"h sqrt(k / m) = {ratio:.2g}, with an effective mass m of {mass:.3g}: between {_UNRESOLVED[0]:g} and "
                f"{_UNRESOLVED[1]:g} the rebound depends on when in a step the impact happens. The gradient is that of "
                "the discrete motion, not of the continuous one; use Contact.rigid(h, m), or a smaller h with an onset",
                ImpactWarning,
                stacklevel=3,
            )
            return


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
