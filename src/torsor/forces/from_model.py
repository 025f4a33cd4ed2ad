"""Forces of what a model keeps: springs, dampers, friction, limits, tendons, gravity compensation, actuators."""

from __future__ import annotations

from math import isinf
from typing import TYPE_CHECKING, Any

import numpy as np

from torsor.forces.actuator_force import TendonSpring, bias_forces, stretch
from torsor.forces.body_forces import PointForce
from torsor.forces.force import Force
from torsor.forces.joint_forces import JointDamping, JointFriction, JointLimits, JointSpring
from torsor.forces.springs import Cable, CustomCable
from torsor.joints import CustomJoint, SphericalEuler, SphericalExp
from torsor.model import Model, ModelJoint, require_model

if TYPE_CHECKING:
    from torsor._typing import Array
    from torsor.actuators import Tendon


def forces_from(
    model: Model,
    *,
    springs: bool = True,
    damping: bool = True,
    friction: bool = True,
    tendons: bool = True,
    gravity_compensation: bool = True,
    actuators: bool = True,
    limits: float | None = None,
    limit_damping: float = 0.0,
    slip: float = 1e-3,
) -> tuple[Force, ...]:
    """The forces of what the model keeps, for `simulate(..., forces=ts.forces_from(model))`.

    A model describes springs, dampers, dry friction, limits, tendons and actuators; functions of the tree, such as
    `forward_dynamics`, do not apply them. Armature and constraints are no forces and are not among them.

    Parameters
    ----------
    model : Model
    springs : bool
        `stiffness` of joints, about their `rest`: `JointSpring`.
    damping : bool
        `damping` of joints: `JointDamping`, or part of the springs.
    friction : bool
        `dry_friction` of joints: `JointFriction`.
    tendons : bool
        Springs and dampers of tendons: `TendonSpring` for sums of coordinates, `Cable` for paths.
    gravity_compensation : bool
        The share of each body's weight that is compensated: `PointForce`.
    actuators : bool
        The bias of actuators, their forces at controls of zero: the springs and dampers of position and velocity
        servos. The controls come by `actuation(model)`.
    limits : float, optional
        Stiffness beyond the position limits of joints and the limits of tendons: `JointLimits`. By default limits are
        not imposed: how hard they are is not in the model.
    limit_damping : float
        Damping beyond the limits.
    slip : float
        Velocity from which on dry friction is the whole limit.

    Returns
    -------
    tuple of Force

    Raises
    ------
    ValueError
        If the force of an actuator with a bias is limited, or that of the joint it drives (`effort_limits`): it is not
        the sum of bias and controls. `ActuatorForce` takes such actuators.

    Examples
    --------
    >>> damped = model.with_body("flange", damping=0.1)
    >>> [type(force).__name__ for force in ts.forces_from(damped, limits=1e3)][:2]
    ['JointDamping', 'JointLimits']
    """
    model = require_model(model).tree  # on which forces act
    forces: list[Force] = [
        *_passive(model, springs, damping),
        *(_friction(model, slip) if friction else ()),
        *(_limits(model, limits, limit_damping) if limits is not None else ()),
        *(_tendons(model) if tendons else ()),
        *(_weights(model) if gravity_compensation else ()),
        *(bias_forces(model) if actuators else ()),
    ]
    return tuple(forces)


def _changes_charts(joint: ModelJoint) -> bool:
    """Whether a force in the coordinates of a joint would keep its chart from being changed."""
    parts: tuple[Any, ...] = getattr(joint.joint, "joints", (joint.joint,))
    return any(isinstance(part, (SphericalEuler, SphericalExp, CustomJoint)) for part in parts)


def _passive(model: Model, springs: bool, damping: bool) -> list[Force]:
    """Springs and dampers of joints: one force for all joints, if it needs not be kept from some."""
    stiff = [j for j in model.joints if springs and any(j.stiffness)]
    damped = [j for j in model.joints if damping and any(j.damping)]
    if not stiff and not damped:
        return []
    if not any(_changes_charts(j) for j in model.joints):
        coefficients = model.damping if damping else np.zeros(model.nv)
        if stiff:
            return [JointSpring(None, model.stiffness, model.rest, coefficients)]
        return [JointDamping(None, coefficients)]
    forces: list[Force] = []
    for j in model.joints:
        coefficients = np.array(j.damping if damping else (0.0,) * j.nv)
        if j in stiff:
            forces.append(JointSpring(j.name, j.stiffness, j.rest, coefficients))
        elif j in damped:
            forces.append(JointDamping(j.name, coefficients))
    return forces


def _friction(model: Model, slip: float) -> list[Force]:
    rough = [j for j in model.joints if any(j.dry_friction)]
    if not rough:
        return []
    if not any(_changes_charts(j) for j in model.joints):
        return [JointFriction(None, model.dry_friction, slip)]
    return [JointFriction(j.name, j.dry_friction, slip) for j in rough]


def _limits(model: Model, stiffness: float, damping: float) -> list[Force]:
    forces: list[Force] = [
        JointLimits(j.name, stiffness, damping)
        for j in model.joints
        if j.nq == j.nv and not all(isinf(x) for x in (*j.position_limits[0], *j.position_limits[1]))
    ]
    for tendon in model.tendons:
        if not all(isinf(x) for x in tendon.limits):
            # a damper would act between the limits too; parameters are finite
            lower, upper = np.clip(tendon.limits, -1e300, 1e300).tolist()
            forces.append(_tendon(model, tendon, stiffness, 0.0, (lower, upper)))
    return forces


def _tendons(model: Model) -> list[Force]:
    return [
        _tendon(model, tendon, tendon.stiffness, tendon.damping, tendon.rest)
        for tendon in model.tendons
        if tendon.stiffness or tendon.damping
    ]


def _tendon(model: Model, tendon: Tendon, stiffness: float, damping: float, rest: tuple[float, float]) -> Force:
    if not tendon.is_path:
        return TendonSpring(model, tendon.joints, tendon.coefficients, stiffness, damping, rest)
    lower, upper = rest
    if 0 < lower == upper:  # forces per strain
        return Cable(tendon.bodies, tendon.points, stiffness * lower, damping * lower, lower, slack=False)
    p = [stiffness, damping, lower, upper]
    return CustomCable(tendon.bodies, tendon.points, _tension, _energy, p, batched=True)


def _tension(l: Array, ldot: Array, p: Array) -> tuple[Array, Array, Array, Array]:
    """The tension of a path that is at rest between two lengths, and its derivatives."""
    k, d, lower, upper = (p[..., i] for i in range(4))
    x = stretch(l, lower, upper)
    below, above = l.real < lower.real, l.real > upper.real
    by_p = [x, ldot, np.where(below, -k, 0.0), np.where(above, -k, 0.0)]
    return k * x + d * ldot, np.where(below | above, k, 0.0), d, np.stack(by_p, axis=-1)


def _energy(l: Array, p: Array) -> Array:
    x = stretch(l, p[..., 2], p[..., 3])
    return np.asarray(0.5 * p[..., 0] * x * x)


def _weights(model: Model) -> list[Force]:
    """Forces against gravity at centres of mass."""
    g = np.array(model.gravity)
    return [
        PointForce(b.name, b.inertia.com, -b.gravity_compensation * b.inertia.mass * g)
        for b in model.bodies
        if b.gravity_compensation and b.inertia.mass and g.any()
    ]
