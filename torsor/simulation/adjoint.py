"""Gradients of whole simulations by the adjoint method, and exact Jacobians of single steps. Sueda 2021, 3.5.

All at the cost of about one simulation, whatever the number of parameters. The gradient is that of the discrete steps,
exact to rounding and to what Newton's method left.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from torsor import _core
from torsor._check import as_array, record_of, require_finite
from torsor._errors import ConvergenceError
from torsor.costs.cost import Cost
from torsor.forces import CustomForce
from torsor.forces.force import Force, compile_forces, require_forces
from torsor.integrators import BDF2, Adaptive, Integrator, LinearlyImplicitEuler, Variational
from torsor.model import Model
from torsor.simulation import charts as _charts
from torsor.simulation.losses import Loss, same_trajectory
from torsor.simulation.losses import loss as loss_of
from torsor.simulation.simulate import Run, Trajectory, repeat

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    FloatArray = NDArray[np.float64]
    Node = tuple[FloatArray, FloatArray]  # of all trajectories: (batch, ...) each


class AdjointGradient(NamedTuple):
    """Gradients of a loss of a trajectory; None for those that were not asked for.

    Attributes
    ----------
    q0, v0 : (..., nv)
        With respect to the initial state, q0 in the tangent space.
    controls : as the trajectory's, or (..., steps, nv)
        With respect to the torques of every step.
    inertia : (..., nbodies, 10)
        With respect to `Inertia.parameters` of every body.
    placement : (..., nbodies, 6)
        With respect to twists x of the placements, placement @ SE3.exp(x).
    gravity : (..., 3)
    forces : tuple of dicts
        For each force the gradients with respect to its parameters, by name.
    """

    q0: FloatArray
    v0: FloatArray
    controls: FloatArray
    inertia: FloatArray | None
    placement: FloatArray | None
    gravity: FloatArray | None
    forces: tuple[dict[str, FloatArray], ...] | None


def _cotangents(trajectory: Trajectory, name: str, value: ArrayLike | None) -> FloatArray:
    """Loss derivatives (batch, rows, nv), own memory."""
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


def _check_second_derivatives(integrator: Integrator, forces: Sequence[Force]) -> None:
    if isinstance(integrator, LinearlyImplicitEuler):
        for force in forces:
            if isinstance(force, CustomForce) and not force.complex_derivatives:
                raise TypeError(
                    "LinearlyImplicitEuler has stiffness and damping in its steps, so its derivatives need second ones "
                    f"of {type(force).__name__}; write its methods for complex arrays and say so by "
                    "complex_derivatives = True in the class, or use BDF1"
                )


def adjoint(
    trajectory: Trajectory,
    loss: Cost | Loss | None = None,
    *,
    dloss_dq: ArrayLike | None = None,
    dloss_dv: ArrayLike | None = None,
    dloss_du: ArrayLike | None = None,
    parameters: bool = True,
    threads: int = 1,
) -> AdjointGradient:
    """The gradient of a loss of the trajectory with respect to all that it was simulated from.

    Parameters
    ----------
    trajectory : Trajectory
        From `simulate`. Of a batch, each trajectory has its own loss and its own gradient.
    loss : Cost or Loss
        A cost, or what `loss` made of one and this trajectory; or instead its derivatives:
    dloss_dq, dloss_dv : (..., rows, nv) or (..., nv)
        Derivatives of the loss with respect to every row, or the last one; dloss_dq in the tangent space (for a
        quaternion, along rotations in the child's frame), in the coordinates of the row.
    dloss_du : as the controls
        Derivatives with respect to the controls themselves.
    parameters : bool
        Whether to compute the gradients of inertias, placements, gravity and forces too.
    threads : int
        Shares a batch among threads, 0 for one per core.
    """
    if not isinstance(trajectory, Trajectory):
        raise TypeError(f"trajectory must be a Trajectory, got {type(trajectory).__name__}; simulate makes one")
    if isinstance(trajectory.integrator, Adaptive):
        raise TypeError("a trajectory of Adaptive has no adjoint; simulate with one of the other integrators")
    _check_second_derivatives(trajectory.integrator, trajectory.forces)
    if loss is not None:
        if dloss_dq is not None or dloss_dv is not None or dloss_du is not None:
            raise TypeError("adjoint takes either a loss or its derivatives dloss_dq, dloss_dv, dloss_du: got both")
        if isinstance(loss, Cost):
            loss = loss_of(trajectory, loss, parameters=parameters)
        if not isinstance(loss, Loss):
            got = type(loss).__name__
            raise TypeError(f"loss must be a Cost or a Loss, got {got}; give arrays as dloss_dq= and dloss_dv=")
        if not same_trajectory(loss.of, trajectory):
            raise ValueError("loss is of another trajectory than the one given; make it from this one")
        dloss_dq, dloss_dv, dloss_du = loss.dq, loss.dv, loss.du
    elif dloss_dq is None and dloss_dv is None and dloss_du is None:
        raise TypeError("adjoint takes a loss, or its derivatives dloss_dq, dloss_dv, dloss_du: got none of them")
    model, steps, shape = trajectory.model, trajectory.steps, trajectory.batch_shape
    if not np.isfinite(trajectory.q).all() or not np.isfinite(trajectory.v).all():
        raise ValueError("the trajectory is not finite: the part after a failed step has no gradient")
    batch, nv, nbodies = prod(shape), model.nv, model.nbodies
    _, rows = trajectory._flat_controls()
    gq, gv = _cotangents(trajectory, "dloss_dq", dloss_dq), _cotangents(trajectory, "dloss_dv", dloss_dv)
    gu = np.zeros((batch, steps, rows, nv))
    if dloss_du is not None:
        given = as_array("dloss_du", dloss_du)
        expected = (*shape, steps, nv) if rows == 1 else (*shape, steps, rows, nv)
        if given.shape != expected:
            raise ValueError(f"dloss_du has shape {given.shape}, expected {expected}, as the controls")
        if not np.isfinite(given).all():
            raise ValueError("dloss_du is not finite")
        gu[:] = given.reshape(gu.shape)
    scenes = trajectory._scenes
    sums: dict[str, FloatArray | None] = {"inertia": None, "placement": None, "gravity": None, "forces": None}
    if parameters:
        sums["inertia"], sums["placement"] = np.zeros((batch, nbodies, 10)), np.zeros((batch, nbodies, 6))
        sums["gravity"], sums["forces"] = np.zeros((batch, 3)), np.zeros((batch, scenes.flat.shape[1]))
    if trajectory.every == 1:
        _Window(trajectory, _whole(trajectory), gq, gv, gu, sums, threads).sweep(None)
    else:
        # Window by window from the end, the steps of each taken once more.
        k, before = trajectory.every, None
        for w in reversed(range(len(trajectory.t) - 1)):
            run = repeat(trajectory, w, threads)
            part_q, part_v = np.zeros((batch, k + 1, nv)), np.zeros((batch, k + 1, nv))
            part_q[:, ::k], part_v[:, ::k] = gq[:, w : w + 2], gv[:, w : w + 2]
            part_u = gu[:, run.start : run.start + k].copy()
            before = _Window(trajectory, run, part_q, part_v, part_u, sums, threads).sweep(before)
            gq[:, w], gv[:, w], gu[:, run.start : run.start + k] = part_q[:, 0], part_v[:, 0], part_u

    def shaped(x: FloatArray | None) -> Any:
        return None if x is None else x.reshape((*shape, *x.shape[1:]))

    of_forces = sums["forces"]
    gradient = AdjointGradient(
        shaped(gq[:, 0]), shaped(gv[:, 0]), shaped(gu[:, :, 0] if rows == 1 else gu),
        shaped(sums["inertia"]), shaped(sums["placement"]), shaped(sums["gravity"]),
        None if of_forces is None else scenes.scene.unflatten(shaped(of_forces)),
    )  # fmt: skip
    if loss is not None and parameters:
        _add_direct(gradient, loss)
    return gradient


def _add_direct(gradient: AdjointGradient, loss: Loss) -> None:
    """Adds what a loss depends on by itself."""
    sums = (gradient.inertia, gradient.placement, gradient.gravity)
    for total, part in zip(sums, (loss.dinertia, loss.dplacement, loss.dgravity), strict=True):
        if total is not None and part is not None:
            total += part
    for totals, parts in zip(gradient.forces or (), loss.dforces or (), strict=False):
        for name, value in parts.items():
            totals[name] += value


def _whole(trajectory: Trajectory) -> Run:
    """All steps of a trajectory that has all rows."""
    run = Run(trajectory._scenes, trajectory.steps, *trajectory._flat_controls())
    for name in ("q", "v", "a", "substeps"):
        getattr(run, name)[:] = getattr(trajectory, name).reshape(getattr(run, name).shape)
    run.switches = list(trajectory.switches)
    return run


class _Window:
    """Some steps on the way back: gradients (batch, steps + 1, nv) at their rows, to which each step adds its own."""

    def __init__(
        self,
        trajectory: Trajectory,
        run: Run,
        gq: FloatArray,
        gv: FloatArray,
        gu: FloatArray,
        sums: dict[str, FloatArray | None],
        threads: int,
    ) -> None:
        self.trajectory, self.run, self.gq, self.gv, self.threads = trajectory, run, gq, gv, threads
        self.out = {**sums, "q": gq, "v": gv, "u": gu}

    def sweep(self, after: Node | None) -> Node | None:
        """Goes back over all steps. `after`: gradients of what stood for the row before the last one for the steps
        after these. Returns the same of the row before the first, where the integrator needs one."""
        run, steps = self.run, self.run.steps
        before = None if run.initial is None else (np.zeros_like(self.gq[:, 0]), np.zeros_like(self.gv[:, 0]))
        segments = _charts.segments(run.first_charts, run.switches, steps + 1)
        mine: dict[int, dict[int, _charts.ChartSwitch]] = {}
        for s in run.switches:
            mine.setdefault(s.track, {})[s.row] = s
        if after is not None:
            for i in range(run.batch):
                if steps not in mine.get(i, {}):
                    self.gq[i, steps - 1] += after[0][i]
                    self.gv[i, steps - 1] += after[1][i]
        # Trajectories that keep their charts, together; the others one by one.
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
        """From row `last` of trajectory i to row `first`, and through the switch there."""
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
            previous = (np.zeros((run.batch, run.q.shape[2])), np.zeros((run.batch, run.v.shape[2])))
            previous[0][i], previous[1][i] = switch.previous_q, switch.previous_v
            node = (np.zeros_like(gq[:, 0]), np.zeros_like(gv[:, 0]))
            if first == run.steps and after is not None:
                node[0][i], node[1][i] = after[0][i], after[1][i]
            self._go_back(charts, [i], first, last, previous, node)
        for name, row in kept.items():
            getattr(run, name)[i, last] = row
        if switch is not None:
            parts = run.scenes.parts
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
        """From row `last` to row `first`, of trajectories with the same charts. `previous` is what stands for the row
        before the first, `node` has its gradients."""
        run, trajectory = self.run, self.trajectory
        n = len(chosen)
        run.previous = {} if previous is None else {i: (previous[0][i], previous[1][i]) for i in chosen}
        given = (None, None) if node is None else (node[0][chosen], node[1][chosen])
        adjoint = _core.adjoint_variational if isinstance(trajectory.integrator, Variational) else _core.adjoint
        track, row = adjoint(
            run.scenes.arguments(charts, chosen), trajectory.integrator._scheme, float(trajectory.t[0]),
            run.tracks(chosen), np.full(n, first, np.int64), np.full(n, last, np.int64),
            {**self.out, "previous_q": given[0], "previous_v": given[1]}, self.threads,
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
            node[0][chosen], node[1][chosen] = given


@record_of("step_derivatives")
class StepDerivatives(NamedTuple):
    """One step and its exact Jacobian: q1 (..., nq), v1 (..., nv), and derivatives (..., nv, nv) of both by q, v and u.

    Those of and by configurations are in the tangent space. For a step of `BDF2` from two states those by the state
    before come too, else None.
    """

    q1: FloatArray
    v1: FloatArray
    dq1_dq: FloatArray
    dq1_dv: FloatArray
    dq1_du: FloatArray
    dv1_dq: FloatArray
    dv1_dv: FloatArray
    dv1_du: FloatArray
    dq1_dprevious_q: FloatArray | None = None
    dq1_dprevious_v: FloatArray | None = None
    dv1_dprevious_q: FloatArray | None = None
    dv1_dprevious_v: FloatArray | None = None


_NOW = 0.0  # the time if none is given
_START = np.array(_NOW)
_ALL, _ALL_BUT_PREVIOUS = {"wanted": 0xFFF}, {"wanted": 0xFF}


def step_derivatives(
    model: Model,
    integrator: Integrator,
    q: ArrayLike,
    v: ArrayLike,
    u: ArrayLike | None = None,
    *,
    forces: Sequence[Force] = (),
    t: float = _NOW,
    previous: tuple[ArrayLike, ArrayLike] | None = None,
    threads: int = 1,
) -> StepDerivatives:
    """One step from q (..., nq), v (..., nv) under torques u (..., nv), with its derivatives.

    `previous` is the state (q, v) one step before, for `BDF2`. Without it BDF2 takes its first step, by SDIRK2.

    Raises
    ------
    ConvergenceError
        If the step cannot be taken, in any state of the batch.
    """
    if not isinstance(integrator, Integrator) or isinstance(integrator, Adaptive):
        raise TypeError(f"integrator must be one with steps, such as BDF1(h=1e-2), got {integrator!r}")
    if isinstance(integrator, Variational):
        if previous is not None:
            raise TypeError("previous is for BDF2, which has two steps; Variational has one")
        return _variational_step(model, integrator, q, v, u, forces, t, threads)
    before: tuple[Any, Any] = (None, None)
    if previous is not None:
        if not isinstance(integrator, BDF2):
            raise TypeError(f"previous is for BDF2, which has two steps; {type(integrator).__name__} has one")
        if not isinstance(previous, (tuple, list)) or len(previous) != 2:
            raise TypeError(f"previous must be the state (q, v) one step before, got {previous!r}")
        before = (previous[0], previous[1])
        require_finite(previous_q=before[0], previous_v=before[1])  # without which a divided step would do
    options: dict[str, Any] = _ALL_BUT_PREVIOUS if previous is None else _ALL
    parameters = None
    if forces:
        forces = require_forces(forces)
        _check_second_derivatives(integrator, forces)
        scene = compile_forces(model, forces)
        options, parameters = {**options, "forces": scene.core}, scene.parameters
    time = _START if t is _NOW else as_array("t", t)
    try:
        return _core.step_derivatives(
            model, q, v, u, time, integrator._numbers, parameters, *before, options, None, threads
        )
    except RuntimeError as error:
        if str(error) != "the step could not be taken":
            raise
    require_finite(q=q, v=v, u=u, t=t)  # of which one that is not lets no step succeed
    raise ConvergenceError(
        f"a step of {integrator!r} could not be taken: its equations have no solution near the state, or the mass "
        "matrix is singular and no spring or damper determines the motion that moves no mass; try a smaller h"
    )


def _variational_step(
    model: Model,
    integrator: Variational,
    q: ArrayLike,
    v: ArrayLike,
    u: ArrayLike | None,
    forces: Sequence[Force],
    t: float,
    threads: int,
) -> StepDerivatives:
    from torsor.simulation.variational import step_options, taking_step

    options, parameters = step_options(model, integrator, forces)
    time = as_array("t", t)
    with taking_step(integrator, q=q, v=v, u=u, t=t):
        return StepDerivatives(
            *_core.variational_step_derivatives(model, q, v, u, time, parameters, options, None, threads)
        )
