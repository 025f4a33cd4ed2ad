"""Movies of motions, rendered without a display and written by imageio."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from torsor.kinematics import body_poses
from torsor.pictures import raster
from torsor.pictures.scene import (
    Camera,
    ground_level,
    motion_of,
    require_camera,
    round_down,
    slopes,
    turned,
    upright,
)
from torsor.pictures.skeleton import tracked
from torsor.view.geometry import Part, parts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from torsor._typing import FloatArray
    from torsor.forces.force import Force
    from torsor.simulation.trajectory import Trajectory
    from torsor.view.geometry import Show
    from torsor.view.motion import Motion

FORMATS = (".mp4", ".gif")
_MOST_GIF = 50  # frames per second
_ANGLE = 34.0  # of view, in degrees, of the shorter edge
_PLANE = (0.72, 0.76, 0.8, 1.0)
_TWO = np.array([[0, 1, 2], [0, 2, 3]], np.int32)
_MANY = 40_000  # triangles above which those smaller than a pixel are merged


def movie(
    trajectory: Trajectory,
    path: str | os.PathLike[str],
    fps: float,
    size: tuple[int, int],
    camera: Camera | None,
    tracks: list[int],
    speed: float,
    ground: bool | float | None,
    show: Show,
    progress: bool,
) -> Path:
    """`Trajectory.movie`."""
    file, size = _require_path(path), _require_size(size)
    fps, speed = (_require_positive(x, name) for x, name in ((fps, "fps"), (speed, "speed")))
    if file.suffix.lower() == ".mp4" and (size[0] % 2 or size[1] % 2):
        even = tuple(x + x % 2 for x in size)
        raise ValueError(f"size is {size}, but an mp4 file needs even numbers; {even} is the nearest size")
    if file.suffix.lower() == ".gif" and fps > _MOST_GIF:
        raise ValueError(f"fps is {fps:g}, but programs show at most {_MOST_GIF} frames of a gif file per second")
    motions = [motion_of(trajectory, track) for track in tracks]
    times = _times(motions, fps, speed)
    scene = _Scene(motions, times, size, require_camera(camera), ground, show, trajectory.forces)
    write(file, scene.frame, len(times), fps, progress)
    return file


# ---- what moves


def _poses(motion: Motion, t: float) -> FloatArray:
    """Poses of the bodies, and of the world behind them, at a time."""
    state = motion.at(t)
    return np.concatenate([body_poses(state.model, state.q), np.eye(4)[None]])


def _times(motions: list[Motion], fps: float, speed: float) -> FloatArray:
    """Times of the motion at which frames are."""
    first, last = min(m.t[0] for m in motions), max(m.t[-1] for m in motions)
    count = int(np.floor((last - first) * fps / speed + 1e-6)) + 1
    return np.asarray(first + np.arange(count) * speed / fps)


class _Scene:
    """What the frames of a movie show: motions side by side, and where the camera is."""

    def __init__(
        self,
        motions: list[Motion],
        times: FloatArray,
        size: tuple[int, int],
        camera: Camera,
        ground: bool | float | None,
        show: Show,
        forces: Sequence[Force] = (),
    ) -> None:
        self.motions, self.times, self.size, self.camera = motions, times, size, camera
        model = motions[0].model
        self.turn = upright(model)
        drawn = [tuple(p for p in parts(m.model, show) if not _is_floor(p)) for m in motions]
        clouds = [_cloud(m, p, self.turn, times) for m, p in zip(motions, drawn, strict=True)]
        self.shifts = _side_by_side(clouds)
        moved = [cloud + shift for cloud, shift in zip(clouds, self.shifts, strict=True)]
        points = np.concatenate([cloud.reshape(-1, 3) for cloud in moved])
        # With a camera that moves along, a frame shows the figure; else all of the motion.
        self.tracked = None if camera.track is None else tracked(model, [camera.track])[0]
        near = points
        if self.tracked is not None:
            near = moved[0][0] if len(moved) == 1 else np.concatenate([cloud[0] for cloud in moved])
        self.reach = max(float(np.linalg.norm(np.ptp(near, axis=0))), 1e-6)
        self.ground = ground_level(ground, model, forces, points @ self.turn, self.turn)
        tilted = [] if ground is False else slopes(model, forces, points @ self.turn, self.turn)
        drawn[0] += tuple(Part(-1, piece, _TWO, _PLANE, "slope") for piece in tilted)
        if self.ground is None and ground is None and not tilted:  # below what hangs from bearings
            self.ground = float(points[:, 2].min()) - 0.05 * self.reach
        first = _poses(motions[0], float(times[0]))[:-1]
        at_rest = turned(first, self.turn)
        self.azimuth, self.elevation, flat = camera.towards(model, motions[0].q[0], at_rest, points)
        if flat and self.elevation < 1.0 and camera.elevation is None:
            self.elevation = 6.0  # with the ground in view
        self.middle: FloatArray = (near.min(axis=0) + near.max(axis=0)) / 2
        if camera.look_at is not None:
            self.middle = self.turn @ np.array(camera.look_at)
        self.distance = camera.distance or _distance(near, self.middle, self.azimuth, self.elevation, size)
        self.offset = self.middle - self._target(0)
        cell = 0.7 * self.distance / raster.View.of(self.middle, 0, 0, 1.0, size, _ANGLE).focal
        self.meshes = [raster.Mesh(p, cell if sum(len(x.faces) for x in p) > _MANY else 0.0) for p in drawn]
        around, above = np.radians(self.azimuth - 40.0), np.radians(58.0)
        self.light = np.array([np.cos(around) * np.cos(above), np.sin(around) * np.cos(above), np.sin(above)])
        self.mesh = _joined(self.meshes, [m.model.nbodies + 1 for m in motions])
        self._back: tuple[FloatArray, Any] | None = None

    def _target(self, k: int) -> FloatArray:
        """The point that the camera follows, the same for all frames if there is none."""
        if self.tracked is None:
            return self.middle
        body, pose = self.tracked
        at = _poses(self.motions[0], float(self.times[k]))[body] @ pose.matrix
        return np.asarray(self.turn @ at[:3, 3] + self.shifts[0])

    def view(self, k: int) -> raster.View:
        """The camera of frame k."""
        target = self._target(k) + self.offset
        return raster.View.of(target, self.azimuth, self.elevation, self.distance, self.size, _ANGLE)

    def poses(self, k: int) -> FloatArray:
        """Poses of all bodies in frame k, with up along z."""
        out = []
        for motion, shift in zip(self.motions, self.shifts, strict=True):
            X = turned(_poses(motion, float(self.times[k])), self.turn)
            X[:, :3, 3] += shift
            out.append(X)
        return np.concatenate(out)

    def frame(self, k: int) -> NDArray[np.uint8]:
        """Frame k, (height, width, 3)."""
        view = self.view(k)
        if self._back is None or not np.array_equal(self._back[0], view.position):
            step = round_down(0.2 * self.reach)
            self._back = view.position, raster.backdrop(view, self.ground, step, 1.6 * self.reach)
        return raster.render(self.mesh, self.poses(k), view, self.light, self.ground, self.reach, self._back[1])


def _is_floor(part: Part) -> bool:
    """Whether a part is a plane of the world, in whose place the ground or a slope is drawn."""
    return part.body < 0 and len(part.faces) == 2


def _cloud(motion: Motion, drawn: Sequence[Part], turn: FloatArray, times: FloatArray) -> FloatArray:
    """Corners (n, m, 3) of the boxes around parts, at some of the times, with up along z."""
    chosen = times[np.unique(np.linspace(0, len(times) - 1, min(len(times), 24)).astype(int))]
    poses = np.array([_poses(motion, float(t)) for t in chosen])
    points = [poses[:, :-1, :3, 3]] if not drawn or motion.model.nbodies else []
    for part in drawn:
        low, high = part.vertices.min(axis=0), part.vertices.max(axis=0)
        corners = np.stack(np.meshgrid(*zip(low, high, strict=True)), axis=-1).reshape(-1, 3)
        T = poses[:, part.body]
        points.append(corners @ T[:, :3, :3].transpose(0, 2, 1) + T[:, None, :3, 3])
    found = np.concatenate(points, axis=1) @ turn.T if points else np.zeros((1, 0, 3))
    return np.asarray(found) if found.shape[1] else np.zeros((1, 1, 3))


def _side_by_side(clouds: list[FloatArray]) -> list[FloatArray]:
    """Shifts (3,) along y that put motions next to each other, the first one in front."""
    if len(clouds) == 1:
        return [np.zeros(3)]
    extents = [np.ptp(c[..., 1]) for c in clouds]
    gap = 0.25 * max(max(extents), 0.5 * max(float(np.ptp(c[..., 0])) for c in clouds), 1e-3)
    out, at = [], 0.0
    for cloud, extent in zip(clouds, extents, strict=True):
        out.append(np.array([0.0, at - float(cloud[..., 1].min()), 0.0]))
        at += float(extent) + gap
    return [shift - out[0] for shift in out]


def _joined(meshes: list[raster.Mesh], sizes: list[int]) -> raster.Mesh:
    """One mesh of several, whose bodies follow each other; -1 in each is its own world."""
    out = raster.Mesh([])
    firsts = np.cumsum([0, *sizes])
    vertices = np.cumsum([0, *(len(m.vertices) for m in meshes)])
    pairs = list(zip(meshes, firsts, sizes, strict=False))
    out.vertices = np.concatenate([m.vertices for m in meshes])
    out.normals = np.concatenate([m.normals for m in meshes])
    out.colors = np.concatenate([m.colors for m in meshes])
    out.faces = np.concatenate([m.faces + n for m, n in zip(meshes, vertices, strict=False)])
    out.body = np.concatenate([m.body % n + f for m, f, n in pairs])
    out.face_body = np.concatenate([m.face_body % n + f for m, f, n in pairs])
    return out


def _distance(points: FloatArray, middle: FloatArray, azimuth: float, elevation: float, size: tuple[int, int]) -> float:
    """The least distance from which all points are in the picture, with a margin."""
    unit = raster.View.of(np.zeros(3), azimuth, elevation, 1.0, size, _ANGLE)
    local = (points - middle) @ unit.axes.T
    edge = 0.88 * np.array(size) / 2 / unit.focal
    # At a distance d a point is at local[:2] / (d + local[2]) of the picture.
    needed = np.abs(local[:, :2]) / edge - local[:, 2:]
    return max(float(needed.max()), 1.2 * float(-local[:, 2].min()), 1e-3)


# ---- files


def _require_path(path: Any) -> Path:
    file = Path(path)
    if file.suffix.lower() not in FORMATS:
        raise ValueError(f"{str(file)!r} ends in {file.suffix!r}, expected a name that ends in {' or '.join(FORMATS)}")
    if not file.parent.is_dir():
        raise FileNotFoundError(f"no directory {str(file.parent)!r} to write {file.name!r} to; make it first")
    try:
        _unfinished(file).write_bytes(b"")
    except OSError as error:
        raise type(error)(f"{str(file)!r} cannot be written: {error.strerror}; choose another place") from None
    _unfinished(file).unlink()
    if file.is_dir():
        raise IsADirectoryError(f"{str(file)!r} is a directory, expected the name of a file")
    return file


def _unfinished(file: Path) -> Path:
    """Where a file is until it is complete; with the same ending, by which imageio knows the format."""
    return file.with_name(f".{file.stem}.unfinished{file.suffix.lower()}")


def _require_size(size: Any) -> tuple[int, int]:
    given = np.asarray(size)
    if given.shape != (2,) or given.dtype.kind not in "iu" or given.min() < 16 or given.max() > 8192:
        raise ValueError(f"size is {size!r}, expected (width, height) in pixels, 16 to 8192 each")
    return int(given[0]), int(given[1])


def _require_positive(value: Any, name: str) -> float:
    x = float(value)
    if not (np.isfinite(x) and x > 0):
        raise ValueError(f"{name} is {value!r}, expected a number above 0")
    return x


def write(file: Path, frame: Callable[[int], NDArray[np.uint8]], count: int, fps: float, progress: bool) -> None:
    """Writes frames 0 to count - 1 to an mp4 or gif file, whole or not at all."""
    to = _write_gif if file.suffix.lower() == ".gif" else _write_mp4
    bar = _progress_bar(count) if progress else contextlib.nullcontext()
    file = Path(os.path.realpath(file))
    unfinished = _unfinished(file)

    def frames() -> Iterator[NDArray[np.uint8]]:
        for k in range(count):
            yield frame(k)
            if shown is not None:
                shown.update()

    try:
        with bar as shown:
            to(unfinished, frames(), frame, count, fps)
        os.replace(unfinished, file)
    finally:
        unfinished.unlink(missing_ok=True)


def _write_mp4(
    file: Path, frames: Iterator[NDArray[np.uint8]], frame: Callable[[int], Any], count: int, fps: float
) -> None:
    imageio = _extra("imageio.v2")
    _extra("imageio_ffmpeg")  # by which imageio writes mp4
    with imageio.get_writer(file, mode="I", fps=fps, quality=8, macro_block_size=1, codec="libx264") as writer:
        for image in frames:
            writer.append_data(image)


def _write_gif(
    file: Path, frames: Iterator[NDArray[np.uint8]], frame: Callable[[int], NDArray[np.uint8]], count: int, fps: float
) -> None:
    """All frames have the same colours, so that only what changes from one to the next is in the file."""
    image = _extra("PIL.Image")
    some = [frame(k) for k in sorted({0, count // 3, 2 * count // 3, count - 1})]
    palette = image.fromarray(np.concatenate(some)).quantize(256, method=image.Quantize.MEDIANCUT)
    pictures = (image.fromarray(x).quantize(palette=palette, dither=image.Dither.NONE) for x in frames)
    first = next(pictures)
    # Times in a gif file are hundredths of a second; these do not drift from the motion.
    ends = np.round(100.0 * np.arange(count + 1) / fps).astype(int)
    durations = (10 * np.diff(ends)).tolist()
    first.save(file, save_all=True, append_images=pictures, duration=durations, loop=0, optimize=False)


def _extra(module: str) -> Any:
    try:
        return import_module(module)
    except ImportError:
        raise ImportError("movie needs imageio with Pillow and ffmpeg: pip install 'torsor[view]'") from None


def _progress_bar(count: int) -> Any:
    try:
        from tqdm import tqdm
    except ImportError:
        raise ImportError("progress=True needs tqdm: pip install 'torsor[view]'") from None
    return tqdm(total=count, unit="frame")
