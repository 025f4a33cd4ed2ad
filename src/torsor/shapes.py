"""Shapes of bodies for contact (`Contact`): small frozen descriptions in the frame of the body that carries them."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy as np

from torsor.spatial import SE3, frozen_array

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray
    from typing_extensions import Self

    from torsor._typing import FloatArray

__all__ = ["Box", "Capsule", "Cylinder", "Ellipsoid", "HalfSpace", "HeightField", "Mesh", "Shape", "Sphere", "Terrain"]

_MOST_VERTICES = 256  # of a convex hull, in the core


class Shape(ABC):
    """Base class of shapes. `numbers` are the parameters of a contact by that shape, with half sizes and lengths."""

    _kind: ClassVar[str]  # its name in the core

    @property
    def _data(self) -> tuple[Any, ...]:
        """What the core needs beside the numbers: nothing, or one tuple of arrays."""
        return ()

    @property
    @abstractmethod
    def numbers(self) -> dict[str, FloatArray]:
        """Numbers of the shape by name, in the order of the core."""

    @abstractmethod
    def with_numbers(self, values: Mapping[str, ArrayLike]) -> Self:
        """A copy with the given `values` of some of its numbers, by name."""


@final
@dataclass(frozen=True, init=False)
class HalfSpace(Shape):
    """All points x with n.x <= offset, n being the outward `normal` with length 1: the ground, or a wall.

    Parameters
    ----------
    normal : (3,) array_like
        Outward normal. It may have any length; gradients are with respect to these three numbers.
    offset : float
        Distance of the surface from the origin, along the normal.
    """

    normal: tuple[float, float, float]
    offset: float
    _kind: ClassVar[str] = "half_space"

    def __init__(self, normal: ArrayLike = (0.0, 0.0, 1.0), offset: float = 0.0) -> None:
        n = frozen_array(normal, (3,), "normal")
        if not 1e-100 < float(np.abs(n).max()) < 1e100:
            raise ValueError(
                f"normal is {n.tolist()}, expected a vector (x, y, z) of a length between 1e-100 and 1e100"
            )
        object.__setattr__(self, "normal", tuple(n.tolist()))
        object.__setattr__(self, "offset", _number(offset, "offset"))

    @property
    def numbers(self) -> dict[str, FloatArray]:
        """normal (3,) and offset."""
        return {"normal": np.array(self.normal), "offset": np.array(self.offset)}

    def with_numbers(self, values: Mapping[str, ArrayLike]) -> Self:
        """A copy with other values of some numbers."""
        return type(self)(**_changed(self, values))


@final
@dataclass(frozen=True, init=False)
class Sphere(Shape):
    """A sphere; with radius 0, a point.

    Parameters
    ----------
    radius : float
    position : (3,) array_like
        Its centre.
    """

    radius: float
    position: tuple[float, float, float]
    _kind: ClassVar[str] = "sphere"

    def __init__(self, radius: float, position: ArrayLike = (0.0, 0.0, 0.0)) -> None:
        object.__setattr__(self, "radius", _number(radius, "radius", least=0.0))
        object.__setattr__(self, "position", tuple(frozen_array(position, (3,), "position").tolist()))

    @property
    def numbers(self) -> dict[str, FloatArray]:
        """position (3,) and radius."""
        return {"position": np.array(self.position), "radius": np.array(self.radius)}

    def with_numbers(self, values: Mapping[str, ArrayLike]) -> Self:
        """A copy with other values of some numbers."""
        return type(self)(**_changed(self, values))


@dataclass(frozen=True, init=False)
class _Placed(Shape):
    """A shape with a placement, and with sizes that the core has as halves."""

    placement: SE3
    # The orientation as `with_numbers` was given it, which may have any length.
    _quaternion: tuple[float, ...] | None = field(default=None, init=False, repr=False)

    @abstractmethod
    def _sizes(self) -> dict[str, FloatArray]:
        """The numbers after those of the placement."""

    @classmethod
    @abstractmethod
    def _of(cls, sizes: dict[str, Any], placement: SE3) -> Self:
        """The shape with these numbers."""

    @property
    def numbers(self) -> dict[str, FloatArray]:
        """position (3,), orientation (4,), a quaternion xyzw of any length, then its half sizes."""
        given = self._quaternion
        return {
            "position": self.placement.p.copy(),
            "orientation": self.placement.quaternion if given is None else np.array(given),
            **self._sizes(),
        }

    def with_numbers(self, values: Mapping[str, ArrayLike]) -> Self:
        """A copy with other values of some numbers; an orientation may have any length."""
        changed = _changed(self, values)
        position, orientation = changed.pop("position"), changed.pop("orientation")
        kept = "position" not in values and "orientation" not in values
        shape = self._of(changed, self.placement if kept else SE3.from_quaternion(orientation, position))
        if "orientation" in values or self._quaternion is not None:
            given = frozen_array(orientation, (4,), "orientation")
            object.__setattr__(shape, "_quaternion", tuple(given.tolist()))
        return shape


@final
@dataclass(frozen=True, init=False)
class Capsule(_Placed):
    """A cylinder with half spheres at its ends, along z: all points within `radius` of a segment of this `length`.

    Parameters
    ----------
    radius : float
    length : float
        Of the segment, without the half spheres.
    placement : SE3
        Pose of its middle in the frame of the body.
    """

    radius: float
    length: float
    _kind: ClassVar[str] = "capsule"

    def __init__(self, radius: float, length: float, placement: SE3 | None = None) -> None:
        object.__setattr__(self, "radius", _number(radius, "radius", above=0.0))
        object.__setattr__(self, "length", _number(length, "length", least=0.0))
        object.__setattr__(self, "placement", _pose(placement))

    def _sizes(self) -> dict[str, FloatArray]:
        return {"radius": np.array(self.radius), "half_length": np.array(0.5 * self.length)}

    @classmethod
    def _of(cls, sizes: dict[str, Any], placement: SE3) -> Self:
        return cls(sizes["radius"], 2.0 * float(sizes["half_length"]), placement)


@final
@dataclass(frozen=True, init=False)
class Box(_Placed):
    """A box, with edges and corners rounded by `radius`, which is part of its size.

    Parameters
    ----------
    size : (3,) array_like
        Lengths of its edges, along x, y, z.
    placement : SE3
        Pose of its middle in the frame of the body.
    radius : float
        Of its edges and corners; at most half the shortest edge.
    """

    size: tuple[float, float, float]
    radius: float
    _kind: ClassVar[str] = "box"

    def __init__(self, size: ArrayLike, placement: SE3 | None = None, radius: float = 0.0) -> None:
        lengths = _lengths(size, "size")
        rounded = _number(radius, "radius", least=0.0)
        if 2.0 * rounded > min(lengths):
            raise ValueError(
                f"radius is {rounded:g}, expected {0.5 * min(lengths):g} at most: half the shortest edge of the box"
            )
        object.__setattr__(self, "size", lengths)
        object.__setattr__(self, "radius", rounded)
        object.__setattr__(self, "placement", _pose(placement))

    def _sizes(self) -> dict[str, FloatArray]:
        return {"half_size": 0.5 * np.array(self.size), "radius": np.array(self.radius)}

    @classmethod
    def _of(cls, sizes: dict[str, Any], placement: SE3) -> Self:
        return cls(2.0 * np.asarray(sizes["half_size"], float), placement, sizes["radius"])


@final
@dataclass(frozen=True, init=False)
class Cylinder(_Placed):
    """A cylinder along z.

    Parameters
    ----------
    radius : float
    length : float
    placement : SE3
        Pose of its middle in the frame of the body.
    """

    radius: float
    length: float
    _kind: ClassVar[str] = "cylinder"

    def __init__(self, radius: float, length: float, placement: SE3 | None = None) -> None:
        object.__setattr__(self, "radius", _number(radius, "radius", above=0.0))
        object.__setattr__(self, "length", _number(length, "length", above=0.0))
        object.__setattr__(self, "placement", _pose(placement))

    def _sizes(self) -> dict[str, FloatArray]:
        return {"radius": np.array(self.radius), "half_length": np.array(0.5 * self.length)}

    @classmethod
    def _of(cls, sizes: dict[str, Any], placement: SE3) -> Self:
        return cls(sizes["radius"], 2.0 * float(sizes["half_length"]), placement)


@final
@dataclass(frozen=True, init=False)
class Ellipsoid(_Placed):
    """An ellipsoid with its axes along x, y, z.

    Parameters
    ----------
    semi_axes : (3,) array_like
    placement : SE3
        Pose of its middle in the frame of the body.
    """

    semi_axes: tuple[float, float, float]
    _kind: ClassVar[str] = "ellipsoid"

    def __init__(self, semi_axes: ArrayLike, placement: SE3 | None = None) -> None:
        object.__setattr__(self, "semi_axes", _lengths(semi_axes, "semi_axes"))
        object.__setattr__(self, "placement", _pose(placement))

    def _sizes(self) -> dict[str, FloatArray]:
        return {"semi_axes": np.array(self.semi_axes)}

    @classmethod
    def _of(cls, sizes: dict[str, Any], placement: SE3) -> Self:
        return cls(sizes["semi_axes"], placement)


@dataclass(frozen=True, init=False, eq=False)
class _Surface(Shape):
    """A shape with a placement and with arrays, which are no numbers of a contact."""

    placement: SE3

    @abstractmethod
    def _key(self) -> tuple[Any, ...]:
        """Its values, hashable."""

    @property
    def numbers(self) -> dict[str, FloatArray]:
        """position (3,) and orientation (4,), a quaternion xyzw."""
        return {"position": self.placement.p.copy(), "orientation": self.placement.quaternion}

    def with_numbers(self, values: Mapping[str, ArrayLike]) -> Self:
        """A copy with another position or orientation, which is normalised."""
        changed = _changed(self, values)
        return replace(self, placement=SE3.from_quaternion(changed["orientation"], changed["position"]))

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())


@final
@dataclass(frozen=True, init=False, eq=False)
class Mesh(_Surface):
    """A surface of triangles: that of a file, or a convex hull by its vertices.

    With 4 to 256 vertices it has contact, as the convex hull (`Mesh.convex_hull` makes one of a file). Others are kept
    by models (`Collision`), and have none.

    Parameters
    ----------
    path : str, optional
        File name, as written where the mesh comes from.
    scale : (3,) array_like
        Factors of the coordinates in the file, along x, y, z.
    placement : SE3
        Pose of its frame in the frame of the body.
    vertices : (n, 3) array_like, optional
        Vertices of the convex hull, scaled.
    faces : (m, 3) array_like, optional
        Indices of the vertices of its triangles, counter-clockwise seen from outside.
    radius : float
        By which the hull is thickened, and its edges rounded.
    file : str, optional
        Where the file was found, if not at `path`. Shapes compare without it.
    """

    path: str | None
    scale: tuple[float, float, float]
    vertices: FloatArray | None
    faces: NDArray[np.int32] | None
    radius: float
    file: str | None
    _kind: ClassVar[str] = "mesh"

    def __init__(
        self,
        path: str | None = None,
        scale: ArrayLike = (1.0, 1.0, 1.0),
        placement: SE3 | None = None,
        vertices: ArrayLike | None = None,
        faces: ArrayLike | None = None,
        radius: float = 0.0,
        file: str | None = None,
    ) -> None:
        if vertices is None and (path is None or faces is not None):
            raise ValueError("a Mesh needs path=, or vertices= and faces=")
        object.__setattr__(self, "path", path)
        object.__setattr__(self, "file", file)
        object.__setattr__(self, "scale", tuple(frozen_array(scale, (3,), "scale").tolist()))
        object.__setattr__(self, "placement", _pose(placement))
        points = corners = None
        if vertices is not None:
            points, corners = _triangles(vertices, () if faces is None else faces)
            if 4 <= len(points) <= _MOST_VERTICES and len(corners) >= 4:
                object.__setattr__(self, "_kind", "convex")
        object.__setattr__(self, "vertices", points)
        object.__setattr__(self, "faces", corners)
        object.__setattr__(self, "radius", _number(radius, "radius", least=0.0))

    @classmethod
    def convex_hull(
        cls,
        source: str | os.PathLike[str] | ArrayLike,
        scale: ArrayLike = (1.0, 1.0, 1.0),
        placement: SE3 | None = None,
        radius: float = 0.0,
    ) -> Self:
        """The convex hull of a mesh file or of points.

        A hull has at most 256 vertices: of more, those are kept that are furthest along 256 directions, evenly spread.

        Parameters
        ----------
        source : path, or (n, 3) array_like
            A file that coal reads (STL, OBJ, DAE, ...), or points. Needs coal, the extra `torsor[collision]`.
        scale : (3,) array_like
            Factors of the coordinates, along x, y, z.
        placement : SE3
            Pose of its frame in the frame of the body.
        radius : float
            By which the hull is thickened, and its edges rounded.

        Returns
        -------
        Mesh

        Examples
        --------
        >>> corners = [[x, y, z] for x in (0, 1) for y in (0, 1) for z in (0, 1)]
        >>> box = ts.shapes.Mesh.convex_hull(corners, scale=(0.1, 0.2, 0.3))
        """
        try:
            import coal
        except ImportError as e:
            raise ImportError("Mesh.convex_hull needs coal: pip install 'torsor[collision]'") from e
        factors = frozen_array(scale, (3,), "scale")
        path: str | None = None
        if not isinstance(source, (str, os.PathLike)):
            given = np.asarray(source)
            points = np.multiply(factors, frozen_array(given, (len(np.atleast_1d(given)), 3), "source"))
        elif not os.path.isfile(path := os.fspath(source)):
            raise FileNotFoundError(f"no mesh file {path!r}")
        else:
            points = np.array(coal.MeshLoader().load(path, np.array(factors)).vertices())
        vertices, faces = _hull_of(coal, points)
        if len(vertices) > _MOST_VERTICES:
            vertices, faces = _hull_of(coal, _outermost(vertices, _MOST_VERTICES))
        return cls(path, factors, placement, vertices, faces, radius)

    @property
    def numbers(self) -> dict[str, FloatArray]:
        """position (3,), orientation (4,), a quaternion xyzw, and radius."""
        return {**super().numbers, "radius": np.array(self.radius)}

    def with_numbers(self, values: Mapping[str, ArrayLike]) -> Self:
        """A copy with another position, orientation, which is normalised, or radius."""
        moved = super().with_numbers({name: value for name, value in values.items() if name != "radius"})
        return replace(moved, radius=_number(values["radius"], "radius", least=0.0)) if "radius" in values else moved

    @property
    def _data(self) -> tuple[Any, ...]:
        return ((self.vertices, self.faces),)

    def _key(self) -> tuple[Any, ...]:
        arrays = (None if x is None else x.tobytes() for x in (self.vertices, self.faces))
        return self.path, self.scale, self.placement, self.radius, *arrays


@final
@dataclass(frozen=True, init=False, eq=False)
class Terrain(_Surface):
    """Ground of any form, as a surface of triangles with an outside. Spheres and capsules have contact with it.

    Parameters
    ----------
    vertices : (n, 3) array_like
    faces : (m, 3) array_like
        Indices of the vertices of its triangles, counter-clockwise seen from outside.
    placement : SE3
        Pose of its frame in the frame of the body.
    """

    vertices: FloatArray
    faces: NDArray[np.int32]
    _kind: ClassVar[str] = "terrain"

    def __init__(self, vertices: ArrayLike, faces: ArrayLike, placement: SE3 | None = None) -> None:
        points, corners = _triangles(vertices, faces)
        if len(corners) == 0:
            raise ValueError("a Terrain needs at least one triangle, faces is empty")
        object.__setattr__(self, "vertices", points)
        object.__setattr__(self, "faces", corners)
        object.__setattr__(self, "placement", _pose(placement))

    @property
    def _data(self) -> tuple[Any, ...]:
        return ((self.vertices, self.faces),)

    def _key(self) -> tuple[Any, ...]:
        return self.vertices.tobytes(), self.faces.tobytes(), self.placement


@final
@dataclass(frozen=True, init=False, eq=False)
class HeightField(_Surface):
    """Terrain: heights over a rectangle. Spheres and capsules have contact with it.

    For contact it is a smooth surface, of quadratic B-splines with these heights: planes are met exactly, and the
    middle of three heights a, b, c in a row becomes (a + 6 b + c) / 8. It goes on beyond the rectangle, level across
    its border, and has no lower side. Valleys must be rounder than the spheres that roll in them.

    Parameters
    ----------
    heights : (rows, columns) array_like
        Heights along z, at equal distances along y (rows) and along x (columns), from the smallest coordinates up.
    size : (x, y)
        Lengths of the edges of the rectangle, whose middle is the origin.
    depth : float
        Thickness of the ground below height 0.
    placement : SE3
        Pose of its frame in the frame of the body.
    """

    heights: FloatArray
    size: tuple[float, float]
    depth: float
    _kind: ClassVar[str] = "height_field"

    def __init__(self, heights: ArrayLike, size: ArrayLike, depth: float = 0.0, placement: SE3 | None = None) -> None:
        shape = np.shape(heights)
        if len(shape) != 2 or min(shape) < 2:
            raise ValueError(f"heights has shape {shape}, expected (rows, columns) of at least 2 each")
        lengths = frozen_array(size, (2,), "size")
        if (lengths <= 0).any():
            raise ValueError(f"size is {lengths.tolist()}, expected two numbers above 0")
        object.__setattr__(self, "heights", frozen_array(heights, shape, "heights"))
        object.__setattr__(self, "size", tuple(lengths.tolist()))
        object.__setattr__(self, "depth", _number(depth, "depth", least=0.0))
        object.__setattr__(self, "placement", _pose(placement))

    def _key(self) -> tuple[Any, ...]:
        return self.heights.tobytes(), self.heights.shape, self.size, self.depth, self.placement

    @property
    def _data(self) -> tuple[Any, ...]:
        return ((self.heights, self.size),)


def _triangles(vertices: ArrayLike, faces: ArrayLike) -> tuple[FloatArray, NDArray[np.int32]]:
    points = frozen_array(vertices, (len(np.atleast_1d(vertices)), 3), "vertices")
    corners = np.array(faces)
    if corners.ndim != 2 or corners.shape[1] != 3 or corners.dtype.kind not in "iu":
        raise ValueError(f"faces has shape {corners.shape} and dtype {corners.dtype}, expected (m, 3) integers")
    if corners.size and not 0 <= corners.min() <= corners.max() < len(points):
        raise ValueError(f"faces has indices {corners.min()} to {corners.max()} of {len(points)} vertices")
    corners = corners.astype(np.int32)
    corners.flags.writeable = False
    return points, corners


def _hull_of(coal: Any, points: FloatArray) -> tuple[FloatArray, NDArray[np.int64]]:
    """Vertices and triangles of a convex hull, these counter-clockwise seen from outside."""
    size = np.linalg.svd(points - points.mean(0), compute_uv=False) if len(points) > 3 else np.zeros(3)
    if size[-1] <= 1e-9 * size[0]:
        raise ValueError(f"{len(points)} points span no volume, expected at least 4 that do not lie in a plane")
    given = coal.StdVec_Vec3s()
    for x in points:
        given.append(x)
    hull = coal.ConvexBase.convexHull(given, True, "Qt")
    vertices = np.array(hull.points())
    faces = np.array([[hull.polygons(k)[i] for i in range(3)] for k in range(hull.num_polygons)])
    a, b, c = (vertices[faces[:, i]] for i in range(3))
    inward = np.einsum("ni,ni->n", np.cross(b - a, c - a), a - vertices.mean(0)) < 0.0
    faces[inward] = faces[inward][:, ::-1]
    return vertices, faces


def _outermost(points: FloatArray, count: int) -> FloatArray:
    """The points that are furthest along evenly spread directions, on a spiral."""
    k = np.arange(count) + 0.5
    z, angle = 1.0 - 2.0 * k / count, np.pi * (1.0 + 5.0**0.5) * k
    across = np.sqrt(1.0 - z * z)
    directions = np.stack([across * np.cos(angle), across * np.sin(angle), z])
    return np.asarray(points[np.unique((points @ directions).argmax(0))])


def _number(value: Any, name: str, *, least: float | None = None, above: float | None = None) -> float:
    x = float(frozen_array(value, (), name))
    if above is not None and x <= above:
        raise ValueError(f"{name} is {x:g}, expected a number above {above:g}")
    if least is not None and x < least:
        raise ValueError(f"{name} is {x:g}, expected {least:g} at least")
    return x


def _lengths(value: Any, name: str) -> tuple[float, float, float]:
    x = frozen_array(value, (3,), name)
    if (x <= 0).any():
        raise ValueError(f"{name} is {x.tolist()}, expected three numbers above 0: the shape has no volume")
    return x[0].item(), x[1].item(), x[2].item()


def _pose(placement: Any) -> SE3:
    if placement is None:
        return SE3()
    if not isinstance(placement, SE3):
        raise TypeError(f"placement must be an SE3, got {placement!r}")
    return placement


def _changed(shape: Shape, values: Mapping[str, ArrayLike]) -> dict[str, Any]:
    """The numbers of a shape with some replaced, each checked for its name."""
    numbers: dict[str, Any] = dict(shape.numbers)
    for name, value in values.items():
        if name not in numbers:
            raise ValueError(f"{type(shape).__name__} has no number {name!r}; it has {', '.join(numbers)}")
        numbers[name] = value
    return numbers
