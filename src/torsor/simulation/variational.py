"""Variational integrators beyond simulation: their equations alone, and derivatives of a step by momenta.

A step goes from (q, p) to (q1, p1), p = M(q) v being the momenta; docs/derivations/variational.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from torsor import _core
from torsor._check import StepFailed, as_array, record_of
from torsor.forces.custom import CustomForce
from torsor.forces.force import Force, compile_forces, require_forces
from torsor.integrators import Variational
from torsor.simulation.failures import step_error

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from torsor.model import Model

    FloatArray = NDArray[np.float64]


@record_of("discrete_euler_lagrange")
class DiscreteEulerLagrange(NamedTuple):
    """What the control points of a step say: the momenta at both ends, and how far it is from a motion between.

    The step is a motion if `residual` is zero; two of them are, one after the other, if p1 of the first is p0 of the
    second.

    Attributes
    ----------
    p0, p1 : (..., nv)
        Minus the derivative of the action by the first control point, and that by the last.
    residual : (..., order / 2 - 1, nv)
        Derivatives of the action by the control points between, with the virtual work of the forces.
    """

    p0: FloatArray
    residual: FloatArray
    p1: FloatArray


def discrete_euler_lagrange(
    model: Model,
    integrator: Variational,
    q: ArrayLike,
    u: ArrayLike | None = None,
    *,
    forces: Sequence[Force] = (),
    t: float = 0.0,
    threads: int = 1,
) -> DiscreteEulerLagrange:
    """The discrete Euler-Lagrange equations at control points q (..., order / 2 + 1, nq) of a step, in O(n).

    The control points lie at the nodes of the Gauss-Lobatto quadrature: the two ends for order 2, the middle too for
    order 4. u (..., nv) are torques, t is the time at the start. Fan 2018, proposition 1.
    """
    options, parameters = step_options(model, integrator, forces)
    return _core.discrete_euler_lagrange(model, q, u, as_array("t", t), parameters, options, None, threads)


@record_of("momentum_step_derivatives")
class MomentumStepDerivatives(NamedTuple):
    """A step of `Variational` and its Jacobian: q1 (..., nq), p1 (..., nv), and derivatives (..., nv, nv) of both by q,
    p and u.

    Those of and by configurations are in the tangent space. dq1_dforces and dp1_dforces are the derivatives by the
    parameters of the forces: for each force a dict, name -> (..., nv, *shape of the parameter); None without forces.
    """

    q1: FloatArray
    p1: FloatArray
    dq1_dq: FloatArray
    dq1_dp: FloatArray
    dq1_du: FloatArray
    dp1_dq: FloatArray
    dp1_dp: FloatArray
    dp1_du: FloatArray
    dq1_dforces: tuple[dict[str, FloatArray], ...] | None = None
    dp1_dforces: tuple[dict[str, FloatArray], ...] | None = None


def momentum_step_derivatives(
    model: Model,
    integrator: Variational,
    q: ArrayLike,
    p: ArrayLike,
    u: ArrayLike | None = None,
    *,
    forces: Sequence[Force] = (),
    t: float = 0.0,
    threads: int = 1,
) -> MomentumStepDerivatives:
    """One step from q (..., nq), p (..., nv) under torques u (..., nv), with its derivatives by them. Fan 2018,
    propositions 3 and 4.

    Without forces and controls the Jacobian is symplectic. `step_derivatives` has the same by velocities.

    Raises
    ------
    ConvergenceError
        If the step cannot be taken, in any state of the batch.
    """
    options, parameters = step_options(model, integrator, forces)
    options["wanted"] = 0x3FF if forces else 0xFF
    time = as_array("t", t)
    try:
        step = _core.momentum_step_derivatives(model, q, p, u, time, parameters, options, None, threads)
    except StepFailed as failed:
        raise step_error(model, integrator, failed) from None
    if not forces:
        return step
    by_parameters: Any = step[8:]
    dq1, dp1 = (compile_forces(model, forces).unflatten(x) for x in by_parameters)
    return step._replace(dq1_dforces=dq1, dp1_dforces=dp1)


@record_of("step_hessian")
class StepHessian(NamedTuple):
    """Second derivatives (..., nv, nv) of wq . q1 + wp . p1 over a step of `Variational`, by pairs of q, p and u.

    Row j and column k of a block are the derivative, along the second direction k, of wq . (dq1 along j) + wp . (dp1
    along j). Derivatives by and of configurations are in the tangent space, as in `momentum_step_derivatives`. So with
    quaternions the order counts. Row j, column k exceeds what the other order gives by wq . (dq1 along j x dq1 along
    k), x being the cross product of rotations, or of twists for `Free`: in dpdp and dudu, and in dqdp against the
    derivative along q of that along p, which is not dqdp transposed. In dqdq the directions themselves do not commute
    either. Without quaternions dqdq, dpdp and dudu are symmetric.
    """

    dqdq: FloatArray
    dqdp: FloatArray
    dqdu: FloatArray
    dpdp: FloatArray
    dpdu: FloatArray
    dudu: FloatArray


def step_hessian(
    model: Model,
    integrator: Variational,
    q: ArrayLike,
    p: ArrayLike,
    u: ArrayLike | None = None,
    *,
    contract: tuple[ArrayLike, ArrayLike],
    forces: Sequence[Force] = (),
    t: float = 0.0,
    threads: int = 1,
) -> StepHessian:
    """Second derivatives of one step from q (..., nq), p (..., nv) under torques u, contracted with weights.

    Parameters
    ----------
    contract : (wq, wp), each (..., nv)
        Weights of q1, in the tangent space, and of p1: of the derivatives of a loss, say.

    Exact: the derivative of the step's reverse derivative along each of its directions, O(n) each, and a product of
    matrices. The other parameters, and errors, are those of `momentum_step_derivatives`.
    """
    for k, force in enumerate(require_forces(forces)):
        if isinstance(force, CustomForce):
            raise TypeError(
                f"step_hessian needs second derivatives of forces, which force {k}, a CustomForce, has not; take "
                "differences of momentum_step_derivatives"
            )
    try:
        wq, wp = contract
    except (TypeError, ValueError):
        raise TypeError(f"contract must be (wq, wp), weights of q1 and of p1, got {contract!r}") from None
    options, parameters = step_options(model, integrator, forces)
    time = as_array("t", t)
    try:
        return _core.step_hessian(model, q, p, u, time, parameters, wq, wp, options, None, threads)
    except StepFailed as failed:
        raise step_error(model, integrator, failed) from None


def step_options(
    model: Model, integrator: Variational, forces: Sequence[Force]
) -> tuple[dict[str, Any], FloatArray | None]:
    """Options of a function of the core, and the forces' parameters."""
    if not isinstance(integrator, Variational):
        raise TypeError(f"integrator must be Variational(h, order), got {integrator!r}")
    options: dict[str, Any] = {"integrator": integrator._numbers}
    if not forces:
        return options, None
    compiled = compile_forces(model, forces)
    return {**options, **compiled.options}, compiled.parameters
