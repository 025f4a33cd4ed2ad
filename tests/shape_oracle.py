"""Random shapes and poses, and gaps between shapes by convex optimisation: slow, and independent of the core."""

from dataclasses import dataclass

import numpy as np

from torsor.spatial import quaternion_to_matrix

SOLIDS = ("sphere", "capsule", "box", "cylinder", "ellipsoid")
# Those that the core has formulas for, in one order.
PAIRS = tuple(
    [(a, "half_space") for a in SOLIDS]
    + [(a, "sphere") for a in SOLIDS]
    + [(a, "capsule") for a in SOLIDS[1:]]
    + [(a, "box") for a in SOLIDS[2:]]
    + [(a, "cylinder") for a in SOLIDS[3:]]
    + [(a, "ellipsoid") for a in SOLIDS[4:]]
)


@dataclass(frozen=True)
class Pair:
    """Two shapes, by kind and numbers, on bodies with these poses."""

    kind_a: str
    numbers_a: np.ndarray
    pose_a: np.ndarray
    kind_b: str
    numbers_b: np.ndarray
    pose_b: np.ndarray

    @property
    def args(self) -> tuple:
        return self.kind_a, self.numbers_a, self.pose_a, self.kind_b, self.numbers_b, self.pose_b

    def swapped(self) -> "Pair":
        return Pair(*self.args[3:], *self.args[:3])

    def moved(self, shift: np.ndarray) -> "Pair":
        """With the first body displaced."""
        pose = np.array(self.pose_a)
        pose[:3, 3] += shift
        return Pair(self.kind_a, self.numbers_a, pose, *self.args[3:])

    def seen_by(self, pose: np.ndarray) -> "Pair":
        """Both bodies in another frame."""
        return Pair(self.kind_a, self.numbers_a, pose @ self.pose_a, self.kind_b, self.numbers_b, pose @ self.pose_b)


def random_numbers(kind: str, rng: np.random.Generator, rounded: float | None = None) -> np.ndarray:
    """Numbers in the order of the core, of shapes about 1 in size; the radius of a box, or a random one."""
    place = np.concatenate([0.3 * rng.normal(size=3), rng.normal(size=4)])
    if kind == "half_space":
        return np.append(rng.normal(size=3), 0.3 * rng.normal())
    if kind == "sphere":
        return np.append(place[:3], rng.uniform(0.2, 1.0))
    if kind == "box":
        radius = rng.choice([0.0, 0.1, 0.25]) if rounded is None else rounded
        return np.concatenate([place, rng.uniform(0.3, 1.0, 3), [radius]])
    return np.concatenate([place, rng.uniform(0.2, 1.0, 3 if kind == "ellipsoid" else 2)])


def random_pose(rng: np.random.Generator, scale: float = 1.0) -> np.ndarray:
    pose = np.eye(4)
    pose[:3, :3] = quaternion_to_matrix(rng.normal(size=4))
    pose[:3, 3] = scale * rng.normal(size=3)
    return pose


def random_pair(kinds: tuple[str, str], rng: np.random.Generator, spread: float, rounded: float | None = None) -> Pair:
    a, b = (random_numbers(kind, rng, rounded) for kind in kinds)
    return Pair(kinds[0], a, random_pose(rng, spread), kinds[1], b, random_pose(rng, 0.1))


def core(kind: str, numbers: np.ndarray, pose: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Centre c and matrix M (3, 3) of the core {c + M z}, and the radius around it; for z see `projected`."""
    p = pose[:3, :3] @ numbers[:3] + pose[:3, 3]
    if kind == "sphere":
        return p, np.zeros((3, 3)), numbers[3]
    R = pose[:3, :3] @ quaternion_to_matrix(numbers[3:7])
    if kind == "capsule":
        return p, R @ np.diag([0, 0, numbers[8]]), numbers[7]
    if kind == "box":
        return p, R @ np.diag(numbers[7:10] - numbers[10]), numbers[10]
    if kind == "cylinder":
        return p, R @ np.diag([numbers[7], numbers[7], numbers[8]]), 0.0
    return p, R @ np.diag(numbers[7:10]), 0.0


def projected(kind: str, z: np.ndarray) -> np.ndarray:
    """z (..., 3) in a cube (boxes, capsules), in a cylinder or in a ball."""
    if kind == "ellipsoid":
        return z / np.maximum(1.0, np.linalg.norm(z, axis=-1, keepdims=True))
    if kind == "cylinder":
        out = np.clip(z, -1.0, 1.0)
        out[..., :2] = z[..., :2] / np.maximum(1.0, np.linalg.norm(z[..., :2], axis=-1, keepdims=True))
        return out
    return np.clip(z, -1.0, 1.0)


def farthest(kind: str, direction: np.ndarray) -> np.ndarray:
    """The z with the largest component along a direction."""
    if kind == "ellipsoid":
        return direction / np.linalg.norm(direction)
    z = np.sign(direction)
    if kind == "cylinder":
        z[:2] = direction[:2] / np.linalg.norm(direction[:2])
    return z


def gaps(pairs: list[Pair], iterations: int = 4000) -> np.ndarray:
    """Distances of the cores less the radii, of pairs of the same kinds: projected gradients, accelerated, restarted.

    With half-spaces: the lowest point of the core. Gaps of overlapping cores are minus the radii.
    """
    a, b = pairs[0].kind_a, pairs[0].kind_b
    if b == "half_space":
        found = []
        for pair in pairs:
            c, M, radius = core(a, pair.numbers_a, pair.pose_a)
            normal = pair.pose_b[:3, :3] @ pair.numbers_b[:3] / np.linalg.norm(pair.numbers_b[:3])
            lowest = c - M @ farthest(a, M.T @ normal) if M.any() else c
            found.append(normal @ (lowest - pair.pose_b[:3, 3]) - pair.numbers_b[3] - radius)
        return np.array(found)
    first = [core(a, pair.numbers_a, pair.pose_a) for pair in pairs]
    second = [core(b, pair.numbers_b, pair.pose_b) for pair in pairs]
    apart = np.array([x[0] - y[0] for x, y in zip(first, second, strict=True)])
    M = np.array([np.hstack([x[1], -y[1]]) for x, y in zip(first, second, strict=True)])
    step = 1.0 / np.maximum(np.linalg.norm(M, 2, axis=(1, 2)) ** 2, 1e-12)[:, None]
    z = y = np.zeros((len(pairs), 6))
    t = np.ones((len(pairs), 1))
    for _ in range(iterations):
        w = y - step * np.einsum("kji,kj->ki", M, apart + np.einsum("kij,kj->ki", M, y))
        w = np.hstack([projected(a, w[:, :3]), projected(b, w[:, 3:])])
        t = np.where(((y - w) * (w - z)).sum(1, keepdims=True) > 0.0, 1.0, t)
        following = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * t * t))
        y = w + (t - 1.0) / following * (w - z)
        z, t = w, following
    radii = np.array([x[2] + y[2] for x, y in zip(first, second, strict=True)])
    return np.linalg.norm(apart + np.einsum("kij,kj->ki", M, z), axis=1) - radii
