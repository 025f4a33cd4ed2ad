"""Steps of a batch of trajectories in the core, between switches of charts."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from torsor import _core
from torsor._core import Outcome
from torsor.integrators import Integrator
from torsor.simulation import charts as _charts
from torsor.simulation.controls import Controls, controls_of
from torsor.simulation.failures import StepFailed, reason_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from torsor._typing import FloatArray, Threads
    from torsor.simulation.batch import Batch, Charts
    from torsor.simulation.trajectory import Trajectory

    Indices = NDArray[np.int64]
    State = tuple[FloatArray, FloatArray]  # q and v of all trajectories: (batch, ...) each

_NO_CONTROLS = Controls()


class Run:
    """Steps of all trajectories from the row `start` on: arrays (batch, steps + 1, ...), filled by the core."""

    def __init__(self, batch: Batch, steps: int, controls: Controls = _NO_CONTROLS) -> None:
        nq, nv = batch.models[0].nq, batch.models[0].nv
        self.batch, self.size, self.steps, self.start, self.controls = batch, batch.size, steps, 0, controls
        self.q, self.v, self.a = (_unknown((self.size, steps + 1, n)) for n in (nq, nv, nv))
        self.u: FloatArray | None = None  # torques of these steps
        self.signals: FloatArray | None = None  # and values of signals
        self.feedback: State | tuple[None, None] = (None, None)  # du/dq and du/dv of a policy, (batch, steps, nv, nv)
        self.substeps = np.ones((self.size, steps), np.int32)
        self.charts = [batch.charts] * self.size
        self.first_charts = list(self.charts)
        self.switches: list[_charts.ChartSwitch] = []
        self.initial: State | None = None  # the state one step before the first row, in its coordinates

    def begin(self, start: int, q: FloatArray, v: FloatArray, a: FloatArray, previous: State | None) -> None:
        """Restarts from row `start` with the given state and, if needed, the state one step before it."""
        self.start, self.switches, self.first_charts = start, [], list(self.charts)
        self.q[:, 0], self.v[:, 0], self.a[:, 0] = q, v, a
        self.initial = None
        if previous is not None:
            self.initial = np.ascontiguousarray(previous[0]), np.ascontiguousarray(previous[1])
        self.load_inputs()

    def load_inputs(self) -> None:
        """Loads the controls and signals of these steps."""
        self.u = self.controls.torques(self.start, self.steps)
        if self.batch.signal_table is not None:
            self.signals = np.ascontiguousarray(self.batch.signal_table[1][:, self.start : self.start + self.steps])

    def states(self, row: int) -> State:
        """The states of a row, shaped as the batch."""
        q, v = self.q[:, row], self.v[:, row]
        return q.reshape((*self.batch.shape, q.shape[-1])), v.reshape((*self.batch.shape, v.shape[-1]))

    def decide(self, row: int, t: float) -> None:
        """Evaluates the policy, if there is one, for the step that begins at a row."""
        policy, values, torques, actuation = self.controls.policy, self.controls.values, self.u, self.controls.actuation
        if policy is None or values is None or torques is None:
            return
        u = policy._values(t, *self.states(row), values.shape[-1]).reshape(self.size, values.shape[-1])
        values[:, self.start + row, 0] = u
        torques[:, row, 0] = u if actuation is None else actuation.torques(u)

    def before_last(self) -> State:
        """The state of the row before the last, in the coordinates of the last."""
        q, v = self.q[:, -2].copy(), self.v[:, -2].copy()
        for s in self.switches:
            if s.row == self.steps:
                q[s.track], v[s.track] = s.previous_q, s.previous_v
        return q, v

    def tracks(self, chosen: Indices, previous: State | None) -> dict[str, Any]:
        """The arguments of the core for some of the trajectories; `previous` is the substitute for the row before their
        first one, if any."""
        q, v = previous or (None, None)
        signals = self.batch.signal_table
        return {
            "steps": self.steps, "start": self.start, "batch": self.size, "count": len(chosen), "index": chosen,
            "q": self.q, "v": self.v, "a": self.a, "u": self.u, "u_rows": self.controls.stages,
            "u_shared": self.u is not None and len(self.u) != self.size, "divisions": self.substeps,
            "previous_q": q, "previous_v": v, "feedback_q": self.feedback[0], "feedback_v": self.feedback[1],
            "signals": self.signals, "signal_columns": None if signals is None else signals[0],
        }  # fmt: skip


def _unknown(shape: tuple[int, ...]) -> FloatArray:
    out = np.empty(shape)
    out.fill(np.nan)
    return out


def step_through(
    integrator: Integrator, run: Run, t0: float, chunk: int, threads: Threads, report: Callable[[int], None]
) -> None:
    """Runs the core over all steps. All trajectories take `chunk` steps, then `report` is called with the row, before
    any continues."""
    stepper = _Stepper(integrator, run, t0, threads)
    for end in [*range(chunk, run.steps, chunk), run.steps]:
        if end > 0:
            run.decide(end - 1, t0 + (run.start + end - 1) * integrator.h)  # with a policy, a chunk is a step
        if run.batch.parts:
            stepper.go_through_switches(end)
        elif run.size > 0 and end > 0:
            stepper.go(run.batch.charts, stepper.all, end, run.initial if end <= chunk else None)
        report(end)


class _Stepper:
    """Advances trajectories of a run from the rows that they have reached."""

    def __init__(self, integrator: Integrator, run: Run, t0: float, threads: Threads) -> None:
        self.integrator, self.run, self.t0, self.threads = integrator, run, t0, threads
        self.all = np.arange(run.size)
        self.row = np.zeros(run.size, np.int64)
        # Substitutes for the row before the one from which a trajectory continues.
        self.previous: dict[int, State] = {}
        if run.batch.parts and run.initial is not None:
            self.previous = dict(enumerate(zip(*run.initial, strict=True)))

    def go(self, charts: Charts, chosen: Indices, end: int, previous: State | None) -> None:
        """Advances some trajectories, in the same charts, to row `end` or to the row where they must change charts.
        `previous` as for Run.tracks."""
        run, n = self.run, len(chosen)
        outcome, reached, error = np.zeros(n, np.int32), np.zeros(n, np.int64), np.zeros((n, 2))
        limits = [(p.iq, p.limit(chart)) for p, chart in zip(run.batch.parts, charts, strict=True)]
        _core.simulate(
            run.batch.arguments(charts, chosen), self.integrator._numbers, self.t0, run.tracks(chosen, previous),
            self.row[chosen], end, limits, outcome, reached, error, self.threads,
        )  # fmt: skip
        self.row[chosen] = reached
        if not outcome.any():
            return
        for k in np.flatnonzero(outcome == Outcome.chart).tolist():
            i = int(chosen[k])
            switch = _switch(self.integrator, run, i, int(reached[k]), charts)
            run.switches.append(switch)
            run.charts[i] = switch.charts
            self.previous[i] = (switch.previous_q, switch.previous_v)
        bad = np.flatnonzero(outcome >= Outcome.failed)
        if len(bad):
            k = int(bad[0])
            run.q[chosen[k], reached[k] + 1 :] = np.nan
            model = run.batch.models[run.batch.model_of[chosen[k]]]
            reason = reason_of(model, self.integrator, int(outcome[k]), error[k])
            raise StepFailed(reason, int(chosen[k]), int(reached[k]))

    def go_through_switches(self, end: int) -> None:
        """Advances all trajectories to row `end`, in groups with the same charts."""
        while len(waiting := np.flatnonzero(self.row < end)):
            first = int(waiting[0])
            charts, given = self.run.charts[first], first in self.previous
            # Trajectories with a substitute for the previous row are grouped separately.
            chosen = [i for i in waiting.tolist() if self.run.charts[i] == charts and (i in self.previous) == given]
            state = None
            if given:
                before = [self.previous.pop(i) for i in chosen]
                state = np.stack([q for q, _ in before]), np.stack([v for _, v in before])
            self.go(charts, np.array(chosen, np.int64), end, state)


def _switch(integrator: Integrator, run: Run, track: int, row: int, charts: Charts) -> _charts.ChartSwitch:
    try:
        return _charts.switch_charts(track, row, run.batch.parts, charts, run.q[track], run.v[track], run.a[track])
    except np.linalg.LinAlgError:
        run.q[track, row:] = np.nan
        reason = (
            f"{type(integrator).__name__} stopped {{where}}: a joint turns so far in one step that no coordinates are "
            "regular at both of its ends; try a smaller h"
        )
        raise StepFailed(reason, track, row - 1) from None


def repeat(trajectory: Trajectory, window: int, threads: Threads) -> Run:
    """Repeats the steps after a row of a trajectory with `every`, to the last bit."""
    batch, k = trajectory._batch, trajectory.every
    run = Run(batch, k, controls_of(trajectory))

    def row(x: FloatArray, at: int) -> Any:
        return x.reshape(batch.size, *x.shape[len(trajectory.batch_shape) :])[:, at]

    previous = None
    if window > 0 and trajectory.previous is not None:
        previous = row(trajectory.previous[0], window), row(trajectory.previous[1], window)
    for s in trajectory.switches:
        if s.row <= k * window:
            run.charts[s.track] = s.charts
    q, v, a = (row(x, window) for x in (trajectory.q, trajectory.v, trajectory.a))
    run.begin(k * window, q, v, a, previous)
    step_through(trajectory.integrator, run, float(trajectory.t[0]), k, threads, lambda row: None)
    if not np.array_equal(run.q[:, -1], row(trajectory.q, window + 1)):
        raise ValueError(
            f"the steps between t = {trajectory.t[window]:.6g} and {trajectory.t[window + 1]:.6g} cannot be repeated: "
            "they end elsewhere; is the model or a force another one, or does a force depend on other things?"
        )
    return run


def whole(trajectory: Trajectory) -> Run:
    """The run of a trajectory that has all rows."""
    run = Run(trajectory._batch, trajectory.steps, controls_of(trajectory))
    for name in ("q", "v", "a", "substeps"):
        getattr(run, name)[:] = getattr(trajectory, name).reshape(getattr(run, name).shape)
    run.load_inputs()
    run.switches = list(trajectory.switches)
    return run
