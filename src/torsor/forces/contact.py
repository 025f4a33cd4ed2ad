"""Contact of points with a plane, by penalty. Sueda 2021, 1.9.6, signs corrected."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy as np

from torsor.forces.force import Force, body_index, body_name, direction, numbers, scalar
from torsor.model import Model

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from torsor.forces.force import Part


@final
@dataclass(frozen=True, init=False)
class GroundContact(Force):
    """Points of a body against a plane, with friction. Sueda 2021, 1.9.6, signs corrected.

    A point at depth d > 0 below the plane, moving with velocity u, feels

    - along the normal n: stiffness d - damping n.u;
    - against its slip s, the part of u along the plane: friction_stiffness |s| (static) or friction stiffness d
      (dynamic), whichever is smaller.

    The dynamic limit takes the spring's part of the normal force alone. So friction is a continuous function of the
    state, zero where the point touches down, and never does positive work; its derivative jumps where static turns
    into dynamic. The normal spring has an energy, stiffness d^2 / 2, with a continuous first derivative; the damper
    acts while the point is below the plane, sets in with a jump in proportion to the speed of impact, and may hold
    back a point that leaves faster than the spring pushes.

    Parameters
    ----------
    body : str
        The body.
    points : (3,) or (n, 3) array_like
        Points of it, in its frame.
    stiffness, damping : float
        Of the normal force.
    friction_stiffness : float
        Static friction for each unit of slip velocity: the larger, the less a point creeps that should stick.
    friction : float
        Coefficient mu of dynamic friction.
    ground, normal : (3,) array_like
        A point of the plane, and the direction to its free side, in the world. The normal may have any length; it
        stays as it is given, and gradients are with respect to these three numbers.
    """

    body: str
    points: tuple[Any, ...]
    stiffness: float
    damping: float = 0.0
    friction_stiffness: float = 0.0
    friction: float = 0.0
    ground: tuple[float, ...] = (0.0, 0.0, 0.0)
    normal: tuple[float, ...] = (0.0, 0.0, 1.0)

    _numbers: ClassVar[tuple[str, ...]] = (
        "points",
        "stiffness",
        "damping",
        "friction_stiffness",
        "friction",
        "ground",
        "normal",
    )

    def __init__(
        self,
        body: str,
        points: ArrayLike,
        stiffness: float,
        damping: float = 0.0,
        friction_stiffness: float = 0.0,
        friction: float = 0.0,
        ground: ArrayLike = (0.0, 0.0, 0.0),
        normal: ArrayLike = (0.0, 0.0, 1.0),
    ) -> None:
        shape = np.shape(points)
        if shape != (3,) and (len(shape) != 2 or shape[0] == 0 or shape[1] != 3):
            raise ValueError(f"points has shape {shape}, expected (3,) or (n, 3)")
        object.__setattr__(self, "body", body_name(body))
        object.__setattr__(self, "points", numbers(points, shape, "points"))
        given = {"stiffness": stiffness, "damping": damping, "friction_stiffness": friction_stiffness}
        for name, value in (*given.items(), ("friction", friction)):
            object.__setattr__(self, name, scalar(value, name, least=0.0))
        object.__setattr__(self, "ground", numbers(ground, (3,), "ground"))
        object.__setattr__(self, "normal", direction(normal, "normal"))

    def _coupled(self, model: Model) -> tuple[str, ...]:
        return ("normal",)

    def _parts(self, model: Model, at: dict[str, int]) -> list[Part]:
        body = body_index(model, self.body)
        count = np.size(self.points) // 3
        return [("contact", [(body, at["points"] + 3 * k)], at["stiffness"]) for k in range(count)]
