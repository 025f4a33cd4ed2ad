"""Forces in coordinates of joints: springs, dampers, limits, dry friction and torques."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy as np

from torsor.forces.force import Force, Numbers, as_tuple, each, over_time, row, slip_velocity
from torsor.model import Model
from torsor.spatial import refuse_mask

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from torsor.forces.force import Part


_NONE = (-1, 0)


class _Span:
    """The joints on which a force acts: one by name, or all joints of the model."""

    def __init__(self, model: Model, joint: str | None) -> None:
        self.index = -1
        self.q, self.v = slice(0, model.nq), slice(0, model.nv)
        self.joints = model.joints
        self.label = model._label
        if joint is not None:
            found = model.joint(joint)
            self.index = model.joints.index(found)
            self.q, self.v, self.joints, self.label = found.q_slice, found.v_slice, (found,), f"joint {joint!r}"

    @property
    def nq(self) -> int:
        return int(self.q.stop - self.q.start)

    @property
    def nv(self) -> int:
        return int(self.v.stop - self.v.start)

    def per_velocity(self, force: Force, name: str, at: dict[str, int]) -> tuple[int, int]:
        """Position of the numbers for each velocity in the flat array: (first, step)."""
        shape = np.shape(getattr(force, name))
        if shape not in ((), (self.nv,)):
            raise ValueError(
                f"{name} of {type(force).__name__} has shape {shape}, expected one number or ({self.nv},): "
                f"{self.label} has {self.nv} velocities"
            )
        return at[name], len(shape)

    def part(
        self,
        kind: str,
        damping: tuple[int, int],
        stiffness: tuple[int, int] = _NONE,
        coordinates: tuple[int, int] = (0, 0),
        press: tuple[tuple[int, int], tuple[int, int]] = (_NONE, _NONE),
    ) -> Part:
        return ("joint", kind, self.index, self.q.start, self.v.start, stiffness, damping, *coordinates, *press)

    def coordinates(self, value: Any, name: str, force: Force) -> None:
        if np.shape(value) != (self.nq,):
            raise ValueError(
                f"{name} of {type(force).__name__} has shape {np.shape(value)}, expected ({self.nq},): "
                f"{self.label} has {self.nq} coordinates"
            )


class _JointForce(Force):
    """A force in the coordinates of one joint, or of all joints of the model."""

    joint: str | None

    def _joints(self, model: Model) -> tuple[str, ...]:
        return tuple(j.name for j in _Span(model, self.joint).joints)


@final
@dataclass(frozen=True, init=False)
class JointSpring(_JointForce):
    """Springs and dampers in the coordinates of a joint: torque -stiffness x - damping v.

    The displacement x is q - rest. For a quaternion it is the rotation vector from rest to q, log(rest^-1 q); the
    energy is x . stiffness x / 2 and the torque minus its gradient, which is discontinuous at half a turn from rest,
    where the shorter way changes. For the position of a `Free` joint, the last three velocities, x is q - rest along
    the axes of the joint's frame.

    Parameters
    ----------
    joint : str or None
        Name of the joint or of its body; None for all joints of the model.
    stiffness : float or (nv,) array_like
        One number for all velocities, or one for each.
    rest : (nq,) array_like, optional
        Coordinates at rest; the neutral ones by default.
    damping : float or (nv,) array_like
        One number for all velocities, or one for each.
    """

    joint: str | None
    stiffness: Numbers
    rest: tuple[float, ...] | None = None
    damping: Numbers = 0.0

    _numbers: ClassVar[tuple[str, ...]] = ("stiffness", "damping", "rest")

    def __init__(
        self, joint: str | None, stiffness: ArrayLike, rest: ArrayLike | None = None, damping: ArrayLike = 0.0
    ) -> None:
        object.__setattr__(self, "joint", joint)
        object.__setattr__(self, "stiffness", each(stiffness, "stiffness"))
        object.__setattr__(self, "rest", None if rest is None else row(rest, "rest"))
        object.__setattr__(self, "damping", each(damping, "damping"))

    def _for_model(self, model: Model) -> JointSpring:
        span = _Span(model, self.joint)
        if self.rest is None:
            return replace(self, rest=as_tuple(model.neutral[span.q]))
        span.coordinates(self.rest, "rest", self)
        first = span.q.start
        for j in span.joints:
            rest = np.array(self.rest)[j.q_slice.start - first : j.q_slice.stop - first]
            try:
                j.joint.normalize(rest)
            except ValueError:
                raise ValueError(f"rest of joint {j.name!r} has a zero quaternion: got {rest.tolist()}") from None
        return self

    def _coupled(self, model: Model) -> tuple[str, ...]:
        return ("rest",) if any(j.nq != j.nv for j in _Span(model, self.joint).joints) else ()

    def _parts(self, model: Model, at: dict[str, int]) -> list[Part]:
        span = _Span(model, self.joint)
        stiffness, damping = (span.per_velocity(self, name, at) for name in ("stiffness", "damping"))
        return [span.part("spring", damping, stiffness, (at["rest"], 0))]


@final
@dataclass(frozen=True, init=False)
class JointDamping(_JointForce):
    """Viscous friction in a joint: torque -damping v. It has no energy.

    Parameters
    ----------
    joint : str or None
        Name of the joint or of its body; None for all joints of the model.
    damping : float or (nv,) array_like
        One number for all velocities, or one for each.
    """

    joint: str | None
    damping: Numbers

    has_energy: ClassVar[bool] = False
    _numbers: ClassVar[tuple[str, ...]] = ("damping",)

    def __init__(self, joint: str | None, damping: ArrayLike) -> None:
        object.__setattr__(self, "joint", joint)
        object.__setattr__(self, "damping", each(damping, "damping"))

    def _parts(self, model: Model, at: dict[str, int]) -> list[Part]:
        span = _Span(model, self.joint)
        return [span.part("damper", span.per_velocity(self, "damping", at))]


@final
@dataclass(frozen=True, init=False)
class JointFriction(_JointForce):
    """Dry friction in a joint, with a constant limit: torque -torque F(|v| / slip) v / |v|. It has no energy.

    F(s) = s (2 - s) up to s = 1 and 1 beyond, so that the friction is the whole limit from the velocity `slip` on and
    smooth at rest. A joint under a load of r times the limit, r < 1, creeps at slip (1 - sqrt(1 - r)).

    Each velocity has its own friction: of a `Spherical` joint, the three components of its angular velocity. This is
    `frictionloss` of MJCF.

    Parameters
    ----------
    joint : str or None
        Name of the joint or of its body; None for all joints of the model.
    torque : float or (nv,) array_like
        Largest friction: a torque, or a force for velocities of translation. One number for all velocities, or one for
        each.
    slip : float or (nv,) array_like
        Velocity from which on the friction is the whole limit, above 0. One number for all velocities, or one for
        each.
    """

    joint: str | None
    torque: Numbers
    slip: Numbers = 1e-3

    has_energy: ClassVar[bool] = False
    _numbers: ClassVar[tuple[str, ...]] = ("torque", "slip")

    def __init__(self, joint: str | None, torque: ArrayLike, slip: ArrayLike = 1e-3) -> None:
        object.__setattr__(self, "joint", joint)
        object.__setattr__(self, "torque", each(torque, "torque"))
        object.__setattr__(self, "slip", slip_velocity(slip))

    def _parts(self, model: Model, at: dict[str, int]) -> list[Part]:
        span = _Span(model, self.joint)
        torque, slip = (span.per_velocity(self, name, at) for name in ("torque", "slip"))
        return [("friction", span.index, span.v.start, torque, slip)]


@final
@dataclass(frozen=True, init=False)
class JointLimits(_JointForce):
    """Springs and dampers beyond position limits: torque stiffness (limit - q) - damping v while a limit is violated.

    The energy, stiffness (limit - q)^2 / 2, has a continuous first derivative: the torque of the spring is zero at the
    limit, and its derivative is discontinuous there. The torque of the damper is discontinuous at the limit, in
    proportion to the speed. Quaternion joints have no limits of this kind.

    `dissipation` and `onset` make it the law of a contact, whose force is stiffness p(x) D(dissipation u) at depth x
    beyond the limit, u being the velocity at which the joint leaves the limit:

    - p(x) = x^2 / (2 onset) up to x = onset, and x - onset / 2 beyond: the stiffness sets in gradually, and the torque
      has a continuous derivative at the limit. The energy is stiffness times the integral of p.
    - D(s) = 1 - s up to s = 1/2, (3/2 - s)^2 / 2 up to s = 3/2, 0 beyond: unlike `damping` it is continuous at the
      limit, and never pulls a joint that leaves it. A joint that meets the limit at a speed well below 1 / dissipation
      leaves it slower by 2/3 of dissipation times the square of that speed.

    With `damping` too, both act.

    Parameters
    ----------
    joint : str or None
        Name of the joint or of its body; None for all joints of the model except quaternion joints.
    stiffness : float or (nv,) array_like
        One number for all velocities, or one for each.
    damping : float or (nv,) array_like
        One number for all velocities, or one for each.
    lower, upper : (nq,) array_like, optional
        Limits, infinite where there is none; by default `position_limits` of the model, which must then exist.
    dissipation : float or (nv,) array_like
        Inverse of a velocity. One number for all velocities, or one for each.
    onset : float or (nv,) array_like
        Depth over which the stiffness sets in. One number for all velocities, or one for each.
    """

    joint: str | None
    stiffness: Numbers
    damping: Numbers = 0.0
    lower: tuple[float, ...] | None = None
    upper: tuple[float, ...] | None = None
    dissipation: Numbers = 0.0
    onset: Numbers = 0.0

    _numbers: ClassVar[tuple[str, ...]] = ("stiffness", "damping", "lower", "upper", "dissipation", "onset")

    def __init__(
        self,
        joint: str | None,
        stiffness: ArrayLike,
        damping: ArrayLike = 0.0,
        lower: ArrayLike | None = None,
        upper: ArrayLike | None = None,
        dissipation: ArrayLike = 0.0,
        onset: ArrayLike = 0.0,
    ) -> None:
        object.__setattr__(self, "joint", joint)
        given = {"stiffness": stiffness, "damping": damping, "dissipation": dissipation, "onset": onset}
        for name, value in given.items():
            object.__setattr__(self, name, each(value, name))
        for name, limit in (("lower", lower), ("upper", upper)):
            object.__setattr__(self, name, None if limit is None else _limits(limit, name))
        if self.lower is not None and self.upper is not None and len(self.lower) == len(self.upper):
            for low, high in zip(self.lower, self.upper, strict=True):
                if low > high:
                    raise ValueError(f"lower limit {low:g} is above the upper limit {high:g}")

    def _for_model(self, model: Model) -> JointLimits:
        span = _Span(model, self.joint)
        if self.joint is not None and span.nq != span.nv:
            raise ValueError(
                f"joint {self.joint!r} has a quaternion, which has no limits; use SphericalEuler or SphericalExp, or "
                "write a CustomForce"
            )
        lower, upper = model.position_limits
        force = replace(
            self,
            lower=as_tuple(lower[span.q]) if self.lower is None else self.lower,
            upper=as_tuple(upper[span.q]) if self.upper is None else self.upper,
        )
        span.coordinates(force.lower, "lower", self)
        span.coordinates(force.upper, "upper", self)
        if self.lower is None or self.upper is None:
            counts = np.concatenate([np.zeros(0, np.bool_)] + [np.full(j.nq, j.nq == j.nv) for j in span.joints])
            finite = np.isfinite(np.array(force.lower)) | np.isfinite(np.array(force.upper))
            if not (counts & finite).any():
                where = "no joint of the model has" if self.joint is None else f"joint {self.joint!r} has no"
                raise ValueError(
                    f"{where} limits, so JointLimits would do nothing; give lower= and upper= to the force, or "
                    "position_limits= to the body"
                )
        return force

    def _coupled(self, model: Model) -> tuple[str, ...]:
        return ("lower", "upper")

    def _parts(self, model: Model, at: dict[str, int]) -> list[Part]:
        span = _Span(model, self.joint)
        names = ("stiffness", "damping", "dissipation", "onset")
        stiffness, damping, dissipation, onset = (span.per_velocity(self, name, at) for name in names)
        return [span.part("limits", damping, stiffness, (at["lower"], at["upper"]), (dissipation, onset))]


def _limits(value: ArrayLike, name: str) -> tuple[float, ...]:
    refuse_mask(name, value)
    a = np.atleast_1d(value)
    row(np.where(np.isinf(a), 0.0, a) if a.dtype.kind in "biuf" else a, name)
    return as_tuple(a.astype(np.float64))


@final
@dataclass(frozen=True, init=False)
class JointTorque(_JointForce):
    """Torques at a joint, constant or a table over time. They have no energy.

    Parameters
    ----------
    joint : str or None
        Name of the joint or of its body; None for all joints of the model.
    torque : (nv,) or (n, nv) array_like
        One for each velocity; with `times` one row for each time, interpolated linearly, constant before the first and
        after the last.
    times : (n,) array_like, optional
        Times of the rows, increasing.
    """

    joint: str | None
    torque: tuple[Any, ...]
    times: tuple[float, ...] | None = None

    has_energy: ClassVar[bool] = False
    _numbers: ClassVar[tuple[str, ...]] = ("torque",)

    def __init__(self, joint: str | None, torque: ArrayLike, times: ArrayLike | None = None) -> None:
        table, when = over_time(np.atleast_1d(torque), times, None, "torque")
        object.__setattr__(self, "joint", joint)
        object.__setattr__(self, "torque", table)
        object.__setattr__(self, "times", when)

    def _parts(self, model: Model, at: dict[str, int]) -> list[Part]:
        span = _Span(model, self.joint)
        size = np.shape(self.torque)[-1]
        if size != span.nv:
            raise ValueError(
                f"torque of JointTorque has shape {np.shape(self.torque)}, expected {span.nv} columns: "
                f"{span.label} has {span.nv} velocities"
            )
        return [("torque", span.v.start, (list(self.times or ()), at["torque"], size))]
