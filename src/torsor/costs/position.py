"""A target for the coordinates of joints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy as np

from torsor._core import complex_step
from torsor.costs.cost import (
    Cost,
    CostValue,
    Selection,
    States,
    are_new,
    joint_names,
    row_count,
    symmetric,
    target_at,
    target_rows,
    weights,
    when,
)
from torsor.model import Model
from torsor.spatial import dexp3_inv, dexp6_inv

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from torsor._typing import Array, At, AtLike, FloatArray


@final
@dataclass(frozen=True, init=False)
class PositionTarget(Cost):
    """The sum of weight x^2 / 2, with x = model.minus(q, target) the displacements of joints from their targets.

    For a `Spherical` joint x is a rotation vector, for a `Free` joint a twist, in the frame of the target: the shorter
    way, so that the gradient is discontinuous at half a turn from the target. For all other coordinates x is their
    difference.

    Parameters
    ----------
    target : (k,) or (n, k) array_like
        The k coordinates of the joints; or a row for each selected row of the trajectory, or for each of `times`.
    weight : float or (k',) array_like
        One number for all velocities of the joints, or one for each; at least 0.
    joints : str or sequence of str, optional
        Names of the joints or of their bodies, or of new coordinates of couplings; all joints of the model by default.
    at : int, slice, list of int or "time"
        Rows of a trajectory over which the cost is summed, by default the last one; or "time" for its integral.
    times : (n,) array_like, optional
        Times of the rows of the target, interpolated by `model.plus` and `model.minus`.
    """

    target: tuple[Any, ...]
    weight: float | tuple[float, ...]
    joints: str | tuple[str, ...] | None
    at: At = field(hash=False)
    times: tuple[float, ...] | None

    inputs: ClassVar[str] = "q"

    def __init__(
        self,
        target: ArrayLike,
        weight: ArrayLike = 1.0,
        joints: str | Sequence[str] | None = None,
        at: AtLike = -1,
        times: ArrayLike | None = None,
    ) -> None:
        kept, when_of_rows = target_rows(np.atleast_1d(target) if np.ndim(target) == 0 else target, times)
        object.__setattr__(self, "target", kept)
        object.__setattr__(self, "weight", weights(weight))
        object.__setattr__(self, "joints", joint_names(joints))
        object.__setattr__(self, "at", when(at, self.inputs))
        object.__setattr__(self, "times", when_of_rows)

    @cached_property
    def _numbers(self) -> tuple[FloatArray, FloatArray]:
        return np.array(self.target), np.array(self.weight)

    def _rows(self) -> int | None:
        return row_count(self.target, self.times)

    def _is_reduced(self, model: Model) -> bool:
        return are_new(model, self.joints)

    def _coordinates(self, model: Model) -> Sequence[int]:
        return Selection(model, self.joints).indices

    def _evaluate(self, x: States, hessians: bool) -> CostValue:
        chosen = Selection(x.model, self.joints)
        factor = chosen.weights(x.model, self._numbers[1])
        groups = _groups(x.model, chosen)
        off = x.model.minus(x.q, self._goal(x, chosen, groups))
        dq = factor * off
        value = 0.5 * (dq * off).sum(-1)
        for _, at, dexp_inv in groups:
            dq[..., at] = _gradient(off[..., at], factor[at], dexp_inv)
        if not hessians:
            return CostValue(value, dq)
        dqdq = np.zeros((*x.shape, x.model.nv, x.model.nv))
        dqdq[..., range(x.model.nv), range(x.model.nv)] = factor
        for _, at, dexp_inv in groups:
            # d/dq of the gradient, column by column along dx = dexp_inv(x) e_k.
            moved = off[..., at, None] + 1j * complex_step * dexp_inv(off[..., at])
            columns = _gradient(np.swapaxes(moved, -1, -2), factor[at], dexp_inv).imag / complex_step
            dqdq[..., at, at] = symmetric(columns)
        return CostValue(value, dq, dqdq=dqdq)

    def _goal(self, x: States, chosen: Selection, groups: list[tuple[slice, slice, Any]]) -> FloatArray:
        """Coordinates (..., nq) of the target, arbitrary for joints without one."""
        target = self._numbers[0]
        chosen.require("target", target, chosen.nq, "coordinates", number=False)
        rows = np.zeros((*target.shape[:-1], x.model.nq))
        rows[..., chosen.q] = target
        for at, _, _ in groups:
            if (rows[..., at] == 0).all(axis=-1).any():
                joint = next(j.name for j in x.model.joints if j.q_slice.start <= at.start < j.q_slice.stop)
                raise ValueError(f"target has a quaternion of length 0 at joint {joint!r}; no rotation is (0, 0, 0, 1)")
        if self.joints is not None:
            # Joints without a target have weight 0.
            others = np.delete(np.arange(x.model.nq), chosen.q)
            rows[..., others] = x.model.neutral[others]
        plus, minus = x.model.plus, x.model.minus
        return target_at(rows, self.times, x, lambda a, b, fraction: plus(a, fraction * minus(b, a)))


def _gradient(x: Array, factor: FloatArray, dexp_inv: Any) -> Array:
    """The gradient of the sum of factor x^2 / 2 along rotations or twists at the end of x (..., n)."""
    return np.asarray(np.einsum("...ij,...i->...j", dexp_inv(x), factor * x))


def _groups(model: Model, chosen: Selection) -> list[tuple[slice, slice, Any]]:
    """For every quaternion of the joints: its coordinates; its velocities, with those of the position for a free joint;
    the inverse derivative of the exponential map."""
    out: list[tuple[slice, slice, Any]] = []
    for i in chosen.indices:
        joint = model.joints[i]
        if joint.nq == joint.nv:
            continue
        iq, iv = joint.q_slice.start, joint.v_slice.start
        for factor in joint.joint._factors[0]:
            if factor.nq != factor.nv:
                dexp_inv = dexp3_inv if factor.nv == 3 else dexp6_inv
                out.append((slice(iq + factor.nq - 4, iq + factor.nq), slice(iv, iv + factor.nv), dexp_inv))
            iq, iv = iq + factor.nq, iv + factor.nv
    return out
