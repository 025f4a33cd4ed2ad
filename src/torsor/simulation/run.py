"""Steps of trajectories of a batch in the core, between switches of charts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from torsor import _core
from torsor._check import all_finite
from torsor._core import Outcome
from torsor.integrators import Integrator
from torsor.integrators.base import Explicit
from torsor.simulation import charts as _charts
from torsor.simulation.controls import Controls, controls_of
from torsor.simulation.failures import Failed, hint_of_rows, reason_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from torsor._typing import FloatArray, Threads
    from torsor.simulation.batch import Batch, Charts
    from torsor.simulation.trajectory import Trajectory

    Indices = NDArray[np.int64]
    State = tuple[FloatArray, FloatArray]  # q and v of all trajectories of a run: (size, ...) each

_NO_CONTROLS = Controls()
# Numbers of trajectories that run together, multiples of all numbers of lanes: at most so many, fewer if their steps
# need more memory than this, but enough for all cores.
_BLOCK = max(4096, 256 * _core.cores)
_BLOCK_BYTES = 1 << 26
_FEW = 16 * _core.cores
_NONE = np.zeros(0, np.int64)


def blocks(size: int, bytes_each: int, most: int = _BLOCK) -> list[slice]:
    """The parts of a batch that run one after the other. Each trajectory needs some bytes of memory meanwhile."""
    if size <= _FEW:
        return [slice(0, size)]
    count = max(min(_BLOCK_BYTES // max(bytes_each, 1), most, _BLOCK), _FEW) // 8 * 8
    return [slice(first, min(first + count, size)) for first in range(0, size, count)]


class Rows(NamedTuple):
    """Rows of trajectories: q (size, rows, nq), v and a (size, rows, nv), substeps (size, steps)."""

    q: FloatArray
    v: FloatArray
    a: FloatArray
    substeps: NDArray[np.int32]

    @classmethod
    def empty(cls, batch: Batch, size: int, rows: int, steps: int) -> Rows:
        """Rows that are not initialised."""
        nq, nv = batch.models[0].nq, batch.models[0].nv
        q, v, a = (_core.empty((size, rows, n)) for n in (nq, nv, nv))
        return cls(q, v, a, np.ones((size, steps), np.int32))

    @classmethod
    def unknown(cls, batch: Batch, size: int, rows: int, steps: int) -> Rows:
        """Rows of NaN."""
        out = cls.empty(batch, size, rows, steps)
        for x in out[:3]:
            x.fill(np.nan)
        return out

    def clear(self, tracks: slice = slice(None)) -> None:
        """Sets the rows of some trajectories to NaN, but for the first state."""
        self.q[tracks, 1:] = self.v[tracks, 1:] = self.a[tracks] = np.nan

    def of(self, part: slice) -> Rows:
        """Those of some trajectories, in the same memory."""
        if part.stop - part.start == len(self.q):
            return self
        return Rows(self.q[part], self.v[part], self.a[part], self.substeps[part])


class Run:
    """Steps of the trajectories `part` of a batch from the row `start` on: arrays (size, steps + 1, ...), filled by the
    core. Trajectories are counted from the first of the part."""

    def __init__(
        self, batch: Batch, part: slice, steps: int, controls: Controls = _NO_CONTROLS, rows: Rows | None = None
    ) -> None:
        self.batch, self.part, self.size = batch, part, part.stop - part.start
        self.steps, self.start, self.controls = steps, 0, controls
        self.q, self.v, self.a, self.substeps = rows or Rows.unknown(batch, self.size, steps + 1, steps)
        self.u: FloatArray | None = None  # torques of these steps
        self.signals: FloatArray | None = None  # and values of signals
        self.feedback: State | tuple[None, None] = (None, None)  # du/dq and du/dv of a policy, (size, steps, nv, nv)
        self.charts = [batch.charts] * self.size
        self.first_charts = self.charts
        self.switches: list[_charts.ChartSwitch] = []
        self.initial: State | None = None  # the state one step before the first row, in its coordinates
        self.blank = False  # whether the rows after the first are not initialised yet: the core does that
        self.keep = False  # whether the others go on when a trajectory fails
        self.failed: dict[int, Failed] = {}  # by trajectory
        self.alive, self.gone = np.arange(self.size), _NONE  # trajectories that have not failed, and that have

    # ---- rows

    def begin(self, start: int, q: FloatArray, v: FloatArray, a: FloatArray, previous: State | None) -> None:
        """Restarts from row `start` with the given state and, if needed, the state one step before it."""
        self.q[:, 0], self.v[:, 0], self.a[:, 0] = q, v, a
        self.begin_at(start, previous)

    def begin_at(self, start: int, previous: State | None) -> None:
        """Restarts from row `start`, whose state is the first of the arrays."""
        self.start, self.switches, self.first_charts = start, [], list(self.charts)
        self.initial = None
        if previous is not None:
            self.initial = np.ascontiguousarray(previous[0]), np.ascontiguousarray(previous[1])
        if self.failed:
            self._forget(self.gone, 0)
        self.load_inputs()

    def load_inputs(self) -> None:
        """Loads the controls and signals of these steps."""
        self.u = self.controls.torques(self.part, self.start, self.steps)
        if self.batch.signal_table is not None:
            table = self.batch.signal_table[1]
            rows = table if len(table) == 1 else table[self.part]
            self.signals = np.ascontiguousarray(rows[:, self.start : self.start + self.steps])

    def states(self, row: int) -> State:
        """Copies of the states of a row. A run of the whole batch has its shape."""
        q, v = self.q[:, row].copy(), self.v[:, row].copy()
        if self.size == self.batch.size:
            return q.reshape((*self.batch.shape, q.shape[-1])), v.reshape((*self.batch.shape, v.shape[-1]))
        return q, v

    def good_states(self, row: int) -> State:
        """The same with the last states that trajectories reached before they failed."""
        q, v = self.states(row)
        if self.failed:
            for x, last in zip((q, v), self._last_states, strict=True):
                x.reshape(self.size, x.shape[-1])[self.gone] = last[self.gone]
        return q, v

    def before_last(self) -> State:
        """The state of the row before the last, in the coordinates of the last; NaN where a two-step method must not
        use it, because stiff forces divided the step between them."""
        q, v = self.q[:, -2].copy(), self.v[:, -2].copy()
        for s in self.switches:
            if s.row == self.steps:
                q[s.track], v[s.track] = s.previous_q, s.previous_v
        q[self.gone], v[self.gone] = np.nan, np.nan
        if self.batch.compiled.core.stiff:
            divided = np.abs(self.substeps[:, -1]) != 1
            q[divided], v[divided] = np.nan, np.nan
        return q, v

    # ---- failures

    @property
    def ended(self) -> bool:
        """Whether no trajectory goes on after this chunk of steps."""
        return bool(self.failed) and (not self.keep or len(self.failed) == self.size)

    def fail(self, failed: dict[int, Failed]) -> None:
        """Ends trajectories that cannot take a step."""
        if not failed:
            return
        if not self.failed:
            self._good = np.ones(self.size, np.bool_)
            self._last_states = np.empty_like(self.q[:, 0]), np.empty_like(self.v[:, 0])  # of those that have failed
        self.failed |= failed
        for i, (_, _, q, v) in failed.items():
            self._last_states[0][i], self._last_states[1][i] = q, v
            self._good[i] = False
        self.gone, self.alive = np.flatnonzero(~self._good), np.flatnonzero(self._good)

    def fail_at(self, rows: dict[int, tuple[int, str]], integrator: Integrator) -> None:
        """Ends trajectories that cannot take the steps from rows, each for a reason."""
        states = {i: (self.q[i, k].copy(), self.v[i, k].copy()) for i, (k, _) in rows.items()}
        self.fail({i: Failed(self.start + k, reason, *states[i]) for i, (k, reason) in rows.items()})
        for i, (row, _) in rows.items():
            self._forget(i, row + 1)
            if (
                isinstance(integrator, Explicit) or self.blank
            ):  # these accelerations belong to the step, or are not there
                self.a[i, row] = np.nan

    def _forget(self, tracks: int | Indices, row: int) -> None:
        """Removes the rows of failed trajectories from `row` on, and the steps to them."""
        for x in (self.q, self.v, self.a):
            x[tracks, row:] = np.nan
        self.substeps[tracks, max(row - 1, 0) :] = 1

    # ---- controls and arguments of the core

    def decide(self, row: int, t: float, integrator: Integrator) -> None:
        """Evaluates the policy, if there is one, for the step that begins at a row."""
        policy, values, torques, actuation = self.controls.policy, self.controls.values, self.u, self.controls.actuation
        if policy is None or values is None or torques is None:
            return
        now = values[:, self.start + row, 0]
        states = self.good_states(row) if self.failed else self.states(row)
        u = policy._values(t, self.start + row, *states, now.shape[-1])
        now[...] = u.reshape(now.shape)
        if not all_finite(u):
            self._refuse_controls(now, row, t, integrator)
        if self.failed:
            now[self.gone] = np.nan  # they are not used
        if actuation is not None:
            torques[:, row, 0] = actuation.torques(now)
        elif self.steps != values.shape[1]:
            torques[:, row, 0] = now

    def _refuse_controls(self, now: FloatArray, row: int, t: float, integrator: Integrator) -> None:
        """Ends trajectories for which the policy has returned controls that are not finite."""
        reasons, step = {}, self.start + row
        for i in self.alive[~np.isfinite(now[self.alive]).all(axis=-1)].tolist():
            where = f" in trajectory {i} of the batch" if self.batch.shape and not self.keep else ""
            got = f"at step {step}: got {now[i].tolist()}"
            reasons[i] = row, f"policy(t, q, v) is not finite at t = {t:.6g}{where}, {got}"
            if not self.keep:
                raise ValueError(reasons[i][1])
        if reasons:
            self.fail_at(reasons, integrator)

    def tracks(self, chosen: Indices, previous: State | None) -> dict[str, Any]:
        """The arguments of the core for some of the trajectories; `previous` is the substitute for the row before their
        first one, if any."""
        q, v = previous or (None, None)
        signals = self.batch.signal_table
        return {
            "steps": self.steps, "start": self.start, "batch": self.size, "count": len(chosen), "index": chosen,
            "blank": self.blank,
            "q": self.q, "v": self.v, "a": self.a, "u": self.u, "u_rows": self.controls.stages,
            "u_shared": self.u is not None and len(self.u) != self.size, "divisions": self.substeps,
            "previous_q": q, "previous_v": v, "feedback_q": self.feedback[0], "feedback_v": self.feedback[1],
            "signals": self.signals, "signal_columns": None if signals is None else signals[0],
        }  # fmt: skip


class Stepper:
    """Advances the trajectories of a run from the rows that they have reached."""

    def __init__(self, integrator: Integrator, run: Run, t0: float, threads: Threads) -> None:
        self.integrator, self.run, self.t0, self.threads = integrator, run, t0, threads
        self.numbers = integrator._numbers
        self.ready: Indices | None = None  # the trajectories for which arguments of the core are prepared
        self.reached = _NONE  # the rows that these have reached
        if run.batch.parts:
            self.row = np.zeros(run.size, np.int64)
            self.previous: State | None = None  # substitutes for the rows before those that trajectories have reached
            self.charts: list[Charts] = list(dict.fromkeys(run.charts))
            of = {charts: 2 * k for k, charts in enumerate(self.charts)}
            self.key = np.array([of[charts] for charts in run.charts], np.int64)  # odd: with a substitute

    def go(self, chunk: int, report: Callable[[int], None] | None) -> None:
        """Advances all trajectories from the first row of the run to the last. All take `chunk` steps, then `report` is
        called with the row, before any continues."""
        run, h = self.run, self.integrator.h
        advance = self._advance if not run.batch.parts else self._advance_through_switches
        self.ready = None
        if run.batch.parts:
            self.row.fill(0)
            if run.initial is not None:
                self.previous = run.initial[0].copy(), run.initial[1].copy()
                self.key |= 1
        for end in [*range(chunk, run.steps, chunk), run.steps]:
            if end > 0:
                if run.controls.policy is not None:  # a chunk is a step
                    run.decide(end - 1, self.t0 + (run.start + end - 1) * h, self.integrator)
                if not run.ended:
                    advance(end)
            if report is not None:
                report(end)
            if run.ended:
                return

    def _advance(self, end: int) -> None:
        """Advances all trajectories to a row; none of them changes charts."""
        run, chosen = self.run, self.run.alive
        if self.ready is not chosen:
            n, first = len(chosen), 0 if self.ready is None else int(self.reached[0])
            self.scenes = run.batch.arguments(run.batch.charts, chosen, run.part)
            initial = run.initial if self.ready is None else None
            if initial is not None and n < run.size:
                initial = initial[0][chosen], initial[1][chosen]
            self.tracks = run.tracks(chosen, initial)
            self.reached, self.next = np.full(n, first, np.int64), np.empty(n, np.int64)
            self.outcome, self.error = np.empty(n, np.int32), np.empty((n, 2))
            self.ready = chosen
        if not len(chosen):
            return
        try:
            _core.simulate(
                self.scenes, self.numbers, self.t0, self.tracks, self.reached, end, [], self.outcome, self.next,
                self.error, self.threads,
            )  # fmt: skip
        finally:
            self.tracks["blank"] = run.blank = False
        self.reached, self.next = self.next, self.reached
        self.tracks["previous_q"] = self.tracks["previous_v"] = None  # rows have them from now on
        if np.count_nonzero(self.outcome):
            self._end_failed(chosen, self.outcome, self.reached, self.error)
            self.reached[:] = end

    def _advance_through_switches(self, end: int) -> None:
        """Advances all trajectories to a row, in groups with the same charts."""
        run = self.run
        while len(waiting := run.alive[self.row[run.alive] < end]):
            keys = self.key[waiting]
            key = int(keys[0])
            chosen = waiting if np.count_nonzero(keys == key) == len(keys) else waiting[keys == key]
            # Trajectories with a substitute for the previous row are grouped separately.
            previous = None
            if key & 1 and self.previous is not None:
                previous = self.previous[0][chosen], self.previous[1][chosen]
                self.key[chosen] = key - 1
            self._advance_group(key >> 1, chosen, end, previous)

    def _advance_group(self, group: int, chosen: Indices, end: int, previous: State | None) -> None:
        """Advances some trajectories, in the same charts, to row `end` or to the row where they must change charts.
        `previous` as for Run.tracks."""
        run, n, charts = self.run, len(chosen), self.charts[group]
        outcome, reached, error = np.empty(n, np.int32), np.empty(n, np.int64), np.empty((n, 2))
        limits = [(p.iq, p.limit(chart)) for p, chart in zip(run.batch.parts, charts, strict=True)]
        _core.simulate(
            run.batch.arguments(charts, chosen, run.part), self.numbers, self.t0, run.tracks(chosen, previous),
            self.row[chosen], end, limits, outcome, reached, error, self.threads,
        )  # fmt: skip
        self.row[chosen] = reached
        if not np.count_nonzero(outcome):
            return
        for k in np.flatnonzero(outcome == Outcome.chart).tolist():
            self._switch(int(chosen[k]), int(reached[k]), charts)
        self._end_failed(chosen, outcome, reached, error)

    def _end_failed(self, chosen: Indices, outcome: NDArray[np.int32], reached: Indices, error: FloatArray) -> None:
        """Notes the trajectories that could not take a step."""
        run = self.run
        rows: dict[int, tuple[int, str]] = {}
        for k in np.flatnonzero(outcome >= Outcome.failed).tolist():
            i = int(chosen[k])
            model = run.batch.models[run.batch.model_of[run.part.start + i]]
            reason = reason_of(model, self.integrator, int(outcome[k]), error[k].tolist())
            if run.batch.constraints and not rows:  # of the first one: this takes time
                row, t = int(reached[k]), self.t0 + (run.start + int(reached[k])) * self.integrator.h
                hint = hint_of_rows(model, run.batch.constraints, run.q[i, row], run.v[i, row], t)
                reason += hint.replace("{", "(").replace("}", ")")
            rows[i] = int(reached[k]), reason
        if rows:
            run.fail_at(rows, self.integrator)

    def _switch(self, i: int, row: int, charts: Charts) -> None:
        """Changes the charts of a trajectory at a row."""
        run = self.run
        rows = (run.q[i], run.v[i], run.a[i])
        before, known = [x[row].copy() for x in rows], len(run.switches)
        try:
            switch = _charts.switch_charts(i, row, run.batch.parts, charts, *rows)
            run.switches.append(switch)
        except KeyboardInterrupt:  # rows and switches must agree
            del run.switches[known:]
            for x, old in zip(rows, before, strict=True):
                x[row] = old
            raise
        except np.linalg.LinAlgError:
            reason = (
                f"{type(self.integrator).__name__} stopped {{where}}: a joint turns so far in one step that no "
                "coordinates are regular at both of its ends; try a smaller h"
            )
            run.fail_at({i: (row - 1, reason)}, self.integrator)
            return
        run.charts[i] = switch.charts
        if switch.charts not in self.charts:
            self.charts.append(switch.charts)
        if self.previous is None:
            self.previous = np.empty_like(run.q[:, 0]), np.empty_like(run.v[:, 0])
        self.previous[0][i], self.previous[1][i] = switch.previous_q, switch.previous_v
        self.key[i] = 2 * self.charts.index(switch.charts) + 1


# ---- runs of a trajectory that exists, for its gradients


def repeat(trajectory: Trajectory, part: slice, window: int, threads: Threads) -> Run:
    """Repeats the steps after a row of some trajectories with `every`, to the last bit."""
    batch, k = trajectory._batch, trajectory.every
    run = Run(batch, part, k, controls_of(trajectory))
    run.keep = True
    run.fail(trajectory._failed_in(part))

    def row(x: FloatArray, at: int) -> Any:
        return x.reshape(batch.size, *x.shape[len(trajectory.batch_shape) :])[part, at]

    previous = None
    if window > 0 and trajectory.previous is not None:
        previous = row(trajectory.previous[0], window), row(trajectory.previous[1], window)
    for s in trajectory.switches:
        if s.row <= k * window and part.start <= s.track < part.stop:
            run.charts[s.track - part.start] = s.charts
    q, v, a = (row(x, window) for x in (trajectory.q, trajectory.v, trajectory.a))
    run.begin(k * window, q, v, a, previous)
    known = len(run.failed)
    Stepper(trajectory.integrator, run, float(trajectory.t[0]), threads).go(max(k, 1), None)
    after = row(trajectory.q, window + 1)
    if len(run.failed) > known or not np.array_equal(run.q[run.alive, -1], after[run.alive]):
        raise ValueError(
            f"the steps between t = {trajectory.t[window]:.6g} and {trajectory.t[window + 1]:.6g} cannot be repeated: "
            "they end elsewhere; is the model or a force another one, or does a force depend on other things?"
        )
    return run


def whole(trajectory: Trajectory, part: slice) -> Run:
    """The run of some trajectories that have all rows. These are shared, unless changes of charts replace some of them
    during a sweep."""
    batch = trajectory._batch

    def rows(given: NDArray[Any]) -> Any:
        x = given.reshape(batch.size, *given.shape[len(trajectory.batch_shape) :])[part]
        return x if x.flags.carray and not trajectory.switches else x.copy()

    shared = Rows(rows(trajectory.q), rows(trajectory.v), rows(trajectory.a), rows(trajectory.substeps))
    run = Run(batch, part, trajectory.steps, controls_of(trajectory), shared)
    run.fail(trajectory._failed_in(part))
    run.load_inputs()
    run.switches = [
        replace(s, track=s.track - part.start) for s in trajectory.switches if part.start <= s.track < part.stop
    ]
    return run
