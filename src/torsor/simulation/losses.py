"""Costs over trajectories: the value of a cost and its derivatives with respect to every row, for `adjoint`.

In a batch every trajectory has its own loss. A cost is summed over the rows that its field `at` selects, or integrated
over time. The integral over a step with the controls u_k is h/2 (c(x_k, u_k, t_k) + c(x_{k+1}, u_k, t_{k+1})); several
rows of controls in a step have the weights of the integrator. So a cost of states alone is integrated by the
trapezoidal rule, and a cost of controls alone contributes h c(u_k) in each step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from math import hypot, prod
from numbers import Real
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from torsor import _core
from torsor.costs.cost import Cost, States
from torsor.forces.force import CompiledForces
from torsor.simulation.parameters import steps_of_rows
from torsor.simulation.trajectory import Trajectory

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from torsor._typing import FloatArray
    from torsor.simulation.batch import Batch, Span

    Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Loss:
    """The value (...) of a loss for each trajectory and its derivatives; None where they are zero.

    Losses of the same trajectory can be added, subtracted, and multiplied and divided by numbers.

    Attributes
    ----------
    value : (...)
    dq, dv : (..., rows, nv)
        With respect to the rows, dq in the tangent space.
    du : as the controls
    dinertia, dplacement, dgravity, darmature, dforces, dsignals, dcouplings
        The explicit parameter dependence of the loss, at fixed states: shaped as the fields of `AdjointGradient`, to
        which `adjoint` adds them.
    of : Trajectory, str or None
        The trajectory to which the loss belongs, or in a pickled loss a digest of its numbers. `adjoint` rejects
        others; None fits any.
    """

    value: FloatArray
    dq: FloatArray | None = None
    dv: FloatArray | None = None
    du: FloatArray | None = None
    dinertia: FloatArray | None = None
    dplacement: FloatArray | None = None
    dgravity: FloatArray | None = None
    darmature: FloatArray | None = None
    dforces: tuple[dict[str, FloatArray], ...] | None = None
    dsignals: tuple[dict[str, FloatArray], ...] | None = None
    dcouplings: tuple[dict[str, FloatArray], ...] | None = None
    of: Trajectory | str | None = field(default=None, repr=False, compare=False)

    __array_ufunc__: ClassVar[None] = None  # so that products with NumPy numbers are losses

    def __add__(self, other: Loss) -> Loss:
        if not isinstance(other, Loss):
            return NotImplemented
        if np.shape(self.value) != np.shape(other.value):
            shapes = f"{np.shape(self.value)} and {np.shape(other.value)}"
            raise ValueError(f"losses of shapes {shapes} cannot be added: they belong to different trajectories")

        def total(a: Any, b: Any) -> Any:
            if a is None or b is None:
                return b if a is None else a
            if isinstance(a, tuple):
                return tuple(total(x, y) for x, y in zip(a, b, strict=True))
            if isinstance(a, dict):
                return {name: total(a.get(name), b.get(name)) for name in a | b}
            if np.shape(a) != np.shape(b):
                shapes = f"{np.shape(a)} and {np.shape(b)}"
                raise ValueError(
                    f"losses with derivatives {shapes} cannot be added: they belong to different trajectories"
                )
            return a + b

        parts = {name: total(getattr(self, name), getattr(other, name)) for name in _NUMBERS}
        if not same_trajectory(self.of, other.of):
            raise ValueError("losses of different trajectories cannot be added; take the gradient of each")
        return Loss(**parts, of=self.of if other.of is None else other.of)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "of": self.of._digest if isinstance(self.of, Trajectory) else self.of}

    def __radd__(self, other: int) -> Loss:
        # sum() begins with 0.
        return self if isinstance(other, int) and other == 0 else NotImplemented

    def __mul__(self, factor: float) -> Loss:
        if not isinstance(factor, Real):
            return NotImplemented

        def scaled(x: Any) -> Any:
            if isinstance(x, tuple):
                return tuple(scaled(y) for y in x)
            if isinstance(x, dict):
                return {name: scaled(y) for name, y in x.items()}
            return None if x is None else factor * x

        return Loss(**{name: scaled(getattr(self, name)) for name in _NUMBERS}, of=self.of)

    __rmul__ = __mul__

    def __truediv__(self, divisor: float) -> Loss:
        if not isinstance(divisor, Real):
            return NotImplemented
        return self * (1.0 / float(divisor))

    def __neg__(self) -> Loss:
        return self * -1.0

    def __sub__(self, other: Loss) -> Loss:
        return self + -other if isinstance(other, Loss) else NotImplemented


_NUMBERS = [f.name for f in fields(Loss) if f.name != "of"]


def same_trajectory(a: Trajectory | str | None, b: Trajectory | str | None) -> bool:
    """Whether two losses, or a loss and a trajectory, belong to the same trajectory or to copies of it."""
    if a is b or a is None or b is None:
        return True
    return (a if isinstance(a, str) else a._digest) == (b if isinstance(b, str) else b._digest)


def loss(trajectory: Trajectory, cost: Cost, *, parameters: bool = True) -> Loss:
    """Evaluates a cost over a trajectory, with derivatives with respect to rows, controls and parameters.

    Parameters
    ----------
    trajectory : Trajectory
        From `simulate`. In a batch each trajectory has its own loss, NaN for one that has failed.
    cost : Cost
        A cost, or a sum of costs.
    parameters : bool
        Whether to compute the explicit parameter dependence (`dinertia` and so on).

    Returns
    -------
    Loss
        value (...), dq and dv (..., rows, nv), du, and derivatives with respect to parameters.

    Examples
    --------
    >>> motion = ts.simulate(model, q, v, steps=10, integrator=ts.BDF2(h=1e-2))
    >>> loss = ts.loss(motion, ts.VelocityTarget())
    >>> np.allclose(loss.value, 0.5 * (motion.v[-1] ** 2).sum())
    True
    >>> g = ts.adjoint(motion, loss)
    """
    if not isinstance(trajectory, Trajectory):
        raise TypeError(f"trajectory must be a Trajectory, got {type(trajectory).__name__}; simulate makes one")
    if not isinstance(cost, Cost):
        hint = f"; did you mean {cost.__name__}(...)?" if isinstance(cost, type) and issubclass(cost, Cost) else ""
        raise TypeError(f"cost must be a Cost, got {cost!r}{hint}")
    total = _Total(trajectory, parameters)
    for factor, term in cost.terms:
        total.add(factor, term)
    return total.loss()


class _Total:
    """Sums of terms over all rows and steps of all trajectories, flat in the batch."""

    def __init__(self, trajectory: Trajectory, parameters: bool) -> None:
        self.trajectory, self.parameters = trajectory, parameters
        self.n, self.count = prod(trajectory.batch_shape), len(trajectory.t)
        model = trajectory.model
        self.q = trajectory.q.reshape(self.n, self.count, model.nq)
        self.v = trajectory.v.reshape(self.n, self.count, model.nv)
        self.sums: dict[str, FloatArray] = {"value": np.zeros(self.n)}
        self.springs: Batch | None = None  # the forces with energies
        self.failed = np.array([*trajectory._failed_tracks], np.int64)

    def add(self, factor: float, term: Cost) -> None:
        """Adds a multiple of one cost."""
        if "u" in term.inputs and self.trajectory.controls is None:
            name = type(term).__name__
            raise ValueError(f"the trajectory has no controls, on which {name} depends; simulate with controls=")
        if term.at != "time":
            chosen = self._chosen(term.at)
            self._add_rows(term, chosen, np.full(len(chosen), factor))
        elif "u" not in term.inputs:
            spacing = self.trajectory.integrator.h * self.trajectory.every
            ends = np.full(self.count, 1.0 if self.count > 1 else 0.0)
            ends[[0, -1]] *= 0.5
            self._add_rows(term, np.arange(self.count), factor * spacing * ends)
        elif term.inputs == "u":
            self._add_controls(term, factor)
        else:
            self._add_steps(term, factor)

    def loss(self) -> Loss:
        """The sums, shaped as the batch; NaN for trajectories that have failed."""
        shape, sums = self.trajectory.batch_shape, self.sums
        for x in sums.values():
            x[self.failed] = np.nan

        def shaped(name: str) -> Any:
            return sums[name].reshape((*shape, *sums[name].shape[1:])) if name in sums else None

        springs, of_forces, of_signals = self.springs, None, None

        def placed(parts: Sequence[dict[str, FloatArray]]) -> tuple[dict[str, FloatArray], ...]:
            given = dict(zip(springs.places if springs is not None else (), parts, strict=True))
            return tuple(given.get(k, {}) for k in range(len(self.trajectory.forces)))  # each among all forces

        if springs is not None and "springs" in sums:
            of_forces = placed(springs.compiled.unflatten(shaped("springs")))
        if springs is not None and "signals" in sums:
            of_signals = placed(springs.signals_by_name(shaped("signals")))
        du, u, resolved = sums.get("du"), self.trajectory.controls, self.trajectory.model._map
        return Loss(
            shaped("value"), shaped("dq"), shaped("dv"),
            None if du is None or u is None else du.reshape(u.shape),
            shaped("inertia"), shaped("placement"), shaped("gravity"), shaped("armature"), of_forces, of_signals,
            None if resolved is None or "couplings" not in sums else resolved.gradients(shaped("couplings")),
            self.trajectory,
        )  # fmt: skip

    # ---- rows and steps

    def _add_rows(self, term: Cost, chosen: Rows, weights: FloatArray) -> None:
        """The sum of a cost of states over rows, each with its weight."""
        given = term._rows()
        if given not in (None, len(chosen)):
            raise ValueError(
                f"target has {given} rows, expected {len(chosen)}, one for each row of the trajectory selected by "
                f"at={term.at!r}; or one target for all of them, or times="
            )
        self._require_coordinates(term, chosen)
        for span in self._spans(term):
            here = np.flatnonzero((span.rows.start <= chosen) & (chosen < span.rows.stop))
            if len(here):
                part, tracks = chosen[here], span.tracks
                q = self._good(self.q[tracks].take(part, axis=1), tracks, self.q)
                v = self._good(self.v[tracks].take(part, axis=1), tracks, self.v)
                t, shape = self.trajectory.t[part], q.shape[:-1]
                x = States(span.model, shape, q, v, None, t, here, self._forces(term, span.at(part)))
                found = self._add_terms(term, x, tracks, {"dq": part, "dv": part}, weights[here])
                self._add_signals(found, tracks, part, weights[here])

    def _add_controls(self, term: Cost, factor: float) -> None:
        """The integral of a cost of controls alone."""
        u, weights = self._controls()
        h, first = self.trajectory.integrator.h, self.trajectory.t[0]
        times = first + h * np.arange(u.shape[1] + 1)[:, None]
        for t in (times[:-1], times[1:]) if term.timed else (times[:-1],):
            x = States(self.trajectory.model, u.shape[:-1], None, None, u, t)
            share = factor * h * (0.5 if term.timed else 1.0) * weights
            self._add_terms(term, x, slice(None), {"du": slice(None)}, np.broadcast_to(share, u.shape[1:-1]))

    def _add_steps(self, term: Cost, factor: float) -> None:
        """The integral of a cost that couples states and controls."""
        trajectory = self.trajectory
        if trajectory.every > 1:
            raise ValueError(
                f"{type(term).__name__} couples states and controls, but a trajectory with every={trajectory.every} "
                "does not have the states of all steps; simulate with every=1, or divide it into a cost of states and "
                "one of controls"
            )
        self._require_coordinates(term, np.arange(self.count))
        u, weights = self._controls()
        for span in self._spans(term):
            tracks, steps = span.tracks, np.arange(span.rows.start, min(span.rows.stop, self.count - 1))
            for end in (0, 1):
                rows = steps + end
                q = self._good(self.q[tracks, rows], tracks, self.q)
                v = self._good(self.v[tracks, rows], tracks, self.v)
                for s, weight in enumerate(weights):
                    x = States(span.model, q.shape[:-1], q, v, u[tracks, steps, s], trajectory.t[rows])
                    share = np.full(len(steps), factor * 0.5 * trajectory.integrator.h * weight)
                    self._add_terms(term, x, tracks, {"dq": rows, "dv": rows, "du": (steps, s)}, share)

    def _controls(self) -> tuple[FloatArray, FloatArray]:
        """Controls (batch, steps, rows of a step, nu), and the weights of the rows of a step."""
        u, shape = self.trajectory.controls, self.trajectory.batch_shape
        assert u is not None
        if len(self.failed):
            u = u.copy()
            u.reshape(self.n, *u.shape[len(shape) :])[self.failed] = 0.0
        stages = u.shape[-2] if u.ndim - len(shape) == 3 else 1
        weights = np.array(self.trajectory.integrator._weights) if stages > 1 else np.ones(1)
        return u.reshape(self.n, self.trajectory.steps, stages, u.shape[-1]), weights

    # ---- sums

    def _add_terms(
        self, term: Cost, x: States, tracks: slice, places: dict[str, Any], weights: FloatArray
    ) -> dict[str, FloatArray]:
        """Adds a cost at states (tracks, ...), each with its weight, to the derivatives at their places. Returns those
        with respect to parameters."""
        found = term._value(x, False)
        axes = tuple(range(1, found.value.ndim))
        self.sums["value"][tracks] += (weights * found.value).sum(axis=axes)
        for name, at in places.items():
            part = getattr(found, name)
            if part is not None:
                where = (tracks, *at) if isinstance(at, tuple) else (tracks, at)
                self._sum(name, part)[where] += weights[..., None] * part
        by_parameters = term._by_parameters(x.on_tree) if self.parameters else {}
        if self.parameters and x.model.couplings and x.q is not None and not term._is_reduced(x.model):
            by_parameters = {**by_parameters, "couplings": _by_couplings(term, x)}
        for name, part in by_parameters.items():
            share = weights.reshape(weights.shape + (1,) * (part.ndim - weights.ndim - 1))
            self.sums.setdefault(name, np.zeros((self.n, *part.shape[1 + weights.ndim :])))
            self.sums[name][tracks] += (share * part).sum(axis=axes)
        return by_parameters

    def _add_signals(self, found: dict[str, FloatArray], tracks: slice, rows: Rows, weights: FloatArray) -> None:
        """Adds the derivatives with respect to signals, parameters with a value for each step."""
        table = None if self.springs is None else self.springs.signal_table
        if table is None or "springs" not in found:
            return
        columns, steps = table[0], steps_of_rows(rows, self.trajectory.every).tolist()
        sums = self.sums.setdefault("signals", np.zeros((self.n, self.trajectory.steps, len(columns))))
        for k, step in enumerate(steps):
            sums[tracks, step : step + 1] += weights[k] * found["springs"][:, k : k + 1, columns]

    def _sum(self, name: str, part: FloatArray) -> FloatArray:
        """The sums of one derivative."""
        if name not in self.sums:
            shape = self._controls()[0].shape if name == "du" else (self.n, self.count, part.shape[-1])
            self.sums[name] = np.zeros(shape)
        return self.sums[name]

    # ---- spans and rows

    def _good(self, x: FloatArray, tracks: slice, rows: FloatArray) -> FloatArray:
        """Selected rows x of some trajectories, with the first row of those that have failed in place of NaN."""
        first, last, _ = tracks.indices(self.n)
        here = self.failed[(first <= self.failed) & (self.failed < last)]
        x[here - first] = rows[here, :1]
        return x

    def _spans(self, term: Cost) -> list[Span]:
        if not term.uses_forces:
            return self.trajectory._spans()
        if self.springs is None:
            with_energy = [k for k, force in enumerate(self.trajectory.forces) if force.has_energy]
            self.springs = self.trajectory._batch.select(with_energy)
        return self.trajectory._spans(self.springs)

    def _forces(self, term: Cost, span: Span) -> CompiledForces | None:
        if not term.uses_forces or self.springs is None or not self.springs.forces:
            return None
        return replace(self.springs.compiled, core=span.forces, parameters=span.parameters)

    def _chosen(self, at: Any) -> Rows:
        """Indices of the selected rows."""
        count = self.count
        if isinstance(at, slice):
            chosen = np.arange(count)[at]
        else:
            given = np.atleast_1d(at)
            for r in given:
                if not -count <= r < count:
                    raise ValueError(f"at has {r}, but the trajectory has {count} rows: {-count} to {count - 1}")
            chosen = given % count
        if len(chosen) == 0:
            raise ValueError(f"at is {at!r}, which is none of the trajectory's {count} rows")
        if len(chosen) > 1 and len(np.unique(chosen)) < len(chosen):
            raise ValueError(f"at is {at!r}, which has a row twice")
        return chosen

    def _require_coordinates(self, term: Cost, chosen: Rows) -> None:
        """Rejects a cost in coordinates of joints that change at a selected row."""
        switches = self.trajectory._row_switches
        bodies = set(term._coordinates(self.trajectory.model)) if switches else ()
        for switch in switches if bodies else ():
            for part, old, new in zip(self.trajectory._batch.parts, switch.old, switch.charts, strict=True):
                same = hypot(*switch.q[part.iq : part.iq + 3]) <= np.pi if new == "exp" else old == new
                if part.body in bodies and not same and (chosen >= switch.row).any():
                    raise ValueError(
                        f"{type(term).__name__} is given in the coordinates of {part.name!r}, which changed at row "
                        f"{switch.row}, at t = {self.trajectory.t[switch.row]:g}; select rows before that, use "
                        "PointTarget, or a Spherical joint, whose coordinates do not change"
                    )


def _by_couplings(term: Cost, x: States) -> FloatArray:
    """Derivatives of a cost at fixed reduced states with respect to the numbers of couplings (..., n)."""
    found, nv = term._evaluate(x.on_tree, False), x.model.tree.nv
    assert x.q is not None
    v = np.zeros((*x.q.shape[:-1], x.model.nv)) if x.v is None else x.v
    by_q, by_v = (np.zeros(nv) if part is None else part for part in (found.dq, found.dv))
    return np.asarray(_core.expansion_vjp(x.model, x.q, v, by_q, by_v, None, 1))
