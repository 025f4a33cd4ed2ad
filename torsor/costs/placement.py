"""What the places of points and masses depend on besides q: the placements of joints."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from torsor.model import Model

if TYPE_CHECKING:
    from numpy.typing import NDArray

    FloatArray = NDArray[np.float64]

_CROSS = np.cross(np.eye(3)[:, None], np.eye(3))  # (j, k, i): component i of e_j x e_k


def cross(a: FloatArray, b: FloatArray) -> FloatArray:
    """a x b; np.cross takes as long as all the rest of a cost."""
    return np.asarray(np.einsum("jki,...j,...k->...i", _CROSS, a, b))


def parents(model: Model) -> list[int]:
    """Of every body, -1 for the world."""
    at = {b.name: i for i, b in enumerate(model.bodies)}
    return [at.get(b.parent, -1) for b in model.bodies]


def carriers(model: Model, body: int) -> list[int]:
    """A body and all that carry it."""
    above, out = parents(model), [body]
    while above[out[-1]] >= 0:
        out.append(above[out[-1]])
    return out


def by_placement(model: Model, poses: FloatArray, bodies: list[int], wrenches: FloatArray) -> FloatArray:
    """Gradient (..., nbodies, 6) with respect to placements. `wrenches` (..., k, 6) are the gradients with respect to
    motions of k bodies with all that they carry, moment first, in the world's frame."""
    above = parents(model)
    world = np.broadcast_to(np.eye(4), (*poses.shape[:-3], 1, 4, 4))
    carried = np.concatenate([poses, world], axis=-3)[..., [above[i] for i in bodies], :, :]
    placements = [model.bodies[i].placement for i in bodies]
    R = carried[..., :3, :3] @ np.array([x.R for x in placements])
    p = carried[..., :3, 3] + np.einsum("...ij,...j->...i", carried[..., :3, :3], np.array([x.p for x in placements]))
    forces = wrenches[..., 3:]
    out = np.zeros((*poses.shape[:-2], 6))
    out[..., bodies, :3] = np.einsum("...ji,...j->...i", R, wrenches[..., :3] - cross(p, forces))
    out[..., bodies, 3:] = np.einsum("...ji,...j->...i", R, forces)
    return out
