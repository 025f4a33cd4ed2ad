"""Constraints as small frozen descriptions: loops, couplings, prescribed motions, and user-defined ones; functions that
evaluate them at a state, projections onto them, and what they leave of a model's freedoms."""

from torsor.constraints.constraint import Constraint
from torsor.constraints.couplings import Coupling, Gear, PolynomialCoupling, PrescribedJoint
from torsor.constraints.custom import CustomConstraint
from torsor.constraints.derivatives import (
    ConstrainedForwardDynamicsHessians,
    ConstrainedForwardDynamicsJVP,
    ConstrainedForwardDynamicsVJP,
    constrained_forward_dynamics_hessians,
    constrained_forward_dynamics_jvp,
    constrained_forward_dynamics_vjp,
)
from torsor.constraints.dynamics import (
    ConstrainedForwardDynamics,
    ConstrainedForwardDynamicsDerivatives,
    constrained_forward_dynamics,
    constrained_forward_dynamics_derivatives,
)
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
from torsor.constraints.inverse_dynamics import (
    ConstrainedInverseDynamics,
    ConstrainedInverseDynamicsDerivatives,
    constrained_inverse_dynamics,
    constrained_inverse_dynamics_derivatives,
)
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
    "ConstrainedForwardDynamics",
    "ConstrainedForwardDynamicsDerivatives",
    "ConstrainedForwardDynamicsHessians",
    "ConstrainedForwardDynamicsJVP",
    "ConstrainedForwardDynamicsVJP",
    "ConstrainedInverseDynamics",
    "ConstrainedInverseDynamicsDerivatives",
    "Constraint",
    "ConstraintDerivatives",
    "ConstraintErrors",
    "ConstraintVJP",
    "Coupling",
    "CustomConstraint",
    "Distance",
    "Gear",
    "Loop",
    "Mobility",
    "PointOnLine",
    "PointOnPlane",
    "PolynomialCoupling",
    "PrescribedBody",
    "PrescribedJoint",
    "ProjectDerivatives",
    "ProjectVJP",
    "TwistConstraint",
    "constrained_forward_dynamics",
    "constrained_forward_dynamics_derivatives",
    "constrained_forward_dynamics_hessians",
    "constrained_forward_dynamics_jvp",
    "constrained_forward_dynamics_vjp",
    "constrained_inverse_dynamics",
    "constrained_inverse_dynamics_derivatives",
    "constraint_derivatives",
    "constraint_errors",
    "constraint_jacobian",
    "constraint_vjp",
    "constraint_wrenches",
    "project",
    "project_derivatives",
    "project_vjp",
]
