"""Poses, velocities, accelerations and Jacobians of bodies and points.

Batches, `out` and `threads` are as in `torsor.dynamics`. Twists and accelerations have the angular part first.
`frame` says how they are expressed: "body", in the body's frame; "world", as spatial quantities of the world's frame
(the linear part is that of the point at the world's origin); "local_world_aligned", those of the body's origin in the
world's axes, where the acceleration is that of the origin as a point. Gravity is no part of accelerations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from torsor import _core
from torsor._check import axes
from torsor.model import Model, require_model
from torsor.spatial import refuse_mask

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from torsor._typing import FloatArray, Frame


def body_poses(model: Model, q: ArrayLike, out: FloatArray | None = None, threads: int = 1) -> FloatArray:
    """Poses (..., nbodies, 4, 4) of the bodies' frames in the world, in the order of `model.bodies`."""
    return _core.body_poses(model, q, out, threads)


def body_indices(model: Model, body: str | Sequence[str], points: ArrayLike) -> tuple[bool, list[int], ArrayLike]:
    """Whether one body was named, the index of the body of each point, and the points."""
    require_model(model)
    refuse_mask("points", points)
    if isinstance(body, str):
        shape = np.shape(points)
        if not shape or shape[-1] != 3:
            raise ValueError(f"points has shape {shape}, expected (..., n, 3) or (3,)")
        count = shape[-2] if len(shape) > 1 else 1
        return True, [model._find(body, "body")] * count, points
    return False, [model._find(name, "body") for name in body], points


def of_list(out: FloatArray | None, axis: int) -> FloatArray | None:
    """`out` for one point, as `out` for a list of one."""
    if out is not None and not isinstance(out, np.ndarray):
        raise TypeError(f"out must be a NumPy array, got {type(out).__name__}")
    return None if out is None else np.expand_dims(out, axis)


def point_positions(
    model: Model,
    q: ArrayLike,
    body: str | Sequence[str],
    points: ArrayLike,
    out: FloatArray | None = None,
    threads: int = 1,
) -> FloatArray:
    """World positions of points fixed in bodies.

    Parameters
    ----------
    body : str or sequence of n str
        The body of all points, or of each.
    points : (3,) or (..., n, 3) array_like
        In their bodies' frames.

    Returns
    -------
    (..., 3) for one point given as (3,), else (..., n, 3).
    """
    named, frames, points = body_indices(model, body, points)
    if not named or np.ndim(points) > 1:
        return _core.point_positions(model, q, points, {"frames": frames}, out, threads)
    result = _core.point_positions(model, q, np.asarray(points)[None], {"frames": frames}, of_list(out, -2), threads)
    return result[..., 0, :] if out is None else out


def body_velocities(
    model: Model,
    q: ArrayLike,
    v: ArrayLike,
    frame: Frame = "body",
    out: FloatArray | None = None,
    threads: int = 1,
) -> FloatArray:
    """Twists (..., nbodies, 6) of the bodies. Kim 2012, (36)."""
    return _core.body_velocities(model, q, v, {"axes": axes(frame)}, out, threads)


def body_accelerations(
    model: Model,
    q: ArrayLike,
    v: ArrayLike,
    a: ArrayLike,
    frame: Frame = "body",
    out: FloatArray | None = None,
    threads: int = 1,
) -> FloatArray:
    """Accelerations (..., nbodies, 6) of the bodies: in "body", the derivative of the components of the twist. Kim
    2012, (40)."""
    return _core.body_accelerations(model, q, v, a, {"axes": axes(frame)}, out, threads)


def jacobian(
    model: Model,
    q: ArrayLike,
    body: str,
    frame: Frame = "body",
    out: FloatArray | None = None,
    threads: int = 1,
) -> FloatArray:
    """The Jacobian (..., 6, nv) of a body: its twist in `frame` is J v."""
    return _core.body_jacobian(
        model, q, {"axes": axes(frame), "frames": [require_model(model)._find(body, "body")]}, out, threads
    )


def point_jacobian(
    model: Model,
    q: ArrayLike,
    body: str | Sequence[str],
    points: ArrayLike = (0.0, 0.0, 0.0),
    out: FloatArray | None = None,
    threads: int = 1,
) -> FloatArray:
    """Jacobians of `point_positions`: (..., 3, nv) for one point given as (3,), else (..., n, 3, nv).

    The world velocity of the point is J v.
    """
    named, frames, points = body_indices(model, body, points)
    if not named or np.ndim(points) > 1:
        return _core.point_jacobians(model, q, points, {"frames": frames}, out, threads)
    result = _core.point_jacobians(model, q, np.asarray(points)[None], {"frames": frames}, of_list(out, -3), threads)
    return result[..., 0, :, :] if out is None else out


def maximal_jacobian(model: Model, q: ArrayLike, out: FloatArray | None = None, threads: int = 1) -> FloatArray:
    """J (..., 6 nbodies, nv): the twists of all bodies, in their frames, one below the other, are J v. Sueda 2021,
    Alg. 2."""
    return _core.maximal_jacobian(model, q, out, threads)


def maximal_jacobian_dot(
    model: Model, q: ArrayLike, v: ArrayLike, out: FloatArray | None = None, threads: int = 1
) -> FloatArray:
    """The time derivative (..., 6 nbodies, nv) of `maximal_jacobian` when the model moves with v. Sueda 2021, Alg.
    2."""
    return _core.maximal_jacobian_dot(model, q, v, out, threads)


def jacobian_product(
    model: Model, q: ArrayLike, x: ArrayLike, out: FloatArray | None = None, threads: int = 1
) -> FloatArray:
    """J x (..., nbodies, 6) in O(n), J the maximal-reduced Jacobian and x (..., nv). Sueda 2021, Alg. 5."""
    return _core.body_velocities(model, q, x, "body", out, threads)


def jacobian_dot_product(
    model: Model,
    q: ArrayLike,
    v: ArrayLike,
    x: ArrayLike,
    out: FloatArray | None = None,
    threads: int = 1,
) -> FloatArray:
    """(dJ/dt) x (..., nbodies, 6) in O(n) when the model moves with v. Sueda 2021, Alg. 5."""
    return _core.jacobian_dot_product(model, q, v, x, out, threads)


def jacobian_transpose_product(
    model: Model, q: ArrayLike, y: ArrayLike, out: FloatArray | None = None, threads: int = 1
) -> FloatArray:
    """J^T y (..., nv) in O(n), y (..., nbodies, 6) wrenches in the bodies' frames. Sueda 2021, Alg. 6."""
    return _core.jacobian_transpose_product(model, q, y, out, threads)
