"""The rows of a run that are kept, as a trajectory, and reports of its progress."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from torsor._errors import ConvergenceError
from torsor.integrators import BDF2, Integrator
from torsor.simulation.charts import ChartSwitch
from torsor.simulation.failures import StepFailed
from torsor.simulation.run import Run
from torsor.simulation.trajectory import Trajectory

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from torsor._typing import FloatArray

    Callback = Callable[[int, float, FloatArray, FloatArray], object]


class Record:
    """The rows of a growing trajectory: all rows of a run, or with `every` those at the ends of its windows."""

    def __init__(self, run: Run, integrator: Integrator, t: FloatArray, every: int, fields: dict[str, Any]) -> None:
        self.run, self.integrator, self.t, self.every, self.fields = run, integrator, t, every, fields
        steps = len(t) - 1
        self.switches: list[ChartSwitch] = []
        self.previous: tuple[FloatArray, FloatArray] | None = None
        self.substeps = run.substeps
        self.rows = run
        if every > 1:
            self.rows = Run(run.batch, steps // every)
            self.rows.q[:, 0], self.rows.v[:, 0] = run.q[:, 0], run.v[:, 0]
            self.substeps = np.ones((run.size, steps), np.int32)
            if isinstance(integrator, BDF2):
                self.previous = np.full_like(self.rows.q, np.nan), np.full_like(self.rows.v, np.nan)

    def begin(self, window: int) -> None:
        """Restarts the run at the beginning of a window, where the last one ended."""
        if window > 0:
            q, v, a = (x[:, window] for x in (self.rows.q, self.rows.v, self.rows.a))
            self.run.begin(window * self.every, q, v, a, self.run.before_last())

    def add_switches(self) -> None:
        """Adds the switches of the window."""
        self.switches += [replace(s, row=self.run.start + s.row) for s in self.run.switches]

    def end(self, window: int) -> None:
        """Keeps the last row of a window."""
        if self.every == 1:
            return
        run, rows, every, at = self.run, self.rows, self.every, slice(window, window + 2)
        rows.q[:, at], rows.v[:, at], rows.a[:, at] = run.q[:, ::every], run.v[:, ::every], run.a[:, ::every]
        self.substeps[:, run.start : run.start + every] = run.substeps
        if self.previous is not None:
            self.previous[0][:, window + 1], self.previous[1][:, window + 1] = run.before_last()

    def trajectory(self, last: int) -> Trajectory:
        """The trajectory up to a row."""
        shape, steps, table = self.run.batch.shape, last * self.every, self.run.batch.signal_table

        def rows_of(x: NDArray[Any], count: int) -> Any:
            kept = x if x.shape[1] == count else x[:, :count].copy()
            return kept.reshape((*shape, *kept.shape[1:]))

        return Trajectory(
            **self.fields, integrator=self.integrator, every=self.every, t=self.t[: steps + 1 : self.every].copy(),
            q=rows_of(self.rows.q, last + 1), v=rows_of(self.rows.v, last + 1), a=rows_of(self.rows.a, last + 1),
            controls=self.run.controls.rows(steps, shape), substeps=rows_of(self.substeps, steps),
            switches=tuple(s for s in self.switches if s.row <= steps),
            previous=None if self.previous is None else tuple(rows_of(x, last + 1) for x in self.previous),
            signals=() if table is None else self.run.batch.signals_until(steps),
            compiled=self.run.batch if table is None or table[1].shape[1] == steps else None,
        )  # fmt: skip

    def error(self, failed: StepFailed) -> ConvergenceError:
        """The error for a failed step, with the trajectory before it."""
        step, single = self.run.start + failed.step, self.run.batch.shape == ()
        where = f"at t = {self.t[step]:.6g}" + ("" if single else f" in trajectory {failed.track} of the batch")
        last = step if self.run.size == 1 else len(self.t) - 1
        return ConvergenceError(
            failed.reason.format(where=where), self.trajectory(last // self.every), step, float(self.t[step]),
            None if single else failed.track,
        )  # fmt: skip


class Reporter:
    """Reports the progress of a run to a callback and a progress bar."""

    def __init__(self, run: Run, t: FloatArray, callback: Callback | None, progress: bool) -> None:
        self.run, self.t, self.callback = run, t, callback
        self.bar = _progress_bar(len(t) - 1) if progress else None

    @property
    def chunk(self) -> int:
        """Number of steps between reports."""
        steps = len(self.t) - 1
        return 1 if self.callback is not None else max(1, steps // 100 if self.bar is not None else steps)

    def __call__(self, row: int) -> None:
        run, number = self.run, self.run.start + row
        if self.callback is not None and number > 0:
            # Copies, so that neither side sees changes of the other.
            q, v = run.states(row)
            self.callback(number, float(self.t[number]), q.copy(), v.copy())
        if self.bar is not None:
            self.bar.update(number - self.bar.n)

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
