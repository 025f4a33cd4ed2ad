"""What there is to draw of a model: triangles in the frames of its bodies, for any program that shows them.

Bodies are drawn by their visuals, else by their collision shapes, else by a solid that has their inertia, with rods to
the joints that they carry. So every model can be seen.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from torsor._errors import FormatError, FormatWarning
from torsor.joints import z_to
from torsor.kinematics import body_poses
from torsor.model import WORLD, Body, Model, Visual, require_model
from torsor.shapes import Box, Capsule, Cylinder, Ellipsoid, HalfSpace, HeightField, Mesh, Shape, Sphere, Terrain
from torsor.spatial import SE3

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from torsor._typing import FloatArray

Show = Literal["visual", "collision", "inertia", "skeleton"]
Color = tuple[float, float, float, float]
Surface = tuple["FloatArray", "NDArray[np.int32]"]  # vertices and faces

_SEGMENTS = 32  # of a circle
_AROUND = 2.0 * np.pi / _SEGMENTS * np.arange(_SEGMENTS)
_GREY: Color = (0.62, 0.64, 0.67, 1.0)

# Colours of bodies without colours of their own, one after the other: medium in lightness, low in saturation.
PALETTE: tuple[Color, ...] = (
    (0.35, 0.52, 0.72, 1.0),
    (0.87, 0.58, 0.34, 1.0),
    (0.42, 0.64, 0.46, 1.0),
    (0.76, 0.40, 0.40, 1.0),
    (0.58, 0.50, 0.72, 1.0),
    (0.36, 0.63, 0.67, 1.0),
    (0.83, 0.70, 0.38, 1.0),
    (0.78, 0.54, 0.66, 1.0),
)


@dataclass(frozen=True, eq=False)
class Part:
    """A surface of triangles on a body.

    Attributes
    ----------
    body : int
        Index of the body in `Model.bodies`, and in the rows of `body_poses`; -1 for the world.
    vertices : (n, 3)
        In the frame of the body.
    faces : (m, 3)
        Indices of the vertices of each triangle, counter-clockwise seen from outside.
    color : (4,)
        Red, green, blue and opacity, from 0 to 1.
    name : str
        Unique in a model: the name of the body, a stroke, what the part is, and its number.
    kind : {"visual", "collision", "inertia", "skeleton"}
        What it is drawn for.
    """

    body: int
    vertices: FloatArray
    faces: NDArray[np.int32]
    color: Color
    name: str
    kind: Show = "visual"


class Extent(NamedTuple):
    """The box, along the axes of the world, that a model takes up: its corners, (3,) each."""

    lower: FloatArray
    upper: FloatArray

    @property
    def center(self) -> FloatArray:
        """Middle of the box."""
        return 0.5 * (self.lower + self.upper)

    @property
    def size(self) -> float:
        """Length of its diagonal."""
        return float(np.linalg.norm(self.upper - self.lower))


def parts(model: Model, show: Show = "visual") -> tuple[Part, ...]:
    """What there is to draw of a model.

    Parameters
    ----------
    model : Model
    show : {"visual", "collision", "inertia", "skeleton"}
        "visual" draws the visuals of bodies, of a body that has none its collision shapes, and of one that has neither
        its inertia, with rods to the joints on it. "collision" draws collision shapes alone, "inertia" solids of
        uniform density with the inertia of their bodies, "skeleton" rods between joints and the axes of these.

    Returns
    -------
    tuple of Part
        Those of the world first, then in the order of the bodies.

    Warns
    -----
    FormatWarning
        Once for a model, of all mesh files that cannot be read.

    Examples
    --------
    >>> import torsor as ts
    >>> from torsor.view import geometry
    >>> [part.name for part in geometry.parts(ts.models.pendulum())]
    ['rod/visual0']
    """
    require_model(model)
    if show not in ("visual", "collision", "inertia", "skeleton"):
        raise ValueError(f"show is {show!r}, expected 'visual', 'collision', 'inertia' or 'skeleton'")
    key = f"view.geometry.{show}"
    if key not in model._cache:
        model._cache[key] = _Drawing(model).parts(show)
    found: tuple[Part, ...] = model._cache[key]
    return found


def extent(model: Model, q: ArrayLike, drawn: Sequence[Part] | None = None) -> Extent:
    """The box that the bodies of a model take up in one or more configurations; without bodies, a unit box.

    Parameters
    ----------
    model : Model
    q : (..., nq) array_like
        Those that are not finite are left out.
    drawn : sequence of Part, optional
        What is drawn, `parts` by default. Parts of the world, as the ground, do not count.
    """
    drawn = parts(model) if drawn is None else drawn
    q = np.asarray(q, float).reshape(-1, model.nq) if model.nq else np.zeros((1, 0))
    poses = body_poses(model, q[np.isfinite(q).all(axis=1)])
    points = [poses[..., :3, 3].reshape(-1, 3)]
    for part in drawn:
        if part.body >= 0 and len(part.vertices):
            low, high = part.vertices.min(axis=0), part.vertices.max(axis=0)
            corners = np.stack(np.meshgrid(*zip(low, high, strict=True)), axis=-1).reshape(-1, 3)
            T = poses[:, part.body]
            points.append((corners @ np.swapaxes(T[:, :3, :3], 1, 2) + T[:, None, :3, 3]).reshape(-1, 3))
    cloud = np.concatenate(points)
    if not len(cloud):
        return Extent(np.full(3, -0.5), np.full(3, 0.5))
    lower, upper = cloud.min(axis=0), cloud.max(axis=0)
    return Extent(lower, upper) if (upper > lower).any() else Extent(lower - 0.5, upper + 0.5)


class _Drawing:
    """The parts of one model in the making."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.unread: dict[str, str] = {}  # mesh files and why they cannot be read
        at = {body.name: i for i, body in enumerate(model.bodies)}
        self.children: list[list[Body]] = [[] for _ in model.bodies]
        for body in model.bodies:
            if body.parent != WORLD:
                self.children[at[body.parent]].append(body)
        # what is small, next to the bodies: half the typical distance of joints and centres of mass
        lengths = [float(np.linalg.norm(p)) for body in model.bodies for p in (body.placement.p, body.inertia.com)]
        lengths += [max(_solid_size(body)) for body in model.bodies if body.inertia.mass > 0]
        self.unit = 0.5 * float(np.median([x for x in lengths if x > 1e-9 * max(lengths)] or [1.0]))
        self.carriers, _ = rigid_groups(model)
        self.numbers = {carrier: k for k, carrier in enumerate(dict.fromkeys(self.carriers))}

    def parts(self, show: Show) -> tuple[Part, ...]:
        out: list[Part] = []
        if show in ("visual", "collision"):
            shapes = [collision.shape for collision in self.model.world_collisions]
            out += self._collected(-1, "collision", self._collisions(shapes, _GREY))
        bodies = self.model.bodies
        if show == "visual":
            found = [self._visuals_of(i) or self._collisions_of(i) for i in range(len(bodies))]
            seen = {carrier for carrier, shapes_of in zip(self.carriers, found, strict=True) if shapes_of}
            for i, body in enumerate(bodies):
                if found[i]:
                    out += found[i]
                elif body.visuals or body.collisions or self.carriers[i] not in seen:
                    out += self._solid_of(i) + self._skeleton_of(i)
        else:
            make = {"collision": self._collisions_of, "inertia": self._solid_of, "skeleton": self._skeleton_of}[show]
            out += [part for i in range(len(bodies)) for part in make(i)]
        if self.unread:
            shown = "; ".join(f"{name!r}: {why}" for name, why in self.unread.items())
            warnings.warn(
                f"mesh files of {self.model.name!r} that cannot be drawn: {shown}; other shapes are drawn instead. "
                "load_urdf(packages={name: directory}) says where the packages of a URDF file are",
                FormatWarning,
                stacklevel=4,
            )
        return tuple(out)

    def _collected(self, i: int, kind: Show, found: Iterator[tuple[Surface, Color]]) -> list[Part]:
        owner = self.model.bodies[i].name if i >= 0 else WORLD
        return [
            Part(i, vertices, faces, color, f"{owner}/{kind}{k}", kind)
            for k, ((vertices, faces), color) in enumerate(found)
        ]

    def _color(self, i: int) -> Color:
        """The colour of a body, and of all that are fixed to it."""
        return PALETTE[self.numbers[self.carriers[i]] % len(PALETTE)]

    def _visuals_of(self, i: int) -> list[Part]:
        visuals = self.model.bodies[i].visuals
        return self._collected(i, "visual", self._visuals(visuals, self._color(i)))

    def _visuals(self, visuals: Sequence[Visual], color: Color) -> Iterator[tuple[Surface, Color]]:
        for visual in visuals:
            if visual.shape == "mesh":
                pieces = self._mesh(visual.mesh or "", visual.file, visual.mesh_scale)
            else:
                pieces = ((primitive(visual.shape, visual.size), None),)
            for surface, own in pieces:
                yield moved(surface, visual.placement), visual.color or own or color

    def _collisions_of(self, i: int) -> list[Part]:
        shapes = [collision.shape for collision in self.model.bodies[i].collisions]
        return self._collected(i, "collision", self._collisions(shapes, self._color(i)))

    def _collisions(self, shapes: Sequence[Shape], color: Color) -> Iterator[tuple[Surface, Color]]:
        for shape in shapes:
            if isinstance(shape, Mesh) and shape.vertices is None:
                for piece, _ in self._mesh(shape.path or "", shape.file, shape.scale):
                    yield moved(piece, shape.placement), color
            elif (surface := shape_surface(shape, 10.0 * self.unit)) is not None:
                yield surface, color

    def _mesh(
        self, name: str, file: str | None, scale: tuple[float, float, float]
    ) -> tuple[tuple[Surface, Color | None], ...]:
        if name in self.unread:
            return ()
        try:
            return mesh_surfaces(name if file is None else file, scale)
        except (OSError, FormatError) as error:
            self.unread[name] = str(error)
            return ()

    def _solid_of(self, i: int) -> list[Part]:
        """The solid of the body's inertia: a sphere, a cylinder or a box, no thinner than can be seen."""
        body = self.model.bodies[i]
        if not body.inertia.mass > 0:
            return []
        shape, size, placement = inertia_solid(body)
        solid = moved(primitive(shape, tuple(max(x, 0.08 * self.unit) for x in size)), placement)
        return self._collected(i, "inertia", iter([(solid, self._color(i))]))

    def _skeleton_of(self, i: int) -> list[Part]:
        return self._collected(i, "skeleton", self._skeleton(i, self.model.bodies[i]))

    def _skeleton(self, i: int, body: Body) -> Iterator[tuple[Surface, Color]]:
        """Rods from the body's frame to the joints that it carries and to its centre of mass, and its own joint."""
        ends = [child.placement.p for child in self.children[i]]
        if body.inertia.mass > 0:
            ends.append(body.inertia.com)
        thick = 0.05 * self.unit
        for end in ends:
            if (length := float(np.linalg.norm(end))) > 1.5 * thick:
                placement = SE3(z_to(end / length), 0.5 * end)
                yield moved(primitive("capsule", (min(thick, 0.2 * length), length)), placement), self._color(i)
        axis = getattr(body.joint, "axis", None)
        if axis is not None:
            yield moved(primitive("cylinder", (1.8 * thick, 6.0 * thick)), SE3(z_to(axis))), _GREY
        elif body.joint.nv or not ends:
            yield primitive("sphere", (2.0 * thick,)), _GREY


def rigid_groups(model: Model) -> tuple[list[int], list[FloatArray]]:
    """For each body the first of those that it is fixed to, -1 for the world, and its pose in the frame of that."""
    at = {body.name: i for i, body in enumerate(model.bodies)}
    carriers: list[int] = []
    within: list[FloatArray] = []
    for i, body in enumerate(model.bodies):
        if body.joint.nv:
            carriers.append(i)
            within.append(np.eye(4))
        else:
            p = at.get(body.parent, -1)
            carriers.append(carriers[p] if p >= 0 else -1)
            within.append((within[p] if p >= 0 else np.eye(4)) @ body.placement.matrix)
    return carriers, within


# ---- surfaces


def primitive(shape: str, size: Sequence[float]) -> Surface:
    """The surface of a box, sphere, cylinder, capsule or ellipsoid at the origin, with sizes as those of `Visual`."""
    if shape == "box":
        vertices, faces = _unit_box()
        return vertices * np.asarray(size), faces
    if shape in ("sphere", "ellipsoid"):
        vertices, faces = _unit_sphere()
        return vertices * np.asarray(size), faces
    radius, length = size
    if length == 0.0 and shape == "capsule":
        return primitive("sphere", (radius,))
    if shape == "cylinder":
        vertices, faces = _unit_cylinder()
        return vertices * np.array([radius, radius, length]), faces
    vertices, faces = _unit_capsule()
    side = np.sign(vertices[:, 2:]) * np.array([0.0, 0.0, 1.0])
    return radius * (vertices - side) + 0.5 * length * side, faces


@lru_cache
def _unit_box() -> Surface:
    """A cube with edges of length 1, each face with its own corners, so that edges look sharp."""
    square = np.array([[-0.5, -0.5, 0.5], [0.5, -0.5, 0.5], [0.5, 0.5, 0.5], [-0.5, 0.5, 0.5]])
    sides = [np.roll(square, k, axis=1) * sign for k in range(3) for sign in (1.0, -1.0)]
    two = np.array([[0, 1, 2], [0, 2, 3]], np.int32)
    faces = [4 * k + (two if k % 2 == 0 else two[:, ::-1]) for k in range(6)]
    return np.concatenate(sides), np.concatenate(faces).astype(np.int32)


@lru_cache
def _unit_sphere() -> Surface:
    """A sphere of radius 1."""
    half = _quarter()
    return _revolved(np.concatenate([half, half[-2::-1] * [1.0, -1.0]]))


@lru_cache
def _unit_capsule() -> Surface:
    """Two half spheres of radius 1 with their centres at z = 1 and z = -1, and the cylinder between them."""
    half = _quarter() - [0.0, 1.0]
    return _revolved(np.concatenate([half, half[::-1] * [1.0, -1.0]]))


@lru_cache
def _unit_cylinder() -> Surface:
    """A cylinder of radius 1 and length 1 along z, with sharp rims."""
    return _revolved(np.array([[0.0, -0.5], [1.0, -0.5], [1.0, -0.5], [1.0, 0.5], [1.0, 0.5], [0.0, 0.5]]))


def _quarter() -> FloatArray:
    """Radii and heights of a quarter of a circle, from the pole below to the equator."""
    angle = np.linspace(-0.5 * np.pi, 0.0, _SEGMENTS // 4 + 1)
    out = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    out[0, 0] = 0.0
    return out


def _revolved(profile: FloatArray) -> Surface:
    """The surface of a profile (n, 2) of radii and heights, from below upwards, turned about z. Points that are there
    twice are joined by no triangles."""
    radius, height = profile[:, :1], profile[:, 1:]
    rings = np.stack(
        [radius * np.cos(_AROUND), radius * np.sin(_AROUND), np.broadcast_to(height, (len(profile), _SEGMENTS))],
        axis=-1,
    )
    here = np.arange(_SEGMENTS)
    there = (here + 1) % _SEGMENTS
    faces = []
    for k in range(len(profile) - 1):
        low, high = k * _SEGMENTS, (k + 1) * _SEGMENTS
        if (profile[k] == profile[k + 1]).all():
            continue
        if profile[k, 0] > 0:
            faces.append(np.stack([low + here, low + there, high + here], axis=1))
        if profile[k + 1, 0] > 0:
            faces.append(np.stack([low + there, high + there, high + here], axis=1))
    return rings.reshape(-1, 3), np.concatenate(faces).astype(np.int32)


def moved(surface: Surface, pose: SE3) -> Surface:
    """A surface seen from another frame, in which its own is at `pose`."""
    vertices, faces = surface
    return vertices @ pose.R.T + pose.p, faces


def coarser(part: Part, limit: int) -> Part:
    """The part with about `limit` triangles at most: vertices in one cell of a grid become one."""
    if len(part.faces) <= limit:
        return part
    low, size = part.vertices.min(axis=0), float(np.ptp(part.vertices, axis=0).max())
    cells = 1024
    while True:
        number = np.floor((part.vertices - low) / size * cells).astype(np.int64)
        _, kept, new = np.unique(number @ [1, cells + 1, (cells + 1) ** 2], return_index=True, return_inverse=True)
        faces = new.reshape(-1)[part.faces]
        a, b, c = faces.T
        faces = faces[(a != b) & (b != c) & (c != a)]
        if len(faces) <= limit:
            return replace(part, vertices=part.vertices[kept], faces=faces.astype(np.int32))
        cells = int(cells / 1.4)


def shape_surface(shape: Shape, reach: float) -> Surface | None:
    """The surface of a shape of contact; of a half-space, a square with edges of twice `reach`; of a mesh without
    vertices, None."""
    if isinstance(shape, Sphere):
        return moved(primitive("sphere", (shape.radius,)), SE3.translation(*shape.position))
    if isinstance(shape, Box):
        return moved(primitive("box", shape.size), shape.placement)
    if isinstance(shape, Cylinder):
        return moved(primitive("cylinder", (shape.radius, shape.length)), shape.placement)
    if isinstance(shape, Capsule):
        return moved(primitive("capsule", (shape.radius, shape.length)), shape.placement)
    if isinstance(shape, Ellipsoid):
        return moved(primitive("ellipsoid", shape.semi_axes), shape.placement)
    if isinstance(shape, HalfSpace):
        normal = np.array(shape.normal) / np.linalg.norm(shape.normal)
        corners = reach * np.array([[-1.0, -1.0, 0.0], [1.0, -1.0, 0.0], [1.0, 1.0, 0.0], [-1.0, 1.0, 0.0]])
        faces = np.array([[0, 1, 2], [0, 2, 3]], np.int32)
        return moved((corners, faces), SE3(z_to(normal), shape.offset * normal))
    if isinstance(shape, HeightField):
        return moved(_height_field(shape), shape.placement)
    if isinstance(shape, (Terrain, Mesh)) and shape.vertices is not None and shape.faces is not None:
        return moved((shape.vertices, shape.faces), shape.placement)
    return None


def _height_field(shape: HeightField) -> Surface:
    """Two triangles for each cell of the grid."""
    rows, columns = shape.heights.shape
    x = np.linspace(-0.5 * shape.size[0], 0.5 * shape.size[0], columns)
    y = np.linspace(-0.5 * shape.size[1], 0.5 * shape.size[1], rows)
    X, Y = np.meshgrid(x, y)
    first = (np.arange(rows - 1)[:, None] * columns + np.arange(columns - 1)).reshape(-1, 1)
    faces = np.concatenate([first + [0, 1, columns + 1], first + [0, columns + 1, columns]])
    return np.stack([X, Y, shape.heights], axis=-1).reshape(-1, 3), faces.astype(np.int32)


def inertia_solid(body: Body) -> tuple[str, tuple[float, ...], SE3]:
    """The solid of uniform density that has the mass, centre of mass and moments of a body: (shape, size, placement).

    It is a sphere if all three principal moments are the same, a cylinder if two are, else a box. Squares of lengths
    that would be negative, of inertias that are not physical, count as zero.
    """
    inertia = body.inertia
    moments, turned = np.linalg.eigh(inertia.I_com)
    turned[:, 2] = np.cross(turned[:, 0], turned[:, 1])
    per_mass = np.maximum(moments, 0.0) / inertia.mass
    a, b, c = per_mass
    same = 1e-6 * c
    if c - a <= same:
        return "sphere", (float(np.sqrt(2.5 * c)),), SE3.translation(*inertia.com)
    if b - a <= same or c - b <= same:
        along, across = (c, a) if b - a <= same else (a, c)
        radius, length = np.sqrt(2.0 * along), np.sqrt(max(12.0 * across - 6.0 * along, 0.0))
        axis = turned[:, 2] if b - a <= same else turned[:, 0]
        return "cylinder", (float(radius), float(length)), SE3(z_to(axis), inertia.com)
    size = np.sqrt(np.maximum(6.0 * (per_mass.sum() - 2.0 * per_mass), 0.0))
    return "box", tuple(size.tolist()), SE3(turned, inertia.com)


def _solid_size(body: Body) -> tuple[float, ...]:
    return inertia_solid(body)[1]


# ---- meshes


def mesh_surfaces(
    path: str | os.PathLike[str], scale: tuple[float, float, float] = (1.0, 1.0, 1.0)
) -> tuple[tuple[Surface, Color | None], ...]:
    """The surfaces in a mesh file, with their colours where the file has some.

    Parameters
    ----------
    path : path
        A file that trimesh reads: STL, OBJ, PLY, GLB, DAE (with pycollada), ...
    scale : (3,)
        Factors of the coordinates.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    FormatError
        If it cannot be read, or has no triangles.
    ImportError
        Without trimesh, an extra.
    """
    try:
        import trimesh
    except ImportError:
        raise ImportError("meshes need trimesh: pip install 'torsor[view]'") from None
    path = os.fspath(path)
    if not os.path.isfile(path):
        raise FileNotFoundError("no such file")
    factors = np.asarray(scale, float)
    out = []
    try:
        loaded = trimesh.load(path, force="scene")
        for mesh in loaded.dump():
            if len(faces := np.asarray(getattr(mesh, "faces", ()), np.int32)):
                if factors.prod() < 0:
                    faces = faces[:, ::-1]
                out.append(((np.asarray(mesh.vertices, float) * factors, faces), _mesh_color(mesh)))
    except Exception as error:  # readers of many formats, with errors of many types
        raise FormatError(f"{type(error).__name__}: {error}") from error
    if not out:
        raise FormatError("it has no triangles")
    return tuple(out)


def _mesh_color(mesh: Any) -> Color | None:
    """The colour of a mesh in its file, if it has one."""
    visual = mesh.visual
    if not visual.defined:
        return None
    source = visual.material if visual.kind == "texture" else visual
    red, green, blue, alpha = (np.asarray(source.main_color, float) / 255.0).tolist()
    return red, green, blue, alpha
