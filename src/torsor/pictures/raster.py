"""A small renderer on NumPy alone: triangles, a ground with a grid and shadows, on any machine, without a display.

Triangles become spans of samples, these are resolved by a depth buffer with one `minimum.at`, and visible samples are
shaded with normals that are interpolated over their triangles. All of it is vectorised over triangles and samples.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from torsor._typing import FloatArray
    from torsor.view.geometry import Part

    Image = NDArray[np.uint8]
    Floats = NDArray[np.floating[Any]]

_CREASE = np.cos(np.radians(35.0))  # faces that meet at a smaller angle look round
_SAMPLES = 2  # along each edge of a pixel
_TOP, _BOTTOM = np.array([0.99, 0.99, 1.0], np.float32), np.array([0.86, 0.89, 0.93], np.float32)
_GROUND, _LINE = np.array([0.93, 0.94, 0.95], np.float32), np.array([0.78, 0.81, 0.85], np.float32)
_EMPTY = np.uint64(0xFFFFFFFFFFFFFFFF)


@dataclass(frozen=True)
class View:
    """A camera with all its numbers: where it is and what it looks at, its axes (rows right, down and forward), and the
    angle of view of the shorter edge, in degrees."""

    position: FloatArray
    target: FloatArray
    axes: FloatArray
    size: tuple[int, int]
    field_of_view: float

    @staticmethod
    def of(
        target: FloatArray, azimuth: float, elevation: float, distance: float, size: tuple[int, int], angle: float
    ) -> View:
        """A camera at a distance from a point, in a direction given in degrees."""
        a, e = np.radians(azimuth), np.radians(elevation)
        back = np.array([np.cos(a) * np.cos(e), np.sin(a) * np.cos(e), np.sin(e)])
        right = np.array([-np.sin(a), np.cos(a), 0.0])
        return View(target + distance * back, target, np.stack([right, -np.cross(back, right), -back]), size, angle)

    @property
    def focal(self) -> float:
        """Length that is a pixel wide at a distance of as many times itself."""
        return float(min(self.size) / 2 / np.tan(np.radians(self.field_of_view) / 2))

    def project(self, points: Floats) -> tuple[FloatArray, FloatArray]:
        """Pixels (..., 2), from the left upper corner of the picture, and depths (...) of points (..., 3)."""
        local = (points - self.position) @ self.axes.T
        with np.errstate(divide="ignore", invalid="ignore"):
            on_page = self.focal * local[..., :2] / local[..., 2:] + np.array(self.size) / 2
        return np.asarray(on_page), np.asarray(local[..., 2])


class Mesh:
    """All triangles of a model, with smooth normals, in the frames of its bodies."""

    def __init__(self, parts: Sequence[Part], cell: float = 0.0) -> None:
        made = [_prepared(part, cell) for part in parts if len(part.faces)]
        self.vertices = np.concatenate([np.zeros((0, 3), np.float32), *(m[0] for m in made)])
        self.normals = np.concatenate([np.zeros((0, 3, 3), np.float32), *(m[2] for m in made)])
        first = np.cumsum([0, *(len(m[0]) for m in made)])
        faces = [m[1] + n for m, n in zip(made, first, strict=False)]
        self.faces = np.concatenate([np.zeros((0, 3), np.int64), *faces])
        kept = [part for part in parts if len(part.faces)]
        self.body = np.repeat([p.body for p in kept], [len(m[0]) for m in made]).astype(np.int64)
        self.face_body = np.repeat([p.body for p in kept], [len(m[1]) for m in made]).astype(np.int64)
        self.colors = np.repeat([p.color for p in kept], [len(m[1]) for m in made], axis=0).reshape(-1, 4)
        self.colors = self.colors.astype(np.float32)

    def posed(self, poses: FloatArray) -> Floats:
        """Vertices (n, 3) in the world, at the poses of the bodies; the last of these is that of the world."""
        R, p = poses[:, :3, :3].astype(np.float32), poses[:, :3, 3].astype(np.float32)
        out = (R[self.body] @ self.vertices[..., None])[..., 0]
        return np.asarray(out + p[self.body])

    def posed_normals(self, poses: FloatArray, faces: NDArray[np.int64]) -> Floats:
        """Normals (m, 3, 3) at the corners of some triangles in the world."""
        turned = poses[:, :3, :3].astype(np.float32).swapaxes(1, 2)[self.face_body[faces]]
        return np.asarray(self.normals[faces] @ turned)


def _prepared(part: Part, cell: float) -> tuple[Floats, NDArray[np.int64], Floats]:
    """Vertices, faces and normals at their corners; vertices that share a cell of the given size are one."""
    vertices, faces = np.asarray(part.vertices, np.float64), np.asarray(part.faces, np.int64)
    if cell > 0 and len(faces) > 200:
        cells = np.round(vertices / cell).astype(np.int64)
        _, first, to = np.unique(cells, axis=0, return_index=True, return_inverse=True)
        vertices, faces = vertices[first], to.reshape(-1)[faces]
    a, b, c = (vertices[faces[:, k]] for k in range(3))
    across = np.cross(b - a, c - a)
    area = np.linalg.norm(across, axis=-1)
    kept = area > 1e-14 * max(float(area.max(initial=0.0)), 1e-300)
    faces, across, area = faces[kept], across[kept], area[kept]
    return vertices.astype(np.float32), faces, _corner_normals(vertices, faces, across, area)


def _corner_normals(vertices: FloatArray, faces: NDArray[np.int64], across: FloatArray, area: FloatArray) -> Floats:
    """Normals (m, 3, 3) of corners: the mean of those of the faces that meet there at a small angle."""
    flat = across / area[:, None]
    if not len(faces):
        return np.zeros((0, 3, 3), np.float32)
    _, place = np.unique(np.round(vertices / (1e-7 + 1e-6 * np.ptp(vertices))), axis=0, return_inverse=True)
    at = place.reshape(-1)[faces].ravel()  # the place of each corner
    order = np.argsort(at, kind="stable")
    start = np.flatnonzero(np.r_[True, np.diff(at[order]) > 0])
    count = np.diff(np.r_[start, len(at)])
    group = np.repeat(np.arange(len(start)), count)
    out = np.zeros((len(at), 3))
    most = int(min(count.max(), 48))
    for k in range(most):  # the k-th face at every place, for all corners there
        other = order[start[group] + k % count[group]]
        there = flat[other // 3]
        weight = area[other // 3] * (k < count[group]) * (np.einsum("ij,ij->i", there, flat[order // 3]) > _CREASE)
        out[order] += weight[:, None] * there
    length = np.linalg.norm(out, axis=-1, keepdims=True)
    out = np.where(length > 0, out / np.where(length > 0, length, 1.0), np.repeat(flat, 3, axis=0))
    return out.reshape(-1, 3, 3).astype(np.float32)


def _spans(page: Floats, width: int, height: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Samples in triangles with corners (m, 3, 2) on the page: triangle, column and row of each."""
    x, y = page[..., 0].astype(np.float64), page[..., 1].astype(np.float64)
    top = np.clip(np.ceil(y.min(axis=1) - 0.5), 0, height).astype(np.int64)
    end = np.clip(np.ceil(y.max(axis=1) - 0.5), 0, height).astype(np.int64)
    inside = (x.max(axis=1) > 0) & (x.min(axis=1) < width)
    lines = np.where(inside, np.maximum(end - top, 0), 0)
    triangle = np.repeat(np.arange(len(page)), lines)
    row = _counted(lines) + top[triangle]
    at = row + 0.5
    left, right = np.full(len(row), np.inf), np.full(len(row), -np.inf)
    for i, j in ((0, 1), (1, 2), (2, 0)):
        xi, yi, xj, yj = (v[triangle] for v in (x[:, i], y[:, i], x[:, j], y[:, j]))
        crosses = (yi > at) != (yj > at)
        with np.errstate(divide="ignore", invalid="ignore"):
            cut = xi + (at - yi) * (xj - xi) / (yj - yi)
        left = np.where(crosses, np.minimum(left, cut), left)
        right = np.where(crosses, np.maximum(right, cut), right)
    none = left > right
    first = np.clip(np.ceil(np.where(none, 0, left) - 0.5), 0, width).astype(np.int64)
    last = np.clip(np.ceil(np.where(none, 0, right) - 0.5), 0, width).astype(np.int64)
    length = np.maximum(last - first, 0)
    span = np.repeat(np.arange(len(row)), length)
    return triangle[span], _counted(length) + first[span], row[span]


def _counted(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """0, 1, ... lengths[0] - 1, 0, 1, ... lengths[1] - 1, ..."""
    ends = np.cumsum(lengths)
    return np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - lengths, lengths)


def _gradients(page: Floats, values: Floats) -> Floats:
    """Numbers (m, 3, n): value at (0, 0), and slopes along x and y, of values (m, 3, n) linear on triangles."""
    x, y = page[..., 0].astype(np.float64), page[..., 1].astype(np.float64)
    x1, y1, x2, y2 = x[:, 1] - x[:, 0], y[:, 1] - y[:, 0], x[:, 2] - x[:, 0], y[:, 2] - y[:, 0]
    det = x1 * y2 - x2 * y1
    det = np.where(np.abs(det) > 1e-12, det, np.inf)[:, None]
    v = values.astype(np.float64)
    d1, d2 = v[:, 1] - v[:, 0], v[:, 2] - v[:, 0]
    along_x = (d1 * y2[:, None] - d2 * y1[:, None]) / det
    along_y = (d2 * x1[:, None] - d1 * x2[:, None]) / det
    origin = v[:, 0] - along_x * x[:, :1] - along_y * y[:, :1]
    return np.stack([origin, along_x, along_y], axis=1)


def render(
    mesh: Mesh, poses: FloatArray, view: View, light: FloatArray, ground: float | None, reach: float, back: Floats
) -> Image:
    """The picture (height, width, 3) of a mesh at poses of its bodies.

    Parameters
    ----------
    mesh : Mesh
    poses : (nbodies + 1, 4, 4)
        Of the bodies, then of the world.
    view : View
    light : (3,)
        Unit vector towards the light.
    ground : float, optional
        Its height.
    reach : float
        Size of what is seen.
    back : (height, width, 3)
        What is behind it: `backdrop`.
    """
    width, height = view.size
    if not len(mesh.faces):
        return _bytes(back)
    points = mesh.posed(poses)
    if ground is not None:
        back = back * _shadow(points, mesh.faces, view, light, ground)[..., None]
    page, depth = (x.astype(np.float32)[mesh.faces] for x in view.project(points))
    near = 1e-3 * float(np.median(depth[depth > 0])) if (depth > 0).any() else 1.0
    # What is behind the camera, or looks away from it, is left out.
    x, y = page[..., 0], page[..., 1]
    turned = (x[:, 1] - x[:, 0]) * (y[:, 2] - y[:, 0]) - (x[:, 2] - x[:, 0]) * (y[:, 1] - y[:, 0])
    shown = np.flatnonzero((depth.min(axis=1) > near) & (turned < 0))
    fine = page[shown] * _SAMPLES
    w, h = width * _SAMPLES, height * _SAMPLES
    triangle, column, row = _spans(fine, w, h)
    if not len(triangle):
        return _bytes(back)
    inverse = _gradients(fine, (1.0 / depth[shown])[..., None])[..., 0]
    at_x, at_y = column + 0.5, row + 0.5
    g = inverse[triangle]
    closeness = (g[:, 0] + g[:, 1] * at_x + g[:, 2] * at_y).astype(np.float32)
    # Positive floats are ordered as their bits are: far ones, with small 1 / depth, get large keys.
    keys = (~closeness.view(np.uint32)).astype(np.uint64) << np.uint64(32) | triangle.astype(np.uint64)
    buffer = np.full(w * h, _EMPTY)
    np.minimum.at(buffer, row * w + column, keys)
    seen = np.flatnonzero(buffer != _EMPTY)
    winner = (buffer[seen] & np.uint64(0xFFFFFFFF)).astype(np.int64)
    sx, sy = (seen % w) + 0.5, (seen // w) + 0.5
    own = shown[winner]
    used = np.zeros(len(shown), bool)
    used[winner] = True
    normals = mesh.posed_normals(poses, shown[used])
    slopes = _gradients(fine[used], normals).astype(np.float32)[np.cumsum(used)[winner] - 1]
    fx, fy = sx.astype(np.float32)[:, None], sy.astype(np.float32)[:, None]
    n = slopes[:, 0] + slopes[:, 1] * fx + slopes[:, 2] * fy
    n /= np.maximum(np.linalg.norm(n, axis=-1, keepdims=True), 1e-6)
    color = _shaded(n, mesh.colors[own, :3], light.astype(np.float32), view)
    cover = mesh.colors[own, 3:].copy()
    if ground is not None and view.position[2] > ground:
        g = inverse[winner]
        z = 1.0 / (g[:, 0] + g[:, 1] * sx + g[:, 2] * sy)
        ray = view.axes[2] + ((sx / _SAMPLES - width / 2) / view.focal)[:, None] * view.axes[0]
        ray = ray + ((sy / _SAMPLES - height / 2) / view.focal)[:, None] * view.axes[1]
        below = view.position[2] + z * ray[:, 2] < ground - 2e-3 * reach
        cover[below] *= 0.25
    # The pixels of the smallest rectangle around the samples are their means.
    (x0, x1), (y0, y1) = ((int(v.min()) // _SAMPLES, int(v.max()) // _SAMPLES + 1) for v in (sx, sy))
    layer = np.zeros(((y1 - y0) * _SAMPLES, (x1 - x0) * _SAMPLES, 4), np.float32)
    at = (seen // w - y0 * _SAMPLES, seen % w - x0 * _SAMPLES)
    layer[at] = np.concatenate([color * cover, cover], axis=1)
    grid = [layer[i::_SAMPLES, j::_SAMPLES] for i in range(_SAMPLES) for j in range(_SAMPLES)]
    mean = sum(grid[1:], grid[0]) / len(grid)
    out = _bytes(back)
    out[y0:y1, x0:x1] = _bytes(mean[..., :3] + (1.0 - mean[..., 3:]) * back[y0:y1, x0:x1])
    return out


def _shaded(n: Floats, color: Floats, light: Floats, view: View) -> Floats:
    """Colours of samples with normals n: of the light, of the sky above, and a highlight."""
    toward = -view.axes[2].astype(np.float32)
    half = light + toward
    half = half / np.linalg.norm(half)
    lit = np.maximum(n @ light, 0.0)
    sky = 0.5 + 0.5 * n[:, 2]
    shine = np.maximum(n @ half, 0.0) ** 40
    out = color * (0.3 + 0.25 * sky + 0.6 * lit)[:, None] + 0.14 * shine[:, None]
    return np.asarray(np.minimum(out, 1.0))


def _rays(view: View) -> FloatArray:
    """Directions (height, width, 3) through the middles of pixels, of unit depth."""
    width, height = view.size
    x = (np.arange(width) + 0.5 - width / 2) / view.focal
    y = (np.arange(height) + 0.5 - height / 2) / view.focal
    return np.asarray(view.axes[2] + x[None, :, None] * view.axes[0] + y[:, None, None] * view.axes[1])


def backdrop(view: View, ground: float | None, step: float, reach: float) -> Floats:
    """The sky, and the ground with a grid of lines at a distance `step`, which fades at the distance `reach`."""
    width, height = view.size
    blend = np.linspace(0, 1, height, dtype=np.float32)[:, None, None]
    back = np.broadcast_to(_TOP + blend * (_BOTTOM - _TOP), (height, width, 3)).copy()
    if ground is None or view.position[2] <= ground:
        return np.asarray(back)
    ray = _rays(view).astype(np.float32)
    down = ray[..., 2] < -1e-6
    slope = np.where(down, ray[..., 2], np.float32(-1.0))
    t = np.where(down, (ground - float(view.position[2])) / slope, np.float32(0.0))
    x, y = (float(view.position[k]) + t * ray[..., k] for k in (0, 1))
    away = np.hypot(x - float(view.target[0]), y - float(view.target[1]))
    shown = (down * np.clip(1.6 - away / reach, 0.0, 1.0))[..., None]
    color = np.broadcast_to(_GROUND, back.shape).copy()
    # A pixel is this wide on the ground, across and along the line of sight.
    across = t / view.focal
    for value, direction in ((x, 0), (y, 1)):
        tilt = np.abs(ray[..., direction] / slope)
        wide = across * np.hypot(np.float32(1.0), tilt)
        off = np.abs(value / step - np.round(value / step)) * step
        wide = np.maximum(wide, 1e-12)
        line = np.clip(1.1 - off / wide, 0.0, 1.0) * np.clip(0.35 * step / wide, 0.0, 1.0)
        color += line[..., None] * (_LINE - color)
    return np.asarray(back + shown * (color - back))


def _shadow(points: Floats, faces: NDArray[np.int64], view: View, light: FloatArray, ground: float) -> Floats:
    """How bright each pixel of the ground is (height, width): less where triangles are between it and the light."""
    width, height = view.size
    out = np.ones((height, width), np.float32)
    above = np.maximum(points[:, 2] - ground, 0.0)
    fallen = points - (above / light[2])[:, None] * light
    fallen[:, 2] = ground
    page, depth = view.project(fallen)
    x, y = fallen[faces][..., 0].T, fallen[faces][..., 1].T
    facing = (x[1] - x[0]) * (y[2] - y[0]) > (x[2] - x[0]) * (y[1] - y[0])
    seen = facing & (above[faces].max(axis=1) > 0) & (depth[faces].min(axis=1) > 0)
    page = page[faces[seen]]
    _, column, row = _spans(_SAMPLES * page.astype(np.float32), _SAMPLES * width, _SAMPLES * height)
    fine = np.zeros((_SAMPLES * height, _SAMPLES * width), np.float32)
    fine[row, column] = 1.0 / _SAMPLES**2
    mask = np.zeros((height, width), np.float32)
    for i in range(_SAMPLES**2):
        mask += fine[i // _SAMPLES :: _SAMPLES, i % _SAMPLES :: _SAMPLES]
    for axis in (0, 1):  # soft edges
        mask = 0.25 * np.roll(mask, 1, axis) + 0.5 * mask + 0.25 * np.roll(mask, -1, axis)
    return np.asarray(out - 0.3 * mask)


def _bytes(image: Floats) -> Image:
    return (255.0 * np.clip(image, 0.0, 1.0) + 0.5).astype(np.uint8)
