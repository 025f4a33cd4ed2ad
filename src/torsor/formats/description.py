"""Robots by name, of the `robot_descriptions` package."""

from __future__ import annotations

import pkgutil
from importlib import import_module
from typing import TYPE_CHECKING, Any

from torsor._check import listed
from torsor._errors import FormatError
from torsor.formats.mjcf import load_mjcf
from torsor.formats.urdf import load_urdf

if TYPE_CHECKING:
    from torsor.model import Model

_URDF, _MJCF = "_description", "_mj_description"  # how the modules of that package end


def load_description(name: str, **options: Any) -> Model:
    """Loads a robot of the `robot_descriptions` package, which has some two hundred of them.

    Needs that package: `pip install robot_descriptions`. It fetches the files of a robot from the network when this is
    first asked for, and keeps them.

    Parameters
    ----------
    name : str
        As `'anymal_c'`, the URDF file if there is one and else the MJCF file; `'anymal_c_description'` is the URDF file
        and `'anymal_c_mj_description'` the MJCF file.
    **options
        Those of `load_urdf` or of `load_mjcf`.

    Returns
    -------
    Model

    Raises
    ------
    ImportError
        If the package is not installed.
    KeyError
        If it has no such robot.
    FormatError
        If the files cannot be fetched, or cannot be read.

    Examples
    --------
    >>> model = ts.load_description("anymal_c", root=ts.Free())  # doctest: +SKIP
    """
    path, urdf = find_description(name)
    return load_urdf(path, **options) if urdf else load_mjcf(path, **options)


def find_description(name: str) -> tuple[str, bool]:
    """The path of the file of a robot, and whether it is URDF."""
    try:
        package = import_module("robot_descriptions")
    except ImportError as error:
        raise ImportError(
            "robots by name need the package 'robot_descriptions': pip install robot_descriptions"
        ) from error
    modules = [found.name for found in pkgutil.iter_modules(package.__path__)]
    robots = [module for module in modules if module.endswith(_URDF) and not module.startswith("_")]
    chosen = next((module for module in (name, name + _URDF, name + _MJCF) if module in robots), None)
    if chosen is None:
        short = sorted({module.removesuffix(_MJCF).removesuffix(_URDF) for module in robots})
        raise KeyError(f"no robot description named {name!r}; there are {listed(short, name)}")
    try:
        module = import_module(f"robot_descriptions.{chosen}")
        for attribute, urdf in (("URDF_PATH", True), ("MJCF_PATH", False)):
            if path := getattr(module, attribute, None):
                return str(path), urdf
    except Exception as error:  # of git, of the network, of xacro: whatever that package meets
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        raise FormatError(f"the files of {chosen!r} cannot be fetched: {reason}") from error
    raise FormatError(f"{chosen!r} of robot_descriptions has neither a URDF nor an MJCF file")
