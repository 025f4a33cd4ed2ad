"""The exceptions that torsor raises beside the built-in ones."""

from __future__ import annotations

from typing import Any


class TorsorError(Exception):
    """Base of every exception that is torsor's own."""


class ModelError(TorsorError, ValueError):
    """A model, or a part of one, that makes no sense: names, tree, inertias."""


class FormatError(ModelError):
    """A model file that cannot be read as what it claims to be."""


class SingularMassMatrixError(TorsorError, ValueError):
    """The mass matrix cannot be inverted: some motion carries no inertia."""


class ConvergenceError(TorsorError, ArithmeticError):
    """A step of a simulation that could not be taken.

    `trajectory` is all that was simulated before it; `step` counts from 0, `t` is the time at which the step begins;
    `index` is the trajectory of a batch (flat), or None.
    """

    def __init__(self, message: str, trajectory: Any = None, step: int = 0, t: float = 0.0, index: int | None = None):
        super().__init__(message)
        self.trajectory, self.step, self.t, self.index = trajectory, step, t, index
