"""Sliders for the coordinates of a model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from torsor._core import JointKind
from torsor.joints import Free, Joint
from torsor.model import Model, ModelJoint
from torsor.spatial import exp3, log3, matrix_to_quaternion, quaternion_to_matrix

if TYPE_CHECKING:
    from torsor._typing import FloatArray

_HALF_TURN = 3.142
_ANGLES = (JointKind.revolute, JointKind.screw, JointKind.exponential, JointKind.custom)
_ROTATION = ("rotation x", "rotation y", "rotation z")


@dataclass(frozen=True)
class Slider:
    """One number that moves a joint: its name, its range, and the step of a slider."""

    label: str
    lower: float
    upper: float
    step: float


@dataclass(frozen=True, eq=False)
class Handle:
    """The sliders of a joint, or of a coordinate that couplings introduce.

    Attributes
    ----------
    name : str
        That of the joint or coordinate.
    sliders : tuple of Slider
    read : function from q (nq,) to the values of the sliders
    write : function from q (nq,) and values of the sliders to q (nq,) with the joint at these values
    """

    name: str
    sliders: tuple[Slider, ...]
    read: Callable[[FloatArray], FloatArray]
    write: Callable[[FloatArray, FloatArray], FloatArray]

    def clipped(self, q: FloatArray) -> FloatArray:
        """Values of the sliders at q, within their ranges."""
        low, high = [s.lower for s in self.sliders], [s.upper for s in self.sliders]
        return np.clip(self.read(q), low, high)


def handles(model: Model, reach: float) -> list[Handle]:
    """The sliders of all joints that have coordinates of their own; those that follow others have none.

    Ranges are the limits of joints. Angles without limits go once around, lengths as far as `reach`. Joints whose
    coordinates are quaternions have rotation vectors, and free joints positions too, in the world or the parent.

    Parameters
    ----------
    model : Model
    reach : float
        Largest length, for joints without limits.
    """
    low, high = model.position_limits
    out = [
        _of_coordinates(joint, _labels(model, i, joint), low, high, reach)
        if joint.joint.nq == joint.joint.nv
        else _of_free(joint, low, high, reach)
        if isinstance(joint.joint, Free)
        else _of_tangent(joint, reach)
        for i, joint in enumerate(model.joints)
        if joint.nq
    ]
    # coordinates that couplings introduce come last, and belong to no joint
    new = [name for coupling in model.couplings for name in coupling.new]
    for k, name in enumerate(new, model.nq - len(new)):
        at = slice(k, k + 1)
        out.append(_plain(name, at, [_slider(name, low[k], high[k], _HALF_TURN)]))
    return out


def _labels(model: Model, i: int, joint: ModelJoint) -> list[tuple[str, int]]:
    """Names of the joint's own coordinates, and which of the joint's they are."""
    followers = set() if model._map is None else {k for j, k in model._map.rule if j == i}
    own = [k for k in range(joint.joint.nq) if k not in followers]
    return [(joint.name if joint.joint.nq == 1 else f"{joint.name}[{k}]", k) for k in own]


def _of_coordinates(
    joint: ModelJoint, labels: list[tuple[str, int]], low: FloatArray, high: FloatArray, reach: float
) -> Handle:
    """Sliders of the coordinates themselves."""
    at, wide = joint.q_slice, _reaches(joint.joint, reach)
    first, last = joint.joint.range
    sliders = [
        _slider(label, max(a, first[k]), min(b, last[k]), wide[k])
        for (label, k), a, b in zip(labels, low[at], high[at], strict=True)
    ]
    return _plain(joint.name, at, sliders)


def _plain(name: str, at: slice, sliders: list[Slider]) -> Handle:
    def write(q: FloatArray, values: FloatArray) -> FloatArray:
        out = np.array(q)
        out[at] = values
        return out

    return Handle(name, tuple(sliders), lambda q: q[at], write)


def _of_free(joint: ModelJoint, low: FloatArray, high: FloatArray, reach: float) -> Handle:
    """Sliders of the position, and of the rotation vector."""
    at = joint.q_slice
    places = zip("xyz", low[at], high[at], strict=False)
    sliders = [_slider(f"{joint.name} {letter}", a, b, reach) for letter, a, b in places]
    sliders += [_slider(f"{joint.name} {label}", -np.inf, np.inf, _HALF_TURN) for label in _ROTATION]

    def read(q: FloatArray) -> FloatArray:
        return np.concatenate([q[at][:3], log3(quaternion_to_matrix(q[at][3:]))])

    def write(q: FloatArray, values: FloatArray) -> FloatArray:
        out = np.array(q)
        out[at] = np.concatenate([values[:3], matrix_to_quaternion(exp3(values[3:]))])
        return out

    return Handle(joint.name, tuple(sliders), read, write)


def _of_tangent(joint: ModelJoint, reach: float) -> Handle:
    """Sliders of the displacement from the neutral configuration: of a spherical joint, the rotation vector."""
    at, kind = joint.q_slice, joint.joint
    neutral, wide = kind.neutral, _reaches(kind, reach)
    labels = _ROTATION if kind.nv == 3 and kind.nq == 4 else [f"[{k}]" for k in range(kind.nv)]
    sliders = [_slider(f"{joint.name} {label}", -np.inf, np.inf, wide[k]) for k, label in enumerate(labels)]

    def write(q: FloatArray, values: FloatArray) -> FloatArray:
        out = np.array(q)
        out[at] = kind.plus(neutral, values)
        return out

    return Handle(joint.name, tuple(sliders), lambda q: kind.minus(q[at], neutral), write)


def _reaches(joint: Joint, reach: float) -> list[float]:
    """How far the velocities of a joint without limits go: half a turn, or a length."""
    out: list[float] = []
    for factor in joint._factors[0]:
        if factor.kind == JointKind.free:
            out += [_HALF_TURN] * 3 + [reach] * 3
        else:
            angle = factor.kind in (*_ANGLES, JointKind.spherical)
            out += [_HALF_TURN if angle else reach] * factor.nv
    return out


def _slider(label: str, lower: float, upper: float, reach: float) -> Slider:
    """A slider between limits; where one is missing, as far as the range of a joint without limits is wide."""
    if not np.isfinite(lower):
        lower = -reach if upper > -reach else upper - 2.0 * reach
    if not np.isfinite(upper):
        upper = reach if lower < reach else lower + 2.0 * reach
    lower, upper = float(lower), float(max(lower, upper))
    step = 10.0 ** np.floor(np.log10((upper - lower) / 200.0)) if upper > lower else 1e-3
    return Slider(label, lower, upper, float(step))
