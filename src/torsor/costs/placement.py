"""Derivatives of positions of points and masses with respect to the placements of joints."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from torsor.model import Model

if TYPE_CHECKING:
    from torsor._typing import FloatArray


_NEXT, _LAST = [1, 2, 0], [2, 0, 1]


def cross(a: FloatArray, b: FloatArray) -> FloatArray:
    """a x b; np.cross takes as long as the rest of a cost."""
    return a[..., _NEXT] * b[..., _LAST] - a[..., _LAST] * b[..., _NEXT]


def parents(model: Model) -> list[int]:
    """Index of the parent of every body, -1 for the world."""
    at = {b.name: i for i, b in enumerate(model.bodies)}
    return [at.get(b.parent, -1) for b in model.bodies]


def carriers(model: Model, body: int) -> list[int]:
    """A body and all its ancestors; none for -1, the world."""
    above, out = parents(model), []
    while body >= 0:
        out.append(body)
        body = above[body]
    return out


def by_placement(model: Model, poses: FloatArray, bodies: list[int], wrenches: FloatArray) -> FloatArray:
    """Gradient (..., nbodies, 6) with respect to placements. `wrenches` (..., k, 6) are the gradients with respect to
    motions of k bodies with their descendants, moment first, in the world frame."""
    above = [parents(model)[i] for i in bodies]
    carried = poses[..., above, :, :]
    carried[..., [k for k, parent in enumerate(above) if parent < 0], :, :] = np.eye(4)
    placements = [model.bodies[i].placement for i in bodies]
    R = carried[..., :3, :3] @ np.array([x.R for x in placements]).reshape(-1, 3, 3)
    p = carried[..., :3, 3] + (carried[..., :3, :3] @ np.array([x.p for x in placements]).reshape(-1, 3, 1))[..., 0]
    forces = wrenches[..., 3:]
    moments = wrenches[..., :3] - cross(p, forces)
    out = np.zeros((*poses.shape[:-2], 6))
    out[..., bodies, :3] = (moments[..., None, :] @ R)[..., 0, :]
    out[..., bodies, 3:] = (forces[..., None, :] @ R)[..., 0, :]
    return out
