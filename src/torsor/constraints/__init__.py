"""Constraints as small frozen descriptions: loops, couplings, prescribed motions, and user-defined ones; and functions
that evaluate them at a state."""

from torsor.constraints.constraint import Constraint
from torsor.constraints.couplings import Coupling, Gear, PrescribedJoint
from torsor.constraints.custom import CustomConstraint
from torsor.constraints.evaluation import (
    ConstraintDerivatives,
    ConstraintErrors,
    ConstraintVJP,
    constraint_derivatives,
    constraint_errors,
    constraint_jacobian,
    constraint_vjp,
    constraint_wrenches,
)
from torsor.constraints.pairs import Distance, Loop, PointOnLine, PointOnPlane, PrescribedBody
from torsor.constraints.twists import TwistConstraint

__all__ = [
    "Constraint",
    "ConstraintDerivatives",
    "ConstraintErrors",
    "ConstraintVJP",
    "Coupling",
    "CustomConstraint",
    "Distance",
    "Gear",
    "Loop",
    "PointOnLine",
    "PointOnPlane",
    "PrescribedBody",
    "PrescribedJoint",
    "TwistConstraint",
    "constraint_derivatives",
    "constraint_errors",
    "constraint_jacobian",
    "constraint_vjp",
    "constraint_wrenches",
]
