"""What forces do at a state: torques, their derivatives, energies, and gradients in reverse.

Every function takes one state or any batch of states, whose batch shapes broadcast, t among them; `out` and `threads`
are as in `torsor.dynamics`. Derivatives with respect to q are in the tangent space. Gravity is no force here: the
model has it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from torsor import _core
from torsor._check import record_of
from torsor.forces.force import Force, compile_forces

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from torsor._typing import FloatArray
    from torsor.model import Model


@record_of("generalized_forces_derivatives")
class GeneralizedForcesDerivatives(NamedTuple):
    """Derivatives of tau = generalized_forces(q, v), each (..., nv, nv): stiffness K and damping D."""

    dtau_dq: FloatArray
    dtau_dv: FloatArray


class GeneralizedForcesVJP(NamedTuple):
    """Gradients of w . generalized_forces(q, v): q and v (..., nv), and for each force a dict of its parameters' by
    name, shaped (..., *shape of the parameter)."""

    q: FloatArray
    v: FloatArray
    parameters: tuple[dict[str, FloatArray], ...]


def generalized_forces(
    model: Model,
    forces: Iterable[Force],
    q: ArrayLike,
    v: ArrayLike,
    t: ArrayLike = 0.0,
    out: FloatArray | None = None,
    threads: int = 1,
) -> FloatArray:
    """Torques tau (..., nv) of all forces together, at the state q, v and the time t."""
    compiled = compile_forces(model, forces)
    return _core.generalized_forces(model, q, v, t, compiled.parameters, compiled.options, out, threads)


def generalized_forces_derivatives(
    model: Model,
    forces: Iterable[Force],
    q: ArrayLike,
    v: ArrayLike,
    t: ArrayLike = 0.0,
    out: GeneralizedForcesDerivatives | None = None,
    threads: int = 1,
) -> GeneralizedForcesDerivatives:
    """K = dtau_dq and D = dtau_dv of `generalized_forces`, exact: a force that depends on velocities of bodies depends
    on q through them, Sueda 2021, eq. (3.57)."""
    compiled = compile_forces(model, forces)
    return _core.generalized_forces_derivatives(model, q, v, t, compiled.parameters, compiled.options, out, threads)


def force_energies(
    model: Model,
    forces: Iterable[Force],
    q: ArrayLike,
    t: ArrayLike = 0.0,
    out: FloatArray | None = None,
    threads: int = 1,
) -> FloatArray:
    """Potential energy (..., n) of each of n forces, 0 for those without one (`has_energy`).

    Its gradient is minus the force's torque at v = 0.
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
    t: ArrayLike = 0.0,
    threads: int = 1,
) -> GeneralizedForcesVJP:
    """Gradients of w . tau, tau of `generalized_forces`, with respect to q, v and the parameters of every force."""
    compiled = compile_forces(model, forces)
    gq, gv, flat = _core.generalized_forces_vjp(model, q, v, t, compiled.parameters, w, compiled.options, None, threads)
    return GeneralizedForcesVJP(gq, gv, compiled.unflatten(flat))
