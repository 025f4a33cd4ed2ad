"""All problems of a file of `Model.save`: every record is read by itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from torsor._errors import FormatError
from torsor.formats._problem import Problems
from torsor.model import WORLD, Body, Model
from torsor.saving import from_record, record_of

_PARTS = ("constraints", "world_collisions", "frames", "couplings", "tendons", "actuators")


def examine_saved(path: Path, problems: Problems) -> Model | None:
    """Adds the problems of a file; returns the model, if it can be made. Raises FormatError if the file is no model."""
    record = record_of(path)
    if not isinstance(record, dict) or record.get("type") != "Model" or not isinstance(record.get("bodies"), list):
        raise FormatError(f"{str(path)!r} has no model")
    names = [str(body.get("name")) for body in record["bodies"] if isinstance(body, dict)]
    for name in sorted({name for name in names if names.count(name) > 1}):
        problems.add("error", f"{names.count(name)} bodies are named {name!r}; names must differ")
    for body in _read(record["bodies"], "body", problems):
        if not isinstance(body, Body):
            problems.add("error", f"a {type(body).__name__} is among the bodies")
            continue
        if (fault := body.inertia._fault()) is not None:
            problems.add("warning", f"body {body.name!r}: inertia is not physical: {fault}")
        if body.parent not in (WORLD, *names):
            problems.add("error", f"body {body.name!r}: its parent {body.parent!r} is not in the file")
        with problems.collecting():
            _ = body._sound
    for part in _PARTS:
        if isinstance(record.get(part), list):
            for _ in _read(record[part], part.removesuffix("s"), problems):
                pass
    if problems.errors:
        return None
    with problems.collecting():
        model: Model = replace(from_record(record))  # which checks all of it together
        return model
    return None


def _read(records: list[Any], what: str, problems: Problems) -> Iterator[Any]:
    """The records that can be read; the others are problems."""
    for k, record in enumerate(records):
        try:
            yield from_record(record)
        except FormatError as error:
            name = record.get("name") if isinstance(record, dict) else None
            problems.add("error", f"{what} {k if name is None else repr(name)}: {error}")
