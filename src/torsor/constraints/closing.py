"""Configurations that satisfy constraints, from far: damped Gauss-Newton steps.

Rows of orientation reach farther as angles. In place of the linear rows of a weld stand the components of log(R), in
place of those of a hinge the rotation (angle / sine)(a_z x b_z) between its axes, in place of the cosine between the
axes of a universal joint their angle. These have the same zeros, without those of flipped closures.
docs/derivations/constraints.md, section 7.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from torsor import _core, spatial
from torsor.constraints.constraint import CompiledConstraints
from torsor.constraints.twists import TwistConstraint
from torsor.joints import Composite, CustomJoint, Joint, SphericalEuler, SphericalExp, SplineCurve, SplineSurface
from torsor.model import Model

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from torsor._typing import FloatArray

_RADIAN = 1.0  # the largest rotation of a joint in one step
_TINY = 1e-7  # singular values below this of the largest count as zero
_LEVER = 0.05  # the smallest effect of a row, of the largest of all rows, to which it is scaled


@dataclass(frozen=True)
class _Turn:
    """Rows of orientation of a pair: bodies, rotations of the markers in them, and the rows."""

    kind: str  # "full", "hinge" or "universal"
    a: int
    b: int
    A: FloatArray
    B: FloatArray
    motion: Any  # of a's marker
    rows: NDArray[np.int64]
    angle: float  # between the axes of a universal joint


def _turns(compiled: CompiledConstraints, model: Model, of: NDArray[np.int64]) -> list[_Turn]:
    """Rows of orientation, counted among the rows `of`."""
    out = []
    for i, part in compiled.parts:
        if part[0] != "pair":
            continue
        _, (a, on_a), (b, on_b), rows, motion = part
        labels = compiled.constraints[i]._labels(model)
        turning = [k for k, label in enumerate(labels) if label.startswith(("axis", "axes", "orientation"))]
        if not turning:
            continue
        kind = {1: "universal", 2: "hinge", 3: "full"}[len(turning)]
        angle = float(np.arccos(rows[turning[0]][2])) if kind == "universal" else 0.0
        A, B = (np.array(on[:9]).reshape(3, 3) for on in (on_a, on_b))
        at = np.searchsorted(of, np.array(turning) + compiled.row_slices[i].start)
        out.append(_Turn(kind, a, b, A, B, motion, at, angle))
    return out


def _rotation_bound(joint: Joint) -> list[float]:
    """How far each velocity of a joint turns it, for steps of at most a radian; 0 for translations."""
    if isinstance(joint, Composite):
        return [x for part in joint.joints for x in _rotation_bound(part)]
    if isinstance(joint, (SphericalEuler, SphericalExp, SplineCurve, SplineSurface, CustomJoint)):
        return [1.0] * joint.nv
    S = np.asarray(joint.S(joint.neutral))
    return [float(x) for x in np.sqrt((S[:3] ** 2).sum(axis=0))]


class Residuals:
    """Rows g(q, t) of constraints at configurations, as they are and as they reach farthest; without rows on velocities
    alone."""

    def __init__(self, model: Model, compiled: CompiledConstraints) -> None:
        self.model, self.compiled = model, compiled
        of = [np.arange(at.start, at.stop) for at, one in zip(compiled.row_slices, compiled.constraints, strict=True)
              if not isinstance(one, TwistConstraint)]  # fmt: skip
        self.of = np.concatenate([np.zeros(0, np.int64), *of])  # the rows among all
        self.all = len(self.of) == compiled.rows
        self.turns = _turns(compiled, model, self.of)
        self.rotation = np.array([x for j in model.joints for x in _rotation_bound(j.joint)])
        if model.couplings:  # of what moves with a coordinate, where that begins
            P = np.abs(model.coupling_jacobian(model.neutral))
            self.rotation = (P * self.rotation[:, None]).max(axis=0, initial=0.0)

    def values(self, q: FloatArray, t: FloatArray) -> FloatArray:
        """g (L, m)."""
        g, _, _ = _core.constraint_errors(self.model, q, None, t, None, self.compiled.options, None, 1)
        return np.asarray(g if self.all else g[:, self.of])

    def jacobian(self, q: FloatArray, t: FloatArray) -> FloatArray:
        """G (L, m, nv)."""
        G = _core.constraint_jacobian(self.model, q, None, t, None, self.compiled.options, None, 1)
        return np.asarray(G if self.all else G[:, self.of])

    def stiffness(self, q: FloatArray, t: FloatArray, multipliers: FloatArray) -> FloatArray:
        """d(G^T lambda)/dq (L, nv, nv)."""
        whole = self.whole(multipliers)
        return np.asarray(_core.constraint_stiffness(self.model, q, whole, t, None, self.compiled.options, None, 1))

    def whole(self, multipliers: FloatArray) -> FloatArray:
        """Multipliers of these rows as multipliers of all, (L, rows)."""
        if self.all:
            return multipliers
        out = np.zeros((len(multipliers), self.compiled.rows))
        out[:, self.of] = multipliers
        return out

    def far(self, q: FloatArray, t: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Rows g (L, m), the same with angles, and the Jacobian (L, m, nv) of the latter."""
        g, E = self.values(q, t), self.jacobian(q, t)
        if not self.turns:
            return g, g, E
        e = g.copy()
        T, J = _core.body_poses(self.model, q, None, 1), _core.maximal_jacobian(self.model, q, None, 1)
        for turn in self.turns:
            A, B = self._axes(turn, T, t)
            omega = _angular(turn.b, T, J) - _angular(turn.a, T, J)
            value, rows = _angles(turn, A, B)
            e[:, turn.rows] = value
            E[:, turn.rows] = rows @ omega
        return g, e, E

    def flipped(self, q: FloatArray, t: FloatArray) -> NDArray[np.bool_]:
        """Whether a constraint is closed half a turn from what it means: (L,)."""
        out = np.zeros(len(q), np.bool_)
        if not self.turns:
            return out
        T = _core.body_poses(self.model, q, None, 1)
        for turn in self.turns:
            if turn.kind != "universal":
                A, B = self._axes(turn, T, t)
                along = np.einsum("lki,lki->li", A, B)
                out |= along[:, 2] < 0 if turn.kind == "hinge" else (along < 0).any(axis=-1)
        return out

    def _axes(self, turn: _Turn, T: FloatArray, t: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Axes of both markers in the world, as columns."""
        B = turn.B if turn.b < 0 else T[:, turn.b, :3, :3] @ turn.B
        if turn.motion is not None:
            A = np.empty((len(t), 3, 3))
            for time in np.unique(t).tolist():
                A[t == time] = turn.motion(time)[:9].reshape(3, 3)
        else:
            A = turn.A if turn.a < 0 else T[:, turn.a, :3, :3] @ turn.A
        return np.broadcast_to(A, (len(T), 3, 3)), np.broadcast_to(B, (len(T), 3, 3))


def _angular(body: int, T: FloatArray, J: FloatArray) -> FloatArray | float:
    """The Jacobian of the angular velocity of a body in the world: (L, 3, nv)."""
    return 0.0 if body < 0 else T[:, body, :3, :3] @ J[:, 6 * body : 6 * body + 3]


def _angles(turn: _Turn, A: FloatArray, B: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Angles that rows of orientation must close (L, n), and the directions (L, n, 3) about which they turn."""
    if turn.kind == "full":
        At = np.swapaxes(A, -1, -2)
        return spatial.log3(At @ B), At
    if turn.kind == "hinge":
        normal, angle = _between(A[..., 2], B[..., 2], B[..., 0])
        rows = np.swapaxes(B[..., :2], -1, -2)
        return angle[:, None] * (rows @ normal[..., None])[..., 0], rows
    normal, angle = _between(A[..., 0], B[..., 1], B[..., 2])
    return angle[:, None] - turn.angle, normal[:, None, :]


def _between(a: FloatArray, b: FloatArray, other: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The unit vector about which unit vectors a turn to b, and the angle; about `other`, normal to b, where they are
    parallel."""
    x, y = [1, 2, 0], [2, 0, 1]
    normal = a[..., x] * b[..., y] - a[..., y] * b[..., x]
    sine = np.sqrt((normal * normal).sum(-1))
    angle = np.arctan2(sine, (a * b).sum(-1))
    parallel = sine < 1e-150
    sine = np.where(parallel, 1.0, sine)[:, None]
    return np.where(parallel[:, None], other, normal / sine), angle


def reach_of(model: Model, q: FloatArray) -> FloatArray:
    """The numbers (L,) in whose roundings rows are: 1, or the largest coordinate, of bodies too."""
    positions = np.abs(_core.body_poses(model, q, None, 1)[:, :, :3, 3]).max(axis=(-1, -2), initial=0.0)
    return np.asarray(1.0 + np.maximum(positions, np.abs(q).max(axis=-1, initial=0.0)))


class Closing:
    """Gauss-Newton steps of some free velocities, of shortest length in a metric, for L states.

    The damping is Levenberg's, proportional to the squared error: it vanishes fast enough that steps converge
    quadratically, also where rows are redundant at closed configurations alone (Yamashita and Fukushima 2001).
    """

    def __init__(
        self,
        rows: Residuals,
        q: FloatArray,
        t: FloatArray,
        free: NDArray[np.int64],
        root: FloatArray,
        reach: FloatArray,
    ) -> None:
        self.rows, self.t, self.free, self.reach = rows, t, free, reach
        self.root = root  # L^-1 of the metric L L^T of the free velocities, (L, n, n)
        self.rotation = rows.rotation[free]
        # Rows are scaled to the displacement, in the metric, that closes each alone where the projection begins.
        _, _, E = rows.far(q, t)
        effect = np.sqrt((self.whitened(E, slice(None)) ** 2).sum(axis=-1))
        least = np.maximum(_LEVER * effect.max(axis=-1, initial=0.0, keepdims=True), 1e-150)
        self.weights = 1.0 / np.maximum(effect, least)
        self.unit = np.full(len(q), np.inf)  # squared length of a displacement by one unit, on average
        if len(free):
            self.unit = len(free) / (root**2).sum(axis=(-1, -2))

    def whitened(self, E: FloatArray, of: Any) -> FloatArray:
        """Columns of the free velocities, in coordinates in which the metric is the identity."""
        return np.asarray(E[:, :, self.free] @ np.swapaxes(self.root[of], -1, -2))

    def limited(self, step: FloatArray) -> FloatArray:
        """Displacements (L, free), shortened where they turn a joint by more than a radian."""
        turn = np.abs(step * self.rotation).max(axis=-1, initial=0.0)
        return np.asarray(step * np.minimum(1.0, _RADIAN / np.maximum(turn, 1e-300))[:, None])

    def moved(self, q: FloatArray, step: FloatArray) -> FloatArray:
        """Configurations after displacements (L, free) of the free velocities."""
        whole = np.zeros((len(q), self.rows.model.nv))
        whole[:, self.free] = step
        return np.asarray(_core.plus(self.rows.model, q, whole, None, 1))

    def close(
        self, q: FloatArray, of: NDArray[np.int64], tolerance: float, iterations: int
    ) -> tuple[FloatArray, FloatArray, NDArray[np.bool_]]:
        """Closed configurations from q (n, nq) of the states `of`: these, the rows that they leave open (n, m), and
        whether they are closed to the tolerance. Steps go on to rounding."""
        q, n = q.copy(), len(q)
        allowed, floor = tolerance * self.reach[of], 4 * np.finfo(np.float64).eps * self.reach[of]
        left, E = np.zeros((n, self.weights.shape[1])), np.zeros((n, self.weights.shape[1], self.rows.model.nv))
        cost = np.full(n, np.inf)
        damping = np.full(n, 1e-3)
        refused = np.zeros(n, np.int64)
        trial, todo = q.copy(), np.arange(n)
        for _ in range(iterations + 1):
            at = of[todo]
            g, e, jacobian = self.rows.far(trial[todo], self.t[at])
            new = ((self.weights[at] * e) ** 2).sum(axis=-1)
            miss, before = np.abs(g).max(axis=-1, initial=0.0), cost[todo]
            better = new < before
            taken, kept = todo[better], todo[~better]
            q[taken], left[taken], E[taken], cost[taken] = trial[taken], e[better], jacobian[better], new[better]
            damping[taken] = np.maximum(0.1 * damping[taken], 1e-4)
            damping[kept] *= 10.0
            refused[taken] = 0
            refused[kept] += 1
            # At rounding, where steps no longer help; or stuck, where shorter steps do not help either.
            slow = ~(new < 0.25 * before) & (np.abs(left[todo]).max(axis=-1, initial=0.0) <= allowed[todo])
            done = slow | (better & (miss <= floor[todo]) & (new <= before)) & (np.abs(e).max(-1, initial=0.0) < 0.1)
            todo = todo[~(done | (refused[todo] > 12) | ~np.isfinite(cost[todo]))]
            if not len(todo):
                break
            trial[todo] = self._stepped(q[todo], left[todo], E[todo], cost[todo], damping[todo], of[todo])
        return q, left, np.abs(left).max(axis=-1, initial=0.0) <= allowed

    def _stepped(
        self, q: FloatArray, e: FloatArray, E: FloatArray, cost: FloatArray, damping: FloatArray, of: NDArray[np.int64]
    ) -> FloatArray:
        """The next configurations."""
        w = self.weights[of]
        U, s, Vt = np.linalg.svd(w[:, :, None] * self.whitened(E, of), full_matrices=False)
        largest = s.max(axis=-1, initial=0.0, keepdims=True)
        mu = (damping * np.minimum(1.0, cost / self.unit[of]))[:, None] * largest**2
        gain = np.where(s > _TINY * largest, s, 0.0) / np.where(s > _TINY * largest, s * s + mu, 1.0)
        y = -np.einsum("lkj,lk->lj", Vt, gain * np.einsum("lik,li->lk", U, w * e))
        return self.moved(q, self.limited(np.einsum("lij,li->lj", self.root[of], y)))
