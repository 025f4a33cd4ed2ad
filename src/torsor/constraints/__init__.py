"""Constraints as small frozen descriptions: loops, couplings, prescribed motions, and user-defined ones; projections
onto them, and what they leave of a model's freedoms."""

from torsor.constraints.constraint import Constraint
from torsor.constraints.couplings import Coupling, Gear, PrescribedJoint
from torsor.constraints.custom import CustomConstraint
from torsor.constraints.mobility import Mobility
from torsor.constraints.pairs import Distance, Loop, PointOnLine, PointOnPlane, PrescribedBody
from torsor.constraints.projection import (
    ProjectDerivatives,
    ProjectVJP,
    project,
    project_derivatives,
    project_vjp,
)
from torsor.constraints.twists import TwistConstraint

__all__ = [
    "Constraint",
    "Coupling",
    "CustomConstraint",
    "Distance",
    "Gear",
    "Loop",
    "Mobility",
    "PointOnLine",
    "PointOnPlane",
    "PrescribedBody",
    "PrescribedJoint",
    "ProjectDerivatives",
    "ProjectVJP",
    "TwistConstraint",
    "project",
    "project_derivatives",
    "project_vjp",
]
