"""Exact derivatives of articulated rigid-body dynamics."""

from typing import TYPE_CHECKING

# Before all that loads the core: on a CPU that cannot run it this raises ImportError.
from torsor._runtime import release_memory as release_memory
from torsor._runtime import show_config as show_config

# isort: split
from torsor import _lazy
from torsor import models as models
from torsor import shapes as shapes
from torsor import spatial as spatial
from torsor._errors import ConstraintError as ConstraintError
from torsor._errors import ConvergenceError as ConvergenceError
from torsor._errors import CouplingError as CouplingError
from torsor._errors import FormatError as FormatError
from torsor._errors import FormatWarning as FormatWarning
from torsor._errors import ImpactWarning as ImpactWarning
from torsor._errors import ModelError as ModelError
from torsor._errors import SimulationInterrupted as SimulationInterrupted
from torsor._errors import SingularMassMatrixError as SingularMassMatrixError
from torsor._errors import TorsorError as TorsorError
from torsor.actuators import Actuator as Actuator
from torsor.actuators import Keyframe as Keyframe
from torsor.actuators import Tendon as Tendon
from torsor.collision import Collision as Collision
from torsor.collision import CollisionPair as CollisionPair
from torsor.collision import CollisionRules as CollisionRules
from torsor.couplings import CustomCoupling as CustomCoupling
from torsor.couplings import JointCoupling as JointCoupling
from torsor.couplings import Mimic as Mimic
from torsor.couplings import Polynomial as Polynomial
from torsor.couplings import Subspace as Subspace
from torsor.derivatives.matrices import forward_dynamics_derivatives as forward_dynamics_derivatives
from torsor.derivatives.matrices import hybrid_dynamics_derivatives as hybrid_dynamics_derivatives
from torsor.derivatives.matrices import inverse_dynamics_derivatives as inverse_dynamics_derivatives
from torsor.derivatives.matrices import joint_reactions_derivatives as joint_reactions_derivatives
from torsor.dynamics import bias_forces as bias_forces
from torsor.dynamics import center_of_mass as center_of_mass
from torsor.dynamics import center_of_mass_jacobian as center_of_mass_jacobian
from torsor.dynamics import coriolis_matrix as coriolis_matrix
from torsor.dynamics import forward_dynamics as forward_dynamics
from torsor.dynamics import generalized_momenta as generalized_momenta
from torsor.dynamics import gravity_forces as gravity_forces
from torsor.dynamics import hybrid_dynamics as hybrid_dynamics
from torsor.dynamics import inverse_dynamics as inverse_dynamics
from torsor.dynamics import joint_reactions as joint_reactions
from torsor.dynamics import kinetic_energy as kinetic_energy
from torsor.dynamics import mass_matrix as mass_matrix
from torsor.dynamics import mass_matrix_inverse as mass_matrix_inverse
from torsor.dynamics import mass_matrix_solve as mass_matrix_solve
from torsor.dynamics import momentum as momentum
from torsor.dynamics import momentum_matrix as momentum_matrix
from torsor.dynamics import potential_energy as potential_energy
from torsor.inertia import Inertia as Inertia
from torsor.joints import Composite as Composite
from torsor.joints import CustomJoint as CustomJoint
from torsor.joints import Cylindrical as Cylindrical
from torsor.joints import Fixed as Fixed
from torsor.joints import Free as Free
from torsor.joints import Free2D as Free2D
from torsor.joints import Joint as Joint
from torsor.joints import Planar as Planar
from torsor.joints import Prismatic as Prismatic
from torsor.joints import Revolute as Revolute
from torsor.joints import Screw as Screw
from torsor.joints import Spherical as Spherical
from torsor.joints import SphericalEuler as SphericalEuler
from torsor.joints import SphericalExp as SphericalExp
from torsor.joints import SplineCurve as SplineCurve
from torsor.joints import SplineSurface as SplineSurface
from torsor.joints import Translational as Translational
from torsor.joints import Universal as Universal
from torsor.kinematics import body_accelerations as body_accelerations
from torsor.kinematics import body_pose as body_pose
from torsor.kinematics import body_poses as body_poses
from torsor.kinematics import body_velocities as body_velocities
from torsor.kinematics import jacobian as jacobian
from torsor.kinematics import jacobian_dot_product as jacobian_dot_product
from torsor.kinematics import jacobian_product as jacobian_product
from torsor.kinematics import jacobian_transpose_product as jacobian_transpose_product
from torsor.kinematics import maximal_jacobian as maximal_jacobian
from torsor.kinematics import maximal_jacobian_dot as maximal_jacobian_dot
from torsor.kinematics import point_jacobian as point_jacobian
from torsor.kinematics import point_positions as point_positions
from torsor.model import Body as Body
from torsor.model import Frame as Frame
from torsor.model import Model as Model
from torsor.model import ModelBuilder as ModelBuilder
from torsor.model import ModelJoint as ModelJoint
from torsor.model import Visual as Visual
from torsor.spatial import SE3 as SE3

__version__ = "0.1.0"

if TYPE_CHECKING:
    from torsor import constraints as constraints
    from torsor import costs as costs
    from torsor import derivatives as derivatives
    from torsor import forces as forces
    from torsor import integrators as integrators
    from torsor import interop as interop
    from torsor import pictures as pictures
    from torsor import simulation as simulation
    from torsor import testing as testing
    from torsor import variational as variational
    from torsor import view as view
    from torsor.constraints import Constraint as Constraint
    from torsor.constraints import Coupling as Coupling
    from torsor.constraints import CustomConstraint as CustomConstraint
    from torsor.constraints import Distance as Distance
    from torsor.constraints import Gear as Gear
    from torsor.constraints import Loop as Loop
    from torsor.constraints import PointOnLine as PointOnLine
    from torsor.constraints import PointOnPlane as PointOnPlane
    from torsor.constraints import PolynomialCoupling as PolynomialCoupling
    from torsor.constraints import PrescribedBody as PrescribedBody
    from torsor.constraints import PrescribedJoint as PrescribedJoint
    from torsor.constraints import TwistConstraint as TwistConstraint
    from torsor.constraints import project as project
    from torsor.constraints import project_derivatives as project_derivatives
    from torsor.constraints import project_vjp as project_vjp
    from torsor.constraints.derivatives import (
        constrained_forward_dynamics_hessians as constrained_forward_dynamics_hessians,
    )
    from torsor.constraints.derivatives import constrained_forward_dynamics_jvp as constrained_forward_dynamics_jvp
    from torsor.constraints.derivatives import constrained_forward_dynamics_vjp as constrained_forward_dynamics_vjp
    from torsor.constraints.dynamics import constrained_forward_dynamics as constrained_forward_dynamics
    from torsor.constraints.dynamics import (
        constrained_forward_dynamics_derivatives as constrained_forward_dynamics_derivatives,
    )
    from torsor.constraints.evaluation import constraint_derivatives as constraint_derivatives
    from torsor.constraints.evaluation import constraint_errors as constraint_errors
    from torsor.constraints.evaluation import constraint_jacobian as constraint_jacobian
    from torsor.constraints.evaluation import constraint_vjp as constraint_vjp
    from torsor.constraints.evaluation import constraint_wrenches as constraint_wrenches
    from torsor.constraints.inverse_dynamics import constrained_inverse_dynamics as constrained_inverse_dynamics
    from torsor.constraints.inverse_dynamics import (
        constrained_inverse_dynamics_derivatives as constrained_inverse_dynamics_derivatives,
    )
    from torsor.constraints.mobility import mobility as mobility
    from torsor.costs import ControlEffort as ControlEffort
    from torsor.costs import Cost as Cost
    from torsor.costs import CustomCost as CustomCost
    from torsor.costs import EnergyCost as EnergyCost
    from torsor.costs import PointTarget as PointTarget
    from torsor.costs import PositionTarget as PositionTarget
    from torsor.costs import VelocityTarget as VelocityTarget
    from torsor.derivatives.hessians import christoffel_symbols as christoffel_symbols
    from torsor.derivatives.hessians import forward_dynamics_hessians as forward_dynamics_hessians
    from torsor.derivatives.hessians import inverse_dynamics_hessians as inverse_dynamics_hessians
    from torsor.derivatives.jvp import ModelDirection as ModelDirection
    from torsor.derivatives.jvp import forward_dynamics_derivatives_jvp as forward_dynamics_derivatives_jvp
    from torsor.derivatives.jvp import forward_dynamics_jvp as forward_dynamics_jvp
    from torsor.derivatives.jvp import hybrid_dynamics_jvp as hybrid_dynamics_jvp
    from torsor.derivatives.jvp import inverse_dynamics_derivatives_jvp as inverse_dynamics_derivatives_jvp
    from torsor.derivatives.jvp import inverse_dynamics_jvp as inverse_dynamics_jvp
    from torsor.derivatives.jvp import joint_reactions_jvp as joint_reactions_jvp
    from torsor.derivatives.kinematics import body_accelerations_derivatives as body_accelerations_derivatives
    from torsor.derivatives.kinematics import body_velocities_derivatives as body_velocities_derivatives
    from torsor.derivatives.kinematics import maximal_jacobian_derivatives as maximal_jacobian_derivatives
    from torsor.derivatives.kinematics import momentum_derivatives as momentum_derivatives
    from torsor.derivatives.kinematics import point_hessian as point_hessian
    from torsor.derivatives.vjp import coupling_vjp as coupling_vjp
    from torsor.derivatives.vjp import forward_dynamics_vjp as forward_dynamics_vjp
    from torsor.derivatives.vjp import hybrid_dynamics_vjp as hybrid_dynamics_vjp
    from torsor.derivatives.vjp import inertial_regressor as inertial_regressor
    from torsor.derivatives.vjp import inverse_dynamics_vjp as inverse_dynamics_vjp
    from torsor.derivatives.vjp import joint_reactions_vjp as joint_reactions_vjp
    from torsor.forces import ActuatorBias as ActuatorBias
    from torsor.forces import ActuatorForce as ActuatorForce
    from torsor.forces import BearingFriction as BearingFriction
    from torsor.forces import BodyDamping as BodyDamping
    from torsor.forces import BodyWrench as BodyWrench
    from torsor.forces import Cable as Cable
    from torsor.forces import Contact as Contact
    from torsor.forces import CustomCable as CustomCable
    from torsor.forces import CustomForce as CustomForce
    from torsor.forces import CustomSpring as CustomSpring
    from torsor.forces import Force as Force
    from torsor.forces import GroundContact as GroundContact
    from torsor.forces import JointDamping as JointDamping
    from torsor.forces import JointFriction as JointFriction
    from torsor.forces import JointLimits as JointLimits
    from torsor.forces import JointSpring as JointSpring
    from torsor.forces import JointTorque as JointTorque
    from torsor.forces import PointForce as PointForce
    from torsor.forces import PointSpring as PointSpring
    from torsor.forces import SpringDamper as SpringDamper
    from torsor.forces import TendonSpring as TendonSpring
    from torsor.forces import actuation as actuation
    from torsor.forces import contact_states as contact_states
    from torsor.forces import contacts as contacts
    from torsor.forces import force_energies as force_energies
    from torsor.forces import forces_from as forces_from
    from torsor.forces import generalized_forces as generalized_forces
    from torsor.forces import generalized_forces_derivatives as generalized_forces_derivatives
    from torsor.forces import generalized_forces_vjp as generalized_forces_vjp
    from torsor.formats.description import load_description as load_description
    from torsor.formats.mjcf import load_mjcf as load_mjcf
    from torsor.formats.mjcf_writer import to_mjcf as to_mjcf
    from torsor.formats.problems import Problem as Problem
    from torsor.formats.problems import find_problems as find_problems
    from torsor.formats.urdf import load_urdf as load_urdf
    from torsor.formats.urdf_writer import to_urdf as to_urdf
    from torsor.ik import inverse_kinematics as inverse_kinematics
    from torsor.integrators import BDF1 as BDF1
    from torsor.integrators import BDF2 as BDF2
    from torsor.integrators import SDIRK2 as SDIRK2
    from torsor.integrators import SDIRK3 as SDIRK3
    from torsor.integrators import Adaptive as Adaptive
    from torsor.integrators import CustomIntegrator as CustomIntegrator
    from torsor.integrators import HardContact as HardContact
    from torsor.integrators import Integrator as Integrator
    from torsor.integrators import LinearlyImplicitEuler as LinearlyImplicitEuler
    from torsor.integrators import SymplecticEuler as SymplecticEuler
    from torsor.integrators import Variational as Variational
    from torsor.maximal import from_maximal as from_maximal
    from torsor.maximal import to_maximal as to_maximal
    from torsor.simulation.adjoint import adjoint as adjoint
    from torsor.simulation.controls import Policy as Policy
    from torsor.simulation.losses import loss as loss
    from torsor.simulation.simulate import simulate as simulate
    from torsor.simulation.steps import step as step
    from torsor.simulation.steps import step_derivatives as step_derivatives
    from torsor.simulation.trajectory import Trajectory as Trajectory
else:
    __getattr__, _LAZY = _lazy.attach(
        __name__,
        {
            "constraints": """
                Constraint Coupling CustomConstraint Distance Gear Loop PointOnLine PointOnPlane PolynomialCoupling
                PrescribedBody PrescribedJoint TwistConstraint project project_derivatives project_vjp
            """,
            "constraints.derivatives": """
                constrained_forward_dynamics_hessians constrained_forward_dynamics_jvp constrained_forward_dynamics_vjp
            """,
            "constraints.dynamics": "constrained_forward_dynamics constrained_forward_dynamics_derivatives",
            "constraints.evaluation": """
                constraint_derivatives constraint_errors constraint_jacobian constraint_vjp constraint_wrenches
            """,
            "constraints.inverse_dynamics": """
                constrained_inverse_dynamics constrained_inverse_dynamics_derivatives
            """,
            "constraints.mobility": "mobility",
            "costs": "ControlEffort Cost CustomCost EnergyCost PointTarget PositionTarget VelocityTarget",
            "derivatives.hessians": "christoffel_symbols forward_dynamics_hessians inverse_dynamics_hessians",
            "derivatives.jvp": """
                ModelDirection forward_dynamics_derivatives_jvp forward_dynamics_jvp hybrid_dynamics_jvp
                inverse_dynamics_derivatives_jvp inverse_dynamics_jvp joint_reactions_jvp
            """,
            "derivatives.kinematics": """
                body_accelerations_derivatives body_velocities_derivatives maximal_jacobian_derivatives
                momentum_derivatives point_hessian
            """,
            "derivatives.vjp": """
                coupling_vjp forward_dynamics_vjp hybrid_dynamics_vjp inertial_regressor inverse_dynamics_vjp
                joint_reactions_vjp
            """,
            "forces": """
                ActuatorBias ActuatorForce BearingFriction BodyDamping BodyWrench Cable Contact CustomCable CustomForce
                CustomSpring Force GroundContact JointDamping JointFriction JointLimits JointSpring JointTorque
                PointForce PointSpring SpringDamper TendonSpring actuation contact_states contacts force_energies
                forces_from generalized_forces generalized_forces_derivatives generalized_forces_vjp
            """,
            "formats.description": "load_description",
            "formats.mjcf": "load_mjcf",
            "formats.mjcf_writer": "to_mjcf",
            "formats.problems": "Problem find_problems",
            "formats.urdf": "load_urdf",
            "ik": "inverse_kinematics",
            "formats.urdf_writer": "to_urdf",
            "integrators": """
                Adaptive BDF1 BDF2 CustomIntegrator HardContact Integrator LinearlyImplicitEuler SDIRK2 SDIRK3
                SymplecticEuler Variational
            """,
            "maximal": "from_maximal to_maximal",
            "simulation.adjoint": "adjoint",
            "simulation.controls": "Policy",
            "simulation.losses": "loss",
            "simulation.simulate": "simulate",
            "simulation.steps": "step step_derivatives",
            "simulation.trajectory": "Trajectory",
        },
        submodules="""
            constraints costs derivatives forces integrators interop pictures simulation testing variational view
        """,
    )
    # Names imported above, without modules that those imports made attributes.
    _EAGER = {name for name, value in vars().items() if name[0] != "_" and type(value) is not type(_lazy)}
    __all__ = sorted((_EAGER | {*_LAZY, "models", "shapes", "spatial"}) - {"TYPE_CHECKING"})

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
