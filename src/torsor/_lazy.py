"""Names of a package whose modules are imported when they are first used, so that `import torsor` stays short."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def attach(package: str, names: Mapping[str, str], submodules: str = "") -> tuple[Callable[[str], Any], list[str]]:
    """The `__getattr__` of a package, and the names that it finds.

    Parameters
    ----------
    package : str
        Its `__name__`.
    names : mapping from str to str
        For each module, relative to the package, the names that the package takes from it, separated by spaces.
    submodules : str
        Modules of the package, separated by spaces, that are attributes too.
    """
    module_of = {name: module for module, listed in names.items() for name in listed.split()}
    modules = submodules.split()

    def find(name: str) -> Any:
        if name in module_of:
            value = getattr(import_module(f"{package}.{module_of[name]}"), name)
        elif name in modules:
            value = import_module(f"{package}.{name}")
        else:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        setattr(sys.modules[package], name, value)  # found without this function the next time
        return value

    return find, sorted([*module_of, *modules])
