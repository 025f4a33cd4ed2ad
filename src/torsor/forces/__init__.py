"""Forces as small frozen descriptions, and what they do at a state."""

from torsor.forces.body_forces import BodyDamping, BodyWrench, PointForce
from torsor.forces.contact import GroundContact
from torsor.forces.custom import CustomForce
from torsor.forces.evaluation import (
    GeneralizedForcesDerivatives,
    GeneralizedForcesGradient,
    force_energies,
    generalized_forces,
    generalized_forces_derivatives,
    generalized_forces_vjp,
)
from torsor.forces.force import Force
from torsor.forces.joint_forces import JointDamping, JointLimits, JointSpring, JointTorque
from torsor.forces.springs import Cable, MultiPointSpring, PointSpring, Spring, SpringDamper

__all__ = [
    "BodyDamping",
    "BodyWrench",
    "Cable",
    "CustomForce",
    "Force",
    "GeneralizedForcesDerivatives",
    "GeneralizedForcesGradient",
    "GroundContact",
    "JointDamping",
    "JointLimits",
    "JointSpring",
    "JointTorque",
    "MultiPointSpring",
    "PointForce",
    "PointSpring",
    "Spring",
    "SpringDamper",
    "force_energies",
    "generalized_forces",
    "generalized_forces_derivatives",
    "generalized_forces_vjp",
]
