"""A problem of a model or of its file, and lists of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from torsor._typing import Severity

SEVERITIES = ("error", "warning", "note")
_PLACE = re.compile(r"^.*?, line (?P<line>\d+): (?P<rest>.*)$", re.DOTALL)


@final
@dataclass(frozen=True)
class Problem:
    """A problem of a model or of its file, as `find_problems` lists them.

    Parameters
    ----------
    severity : {'error', 'warning', 'note'}
        An error keeps the file from being loaded, or the model from being simulated. A warning is for what is likely
        to be a mistake, or is left out. A note is for what may be intended.
    message : str
        What is wrong, and where.
    line : int, optional
        Of the file, where it is known.
    """

    severity: Severity
    message: str
    line: int | None = None

    def __str__(self) -> str:
        place = "" if self.line is None else f"line {self.line}: "
        return f"{self.severity}: {place}{self.message}"


class Problems:
    """Problems that are being collected."""

    def __init__(self) -> None:
        self.found: list[Problem] = []

    def add(self, severity: Severity, message: str, line: int | None = None) -> None:
        """Adds a problem, unless it is known."""
        problem = Problem(severity, " ".join(message.split()), line)
        if problem not in self.found:
            self.found.append(problem)

    def add_error(self, error: Exception) -> None:
        """Adds an exception of a loader, with the line that it names."""
        text = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
        place = _PLACE.match(text)
        self.add("error", place["rest"] if place else text, int(place["line"]) if place else None)

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """Adds an error of what is done within, in place of raising it."""
        try:
            yield
        except (ValueError, KeyError, TypeError) as error:
            self.add_error(error)

    @property
    def errors(self) -> int:
        """Number of errors."""
        return sum(problem.severity == "error" for problem in self.found)

    def sorted(self) -> tuple[Problem, ...]:
        """Errors first; of the same severity in the order of lines, those without a line last."""

        def key(problem: Problem) -> tuple[int, float]:
            line = float("inf") if problem.line is None else problem.line
            return SEVERITIES.index(problem.severity), line

        return tuple(sorted(self.found, key=key))
