"""Files that are written whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Where to write a file, which appears at `path` when it is complete; an older one stays until then.

    Links are followed. What is no regular file, such as a pipe, is written to at once.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        yield target
        return
    unfinished = target.with_name(f".{target.stem}.unfinished{target.suffix}")
    try:
        yield unfinished
        os.replace(unfinished, target)
    except OSError as error:
        if error.filename in (None, str(unfinished)):  # of writing, which names no file, or another one
            error.filename = os.fspath(path)
        raise
    finally:
        unfinished.unlink(missing_ok=True)
