"""Functions for variational integrators alone: their discrete equations of motion, and second derivatives of a step.

The state is (q, p), with momenta p = M(q) v; see docs/derivations/variational.md. First derivatives of a step in these
variables are those of `torsor.step_derivatives` with `p=`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from torsor import _core
from torsor._check import StepFailed, as_array, record_of
from torsor.forces.custom import CustomForce
from torsor.forces.force import Force, require_forces
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
    return _core.discrete_euler_lagrange(model, q, u, as_array("t", t), parameters, options, None, threads)


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
