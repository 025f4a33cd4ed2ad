"""Exact derivatives of articulated rigid-body dynamics."""

from typing import TYPE_CHECKING, Any

from torsor import models as models
from torsor._errors import ConvergenceError, FormatError, ModelError, SingularMassMatrixError, TorsorError
from torsor.adjoint import AdjointGradient, StepDerivatives, adjoint, step_derivatives
from torsor.derivatives import (
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
from torsor.integrators import BDF1, BDF2, SDIRK2, Adaptive, Integrator, LinearlyImplicitEuler, SymplecticEuler
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
from torsor.kinematics_derivatives import (
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
from torsor.losses import Loss, control_effort, energy_loss, point_target, velocity_target
from torsor.model import Body, Model, ModelBuilder, ModelJoint, Visual
from torsor.simulation import Energies, Trajectory, simulate
from torsor.spatial import SE3
from torsor.tangents import (
    ForwardDynamicsTangent,
    HybridDynamicsTangent,
    InverseDynamicsTangent,
    ModelDirection,
    forward_dynamics_tangent,
    hybrid_dynamics_tangent,
    inverse_dynamics_tangent,
)

if TYPE_CHECKING:
    from torsor import interop as interop
    from torsor import testing as testing
    from torsor.formats.mjcf import load_mjcf as load_mjcf
    from torsor.formats.urdf import load_urdf as load_urdf

__version__ = "0.1.0"

_LAZY = {  # imported when first used
    "interop": "torsor.interop",
    "load_mjcf": "torsor.formats.mjcf",
    "load_urdf": "torsor.formats.urdf",
    "testing": "torsor.testing",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'torsor' has no attribute {name!r}")
    from importlib import import_module

    module = import_module(_LAZY[name])
    return getattr(module, name, module)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})


__all__ = [
    "Adaptive",
    "AdjointGradient",
    "BDF1",
    "BDF2",
    "ConvergenceError",
    "Energies",
    "Integrator",
    "LinearlyImplicitEuler",
    "Loss",
    "SDIRK2",
    "StepDerivatives",
    "SymplecticEuler",
    "Trajectory",
    "adjoint",
    "control_effort",
    "energy_loss",
    "point_target",
    "simulate",
    "step_derivatives",
    "velocity_target",
    "Body",
    "Composite",
    "CustomJoint",
    "Cylindrical",
    "Fixed",
    "FormatError",
    "Free",
    "Free2D",
    "Inertia",
    "Joint",
    "Model",
    "ModelBuilder",
    "ModelError",
    "ModelJoint",
    "Planar",
    "Prismatic",
    "Revolute",
    "SE3",
    "Screw",
    "SingularMassMatrixError",
    "Spherical",
    "SphericalEuler",
    "SphericalExp",
    "SplineCurve",
    "SplineSurface",
    "TorsorError",
    "Translational",
    "Universal",
    "Visual",
    "bias_forces",
    "body_accelerations",
    "body_poses",
    "body_velocities",
    "center_of_mass",
    "center_of_mass_jacobian",
    "centroidal_momentum_matrix",
    "coriolis_matrix",
    "ForwardDynamicsDerivatives",
    "ForwardDynamicsGradient",
    "HybridDynamicsDerivatives",
    "HybridDynamicsGradient",
    "InverseDynamicsDerivatives",
    "InverseDynamicsGradient",
    "forward_dynamics",
    "forward_dynamics_vjp",
    "hybrid_dynamics_vjp",
    "inertial_regressor",
    "inverse_dynamics_vjp",
    "ForwardDynamicsTangent",
    "HybridDynamicsTangent",
    "InverseDynamicsTangent",
    "ModelDirection",
    "forward_dynamics_tangent",
    "hybrid_dynamics_tangent",
    "inverse_dynamics_tangent",
    "forward_dynamics_derivatives",
    "gravity_forces",
    "hybrid_dynamics_derivatives",
    "inverse_dynamics_derivatives",
    "hybrid_dynamics",
    "interop",
    "inverse_dynamics",
    "jacobian",
    "jacobian_dot_product",
    "jacobian_product",
    "jacobian_transpose_product",
    "joint_reactions",
    "kinetic_energy",
    "load_mjcf",
    "load_urdf",
    "mass_matrix",
    "mass_matrix_inverse",
    "mass_matrix_solve",
    "maximal_jacobian",
    "maximal_jacobian_dot",
    "models",
    "momentum",
    "point_jacobian",
    "point_positions",
    "potential_energy",
    "testing",
    "BodyAccelerationsDerivatives",
    "BodyVelocitiesDerivatives",
    "CentroidalMomentumDerivatives",
    "MaximalJacobianDerivatives",
    "body_accelerations_derivatives",
    "body_velocities_derivatives",
    "centroidal_momentum_derivatives",
    "maximal_jacobian_derivatives",
    "point_hessian",
]
