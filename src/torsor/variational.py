"""Functions for variational integrators alone: their discrete equations of motion, and second derivatives of a step.

The state is (q, p), with momenta p = M(q) v; see docs/derivations/variational.md. First derivatives of a step in these
variables are those of `torsor.step_derivatives` with `p=`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from torsor import _core
from torsor._check import StepFailed, as_array, record_of
from torsor.constraints.constraint import Constraint, compile_constraints, require_constraints
from torsor.forces.custom import CustomForce
from torsor.forces.force import Force, require_forces
from torsor.integrators.variational import lobatto
from torsor.model import require_model
from torsor.simulation.consistency import require_holonomic
from torsor.simulation.failures import step_error
from torsor.simulation.steps import variational_options

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from torsor._typing import FloatArray, Threads
    from torsor.integrators import Variational
    from torsor.model import Model

__all__ = ["DiscreteEulerLagrange", "StepHessian", "discrete_euler_lagrange", "step_hessian"]


@record_of("discrete_euler_lagrange")
class DiscreteEulerLagrange(NamedTuple):
    """Discrete momenta and residual at given control points of a step.

    The control points are those of a motion if `residual` is zero. Two successive steps form a motion if p1 of the
    first equals p0 of the second.

    Attributes
    ----------
    p0, p1 : (..., nv)
        Minus the derivative of the action with respect to the first control point, and the derivative with respect to
        the last.
    residual : (..., order / 2 - 1, nv)
        Derivatives of the action with respect to the control points between, plus the virtual work of the forces.
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
    constraints: Sequence[Constraint] = (),
    multipliers: ArrayLike | None = None,
    t: ArrayLike = 0.0,
    threads: Threads = 1,
) -> DiscreteEulerLagrange:
    """Evaluates the discrete Euler-Lagrange equations at the control points of a step, in O(n). Fan 2018, proposition
    1.

    Parameters
    ----------
    model : Model
    integrator : Variational
    q : (..., order / 2 + 1, nq) array_like
        Control points, at the nodes of the Gauss-Lobatto quadrature: both ends of the step for order 2, its middle too
        for order 4.
    u : (..., nv) array_like, optional
        Torques, constant over the step; zero by default.
    forces : sequence of Force
        Forces in addition to gravity.
    constraints : sequence of Constraint
        Constraints whose multipliers act at the control points. The points need not satisfy them.
    multipliers : (..., order / 2 + 1, rows) array_like
        With constraints: their multipliers at the control points. Point k gains h w_k G^T multipliers, w_k being the
        weights of the Gauss-Lobatto quadrature, whatever the rule of the integrator.
    t : (...) array_like
        Time at the beginning of the step.
    threads : int or "auto"
        Most threads for a batch, of which as many take part as pay; "auto" for at most one per core.

    Returns
    -------
    DiscreteEulerLagrange
        p0 (..., nv), residual (..., order / 2 - 1, nv) and p1 (..., nv).
    """
    options, compiled = variational_options(model, integrator, forces)
    parameters = None if compiled is None else compiled.parameters
    time = as_array("t", t)
    constraints = require_constraints(constraints)
    if bool(constraints) != (multipliers is not None):
        given = "constraints alone" if constraints else "multipliers alone"
        raise TypeError(f"discrete_euler_lagrange takes constraints with their multipliers, got {given}")
    found = _core.discrete_euler_lagrange(model, q, u, time, parameters, options, None, threads)
    if not constraints:
        return found
    points = as_array("q", q)
    torques = _torques_of_rows(model, integrator, constraints, points, as_array("multipliers", multipliers), time)
    return DiscreteEulerLagrange(
        found.p0 - torques[..., 0, :], found.residual + torques[..., 1:-1, :], found.p1 + torques[..., -1, :]
    )


def _torques_of_rows(
    model: Model,
    integrator: Variational,
    constraints: tuple[Constraint, ...],
    q: FloatArray,
    multipliers: FloatArray,
    t: FloatArray,
) -> FloatArray:
    """h w G^T multipliers at the control points, (..., order / 2 + 1, nv)."""
    require_holonomic(integrator, constraints)
    compiled = compile_constraints(model, constraints)
    nodes, weights = lobatto(integrator.order // 2 + 1)
    if multipliers.ndim < 2 or multipliers.shape[-2:] != (len(nodes), compiled.rows):
        raise ValueError(
            f"multipliers has shape {multipliers.shape}, expected (..., {len(nodes)}, {compiled.rows}): the control "
            "points, and the rows of the constraints"
        )
    times = t[..., None] + integrator.h * (1.0 + nodes) / 2.0
    G = _core.constraint_jacobian(model, q, None, times, None, compiled.options, None, 1)
    scaled = integrator.h * weights[:, None] / 2.0 * multipliers
    torques: FloatArray = np.einsum("...ij,...i->...j", G, scaled)
    return torques


@record_of("step_hessian")
class StepHessian(NamedTuple):
    """Second derivatives (..., nv, nv) of wq . q1 + wp . p1 over a step of `Variational`, for pairs of q, p and u.

    Row j and column k of a block are the derivative, along the second direction k, of wq . (dq1 along j) + wp . (dp1
    along j). Derivatives with respect to and of configurations are in the tangent space. So with quaternions the order
    matters. Row j, column k exceeds the value of the other order by wq . (dq1 along j x dq1 along k), x being the cross
    product of rotations, or of twists for `Free`: in dpdp and dudu, and in dqdp against the derivative along q of that
    along p, which is not dqdp transposed. In dqdq the directions themselves do not commute either. Without quaternions
    dqdq, dpdp and dudu are symmetric.
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
    constraints: Sequence[Constraint] | None = None,
    t: ArrayLike = 0.0,
    threads: Threads = 1,
) -> StepHessian:
    """Second derivatives of one step, contracted with weights on its result, exact.

    The derivative of the step's reverse derivative along each of its directions, O(n) each, and a product of matrices.

    Parameters
    ----------
    model : Model
    integrator : Variational
    q : (..., nq) array_like
        Configurations at the beginning of the step.
    p : (..., nv) array_like
        Momenta.
    u : (..., nv) array_like, optional
        Torques, constant over the step; zero by default.
    contract : (wq, wp), each (..., nv) array_like
        Weights on q1, in the tangent space, and on p1: the derivatives of a loss, for example.
    forces : sequence of Force
        Forces in addition to gravity, without `CustomForce`.
    constraints : sequence of Constraint, optional
        Must be empty, those of the model by default: second derivatives of steps under constraints are not available.
    t : (...) array_like
        Time at the beginning of the step.
    threads : int or "auto"
        Most threads for a batch, of which as many take part as pay; "auto" for at most one per core.

    Returns
    -------
    StepHessian
        dqdq, dqdp, dqdu, dpdp, dpdu and dudu, each (..., nv, nv).

    Raises
    ------
    ConvergenceError
        If the step cannot be taken for some state of the batch; `index` is its flat index.
    """
    for k, force in enumerate(require_forces(forces)):
        if isinstance(force, CustomForce):
            raise TypeError(
                f"step_hessian needs second derivatives of forces, which force {k}, a CustomForce, lacks; take "
                "differences of step_derivatives(..., p=p)"
            )
    if require_constraints(require_model(model).constraints if constraints is None else constraints):
        raise TypeError(
            "step_hessian has no second derivatives of steps under constraints; take differences of "
            "step_derivatives(..., p=p, constraints=constraints)"
        )
    try:
        wq, wp = contract
    except (TypeError, ValueError):
        raise TypeError(f"contract must be (wq, wp), weights on q1 and on p1, got {contract!r}") from None
    options, compiled = variational_options(model, integrator, forces)
    parameters = None if compiled is None else compiled.parameters
    time = as_array("t", t)
    try:
        return _core.step_hessian(model, q, p, u, time, parameters, wq, wp, options, None, threads)
    except StepFailed as failed:
        raise step_error(model, integrator, failed) from None
