"""Small solids of quadrilaterals (n, 4, 3), counter-clockwise seen from outside; triangles repeat a corner."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from torsor.joints import z_to

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from torsor._typing import FloatArray


def moved(quads: FloatArray, pose: FloatArray) -> FloatArray:
    """The quadrilaterals at a pose (4, 4)."""
    return np.asarray(quads @ pose[:3, :3].T + pose[:3, 3])


def joined(parts: list[FloatArray]) -> FloatArray:
    """All quadrilaterals of several solids."""
    return np.concatenate([np.zeros((0, 4, 3)), *parts])


def _along(axis: ArrayLike) -> FloatArray:
    """A rotation whose third column is the direction `axis`."""
    z = np.asarray(axis, dtype=np.float64)
    return np.asarray(z_to(z / np.linalg.norm(z)))


def cone(a: ArrayLike, b: ArrayLike, radius_a: float, radius_b: float, sides: int = 10) -> FloatArray:
    """A truncated cone from a to b, with its ends; empty if they coincide."""
    a, b = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if np.linalg.norm(b - a) < 1e-12:
        return np.zeros((0, 4, 3))
    R = _along(b - a)
    angle = 2 * np.pi * (np.arange(sides + 1) % sides) / sides
    ring = np.cos(angle)[:, None] * R[:, 0] + np.sin(angle)[:, None] * R[:, 1]
    low, high = a + radius_a * ring, b + radius_b * ring
    walls = np.stack([low[:-1], low[1:], high[1:], high[:-1]], axis=1)
    ends = []
    for center, rim, flip in ((a, low, True), (b, high, False)):
        middle = np.broadcast_to(center, (sides, 3))
        first, second = (rim[1:], rim[:-1]) if flip else (rim[:-1], rim[1:])
        ends.append(np.stack([middle, first, second, second], axis=1))
    return np.concatenate([walls, *ends])


def cylinder(a: ArrayLike, b: ArrayLike, radius: float, sides: int = 10) -> FloatArray:
    """A cylinder from a to b."""
    return cone(a, b, radius, radius, sides)


def pin(axis: ArrayLike, radius: float, half: float, sides: int = 16) -> FloatArray:
    """A cylinder about an axis through the origin."""
    end = half * _along(axis)[:, 2]
    return cylinder(-end, end, radius, sides)


def box(half: ArrayLike, turn: FloatArray | None = None, center: ArrayLike = (0.0, 0.0, 0.0)) -> FloatArray:
    """A box of half edges `half`, whose axes are the columns of `turn`."""
    corners = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)]) * np.asarray(half)
    faces = [(0, 1, 3, 2), (4, 6, 7, 5), (0, 4, 5, 1), (2, 3, 7, 6), (0, 2, 6, 4), (1, 5, 7, 3)]
    turned = corners if turn is None else corners @ turn.T
    return np.asarray((turned + np.asarray(center, dtype=np.float64))[np.array(faces)])


def ball(radius: float, center: ArrayLike = (0.0, 0.0, 0.0), around: int = 12, down: int = 7) -> FloatArray:
    """A sphere."""
    polar = np.linspace(0, np.pi, down + 1)
    angle = 2 * np.pi * (np.arange(around + 1) % around) / around
    across, height = np.sin(polar)[:, None], np.broadcast_to(np.cos(polar)[:, None], (down + 1, around + 1))
    points = radius * np.stack([across * np.cos(angle), across * np.sin(angle), height], axis=-1)
    quads = np.stack([points[:-1, :-1], points[1:, :-1], points[1:, 1:], points[:-1, 1:]], axis=2)
    return np.asarray(quads.reshape(-1, 4, 3) + np.asarray(center, dtype=np.float64))


def octahedron(radius: float) -> FloatArray:
    """A regular octahedron about the origin."""
    corners = radius * np.concatenate([np.eye(3), -np.eye(3)])
    faces = [
        (x, y, z, z) if sx * sy * sz > 0 else (y, x, z, z)
        for x, sx in ((0, 1), (3, -1))
        for y, sy in ((1, 1), (4, -1))
        for z, sz in ((2, 1), (5, -1))
    ]
    return np.asarray(corners[np.array(faces)])


def wire(points: FloatArray, radius: float, sides: int = 5) -> FloatArray:
    """A tube along a polyline (n, 3)."""
    return joined([cylinder(a, b, radius, sides) for a, b in pairwise(points)])


def plate(points: FloatArray) -> FloatArray:
    """A flat star-shaped face through points (n, 3), in the order of their angles about their middle; empty if they lie
    on a line."""
    middle = points.mean(axis=0)
    _, size, axes = np.linalg.svd(points - middle, full_matrices=False)
    if len(points) < 3 or size[1] < 1e-6 * max(size[0], 1e-300):
        return np.zeros((0, 4, 3))
    angle = np.arctan2((points - middle) @ axes[1], (points - middle) @ axes[0])
    rim = points[np.argsort(angle)]
    after = np.roll(rim, -1, axis=0)
    return np.stack([np.broadcast_to(middle, rim.shape), rim, after, after], axis=1)


def normals(quads: FloatArray) -> FloatArray:
    """Unit normals (n, 3), from the diagonals."""
    across = np.cross(quads[:, 2] - quads[:, 0], quads[:, 3] - quads[:, 1])
    length = np.linalg.norm(across, axis=-1, keepdims=True)
    return np.asarray(across / np.where(length > 0, length, 1.0))
