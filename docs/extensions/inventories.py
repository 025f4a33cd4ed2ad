"""Inventories for intersphinx of the few names of other projects that the manual refers to.

An inventory that is fetched makes a build depend on the network and on other projects' sites; these are written at the
start of the build, from the tables below.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path

PYTHON, NUMPY = "https://docs.python.org/3/", "https://numpy.org/doc/stable/"
SCIPY, MATPLOTLIB = "https://docs.scipy.org/doc/scipy/", "https://matplotlib.org/stable/"

BUILTIN_TYPES = "bool int float complex str bytes list tuple dict set range object type slice property"
FUNCTIONS = "print len"
EXCEPTIONS = """
    Exception ValueError TypeError KeyError ArithmeticError ImportError KeyboardInterrupt NotImplementedError
    UserWarning RuntimeError
"""
STANDARD_LIBRARY = {  # the page of each name
    "pathlib.Path": "library/pathlib.html",
    "os.PathLike": "library/os.html",
    "collections.abc.Callable": "library/collections.abc.html",
    "collections.abc.Iterable": "library/collections.abc.html",
    "collections.abc.Iterator": "library/collections.abc.html",
    "collections.abc.Mapping": "library/collections.abc.html",
    "collections.abc.Sequence": "library/collections.abc.html",
    "typing.Any": "library/typing.html",
    "typing.Literal": "library/typing.html",
    "typing.NamedTuple": "library/typing.html",
}


def python() -> Iterator[str]:
    """Names of the standard library."""
    for name in BUILTIN_TYPES.split():
        page = "stdtypes" if name in ("int", "str", "bytes", "list", "tuple", "dict", "set", "range") else "functions"
        yield f"{name} py:class 1 library/{page}.html#{name} -"
    for name in FUNCTIONS.split():
        yield f"{name} py:function 1 library/functions.html#{name} -"
    for name in EXCEPTIONS.split():
        yield f"{name} py:exception 1 library/exceptions.html#{name} -"
        yield f"{name} py:class 1 library/exceptions.html#{name} -"
    yield "None py:data 1 library/constants.html#None -"
    for name, page in STANDARD_LIBRARY.items():
        kind = "data" if name in ("typing.Any", "typing.Literal") else "class"
        yield f"{name} py:{kind} 1 {page}#{name} -"
        yield f"{name} py:class 1 {page}#{name} -"


def numpy() -> Iterator[str]:
    """Names of NumPy."""
    yield "numpy.ndarray py:class 1 reference/generated/numpy.ndarray.html#numpy.ndarray -"
    yield "numpy.random.Generator py:class 1 reference/random/generator.html#numpy.random.Generator -"
    for name in ("ArrayLike", "NDArray"):
        for kind in ("data", "class"):
            yield f"numpy.typing.{name} py:{kind} 1 reference/typing.html#numpy.typing.{name} -"


def scipy() -> Iterator[str]:
    """Names of SciPy."""
    for name in ("optimize.minimize", "optimize.least_squares", "integrate.solve_ivp", "linalg.solve_discrete_are"):
        yield f"scipy.{name} py:function 1 reference/generated/scipy.{name}.html#scipy.{name} -"


def matplotlib() -> Iterator[str]:
    """Names of Matplotlib."""
    yield "matplotlib.figure.Figure py:class 1 api/figure_api.html#matplotlib.figure.Figure -"
    yield "matplotlib.axes.Axes py:class 1 api/_as_gen/matplotlib.axes.Axes.html#matplotlib.axes.Axes -"


def mapping(folder: Path) -> dict[str, tuple[str, str]]:
    """Write the inventories, and return what intersphinx_mapping takes."""
    folder.mkdir(parents=True, exist_ok=True)
    made = {}
    for entries, site in ((python, PYTHON), (numpy, NUMPY), (scipy, SCIPY), (matplotlib, MATPLOTLIB)):
        name, path = entries.__name__, folder / f"{entries.__name__}.inv"
        head = f"# Sphinx inventory version 2\n# Project: {name}\n# Version: \n"
        head += "# The remainder of this file is compressed using zlib.\n"
        path.write_bytes(head.encode() + zlib.compress("".join(f"{entry}\n" for entry in entries()).encode()))
        made[name] = site, str(path)
    return made
