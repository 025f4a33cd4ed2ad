"""All problems of an MJCF file.

MuJoCo stops at the first fault of a file. What it names is then repaired or taken out of a copy of the file in memory,
and the copy compiled again, until MuJoCo takes it or names something that is not known here.
"""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from xml.sax.saxutils import quoteattr

from torsor._errors import FormatError
from torsor.formats._mjcf_left_out import left_out
from torsor.formats._mjcf_names import Names
from torsor.formats._problem import Problems
from torsor.formats._xml import Element, parse_document
from torsor.formats.mjcf import compile_mjcf, load_mjcf

if TYPE_CHECKING:
    import mujoco

    from torsor.model import Model

_ROUNDS, _SECONDS = 200, 20.0  # of compiling, at most
_DEEPEST_INCLUDE = 10
_WITH_FILES = {"mesh": "meshdir", "hfield": "meshdir", "skin": "meshdir", "texture": "texturedir", "model": ""}
_OF_NONE = {"actuator", "sensor", "equality", "contact", "keyframe", "tendon"}  # sections whose parts carry nothing
_TETRAHEDRON = "0 0 0 1 0 0 0 1 0 0 0 1"


def examine_mjcf(path: Path, problems: Problems) -> Model | None:
    """Adds the problems of a file; returns the model, if it can be made. Raises FormatError if the file is no MJCF."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            mj: mujoco.MjModel | None = compile_mjcf(path)
        except FormatError:
            root = parse_document(path)
            if root.tag != "mujoco":
                raise
            mj = _Copy(root, path.parent, problems).compiled()
    for warning in caught:
        problems.add("warning", str(warning.message).partition(": ")[2])
    return None if mj is None else _load(mj, problems)


def _load(mj: mujoco.MjModel, problems: Problems) -> Model | None:
    """The model of a compiled file, without what it cannot hold."""
    for line in left_out(mj, Names(mj), True):
        problems.add("error", f"{line}, which a model cannot hold; unsupported='warn' loads the file without")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the same as above
        try:
            model = load_mjcf(mj, unsupported="warn", unphysical="accept")
        except FormatError as error:
            problems.add_error(error)
            model = None
            with problems.collecting():
                model = load_mjcf(mj, unsupported="warn", unphysical="accept", equality="ignore")
    for body in () if model is None else model.bodies:
        if (fault := body.inertia._fault()) is not None:
            problems.add("error", f"body {body.name!r}: inertia is not physical: {fault}")
    return model


class _Copy:
    """A file in memory, an element to a line, so that a line in a message of MuJoCo is an element."""

    def __init__(self, root: Element, folder: Path, problems: Problems) -> None:
        self.root, self.folder, self.problems = root, folder, problems
        self.lines: list[Element] = []
        self.section: dict[int, str] = {}  # the section that an element is in, by its id
        self.above: dict[int, Element] = {}
        self.renamed: dict[int, str] = {}  # names that elements had, by their ids
        self._include(root, 0)
        self._find_files()

    def _include(self, element: Element, depth: int) -> None:
        """Puts the content of included files in the place of <include>."""
        ahead = [element]
        while ahead:
            one = ahead.pop()
            children: list[Element] = []
            for child in one.children:
                if child.tag != "include":
                    children.append(child)
                    continue
                with self.problems.collecting():
                    path = self.folder / child.text("file")
                    if not path.is_file():
                        child.fail(f"there is no file {child.text('file')!r}")
                    if depth == _DEEPEST_INCLUDE:
                        child.fail("files include each other too deeply")
                    included = parse_document(path)
                    self._include(included, depth + 1)
                    children += included.children
            one.children = children
            ahead += children

    def _elements(self) -> Iterator[Element]:
        ahead = [self.root]
        while ahead:
            one = ahead.pop()
            yield one
            ahead += one.children

    def _find_files(self) -> None:
        """Names files by their whole paths; those that are missing are problems, and something stands in for them."""
        folders = {"meshdir": "", "texturedir": ""}
        stripped = False
        for one in self._elements():
            if one.tag == "compiler":
                for key in folders:
                    folders[key] = one.attributes.pop(key, one.attributes.get("assetdir", folders[key]))
                one.attributes.pop("assetdir", None)
                stripped = one.attributes.pop("strippath", "false") == "true" or stripped
        for one in self._elements():
            if one.tag not in _WITH_FILES:
                continue
            for attribute, name in [*one.attributes.items()]:
                if not attribute.startswith("file") or not name:
                    continue
                short = Path(name).name if stripped else name
                path = self.folder / folders.get(_WITH_FILES[one.tag], "") / short
                if path.is_file():
                    one.attributes[attribute] = str(path.resolve())
                else:
                    self.problems.add("error", f"<{one.tag}>: its file {name!r} is not found", one.line)
                    self._stand_in(one, attribute)

    def _stand_in(self, one: Element, attribute: str) -> None:
        """Something in the place of a file that is missing."""
        name = one.attributes.pop(attribute)
        one.attributes.setdefault("name", Path(name).stem)
        if one.tag == "mesh":
            one.attributes["vertex"] = _TETRAHEDRON
        elif one.tag == "texture":
            one.attributes |= {"builtin": "flat", "width": "4", "height": "4"}
        elif one.tag == "hfield":
            one.attributes |= {"nrow": "2", "ncol": "2"}

    def text(self) -> str:
        """The text. Also notes which element is on which line."""
        self.lines, self.section, self.above = [], {}, {}
        out: list[str] = []
        ahead: list[Element | str] = [self.root]
        while ahead:
            one = ahead.pop()
            if isinstance(one, str):
                out.append(one)
                self.lines.append(self.root)
                continue
            attributes = "".join(f" {key}={quoteattr(value)}" for key, value in one.attributes.items())
            out.append(f"<{one.tag}{attributes}>" if one.children else f"<{one.tag}{attributes}/>")
            self.lines.append(one)
            if one.children:
                ahead.append(f"</{one.tag}>")
                ahead.extend(reversed(one.children))
            for child in one.children:
                self.above[id(child)] = one
                self.section[id(child)] = child.tag if one is self.root else self.section[id(one)]
        return "\n".join(out)

    def compiled(self) -> mujoco.MjModel | None:
        """The copy as MuJoCo compiles it when all faults that it names are repaired; None if it cannot be."""
        end = time.monotonic() + _SECONDS
        for _ in range(_ROUNDS):
            text = self.text()
            try:
                return compile_mjcf(text)
            except FormatError as error:
                message = str(error).partition("refuses MJCF text: ")[2] or str(error)
            place = [int(x) for x in re.findall(r"\bline (\d+)", message)]
            one = self.lines[place[-1] - 1] if place and 0 < place[-1] <= len(self.lines) else None
            said = re.sub(r"^(XML )?(Error: )*|Element (name )?'[^']*'.*$", "", message).strip()
            owner = None if one is None else self._label(one)
            repaired = self._repair(said, message, one)
            if owner is None and isinstance(repaired, Element):
                owner, one = self._label(repaired), repaired
            self.problems.add("error", said if owner is None else f"{owner}: {said}", None if one is None else one.line)
            if not repaired or time.monotonic() > end:
                self.problems.add("note", "MuJoCo names one fault at a time: there may be more after those above")
                return None
        return None

    def _label(self, one: Element) -> str:
        name = self.renamed.get(id(one), one.attributes.get("name"))
        return f"<{one.tag}>" if name is None else f"{one.tag} {name!r}"

    # ---- repairs

    def _repair(self, said: str, message: str, one: Element | None) -> bool | Element:
        """Repairs what a message is about; returns whether that could be done, or the element that it was."""
        if one is None:
            return self._drop_keyframe(said, message)
        for pattern, repair in self._repairs().items():
            if found := re.search(pattern, said):
                return repair(one, found.group(1) if found.groups() else "")
        return self.section.get(id(one)) in _OF_NONE and self._drop(one)

    def _repairs(self) -> dict[str, Callable[[Element, str], bool]]:
        return {
            r"unrecognized element": lambda one, _: self._drop(one),
            r"unrecognized attribute: '([^']*)'": self._drop_attribute,
            r"(?:bad format|problem reading|too much data|not enough data|does not have enough data).*'(\w+)'": (
                self._drop_attribute
            ),
            r"attribute '(\w+)' does not have enough data": self._drop_attribute,
            r"invalid keyword: '([^']*)'": self._drop_value,
            r"(\w*range)(?:\[0\]| must| should)": lambda one, name: self._give(one, name, "-1 1"),
            r"repeated name '([^']*)'": self._rename,
            r"(?:mass and inertia of moving bodies|inertia must satisfy|mass and inertia cannot be negative)": (
                lambda one, _: self._give_inertia(one)
            ),
            r"size \d must be positive": lambda one, _: self._give(one, "size", "0.1 0.1 0.1"),
            r"required attribute missing: '(\w+)'": lambda one, _: self._drop(one),
        }

    def _drop(self, one: Element) -> bool:
        above = self.above.get(id(one))
        if above is None:
            return False
        above.children = [child for child in above.children if child is not one]
        return True

    @staticmethod
    def _drop_attribute(one: Element, name: str) -> bool:
        return one.attributes.pop(name, None) is not None

    @staticmethod
    def _drop_value(one: Element, value: str) -> bool:
        names = [key for key, given in one.attributes.items() if given == value and key != "name"]
        for name in names:
            del one.attributes[name]
        return bool(names)

    @staticmethod
    def _give(one: Element, name: str, value: str) -> bool:
        changed = one.attributes.get(name) != value
        one.attributes[name] = value
        return changed

    def _rename(self, one: Element, name: str) -> bool:
        if one.attributes.get("name") != name:
            return False
        self.renamed[id(one)] = name
        one.attributes["name"] = f"{name}, again {len(self.renamed)}"
        return True

    def _give_inertia(self, one: Element) -> bool:
        """Gives a body a unit inertia, once."""
        if one.tag != "body":
            return False
        inertial = Element(
            "inertial", {"pos": "0 0 0", "mass": "1", "diaginertia": "1 1 1"}, one.source, one.line, None
        )
        given = [child for child in one.children if child.tag == "inertial"]
        if any(child.attributes == inertial.attributes for child in given):
            return False
        one.children = [inertial, *(child for child in one.children if child.tag != "inertial")]
        return True

    def _drop_keyframe(self, said: str, message: str) -> bool | Element:
        number = re.search(r"\bid (\d+)", message)
        if not said.startswith("keyframe") or number is None:
            return False
        keys = [one for one in self.lines if one.tag == "key"]
        if int(number[1]) >= len(keys):
            return False
        return self._drop(keys[int(number[1])]) and keys[int(number[1])]
