"""Exact derivatives of articulated rigid-body dynamics."""

from typing import TYPE_CHECKING, Any

from torsor import models as models
from torsor._errors import ConvergenceError, FormatError, ModelError, SingularMassMatrixError, TorsorError
from torsor.derivatives.matrices import (
    ForwardDynamicsDerivatives,
    ForwardDynamicsGradient,
    HybridDynamicsDerivatives,
    HybridDynamicsGradient,
    InverseDynamicsDerivatives,
    InverseDynamicsGradient,
    forward_dynamics_derivatives,
    forward_dynamics_vjp,
    hybrid_dynamics_derivatives,
    hybrid_dynamics_vjp,
    inertial_regressor,
    inverse_dynamics_derivatives,
    inverse_dynamics_vjp,
)
from torsor.dynamics import (
    bias_forces,
    center_of_mass,
    center_of_mass_jacobian,
    centroidal_momentum_matrix,
    coriolis_matrix,
    forward_dynamics,
    generalized_momenta,
    gravity_forces,
    hybrid_dynamics,
    inverse_dynamics,
    joint_reactions,
    kinetic_energy,
    mass_matrix,
    mass_matrix_inverse,
    mass_matrix_solve,
    momentum,
    potential_energy,
)
from torsor.inertia import Inertia
from torsor.joints import (
    Composite,
    CustomJoint,
    Cylindrical,
    Fixed,
    Free,
    Free2D,
    Joint,
    Planar,
    Prismatic,
    Revolute,
    Screw,
    Spherical,
    SphericalEuler,
    SphericalExp,
    SplineCurve,
    SplineSurface,
    Translational,
    Universal,
)
from torsor.kinematics import (
    body_accelerations,
    body_poses,
    body_velocities,
    jacobian,
    jacobian_dot_product,
    jacobian_product,
    jacobian_transpose_product,
    maximal_jacobian,
    maximal_jacobian_dot,
    point_jacobian,
    point_positions,
)
from torsor.model import Body, Model, ModelBuilder, ModelJoint, Visual
from torsor.spatial import SE3

if TYPE_CHECKING:
    from torsor import interop, testing
    from torsor.costs import (
        ControlEffort,
        Cost,
        CostSum,
        CostValue,
        CustomCost,
        EnergyCost,
        PointTarget,
        PositionTarget,
        VelocityTarget,
    )
    from torsor.derivatives.hessians import (
        ContractedForwardDynamicsHessians,
        ContractedInverseDynamicsHessians,
        ForwardDynamicsHessians,
        InverseDynamicsHessians,
        christoffel_symbols,
        forward_dynamics_hessians,
        inverse_dynamics_hessians,
    )
    from torsor.derivatives.kinematics import (
        BodyAccelerationsDerivatives,
        BodyVelocitiesDerivatives,
        CentroidalMomentumDerivatives,
        MaximalJacobianDerivatives,
        body_accelerations_derivatives,
        body_velocities_derivatives,
        centroidal_momentum_derivatives,
        maximal_jacobian_derivatives,
        point_hessian,
    )
    from torsor.derivatives.tangents import (
        ForwardDynamicsDerivativesTangent,
        ForwardDynamicsTangent,
        HybridDynamicsTangent,
        InverseDynamicsDerivativesTangent,
        InverseDynamicsTangent,
        ModelDirection,
        forward_dynamics_derivatives_tangent,
        forward_dynamics_tangent,
        hybrid_dynamics_tangent,
        inverse_dynamics_derivatives_tangent,
        inverse_dynamics_tangent,
    )
    from torsor.forces import (
        BodyDamping,
        BodyWrench,
        Cable,
        CustomForce,
        Force,
        GeneralizedForcesDerivatives,
        GeneralizedForcesGradient,
        GroundContact,
        JointDamping,
        JointLimits,
        JointSpring,
        JointTorque,
        MultiPointSpring,
        PointForce,
        PointSpring,
        Spring,
        SpringDamper,
        force_energies,
        generalized_forces,
        generalized_forces_derivatives,
        generalized_forces_vjp,
    )
    from torsor.formats.mjcf import load_mjcf
    from torsor.formats.urdf import load_urdf
    from torsor.integrators import (
        BDF1,
        BDF2,
        SDIRK2,
        SDIRK3,
        Adaptive,
        Implicit,
        Integrator,
        LinearlyImplicitEuler,
        SymplecticEuler,
        Variational,
    )
    from torsor.simulation.adjoint import AdjointGradient, adjoint
    from torsor.simulation.controls import Policy
    from torsor.simulation.losses import Loss, loss
    from torsor.simulation.simulate import simulate
    from torsor.simulation.steps import Step, StepDerivatives, step, step_derivatives
    from torsor.simulation.trajectory import Energies, Trajectory
    from torsor.simulation.variational import (
        DiscreteEulerLagrange,
        MomentumStepDerivatives,
        StepHessian,
        discrete_euler_lagrange,
        momentum_step_derivatives,
        step_hessian,
    )

__version__ = "0.1.0"

# Modules that are imported when one of their names is first used, so that `import torsor` stays short.
_LAZY = {
    "torsor.costs": """
        ControlEffort Cost CostSum CostValue CustomCost EnergyCost PointTarget PositionTarget VelocityTarget
    """,
    "torsor.simulation.adjoint": "AdjointGradient adjoint",
    "torsor.simulation.controls": "Policy",
    "torsor.forces": """
        BodyDamping BodyWrench Cable CustomForce Force GeneralizedForcesDerivatives
        GeneralizedForcesGradient GroundContact JointDamping JointLimits JointSpring JointTorque
        MultiPointSpring PointForce PointSpring Spring SpringDamper force_energies generalized_forces
        generalized_forces_derivatives generalized_forces_vjp
    """,
    "torsor.formats.mjcf": "load_mjcf",
    "torsor.formats.urdf": "load_urdf",
    "torsor.derivatives.hessians": """
        ContractedForwardDynamicsHessians ContractedInverseDynamicsHessians ForwardDynamicsHessians
        InverseDynamicsHessians christoffel_symbols forward_dynamics_hessians inverse_dynamics_hessians
    """,
    "torsor.integrators": """
        Adaptive BDF1 BDF2 Implicit Integrator LinearlyImplicitEuler SDIRK2 SDIRK3 SymplecticEuler Variational
    """,
    "torsor.derivatives.kinematics": """
        BodyAccelerationsDerivatives BodyVelocitiesDerivatives CentroidalMomentumDerivatives
        MaximalJacobianDerivatives body_accelerations_derivatives body_velocities_derivatives
        centroidal_momentum_derivatives maximal_jacobian_derivatives point_hessian
    """,
    "torsor.simulation.losses": "Loss loss",
    "torsor.simulation.simulate": "simulate",
    "torsor.simulation.steps": "Step StepDerivatives step step_derivatives",
    "torsor.simulation.trajectory": "Energies Trajectory",
    "torsor.derivatives.tangents": """
        ForwardDynamicsDerivativesTangent ForwardDynamicsTangent HybridDynamicsTangent
        InverseDynamicsDerivativesTangent InverseDynamicsTangent ModelDirection
        forward_dynamics_derivatives_tangent forward_dynamics_tangent hybrid_dynamics_tangent
        inverse_dynamics_derivatives_tangent inverse_dynamics_tangent
    """,
    "torsor.simulation.variational": """
        DiscreteEulerLagrange MomentumStepDerivatives StepHessian discrete_euler_lagrange
        momentum_step_derivatives step_hessian
    """,
}
_MODULE_OF = {name: module for module, names in _LAZY.items() for name in names.split()}
_SUBMODULES = {"interop", "testing", *(module.split(".")[1] for module in _LAZY)}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _MODULE_OF:
        value = getattr(import_module(_MODULE_OF[name]), name)
    elif name in _SUBMODULES:
        value = import_module(f"torsor.{name}")
    else:
        raise AttributeError(f"module 'torsor' has no attribute {name!r}")
    globals()[name] = value  # the next time it is found without coming here
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE_OF, *_SUBMODULES})


__all__ = [
    "Adaptive",
    "AdjointGradient",
    "BDF1",
    "BDF2",
    "Body",
    "BodyAccelerationsDerivatives",
    "BodyDamping",
    "BodyVelocitiesDerivatives",
    "BodyWrench",
    "Cable",
    "CentroidalMomentumDerivatives",
    "Composite",
    "ContractedForwardDynamicsHessians",
    "ContractedInverseDynamicsHessians",
    "ControlEffort",
    "ConvergenceError",
    "Cost",
    "CostSum",
    "CostValue",
    "CustomCost",
    "CustomForce",
    "CustomJoint",
    "Cylindrical",
    "DiscreteEulerLagrange",
    "Energies",
    "EnergyCost",
    "Fixed",
    "Force",
    "FormatError",
    "ForwardDynamicsDerivatives",
    "ForwardDynamicsDerivativesTangent",
    "ForwardDynamicsGradient",
    "ForwardDynamicsHessians",
    "ForwardDynamicsTangent",
    "Free",
    "Free2D",
    "GeneralizedForcesDerivatives",
    "GeneralizedForcesGradient",
    "GroundContact",
    "HybridDynamicsDerivatives",
    "HybridDynamicsGradient",
    "HybridDynamicsTangent",
    "Implicit",
    "Inertia",
    "Integrator",
    "InverseDynamicsDerivatives",
    "InverseDynamicsDerivativesTangent",
    "InverseDynamicsGradient",
    "InverseDynamicsHessians",
    "InverseDynamicsTangent",
    "Joint",
    "JointDamping",
    "JointLimits",
    "JointSpring",
    "JointTorque",
    "LinearlyImplicitEuler",
    "Loss",
    "MaximalJacobianDerivatives",
    "Model",
    "ModelBuilder",
    "ModelDirection",
    "ModelError",
    "ModelJoint",
    "MomentumStepDerivatives",
    "MultiPointSpring",
    "Planar",
    "PointForce",
    "PointSpring",
    "PointTarget",
    "Policy",
    "PositionTarget",
    "Prismatic",
    "Revolute",
    "SDIRK2",
    "SDIRK3",
    "SE3",
    "Screw",
    "SingularMassMatrixError",
    "Spherical",
    "SphericalEuler",
    "SphericalExp",
    "SplineCurve",
    "SplineSurface",
    "Spring",
    "SpringDamper",
    "Step",
    "StepDerivatives",
    "StepHessian",
    "SymplecticEuler",
    "TorsorError",
    "Trajectory",
    "Translational",
    "Universal",
    "Variational",
    "VelocityTarget",
    "Visual",
    "adjoint",
    "bias_forces",
    "body_accelerations",
    "body_accelerations_derivatives",
    "body_poses",
    "body_velocities",
    "body_velocities_derivatives",
    "center_of_mass",
    "center_of_mass_jacobian",
    "centroidal_momentum_derivatives",
    "centroidal_momentum_matrix",
    "christoffel_symbols",
    "coriolis_matrix",
    "discrete_euler_lagrange",
    "force_energies",
    "forward_dynamics",
    "forward_dynamics_derivatives",
    "forward_dynamics_derivatives_tangent",
    "forward_dynamics_hessians",
    "forward_dynamics_tangent",
    "forward_dynamics_vjp",
    "generalized_forces",
    "generalized_forces_derivatives",
    "generalized_forces_vjp",
    "generalized_momenta",
    "gravity_forces",
    "hybrid_dynamics",
    "hybrid_dynamics_derivatives",
    "hybrid_dynamics_tangent",
    "hybrid_dynamics_vjp",
    "inertial_regressor",
    "interop",
    "inverse_dynamics",
    "inverse_dynamics_derivatives",
    "inverse_dynamics_derivatives_tangent",
    "inverse_dynamics_hessians",
    "inverse_dynamics_tangent",
    "inverse_dynamics_vjp",
    "jacobian",
    "jacobian_dot_product",
    "jacobian_product",
    "jacobian_transpose_product",
    "joint_reactions",
    "kinetic_energy",
    "load_mjcf",
    "load_urdf",
    "loss",
    "mass_matrix",
    "mass_matrix_inverse",
    "mass_matrix_solve",
    "maximal_jacobian",
    "maximal_jacobian_derivatives",
    "maximal_jacobian_dot",
    "models",
    "momentum",
    "momentum_step_derivatives",
    "point_hessian",
    "point_jacobian",
    "point_positions",
    "potential_energy",
    "simulate",
    "step",
    "step_derivatives",
    "step_hessian",
    "testing",
]
