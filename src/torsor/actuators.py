"""Records of what drives a model and of what it remembers: actuators, tendons, keyframes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from math import inf
from typing import TYPE_CHECKING, final

import numpy as np

from torsor._check import listed
from torsor._errors import ModelError
from torsor.spatial import SE3, frozen_array

if TYPE_CHECKING:
    from torsor.model import Model


def _numbers(record: object, name: str, size: int, *, finite: bool = True) -> None:
    """Makes a field of a record a tuple of numbers."""
    value = tuple(float(x) for x in getattr(record, name))
    if len(value) != size or any(x != x for x in value) or (finite and any(abs(x) == inf for x in value)):
        what = "finite numbers" if finite else "numbers"
        raise ModelError(f"{name} of {type(record).__name__} must be {size} {what}, got {getattr(record, name)!r}")
    object.__setattr__(record, name, value)


def _interval(record: object, name: str) -> None:
    _numbers(record, name, 2, finite=False)
    lower, upper = getattr(record, name)
    if lower > upper:
        raise ModelError(f"{name} of {type(record).__name__} have lower {lower:g} above upper {upper:g}")


def _shown(record: Tendon | Actuator) -> str:
    """A record with the fields that are not the default."""
    parts = [repr(record.name)]
    for f in fields(record)[1:]:
        value = getattr(record, f.name)
        if value != f.default:
            parts.append(f"{f.name}={value!r}")
    return f"{type(record).__name__}({', '.join(parts)})"


@final
@dataclass(frozen=True)
class Tendon:
    """A length that springs, limits and actuators act on: a sum of coordinates, or a path through points.

    Parameters
    ----------
    name : str
    joints : tuple of str
        Of a sum: joints with one coordinate each.
    coefficients : tuple of float
        Of a sum: the coefficient of each of them.
    bodies : tuple of str
        Of a path: the body of each of its points, or "world".
    points : tuple of (3,)
        Of a path: its points, at least two, in the frames of their bodies.
    stiffness, damping : float
        Of the spring, which pulls by stiffness (length - rest) + damping times the rate of the length.
    rest : (2,)
        The lengths between which the spring does not pull; equal for an ordinary one.
    limits : (2,)
        Least and greatest length; infinite by default.
    """

    name: str
    joints: tuple[str, ...] = ()
    coefficients: tuple[float, ...] = ()
    bodies: tuple[str, ...] = ()
    points: tuple[tuple[float, ...], ...] = ()
    stiffness: float = 0.0
    damping: float = 0.0
    rest: tuple[float, float] = (0.0, 0.0)
    limits: tuple[float, float] = (-inf, inf)

    def __post_init__(self) -> None:
        for name in ("joints", "bodies"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        _numbers(self, "coefficients", len(self.joints))
        points = frozen_array(self.points or np.zeros((0, 3)), (len(self.bodies), 3), "points of Tendon")
        object.__setattr__(self, "points", tuple(map(tuple, points.tolist())))
        if bool(self.joints) == bool(self.bodies) or len(self.bodies) == 1:
            raise ModelError(
                f"tendon {self.name!r} has {len(self.joints)} joints and {len(self.bodies)} points, expected joints "
                "with coefficients, or at least two points on bodies"
            )
        if self.stiffness < 0 or self.damping < 0:
            raise ModelError(
                f"tendon {self.name!r} has stiffness {self.stiffness:g} and damping {self.damping:g}, expected "
                "numbers of 0 at least"
            )
        for name in ("rest", "limits"):
            _interval(self, name)

    def __repr__(self) -> str:
        return _shown(self)

    @property
    def is_path(self) -> bool:
        """Whether it is a path through points."""
        return bool(self.bodies)


@final
@dataclass(frozen=True)
class Actuator:
    """A drive: the force gain u + bias of a control u along a length l, both affine in l and its rate.

    The force is F = (g0 + g1 l + g2 dl/dt) u + b0 + b1 l + b2 dl/dt, with gain = (g0, g1, g2) and bias = (b0, b1, b2).
    A motor has gain (1, 0, 0) and no bias, a position servo gain (kp, 0, 0) and bias (0, -kp, -kv), a velocity servo
    gain (kv, 0, 0) and bias (0, 0, -kv).

    Parameters
    ----------
    name : str
    joint : str, optional
        The joint it drives. With one coordinate, l is gear[0] times it and the torque gear[0] F. Of a `Spherical`
        joint, l is gear[:3] times the rotation vector and the torque gear[:3] F, in the frame of the body; of a `Free`
        one, l is 0, and gear F is a force in the axes of the world and a moment in the frame of the body.
    tendon : str, optional
        The tendon along which it pulls: l is gear[0] times its length.
    body : str, optional
        The body on which it exerts the wrench gear F, force first, in the frame of `placement`; l is 0. On "world" it
        does nothing.
    placement : SE3
        With `body`: pose of the frame of the wrench in that of the body.
    gear : (6,)
        The first number alone counts for a length.
    in_parent : bool
        Whether moments of a `Spherical` or `Free` joint are given in the axes before its rotation.
    gain, bias : (3,)
    control_limits, force_limits : (2,)
        Between which u and F are clipped; infinite by default.
    """

    name: str
    joint: str | None = None
    tendon: str | None = None
    body: str | None = None
    placement: SE3 = SE3()  # noqa: RUF009
    gear: tuple[float, ...] = (1.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    in_parent: bool = False
    gain: tuple[float, ...] = (1.0, 0.0, 0.0)
    bias: tuple[float, ...] = (0.0, 0.0, 0.0)
    control_limits: tuple[float, float] = (-inf, inf)
    force_limits: tuple[float, float] = (-inf, inf)

    def __post_init__(self) -> None:
        if sum(x is not None for x in (self.joint, self.tendon, self.body)) != 1:
            raise ModelError(
                f"actuator {self.name!r} drives joint {self.joint!r}, tendon {self.tendon!r} and body {self.body!r}, "
                "expected one of them"
            )
        if not isinstance(self.placement, SE3):
            raise TypeError(f"placement of actuator {self.name!r} must be an SE3, got {self.placement!r}")
        gear = tuple(self.gear)
        object.__setattr__(self, "gear", (*gear, *(0.0,) * (6 - len(gear))))
        for name, size in (("gear", 6), ("gain", 3), ("bias", 3)):
            _numbers(self, name, size)
        for name in ("control_limits", "force_limits"):
            _interval(self, name)

    def __repr__(self) -> str:
        return _shown(self)

    @property
    def place(self) -> str:
        """What it drives: "joint 'knee'", "tendon 'flexor'" or "body 'hand'"."""
        kind = next(kind for kind in ("joint", "tendon", "body") if getattr(self, kind) is not None)
        return f"{kind} {getattr(self, kind)!r}"


@final
@dataclass(frozen=True)
class Keyframe:
    """A state that a model remembers.

    Parameters
    ----------
    q, v : tuple of float
        Configuration and velocity.
    controls : tuple of float
        Of the actuators of the model.
    t : float
        Time.
    """

    q: tuple[float, ...]
    v: tuple[float, ...]
    controls: tuple[float, ...] = ()
    t: float = 0.0


def require_drives(model: Model) -> None:
    """Checks the tendons and actuators of a model: names that are unique, and that exist where they are referred to."""
    tree = model.tree  # in which joints that follow others have coordinates too
    for kind, records in (("tendon", model.tendons), ("actuator", model.actuators)):
        names = [record.name for record in records]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise ModelError(f"there are two {kind}s named {twice!r}; names must differ")
    for tendon in model.tendons:
        for name in tendon.joints:
            if (joint := tree.joint(name)).nq != 1:
                raise ModelError(f"joint {name!r} of tendon {tendon.name!r} has {joint.nq} coordinates, expected 1")
        for name in tendon.bodies:
            if name != "world":
                model.body(name)
    tendons = [tendon.name for tendon in model.tendons]
    for actuator in model.actuators:
        if actuator.tendon is not None and actuator.tendon not in tendons:
            raise ModelError(
                f"actuator {actuator.name!r} pulls tendon {actuator.tendon!r}; tendons are {listed(tendons) or 'none'}"
            )
        if actuator.joint is not None:
            model.joint(actuator.joint)
        if actuator.body is not None and actuator.body != "world":
            model.body(actuator.body)


def on_locked(
    tendons: tuple[Tendon, ...],
    actuators: tuple[Actuator, ...],
    joints: set[str],
    places: Mapping[str, tuple[str, SE3]],
) -> tuple[tuple[Tendon, ...], tuple[Actuator, ...]]:
    """The tendons and actuators after joints were locked and bodies became parts of others, at poses in them: without
    those of locked joints."""
    kept: list[Tendon] = []
    for tendon in tendons:
        if joints & {*tendon.joints}:
            continue
        bodies, points = [], []
        for body, point in zip(tendon.bodies, tendon.points, strict=True):
            name, pose = places.get(body, (body, SE3()))
            bodies.append(name)
            points.append(tuple((pose.R @ point + pose.p).tolist()))
        kept.append(replace(tendon, bodies=tuple(bodies), points=tuple(points)))
    names = {tendon.name for tendon in kept}
    left: list[Actuator] = []
    for actuator in actuators:
        if actuator.joint in joints or (actuator.tendon is not None and actuator.tendon not in names):
            continue
        if actuator.body is not None and actuator.body in places:
            name, pose = places[actuator.body]
            actuator = replace(actuator, body=name, placement=pose @ actuator.placement)
        left.append(actuator)
    return tuple(kept), tuple(left)
