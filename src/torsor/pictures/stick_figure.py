"""Stick figures of models and motions with Matplotlib alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from torsor.constraints.constraint import require_constraints
from torsor.kinematics import body_poses
from torsor.model import WORLD, Model
from torsor.pictures.scene import (
    Camera,
    ground_level,
    motion_of,
    require_camera,
    require_configuration,
    require_rows,
    round_down,
    slopes,
    turned,
    upright,
)
from torsor.pictures.skeleton import BONE, Anatomy, Skeleton, tracked
from torsor.pictures.solids import joined, normals

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from torsor._typing import FloatArray
    from torsor.constraints.constraint import Constraint
    from torsor.pictures.symbols import Kind
    from torsor.simulation.trajectory import Trajectory
    from torsor.view.motion import Motion

_AXES = ("#c8374b", "#2a9d5c", "#3578b5")
_INK, _GROUND, _GRID = "#30363c", "#f4f6f8", "#dbe1e7"
_AREA = 34.0  # square inches of a figure
_FONT = 7.5  # points


def draw_model(
    model: Model,
    q: ArrayLike | None,
    ax: Any,
    constraints: Sequence[Constraint] | None,
    **options: Any,
) -> Any:
    """`Model.draw`."""
    at = require_configuration(model, q)
    shown = model.constraints if constraints is None else require_constraints(constraints)
    return _draw([model], [at], [0.0], shown, ax, **options)


def draw_trajectory(
    trajectory: Trajectory, rows: Any, ax: Any, index: int, trace: Sequence[str], **options: Any
) -> Any:
    """`Trajectory.draw`."""
    motion = motion_of(trajectory, index)
    times = [float(motion.t[r]) for r in require_rows(motion, rows, 6)]
    states = [motion.at(t) for t in times]
    paths = [_path(motion, name) for name in ([trace] if isinstance(trace, str) else trace)]
    models, q = [state.model for state in states], [state.q for state in states]
    return _draw(models, q, times, trajectory.constraints, ax, forces=trajectory.forces, paths=paths, **options)


def _path(motion: Motion, name: str) -> FloatArray:
    """Positions (rows, 3) of a body or frame."""
    ((body, pose),) = tracked(motion.model, [name])
    states = motion.sampled(len(motion.t))
    if body < 0:
        return np.tile(pose.p, (len(states), 1))
    return np.array([(body_poses(model, q)[body] @ pose.matrix)[:3, 3] for model, q, _ in states])


def _draw(
    models: list[Model],
    q: list[FloatArray],
    times: list[float],
    constraints: tuple[Constraint, ...],
    ax: Any,
    camera: Camera | None,
    frames: bool | Sequence[str] | None,
    names: bool | Sequence[str],
    ground: bool | float | None,
    legend: bool | None,
    forces: Sequence[Any] = (),
    paths: Sequence[FloatArray] = (),
) -> Any:
    """One figure of several configurations, the last of them in full colours."""
    last, camera = models[-1], require_camera(camera)
    figures = [Anatomy(model, constraints, t) for model, t in zip(models, times, strict=True)]
    poses = [figure.poses(x) for figure, x in zip(figures, q, strict=True)]
    turn = upright(last)
    of_row = [figure.points(X) for figure, X in zip(figures, poses, strict=True)]
    triads = _triads(last, poses[-1], frames)
    points = np.concatenate([*of_row, *paths, *(X[None, :3, 3] for _, X in triads[1:])])
    if not len(points):  # no bodies
        points = np.zeros((1, 3))
    size = figures[-1].size(of_row[-1] if len(of_row[-1]) else points)
    # All is drawn with up along z, as Matplotlib has it.
    bodies = [figure.at(x, size, turn[2]) for figure, x in zip(figures, q, strict=True)]
    azimuth, elevation, flat = camera.towards(last, q[-1], turned(poses[-1], turn), points @ turn.T)
    level = ground_level(ground, last, forces, points, turn)
    tilted = [piece @ turn.T for piece in (() if ground is False else slopes(last, forces, points, turn))]
    near = np.concatenate(
        [points @ turn.T, *tilted, *([_patch(points @ turn.T, level)[0]] if level is not None else [])]
    )
    near = np.concatenate([near, near.min(axis=0)[None] - 3 * size, near.max(axis=0)[None] + 3 * size])
    own = ax is None
    ax = _axes(ax)
    ax.view_init(elev=elevation, azim=azimuth)
    ax.set_proj_type("ortho" if flat else "persp", **({} if flat else {"focal_length": 1.6}))
    light = _light(azimuth, elevation)
    if level is not None:
        _add_ground(ax, points @ turn.T, level)
    if tilted:
        _add_slopes(ax, tilted)
    _add_solids(ax, bodies, turn, light)
    for k, body in enumerate(bodies):
        fade = _fade(k, len(bodies))
        for line, color, style in body.lines:
            ax.plot(*(line @ turn.T).T, color=_mixed(color, fade), ls=style, lw=1.4, zorder=6)
    for path in paths:
        ax.plot(*(path @ turn.T).T, color="#c8374b", lw=1.6, zorder=6, label="trace")
    _add_triads(ax, [(name, turned(X[None], turn)[0]) for name, X in triads], 3.2 * size)
    for name, X in triads:
        carrier = tracked(last, [name])[0][0] if name else -1
        if carrier >= 0:  # what carries the frame
            ax.plot(*(turn @ np.stack([poses[-1][carrier, :3, 3], X[:3, 3]], axis=1)), color=BONE, lw=1.2, zorder=6)
    kinds: dict[str, Kind] = {}
    for body in bodies:
        kinds |= body.kinds
    shown = bool(kinds) and (own if legend is None else legend)
    _fit(ax, near, own, shown, len(kinds))
    _add_names(ax, last, turned(poses[-1], turn), triads, turn, names, size)
    if shown:
        _add_legend(ax, kinds, own)
    return ax


def _axes(ax: Any) -> Any:
    """Axes in three dimensions: those that are given, checked, or new ones."""
    if ax is None:
        try:
            from matplotlib.figure import Figure
        except ImportError:
            raise ImportError("draw needs Matplotlib: pip install 'torsor[view]'") from None
        ax = Figure(figsize=(6.4, 6.4), dpi=120).add_axes((0, 0, 1, 1), projection="3d")
    if getattr(ax, "name", None) != "3d":
        hint = "figure.add_subplot(projection='3d') makes them"
        raise TypeError(f"ax must be axes in three dimensions, got {type(ax).__name__}; {hint}")
    ax.computed_zorder = False
    ax.set_axis_off()
    return ax


def _fade(k: int, n: int) -> float:
    """How strong the colours of figure k of n are."""
    return 1.0 if k == n - 1 else 0.2 + 0.4 * k / max(n - 1, 1)


def _rgb(color: str) -> FloatArray:
    return np.array([int(color[i : i + 2], 16) for i in (1, 3, 5)]) / 255.0


def _mixed(color: str, strength: float) -> FloatArray:
    """A colour, mixed with white."""
    return np.asarray(1.0 - strength * (1.0 - _rgb(color)))


def _light(azimuth: float, elevation: float) -> FloatArray:
    """Direction to the light, left of and above the camera."""
    around, above = np.radians(azimuth - 35.0), np.radians(min(elevation + 35.0, 80.0))
    return np.array([np.cos(around) * np.cos(above), np.sin(around) * np.cos(above), np.sin(above)])


def _add_solids(ax: Any, bodies: list[Skeleton], turn: FloatArray, light: FloatArray) -> None:
    """The solids of each figure as one collection, sorted by depth; supports are those of the last."""
    from mpl_toolkits.mplot3d.art3d import Poly3DCollection

    for k, body in enumerate(bodies):
        quads = [solid @ turn.T for solid, _ in body.solids]
        if k == len(bodies) - 1:
            quads += [solid @ turn.T for solid, _ in body.supports]
        if not quads:
            continue
        colors = [color for _, color in (*body.solids, *body.supports)]
        lit = [
            _rgb(color) * (0.74 + 0.26 * normals(solid) @ light)[:, None]
            for solid, color in zip(quads, colors, strict=False)
        ]
        faces = np.clip(1.0 - _fade(k, len(bodies)) * (1.0 - np.concatenate(lit)), 0.0, 1.0)
        # Later figures are in front of earlier ones, as if these were drawn on glass.
        order = 3.0 + 2.0 * (k + 1) / len(bodies)
        solids = Poly3DCollection(joined(quads), facecolors=faces, edgecolors=faces, linewidths=0.25, zorder=order)
        ax.add_collection3d(solids)


def _patch(points: FloatArray, level: float) -> tuple[FloatArray, float]:
    """Corners (4, 3) of a piece of ground below points, and the distance of its lines."""
    low, high = points[:, :2].min(axis=0), points[:, :2].max(axis=0)
    whole = max(float(np.linalg.norm(np.ptp(points, axis=0))), 1e-6)
    step = round_down(0.16 * whole)
    low = np.floor((low - 0.08 * whole) / step) * step
    high = np.ceil((high + 0.08 * whole) / step) * step
    (x0, y0), (x1, y1) = low, high
    return np.array([[x0, y0, level], [x1, y0, level], [x1, y1, level], [x0, y1, level]]), step


def _add_ground(ax: Any, points: FloatArray, level: float) -> None:
    from mpl_toolkits.mplot3d.art3d import Line3DCollection, Poly3DCollection

    corners, step = _patch(points, level)
    ax.add_collection3d(Poly3DCollection([corners], facecolors=_GROUND, zorder=0))
    (x0, y0, _), (x1, y1, _) = corners[0], corners[2]
    lines = [[(x, y0, level), (x, y1, level)] for x in np.arange(x0, x1 + step / 2, step)]
    lines += [[(x0, y, level), (x1, y, level)] for y in np.arange(y0, y1 + step / 2, step)]
    ax.add_collection3d(Line3DCollection(lines, colors=_GRID, linewidths=0.8, zorder=1))


def _add_slopes(ax: Any, pieces: list[FloatArray]) -> None:
    from mpl_toolkits.mplot3d.art3d import Poly3DCollection

    ax.add_collection3d(Poly3DCollection(pieces, facecolors=_GROUND, edgecolors=_GRID, zorder=0))


def _triads(model: Model, poses: FloatArray, frames: bool | Sequence[str] | None) -> list[tuple[str, FloatArray]]:
    """Names and poses of frames to show; the world's is first."""
    chosen: list[str] = []
    if frames is True:
        chosen = [f.name for f in model.frames]
    elif frames is not None and frames is not False:
        chosen = [frames] if isinstance(frames, str) else list(frames)
    out = [] if frames is False else [("", np.eye(4))]
    for name in chosen:
        if name != WORLD:
            ((body, pose),) = tracked(model, [name])
            out.append((name, (np.eye(4) if body < 0 else poses[body]) @ pose.matrix))
    return out


def _add_triads(ax: Any, triads: list[tuple[str, FloatArray]], length: float) -> None:
    """Axes of frames, each a line with the label "frame", the name of the frame, and that of the axis."""
    for name, X in triads:
        for k, axis in enumerate("xyz"):
            line = np.stack([X[:3, 3], X[:3, 3] + length * X[:3, k]], axis=1)
            ax.plot(*line, color=_AXES[k], lw=1.8, zorder=7, label=f"frame {name or WORLD} {axis}")


def _project(ax: Any, points: FloatArray) -> FloatArray:
    """Where points are on the page, in pixels (n, 2)."""
    from mpl_toolkits.mplot3d import proj3d

    x, y, _ = proj3d.proj_transform(*points.T, ax.get_proj())
    return np.asarray(ax.transData.transform(np.stack([np.asarray(x), np.asarray(y)], axis=-1)))


def _fit(ax: Any, points: FloatArray, own: bool, legend: bool, kinds: int) -> None:
    """Makes all points fill the axes, with the same scale along all axes; a new figure takes the form of them."""
    low, high = points.min(axis=0), points.max(axis=0)
    middle, half = (low + high) / 2, max(float(np.max(high - low)) / 2, 1e-9)
    ax.set(**{f"{k}lim": (c - half, c + half) for k, c in zip("xyz", middle.tolist(), strict=True)})
    ax.set_box_aspect((1, 1, 1))
    ax.apply_aspect()
    if not own:
        zoom = 1.0
        for _ in range(4):
            inside = ax.get_window_extent()
            page = _project(ax, points) - (inside.x0 + inside.width / 2, inside.y0 + inside.height / 2)
            zoom *= 0.47 * inside.width / max(np.abs(page).max(), 1e-9)
            ax.set_box_aspect((1, 1, 1), zoom=zoom)
        return
    figure = ax.figure
    page = _project(ax, points) / figure.dpi  # inches
    extent = np.maximum(np.ptp(page, axis=0), 1e-9)
    aspect = float(np.clip(extent[0] / extent[1], 0.55, 2.2))
    width, height = float(np.sqrt(_AREA * aspect)), float(np.sqrt(_AREA / aspect))
    strip = 0.3 * -(-kinds // max(1, int(width / 1.5))) if legend else 0.0
    scale = min(0.92 * width / extent[0], 0.92 * height / extent[1])
    figure.set_size_inches(width, height + strip)
    side, center = 6.4 * scale, (page.max(axis=0) + page.min(axis=0)) / 2 * scale
    left, bottom = np.array([width / 2, strip + height / 2]) - center
    whole = height + strip
    ax.set_position((left / width, bottom / whole, side / width, side / whole))
    ax.apply_aspect()


def _add_legend(ax: Any, kinds: dict[str, Kind], own: bool) -> None:
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=k.color, marker=k.marker or None, ls=":" if not k.marker else "", ms=6.5, label=k.name)
        for k in kinds.values()
    ]
    if own:
        columns = max(1, int(ax.figure.get_figwidth() / 1.5))
        place = {"loc": "lower center", "ncols": min(columns, len(handles)), "bbox_to_anchor": (0.5, 0.0)}
        ax.figure.legend(handles=handles, frameon=False, fontsize=8, labelcolor=_INK, **place)
    else:
        ax.legend(handles=handles, frameon=False, fontsize=8, labelcolor=_INK, loc="upper left")


def _add_names(
    ax: Any,
    model: Model,
    poses: FloatArray,
    triads: list[tuple[str, FloatArray]],
    turn: FloatArray,
    names: bool | Sequence[str],
    size: float,
) -> None:
    """Names of frames, and of joints where they are asked for, beside what they name and clear of each other."""
    from matplotlib.patheffects import withStroke
    from matplotlib.textpath import TextPath

    wanted = [(name, turn @ X[:3, 3]) for name, X in triads if name]
    if names is True:
        wanted += [(b.joint_name, X[:3, 3]) for b, X in zip(model.bodies, poses, strict=True)]
    elif names is not False:
        for name in [names] if isinstance(names, str) else names:
            wanted.append((name, poses[model._find(name, "joint"), :3, 3]))
    if not wanted:
        return
    points = np.array([p for _, p in wanted])
    page = _project(ax, points)
    # Directions of the page in the world, and the length of a pixel there.
    whole = float(np.linalg.norm(np.ptp(points, axis=0))) or 1.0
    azimuth, elevation = np.radians(ax.azim), np.radians(ax.elev)
    right = np.array([-np.sin(azimuth), np.cos(azimuth), 0.0])
    toward = np.array([np.cos(azimuth) * np.cos(elevation), np.sin(azimuth) * np.cos(elevation), np.sin(elevation)])
    up = np.cross(toward, right)
    beside = np.linalg.norm(_project(ax, points + 1e-3 * whole * right) - page, axis=-1)
    pixel = 1e-3 * whole / np.maximum(beside, 1e-9)
    dots = ax.figure.dpi / 72
    height = 1.5 * _FONT * dots
    center = page.mean(axis=0)
    taken: list[tuple[float, float, float, float]] = []
    for (name, point), (x, y), length in zip(wanted, page, pixel, strict=True):
        width = dots * (TextPath((0, 0), name, size=_FONT).get_extents().width + 3)
        for dx, dy in _around(height, -1.0 if x < center[0] else 1.0):
            left = x + dx if dx >= 0 else x + dx - width
            area = (left, y + dy - height / 2, left + width, y + dy + height / 2)
            if not any(area[0] < b[2] and b[0] < area[2] and area[1] < b[3] and b[1] < area[3] for b in taken):
                break
        taken.append(area)
        place = point + length * (dx * right + dy * up)
        ax.plot(*np.stack([point, place], axis=1), color="#98a2ad", lw=0.6, zorder=8)
        side = "left" if dx >= 0 else "right"
        text = ax.text(*place, name, fontsize=_FONT, color=_INK, ha=side, va="center", zorder=9)
        text.set_path_effects([withStroke(linewidth=2.0, foreground="white")])


def _around(height: float, side: float) -> list[tuple[float, float]]:
    """Places for a label about a point, from the nearest outwards, in pixels; those on one side before others."""
    out = []
    for ring in range(1, 14):
        for angle in (0.35, -0.35, 0.9, -0.9, 1.4, -1.4, np.pi - 0.35, np.pi + 0.35, np.pi - 0.9, np.pi + 0.9):
            away = 1.1 * ring * height
            place = (side * away * float(np.cos(angle)), away * float(np.sin(angle)))
            out.append((ring if abs(angle) < 2 else ring + 2, place))
    return [place for _, place in sorted(out, key=lambda found: found[0])]
