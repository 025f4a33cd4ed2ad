"""Contact: of two shapes, compliant with regularised Coulomb friction; and of points with a plane, by penalty."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy as np

from torsor import _core
from torsor._check import listed
from torsor.forces.force import Force, body_index, body_name, direction, numbers, require_names, scalar
from torsor.model import WORLD, Model, carrier
from torsor.shapes import Shape

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import ArrayLike
    from typing_extensions import Self

    from torsor._typing import FloatArray
    from torsor.forces.force import Part

_LAW = ("stiffness", "dissipation", "friction", "slip", "onset")
_OTHER = "other_"  # of the names of the second shape's numbers


@final
@dataclass(frozen=True, init=False)
class GroundContact(Force):
    """Contact of points of a body with a plane, with friction. Sueda 2021, 1.9.6, signs corrected.

    `Contact` has more shapes, a smoother law, and steps that do not fail at stiff impacts.

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


@final
@dataclass(frozen=True, init=False)
class Contact(Force):
    """Contact of a shape of a body with a shape of another body, or of the world.

    The force at a place with depth x > 0 and with the velocity u of the first body relative to the second, u_n its part
    along the normal n and u_t the rest, is f_n (n - friction F u_t / |u_t|) on the first body, the opposite on the
    second:

    - f_n = stiffness p(x) D(dissipation u_n): p(x) = x - onset/2 beyond the onset, over which the stiffness builds up;
      D = 1 - s, rounded so that a contact never pulls;
    - F rises from 0 at rest to 1 where |u_t| = `slip`, and is 1 from there on.

    So friction is friction f_n exactly while a contact slips. Under a lower load, the part r of it, a contact creeps
    with slip (1 - sqrt(1 - r)); a load N sinks in by N / stiffness + onset / 2. With an onset above 0, all is
    continuously differentiable; with 0, but for a kink at touching. The energy is that of the normal spring
    (`has_energy`).

    Implicit integrators (`BDF1`, `BDF2`, `SDIRK2`) take long steps with stiff contacts; `Contact.rigid` has numbers for
    the limit of rigid bodies. Each shape may touch at several places (the corners of a box, the ends of a capsule).

    Parameters
    ----------
    body : str
        Name of the first body, or "world".
    shape : Shape
        Its shape (`torsor.shapes`), in its frame.
    other : str
        Name of the second body, or "world".
    other_shape : Shape
    stiffness : float
        Normal force for each unit of depth, in N/m.
    dissipation : float
        In s/m: the normal force is larger by this part for each unit of the velocity of approach.
    friction : float
        Coefficient of Coulomb's friction.
    slip : float
        Velocity in m/s from which on friction is complete.
    onset : float
        Depth in m over which the stiffness builds up.
    """

    body: str
    shape: Shape
    other: str
    other_shape: Shape
    stiffness: float
    dissipation: float
    friction: float
    slip: float
    onset: float

    def __init__(
        self,
        body: str,
        shape: Shape,
        other: str,
        other_shape: Shape,
        *,
        stiffness: float,
        dissipation: float = 0.5,
        friction: float = 0.8,
        slip: float = 1e-3,
        onset: float = 0.0,
    ) -> None:
        for name, given in (("shape", shape), ("other_shape", other_shape)):
            if not isinstance(given, Shape):
                raise TypeError(f"{name} must be one of torsor.shapes, got {given!r}")
        names = body_name(body), body_name(other)
        if names[0] == names[1]:
            raise ValueError(f"a contact of {names[0]!r} with itself has no effect; name two bodies, or {WORLD!r}")
        values = {"stiffness": stiffness, "dissipation": dissipation, "friction": friction, "onset": onset}
        for name, value in {"body": names[0], "shape": shape, "other": names[1], "other_shape": other_shape}.items():
            object.__setattr__(self, name, value)
        for name, number in values.items():
            object.__setattr__(self, name, scalar(number, name, least=0.0))
        if scalar(slip, "slip") <= 0.0:
            raise ValueError(
                f"slip is {float(slip):g}, expected a number above 0: friction without a slip velocity has no "
                "derivative; use the integrator HardContact for strict Coulomb friction"
            )
        object.__setattr__(self, "slip", scalar(slip, "slip"))

    @staticmethod
    def rigid(h: float, mass: float) -> dict[str, float]:
        """Numbers of the law in the limit of rigid bodies, for steps of `h` and bodies of this `mass`.

        The contact's own period is short compared with h, so that a step ends an impact, without rebound, and the time
        of the impact is exact in gradients: stiffness 2500 mass / h^2, dissipation 0.5 s/m, slip 1e-6 m/s, onset 0.

        Examples
        --------
        >>> rigid = ts.Contact.rigid(h=5e-3, mass=40.0)
        >>> foot = ts.Contact("hand", ts.shapes.Sphere(0.05), "world", ts.shapes.HalfSpace(), friction=0.8, **rigid)
        """
        step, m = scalar(h, "h", positive=True), scalar(mass, "mass", positive=True)
        return {"stiffness": 2500.0 * m / step**2, "dissipation": 0.5, "slip": 1e-6, "onset": 0.0}

    @property
    def parameters(self) -> dict[str, FloatArray]:
        """Numbers of the law, of the first shape, and of the second with names that begin with `other_`."""
        law = {name: np.array(getattr(self, name)) for name in _LAW}
        other = {_OTHER + name: value for name, value in self.other_shape.numbers.items()}
        return {**law, **self.shape.numbers, **other}

    def with_parameters(self, values: Mapping[str, ArrayLike]) -> Self:
        """A copy with the given `values` of some parameters, by name."""
        require_names(values)
        own = self.shape.numbers
        other = self.other_shape.numbers
        law: dict[str, Any] = {name: getattr(self, name) for name in _LAW}
        first, second = {}, {}
        for name, value in values.items():
            if name in law:
                law[name] = value
            elif name in own:
                first[name] = value
            elif name.startswith(_OTHER) and name.removeprefix(_OTHER) in other:
                second[name.removeprefix(_OTHER)] = value
            else:
                raise ValueError(f"Contact has no parameter {name!r}; it has {listed([*self.parameters], name)}")
        shapes = self.shape.with_numbers(first), self.other_shape.with_numbers(second)
        return type(self)(self.body, shapes[0], self.other, shapes[1], **law)

    @property
    def has_energy(self) -> bool:  # type: ignore[override]
        """Whether the normal spring is conservative: with spheres and half-spaces, but for cylinders on half-spaces.

        Between other shapes, gaps pass from one feature to another, and the force is not exactly a gradient.
        """
        return _core.has_potential(self.shape._kind, self.other_shape._kind)

    def _coupled(self, model: Model) -> tuple[str, ...]:
        return tuple(
            name for name in self.parameters if name.endswith(("normal", "orientation", "half_size", "radius"))
        )

    def _parts(self, model: Model, at: dict[str, int]) -> list[Part]:
        bodies = [body_index(model, name, world=True) for name in (self.body, self.other)]
        if carrier(model, bodies[0]) == carrier(model, bodies[1]):
            raise ValueError(
                f"{self.body!r} and {self.other!r} are fixed to each other, so that their contact has no effect; name "
                "two bodies that move relative to each other"
            )
        kinds = self.shape._kind, self.other_shape._kind
        if _core.contact_places(*kinds) == 0:
            names = (type(shape).__name__ for shape in (self.shape, self.other_shape))
            pair = f"a {next(names)} of {self.body!r} with a {next(names)} of {self.other!r}"
            raise ValueError(f"there are no formulas for the contact of {pair}; use other shapes, such as spheres")
        sides = []
        for body, shape, prefix in zip(bodies, (self.shape, self.other_shape), ("", _OTHER), strict=True):
            sides.append((body, shape._kind, at[prefix + next(iter(shape.numbers))], *shape._data))
        return [("pair", *sides, at["stiffness"])]
