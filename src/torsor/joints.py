"""Joints as small frozen descriptions, and the interface of user-defined joints.

A joint is a map q -> T(q), the pose of the child's frame in the joint's frame, with T at the neutral q the identity
except for splines. Its velocity v gives the child's twist S(q) v in the child's frame. Joints with q in R^n have v =
dq/dt; the quaternion joints (`Spherical`, `Free`) have v in the child's frame, and derivatives with respect to q are
along `plus(q, dv)`.

The core implements a few kinds of factors, and every joint is a chain of them: T = before K(q) before K(q) ... after.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, final

import numpy as np

from torsor import _check, _core, _errors, spatial
from torsor._compile import IDENTITY, Chain, Factor, compile_tree, compose
from torsor._core import JointKind
from torsor._core import Model as CoreModel

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from torsor._typing import Array, EulerChart, FloatArray

    Vector = tuple[float, float, float]


def unit_vector(axis: ArrayLike, name: str = "axis") -> Vector:
    """The vector, normalised."""
    a = spatial.frozen_array(axis, (3,), name)
    largest = float(np.abs(a).max())
    if largest == 0:
        raise ValueError(f"{name} is zero, expected a vector (x, y, z) of any positive length")
    if largest > 1 or abs(a @ a - 1.0) > 4e-16:  # else it has unit length and is kept to the last bit
        a = a / largest
        a = a / np.sqrt(a @ a)
    x, y, z = a.tolist()
    return (x, y, z)


def z_to(axis: ArrayLike) -> Array:
    """A rotation whose third column is the unit vector `axis`; exact for coordinate axes, and analytic in the axis."""
    z = np.asarray(axis)
    x = np.zeros(3)
    x[(int(np.abs(z.real).argmax()) + 1) % 3] = 1.0
    x = x - (x @ z) * z
    x = x / np.sqrt(x @ x)
    y = z[[1, 2, 0]] * x[[2, 0, 1]] - z[[2, 0, 1]] * x[[1, 2, 0]]  # np.cross takes as long as all the rest
    return np.stack([x, y, z], axis=1)


def _about(kind: int, axis: ArrayLike, pitch: complex = 0.0) -> Chain:
    """The chain of one revolute, prismatic or screw factor about or along `axis`."""
    return _about_known(kind, axis, pitch) if isinstance(axis, tuple) else _about_any(kind, axis, pitch)


def _about_any(kind: int, axis: ArrayLike, pitch: complex) -> Chain:
    R = z_to(axis)
    return (Factor(kind, 1, 1, (R, np.zeros(3)), pitch),), (R.T, np.zeros(3))


_about_known = lru_cache(maxsize=1024)(_about_any)  # most joints of a model share a few axes


def _concatenate(chains: Sequence[Chain]) -> Chain:
    factors: list[Factor] = []
    after = IDENTITY
    for chain, end in chains:
        for k, factor in enumerate(chain):
            factors.append(factor._replace(before=compose(after, factor.before)) if k == 0 else factor)
        after = end if chain else compose(after, end)
    return tuple(factors), after


class _Alone:
    """A single-joint model of the core, one massless body, for evaluating the joint alone."""

    __slots__ = ("_core",)

    def __init__(self, core: CoreModel) -> None:
        self._core = core


class _Data(NamedTuple):
    """What follows from the factors of a joint: numbers of coordinates and velocities, neutral ones, their range."""

    nq: int
    nv: int
    neutral: tuple[float, ...]
    range: tuple[tuple[float, ...], tuple[float, ...]]

    @staticmethod
    def of(factors: tuple[Factor, ...]) -> _Data:
        """Those of a chain of factors."""
        ends = [_range(f) for f in factors]
        low, high = (tuple(x for end in ends for x in end[side].tolist()) for side in (0, 1))
        neutral = tuple(x for f in factors for x in _neutral(f).tolist())
        return _Data(sum(f.nq for f in factors), sum(f.nv for f in factors), neutral, (low, high))


class Joint(ABC):
    """Base class of joints, with `nq` coordinates and `nv` velocities.

    All methods take any leading batch shape: q is (..., nq), v and dv are (..., nv).
    """

    @abstractmethod
    def _chain(self) -> Chain:
        """The joint as factors of the core. Overrides take the constants of the joint as arguments, for derivatives."""

    @cached_property
    def _factors(self) -> Chain:
        return self._chain()

    @cached_property
    def _alone(self) -> _Alone:
        return self._compile()

    def _compile(self) -> _Alone:
        tree = [("", -1, self._factors, IDENTITY, np.zeros(10))]
        return _Alone(CoreModel(*compile_tree(tree, np.zeros(3), np.zeros(self.nv))))

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k not in ("_alone", "_factors", "_chain_data")}

    @cached_property
    def _chain_data(self) -> _Data:
        return _Data.of(self._factors[0])

    @property
    def nq(self) -> int:
        """Number of coordinates."""
        return self._chain_data.nq

    @property
    def nv(self) -> int:
        """Number of velocities, the degrees of freedom."""
        return self._chain_data.nv

    @property
    def neutral(self) -> FloatArray:
        """The neutral configuration (nq,): zeros, and the identity quaternion."""
        return np.array(self._chain_data.neutral)

    def random(self, rng: np.random.Generator) -> FloatArray:
        """Random coordinates (nq,) from the generator `rng`: angles in (-pi, pi), lengths in (-1, 1), uniform
        rotations."""
        return np.concatenate([np.zeros(0)] + [_random(f, rng) for f in self._factors[0]])

    @property
    def range(self) -> tuple[FloatArray, FloatArray]:
        """Range of validity (lower, upper) of the coordinates, (nq,) each: infinite except for splines."""
        low, high = self._chain_data.range
        return np.array(low), np.array(high)

    def T(self, q: ArrayLike) -> FloatArray:
        """The pose (..., 4, 4) of the child's frame in the joint's frame at q."""
        return _core.joint_pose(self._alone, q, None, 1)

    def S(self, q: ArrayLike) -> FloatArray:
        """The Jacobian (..., 6, nv) of the joint at q, in the child's frame: T^-1 dT/dt = hat6(S v)."""
        return _core.joint_jacobians(self._alone, q, None, 1)[0]

    def dS(self, q: ArrayLike) -> FloatArray:
        """Derivatives (..., 6, nv, nv) of S at q: dS[..., :, j, k] is that of column j along velocity k."""
        return _core.joint_jacobians(self._alone, q, None, 1)[1]

    def d2S(self, q: ArrayLike) -> FloatArray:
        """Derivatives (..., 6, nv, nv, nv) of dS at q: d2S[..., j, k, l] is that of dS[..., j, k] along velocity l."""
        return _core.joint_jacobians(self._alone, q, None, 1)[2]

    def Sdot(self, q: ArrayLike, v: ArrayLike) -> FloatArray:
        """The time derivative (..., 6, nv) of S at q along a motion with velocity v."""
        spatial.refuse_mask("v", v)
        return np.asarray(np.einsum("...ijk,...k->...ij", self.dS(q), np.asarray(v)))

    def dSdot(self, q: ArrayLike, v: ArrayLike) -> FloatArray:
        """Derivatives (..., 6, nv, nv) of Sdot(q, v) by q: dSdot[..., :, j, l] is that of column j along velocity l."""
        spatial.refuse_mask("v", v)
        return np.asarray(np.einsum("...ijkl,...k->...ijl", self.d2S(q), np.asarray(v)))

    def plus(self, q: ArrayLike, dv: ArrayLike) -> FloatArray:
        """The coordinates (..., nq) reached from q by the displacement dv (..., nv) in the tangent space at q."""
        return _core.plus(self._alone, q, dv, None, 1)

    def minus(self, q1: ArrayLike, q0: ArrayLike) -> FloatArray:
        """The displacement dv (..., nv) with plus(q0, dv) = q1; rotations take the shorter way."""
        return _core.minus(self._alone, q1, q0, None, 1)

    def normalize(self, q: ArrayLike) -> FloatArray:
        """q with quaternions of unit length and exponential coordinates of length pi at most."""
        return _core.normalize(self._alone, q, None, 1)


def _neutral(factor: Factor) -> FloatArray:
    q = np.zeros(factor.nq)
    if factor.kind in (JointKind.spherical, JointKind.free):
        q[-1] = 1.0
    return q


def _random(factor: Factor, rng: np.random.Generator) -> FloatArray:
    q = rng.uniform(-1.0, 1.0, factor.nq)
    if factor.kind in (JointKind.revolute, JointKind.screw):
        q = np.pi * q
    elif factor.kind in (JointKind.spherical, JointKind.free):
        x = rng.standard_normal(4)
        q[-4:] = x / np.sqrt(x @ x)
    elif factor.kind == JointKind.exponential:
        x = rng.standard_normal(4)
        q = np.asarray(spatial.log3(spatial.quaternion_to_matrix(x)))
    elif factor.kind in (JointKind.spline_curve, JointKind.spline_surface):
        low, high = _range(factor)
        q = rng.uniform(low, high)
    return q


def _range(factor: Factor) -> tuple[FloatArray, FloatArray]:
    if factor.kind == JointKind.spline_curve:
        return np.zeros(1), np.array([len(factor.data[0]) / 12 - 3.0])
    if factor.kind == JointKind.spline_surface:
        return np.zeros(2), np.array([factor.data[0] - 3.0, factor.data[1] - 3.0])
    return np.full(factor.nq, -np.inf), np.full(factor.nq, np.inf)


@final
@dataclass(frozen=True)
class Fixed(Joint):
    """Zero degrees of freedom. Sueda 2021, 2.5.1."""

    def _chain(self) -> Chain:
        return (), IDENTITY


@dataclass(frozen=True, init=False)
class _Axial(Joint):
    axis: Vector

    def __init__(self, axis: ArrayLike = (0.0, 0.0, 1.0)) -> None:
        object.__setattr__(self, "axis", unit_vector(axis))


@final
@dataclass(frozen=True, init=False)
class Revolute(_Axial):
    """Rotation by the angle q about an axis. Sueda 2021, 2.5.7.

    Parameters
    ----------
    axis : (3,) array_like
        Direction of the axis in the joint's frame, normalised; z by default.
    """

    def _chain(self, axis: ArrayLike | None = None) -> Chain:
        return _about(JointKind.revolute, self.axis if axis is None else axis)


@final
@dataclass(frozen=True, init=False)
class Prismatic(_Axial):
    """Translation by q along an axis. Sueda 2021, 2.5.2.

    Parameters
    ----------
    axis : (3,) array_like
        Direction of the axis in the joint's frame, normalised; z by default.
    """

    def _chain(self, axis: ArrayLike | None = None) -> Chain:
        return _about(JointKind.prismatic, self.axis if axis is None else axis)


@final
@dataclass(frozen=True, init=False)
class Screw(_Axial):
    """Rotation by q about an axis with a translation by pitch q along it.

    Parameters
    ----------
    axis : (3,) array_like
        Direction of the axis in the joint's frame, normalised; z by default.
    pitch : float
        Translation per radian.
    """

    pitch: float

    def __init__(self, axis: ArrayLike = (0.0, 0.0, 1.0), pitch: float = 0.0) -> None:
        super().__init__(axis)
        object.__setattr__(self, "pitch", float(spatial.frozen_array(pitch, (), "pitch")))

    def _chain(self, axis: ArrayLike | None = None, pitch: complex | None = None) -> Chain:
        return _about(JointKind.screw, self.axis if axis is None else axis, self.pitch if pitch is None else pitch)


@final
@dataclass(frozen=True, init=False)
class Cylindrical(_Axial):
    """Rotation by q[0] about an axis and translation by q[1] along it.

    Parameters
    ----------
    axis : (3,) array_like
        Direction of the axis in the joint's frame, normalised; z by default.
    """

    def _chain(self, axis: ArrayLike | None = None) -> Chain:
        axis = self.axis if axis is None else axis
        return _concatenate([_about(JointKind.revolute, axis), _about(JointKind.prismatic, axis)])


def _two(pair: ArrayLike, name: str) -> tuple[Vector, Vector]:
    """Two unit vectors that are not parallel."""
    both = spatial.frozen_array(pair, (2, 3), name)
    a, b = unit_vector(both[0], f"{name}[0]"), unit_vector(both[1], f"{name}[1]")
    if np.abs(np.cross(a, b)).max() < 1e-9:
        raise ValueError(f"{name} {a} and {b} are parallel, expected two that span a plane")
    return a, b


@final
@dataclass(frozen=True, init=False)
class Planar(Joint):
    """Translation by q[0] and q[1] along two directions. Sueda 2021, 2.5.3.

    Parameters
    ----------
    directions : (2, 3) array_like
        Two directions in the joint's frame, normalised, not parallel; x and y by default.
    """

    directions: tuple[Vector, Vector]

    def __init__(self, directions: ArrayLike = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0))) -> None:
        object.__setattr__(self, "directions", _two(directions, "directions"))

    def _chain(self, directions: Sequence[ArrayLike] | None = None) -> Chain:
        return _concatenate(
            [_about(JointKind.prismatic, d) for d in (self.directions if directions is None else directions)]
        )


_AXES: dict[str, Vector] = {"X": (1.0, 0.0, 0.0), "Y": (0.0, 1.0, 0.0), "Z": (0.0, 0.0, 1.0)}


@final
@dataclass(frozen=True)
class Translational(Joint):
    """Translation by q in R^3. Sueda 2021, 2.5.4."""

    def _chain(self) -> Chain:
        return _concatenate([_about(JointKind.prismatic, a) for a in _AXES.values()])


@final
@dataclass(frozen=True, init=False)
class Universal(Joint):
    """Rotation about two axes, the second of which rotates with the first: R = R_1(q[0]) R_2(q[1]). Sueda 2021, 2.5.6.

    Parameters
    ----------
    axes : (2, 3) array_like
        Two axes, normalised, not parallel; x and y by default.
    """

    axes: tuple[Vector, Vector]

    def __init__(self, axes: ArrayLike = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0))) -> None:
        object.__setattr__(self, "axes", _two(axes, "axes"))

    def _chain(self, axes: Sequence[ArrayLike] | None = None) -> Chain:
        return _concatenate([_about(JointKind.revolute, a) for a in (self.axes if axes is None else axes)])


@final
@dataclass(frozen=True)
class Spherical(Joint):
    """Rotation: q is a quaternion xyzw, v the angular velocity in the child's frame.

    Quaternions of any positive length are normalised in use; `normalize` and `plus` return unit quaternions.
    """

    def _chain(self) -> Chain:
        return (Factor(JointKind.spherical, 4, 3),), IDENTITY


@final
@dataclass(frozen=True)
class SphericalEuler(Joint):
    """Rotation by three Euler angles, R = R_a(q[0]) R_b(q[1]) R_c(q[2]). Sueda 2021, Tables 1-3.

    S is singular where `det_S` is 0: at cos q[1] = 0 for three different axes, at sin q[1] = 0 otherwise (so at q = 0
    too). There T and S are still exact, inverse dynamics is defined, and forward dynamics raises
    `SingularMassMatrixError`; `switch` to another chart before.

    Parameters
    ----------
    chart : str
        The axes a, b and c: "XYZ", "XZY", "YZX", "YXZ", "ZXY", "ZYX", "XYX", "XZX", "YZY", "YXY", "ZXZ" or "ZYZ".
    """

    chart: EulerChart = "ZYX"
    CHARTS: ClassVar[tuple[EulerChart, ...]] = (
        "XYX", "XYZ", "XZX", "XZY", "YXY", "YXZ", "YZX", "YZY", "ZXY", "ZXZ", "ZYX", "ZYZ",
    )  # fmt: skip

    def __post_init__(self) -> None:
        if self.chart not in self.CHARTS:
            raise ValueError(f"no chart {self.chart!r}; charts are {', '.join(self.CHARTS)}")

    def _chain(self) -> Chain:
        return _concatenate([_about(JointKind.revolute, _AXES[a]) for a in self.chart])

    def random(self, rng: np.random.Generator) -> FloatArray:
        """Random angles (3,) from the generator `rng`, away from the singularities of the chart: q[1] in (-0.4, 0.4) pi
        or, for a repeated axis, (0.1, 0.9) pi."""
        q = np.pi * rng.uniform(-1.0, 1.0, 3)
        q[1] = 0.4 * q[1] + (np.pi / 2 if self._proper else 0.0)
        return q

    @property
    def _proper(self) -> bool:
        """Whether the first and the last axis are the same: proper Euler angles."""
        return self.chart[0] == self.chart[2]

    @property
    def _sign(self) -> float:
        """1 if the first axis, the second and the remaining one are in cyclic order, else -1."""
        return 1.0 if self.chart[:2] in ("XY", "YZ", "ZX") else -1.0

    def det_S(self, q: ArrayLike) -> FloatArray:
        """The determinant (...) of the angular rows of S at q (..., 3). Sueda 2021, Table 3."""
        spatial.refuse_mask("q", q)
        q1 = np.asarray(q)[..., 1]
        return np.asarray(-np.sin(q1) if self._proper else self._sign * np.cos(q1))

    def from_rotation(self, R: ArrayLike) -> FloatArray:
        """The angles (..., 3) of rotation matrices R (..., 3, 3). Sueda 2021, Table 3.

        q[1] lies in [-pi/2, pi/2], or in [0, pi] for a repeated axis. At the chart's singularity q[2] is 0.
        """
        spatial.refuse_mask("R", R)
        R = np.asarray(R, dtype=np.float64)
        i, j = ("XYZ".index(c) for c in self.chart[:2])
        k, s = 3 - i - j, self._sign
        if self._proper:  # R[i, i] = cos q1; column i holds sin q1 and q0
            sine = np.hypot(R[..., j, i], R[..., k, i])
            q1 = np.arctan2(sine, R[..., i, i])
            q0 = np.arctan2(R[..., j, i], -s * R[..., k, i])
        else:  # R[i, k] = s sin q1; column k holds cos q1 and q0
            sine = np.hypot(R[..., j, k], R[..., k, k])  # |cos q1|
            q1 = np.arctan2(s * R[..., i, k], sine)
            q0 = np.arctan2(-s * R[..., j, k], R[..., k, k])
        locked = sine < 1e-12
        q0 = np.where(locked, np.arctan2(s * R[..., k, j], R[..., j, j]), q0)
        # Row j of R_a(q0)^T R is that of R_c(q2): near the singularity q2 compensates for the rounding of q0.
        row = np.cos(q0)[..., None] * R[..., j, :] + s * np.sin(q0)[..., None] * R[..., k, :]
        q2 = np.arctan2(-s * row[..., k] if self._proper else s * row[..., i], row[..., j])
        return np.stack([q0, q1, np.where(locked, 0.0, q2)], axis=-1)

    def switch(
        self, to: EulerChart | SphericalEuler, q: ArrayLike, v: ArrayLike | None = None, a: ArrayLike | None = None
    ) -> tuple[FloatArray, ...]:
        """The same motion in another chart. Sueda 2021, (2.40).

        Parameters
        ----------
        to : str or SphericalEuler
            The other chart.
        q : (..., 3) array_like
            Coordinates.
        v, a : (..., 3) array_like, optional
            Velocities and accelerations.

        Returns
        -------
        tuple of (..., 3) arrays
            (q,), (q, v) or (q, v, a), as many as are given.
        """
        new = to if isinstance(to, SphericalEuler) else SphericalEuler(to)
        if v is None and a is not None:
            raise TypeError("switch needs v to transform a")
        return _rechart(self, new, q, new.from_rotation(self.T(q)[..., :3, :3]), v, a)


def _rechart(
    old: Joint, new: Joint, q: ArrayLike, q_new: FloatArray, v: ArrayLike | None, a: ArrayLike | None
) -> tuple[FloatArray, ...]:
    """q_new, and v and a in its coordinates, for the motion of old at q. Sueda 2021, (2.40)."""
    if v is None:
        return (q_new,)
    if np.any(np.abs(np.linalg.det(new.S(q_new)[..., :3, :])) < 1e-12):
        raise ValueError(
            f"{new!r} is singular at this rotation, so velocities cannot be transformed; choose another chart"
        )
    solve = np.asarray(np.linalg.inv(new.S(q_new)[..., :3, :]), dtype=np.float64)

    for name, x in (("v", v), ("a", a)):
        spatial.refuse_mask(name, x)

    def times(A: FloatArray, x: ArrayLike) -> FloatArray:
        return np.asarray(np.einsum("...ij,...j->...i", A, np.asarray(x)))

    v_new = times(solve, times(old.S(q)[..., :3, :], v))
    if a is None:
        return q_new, v_new
    rate = times(old.Sdot(q, v)[..., :3, :], v) + times(old.S(q)[..., :3, :], a)
    return q_new, v_new, times(solve, rate - times(new.Sdot(q_new, v_new)[..., :3, :], v_new))


@final
@dataclass(frozen=True)
class SphericalExp(Joint):
    """Rotation in exponential coordinates, R = exp(hat(q)). Sueda 2021, 2.5.8.

    Regular at q = 0. S is singular where the length of q is a nonzero multiple of 2 pi; `reparametrize` before.
    `normalize` does the same for q alone, beyond pi.
    """

    def _chain(self) -> Chain:
        return (Factor(JointKind.exponential, 3, 3),), IDENTITY

    def reparametrize(
        self, q: ArrayLike, v: ArrayLike | None = None, a: ArrayLike | None = None
    ) -> tuple[FloatArray, ...]:
        """The same motion with |q| at most pi.

        Parameters
        ----------
        q : (..., 3) array_like
            Coordinates.
        v, a : (..., 3) array_like, optional
            Velocities and accelerations.

        Returns
        -------
        tuple of (..., 3) arrays
            (q,), (q, v) or (q, v, a), as many as are given.
        """
        return _rechart(self, self, q, self.normalize(q), v, a)


@final
@dataclass(frozen=True)
class Free(Joint):
    """Six degrees of freedom: q is position (3) and quaternion xyzw (4), v the twist in the child's frame."""

    def _chain(self) -> Chain:
        return (Factor(JointKind.free, 7, 6),), IDENTITY


@final
@dataclass(frozen=True)
class Free2D(Joint):
    """Motion in the x-y plane: q = (x, y, angle), x and y along the axes of the joint's frame. Sueda 2021, 2.5.10."""

    def _chain(self) -> Chain:
        return _concatenate([Planar()._chain(), Revolute()._chain()])


@final
@dataclass(frozen=True, init=False)
class Composite(Joint):
    """A chain of joints without bodies between them: T = T_1(q_1) T_2(q_2) ... Sueda 2021, 2.5.9 and 2.5.11.

    `Composite(Translational(), SphericalEuler("XYZ"))`, or the reverse, is Sueda's free joint in 3D.

    Parameters
    ----------
    *joints : Joint
        The joints, from the parent to the child.
    """

    joints: tuple[Joint, ...]

    def __init__(self, *joints: Joint) -> None:
        for j in joints:
            if not isinstance(j, Joint):
                raise TypeError(f"Composite takes joints, got {type(j).__name__}")
        object.__setattr__(self, "joints", joints)

    def __repr__(self) -> str:
        return f"Composite({', '.join(map(repr, self.joints))})"

    def _chain(self, joints: Sequence[Chain] | None = None) -> Chain:
        return _concatenate([j._chain() for j in self.joints] if joints is None else joints)

    def random(self, rng: np.random.Generator) -> FloatArray:
        """Random coordinates (nq,) from the generator `rng`, joint by joint."""
        return np.concatenate([np.zeros(0)] + [j.random(rng) for j in self.joints])


@final
@dataclass(frozen=True, init=False)
class SplineCurve(Joint):
    """Motion along a uniform cubic B-spline in the space of poses. Sueda 2021, 2.5.12 and Alg. 3.

    Between q = k and k + 1, with u = q - k and the control frames F::

        T = F_k exp(b_1 log(F_k^-1 F_k+1)) exp(b_2 log(F_k+1^-1 F_k+2)) exp(b_3 log(F_k+2^-1 F_k+3)),
        b_1 = (5 + 3 u - 3 u^2 + u^3) / 6,  b_2 = (1 + 3 u + 3 u^2 - 2 u^3) / 6,  b_3 = u^3 / 6.

    The curve passes near its control frames, not through them.

    Parameters
    ----------
    frames : sequence of SE3
        Control frames, at least four. q ranges over [0, len(frames) - 3], one unit for each four neighbours, twice
        differentiable where segments meet. Outside that range the polynomial of the first or last segment continues.
    """

    frames: tuple[spatial.SE3, ...]

    def __init__(self, frames: Sequence[spatial.SE3]) -> None:
        frames = tuple(frames)
        if not all(isinstance(f, spatial.SE3) for f in frames):
            raise TypeError("frames of a SplineCurve must be SE3 poses")
        if len(frames) < 4:
            raise ValueError(f"a SplineCurve needs 4 frames at least, got {len(frames)}")
        for i in range(1, len(frames)):
            turn = (frames[i - 1].inverse() @ frames[i]).log()[:3]
            if np.sqrt(turn @ turn) > np.pi - 1e-6:
                raise ValueError(
                    f"frames {i - 1} and {i} are half a turn apart, so the way between them is not defined; "
                    "put a frame between them"
                )
        object.__setattr__(self, "frames", frames)

    def _chain(self, frames: Array | None = None) -> Chain:
        T = np.stack([f.matrix for f in self.frames]) if frames is None else frames
        poses = np.concatenate([T[:, :3, :3].reshape(-1, 9), T[:, :3, 3]], axis=1)
        steps = spatial.log6(np.linalg.inv(T[:-1]) @ T[1:])
        return (Factor(JointKind.spline_curve, 1, 1, data=(poses.ravel().tolist(), steps.ravel().tolist())),), IDENTITY


@final
@dataclass(frozen=True, init=False)
class SplineSurface(Joint):
    """Motion in all six degrees of freedom by tensor-product cubic B-splines of two coordinates. Sueda 2021, 2.5.13.

    T is the translation by (f_0, f_1, f_2), then R_x(f_3) R_y(f_4) R_z(f_5). Between q = (k, l) and (k + 1, l + 1) each
    f is the sum of B_i(q[0] - k) B_j(q[1] - l) values[., k + i, l + j] over i and j from 0 to 3, with 6 B(u) =
    (1 - u)^3, 4 - 6 u^2 + 3 u^3, 1 + 3 u + 3 u^2 - 3 u^3, u^3.

    Parameters
    ----------
    values : (6, m, n) array_like
        Control values of the x, y, z translations, then of the rotations about x, y, z; m and n are at least 4. q
        ranges over [0, m - 3] x [0, n - 3]; outside it the polynomials of the border segments continue.
    """

    values: tuple[tuple[tuple[float, ...], ...], ...]

    def __init__(self, values: ArrayLike) -> None:
        shape = np.shape(values)
        if len(shape) != 3 or shape[0] != 6 or min(shape[1:]) < 4:
            raise ValueError(f"values has shape {shape}, expected (6, m, n) with m and n at least 4")
        array = spatial.frozen_array(values, shape, "values")
        object.__setattr__(self, "values", tuple(tuple(map(tuple, grid)) for grid in array.tolist()))

    def _chain(self, values: Array | None = None) -> Chain:
        a = np.array(self.values) if values is None else values
        return (Factor(JointKind.spline_surface, 2, 2, data=(a.shape[1], a.shape[2], a.ravel().tolist())),), IDENTITY


class CustomJoint(Joint):
    """A user-defined joint with q in R^n, n from 1 to 6, written in Python.

    Derive a class with an attribute `dofs` (n) and the methods `T`, `S`, `dS` and `d2S`; everything else follows from
    them. Each takes one q of shape (n,), float or complex, and returns one array: (4, 4), (6, n), (6, n, n), (6, n, n,
    n). Set `batched = True` if they also take (..., n), which avoids a loop in Python. They must not use abs, conj or
    comparisons of complex numbers: second derivatives of dynamics, and derivatives of first derivatives along a
    direction, need third derivatives of S, which are complex steps through `d2S`. `testing.check_joint` tests them all.

    To be sent to other processes and to be compared, an instance must be picklable and have `__eq__`. The methods run
    under the interpreter lock, for a few states at a time, so the joint is far slower than a built-in one.
    """

    dofs: int
    batched: ClassVar[bool] = False

    @abstractmethod
    def T(self, q: ArrayLike) -> FloatArray:
        """The pose (4, 4) of the child's frame in the joint's frame at q (n,)."""

    @abstractmethod
    def S(self, q: ArrayLike) -> FloatArray:
        """The Jacobian (6, n) at q (n,): hat6(S[:, k]) = T^-1 dT/dq_k."""

    @abstractmethod
    def dS(self, q: ArrayLike) -> FloatArray:
        """Derivatives (6, n, n) of S at q (n,): dS[:, j, k] = d S[:, j] / dq_k."""

    @abstractmethod
    def d2S(self, q: ArrayLike) -> FloatArray:
        """Derivatives (6, n, n, n) of dS at q (n,): d2S[:, j, k, l] = d dS[:, j, k] / dq_l."""

    @property
    def _alone(self) -> _Alone:  # not cached: it refers to the joint, a cycle that would never be freed
        return self._compile()

    def _chain(self) -> Chain:
        n = getattr(self, "dofs", None)
        if not isinstance(n, int) or isinstance(n, bool) or not 1 <= n <= 6:
            raise _errors.ModelError(f"{type(self).__name__}.dofs is {n!r}, expected an integer from 1 to 6")
        return (Factor(JointKind.custom, n, n, data=self),), IDENTITY

    @property
    def _factors(self) -> Chain:  # for the same reason
        return self._chain()

    @property
    def _chain_data(self) -> _Data:
        return _Data.of(self._chain()[0])

    def _evaluate(self, q: NDArray[Any], level: int) -> NDArray[Any]:
        """T, S, dS and, at level 3, d2S for each row of q, flattened, as the core expects."""
        token = _check.complex_allowed.set(_check.complex_allowed.get() or q.dtype.kind == "c")
        try:
            return self._evaluate_parts(q, level)
        finally:
            _check.complex_allowed.reset(token)

    def _evaluate_parts(self, q: NDArray[Any], level: int) -> NDArray[Any]:
        n = q.shape[1]
        parts = [(self.T, (4, 4)), (self.S, (6, n)), (self.dS, (6, n, n)), (self.d2S, (6, n, n, n))]
        out = []
        for part, (function, shape) in enumerate(parts):
            if part > level:
                value = np.zeros((len(q), *shape), q.dtype)
            elif self.batched:
                value = np.asarray(function(q))
            else:
                rows = [np.asarray(function(row)) for row in q]
                odd = [row[None] for row in rows if row.shape != shape]
                value = odd[0] if odd else np.stack(rows)
            if value.shape != (len(q), *shape) or not np.can_cast(value.dtype, q.dtype, "same_kind"):
                raise _errors.ModelError(
                    f"{type(self).__name__}.{function.__name__} gave shape {value.shape[1:]} and dtype {value.dtype}, "
                    f"expected {shape} and {q.dtype}"
                )
            out.append(value.reshape(len(q), -1).astype(q.dtype))
        return np.ascontiguousarray(np.concatenate(out, axis=1))
