"""The input of a loader: the path of a file, or the text itself; and the kind of a file."""

from __future__ import annotations

import codecs
import os
import re
from pathlib import Path
from typing import Literal

from torsor._errors import FormatError

Source = str | bytes | os.PathLike[str]
Kind = Literal["URDF", "MJCF", "torsor", "motion"]

_START = 1 << 16  # bytes of a file by which its kind is known
_LARGEST = 1 << 30  # bytes of a file with a model; meshes are in files of their own
_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_SKIPPED = re.compile(r"\s+|<\?.*?\?>|<!--.*?-->|<![A-Z].*?>", re.DOTALL)  # before the first element
_ELEMENT = re.compile(r"<([\w:.-]+)")


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


def kind_of(path: Path) -> Kind:
    """The kind of a file, by what it begins with: a model in one of three formats, or a motion.

    Raises FormatError if it is none of these, and OSError if it cannot be read.
    """
    shown = repr(str(path))
    if "\0" in str(path):
        raise FormatError(f"{shown} is not the name of a file")
    if path.is_dir():
        raise FormatError(f"{shown} is a directory, expected a file")
    if path.exists() and not path.is_file():
        raise FormatError(f"{shown} is not a regular file")
    with path.open("rb") as file:
        start = file.read(_START)
    if not start.strip():
        raise FormatError(f"{shown} is empty")
    if start.startswith(b"PK"):
        return "motion"
    if (size := path.stat().st_size) > _LARGEST:
        raise FormatError(f"{shown} has {size / 2**30:.1f} GB, more than any model (1 GB)")
    encoding = next((name for mark, name in _MARKS if start.startswith(mark)), "utf-8")
    text = start.decode(encoding, errors="replace").lstrip("\ufeff")
    at = 0
    while skipped := _SKIPPED.match(text, at):
        at = skipped.end()
    element = _ELEMENT.match(text, at)
    if element is None and text[at : at + 1] == "{":
        return "torsor"
    if element is None:
        expected = "expected a URDF or MJCF file (XML), a file of Model.save (JSON) or of Trajectory.save (.npz)"
        raise FormatError(f"{shown} is not a model: {expected}")
    if element[1] == "mujoco":
        return "MJCF"
    if element[1] == "robot":
        return "URDF"
    raise FormatError(
        f"{shown} begins with <{element[1][:40]}>, expected <robot> of a URDF file or <mujoco> of an MJCF file"
    )
