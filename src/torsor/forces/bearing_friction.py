"""Dry friction in bearings, by the wrenches that joints transmit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, final

from torsor.forces.force import Force, scalar, slip_velocity
from torsor.joints import Prismatic, Revolute, Spherical, Universal
from torsor.model import Model

if TYPE_CHECKING:
    from torsor.forces.force import Part


@final
@dataclass(frozen=True, init=False)
class BearingFriction(Force):
    """Dry friction in the bearing of a joint, whose limit follows from the wrench that the joint transmits. Sueda 2021,
    2.12, in closed form.

    The friction is -friction R F(abs(v) / slip) v / abs(v), with F(s) = s (2 - s) up to s = 1 and 1 beyond. R is the
    sum of the loads on the surfaces of the bearing, times `radius` where these turn; the bearing's centre is the origin
    of the body's frame. With the force f and the moment n that the joint transmits there, seen from the body, along the
    axis (f_a, n_a) and across it:

    - `Revolute`, a pin in a sleeve with faces at its ends: each end takes half of the force across and a couple against
      tilting, the faces take f_a and the rest of the tilting moment. Under a force across alone, R = radius f.
    - `Universal`: two such pins, of the same size.
    - `Prismatic`, a slider of half width `radius` in a guide: each end takes half of the force across and a couple
      against tilting, the sides take n_a / radius.
    - `Spherical`: R = radius f, and the friction is against the angular velocity as a vector.

    The wrench includes weight, inertia forces and all other forces on bodies, contacts among them. It depends on
    accelerations, so that this force acts in implicit integrators only (`BDF1`, `BDF2`, `SDIRK2`, `SDIRK3`), without
    constraints, and in `HardContact`; `generalized_forces` refuses it. It has no energy.

    `HardContact` takes the limit without `slip`: a joint that sticks does not creep. Impulses of contacts and of
    constraints that are not user-defined load the bearings.

    The load may grow with the deceleration by which friction answers it, as that of a drawer that is pulled at its
    side. Such a bearing jams: beyond some coefficient it stops within a step, whatever the velocity.

    Parameters
    ----------
    joint : str
        Name of the joint or of its body.
    friction : float
        Coefficient of friction.
    radius : float
        Radius of the pin or of the ball, or half the width of the slider; above 0.
    length : float
        Distance between the ends. 0, for a pin, leaves all of the tilting moment to the faces. Balls do not use it.
    slip : float
        Velocity of the joint from which on the friction is the whole limit, above 0.
    smoothing : float
        Force below which loads are smoothed, above 0: R is then differentiable without a load too.
    """

    joint: str
    friction: float
    radius: float
    length: float = 0.0
    slip: float = 1e-3
    smoothing: float = 1e-6

    has_energy: ClassVar[bool] = False
    _needs_accelerations: ClassVar[bool] = True
    _numbers: ClassVar[tuple[str, ...]] = ("friction", "radius", "length", "slip", "smoothing")

    def __init__(
        self,
        joint: str,
        friction: float,
        radius: float,
        length: float = 0.0,
        slip: float = 1e-3,
        smoothing: float = 1e-6,
    ) -> None:
        object.__setattr__(self, "joint", joint)
        object.__setattr__(self, "friction", scalar(friction, "friction", least=0.0))
        object.__setattr__(self, "radius", scalar(radius, "radius", positive=True))
        object.__setattr__(self, "length", scalar(length, "length", least=0.0))
        object.__setattr__(self, "slip", slip_velocity(scalar(slip, "slip")))
        object.__setattr__(self, "smoothing", scalar(smoothing, "smoothing", positive=True))

    def _for_model(self, model: Model) -> BearingFriction:
        joint = model.joint(self.joint).joint
        if not isinstance(joint, (Revolute, Prismatic, Spherical, Universal)):
            raise ValueError(
                f"joint {self.joint!r} is {type(joint).__name__}; BearingFriction is for Revolute, Prismatic, "
                "Spherical and Universal joints. JointFriction, with a constant limit, is for all"
            )
        if isinstance(joint, Prismatic) and self.length == 0:
            raise ValueError(
                f"length of BearingFriction is 0, expected above 0: joint {self.joint!r} is Prismatic, and a slider "
                "without length takes no moment"
            )
        return self

    def _joints(self, model: Model) -> tuple[str, ...]:
        return (model.joint(self.joint).name,)

    def _coupled(self, model: Model) -> tuple[str, ...]:
        return ("length",)  # what is allowed depends on the joint

    def _parts(self, model: Model, at: dict[str, int]) -> list[Part]:
        return [("bearing", model.joints.index(model.joint(self.joint)), at["friction"])]
