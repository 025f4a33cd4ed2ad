"""Simulation from a model, an initial state, forces and controls to a trajectory.

One call takes one initial state or a batch; each trajectory is computed independently, so that it is the same to the
last bit alone and in a batch, with any number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import isfinite, prod
from numbers import Real
from operator import index
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from torsor._check import MAX_BATCH_DIMENSIONS, all_finite, as_array
from torsor.constraints.constraint import Constraint, require_constraints
from torsor.dynamics import mass_matrix_solve
from torsor.forces.force import Force, require_forces
from torsor.integrators import Adaptive, Integrator
from torsor.model import Model
from torsor.simulation import adaptive
from torsor.simulation.batch import Batch, own_constraints, read_models
from torsor.simulation.consistency import (
    require_accelerations,
    require_consistent,
    require_holonomic,
)
from torsor.simulation.controls import Controls, as_policy, read_actuation, read_controls
from torsor.simulation.parameters import batch_shapes, read_parameters, require_apart
from torsor.simulation.record import Record, Reporter
from torsor.simulation.run import Rows, Run, Stepper, blocks
from torsor.simulation.trajectory import Trajectory

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from torsor._typing import FloatArray, OnFailure, Threads
    from torsor.simulation.controls import OfState, OfTime

    Control = ArrayLike | OfTime | OfState | None

_MOST_STEPS = 1_000_000_000
_ON_FAILURE = ("raise", "keep")


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
    constraints: Sequence[Constraint] | None = None,
    controls: Control = None,
    actuation: Sequence[str] | ArrayLike | None = None,
    parameters: Sequence[Mapping[str, ArrayLike] | None] | None = None,
    signals: Sequence[Mapping[str, ArrayLike] | None] | None = None,
    t0: float = 0.0,
    every: int = 1,
    callback: Callable[[int, float, FloatArray, FloatArray], object] | None = None,
    progress: bool = False,
    on_failure: OnFailure = "raise",
    threads: Threads = 1,
) -> Trajectory:
    """Simulates a model from an initial state.

    The batch shapes (...) of models, states, controls, parameters and signals broadcast. Joints with charts,
    `SphericalEuler` and `SphericalExp`, change them before they become singular (`Trajectory.charts`), unless a force
    is given in their coordinates.

    Parameters
    ----------
    model : Model, or sequence of n models
        Several models of the same structure, with different inertias, placements, gravity or constants of joints, are a
        batch of shape (n,).
    q0 : (..., nq) array_like
        Initial configurations.
    v0 : (..., nv) array_like, optional
        Initial velocities, zero by default.
    p0 : (..., nv) array_like, optional
        Initial momenta M(q0) v0, in place of v0.
    T : float, optional
        Duration, a multiple of the step size; or give `steps`.
    steps : int, optional
        Number of steps.
    integrator : Integrator
        Such as `BDF2(h=1e-2)`.
    forces : sequence of Force
        Forces in addition to gravity.
    constraints : sequence of Constraint, optional
        Loops, couplings and prescribed motions; those of the model by default (`Model.constraints`), () for none. The
        initial state must satisfy them (`project`).
    controls : (nu,) or (..., steps, nu) array_like, function of time, or policy, optional
        Torques, constant over each step. A function u(t) is evaluated at the times of the integrator's stages; a policy
        u(t, q, v), or a `Policy` with derivatives, once at the beginning of each step, with the states q (..., nq), v
        (..., nv) of all trajectories. For a joint whose chart is switched they are in the current coordinates; of a
        trajectory that has failed they are the last ones before. A function of *args could be either and is refused:
        wrap it in a `Policy` or in a function of one argument.
    actuation : sequence of str, or (nv, nu) array_like, optional
        Names of the joints on which the controls act, one control for each of their velocities; or the matrix B of the
        torques B u. By default all velocities, nu = nv.
    parameters : sequence of dicts, optional
        For each force a dict, or None, of parameters that replace its own: name -> (..., *shape of the parameter).
    signals : sequence of dicts, optional
        The same for parameters that change with time: name -> (..., steps, *shape of the parameter), constant over each
        step.
    t0 : float
        Initial time.
    every : int
        Store one row every `every` steps (checkpointing), a divisor of their number. `adjoint` then repeats the steps
        between rows.
    callback : callable, optional
        Called as callback(step, t, q, v) after every step, with q (..., nq) and v (..., nv).
    progress : bool
        Whether to show a progress bar (needs tqdm): steps per second, and of a batch how many trajectories are finished
        and how many have failed.
    on_failure : str
        What happens if a step of a trajectory cannot be taken. With "keep" the others go on, its later rows are NaN,
        and `Trajectory.failed` has the reason; a policy that returns NaN for a trajectory also ends it. With "raise"
        the others go on too, then a `ConvergenceError` is raised; with a policy or a callback it is raised after the
        step.
    threads : int or "auto"
        Number of threads for a batch; "auto" for one per core.

    Returns
    -------
    Trajectory
        Rows t (rows,), q (..., rows, nq), v and a (..., rows, nv), with steps / every + 1 rows.

    Raises
    ------
    ConvergenceError
        If a step cannot be taken. It names the first such step, and of several the first trajectory. Its `trajectory`
        ends before that step; that of a batch is what "keep" returns, with a policy or a callback until that step.
    SimulationInterrupted
        A `KeyboardInterrupt`, after Ctrl-C; its `trajectory` has the rows until then, and NaN after them.

    Examples
    --------
    >>> motion = ts.simulate(model, q, v, T=1.0, integrator=ts.BDF2(h=1e-2))
    >>> motion.q.shape, motion.v.shape
    ((101, 7), (101, 7))
    >>> many = ts.simulate(model, model.random(rng, size=8), T=1.0, integrator=ts.BDF2(h=1e-2))  # at once
    >>> many.q.shape
    (8, 101, 7)
    """
    models = read_models(model)
    first = models[0]
    if not isinstance(integrator, Integrator):
        raise TypeError(f"integrator must be an Integrator such as BDF2(h=1e-2), got {integrator!r}")
    if (type(t0) is not float and not isinstance(t0, Real)) or not isfinite(t0):
        raise ValueError(f"t0 is {t0!r}, expected a time: a number")
    if callback is not None and not callable(callback):
        raise TypeError(f"callback is {callback!r}, expected a function of (step, t, q, v)")
    if on_failure not in _ON_FAILURE:
        raise ValueError(f"on_failure is {on_failure!r}, expected 'raise' or 'keep'")
    count = _count_steps(T, steps, integrator.h)
    every = _count_every(every, count, integrator)
    q = _state(first, "q0", q0, first.nq)
    if v0 is not None and p0 is not None:
        raise TypeError("simulate takes either v0, the velocities, or p0, the momenta: got both")
    v = np.zeros(first.nv) if v0 is None else _state(first, "v0", v0, first.nv)
    p = None if p0 is None else _state(first, "p0", p0, first.nv)
    t = np.asarray(t0 + integrator.h * np.arange(count + 1), dtype=np.float64)
    acting = None if actuation is None else read_actuation(first, actuation)
    policy = as_policy(controls)
    u, stages = (None, 1)
    if controls is not None and policy is None:
        u, stages = read_controls(first, integrator, controls, acting, t)
    forces = require_forces(forces)
    constraints = own_constraints(models) if constraints is None else require_constraints(constraints)
    require_holonomic(integrator, constraints)
    values = read_parameters(first, forces, parameters)
    rows = read_parameters(first, forces, signals, count)
    require_apart(forces, values, rows)
    several = () if isinstance(model, Model) else (len(models),)
    shape = _batch_shape(
        {
            "q0": (q.shape, 1), **({"v0": (v.shape, 1)} if p is None else {"p0": (p.shape, 1)}),
            "controls": (() if u is None else u.shape[:-2] + u.shape[-1:], 2), "models": (several, 0),
        },
        batch_shapes(first, forces, values, rows),
    )  # fmt: skip
    batch = Batch(models, forces, values, shape, rows, constraints)
    require_accelerations(integrator, batch.compiled, constraints)
    given = Controls(None if u is None else _flat(u, shape, 3), stages, acting, policy=policy)
    if policy is not None:
        nu = first.nv if acting is None else acting.matrix.shape[1]
        given.values = np.full((batch.size, count, 1, nu), np.nan)
    elif callable(controls):
        given.function = cast("OfTime", controls)
    # With a policy or a callback all trajectories take one step at a time, else one part of the batch after the other.
    together = policy is not None or callback is not None
    record = Record(batch, given, integrator, t, every, count if every == 1 else 1 if together else every)
    fields = {
        "model": first, "models": () if isinstance(model, Model) else models, "forces": forces,
        "constraints": constraints,
        "parameters": () if parameters is None else values, "policy": policy,
        "actuation": None if acting is None else acting.matrix,
    }  # fmt: skip
    reporter = Reporter(batch, t, callback, progress)
    parts = [slice(0, batch.size)] if together or not shape else record.parts(reporter.most)
    chunk = 1 if together else reporter.chunk(len(parts))
    try:
        _start(models, batch, q, v, p, record.rows)
        if constraints:
            require_consistent(batch, integrator, float(t[0]), record.rows.q[:, 0], record.rows.v[:, 0])
        record.started = True
        for part in parts:
            run = record.run(part)
            run.keep = on_failure == "keep" or not together
            try:
                _go_through(integrator, run, record, reporter, chunk, threads)
            finally:
                record.add_failures(run)
            record.complete(run)
    except KeyboardInterrupt as interrupt:
        raise record.interruption(fields).with_traceback(interrupt.__traceback__) from None
    finally:
        reporter.close()
    if record.failed and on_failure == "raise":
        raise record.error(fields)
    return record.trajectory(fields)


def _go_through(
    integrator: Integrator, run: Run, record: Record, reporter: Reporter, chunk: int, threads: Threads
) -> None:
    """Takes all steps of a run, `chunk` of them at a time."""
    reporter.begin(run)
    report = None if reporter.silent else reporter
    stepper = None if isinstance(integrator, Adaptive) else Stepper(integrator, run, float(record.t[0]), threads)
    for start in range(0, max(record.steps, 1), max(run.steps, 1)):
        record.begin(run, start)
        try:
            if stepper is not None:
                stepper.go(chunk, report)
            else:
                assert isinstance(integrator, Adaptive)
                adaptive.integrate(integrator, run, record.t, chunk, report)
        finally:
            record.add_switches(run)
        record.end(run)
        if run.ended:
            return


# ---- arguments


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


def _state(model: Model, name: str, value: Any, size: int) -> FloatArray:
    array = as_array(name, value)
    if array.ndim == 0 or array.shape[-1] != size:
        letter = "nq" if size == model.nq and name.startswith("q") else "nv"
        raise ValueError(f"{name} has shape {array.shape}, expected (..., {size}): model.{letter} is {size}")
    if not all_finite(array):
        where = np.argwhere(~np.isfinite(array))[0].tolist()
        bad = np.count_nonzero(~np.isfinite(array).all(axis=-1))
        count = f" ({bad} of {prod(array.shape[:-1])} trajectories are not)" if array.ndim > 1 else ""
        raise ValueError(f"{name} is not finite: {name}{where} is {array[tuple(where)]}{count}")
    return array


def _batch_shape(
    given: Mapping[str, tuple[tuple[int, ...], int]], parameters: Sequence[tuple[int, ...]]
) -> tuple[int, ...]:
    """The common batch shape of arrays, each with its number of dimensions beyond the batch, and of parameters."""
    leads = [shape[: len(shape) - own] for shape, own in given.values()]
    if not any(leads) and not any(parameters):
        return ()
    names = [*given, *("parameters" for _ in parameters)]
    for name, lead in zip(names, (*leads, *parameters), strict=True):
        if len(lead) > MAX_BATCH_DIMENSIONS:
            raise ValueError(f"{name} has {len(lead)} batch dimensions, expected {MAX_BATCH_DIMENSIONS} at most")
    try:
        return np.broadcast_shapes(*leads, *parameters)
    except ValueError:
        text = ", ".join(f"{name} {shape}" for name, (shape, _) in given.items() if shape)
        text += "".join(f", parameters {x}" for x in parameters if x)
        raise ValueError(f"batch shapes do not fit together: {text}") from None


def _flat(x: FloatArray, shape: tuple[int, ...], own: int) -> FloatArray:
    """An array with the batch shape flattened, or of length 1 if the array is the same for all."""
    kept = x.shape[x.ndim - own :]
    if prod(x.shape[: x.ndim - own]) == 1:
        return x.reshape((1, *kept))
    return np.ascontiguousarray(np.broadcast_to(x, (*shape, *kept))).reshape(prod(shape), *kept)


def _start(
    models: Sequence[Model], batch: Batch, q: FloatArray, v: FloatArray, p: FloatArray | None, rows: Rows
) -> None:
    """Writes the initial states to the first rows, with quaternions of unit length."""
    first, shape = models[0], batch.shape
    rest = np.zeros(first.nv)
    try:
        if not shape:
            rows.q[0, 0] = first.plus(q, rest)
        elif q.shape[:-1] == shape:
            flat = q.reshape(batch.size, first.nq)
            for part in blocks(batch.size, rows.q[:1].nbytes):  # new memory is slow: interrupts come between parts
                rows.q[part, 0] = first.plus(flat[part], rest)
        else:
            rows.q.reshape((*shape, *rows.q.shape[1:]))[..., 0, :] = first.plus(q, rest)
    except ValueError:  # of a quaternion
        try:
            first.plus(q, rest)  # names the state in the whole batch
        except ValueError as error:
            raise ValueError(str(error).replace("q has", "q0 has", 1)) from None
        raise
    given, out = v if p is None else p, rows.v.reshape((*shape, *rows.v.shape[1:]))
    if batch.size <= 4096:
        out[..., 0, :] = given
    else:
        given = np.broadcast_to(given, (*shape, first.nv))
        for part in blocks(shape[0], out[:1].nbytes):
            out[part, ..., 0, :] = given[part]
    if p is None:
        return
    for part in blocks(batch.size, 16 * first.nv):
        of = batch.model_of[part]
        for k in np.unique(of).tolist():
            here = np.flatnonzero(of == k) + part.start
            rows.v[here, 0] = mass_matrix_solve(models[k], rows.q[here, 0], rows.v[here, 0])
