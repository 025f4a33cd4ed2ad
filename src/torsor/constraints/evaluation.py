"""Evaluation of constraints at a state: rows and their rates, Jacobian, derivatives, gradients and wrenches.

Every function takes one state or any batch of states, whose batch shapes broadcast, t among them; `out` and `threads`
are as in `torsor.dynamics`. Derivatives with respect to q are in the tangent space. The m rows are those of the list of
constraints, one after the other: `Constraint.row_names` has their names.

Rows are coordinates of marker B as marker A sees it, and gdot and gamma are their first and second derivatives in time,
off the constraint too. The derivative of gdot with respect to v, and of gamma with respect to a, is the Jacobian.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from torsor import _core
from torsor._check import record_of
from torsor.constraints.constraint import Constraint, compile_constraints

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from torsor._typing import FloatArray, Threads
    from torsor.model import Model


@record_of("constraint_errors")
class ConstraintErrors(NamedTuple):
    """Values g of all rows, their rates gdot and second rates gamma, each (..., m): zero where constraints hold."""

    g: FloatArray
    gdot: FloatArray
    gamma: FloatArray


@record_of("constraint_derivatives")
class ConstraintDerivatives(NamedTuple):
    """Derivatives of gdot and gamma, each (..., m, nv)."""

    dgdot_dq: FloatArray
    dgamma_dq: FloatArray
    dgamma_dv: FloatArray


class ConstraintVJP(NamedTuple):
    """Gradients of w_g . g + w_gdot . gdot + w_gamma . gamma.

    Attributes
    ----------
    q, v, a : (..., nv)
    placement : (..., nbodies, 6)
        With respect to twists x of the placements, placement @ SE3.exp(x).
    parameters : tuple of dicts
        For each constraint the gradients with respect to its parameters: name -> (..., *shape of the parameter).
    """

    q: FloatArray
    v: FloatArray
    a: FloatArray
    placement: FloatArray
    parameters: tuple[dict[str, FloatArray], ...]


def constraint_errors(
    model: Model,
    constraints: Iterable[Constraint],
    q: ArrayLike,
    v: ArrayLike | None = None,
    a: ArrayLike | None = None,
    *,
    t: ArrayLike = 0.0,
    out: ConstraintErrors | None = None,
    threads: Threads = 1,
) -> ConstraintErrors:
    """Values of all rows of constraints, and their first and second rates along a motion.

    Parameters
    ----------
    model : Model
    constraints : iterable of Constraint
        Compiled once for the same model and constraint objects.
    q : (..., nq) array_like
        Configurations.
    v, a : (..., nv) array_like, optional
        Velocities and accelerations, zero by default.
    t : (...) array_like
        Time.
    out : ConstraintErrors, optional
        Record of arrays for the results.
    threads : int or "auto"
        Most threads for a batch, of which as many take part as pay; "auto" for at most one per core.

    Returns
    -------
    ConstraintErrors
        g, gdot and gamma, each (..., m). A row that is given on velocities alone has g = 0.

    Examples
    --------
    >>> pin = ts.Loop("world", "hand", ts.Spherical()).at(model, q)  # the hand stays where it is
    >>> g, gdot, gamma = ts.constraint_errors(model, [pin], q, v, a)
    >>> np.allclose(g, 0)
    True
    """
    compiled = compile_constraints(model, constraints)
    return _core.constraint_errors(model, q, v, t, a, compiled.options, out, threads)


def constraint_jacobian(
    model: Model,
    constraints: Iterable[Constraint],
    q: ArrayLike,
    *,
    t: ArrayLike = 0.0,
    out: FloatArray | None = None,
    threads: Threads = 1,
) -> FloatArray:
    """The Jacobian G of all rows of constraints: gdot = G v + g_t, and multipliers act as torques G^T lambda.

    Parameters
    ----------
    model : Model
    constraints : iterable of Constraint
    q : (..., nq) array_like
        Configurations.
    t : (...) array_like
        Time.
    out : (..., m, nv) array, optional
        Array for the result.
    threads : int or "auto"
        Most threads for a batch, of which as many take part as pay; "auto" for at most one per core.

    Returns
    -------
    G : (..., m, nv) array
        The derivative of g with respect to q as well, except for rows that are given on velocities alone.

    Examples
    --------
    >>> pin = ts.Loop("world", "hand", ts.Spherical()).at(model, q)  # the hand stays where it is
    >>> G = ts.constraint_jacobian(model, [pin], q)
    >>> np.allclose(G @ v, ts.constraint_errors(model, [pin], q, v).gdot)
    True
    """
    compiled = compile_constraints(model, constraints)
    return _core.constraint_jacobian(model, q, None, t, None, compiled.options, out, threads)


def constraint_derivatives(
    model: Model,
    constraints: Iterable[Constraint],
    q: ArrayLike,
    v: ArrayLike,
    a: ArrayLike,
    *,
    t: ArrayLike = 0.0,
    out: ConstraintDerivatives | None = None,
    threads: Threads = 1,
) -> ConstraintDerivatives:
    """Derivatives of the rates of all rows of constraints, exact, on the constraint and off it.

    Parameters
    ----------
    model : Model
    constraints : iterable of Constraint
    q : (..., nq) array_like
        Configurations.
    v, a : (..., nv) array_like
        Velocities and accelerations.
    t : (...) array_like
        Time.
    out : ConstraintDerivatives, optional
        Record of arrays for the results.
    threads : int or "auto"
        Most threads for a batch, of which as many take part as pay; "auto" for at most one per core.

    Returns
    -------
    ConstraintDerivatives
        dgdot_dq, dgamma_dq and dgamma_dv, each (..., m, nv). `constraint_jacobian` is dgdot_dv and dgamma_da.

    Examples
    --------
    >>> pin = ts.Loop("world", "hand", ts.Spherical()).at(model, q)  # the hand stays where it is
    >>> ts.constraint_derivatives(model, [pin], q, v, a)._fields
    ('dgdot_dq', 'dgamma_dq', 'dgamma_dv')
    """
    compiled = compile_constraints(model, constraints)
    return _core.constraint_derivatives(model, q, v, t, a, compiled.options, out, threads)


def constraint_wrenches(
    model: Model,
    constraints: Iterable[Constraint],
    q: ArrayLike,
    multipliers: ArrayLike,
    *,
    t: ArrayLike = 0.0,
    out: FloatArray | None = None,
    threads: Threads = 1,
) -> FloatArray:
    """Reaction wrenches of constraints between bodies, from their multipliers.

    Parameters
    ----------
    model : Model
    constraints : iterable of n constraints
    q : (..., nq) array_like
        Configurations.
    multipliers : (..., m) array_like
        As `constrained_forward_dynamics` gives them.
    t : (...) array_like
        Time.
    out : (..., n, 6) array, optional
        Array for the result.
    threads : int or "auto"
        Most threads for a batch, of which as many take part as pay; "auto" for at most one per core.

    Returns
    -------
    wrenches : (..., n, 6) array
        What each constraint does to its body b, moment first, in the frame of b (in the world's frame if b is the
        world). Body a receives the opposite wrench, about the same point of space. Zero for constraints of joint
        coordinates, whose multipliers are torques, and for rows on twists of bodies.

    Examples
    --------
    >>> pin = ts.Loop("world", "hand", ts.Spherical()).at(model, q)  # the hand stays where it is
    >>> c = ts.constrained_forward_dynamics(model, [pin], q, v, tau)
    >>> ts.constraint_wrenches(model, [pin], q, c.multipliers).shape  # on the hand, moment first
    (1, 6)
    """
    compiled = compile_constraints(model, constraints)
    return _core.constraint_wrenches(model, q, multipliers, t, compiled.options, out, threads)


def constraint_vjp(
    model: Model,
    constraints: Iterable[Constraint],
    q: ArrayLike,
    v: ArrayLike | None = None,
    a: ArrayLike | None = None,
    *,
    w_g: ArrayLike | None = None,
    w_gdot: ArrayLike | None = None,
    w_gamma: ArrayLike | None = None,
    t: ArrayLike = 0.0,
    threads: Threads = 1,
) -> ConstraintVJP:
    """Gradients of w_g . g + w_gdot . gdot + w_gamma . gamma with respect to everything that rows depend on, in O(n).

    Parameters
    ----------
    model : Model
    constraints : iterable of Constraint
    q : (..., nq) array_like
        Configurations.
    v, a : (..., nv) array_like, optional
        Velocities and accelerations, zero by default.
    w_g, w_gdot, w_gamma : (..., m) array_like, optional
        Cotangents: weights on the results of `constraint_errors`, zero by default.
    t : (...) array_like
        Time.
    threads : int or "auto"
        Most threads for a batch, of which as many take part as pay; "auto" for at most one per core.

    Returns
    -------
    ConstraintVJP
        q, v, a (..., nv); placement (..., nbodies, 6); and for each constraint a dict of gradients by name of the
        parameter.

    Examples
    --------
    >>> pin = ts.Loop("world", "hand", ts.Spherical()).at(model, q)  # the hand stays where it is
    >>> g = ts.constraint_vjp(model, [pin], q, w_g=(1.0, 0.0, 0.0))
    >>> np.allclose(g.q, ts.constraint_jacobian(model, [pin], q)[0])
    True
    """
    compiled = compile_constraints(model, constraints)
    *states, flat = _core.constraint_vjp(model, q, v, t, a, w_g, w_gdot, w_gamma, compiled.options, None, threads)
    gq, gv, ga, placement = states
    return ConstraintVJP(gq, gv, ga, placement, compiled.unflatten(flat))
