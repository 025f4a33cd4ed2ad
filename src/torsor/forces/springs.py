"""Springs between points of bodies, straight or through via points, and cables. Sueda 2021, 1.9.5 and 1.9.7-1.9.10.

A point is given in its body's frame; the body "world" is the world. The length of a path through points is the sum of
its segments. A segment without length (below 3e-15 of the coordinates of its ends) has no direction and exerts no
force.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy as np

from torsor.forces.force import Force, body_index, body_name, number, numbers, row, scalar
from torsor.kinematics import point_positions
from torsor.model import Model, require_model

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from torsor._typing import Array
    from torsor.forces.force import Part


Law = Callable[..., Any]


class _Pair(Force):
    """A force between two points."""

    body1: str
    point1: tuple[float, ...]
    body2: str
    point2: tuple[float, ...]

    def _set_points(self, body1: str, point1: ArrayLike, body2: str, point2: ArrayLike) -> None:
        object.__setattr__(self, "body1", body_name(body1))
        object.__setattr__(self, "point1", numbers(point1, (3,), "point1"))
        object.__setattr__(self, "body2", body_name(body2))
        object.__setattr__(self, "point2", numbers(point2, (3,), "point2"))

    def _attachments(self, model: Model, at: dict[str, int]) -> list[tuple[int, int]]:
        ends = ((self.body1, at["point1"]), (self.body2, at["point2"]))
        return [(body_index(model, body, world=True), offset) for body, offset in ends]


class _Path(Force):
    """A force along a path through points."""

    bodies: tuple[str, ...]
    points: tuple[tuple[float, ...], ...]

    def _set_points(self, bodies: Sequence[str], points: ArrayLike) -> None:
        if isinstance(bodies, str) or not isinstance(bodies, Iterable):
            raise TypeError(f"bodies is {bodies!r}, expected a sequence of names, one for each point")
        names = tuple(body_name(b) for b in bodies)
        if len(names) < 2:
            raise ValueError(f"a path needs 2 points at least, got {len(names)} bodies")
        object.__setattr__(self, "bodies", names)
        object.__setattr__(self, "points", numbers(points, (len(names), 3), "points"))

    def _attachments(self, model: Model, at: dict[str, int]) -> list[tuple[int, int]]:
        first = at["points"]
        return [(body_index(model, body, world=True), first + 3 * k) for k, body in enumerate(self.bodies)]


def _length(model: Model, q: ArrayLike, bodies: Sequence[str], points: Any) -> float:
    """Length of the path at q."""
    require_model(model)
    if np.ndim(q) != 1:
        raise ValueError(f"q has shape {np.shape(q)}, expected ({model.nq},): a force is at rest at one configuration")
    x = [
        np.array(p) if body_index(model, b, world=True) < 0 else point_positions(model, q, b, p)
        for b, p in zip(bodies, points, strict=True)
    ]
    return float(sum(np.linalg.norm(b - a) for a, b in pairwise(x)))


def _rest_length(value: float | None) -> float | None:
    return None if value is None else scalar(value, "rest_length", positive=True)


def _require_rest_length(force: Force, value: float | None) -> None:
    if value is None:
        raise ValueError(
            f"rest_length of {type(force).__name__} is not known; give it, or take that of a configuration: "
            "force.at_rest(model, q)"
        )


@final
@dataclass(frozen=True, init=False)
class PointSpring(_Pair):
    """A spring with zero rest length and a damper between two points: stiffness dx + damping dv. Sueda 2021, 1.9.5.

    It is isotropic; a stiff one closes a loop.

    Parameters
    ----------
    body1 : str
        Name of a body, or "world".
    point1 : (3,) array_like
        Point in its frame.
    body2 : str
    point2 : (3,) array_like
        The other body and point.
    stiffness, damping : float
        Force per unit of distance, and per unit of relative velocity.
    """

    body1: str
    point1: tuple[float, ...]
    body2: str
    point2: tuple[float, ...]
    stiffness: float
    damping: float = 0.0

    _numbers: ClassVar[tuple[str, ...]] = ("point1", "point2", "stiffness", "damping")

    def __init__(
        self,
        body1: str,
        point1: ArrayLike,
        body2: str,
        point2: ArrayLike,
        stiffness: float,
        damping: float = 0.0,
    ) -> None:
        self._set_points(body1, point1, body2, point2)
        object.__setattr__(self, "stiffness", scalar(stiffness, "stiffness", least=0.0))
        object.__setattr__(self, "damping", scalar(damping, "damping", least=0.0))

    def _parts(self, model: Model, at: dict[str, int]) -> list[Part]:
        return [("pull", self._attachments(model, at), at["stiffness"])]


@final
@dataclass(frozen=True, init=False)
class SpringDamper(_Pair):
    """A spring and damper with a rest length between two points. Sueda 2021, 1.9.9.

    With the strain e = (l - L)/L of the length l against the rest length L, the tension is stiffness e + damping
    de/dt and the energy stiffness e^2 L / 2.

    Parameters
    ----------
    body1 : str
        Name of a body, or "world".
    point1 : (3,) array_like
        Point in its frame.
    body2 : str
    point2 : (3,) array_like
        The other body and point.
    stiffness, damping : float
        Force per unit of strain, and per unit of its rate.
    rest_length : float, optional
        L; `at_rest` sets it to the length at a configuration. Required for evaluation.
    """

    body1: str
    point1: tuple[float, ...]
    body2: str
    point2: tuple[float, ...]
    stiffness: float
    damping: float = 0.0
    rest_length: float | None = None

    _numbers: ClassVar[tuple[str, ...]] = ("point1", "point2", "stiffness", "damping", "rest_length")

    def __init__(
        self,
        body1: str,
        point1: ArrayLike,
        body2: str,
        point2: ArrayLike,
        stiffness: float,
        damping: float = 0.0,
        rest_length: float | None = None,
    ) -> None:
        self._set_points(body1, point1, body2, point2)
        object.__setattr__(self, "stiffness", scalar(stiffness, "stiffness", least=0.0))
        object.__setattr__(self, "damping", scalar(damping, "damping", least=0.0))
        object.__setattr__(self, "rest_length", _rest_length(rest_length))

    def at_rest(self, model: Model, q: ArrayLike) -> SpringDamper:
        """A copy whose rest length is the length at the configuration q (nq,) of the model."""
        length = _length(model, q, (self.body1, self.body2), (self.point1, self.point2))
        return replace(self, rest_length=length)

    def _parts(self, model: Model, at: dict[str, int]) -> list[Part]:
        _require_rest_length(self, self.rest_length)
        return [("path", self._attachments(model, at), "strain", at["stiffness"], 3, None)]


@final
@dataclass(frozen=True, init=False)
class Cable(_Path):
    """A cable through via points, each a ring on its body. Sueda 2021, 1.9.10.

    The tension is that of `SpringDamper` while the path is longer than the rest length, and zero otherwise. The energy
    has a continuous first derivative; the damper's part of the tension is discontinuous where the cable becomes taut.
    Without damping a cable never pushes. With it, the tension of (1.83) is negative while a taut cable shortens faster
    than dl/dt = -stiffness (l - L) / damping.

    Parameters
    ----------
    bodies : sequence of str
        A body, or "world", for each point.
    points : (n, 3) array_like
        The points in the frames of their bodies, at least two.
    stiffness, damping : float
        Force per unit of strain, and per unit of its rate.
    rest_length : float, optional
        Length up to which the cable is slack; `at_rest` sets it to the length at a configuration. Required for
        evaluation.
    slack : bool
        Whether it is slack below the rest length. Otherwise it pushes there as `SpringDamper` does: a rod through the
        points, or a tendon of MuJoCo.
    """

    bodies: tuple[str, ...]
    points: tuple[tuple[float, ...], ...]
    stiffness: float
    damping: float = 0.0
    rest_length: float | None = None
    slack: bool = True

    _numbers: ClassVar[tuple[str, ...]] = ("points", "stiffness", "damping", "rest_length")

    def __init__(
        self,
        bodies: Sequence[str],
        points: ArrayLike,
        stiffness: float,
        damping: float = 0.0,
        rest_length: float | None = None,
        *,
        slack: bool = True,
    ) -> None:
        self._set_points(bodies, points)
        object.__setattr__(self, "stiffness", scalar(stiffness, "stiffness", least=0.0))
        object.__setattr__(self, "damping", scalar(damping, "damping", least=0.0))
        object.__setattr__(self, "rest_length", _rest_length(rest_length))
        if not isinstance(slack, bool):
            raise TypeError(f"slack is {slack!r}, expected True or False")
        object.__setattr__(self, "slack", slack)

    def at_rest(self, model: Model, q: ArrayLike) -> Cable:
        """A copy whose rest length is the length at the configuration q (nq,) of the model."""
        return replace(self, rest_length=_length(model, q, self.bodies, self.points))

    def _parts(self, model: Model, at: dict[str, int]) -> list[Part]:
        _require_rest_length(self, self.rest_length)
        return [("path", self._attachments(model, at), "cable" if self.slack else "strain", at["stiffness"], 3, None)]


class _Tension(Force):
    """A user-defined tension: the common part of `CustomSpring` and `CustomCable`."""

    law: Law
    energy: Law | None
    law_parameters: tuple[float, ...]
    batched: bool

    def _set_law(self, law: Law, energy: Law | None, law_parameters: ArrayLike, batched: bool) -> None:
        for name, f in (("law", law), ("energy", energy)):
            if not callable(f) and not (name == "energy" and f is None):
                raise TypeError(f"{name} must be a function, got {f!r}")
        if not isinstance(batched, bool):
            raise TypeError(f"batched is {batched!r}, expected True or False")
        object.__setattr__(self, "law", law)
        object.__setattr__(self, "energy", energy)
        object.__setattr__(self, "law_parameters", row(law_parameters, "law_parameters"))
        object.__setattr__(self, "batched", batched)

    @property
    def has_energy(self) -> bool:  # type: ignore[override]
        """Whether `energy` was given."""
        return self.energy is not None

    # The functions at all rows of their arguments, as the core calls them.

    def _tension(self, x: Array, p: Array) -> Array:
        """Rows of f, df/dl, df/dldot and df/dp, from rows of l, ldot and of parameters."""
        n = p.shape[1]
        out = np.empty((len(x), 3 + n), x.dtype)
        if self.batched:
            l, ldot = x.T.copy()
            self._put(self.law(l, ldot, p) if n else self.law(l, ldot), out)
        else:
            for i in range(len(x)):
                l, ldot = x[i]
                self._put(self.law(l, ldot, p[i]) if n else self.law(l, ldot), out[i])
        return out

    def _put(self, given: Any, out: Array) -> None:
        """Writes what the law gave at one state, out (3 + n,), or at several, out (rows, 3 + n)."""
        rows, n = out.shape[:-1], out.shape[-1] - 3
        names = "(f, df_dl, df_dldot, df_dp)" if n else "(f, df_dl, df_dldot)"
        if not isinstance(given, (tuple, list)) or len(given) != 3 + (n > 0):
            raise ValueError(f"the law of a {type(self).__name__} gave {given!r}, expected {names}")
        parts = [np.asarray(part) for part in given]
        shapes = [part.shape for part in parts]
        if not {(), rows}.issuperset(shapes[:3]) or (n and shapes[3] != (*rows, n)):
            each = f"numbers or {rows}" if rows else "numbers"
            raise ValueError(
                f"the law of a {type(self).__name__} gave shapes {shapes}, expected {names}: {each}, df_dp {(*rows, n)}"
            )
        kind = np.result_type(*parts)
        if not np.can_cast(kind, out.dtype, "same_kind"):
            raise ValueError(f"the law of a {type(self).__name__} gave dtype {kind}, expected {out.dtype}")
        out[..., 0], out[..., 1], out[..., 2] = parts[:3]
        if n:
            out[..., 3:] = parts[3]

    def _energy(self, x: Array, p: Array) -> Array:
        """The energies (rows,) at the lengths x (rows, 1)."""
        if self.energy is None:
            return np.zeros(len(x), x.dtype)
        n = p.shape[1]
        if not self.batched:
            given = [self.energy(l, own) if n else self.energy(l) for (l,), own in zip(x, p, strict=True)]
            return np.concatenate([number(one, x.dtype, "the energy", self) for one in given])
        a = np.asarray(self.energy(x[:, 0], p) if n else self.energy(x[:, 0]))
        if a.shape != (len(x),) or not np.can_cast(a.dtype, x.dtype, "same_kind"):
            raise ValueError(
                f"the energy of a batched {type(self).__name__} gave shape {a.shape} and dtype {a.dtype}, expected "
                f"{(len(x),)} and {x.dtype}, for as many lengths"
            )
        return np.ascontiguousarray(a, dtype=x.dtype)


@final
@dataclass(frozen=True, init=False)
class CustomSpring(_Tension, _Pair):
    """A spring between two points whose tension is a user-defined function of length and rate. Sueda 2021, 1.9.7.

    Parameters
    ----------
    body1 : str
        Name of a body, or "world".
    point1 : (3,) array_like
        Point in its frame.
    body2 : str
    point2 : (3,) array_like
        The other body and point.
    law : function
        `law(l, ldot)` returns (f, df_dl, df_dldot); with parameters `law(l, ldot, p)` returns (f, df_dl, df_dldot,
        df_dp). A positive f pulls. It is called under the interpreter lock with NumPy numbers, complex within
        `testing.complex_inputs`.
    energy : function, optional
        `energy(l)` or `energy(l, p)`, whose derivative is f at ldot = 0.
    law_parameters : (n,) array_like
        Parameters p of the law.
    batched : bool
        Whether `law` and `energy` take arrays, for several states at once: l and ldot (...), p (..., n), as many for
        one state, and return arrays of the same leading axes, df_dp (..., n); f, df_dl and df_dldot may be numbers.
        This avoids a loop in Python. Each state must be computed independently of the others, roundings included.
    """

    body1: str
    point1: tuple[float, ...]
    body2: str
    point2: tuple[float, ...]
    law: Law
    energy: Law | None = None
    law_parameters: tuple[float, ...] = ()
    batched: bool = False

    _numbers: ClassVar[tuple[str, ...]] = ("point1", "point2", "law_parameters")

    def __init__(
        self,
        body1: str,
        point1: ArrayLike,
        body2: str,
        point2: ArrayLike,
        law: Law,
        energy: Law | None = None,
        law_parameters: ArrayLike = (),
        *,
        batched: bool = False,
    ) -> None:
        self._set_points(body1, point1, body2, point2)
        self._set_law(law, energy, law_parameters, batched)

    def _parts(self, model: Model, at: dict[str, int]) -> list[Part]:
        count = len(self.law_parameters)
        return [("path", self._attachments(model, at), "custom", at["law_parameters"], count, self)]


@final
@dataclass(frozen=True, init=False)
class CustomCable(_Tension, _Path):
    """A cable through via points whose tension is a user-defined function of length and rate. Sueda 2021, 1.9.8.

    Parameters
    ----------
    bodies : sequence of str
        A body, or "world", for each point.
    points : (n, 3) array_like
        The points in the frames of their bodies, at least two.
    law, energy : function
    law_parameters : (n,) array_like
    batched : bool
        As for `CustomSpring`.
    """

    bodies: tuple[str, ...]
    points: tuple[tuple[float, ...], ...]
    law: Law
    energy: Law | None = None
    law_parameters: tuple[float, ...] = ()
    batched: bool = False

    _numbers: ClassVar[tuple[str, ...]] = ("points", "law_parameters")

    def __init__(
        self,
        bodies: Sequence[str],
        points: ArrayLike,
        law: Law,
        energy: Law | None = None,
        law_parameters: ArrayLike = (),
        *,
        batched: bool = False,
    ) -> None:
        self._set_points(bodies, points)
        self._set_law(law, energy, law_parameters, batched)

    def _parts(self, model: Model, at: dict[str, int]) -> list[Part]:
        count = len(self.law_parameters)
        return [("path", self._attachments(model, at), "custom", at["law_parameters"], count, self)]
