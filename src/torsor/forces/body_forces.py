"""Forces on one body: damping of its twist, wrenches, a force at a point. Sueda 2021, 1.9.1 and 1.9.2."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy as np

from torsor._check import axes
from torsor.forces.force import Force, body_index, body_name, each, numbers, over_time
from torsor.model import Model

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from torsor._typing import Frame
    from torsor.forces.force import Part


@final
@dataclass(frozen=True, init=False)
class BodyDamping(Force):
    """Viscous damping of a body: wrench -coefficients * twist, in the body's frame, moment first.

    Sueda 2021, 1.9.1. It has no energy.

    Parameters
    ----------
    body : str
        Name of the body.
    coefficients : float or (6,) array_like
        One number for each component of the twist at the body's origin, angular first, or one for all.
    """

    body: str
    coefficients: tuple[float, ...]

    has_energy: ClassVar[bool] = False
    _numbers: ClassVar[tuple[str, ...]] = ("coefficients",)

    def __init__(self, body: str, coefficients: ArrayLike) -> None:
        c = np.full(6, coefficients) if np.ndim(coefficients) == 0 else coefficients
        object.__setattr__(self, "body", body_name(body))
        object.__setattr__(self, "coefficients", numbers(each(c, "coefficients"), (6,), "coefficients"))

    def _parts(self, model: Model, at: dict[str, int]) -> list[Part]:
        return [("body", "damper", body_index(model, self.body), ([], at["coefficients"], 6))]


@final
@dataclass(frozen=True, init=False)
class BodyWrench(Force):
    """A wrench on a body, moment first, constant or a table over time. It has no energy.

    Parameters
    ----------
    body : str
        Name of the body.
    wrench : (6,) or (n, 6) array_like
        With `times` one row for each time, interpolated linearly, constant before the first and after the last.
    times : (n,) array_like, optional
        Times of the rows, increasing.
    frame : {"body", "world", "local_world_aligned"}
        Frame in which the wrench is given and held fixed: that of the body; the world frame, moment about its origin;
        or the axes of the world, moment about the body's origin.
    """

    body: str
    wrench: tuple[Any, ...]
    times: tuple[float, ...] | None = None
    frame: Frame = "body"

    has_energy: ClassVar[bool] = False
    _numbers: ClassVar[tuple[str, ...]] = ("wrench",)

    def __init__(self, body: str, wrench: ArrayLike, times: ArrayLike | None = None, *, frame: Frame = "body") -> None:
        axes(frame)
        table, when = over_time(wrench, times, 6, "wrench")
        object.__setattr__(self, "body", body_name(body))
        object.__setattr__(self, "wrench", table)
        object.__setattr__(self, "times", when)
        object.__setattr__(self, "frame", frame)

    def _parts(self, model: Model, at: dict[str, int]) -> list[Part]:
        table = (list(self.times or ()), at["wrench"], 6)
        return [("body", self.frame, body_index(model, self.body), table)]


@final
@dataclass(frozen=True, init=False)
class PointForce(Force):
    """A force in the world's axes at a point of a body, constant or a table over time. Sueda 2021, 1.9.2.

    Its energy is that of a constant force, -force.x, with x the position of the point in the world.

    Parameters
    ----------
    body : str
        Name of the body.
    point : (3,) array_like
        The point, in the body's frame.
    force : (3,) or (n, 3) array_like
        With `times` one row for each time, interpolated linearly, constant before the first and after the last.
    times : (n,) array_like, optional
        Times of the rows, increasing.
    """

    body: str
    point: tuple[float, ...]
    force: tuple[Any, ...]
    times: tuple[float, ...] | None = None

    _numbers: ClassVar[tuple[str, ...]] = ("point", "force")

    def __init__(self, body: str, point: ArrayLike, force: ArrayLike, times: ArrayLike | None = None) -> None:
        table, when = over_time(force, times, 3, "force")
        object.__setattr__(self, "body", body_name(body))
        object.__setattr__(self, "point", numbers(point, (3,), "point"))
        object.__setattr__(self, "force", table)
        object.__setattr__(self, "times", when)

    def _parts(self, model: Model, at: dict[str, int]) -> list[Part]:
        points = [(body_index(model, self.body), at["point"])]
        return [("push", points, (list(self.times or ()), at["force"], 3))]
