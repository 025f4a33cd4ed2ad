"""Inverse kinematics: configurations at which frames and points are where they should be.

The sum of squared errors is minimised by a damped Gauss-Newton method, and by Newton's method with the exact second
derivatives where errors remain, as they do at targets out of reach. Limits hold exactly: every step solves a quadratic
problem with bounds. Constraints of the model hold too, by multipliers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from torsor.constraints.evaluation import constraint_errors, constraint_jacobian
from torsor.costs.point import PointTarget
from torsor.derivatives.kinematics import maximal_jacobian_derivatives, point_hessian
from torsor.kinematics import body_poses, jacobian, place_poses, point_jacobian
from torsor.model import Model, body_of_frame, require_model
from torsor.spatial import SE3, frozen_array, log3, vee

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from torsor._typing import FloatArray

_HOLD = 30.0  # weight of constraints of the model beside that of positions
_ROUNDS = 12  # most updates of the multipliers of these constraints
_FLAT = 1e-10  # gradient, relative to its parts, at which an optimum is reached


class InverseKinematics(NamedTuple):
    """A configuration, and how far it is from the targets.

    Attributes
    ----------
    q : (nq,)
        The configuration.
    converged : bool
        Whether all targets are reached: no error is above the tolerance.
    error : float
        The largest of the errors: distances, and angles in radians.
    errors : dict
        For each target by name of its frame or body (distance, angle); the angle of a point is 0.
    status : {"reached", "optimum", "stopped"}
        "optimum" if the targets are not reached, but no configuration nearby, within the limits, is better;
        "stopped" if neither is known after all iterations.
    iterations : int
    """

    q: FloatArray
    converged: bool
    error: float
    errors: dict[str, tuple[float, float]]
    status: str
    iterations: int


class _Target(NamedTuple):
    name: str  # of the frame or body
    place: int
    point: FloatArray  # in that frame
    position: FloatArray
    rotation: FloatArray | None
    weight: float


def inverse_kinematics(
    model: Model,
    targets: Mapping[str, Any] | Iterable[Any],
    q0: ArrayLike | None = None,
    *,
    limits: bool = True,
    rotation_weight: float = 1.0,
    tolerance: float = 1e-8,
    max_iterations: int = 200,
    restarts: int = 0,
    rng: np.random.Generator | int | None = 0,
) -> InverseKinematics:
    """A configuration at which frames and points are at their targets, or as near as can be.

    It minimises the sum of squared distances and, times `rotation_weight`^2, of squared chords 2 sin(angle / 2), from
    `q0` on. Targets that cannot be reached end in a minimum of that sum. Constraints of the model are kept.

    Parameters
    ----------
    model : Model
    targets : dict, or iterable
        By names of frames or bodies: poses in the world (SE3 or (4, 4)), or positions (3,) of their origins. Or any
        sequence of such pairs (name, target) and of `PointTarget`, for points away from origins and for weights.
    q0 : (nq,) array_like, optional
        Where to start; the neutral configuration by default.
    limits : bool
        Whether position limits of the joints are kept; limits on quaternions never are.
    rotation_weight : float
        What an angle of 1 radian counts, as a length.
    tolerance : float
        Largest distance and angle at which a target counts as reached.
    max_iterations : int
        Most iterations from one start.
    restarts : int
        How often to start again from random configurations if targets are not reached; the best result counts.
    rng : Generator or int, optional
        Generator of these configurations, or its seed.

    Returns
    -------
    InverseKinematics

    Examples
    --------
    >>> start = np.array([0, 0.6, 0, 1.2, 0, 0.6, 0])
    >>> found = ts.inverse_kinematics(model, {"hand": (0.5, 0.2, 0.6)}, start)
    >>> found.converged, np.allclose(ts.body_pose(model, found.q, "hand")[:3, 3], (0.5, 0.2, 0.6))
    (True, True)
    """
    problem = _Problem(require_model(model), targets, limits, rotation_weight)
    if not isinstance(restarts, int) or restarts < 0 or not isinstance(max_iterations, int) or max_iterations < 1:
        raise ValueError(
            f"restarts is {restarts!r}, max_iterations {max_iterations!r}, expected integers >= 0 and >= 1"
        )
    if not tolerance > 0:
        raise ValueError(f"tolerance is {tolerance!r}, expected a number above 0")
    start = model.neutral if q0 is None else frozen_array(q0, (model.nq,), "q0")
    best = problem.solve(start, tolerance, max_iterations)
    generator = np.random.default_rng(rng)
    total = best.iterations
    for _ in range(restarts):
        if best.converged:
            break
        found = problem.solve(model.random(generator), tolerance, max_iterations)
        total += found.iterations
        if problem.value(found.q) < problem.value(best.q):
            best = found
    return best._replace(iterations=total)


class _Problem:
    """The sum of squared errors and its derivatives.

    With constraints c of the model it has (weight (c + shift))^2 beside the errors: where the shift is that of the
    multipliers, the minimum is on the constraints.
    """

    def __init__(self, model: Model, targets: Any, limits: bool, rotation_weight: float) -> None:
        self.model = model
        self.turn = float(frozen_array(rotation_weight, (), "rotation_weight"))
        if self.turn <= 0:
            raise ValueError(f"rotation_weight is {rotation_weight!r}, expected a number above 0")
        pairs = targets.items() if isinstance(targets, Mapping) else targets
        if isinstance(targets, (str, PointTarget)) or not isinstance(pairs, Iterable):
            raise TypeError(f"targets must be a dict by name or a sequence, got {targets!r}")
        self.targets = [_target(model, pair) for pair in pairs]
        if not self.targets:
            raise ValueError("targets is empty, expected poses or positions by name")
        self.shift = np.zeros(len(self._constraint_errors(model.neutral)))
        nv = model.nv
        self.low, self.high = np.full(nv, -np.inf), np.full(nv, np.inf)
        self.at_q = np.full(nv, -1)  # coordinates that velocities add to
        low, high = model.position_limits
        for j in model.joints:
            if j.nq == j.nv and limits:
                self.low[j.v_slice], self.high[j.v_slice] = low[j.q_slice], high[j.q_slice]
            if j.nq == j.nv:
                self.at_q[j.v_slice] = np.arange(j.q_slice.start, j.q_slice.stop)

    def _constraint_errors(self, q: FloatArray) -> FloatArray:
        if not self.model.constraints:
            return np.zeros(0)
        return constraint_errors(self.model, self.model.constraints, q).g

    def bounds(self, q: FloatArray) -> tuple[FloatArray, FloatArray]:
        """How far velocities may move q."""
        here = np.where(self.at_q >= 0, q[self.at_q], 0.0)
        return self.low - here, self.high - here

    def clipped(self, q: FloatArray) -> FloatArray:
        """The nearest configuration within the limits."""
        out = q.copy()
        plain = self.at_q >= 0
        out[self.at_q[plain]] = np.clip(q[self.at_q[plain]], self.low[plain], self.high[plain])
        return self.model.normalize(out)

    def _off(self, q: FloatArray) -> list[tuple[FloatArray, FloatArray | None]]:
        """Errors of positions, in the world, and rotations R^T R_target that are left."""
        poses = place_poses(self.model, body_poses(self.model, q), [t.place for t in self.targets])
        out: list[tuple[FloatArray, FloatArray | None]] = []
        for t, T in zip(self.targets, poses, strict=True):
            off = T[:3, :3] @ t.point + T[:3, 3] - t.position
            out.append((off, None if t.rotation is None else T[:3, :3].T @ t.rotation))
        return out

    def value(self, q: FloatArray) -> float:
        """Half the weighted sum of squares."""
        total = 0.0
        for t, (off, turn) in zip(self.targets, self._off(q), strict=True):
            chord = 0.0 if turn is None else 0.5 * ((turn - np.eye(3)) ** 2).sum()  # 3 - tr without cancellation
            total += t.weight * float(off @ off + self.turn**2 * chord)
        c = _HOLD * (self._constraint_errors(q) + self.shift)
        return 0.5 * (total + float(c @ c))

    def errors(self, q: FloatArray) -> dict[str, tuple[float, float]]:
        """Distances and angles; the largest ones where a frame has several targets."""
        out: dict[str, tuple[float, float]] = {}
        for t, (off, turn) in zip(self.targets, self._off(q), strict=True):
            size = float(np.linalg.norm(off)), 0.0 if turn is None else float(np.linalg.norm(log3(turn)))
            was = out.get(t.name, (0.0, 0.0))
            out[t.name] = max(size[0], was[0]), max(size[1], was[1])
        return out

    def derivatives(self, q: FloatArray, second: bool) -> tuple[FloatArray, FloatArray]:
        """Gradient, and Hessian: with second derivatives of positions and rotations, or of Gauss and Newton.

        With E = R^T R_target, a turn by dw in the frame makes it (1 - [dw]) E. So half the squared chord, (3 - tr E)/2,
        has the gradient -J^T e, e being the vector of the skew part of E and J the angular Jacobian in the frame, and e
        changes by -(tr E - E^T) dw / 2.
        """
        model = self.model
        g, H = np.zeros(model.nv), np.zeros((model.nv, model.nv))
        turned = second and any(t.rotation is not None for t in self.targets)
        dJ = maximal_jacobian_derivatives(model, q).dJ_dq if turned else None
        for t, (off, E) in zip(self.targets, self._off(q), strict=True):
            J = point_jacobian(model, q, t.name, t.point)
            g += t.weight * off @ J
            H += t.weight * J.T @ J
            if second:
                H += t.weight * np.einsum("i,ijk->jk", off, point_hessian(model, q, t.name, t.point))
            if E is None:
                continue
            J, w, e = jacobian(model, q, t.name)[:3], t.weight * self.turn**2, np.asarray(vee(0.5 * (E - E.T)))
            g -= w * e @ J
            H += w * J.T @ (0.5 * (np.trace(E) * np.eye(3) - E.T) @ J if second else J)
            if dJ is not None and (i := body_of_frame(model, t.place)) >= 0:
                H -= w * np.einsum("i,ijk->jk", self._rotation_in_body(t.place) @ e, dJ[6 * i : 6 * i + 3])
        if model.constraints:
            G = constraint_jacobian(model, model.constraints, q)
            g += _HOLD**2 * (self._constraint_errors(q) + self.shift) @ G
            H += _HOLD**2 * G.T @ G
        return g, 0.5 * (H + H.T)

    def _rotation_in_body(self, place: int) -> FloatArray:
        n = self.model.nbodies
        return np.eye(3) if place < n else self.model.frames[place - n].placement.R

    def solve(self, q0: FloatArray, tolerance: float, most: int) -> InverseKinematics:
        """The result from one start."""
        self.shift = np.zeros_like(self.shift)
        q, status, used = self.clipped(q0), "stopped", 0
        for _ in range(_ROUNDS if self.model.constraints else 1):
            q, status, count = self._minimum(q, tolerance, most - used)
            used += count
            c = self._constraint_errors(q)
            if np.abs(c).max(initial=0.0) <= tolerance or used >= most:
                break
            self.shift = self.shift + c
        errors = self.errors(q)
        error = max(max(both) for both in errors.values())
        held = np.abs(self._constraint_errors(q)).max(initial=0.0) <= tolerance
        reached = bool(error <= tolerance and held)
        if not held:
            status = "stopped"
        return InverseKinematics(q, reached, error, errors, "reached" if reached else status, used)

    def _reached(self, q: FloatArray, tolerance: float) -> bool:
        error = max(max(both) for both in self.errors(q).values())
        held = np.abs(self._constraint_errors(q) + self.shift).max(initial=0.0)
        return error <= 0.1 * tolerance and held <= 0.1 * tolerance

    def _minimum(self, q: FloatArray, tolerance: float, most: int) -> tuple[FloatArray, str, int]:
        """A minimum from q on, within the limits; "optimum" or "stopped", and the number of iterations."""
        value, damping, second, growth = self.value(q), 1e-3, False, 2.0
        for k in range(most):
            if self._reached(q, tolerance):
                return q, "optimum", k
            g, H = self.derivatives(q, second)
            low, high = self.bounds(q)
            free = ~(((low >= 0) & (g > 0)) | ((high <= 0) & (g < 0)))
            size = float(np.sqrt(max(np.abs(H).max(initial=0.0), 1e-300)))
            if np.abs(g[free]).max(initial=0.0) <= _FLAT * size * np.sqrt(2.0 * value):
                if not second:
                    second = True  # the matrix of Gauss and Newton hides saddles
                    continue
                downhill = self._downhill(q, H, free, value, size)
                if downhill is None:
                    return q, "optimum", k
                q, value = downhill
                continue
            inner = np.flatnonzero(free)  # the others stay at their limits
            H = H[np.ix_(inner, inner)]
            if second:  # with the moduli of its eigenvalues it is positive definite, and saddles repel
                least, vectors = np.linalg.eigh(H)
                H = (vectors * np.maximum(np.abs(least), 1e-10 * size**2)) @ vectors.T
            d = np.zeros(len(g))
            damped = H + damping * size**2 * np.eye(len(inner))
            d[inner] = _bounded_quadratic(damped, g[inner], low[inner], high[inner])
            moved = self.model.plus(q, d)
            ahead, expected = self.value(moved), -float(g @ d + 0.5 * d[inner] @ H @ d[inner])
            ratio = min((value - ahead) / max(expected, 1e-300), 2.0)
            if ahead < value and ratio > 1e-4:
                slow = ahead > 0.3 * value
                q, value = self.clipped(moved), ahead
                damping = max(damping * max(1 / 3, 1 - (2 * ratio - 1) ** 3), 1e-12)
                growth, second = 2.0, slow
            elif np.abs(d).max(initial=0.0) <= 1e-13 * (1.0 + np.abs(q).max()) or damping > 1e12:
                return q, "optimum" if second else "stopped", k + 1
            else:
                damping, growth, second = damping * growth, 2.0 * growth, True
        return q, "stopped", most

    def _downhill(
        self, q: FloatArray, H: FloatArray, free: NDArray[np.bool_], value: float, size: float
    ) -> tuple[FloatArray, float] | None:
        """A better configuration from a saddle, along its direction of negative curvature; None from a minimum."""
        low, high = self.bounds(q)
        inner = np.flatnonzero(free)
        if not len(inner):
            return None
        least, vectors = np.linalg.eigh(H[np.ix_(inner, inner)])
        if least[0] > -1e-6 * size**2:
            return None
        d = np.zeros(len(free))
        d[inner] = vectors[:, 0]
        for length in (0.3, 0.03, 0.003):
            for sign in (1.0, -1.0):
                moved = self.clipped(self.model.plus(q, np.clip(sign * length * d, low, high)))
                if (ahead := self.value(moved)) < value:
                    return moved, ahead
        return None


def _bounded_quadratic(H: FloatArray, g: FloatArray, low: FloatArray, high: FloatArray) -> FloatArray:
    """The minimum of g.d + d.H d / 2 with low <= d <= high, H positive definite: an active set that starts empty."""
    d = np.clip(np.zeros_like(g), low, high)
    fixed = np.zeros(len(g), np.bool_)
    for _ in range(3 * len(g) + 10):
        free = ~fixed
        want = d.copy()
        if free.any():
            want[free] = np.linalg.solve(H[np.ix_(free, free)], -(g + H[:, fixed] @ d[fixed])[free])
        step = want - d
        with np.errstate(divide="ignore", invalid="ignore"):
            room = np.where(step > 0, (high - d) / step, np.where(step < 0, (low - d) / step, np.inf))
        room[fixed] = np.inf
        first = int(np.argmin(room)) if len(room) else 0
        if len(room) and room[first] < 1.0:
            d = np.clip(d + max(room[first], 0.0) * step, low, high)
            d[first] = high[first] if step[first] > 0 else low[first]
            fixed[first] = True
            continue
        d = np.clip(want, low, high)
        pull = g + H @ d
        wrong = fixed & (((d <= low) & (pull < 0)) | ((d >= high) & (pull > 0))) & (low < high)
        if not wrong.any():
            break
        fixed[int(np.argmax(np.where(wrong, np.abs(pull), -1.0)))] = False
    return d


def _target(model: Model, given: Any) -> _Target:
    if isinstance(given, PointTarget):
        if np.ndim(given.target) != 1:
            raise ValueError(f"target of {given.body!r} has shape {np.shape(given.target)}, expected (3,)")
        place = model._find(given.body, "frame")
        return _Target(given.body, place, np.array(given.point), np.array(given.target), None, given.weight)
    try:
        name, target = given
    except (TypeError, ValueError):
        raise TypeError(f"a target must be a pair (name, pose or position) or a PointTarget, got {given!r}") from None
    place = model._find(name, "frame")
    if isinstance(target, SE3) or np.shape(target) == (4, 4):
        pose = target if isinstance(target, SE3) else SE3.from_matrix(target)
        return _Target(name, place, np.zeros(3), pose.p, pose.R, 1.0)
    if np.shape(target) != (3,):
        raise ValueError(f"target of {name!r} is {target!r}, expected an SE3, a matrix (4, 4) or a position (3,)")
    return _Target(name, place, np.zeros(3), frozen_array(target, (3,), f"target of {name!r}"), None, 1.0)
