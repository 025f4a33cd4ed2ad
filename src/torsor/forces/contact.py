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
    """Contact of points of a body with a plane, with friction. Sueda 2021, 1.9.6, signs corrected.

    The force on a point at depth d > 0 below the plane, with velocity u, is

    - along the normal n: stiffness d - damping n.u;
    - against its slip s, the part of u along the plane: friction_stiffness |s| (static) or friction stiffness d
      (dynamic), whichever is smaller.

    The dynamic limit uses only the spring's part of the normal force. So friction is a continuous function of the
    state, zero at touch-down, and never does positive work; its derivative is discontinuous between static and dynamic
    friction. The normal spring has an energy, stiffness d^2 / 2, with a continuous first derivative. The damper acts
    while the point is below the plane, is discontinuous at impact in proportion to the speed, and may also pull on a
    point that separates faster than the spring pushes.

    Parameters
    ----------
    body : str
        Name of the body.
    points : (3,) or (n, 3) array_like
        Points in its frame.
    stiffness, damping : float
        Coefficients of the normal force.
    friction_stiffness : float
        Static friction per unit of slip velocity: the larger, the less a sticking point creeps.
    friction : float
        Coefficient mu of dynamic friction.
    ground, normal : (3,) array_like
        A point of the plane, and its outward normal, in the world. The normal may have any length; it is stored as
        given, and gradients are with respect to these three numbers.
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
