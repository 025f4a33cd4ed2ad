"""The scene of a viewer: models in motion, the ground, light, the camera, and what is drawn on top."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from torsor.dynamics import center_of_mass
from torsor.joints import z_to
from torsor.kinematics import body_poses, place_poses
from torsor.model import WORLD, Model
from torsor.shapes import HalfSpace
from torsor.spatial import matrix_to_quaternion
from torsor.view import geometry

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from torsor._typing import FloatArray
    from torsor.constraints.constraint import Constraint
    from torsor.view.geometry import Extent, Part, Show
    from torsor.view.motion import Motion, State

Overlay = Callable[["State", "FloatArray", float], None]  # shows a state, with the poses of bodies, at a time

_FIELD_OF_VIEW = 0.7  # of the camera, upright, in radians
_MANY = 8  # bodies that look the same, from which on one node draws them
_GHOST = (0.55, 0.62, 0.72, 0.35)
_RED, _GREEN, _YELLOW = (225, 0, 80), (60, 150, 80), (240, 190, 40)


def wxyz(R: FloatArray) -> FloatArray:
    """Quaternions (..., 4), scalar first, of rotations (..., 3, 3)."""
    return np.roll(matrix_to_quaternion(R), 1, axis=-1)


def rgb(color: Sequence[float]) -> tuple[int, int, int]:
    """A colour from 0 to 255."""
    red, green, blue = (round(255 * min(max(c, 0.0), 1.0)) for c in color[:3])
    return red, green, blue


class Figure:
    """A model in a scene: a node for all bodies that are fixed to each other, with what is drawn of them. Where many
    look the same, as the links of a chain, one node draws them all.

    Parameters
    ----------
    scene : viser.SceneApi
    path : str
        Its node.
    model : Model
    drawn : sequence of Part
    offset : (3,)
        By which it is moved.
    color : (4,), optional
        Colour and opacity in place of those of the parts.
    """

    def __init__(
        self,
        scene: Any,
        path: str,
        model: Model,
        drawn: Sequence[Part],
        offset: FloatArray,
        color: geometry.Color | None = None,
    ) -> None:
        self._scene, self._path = scene, path
        self._root = scene.add_frame(path, show_axes=False, position=offset)
        self._nodes: list[tuple[int, Any]] = []  # the bodies that carry them, and nodes
        self._batches: list[tuple[list[int], Any]] = []
        self._last = np.full((model.nbodies, 7), np.nan)
        self._ghost = color is not None
        pieces = _pieces(model, drawn, color)
        alike: dict[tuple[bytes, bytes, float], list[_Piece]] = {}
        for piece in pieces:
            key = piece.vertices.tobytes(), piece.faces.tobytes(), piece.color[3]
            alike.setdefault(key, []).append(piece)
        for k, group in enumerate(alike.values()):
            if len(group) >= _MANY and all(piece.carrier >= 0 for piece in group):
                self._add_batch(f"{path}/{k}", group)
            else:
                for i, piece in enumerate(group):
                    name = model.bodies[piece.carrier].name if piece.carrier >= 0 else WORLD
                    self._add_piece(f"{path}/{k}.{i} {name.replace('/', '|')}", piece)
        self._moving = sorted({carrier for carrier, _ in self._nodes} | {c for cs, _ in self._batches for c in cs})

    def _options(self, piece: _Piece) -> dict[str, Any]:
        return {
            "opacity": piece.color[3] if piece.color[3] < 1.0 else None,
            "side": "double",
            "cast_shadow": not self._ghost and piece.carrier >= 0,
            "receive_shadow": False,
        }

    def _add_piece(self, name: str, piece: _Piece) -> None:
        node = self._scene.add_mesh_simple(
            name, vertices=piece.vertices, faces=piece.faces, color=rgb(piece.color), **self._options(piece)
        )
        if piece.carrier >= 0:
            self._nodes.append((piece.carrier, node))

    def _add_batch(self, name: str, group: list[_Piece]) -> None:
        node = self._scene.add_batched_meshes_simple(
            name,
            vertices=group[0].vertices,
            faces=group[0].faces,
            batched_wxyzs=np.tile(np.array([1, 0, 0, 0], np.float32), (len(group), 1)),
            batched_positions=np.zeros((len(group), 3), np.float32),
            batched_colors=np.array([rgb(piece.color) for piece in group], np.uint8),
            lod="off",
            **self._options(group[0]),
        )
        self._batches.append(([piece.carrier for piece in group], node))

    def move(self, poses: FloatArray) -> None:
        """Moves it to the poses (nbodies, 4, 4) of its bodies. Of nodes that have not moved nothing is sent."""
        if not self._moving:
            return
        chosen = poses[self._moving]
        now = np.full_like(self._last, np.nan)
        now[self._moving, :4], now[self._moving, 4:] = wxyz(chosen[:, :3, :3]), chosen[:, :3, 3]
        turned, gone = (now[:, :4] != self._last[:, :4]).any(axis=1), (now[:, 4:] != self._last[:, 4:]).any(axis=1)
        for carrier, node in self._nodes:
            if turned[carrier]:
                node.wxyz = now[carrier, :4]
            if gone[carrier]:
                node.position = now[carrier, 4:]
        for carriers, node in self._batches:
            if turned[carriers].any() or gone[carriers].any():
                node.batched_wxyzs = now[carriers, :4].astype(np.float32)
                node.batched_positions = now[carriers, 4:].astype(np.float32)
        self._last = now

    def remove(self) -> None:
        """Takes it out of the scene."""
        self._root.remove()


@dataclass(frozen=True)
class _Piece:
    """What is drawn in one colour of bodies that are fixed to each other, in the frame of the first of them."""

    carrier: int
    vertices: NDArray[np.float32]
    faces: NDArray[np.int32]
    color: geometry.Color


def _pieces(model: Model, drawn: Sequence[Part], color: geometry.Color | None) -> list[_Piece]:
    carriers, within = geometry.rigid_groups(model)
    found: dict[tuple[int, geometry.Color], list[Part]] = {}
    for part in drawn:
        carrier = carriers[part.body] if part.body >= 0 else -1
        found.setdefault((carrier, part.color if color is None else color), []).append(part)
    out = []
    for (carrier, shade), parts in found.items():
        vertices, faces, first = [], [], 0
        for part in parts:
            pose = within[part.body] if part.body >= 0 else np.eye(4)
            vertices.append(part.vertices @ pose[:3, :3].T + pose[:3, 3])
            faces.append(part.faces + first)
            first += len(part.vertices)
        out.append(_Piece(carrier, np.concatenate(vertices).astype(np.float32), np.concatenate(faces), shade))
    return out


@dataclass
class _Actor:
    """A motion, its figure, and where it stands."""

    motion: Motion
    offset: FloatArray
    ghost: bool
    path: str
    figure: Figure | None = None
    overlays: dict[str, Overlay] = field(default_factory=dict)


class Stage:
    """All that is drawn of motions at a time.

    Parameters
    ----------
    server : viser.ViserServer
    model : Model
    show : {"visual", "collision", "inertia", "skeleton"}
    limit : int, optional
        Most triangles of a part; finer ones are made coarser.
    """

    def __init__(self, server: Any, model: Model, show: Show, limit: int | None = None) -> None:
        self.server, self.scene, self.model = server, server.scene, model
        self.show, self._limit = show, limit
        self.actors: list[_Actor] = []
        self.extent: Extent = geometry.extent(model, model.start, geometry.parts(model, show))
        self._begin = self.extent  # of the first configuration
        self._added: dict[str, Callable[[_Actor, str], Overlay | None]] = {}
        self._count = 0
        self.up = _up(model)
        self._grid: Any = None
        self._grid_shown = True
        self.scene.set_up_direction(tuple(self.up))
        self.scene.world_axes.visible = False
        # Light of the sky in place of that of a picture, which takes long to load where there is no graphics card.
        self.scene.configure_environment_map(None)
        self.scene.add_light_hemisphere("/sky", ground_color=(150, 145, 140), intensity=1.9, position=tuple(self.up))

    # ---- who is on stage

    def play(self, motions: Sequence[Motion], spacing: float | None = None) -> None:
        """Puts motions on the stage in place of all others, side by side, at multiples of the `spacing`."""
        with self.server.atomic():
            for actor in self.actors:
                self._clear(actor)
            self.actors = []
            one = self.extent = self._measured(motions[:1])
            for motion in motions[:1]:
                self._begin = geometry.extent(motion.model, motion.q[0], geometry.parts(motion.model, self.show))
            for motion, offset in zip(motions, self._places(len(motions), one, spacing), strict=True):
                self._enter(motion, offset, ghost=False)
            several = [self._measured([actor.motion], actor.offset) for actor in self.actors[:64]]
            self.extent = _union([one, *several])
        self.fit()

    def add_ghost(self, motion: Motion) -> None:
        """Puts a motion on the stage, transparent, where the first one is."""
        self._enter(motion, self.actors[0].offset if self.actors else np.zeros(3), ghost=True)

    def remove_ghosts(self) -> None:
        """Takes ghosts off the stage."""
        for actor in [actor for actor in self.actors if actor.ghost]:
            self._clear(actor)
            self.actors.remove(actor)

    def _enter(self, motion: Motion, offset: FloatArray, ghost: bool) -> None:
        self._count += 1
        actor = _Actor(motion, offset, ghost, f"/{'ghost' if ghost else 'model'} {self._count}")
        self.actors.append(actor)
        self._dress(actor)

    def _dress(self, actor: _Actor) -> None:
        """Draws a motion: its model, and what is drawn on top."""
        drawn = self._parts(actor.motion.model)
        if actor.ghost:
            drawn = [part for part in drawn if part.body >= 0]
        color = _GHOST if actor.ghost else None
        actor.figure = Figure(self.scene, actor.path, actor.motion.model, drawn, actor.offset, color)
        for key in self._added if not actor.ghost else ():
            self._put_on(actor, key)

    def _put_on(self, actor: _Actor, key: str) -> None:
        """Draws something on top of a motion, if it has such a thing."""
        update = self._added[key](actor, f"{actor.path}/{key}")
        if update is not None:
            actor.overlays[key] = update

    def _clear(self, actor: _Actor) -> None:
        if actor.figure is not None:
            actor.figure.remove()
        actor.figure, actor.overlays = None, {}

    def set_show(self, show: Show) -> None:
        """Draws the same motions by other shapes."""
        self.show = show
        with self.server.atomic():
            for actor in self.actors:
                self._clear(actor)
                self._dress(actor)

    def _parts(self, model: Model) -> list[Part]:
        ground = self._ground()
        drawn = [part for part in geometry.parts(model, self.show) if ground is None or not _is_ground(part)]
        return drawn if self._limit is None else [geometry.coarser(part, self._limit) for part in drawn]

    def at(self, time: float) -> None:
        """Shows all motions at a time."""
        with self.server.atomic():
            for actor in self.actors:
                if actor.figure is not None:
                    state = actor.motion.at(time)
                    poses = body_poses(state.model, state.q)
                    actor.figure.move(poses)
                    for update in actor.overlays.values():
                        update(state, poses, time)

    @property
    def span(self) -> tuple[float, float]:
        """First and last time of all motions."""
        times = [actor.motion.t for actor in self.actors] or [np.zeros(1)]
        return min(float(t[0]) for t in times), max(float(t[-1]) for t in times)

    # ---- what is drawn on top

    def _overlay(self, key: str, add: Callable[[_Actor, str], Overlay | None], on: bool = True) -> None:
        """Draws something on top of all motions, or no longer: `add` draws it at a node, and returns what shows it."""
        with self.server.atomic():
            for actor in self.actors:
                if actor.overlays.pop(key, None) is not None:
                    self.scene.remove_by_name(f"{actor.path}/{key}")
            self._added.pop(key, None)
            if on:
                self._added[key] = add
                for actor in (actor for actor in self.actors if not actor.ghost):
                    self._put_on(actor, key)

    def add_frame(self, name: str, length: float | None = None) -> None:
        """Draws the axes of a body or of a frame."""
        self.model.frame(name)  # an error, if there is none

        def add(actor: _Actor, path: str) -> Overlay:
            size = 0.12 * self.extent.size if length is None else length
            place = actor.motion.model._find(name, "frame")
            node = self.scene.add_frame(path, axes_length=size, axes_radius=0.04 * size, origin_radius=0.06 * size)

            def update(state: State, poses: FloatArray, time: float) -> None:
                (T,) = place_poses(state.model, poses, [place])
                node.wxyz, node.position = wxyz(T[:3, :3]), T[:3, 3]

            return update

        self._overlay(f"frame {name.replace('/', '|')}", add)

    def frames(self, on: bool) -> None:
        """Draws the axes of all bodies, or none."""

        def add(actor: _Actor, path: str) -> Overlay | None:
            size = 0.05 * self.extent.size
            count = actor.motion.model.nbodies
            if not count:
                return None
            node = self.scene.add_batched_axes(
                path,
                np.tile([1.0, 0.0, 0.0, 0.0], (count, 1)),
                np.zeros((count, 3)),
                axes_length=size,
                axes_radius=0.05 * size,
            )

            def update(state: State, poses: FloatArray, time: float) -> None:
                node.batched_wxyzs = wxyz(poses[:, :3, :3]).astype(np.float32)
                node.batched_positions = poses[:, :3, 3].astype(np.float32)

            return update

        self._overlay("frames", add, on)

    def center_of_mass(self, on: bool = True) -> None:
        """Draws the centre of mass, or none."""

        def add(actor: _Actor, path: str) -> Overlay | None:
            radius = 0.018 * self.extent.size
            if not np.isfinite(center_of_mass(actor.motion.model, actor.motion.q[0])).all():
                return None  # nothing that moves has mass
            node = self.scene.add_icosphere(path, radius=radius, color=_YELLOW)

            def update(state: State, poses: FloatArray, time: float) -> None:
                node.position = center_of_mass(state.model, state.q)

            return update

        self._overlay("center of mass", add, on)

    def contacts(self, on: bool = True, scale: float | None = None) -> None:
        """Draws the places of motions where shapes touch, and the forces there, as arrows of the length force times
        `scale`; by default the weight of the model has two thirds of its size."""
        weight = self.model.mass * float(np.linalg.norm(self.model.gravity)) or 1.0

        def add(actor: _Actor, path: str) -> Overlay | None:
            size = self.extent.size
            factor = 0.7 * size / weight if scale is None else scale
            trajectory, i = actor.motion.trajectory, actor.motion.index
            if trajectory is None or not len(trajectory.contacts.force_index):
                return None
            found = trajectory.contacts
            count = len(trajectory.batch_shape)
            gap, point, force = (x.reshape(-1, *x.shape[count:])[i] for x in (found.gap, found.point, found.force))
            width = 0.01 * size
            nothing = np.zeros((1, 2, 3), np.float32)
            arrows = self.scene.add_arrows(
                f"{path}/forces", nothing, _RED, shaft_radius=0.6 * width, head_radius=1.6 * width,
                head_length=4.0 * width, visible=False,
            )  # fmt: skip
            dots = self.scene.add_point_cloud(
                f"{path}/points", nothing[0, :1], _RED, point_size=2.0 * width, point_shape="circle",
                precision="float32", visible=False,
            )  # fmt: skip

            def update(state: State, poses: FloatArray, time: float) -> None:
                touching = gap[state.row] < 0
                pushed = (force[state.row] != 0).any(axis=-1)
                here = point[state.row]
                ends = np.stack([here, here + factor * force[state.row]], axis=1)[pushed]
                _set_points(arrows, ends)
                _set_points(dots, here[touching | pushed])

            return update

        self._overlay("contacts", add, on)

    def constraint_gaps(self, on: bool = True) -> None:
        """Draws where constraints hold bodies together, and lines where they are open."""

        def add(actor: _Actor, path: str) -> Overlay | None:
            width = 0.006 * self.extent.size
            trajectory = actor.motion.trajectory
            held = actor.motion.model.constraints if trajectory is None else trajectory.constraints
            if not held:
                return None
            nothing = np.zeros((1, 2, 3), np.float32)
            lines = self.scene.add_line_segments(
                f"{path}/gaps", nothing, _RED, thickness=width, visible=False
            )  # fmt: skip
            dots = self.scene.add_point_cloud(
                f"{path}/points", nothing[0, :1], _GREEN, point_size=3.0 * width, point_shape="circle",
                precision="float32", visible=False,
            )  # fmt: skip

            def update(state: State, poses: FloatArray, time: float) -> None:
                ends = constraint_gaps(state.model, held, poses, time)
                open_ = np.linalg.norm(ends[:, 1] - ends[:, 0], axis=-1) > 1e-4 * self.extent.size
                _set_points(lines, ends[open_])
                _set_points(dots, ends[:, 1])

            return update

        self._overlay("constraints", add, on)

    # ---- ground, light and camera

    def fit(self) -> None:
        """Puts the ground below, and the camera where all is in view."""
        extent, size = self.extent, self.extent.size
        ground = self._ground()
        height = float(ground) if ground is not None else self._floor()
        cell = 10.0 ** np.floor(np.log10(0.5 * size))
        turned = z_to(self.up)
        if self._grid is not None:
            self._grid.remove()
        self._grid = self.scene.add_grid(
            "/ground",
            infinite_grid=True,
            fade_distance=12.0 * size,
            fade_strength=1.5,
            cell_size=cell,
            section_size=5.0 * cell,
            cell_color=(212, 216, 222),
            section_color=(176, 184, 196),
            cell_thickness=0.8,
            section_thickness=1.2,
            shadow_opacity=0.22,
            wxyz=wxyz(turned),
            position=height * self.up,
            visible=self._grid_shown,
        )
        center = extent.center
        towards = self._view_direction()
        distance = self._distance(towards)
        self.server.initial_camera.fov = _FIELD_OF_VIEW
        self.server.initial_camera.look_at = center
        self.server.initial_camera.position = center + distance * towards
        self.server.initial_camera.near = 0.01 * distance
        self.server.initial_camera.far = 100.0 * distance

    def _distance(self, towards: FloatArray) -> float:
        """Of the camera in this direction from the middle, so that all corners are in a picture a little wider than
        high, with some room around."""
        side = np.cross(self.up, towards)
        axes = np.stack([side / np.linalg.norm(side), np.cross(towards, side / np.linalg.norm(side)), towards])
        half = 0.5 * (self.extent.upper - self.extent.lower)
        corners = np.stack(np.meshgrid([-1, 1], [-1, 1], [-1, 1]), axis=-1).reshape(-1, 3) * half
        across, above, near = axes @ corners.T
        slope = 0.9 * np.tan(0.5 * _FIELD_OF_VIEW)
        return float(max((near + np.abs(above) / slope).max(), (near + np.abs(across) / (1.2 * slope)).max()))

    def set_ground(self, on: bool) -> None:
        """Shows the grid of the ground, or hides it."""
        self._grid.visible = self._grid_shown = on

    def look(self) -> None:
        """Moves the cameras of pages that are open to where those of new ones are."""
        start = self.server.initial_camera
        for client in self.server.get_clients().values():
            with client.atomic():
                client.camera.look_at, client.camera.position = start.look_at, start.position

    def _ground(self) -> float | None:
        """Height of the model's own level ground, if it has one."""
        for collision in self.model.world_collisions:
            shape = collision.shape
            if isinstance(shape, HalfSpace):
                normal = np.array(shape.normal) / np.linalg.norm(shape.normal)
                if normal @ self.up > 0.999:
                    return shape.offset
        return None

    def _floor(self) -> float:
        """Height of the grid: that of the origin, unless the model begins below it, else that of its lowest place."""
        begin, lowest = (float((np.stack(x) * self.up).min(axis=0).sum()) for x in (self._begin, self.extent))
        return 0.0 if begin > -0.02 * self.extent.size else lowest - 0.02 * self.extent.size

    def _view_direction(self) -> FloatArray:
        """From the middle to the camera: from the front and a little above, more along what is flat."""
        turned = z_to(self.up)
        lengths = np.abs((self.extent.upper - self.extent.lower) @ turned)
        flat = 1.0 - lengths[:2] / max(lengths[:2].sum(), 1e-12)
        across = np.array([0.2 + 0.8 * flat[0], -(0.2 + 0.8 * flat[1])])
        out = turned @ np.array([*across, 0.35])
        return np.asarray(out / np.linalg.norm(out))

    def _measured(self, motions: Sequence[Motion], offset: FloatArray | float = 0.0) -> Extent:
        """The space that motions take up, but no more than some sizes of the model around where they begin."""
        boxes = []
        for motion in motions:
            drawn = geometry.parts(motion.model, self.show)
            first = geometry.extent(motion.model, motion.q[0], drawn)
            box = _union([geometry.extent(s.model, s.q, drawn) for s in motion.sampled(40)])
            reach = 2.5 * first.size
            low, high = np.maximum(box.lower, first.center - reach), np.minimum(box.upper, first.center + reach)
            boxes.append(geometry.Extent(low + offset, high + offset))
        return _union(boxes)

    def _places(self, count: int, one: Extent, spacing: float | None) -> list[FloatArray]:
        """Offsets of motions side by side, in rows across the ground."""
        turned = z_to(self.up)
        width = 1.25 * max(np.abs((one.upper - one.lower) @ turned)[:2].max(), 0.3 * one.size)
        step = width if spacing is None else spacing
        columns = int(np.ceil(np.sqrt(count)))
        return [
            turned @ np.array([-step * (k // columns), step * (k % columns), 0.0])  # backwards, and to the side
            for k in range(count)
        ]


def _up(model: Model) -> FloatArray:
    """The direction against gravity, z without it."""
    gravity = np.array(model.gravity)
    length = float(np.linalg.norm(gravity))
    return -gravity / length if length > 0 else np.array([0.0, 0.0, 1.0])


def _is_ground(part: Part) -> bool:
    """Whether a part is a half-space of the world, in place of which there is a grid."""
    return part.body < 0 and len(part.faces) == 2


def _union(extents: Sequence[Extent]) -> Extent:
    lower = np.min([extent.lower for extent in extents], axis=0)
    upper = np.max([extent.upper for extent in extents], axis=0)
    return geometry.Extent(lower, upper)


def _set_points(node: Any, points: FloatArray) -> None:
    """Gives a node other points, or hides it without any."""
    if len(points):
        node.points = points.astype(np.float32)
    if node.visible != bool(len(points)):
        node.visible = bool(len(points))


def constraint_gaps(model: Model, constraints: Sequence[Constraint], poses: FloatArray, time: float) -> FloatArray:
    """Where constraints of two bodies are open, (n, 2, 3): for each the point on the second body where the first one
    wants it to be, and where it is. Constraints of coordinates have none."""
    ends = []
    for constraint in constraints:
        for kind, *rest in constraint._parts(model.tree):
            if kind != "pair":
                continue
            (a, marker_a), (b, marker_b), rows, moving = rest
            A, B = place_poses(model, poses, [a, b])
            frame = np.asarray(marker_a) if moving is None else np.asarray(moving(time))
            R, origin = A[:3, :3] @ frame[:9].reshape(3, 3), A[:3, :3] @ frame[9:12] + A[:3, 3]
            at = B[:3, :3] @ np.asarray(marker_b)[9:12] + B[:3, 3]
            away = at - origin
            gap = np.zeros(3)
            for row in rows:
                if row[0] == "norm":
                    gap = away * (1.0 - row[1] / max(float(np.linalg.norm(away)), 1e-12))
                elif row[0] == "linear" and len(row[1]) == 1 and row[1][0][7]:
                    axis = R @ np.asarray(row[1][0][1:4])
                    gap = gap + (axis @ away - row[2]) * axis
            ends.append(np.stack([at - gap, at]))
    return np.stack(ends) if ends else np.zeros((0, 2, 3))
