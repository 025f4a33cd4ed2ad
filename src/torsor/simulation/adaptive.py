"""Trajectories by SciPy's integrators with error control, for reference."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from torsor import _core
from torsor._check import as_array
from torsor._errors import ConstraintError, ConvergenceError
from torsor.constraints.projection import project
from torsor.dynamics import forward_dynamics
from torsor.integrators import Adaptive
from torsor.simulation import charts as _charts
from torsor.simulation.run import Run

if TYPE_CHECKING:
    from torsor._typing import FloatArray


class _NoEnd(Exception):
    """SciPy would not stop, or not in reasonable time."""


class _Rates:
    """The function f(t, y) that SciPy integrates from t0 to t1, with a check that the integration ends.

    Rates that are not finite make SciPy try a shorter step, which may help; but from some states it would never stop,
    nor with motions that are too fast for any step.
    """

    def __init__(self, f: Callable[[float, FloatArray], FloatArray], t0: float, t1: float) -> None:
        self.f, self.t0, self.t1 = f, t0, t1
        self.count = self.not_finite = 0  # all calls, and consecutive ones whose rates are not finite
        self.running = False

    def __call__(self, time: float, y: FloatArray) -> FloatArray:
        self.running = True
        rates = self.f(time, y)
        self.running = False
        self.count += 1
        self.not_finite = 0 if np.isfinite(rates).all() else self.not_finite + 1
        if self.not_finite > 1000:  # the step is then far below rounding
            raise _NoEnd(_NOT_FINITE)
        if self.count % 10_000 == 0 and not (time - self.t0) * 1e9 > (self.t1 - self.t0) * self.count:
            raise _NoEnd("its steps are so short that it would take 1e9 evaluations of the dynamics to the next row")
        return rates


_NOT_FINITE = "the acceleration is not finite there or soon after it; look at the forces, controls and velocities"


def integrate(integrator: Adaptive, run: Run, t: FloatArray, chunk: int, report: Callable[[int], None] | None) -> None:
    """Fills the rows by `scipy.integrate.solve_ivp` over each step, in coordinates and velocities.

    All trajectories take `chunk` steps, then `report` is called with the row, before any continues.
    """
    try:
        from scipy.integrate import solve_ivp
    except ImportError:
        raise ImportError("Adaptive needs SciPy: pip install scipy") from None
    tracks = [_Track(run, i) for i in range(run.size)]
    for first in range(0, run.steps, chunk):
        end = min(first + chunk, run.steps)
        run.decide(first, float(t[first]), integrator)  # with a policy, a chunk is a step
        for i in run.alive.tolist():
            try:
                for k in range(first, end):
                    tracks[i].step(integrator, k, t, solve_ivp)
            except _NoEnd as error:
                run.fail_at({i: (k, f"SciPy's {integrator.method} stopped {{where}}: {error}")}, integrator)
        if report is not None:
            report(end)
        if run.ended:
            return
    for i in run.alive.tolist():
        run.a[i, -1] = tracks[i].acceleration(t[-1], run.q[i, -1], run.v[i, -1], run.steps)


class _Track:
    """One trajectory of a run."""

    def __init__(self, run: Run, index: int) -> None:
        self.run, self.index, self.place = run, index, run.part.start + index  # in the run, and in the batch
        models, forces, _, parameters, rows = run.batch.arguments(run.batch.charts, np.array([index]), run.part)
        self.model, self.forces, self.rows = models[0], forces[0], rows[0]
        self.parameters: FloatArray = parameters[0]

    def acceleration(self, time: float, q: FloatArray, v: FloatArray, step: int) -> FloatArray:
        """The acceleration under forces and the controls of a step, after the last step with its controls."""
        run, model = self.run, self.model
        tau = np.zeros(model.nv)
        step = min(step, run.steps - 1)
        if self.forces is not None:
            parameters = self.step_parameters(step)
            tau = _core.generalized_forces(model, q, v, time, parameters, {"forces": self.forces}, None, 1)
        if run.controls.function is not None:
            u = as_array("controls(t)", run.controls.function(time))
            u = np.broadcast_to(u, (*run.batch.shape, u.shape[-1])).reshape(run.batch.size, -1)[self.place]
            tau = tau + (u if run.controls.actuation is None else run.controls.actuation.torques(u))
        elif run.u is not None:
            tau = tau + run.u[self.index if len(run.u) > 1 else 0, step, 0]
        if self.rows is not None:
            options = {"constraints": self.rows}
            a, _, _ = _core.constrained_forward_dynamics(model, q, v, time, tau, None, options, None, 1)
            return a
        return forward_dynamics(model, q, v, tau)

    def step_parameters(self, step: int) -> FloatArray:
        """Parameters of the forces, with the signals of a step."""
        table = self.run.batch.signal_table
        if table is None or step < 0:
            return self.parameters
        out: FloatArray = self.parameters.copy()
        out[table[0]] = table[1][self.place if len(table[1]) > 1 else 0, step]
        return out

    def step(self, integrator: Adaptive, k: int, t: FloatArray, solve_ivp: Callable[..., Any]) -> None:
        """Integrates from row k to row k + 1. Raises _NoEnd where that is not possible."""
        run, model, i, nq = self.run, self.model, self.index, self.model.nq

        def rate(time: float, y: FloatArray) -> FloatArray:
            q, v = np.ascontiguousarray(y[:nq]), np.ascontiguousarray(y[nq:])
            return np.concatenate([_charts.coordinate_rates(model, q, v), self.acceleration(time, q, v, k)])

        y0 = np.concatenate([run.q[i, k], run.v[i, k]])
        run.a[i, k] = self.acceleration(t[k], run.q[i, k], run.v[i, k], k)
        rates = _Rates(rate, t[k], t[k + 1])
        try:
            if not np.isfinite(run.a[i, k]).all():
                raise _NoEnd(_NOT_FINITE)
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                result = solve_ivp(
                    rates, (t[k], t[k + 1]), y0, method=integrator.method, rtol=integrator.rtol, atol=integrator.atol
                )
            if not result.success or not np.isfinite(result.y[:, -1]).all():
                raise _NoEnd(_NOT_FINITE if rates.not_finite else result.message)
        except (_NoEnd, ValueError, ArithmeticError) as error:
            if rates.running:  # an error of a force or of controls; SciPy's own are about numbers that are not finite
                raise
            raise _NoEnd(_NOT_FINITE if rates.not_finite else str(error)) from None
        q, v = model.plus(result.y[:nq, -1].copy(), np.zeros(model.nv)), result.y[nq:, -1].copy()
        if self.rows is not None:
            try:
                q, v = project(model, run.batch.constraints, q, v, t=float(t[k + 1]))
            except (ConvergenceError, ConstraintError) as error:
                raise _NoEnd(str(error)) from None
        run.q[i, k + 1], run.v[i, k + 1] = q, v
