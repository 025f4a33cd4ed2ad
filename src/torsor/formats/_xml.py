"""XML for the reader of URDF, and for looking at MJCF: elements that know their lines.

The parser is the standard library's expat, told to refuse document type declarations: without them a file has no
entities to define, so none that expand without bound and none that fetch other files.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from torsor._errors import FormatError
from torsor.formats._source import Source, text_or_path

_MAX_DEPTH = 100  # of nested elements; a robot needs six, extensions somewhat more
_MAX_DEPTH_MJCF = 500  # where bodies are nested
_NAMED = ("link", "joint", "material", "loop_joint")  # elements of a robot that messages about their parts name
_WITH_TEXT = ("gravity", "kinematic", "static", "turnGravityOff")  # elements whose text is read


class Element:
    """An XML element with its position in the file, for error messages."""

    __slots__ = ("attributes", "children", "content", "line", "owner", "source", "tag")

    def __init__(self, tag: str, attributes: dict[str, str], source: str, line: int, owner: str | None) -> None:
        self.tag = tag
        self.attributes = attributes
        self.children: Sequence[Element] = ()
        self.content = ""
        self.source = source
        self.line = line
        self.owner = owner  # the link, joint or material that this is in, as "link 'hand'"

    def __str__(self) -> str:
        me = f"<{self.tag}>"
        if self.owner is None:
            return me
        return self.owner if self.tag == self.owner.split(" ", 1)[0] else f"{me} of {self.owner}"

    def fail(self, message: str, cause: Exception | None = None) -> NoReturn:
        """Raise a FormatError that names this element."""
        raise FormatError(f"{self.source}, line {self.line}: {self}: {message}") from cause

    def child(self, tag: str) -> Element | None:
        """The child called `tag`, if there is one; two are refused."""
        found = None
        for child in self.children:
            if child.tag == tag:
                if found is not None:
                    count = sum(other.tag == tag for other in self.children)
                    child.fail(f"there are {count} of them, expected at most one")
                found = child
        return found

    def required(self, tag: str) -> Element:
        """The child called `tag`, which must be there."""
        child = self.child(tag)
        if child is None:
            self.fail(f"has no <{tag}>")
        return child

    def text(self, attribute: str) -> str:
        """An attribute that must be there and not be empty."""
        text = self.attributes.get(attribute, "")
        if not text or text.isspace():
            self.fail(f"has no attribute {attribute!r}")
        return text

    def numbers(self, attribute: str, count: int, *, infinite: bool = False) -> list[float]:
        """The `count` numbers of an attribute that must be there; infinity only where it makes sense."""
        text = self.text(attribute)
        try:
            values = [float(word) for word in text.split()]
        except ValueError:
            values = []
        if len(values) != count or "_" in text or not all(map(math.isfinite, values)):
            self._check_numbers(attribute, text, count, infinite)
        return values

    def _check_numbers(self, attribute: str, text: str, count: int, infinite: bool) -> None:
        """Fails if one of the numbers is wrong."""
        words = text.split()
        if len(words) != count:
            self.fail(f"{attribute} has {len(words)} values, expected {count}: {text!r}")
        for word in words:
            try:
                value = float(word.replace("_", "?"))  # float() alone would read 1_0 as 10
            except ValueError as error:
                self.fail(f"{attribute} has {word!r}, expected a number", error)
            if math.isnan(value) or (math.isinf(value) and not infinite):
                self.fail(f"{attribute} has {word!r}, expected a finite number")

    def number(self, attribute: str, *, infinite: bool = False) -> float:
        """The one number of an attribute that must be there."""
        text = self.attributes.get(attribute, "")
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if math.isfinite(value) and "_" not in text:
            return value
        return self.numbers(attribute, 1, infinite=infinite)[0]

    @property
    def true(self) -> bool:
        """Whether the value of a flag, which is its text or its attribute `value`, is true."""
        return (self.content or self.attributes.get("value", "")).strip().lower() in ("1", "true")


def parse_robot(path_or_text: Source) -> Element:
    """Parse XML into elements, and check that they describe a robot."""
    robot = parse_document(path_or_text, "URDF", _MAX_DEPTH)
    if robot.tag != "robot":
        hint = "; load_mjcf loads MuJoCo files" if robot.tag == "mujoco" else ""
        robot.fail(f"a URDF file has <robot> at its top{hint}")
    return robot


def parse_document(path_or_text: Source, kind: str = "MJCF", deepest: int = _MAX_DEPTH_MJCF) -> Element:
    """Parse XML into elements; returns the outermost one."""
    from xml.parsers import expat

    found = text_or_path(path_or_text, kind)
    source = repr(str(found)) if isinstance(found, Path) else f"{kind} text"
    text = found.read_bytes() if isinstance(found, Path) else found
    if not text.strip():
        raise FormatError(f"{source} is empty")

    parser = expat.ParserCreate()
    parser.buffer_text = True
    document: list[Element] = []
    open_elements: list[Element] = []

    def start(tag: str, attributes: dict[str, str]) -> None:
        line = parser.CurrentLineNumber
        depth = len(open_elements)
        if ":" in tag and tag.startswith("xacro:"):
            raise FormatError(f"{source}, line {line}: <{tag}> is a macro; expand the file with xacro first")
        if depth == deepest:
            raise FormatError(f"{source}, line {line}: <{tag}> is inside {deepest} others, too deep")
        if depth == 0:
            element = Element(tag, attributes, source, line, None)
            document.append(element)
        else:
            above = open_elements[-1]
            named = depth == 1 and tag in _NAMED
            element = Element(
                tag, attributes, source, line, f"{tag} {attributes.get('name', '')!r}" if named else above.owner
            )
            if above.children:
                above.children.append(element)  # type: ignore[attr-defined]
            else:
                above.children = [element]
        open_elements.append(element)
        if tag in _WITH_TEXT:
            parser.CharacterDataHandler = read

    def read(text: str) -> None:
        open_elements[-1].content += text

    def end(tag: str) -> None:
        open_elements.pop()
        if tag in _WITH_TEXT:
            parser.CharacterDataHandler = None

    def refuse(*_: object) -> None:
        raise FormatError(
            f"{source}, line {parser.CurrentLineNumber}: document type declarations are refused, because the "
            "entities that they define can expand without bound; remove <!DOCTYPE ...>"
        )

    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.StartDoctypeDeclHandler = refuse
    parser.EntityDeclHandler = refuse
    collecting = gc.isenabled()
    gc.disable()  # all elements are kept, and looking for garbage among many of them takes longer than parsing
    try:
        parser.Parse(text, True)
    except expat.ExpatError as error:
        raise FormatError(f"{source} is not well-formed XML: {error}") from error
    except (LookupError, UnicodeError, ValueError) as error:
        if isinstance(error, FormatError):
            raise
        raise FormatError(f"{source} cannot be decoded: {error}") from error
    finally:
        if collecting:
            gc.enable()

    return document[0]
