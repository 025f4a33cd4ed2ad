"""torsor's exception types."""

from __future__ import annotations

from typing import Any


class TorsorError(Exception):
    """Base class of torsor's exceptions."""


class ModelError(TorsorError, ValueError):
    """A model, or a part of one, that is invalid: names, tree, inertias."""


class FormatError(ModelError):
    """A model file that cannot be read in its format."""


class SingularMassMatrixError(TorsorError, ValueError):
    """The mass matrix cannot be inverted: some motion moves no mass."""


class ConvergenceError(TorsorError, ArithmeticError):
    """A step of a simulation that could not be taken.

    Attributes
    ----------
    trajectory : Trajectory or None
        The trajectory up to the failed step, from `simulate`.
    step : int
        Number of the failed step, from 0.
    t : float
        Time at the beginning of the step.
    index : int or None
        Flat index of the failed trajectory or state in a batch.
    """

    def __init__(self, message: str, trajectory: Any = None, step: int = 0, t: float = 0.0, index: int | None = None):
        super().__init__(message)
        self.trajectory, self.step, self.t, self.index = trajectory, step, t, index


class SimulationInterrupted(KeyboardInterrupt):
    """A simulation that Ctrl-C has ended. As any `KeyboardInterrupt` it is not an `Exception`, nor a `TorsorError`.

    Attributes
    ----------
    trajectory : Trajectory or None
        All rows; those that were not reached are NaN.
    """

    def __init__(self, message: str, trajectory: Any = None):
        super().__init__(message)
        self.trajectory = trajectory
