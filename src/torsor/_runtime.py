"""What this build of torsor is compiled for, what it runs on, and the memory that it keeps.

Importing this module raises ImportError on a CPU that lacks instructions that the core is compiled for, before the
core is loaded: its first such instruction would end the interpreter.
"""

from __future__ import annotations

from torsor import _cpu


def require_cpu() -> None:
    """Raises ImportError if this CPU cannot run the core."""
    missing = [name for name in _cpu.compiled_for if not _cpu.supports(name)]
    if missing:
        raise ImportError(
            f"this build of torsor is for CPUs with {', '.join(missing)}, which this CPU lacks; build it on this "
            "machine: pip install --force-reinstall --no-cache-dir --no-binary torsor torsor"
        )


def show_config() -> None:
    """Prints the version, the compiler, the instruction sets and lanes that the core uses, and the number of cores.

    Please add this to reports of problems.

    Examples
    --------
    >>> ts.show_config()
    torsor ...
    """
    import platform

    import numpy

    import torsor
    from torsor import _core

    print(f"torsor {torsor.__version__}, Python {platform.python_version()}, NumPy {numpy.__version__}")
    print(f"system: {platform.platform()}")
    print(f"compiler: {_core.compiler}")
    print(f"instruction sets: {' '.join((platform.machine(), *_cpu.compiled_for))}")
    print(f"lanes: {_core.lanes} states at a time")
    print(f"cores: {_core.cores}")


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


require_cpu()
