"""Losses of trajectories with their derivatives, for `adjoint`: what the usual objective is a sum of.

Each function takes a `Trajectory` and gives a `Loss`, which can be added to others and multiplied by numbers. In a
batch every trajectory has a loss of its own. `rows` are those that count: an index, a slice or a list; the last row by
default.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from torsor import _core
from torsor._check import as_array
from torsor.derivatives import inverse_dynamics_vjp
from torsor.dynamics import gravity_forces, kinetic_energy, mass_matrix, potential_energy
from torsor.kinematics import point_jacobian, point_positions

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from torsor._scenes import Scenes, Span
    from torsor.simulation import Trajectory

    FloatArray = NDArray[np.float64]
    Rows = int | slice | Sequence[int]
    Terms = tuple[FloatArray, FloatArray, FloatArray]  # value, dq, dv


@dataclass(frozen=True)
class Loss:
    """A number (...) for each trajectory and its derivatives; None where they are zero.

    dq and dv are (..., steps + 1, nv), dq in the tangent space; du is shaped as the controls.
    """

    value: FloatArray
    dq: FloatArray | None = None
    dv: FloatArray | None = None
    du: FloatArray | None = None

    def __add__(self, other: Loss) -> Loss:
        if not isinstance(other, Loss):
            return NotImplemented

        def total(a: FloatArray | None, b: FloatArray | None) -> FloatArray | None:
            return b if a is None else a if b is None else a + b

        return Loss(
            self.value + other.value, total(self.dq, other.dq), total(self.dv, other.dv), total(self.du, other.du)
        )

    def __mul__(self, factor: float) -> Loss:
        parts = (None if x is None else factor * x for x in (self.dq, self.dv, self.du))
        return Loss(factor * self.value, *parts)

    __rmul__ = __mul__


def _chosen(trajectory: Trajectory, rows: Rows) -> NDArray[np.int64]:
    """The numbers of the rows that count."""
    count = len(trajectory.t)
    return np.atleast_1d(np.arange(count)[rows if isinstance(rows, (int, slice)) else np.asarray(rows)])


def _over_rows(
    trajectory: Trajectory,
    rows: Rows,
    f: Callable[[Span, FloatArray, FloatArray, NDArray[np.int64]], Terms],
    scenes: Scenes | None = None,
) -> Loss:
    """The sum of a loss over rows. f(span, q, v, rows) gives value (...), dq and dv (..., nv) at states (..., nq)."""
    n, count, nv = prod(trajectory.batch_shape), len(trajectory.t), trajectory.model.nv
    chosen = _chosen(trajectory, rows)
    q, v = trajectory.q.reshape(n, count, trajectory.model.nq), trajectory.v.reshape(n, count, nv)
    value, dq, dv = np.zeros(n), np.zeros((n, count, nv)), np.zeros((n, count, nv))
    for span in trajectory._spans(scenes):
        part, at = chosen[(span.rows.start <= chosen) & (chosen < span.rows.stop)], span.tracks
        if len(part):
            each, dq[at, part], dv[at, part] = f(span, q[at, part], v[at, part], part)
            value[at] += each.sum(axis=-1)
    shape = trajectory.batch_shape
    return Loss(value.reshape(shape), dq.reshape(*shape, count, nv), dv.reshape(*shape, count, nv))


def point_target(
    trajectory: Trajectory,
    body: str,
    point: ArrayLike,
    target: ArrayLike,
    weight: float = 1.0,
    rows: Rows = -1,
) -> Loss:
    """weight |x - target|^2 / 2, x the world position of a point (3,) of a body: where an end effector should be.

    `target` is (3,), or a row of 3 for each of the rows.
    """
    goal = as_array("target", target)
    if goal.ndim not in (1, 2) or goal.shape[-1] != 3:
        raise ValueError(f"target has shape {goal.shape}, expected (3,), or a row of 3 for each of the rows")
    local = as_array("point", point).reshape(3)
    lookup = {}
    if goal.ndim == 2:
        chosen = _chosen(trajectory, rows)
        if len(chosen) != len(goal):
            raise ValueError(f"target has {len(goal)} rows, expected {len(chosen)}, as many as rows of the trajectory")
        lookup = {int(r): k for k, r in enumerate(chosen)}

    def f(span: Span, q: FloatArray, v: FloatArray, at: NDArray[np.int64]) -> Terms:
        wanted = goal[[lookup[int(r)] for r in at]] if lookup else goal
        off = point_positions(span.model, q, body, local) - wanted
        J = point_jacobian(span.model, q, body, local)
        return 0.5 * weight * (off**2).sum(-1), weight * np.einsum("...ij,...i->...j", J, off), np.zeros_like(v)

    return _over_rows(trajectory, rows, f)


def velocity_target(trajectory: Trajectory, target: ArrayLike = 0.0, weight: ArrayLike = 1.0, rows: Rows = -1) -> Loss:
    """sum of weight (v - target)^2 / 2, target and weight each a number or (nv,): to come to rest, by default."""
    goal, factor = as_array("target", target), as_array("weight", weight)

    def f(span: Span, q: FloatArray, v: FloatArray, at: NDArray[np.int64]) -> Terms:
        off = v - goal
        return (0.5 * factor * off**2).sum(-1), np.zeros_like(v), factor * off

    return _over_rows(trajectory, rows, f)


def energy_loss(
    trajectory: Trajectory, weight: float = 1.0, rows: Rows = -1, parts: Sequence[str] = ("kinetic",)
) -> Loss:
    """weight times energies: any of "kinetic", "potential" (of gravity) and "forces" (of those that have one)."""
    unknown = [p for p in parts if p not in ("kinetic", "potential", "forces")]
    if isinstance(parts, str) or unknown:
        raise ValueError(f"parts are {parts!r}, expected a list of 'kinetic', 'potential' and 'forces'")
    springs = [k for k, force in enumerate(trajectory.forces) if force.has_energy and "forces" in parts]

    def f(span: Span, q: FloatArray, v: FloatArray, at: NDArray[np.int64]) -> Terms:
        model, value, dq, dv = span.model, np.zeros(q.shape[:-1]), np.zeros_like(v), np.zeros_like(v)
        if "kinetic" in parts:
            # v . M(q) v / 2 is v . inverse_dynamics(q, 0, v) / 2 without gravity.
            still = model.with_gravity((0.0, 0.0, 0.0))
            value += kinetic_energy(model, q, v)
            dq += 0.5 * inverse_dynamics_vjp(still, q, np.zeros_like(v), v, v).q
            dv += np.einsum("...ij,...j->...i", mass_matrix(model, q), v)
        if "potential" in parts:
            value += potential_energy(model, q)
            dq += gravity_forces(model, q)
        if springs:
            given = (model, q, np.zeros_like(v), trajectory.t[at], span.parameters, span.options, None, 1)
            value += _core.force_energies(*given).sum(-1)
            dq -= _core.generalized_forces(*given)
        return weight * value, weight * dq, weight * dv

    return _over_rows(trajectory, rows, f, trajectory._scenes.select(springs))


def control_effort(trajectory: Trajectory, weight: ArrayLike = 1.0) -> Loss:
    """The integral over time of sum of weight u^2 / 2, weight a number or (nv,)."""
    u, h = trajectory.controls, trajectory.integrator.h
    if u is None:
        raise ValueError("the trajectory has no controls; simulate with controls= to weigh them")
    axes = tuple(range(len(trajectory.batch_shape), u.ndim))
    factor = h * as_array("weight", weight) / (2 if len(axes) == 3 else 1)
    return Loss(np.asarray((0.5 * factor * u**2).sum(axis=axes)), du=factor * u)
