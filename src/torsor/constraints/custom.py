"""User-defined constraints, written in Python.

Derivatives of `value` are by complex steps, exact to rounding. A derivative of higher order is a complex step through
differences over the real line, of high order: the steps can be so long that neither rounding nor truncation counts.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from torsor import spatial
from torsor._check import complex_allowed
from torsor._core import complex_step as STEP
from torsor._errors import ConstraintError
from torsor.constraints.constraint import Constraint
from torsor.forces.force import scalar
from torsor.model import Model

if TYPE_CHECKING:
    from numpy.typing import ArrayLike
    from typing_extensions import Self

    from torsor._typing import Array, FloatArray
    from torsor.constraints.constraint import Part


class CustomConstraint(Constraint):
    """A user-defined constraint g(q, t, p) = 0.

    Derive a class with an attribute `rows`, the number of rows, and the method `value`; an attribute `p` (n,) if it has
    parameters. Derivatives are then numerical: first derivatives are complex steps, exact to rounding, and second and
    third ones are complex steps through differences, accurate to about 1e-12 and 1e-11. With the method `jacobian` one
    order less is numerical. Differences span displacements, and times, of up to 0.4 `scale`; set a `scale` below 1 for
    functions that change over shorter ones, as the inverse of a distance does nearby, or sin(50 t).

    `value` and `jacobian` must accept complex q, t and p, and be analytic in them: no abs, conj, norm or comparisons of
    complex numbers. Functions of this library that take complex arrays, as `body_poses` or `point_positions`, can be
    used within them. Each takes one state. Set `batched = True` if they take leading axes, which avoids a loop in
    Python: q (..., nq), t (...) and p (..., n); `value` then returns (..., rows), `jacobian` (..., rows, nv).

    They run under the interpreter lock, many times for one evaluation of derivatives.
    """

    rows: int = 0
    p: ArrayLike = ()
    batched: ClassVar[bool] = False
    scale: float = 1.0
    _frozen: ClassVar[bool] = False

    @abstractmethod
    def value(self, q: Array, t: Any, p: Array) -> ArrayLike:
        """The rows g (rows,) at the configuration q (nq,), the time t and with the parameters p (n,)."""

    def jacobian(self, q: Array, t: Any, p: Array) -> ArrayLike:
        """Derivatives (rows, nv) of `value(q, t, p)` with respect to q, in the tangent space."""
        raise NotImplementedError(f"{type(self).__name__} has no method jacobian")

    @property
    def parameters(self) -> dict[str, FloatArray]:
        """{"p": p}, or an empty dict without parameters."""
        p = spatial.frozen_array(np.atleast_1d(self.p), (np.size(self.p),), f"p of {type(self).__name__}")
        return {"p": p.copy()} if p.size else {}

    def _replaced(self, values: dict[str, Any]) -> Self:
        out = copy(self)
        for value in values.values():
            object.__setattr__(out, "p", spatial.frozen_array(np.atleast_1d(value), (np.size(self.p),), "p"))
        return out

    def _subjects(self) -> tuple[str, ...]:
        return ()

    @property
    def shown_name(self) -> str:
        """The name, or that of the class."""
        return self.name if self.name is not None else type(self).__name__

    def _count(self) -> int:
        n = self.rows
        if not isinstance(n, (int, np.integer)) or isinstance(n, bool) or n < 1:
            raise ConstraintError(f"{type(self).__name__}.rows is {n!r}, expected an integer of at least 1")
        return int(n)

    def _labels(self, model: Model) -> tuple[str, ...]:
        n = self._count()
        return tuple(f"row {k}" for k in range(n)) if n > 1 else ("",)

    def _named(self) -> None:
        return None

    def _joints(self, model: Model) -> tuple[str, ...]:
        return tuple(j.name for j in model.joints)

    def _bound(self, model: Model) -> BoundConstraint:
        """The constraint for one model, as the core calls it."""
        p = self.parameters.get("p", np.zeros(0))
        if not 0 < scalar(self.scale, f"scale of {type(self).__name__}") <= 1:
            raise ConstraintError(
                f"{type(self).__name__}.scale is {self.scale!r}, expected a number above 0, 1 at most"
            )
        return BoundConstraint(self, model, self._count(), p)

    def _parts(self, model: Model) -> list[Part]:
        bound = self._bound(model)
        with np.errstate(all="ignore"):
            bound.g(model.neutral[None], np.zeros(1), bound.p[None])  # so that wrong shapes are reported here
        return [("custom", bound, bound.rows, bound.p.size)]

    def _gradient(self, flat: FloatArray) -> dict[str, FloatArray]:
        return {"p": flat} if flat.shape[-1] else {}


def _central(half: int, order: int) -> tuple[FloatArray, FloatArray]:
    """Nodes and weights of the central difference of highest order for the first or second derivative at 0, with the
    nodes -half ... half in units of the step."""
    k = np.arange(1, half + 1)
    # weights 2 (-1)^(k+1) (half!)^2 / ((half - k)! (half + k)! k^order), by products that do not overflow
    ratio = np.cumprod((half - k + 1) / (half + k))
    w = 2.0 * (-1.0) ** (k + 1) * ratio / k**order
    if order == 1:
        return np.concatenate([-k[::-1], k]).astype(np.float64), np.concatenate([-w[::-1], w]) / 2
    nodes = np.concatenate([-k[::-1], [0], k]).astype(np.float64)
    return nodes, np.concatenate([w[::-1], [-2 * w.sum()], w])


# (nodes, weights, step). For a function with a singularity at distance 1 from a state, and velocities of length 1, the
# truncation is 1e-14 and the rounding some 1e-13 for first derivatives, 5e-12 and 1e-12 for second ones. `scale`
# shortens the steps for other functions.
_FIRST = (*_central(6, 1), 3e-2)
_SECOND = (*_central(8, 2), 5e-2)
_OUTER = (*_central(6, 1), 5e-2)  # of what is numerical itself


@dataclass(frozen=True, eq=False)
class BoundConstraint:
    """A user-defined constraint for one model, with the methods that the core calls, for L states at once.

    Arrays may be complex with imaginary parts that are steps: results are then those at the real parts, and as
    imaginary parts derivatives along the imaginary ones. Methods without a leading underscore are differences over the
    real line, analytic in their arguments; those with one add what a complex step can give.
    """

    constraint: CustomConstraint
    model: Model
    rows: int
    p: FloatArray

    # ---- differences over the real line, at M points: q (M, nq), v and a (M, nv), t (M,), p (M, n)

    @property
    def has_jacobian(self) -> bool:
        """Whether the user gives derivatives."""
        return type(self.constraint).jacobian is not CustomConstraint.jacobian

    def g(self, q: Array, t: Array, p: Array) -> Array:
        """Values (M, rows)."""
        return self._called("value", q, t, p, (self.rows,))

    def _called(self, name: str, q: Array, t: Array, p: Array, shape: tuple[int, ...]) -> Array:
        """A method of the user's at all points: (M, *shape)."""
        method: Callable[..., Any] = getattr(self.constraint, name)
        dtype = np.result_type(q, t, p, np.float64)
        token = complex_allowed.set(dtype.kind == "c" or complex_allowed.get())
        try:
            if self.constraint.batched:
                return self._checked(name, method(q, t, p), (len(q), *shape), dtype)
            given = [self._checked(name, method(*one), shape, dtype) for one in zip(q, t, p, strict=True)]
        finally:
            complex_allowed.reset(token)
        return np.stack(given) if given else np.zeros((0, *shape), dtype)

    def _checked(self, name: str, value: Any, shape: tuple[int, ...], dtype: Any) -> Array:
        owner = f"{type(self.constraint).__name__}.{name}"
        spatial.refuse_mask(owner, value)
        a = np.asarray(value)
        if a.shape != shape or not np.can_cast(a.dtype, dtype, "same_kind"):
            many = f", for {shape[0]} states at once" if self.constraint.batched else ""
            raise ValueError(f"{owner} gave shape {a.shape} and dtype {a.dtype}, expected {shape} and {dtype}{many}")
        return a

    def moved(self, q: Array, dv: Array) -> Array:
        """plus(q, dv), complex or not."""
        token = complex_allowed.set(True)
        try:
            return self.model.plus(q, dv)
        finally:
            complex_allowed.reset(token)

    def _along(
        self,
        f: Callable[[Array, Array, Array], Array],
        q: Array,
        t: Array,
        p: Array,
        steps: Array,
        times: Array,
        weights: Array,
    ) -> Array:
        """sum_i weights[i] f at the points moved by steps[:, i] (M, nodes, nv) and times[:, i] (M, nodes): (M, ...)."""
        M, n = steps.shape[:2]
        points = self.moved(np.repeat(q, n, axis=0), steps.reshape(M * n, steps.shape[2]))
        values = f(points, (t[:, None] + times).ravel(), np.repeat(p, n, axis=0))
        return np.asarray(np.einsum("in,in...->i...", weights, values.reshape(M, n, *values.shape[1:])))

    def _difference(
        self,
        f: Callable[[Array, Array, Array], Array],
        q: Array,
        t: Array,
        p: Array,
        dv: Array,
        dt: float,
        table: tuple[FloatArray, FloatArray, float] = _FIRST,
    ) -> Array:
        """The derivative (M, ...) of f along the displacement dv (M, nv) and the time dt, by a difference."""
        nodes, weights, step = table
        size = self._size(dv)
        e = nodes * (step / size)[:, None]
        scaled = np.broadcast_to(weights, e.shape) * (size / step)[:, None]
        return self._along(f, q, t, p, e[..., None] * dv[:, None], e * dt, scaled)

    def _size(self, dv: Array) -> FloatArray:
        """What displacements or velocities (M, nv) are divided by for steps of unit length."""
        return _length(dv) / self.constraint.scale

    def gdot(self, q: Array, v: Array, t: Array, p: Array) -> Array:
        """First derivatives (M, rows) with respect to time."""
        if not self.has_jacobian:
            return self._difference(self.g, q, t, p, v, 1.0)
        rate = self._difference(self.g, q, t, p, np.zeros_like(v), 1.0)
        return np.asarray(np.einsum("irk,ik->ir", self.G(q, t, p), v) + rate)

    def gamma(self, q: Array, v: Array, a: Array, t: Array, p: Array) -> Array:
        """Second derivatives (M, rows) with respect to time."""
        if not self.has_jacobian:
            return self._second(q, t, p, v, a, 1.0)
        n = len(_FIRST[0])

        def along_v(q: Array, t: Array, p: Array) -> Array:
            return np.asarray(np.einsum("irk,ik->ir", self.G(q, t, p), np.repeat(v, n, axis=0)))

        # d/dt of G v + dg/dt; that of dg/dt at a time twice as fast and at a time that stands still
        zero = np.zeros_like(v)
        explicit = (self._second(q, t, p, v, zero, 2.0) - self._second(q, t, p, v, zero, 0.0)) / 4
        along_a = np.einsum("irk,ik->ir", self.G(q, t, p), a)
        return np.asarray(along_a + self._difference(along_v, q, t, p, v, 1.0) + explicit)

    def _second(self, q: Array, t: Array, p: Array, v: Array, a: Array, rate: float) -> Array:
        """The second derivative (M, rows) of values along a motion, with a time that passes at a rate."""
        nodes, weights, step = _SECOND
        size = np.maximum(self._size(v), np.sqrt(self._size(a) / self.constraint.scale))
        size = np.maximum(size, rate / self.constraint.scale)
        e = nodes * (step / size)[:, None]
        scaled = np.broadcast_to(weights, e.shape) * ((size / step) ** 2)[:, None]
        steps = e[..., None] * v[:, None] + (e**2 / 2)[..., None] * a[:, None]
        return self._along(self.g, q, t, p, steps, rate * e, scaled)

    def G(self, q: Array, t: Array, p: Array) -> Array:
        """Derivatives (M, rows, nv) with respect to q."""
        if self.has_jacobian:
            return self._called("jacobian", q, t, p, (self.rows, self.model.nv))
        return self._by_q(lambda q, k: self.g(q, np.repeat(t, k), np.repeat(p, k, axis=0)), q, _FIRST)

    def _by_q(self, f: Callable[[Array, int], Array], q: Array, table: tuple[FloatArray, FloatArray, float]) -> Array:
        """Derivatives (M, ..., nv) of f with respect to q by differences. f takes all points, k for each of q."""
        nodes, weights, step = table[0], table[1], table[2] * self.constraint.scale
        nv, n = self.model.nv, len(nodes)
        steps = (nodes * step)[:, None, None] * np.eye(nv)
        points = self.moved(np.repeat(q, n * nv, axis=0), np.tile(steps.reshape(n * nv, nv), (len(q), 1)))
        values = f(points, n * nv)
        values = values.reshape(len(q), n, nv, *values.shape[1:])
        return np.asarray(np.einsum("n,ink...->i...k", weights / step, values))

    # ---- one complex step through them, at the real parts

    def _step_by_q(self, f: Callable[[Array, int], Array], q: FloatArray) -> FloatArray:
        """Derivatives (M, ..., nv) of f with respect to q by complex steps. f takes all points, nv for each of q."""
        nv = self.model.nv
        points = self.moved(np.repeat(q, nv, axis=0), np.tile(1j * STEP * np.eye(nv), (len(q), 1)))
        values = f(points, nv).imag / STEP
        return np.asarray(np.moveaxis(values.reshape(len(q), nv, *values.shape[1:]), 1, -1))

    def _values(
        self, q: FloatArray, v: FloatArray, a: FloatArray, t: FloatArray, p: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """g, gdot, gamma (M, rows) and G (M, rows, nv) at real states."""
        ahead = self.moved(q, 1j * STEP * v)
        later = t + 1j * STEP
        gdot = self.g(ahead, later, p).imag / STEP
        gamma = self.gdot(ahead, v + 1j * STEP * a, later, p).imag / STEP
        if self.has_jacobian:
            G = self.G(q, t, p)
        else:
            G = self._step_by_q(lambda q, k: self.g(q, np.repeat(t, k), np.repeat(p, k, axis=0)), q)
        return self.g(q, t, p), gdot, gamma, G

    def _firsts(
        self, q: Array, v: Array, a: Array, t: Array, p: Array, by_q: Callable[..., Array], by_v: Callable[..., Array]
    ) -> tuple[Array, Array, Array]:
        """dgdot_dq, dgamma_dq and dgamma_dv (M, rows, nv), by the given ways to differentiate."""

        def many(k: int) -> tuple[Array, Array]:
            return np.repeat(t, k), np.repeat(p, k, axis=0)

        def gdot(q: Array, k: int) -> Array:
            return self.gdot(q, np.repeat(v, k, axis=0), *many(k))

        def gamma(q: Array, k: int) -> Array:
            return self.gamma(q, np.repeat(v, k, axis=0), np.repeat(a, k, axis=0), *many(k))

        def gamma_of_v(v: Array, k: int) -> Array:
            return self.gamma(np.repeat(q, k, axis=0), v, np.repeat(a, k, axis=0), *many(k))

        return by_q(gdot, q), by_q(gamma, q), by_v(gamma_of_v, v)

    def _step_by_v(self, f: Callable[[Array, int], Array], v: FloatArray) -> FloatArray:
        nv = self.model.nv
        points = np.repeat(v, nv, axis=0) + np.tile(1j * STEP * np.eye(nv), (len(v), 1))
        values = f(points, nv).imag / STEP
        return np.asarray(np.moveaxis(values.reshape(len(v), nv, *values.shape[1:]), 1, -1))

    def _by_v(self, f: Callable[[Array, int], Array], v: Array) -> Array:
        """Derivatives (M, ..., nv) of f with respect to v, of which it is a quadratic function: by a difference, which
        is exact for any step."""
        nv = self.model.nv
        size = np.repeat(_length(v), 2 * nv)
        steps = np.tile(np.concatenate([np.eye(nv), -np.eye(nv)]), (len(v), 1)) * size[:, None]
        values = f(np.repeat(v, 2 * nv, axis=0) + steps, 2 * nv) / (2 * size).reshape(-1, 1)
        values = values.reshape(len(v), 2, nv, *values.shape[1:])
        return np.moveaxis(values[:, 0] - values[:, 1], 1, -1)

    # ---- as the core calls them

    def _rows_of(self, q: Array, t: float) -> tuple[FloatArray, FloatArray]:
        """The time and the parameters for each state."""
        return np.full(len(q), t), np.repeat(self.p[None], len(q), axis=0)

    def _real(self, q: Array) -> FloatArray:
        return np.ascontiguousarray(q.real)

    def _evaluate(self, q: Array, v: Array, a: Array, t: float) -> Array:
        """g, gdot, gamma (rows each) and G (rows x nv) of each state: (L, 3 rows + rows nv)."""
        times, p = self._rows_of(q, t)
        L = len(q)
        parts: tuple[Array, ...] = self._values(self._real(q), self._real(v), self._real(a), times, p)
        if any(x.dtype.kind == "c" for x in (q, v, a)):
            moved = (
                self.g(q, times, p),
                self.gdot(q, v, times, p),
                self.gamma(q, v, a, times, p),
                self.G(q, times, p),
            )
            parts = tuple(x + 1j * y.imag for x, y in zip(parts, moved, strict=True))
        return np.ascontiguousarray(np.concatenate([x.reshape(L, -1) for x in parts], axis=1))

    def _derivatives(self, q: Array, v: Array, a: Array, t: float) -> Array:
        """dgdot_dq, dgamma_dq and dgamma_dv (rows x nv each) of each state: (L, 3 rows nv)."""
        times, p = self._rows_of(q, t)
        L = len(q)
        real = (self._real(q), self._real(v), self._real(a))
        parts: tuple[Array, ...] = self._firsts(*real, times, p, self._step_by_q, self._step_by_v)
        if any(x.dtype.kind == "c" for x in (q, v, a)):
            moved = self._firsts(q, v, a, times, p, lambda f, q: self._by_q(f, q, _OUTER), self._by_v)
            parts = tuple(x + 1j * y.imag for x, y in zip(parts, moved, strict=True))
        return np.ascontiguousarray(np.concatenate([x.reshape(L, -1) for x in parts], axis=1))

    def _stiffness(self, q: Array, t: float, lam: Array) -> Array:
        """d(G^T lam)_j / dq_k of each state: (L, nv nv)."""
        times, p = self._rows_of(q, t)

        def torque(weights: Array) -> Callable[[Array, int], Array]:
            def at(q: Array, k: int) -> Array:
                G = self.G(q, np.repeat(times, k), np.repeat(p, k, axis=0))
                return np.asarray(np.einsum("irj,ir->ij", G, np.repeat(weights, k, axis=0)))

            return at

        K: Array = self._step_by_q(torque(self._real(lam)), self._real(q))
        if q.dtype.kind == "c" or lam.dtype.kind == "c":
            K = K + 1j * self._by_q(torque(lam), q, _OUTER).imag
        return np.ascontiguousarray(K.reshape(len(q), -1))

    def _parameter_gradient(
        self, q: Array, v: Array, a: Array, t: float, wg: Array, wgdot: Array, wgamma: Array
    ) -> Array:
        """The gradient of wg.g + wgdot.gdot + wgamma.gamma with respect to p, of each state: (L, n)."""
        times, p = self._rows_of(q, t)
        L, n = len(q), self.p.size

        def total(states: tuple[Array, ...], p: Array) -> Array:
            k = len(p) // L
            q, v, a, wg, wgdot, wgamma = (np.repeat(x, k, axis=0) for x in states)
            at = np.repeat(times, k)
            out = (wg * self.g(q, at, p)).sum(-1) + (wgdot * self.gdot(q, v, at, p)).sum(-1)
            return np.asarray(out + (wgamma * self.gamma(q, v, a, at, p)).sum(-1))

        states = (q, v, a, wg, wgdot, wgamma)
        real = tuple(self._real(x) for x in states)
        steps = np.tile(np.eye(n), (L, 1))
        out: Array = (total(real, np.repeat(p, n, axis=0) + 1j * STEP * steps).imag / STEP).reshape(L, n)
        if any(x.dtype.kind == "c" for x in states) and n:
            nodes, weights, step = _OUTER
            size = np.maximum(1.0, np.abs(self.p))
            moves = (nodes * step)[:, None, None] * np.diag(size)
            points = np.repeat(p, len(nodes) * n, axis=0) + np.tile(moves.reshape(-1, n), (L, 1))
            values = total(states, points).reshape(L, len(nodes), n)
            out = out + 1j * np.einsum("m,imk->ik", weights / step, values.imag) / size
        return np.ascontiguousarray(out)


def _length(x: Array) -> FloatArray:
    """The length of each row (M, n), at least 1."""
    return np.asarray(np.maximum(1.0, np.sqrt((x.real**2).sum(-1))))
