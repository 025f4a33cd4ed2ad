"""Compilation of a model for the core: chains of factors for joints, poses and inertias."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from torsor._core import JointKind

if TYPE_CHECKING:
    from torsor._typing import Array


Pose = tuple["Array", "Array"]  # (R, p), unchecked
IDENTITY: Pose = (np.eye(3), np.zeros(3))


def compose(a: Pose, b: Pose) -> Pose:
    """The pose a b."""
    return a[0] @ b[0], a[0] @ b[1] + a[1]


class Factor(NamedTuple):
    """One motion of a kind that the core implements: the pose `before` it, then the motion."""

    kind: int
    nq: int
    nv: int
    before: Pose = IDENTITY
    pitch: complex = 0.0
    data: Any = None


Chain = tuple[tuple[Factor, ...], Pose]  # the factors, and the pose after the last


def _flat(pose: Pose) -> list[float]:
    return [*pose[0].ravel().tolist(), *pose[1].tolist()]


def _inertia_at(pose: Pose, parameters: Array) -> Array:
    """The ten parameters of a body whose frame has the pose `pose`."""
    R, p = pose
    m, h = parameters[0], R @ parameters[1:4]
    xx, xy, yy, xz, yz, zz = parameters[4:]
    J = R @ np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]) @ R.T
    g = h + m * p
    J = J + (p @ h + p @ g) * np.eye(3) - np.outer(p, h) - np.outer(g, p)
    return np.array([m, *g, J[0, 0], J[0, 1], J[1, 1], J[0, 2], J[1, 2], J[2, 2]])


def compile_tree(
    tree: Sequence[tuple[str, int, Chain, Pose, Array]], gravity: Array, armature: Array
) -> tuple[Any, ...]:
    """The arguments of `_core.Model`, from rows (name, parent index or -1, chain of the joint, placement, ten inertial
    parameters), gravity, and the armature of all velocities.

    Parents come first. Bodies on fixed joints are merged into their parents, and bodies are numbered depth first with
    the children of each in order of their names, so that results do not depend on the order of the rows. All numbers
    may be complex.
    """
    iq, iv, nq, nv = [], [], 0, 0
    children: list[list[int]] = [[] for _ in range(len(tree) + 1)]
    for b, (_, parent, (factors, _), _, _) in enumerate(tree):
        children[parent].append(b)  # the world's are last
        iq.append(nq)
        iv.append(nv)
        nq += sum(f.nq for f in factors)
        nv += sum(f.nv for f in factors)
    bodies: list[list[Any]] = []
    inertias: list[Array] = []
    frames: list[Any] = [None] * len(tree)
    carrier: list[tuple[int, Pose]] = [(-1, IDENTITY)] * len(tree)
    general: list[tuple[int, int, Any]] = []
    order: list[int] = []
    stack = sorted(children[-1], key=lambda b: tree[b][0], reverse=True)
    while stack:
        b = stack.pop()
        order.append(b)
        stack.extend(sorted(children[b], key=lambda c: tree[c][0], reverse=True))
        _, parent, (factors, after), placement, parameters = tree[b]
        core, start = carrier[parent] if parent >= 0 else (-1, IDENTITY)
        start = compose(start, placement)
        at_q, at_v = iq[b], iv[b]
        for factor in factors:
            index = -1
            if factor.kind >= JointKind.exponential:  # this kind and those after it have S(q)
                index = len(general)
                general.append((factor.kind, factor.nv, factor.data))
            M = compose(start, factor.before)
            bodies.append([core, factor.kind, at_q, at_v, factor.nv, b, index, factor.pitch, _flat(M)])
            inertias.append(np.zeros(10))
            core, start = len(bodies) - 1, IDENTITY
            at_q += factor.nq
            at_v += factor.nv
        pose = compose(start, after)
        carrier[b] = (core, pose)
        if core >= 0:
            inertias[core] = inertias[core] + _inertia_at(pose, parameters)
        frames[b] = (core, parent, _flat(pose), parameters.tolist(), _flat(placement))
    rows = [(*body, inertia.tolist()) for body, inertia in zip(bodies, inertias, strict=True)]
    return nq, nv, gravity.tolist(), rows, frames, order, general, armature.tolist()
