"""torsor's exception types."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any


class TorsorError(Exception):
    """Base class of torsor's exceptions."""


class ModelError(TorsorError, ValueError):
    """A model, or a part of one, that is invalid: names, tree, inertias."""


class FormatError(ModelError):
    """A model file that cannot be read in its format."""


class FormatWarning(UserWarning):
    """What a reader of files left out, or found to be doubtful: one warning for a file, with all of it."""


class SingularMassMatrixError(TorsorError, ValueError):
    """The mass matrix cannot be inverted: some motion moves no mass."""


class ConstraintError(TorsorError, ValueError):
    """Constraints that are invalid, contradict each other, or are not satisfied by a state.

    Attributes
    ----------
    rows : tuple of str
        Names of the rows in question, where there are any.
    """

    def __init__(self, message: str, rows: Iterable[str] = ()):
        super().__init__(message)
        self.rows = tuple(rows)


class CouplingError(TorsorError, NotImplementedError):
    """A function that does not take models with couplings, or not in this way."""


class ImpactWarning(UserWarning):
    """A gradient through an impact that the steps neither resolve nor take as rigid."""


class ConvergenceError(TorsorError, ArithmeticError):
    """A step of a simulation that could not be taken.

    Attributes
    ----------
    trajectory : Trajectory or None
        From `simulate`: that of a single motion ends before the failed step; that of a batch, of any size, has all
        rows, which are NaN from a failure on. Its `failed` has all failures, and its `finished` which have none.
    step : int
        Number of the failed step, from 0: in a batch the first one that failed.
    t : float
        Time at the beginning of the step.
    index : int or None
        Flat index of the failed trajectory or state in a batch: of several that failed in this step the first.
    """

    def __init__(self, message: str, trajectory: Any = None, step: int = 0, t: float = 0.0, index: int | None = None):
        super().__init__(message)
        self.trajectory, self.step, self.t, self.index = trajectory, step, t, index


class SimulationInterrupted(KeyboardInterrupt):
    """A simulation that Ctrl-C has ended. As any `KeyboardInterrupt` it is not an `Exception`, nor a `TorsorError`.

    Attributes
    ----------
    trajectory : Trajectory or None
        All rows; those that were not reached are NaN. Made when it is first asked for.
    """

    def __init__(self, message: str, trajectory: Any = None, *, make: Callable[[], Any] | None = None):
        super().__init__(message)
        self._trajectory, self._make = trajectory, make

    @property
    def trajectory(self) -> Any:
        """All rows; those that were not reached are NaN."""
        if self._make is not None:
            self._trajectory = self._make()
            self._make = None  # after an interrupt here it can be made again
        return self._trajectory

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.trajectory)
