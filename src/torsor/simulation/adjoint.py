"""Gradients of whole simulations by the adjoint method. Sueda 2021, 3.5.

The cost is about that of one simulation, whatever the number of parameters. The gradient is that of the discrete steps,
exact to rounding and to the tolerance of Newton's method.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, overload

import numpy as np

from torsor import _core
from torsor._check import as_array
from torsor._errors import ConvergenceError
from torsor.costs.cost import Cost
from torsor.integrators import Adaptive
from torsor.simulation import charts as _charts
from torsor.simulation.controls import Policy, controls_of
from torsor.simulation.losses import Loss, same_trajectory
from torsor.simulation.losses import loss as loss_of
from torsor.simulation.run import Run, repeat, whole
from torsor.simulation.steps import require_second_derivatives
from torsor.simulation.trajectory import Trajectory

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from torsor._typing import FloatArray, Threads

    Node = tuple[FloatArray, FloatArray]  # of all trajectories: (batch, ...) each


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
    forces : tuple of dicts
        For each force the gradients with respect to its parameters, by name; those of signals summed over the steps.
    signals : tuple of dicts or None
        For each force the gradients with respect to its signals, (..., steps, *shape of the parameter); None without
        signals.
    """

    q0: FloatArray
    v0: FloatArray
    controls: FloatArray
    inertia: FloatArray
    placement: FloatArray
    gravity: FloatArray
    forces: tuple[dict[str, FloatArray], ...]
    signals: tuple[dict[str, FloatArray], ...] | None = None


class StateGradient(NamedTuple):
    """Gradients of a loss of a trajectory with respect to the initial state and the controls alone: the first fields of
    `AdjointGradient`."""

    q0: FloatArray
    v0: FloatArray
    controls: FloatArray


def _cotangents(trajectory: Trajectory, name: str, value: ArrayLike | None) -> FloatArray:
    """Derivatives (batch, rows, nv) of the loss, in new memory."""
    nv, rows, shape = trajectory.model.nv, len(trajectory.t), trajectory.batch_shape
    out = np.zeros((*shape, rows, nv))
    if value is not None:
        array = as_array(name, value)
        if array.shape == (*shape, rows, nv):
            out[:] = array
        elif array.shape == (*shape, nv):
            out[..., -1, :] = array
        else:
            raise ValueError(
                f"{name} has shape {array.shape}, expected {(*shape, rows, nv)}, a row of nv = {nv} for each of "
                f"{rows} rows; or {(*shape, nv)}, for the last row alone"
            )
        if not np.isfinite(array).all():
            raise ValueError(f"{name} is not finite")
    return out.reshape(prod(shape), rows, nv)


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
    and its own gradient.

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
        Whether to compute the gradients with respect to inertias, placements, gravity and parameters of forces.
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
    >>> g = ts.adjoint(trajectory, ts.PointTarget("hand", (0, 0, 0.1), target) + 1e-3 * ts.ControlEffort())
    >>> g.controls, g.inertia
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
    if not np.isfinite(trajectory.q).all() or not np.isfinite(trajectory.v).all():
        raise ValueError("the trajectory is not finite: the part after a failed step has no gradient")
    shape, controls, batch = trajectory.batch_shape, controls_of(trajectory), trajectory._batch
    gradients = _gradients(trajectory, dloss_dq, dloss_dv, dloss_du, parameters)
    if trajectory.every == 1:
        _Window(trajectory, whole(trajectory), gradients, threads).sweep(None)
    else:
        _sweep_windows(trajectory, gradients, threads)

    def shaped(x: FloatArray | None) -> Any:
        return None if x is None else x.reshape((*shape, *x.shape[1:]))

    q, v, u, forces, signals = (gradients[name] for name in ("q", "v", "u", "forces", "signals"))
    if controls.actuation is not None:
        u = controls.actuation.pull_back(u) + gradients["direct_u"]
    state = shaped(q[:, 0]), shaped(v[:, 0]), shaped(u[:, :, 0] if controls.stages == 1 else u)
    if not parameters:
        return StateGradient(*state)
    if signals is not None and batch.signal_table is not None:
        forces[:, batch.signal_table[0]] = signals.sum(axis=1)
    gradient = AdjointGradient(
        *state, shaped(gradients["inertia"]), shaped(gradients["placement"]), shaped(gradients["gravity"]),
        batch.compiled.unflatten(shaped(forces)), None if signals is None else batch.signals_by_name(shaped(signals)),
    )  # fmt: skip
    if loss is not None:
        _add_direct(gradient, loss)
    return gradient


def _gradients(
    trajectory: Trajectory, dq: ArrayLike | None, dv: ArrayLike | None, du: ArrayLike | None, parameters: bool
) -> dict[str, Any]:
    """Arrays to which the core adds gradients, initialised with the derivatives of the loss: of rows (batch, rows, nv),
    of torques (batch, steps, stages, nv), and of parameters, None if they are not requested. With actuation, the
    derivatives of the loss with respect to controls are apart, in "direct_u"."""
    model, steps, shape, n = trajectory.model, trajectory.steps, trajectory.batch_shape, prod(trajectory.batch_shape)
    matrix, stages = trajectory.actuation, controls_of(trajectory).stages
    size = model.nv if matrix is None else matrix.shape[1]
    u = np.zeros((n, steps, stages, size))
    if du is not None:
        given = as_array("dloss_du", du)
        expected = (*shape, steps, size) if stages == 1 else (*shape, steps, stages, size)
        if given.shape != expected:
            raise ValueError(f"dloss_du has shape {given.shape}, expected {expected}, as the controls")
        if not np.isfinite(given).all():
            raise ValueError("dloss_du is not finite")
        u[:] = given.reshape(u.shape)
    table = trajectory._batch.signal_table
    sizes: dict[str, tuple[int, ...] | None] = {
        "inertia": (model.nbodies, 10), "placement": (model.nbodies, 6), "gravity": (3,),
        "forces": trajectory._batch.flat.shape[1:], "signals": None if table is None else (steps, len(table[0])),
    }  # fmt: skip
    return {
        "q": _cotangents(trajectory, "dloss_dq", dq), "v": _cotangents(trajectory, "dloss_dv", dv),
        "u": u if matrix is None else np.zeros((n, steps, stages, model.nv)), "direct_u": None if matrix is None else u,
        **{name: np.zeros((n, *size)) if parameters and size is not None else None for name, size in sizes.items()},
    }  # fmt: skip


def _sweep_windows(trajectory: Trajectory, gradients: dict[str, Any], threads: Threads) -> None:
    """Sweeps window by window from the end, repeating the steps of each (checkpointing)."""
    k, after = trajectory.every, None
    q, v = gradients["q"], gradients["v"]
    by_step = [name for name in ("u", "direct_u", "signals") if gradients[name] is not None]
    for w in reversed(range(len(trajectory.t) - 1)):
        run = repeat(trajectory, w, threads)
        steps = slice(run.start, run.start + k)
        part = {**gradients, **{name: gradients[name][:, steps].copy() for name in by_step}}
        for name, rows in (("q", q), ("v", v)):
            part[name] = np.zeros((run.size, k + 1, trajectory.model.nv))
            part[name][:, ::k] = rows[:, w : w + 2]
        after = _Window(trajectory, run, part, threads).sweep(after)
        q[:, w], v[:, w] = part["q"][:, 0], part["v"][:, 0]
        for name in by_step:
            gradients[name][:, steps] = part[name]


def _add_direct(gradient: AdjointGradient, loss: Loss) -> None:
    """Adds the explicit parameter dependence of the loss."""
    sums = (gradient.inertia, gradient.placement, gradient.gravity)
    for total, part in zip(sums, (loss.dinertia, loss.dplacement, loss.dgravity), strict=True):
        if part is not None:
            total += part
    for totals, parts in zip(gradient.forces, loss.dforces or (), strict=False):
        for name, value in parts.items():
            totals[name] += value
    for totals, parts in zip(gradient.signals or (), loss.dsignals or (), strict=False):
        for name, value in parts.items():
            totals[name] += value


class _Window:
    """Steps of a backward sweep: gradients (batch, steps + 1, nv) at their rows, to which each step adds."""

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
            both = policy._jacobians(t0 + (run.start + k) * h, *run.states(k), size)
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
        segments = _charts.segments(run.first_charts, run.switches, steps + 1)
        mine: dict[int, dict[int, _charts.ChartSwitch]] = {}
        for s in run.switches:
            mine.setdefault(s.track, {})[s.row] = s
        if after is not None:
            for i in range(run.size):
                if steps not in mine.get(i, {}):
                    self.gq[i, steps - 1] += after[0][i]
                    self.gv[i, steps - 1] += after[1][i]
        # Trajectories that keep their charts are swept together, the others one by one.
        groups: dict[tuple[str, ...], list[int]] = {}
        for i, charts in enumerate(run.first_charts):
            if i not in mine:
                groups.setdefault(charts, []).append(i)
        for charts, chosen in groups.items():
            self._go_back(charts, chosen, 0, steps, run.initial, before)
        for i, first, last, charts in reversed(segments):
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
        chosen: list[int],
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
            run.batch.arguments(charts, tracks), trajectory.integrator._numbers, float(trajectory.t[0]),
            run.tracks(tracks, state), np.full(n, first, np.int64), np.full(n, last, np.int64),
            {**self.gradients, "previous_q": given[0], "previous_v": given[1]}, self.threads,
        )  # fmt: skip
        if track >= 0:
            step, shape = run.start + row, trajectory.batch_shape
            t = float(trajectory.t[0] + step * trajectory.integrator.h)
            where = f"at t = {t:.6g}" + (f" of trajectory {track}" if shape else "")
            raise ConvergenceError(
                f"the step {where} has no derivative: its matrix is singular, or it could not be taken again",
                trajectory, step, t, track if shape else None,
            )  # fmt: skip
        if node is not None:
            node[0][tracks], node[1][tracks] = given
