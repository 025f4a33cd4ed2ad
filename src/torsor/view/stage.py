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
    from torsor._typing import FloatArray
    from torsor.constraints.constraint import Constraint
    from torsor.view.geometry import Extent, Part, Show
    from torsor.view.motion import Motion, State

Overlay = Callable[["State", "FloatArray", float], None]  # shows a state, with the poses of bodies, at a time

_FIELD_OF_VIEW = 0.7  # of the camera, upright, in radians
_GHOST = (0.55, 0.62, 0.72, 0.35)
_RED, _GREEN, _YELLOW = (214, 60, 50), (60, 150, 80), (240, 190, 40)


def wxyz(R: FloatArray) -> FloatArray:
    """Quaternions (..., 4), scalar first, of rotations (..., 3, 3)."""
    return np.roll(matrix_to_quaternion(R), 1, axis=-1)


def rgb(color: Sequence[float]) -> tuple[int, int, int]:
    """A colour from 0 to 255."""
    red, green, blue = (round(255 * min(max(c, 0.0), 1.0)) for c in color[:3])
    return red, green, blue


class Figure:
    """A model in a scene: one node for all bodies that are fixed to each other, with what is drawn of them below it.

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
        self._root = scene.add_frame(path, show_axes=False, position=offset)
        self._carriers, within = geometry.rigid_groups(model)
        self._nodes: dict[int, Any] = {}
        self._last: dict[int, tuple[FloatArray, FloatArray]] = {}
        for k, part in enumerate(drawn):
            carrier = self._carriers[part.body] if part.body >= 0 else -1
            if carrier not in self._nodes:
                name = model.bodies[carrier].name if carrier >= 0 else WORLD
                label = f"{path}/{carrier} {name.replace('/', '|')}"
                self._nodes[carrier] = scene.add_frame(label, show_axes=False)
            pose = within[part.body] if part.body >= 0 else np.eye(4)
            shade = part.color if color is None else color
            scene.add_mesh_simple(
                f"{self._nodes[carrier].name}/{k} {part.name.rsplit('/', 1)[-1]}",
                vertices=(part.vertices @ pose[:3, :3].T + pose[:3, 3]).astype(np.float32),
                faces=part.faces,
                color=rgb(shade),
                opacity=shade[3] if shade[3] < 1.0 else None,
                side="double",
                cast_shadow=color is None and carrier >= 0,
                receive_shadow=False,
            )
        self._moving = [carrier for carrier in self._nodes if carrier >= 0]

    def move(self, poses: FloatArray) -> None:
        """Moves it to the poses (nbodies, 4, 4) of its bodies. Of nodes that have not moved nothing is sent."""
        if not self._moving:
            return
        chosen = poses[self._moving]
        turns, places = wxyz(chosen[:, :3, :3]), chosen[:, :3, 3]
        for carrier, turn, place in zip(self._moving, turns, places, strict=True):
            node, last = self._nodes[carrier], self._last.get(carrier)
            if last is None or (turn != last[0]).any():
                node.wxyz = turn
            if last is None or (place != last[1]).any():
                node.position = place
            self._last[carrier] = turn, place

    def remove(self) -> None:
        """Takes it out of the scene."""
        self._root.remove()


@dataclass
class _Actor:
    """A motion, its figure, and where it stands."""

    motion: Motion
    offset: FloatArray
    ghost: bool
    path: str
    figure: Figure | None = None
    overlays: list[Overlay] = field(default_factory=list)


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
        self.extent: Extent = geometry.extent(model, model.neutral, geometry.parts(model, show))
        self._added: dict[str, Callable[[_Actor], Overlay | None]] = {}
        self._count = 0
        self.up = _up(model)
        self._grid: Any = None
        self._grid_shown = True
        self.scene.set_up_direction(tuple(self.up))
        self.scene.world_axes.visible = False

    # ---- who is on stage

    def play(self, motions: Sequence[Motion], spacing: float | None = None) -> None:
        """Puts motions on the stage in place of all others, side by side, at multiples of the `spacing`."""
        with self.server.atomic():
            for actor in self.actors:
                self._clear(actor)
            self.actors = []
            one = self._measured(motions[:1])
            self.extent = one
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
        made = [] if actor.ghost else [add(actor) for add in self._added.values()]
        actor.overlays = [overlay for overlay in made if overlay is not None]

    def _clear(self, actor: _Actor) -> None:
        if actor.figure is not None:
            actor.figure.remove()
        actor.figure, actor.overlays = None, []

    def set_show(self, show: Show) -> None:
        """Draws the same motions by other shapes."""
        self.show = show
        self._redress()

    def _redress(self) -> None:
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
                    for update in actor.overlays:
                        update(state, poses, time)

    @property
    def span(self) -> tuple[float, float]:
        """First and last time of all motions."""
        times = [actor.motion.t for actor in self.actors] or [np.zeros(1)]
        return min(float(t[0]) for t in times), max(float(t[-1]) for t in times)

    # ---- what is drawn on top

    def _overlay(self, key: str, add: Callable[[_Actor], Overlay | None], on: bool = True) -> None:
        if on:
            self._added[key] = add
        else:
            self._added.pop(key, None)
        self._redress()

    def add_frame(self, name: str, length: float | None = None) -> None:
        """Draws the axes of a body or of a frame."""
        self.model.frame(name)  # an error, if there is none

        def add(actor: _Actor) -> Overlay:
            size = 0.12 * self.extent.size if length is None else length
            place = actor.motion.model._find(name, "frame")
            label = f"{actor.path}/frame {name.replace('/', '|')}"
            node = self.scene.add_frame(label, axes_length=size, axes_radius=0.04 * size, origin_radius=0.06 * size)

            def update(state: State, poses: FloatArray, time: float) -> None:
                (T,) = place_poses(state.model, poses, [place])
                node.wxyz, node.position = wxyz(T[:3, :3]), T[:3, 3]

            return update

        self._overlay(f"frame {name}", add)

    def frames(self, on: bool) -> None:
        """Draws the axes of all bodies, or none."""

        def add(actor: _Actor) -> Overlay | None:
            size = 0.05 * self.extent.size
            count = actor.motion.model.nbodies
            if not count:
                return None
            node = self.scene.add_batched_axes(
                f"{actor.path}/frames",
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

        def add(actor: _Actor) -> Overlay | None:
            radius = 0.018 * self.extent.size
            if not np.isfinite(center_of_mass(actor.motion.model, actor.motion.q[0])).all():
                return None  # nothing that moves has mass
            node = self.scene.add_icosphere(f"{actor.path}/centre of mass", radius=radius, color=_YELLOW)

            def update(state: State, poses: FloatArray, time: float) -> None:
                node.position = center_of_mass(state.model, state.q)

            return update

        self._overlay("center of mass", add, on)

    def contacts(self, on: bool = True, scale: float | None = None) -> None:
        """Draws the places of motions where shapes touch, and the forces there, as arrows of the length force times
        `scale`; by default the weight of the model has a third of its size."""
        weight = self.model.mass * float(np.linalg.norm(self.model.gravity)) or 1.0

        def add(actor: _Actor) -> Overlay | None:
            size = self.extent.size
            factor = 0.35 * size / weight if scale is None else scale
            trajectory, i = actor.motion.trajectory, actor.motion.index
            if trajectory is None or not len(trajectory.contacts.force_index):
                return None
            found = trajectory.contacts
            count = len(trajectory.batch_shape)
            gap, point, force = (x.reshape(-1, *x.shape[count:])[i] for x in (found.gap, found.point, found.force))
            width = 0.008 * size
            nothing = np.zeros((1, 2, 3), np.float32)
            arrows = self.scene.add_arrows(
                f"{actor.path}/contact forces", nothing, _RED, shaft_radius=0.6 * width, head_radius=1.6 * width,
                head_length=4.0 * width, visible=False,
            )  # fmt: skip
            dots = self.scene.add_point_cloud(
                f"{actor.path}/contact points", nothing[0, :1], _RED, point_size=2.0 * width, point_shape="circle",
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

        def add(actor: _Actor) -> Overlay | None:
            width = 0.006 * self.extent.size
            trajectory = actor.motion.trajectory
            held = actor.motion.model.constraints if trajectory is None else trajectory.constraints
            if not held:
                return None
            nothing = np.zeros((1, 2, 3), np.float32)
            lines = self.scene.add_line_segments(
                f"{actor.path}/gaps", nothing, _RED, thickness=width, visible=False
            )  # fmt: skip
            dots = self.scene.add_point_cloud(
                f"{actor.path}/constraints", nothing[0, :1], _GREEN, point_size=3.0 * width, point_shape="circle",
                precision="float32", visible=False,
            )  # fmt: skip

            def update(state: State, poses: FloatArray, time: float) -> None:
                ends = constraint_gaps(state.model, held, poses, time)
                open_ = np.linalg.norm(ends[:, 1] - ends[:, 0], axis=-1) > 1e-4 * self.extent.size
                _set_points(lines, ends[open_])
                _set_points(dots, ends[:, 1])

            return update

        self._overlay("gaps", add, on)

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
        self.scene.configure_default_lights(cast_shadow=True)
        self.scene.configure_environment_map("studio", environment_intensity=0.2)
        center = extent.center
        towards = self._view_direction()
        distance = 0.5 * size / np.sin(0.5 * _FIELD_OF_VIEW) * 1.05
        self.server.initial_camera.fov = _FIELD_OF_VIEW
        self.server.initial_camera.look_at = center
        self.server.initial_camera.position = center + distance * towards
        self.server.initial_camera.near = 0.01 * distance
        self.server.initial_camera.far = 100.0 * distance

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
        """Height of the grid: that of the origin, unless the model is below it."""
        corners = np.stack([self.extent.lower, self.extent.upper]) * self.up
        lowest = float(corners.min(axis=0).sum())
        return 0.0 if lowest > -0.02 * self.extent.size else lowest - 0.02 * self.extent.size

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
