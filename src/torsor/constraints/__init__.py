"""Constraints as small frozen descriptions: loops, couplings, prescribed motions, and user-defined ones."""

from torsor.constraints.constraint import Constraint
from torsor.constraints.couplings import Coupling, Gear, PolynomialCoupling, PrescribedJoint
from torsor.constraints.custom import CustomConstraint
from torsor.constraints.pairs import Distance, Loop, PointOnLine, PointOnPlane, PrescribedBody
from torsor.constraints.twists import TwistConstraint

__all__ = [
    "Constraint",
    "Coupling",
    "CustomConstraint",
    "Distance",
    "Gear",
    "Loop",
    "PointOnLine",
    "PointOnPlane",
    "PolynomialCoupling",
    "PrescribedBody",
    "PrescribedJoint",
    "TwistConstraint",
]
