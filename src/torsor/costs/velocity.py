"""A target for velocities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy as np

from torsor.costs.cost import (
    Cost,
    CostValue,
    Selection,
    States,
    are_new,
    diagonal,
    joint_names,
    row_count,
    target_at,
    target_rows,
    weights,
    when,
)
from torsor.model import Model

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from torsor._typing import At, AtLike, FloatArray


@final
@dataclass(frozen=True, init=False)
class VelocityTarget(Cost):
    """The sum of weight (v - target)^2 / 2 over velocities of joints, by default with the target 0.

    Parameters
    ----------
    target : float, (k,) or (n, k) array_like
        One number for all k velocities of the joints, or one for each; or a row for each selected row of the
        trajectory, or for each of `times`.
    weight : float or (k,) array_like
        One number for all velocities, or one for each; at least 0.
    joints : str or sequence of str, optional
        Names of the joints or of their bodies, or of new coordinates of couplings; all joints of the model by default.
    at : int, slice, list of int or "time"
        Rows of a trajectory over which the cost is summed, by default the last one; or "time" for its integral.
    times : (n,) array_like, optional
        Times of the rows of the target, interpolated linearly.
    """

    target: float | tuple[Any, ...]
    weight: float | tuple[float, ...]
    joints: str | tuple[str, ...] | None
    at: At = field(hash=False)
    times: tuple[float, ...] | None

    inputs: ClassVar[str] = "v"

    def __init__(
        self,
        target: ArrayLike = 0.0,
        weight: ArrayLike = 1.0,
        joints: str | Sequence[str] | None = None,
        at: AtLike = -1,
        times: ArrayLike | None = None,
    ) -> None:
        kept, when_of_rows = target_rows(target, times, number=True)
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
        return (
            Selection(model, self.joints).indices if self._numbers[0].any() else ()
        )  # zero velocity is the same in all coordinates

    def _evaluate(self, x: States, hessians: bool) -> CostValue:
        target, weight = self._numbers
        chosen = Selection(x.model, self.joints)
        chosen.require("target", target, chosen.nv, "velocities")
        factor = chosen.weights(x.model, weight)
        off = x.v.copy()
        off[..., chosen.v] -= target_at(target, self.times, x)
        dv = factor * off
        value = 0.5 * (dv * off).sum(-1)
        return CostValue(value, dv=dv, dvdv=diagonal(x, factor) if hessians else None)
