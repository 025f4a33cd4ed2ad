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


def _rows(poses: Sequence[Pose]) -> tuple[Array, Array]:
    """Poses as arrays (n, 3, 3) and (n, 3)."""
    if not poses:
        return np.zeros((0, 3, 3)), np.zeros((0, 3))
    return np.concatenate([R for R, _ in poses]).reshape(-1, 3, 3), np.concatenate([p for _, p in poses]).reshape(-1, 3)


def _compose_all(a: tuple[Array, Array], b: tuple[Array, Array]) -> tuple[Array, Array]:
    """The poses a b, row by row."""
    return a[0] @ b[0], (a[0] @ b[1][:, :, None])[:, :, 0] + a[1]


def _flat(poses: tuple[Array, Array]) -> list[list[float]]:
    out: list[list[float]] = np.concatenate([poses[0].reshape(-1, 9), poses[1]], axis=1).tolist()
    return out


def _inertias_at(poses: tuple[Array, Array], parameters: Array) -> Array:
    """The ten parameters (n, 10) of bodies whose frames have these poses."""
    R, p = poses
    m = parameters[:, :1]
    h = (R @ parameters[:, 1:4, None])[:, :, 0]
    J = R @ parameters[:, [[4, 5, 7], [5, 6, 8], [7, 8, 9]]] @ R.transpose(0, 2, 1)
    g = h + m * p
    J = J + ((p * h).sum(1) + (p * g).sum(1))[:, None, None] * np.eye(3)
    J = J - p[:, :, None] * h[:, None, :] - g[:, :, None] * p[:, None, :]
    return np.concatenate([m, g, J[:, [0, 0, 1, 0, 1, 2], [0, 1, 1, 2, 2, 2]]], axis=1)


def _depth_first(tree: Sequence[tuple[str, int, Chain, Pose, Array]]) -> list[int]:
    """The rows of a tree in depth-first order, the children of each by their names."""
    children: list[list[int]] = [[] for _ in range(len(tree) + 1)]
    for b, row in enumerate(tree):
        children[row[1]].append(b)  # the world's are last
    order: list[int] = []
    stack = sorted(children[-1], key=lambda b: tree[b][0], reverse=True)
    while stack:
        b = stack.pop()
        order.append(b)
        below = children[b]
        stack += below if len(below) < 2 else sorted(below, key=lambda c: tree[c][0], reverse=True)
    return order


def compile_tree(
    tree: Sequence[tuple[str, int, Chain, Pose, Array]],
    gravity: Array,
    armature: Array,
    named: Sequence[tuple[int, Pose]] = (),
) -> tuple[Any, ...]:
    """The arguments of `_core.Model`, from rows (name, parent index or -1, chain of the joint, placement, ten inertial
    parameters), gravity, the armature of all velocities, and frames (index of the body or -1, pose).

    Parents come first. Bodies on fixed joints are merged into their parents, and bodies are numbered depth first with
    the children of each in order of their names, so that results do not depend on the order of the rows. All numbers
    may be complex.
    """
    iq, iv, nq, nv = [], [], 0, 0
    for _, _, (factors, _), _, _ in tree:
        iq.append(nq)
        iv.append(nv)
        for factor in factors:
            nq += factor.nq
            nv += factor.nv
    order = _depth_first(tree)
    bodies: list[tuple[Any, ...]] = []
    places: list[Pose] = []  # of joints of the core in the frames of their parents there, but for those in `first`
    first: list[tuple[int, int, int]] = []  # rows whose places start from that of a body: (row, that body, own body)
    carrier: list[tuple[int, Pose]] = [(-1, IDENTITY)] * (len(tree) + 1)  # the world's is last
    general: list[tuple[int, int, Any]] = []
    for b in order:
        _, parent, (factors, after), placement, _ = tree[b]
        core, start = carrier[parent]
        if not factors:
            carrier[b] = core, compose(compose(start, placement), after)
            continue
        first.append((len(bodies), parent, b))
        at_q, at_v = iq[b], iv[b]
        for factor in factors:
            index = -1
            if factor.kind >= JointKind.exponential:  # this kind and those after it have S(q)
                index = len(general)
                general.append((factor.kind, factor.nv, factor.data))
            places.append(factor.before)
            bodies.append((core, factor.kind, at_q, at_v, factor.nv, b, index, factor.pitch))
            core = len(bodies) - 1
            at_q += factor.nq
            at_v += factor.nv
        carrier[b] = core, after
    placements = _rows([row[3] for row in tree])
    R, p = _rows(places)
    if first:
        rows, above, own = (list(column) for column in zip(*first, strict=True))
        start = _rows([carrier[b][1] for b in above])
        moved = _compose_all(_compose_all(start, (placements[0][own], placements[1][own])), (R[rows], p[rows]))
        R, p = R.astype(moved[0].dtype), p.astype(moved[1].dtype)
        R[rows], p[rows] = moved
    parameters = np.concatenate([np.zeros(0)] + [row[4] for row in tree]).reshape(-1, 10)
    moving = [b for b in order if carrier[b][0] >= 0]
    carried = _inertias_at(_rows([carrier[b][1] for b in moving]), parameters[moving])
    inertias = np.zeros((len(bodies), 10), carried.dtype)
    np.add.at(inertias, [carrier[b][0] for b in moving], carried)
    poses = _flat(_rows([carrier[b][1] for b in range(len(tree))]))
    columns = (range(len(tree)), poses, parameters.tolist(), _flat(placements))
    frames = [(carrier[b][0], tree[b][1], *numbers) for b, *numbers in zip(*columns, strict=True)]
    for body, placement in named:
        core, start = carrier[body]
        at = _flat(_rows([compose(start, placement), placement]))
        frames.append((core, body, at[0], [0.0] * 10, at[1]))
    made = [(*row, M, inertia) for row, M, inertia in zip(bodies, _flat((R, p)), inertias.tolist(), strict=True)]
    return nq, nv, gravity.tolist(), made, frames, order, general, armature.tolist()
