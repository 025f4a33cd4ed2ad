"""The nearest configuration that satisfies constraints, in the metric of the mass matrix.

The minimum of xi.M(q) xi / 2 with g(q (+) xi) = 0, over the velocities that are free. Every iterate is closed: a
Newton step along the constraints, of the Lagrangian with its exact Hessian, then Gauss-Newton steps back to them
(`torsor.constraints.closing`). docs/derivations/constraints.md, section 7.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from torsor import _core
from torsor._errors import ConvergenceError, SingularMassMatrixError
from torsor.constraints.closing import Closing, Residuals, reach_of
from torsor.constraints.constraint import CompiledConstraints
from torsor.constraints.retraction import Retraction
from torsor.model import Model

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from torsor._typing import FloatArray

    Indices = NDArray[np.int64]

_RANK = 1e-7  # singular values below this of the largest count as zero: rows that depend on others
_CURVATURE = 1e-4  # of the distance along the constraints, below which a step does not rely on it
_ATTEMPTS = 4
_KICK = 0.4  # radians by which joints are moved before a second attempt


def roots(M: FloatArray, model: Model, free: Indices, batch: bool) -> FloatArray:
    """The inverses of the Cholesky factors of the mass matrices (L, nv, nv), of the free velocities."""
    M = M[:, free[:, None], free]
    try:
        C = np.linalg.cholesky(M)
        pivots = np.diagonal(C, axis1=-2, axis2=-1) ** 2
        singular = ~(pivots > 1e-13 * np.diagonal(M, axis1=-2, axis2=-1)).all(axis=-1)
    except np.linalg.LinAlgError:
        singular = np.ones(len(M), np.bool_)
    for i in np.flatnonzero(singular).tolist():
        k = _dependent(M[i])
        if k is not None:
            name = model._owners[free[k]]
            where = f" in state {i} of the batch (counted flat)" if batch else ""
            raise SingularMassMatrixError(
                f"the mass matrix is singular at joint {name!r}{where}: some motion of this joint moves no mass, and "
                "distances are measured by mass; give the bodies beyond it inertia, leave the singularity of its "
                "coordinates, or name it in keep="
            )
    return np.asarray(np.linalg.inv(C))


def whitened(root: FloatArray, x: FloatArray) -> FloatArray:
    """Velocities or displacements (L, n) in coordinates in which the metric L L^T is the identity: L^T x."""
    return np.asarray(np.linalg.solve(np.swapaxes(root, -1, -2), x[..., None])[..., 0], np.float64)


def _dependent(M: FloatArray) -> int | None:
    """The first row of a semidefinite matrix that depends on those before it; near that, the row that does most."""
    A, pivots = M.copy(), np.ones(len(M))
    for k in range(len(A)):
        if not A[k, k] > 1e-13 * M[k, k]:
            return k
        pivots[k] = A[k, k] / M[k, k]
        A[k + 1 :, k + 1 :] -= np.outer(A[k + 1 :, k], A[k, k + 1 :]) / A[k, k]
    try:
        np.linalg.cholesky(M)
    except np.linalg.LinAlgError:
        return int(np.argmin(pivots))
    return None


class Factor:
    """Solutions of [[H, A^T], [A, 0]], A (L, m, n) in coordinates in which the metric is the identity; H is the
    identity until `bend` sets it. Rows that depend on others count in the sense of least squares."""

    def __init__(self, A: FloatArray, rank: float = _RANK) -> None:
        L, m, n = A.shape
        effect = np.sqrt((A * A).sum(axis=-1))
        largest = np.maximum(effect.max(axis=-1, initial=0.0, keepdims=True), 1e-150)
        self.w = 1.0 / np.maximum(effect, 0.05 * largest)
        U, s, self.Vt = np.linalg.svd(self.w[:, :, None] * A, full_matrices=True)
        k = min(m, n)
        self.singular_values = s
        normal = s > rank * s.max(axis=-1, initial=0.0, keepdims=True)
        self.U, self.inverse = U[:, :, :k], np.where(normal, 1.0 / np.where(normal, s, 1.0), 0.0)
        self.tangent = np.ones((L, n), np.bool_)  # which rows of Vt are along the constraints
        self.tangent[:, :k] = ~normal
        self.rank = n - self.tangent.sum(axis=-1)
        self.H: FloatArray | None = None

    def bend(self, H: FloatArray) -> None:
        """Sets H (L, n, n), symmetric."""
        both = self.tangent[:, :, None] & self.tangent[:, None, :]
        reduced = self.Vt @ H @ np.swapaxes(self.Vt, -1, -2)
        self.H = H
        self.curvatures, self.axes = np.linalg.eigh(np.where(both, reduced, np.eye(H.shape[-1])))

    def normal(self, c: FloatArray) -> FloatArray:
        """The shortest y (L, n, k) with A y = c (L, m, k)."""
        k = self.U.shape[-1]
        return np.asarray(
            np.swapaxes(self.Vt[:, :k], -1, -2)
            @ (self.inverse[..., None] * (np.swapaxes(self.U, -1, -2) @ (self.w[..., None] * c)))
        )

    def multipliers(self, r: FloatArray) -> FloatArray:
        """Multipliers (L, m) with A^T lambda = r, the part of r (L, n) along the constraints left out."""
        k = self.U.shape[-1]
        return np.asarray(
            self.w * np.einsum("lik,lk->li", self.U, self.inverse * np.einsum("lkj,lj->lk", self.Vt[:, :k], r))
        )

    def along(self, b: FloatArray, descend: bool = False) -> FloatArray:
        """y (L, n, k) along the constraints with H y = b (L, n, k) there. With `descend`, curvatures that are negative
        or almost zero are replaced, so that y is a direction of descent."""
        turned = np.where(self.tangent[..., None], self.Vt @ b, 0.0)
        if self.H is not None:
            by = self.curvatures
            if descend:
                by = np.where(by > _CURVATURE, by, np.maximum(np.abs(by), 0.1))
            turned = self.axes @ ((np.swapaxes(self.axes, -1, -2) @ turned) / by[..., None])
            turned = np.where(self.tangent[..., None], turned, 0.0)
        return np.asarray(np.swapaxes(self.Vt, -1, -2) @ turned)

    def solve(self, b: FloatArray, c: FloatArray) -> FloatArray:
        """y (L, n, k) of H y + A^T lambda = b (L, n, k), A y = c (L, m, k)."""
        y = self.normal(c)
        return np.asarray(y + self.along(b - (y if self.H is None else self.H @ y)))

    def solve_transposed(self, w: FloatArray) -> tuple[FloatArray, FloatArray]:
        """(y, lambda) of H y + A^T lambda = w (L, n), A y = 0."""
        y = self.along(w[..., None])
        left = w - (y if self.H is None else self.H @ y)[..., 0]
        return y[..., 0], self.multipliers(left)


class Nearest:
    """Configurations (L, nq) at times (L,), and the nearest to them that satisfy constraints."""

    def __init__(
        self,
        model: Model,
        compiled: CompiledConstraints,
        q: FloatArray,
        t: FloatArray,
        free: Indices,
        batch: bool,
        tolerance: float,
        iterations: int,
    ) -> None:
        self.model, self.q, self.t, self.free, self.batch = model, q, t, free, batch
        self.rows, self.retraction = Residuals(model, compiled), Retraction(model)
        self.tolerance, self.iterations = tolerance, iterations
        self.reach = reach_of(model, q)
        self.M = np.asarray(_core.mass_matrix(model, q, None, 1))
        self.root = roots(self.M, model, free, batch)

    def solve(self) -> FloatArray:
        """The nearest configurations. Raises ConvergenceError where there is none to be found."""
        q, bad = self.attempt()
        if len(bad):
            self._fail(bad)
        return q

    def attempt(self) -> tuple[FloatArray, list[tuple[int, FloatArray]]]:
        """The nearest configurations, and the states without one: their numbers and the rows that stay open; NaN if
        these close, but the nearest configuration was not found."""
        q = np.asarray(_core.plus(self.model, self.q, np.zeros(self.model.nv), None, 1))
        g = self.rows.values(q, self.t)
        closed = np.abs(g).max(axis=-1, initial=0.0) <= self.tolerance * self.reach
        if closed.any() and self.rows.turns:
            closed &= ~self.rows.flipped(q, self.t)
        todo = np.flatnonzero(~closed)
        if not len(todo):
            return q, []
        self.closing = Closing(self.rows, self.q, self.t, self.free, self.root, self.reach)
        q[todo], left, ok = self._closed(q[todo], todo)
        bad = [(int(i), row) for i, row in zip(todo[~ok], left[~ok], strict=True)]
        todo = todo[ok]
        if len(todo):
            q[todo], ok = self._slid(q[todo], todo)
            bad += [(int(i), np.full(left.shape[1], np.nan)) for i in todo[~ok]]
        return q, bad

    def _closed(self, q: FloatArray, of: Indices) -> tuple[FloatArray, FloatArray, NDArray[np.bool_]]:
        """Closed configurations near q (n, nq), the rows that they leave open, and whether they are closed. A second
        attempt begins elsewhere, so that it is not stuck where rows have no effect to first order."""
        start = q
        q, left, ok = self.closing.close(q, of, self.tolerance, self.iterations)
        ok &= ~self.rows.flipped(q, self.t[of])
        size = np.where(self.closing.rotation > 0, 1.0, 0.0)[None] + (self.closing.rotation == 0) * self.reach[of, None]
        for k in range(1, _ATTEMPTS):
            if ok.all():
                break
            again = np.flatnonzero(~ok)
            kick = np.random.default_rng(k).standard_normal(len(self.free)) * _KICK * k
            moved = self.closing.moved(start[again], kick * size[again])
            new, open_, fine = self.closing.close(moved, of[again], self.tolerance, self.iterations)
            fine &= ~self.rows.flipped(new, self.t[of[again]])
            better = fine | (np.abs(open_).max(axis=-1) < np.abs(left[again]).max(axis=-1))
            q[again[better]], left[again[better]] = new[better], open_[better]
            ok[again[fine]] = True
        return q, left, ok

    def _slid(self, q: FloatArray, of: Indices) -> tuple[FloatArray, NDArray[np.bool_]]:
        """The nearest closed configurations from closed ones (n, nq), and whether they are."""
        q, n = q.copy(), len(q)
        ok = np.zeros(n, np.bool_)
        todo = np.arange(n)
        length = np.ones(n)  # of the next step
        for _ in range(self.iterations):
            at = of[todo]
            terms = Terms(self, q[todo], at)
            y, xi = terms.y, terms.xi
            step = terms.factor.along(-y[..., None], descend=True)[..., 0]
            size, scale = np.sqrt((step * step).sum(-1)), np.sqrt(self.closing.unit[at] + (y * y).sum(-1))
            done = (size <= 1e-14 * scale) | (length[todo] < 1e-4) & (size <= 1e-9 * scale)
            ok[todo[done]] = True
            todo, at, y, xi, step, size, scale = (x[~done] for x in (todo, at, y, xi, step, size, scale))
            todo_ok = length[todo] > 1e-9
            todo, at, y, xi, step, size, scale = (x[todo_ok] for x in (todo, at, y, xi, step, size, scale))
            if not len(todo):
                break
            d = self.closing.limited(np.einsum("lij,li->lj", self.root[at], step)) * length[todo, None]
            trial = self.closing.moved(self.q[at], xi[:, self.free] + d)
            trial, _, closed = self.closing.close(trial, at, self.tolerance, self.iterations)
            moved = np.asarray(_core.minus(self.model, trial, self.q[at], None, 1))
            moved = whitened(self.root[at], moved[:, self.free])
            # Distances decrease; where they are the same to rounding, the step itself must be small.
            before, after = (y * y).sum(-1), (moved * moved).sum(-1)
            better = closed & ((after < before) | (size <= 1e-6 * scale) & (after <= before * (1 + 1e-6) + 1e-300))
            better &= ~self.rows.flipped(trial, self.t[at])
            q[todo[better]] = trial[better]
            # After a step this short the next one is its square.
            last = better & (size <= 1e-9 * scale) & (length[todo] == 1.0)
            ok[todo[last]] = True
            length[todo] = np.where(better, 1.0, 0.25 * length[todo])
            todo = todo[~last]
            if not len(todo):
                break
        return q, ok

    def _fail(self, bad: list[tuple[int, FloatArray]]) -> None:
        i, left = bad[0]
        where = f" in state {i} of the batch (counted flat)" if self.batch else ""
        index = i if self.batch else None
        if np.isnan(left).any():
            raise ConvergenceError(
                f"the constraints can be satisfied, but the nearest configuration was not found{where}; start nearer "
                "to a closed configuration, or allow more iterations",
                index=index,
            )
        names = [self.rows.compiled.row_names[k] for k in self.rows.of]
        row = int(np.argmax(np.abs(left)))
        held = np.setdiff1d(np.arange(self.model.nv), self.free)
        miss = f"{names[row]!r} stays open by {abs(left[row]):.3g}{where}"
        if len(held):
            alone = Nearest(
                self.model, self.rows.compiled, self.q[i : i + 1], self.t[i : i + 1], np.arange(self.model.nv), False,
                self.tolerance, self.iterations,
            )  # fmt: skip
            if not alone.attempt()[1]:
                kept = list(dict.fromkeys(self.model._owners[k] for k in held))
                raise ConvergenceError(
                    f"the constraints contradict keep=: {miss} while {', '.join(map(repr, kept))} "
                    f"{'do' if len(kept) > 1 else 'does'} not move, and closes without keep=; keep fewer joints, or "
                    "give these other coordinates",
                    index=index,
                )
        raise ConvergenceError(
            f"the constraints could not be satisfied: {miss}; start nearer to a closed configuration, and see whether "
            "lengths and placements allow one",
            index=index,
        )


class Terms:
    """The equations M xi + J^T G^T lambda = 0, g = 0 at a solution, or near one: their derivatives by xi."""

    def __init__(self, of: Nearest, q: FloatArray, states: Indices) -> None:
        model, free, retraction = of.model, of.free, of.retraction
        self.q, self.t, self.M, self.root = q, of.t[states], of.M[states], of.root[states]
        self.xi = np.asarray(_core.minus(model, q, of.q[states], None, 1))
        held = np.ones(model.nv, np.bool_)
        held[free] = False
        self.xi[:, held] = 0.0
        self.y = whitened(self.root, self.xi[:, free])
        G = of.rows.jacobian(q, self.t)
        self.J = retraction.jacobian(self.xi) if retraction.groups else None
        self.G = G if self.J is None else G @ self.J  # by xi
        A = self.G[:, :, free] @ np.swapaxes(self.root, -1, -2)
        self.factor = Factor(A)
        self.lam = self.factor.multipliers(-self.y)
        K = of.rows.stiffness(q, self.t, self.lam)
        if self.J is None:
            self.metric, self.H = self.M, self.M + K
        else:
            w = np.einsum("lij,li->lj", G, self.lam)
            self.metric = self.M + retraction.curvature(self.xi, w)
            self.H = self.metric + np.swapaxes(self.J, -1, -2) @ K @ self.J
        inner = self.root @ self.H[:, free[:, None], free] @ np.swapaxes(self.root, -1, -2)
        self.factor.bend((inner + np.swapaxes(inner, -1, -2)) / 2)
