"""Poses, velocities, accelerations and Jacobians of bodies and points.

Batches, `out` and `threads` are as in `torsor.dynamics`. Twists and accelerations have the angular part first. `frame`
is the frame in which they are expressed: "body", the frame of the body; "world", spatial quantities of the world frame,
whose linear part is that of the point at the origin of the world; "local_world_aligned", those of the origin of the
body in the axes of the world, where the linear acceleration is that of the origin as a point. Accelerations do not
include gravity.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from torsor import _core
from torsor._check import axes, direct
from torsor.model import Model, body_of_frame, require_model
from torsor.spatial import refuse_mask

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from torsor._typing import FloatArray, Frame, Threads


@direct("body_poses")
def body_poses(model: Model, q: ArrayLike, *, out: FloatArray | None = None, threads: Threads = 1) -> FloatArray:
    """Poses of the frames of the bodies in the world.

    Parameters
    ----------
    model : Model
    q : (..., nq) array_like
        Configurations.
    out : (..., nbodies, 4, 4) array, optional
        Array for the result.
    threads : int or "auto"
        Most threads for a batch, of which as many take part as pay; "auto" for at most one per core.

    Returns
    -------
    T : (..., nbodies, 4, 4) array
        Homogeneous matrices, in the order of `model.bodies`.

    Examples
    --------
    >>> T = ts.body_poses(model, q)
    >>> np.allclose(T[model.body_index("hand")], ts.body_pose(model, q, "hand"))
    True
    """
    return _core.body_poses(model, q, out, threads)


def body_pose(
    model: Model, q: ArrayLike, body: str, *, out: FloatArray | None = None, threads: Threads = 1
) -> FloatArray:
    """Pose of a body or frame in the world.

    Parameters
    ----------
    model : Model
    q : (..., nq) array_like
        Configurations.
    body : str
        Name of a body, of its joint, or of a frame.
    out : (..., 4, 4) array, optional
        Array for the result.
    threads : int or "auto"
        Most threads for a batch, of which as many take part as pay; "auto" for at most one per core.

    Returns
    -------
    T : (..., 4, 4) array
        Homogeneous matrices.

    Examples
    --------
    >>> hand = ts.SE3.from_matrix(ts.body_pose(model, q, "hand"))
    >>> hand.p.shape
    (3,)
    """
    (T,) = place_poses(model, body_poses(model, q, threads=threads), [require_model(model)._find(body, "frame")])
    return given(T, out)


def given(result: FloatArray, out: FloatArray | None) -> FloatArray:
    """A result in `out`, if that is given."""
    if out is None:
        return np.ascontiguousarray(result)
    if not isinstance(out, np.ndarray):
        raise TypeError(f"out must be a NumPy array, got {type(out).__name__}")
    if out.shape != result.shape or out.dtype != result.dtype:
        raise ValueError(f"out has shape {out.shape} and dtype {out.dtype}, expected {result.shape} and {result.dtype}")
    if not out.flags.writeable:
        raise ValueError("out is read-only")
    np.copyto(out, result)
    return out


class Places:
    """Bodies and frames of which results are requested.

    Twists of a frame are those of its body in "world"; in other axes they are computed from those of the body in its
    own, which are constant combinations of the frame's.
    """

    def __init__(self, model: Model, q: ArrayLike, bodies: str | Sequence[str], frame: str) -> None:
        axes(frame)
        self.model, self.frame = require_model(model), frame
        self.single = isinstance(bodies, str)
        names = [bodies] if isinstance(bodies, str) else bodies
        if not isinstance(names, Sequence) or not names:
            raise TypeError(f"bodies must be a name or a sequence of at least one, got {bodies!r}")
        self.rows = [model._find(name, "frame") for name in names]
        self.core_axes = axes("world" if frame == "world" else "body")
        poses = place_poses(model, body_poses(model, q), self.rows) if frame == "local_world_aligned" else []
        self.R = [T[..., :3, :3] for T in poses]

    def only(self, results: list[FloatArray], axis: int) -> FloatArray:
        """The result of the one body, or those of several along an axis."""
        return results[0] if self.single else np.stack(results, axis)

    def of_body(self, x: FloatArray, k: int, axis: int) -> FloatArray:
        """The part of an array of all bodies of that of place k, with its axis of components last or, for matrices,
        last but one; in the place's own frame if it is in the body's."""
        i = body_of_frame(self.model, self.rows[k])
        shape = (*x.shape[:axis], *x.shape[axis:][1:])
        part = np.take(x, i, axis=axis) if i >= 0 else np.zeros(shape, x.dtype)
        if self.frame == "world" or self.rows[k] < self.model.nbodies:
            return part
        X = self.model.frames[self.rows[k] - self.model.nbodies].placement.inverse().adjoint
        return np.asarray(part @ X.T if axis == -2 else X @ part)

    def twist(self, V: FloatArray, k: int) -> FloatArray:
        """A twist in the axes that are requested, from its own."""
        return self.turned(V[..., None], k)[..., 0] if self.R else V

    def turned(self, x: FloatArray, k: int) -> FloatArray:
        """Columns (..., 6, n) in the axes of the world."""
        R = self.R[k]
        return np.concatenate([R @ x[..., :3, :], R @ x[..., 3:, :]], axis=-2)

    def acceleration(self, V: FloatArray, A: FloatArray, k: int) -> FloatArray:
        """An acceleration in the axes that are requested: in those of the world that of the origin as a point."""
        if not self.R:
            return A
        w, u = V[..., :3], V[..., 3:]
        return self.twist(np.concatenate([A[..., :3], A[..., 3:] + np.cross(w, u)], axis=-1), k)


def place_poses(model: Model, poses: FloatArray, places: Sequence[int]) -> list[FloatArray]:
    """Poses (..., 4, 4) of bodies and frames by their indices, -1 for the world, from those of all bodies."""
    out = []
    for i in places:
        body = body_of_frame(model, i)
        T = np.broadcast_to(np.eye(4), (*poses.shape[:-3], 4, 4)) if body < 0 else poses[..., body, :, :]
        out.append(T if i < model.nbodies else T @ model.frames[i - model.nbodies].placement.matrix)
    return out


def body_indices(model: Model, body: str | Sequence[str], points: ArrayLike) -> tuple[bool, list[int], ArrayLike]:
    """Whether one body or frame was named, the index of that of each point, and the points."""
    require_model(model)
    refuse_mask("points", points)
    if isinstance(body, str):
        shape = np.shape(points)
        if not shape or shape[-1] != 3:
            raise ValueError(f"points has shape {shape}, expected (..., n, 3) or (3,)")
        count = shape[-2] if len(shape) > 1 else 1
        return True, [model._find(body, "frame")] * count, points
    return False, [model._find(name, "frame") for name in body], points


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
    *,
    out: FloatArray | None = None,
    threads: Threads = 1,
) -> FloatArray:
    """Positions in the world of points fixed to bodies or frames.

    Parameters
    ----------
    model : Model
    q : (..., nq) array_like
        Configurations.
    body : str or sequence of n str
        The body or frame of all points, or of each.
    points : (3,) or (..., n, 3) array_like
        Points in the frames of their bodies, or in these frames.
    out : (..., 3) or (..., n, 3) array, optional
        Array for the result.
    threads : int or "auto"
        Most threads for a batch, of which as many take part as pay; "auto" for at most one per core.

    Returns
    -------
    positions : (..., 3) or (..., n, 3) array
        (..., 3) for one point given as (3,).

    Examples
    --------
    >>> tip = ts.point_positions(model, q, "hand", (0, 0, 0.1))
    >>> tip.shape
    (3,)
    """
    named, frames, points = body_indices(model, body, points)
    if not named or np.ndim(points) > 1:
        return _core.point_positions(model, q, points, {"frames": frames}, out, threads)
    result = _core.point_positions(model, q, np.asarray(points)[None], {"frames": frames}, of_list(out, -2), threads)
    return result[..., 0, :] if out is None else out


@direct("body_velocities")
def body_velocities(
    model: Model,
    q: ArrayLike,
    v: ArrayLike,
    *,
    bodies: str | Sequence[str] | None = None,
    frame: Frame = "body",
    out: FloatArray | None = None,
    threads: Threads = 1,
) -> FloatArray:
    """Twists of the bodies, or of frames. Kim 2012, (36).

    Parameters
    ----------
    model : Model
    q : (..., nq) array_like
        Configurations.
    v : (..., nv) array_like
        Velocities.
    bodies : str or sequence of n str, optional
        Names of bodies or frames; results are those of the one, without their axis of bodies, or of the n, in place of
        all bodies.
    frame : {"body", "world", "local_world_aligned"}
        Frame in which results are expressed.
    out : (..., nbodies, 6) array, optional
        Array for the result.
    threads : int or "auto"
        Most threads for a batch, of which as many take part as pay; "auto" for at most one per core.

    Returns
    -------
    V : (..., nbodies, 6) array

    Examples
    --------
    >>> V = ts.body_velocities(model, q, v, frame="world")
    >>> V.shape  # angular part first
    (9, 6)
    """
    if bodies is None:
        return _core.body_velocities(model, q, v, {"axes": axes(frame)}, out, threads)
    at = Places(model, q, bodies, frame)
    V = _core.body_velocities(model, q, v, {"axes": at.core_axes}, None, threads)
    return given(at.only([at.twist(at.of_body(V, k, -2), k) for k in range(len(at.rows))], -2), out)


@direct("body_accelerations")
def body_accelerations(
    model: Model,
    q: ArrayLike,
    v: ArrayLike,
    a: ArrayLike,
    *,
    bodies: str | Sequence[str] | None = None,
    frame: Frame = "body",
    out: FloatArray | None = None,
    threads: Threads = 1,
) -> FloatArray:
    """Accelerations of the bodies, or of frames. Kim 2012, (40).

    Parameters
    ----------
    model : Model
    q : (..., nq) array_like
        Configurations.
    v, a : (..., nv) array_like
        Velocities and accelerations.
    bodies : str or sequence of n str, optional
        Names of bodies or frames; results are those of the one, without their axis of bodies, or of the n, in place of
        all bodies.
    frame : {"body", "world", "local_world_aligned"}
        Frame in which results are expressed.
    out : (..., nbodies, 6) array, optional
        Array for the result.
    threads : int or "auto"
        Most threads for a batch, of which as many take part as pay; "auto" for at most one per core.

    Returns
    -------
    A : (..., nbodies, 6) array
        In "body", the time derivatives of the components of the twists.

    Examples
    --------
    >>> ts.body_accelerations(model, q, v, a, frame="local_world_aligned").shape
    (9, 6)
    """
    if bodies is None:
        return _core.body_accelerations(model, q, v, a, {"axes": axes(frame)}, out, threads)
    at = Places(model, q, bodies, frame)
    V = _core.body_velocities(model, q, v, {"axes": at.core_axes}, None, threads)
    A = _core.body_accelerations(model, q, v, a, {"axes": at.core_axes}, None, threads)
    rows = [at.acceleration(at.of_body(V, k, -2), at.of_body(A, k, -2), k) for k in range(len(at.rows))]
    return given(at.only(rows, -2), out)


def jacobian(
    model: Model,
    q: ArrayLike,
    body: str,
    *,
    frame: Frame = "body",
    out: FloatArray | None = None,
    threads: Threads = 1,
) -> FloatArray:
    """The Jacobian J of a body or frame: its twist is J v.

    Parameters
    ----------
    model : Model
    q : (..., nq) array_like
        Configurations.
    body : str
        Name of the body, of its joint, or of a frame.
    frame : {"body", "world", "local_world_aligned"}
        Frame in which results are expressed.
    out : (..., 6, nv) array, optional
        Array for the result.
    threads : int or "auto"
        Most threads for a batch, of which as many take part as pay; "auto" for at most one per core.

    Returns
    -------
    J : (..., 6, nv) array

    Examples
    --------
    >>> J = ts.jacobian(model, q, "hand")
    >>> np.allclose(J @ v, ts.body_velocities(model, q, v)[model.body_index("hand")])
    True
    """
    return _core.body_jacobian(
        model, q, {"axes": axes(frame), "frames": [require_model(model)._find(body, "frame")]}, out, threads
    )


def point_jacobian(
    model: Model,
    q: ArrayLike,
    body: str | Sequence[str],
    points: ArrayLike = (0.0, 0.0, 0.0),
    *,
    out: FloatArray | None = None,
    threads: Threads = 1,
) -> FloatArray:
    """Jacobians J of `point_positions`: the velocity of a point in the world is J v.

    Parameters
    ----------
    model : Model
    q : (..., nq) array_like
        Configurations.
    body : str or sequence of n str
        The body or frame of all points, or of each.
    points : (3,) or (..., n, 3) array_like
        Points in the frames of their bodies, or in these frames.
    out : (..., 3, nv) or (..., n, 3, nv) array, optional
        Array for the result.
    threads : int or "auto"
        Most threads for a batch, of which as many take part as pay; "auto" for at most one per core.

    Returns
    -------
    J : (..., 3, nv) or (..., n, 3, nv) array
        (..., 3, nv) for one point given as (3,).

    Examples
    --------
    >>> J = ts.point_jacobian(model, q, "hand", (0, 0, 0.1))
    >>> torques = J.T @ (0, 0, 5.0)  # of a force of 5 N upward at the point
    """
    named, frames, points = body_indices(model, body, points)
    if not named or np.ndim(points) > 1:
        return _core.point_jacobians(model, q, points, {"frames": frames}, out, threads)
    result = _core.point_jacobians(model, q, np.asarray(points)[None], {"frames": frames}, of_list(out, -3), threads)
    return result[..., 0, :, :] if out is None else out


@direct("maximal_jacobian")
def maximal_jacobian(model: Model, q: ArrayLike, *, out: FloatArray | None = None, threads: Threads = 1) -> FloatArray:
    """The Jacobian J of all bodies: their twists, in their frames and stacked, are J v. Sueda 2021, Alg. 2.

    Parameters
    ----------
    model : Model
    q : (..., nq) array_like
        Configurations.
    out : (..., 6 nbodies, nv) array, optional
        Array for the result.
    threads : int or "auto"
        Most threads for a batch, of which as many take part as pay; "auto" for at most one per core.

    Returns
    -------
    J : (..., 6 nbodies, nv) array

    Examples
    --------
    >>> J = ts.maximal_jacobian(model, q)
    >>> np.allclose(J @ v, ts.body_velocities(model, q, v).ravel())
    True
    """
    return _core.maximal_jacobian(model, q, out, threads)


@direct("maximal_jacobian_dot")
def maximal_jacobian_dot(
    model: Model, q: ArrayLike, v: ArrayLike, *, out: FloatArray | None = None, threads: Threads = 1
) -> FloatArray:
    """The time derivative of `maximal_jacobian` along a motion with velocities v. Sueda 2021, Alg. 2.

    Parameters
    ----------
    model : Model
    q : (..., nq) array_like
        Configurations.
    v : (..., nv) array_like
        Velocities.
    out : (..., 6 nbodies, nv) array, optional
        Array for the result.
    threads : int or "auto"
        Most threads for a batch, of which as many take part as pay; "auto" for at most one per core.

    Returns
    -------
    Jdot : (..., 6 nbodies, nv) array

    Examples
    --------
    >>> Jdot = ts.maximal_jacobian_dot(model, q, v)
    >>> np.allclose(Jdot @ w, ts.jacobian_dot_product(model, q, v, w).ravel())
    True
    """
    return _core.maximal_jacobian_dot(model, q, v, out, threads)


@direct("body_velocities")
def jacobian_product(
    model: Model, q: ArrayLike, x: ArrayLike, *, out: FloatArray | None = None, threads: Threads = 1
) -> FloatArray:
    """J x in O(n), with J of `maximal_jacobian`. Sueda 2021, Alg. 5.

    Parameters
    ----------
    model : Model
    q : (..., nq) array_like
        Configurations.
    x : (..., nv) array_like
        Vectors to multiply.
    out : (..., nbodies, 6) array, optional
        Array for the result.
    threads : int or "auto"
        Most threads for a batch, of which as many take part as pay; "auto" for at most one per core.

    Returns
    -------
    Jx : (..., nbodies, 6) array

    Examples
    --------
    >>> np.allclose(ts.jacobian_product(model, q, v), ts.body_velocities(model, q, v))
    True
    """
    return _core.body_velocities(model, q, x, "body", out, threads)


@direct("jacobian_dot_product")
def jacobian_dot_product(
    model: Model,
    q: ArrayLike,
    v: ArrayLike,
    x: ArrayLike,
    *,
    out: FloatArray | None = None,
    threads: Threads = 1,
) -> FloatArray:
    """(dJ/dt) x in O(n), with dJ/dt of `maximal_jacobian_dot`. Sueda 2021, Alg. 5.

    Parameters
    ----------
    model : Model
    q : (..., nq) array_like
        Configurations.
    v : (..., nv) array_like
        Velocities.
    x : (..., nv) array_like
        Vectors to multiply.
    out : (..., nbodies, 6) array, optional
        Array for the result.
    threads : int or "auto"
        Most threads for a batch, of which as many take part as pay; "auto" for at most one per core.

    Returns
    -------
    Jdot_x : (..., nbodies, 6) array

    Examples
    --------
    >>> ts.jacobian_dot_product(model, q, v, w).shape
    (9, 6)
    """
    return _core.jacobian_dot_product(model, q, v, x, out, threads)


@direct("jacobian_transpose_product")
def jacobian_transpose_product(
    model: Model, q: ArrayLike, y: ArrayLike, *, out: FloatArray | None = None, threads: Threads = 1
) -> FloatArray:
    """J^T y in O(n), with J of `maximal_jacobian`. Sueda 2021, Alg. 6.

    Parameters
    ----------
    model : Model
    q : (..., nq) array_like
        Configurations.
    y : (..., nbodies, 6) array_like
        Wrenches on the bodies, in their frames.
    out : (..., nv) array, optional
        Array for the result.
    threads : int or "auto"
        Most threads for a batch, of which as many take part as pay; "auto" for at most one per core.

    Returns
    -------
    tau : (..., nv) array

    Examples
    --------
    >>> F = rng.standard_normal((model.nbodies, 6))
    >>> np.allclose(ts.jacobian_transpose_product(model, q, F) @ v, (F * ts.body_velocities(model, q, v)).sum())
    True
    """
    return _core.jacobian_transpose_product(model, q, y, out, threads)
