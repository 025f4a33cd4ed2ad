"""Mesh files of a URDF file: where they are on this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urlsplit


class MeshFiles:
    """Finds mesh files by the names that a robot's file has for them.

    Parameters
    ----------
    source : path or None
        The robot's file, if there is one.
    packages : mapping from str to path
        Directories of packages, by their names.
    """

    def __init__(self, source: Path | None, packages: Mapping[str, str | os.PathLike[str]] | None) -> None:
        self._given: dict[str, Path] = {}
        if packages is not None and not isinstance(packages, Mapping):
            raise TypeError(f"packages must be a dict of directories by names of packages, got {packages!r}")
        for name, directory in (packages or {}).items():
            found = Path(directory)
            if not found.is_dir():
                raise FileNotFoundError(f"packages has {str(found)!r} for {name!r}, which is no directory")
            self._given[name] = found
        self._above = [] if source is None else [*source.absolute().parents]
        self._roots = cache(self._search)

    def find(self, name: str) -> str | None:
        """The path of a mesh file, or None if there is none.

        Names of the form package://name/rest, and model://name/rest, are found in the directory that was given for the
        package; else in one of its name in or above the directory of the robot's file; else in those of
        ROS_PACKAGE_PATH and AMENT_PREFIX_PATH. Others are paths, seen from the directory of the robot's file.
        """
        if "\0" in name:
            return None
        parts = urlsplit(name) if "://" in name else None
        if parts is None or parts.scheme == "file":
            path = Path(name) if parts is None else Path(unquote(parts.path))
            tried = [path if path.is_absolute() or not self._above else self._above[0] / path]
        else:
            rest = parts.path.lstrip("/")
            tried = [root / rest for root in self._roots(parts.netloc)]
        return next((str(path) for path in tried if os.path.isfile(path)), None)

    def _search(self, package: str) -> list[Path]:
        """Directories that may be that of a package, the likely ones first."""
        if package in self._given:
            return [self._given[package]]
        return [path for path in self._candidates(package) if path.is_dir()]

    def _candidates(self, package: str) -> Iterator[Path]:
        for directory in self._above:
            if directory.name == package:
                yield directory
            yield directory / package
        for entry in _entries("ROS_PACKAGE_PATH"):
            if entry.name == package:
                yield entry
            yield entry / package
        for entry in _entries("AMENT_PREFIX_PATH"):
            yield entry / "share" / package


def _entries(variable: str) -> list[Path]:
    return [Path(entry) for entry in os.environ.get(variable, "").split(os.pathsep) if entry]
