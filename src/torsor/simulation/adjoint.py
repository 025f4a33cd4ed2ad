"""Gradients of whole simulations by the adjoint method. Sueda 2021, 3.5.

The cost is about that of one simulation, whatever the number of parameters. The gradient is that of the discrete steps,
exact to rounding and to the tolerance of Newton's method.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, overload

import numpy as np

from torsor import _core
from torsor._check import all_finite, as_array
from torsor._errors import ConvergenceError
from torsor.costs.cost import Cost
from torsor.integrators import Adaptive
from torsor.simulation import charts as _charts
from torsor.simulation.controls import Policy, controls_of
from torsor.simulation.impacts import warn_of_impacts
from torsor.simulation.losses import Loss, same_trajectory
from torsor.simulation.losses import loss as loss_of
from torsor.simulation.run import Run, blocks, repeat, whole
from torsor.simulation.steps import require_second_derivatives
from torsor.simulation.trajectory import Trajectory

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from torsor._typing import FloatArray, Threads

    Node = tuple[FloatArray, FloatArray]  # of all trajectories of a run: (size, ...) each


class AdjointGradient(NamedTuple):
    """Gradients of a loss of a trajectory.

    Attributes
    ----------
    q0, v0 : (..., nv)
        With respect to the initial state, q0 in the tangent space.
    controls : as the trajectory's, or (..., steps, nv)
        With respect to the controls of every step. For a policy, with respect to a perturbation of its controls at that
        step, including all later feedback.
    inertia : (..., nbodies, 10)
        With respect to `Inertia.parameters` of every body.
    placement : (..., nbodies, 6)
        With respect to twists x of the placements, placement @ SE3.exp(x).
    gravity : (..., 3)
    armature : (..., nv)
        With respect to `Model.armature`, as that of `InverseDynamicsVJP`; with couplings by the velocities of the tree.
    forces : tuple of dicts
        For each force the gradients with respect to its parameters, by name; those of signals summed over the steps.
    signals : tuple of dicts or None
        For each force the gradients with respect to its signals, (..., steps, *shape of the parameter); None without
        signals.
    constraints : tuple of dicts
        For each constraint the gradients with respect to its parameters, by name, for a fixed initial state; a
        parameter that moves the constraint also moves a start that satisfies it (`project_derivatives`).
    couplings : tuple of dicts
        For each coupling of the model (`Model.couplings`) the gradients with respect to its parameters, by name, for a
        fixed initial state in reduced coordinates.
    """

    q0: FloatArray
    v0: FloatArray
    controls: FloatArray
    inertia: FloatArray
    placement: FloatArray
    gravity: FloatArray
    armature: FloatArray
    forces: tuple[dict[str, FloatArray], ...]
    signals: tuple[dict[str, FloatArray], ...] | None = None
    constraints: tuple[dict[str, FloatArray], ...] = ()
    couplings: tuple[dict[str, FloatArray], ...] = ()


class StateGradient(NamedTuple):
    """Gradients of a loss of a trajectory with respect to the initial state and the controls alone: the first fields of
    `AdjointGradient`."""

    q0: FloatArray
    v0: FloatArray
    controls: FloatArray


@overload
def adjoint(
    trajectory: Trajectory,
    loss: Cost | Loss | None = ...,
    *,
    dloss_dq: ArrayLike | None = ...,
    dloss_dv: ArrayLike | None = ...,
    dloss_du: ArrayLike | None = ...,
    parameters: Literal[True] = ...,
    threads: Threads = ...,
) -> AdjointGradient: ...
@overload
def adjoint(
    trajectory: Trajectory,
    loss: Cost | Loss | None = ...,
    *,
    dloss_dq: ArrayLike | None = ...,
    dloss_dv: ArrayLike | None = ...,
    dloss_du: ArrayLike | None = ...,
    parameters: Literal[False],
    threads: Threads = ...,
) -> StateGradient: ...
@overload
def adjoint(
    trajectory: Trajectory,
    loss: Cost | Loss | None = ...,
    *,
    dloss_dq: ArrayLike | None = ...,
    dloss_dv: ArrayLike | None = ...,
    dloss_du: ArrayLike | None = ...,
    parameters: bool,
    threads: Threads = ...,
) -> AdjointGradient | StateGradient: ...


def adjoint(
    trajectory: Trajectory,
    loss: Cost | Loss | None = None,
    *,
    dloss_dq: ArrayLike | None = None,
    dloss_dv: ArrayLike | None = None,
    dloss_du: ArrayLike | None = None,
    parameters: bool = True,
    threads: Threads = 1,
) -> AdjointGradient | StateGradient:
    """Gradient of a loss of a trajectory with respect to initial state, controls and parameters.

    Give the loss, or its derivatives `dloss_dq`, `dloss_dv` and `dloss_du`. In a batch each trajectory has its own loss
    and its own gradient; those of trajectories that have failed (`Trajectory.failed`) are NaN.

    Parameters
    ----------
    trajectory : Trajectory
        From `simulate`, with any integrator but `Adaptive`.
    loss : Cost or Loss, optional
        A cost, or the result of `loss` for this trajectory.
    dloss_dq, dloss_dv : (..., rows, nv) or (..., nv) array_like, optional
        Derivatives of the loss with respect to every row, or to the last one; dloss_dq in the tangent space, in the
        coordinates of the row.
    dloss_du : array_like, optional
        Derivatives of the loss with respect to the controls at fixed states, shaped as the controls.
    parameters : bool
        Whether to compute the gradients with respect to inertias, placements, gravity and parameters of forces and
        constraints.
    threads : int or "auto"
        Number of threads for a batch; "auto" for one per core.

    Returns
    -------
    AdjointGradient
        q0, v0 (..., nv), controls, inertia (..., nbodies, 10), placement (..., nbodies, 6), gravity (..., 3), forces
        and signals; with `parameters=False` a `StateGradient` with q0, v0 and controls alone.

    Raises
    ------
    ConvergenceError
        If a step has no derivative.

    Examples
    --------
    >>> motion = ts.simulate(model, q, steps=10, integrator=ts.BDF2(h=1e-2), controls=np.zeros((10, model.nv)))
    >>> cost = ts.PointTarget("hand", (0, 0, 0.1), target=(0.4, 0.2, 0.8)) + 1e-3 * ts.ControlEffort()
    >>> g = ts.adjoint(motion, cost)
    >>> g.controls.shape, g.inertia.shape
    ((10, 7), (9, 10))
    """
    if not isinstance(trajectory, Trajectory):
        raise TypeError(f"trajectory must be a Trajectory, got {type(trajectory).__name__}; simulate makes one")
    if isinstance(trajectory.integrator, Adaptive):
        raise TypeError("a trajectory of Adaptive has no adjoint; simulate with another integrator")
    require_second_derivatives(trajectory.integrator, trajectory.forces)
    if loss is not None:
        if dloss_dq is not None or dloss_dv is not None or dloss_du is not None:
            raise TypeError("adjoint takes either a loss or its derivatives dloss_dq, dloss_dv, dloss_du: got both")
        if isinstance(loss, Cost):
            loss = loss_of(trajectory, loss, parameters=parameters)
        if not isinstance(loss, Loss):
            got = type(loss).__name__
            raise TypeError(f"loss must be a Cost or a Loss, got {got}; give arrays as dloss_dq= and dloss_dv=")
        if not same_trajectory(loss.of, trajectory):
            raise ValueError("loss belongs to another trajectory; compute it from this one")
        dloss_dq, dloss_dv, dloss_du = loss.dq, loss.dv, loss.du
    elif dloss_dq is None and dloss_dv is None and dloss_du is None:
        raise TypeError("adjoint takes a loss, or its derivatives dloss_dq, dloss_dv, dloss_du: got none of them")
    _require_finite(trajectory)
    warn_of_impacts(trajectory)
    dq, dv = _of_rows(trajectory, "dloss_dq", dloss_dq), _of_rows(trajectory, "dloss_dv", dloss_dv)
    total = _initial(trajectory, dloss_du, parameters)
    for part in _parts(trajectory):
        _sweep(trajectory, part, dq, dv, total, threads)
    shape, batch, controls = trajectory.batch_shape, trajectory._batch, controls_of(trajectory)
    u, forces, signals = total["u"], total["forces"], total["signals"]
    if signals is not None and batch.signal_table is not None:
        forces[:, batch.signal_table[0]] = signals.sum(axis=1)
    failed = [*trajectory._failed_tracks]
    for x in total.values():
        if x is not None:
            x[failed] = np.nan

    def shaped(x: FloatArray | None) -> Any:
        return None if x is None else x.reshape((*shape, *x.shape[1:]))

    state = shaped(total["q0"]), shaped(total["v0"]), shaped(u[:, :, 0] if controls.stages == 1 else u)
    if not parameters:
        return StateGradient(*state)
    resolved = trajectory.model._map
    gradient = AdjointGradient(
        *state, shaped(total["inertia"]), shaped(total["placement"]), shaped(total["gravity"]),
        shaped(total["armature"]),
        batch.compiled.unflatten(shaped(forces)), None if signals is None else batch.signals_by_name(shaped(signals)),
        () if batch.rows is None else batch.rows.unflatten(shaped(total["constraints"])),
        () if resolved is None else resolved.gradients(shaped(total["couplings"])),
    )  # fmt: skip
    if loss is not None:
        _add_direct(gradient, loss)
    return gradient


# ---- arguments and results


def _require_finite(trajectory: Trajectory) -> None:
    """Refuses trajectories that have rows of NaN but have not failed: the ends of unfinished ones."""
    if all_finite(trajectory.q) and all_finite(trajectory.v):
        return
    n, failed = prod(trajectory.batch_shape), trajectory._failed_tracks
    for x in (trajectory.q, trajectory.v):
        flat = x.reshape(n, -1)
        for part in blocks(n, flat.shape[1]):
            for i in (np.flatnonzero(~np.isfinite(flat[part]).all(axis=1)) + part.start).tolist():
                if i not in failed:
                    which = f"trajectory {i} of the batch" if trajectory.batch_shape else "the trajectory"
                    raise ValueError(f"{which} is not finite: a motion that was not finished has no gradient")


def _of_rows(trajectory: Trajectory, name: str, value: ArrayLike | None) -> FloatArray | None:
    """Derivatives (batch, rows or 1, nv) of the loss with respect to all rows, or to the last."""
    if value is None:
        return None
    nv, rows, shape = trajectory.model.nv, len(trajectory.t), trajectory.batch_shape
    array = as_array(name, value)
    if array.shape not in ((*shape, rows, nv), (*shape, nv)):
        raise ValueError(
            f"{name} has shape {array.shape}, expected {(*shape, rows, nv)}, a row of nv = {nv} for each of "
            f"{rows} rows; or {(*shape, nv)}, for the last row alone"
        )
    n = prod(shape)
    flat = array.reshape(n, rows if array.shape == (*shape, rows, nv) else 1, nv)
    _require_finite_input(trajectory, name, flat)
    return flat


def _require_finite_input(trajectory: Trajectory, name: str, flat: FloatArray) -> None:
    """Refuses derivatives (batch, ...) that are not finite, of trajectories that have not failed."""
    if all_finite(flat):
        return
    for i in np.flatnonzero(~np.isfinite(flat).reshape(len(flat), -1).all(axis=1)).tolist():
        if i not in trajectory._failed_tracks:
            where = f" in trajectory {i} of the batch" if trajectory.batch_shape else ""
            raise ValueError(f"{name} is not finite{where}")


def _initial(trajectory: Trajectory, du: ArrayLike | None, parameters: bool) -> dict[str, Any]:
    """Arrays for the gradients of all trajectories: q0 and v0 (batch, nv), controls u (batch, steps, stages, nu), which
    begin with the derivatives of the loss, and parameters, None if they are not requested."""
    model, steps, shape, n = trajectory.model, trajectory.steps, trajectory.batch_shape, prod(trajectory.batch_shape)
    matrix, stages = trajectory.actuation, controls_of(trajectory).stages
    size = model.nv if matrix is None else matrix.shape[1]
    u = _zeros((n, steps, stages, size))
    if du is not None:
        given = as_array("dloss_du", du)
        expected = (*shape, steps, size) if stages == 1 else (*shape, steps, stages, size)
        if given.shape != expected:
            raise ValueError(f"dloss_du has shape {given.shape}, expected {expected}, as the controls")
        _require_finite_input(trajectory, "dloss_du", given.reshape(u.shape))
        u[:] = given.reshape(u.shape)
    table = trajectory._batch.signal_table
    sizes: dict[str, tuple[int, ...] | None] = {
        "inertia": (model.nbodies, 10), "placement": (model.nbodies, 6), "gravity": (3,),
        "armature": (model.tree.nv,),
        "forces": trajectory._batch.flat.shape[1:], "signals": None if table is None else (steps, len(table[0])),
        "constraints": None if trajectory._batch.rows is None else (trajectory._batch.rows.size,),
        "couplings": None if model._map is None else (model._core.coupling_numbers,),
    }  # fmt: skip
    return {
        "q0": np.zeros((n, model.nv)), "v0": np.zeros((n, model.nv)), "u": u,
        **{name: _zeros((n, *size)) if parameters and size is not None else None for name, size in sizes.items()},
    }  # fmt: skip


def _zeros(shape: tuple[int, ...]) -> FloatArray:
    out = _core.empty(shape)  # memory that is kept, which takes less time to clear than new one
    out.fill(0.0)
    return out


# ---- sweeps


def _parts(trajectory: Trajectory) -> list[slice]:
    """The parts of the batch that are swept one after the other. Derivatives of a policy are those of all states."""
    n, model = prod(trajectory.batch_shape), trajectory.model
    if trajectory.policy is not None:
        return [slice(0, n)]
    span = trajectory.every if trajectory.every > 1 else trajectory.steps
    numbers = (span + 1) * (model.nq + 6 * model.nv) + 2 * model.nv * len(trajectory.t)
    return blocks(n, 8 * numbers)


def _sweep(
    trajectory: Trajectory,
    part: slice,
    dq: FloatArray | None,
    dv: FloatArray | None,
    total: dict[str, Any],
    threads: Threads,
) -> None:
    """Sweeps over all steps of a part of the batch, and writes its gradients to those of all."""
    model, size, rows, u = trajectory.model, part.stop - part.start, len(trajectory.t), total["u"]
    # Arrays to which the core adds: of rows (size, rows, nv), of torques (size, steps, stages, nv), and of parameters.
    # With actuation, the derivatives of the loss with respect to controls are apart, in "direct_u".
    names = ("inertia", "placement", "gravity", "armature", "forces", "signals", "constraints", "couplings")
    gradients: dict[str, Any] = {name: None if total[name] is None else total[name][part] for name in names}
    for name, given in (("q", dq), ("v", dv)):
        gradients[name] = _zeros((size, rows, model.nv))
        if given is not None:
            gradients[name][:, rows - given.shape[1] :] = given[part]
    actuation = controls_of(trajectory).actuation
    gradients["u"], gradients["direct_u"] = u[part], None
    if actuation is not None:
        gradients["u"], gradients["direct_u"] = _zeros((*u[part].shape[:-1], model.nv)), u[part]
    if trajectory.every == 1:
        _Window(trajectory, whole(trajectory, part), gradients, threads).sweep(None)
    else:
        _sweep_windows(trajectory, part, gradients, threads)
    total["q0"][part], total["v0"][part] = gradients["q"][:, 0], gradients["v"][:, 0]
    if actuation is not None:
        u[part] = actuation.pull_back(gradients["u"]) + u[part]


def _sweep_windows(trajectory: Trajectory, part: slice, gradients: dict[str, Any], threads: Threads) -> None:
    """Sweeps window by window from the end, repeating the steps of each (checkpointing)."""
    k, after = trajectory.every, None
    q, v = gradients["q"], gradients["v"]
    by_step = [name for name in ("u", "direct_u", "signals") if gradients[name] is not None]
    for w in reversed(range(len(trajectory.t) - 1)):
        run = repeat(trajectory, part, w, threads)
        steps = slice(run.start, run.start + k)
        own = {**gradients, **{name: gradients[name][:, steps].copy() for name in by_step}}
        for name, rows in (("q", q), ("v", v)):
            own[name] = np.zeros((run.size, k + 1, trajectory.model.nv))
            own[name][:, ::k] = rows[:, w : w + 2]
        after = _Window(trajectory, run, own, threads).sweep(after)
        q[:, w], v[:, w] = own["q"][:, 0], own["v"][:, 0]
        for name in by_step:
            gradients[name][:, steps] = own[name]


def _add_direct(gradient: AdjointGradient, loss: Loss) -> None:
    """Adds the explicit parameter dependence of the loss."""
    sums = (gradient.inertia, gradient.placement, gradient.gravity, gradient.armature)
    parts = (loss.dinertia, loss.dplacement, loss.dgravity, loss.darmature)
    for total, part in zip(sums, parts, strict=True):
        if part is not None:
            total += part
    for totals, own in zip(gradient.forces, loss.dforces or (), strict=False):
        for name, value in own.items():
            totals[name] += value
    for totals, own in zip(gradient.couplings, loss.dcouplings or (), strict=False):
        for name, value in own.items():
            totals[name] += value
    for totals, own in zip(gradient.signals or (), loss.dsignals or (), strict=False):
        for name, value in own.items():
            totals[name] += value


class _Window:
    """Steps of a backward sweep: gradients (size, steps + 1, nv) at their rows, to which each step adds."""

    def __init__(self, trajectory: Trajectory, run: Run, gradients: dict[str, Any], threads: Threads) -> None:
        self.trajectory, self.run, self.gradients, self.threads = trajectory, run, gradients, threads
        self.gq: FloatArray = gradients["q"]
        self.gv: FloatArray = gradients["v"]
        if trajectory.policy is not None:
            self._add_feedback(trajectory.policy)

    def _add_feedback(self, policy: Policy) -> None:
        """Evaluates the derivatives of the policy at all rows, for the core, and adds the derivatives of the loss with
        respect to controls through it, unless the core does."""
        run, trajectory, actuation = self.run, self.trajectory, self.run.controls.actuation
        nv, t0, h = run.v.shape[-1], float(trajectory.t[0]), trajectory.integrator.h
        size = nv if actuation is None else actuation.matrix.shape[1]
        feedback = np.zeros((run.size, run.steps, nv, nv)), np.zeros((run.size, run.steps, nv, nv))
        for k in range(run.steps):
            step = run.start + k
            both = policy._jacobians(t0 + step * h, step, *run.good_states(k), size)
            for jacobian, matrices, g in zip(both, feedback, (self.gq, self.gv), strict=True):
                flat = jacobian.reshape(run.size, size, nv)
                if actuation is None:
                    matrices[:, k] = flat
                else:
                    matrices[:, k] = actuation.torques(flat.swapaxes(1, 2)).swapaxes(1, 2)
                    g[:, k] += (flat * self.gradients["direct_u"][:, k, 0, :, None]).sum(axis=1)
        run.feedback = feedback

    def sweep(self, after: Node | None) -> Node | None:
        """Sweeps back over all steps. `after` are cotangents, from the later steps, of the substitute for the row
        before the last. Returns those of the row before the first, where the integrator needs one."""
        run, steps = self.run, self.run.steps
        before = None if run.initial is None else (np.zeros_like(self.gq[:, 0]), np.zeros_like(self.gv[:, 0]))
        mine: dict[int, dict[int, _charts.ChartSwitch]] = {}
        for s in run.switches:
            if s.track not in run.failed:
                mine.setdefault(s.track, {})[s.row] = s
        if after is not None:
            same = np.ones(run.size, np.bool_)
            same[[i for i, switches in mine.items() if steps in switches]] = False
            self.gq[same, steps - 1] += after[0][same]
            self.gv[same, steps - 1] += after[1][same]
        # Trajectories that keep their charts are swept together, the others one by one.
        groups: dict[tuple[str, ...], Any] = {run.batch.charts: run.alive}
        if run.batch.parts:
            groups = {}
            for i in run.alive.tolist():
                if i not in mine:
                    groups.setdefault(run.first_charts[i], []).append(i)
        for charts, chosen in groups.items():
            self._go_back(charts, chosen, 0, steps, run.initial, before)
        if mine:
            for i, first, last, charts in reversed(_charts.segments(run.first_charts, run.switches, steps + 1)):
                if i in mine:
                    self._go_back_one(i, charts, first, min(last, steps), mine[i], before, after)
        return before

    def _go_back_one(
        self,
        i: int,
        charts: tuple[str, ...],
        first: int,
        last: int,
        switches: dict[int, _charts.ChartSwitch],
        before: Node | None,
        after: Node | None,
    ) -> None:
        """Sweeps from row `last` of trajectory i to row `first`, and through the switch there."""
        run, gq, gv = self.run, self.gq, self.gv
        # The last step ends in these coordinates too, in a row that a switch may have changed.
        kept = {name: getattr(run, name)[i, last].copy() for name in ("q", "v", "a")}
        if last in switches and last > first:
            for name in kept:
                getattr(run, name)[i, last] = getattr(switches[last], name)
        switch = switches.get(first)
        if switch is None:
            self._go_back(charts, [i], first, last, run.initial, before)
        else:
            previous = (np.zeros((run.size, run.q.shape[2])), np.zeros((run.size, run.v.shape[2])))
            previous[0][i], previous[1][i] = switch.previous_q, switch.previous_v
            node = (np.zeros_like(gq[:, 0]), np.zeros_like(gv[:, 0]))
            if first == run.steps and after is not None:
                node[0][i], node[1][i] = after[0][i], after[1][i]
            self._go_back(charts, [i], first, last, previous, node)
        for name, row in kept.items():
            getattr(run, name)[i, last] = row
        if switch is not None:
            parts = run.batch.parts
            _charts.pull_back(parts, switch, switch.q, switch.v, run.q[i, first], gq[i, first], gv[i, first])
            old_q, old_v = run.q[i, first - 1], run.v[i, first - 1]
            _charts.pull_back(parts, switch, old_q, old_v, switch.previous_q, node[0][i], node[1][i])
            gq[i, first - 1] += node[0][i]
            gv[i, first - 1] += node[1][i]

    def _go_back(
        self,
        charts: tuple[str, ...],
        chosen: Sequence[int] | NDArray[np.int64],
        first: int,
        last: int,
        previous: Node | None,
        node: Node | None,
    ) -> None:
        """Sweeps from row `last` to row `first`, trajectories with the same charts. `previous` is the substitute for
        the row before the first, `node` receives its cotangents."""
        run, trajectory, n, tracks = self.run, self.trajectory, len(chosen), np.array(chosen, np.int64)
        state = None if previous is None else (previous[0][tracks], previous[1][tracks])
        given = (None, None) if node is None else (node[0][tracks], node[1][tracks])
        track, row = _core.adjoint(
            run.batch.arguments(charts, tracks, run.part), trajectory.integrator._numbers, float(trajectory.t[0]),
            run.tracks(tracks, state), np.full(n, first, np.int64), np.full(n, last, np.int64),
            {**self.gradients, "previous_q": given[0], "previous_v": given[1]}, self.threads,
        )  # fmt: skip
        if track >= 0:
            step, shape = run.start + row, trajectory.batch_shape
            t = float(trajectory.t[0] + step * trajectory.integrator.h)
            track += run.part.start
            where = f"at t = {t:.6g}" + (f" of trajectory {track}" if shape else "")
            raise ConvergenceError(
                f"the step {where} has no derivative: its matrix is singular, or it could not be taken again",
                trajectory, step, t, track if shape else None,
            )  # fmt: skip
        if node is not None:
            node[0][tracks], node[1][tracks] = given
