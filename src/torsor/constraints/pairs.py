"""Constraints between two markers, frames that are fixed in bodies or in the world, where they may also move.

R and p are the rotation and the origin of b's marker seen from a's. Rows are linear in them, or the length of p:
docs/derivations/constraints.md, section 1. Multipliers act on b: forces and moments along the axes of a's marker.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy as np

from torsor._errors import ConstraintError
from torsor.constraints.constraint import Constraint, body_of, over, require_apart, require_pose, set_name
from torsor.forces.force import body_name, numbers, scalar
from torsor.inertia import Inertia
from torsor.joints import (
    Cylindrical,
    Fixed,
    Free,
    Free2D,
    Joint,
    Planar,
    Prismatic,
    Revolute,
    Spherical,
    SphericalEuler,
    SphericalExp,
    Translational,
    Universal,
    z_to,
)
from torsor.kinematics import body_poses, place_poses
from torsor.model import WORLD, Body, Model, require_model
from torsor.spatial import SE3

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from torsor._typing import FloatArray
    from torsor.constraints.constraint import Part

    Vector = tuple[float, float, float]


PoseMotion = Callable[[float], tuple[SE3, "ArrayLike", "ArrayLike"]]
Term = tuple[float, float, float, float, float, float, float, float]
Row = tuple[Any, ...]

_AXES: tuple[Vector, ...] = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))
_ZERO: Vector = (0.0, 0.0, 0.0)
_LETTERS = "xyz"


def _position(i: int, offset: float = 0.0) -> Row:
    """The row p_i - offset."""
    return ("linear", [(1.0, *_AXES[i], *_ZERO, 1.0)], offset)


def _aligned(i: int, j: int, sign: float = 1.0) -> Term:
    """The term sign a_i . b_j."""
    return (sign, *_AXES[i], *_AXES[j], 0.0)


# Rows -a_y.b_z and a_x.b_z keep b's z axis parallel to a's: regular at every angle about it.
_HINGE: list[Row] = [("linear", [_aligned(1, 2, -1.0)], 0.0), ("linear", [_aligned(0, 2)], 0.0)]
# Rows (a_z.b_y - a_y.b_z)/2, (a_x.b_z - a_z.b_x)/2, (a_y.b_x - a_x.b_y)/2 keep axes parallel.
_ORIENTATION: list[Row] = [
    ("linear", [_aligned((k + 2) % 3, (k + 1) % 3, 0.5), _aligned((k + 1) % 3, (k + 2) % 3, -0.5)], 0.0)
    for k in range(3)
]
_POSITION = [_position(i) for i in range(3)]

_POSITION_LABELS = tuple(f"position {c}" for c in _LETTERS)
_HINGE_LABELS = ("axis x", "axis y")
_ORIENTATION_LABELS = tuple(f"orientation {c}" for c in _LETTERS)


_KINDS = (
    "Fixed, Revolute, Prismatic, Cylindrical, Universal, Spherical, SphericalEuler, SphericalExp, Planar, Free2D and "
    "Translational"
)


@dataclass(frozen=True, eq=False)
class _Form:
    """The rows of a joint: its marker frames on both sides, relative to the placements, and the axes of which a_i . b_i
    is positive unless the loop is flipped."""

    rows: list[Row]
    labels: tuple[str, ...]
    on_a: FloatArray
    on_b: FloatArray
    positive: tuple[int, ...] = ()


def _orthonormal(x: FloatArray, z: FloatArray) -> FloatArray:
    """The rotation with the columns x, z x x and z."""
    return np.stack([x, np.cross(z, x), z], axis=1)


def _form(joint: Joint) -> _Form | None:
    """The rows of a joint; None if it has none of this kind."""
    one = np.eye(3)
    hinge = _POSITION_LABELS + _HINGE_LABELS
    if isinstance(joint, Fixed):
        return _Form(_POSITION + _ORIENTATION, _POSITION_LABELS + _ORIENTATION_LABELS, one, one, (0, 1, 2))
    if isinstance(joint, Revolute):
        z = z_to(joint.axis)
        return _Form(_POSITION + _HINGE, hinge, z, z, (2,))
    if isinstance(joint, Prismatic):
        z = z_to(joint.axis)
        labels = (*_POSITION_LABELS[:2], *_HINGE_LABELS, "orientation z")
        return _Form([*_POSITION[:2], *_HINGE, _ORIENTATION[2]], labels, z, z, (0, 1, 2))
    if isinstance(joint, Cylindrical):
        z = z_to(joint.axis)
        return _Form(_POSITION[:2] + _HINGE, _POSITION_LABELS[:2] + _HINGE_LABELS, z, z, (2,))
    if isinstance(joint, Universal):
        first, second = (np.array(axis) for axis in joint.axes)
        normal = np.cross(first, second)
        normal = normal / np.sqrt(normal @ normal)
        on_a, on_b = _orthonormal(first, normal), _orthonormal(np.cross(second, normal), normal)
        row = ("linear", [_aligned(0, 1)], float(first @ second))
        return _Form([*_POSITION, row], (*_POSITION_LABELS, "axes"), on_a, on_b)
    if isinstance(joint, (Spherical, SphericalEuler, SphericalExp)):
        return _Form(_POSITION, _POSITION_LABELS, one, one)
    if isinstance(joint, Planar):
        first, second = (np.array(direction) for direction in joint.directions)
        normal = np.cross(first, second)
        plane = _orthonormal(first, normal / np.sqrt(normal @ normal))
        labels = ("position z", *_ORIENTATION_LABELS)
        return _Form([_POSITION[2], *_ORIENTATION], labels, plane, plane, (0, 1, 2))
    if isinstance(joint, Free2D):
        return _Form([_POSITION[2], *_HINGE], ("position z", *_HINGE_LABELS), one, one, (2,))
    if isinstance(joint, Translational):
        return _Form(_ORIENTATION, _ORIENTATION_LABELS, one, one, (0, 1, 2))
    return None


def closes_loops(joint: Joint) -> bool:
    """Whether a joint closes loops by itself, without coordinates."""
    return _form(joint) is not None


def _marker(body: int, placement: SE3, turn: FloatArray) -> tuple[int, list[float]]:
    """A marker as the core reads it: the body, and R and p in its frame."""
    return body, [*(placement.R @ turn).ravel().tolist(), *placement.p.tolist()]


def _from_marker(flat: FloatArray, turn: FloatArray) -> FloatArray:
    """The gradient (..., 6) by twists of a placement from that by twists of its marker, placement @ turn."""
    out = flat.reshape((*flat.shape[:-1], 2, 3)) @ turn.T
    return np.asarray(out.reshape(flat.shape))


@dataclass(frozen=True, eq=False)
class _MovingMarker:
    """A prescribed motion of a marker, as the core calls it."""

    motion: PoseMotion
    turn: FloatArray
    owner: str

    def __call__(self, t: float) -> FloatArray:
        """R (9), p (3), twist (6) and its rate (6) of the marker at the time t."""
        parts = (("pose", (4, 4)), ("twist", (6,)), ("twist rate", (6,)))
        pose, twist, rate = over(self.motion, t, parts, self.owner)
        R = pose[:9].reshape(3, 3) @ self.turn
        turned = (x.reshape(2, 3) @ self.turn for x in (twist, rate))
        return np.concatenate([R.ravel(), pose[9:], *(x.ravel() for x in turned)])


def _poses(model: Model, q: ArrayLike, bodies: tuple[int, ...], constraint: Constraint) -> list[SE3]:
    """Poses of bodies at one configuration."""
    if np.ndim(q) != 1:
        raise ValueError(
            f"q has shape {np.shape(q)}, expected ({model.nq},): one configuration for {constraint.shown_name}"
        )
    T = body_poses(model, q)
    if not np.isfinite(T).all():
        raise ValueError(f"q is not finite: got {np.asarray(q).tolist()}")
    return [SE3(X[:3, :3], X[:3, 3]) for X in place_poses(model, T, bodies)]


class _Pair(Constraint):
    """A constraint between two markers."""

    a: str
    b: str
    _of_bodies: ClassVar[tuple[str, ...]] = ("a", "b")

    def _subjects(self) -> tuple[str, ...]:
        return self.a, self.b

    def _set_bodies(self, a: Any, b: Any) -> None:
        object.__setattr__(self, "a", body_name(a))
        object.__setattr__(self, "b", body_name(b))
        if a == b:
            require = "expected two bodies that move relative to each other"
            raise ConstraintError(f"{type(self).__name__} is between {a!r} and itself, {require}")

    def _bodies(self, model: Model) -> tuple[int, int]:
        a, b = (body_of(model, name, self) for name in (self.a, self.b))
        require_apart(model, a, b, self)
        return a, b


def _moved(
    moved: Mapping[str, tuple[str, SE3]], body: str, **fields: SE3 | tuple[float, ...] | PoseMotion
) -> tuple[str, dict[str, Any]]:
    """The body and its placements and points where it has become a part of another."""
    if body not in moved:
        return body, {}
    other, pose = moved[body]
    return other, {name: pose @ (x if isinstance(x, SE3) else np.array(x)) for name, x in fields.items()}


class _Welding(_Pair):
    """Rows of a joint between markers, of which that on a may move if a is the world."""

    @abstractmethod
    def _sides(self) -> tuple[_Form, SE3 | PoseMotion, SE3]:
        """The rows, the placement on a or its motion, and the placement on b."""

    def _set_placement_a(self, placement_a: SE3 | PoseMotion | None) -> None:
        placement_a = SE3() if placement_a is None else placement_a
        if not callable(placement_a):
            require_pose(placement_a, "placement_a", self)
        elif self.a != WORLD:
            raise ValueError(
                f"placement_a of {self.shown_name} is a function of time on the body {self.a!r}, expected an SE3; "
                f"markers of {WORLD!r} alone may move"
            )
        object.__setattr__(self, "placement_a", placement_a)

    def _labels(self, model: Model) -> tuple[str, ...]:
        return self._sides()[0].labels

    def _parts(self, model: Model) -> list[Part]:
        form, on_a, on_b = self._sides()
        a, b = self._bodies(model)
        marker_b = _marker(b, on_b, form.on_b)
        if isinstance(on_a, SE3):
            return [("pair", _marker(a, on_a, form.on_a), marker_b, form.rows, None)]
        moving = _MovingMarker(on_a, form.on_a, self.shown_name)
        return [("pair", _marker(a, SE3(), np.eye(3)), marker_b, form.rows, moving)]

    def flipped(self, model: Model, q: ArrayLike, *, t: float = 0.0) -> bool:
        """Whether orientations are half a turn from those that are meant, at the configuration q (nq,) of the model and
        the time t.

        Rows of orientation are zero there too: a_i . b_i is negative for an axis that the rows keep parallel.
        """
        form, on_a, on_b = self._sides()
        of_a, of_b = _poses(require_model(model), q, self._bodies(model), self)
        if isinstance(on_a, SE3):
            A = of_a.R @ on_a.R @ form.on_a
        else:
            A = _MovingMarker(on_a, form.on_a, self.shown_name)(t)[:9].reshape(3, 3)
        along = np.einsum("ki,ki->i", A, of_b.R @ on_b.R @ form.on_b)
        return any(along[i] < 0 for i in form.positive)


@final
@dataclass(frozen=True, init=False)
class Loop(_Welding):
    """A joint that closes a loop: b moves relative to a as the joint allows.

    b's placement is seen from a's as a body is seen from its parent's placement: joint.T at some coordinates, which are
    not part of the model's. Rows are along the axes of a marker on a: those of the joint's frame for `Fixed`,
    `Spherical`, `Translational` and `Free2D`; z along the axis of `Revolute`, `Prismatic` and `Cylindrical`; x along
    the first direction and z normal to both of `Planar`; x along the first axis of `Universal` and z normal to both. In
    the order of the multipliers they are::

        Fixed           position x, y, z; orientation x, y, z
        Revolute        position x, y, z; axis x, y
        Prismatic       position x, y; axis x, y; orientation z
        Cylindrical     position x, y; axis x, y
        Universal       position x, y, z; axes
        Spherical       position x, y, z          (also SphericalEuler, SphericalExp)
        Planar          position z; orientation x, y, z
        Free2D          position z; axis x, y
        Translational   orientation x, y, z

    Multipliers of positions are forces on b, those of axes and orientations moments on b, where the loop is closed. A
    loop by another joint, or one whose coordinates are needed, for springs or motors, is made by `model.with_loop`.

    Parameters
    ----------
    a, b : str
        Names of two bodies, or "world".
    joint : Joint
    placement_a : SE3 or function
        Pose of the joint's frame in a's frame. If a is "world" it may be a function of time that returns (pose, twist,
        twist rate): an SE3, its twist (6,) in its own frame, angular first, and the derivative (6,) of that.
    placement_b : SE3
        Pose in b's frame of the frame that the joint moves.
    name : str, optional
        Name in messages.
    """

    a: str
    b: str
    joint: Joint
    placement_a: SE3 | PoseMotion
    placement_b: SE3
    name: str | None = None

    _numbers: ClassVar[tuple[str, ...]] = ("placement_a", "placement_b")

    def __init__(
        self,
        a: str,
        b: str,
        joint: Joint,
        placement_a: SE3 | PoseMotion | None = None,
        placement_b: SE3 | None = None,
        *,
        name: str | None = None,
    ) -> None:
        set_name(self, name)
        self._set_bodies(a, b)
        if not isinstance(joint, Joint):
            hint = f"; did you mean {joint.__name__}()?" if isinstance(joint, type) and issubclass(joint, Joint) else ""
            raise TypeError(f"joint of {self.shown_name} must be a Joint, got {joint!r}{hint}")
        if isinstance(joint, Free):
            raise ValueError(f"{self.shown_name} is by a Free joint, which constrains nothing: leave it out")
        object.__setattr__(self, "joint", joint)
        self._set_placement_a(placement_a)
        object.__setattr__(
            self, "placement_b", require_pose(SE3() if placement_b is None else placement_b, "placement_b", self)
        )

    def at(self, model: Model, q: ArrayLike) -> Loop:
        """A copy whose placement on a is such that the loop is closed, at the neutral coordinates of its joint, at the
        configuration q (nq,) of the model."""
        if callable(self.placement_a):
            raise ValueError(f"placement_a of {self.shown_name} moves, so it cannot be taken from a configuration")
        of_a, of_b = _poses(require_model(model), q, self._bodies(model), self)
        neutral = SE3.from_matrix(self.joint.T(self.joint.neutral))
        return replace(self, placement_a=of_a.inverse() @ of_b @ self.placement_b @ neutral.inverse())

    def _on(self, moved: Mapping[str, tuple[str, SE3]]) -> Loop:
        a, on_a = _moved(moved, self.a, placement_a=self.placement_a)
        b, on_b = _moved(moved, self.b, placement_b=self.placement_b)
        return replace(self, a=a, b=b, **on_a, **on_b)

    def _sides(self) -> tuple[_Form, SE3 | PoseMotion, SE3]:
        form = _form(self.joint)
        if form is None:
            raise TypeError(
                f"{self.shown_name} is by a {type(self.joint).__name__}, whose rows depend on its coordinates; joints "
                f"that close a loop by themselves are {_KINDS}. model, loop = model.with_loop(loop) gives a "
                "model that has these coordinates, and the loop for it"
            )
        return form, self.placement_a, self.placement_b

    def _gradient(self, flat: FloatArray) -> dict[str, FloatArray]:
        form, on_a, _ = self._sides()
        out = {} if callable(on_a) else {"placement_a": _from_marker(flat[..., :6], form.on_a)}
        return out | {"placement_b": _from_marker(flat[..., 6:12], form.on_b)}

    def _split(self, model: Model) -> tuple[Model, Loop]:
        """As `Model.with_loop` describes it."""
        places = {f.name: (f.body, f.placement) for f in model.frames}
        if self.a in places or self.b in places:
            return self._on(places)._split(model)
        _, b = self._bodies(model)
        if callable(self.placement_a):
            raise ValueError(
                f"placement_a of {self.shown_name} moves, which a body's placement cannot; weld a body on a Free joint "
                "to it by PrescribedBody, and close the loop with that body"
            )
        if b < 0 or model.bodies[b].inertia.mass == 0:
            what = "the world" if b < 0 else f"body {self.b!r}, which has no mass"
            raise ValueError(
                f"{self.shown_name} ends at {what}, expected a body half of whose inertia the new body can carry; give "
                "it inertia, or name as b a body with inertia that is fixed there"
            )
        name = self.shown_name
        taken = {WORLD, *(body.name for body in model.bodies), *(body.joint_name for body in model.bodies)}
        if name in taken:
            raise ValueError(
                f"the new body would be named {name!r}, as a body or joint of the model; give the loop another name="
            )
        whole = model.bodies[b].inertia
        half = Inertia(whole.mass / 2, whole.com, whole.I_com / 2, allow_unphysical=True)
        lower, upper = (tuple(limit.tolist()) for limit in self.joint.range)
        free = (float("inf"),) * self.joint.nv
        carried = half.transformed(self.placement_b.inverse())
        new = Body(name, self.a, self.joint, self.placement_a, carried, name, (lower, upper), free, free)
        bodies = (*model.with_inertia(self.b, half).bodies, new)
        return replace(model, bodies=bodies), Loop(name, self.b, Fixed(), SE3(), self.placement_b, name=name)


@final
@dataclass(frozen=True, init=False)
class PrescribedBody(_Welding):
    """A body whose marker moves as prescribed: a weld to a marker of the world that moves.

    The rows are those of a `Loop` by a `Fixed` joint from the world to the body: position x, y, z, then orientation x,
    y, z. Multipliers are the force and the moment on the body that the motion takes, at the marker and along its axes.

    Parameters
    ----------
    body : str
        Name of the body.
    motion : SE3 or function
        Pose of the marker in the world, at rest, or a function of time that returns (pose, twist, twist rate): an SE3,
        its twist (6,) in its own frame, angular first, and the derivative (6,) of that.
    placement : SE3
        Pose of the marker in the body's frame.
    name : str, optional
        Name in messages.
    """

    body: str
    motion: SE3 | PoseMotion
    placement: SE3
    name: str | None = None

    _numbers: ClassVar[tuple[str, ...]] = ("motion", "placement")
    _of_bodies: ClassVar[tuple[str, ...]] = ("body",)

    def __init__(
        self, body: str, motion: SE3 | PoseMotion, placement: SE3 | None = None, *, name: str | None = None
    ) -> None:
        set_name(self, name)
        if body == WORLD:
            raise ValueError(f"the motion of {WORLD!r} cannot be prescribed; name a body of the model")
        object.__setattr__(self, "body", body_name(body))
        if not callable(motion):
            require_pose(motion, "motion", self)
        object.__setattr__(self, "motion", motion)
        object.__setattr__(
            self, "placement", require_pose(SE3() if placement is None else placement, "placement", self)
        )

    @property
    def a(self) -> str:  # type: ignore[override]
        """The world."""
        return WORLD

    @property
    def b(self) -> str:  # type: ignore[override]
        """The body."""
        return self.body

    def _subjects(self) -> tuple[str, ...]:
        return (self.body,)

    def _on(self, moved: Mapping[str, tuple[str, SE3]]) -> PrescribedBody:
        body, fields = _moved(moved, self.body, placement=self.placement)
        return replace(self, body=body, **fields)

    def _sides(self) -> tuple[_Form, SE3 | PoseMotion, SE3]:
        form = _form(Fixed())
        assert form is not None
        return form, self.motion, self.placement

    def _gradient(self, flat: FloatArray) -> dict[str, FloatArray]:
        out = {} if callable(self.motion) else {"motion": flat[..., :6]}
        return out | {"placement": flat[..., 6:12]}


class _OfPoint(_Welding):
    """A constraint of the position of a point of b in a marker of a."""

    placement_a: SE3 | PoseMotion
    point_b: tuple[float, ...]
    _axes: ClassVar[tuple[int, ...]]

    def _set(self, a: str, b: str, placement_a: SE3 | PoseMotion | None, point_b: ArrayLike, name: str | None) -> None:
        set_name(self, name)
        self._set_bodies(a, b)
        self._set_placement_a(placement_a)
        object.__setattr__(self, "point_b", numbers(point_b, (3,), "point_b"))

    def _on(self, moved: Mapping[str, tuple[str, SE3]]) -> Constraint:
        a, on_a = _moved(moved, self.a, placement_a=self.placement_a)
        b, on_b = _moved(moved, self.b, point_b=self.point_b)
        return replace(self, a=a, b=b, **on_a, **on_b)  # type: ignore[type-var]

    def _offset(self) -> float:
        return 0.0

    def _sides(self) -> tuple[_Form, SE3 | PoseMotion, SE3]:
        rows = [_position(i, self._offset()) for i in self._axes]
        labels = tuple(_POSITION_LABELS[i] for i in self._axes) if len(self._axes) > 1 else ("",)
        return _Form(rows, labels, np.eye(3), np.eye(3)), self.placement_a, SE3(p=self.point_b)

    def _gradient(self, flat: FloatArray) -> dict[str, FloatArray]:
        out = {} if callable(self.placement_a) else {"placement_a": flat[..., :6]}
        return out | {"point_b": flat[..., 9:12]}


@final
@dataclass(frozen=True, init=False)
class PointOnPlane(_OfPoint):
    """A point of b stays in the plane z = offset of a marker on a. Its multiplier is the force on b along z.

    Parameters
    ----------
    a, b : str
        Names of two bodies, or "world".
    placement_a : SE3 or function
        Pose of the marker in a's frame, or its motion, as that of a `Loop`.
    point_b : (3,) array_like
        Point in b's frame.
    offset : float
        Distance of the plane from the marker's origin.
    name : str, optional
        Name in messages.
    """

    a: str
    b: str
    placement_a: SE3 | PoseMotion
    point_b: tuple[float, ...]
    offset: float
    name: str | None = None

    _numbers: ClassVar[tuple[str, ...]] = ("placement_a", "point_b", "offset")
    _axes: ClassVar[tuple[int, ...]] = (2,)

    def __init__(
        self,
        a: str,
        b: str,
        placement_a: SE3 | PoseMotion | None = None,
        point_b: ArrayLike = (0.0, 0.0, 0.0),
        *,
        offset: float = 0.0,
        name: str | None = None,
    ) -> None:
        self._set(a, b, placement_a, point_b, name)
        object.__setattr__(self, "offset", scalar(offset, "offset"))

    def _offset(self) -> float:
        return self.offset

    def _gradient(self, flat: FloatArray) -> dict[str, FloatArray]:
        return super()._gradient(flat) | {"offset": flat[..., 12]}


@final
@dataclass(frozen=True, init=False)
class PointOnLine(_OfPoint):
    """A point of b stays on the z axis of a marker on a. Its multipliers are the forces on b along x and y.

    Parameters
    ----------
    a, b : str
        Names of two bodies, or "world".
    placement_a : SE3 or function
        Pose of the marker in a's frame, or its motion, as that of a `Loop`.
    point_b : (3,) array_like
        Point in b's frame.
    name : str, optional
        Name in messages.
    """

    a: str
    b: str
    placement_a: SE3 | PoseMotion
    point_b: tuple[float, ...]
    name: str | None = None

    _numbers: ClassVar[tuple[str, ...]] = ("placement_a", "point_b")
    _axes: ClassVar[tuple[int, ...]] = (0, 1)

    def __init__(
        self,
        a: str,
        b: str,
        placement_a: SE3 | PoseMotion | None = None,
        point_b: ArrayLike = (0.0, 0.0, 0.0),
        *,
        name: str | None = None,
    ) -> None:
        self._set(a, b, placement_a, point_b, name)


@final
@dataclass(frozen=True, init=False)
class Distance(_Pair):
    """Two points keep a distance: a massless rod with ball joints. Its multiplier is positive where it pushes them
    apart.

    Parameters
    ----------
    a : str
        Name of a body, or "world".
    point_a : (3,) array_like
        Point in its frame.
    b : str
    point_b : (3,) array_like
        The other body and point.
    length : float
        Distance, positive.
    name : str, optional
        Name in messages.
    """

    a: str
    point_a: tuple[float, ...]
    b: str
    point_b: tuple[float, ...]
    length: float
    name: str | None = None

    _numbers: ClassVar[tuple[str, ...]] = ("point_a", "point_b", "length")

    def __init__(
        self, a: str, point_a: ArrayLike, b: str, point_b: ArrayLike, length: float, *, name: str | None = None
    ) -> None:
        set_name(self, name)
        self._set_bodies(a, b)
        object.__setattr__(self, "point_a", numbers(point_a, (3,), "point_a"))
        object.__setattr__(self, "point_b", numbers(point_b, (3,), "point_b"))
        if np.ndim(length) == 0 and length == 0:
            raise ValueError(
                "length is 0, expected a number above 0; a Loop by a Spherical joint keeps points together"
            )
        object.__setattr__(self, "length", scalar(length, "length", positive=True))

    def _on(self, moved: Mapping[str, tuple[str, SE3]]) -> Distance:
        a, on_a = _moved(moved, self.a, point_a=self.point_a)
        b, on_b = _moved(moved, self.b, point_b=self.point_b)
        return replace(self, a=a, b=b, **on_a, **on_b)

    def _labels(self, model: Model) -> tuple[str, ...]:
        return ("",)

    def _parts(self, model: Model) -> list[Part]:
        a, b = self._bodies(model)
        markers = (_marker(i, SE3(p=p), np.eye(3)) for i, p in ((a, self.point_a), (b, self.point_b)))
        return [("pair", *markers, [("norm", self.length)], None)]

    def _gradient(self, flat: FloatArray) -> dict[str, FloatArray]:
        return {"point_a": flat[..., 3:6], "point_b": flat[..., 9:12], "length": flat[..., 12]}
