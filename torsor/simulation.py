"""Simulation: a model, an initial state, forces and controls to a trajectory.

One call takes one initial state or a batch of them; each trajectory is computed by itself, so that it is the same to
the last bit alone and in a batch, whatever the number of threads.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from math import isfinite, prod
from numbers import Real
from operator import index
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from torsor import _charts, _core, integrators
from torsor._check import as_array
from torsor._errors import ConvergenceError
from torsor.dynamics import kinetic_energy, potential_energy
from torsor.forces import CustomForce, force_energies, generalized_forces
from torsor.forces.force import Force, Scene, compile_forces
from torsor.integrators import Adaptive, Integrator
from torsor.model import Model, require_model

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    FloatArray = NDArray[np.float64]
    Control = ArrayLike | Callable[[float], ArrayLike] | None

_ALPHA = (2.0 - np.sqrt(2.0)) / 2.0
_MOST_STEPS = 1_000_000_000
_FINISHED, _CHART, _FAILED, _SINGULAR = range(4)  # as in core/integrate.hpp


class Energies(NamedTuple):
    """Energies of a trajectory, each (..., steps + 1), but those of the forces one by one (..., steps + 1, forces)."""

    kinetic: FloatArray
    potential: FloatArray
    forces: FloatArray
    total: FloatArray


@dataclass(frozen=True, eq=False)
class Trajectory:
    """A simulated motion; `simulate` makes it.

    Attributes
    ----------
    t : (steps + 1,)
        Times of the rows.
    q : (..., steps + 1, nq)
    v, a : (..., steps + 1, nv)
        a is that of the integrator's formula; in the first row of an implicit one, that of forward dynamics.
    controls : (..., steps, nv), (..., steps, 2, nv) or None
        Torques of each step. Two rows for a function of time with an integrator of two stages: at (1 - sqrt(1/2)) h and
        at the end of the step.
    substeps : (..., steps)
        Into how many parts each step was divided.
    switches : tuple of ChartSwitch
        Where the coordinates of joints were changed. From the row of a switch on, q, v and a are in the new ones.
    """

    model: Model
    integrator: Integrator
    forces: tuple[Force, ...]
    t: FloatArray
    q: FloatArray
    v: FloatArray
    a: FloatArray
    controls: FloatArray | None
    substeps: NDArray[np.int32]
    switches: tuple[_charts.ChartSwitch, ...] = field(default=())

    def __post_init__(self) -> None:
        for name in ("t", "q", "v", "a", "controls", "substeps"):
            array = getattr(self, name)
            if array is not None:
                array.flags.writeable = False

    @property
    def steps(self) -> int:
        """Number of steps."""
        return len(self.t) - 1

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """Shape of the batch, () for one trajectory."""
        return self.q.shape[:-2]

    @cached_property
    def _scene(self) -> Scene:
        return compile_forces(self.model, self.forces)

    @cached_property
    def _parts(self) -> list[_charts.ChartPart]:
        return switching_parts(self.model, self.forces)

    @cached_property
    def charts(self) -> dict[str, NDArray[np.str_]]:
        """The chart of every `SphericalEuler` joint in every row: name of the joint -> (..., steps + 1)."""
        return _charts.chart_rows(self.model, self._parts, self.switches, self.batch_shape, len(self.t))

    def segments(self) -> list[tuple[int, int, int, Model]]:
        """Parts with one set of coordinates: (trajectory, first row, last row, model in these coordinates)."""
        return _charts.segments(self.model, self._parts, self.switches, prod(self.batch_shape), len(self.t))

    @cached_property
    def energies(self) -> Energies:
        """Kinetic energy, potential energy of gravity, energies of the forces, and their sum, row by row."""
        rows, n = len(self.t), prod(self.batch_shape)
        kinetic, potential = np.empty((n, rows)), np.empty((n, rows))
        of_forces = np.zeros((n, rows, len(self.forces)))
        q, v = self.q.reshape(n, rows, self.model.nq), self.v.reshape(n, rows, self.model.nv)
        if not self.switches:
            kinetic, potential = kinetic_energy(self.model, q, v), potential_energy(self.model, q)
            of_forces = force_energies(self.model, self.forces, q, self.t)
        else:
            for i, first, last, model in self.segments():
                at = slice(first, last)
                kinetic[i, at] = kinetic_energy(model, q[i, at], v[i, at])
                potential[i, at] = potential_energy(model, q[i, at])
                of_forces[i, at] = force_energies(model, self.forces, q[i, at], self.t[at])
        shape = (*self.batch_shape, rows)
        parts = kinetic.reshape(shape), potential.reshape(shape), of_forces.reshape((*shape, len(self.forces)))
        return Energies(*parts, total=parts[0] + parts[1] + parts[2].sum(axis=-1))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes all arrays, without loss, to a .npz file. The model and the forces are not in it."""
        scheme = {f.name: getattr(self.integrator, f.name) for f in fields(self.integrator)}
        arrays: dict[str, Any] = {name: getattr(self, name) for name in ("t", "q", "v", "a", "substeps")}
        if self.controls is not None:
            arrays["controls"] = self.controls
        for name, value in _charts.to_arrays(self.switches).items():
            arrays[f"switch_{name}"] = value
        for name, value in scheme.items():
            arrays[f"integrator_{name}"] = np.array(value)
        with open(path, "wb") as file:
            np.savez(file, integrator=np.array(type(self.integrator).__name__), **arrays)

    @staticmethod
    def load(path: str | os.PathLike[str], model: Model, forces: Sequence[Force] = ()) -> Trajectory:
        """What `save` wrote, for the model and the forces that it was simulated with."""
        with np.load(path, allow_pickle=False) as data:
            missing = [n for n in ("integrator", "t", "q", "v", "a", "substeps") if n not in data.files]
            if missing:
                raise ValueError(f"{os.fspath(path)!r} is no trajectory: it has no {', '.join(missing)}")
            nq, nv = data["q"].shape[-1], data["v"].shape[-1]
            if (nq, nv) != (require_model(model).nq, model.nv):
                raise ValueError(
                    f"{os.fspath(path)!r} is a trajectory of a model with nq {nq} and nv {nv}, got one with nq "
                    f"{model.nq} and nv {model.nv}; load it with the model that it was simulated with"
                )
            kind = getattr(integrators, str(data["integrator"]))
            scheme = {f.name: data[f"integrator_{f.name}"].item() for f in fields(kind)}
            switches = {n[7:]: data[n] for n in data.files if n.startswith("switch_")}
            return Trajectory(
                model, kind(**scheme), tuple(forces), data["t"], data["q"], data["v"], data["a"],
                data["controls"] if "controls" in data.files else None, data["substeps"],
                _charts.from_arrays(switches),
            )  # fmt: skip

    def plot(self, joints: Sequence[str] | None = None, index: int = 0) -> Any:
        """Draws coordinates, velocities and energies over time with Matplotlib; returns the figure.

        `joints` are those to draw, all by default; `index` is the trajectory of a batch (flat).
        """
        try:
            from matplotlib.figure import Figure
        except ImportError:
            raise ImportError("plot needs Matplotlib: pip install 'torsor[view]'") from None
        chosen = self.model.joints if joints is None else [self.model.joint(name) for name in joints]
        n, rows = prod(self.batch_shape), len(self.t)
        q, v = self.q.reshape(n, rows, -1)[index], self.v.reshape(n, rows, -1)[index]
        figure = Figure(figsize=(8, 8), layout="constrained")
        axes = figure.subplots(3, 1, sharex=True)
        for joint in chosen:
            for k in range(joint.nq):
                label = f"{joint.name}[{k}]" if joint.nq > 1 else joint.name
                axes[0].plot(self.t, q[:, joint.q_slice][:, k], label=label)
            for k in range(joint.nv):
                axes[1].plot(self.t, v[:, joint.v_slice][:, k])
        for name, energy in self.energies._asdict().items():
            energy = energy.reshape(n, rows, -1)[index].sum(axis=-1)
            axes[2].plot(self.t, energy, label=name)
        for axis, label in zip(axes, ("q", "v", "energy"), strict=True):
            axis.set_ylabel(label)
        axes[0].legend(fontsize="small")
        axes[2].legend(fontsize="small")
        axes[2].set_xlabel("t")
        return figure


def _count_steps(T: float | None, steps: int | None, h: float) -> int:
    if (T is None) == (steps is None):
        given = "both" if T is not None else "neither"
        raise TypeError(f"simulate takes either T, the duration, or steps, their number: got {given}")
    if steps is not None:
        try:
            count = index(steps)
        except TypeError:
            raise TypeError(f"steps is {steps!r}, expected an integer") from None
        if not 0 <= count <= _MOST_STEPS:
            raise ValueError(f"steps is {count}, expected at least 0, {_MOST_STEPS} at most")
        return count
    try:
        exact = float(T) / h  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise TypeError(f"T is {T!r}, expected a duration") from None
    if not np.isfinite(exact) or exact < 0:
        raise ValueError(f"T is {T!r}, expected a duration of at least 0")
    if exact > _MOST_STEPS:
        raise ValueError(
            f"T = {T!r} is {exact:.3g} steps of h = {h!r}, expected {_MOST_STEPS} at most; choose a larger h"
        )
    count = round(exact)
    if abs(exact - count) > 1e-6 * max(1.0, exact):
        raise ValueError(
            f"T = {T!r} is {exact:.6g} steps of h = {h!r}, expected a whole number; choose h = T / n, or give steps"
        )
    return count


def _state(model: Model, name: str, value: Any, size: int) -> FloatArray:
    array = as_array(name, value)
    if array.ndim == 0 or array.shape[-1] != size:
        letter = "nq" if size == model.nq and name.startswith("q") else "nv"
        raise ValueError(f"{name} has shape {array.shape}, expected (..., {size}): model.{letter} is {size}")
    if not np.isfinite(array).all():
        where = np.argwhere(~np.isfinite(array))[0].tolist()
        raise ValueError(f"{name} is not finite: {name}{where} is {array[tuple(where)]}")
    return array


def _sample_controls(
    model: Model, integrator: Integrator, controls: Control, t: FloatArray, steps: int
) -> tuple[FloatArray | None, int]:
    """Controls (..., steps, rows, nv), and how many rows each step has."""
    nv = model.nv
    if controls is None:
        return None, 1
    if callable(controls):
        h, method = integrator.h, integrator._method
        shifts = [0.0] if method < 2 else [h] if method == 2 else [_ALPHA * h, h]
        samples = []
        for row in t[:-1]:
            for shift in shifts:
                u = as_array("controls(t)", controls(float(row + shift)))
                if u.ndim == 0 or u.shape[-1] != nv:
                    raise ValueError(f"controls(t) has shape {u.shape}, expected (..., {nv}): model.nv is {nv}")
                samples.append(u)
        if not samples:
            return None, len(shifts)
        array = np.moveaxis(np.stack(np.broadcast_arrays(*samples)), 0, -2)
        array = array.reshape(*array.shape[:-2], steps, len(shifts), nv)
    else:
        array = as_array("controls", controls)
        if array.shape == (nv,):
            array = np.broadcast_to(array, (steps, nv))
        if array.ndim < 2 or array.shape[-2:] != (steps, nv):
            raise ValueError(
                f"controls have shape {array.shape}, expected (..., {steps}, {nv}), a row of nv = {nv} torques for "
                f"each of {steps} steps; or ({nv},), constant; or a function of time"
            )
        array, shifts = array[..., None, :], [0.0]
    if not np.isfinite(array).all():
        raise ValueError("controls are not finite")
    return np.array(array, order="C"), len(shifts)  # a copy, which the caller's changes do not reach


class _Run:
    """Trajectories being simulated: arrays of shape (batch, steps + 1, ...), filled by the core."""

    def __init__(self, q: FloatArray, v: FloatArray, u: FloatArray | None, rows: int, steps: int) -> None:
        batch, nq, nv = q.shape[0], q.shape[1], v.shape[1]
        self.batch, self.steps, self.u, self.u_rows = batch, steps, u, rows
        self.q = np.full((batch, steps + 1, nq), np.nan)
        self.v = np.full((batch, steps + 1, nv), np.nan)
        self.a = np.full((batch, steps + 1, nv), np.nan)
        self.q[:, 0], self.v[:, 0] = q, v
        self.substeps = np.ones((batch, steps), np.int32)

    def tracks(
        self, chosen: NDArray[np.int64], previous_q: FloatArray | None = None, previous_v: FloatArray | None = None
    ) -> dict[str, Any]:
        """The arguments of the core for some of the trajectories."""
        return {
            "steps": self.steps, "batch": self.batch, "count": len(chosen), "index": chosen,
            "q": self.q, "v": self.v, "a": self.a, "u": self.u, "u_rows": self.u_rows,
            "u_shared": self.u is not None and len(self.u) != self.batch, "divisions": self.substeps,
            "previous_q": previous_q, "previous_v": previous_v,
        }  # fmt: skip


def simulate(
    model: Model,
    q0: ArrayLike,
    v0: ArrayLike | None = None,
    *,
    T: float | None = None,
    steps: int | None = None,
    integrator: Integrator,
    forces: Sequence[Force] = (),
    controls: Control = None,
    t0: float = 0.0,
    callback: Callable[[int, float, FloatArray, FloatArray], object] | None = None,
    progress: bool = False,
    threads: int = 1,
) -> Trajectory:
    """Simulates the model from q0, v0.

    Parameters
    ----------
    q0 : (..., nq)
    v0 : (..., nv), optional
        At rest if left out.
    T, steps : float or int
        Duration or number of steps, one of them.
    integrator : Integrator
        `BDF1(h)`, `BDF2(h)`, `SDIRK2(h)`, `SymplecticEuler(h)`, `LinearlyImplicitEuler(h)`, or `Adaptive(h)`.
    forces : sequence of forces
        In addition to gravity, which is the model's.
    controls : (nv,), (..., steps, nv) or function of time
        Torques at the joints, constant over each step; u(t) is taken at the times of the integrator's stages. At a
        joint whose chart is switched they belong to the coordinates of the moment.
    t0 : float
        Time at the start.
    callback : callable, optional
        Called as callback(row, t, q, v) after every step, with q (..., nq) and v (..., nv).
    progress : bool
        Whether to show a progress bar (needs tqdm).
    threads : int
        Shares a batch among threads, 0 for one per core.

    Joints with charts, `SphericalEuler` and `SphericalExp`, change them before they become singular
    (`Trajectory.charts`), unless a force is given in their coordinates.

    Raises
    ------
    ConvergenceError
        If a step cannot be taken; its `trajectory` has all before it.
    """
    require_model(model)
    if not isinstance(integrator, Integrator):
        raise TypeError(f"integrator must be an Integrator such as BDF2(h=1e-2), got {integrator!r}")
    if not isinstance(t0, Real) or not isfinite(t0):
        raise ValueError(f"t0 is {t0!r}, expected a time: a number")
    if callback is not None and not callable(callback):
        raise TypeError(f"callback is {callback!r}, expected a function of (row, t, q, v)")
    count = _count_steps(T, steps, integrator.h)
    q = _state(model, "q0", q0, model.nq)
    v = _state(model, "v0", np.zeros(model.nv) if v0 is None else v0, model.nv)
    t = np.asarray(t0 + integrator.h * np.arange(count + 1), dtype=np.float64)
    u, rows = _sample_controls(model, integrator, controls, t, count)
    try:
        shape = np.broadcast_shapes(q.shape[:-1], v.shape[:-1], () if u is None else u.shape[:-3])
    except ValueError:
        given = f"q0 {q.shape}, v0 {v.shape}" + ("" if u is None else f", controls {u.shape[:-3] + (count, model.nv)}")
        raise ValueError(f"batch shapes do not fit together: {given}") from None
    n = prod(shape)
    q = model.plus(np.broadcast_to(q, (*shape, model.nq)), np.zeros(model.nv)).reshape(n, model.nq)
    if not np.isfinite(q).all():
        raise ValueError("q0 has a quaternion of length 0")
    v = np.broadcast_to(v, (*shape, model.nv)).reshape(n, model.nv)
    if u is not None:
        shared = prod(u.shape[:-3]) == 1
        u = np.ascontiguousarray(np.broadcast_to(u, (*(() if shared else shape), *u.shape[-3:])))
        u = u.reshape(1 if shared else n, *u.shape[-3:])
    scene = compile_forces(model, forces)
    run = _Run(q, v, u, rows, count)

    def trajectory(last: int, switches: Sequence[_charts.ChartSwitch]) -> Trajectory:
        def shaped(x: FloatArray) -> Any:
            return x.reshape((*shape, *x.shape[1:]))

        kept = None
        if u is not None:
            kept = np.broadcast_to(u, (n, *u.shape[1:]))[:, :last]
            kept = shaped(np.ascontiguousarray(kept[:, :, 0] if rows == 1 else kept))
        return Trajectory(
            model, integrator, tuple(forces), t[: last + 1].copy(), shaped(run.q[:, : last + 1].copy()),
            shaped(run.v[:, : last + 1].copy()), shaped(run.a[:, : last + 1].copy()), kept,
            shaped(run.substeps[:, :last].copy()), tuple(s for s in switches if s.row <= last),
        )  # fmt: skip

    bar = _progress_bar(count) if progress else None

    def report(row: int) -> None:
        if callback is not None and row > 0:
            q_row, v_row = run.q[:, row].reshape(*shape, model.nq), run.v[:, row].reshape(*shape, model.nv)
            callback(row, float(t[row]), q_row, v_row)
        if bar is not None:
            bar.update(row - bar.n)

    # Between chunks Python sees to interrupts.
    chunk = 1 if callback is not None else max(1, count // 100) if progress else max(1, 200_000 // (n * model.nv + 1))
    switches: list[_charts.ChartSwitch] = []
    try:
        if isinstance(integrator, Adaptive):
            _adaptive(model, integrator, forces, run, t, controls if callable(controls) else None, report)
        else:
            _step_through(model, integrator, scene, run, t0, chunk, threads, switches, report)
    except _Failed as failed:
        last = failed.step if n == 1 else count
        index_ = None if shape == () else failed.track
        where = f"at t = {t[failed.step]:.6g}" + ("" if index_ is None else f" in trajectory {index_} of the batch")
        raise ConvergenceError(
            failed.reason.format(where=where), trajectory(last, switches), failed.step, float(t[failed.step]), index_
        ) from None
    finally:
        if bar is not None:
            bar.close()
    return trajectory(count, switches)


def arguments(scene: Scene) -> tuple[Any, Any]:
    """Forces and their parameters, for the core."""
    return (scene.core, scene.parameters) if scene.forces else (None, None)


def switching_parts(model: Model, forces: Sequence[Force]) -> list[_charts.ChartPart]:
    """The joints that change their charts: all with charts but those in whose coordinates a force is given."""
    kept: set[str | None] = set()
    for force in forces:
        if isinstance(force, CustomForce):
            kept.add(None)
        elif hasattr(force, "joint"):
            kept.add(None if force.joint is None else model.joint(force.joint).name)
    parts = _charts.chart_parts(model)
    return [p for p in parts if None not in kept and model.joints[p.body].name not in kept]


class _Failed(Exception):
    def __init__(self, reason: str, track: int, step: int) -> None:
        self.reason, self.track, self.step = reason, track, step


def _progress_bar(steps: int) -> Any:
    try:
        from tqdm import tqdm
    except ImportError:
        raise ImportError("progress=True needs tqdm: pip install 'torsor[view]'; or pass a callback") from None
    return tqdm(total=steps, unit="step")


def _step_through(
    model: Model,
    integrator: Integrator,
    scene: Scene,
    run: _Run,
    t0: float,
    chunk: int,
    threads: int,
    switches: list[_charts.ChartSwitch],
    report: Callable[[int], None],
) -> None:
    """Runs the core over all steps, in groups of trajectories with the same charts between the switches of these."""
    parts = switching_parts(model, scene.forces)
    charts = [tuple(p.chart for p in parts)] * run.batch
    row = np.zeros(run.batch, np.int64)
    previous: dict[int, tuple[FloatArray, FloatArray]] = {}  # nodes before the last switch, in the new coordinates
    variants = {charts[0] if charts else (): (model, scene)}
    for end in [*range(chunk, run.steps, chunk), run.steps]:
        while (row < end).any():
            group = charts[int(np.argmax(row < end))]
            # Those at a switch apart from the others: they bring the row before with them.
            chosen = [i for i in np.flatnonzero(row < end).tolist() if charts[i] == group]
            chosen = [i for i in chosen if (i in previous) == (chosen[0] in previous)]
            if group not in variants:
                variant = _charts.with_charts(model, parts, group)
                variants[group] = (variant, compile_forces(variant, scene.forces))
            variant, compiled = variants[group]
            before = [previous.pop(i) for i in chosen if i in previous]
            tracks = run.tracks(
                np.array(chosen, np.int64),
                np.stack([b[0] for b in before]) if before else None,
                np.stack([b[1] for b in before]) if before else None,
            )
            outcome, reached = np.zeros(len(chosen), np.int32), np.zeros(len(chosen), np.int64)
            error = np.zeros((len(chosen), 2))
            limits = [(p.iq, p.limit(chart)) for p, chart in zip(parts, group, strict=True)]
            _core.simulate(
                variant, arguments(compiled), integrator._scheme, t0, tracks, row[chosen], end, limits,
                outcome, reached, error, threads,
            )  # fmt: skip
            row[chosen] = reached
            for k, i in enumerate(chosen):
                if outcome[k] == _CHART:
                    switch = _charts.switch_charts(i, int(reached[k]), parts, group, run.q[i], run.v[i], run.a[i])
                    switches.append(switch)
                    charts[i] = switch.charts
                    previous[i] = (switch.previous_q, switch.previous_v)
            bad = np.flatnonzero(outcome >= _FAILED)
            if len(bad):
                k = int(bad[0])
                run.q[chosen[k], reached[k] + 1 :] = np.nan
                raise _Failed(_reason(integrator, int(outcome[k]), error[k]), chosen[k], int(reached[k]))
        report(end)


def _reason(integrator: Integrator, outcome: int, error: FloatArray) -> str:
    name = type(integrator).__name__
    if outcome == _SINGULAR:
        return f"{name} stopped {{where}}: the mass matrix is singular, as forward_dynamics would say; try BDF1"
    if integrator._method < 2:
        return (
            f"{name} stopped {{where}}: the motion grows beyond all bounds, or a joint turns by half a turn in one "
            "step; try a smaller h, or an implicit integrator"
        )
    _, h, _, iterations, substeps = integrator._scheme
    return (
        f"Newton's method of {name} stopped {{where}} within {iterations} iterations, also with the step h = {h:g} "
        f"divided by {substeps}: correction of v {error[0]:.1e} > {error[1]:.1e}; try a smaller h, more substeps, or "
        "softer forces"
    )


def _adaptive(
    model: Model,
    integrator: Adaptive,
    forces: Sequence[Force],
    run: _Run,
    t: FloatArray,
    control: Callable[[float], ArrayLike] | None,
    report: Callable[[int], None],
) -> None:
    """Fills the rows by `scipy.integrate.solve_ivp` over each step, in coordinates and velocities."""
    try:
        from scipy.integrate import solve_ivp
    except ImportError:
        raise ImportError("Adaptive needs SciPy: pip install scipy") from None
    from torsor.dynamics import forward_dynamics

    nq, nv = model.nq, model.nv
    for i in range(run.batch):

        def acceleration(time: float, q: FloatArray, v: FloatArray, step: int, i: int = i) -> FloatArray:
            tau = generalized_forces(model, forces, q, v, time)
            if control is not None:
                u = np.asarray(control(time), dtype=np.float64).reshape(-1, nv)
                tau = tau + u[i if len(u) > 1 else 0]
            elif run.u is not None:
                tau = tau + run.u[i if len(run.u) > 1 else 0, min(step, run.steps - 1), 0]
            return forward_dynamics(model, q, v, tau)

        for k in range(run.steps):

            def rate(time: float, y: FloatArray, k: int = k) -> FloatArray:
                q, v = np.ascontiguousarray(y[:nq]), np.ascontiguousarray(y[nq:])
                return np.concatenate([_charts.coordinate_rates(model, q, v), acceleration(time, q, v, k)])

            y0 = np.concatenate([run.q[i, k], run.v[i, k]])
            run.a[i, k] = acceleration(t[k], run.q[i, k], run.v[i, k], k)
            result = solve_ivp(
                rate, (t[k], t[k + 1]), y0, method=integrator.method, rtol=integrator.rtol, atol=integrator.atol
            )
            if not result.success or not np.isfinite(result.y[:, -1]).all():
                raise _Failed(f"SciPy's {integrator.method} stopped {{where}}: {result.message}", i, k)
            run.q[i, k + 1] = model.plus(result.y[:nq, -1].copy(), np.zeros(nv))
            run.v[i, k + 1] = result.y[nq:, -1]
            if run.batch == 1:
                report(k + 1)
        run.a[i, -1] = acceleration(t[-1], run.q[i, -1], run.v[i, -1], run.steps - 1)
