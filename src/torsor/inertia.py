"""Inertias of rigid bodies: ten parameters, 6x6 matrices, solids, meshes, composites, physical validity."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, final

import numpy as np

from torsor._errors import ModelError
from torsor.spatial import SE3, frozen_array, hat, vee

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

    from numpy.typing import ArrayLike

    from torsor._typing import FloatArray


def _parallel_axis(m: float, d: FloatArray) -> FloatArray:
    """The inertia m [d]^T [d] of a point of mass m at d, about the origin: (3, 3)."""
    return m * ((d @ d) * np.eye(3) - np.outer(d, d))


def parameters_of(inertias: Sequence[Inertia]) -> FloatArray:
    """`Inertia.parameters` of several, (n, 10)."""
    if not inertias:
        return np.zeros((0, 10))
    m = np.array([x.mass for x in inertias])[:, None]
    c = np.concatenate([x.com for x in inertias]).reshape(-1, 3)
    J = np.concatenate([x.I_com for x in inertias]).reshape(-1, 3, 3)
    d = (c * c).sum(1)[:, None, None] * np.eye(3) - c[:, :, None] * c[:, None, :]
    J = J + m[:, :, None] * d
    return np.concatenate([m, m * c, J[:, [0, 0, 1, 0, 1, 2], [0, 1, 1, 2, 2, 2]]], axis=1)


def _assemble(m: float, h: FloatArray, I_origin: FloatArray) -> FloatArray:
    """The 6x6 matrix [[I, [h]], [[h]^T, m 1]], h the mass times the centre of mass. Kim 2012, eq. (20)."""
    return np.block([[I_origin, hat(h)], [-hat(h), m * np.eye(3)]])


def _sizes(x: ArrayLike, shape: tuple[int, ...], name: str) -> FloatArray:
    """x as an array of that shape, none of it negative."""
    a = frozen_array(x, shape, name)
    if (a < 0).any():
        raise ValueError(f"{name} is {a.tolist()}, expected 0 or more")
    return a


def _size(x: float, name: str) -> float:
    """x as a number that is not negative."""
    return float(_sizes(x, (), name))


def _mass_of(volume: float, mass: float | None, density: float | None) -> float:
    """The mass of a solid, of which the user gives either the mass or the density."""
    if mass is not None and density is None:
        return _size(mass, "mass")
    if density is None or mass is not None:
        given = "neither" if mass is None else "both"
        raise ValueError(f"a solid needs mass= or density=, exactly one of them; got {given}")
    if volume == 0:
        raise ValueError("density= needs a solid with a volume, got one with a size of 0; give mass= instead")
    return _size(density, "density") * volume


@final
@dataclass(frozen=True, init=False, eq=False, repr=False)
class Inertia:
    """The inertia of one rigid body: mass, centre of mass, rotational inertia about it.

    Frozen and hashable; equal when every entry is. `a + b` is the inertia of both bodies welded together, and `sum`
    works. A body without mass has its centre of mass at the origin.

    Parameters
    ----------
    mass : float
        Zero or more.
    com : (3,) array_like
        Centre of mass in the body's frame.
    I_com : (3, 3) or (3,) array_like
        Rotational inertia about the centre of mass, in axes parallel to the body's frame; three numbers are its
        diagonal.
    allow_unphysical : bool
        Whether to accept inertias that no distribution of mass has: negative mass, negative principal moments, moments
        that break the triangle inequality. By default they raise `ModelError`, with a tolerance of 1e-9 of the largest
        moment.
    """

    mass: float
    com: FloatArray
    I_com: FloatArray
    __array_ufunc__ = None  # so that `array + Inertia` is refused, not broadcast

    def __init__(
        self,
        mass: float,
        com: ArrayLike = (0, 0, 0),
        I_com: ArrayLike = (0, 0, 0),
        *,
        allow_unphysical: bool = False,
    ) -> None:
        mass = float(frozen_array(mass, (), "mass"))
        com = frozen_array(com, (3,), "com") if mass else np.zeros(3)
        diagonal = np.shape(I_com) == (3,)
        J = frozen_array(I_com, (3,) if diagonal else (3, 3), "I_com")
        J = np.diag(J) if diagonal else J
        if (off := np.abs(J - J.T).max()) > 1e-9 * np.abs(J).max():
            raise ModelError(f"I_com is not symmetric: I_com - I_com^T is {off:.3g} at most, expected 0")
        object.__setattr__(self, "mass", mass)
        object.__setattr__(self, "com", frozen_array(com, (3,), "com"))
        object.__setattr__(self, "I_com", frozen_array((J + J.T) / 2, (3, 3), "I_com"))
        if not allow_unphysical and (fault := self._fault()):
            raise ModelError(f"inertia is not physical: {fault}; pass allow_unphysical=True to accept it as it is")

    @staticmethod
    def _of(mass: float, com: FloatArray, I_com: FloatArray) -> Inertia:
        """The inertia of finite numbers and a symmetric matrix, kept unchecked and read-only; physical or not."""
        com.flags.writeable = I_com.flags.writeable = False
        inertia = object.__new__(Inertia)
        object.__setattr__(inertia, "mass", mass)
        object.__setattr__(inertia, "com", com)
        object.__setattr__(inertia, "I_com", I_com)
        return inertia

    def _fault(self) -> str | None:
        """The reason why this inertia is not physical, or None."""
        if self.mass < 0:
            return f"mass is {self.mass:g}"
        a, b, c = np.linalg.eigvalsh(self.I_com).tolist()
        # the second term is what rounding leaves of a tensor that was moved here from the frame's origin
        tolerance = 1e-9 * max(abs(a), abs(c)) + 1e-14 * self.mass * float(self.com @ self.com)
        if a < -tolerance:
            return f"smallest principal moment is {a:g}"
        if a + b < c - tolerance:
            return f"principal moments break the triangle inequality: {a:g} + {b:g} < {c:g}"
        return None

    @property
    def physical(self) -> bool:
        """Whether some distribution of mass has this inertia."""
        return self._fault() is None

    def nearest_physical(self) -> Inertia:
        """The nearest inertia that some distribution of mass has, with the same mass and centre of mass.

        The second moments of mass about its centre, C with I_com = tr(C) 1 - C, are positive semidefinite. This takes
        the nearest such C in the Frobenius norm, with zeros for negative eigenvalues: mass in a plane, or, if two are
        negative, along a line, which has no moment about it. Physical inertias are returned as they are. Raises
        `ModelError` if the mass is negative.
        """
        if self._fault() is None:
            return self
        if self.mass < 0:
            raise ModelError(f"mass is {self.mass:g}, expected 0 or more: no inertia with this mass is physical")
        moments, axes = np.linalg.eigh(self.I_com)
        C = np.maximum(moments.sum() / 2 - moments, 0.0)
        I_com = (axes * (C.sum() - C)) @ axes.T
        return Inertia._of(self.mass, self.com, (I_com + I_com.T) / 2)

    @property
    def _I_origin(self) -> FloatArray:
        return self.I_com + _parallel_axis(self.mass, self.com)

    @property
    def matrix(self) -> FloatArray:
        """The inertia about the frame's origin, angular first: matrix @ twist is the momentum.

        Kim 2012, eq. (22).
        """
        return _assemble(self.mass, self.mass * self.com, self._I_origin)

    @property
    def parameters(self) -> FloatArray:
        """The ten numbers m, m c (3), Ixx, Ixy, Iyy, Ixz, Iyz, Izz, about the frame's origin: (10,).

        Inverse dynamics is linear in them.
        """
        return np.asarray(parameters_of([self])[0])

    @staticmethod
    def from_parameters(parameters: ArrayLike, *, allow_unphysical: bool = False) -> Inertia:
        """The inertia with the given `parameters` (10,); `allow_unphysical` as for `Inertia`."""
        m, *rest = frozen_array(parameters, (10,), "parameters").tolist()
        h, J = np.array(rest[:3]), np.array(rest[3:])[[[0, 1, 3], [1, 2, 4], [3, 4, 5]]]
        if m == 0 and h.any():
            raise ModelError(f"mass is 0 but mass times centre of mass is {h.tolist()}, expected zeros")
        com = h / m if m else h
        I_com = J - _parallel_axis(m, com)
        if np.abs(I_com).max() <= 1e-14 * np.abs(J).max():  # a point: nothing but rounding is left
            I_com = np.zeros((3, 3))
        return Inertia(m, com, I_com, allow_unphysical=allow_unphysical)

    @staticmethod
    def from_matrix(matrix: ArrayLike, *, allow_unphysical: bool = False) -> Inertia:
        """The inertia with the given `matrix` (6, 6) about the frame's origin; `allow_unphysical` as for `Inertia`."""
        M = frozen_array(matrix, (6, 6), "matrix")
        m, h, J = float(np.trace(M[3:, 3:])) / 3, vee(M[:3, 3:]), (M[:3, :3] + M[:3, :3].T) / 2
        if (off := np.abs(M - _assemble(m, h, J)).max()) > 1e-9 * np.abs(M).max():
            raise ModelError(
                f"matrix is {off:.3g} off every rigid body's inertia, expected [[I, [h]], [[h]^T, m 1]] "
                "with I symmetric and [h] skew, angular part first"
            )
        pi = (m, *h, J[0, 0], J[0, 1], J[1, 1], J[0, 2], J[1, 2], J[2, 2])
        return Inertia.from_parameters(pi, allow_unphysical=allow_unphysical)

    @staticmethod
    def zero() -> Inertia:
        """Zero inertia."""
        return Inertia(0.0)

    @staticmethod
    def point(mass: float, com: ArrayLike = (0, 0, 0)) -> Inertia:
        """A point of mass `mass` at `com` (3,)."""
        return Inertia(mass, com)

    @staticmethod
    def _solid(
        volume: float,
        gyration: tuple[float, float, float],
        mass: float | None,
        density: float | None,
        com: ArrayLike,
        rotation: ArrayLike | None = None,
    ) -> Inertia:
        """A solid with principal moments `gyration` per unit of mass, along the columns of `rotation`."""
        m, R = _mass_of(volume, mass, density), SE3(rotation).R
        return Inertia(m, com, R @ np.diag(gyration) @ R.T * m)

    @staticmethod
    def box(
        size: ArrayLike,
        *,
        mass: float | None = None,
        density: float | None = None,
        com: ArrayLike = (0, 0, 0),
        rotation: ArrayLike | None = None,
    ) -> Inertia:
        """A solid box. Sueda 2021, eq. (1.24).

        Parameters
        ----------
        size : (3,) array_like
            Side lengths along the columns of `rotation`.
        mass, density : float
            Mass or density, exactly one of them.
        com : (3,) array_like
            Centre of mass in the frame of the body.
        rotation : (3, 3) array_like, optional
            Rotation of the solid; the identity by default.

        Returns
        -------
        Inertia
        """
        x, y, z = _sizes(size, (3,), "size")
        gyration = ((y * y + z * z) / 12, (z * z + x * x) / 12, (x * x + y * y) / 12)
        return Inertia._solid(x * y * z, gyration, mass, density, com, rotation)

    @staticmethod
    def sphere(
        radius: float,
        *,
        mass: float | None = None,
        density: float | None = None,
        com: ArrayLike = (0, 0, 0),
    ) -> Inertia:
        """A solid sphere.

        Parameters
        ----------
        radius : float
            Radius.
        mass, density : float
            Mass or density, exactly one of them.
        com : (3,) array_like
            Centre of mass in the frame of the body.

        Returns
        -------
        Inertia
        """
        return Inertia.ellipsoid([_size(radius, "radius")] * 3, mass=mass, density=density, com=com)

    @staticmethod
    def ellipsoid(
        radii: ArrayLike,
        *,
        mass: float | None = None,
        density: float | None = None,
        com: ArrayLike = (0, 0, 0),
        rotation: ArrayLike | None = None,
    ) -> Inertia:
        """A solid ellipsoid.

        Parameters
        ----------
        radii : (3,) array_like
            Half axes along the columns of `rotation`.
        mass, density : float
            Mass or density, exactly one of them.
        com : (3,) array_like
            Centre of mass in the frame of the body.
        rotation : (3, 3) array_like, optional
            Rotation of the solid; the identity by default.

        Returns
        -------
        Inertia
        """
        x, y, z = _sizes(radii, (3,), "radii")
        gyration = ((y * y + z * z) / 5, (z * z + x * x) / 5, (x * x + y * y) / 5)
        return Inertia._solid(4 / 3 * math.pi * x * y * z, gyration, mass, density, com, rotation)

    @staticmethod
    def cylinder(
        radius: float,
        length: float,
        *,
        mass: float | None = None,
        density: float | None = None,
        com: ArrayLike = (0, 0, 0),
        rotation: ArrayLike | None = None,
    ) -> Inertia:
        """A solid cylinder along z, or along the third column of `rotation`.

        Parameters
        ----------
        radius, length : float
            Radius and length.
        mass, density : float
            Mass or density, exactly one of them.
        com : (3,) array_like
            Centre of mass in the frame of the body.
        rotation : (3, 3) array_like, optional
            Rotation of the solid; the identity by default.

        Returns
        -------
        Inertia
        """
        r, L = _size(radius, "radius"), _size(length, "length")
        across = (3 * r * r + L * L) / 12
        return Inertia._solid(math.pi * r * r * L, (across, across, r * r / 2), mass, density, com, rotation)

    @staticmethod
    def capsule(
        radius: float,
        length: float,
        *,
        mass: float | None = None,
        density: float | None = None,
        com: ArrayLike = (0, 0, 0),
        rotation: ArrayLike | None = None,
    ) -> Inertia:
        """A solid cylinder along z, or along the third column of `rotation`, with a hemisphere on either end.

        Parameters
        ----------
        radius, length : float
            Radius, and length of the cylinder between the hemispheres.
        mass, density : float
            Mass or density, exactly one of them.
        com : (3,) array_like
            Centre of mass in the frame of the body.
        rotation : (3, 3) array_like, optional
            Rotation of the solid; the identity by default.

        Returns
        -------
        Inertia
        """
        r, L = _size(radius, "radius"), _size(length, "length")
        f = L / (L + 4 / 3 * r) if L else 0.0  # the cylinder's share of the mass
        across = f * (3 * r * r + L * L) / 12 + (1 - f) * (2 / 5 * r * r + 3 / 8 * L * r + L * L / 4)
        along = f * r * r / 2 + (1 - f) * 2 / 5 * r * r
        volume = math.pi * r * r * (L + 4 / 3 * r)
        return Inertia._solid(volume, (across, across, along), mass, density, com, rotation)

    @staticmethod
    def mesh(
        source: str | os.PathLike[str] | tuple[ArrayLike, ArrayLike],
        *,
        mass: float | None = None,
        density: float | None = None,
    ) -> Inertia:
        """The solid inside a closed surface, in the frame of its vertices.

        Parameters
        ----------
        source : path, or (vertices (n, 3), faces (m, 3))
            A file that trimesh reads (STL, OBJ, PLY, ...), or the triangles themselves. The surface must be
            watertight. Needs trimesh, the extra `torsor[mesh]`.
        mass, density : float
            Mass or density, exactly one of them.

        Returns
        -------
        Inertia

        Raises
        ------
        ModelError
            If the surface is not closed and consistently oriented, or encloses no volume.
        """
        try:
            import trimesh
        except ImportError as e:
            raise ImportError("Inertia.mesh needs trimesh: pip install 'torsor[mesh]'") from e
        surface: Any = trimesh.Trimesh(*source) if isinstance(source, tuple) else trimesh.load_mesh(source)
        if not (surface.is_watertight and surface.is_winding_consistent):
            raise ModelError(
                "mesh is not a closed surface with one orientation, so it has no inside: "
                f"is_watertight is {surface.is_watertight}, "
                f"is_winding_consistent is {surface.is_winding_consistent}, expected True for both; "
                "repair it (trimesh.repair), or use its convex hull"
            )
        with np.errstate(divide="ignore", invalid="ignore"):  # at density 1; negative if the faces look inward
            whole = surface.mass_properties
        volume = float(whole.volume)
        if volume == 0:
            raise ModelError("mesh encloses no volume, expected a solid")
        m = _mass_of(abs(volume), mass, density)
        return Inertia(m, whole.center_mass, whole.inertia * (m / volume))

    def __add__(self, other: Inertia) -> Inertia:
        """The composite of two bodies, about their common centre of mass. Sueda 2021, section 1.7.1."""
        if not isinstance(other, Inertia):
            return NotImplemented
        m = self.mass + other.mass
        if m == 0:
            return Inertia.from_parameters(self.parameters + other.parameters, allow_unphysical=True)
        d = other.com - self.com
        I_com = self.I_com + other.I_com + _parallel_axis(self.mass * other.mass / m, d)
        return Inertia(m, self.com + other.mass / m * d, I_com, allow_unphysical=True)

    def __radd__(self, other: int) -> Inertia:
        """`0 + inertia`, with which `sum` starts."""
        return self if isinstance(other, int) and other == 0 else NotImplemented

    def transformed(self, pose: SE3) -> Inertia:
        """The same inertia in a frame in which the body's frame has the pose `pose`. Kim 2012, eq. (21)."""
        I_com = pose.R @ self.I_com @ pose.R.T
        return Inertia(self.mass, pose @ self.com, I_com, allow_unphysical=True)

    def principal(self) -> tuple[FloatArray, SE3]:
        """The principal moments (3,), ascending, and the pose of the principal axes at the centre of mass.

        Sueda 2021, section 1.7.1; the axes are right-handed.
        """
        moments, axes = np.linalg.eigh(self.I_com)
        if np.linalg.det(axes) < 0:
            axes[:, 2] *= -1
        return moments, SE3(axes, self.com)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Inertia):
            return NotImplemented
        same = self.mass == other.mass and np.array_equal(self.com, other.com)
        return same and np.array_equal(self.I_com, other.I_com)

    def __hash__(self) -> int:
        return hash((self.mass, *self.com, *self.I_com.flat))

    def __reduce__(self) -> tuple[Callable[..., Inertia], tuple[float, FloatArray, FloatArray]]:
        return partial(Inertia, allow_unphysical=True), (self.mass, self.com, self.I_com)

    def __repr__(self) -> str:
        note = "" if self.physical else ", allow_unphysical=True"
        return f"Inertia(mass={self.mass}, com={self.com.tolist()}, I_com={self.I_com.tolist()}{note})"
