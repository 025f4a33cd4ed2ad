"""Forces as small frozen descriptions, and functions that evaluate them at a state."""

from torsor.forces.actuator_force import ActuatorBias, ActuatorForce, TendonSpring, actuation
from torsor.forces.bearing_friction import BearingFriction
from torsor.forces.body_forces import BodyDamping, BodyWrench, PointForce
from torsor.forces.contact import Contact, GroundContact
from torsor.forces.contact_pairs import contacts
from torsor.forces.custom import CustomForce
from torsor.forces.evaluation import (
    ContactStates,
    GeneralizedForcesDerivatives,
    GeneralizedForcesVJP,
    contact_states,
    force_energies,
    generalized_forces,
    generalized_forces_derivatives,
    generalized_forces_vjp,
)
from torsor.forces.force import Force
from torsor.forces.from_model import forces_from
from torsor.forces.joint_forces import JointDamping, JointFriction, JointLimits, JointSpring, JointTorque
from torsor.forces.springs import Cable, CustomCable, CustomSpring, PointSpring, SpringDamper

__all__ = [
    "ActuatorBias",
    "ActuatorForce",
    "BearingFriction",
    "BodyDamping",
    "BodyWrench",
    "Cable",
    "Contact",
    "ContactStates",
    "CustomForce",
    "Force",
    "GeneralizedForcesDerivatives",
    "GeneralizedForcesVJP",
    "GroundContact",
    "JointDamping",
    "JointFriction",
    "JointLimits",
    "JointSpring",
    "JointTorque",
    "CustomCable",
    "PointForce",
    "PointSpring",
    "CustomSpring",
    "SpringDamper",
    "TendonSpring",
    "actuation",
    "contact_states",
    "contacts",
    "force_energies",
    "forces_from",
    "generalized_forces",
    "generalized_forces_derivatives",
    "generalized_forces_vjp",
]
