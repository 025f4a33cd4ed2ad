"""Constraints of coordinates of joints: gears, linear and polynomial couplings, and prescribed joints."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy as np

from torsor._errors import ConstraintError
from torsor.constraints.constraint import Constraint, over, set_name
from torsor.forces.force import numbers, row, scalar
from torsor.joints import Composite, Joint, SphericalEuler, SphericalExp
from torsor.model import Model, ModelJoint

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from torsor._typing import Array, FloatArray
    from torsor.constraints.constraint import Part


Coordinate = str | tuple[str, int]
JointMotion = Callable[[float], tuple["ArrayLike", "ArrayLike", "ArrayLike"]]


def _coordinate(given: Any) -> Coordinate:
    """A joint's name, or (name, k), not yet looked up."""
    if isinstance(given, str):
        return given
    if isinstance(given, (tuple, list)) and len(given) == 2 and isinstance(given[0], str):
        name, k = given
        if isinstance(k, (int, np.integer)) and not isinstance(k, bool):
            return name, int(k)
    raise TypeError(f"a coordinate is a joint's name, or (name, k) for its coordinate k, got {given!r}")


def _label(coordinate: Coordinate) -> str:
    return coordinate if isinstance(coordinate, str) else f"{coordinate[0]}[{coordinate[1]}]"


def has_charts(joint: Joint) -> bool:
    """Whether coordinates of a joint change with charts."""
    if isinstance(joint, Composite):
        return any(has_charts(part) for part in joint.joints)
    return isinstance(joint, (SphericalEuler, SphericalExp))


def _joint(model: Model, name: str, constraint: Constraint) -> ModelJoint:
    """A joint whose coordinates are in R^n, for all times."""
    try:
        found = model.joint(name)
    except KeyError as error:
        raise KeyError(f"{error.args[0]}; got that name in {constraint.shown_name}") from None
    kind = type(found.joint).__name__
    if found.nv == 0:
        raise ConstraintError(f"joint {name!r} of {constraint.shown_name} is {kind}, which has no coordinates")
    if found.nq != found.nv:
        raise ConstraintError(
            f"joint {name!r} of {constraint.shown_name} is {kind}, whose coordinates contain a quaternion, expected "
            "numbers that can be added; use a Loop or a PrescribedBody for orientations, or a TwistConstraint for "
            "velocities"
        )
    if has_charts(found.joint):
        raise ConstraintError(
            f"joint {name!r} of {constraint.shown_name} is {kind}, whose coordinates change during a simulation, when "
            "another chart is better; use a Loop or a PrescribedBody for orientations, or a TwistConstraint for "
            "velocities"
        )
    return found


def _place(model: Model, coordinate: Coordinate, constraint: Constraint) -> tuple[int, int]:
    """Indices of a coordinate in q and in v."""
    name, k = (coordinate, None) if isinstance(coordinate, str) else coordinate
    found = _joint(model, name, constraint)
    if k is None and found.nq != 1:
        raise ConstraintError(
            f"joint {name!r} of {constraint.shown_name} has {found.nq} coordinates; name one of them by ({name!r}, k)"
        )
    if k is not None and not 0 <= k < found.nq:
        raise ConstraintError(
            f"joint {name!r} of {constraint.shown_name} has no coordinate {k}, expected a number from 0 to "
            f"{found.nq - 1}"
        )
    return found.q_slice.start + (k or 0), found.v_slice.start + (k or 0)


class _Linear(Constraint):
    """A linear equation of coordinates: sum c_i q_i = offset."""

    @abstractmethod
    def _terms(self) -> list[tuple[float, Coordinate]]:
        """The coefficients and their coordinates."""

    @abstractmethod
    def _offset(self) -> float:
        """The right-hand side."""

    def _subjects(self) -> tuple[str, ...]:
        return tuple(_label(coordinate) for _, coordinate in self._terms())

    def _labels(self, model: Model) -> tuple[str, ...]:
        return ("",)

    def _joints(self, model: Model) -> tuple[str, ...]:
        return tuple(model.joint(c if isinstance(c, str) else c[0]).name for _, c in self._terms())

    def _parts(self, model: Model) -> list[Part]:
        terms = []
        seen: dict[int, str] = {}
        for coefficient, coordinate in self._terms():
            iq, iv = _place(model, coordinate, self)
            if iq in seen:
                raise ConstraintError(
                    f"{self.shown_name} names one coordinate twice, as {seen[iq]!r} and {_label(coordinate)!r}; add "
                    "their coefficients"
                )
            seen[iq] = _label(coordinate)
            terms.append((coefficient, iq, iv))
        return [("coupling", terms, self._offset(), None)]


@final
@dataclass(frozen=True, init=False)
class Coupling(_Linear):
    """A linear equation of coordinates of joints: sum_i coefficients[i] q_i = offset.

    Its multiplier times a coefficient is the generalized force at that joint. Joints whose coordinates are quaternions,
    or change with charts, are refused.

    Parameters
    ----------
    joints : sequence of str or (str, int)
        Names of joints, or of their bodies; (name, k) for coordinate k of a joint that has several.
    coefficients : (n,) array_like
        One for each joint, not zero.
    offset : float
    name : str, optional
        Name in messages.
    """

    joints: tuple[Coordinate, ...]
    coefficients: tuple[float, ...]
    offset: float
    name: str | None = None

    _numbers: ClassVar[tuple[str, ...]] = ("coefficients", "offset")
    _of_joints: ClassVar[tuple[str, ...]] = ("joints",)

    def __init__(
        self,
        joints: Sequence[Coordinate],
        coefficients: ArrayLike,
        *,
        offset: float = 0.0,
        name: str | None = None,
    ) -> None:
        set_name(self, name)
        if isinstance(joints, str) or not isinstance(joints, Iterable):
            raise TypeError(f"joints is {joints!r}, expected a sequence of joints, one for each coefficient")
        object.__setattr__(self, "joints", tuple(_coordinate(j) for j in joints))
        if not self.joints:
            raise ValueError("joints is empty, expected one joint for each coefficient")
        object.__setattr__(self, "coefficients", numbers(coefficients, (len(self.joints),), "coefficients"))
        for joint, coefficient in zip(self.joints, self.coefficients, strict=True):
            if coefficient == 0:
                raise ValueError(f"the coefficient of {_label(joint)!r} is 0; leave the joint out")
        object.__setattr__(self, "offset", scalar(offset, "offset"))

    def _terms(self) -> list[tuple[float, Coordinate]]:
        return list(zip(self.coefficients, self.joints, strict=True))

    def _offset(self) -> float:
        return self.offset

    def _gradient(self, flat: FloatArray) -> dict[str, FloatArray]:
        return {"coefficients": flat[..., :-1], "offset": flat[..., -1]}


@final
@dataclass(frozen=True, init=False)
class Gear(_Linear):
    """Two joints that turn at a fixed ratio: q_driven = ratio q_driver + offset.

    Its multiplier is the generalized force at the driven joint.

    Parameters
    ----------
    driver, driven : str or (str, int)
        Names of the joints, or of their bodies; (name, k) for coordinate k of a joint that has several.
    ratio : float
        Not zero.
    offset : float
    name : str, optional
        Name in messages.
    """

    driver: Coordinate
    driven: Coordinate
    ratio: float
    offset: float
    name: str | None = None

    _numbers: ClassVar[tuple[str, ...]] = ("ratio", "offset")
    _of_joints: ClassVar[tuple[str, ...]] = ("driver", "driven")

    def __init__(
        self,
        driver: Coordinate,
        driven: Coordinate,
        ratio: float,
        *,
        offset: float = 0.0,
        name: str | None = None,
    ) -> None:
        set_name(self, name)
        object.__setattr__(self, "driver", _coordinate(driver))
        object.__setattr__(self, "driven", _coordinate(driven))
        object.__setattr__(self, "ratio", scalar(ratio, "ratio"))
        if self.ratio == 0:
            raise ValueError("ratio is 0, expected another number; PrescribedJoint holds a joint at a value")
        object.__setattr__(self, "offset", scalar(offset, "offset"))

    def _terms(self) -> list[tuple[float, Coordinate]]:
        return [(1.0, self.driven), (-self.ratio, self.driver)]

    def _subjects(self) -> tuple[str, ...]:
        return _label(self.driver), _label(self.driven)

    def _offset(self) -> float:
        return self.offset

    def _gradient(self, flat: FloatArray) -> dict[str, FloatArray]:
        return {"ratio": -flat[..., 1], "offset": flat[..., 2]}


@dataclass(frozen=True, eq=False)
class _Polynomial:
    """y - sum_k c_k (x - center)^k of two coordinates, as the core calls it, for L states at once."""

    coefficients: FloatArray
    center: float
    x: tuple[int, int]  # indices in q and in v
    y: tuple[int, int]
    nv: int

    def _powers(self, u: Array, order: int) -> Array:
        """Derivatives (L, n) of u^k of some order."""
        k = np.arange(self.coefficients.size)
        factor = np.prod([k - i for i in range(order)], axis=0) if order else np.ones_like(k)
        return np.where(factor == 0, 0.0, factor * u[:, None] ** np.maximum(k - order, 0))

    def _derivative(self, u: Array, order: int) -> Array:
        return np.asarray(self._powers(u, order) @ self.coefficients)

    def _evaluate(self, q: Array, v: Array, a: Array, t: float) -> Array:
        """g, gdot, gamma and G of each state: (L, 3 + nv)."""
        (ix, jx), (iy, jy) = self.x, self.y
        u, rate = q[:, ix] - self.center, v[:, jx]
        slope = self._derivative(u, 1)
        out = np.zeros((len(q), 3 + self.nv), np.result_type(q, v, a))
        out[:, 0] = q[:, iy] - self._derivative(u, 0)
        out[:, 1] = v[:, jy] - slope * rate
        out[:, 2] = a[:, jy] - slope * a[:, jx] - self._derivative(u, 2) * rate**2
        out[:, 3 + jy] += 1.0
        out[:, 3 + jx] -= slope
        return out

    def _derivatives(self, q: Array, v: Array, a: Array, t: float) -> Array:
        """dgdot_dq, dgamma_dq and dgamma_dv of each state: (L, 3 nv)."""
        ix, jx = self.x
        u, rate = q[:, ix] - self.center, v[:, jx]
        second = self._derivative(u, 2)
        out = np.zeros((len(q), 3, self.nv), np.result_type(q, v, a))
        out[:, 0, jx] = -second * rate
        out[:, 1, jx] = -second * a[:, jx] - self._derivative(u, 3) * rate**2
        out[:, 2, jx] = -2.0 * second * rate
        return out.reshape(len(q), -1)

    def _stiffness(self, q: Array, t: float, lam: Array) -> Array:
        """d(G^T lam)_j / dq_k of each state: (L, nv nv)."""
        ix, jx = self.x
        out = np.zeros((len(q), self.nv, self.nv), np.result_type(q, lam))
        out[:, jx, jx] = -lam[:, 0] * self._derivative(q[:, ix] - self.center, 2)
        return out.reshape(len(q), -1)

    def _parameter_gradient(
        self, q: Array, v: Array, a: Array, t: float, wg: Array, wgdot: Array, wgamma: Array
    ) -> Array:
        """The gradient of wg.g + wgdot.gdot + wgamma.gamma by coefficients and center, of each state: (L, n + 1)."""
        ix, jx = self.x
        u = q[:, ix] - self.center
        # of powers of u: wg u^k + (wgdot rate + wgamma acceleration) (u^k)' + wgamma rate^2 (u^k)''
        weights = (wg, wgdot * v[:, [jx]] + wgamma * a[:, [jx]], wgamma * v[:, [jx]] ** 2)
        by_power = sum(w * self._powers(u, order) for order, w in enumerate(weights))
        by_center = sum(w[:, 0] * self._derivative(u, order + 1) for order, w in enumerate(weights))
        return np.ascontiguousarray(np.concatenate([-by_power, by_center[:, None]], axis=1))


@final
@dataclass(frozen=True, init=False)
class PolynomialCoupling(Constraint):
    """A joint whose coordinate is a polynomial of another's: q_driven = sum_k coefficients[k] (q_driver - center)^k.

    Its multiplier is the generalized force at the driven joint. A `Gear` is the same of degree one, and faster.

    Parameters
    ----------
    driver, driven : str or (str, int)
        Names of the joints, or of their bodies; (name, k) for coordinate k of a joint that has several.
    coefficients : (n,) array_like
        Of the powers from 0 on.
    center : float
        Value of the driver's coordinate about which the powers are.
    name : str, optional
        Name in messages.
    """

    driver: Coordinate
    driven: Coordinate
    coefficients: tuple[float, ...]
    center: float
    name: str | None = None

    _numbers: ClassVar[tuple[str, ...]] = ("coefficients", "center")
    _of_joints: ClassVar[tuple[str, ...]] = ("driver", "driven")

    def __init__(
        self,
        driver: Coordinate,
        driven: Coordinate,
        coefficients: ArrayLike,
        *,
        center: float = 0.0,
        name: str | None = None,
    ) -> None:
        set_name(self, name)
        object.__setattr__(self, "driver", _coordinate(driver))
        object.__setattr__(self, "driven", _coordinate(driven))
        object.__setattr__(self, "coefficients", row(coefficients, "coefficients"))
        if not any(self.coefficients[1:]):
            raise ValueError(
                f"coefficients is {list(self.coefficients)}, a constant, expected others than that of power 0; "
                "PrescribedJoint holds a joint at a value"
            )
        object.__setattr__(self, "center", scalar(center, "center"))

    def _subjects(self) -> tuple[str, ...]:
        return _label(self.driver), _label(self.driven)

    def _labels(self, model: Model) -> tuple[str, ...]:
        return ("",)

    def _joints(self, model: Model) -> tuple[str, ...]:
        return tuple(model.joint(c if isinstance(c, str) else c[0]).name for c in (self.driver, self.driven))

    def _parts(self, model: Model) -> list[Part]:
        x, y = (_place(model, coordinate, self) for coordinate in (self.driver, self.driven))
        if x == y:
            raise ConstraintError(f"{self.shown_name} couples a coordinate with itself, expected two coordinates")
        bound = _Polynomial(np.array(self.coefficients), self.center, x, y, model.nv)
        return [("custom", bound, 1, len(self.coefficients) + 1)]

    def _gradient(self, flat: FloatArray) -> dict[str, FloatArray]:
        return {"coefficients": flat[..., :-1], "center": flat[..., -1]}


@dataclass(frozen=True, eq=False)
class _MovingCoordinate:
    """A prescribed motion of one coordinate of a joint, as the core calls it."""

    motion: JointMotion
    k: int
    n: int
    owner: str

    def __call__(self, t: float) -> FloatArray:
        """The value, its rate and its second rate at the time t."""
        parts = (("value", (self.n,)), ("rate", (self.n,)), ("second rate", (self.n,)))
        return np.array([x[self.k] for x in over(self.motion, t, parts, self.owner)])


@final
@dataclass(frozen=True, init=False)
class PrescribedJoint(Constraint):
    """A joint whose coordinates are prescribed. Its multipliers are the generalized forces that this takes.

    Parameters
    ----------
    joint : str
        Name of the joint, or of its body.
    motion : float, (n,) array_like or function
        The coordinates, at rest, or a function of time that returns (value, rate, second rate): numbers for a joint
        with one coordinate, else (n,) each.
    name : str, optional
        Name in messages.
    """

    joint: str
    motion: float | tuple[float, ...] | JointMotion
    name: str | None = None

    _numbers: ClassVar[tuple[str, ...]] = ("motion",)
    _of_joints: ClassVar[tuple[str, ...]] = ("joint",)

    def __init__(self, joint: str, motion: ArrayLike | JointMotion, *, name: str | None = None) -> None:
        set_name(self, name)
        if not isinstance(joint, str):
            raise TypeError(f"a joint is named by a string, got {joint!r}; the motion is of all its coordinates")
        object.__setattr__(self, "joint", joint)
        if not callable(motion):
            motion = scalar(motion, "motion") if np.ndim(motion) == 0 else row(motion, "motion")
        object.__setattr__(self, "motion", motion)

    def _subjects(self) -> tuple[str, ...]:
        return (self.joint,)

    def _labels(self, model: Model) -> tuple[str, ...]:
        n = _joint(model, self.joint, self).nq
        return tuple(f"coordinate {k}" for k in range(n)) if n > 1 else ("",)

    def _joints(self, model: Model) -> tuple[str, ...]:
        return (model.joint(self.joint).name,)

    def _parts(self, model: Model) -> list[Part]:
        joint = _joint(model, self.joint, self)
        n, first, at = joint.nq, joint.q_slice.start, joint.v_slice.start
        motion = self.motion
        if callable(motion):
            moving = (_MovingCoordinate(motion, k, n, self.shown_name) for k in range(n))
            return [("coupling", [(1.0, first + k, at + k)], 0.0, m) for k, m in enumerate(moving)]
        if np.shape(motion) != (n,) and not (n == 1 and np.shape(motion) == ()):
            raise ValueError(
                f"motion of {self.shown_name} has shape {np.shape(motion)}, expected ({n},): joint {self.joint!r} has "
                f"{n} coordinates"
            )
        values = np.atleast_1d(motion).tolist()
        return [("coupling", [(1.0, first + k, at + k)], value, None) for k, value in enumerate(values)]

    def _gradient(self, flat: FloatArray) -> dict[str, FloatArray]:
        if callable(self.motion):
            return {}
        offsets = flat[..., 1::2]
        return {"motion": offsets if np.ndim(self.motion) else offsets[..., 0]}
