"""SE(3), se(3) and their maps: hat, Ad, ad, exp, log and the derivative of exp.

Twists and wrenches are 6-vectors, angular part first. The functions take arrays with any leading batch shape, of floats
or of complex numbers: they are analytic, so that complex steps through them give derivatives. The class `SE3` is one
pose, validated and frozen.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from math import cos, sin
from typing import TYPE_CHECKING, Any, final, overload

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from torsor._typing import Array, FloatArray

__all__ = [
    "SE3", "Ad", "ad", "dexp3", "dexp3_inv", "dexp6", "dexp6_inv", "exp3", "exp6", "hat", "hat6", "log3", "log6",
    "matrix_to_quaternion", "quaternion_to_matrix", "vee", "vee6",
]  # fmt: skip


def refuse_mask(name: str, value: Any) -> None:
    """Rejects masked arrays and lists of them, whose masks would be ignored."""
    if type(value) is np.ndarray:
        return
    masked = sys.modules.get("numpy.ma")  # else there are none
    if masked is not None and _has(value, masked.MaskedArray):
        raise TypeError(
            f"{name} is a masked array, expected a plain one, because masks are ignored; x.filled(value) makes one"
        )


def _has(value: Any, kind: type) -> bool:
    if isinstance(value, (list, tuple)):
        return any(_has(part, kind) for part in value)
    return isinstance(value, kind)


def frozen_array(x: ArrayLike, shape: tuple[int, ...], name: str) -> FloatArray:
    """A read-only float64 copy of x, which must be real, finite and of the given shape."""
    refuse_mask(name, x)
    a = np.array(x)
    if a.dtype.kind not in "biuf":
        raise ValueError(f"{name} has dtype {a.dtype}, expected real numbers")
    if a.shape != shape:
        raise ValueError(f"{name} has shape {a.shape}, expected {shape}")
    if not np.isfinite(a).all():
        raise ValueError(f"{name} is not finite: got {a.tolist()}")
    a = a.astype(np.float64)
    a.flags.writeable = False
    return a


def _inexact(x: ArrayLike, tail: tuple[int, ...], name: str) -> Array:
    """x as an array of floats or complex numbers, whose last dimensions must be `tail`."""
    refuse_mask(name, x)
    a = np.asarray(x)
    if a.shape[max(a.ndim - len(tail), 0) :] != tail:
        raise ValueError(f"{name} has shape {a.shape}, expected (..., {', '.join(map(str, tail))})")
    return a if a.dtype.kind in "fc" else a.astype(np.float64)


def _square(w: Array) -> Array:
    """w.w without conjugation, shaped to scale matrices: (..., n) -> (..., 1, 1)."""
    return np.asarray((w * w).sum(-1)[..., None, None])


def _dual(A: Array, B: Array) -> Array:
    """The matrix [[A, 0], [B, A]], A + eps B of dual numbers: (..., 3, 3) twice -> (..., 6, 6)."""
    out = np.zeros((*A.shape[:-2], 6, 6), np.result_type(A, B))
    out[..., :3, :3] = out[..., 3:, 3:] = A
    out[..., 3:, :3] = B
    return out


def _homogeneous(R: Array, p: Array, corner: float) -> Array:
    """The 4x4 matrix [[R, p], [0, corner]]."""
    out = np.zeros((*R.shape[:-2], 4, 4), np.result_type(R, p))
    out[..., :3, :3] = R
    out[..., :3, 3] = p
    out[..., 3, 3] = corner
    return out


# Vectors and matrices


def hat(w: ArrayLike) -> Array:
    """The skew-symmetric matrix [w] with [w] y = w x y. Kim 2012, eq. (5).

    Parameters
    ----------
    w : (..., 3) array_like
        Vectors.

    Returns
    -------
    W : (..., 3, 3) array
    """
    w = _inexact(w, (3,), "w")
    out = np.zeros((*w.shape, 3), w.dtype)
    out[..., 2, 1], out[..., 0, 2], out[..., 1, 0] = np.moveaxis(w, -1, 0)
    out[..., 1, 2], out[..., 2, 0], out[..., 0, 1] = np.moveaxis(-w, -1, 0)
    return out


def vee(W: ArrayLike) -> Array:
    """The vector w of the skew-symmetric part of W, the inverse of `hat`.

    Parameters
    ----------
    W : (..., 3, 3) array_like
        Matrices.

    Returns
    -------
    w : (..., 3) array
    """
    W = _inexact(W, (3, 3), "W")
    twice = (W[..., 2, 1] - W[..., 1, 2], W[..., 0, 2] - W[..., 2, 0], W[..., 1, 0] - W[..., 0, 1])
    return np.stack(twice, -1) / 2


def hat6(V: ArrayLike) -> Array:
    """The twist V = (w, v) as the matrix [[[w], v], [0, 0]]. Kim 2012, eq. (5).

    Parameters
    ----------
    V : (..., 6) array_like
        Twists.

    Returns
    -------
    X : (..., 4, 4) array
    """
    V = _inexact(V, (6,), "V")
    return _homogeneous(hat(V[..., :3]), V[..., 3:], 0.0)


def vee6(X: ArrayLike) -> Array:
    """The twist of a matrix [[[w], v], [0, 0]], the inverse of `hat6`.

    Parameters
    ----------
    X : (..., 4, 4) array_like
        Matrices.

    Returns
    -------
    V : (..., 6) array
    """
    X = _inexact(X, (4, 4), "X")
    return np.concatenate((vee(X[..., :3, :3]), X[..., :3, 3]), -1)


def Ad(T: ArrayLike) -> Array:
    """The adjoint [[R, 0], [[p] R, R]] of a pose. Kim 2012, eq. (7).

    If T is the pose of frame b in frame a, Ad(T) takes twists seen from b to the same twists seen from a,
    and Ad(T)^T takes wrenches seen from a to b.

    Parameters
    ----------
    T : (..., 4, 4) array_like
        Poses.

    Returns
    -------
    A : (..., 6, 6) array
    """
    T = _inexact(T, (4, 4), "T")
    R = T[..., :3, :3]
    return _dual(R, hat(T[..., :3, 3]) @ R)


def ad(V: ArrayLike) -> Array:
    """The matrix [[[w], 0], [[v], [w]]] of the Lie bracket with V. Sueda 2021, eq. (1.19).

    Parameters
    ----------
    V : (..., 6) array_like
        Twists.

    Returns
    -------
    A : (..., 6, 6) array
    """
    V = _inexact(V, (6,), "V")
    return _dual(hat(V[..., :3]), hat(V[..., 3:]))


# Exponentials and their inverses


def stumpff(x: Array) -> tuple[Array, Array, Array, Array, Array, Array]:
    """The Stumpff functions c_0 ... c_5 of x = t^2, c_m(x) = sum_i (-x)^i / (m + 2i)!, each shaped as x.

    c_0 = cos t, c_1 = sin t / t, c_m = 1/m! - x c_{m+2}, and dc_m/dx = (m c_{m+2} - c_{m+1}) / 2. Below x = 4
    c_4 and c_5 come from their series (11 terms: the next is 1e-18 of the sum) and the recursion runs down;
    above, c_0 and c_1 from cos and sin and it runs up. Neither way cancels.
    """
    small = x.real < 4
    y, z = np.where(small, x, 0), np.where(small, 4, x)
    s4, s5 = np.ones_like(y), np.ones_like(y)
    for i in range(10, 0, -1):
        s4 = 1 - s4 * y / ((2 * i + 3) * (2 * i + 4))
        s5 = 1 - s5 * y / ((2 * i + 4) * (2 * i + 5))
    s4, s5 = s4 / 24, s5 / 120
    s2, s3 = 1 / 2 - y * s4, 1 / 6 - y * s5
    s0, s1 = 1 - y * s2, 1 - y * s3
    t = np.sqrt(z)
    b0, b1 = np.cos(t), np.sin(t) / t
    b2, b3 = (1 - b0) / z, (1 - b1) / z
    b4, b5 = (1 / 2 - b2) / z, (1 / 6 - b3) / z
    c0, c1, c2 = np.where(small, s0, b0), np.where(small, s1, b1), np.where(small, s2, b2)
    c3, c4, c5 = np.where(small, s3, b3), np.where(small, s4, b4), np.where(small, s5, b5)
    return c0, c1, c2, c3, c4, c5


def _inverse_coefficient(x: Array) -> tuple[Array, Array]:
    """e(x) and de/dx for dexp3^-1 = 1 + [w]/2 + e [w]^2, x = w.w.

    e = (1 - (t/2) cot(t/2)) / t^2 = (c_2 - c_3) / (4 c_1) with Stumpff functions of x/4: regular at 0,
    accurate up to its pole at t = 2 pi.
    """
    _, c1, c2, c3, c4, c5 = stumpff(x / 4)
    e = (c2 - c3) / (4 * c1)
    return e, (3 * c4 - c3 - 3 * c5) / (32 * c1) + e * e / 2


def _quadratic(w: Array, a: Array | float, b: Array) -> Array:
    """1 + a [w] + b [w]^2: (..., 3, 3)."""
    W = hat(w)
    return np.asarray(np.eye(3) + a * W + b * (W @ W))


def _quadratic_dual(V: Array, a: Array, b: Array, da: Array, db: Array) -> Array:
    """1 + a [w] + b [w]^2 at the dual vector w + eps v, da and db derivatives by x = w.w: (..., 6, 6).

    SE(3) is SO(3) over the dual numbers, so this makes the maps of se(3) out of those of so(3).
    """
    w, v = V[..., :3], V[..., 3:]
    W, U = hat(w), hat(v)
    W2 = W @ W
    dx = 2 * (w * v).sum(-1)[..., None, None]
    return _dual(np.eye(3) + a * W + b * W2, a * U + b * (W @ U + U @ W) + dx * (da * W + db * W2))


def exp3(w: ArrayLike) -> Array:
    """The rotation by |w| about w, 1 + c_1 [w] + c_2 [w]^2 (Rodrigues).

    Parameters
    ----------
    w : (..., 3) array_like
        Rotation vectors.

    Returns
    -------
    R : (..., 3, 3) array
    """
    w = _inexact(w, (3,), "w")
    _, c1, c2, *_ = stumpff(_square(w))
    return _quadratic(w, c1, c2)


def log3(R: ArrayLike) -> Array:
    """The rotation vector w of R, |w| <= pi, with exp3(w) = R.

    By way of the unit quaternion (u, c), c >= 0, which is accurate at every angle: w = 4 atan(s) u / |u| with
    s = |u| / (1 + c) = tan(|w| / 4) <= 1. At |w| = pi, where w and -w are the same rotation, either may come.

    Parameters
    ----------
    R : (..., 3, 3) array_like
        Rotation matrices.

    Returns
    -------
    w : (..., 3) array
    """
    q = matrix_to_quaternion(_inexact(R, (3, 3), "R"))
    u, c = q[..., :3], q[..., 3:]
    s2 = (u * u).sum(-1, keepdims=True) / (1 + c) ** 2
    small = s2.real < 0.02  # ten terms of the series of atan(s) / s reach 1e-18 there
    y, s = np.where(small, s2, 0), np.sqrt(np.where(small, 1, s2))
    series = np.zeros_like(y)
    for k in range(9, -1, -1):
        series = 1 / (2 * k + 1) - y * series
    return np.asarray(4 / (1 + c) * np.where(small, series, np.arctan(s) / s) * u)


def dexp3(w: ArrayLike) -> Array:
    """The right Jacobian J of `exp3`: exp3(w + dw) = exp3(w) exp3(J dw) to first order.

    J = 1 - c_2 [w] + c_3 [w]^2. The left Jacobian is dexp3(-w).

    Parameters
    ----------
    w : (..., 3) array_like
        Rotation vectors.

    Returns
    -------
    J : (..., 3, 3) array
    """
    w = _inexact(w, (3,), "w")
    _, _, c2, c3, *_ = stumpff(_square(w))
    return _quadratic(w, -c2, c3)


def dexp3_inv(w: ArrayLike) -> Array:
    """The inverse of `dexp3`, 1 + [w]/2 + e [w]^2; singular where |w| is 2 pi.

    Parameters
    ----------
    w : (..., 3) array_like
        Rotation vectors.

    Returns
    -------
    J_inverse : (..., 3, 3) array
    """
    w = _inexact(w, (3,), "w")
    e, _ = _inverse_coefficient(_square(w))
    return _quadratic(w, 0.5, e)


def exp6(V: ArrayLike) -> Array:
    """The pose reached from the identity by unit time of the body twist V.

    Parameters
    ----------
    V : (..., 6) array_like
        Twists.

    Returns
    -------
    T : (..., 4, 4) array
    """
    V = _inexact(V, (6,), "V")
    w, v = V[..., :3], V[..., 3:]
    return _homogeneous(exp3(w), (dexp3(-w) @ v[..., None])[..., 0], 1.0)


def log6(T: ArrayLike) -> Array:
    """The twist V with exp6(V) = T and an angle of at most pi.

    Parameters
    ----------
    T : (..., 4, 4) array_like
        Poses.

    Returns
    -------
    V : (..., 6) array
    """
    T = _inexact(T, (4, 4), "T")
    w = log3(T[..., :3, :3])
    return np.concatenate((w, (dexp3_inv(-w) @ T[..., :3, 3:])[..., 0]), -1)


def dexp6(V: ArrayLike) -> Array:
    """The right Jacobian J of `exp6`: exp6(V + dV) = exp6(V) exp6(J dV) to first order.

    J = sum_k (-ad V)^k / (k + 1)!, here as `dexp3` of the dual vector w + eps v. The left one is dexp6(-V).

    Parameters
    ----------
    V : (..., 6) array_like
        Twists.

    Returns
    -------
    J : (..., 6, 6) array
    """
    V = _inexact(V, (6,), "V")
    _, _, c2, c3, c4, c5 = stumpff(_square(V[..., :3]))
    return _quadratic_dual(V, -c2, c3, (c3 - 2 * c4) / 2, (3 * c5 - c4) / 2)


def dexp6_inv(V: ArrayLike) -> Array:
    """The inverse of `dexp6`; singular where the angle is 2 pi.

    Parameters
    ----------
    V : (..., 6) array_like
        Twists.

    Returns
    -------
    J_inverse : (..., 6, 6) array
    """
    V = _inexact(V, (6,), "V")
    e, de = _inverse_coefficient(_square(V[..., :3]))
    return _quadratic_dual(V, np.full_like(e, 0.5), e, np.zeros_like(e), de)


# Quaternions


def quaternion_to_matrix(q: ArrayLike) -> Array:
    """The rotation of a quaternion xyzw, normalised.

    Parameters
    ----------
    q : (..., 4) array_like
        Quaternions xyzw, of any positive length.

    Returns
    -------
    R : (..., 3, 3) array

    Raises
    ------
    ValueError
        If a quaternion has length 0.
    """
    q = _inexact(q, (4,), "quaternion")
    largest = np.abs(q.real).max(-1, keepdims=True)
    if (largest == 0).any():
        raise ValueError("quaternion is zero, expected one (x, y, z, w) of any positive length")
    u: Array = q / largest  # so that the square neither overflows nor vanishes
    s = 2 / _square(u)
    return _quadratic(u[..., :3], s * u[..., 3, None, None], s)


def matrix_to_quaternion(R: ArrayLike) -> Array:
    """The unit quaternion xyzw, w >= 0, of a rotation.

    4 q q^T is linear in R; q is its column with the largest diagonal entry, normalised, so that nothing
    cancels at any angle (Shepperd 1978).

    Parameters
    ----------
    R : (..., 3, 3) array_like
        Rotation matrices.

    Returns
    -------
    q : (..., 4) array
    """
    R = _inexact(R, (3, 3), "R")
    trace = R[..., 0, 0] + R[..., 1, 1] + R[..., 2, 2]
    Q = np.zeros((*R.shape[:-2], 4, 4), R.dtype)
    Q[..., :3, :3] = R + np.swapaxes(R, -1, -2) + (1 - trace)[..., None, None] * np.eye(3)
    Q[..., :3, 3] = Q[..., 3, :3] = 2 * vee(R)
    Q[..., 3, 3] = 1 + trace
    largest = np.einsum("...ii->...i", Q.real).argmax(-1)
    q = np.take_along_axis(Q, largest[..., None, None], -2)[..., 0, :]
    q = q / np.sqrt((q * q).sum(-1, keepdims=True))
    return np.asarray(np.where(q[..., 3:].real < 0, -q, q))


# One pose


def rpy_matrix(roll: float, pitch: float, yaw: float) -> FloatArray:
    """Rz(yaw) Ry(pitch) Rx(roll), (3, 3)."""
    (a, b), (c, d), (e, f) = ((cos(angle), sin(angle)) for angle in (roll, pitch, yaw))
    return np.array([
        [e * c, e * d * b - f * a, e * d * a + f * b],
        [f * c, f * d * b + e * a, f * d * a - e * b],
        [-d, c * b, c * a],
    ])  # fmt: skip


@final
@dataclass(frozen=True, init=False, eq=False, repr=False)
class SE3:
    """A pose: the rotation R and the origin p of one frame, seen from another.

    Frozen and hashable; equal when every entry is. `T1 @ T2` composes, `T @ points` maps points (..., 3).

    Parameters
    ----------
    R : (3, 3) array_like, optional
        Rotation matrix, the identity by default. It must be orthonormal to 1e-9 and is orthonormalised to rounding.
    p : (3,) array_like, optional
        Position, zero by default.
    """

    R: FloatArray
    p: FloatArray
    __array_ufunc__ = None  # so that `array @ SE3` is refused, not broadcast

    def __init__(self, R: ArrayLike | None = None, p: ArrayLike | None = None) -> None:
        R = frozen_array(np.eye(3) if R is None else R, (3, 3), "R")
        excess = R.T @ R - np.eye(3)
        off = float(np.abs(excess).max())
        if off > 1e-9:
            raise ValueError(
                f"R is not a rotation: R^T R is {off:.1e} off the identity, expected 1e-9 at most; "
                "orthonormalise it first, or use SE3.from_quaternion, which normalises"
            )
        if np.linalg.det(R) < 0:
            raise ValueError("R is a reflection: its determinant is -1, expected 1; negate a column")
        if off > 1e-14:  # one Newton step towards the nearest rotation squares the error
            R = frozen_array(R - R @ excess / 2, (3, 3), "R")
        object.__setattr__(self, "R", R)
        object.__setattr__(self, "p", frozen_array((0, 0, 0) if p is None else p, (3,), "p"))

    @staticmethod
    def _of(R: FloatArray, p: FloatArray) -> SE3:
        """The pose of two float64 arrays that are known to be a rotation and a position: kept unchecked, read-only."""
        R.flags.writeable = p.flags.writeable = False
        pose = object.__new__(SE3)
        object.__setattr__(pose, "R", R)
        object.__setattr__(pose, "p", p)
        return pose

    @staticmethod
    def identity() -> SE3:
        """The identity."""
        return SE3()

    @staticmethod
    def translation(*p: ArrayLike) -> SE3:
        """The pose at p with parallel axes: `SE3.translation(x, y, z)` or `SE3.translation((x, y, z))`."""
        return SE3(p=p[0] if len(p) == 1 else np.array(p))

    @staticmethod
    def rotation(axis: ArrayLike, angle: float) -> SE3:
        """The rotation by `angle` (radians) about `axis` (3,), of any positive length."""
        axis = frozen_array(axis, (3,), "axis")
        largest = np.abs(axis).max()
        if largest == 0:
            raise ValueError("axis is zero, expected a vector (x, y, z) of any positive length")
        unit = axis / largest
        return SE3(exp3(unit / np.sqrt(unit @ unit) * frozen_array(angle, (), "angle")))

    @staticmethod
    def rpy(roll: float, pitch: float, yaw: float) -> SE3:
        """The rotation Rz(yaw) Ry(pitch) Rx(roll) by angles in radians: about fixed x, then y, then z, as in URDF."""
        return SE3(rpy_matrix(*frozen_array((roll, pitch, yaw), (3,), "(roll, pitch, yaw)").tolist()))

    @staticmethod
    def from_quaternion(xyzw: ArrayLike, p: ArrayLike = (0, 0, 0)) -> SE3:
        """The pose at p (3,) with the rotation of the quaternion `xyzw` (4,), normalised."""
        return SE3(quaternion_to_matrix(frozen_array(xyzw, (4,), "quaternion")), p)

    @staticmethod
    def from_matrix(T: ArrayLike) -> SE3:
        """The pose with the homogeneous matrix T (4, 4)."""
        T = frozen_array(T, (4, 4), "T")
        if np.abs(T[3] - (0, 0, 0, 1)).max() > 1e-9:
            raise ValueError(f"T is not a pose: its last row is {T[3].tolist()}, expected [0, 0, 0, 1]")
        return SE3(T[:3, :3], T[:3, 3])

    @staticmethod
    def exp(twist: ArrayLike) -> SE3:
        """The pose reached from the identity by unit time of the body twist `twist` (6,), angular first; see `exp6`."""
        return SE3.from_matrix(exp6(frozen_array(twist, (6,), "twist")))

    def log(self) -> FloatArray:
        """The twist (6,), angular first, of which this pose is the exponential; see `log6`."""
        return log6(self.matrix)

    @property
    def matrix(self) -> FloatArray:
        """The homogeneous matrix [[R, p], [0, 1]], (4, 4)."""
        return _homogeneous(self.R, self.p, 1.0)

    @property
    def quaternion(self) -> FloatArray:
        """The unit quaternion xyzw (4,) of R, w >= 0."""
        return matrix_to_quaternion(self.R)

    @property
    def adjoint(self) -> FloatArray:
        """The adjoint (6, 6), angular first; see `Ad`."""
        return Ad(self.matrix)

    def inverse(self) -> SE3:
        """The pose (R^T, -R^T p) of the other frame in this one. Kim 2012, eq. (4)."""
        return SE3(self.R.T, 0.0 - self.p @ self.R)

    @overload
    def __matmul__(self, other: SE3) -> SE3: ...
    @overload
    def __matmul__(self, other: ArrayLike) -> Array: ...
    def __matmul__(self, other: SE3 | ArrayLike) -> SE3 | Array:
        if isinstance(other, SE3):
            return SE3(self.R @ other.R, self.R @ other.p + self.p)
        return np.asarray(_inexact(other, (3,), "points") @ self.R.T + self.p)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SE3):
            return NotImplemented
        return np.array_equal(self.R, other.R) and np.array_equal(self.p, other.p)

    def __hash__(self) -> int:
        return hash((*self.R.flat, *self.p))

    def __reduce__(self) -> tuple[type[SE3], tuple[FloatArray, FloatArray]]:
        return SE3, (self.R, self.p)

    def __repr__(self) -> str:
        R = "" if np.array_equal(self.R, np.eye(3)) else f"R={self.R.tolist()}"
        p = f"p={self.p.tolist()}" if self.p.any() else ""
        return f"SE3({', '.join(filter(None, (R, p)))})"
