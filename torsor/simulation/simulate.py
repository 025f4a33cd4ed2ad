"""Simulation: a model, an initial state, forces and controls to a trajectory.

One call takes one initial state or a batch of them; each trajectory is computed by itself, so that it is the same to
the last bit alone and in a batch, whatever the number of threads.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from math import isfinite, prod
from numbers import Real
from operator import index
from typing import TYPE_CHECKING, Any, NamedTuple
from zipfile import BadZipFile

import numpy as np
from numpy.lib.npyio import NpzFile

from torsor import _core, integrators
from torsor._check import as_array
from torsor._errors import ConvergenceError
from torsor.dynamics import (
    forward_dynamics,
    generalized_momenta,
    kinetic_energy,
    mass_matrix_solve,
    potential_energy,
)
from torsor.forces.force import Force, require_forces
from torsor.integrators import BDF2, Adaptive, Integrator, SymplecticEuler, Variational
from torsor.model import Model
from torsor.simulation import charts as _charts
from torsor.simulation import fingerprint as _fingerprint
from torsor.simulation.scenes import Scenes, Span, batch_shapes, read_models, read_parameters

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    FloatArray = NDArray[np.float64]
    Control = ArrayLike | Callable[[float], ArrayLike] | None

_MOST_STEPS = 1_000_000_000
_FINISHED, _CHART, _FAILED, _SINGULAR, _GAINED = range(5)  # as in core/integrators/integrate.hpp


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
    t : (rows,)
        Times of the rows: steps + 1 of them, or with `every` one for each so many steps.
    q : (..., rows, nq)
    v, a : (..., rows, nv)
        a is that of the integrator's formula; in the first row of an implicit one and in the last of an explicit one,
        that of forward dynamics (not a number without steps).
    controls : (..., steps, nv), (..., steps, stages, nv) or None
        Torques of each step. A function of time has a row for each stage of the integrator: with `BDF2` and `SDIRK2` at
        (1 - sqrt(1/2)) h and at the end of the step, with `Variational` at each point of the quadrature.
    substeps : (..., steps)
        Into how many parts each step was divided.
    switches : tuple of ChartSwitch
        Where the coordinates of joints were changed. From the step of a switch on, q, v and a are in the new ones.
    models : tuple of Model
        Those of a batch with several, `model` being the first of them; else empty.
    parameters : tuple of dicts
        For each force the parameters that replaced its own, each (..., *shape of the parameter).
    every : int
        How many steps lie between rows.
    previous : (..., rows, nq) and (..., rows, nv), or None
        With `every`, the states one step before the rows, in their coordinates, where the integrator needs them.
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
    models: tuple[Model, ...] = ()
    parameters: tuple[dict[str, FloatArray], ...] = ()
    every: int = 1
    previous: tuple[FloatArray, FloatArray] | None = None

    def __post_init__(self) -> None:
        for array in (self.t, self.q, self.v, self.a, self.controls, self.substeps, *(self.previous or ())):
            if array is not None:
                array.flags.writeable = False

    def __reduce__(self) -> tuple[Any, ...]:
        return Trajectory, tuple(getattr(self, f.name) for f in fields(self))  # without what was compiled for the core

    @property
    def steps(self) -> int:
        """Number of steps."""
        return (len(self.t) - 1) * self.every

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """Shape of the batch, () for one trajectory."""
        return self.q.shape[:-2]

    def _flat_controls(self) -> tuple[FloatArray | None, int]:
        """Controls (batch, steps, rows of a step, nv), and how many rows a step has."""
        if self.controls is None:
            return None, 1
        rows = self.controls.shape[-2] if self.controls.ndim - len(self.batch_shape) == 3 else 1
        return self.controls.reshape(prod(self.batch_shape), self.steps, rows, self.model.nv), rows

    @cached_property
    def _scenes(self) -> Scenes:
        parameters = self.parameters or tuple({} for _ in self.forces)
        return Scenes(self.models or (self.model,), self.forces, parameters, self.batch_shape)

    @cached_property
    def _row_switches(self) -> list[_charts.ChartSwitch]:
        """The switches with the rows, not the steps, from which on they hold."""
        return [replace(s, row=-(-s.row // self.every)) for s in self.switches]

    def _spans(self, scenes: Scenes | None = None) -> list[Span]:
        return (self._scenes if scenes is None else scenes).spans(self._row_switches, len(self.t))

    @cached_property
    def charts(self) -> dict[str, NDArray[np.str_]]:
        """The chart of every `SphericalEuler` joint in every row: name of the joint -> (..., steps + 1)."""
        parts = self._scenes.parts
        return _charts.chart_rows(self.model, parts, self._row_switches, self.batch_shape, len(self.t))

    @cached_property
    def p(self) -> FloatArray:
        """Momenta M(q) v, (..., rows, nv): what a `Variational` integrator goes by."""
        rows, n = len(self.t), prod(self.batch_shape)
        q, v = self.q.reshape(n, rows, self.model.nq), self.v.reshape(n, rows, self.model.nv)
        p = np.empty_like(v)
        for s in self._spans():
            at = (s.tracks, s.rows)
            p[at] = generalized_momenta(s.model, q[at], v[at])
        return p.reshape(self.v.shape)

    def segments(self) -> list[tuple[int, int, int, Model]]:
        """Parts with one set of coordinates: (trajectory, first row, last row, model in these coordinates)."""
        scenes = self._scenes
        parts = _charts.segments([scenes.charts] * scenes.batch, self._row_switches, len(self.t))
        return [(i, first, last, scenes.ready(c, int(scenes.model_of[i]))[0]) for i, first, last, c in parts]

    @cached_property
    def energies(self) -> Energies:
        """Kinetic energy, potential energy of gravity, energies of the forces, and their sum, row by row."""
        rows, n = len(self.t), prod(self.batch_shape)
        kinetic, potential = np.empty((n, rows)), np.empty((n, rows))
        of_forces = np.zeros((n, rows, len(self.forces)))
        q, v = self.q.reshape(n, rows, self.model.nq), self.v.reshape(n, rows, self.model.nv)
        for s in self._spans():
            at, rest = (s.tracks, s.rows), np.zeros(s.model.nv)
            kinetic[at], potential[at] = kinetic_energy(s.model, q[at], v[at]), potential_energy(s.model, q[at])
            of_forces[at] = _core.force_energies(s.model, q[at], rest, self.t[s.rows], s.parameters, s.options, None, 1)
        shape = (*self.batch_shape, rows)
        parts = kinetic.reshape(shape), potential.reshape(shape), of_forces.reshape((*shape, len(self.forces)))
        return Energies(*parts, total=parts[0] + parts[1] + parts[2].sum(axis=-1))

    @property
    def _description(self) -> _fingerprint.Description:
        """Models and forces, in words and numbers."""
        return _fingerprint.describe(self.models or (self.model,), self.forces, self.parameters)

    @cached_property
    def _digest(self) -> str:
        """Of all that a loss is made from: copies of a trajectory have the same."""
        digest = hashlib.blake2b(_fingerprint.to_bytes(self._description), digest_size=16)
        digest.update(repr((self.integrator, self.q.shape, self.every)).encode())
        arrays = [self.t, self.q, self.v, self.controls, *(x for values in self.parameters for x in values.values())]
        for array in arrays:
            digest.update(b"" if array is None else np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes all arrays, without loss, to a .npz file. The models and the forces are not in it, but what `load`
        needs to tell others from them."""
        scheme = {f.name: getattr(self.integrator, f.name) for f in fields(self.integrator)}
        arrays: dict[str, Any] = {name: getattr(self, name) for name in ("t", "q", "v", "a", "substeps", "every")}
        arrays["scene"] = np.frombuffer(_fingerprint.to_bytes(self._description), np.uint8)
        if self.controls is not None:
            arrays["controls"] = self.controls
        if self.previous is not None:
            arrays["previous_q"], arrays["previous_v"] = self.previous
        for k, values in enumerate(self.parameters):
            for name, value in values.items():
                arrays[f"parameter_{k}_{name}"] = value
        for name, value in _charts.to_arrays(self.switches).items():
            arrays[f"switch_{name}"] = value
        for name, value in scheme.items():
            arrays[f"integrator_{name}"] = np.array(value)
        with open(path, "wb") as file:
            np.savez(file, integrator=np.array(type(self.integrator).__name__), **arrays)

    @staticmethod
    def load(path: str | os.PathLike[str], model: Model | Sequence[Model], forces: Sequence[Force] = ()) -> Trajectory:
        """What `save` wrote, for the model or the models and the forces that it was simulated with.

        Others are refused, with what differs: gravity, a body's inertia, a parameter of a force. Joints, forces and
        functions of the user's own are told by their names and by their public attributes.
        """
        models, forces = read_models(model), require_forces(forces)
        with _open_arrays(path) as data:
            missing = [n for n in ("integrator", "t", "q", "v", "a", "substeps", "scene") if n not in data.files]
            if missing:
                raise ValueError(f"{os.fspath(path)!r} is no trajectory: it has no {', '.join(missing)}")
            nq, nv = data["q"].shape[-1], data["v"].shape[-1]
            if (nq, nv) != (models[0].nq, models[0].nv):
                raise ValueError(
                    f"{os.fspath(path)!r} is a trajectory of a model with nq {nq} and nv {nv}, got one with nq "
                    f"{models[0].nq} and nv {models[0].nv}; load it with the model that it was simulated with"
                )
            shape = data["q"].shape[:-2]
            if len(models) > 1 and (not shape or shape[-1] != len(models)):
                raise ValueError(f"{os.fspath(path)!r} has trajectories {shape}, which {len(models)} models do not fit")
            given: list[dict[str, FloatArray]] = [{} for _ in forces]
            for name in data.files:
                if name.startswith("parameter_"):
                    k, parameter = name[10:].split("_", 1)
                    if int(k) >= len(forces):
                        raise ValueError(f"{os.fspath(path)!r} has parameters of force {k}, got {len(forces)} forces")
                    given[int(k)][parameter] = data[name]
            try:
                saved = _fingerprint.from_bytes(data["scene"].tobytes())
            except ValueError:
                raise ValueError(f"{os.fspath(path)!r} is no trajectory: it does not say of what") from None
            different = _fingerprint.differences(saved, _fingerprint.describe(models, forces, given))
            if different:
                raise ValueError(
                    f"{os.fspath(path)!r} is a trajectory of another model or other forces: {different}; load it with "
                    "those that it was simulated with"
                )
            kind = getattr(integrators, str(data["integrator"]), None)
            if not (isinstance(kind, type) and issubclass(kind, Integrator)):
                raise ValueError(f"{os.fspath(path)!r} is of an integrator {str(data['integrator'])!r} not known here")
            scheme = {f.name: data[f"integrator_{f.name}"].item() for f in fields(kind)}
            switches = {n[7:]: data[n] for n in data.files if n.startswith("switch_")}
            return Trajectory(
                models[0], kind(**scheme), forces, data["t"], data["q"], data["v"], data["a"],
                data["controls"] if "controls" in data.files else None, data["substeps"],
                _charts.from_arrays(switches), () if isinstance(model, Model) else models,
                read_parameters(models[0], forces, given), int(data["every"]) if "every" in data.files else 1,
                (data["previous_q"], data["previous_v"]) if "previous_q" in data.files else None,
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


@contextmanager
def _open_arrays(path: str | os.PathLike[str]) -> Iterator[NpzFile]:
    """The arrays of a .npz file."""
    with open(path, "rb") as file:
        try:
            data = np.load(file, allow_pickle=False)
        except (ValueError, EOFError, BadZipFile):
            data = None
        if not isinstance(data, NpzFile):
            raise ValueError(f"{os.fspath(path)!r} is no trajectory: expected a .npz file as Trajectory.save writes it")
        yield data


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
    except (TypeError, ValueError, OverflowError):
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
        shifts = [integrator.h * fraction for fraction in integrator._fractions]
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


class Run:
    """Steps of all trajectories from the row `start` on: arrays (batch, steps + 1, ...), filled by the core."""

    def __init__(self, scenes: Scenes, steps: int, u: FloatArray | None = None, u_rows: int = 1) -> None:
        batch, nq, nv = scenes.batch, scenes.models[0].nq, scenes.models[0].nv
        self.scenes, self.batch, self.steps, self.start = scenes, batch, steps, 0
        self.all_u, self.u_rows = u, u_rows
        self.q = np.full((batch, steps + 1, nq), np.nan)
        self.v = np.full((batch, steps + 1, nv), np.nan)
        self.a = np.full((batch, steps + 1, nv), np.nan)
        self.substeps = np.ones((batch, steps), np.int32)
        self.charts = [scenes.charts] * batch
        self.first_charts = list(self.charts)
        self.switches: list[_charts.ChartSwitch] = []
        # Nodes before rows from which to go on, in the coordinates of these: after a switch, and at the start.
        self.previous: dict[int, tuple[FloatArray, FloatArray]] = {}
        self.initial: tuple[FloatArray, FloatArray] | None = None

    def begin(
        self, start: int, q: FloatArray, v: FloatArray, a: FloatArray, previous: tuple[FloatArray, FloatArray] | None
    ) -> None:
        """Goes to another row, of which it knows the state and, if needed, that before it."""
        self.start, self.switches, self.first_charts = start, [], list(self.charts)
        self.q[:, 0], self.v[:, 0], self.a[:, 0] = q, v, a
        self.initial = previous
        self.previous = {} if previous is None else dict(enumerate(zip(*previous, strict=True)))

    def before_last(self) -> tuple[FloatArray, FloatArray]:
        """The row before the last one, in the coordinates of that."""
        q, v = self.q[:, -2].copy(), self.v[:, -2].copy()
        for s in self.switches:
            if s.row == self.steps:
                q[s.track], v[s.track] = s.previous_q, s.previous_v
        return q, v

    @property
    def u(self) -> FloatArray | None:
        """Controls of these steps."""
        if self.all_u is None:
            return None
        return np.ascontiguousarray(self.all_u[:, self.start : self.start + self.steps])

    def tracks(self, chosen: Sequence[int]) -> dict[str, Any]:
        """The arguments of the core for some of the trajectories."""
        before = [self.previous.pop(i) for i in chosen if i in self.previous]
        return {
            "steps": self.steps, "start": self.start, "batch": self.batch, "count": len(chosen),
            "index": np.array(chosen, np.int64), "q": self.q, "v": self.v, "a": self.a, "u": self.u,
            "u_rows": self.u_rows, "u_shared": self.all_u is not None and len(self.all_u) != self.batch,
            "divisions": self.substeps,
            "previous_q": np.stack([b[0] for b in before]) if before else None,
            "previous_v": np.stack([b[1] for b in before]) if before else None,
        }  # fmt: skip


def simulate(
    model: Model | Sequence[Model],
    q0: ArrayLike,
    v0: ArrayLike | None = None,
    *,
    p0: ArrayLike | None = None,
    T: float | None = None,
    steps: int | None = None,
    integrator: Integrator,
    forces: Sequence[Force] = (),
    controls: Control = None,
    parameters: Sequence[Mapping[str, ArrayLike] | None] | None = None,
    t0: float = 0.0,
    every: int = 1,
    callback: Callable[[int, float, FloatArray, FloatArray], object] | None = None,
    progress: bool = False,
    threads: int = 1,
) -> Trajectory:
    """Simulates the model from q0, v0.

    Parameters
    ----------
    model : Model, or sequence of n models
        Several of the same structure, with other inertias, placements, gravity or constants of joints, are a batch of
        shape (n,).
    q0 : (..., nq)
    v0 : (..., nv), optional
        At rest if left out.
    p0 : (..., nv), optional
        Momenta M(q0) v0, in place of v0.
    T, steps : float or int
        Duration or number of steps, one of them.
    integrator : Integrator
        `BDF1(h)`, `BDF2(h)`, `SDIRK2(h)`, `Variational(h, order)`, `SymplecticEuler(h)`, `LinearlyImplicitEuler(h)`, or
        `Adaptive(h)`.
    forces : sequence of forces
        In addition to gravity, which is the model's.
    controls : (nv,), (..., steps, nv) or function of time
        Torques at the joints, constant over each step; u(t) is taken at the times of the integrator's stages. At a
        joint whose chart is switched they belong to the coordinates of the moment.
    parameters : sequence of dicts, optional
        For each force a dict, or None, of parameters that replace its own: name -> (..., *shape of the parameter), as
        `adjoint` gives the gradients.
    t0 : float
        Time at the start.
    every : int
        Keeps one row for so many steps, a divisor of their number, to save memory. `adjoint` then takes the steps
        between the rows once more.
    callback : callable, optional
        Called as callback(step, t, q, v) after every step, with q (..., nq) and v (..., nv).
    progress : bool
        Whether to show a progress bar (needs tqdm).
    threads : int
        Shares a batch among threads, 0 for one per core.

    The batch shapes (...) of models, states, controls and parameters broadcast.

    Joints with charts, `SphericalEuler` and `SphericalExp`, change them before they become singular
    (`Trajectory.charts`), unless a force is given in their coordinates.

    Raises
    ------
    ConvergenceError
        If a step cannot be taken; its `trajectory` has all before it.
    """
    models = read_models(model)
    first = models[0]
    nq, nv = first.nq, first.nv
    if not isinstance(integrator, Integrator):
        raise TypeError(f"integrator must be an Integrator such as BDF2(h=1e-2), got {integrator!r}")
    if not isinstance(t0, Real) or not isfinite(t0):
        raise ValueError(f"t0 is {t0!r}, expected a time: a number")
    if callback is not None and not callable(callback):
        raise TypeError(f"callback is {callback!r}, expected a function of (row, t, q, v)")
    count = _count_steps(T, steps, integrator.h)
    every = _count_every(every, count, integrator)
    q = _state(first, "q0", q0, nq)
    if v0 is not None and p0 is not None:
        raise TypeError("simulate takes either v0, the velocities, or p0, the momenta: got both")
    v = _state(first, "v0", np.zeros(nv) if v0 is None else v0, nv) if p0 is None else _state(first, "p0", p0, nv)
    t = np.asarray(t0 + integrator.h * np.arange(count + 1), dtype=np.float64)
    u, rows = _sample_controls(first, integrator, controls, t, count)
    forces = require_forces(forces)
    values = read_parameters(first, forces, parameters)
    leads = batch_shapes(first, forces, values)
    several = () if isinstance(model, Model) else (len(models),)
    try:
        shape = np.broadcast_shapes(q.shape[:-1], v.shape[:-1], several, () if u is None else u.shape[:-3], *leads)
    except ValueError:
        given = f"q0 {q.shape}, {'v0' if p0 is None else 'p0'} {v.shape}" + (
            "" if u is None else f", controls {u.shape[:-3] + (count, nv)}"
        )
        given += "".join(f", parameters {x}" for x in leads if x) + (f", models {several}" if several else "")
        raise ValueError(f"batch shapes do not fit together: {given}") from None
    n = prod(shape)
    try:
        q = first.plus(np.broadcast_to(q, (*shape, nq)), np.zeros(nv)).reshape(n, nq)
    except ValueError as error:  # of a quaternion
        raise ValueError(str(error).replace("q has", "q0 has", 1)) from None
    v = np.broadcast_to(v, (*shape, nv)).reshape(n, nv)
    if p0 is not None:
        of = np.zeros(n, np.int64) if len(models) == 1 else np.broadcast_to(np.arange(len(models)), shape).ravel()
        momenta, v = v, np.empty((n, nv))
        for k, one in enumerate(models):
            v[of == k] = mass_matrix_solve(one, q[of == k], momenta[of == k])
    if u is not None:
        shared = prod(u.shape[:-3]) == 1
        u = np.ascontiguousarray(np.broadcast_to(u, (*(() if shared else shape), *u.shape[-3:])))
        u = u.reshape(1 if shared else n, *u.shape[-3:])
    scenes = Scenes(models, forces, values, shape)
    _ = scenes.flat  # whose parameters are checked here
    run = Run(scenes, count if every == 1 else every, u, rows)
    run.begin(0, q, v, run.a[:, 0], None)
    # The rows that are kept; with `every`, those of `run` go over into them at its ends.
    kept = run if every == 1 else Run(scenes, count // every)
    substeps = run.substeps if every == 1 else np.ones((n, count), np.int32)
    kept.q[:, 0], kept.v[:, 0] = q, v
    previous = None
    if every > 1 and isinstance(integrator, BDF2):
        previous = np.full_like(kept.q, np.nan), np.full_like(kept.v, np.nan)
    switches: list[_charts.ChartSwitch] = []

    def trajectory(last: int) -> Trajectory:
        def shaped(x: Any) -> Any:
            return x.reshape((*shape, *x.shape[1:]))

        def rows_of(x: Any) -> Any:
            return shaped(x[:, : last + 1].copy())

        controls = None
        if u is not None:
            controls = np.broadcast_to(u, (n, *u.shape[1:]))[:, : last * every]
            controls = shaped(np.ascontiguousarray(controls[:, :, 0] if rows == 1 else controls))
        made = Trajectory(
            first, integrator, forces, t[: last * every + 1 : every].copy(), rows_of(kept.q), rows_of(kept.v),
            rows_of(kept.a), controls, shaped(substeps[:, : last * every].copy()),
            tuple(s for s in switches if s.row <= last * every), () if isinstance(model, Model) else models,
            () if parameters is None else values, every,
            None if previous is None else (rows_of(previous[0]), rows_of(previous[1])),
        )  # fmt: skip
        made.__dict__["_scenes"] = scenes  # as if the trajectory had compiled its forces once more
        return made

    bar = _progress_bar(count) if progress else None

    def report(row: int) -> None:
        number = run.start + row
        if callback is not None and number > 0:
            # Copies, which stay as they are and change nothing here.
            q_row, v_row = run.q[:, row].copy().reshape(*shape, nq), run.v[:, row].copy().reshape(*shape, nv)
            callback(number, float(t[number]), q_row, v_row)
        if bar is not None:
            bar.update(number - bar.n)

    chunk = 1 if callback is not None else max(1, count // 100) if progress else max(1, count)
    try:
        for window in range(count // every if every > 1 else 1):
            if window > 0:
                run.begin(window * every, kept.q[:, window], kept.v[:, window], kept.a[:, window], run.before_last())
            try:
                if isinstance(integrator, Adaptive):
                    _adaptive(integrator, run, t, controls if callable(controls) else None, report)
                else:
                    _step_through(integrator, run, t0, chunk, threads, report)
            finally:
                switches += [replace(s, row=run.start + s.row) for s in run.switches]
            if every > 1:
                at = slice(window, window + 2)
                kept.q[:, at], kept.v[:, at], kept.a[:, at] = run.q[:, ::every], run.v[:, ::every], run.a[:, ::every]
                substeps[:, run.start : run.start + every] = run.substeps
                if previous is not None:
                    previous[0][:, window + 1], previous[1][:, window + 1] = run.before_last()
    except _Failed as failed:
        step = run.start + failed.step
        index_ = None if shape == () else failed.track
        where = f"at t = {t[step]:.6g}" + ("" if index_ is None else f" in trajectory {index_} of the batch")
        raise ConvergenceError(
            failed.reason.format(where=where),
            trajectory(step // every if n == 1 else count // every),
            step,
            float(t[step]),
            index_,
        ) from None
    finally:
        if bar is not None:
            bar.close()
    return trajectory(count // every)


def _count_every(every: int, count: int, integrator: Integrator) -> int:
    try:
        number = index(every)
    except TypeError:
        raise TypeError(f"every is {every!r}, expected an integer") from None
    if number < 1 or count % number:
        raise ValueError(f"every is {number}, expected a divisor of the number of steps, {count}")
    if number > 1 and isinstance(integrator, Adaptive):
        raise ValueError("every is for integrators with steps; the rows of Adaptive are h apart: choose that")
    return number if count else 1


def repeat(trajectory: Trajectory, window: int, threads: int) -> Run:
    """The steps after a row of a trajectory with `every`, once more: to the last bit as they were."""
    batch, k = trajectory._scenes.batch, trajectory.every
    run = Run(trajectory._scenes, k, *trajectory._flat_controls())

    def row(x: FloatArray, at: int) -> Any:
        return x.reshape(batch, *x.shape[len(trajectory.batch_shape) :])[:, at]

    previous = None
    if window > 0 and trajectory.previous is not None:
        previous = row(trajectory.previous[0], window), row(trajectory.previous[1], window)
    state = (trajectory.q, trajectory.v, trajectory.a)
    q, v, a = (row(x, window) for x in state)
    for s in trajectory.switches:
        if s.row <= k * window:
            run.charts[s.track] = s.charts
    run.begin(k * window, q, v, a, previous)
    _step_through(trajectory.integrator, run, float(trajectory.t[0]), k, threads, lambda row: None)
    if not np.array_equal(run.q[:, -1], row(trajectory.q, window + 1)):
        raise ValueError(
            f"the steps between t = {trajectory.t[window]:.6g} and {trajectory.t[window + 1]:.6g} cannot be repeated: "
            "they end elsewhere, as with another model, other forces, or one that is no function of its arguments"
        )
    return run


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
    integrator: Integrator, run: Run, t0: float, chunk: int, threads: int, report: Callable[[int], None]
) -> None:
    """Runs the core over all steps, in groups of trajectories with the same charts between the switches of these."""
    scenes = run.scenes
    row = np.zeros(run.batch, np.int64)
    for end in [*range(chunk, run.steps, chunk), run.steps]:
        while (row < end).any():
            group = run.charts[int(np.argmax(row < end))]
            # Those that bring the row before with them apart from the others.
            chosen = [i for i in np.flatnonzero(row < end).tolist() if run.charts[i] == group]
            chosen = [i for i in chosen if (i in run.previous) == (chosen[0] in run.previous)]
            outcome, reached = np.zeros(len(chosen), np.int32), np.zeros(len(chosen), np.int64)
            error = np.zeros((len(chosen), 2))
            limits = [(p.iq, p.limit(chart)) for p, chart in zip(scenes.parts, group, strict=True)]
            step_through = _core.simulate_variational if isinstance(integrator, Variational) else _core.simulate
            step_through(
                scenes.arguments(group, chosen), integrator._scheme, t0, run.tracks(chosen), row[chosen], end, limits,
                outcome, reached, error, threads,
            )  # fmt: skip
            row[chosen] = reached
            for k, i in enumerate(chosen):
                if outcome[k] == _CHART:
                    at = int(reached[k])
                    try:
                        switch = _charts.switch_charts(i, at, scenes.parts, group, run.q[i], run.v[i], run.a[i])
                    except np.linalg.LinAlgError:
                        run.q[i, at:] = np.nan
                        reason = (
                            f"{type(integrator).__name__} stopped {{where}}: a joint turns so far in one step that no "
                            "coordinates are regular at both of its ends; try a smaller h"
                        )
                        raise _Failed(reason, i, at - 1) from None
                    run.switches.append(switch)
                    run.charts[i] = switch.charts
                    run.previous[i] = (switch.previous_q, switch.previous_v)
            bad = np.flatnonzero(outcome >= _FAILED)
            if len(bad):
                k = int(bad[0])
                run.q[chosen[k], reached[k] + 1 :] = np.nan
                model = scenes.models[scenes.model_of[chosen[k]]]
                raise _Failed(_reason(model, integrator, int(outcome[k]), error[k]), chosen[k], int(reached[k]))
        report(end)


def _reason(model: Model, integrator: Integrator, outcome: int, error: FloatArray) -> str:
    name = type(integrator).__name__
    if outcome == _SINGULAR:
        joint = model.joints[int(error[0])].name
        singular = f"{name} stopped {{where}}: the mass matrix is singular at joint {joint!r}"
        remedy = "give the bodies beyond it inertia, or remove freedoms that repeat each other"
        if isinstance(integrator, (SymplecticEuler, Variational)):
            return (
                f"{singular}, as forward_dynamics would say; {remedy}; or let springs or dampers act on the motion "
                "that moves no mass, and take BDF1, BDF2 or SDIRK2, for which they determine it"
            )
        return (
            f"{singular}, and no spring or damper determines its motion that moves no mass; add one, as JointSpring or "
            f"JointDamping, {remedy}"
        )
    if integrator._method < 2:
        return (
            f"{name} stopped {{where}}: the motion grows beyond all bounds, or a joint turns by half a turn in one "
            "step; try a smaller h, or an implicit integrator"
        )
    if isfinite(error[0]):
        missing = f"correction of v {error[0]:.1e} > {error[1]:.1e}"
    else:
        missing = "its matrix is singular, or a joint turns by half a turn"
    if isinstance(integrator, Variational):
        return (
            f"Newton's method of {name} stopped {{where}} within {integrator.iterations} iterations: {missing}; "
            "try a smaller h or softer forces"
        )
    _, h, _, iterations, substeps = integrator._scheme
    divided = f", also with the step h = {h:g} divided by {substeps}" if substeps > 1 else f" with the step h = {h:g}"
    if outcome == _GAINED:
        return (
            f"{name} stopped {{where}}: all solutions that Newton's method found gain energy{divided}; "
            "try a smaller h, more substeps, or softer forces"
        )
    return (
        f"Newton's method of {name} stopped {{where}} within {iterations} iterations{divided}: {missing}; "
        "try a smaller h, more substeps, or softer forces"
    )


class _NoEnd(Exception):
    """SciPy would go on for ever, or nearly."""


class _Rates:
    """The function f(t, y) that SciPy integrates from t0 to t1, and whether that comes to an end.

    Rates that are not finite make SciPy try a shorter step, which may help; but from some states it would never stop.
    Nor would it with motions that are too fast for any step.
    """

    def __init__(self, f: Callable[[float, FloatArray], FloatArray], t0: float, t1: float) -> None:
        self.f, self.t0, self.t1 = f, t0, t1
        self.count = self.not_finite = 0  # all calls, and those on end whose rates are not finite
        self.running = False

    def __call__(self, time: float, y: FloatArray) -> FloatArray:
        self.running = True
        rates = self.f(time, y)
        self.running = False
        self.count += 1
        self.not_finite = 0 if np.isfinite(rates).all() else self.not_finite + 1
        if self.not_finite > 1000:  # after which a step is shorter by far more than all digits
            raise _NoEnd(_NOT_FINITE)
        if self.count % 10_000 == 0 and not (time - self.t0) * 1e9 > (self.t1 - self.t0) * self.count:
            raise _NoEnd("its steps are so short that it would take 1e9 evaluations of the dynamics to the next row")
        return rates


_NOT_FINITE = "the acceleration is not finite there or soon after it; look at the forces, controls and velocities"


def _adaptive(
    integrator: Adaptive,
    run: Run,
    t: FloatArray,
    control: Callable[[float], ArrayLike] | None,
    report: Callable[[int], None],
) -> None:
    """Fills the rows by `scipy.integrate.solve_ivp` over each step, in coordinates and velocities."""
    try:
        from scipy.integrate import solve_ivp
    except ImportError:
        raise ImportError("Adaptive needs SciPy: pip install scipy") from None
    for i in range(run.batch):
        _adaptive_track(integrator, run, i, t, control, report, solve_ivp)


def _adaptive_track(
    integrator: Adaptive,
    run: Run,
    i: int,
    t: FloatArray,
    control: Callable[[float], ArrayLike] | None,
    report: Callable[[int], None],
    solve_ivp: Callable[..., Any],
) -> None:
    (model,), sets, _, parameters = run.scenes.arguments(run.scenes.charts, [i])
    nq, nv, options = model.nq, model.nv, {"forces": sets[0]}

    def acceleration(time: float, q: FloatArray, v: FloatArray, step: int) -> FloatArray:
        tau = np.zeros(nv)
        if sets[0] is not None:
            tau = _core.generalized_forces(model, q, v, time, parameters[0], options, None, 1)
        if control is not None:
            u = np.broadcast_to(as_array("controls(t)", control(time)), (*run.scenes.shape, nv))
            tau = tau + u.reshape(-1, nv)[i]
        elif run.all_u is not None:
            tau = tau + run.all_u[i if len(run.all_u) > 1 else 0, min(step, run.steps - 1), 0]
        return forward_dynamics(model, q, v, tau)

    for k in range(run.steps):

        def rate(time: float, y: FloatArray, k: int = k) -> FloatArray:
            q, v = np.ascontiguousarray(y[:nq]), np.ascontiguousarray(y[nq:])
            return np.concatenate([_charts.coordinate_rates(model, q, v), acceleration(time, q, v, k)])

        y0 = np.concatenate([run.q[i, k], run.v[i, k]])
        run.a[i, k] = acceleration(t[k], run.q[i, k], run.v[i, k], k)
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
            if rates.running:  # that of a force or of controls; SciPy's own are of numbers that are not finite
                raise
            reason = _NOT_FINITE if rates.not_finite else error
            raise _Failed(f"SciPy's {integrator.method} stopped {{where}}: {reason}", i, k) from None
        run.q[i, k + 1] = model.plus(result.y[:nq, -1].copy(), np.zeros(nv))
        run.v[i, k + 1] = result.y[nq:, -1]
        if i == run.batch - 1:  # all others have come as far
            report(k + 1)
    run.a[i, -1] = acceleration(t[-1], run.q[i, -1], run.v[i, -1], run.steps - 1)
