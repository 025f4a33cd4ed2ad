"""Constraints of velocities: rows on twists of bodies and on velocities of joints together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy as np

from torsor._errors import ConstraintError
from torsor.constraints.constraint import Constraint, body_of, over, set_name
from torsor.forces.force import body_name, numbers, row, scalar
from torsor.model import Model, carrier, place_name
from torsor.spatial import SE3

if TYPE_CHECKING:
    from numpy.typing import ArrayLike
    from typing_extensions import Self

    from torsor._typing import FloatArray
    from torsor.constraints.constraint import Part


Rate = Callable[[float], tuple[float, float]]


def _pairs(given: Any, name: str) -> list[tuple[str, Any]]:
    """Items of a mapping, or pairs."""
    if isinstance(given, Mapping):
        return list(given.items())
    if isinstance(given, tuple) and all(isinstance(pair, tuple) and len(pair) == 2 for pair in given):
        return list(given)
    raise TypeError(f"{name} is {given!r}, expected a dict by name")


@dataclass(frozen=True, eq=False)
class _Rate:
    """A prescribed rate, constant or a function of time, as the core calls it."""

    rate: float | Rate
    owner: str

    def __call__(self, t: float) -> FloatArray:
        """The value and its rate at the time t."""
        if not callable(self.rate):
            return np.array([self.rate, 0.0])
        return np.array(over(self.rate, t, (("value", ()), ("rate", ())), self.owner))


@final
@dataclass(frozen=True, init=False)
class TwistConstraint(Constraint):
    """One row on velocities: sum_b w_b . V_b + sum_j c_j . v_j = rate. Sueda 2021, (2.109).

    V_b is the twist of body b in its own frame, v_j the velocities of joint j. The row is kept at the level of
    velocities; it need not be the rate of a position, and has none: g = 0. Its multiplier times w_b is the wrench on
    body b in its frame, and times c_j the generalized force at joint j.

    Parameters
    ----------
    bodies : dict from str to (6,) array_like
        Wrenches w_b, angular first, by name of the body.
    joints : dict from str to float or (n,) array_like
        Coefficients c_j by name of the joint, one for each of its velocities.
    rate : float or function
        A number, or a function of time that returns (value, rate).
    name : str, optional
        Name in messages.
    """

    bodies: tuple[tuple[str, tuple[float, ...]], ...]
    joints: tuple[tuple[str, tuple[float, ...]], ...]
    rate: float | Rate
    name: str | None = None

    _numbers: ClassVar[tuple[str, ...]] = ("wrenches", "coefficients")
    _of_bodies: ClassVar[tuple[str, ...]] = ("bodies",)
    _of_joints: ClassVar[tuple[str, ...]] = ("joints",)

    def __init__(
        self,
        bodies: Mapping[str, ArrayLike] | Iterable[tuple[str, Any]] = (),
        joints: Mapping[str, ArrayLike] | Iterable[tuple[str, Any]] = (),
        rate: float | Rate = 0.0,
        *,
        name: str | None = None,
    ) -> None:
        set_name(self, name)
        wrenches = tuple((body_name(b), numbers(w, (6,), f"bodies[{b!r}]")) for b, w in _pairs(bodies, "bodies"))
        pairs = _pairs(joints, "joints")
        for joint, _ in pairs:
            if not isinstance(joint, str):
                raise TypeError(f"a joint is named by a string, got {joint!r}")
        coefficients = tuple((j, row(c, f"joints[{j!r}]")) for j, c in pairs)
        if not wrenches and not coefficients:
            raise ValueError("a TwistConstraint needs bodies or joints, got none")
        for kind, what in (("bodies", wrenches), ("joints", coefficients)):
            for key, values in what:
                if not any(values):
                    raise ValueError(f"{kind}[{key!r}] is zero or empty; leave it out")
        object.__setattr__(self, "bodies", wrenches)
        object.__setattr__(self, "joints", coefficients)
        object.__setattr__(self, "rate", rate if callable(rate) else scalar(rate, "rate"))

    @property
    def wrenches(self) -> FloatArray:
        """The wrenches (n, 6), in the order of the bodies."""
        return np.array([w for _, w in self.bodies]).reshape(len(self.bodies), 6)

    @property
    def coefficients(self) -> FloatArray:
        """The coefficients (n,) of all velocities, in the order of the joints."""
        return np.array([x for _, c in self.joints for x in c], dtype=np.float64)

    def _replaced(self, values: dict[str, Any]) -> Self:
        changed: dict[str, Any] = {}
        if "wrenches" in values:
            wrenches = numbers(values["wrenches"], self.wrenches.shape, "wrenches")
            changed["bodies"] = tuple((b, w) for (b, _), w in zip(self.bodies, wrenches, strict=True))
        if "coefficients" in values:
            flat = iter(numbers(values["coefficients"], self.coefficients.shape, "coefficients"))
            changed["joints"] = tuple((j, tuple(next(flat) for _ in c)) for j, c in self.joints)
        return replace(self, **changed)

    def _on(self, moved: Mapping[str, tuple[str, SE3]]) -> TwistConstraint:
        wrenches: dict[str, FloatArray] = {}
        for name, wrench in self.bodies:
            other, pose = moved.get(name, (name, SE3()))
            carried = pose.inverse().adjoint.T @ np.array(wrench)
            wrenches[other] = wrenches[other] + carried if other in wrenches else carried
        return replace(self, bodies=tuple((name, tuple(w.tolist())) for name, w in wrenches.items()))

    def _subjects(self) -> tuple[str, ...]:
        return tuple(name for name, _ in (*self.bodies, *self.joints))

    def _labels(self, model: Model) -> tuple[str, ...]:
        return ("",)

    def _joints(self, model: Model) -> tuple[str, ...]:
        return tuple(model.joint(name).name for name, _ in self.joints)

    def _parts(self, model: Model) -> list[Part]:
        bodies: dict[int, list[float]] = {}
        for name, wrench in self.bodies:
            i = body_of(model, name, self)
            if carrier(model, i) < 0:
                raise ConstraintError(f"body {name!r} of {self.shown_name} does not move; leave it out")
            if i in bodies:
                raise ConstraintError(f"{self.shown_name} names body {place_name(model, i)!r} twice; add the wrenches")
            bodies[i] = list(wrench)
        velocities: dict[int, float] = {}
        for name, coefficients in self.joints:
            try:
                joint = model.joint(name)
            except KeyError as error:
                raise KeyError(f"{error.args[0]}; got that name in {self.shown_name}") from None
            if len(coefficients) != joint.nv:
                raise ConstraintError(
                    f"joints[{name!r}] of {self.shown_name} has {len(coefficients)} coefficients, expected "
                    f"{joint.nv}: one for each velocity of the joint"
                )
            if joint.v_slice.start in velocities:
                raise ConstraintError(f"{self.shown_name} names joint {joint.name!r} twice; add the coefficients")
            velocities |= {joint.v_slice.start + k: c for k, c in enumerate(coefficients)}
        motion = _Rate(self.rate, self.shown_name) if callable(self.rate) or self.rate else None
        return [("twist", list(bodies.items()), [(c, iv) for iv, c in velocities.items()], motion)]

    def _gradient(self, flat: FloatArray) -> dict[str, FloatArray]:
        at = 6 * len(self.bodies)
        wrenches = flat[..., :at].reshape((*flat.shape[:-1], len(self.bodies), 6))
        out = {"wrenches": wrenches, "coefficients": flat[..., at:]}
        return {name: out[name] for name in self.parameters}
