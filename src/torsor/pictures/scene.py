"""What pictures of all kinds share: where up is, where the ground is, from where to look, and rows of motions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from torsor.forces.contact import Contact, GroundContact
from torsor.joints import z_to
from torsor.model import WORLD, Model
from torsor.shapes import HalfSpace
from torsor.spatial import frozen_array
from torsor.view.motion import Motion, motions

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from torsor._typing import FloatArray
    from torsor.simulation.trajectory import Trajectory

_LEVEL = 0.999  # cosine of the angle between up and the normal of a level surface
_SQUARE = ((-1, -1), (1, -1), (1, 1), (-1, 1))
AZIMUTH, ELEVATION = -52.0, 20.0  # of a camera before a machine that looks along x


@dataclass(frozen=True)
class Camera:
    """From where a picture is taken. What is None is chosen so that all of the motion is in view.

    Parameters
    ----------
    azimuth, elevation : float, optional
        Direction from what is looked at to the camera, in degrees: about the vertical from x, and above the horizon.
        Mechanisms that move in a plane are seen at right angles to it by default, others from the front right.
    distance : float, optional
        Distance from what is looked at.
    look_at : (3,) array_like, optional
        Point of the world in the middle of the picture.
    track : str, optional
        Name of a body or frame with which the camera moves along, in a movie.

    Notes
    -----
    In movies the shorter edge of a picture is seen at an angle of 34 degrees.
    """

    azimuth: float | None = None
    elevation: float | None = None
    distance: float | None = None
    look_at: tuple[float, float, float] | None = None
    track: str | None = None

    def __post_init__(self) -> None:
        for name in ("azimuth", "elevation", "distance"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, float(frozen_array(value, (), name)))
        if self.distance is not None and self.distance <= 0:
            raise ValueError(f"distance of a Camera is {self.distance:g}, expected a number above 0")
        if self.elevation is not None and abs(self.elevation) > 90:
            raise ValueError(f"elevation of a Camera is {self.elevation:g}, expected degrees from -90 to 90")
        if self.look_at is not None:
            object.__setattr__(self, "look_at", tuple(frozen_array(self.look_at, (3,), "look_at").tolist()))
        if self.track is not None and not isinstance(self.track, str):
            raise TypeError(f"track of a Camera must be the name of a body or frame, got {self.track!r}")
        if self.track is not None and self.look_at is not None:
            raise ValueError("a Camera has look_at= or track=, not both")

    def towards(self, model: Model, q: FloatArray, poses: FloatArray, points: FloatArray) -> tuple[float, float, bool]:
        """Azimuth and elevation in degrees, chosen for a picture of these points where they are not given; and whether
        that is at right angles to the plane of a flat mechanism."""
        normal = plane_of(model, q, poses, points)
        azimuth, elevation = AZIMUTH, ELEVATION
        if normal is not None:
            elevation = float(np.degrees(np.arcsin(np.clip(normal[2], -1.0, 1.0))))
            flat = float(np.hypot(normal[0], normal[1]))
            azimuth = float(np.degrees(np.arctan2(normal[1], normal[0]))) if flat > 1e-6 else -90.0
            azimuth = (azimuth + 90.0) % 360.0 - 90.0
            if abs(normal[2]) < 1e-6 and azimuth > 89.999:  # the same line of sight from the other side
                azimuth -= 180.0
        return (
            azimuth if self.azimuth is None else self.azimuth,
            elevation if self.elevation is None else self.elevation,
            normal is not None and self.azimuth is None and self.elevation is None,
        )


def require_camera(camera: Any) -> Camera:
    """The camera, checked to be one; one that chooses everything for None."""
    if camera is None:
        return Camera()
    if not isinstance(camera, Camera):
        raise TypeError(f"camera must be a torsor.pictures.Camera, got {camera!r}; Camera(azimuth=30, track='trunk')")
    return camera


def upright(model: Model) -> FloatArray:
    """A rotation (3, 3) after which up is along z: a permutation of axes where gravity is along x or y or up z."""
    g = np.array(model.gravity)
    k = int(np.abs(g).argmax())
    if not g.any() or abs(g[k]) < 0.999 * np.linalg.norm(g) or (k == 2 and g[2] < 0):
        return np.eye(3)
    up = -np.sign(g[k]) * np.eye(3)[k]
    right = np.eye(3)[(k + 1) % 3]
    return np.stack([right, np.cross(up, right), up])


def plane_of(model: Model, q: FloatArray, poses: FloatArray, points: FloatArray) -> FloatArray | None:
    """Unit normal, upwards if it is not level, of the plane in which a mechanism moves; None if it moves in space."""
    tree, full = model.tree, model.expand(q) if model.couplings else q
    turns, slides = [np.zeros((3, 0))], [np.zeros((3, 0))]
    for joint, X in zip(tree.joints, poses, strict=True):
        if joint.nv:
            S = np.asarray(joint.joint.S(full[joint.q_slice]))
            turns.append(X[:3, :3] @ S[:3])
            slides.append(X[:3, :3] @ S[3:])
    turn, slide = np.concatenate(turns, axis=1), np.concatenate(slides, axis=1)
    lengths = np.linalg.norm(turn, axis=0)
    if not (lengths > 1e-9).any():
        return None
    normal = turn[:, int(lengths.argmax())] / lengths.max()
    whole = float(np.linalg.norm(np.ptp(points, axis=0)))
    off = max(np.abs(np.cross(turn.T, normal)).max(), np.abs(normal @ slide).max())
    if off > 1e-6 or np.ptp(points @ normal) > 0.3 * whole:
        return None
    return np.asarray(-normal if normal[2] < -1e-6 else normal)


def surfaces(model: Model, forces: Sequence[Any]) -> list[tuple[FloatArray, float]]:
    """Planes of the world that bodies touch: their unit normals, and offsets along these."""
    shapes = [c.shape for c in model.world_collisions]
    out: list[tuple[FloatArray, float]] = []
    for force in forces:
        if isinstance(force, Contact):
            shapes += [s for body, s in ((force.body, force.shape), (force.other, force.other_shape)) if body == WORLD]
        elif isinstance(force, GroundContact):
            normal = np.array(force.normal) / np.linalg.norm(force.normal)
            out.append((normal, float(normal @ np.array(force.ground))))
    for shape in shapes:
        if isinstance(shape, HalfSpace):
            out.append((np.array(shape.normal) / np.linalg.norm(shape.normal), float(shape.offset)))
    return out


def slopes(model: Model, forces: Sequence[Any], points: FloatArray, turn: FloatArray) -> list[FloatArray]:
    """Corners (4, 3) of pieces of the planes that are not level, below these points."""
    out: list[FloatArray] = []
    middle = (points.min(axis=0) + points.max(axis=0)) / 2
    half = max(float(np.linalg.norm(np.ptp(points, axis=0))), 1e-6)
    for normal, offset in surfaces(model, forces):
        if turn[2] @ normal <= _LEVEL:
            R = z_to(normal)
            foot = middle + (offset - normal @ middle) * normal
            piece = np.array([foot + half * (x * R[:, 0] + y * R[:, 1]) for x, y in _SQUARE])
            if not any(np.allclose(piece, other) for other in out):
                out.append(piece)
    return out


def ground_level(
    ground: bool | float | None, model: Model, forces: Sequence[Any], points: FloatArray, turn: FloatArray
) -> float | None:
    """Height of the ground of a picture of these points (n, 3), of the world, or None.

    It is the given one; that of a level surface for contact, and none where all are tilted; 0 where nothing is below;
    the lowest point where bodies move freely, or where a ground is asked for by True.
    """
    if ground is False:
        return None
    if ground is not None and ground is not True:
        level = float(frozen_array(ground, (), "ground"))
        if not np.isfinite(level):
            raise ValueError(f"ground is {ground!r}, expected a height, True or False")
        return level
    planes = surfaces(model, forces)
    for normal, offset in planes:
        if turn[2] @ normal > _LEVEL:
            return offset
    if planes:
        return None
    lowest, whole = float((points @ turn[2]).min()), float(np.linalg.norm(np.ptp(points, axis=0)))
    if -0.02 * whole <= lowest < 2.0 * whole:
        return 0.0
    return lowest if ground or any(j.nv == 6 for j in model.joints) else None


def round_down(x: float) -> float:
    """The largest of 1, 2 and 5 times a power of ten that is not above x."""
    power = 10.0 ** np.floor(np.log10(x))
    return float(power * max(k for k in (1.0, 2.0, 5.0) if k <= x / power * (1 + 1e-9)))


def turned(poses: FloatArray, turn: FloatArray) -> FloatArray:
    """Poses (n, 4, 4) after a rotation of the world."""
    out = np.array(poses)
    out[:, :3] = turn @ poses[:, :3]
    return out


def motion_of(trajectory: Trajectory, track: int) -> Motion:
    """One motion of a batch, up to its last finite row."""
    if not len(trajectory.t):
        raise ValueError("the trajectory has no rows, so there is nothing to draw; simulate one step at least")
    return motions(trajectory, track)[0]


def require_rows(motion: Motion, rows: Any, most: int) -> list[int]:
    """Rows of a motion by number, negative ones from the end; by default at most `most`, evenly spread."""
    finite, count = len(motion.t), 0 if motion.trajectory is None else len(motion.trajectory.t)
    if rows is None:
        return [int(k) for k in np.linspace(0, finite - 1, min(most, finite)).round()]
    given = np.atleast_1d(np.asarray(rows))
    if given.ndim != 1 or given.dtype.kind not in "iu" or not len(given):
        raise ValueError(f"rows is {rows!r}, expected numbers of rows, such as range(0, {count}, 10)")
    if given.min() < -count or given.max() >= count:
        raise IndexError(f"rows are from {given.min()} to {given.max()}, but the trajectory has {count}")
    out = [int(r) % count for r in given]
    if max(out) >= finite:
        raise ValueError(f"row {max(out)} is not finite: the motion was not finished; the last row is {finite - 1}")
    return out


def require_configuration(model: Model, q: ArrayLike | None) -> FloatArray:
    """One configuration (nq,), checked; that of `Model.start` by default."""
    if q is None:
        return model.start
    return np.array(frozen_array(q, (model.nq,), "q"))
