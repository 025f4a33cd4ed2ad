"""The input of a loader: the path of a file, or the text itself."""

from __future__ import annotations

import os
from pathlib import Path

from torsor._errors import FormatError

Source = str | bytes | os.PathLike[str]


def text_or_path(source: object, kind: str) -> str | bytes | Path:
    """Distinguishes text from paths: bytes, and strings that start with `<`, are text; the rest are paths.

    Parameters
    ----------
    source : str, bytes or path-like
        The input. White space and a byte order mark before the `<` are ignored.
    kind : str
        Name of the format, for messages.

    Returns
    -------
    str, bytes or pathlib.Path
        The text, or the path of a file that exists.

    Raises
    ------
    FileNotFoundError
        If there is no file at the path.
    FormatError
        If the text is empty, or the path is not that of a file.
    """
    if isinstance(source, (bytes, bytearray)):
        if not source.strip():
            raise FormatError(f"the {kind} text is empty")
        return bytes(source)
    if isinstance(source, str):
        text = source.lstrip("\ufeff \t\r\n")
        if not text:
            raise FormatError(f"the {kind} text is empty")
        if text.startswith("<"):
            return text
    elif not isinstance(source, os.PathLike):
        raise TypeError(f"expected a path or {kind} text, got {type(source).__name__}")
    path = Path(os.fsdecode(source))
    shown = repr(str(path)) if len(str(path)) <= 200 else repr(str(path)[:200]) + "..."
    try:
        directory, file, exists = path.is_dir(), path.is_file(), path.exists()
    except (OSError, ValueError) as error:  # a name too long for the system, or one with a null character
        raise FormatError(f"{shown} is neither a path nor {kind} text, which starts with '<'") from error
    if not exists:
        raise FileNotFoundError(f"no {kind} file at {shown}; to load text, start it with '<'")
    if not file:
        what = "a directory" if directory else "not a regular file"
        raise FormatError(f"{shown} is {what}, expected a {kind} file")
    return path
