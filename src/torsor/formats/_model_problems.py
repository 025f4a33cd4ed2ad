"""Problems of a model itself, from whatever file it is."""

from __future__ import annotations

import os
from collections.abc import Iterator
from math import isinf
from typing import TYPE_CHECKING

import numpy as np

from torsor._check import listed
from torsor._errors import ConstraintError, ConvergenceError, SingularMassMatrixError
from torsor.constraints.evaluation import constraint_errors
from torsor.constraints.projection import project
from torsor.dynamics import mass_matrix
from torsor.formats._problem import Problems
from torsor.joints import Prismatic, Revolute
from torsor.shapes import Mesh

if TYPE_CHECKING:
    from torsor.model import Model

_CONFIGURATIONS = 8  # in which the mass matrix is looked at
_MOST_VELOCITIES = 1000
_SINGULAR = 1e-13  # of the eigenvalues of mass matrices that are scaled to ones on the diagonal
_ILL_CONDITIONED = 1e-10


def examine_model(model: Model, problems: Problems) -> None:
    """Adds the problems of a model: of its numbers, not of the files that it refers to."""
    _examine_masses(model, problems)
    _examine_limits(model, problems)
    _examine_keyframes(model, problems)
    _examine_constraints(model, problems)


def note_massless(model: Model, problems: Problems) -> None:
    """Notes bodies without mass that move, where they are bodies of the file."""
    names = [body.name for body in model.bodies if not body.inertia.mass and body.joint.nv]
    if names:
        problems.add("note", f"bodies without mass on joints that move: {listed(names)}")


def note_unlimited(model: Model, problems: Problems) -> None:
    """Notes joints without position limits, where the format has no other name for them."""
    names = [
        joint.name
        for joint in model.joints
        if isinstance(joint.joint, (Revolute, Prismatic)) and all(isinf(end[0]) for end in joint.position_limits)
    ]
    if names:
        problems.add("note", f"joints without position limits: {listed(names)}")


def _examine_masses(model: Model, problems: Problems) -> None:
    """Motions that move no mass, or nearly none."""
    if not model.nv:
        problems.add("note", "no joint moves")
        return
    if model.nv > _MOST_VELOCITIES:
        problems.add("note", f"the mass matrix is not looked at: nv is {model.nv}, above {_MOST_VELOCITIES}")
        return
    q = np.concatenate([model.neutral[None], model.random(0, _CONFIGURATIONS - 1)])
    M = mass_matrix(model, q)
    if not np.isfinite(M).all():
        problems.add("error", "the mass matrix is not finite: masses, lengths or inertias are too large")
        return
    diagonal = np.abs(np.diagonal(M, axis1=1, axis2=2)).max(axis=0)
    idle = diagonal <= 1e-15 * diagonal.max()  # zero, but for rounding
    if idle.any():
        names = [joint.name for joint in model.joints if joint.nv and idle[joint.v_slice].any()]
        problems.add(
            "error",
            f"joints that move no mass: {listed(names)}; give their bodies inertia, or the joints armature, or lock "
            "them",
        )
    M = M[:, ~idle][:, :, ~idle]
    if not M.shape[1]:
        return
    scale = 1.0 / np.sqrt(np.maximum(np.abs(np.diagonal(M, axis1=1, axis2=2)), 1e-300))
    energies, motions = np.linalg.eigh(scale[:, :, None] * M * scale[:, None, :])
    least = energies[:, 0]
    worst = int(least.argmin())
    if least[worst] > _ILL_CONDITIONED:
        return
    share = np.zeros(model.nv)
    share[~idle] = np.abs(motions[worst, :, 0])
    names = [joint.name for joint in model.joints if joint.nv and share[joint.v_slice].max() > 0.1]
    what = f"in motions of {listed(names)}"
    if least[worst] < -_ILL_CONDITIONED:
        problems.add("error", f"kinetic energy can be negative, {what}; correct the inertias")
    elif least.max() < _SINGULAR:
        problems.add("error", f"the mass matrix is singular, {what}: together they move no mass")
    elif least[worst] < _SINGULAR:
        where = "the neutral configuration" if least[0] < _SINGULAR else "some configurations"
        problems.add("warning", f"the mass matrix is singular in {where}, {what}: together they move no mass there")
    else:
        problems.add("warning", f"the mass matrix is nearly singular ({least[worst]:.1g} of its diagonal), {what}")


def _examine_limits(model: Model, problems: Problems) -> None:
    stuck, undriven, beyond = [], [], []
    neutral = model.tree.neutral
    for joint, own in zip(model.joints, model.tree.joints, strict=True):
        low, high = joint.position_limits
        if any(a == b for a, b in zip(low, high, strict=True)):
            stuck.append(joint.name)
        if joint.joint.nv and 0.0 in (*joint.effort_limits, *joint.velocity_limits):
            undriven.append(joint.name)
        if joint.nq == joint.nv and np.any((neutral[own.q_slice] < low) | (neutral[own.q_slice] > high)):
            beyond.append(joint.name)
    if stuck:
        problems.add("warning", f"joints whose position limits are equal, so that they cannot move: {listed(stuck)}")
    if undriven:
        problems.add("note", f"joints with a limit of 0 for effort or velocity: {listed(undriven)}")
    if beyond:
        problems.add("note", f"joints whose limits exclude the neutral configuration: {listed(beyond)}")


def _examine_keyframes(model: Model, problems: Problems) -> None:
    low, high = model.position_limits
    for name, key in model.keyframes.items():
        q = np.array(key.q)
        slack = 1e-6 * (1.0 + np.abs(q))
        outside = (q < low - slack) | (q > high + slack)
        if outside.any():
            names = [joint.name for joint in model.joints if joint.nq and outside[joint.q_slice].any()]
            problems.add("warning", f"keyframe {name!r} is beyond the limits of {listed(names)}")


def _examine_constraints(model: Model, problems: Problems) -> None:
    if not model.constraints or problems.errors:
        return
    errors = constraint_errors(model, model.constraints, model.neutral)
    worst = float(np.abs(errors).max(initial=0.0))
    try:
        project(model, model.constraints, model.neutral)
    except (ConvergenceError, ConstraintError, SingularMassMatrixError) as error:
        problems.add("warning", f"no configuration was found that satisfies the constraints: {error}")
        return
    if worst > 1e-6:
        problems.add(
            "note",
            f"the neutral configuration does not satisfy the constraints (by {worst:.2g}); project(...) finds one",
        )


def examine_meshes(model: Model, problems: Problems) -> None:
    """Adds the mesh files that were not found when the model was loaded, or are no longer there."""
    bodies: dict[str, list[str]] = {}
    for mesh, file, body in _meshes(model):
        if file is None or not os.path.isfile(file):
            owners = bodies.setdefault(mesh, [])
            if body not in owners:
                owners.append(body)
    for mesh, owners in bodies.items():
        problems.add("warning", f"mesh file {mesh!r} of {listed(owners)} is not found")


def _meshes(model: Model) -> Iterator[tuple[str, str | None, str]]:
    """Names of mesh files, their paths where they were found, and the bodies that have them."""
    for body in model.bodies:
        for visual in body.visuals:
            if visual.mesh is not None:
                yield visual.mesh, visual.file, body.name
        for collision in body.collisions:
            if isinstance(collision.shape, Mesh) and collision.shape.path is not None:
                yield collision.shape.path, collision.shape.file, body.name
