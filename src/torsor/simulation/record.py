"""The rows of a simulation that are kept, as a trajectory, and reports of its progress."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from torsor._errors import ConvergenceError, SimulationInterrupted
from torsor.integrators import BDF2, Adaptive, HardContact, Integrator
from torsor.simulation.charts import ChartSwitch
from torsor.simulation.failures import Failed, Failure, add_note
from torsor.simulation.run import Rows, Run, blocks
from torsor.simulation.trajectory import Trajectory

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from torsor._typing import FloatArray
    from torsor.simulation.batch import Batch
    from torsor.simulation.controls import Controls

    Callback = Callable[[int, float, FloatArray, FloatArray], object]


class Record:
    """The rows of all trajectories of a batch, which runs of its parts fill: all rows, or with `every` one every so
    many steps. A run takes `span` steps at a time."""

    def __init__(
        self, batch: Batch, controls: Controls, integrator: Integrator, t: FloatArray, every: int, span: int
    ) -> None:
        self.batch, self.controls, self.integrator, self.t = batch, controls, integrator, t
        self.every, self.span, self.steps = every, span, len(t) - 1
        # Where the core runs over all rows at once it initialises them too, while they are in the cache.
        self.blank = every == 1 and not batch.parts and not isinstance(integrator, Adaptive)
        make = Rows.empty if self.blank else Rows.unknown
        self.rows = make(batch, batch.size, self.steps // every + 1, self.steps)
        self.started = False  # whether the initial states are there
        self.begun = 0 if self.blank else batch.size  # trajectories, from the first, whose rows are initialised
        self.finished = 0  # trajectories of parts that have ended, without those that failed
        self.switches: list[ChartSwitch] = []
        self.failed: dict[int, Failed] = {}  # by trajectory
        self.previous: tuple[FloatArray, FloatArray] | None = None
        self.scratch: Rows | None = None  # of the steps of a run, with `every`
        if every > 1 and isinstance(integrator, BDF2):
            self.previous = np.full_like(self.rows.q, np.nan), np.full_like(self.rows.v, np.nan)

    def parts(self, most: int) -> list[slice]:
        """The parts of the batch, of which one runs after the other."""
        nq, nv = self.rows.q.shape[-1], self.rows.v.shape[-1]
        numbers = nv * self.controls.stages * (self.every > 1 or self.controls.actuation is not None)
        if self.batch.signal_table is not None:
            numbers += len(self.batch.signal_table[0])
        if self.every > 1:
            numbers += nq + 2 * nv
        if self.blank:  # after an interrupt the core clears the rows of a part: that must not take long
            numbers = max(numbers, (nq + 2 * nv) // 4)
        return blocks(self.batch.size, 8 * (self.span + 1) * numbers, most)

    def run(self, part: slice) -> Run:
        """A run of some trajectories."""
        if self.every == 1:
            run = Run(self.batch, part, self.span, self.controls, self.rows.of(part))
            run.blank = self.blank
            return run
        size = part.stop - part.start
        if self.scratch is None or len(self.scratch.q) < size:
            self.scratch = Rows.unknown(self.batch, size, self.span + 1, self.span)
        return Run(self.batch, part, self.span, self.controls, self.scratch.of(slice(0, size)))

    def begin(self, run: Run, start: int) -> None:
        """Starts the run at its first row, or continues it where it has ended."""
        if self.every == 1:
            run.begin_at(0, None)
        elif start == 0:
            rows, part = self.rows, run.part
            run.begin(0, rows.q[part, 0], rows.v[part, 0], rows.a[part, 0], None)
        else:
            previous = run.before_last()
            run.begin(start, run.q[:, -1], run.v[:, -1], run.a[:, -1], previous)

    def add_switches(self, run: Run) -> None:
        """Adds the switches since the run has begun, also if it was interrupted."""
        first = run.part.start
        if run.switches:
            self.switches += [replace(s, track=first + s.track, row=run.start + s.row) for s in run.switches]

    def add_failures(self, run: Run) -> None:
        """Adds the failures of a run, also if it was interrupted; then its rows may not be initialised yet."""
        first = run.part.start
        if not run.blank:
            self.begun = max(self.begun, run.part.stop)
        if run.failed:
            self.failed |= {first + i: failed for i, failed in run.failed.items()}

    def complete(self, run: Run) -> None:
        """Ends a run that was not interrupted. If the core was never called, its rows are not initialised yet."""
        self.finished += run.size - len(run.failed)
        if run.blank:
            self.rows.clear(run.part)
            self.begun = run.part.stop

    def end(self, run: Run) -> None:
        """Keeps the rows of a run."""
        if self.every == 1:
            return
        part, rows, stop = run.part, self.rows, run.start + run.steps
        rows.substeps[part, run.start : stop] = run.substeps
        if run.start % self.every == 0:  # of an explicit integrator it is that of the step
            rows.a[part, run.start // self.every] = run.a[:, 0]
        if stop % self.every == 0:
            k = stop // self.every
            rows.q[part, k], rows.v[part, k], rows.a[part, k] = run.q[:, -1], run.v[:, -1], run.a[:, -1]
            if self.previous is not None:
                self.previous[0][part, k], self.previous[1][part, k] = run.before_last()

    def trajectory(self, fields: dict[str, Any], last: int | None = None) -> Trajectory:
        """The trajectory, or the part up to a row."""
        shape, table = self.batch.shape, self.batch.signal_table
        count = self.steps // self.every if last is None else last
        steps = count * self.every

        def rows_of(x: NDArray[Any], count: int) -> Any:
            kept = x if x.shape[1] == count else x[:, :count].copy()
            return kept.reshape((*shape, *kept.shape[1:]))

        marks = rows_of(self.rows.substeps, steps)
        hard = isinstance(self.integrator, HardContact)  # its steps are not divided: their marks are 1 + kinks
        return Trajectory(
            **fields, integrator=self.integrator, every=self.every, t=self.t[: steps + 1 : self.every].copy(),
            q=rows_of(self.rows.q, count + 1), v=rows_of(self.rows.v, count + 1), a=rows_of(self.rows.a, count + 1),
            controls=self.controls.rows(steps, shape), substeps=np.ones_like(marks) if hard else marks,
            kinks=marks - 1 if hard else None,
            switches=tuple(s for s in self.switches if s.row <= steps),
            previous=None if self.previous is None else tuple(rows_of(x, count + 1) for x in self.previous),
            signals=() if table is None else self.batch.signals_until(steps),
            failed=self._failures(),
            compiled=self.batch if table is None or table[1].shape[1] == steps else None,
        )  # fmt: skip

    def _failures(self) -> tuple[Failure, ...]:
        found = []
        for i, failed in sorted(self.failed.items()):
            index = tuple(int(k) for k in np.unravel_index(i, self.batch.shape))
            t = float(self.t[failed.step])
            found.append(Failure(index, failed.step, t, failed.reason.format(where=f"at t = {t:.6g}")))
        return tuple(found)

    def error(self, fields: dict[str, Any]) -> ConvergenceError:
        """The error for the failed step that came first, with everything that is known of all trajectories of a batch;
        of a single one the trajectory before the step."""
        track, failed = min(self.failed.items(), key=lambda item: (item[1].step, item[0]))
        step, single = failed.step, self.batch.shape == ()
        where = f"at t = {self.t[step]:.6g}" + ("" if single else f" in trajectory {track} of the batch")
        last = step // self.every if single else None
        return ConvergenceError(
            failed.reason.format(where=where), self.trajectory(fields, last), step, float(self.t[step]),
            None if single else track,
        )  # fmt: skip

    def interruption(self, fields: dict[str, Any]) -> SimulationInterrupted:
        """The exception for an interrupt, with all rows until then. Its trajectory is made on first use: that may take
        seconds, and who has pressed Ctrl-C should not wait for it."""

        def make() -> Trajectory:
            if self.blank:
                self.rows.clear(slice(self.begun, None))
                if not self.started:
                    self.rows.q[:, 0] = self.rows.v[:, 0] = np.nan
            return self.trajectory(fields)

        if self.batch.shape:
            done = f"at least {self.finished} of {self.batch.size} trajectories are finished"
        else:
            known = range(1, len(self.rows.q[0]) if self.begun else 1)  # rows that are not NaN precede those that are
            last = bisect_left(known, True, key=lambda k: not np.isfinite(self.rows.q[0, k]).all())
            done = f"at t = {self.t[last * self.every]:.6g}"
        return SimulationInterrupted(f"simulate was interrupted: {done}", make=make)


class Reporter:
    """Reports the progress of a simulation to a callback and a progress bar."""

    def __init__(self, batch: Batch, t: FloatArray, callback: Callback | None, progress: bool) -> None:
        self.batch, self.t, self.callback = batch, t, callback
        self.steps, self.finished, self.failed = len(t) - 1, 0, 0
        self.bar = _progress_bar(self.steps * max(batch.size, 1)) if progress else None

    @property
    def silent(self) -> bool:
        """Whether there is nothing to report to."""
        return self.callback is None and self.bar is None

    @property
    def most(self) -> int:
        """Number of trajectories that run together at most, so that the bar advances a hundred times."""
        return self.batch.size if self.bar is None else max(64, self.batch.size // 100)

    def chunk(self, parts: int) -> int:
        """Number of steps between reports, of a batch in so many parts."""
        if self.callback is not None:
            return 1
        return max(1, self.steps if self.bar is None else self.steps // max(1, 100 // parts))

    def begin(self, run: Run) -> None:
        """Reports of a run follow."""
        self.run, self.at = run, 0

    def __call__(self, row: int) -> None:
        """Reports that the run has reached a row."""
        run, number = self.run, self.run.start + row
        if self.callback is not None and number > 0:
            try:
                self.callback(number, float(self.t[number]), *run.states(row))
            except Exception as error:
                add_note(error, f"in the callback of simulate, after step {number - 1}, t = {self.t[number]:.6g}")
                raise
        if self.bar is not None:
            if self.batch.shape and (number == self.steps or run.ended):
                self.failed += len(run.failed)
                if number == self.steps or run.keep:  # else the call ends here
                    number = self.steps  # there is nothing left to do
                    self.finished += run.size - len(run.failed)
                text = f"{self.finished} of {self.batch.size} trajectories"
                self.bar.set_postfix_str(text + (f", {self.failed} failed" if self.failed else ""), refresh=False)
            self.bar.update((number - self.at) * run.size)
            self.at = number

    def close(self) -> None:
        """Closes the progress bar."""
        if self.bar is not None:
            self.bar.close()


def _progress_bar(steps: int) -> Any:
    try:
        from tqdm import tqdm
    except ImportError:
        raise ImportError("progress=True needs tqdm: pip install 'torsor[view]'; or pass a callback") from None
    return tqdm(total=steps, unit="step")
