"""The compiled core: which of its levels this CPU runs, what that is compiled for, and the memory that it keeps.

A build from source has one core, for the CPU of the machine. A release has one for each of several levels, in
torsor/_levels; importing this module chooses one of them, before the core is loaded. It raises ImportError on a CPU
that cannot run any: the first instruction that the CPU lacks would end the interpreter.
"""

from __future__ import annotations

import os

import torsor
from torsor import _cpu

OPTIONAL = ("scipy", "matplotlib", "tqdm", "trimesh", "viser", "imageio", "mujoco", "pin", "coal", "robot_descriptions")


def choose_level(wanted: str | None) -> str:
    """The level of the core that is `wanted`, or the highest that this CPU can run."""
    lacking = {level: [name for name in sets if not _cpu.supports(name)] for level, sets in _cpu.levels.items()}
    usable = [level for level, lacks in lacking.items() if not lacks]
    if not usable:
        lacks = lacking[next(iter(lacking))]
        raise ImportError(
            f"this build of torsor is for CPUs with {', '.join(lacks)}, which this CPU lacks; build it on this "
            "machine: pip install --force-reinstall --no-cache-dir --no-binary torsor torsor"
        )
    if not wanted:
        return usable[-1]
    if wanted not in lacking:
        raise ImportError(
            f"TORSOR_ISA is {wanted!r}, but this build of torsor has the levels {', '.join(lacking)}; set it to one of "
            f"these, or unset it: {usable[-1]} is chosen then"
        )
    if lacking[wanted]:
        raise ImportError(
            f"TORSOR_ISA is {wanted!r}, which is for CPUs with {', '.join(lacking[wanted])}, which this CPU lacks; it "
            f"runs {', '.join(usable)}; set it to one of these, or unset it"
        )
    return wanted


def show_config() -> None:
    """Prints what reports of problems should contain: versions, CPU, and what the core is compiled for.

    - The versions of torsor, Python and NumPy, and of the optional packages that are installed.
    - The level of the core in use, the others that this installation has, and the features of the CPU. The environment
      variable ``TORSOR_ISA`` chooses another level; it is read when torsor is imported.
    - The compiler with its flags, the number of states that are computed at a time, and the number of cores, which is
      the largest number of threads that functions use.

    Examples
    --------
    >>> ts.show_config()
    torsor ...
    """
    import platform
    from importlib import metadata

    import numpy

    from torsor import _core

    versions = []
    for name in OPTIONAL:
        try:
            versions.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
    features = [name for name in _cpu.known if _cpu.supports(name)]
    print(f"torsor {torsor.__version__}, Python {platform.python_version()}, NumPy {numpy.__version__}")
    print(f"system: {platform.platform()}")
    print(f"CPU: {' '.join((platform.machine(), *features))}")
    print(f"level: {level} of {', '.join(_cpu.levels)}")
    print(f"instruction sets: {' '.join((platform.machine(), *_cpu.levels[level]))}")
    print(f"compiler: {_core.compiler}")
    print(f"flags: {_cpu.flags[level]}")
    print(f"lanes: {_core.lanes} states at a time")
    print(f"cores: {_core.cores}")
    print(f"optional packages: {', '.join(versions) or 'none'}")


def release_memory() -> int:
    """Frees the memory of earlier results that is kept for later ones.

    Results up to 64 kB: the last two of each function are kept, and used again when nobody refers to them.
    Consequences are that their `resize` is refused, and that a weak reference to one may live on.

    Arrays above 64 kB that functions return without `out` lie in blocks of memory. When an array and all its views
    are gone, its block is kept for the next result of that size, because fresh memory is slow: at most 256 MB, the
    oldest blocks are freed first, and all are when memory runs out. Such arrays are ordinary ones; only their `base`
    is the block that they lie in, so that `resize` is refused, as for views.

    Returns
    -------
    bytes : int
        The number of bytes that were freed.

    Examples
    --------
    >>> kept = ts.release_memory()  # bytes that were given back
    """
    from torsor import _core

    return _core.release_memory()


level = choose_level(os.environ.get("TORSOR_ISA"))
if len(_cpu.levels) > 1:
    torsor.__path__.append(os.path.join(torsor.__path__[0], "_levels", level))
