"""Evaluation of forces at a state: generalized forces, their derivatives and gradients, and energies.

Every function takes one state or any batch of states, whose batch shapes broadcast, t among them; `out` and `threads`
are as in `torsor.dynamics`. Derivatives with respect to q are in the tangent space. Gravity belongs to the model, not
to the list of forces.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from torsor import _core
from torsor._check import record_of
from torsor.forces.contact import Contact
from torsor.forces.force import CompiledForces, Force, compile_forces

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from torsor._typing import FloatArray, Threads
    from torsor.model import Model


@record_of("generalized_forces_derivatives")
class GeneralizedForcesDerivatives(NamedTuple):
    """Derivatives of tau = generalized_forces(q, v), each (..., nv, nv): stiffness K and damping D."""

    dtau_dq: FloatArray
    dtau_dv: FloatArray


class GeneralizedForcesVJP(NamedTuple):
    """Gradients of w . generalized_forces(q, v).

    Attributes
    ----------
    q, v : (..., nv)
    parameters : tuple of dicts
        For each force the gradients with respect to its parameters: name -> (..., *shape of the parameter).
    """

    q: FloatArray
    v: FloatArray
    parameters: tuple[dict[str, FloatArray], ...]


class ContactStates(NamedTuple):
    """States of n places where shapes touch or may touch, those of one `Contact` after those of another.

    Vectors are in the axes of the world.

    Attributes
    ----------
    gap : (..., n)
        Distance of the two shapes there, negative where they overlap. Where a capsule lies on another solid than a
        half-space, its places share the depth.
    point : (..., n, 3)
        Where forces act, in the world.
    normal : (..., n, 3)
        Unit vector from the second body to the first.
    force : (..., n, 3)
        Force on the first body; zero where the gap is positive.
    slip : (..., n, 3)
        Velocity of the first body relative to the second there, without its part along the normal.
    force_index : (n,)
        The force that each place belongs to, by its index in the list of forces.
    bodies : tuple of n (str, str)
        Names of the first and the second body.
    """

    gap: FloatArray
    point: FloatArray
    normal: FloatArray
    force: FloatArray
    slip: FloatArray
    force_index: NDArray[np.int64]
    bodies: tuple[tuple[str, str], ...]

    @property
    def normal_force(self) -> FloatArray:
        """The part of the force along the normal, (..., n)."""
        return np.asarray(np.einsum("...i,...i->...", self.force, self.normal))

    @property
    def friction_force(self) -> FloatArray:
        """The rest of the force, (..., n, 3)."""
        return self.force - self.normal_force[..., None] * self.normal


def contact_states(
    model: Model,
    forces: Iterable[Force],
    q: ArrayLike,
    v: ArrayLike,
    *,
    t: ArrayLike = 0.0,
    threads: Threads = 1,
) -> ContactStates:
    """Gaps, points, normals, forces and slip velocities of all contacts (`Contact`) in a list of forces.

    Each pair of shapes has a fixed number of places, as the corners of a box, whether they touch or not.

    Parameters
    ----------
    model : Model
    forces : iterable of Force
        Those that are no `Contact` have no places.
    q : (..., nq) array_like
        Configurations.
    v : (..., nv) array_like
        Velocities.
    t : (...) array_like
        Time.
    threads : int or "auto"
        Most threads for a batch, of which as many take part as pay; "auto" for at most one per core.

    Returns
    -------
    ContactStates

    Examples
    --------
    >>> ball = ts.Contact("hand", ts.shapes.Sphere(0.05), "world", ts.shapes.HalfSpace(), stiffness=1e5)
    >>> touching = ts.contact_states(model, [ball], q, v).gap < 0
    """
    compiled = compile_forces(model, forces)
    values = _core.contact_states(model, q, v, t, compiled.parameters, compiled.options, None, threads)
    return ContactStates(*values, *contact_places(compiled.forces, compiled.core))


def contact_places(
    forces: Sequence[Force], core: _core.ForceSet
) -> tuple[NDArray[np.int64], tuple[tuple[str, str], ...]]:
    """The force and the bodies of each place of contacts."""
    index = core.contact_forces
    pairs = [(force.body, force.other) if isinstance(force, Contact) else ("", "") for force in forces]
    return np.array(index, dtype=np.int64), tuple(pairs[k] for k in index)


def _compile(model: Model, forces: Iterable[Force]) -> CompiledForces:
    """Forces that are functions of q, v and t."""
    compiled = compile_forces(model, forces)
    compiled.refuse_accelerated("which this function does not have")
    return compiled


def generalized_forces(
    model: Model,
    forces: Iterable[Force],
    q: ArrayLike,
    v: ArrayLike,
    *,
    t: ArrayLike = 0.0,
    out: FloatArray | None = None,
    threads: Threads = 1,
) -> FloatArray:
    """Sum of the generalized forces of a list of forces.

    Parameters
    ----------
    model : Model
    forces : iterable of Force
        Compiled once for the same model and force objects.
    q : (..., nq) array_like
        Configurations.
    v : (..., nv) array_like
        Velocities.
    t : (...) array_like
        Time.
    out : (..., nv) array, optional
        Array for the result.
    threads : int or "auto"
        Most threads for a batch, of which as many take part as pay; "auto" for at most one per core.

    Returns
    -------
    tau : (..., nv) array

    Examples
    --------
    >>> tau = ts.generalized_forces(model, [ts.JointDamping(None, 0.1)], q, v)
    """
    compiled = _compile(model, forces)
    return _core.generalized_forces(model, q, v, t, compiled.parameters, compiled.options, out, threads)


def generalized_forces_derivatives(
    model: Model,
    forces: Iterable[Force],
    q: ArrayLike,
    v: ArrayLike,
    *,
    t: ArrayLike = 0.0,
    out: GeneralizedForcesDerivatives | None = None,
    threads: Threads = 1,
) -> GeneralizedForcesDerivatives:
    """Derivatives of `generalized_forces`, exact.

    A force that depends on velocities of bodies depends on q through them, Sueda 2021, eq. (3.57).

    Parameters
    ----------
    model : Model
    forces : iterable of Force
    q : (..., nq) array_like
        Configurations.
    v : (..., nv) array_like
        Velocities.
    t : (...) array_like
        Time.
    out : GeneralizedForcesDerivatives, optional
        Record of arrays for the results.
    threads : int or "auto"
        Most threads for a batch, of which as many take part as pay; "auto" for at most one per core.

    Returns
    -------
    GeneralizedForcesDerivatives
        dtau_dq and dtau_dv, each (..., nv, nv).

    Examples
    --------
    >>> d = ts.generalized_forces_derivatives(model, [ts.JointDamping(None, 0.1)], q, v)
    >>> np.allclose(d.dtau_dv, -0.1 * np.eye(7))
    True
    """
    compiled = _compile(model, forces)
    return _core.generalized_forces_derivatives(model, q, v, t, compiled.parameters, compiled.options, out, threads)


def force_energies(
    model: Model,
    forces: Iterable[Force],
    q: ArrayLike,
    *,
    t: ArrayLike = 0.0,
    out: FloatArray | None = None,
    threads: Threads = 1,
) -> FloatArray:
    """Potential energies of forces.

    Parameters
    ----------
    model : Model
    forces : iterable of n forces
    q : (..., nq) array_like
        Configurations.
    t : (...) array_like
        Time.
    out : (..., n) array, optional
        Array for the result.
    threads : int or "auto"
        Most threads for a batch, of which as many take part as pay; "auto" for at most one per core.

    Returns
    -------
    energies : (..., n) array
        The gradient of each is minus the generalized force at v = 0. Zero for forces without an energy (`has_energy`).

    Examples
    --------
    >>> spring = ts.JointSpring("wrist_pitch", stiffness=10.0)
    >>> np.allclose(ts.force_energies(model, [spring], q)[0], 5.0 * q[model.joint("wrist_pitch").q_slice] ** 2)
    True
    """
    compiled = compile_forces(model, forces)
    rest = np.zeros(model.nv)
    return _core.force_energies(model, q, rest, t, compiled.parameters, compiled.options, out, threads)


def generalized_forces_vjp(
    model: Model,
    forces: Iterable[Force],
    q: ArrayLike,
    v: ArrayLike,
    w: ArrayLike,
    *,
    t: ArrayLike = 0.0,
    threads: Threads = 1,
) -> GeneralizedForcesVJP:
    """Gradients of w . generalized_forces(q, v) with respect to q, v and the parameters of every force.

    Parameters
    ----------
    model : Model
    forces : iterable of Force
    q : (..., nq) array_like
        Configurations.
    v : (..., nv) array_like
        Velocities.
    w : (..., nv) array_like
        Cotangents: weights on the generalized forces.
    t : (...) array_like
        Time.
    threads : int or "auto"
        Most threads for a batch, of which as many take part as pay; "auto" for at most one per core.

    Returns
    -------
    GeneralizedForcesVJP
        q and v (..., nv), and for each force a dict of gradients by name of the parameter.

    Examples
    --------
    >>> g = ts.generalized_forces_vjp(model, [ts.JointDamping(None, 0.1)], q, v, w)
    >>> np.allclose(g.parameters[0]["damping"].sum(), -w @ v)
    True
    """
    compiled = _compile(model, forces)
    gq, gv, flat = _core.generalized_forces_vjp(model, q, v, t, compiled.parameters, w, compiled.options, None, threads)
    return GeneralizedForcesVJP(gq, gv, compiled.unflatten(flat))
