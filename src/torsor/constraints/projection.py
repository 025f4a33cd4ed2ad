"""Projections of states onto constraints, and their derivatives. docs/derivations/constraints.md, section 7."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, NamedTuple, overload

import numpy as np

from torsor import _core
from torsor._check import require_finite
from torsor._errors import ConstraintError, ConvergenceError
from torsor.constraints.constraint import Constraint, compile_constraints
from torsor.constraints.nearest import Factor, Nearest, Terms, roots, whitened
from torsor.derivatives.matrices import output_bits
from torsor.derivatives.vjp import InverseDynamicsVJP
from torsor.model import Model, require_model

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from torsor._typing import FloatArray

_TOLERANCE = 1e-12
_ITERATIONS = 60
_CONTRADICTION = 1e-9  # rates of rows, relative to velocities, that tell contradictions from roundings
_FLAT = 1e-9  # a curvature of the distance along the constraints, relative to 1, that counts as zero


@overload
def project(
    model: Model,
    constraints: Sequence[Constraint],
    q: ArrayLike,
    v: None = None,
    *,
    t: ArrayLike = 0.0,
    keep: Iterable[str] = (),
    tolerance: float = _TOLERANCE,
    iterations: int = _ITERATIONS,
) -> FloatArray: ...


@overload
def project(
    model: Model,
    constraints: Sequence[Constraint],
    q: ArrayLike,
    v: ArrayLike,
    *,
    t: ArrayLike = 0.0,
    keep: Iterable[str] = (),
    tolerance: float = _TOLERANCE,
    iterations: int = _ITERATIONS,
) -> tuple[FloatArray, FloatArray]: ...


def project(
    model: Model,
    constraints: Sequence[Constraint],
    q: ArrayLike,
    v: ArrayLike | None = None,
    *,
    t: ArrayLike = 0.0,
    keep: Iterable[str] = (),
    tolerance: float = _TOLERANCE,
    iterations: int = _ITERATIONS,
) -> FloatArray | tuple[FloatArray, FloatArray]:
    """The nearest state that satisfies constraints.

    Of all configurations q1 = plus(q, xi) that satisfy them it is one with the least xi.M(q) xi, so that it depends
    neither on units nor on the order of bodies: a minimum near q, if there are several. Velocities are then projected
    orthogonally in M(q1): of those with G v1 + dg/dt = 0 the ones with the least (v1 - v).M(q1) (v1 - v). Rows may be
    redundant. Rows on velocities alone (`TwistConstraint`) do not affect q1.

    It need not start near: steps turn joints by up to a radian, and orientations are closed as angles. Configurations
    whose rows are zero but that are flipped (`Constraint.flipped`) are not returned. From a q that satisfies the
    constraints to the tolerance q itself is returned.

    Parameters
    ----------
    model : Model
        With a regular mass matrix, at least of the joints that may move.
    constraints : sequence of Constraint
    q : (..., nq) array_like
        Configurations.
    v : (..., nv) array_like, optional
        Velocities.
    t : (...) array_like
        Time.
    keep : sequence of str
        Names of joints that do not move, and keep their velocities: a crank whose angle is given, a base.
    tolerance : float
        Largest error of a row, in its units, relative to 1 and to the largest coordinate. Steps go on to rounding.
    iterations : int
        Largest number of steps of each method within the projection.

    Returns
    -------
    q1 : (..., nq) array
    v1 : (..., nv) array
        If v is given.

    Raises
    ------
    ConvergenceError
        If no configuration was found; it names the row that stays open most, and tells whether it is `keep` that
        contradicts the constraints. In a batch, `index` is the flat index of the state.
    ConstraintError
        If no velocities satisfy the rates of the rows.
    SingularMassMatrixError
        If some motion moves no mass, so that it has no length.

    Examples
    --------
    >>> pin = ts.Loop("world", "hand", ts.Spherical()).at(model, q)  # the hand stays where it is
    >>> q1, v1 = ts.project(model, [pin], q + 0.01, v)
    >>> np.allclose(ts.constraint_errors(model, [pin], q1, v1).gdot, 0)
    True
    """
    task = _Task(model, constraints, q, v, t, keep, tolerance, iterations)
    return task.q1 if task.v1 is None else (task.q1, task.v1)


class ProjectDerivatives(NamedTuple):
    """A projected state and its derivatives, in tangent spaces.

    Attributes
    ----------
    q1 : (..., nq)
    v1 : (..., nv) or None
        As `project` returns them.
    dq1_dq, dv1_dq, dv1_dv : (..., nv, nv)
        Those of v1 are None without velocities.
    dq1_dparameters, dv1_dparameters : tuple of dicts
        For each constraint the derivatives (..., nv, *shape) by name of the parameter.
    """

    q1: FloatArray
    v1: FloatArray | None
    dq1_dq: FloatArray
    dv1_dq: FloatArray | None
    dv1_dv: FloatArray | None
    dq1_dparameters: tuple[dict[str, FloatArray], ...]
    dv1_dparameters: tuple[dict[str, FloatArray], ...] | None


class ProjectVJP(NamedTuple):
    """Gradients of w_q . q1 + w_v . v1, of a projected state.

    Attributes
    ----------
    q, v : (..., nv)
        v is None without velocities.
    constraints : tuple of dicts
        For each constraint the gradients (..., *shape) by name of the parameter.
    inertia : (..., nbodies, 10)
        With respect to `Inertia.parameters` of every body.
    placement : (..., nbodies, 6)
        With respect to twists x of the placements, placement @ SE3.exp(x).
    armature : (..., nv)
        Of the tree, with couplings.
    """

    q: FloatArray
    v: FloatArray | None
    constraints: tuple[dict[str, FloatArray], ...]
    inertia: FloatArray
    placement: FloatArray
    armature: FloatArray


def project_derivatives(
    model: Model,
    constraints: Sequence[Constraint],
    q: ArrayLike,
    v: ArrayLike | None = None,
    *,
    t: ArrayLike = 0.0,
    keep: Iterable[str] = (),
    tolerance: float = _TOLERANCE,
    iterations: int = _ITERATIONS,
) -> ProjectDerivatives:
    """Exact derivatives of `project` with respect to the state and the parameters of the constraints.

    At a consistent state dq1_dq is the projector 1 - M^-1 G^T D^-1 G, D = G M^-1 G^T. Derivatives with respect to q are
    in the tangent spaces at q and at q1. Where rows are redundant, parameters may move so that they contradict each
    other: these parts of a derivative are as for rows that are satisfied in the sense of least squares.

    Parameters
    ----------
    model : Model
    constraints : sequence of Constraint
    q : (..., nq) array_like
        Configurations.
    v : (..., nv) array_like, optional
        Velocities.
    t : (...) array_like
        Time.
    keep : sequence of str
    tolerance : float
    iterations : int
        As for `project`.

    Returns
    -------
    ProjectDerivatives
        q1 (..., nq); v1 (..., nv); dq1_dq, dv1_dq, dv1_dv (..., nv, nv); dq1_dparameters, dv1_dparameters: for each
        constraint a dict of arrays (..., nv, *shape).

    Examples
    --------
    >>> pin = ts.Loop("world", "hand", ts.Spherical()).at(model, q)  # the hand stays where it is
    >>> d = ts.project_derivatives(model, [pin], q + 0.01)
    >>> np.allclose(ts.constraint_jacobian(model, [pin], d.q1) @ d.dq1_dq, 0)  # it stays on the constraint
    True
    """
    task = _Task(model, constraints, q, v, t, keep, tolerance, iterations)
    return task.derivatives()


def project_vjp(
    model: Model,
    constraints: Sequence[Constraint],
    q: ArrayLike,
    v: ArrayLike | None,
    w_q: ArrayLike | None,
    w_v: ArrayLike | None = None,
    *,
    t: ArrayLike = 0.0,
    keep: Iterable[str] = (),
    tolerance: float = _TOLERANCE,
    iterations: int = _ITERATIONS,
) -> ProjectVJP:
    """Exact gradients of w_q . q1 + w_v . v1, of the state that `project` returns.

    With the gradients by q0 and v0 that `adjoint` gives for a trajectory from q1, v1 as weights, these are gradients of
    its loss in which the start moves with the constraints.

    Parameters
    ----------
    model : Model
    constraints : sequence of Constraint
    q : (..., nq) array_like
        Configurations.
    v : (..., nv) array_like or None
        Velocities.
    w_q, w_v : (..., nv) array_like or None
        Cotangents: weights on q1, in its tangent space, and on v1; None for zeros.
    t : (...) array_like
        Time.
    keep : sequence of str
    tolerance : float
    iterations : int
        As for `project`.

    Returns
    -------
    ProjectVJP
        q, v (..., nv); constraints: for each a dict of arrays (..., *shape); inertia (..., nbodies, 10); placement
        (..., nbodies, 6); armature (..., nv).

    Examples
    --------
    >>> pin = ts.Loop("world", "hand", ts.Spherical()).at(model, q)  # the hand stays where it is
    >>> q1, v1 = ts.project(model, [pin], q + 0.01, v)
    >>> motion = ts.simulate(model, q1, v1, steps=10, integrator=ts.BDF2(h=1e-2), constraints=[pin])
    >>> along = ts.adjoint(motion, ts.VelocityTarget())
    >>> start = ts.project_vjp(model, [pin], q + 0.01, v, along.q0, along.v0)
    >>> total = along.constraints[0]["placement_a"] + start.constraints[0]["placement_a"]
    """
    if w_v is not None and v is None:
        raise ValueError("w_v is given without v: there are no projected velocities to weigh; give v")
    task = _Task(model, constraints, q, v, t, keep, tolerance, iterations)
    return task.gradients(w_q, w_v)


def kept_velocities(model: Model, keep: Iterable[str]) -> NDArray[np.bool_]:
    """Mask (nv,) of the velocities of joints that do not move."""
    if isinstance(keep, str) or not isinstance(keep, Iterable):
        hint = f"; did you mean keep=[{keep!r}]?" if isinstance(keep, str) else ""
        raise TypeError(f"keep must be a sequence of names of joints, got {keep!r}{hint}")
    out = np.zeros(model.nv, np.bool_)
    for name in keep:
        if not isinstance(name, str):
            raise TypeError(f"keep must have names of joints, got {name!r}")
        out[model._velocities(name, "keep")] = True
    return out


@dataclass(frozen=True, eq=False)
class _Velocities:
    """The equations M x + G^T kappa = 0, G v1 + dg/dt = 0, x = v1 - v, at a solution."""

    M: FloatArray
    root: FloatArray
    G: FloatArray
    factor: Factor
    x: FloatArray
    kappa: FloatArray


_MASS = output_bits(InverseDynamicsVJP._fields, ("q", "inertia", "placement", "armature"))


def _lifted(factor: Factor, root: FloatArray, b: FloatArray, c: FloatArray) -> FloatArray:
    """Solutions of `Factor.solve`, given and returned in the free velocities."""
    return np.asarray(np.swapaxes(root, -1, -2) @ factor.solve(root @ b, c))


class _Task:
    """A projection of L states: its inputs, its results, and their derivatives."""

    def __init__(
        self,
        model: Model,
        constraints: Sequence[Constraint],
        q: ArrayLike,
        v: ArrayLike | None,
        t: ArrayLike,
        keep: Iterable[str],
        tolerance: float,
        iterations: int,
    ) -> None:
        self.model, self.compiled = require_model(model), compile_constraints(model, constraints)
        self.held = kept_velocities(model, keep)
        self.free = np.flatnonzero(~self.held)
        if not isinstance(iterations, (int, np.integer)) or isinstance(iterations, bool) or iterations < 1:
            raise ValueError(f"iterations is {iterations!r}, expected an integer of at least 1")
        if not 0 < tolerance < 1:
            raise ValueError(f"tolerance is {tolerance!r}, expected a number between 0 and 1")
        require_finite(q=q, v=v, t=t)
        g, _, _ = _core.constraint_errors(model, q, v, t, None, self.compiled.options, None, 1)  # checks shapes
        self.shape = g.shape[:-1]
        self.t = self._states(t, ())
        self.q, self.v = self._states(q, (model.nq,)), None if v is None else self._states(v, (model.nv,))
        self.nearest = Nearest(
            model, self.compiled, self.q, self.t, self.free, bool(self.shape), float(tolerance), int(iterations)
        )
        self._require_derivatives()
        self.flat_q = self.nearest.solve() if model.nv else self._unmoved(g.reshape(-1, g.shape[-1]), tolerance)
        self.flat_v: FloatArray | None = None
        if self.v is not None:
            self.velocities = self._project_velocities(self.v)
            self.flat_v = self.v + self.velocities.x

    def _states(self, x: ArrayLike, shape: tuple[int, ...]) -> FloatArray:
        """An input as (L, *shape)."""
        wide = np.broadcast_to(np.asarray(x, np.float64), (*self.shape, *shape))
        return np.ascontiguousarray(wide.reshape((prod(self.shape), *shape)))

    def _require_derivatives(self) -> None:
        """Rejects states at which a row has no derivative, as the distance of points that coincide."""
        G = np.asarray(
            _core.constraint_jacobian(self.model, self.q, None, self.t, None, self.compiled.options, None, 1)
        )
        bad = ~np.isfinite(G).all(axis=-1)
        if bad.any():
            i, row = (int(k) for k in np.argwhere(bad)[0])
            where = f" in state {i} of the batch (counted flat)" if self.shape else ""
            name = self.compiled.row_names[row]
            raise ConstraintError(
                f"{name!r} has no derivative at q{where}: points of a distance coincide, or it is not finite; start "
                "from another configuration, or use a Loop by a Spherical joint for a distance of zero",
                [name],
            )

    def _unmoved(self, g: FloatArray, tolerance: float) -> FloatArray:
        """The configurations of a model without velocities, if they satisfy the constraints."""
        bad = np.abs(g) > tolerance
        if bad.any():
            name = self.compiled.row_names[int(np.argwhere(bad)[0][1])]
            raise ConvergenceError(f"{name!r} stays open by {np.abs(g[bad]).max():.3g}: the model cannot move")
        return self.q

    def _shaped(self, x: FloatArray) -> FloatArray:
        """An output (L, ...) in the shape of the batch."""
        return np.asarray(x.reshape((*self.shape, *x.shape[1:])))

    @property
    def q1(self) -> FloatArray:
        """The configurations."""
        return self._shaped(self.flat_q)

    @property
    def v1(self) -> FloatArray | None:
        """The velocities, if any."""
        return None if self.flat_v is None else self._shaped(self.flat_v)

    def _rates(self, v: FloatArray) -> FloatArray:
        """dg/dt at q1."""
        _, gdot, _ = _core.constraint_errors(self.model, self.flat_q, v, self.t, None, self.compiled.options, None, 1)
        return np.asarray(gdot)

    def _project_velocities(self, v: FloatArray) -> _Velocities:
        model, free = self.model, self.free
        M = np.asarray(_core.mass_matrix(model, self.flat_q, None, 1))
        root = roots(M, model, free, bool(self.shape))
        G = np.asarray(
            _core.constraint_jacobian(model, self.flat_q, None, self.t, None, self.compiled.options, None, 1)
        )
        factor = Factor(G[:, :, free] @ np.swapaxes(root, -1, -2))
        x, rates = np.zeros_like(v), self._rates(v)
        for _ in range(2):  # the second time for rounding
            y = factor.normal(-rates[..., None])
            x[:, free] += (np.swapaxes(root, -1, -2) @ y)[..., 0]
            rates = self._rates(v + x)
        self._refuse(v, rates)
        return _Velocities(M, root, G, factor, x, factor.multipliers(-whitened(root, x[:, free])))

    def _refuse(self, v: FloatArray, rates: FloatArray) -> None:
        """Rejects rates of rows that remain."""
        speed = (1.0 + np.abs(v).max(axis=-1, initial=0.0)) * self.nearest.reach
        bad = np.abs(rates) > _CONTRADICTION * speed[:, None]
        if not bad.any():
            return
        i = int(np.flatnonzero(bad.any(axis=-1))[0])
        row = int(np.argmax(np.abs(rates[i])))
        where = f" in state {i} of the batch (counted flat)" if self.shape else ""
        names = self.compiled.row_names
        kept = " while the joints in keep= keep theirs" if self.held.any() else ""
        raise ConstraintError(
            f"no velocities satisfy the constraints{where}{kept}: {names[row]!r} moves at {abs(rates[i, row]):.3g} "
            "(dg/dt), because rows contradict each other there or the mechanism is at a dead point; "
            + ("keep fewer joints, " if kept else "")
            + "look at prescribed motions, or start elsewhere",
            rows=[names[k] for k in np.flatnonzero(bad[i])],
        )

    # ---- derivatives

    def _terms(self) -> Terms:
        """The equations at q1, where the nearest configuration is differentiable."""
        self.nearest_terms = terms = Terms(self.nearest, self.flat_q, np.arange(len(self.q)))
        flat = np.abs(terms.factor.curvatures).min(axis=-1, initial=1.0) < _FLAT
        if flat.any():
            i = int(np.flatnonzero(flat)[0])
            where = f" of state {i} of the batch (counted flat)" if self.shape else ""
            raise ConstraintError(
                f"the projection{where} has no derivative: other configurations nearby are as near; start nearer to "
                "the constraints"
            )
        return terms

    def _transport(self, terms: Terms) -> FloatArray:
        """What a displacement of q does to q1, with the same xi."""
        return self.nearest.retraction.transport(terms.xi)

    def _inertial(self, q: FloatArray, x: FloatArray) -> FloatArray:
        """d(M x)/dq (L, nv, nv)."""
        rest = np.zeros(self.model.nv)
        found = _core.inverse_dynamics_derivatives(self.model._weightless, q, rest, x, None, {}, None, 1)
        return np.asarray(found[0])

    def _by_parameters(
        self, n: int, v: FloatArray | None, w_g: FloatArray | None, w_gdot: FloatArray | None
    ) -> FloatArray:
        """Gradients (L, n, P) of w_g.g + w_gdot.gdot at q1 by the parameters, for n weights (L, n, rows)."""
        t, q = (np.repeat(x[:, None], n, axis=1) for x in (self.t, self.flat_q))
        found = _core.constraint_vjp(self.model, q, v, t, None, w_g, w_gdot, None, self.compiled.options, None, 1)
        return np.asarray(found[4])

    def derivatives(self) -> ProjectDerivatives:
        """As `project_derivatives` describes them."""
        terms, free, held, nv = self._terms(), self.free, self.held, self.model.nv
        L, P = len(self.q), self.compiled.size
        J = np.broadcast_to(np.eye(nv), (L, nv, nv)) if terms.J is None else terms.J
        # (M + C) J^-1 A - d(M xi)/dq on the right, and what kept joints do, whose displacements are given
        rest = terms.metric
        if terms.J is not None:
            rest = np.asarray(terms.metric @ np.linalg.solve(terms.J, self._transport(terms)))
        right = (rest - self._inertial(self.q, terms.xi))[:, free]
        right[:, :, held] -= terms.H[:, free][:, :, held]
        c = np.zeros((L, terms.G.shape[1], nv))
        c[:, :, held] = -terms.G[:, :, held]
        z = np.zeros((L, nv, nv))
        z[:, held, held] = 1.0
        z[:, free] = _lifted(terms.factor, terms.root, right, c)
        dq_dq = J @ z
        # parameters
        eye = np.eye(self.compiled.rows)[self.nearest.rows.of]
        g_p = self._by_parameters(len(eye), None, np.broadcast_to(eye, (L, *eye.shape)), None)
        by = np.swapaxes(J, -1, -2) @ self._turning(self.nearest.rows.whole(terms.lam))
        dq_dp = np.zeros((L, nv, P))
        dq_dp[:, free] = _lifted(terms.factor, terms.root, -by[:, free], -g_p)
        dq_dp = J @ dq_dp
        by_q = self._by_name(dq_dp)
        if self.flat_v is None:
            return ProjectDerivatives(self.q1, None, self._shaped(dq_dq), None, None, by_q, None)
        at = self.velocities
        dgdot_dq, _, _ = _core.constraint_derivatives(
            self.model, self.flat_q, self.flat_v, self.t, None, self.compiled.options, None, 1
        )
        K = _core.constraint_stiffness(self.model, self.flat_q, at.kappa, self.t, None, self.compiled.options, None, 1)
        turned = self._inertial(self.flat_q, at.x) + K
        explicit = np.zeros((L, nv, nv))
        explicit[:, free] = _lifted(at.factor, at.root, -turned[:, free], -np.asarray(dgdot_dq))
        dv_dv, right, c = np.zeros((L, nv, nv)), np.zeros((L, len(free), nv)), np.zeros_like(at.G)
        dv_dv[:, held, held] = 1.0
        right[:, :, free] = at.M[:, free[:, None], free]
        c[:, :, held] = -at.G[:, :, held]
        dv_dv[:, free] = _lifted(at.factor, at.root, right, c)
        eye = np.broadcast_to(np.eye(self.compiled.rows), (L, self.compiled.rows, self.compiled.rows))
        velocity = np.repeat(self.flat_v[:, None], self.compiled.rows, axis=1)
        rate_p = self._by_parameters(self.compiled.rows, velocity, None, eye)
        dv_dp = explicit @ dq_dp
        dv_dp[:, free] += _lifted(at.factor, at.root, -self._turning(at.kappa)[:, free], -rate_p)
        return ProjectDerivatives(
            self.q1, self.v1, self._shaped(dq_dq), self._shaped(explicit @ dq_dq), self._shaped(dv_dv), by_q,
            self._by_name(dv_dp),
        )  # fmt: skip

    def _turning(self, multipliers: FloatArray) -> FloatArray:
        """d(G^T lambda)/dp (L, nv, P) by the parameters: of lambda.gdot with unit velocities, without dg/dt."""
        L, nv = len(multipliers), self.model.nv
        unit = np.concatenate([np.eye(nv), np.zeros((1, nv))])
        v = np.ascontiguousarray(np.broadcast_to(unit, (L, nv + 1, nv)))
        weights = np.repeat(multipliers[:, None], nv + 1, axis=1)
        found = self._by_parameters(nv + 1, v, None, weights)
        return np.asarray(found[:, :-1] - found[:, -1:])

    def _by_name(self, flat: FloatArray) -> tuple[dict[str, FloatArray], ...]:
        return self.compiled.unflatten(self._shaped(flat))

    def gradients(self, w_q: ArrayLike | None, w_v: ArrayLike | None) -> ProjectVJP:
        """As `project_vjp` describes them."""
        model, free, held, L, nv = self.model, self.free, self.held, len(self.q), self.model.nv
        weights = [self._weights(w, name) for w, name in ((w_q, "w_q"), (w_v, "w_v"))]
        by_q1, w = weights
        parameters = np.zeros((L, self.compiled.size))
        placement = np.zeros((L, model.nbodies, 6))
        of_mass = np.zeros((L, model.nbodies, 10)), placement, np.zeros((L, model.tree.nv))
        by_v: FloatArray | None = None
        if self.flat_v is not None:
            at = self.velocities
            alpha, beta = np.zeros((L, nv)), np.zeros((L, self.compiled.rows))
            y, beta = at.factor.solve_transposed(np.einsum("lij,lj->li", at.root, w[:, free]))
            alpha[:, free] = np.einsum("lij,li->lj", at.root, y)
            by_v = np.zeros((L, nv))
            by_v[:, free] = np.einsum("lij,lj->li", at.M[:, free[:, None], free], alpha[:, free])
            by_v[:, held] = w[:, held] - np.einsum("lij,li->lj", at.G[:, :, held], beta)
            by_q1 = by_q1 - self._of_mass(self.flat_q, at.x, alpha, of_mass)
            by_q1 -= self._of_rows(alpha, at.kappa, None, parameters, placement)
            by_q1 -= self._of_rows(self.flat_v, None, beta, parameters, placement)
        terms = self._terms()
        weight = by_q1 if terms.J is None else np.einsum("lij,li->lj", terms.J, by_q1)
        y, nu = terms.factor.solve_transposed(np.einsum("lij,lj->li", terms.root, weight[:, free]))
        beta = np.zeros((L, nv))
        beta[:, free] = np.einsum("lij,li->lj", terms.root, y)
        by_q = np.einsum("lij,li->lj", terms.metric, beta)
        mu = beta
        if terms.J is not None:
            back = np.linalg.solve(np.swapaxes(terms.J, -1, -2), by_q[..., None])
            by_q = np.asarray((np.swapaxes(self._transport(terms), -1, -2) @ back)[..., 0])
            mu = np.einsum("lij,lj->li", terms.J, beta)
        by_q = by_q - self._of_mass(self.q, terms.xi, beta, of_mass)
        by_q[:, held] += weight[:, held] - np.einsum("lij,li->lj", terms.H[:, :, held], beta)
        by_q[:, held] -= np.einsum("lij,li->lj", terms.G[:, :, held], nu)
        whole = self.nearest.rows.whole
        self._of_rows(mu, whole(terms.lam), None, parameters, placement)
        self._of_values(whole(nu), parameters, placement)
        return ProjectVJP(
            self._shaped(by_q), None if by_v is None else self._shaped(by_v), self._by_name(parameters),
            *(self._shaped(x) for x in of_mass),
        )  # fmt: skip

    def _weights(self, w: ArrayLike | None, name: str) -> FloatArray:
        nv = self.model.nv
        if w is None:
            return np.zeros((len(self.q), nv))
        require_finite(**{name: w})
        if np.shape(w)[-1:] != (nv,):
            raise ValueError(f"{name} has shape {np.shape(w)}, expected (..., {nv}): model.nv is {nv}")
        try:
            return self._states(w, (nv,))
        except ValueError:
            raise ValueError(f"{name} has shape {np.shape(w)}, expected {(*self.shape, nv)}") from None

    def _of_mass(
        self, q: FloatArray, x: FloatArray, w: FloatArray, parameters: tuple[FloatArray, FloatArray, FloatArray]
    ) -> FloatArray:
        """The gradient of w.M(q) x by q; subtracts those by inertias, placements and armature."""
        found = _core.inverse_dynamics_vjp(
            self.model._weightless, q, np.zeros(self.model.nv), x, w, None, {"wanted": _MASS}, None, 1
        )
        for total, part in zip(parameters, (found.inertia, found.placement, found.armature), strict=True):
            total -= part
        return np.asarray(found.q)

    def _of_rows(
        self, v: FloatArray, still: FloatArray | None, moving: FloatArray | None, parameters: FloatArray,
        placement: FloatArray,
    ) -> FloatArray:  # fmt: skip
        """The gradient by q1 of still.(G v), or of moving.(G v + dg/dt); subtracts those by parameters and
        placements."""
        w = moving if still is None else still
        found = _core.constraint_vjp(
            self.model, self.flat_q, v, self.t, None, None, w, None, self.compiled.options, None, 1
        )
        q, _, _, of_placement, of_parameters = (np.array(x) for x in found)
        if still is not None:
            rest = _core.constraint_vjp(
                self.model, self.flat_q, None, self.t, None, None, w, None, self.compiled.options, None, 1
            )
            q, of_placement, of_parameters = q - rest[0], of_placement - rest[3], of_parameters - rest[4]
        parameters -= of_parameters
        placement -= of_placement
        return np.asarray(q)

    def _of_values(self, w: FloatArray, parameters: FloatArray, placement: FloatArray) -> None:
        """Subtracts the gradients of w.g by parameters and placements."""
        found = _core.constraint_vjp(
            self.model, self.flat_q, None, self.t, None, w, None, None, self.compiled.options, None, 1
        )
        placement -= found[3]
        parameters -= found[4]
