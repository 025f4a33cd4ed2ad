"""Constraints as small frozen descriptions: loops, couplings, prescribed motions, and user-defined ones; and functions
that evaluate them at a state."""

from torsor.constraints.constraint import Constraint
from torsor.constraints.couplings import Coupling, Gear, PrescribedJoint
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
from torsor.constraints.pairs import Distance, Loop, PointOnLine, PointOnPlane, PrescribedBody
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
    "PointOnLine",
    "PointOnPlane",
    "PrescribedBody",
    "PrescribedJoint",
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
]
