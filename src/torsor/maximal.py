"""Maximal coordinates: every body free, every joint a constraint. Sueda 2021, 1.2-1.12.

A transformation of the model: dynamics, steps, derivatives and adjoints are those of every model, and joints those
constraints that also close loops. At the level of accelerations both describe the same mechanics to rounding, which
makes one a test of the other; steps differ by their discretisation.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from torsor._check import as_array
from torsor._errors import ConstraintError, CouplingError, ModelError
from torsor.constraints.constraint import Constraint
from torsor.constraints.pairs import Loop, closes_loops
from torsor.forces.collision_filter import filtered_bodies
from torsor.inertia import Inertia
from torsor.joints import Fixed, Free, Joint
from torsor.kinematics import body_poses, body_velocities
from torsor.model import WORLD, Body, Model, require_model
from torsor.spatial import SE3, Ad, log6, matrix_to_quaternion

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from torsor._typing import FloatArray

_STEPS = 50  # of Gauss-Newton's method for coordinates of a joint
_STARTS = 30  # from which it is tried if the given one fails
_CLOSED = 1e-8  # what is left of a joint that is closed, up to rounding


def _is_frame(body: Body) -> bool:
    """Whether a body is only a frame of its parent."""
    return body.joint.nv == 0 and not body.inertia.parameters.any()


def _keeps(body: Body) -> bool:
    """Whether the coordinates of its joint are kept."""
    return not isinstance(body.joint, Free) and (any(body.armature) or not closes_loops(body.joint))


def _on_free(body: Body, inertia: Inertia) -> Body:
    none, free = (np.inf,) * 6, (np.inf,) * 7
    limits = (tuple(-x for x in free), free)
    shapes = body.visuals, body.collisions
    weight = body.gravity_compensation
    return Body(
        body.name, WORLD, Free(), SE3(), inertia, body.name, limits, none, none, *shapes, gravity_compensation=weight
    )


def maximal(model: Model) -> tuple[Model, tuple[Constraint, ...]]:
    """The model with all bodies free, and a constraint for each joint that constrains, then those of the model."""
    if model.couplings:
        raise CouplingError(
            "maximal does not take models with couplings, which are functions of joint coordinates; use "
            "model.tree.maximal(), which leaves them out: to_maximal and from_maximal convert states of both"
        )
    bodies: list[Body] = []
    carriers: list[Body] = []
    constraints: list[Constraint] = []
    names = {name for b in model.bodies for name in (b.name, b.joint_name)} | {f.name for f in model.frames}
    for b in model.bodies:
        if _is_frame(b):
            bodies.append(replace(b, joint_name=b.name))
            continue
        _require_regular(b)
        if not _keeps(b):
            bodies.append(_on_free(b, b.inertia))
            if not isinstance(b.joint, Free):
                constraints.append(Loop(b.parent, b.name, b.joint, b.placement, name=b.joint_name))
            continue
        carrier = f"{b.joint_name}/joint"
        if carrier in names:
            raise ModelError(
                f"maximal() adds a body named {carrier!r} for joint {b.joint_name!r}, but there is a body, joint or "
                "frame of that name; rename it"
            )
        half = Inertia(b.inertia.mass / 2, b.inertia.com, b.inertia.I_com / 2, allow_unphysical=True)
        bodies.append(_on_free(b, half))
        carriers.append(replace(b, name=carrier, joint_name=carrier, inertia=half, visuals=(), collisions=()))
        constraints.append(Loop(carrier, b.name, Fixed(), name=b.joint_name))
    for constraint in model.constraints:
        if constraint._joints(model):
            raise ModelError(
                f"the constraint {constraint.shown_name!r} of the model is in coordinates of joints, which maximal "
                "coordinates do not have; use model.with_constraints(...) without it"
            )
        constraints.append(constraint)
    rules = replace(model.collision_rules, exclude=(*model.collision_rules.exclude, *filtered_bodies(model)))
    free = Model(
        f"{model.name} in maximal coordinates", model.gravity, (*bodies, *carriers),
        world_collisions=model.world_collisions, collision_rules=rules, frames=model.frames,
    )  # fmt: skip
    return free, tuple(constraints)


def _require_regular(body: Body) -> None:
    moments = np.linalg.eigvalsh(body.inertia.I_com)
    if body.inertia.mass > 0 and moments[0] > 1e-14 * max(moments[-1], 1e-300):
        return
    what = "no mass" if body.inertia.mass == 0 else f"the principal moments of inertia {moments.tolist()}"
    raise ModelError(
        f"body {body.name!r} has {what}, so that its motion as a free body is not determined; give it inertia, or lock "
        "its joint"
    )


def to_maximal(model: Model, q: ArrayLike, v: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """States in maximal coordinates, of the model `model.maximal()`, from those in joint coordinates. Sueda 2021, 1.2.

    - Coordinates are position and quaternion of each body in the world, in the order of the bodies; velocities are
      their twists in their own frames.
    - Joints whose rows depend on their coordinates (`Screw`, splines, `Composite`, `CustomJoint`) keep these. For each,
      a further body, named as the joint with "/joint" after it, is on that joint on the parent and carries half of the
      body's inertia; a loop welds it to the body (`Model.with_loop`). Coordinates of these joints, with their limits,
      follow those of all bodies in Q, and their velocities in V, in the order of the bodies.
    - A body without inertia on a `Fixed` joint is a frame of its parent: it remains on it, without coordinates.

    For a model with couplings these are states of `model.tree.maximal()`.

    Forces on bodies are the same in both. Forces in coordinates of joints, such as `JointSpring` and controls, are not:
    in maximal coordinates a joint has none, but for those that keep them.

    Parameters
    ----------
    model : Model
        The model in joint coordinates.
    q : (..., nq) array_like
        Configurations.
    v : (..., nv) array_like
        Velocities.

    Returns
    -------
    Q : (..., 7 nbodies + ...) array
        Position and quaternion of each body, then the coordinates of joints that are kept.
    V : (..., 6 nbodies + ...) array
        Twist of each body in its own frame, then the velocities of joints that are kept.

    Examples
    --------
    >>> free, joints = model.maximal()
    >>> Q, V = ts.to_maximal(model, q, v)
    """
    if require_model(model).couplings:
        return to_maximal(model.tree, model.expand(q), model.expand_velocity(q, v))
    free = _free(model)
    T, W = body_poses(model, q), body_velocities(model, q, v)
    q, v = model.normalize(q), as_array("v", v)
    shape = np.broadcast_shapes(T.shape[:-3], W.shape[:-2])
    Q, V = np.empty((*shape, free.nq)), np.empty((*shape, free.nv))
    for i, (b, own) in enumerate(zip(model.bodies, model.joints, strict=True)):
        if _is_frame(b):
            continue
        at = free.joints[i]
        Q[..., at.q_slice] = np.concatenate([T[..., i, :3, 3], matrix_to_quaternion(T[..., i, :3, :3])], axis=-1)
        V[..., at.v_slice] = W[..., i, :]
        if _keeps(b):
            kept = free.joint(f"{b.joint_name}/joint")
            Q[..., kept.q_slice], V[..., kept.v_slice] = q[..., own.q_slice], v[..., own.v_slice]
    return Q, V


def from_maximal(
    model: Model,
    Q: ArrayLike,
    V: ArrayLike,
    *,
    near: ArrayLike | None = None,
    tolerance: float = 1e-6,
) -> tuple[FloatArray, FloatArray]:
    """States in joint coordinates from those in maximal coordinates.

    Coordinates of each joint are those at which it is nearest to the relative pose of its bodies, and velocities those
    nearest to their relative twist, by least squares. For a model with couplings the states are those of
    `model.tree.maximal()`, and must fulfil the couplings.

    Parameters
    ----------
    model : Model
        The model in joint coordinates.
    Q : (..., 7 nbodies + ...) array_like
        Configurations of the model `model.maximal()`.
    V : (..., 6 nbodies + ...) array_like
        Its velocities.
    near : (..., nq) array_like, optional
        Configurations in joint coordinates near the result, which decide where several are possible, as the turns of a
        revolute joint; neutral ones by default.
    tolerance : float
        How far a joint may be open: the largest entry of the twist, of lengths and radians, that would close it; and
        how far joints may be from where couplings put them.

    Returns
    -------
    q : (..., nq) array
    v : (..., nv) array

    Raises
    ------
    ConstraintError
        If a joint is open by more than the tolerance, or as far from its coupling.

    Examples
    --------
    >>> q1, v1 = ts.from_maximal(model, *ts.to_maximal(model, q, v))
    >>> np.allclose(q1, q), np.allclose(v1, v)
    (True, True)
    """
    if require_model(model).couplings:
        full = None if near is None else model.expand(near)
        state = from_maximal(model.tree, Q, V, near=full, tolerance=tolerance)
        reduced: tuple[FloatArray, FloatArray] = model.reduce(*state, near=near, tolerance=tolerance)
        return reduced
    free = _free(model)
    given = [as_array("Q", Q), as_array("V", V), model.neutral if near is None else as_array("near", near)]
    sizes = {"Q": free.nq, "V": free.nv, "near": model.nq}
    for array, (name, size) in zip(given, sizes.items(), strict=True):
        if array.ndim == 0 or array.shape[-1] != size:
            raise ValueError(f"{name} has shape {array.shape}, expected (..., {size})")
        if not np.isfinite(array).all():
            raise ValueError(f"{name} is not finite")
    if not tolerance >= 0:
        raise ValueError(f"tolerance is {tolerance!r}, expected a number of at least 0")
    T, W = body_poses(free, given[0]), body_velocities(free, given[0], given[1])
    shape = np.broadcast_shapes(*(x.shape[:-1] for x in given))
    q, v = np.empty((*shape, model.nq)), np.empty((*shape, model.nv))
    states = np.broadcast_to(given[2], (*shape, model.nq))
    at = {b.name: i for i, b in enumerate(model.bodies)}
    for b, own in zip(model.bodies, model.joints, strict=True):
        i, p = at[b.name], at.get(b.parent, -1)
        relative = W[..., i, :]
        if p >= 0:
            there = Ad(_inverse(T[..., i, :, :]) @ T[..., p, :, :])
            relative = relative - np.einsum("...ij,...j->...i", there, W[..., p, :])
        if _keeps(b):
            kept = free.joint(f"{b.joint_name}/joint")
            q[..., own.q_slice], v[..., own.v_slice] = given[0][..., kept.q_slice], given[1][..., kept.v_slice]
            moved = T[..., free._index["body"][f"{b.joint_name}/joint"], :, :]
            error = np.broadcast_to(log6(_inverse(moved) @ T[..., i, :, :]), (*shape, 6))
        else:
            frame = b.placement.matrix if p < 0 else T[..., p, :, :] @ b.placement.matrix
            seen = np.broadcast_to(_inverse(frame) @ T[..., i, :, :], (*shape, 4, 4))
            q[..., own.q_slice], error = _nearest(b.joint, seen, states[..., own.q_slice])
            if b.joint.nv:
                S = np.linalg.pinv(b.joint.S(q[..., own.q_slice]))
                v[..., own.v_slice] = np.einsum("...ij,...j->...i", S, relative)
        _require_closed(own.name, error, tolerance)
    return q, v


def _free(model: Model) -> Model:
    """The model in maximal coordinates, cached."""
    cache: dict[str, Any] = model._cache
    if "maximal" not in cache:
        cache["maximal"] = maximal(model.with_constraints(()))[0]
    out: Model = cache["maximal"]
    return out


def _inverse(T: FloatArray) -> FloatArray:
    out = np.zeros_like(T)
    R = np.swapaxes(T[..., :3, :3], -1, -2)
    out[..., :3, :3], out[..., 3, 3] = R, 1.0
    out[..., :3, 3] = -np.einsum("...ij,...j->...i", R, T[..., :3, 3])
    return out


def _require_closed(name: str, error: FloatArray, tolerance: float) -> None:
    size = np.abs(error).max(axis=-1)
    if not (size > tolerance).any():
        return
    worst = np.unravel_index(int(np.argmax(size)), size.shape)
    turn, gap = (float(np.linalg.norm(x)) for x in (error[worst][:3], error[worst][3:]))
    where = f" in state {', '.join(map(str, worst))}" if worst else ""
    raise ConstraintError(
        f"joint {name!r} is open by {gap:.3g} in position and {turn:.3g} rad{where}, expected {tolerance:.3g} at most; "
        "ts.project closes the joints, and a larger tolerance= accepts the nearest coordinates"
    )


def _nearest(joint: Joint, seen: FloatArray, near: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Coordinates (..., nq) of a joint nearest to poses (..., 4, 4), and the twists (..., 6) that are left."""
    shape = near.shape[:-1]
    poses, q = seen.reshape(prod(shape), 4, 4), np.array(near).reshape(prod(shape), joint.nq)
    q, error = _descend(joint, poses, q)
    rng = np.random.default_rng(0)
    for start in range(_STARTS):  # for states where this ended beside the solution
        left = np.flatnonzero(np.abs(error).max(axis=-1, initial=0.0) > _CLOSED)
        if not left.size or joint.nv == 0:
            break
        begin = joint.neutral if start == 0 else joint.random(rng)
        other, rest = _descend(joint, poses[left], np.tile(begin, (left.size, 1)))
        better = np.linalg.norm(rest, axis=-1) < 0.5 * np.linalg.norm(error[left], axis=-1)
        q[left[better]], error[left[better]] = other[better], rest[better]
    return q.reshape(*shape, joint.nq), error.reshape(*shape, 6)


def _descend(joint: Joint, poses: FloatArray, q: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Gauss-Newton's method for S^T log6(T(q)^-1 T) = 0, with steps of a radian or a unit of length at most."""
    error = np.asarray(log6(_inverse(joint.T(q)) @ poses))
    for _ in range(_STEPS if joint.nv else 0):
        d = np.einsum("...ij,...j->...i", np.linalg.pinv(joint.S(q)), error)
        size = np.linalg.norm(d, axis=-1, keepdims=True)
        q = joint.plus(q, d / np.maximum(size, 1.0))
        error = np.asarray(log6(_inverse(joint.T(q)) @ poses))
        if (size < 1e-14).all():
            break
    return q, error
