"""Models that commands are given: files of all kinds, and names."""

from __future__ import annotations

import argparse
import inspect
import re
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from torsor._cli.output import CommandError, note, one_line, plural

if TYPE_CHECKING:
    from torsor.model import Model

Kind = Literal["URDF", "MJCF", "torsor", "motion", "example"]

_SUFFIXES: dict[str, Kind] = {
    ".urdf": "URDF", ".xml": "MJCF", ".mjcf": "MJCF", ".json": "torsor", ".torsor": "torsor", ".npz": "motion",
}  # fmt: skip


@dataclass(frozen=True)
class Source:
    """A file or a name that stands for a model.

    `path` is the file, None for an example; `label` is how messages call it.
    """

    kind: Kind
    label: str
    path: Path | None = None


@dataclass(frozen=True)
class Loaded:
    """A model, where it is from, and what was left out of it or is doubtful."""

    model: Model
    source: Source
    left_out: tuple[str, ...]


def add_model_argument(parser: argparse.ArgumentParser, what: str = "model", **kwargs: Any) -> None:
    """The argument for a model, and the options of loading it."""
    parser.add_argument(
        "file", metavar="FILE", help=f"{what}: a file, example:NAME or robot:NAME ('torsor --help' says more)", **kwargs
    )
    parser.add_argument(
        "--root",
        choices=("fixed", "free"),
        default="fixed",
        help="joint between the world and the root link of a URDF file (default: %(default)s)",
    )


def find(name: str) -> Source:
    """What a name or a path is."""
    if name.startswith("example:"):
        return Source("example", name)
    if name.startswith("robot:"):
        from torsor.formats.description import find_description

        found, urdf = find_description(name.removeprefix("robot:"))
        return Source("URDF" if urdf else "MJCF", name, Path(found))
    from torsor.formats._source import kind_of

    return Source(kind_of(Path(name)), name, Path(name))


def kind_by_suffix(path: Path) -> Kind | None:
    """The kind of file that a name's ending stands for."""
    return _SUFFIXES.get(path.suffix.lower())


def load(name: str, root: str = "fixed", *, lenient: bool) -> Loaded:
    """Loads a model.

    Parameters
    ----------
    name : str
        A path, or the name of an example or a robot.
    root : str
        'fixed' or 'free', for URDF files.
    lenient : bool
        Whether to load files with unphysical inertias, and files with parts that a model cannot hold, without these.
    """
    source = find(name)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = _load(source, root, lenient)
    left_out = [part for warning in caught for part in _parts(str(warning.message), source)]
    return Loaded(model, source, tuple(left_out))


def _parts(message: str, source: Source) -> list[str]:
    """The parts of a warning of a loader, each in a line."""
    text = message.removeprefix(f"{str(source.path)!r}: ").strip()
    return [one_line(part) for part in re.split(r"(?:^|\n)- ", text) if part.strip()]


def _load(source: Source, root: str, lenient: bool) -> Model:
    from torsor.joints import Free
    from torsor.model import Model

    if source.kind == "URDF":
        from torsor.formats.urdf import load_urdf

        assert source.path is not None
        joint = Free() if root == "free" else None
        return load_urdf(source.path, root=joint, inertia="accept" if lenient else "refuse")
    if root == "free":
        raise CommandError(
            f"--root free is for URDF files; {source.label} is {_A[source.kind]}, which has its own root"
        )
    if source.kind == "MJCF":
        from torsor.formats.mjcf import load_mjcf

        assert source.path is not None
        return load_mjcf(
            source.path,
            unsupported="warn" if lenient else "refuse",
            unphysical="accept" if lenient else "refuse",
        )
    if source.kind == "torsor":
        assert source.path is not None
        return Model.load(source.path)
    if source.kind == "motion":
        raise CommandError(f"{source.label} is a motion; this command takes a model")
    return example(source.label.removeprefix("example:"))


_A = {
    "URDF": "a URDF file", "MJCF": "an MJCF file", "torsor": "a file of Model.save", "motion": "a motion",
    "example": "an example",
}  # fmt: skip


def example(name: str) -> Model:
    """A model of `torsor.models`: its name, with numbers after colons where it takes them, as 'chain:10'."""
    from torsor import models
    from torsor._check import listed

    name, *given = name.split(":")
    if name not in models.__all__:
        raise CommandError(f"no example named {name!r}; examples are {listed(models.__all__, name)}")
    make = getattr(models, name)
    wanted = [*inspect.signature(make).parameters]
    try:
        numbers = [int(x) for x in given]
    except ValueError:
        raise CommandError(f"example:{name} takes integers, got {':'.join(given)!r}") from None
    if len(numbers) != len(wanted):
        form = ":".join(("example", name, *(word.upper() for word in wanted)))
        raise CommandError(f"example:{name} takes {plural(len(wanted), 'number')}, got {len(numbers)}: write {form}")
    model: Model = make(*numbers)
    return model


def tell_left_out(loaded: Loaded) -> None:
    """Notes on stderr what a model has not of its file."""
    for part in loaded.left_out:
        note(f"{loaded.source.label}: {part}")
