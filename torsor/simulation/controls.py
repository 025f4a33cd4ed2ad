"""Torques that are given at the joints: arrays, and functions of time sampled at the stages of an integrator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from torsor._check import all_finite, as_array

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from torsor.integrators import Integrator
    from torsor.model import Model
    from torsor.simulation.trajectory import Trajectory

    FloatArray = NDArray[np.float64]
    Control = ArrayLike | Callable[[float], ArrayLike] | None


@dataclass
class Controls:
    """The controls of all steps of a batch of trajectories.

    `values` are (batch, steps, stages, nv), or (1, ...) where they are the same for all; None without controls.
    `stages` is 1 for torques that are constant over a step. `function` is that of time which they were sampled from.
    """

    values: FloatArray | None
    stages: int = 1
    function: Callable[[float], ArrayLike] | None = None

    def torques(self, start: int, steps: int) -> FloatArray | None:
        """Those of some steps, (batch or 1, steps, stages, nv), in C order."""
        return None if self.values is None else np.ascontiguousarray(self.values[:, start : start + steps])

    def rows(self, steps: int, shape: tuple[int, ...]) -> FloatArray | None:
        """Those of the first steps as a trajectory has them: (*shape, steps, nv), or (*shape, steps, stages, nv)."""
        if self.values is None:
            return None
        values = self.values[:, :steps, 0] if self.stages == 1 else self.values[:, :steps]
        if len(values) != prod(shape):
            values = np.broadcast_to(values, (prod(shape), *values.shape[1:]))
        return np.ascontiguousarray(values.reshape((*shape, *values.shape[1:])))


def read_controls(
    model: Model, integrator: Integrator, controls: Control, t: FloatArray
) -> tuple[FloatArray | None, int]:
    """Controls (..., steps, stages, nv) at the times t of the rows, and the number of stages."""
    nv, steps = model.nv, len(t) - 1
    if controls is None:
        return None, 1
    if callable(controls):
        array, stages = _sample(integrator, controls, t, nv), len(integrator._fractions)
        if array is None:
            return None, stages
    else:
        array, stages = as_array("controls", controls), 1
        if array.shape == (nv,):
            array = np.broadcast_to(array, (steps, nv))
        if array.ndim < 2 or array.shape[-2:] != (steps, nv):
            raise ValueError(
                f"controls have shape {array.shape}, expected (..., {steps}, {nv}), a row of nv = {nv} torques for "
                f"each of {steps} steps; or ({nv},), constant; or a function of time"
            )
        array = array[..., None, :]
    if not all_finite(array):
        raise ValueError("controls are not finite")
    return np.array(array, order="C"), stages  # a copy, which the caller's changes do not reach


def _sample(integrator: Integrator, function: Callable[[float], Any], t: FloatArray, size: int) -> FloatArray | None:
    """Values (..., steps, stages, size) of a function of time at the stages of all steps."""
    shifts = [integrator.h * fraction for fraction in integrator._fractions]
    samples = []
    for time in t[:-1]:
        for shift in shifts:
            u = as_array("controls(t)", function(float(time + shift)))
            if u.ndim == 0 or u.shape[-1] != size:
                raise ValueError(f"controls(t) has shape {u.shape}, expected (..., {size}): model.nv is {size}")
            samples.append(u)
    if not samples:
        return None
    array = np.moveaxis(np.stack(np.broadcast_arrays(*samples)), 0, -2)
    return array.reshape(*array.shape[:-2], len(t) - 1, len(shifts), size)


def controls_of(trajectory: Trajectory) -> Controls:
    """Those that a trajectory was simulated with."""
    u, shape = trajectory.controls, trajectory.batch_shape
    if u is None:
        return Controls(None)
    stages = u.shape[-2] if u.ndim - len(shape) == 3 else 1
    return Controls(u.reshape(prod(shape), trajectory.steps, stages, u.shape[-1]), stages)
