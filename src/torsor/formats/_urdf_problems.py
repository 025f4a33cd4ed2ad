"""All problems of a URDF file: every element is read by itself, whatever is wrong with the others."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from torsor._check import listed
from torsor._errors import FormatWarning
from torsor.formats import _inertias, _urdf_links
from torsor.formats._meshes import MeshFiles
from torsor.formats._problem import Problems
from torsor.formats._urdf_joints import ONE_AXIS, joint_numbers, joint_of, loop_of
from torsor.formats._xml import Element, parse_robot
from torsor.formats.urdf import judged_links, load_urdf, note_ignored, rows_of
from torsor.joints import Joint

if TYPE_CHECKING:
    from torsor.model import Model

_ENDS = ("parent", "child")


def examine_urdf(path: Path, root: Joint | None, problems: Problems) -> Model | None:
    """Adds the problems of a file; returns the model, if it can be made. Raises FormatError if the file is no URDF."""
    robot = parse_robot(path)
    links, joints = (_named(robot, tag, problems) for tag in ("link", "joint"))
    if not links:
        problems.add("error", "<robot> has no <link>", robot.line)
    moving, files = _moving(joints), MeshFiles(path, None)
    for name, link in links.items():
        _examine_link(link, name in moving, files, problems)
    for joint in joints.values():
        _examine_joint(joint, links, joints, problems)
    for material in (child for child in robot.children if child.tag == "material"):
        with problems.collecting():
            _urdf_links.color_of(material)
    for loop in (child for child in robot.children if child.tag == "loop_joint"):
        with problems.collecting():
            loop_of(loop, links, {})
    if links:
        _examine_tree(robot, links, joints, problems)
    if problems.errors:  # a model tells what is left out; without one the file does
        notes: list[str] = []
        note_ignored(robot, notes)
        for note in notes:
            problems.add("warning", note)
        return None
    return _load(path, robot, links, joints, root, problems)


def _named(robot: Element, tag: str, problems: Problems) -> dict[str, Element]:
    """The links or joints under their names; those without one, and later ones of the same name, are problems."""
    out: dict[str, Element] = {}
    for element in robot.children:
        if element.tag == tag:
            with problems.collecting():
                name = element.text("name")
                if name in out:
                    element.fail(f"the name is already used on line {out[name].line}; rename one of them")
                out[name] = element
    return out


def _alone(element: Element, *parts: Element) -> Element:
    """The element with some of its children only."""
    out = Element(element.tag, element.attributes, element.source, element.line, element.owner)
    out.children = parts
    return out


def _moving(joints: dict[str, Element]) -> set[str]:
    """Links on joints that are not fixed."""
    ends = [next((part for part in joint.children if part.tag == "child"), None) for joint in joints.values()]
    return {
        end.attributes.get("link", "")
        for joint, end in zip(joints.values(), ends, strict=True)
        if end is not None and joint.attributes.get("type") != "fixed"
    }


def _examine_link(link: Element, moving: bool, files: MeshFiles, problems: Problems) -> None:
    with problems.collecting():
        inertia = _urdf_links.inertia(link)
        if moving and link.child("inertial") is not None and inertia.mass == 0.0:
            problems.add("warning", f"{link}: has an <inertial> whose mass is 0, and can move", link.line)
    for part in link.children:
        if part.tag == "visual":
            with problems.collecting():
                _urdf_links.visuals(_alone(link, part), {}, files)
        elif part.tag == "collision":
            with problems.collecting():
                _urdf_links.collisions(_alone(link, part), lambda note: None, files)


def _examine_joint(joint: Element, links: dict[str, Element], joints: dict[str, Element], problems: Problems) -> None:
    for tag in _ENDS:
        with problems.collecting():
            end = joint.required(tag).text("link")
            if end not in links:
                joint.fail(f"its {tag} link {end!r} is not in the file; links are {listed(list(links), end)}")
    with problems.collecting():
        _urdf_links.pose(joint)
    made: Joint | None = None
    with problems.collecting():
        made = joint_of(joint, {})
    if made is None:
        return
    for part in joint.children:
        if part.tag in ("limit", "dynamics"):
            with problems.collecting():
                joint_numbers(_alone(joint, part), made)
    kind = joint.attributes["type"]
    limits = [part for part in joint.children if part.tag == "limit"]
    if kind in ("revolute", "prismatic") and not limits:
        problems.add("warning", f"{joint}: is {kind} and has no <limit>; it can move without bounds", joint.line)
    elif kind in ("revolute", "prismatic"):
        if missing := [name for name in ("effort", "velocity") if name not in limits[0].attributes]:
            problems.add("note", f"{joint}: its <limit> has no {' and no '.join(missing)}", limits[0].line)
        if not {"lower", "upper"} & {*limits[0].attributes}:
            problems.add(
                "warning", f"{joint}: its <limit> has neither lower nor upper, so that both are 0", limits[0].line
            )
    with problems.collecting():
        _examine_mimic(joint, joints)


def _examine_mimic(joint: Element, joints: dict[str, Element]) -> None:
    mimic = joint.child("mimic")
    if mimic is None or joint.attributes["type"] == "fixed":
        return
    for attribute in ("multiplier", "offset"):
        if attribute in mimic.attributes:
            mimic.number(attribute)
    of = mimic.text("joint")
    if of not in joints:
        mimic.fail(f"its joint {of!r} is not in the file; joints are {listed(list(joints), of)}")
    if of == joint.attributes["name"]:
        mimic.fail(f"joint {of!r} mimics itself")
    for kind in (joint.attributes["type"], joints[of].attributes.get("type", "")):
        if kind not in ONE_AXIS:
            mimic.fail(f"couples a {kind} joint, expected {', '.join(ONE_AXIS)} on both sides")


def _examine_tree(robot: Element, links: dict[str, Element], joints: dict[str, Element], problems: Problems) -> None:
    """Links with two parents, several roots, and loops."""
    above: dict[str, Element] = {}
    below: dict[str, list[str]] = {}
    for joint in joints.values():
        found = [joint.child(tag) for tag in _ENDS]
        parent, child = (None if end is None else end.attributes.get("link") for end in found)
        if parent not in links or child not in links or parent is None or child is None:
            continue
        if child in above:
            problems.add(
                "error",
                f"{joint}: its child link {child!r} already has a parent, through {above[child]}; links form a tree, "
                "and <loop_joint> closes loops",
                joint.line,
            )
            continue
        above[child] = joint
        below.setdefault(parent, []).append(child)
    roots = [name for name in links if name not in above]
    if len(roots) > 1:
        problems.add(
            "error",
            f"{len(roots)} links have no parent, expected one root: {listed(roots)}; join them with <joint>s",
            links[roots[1]].line,
        )
    reached, ahead = set(roots), list(roots)
    while ahead:
        for child in below.get(ahead.pop(), ()):
            reached.add(child)
            ahead.append(child)
    if around := [name for name in links if name not in reached]:
        problems.add(
            "error",
            f"links form a loop, or hang on one: {listed(around)}; links form a tree, and <loop_joint> closes loops",
            links[around[0]].line,
        )


def _load(
    path: Path,
    robot: Element,
    links: dict[str, Element],
    joints: dict[str, Element],
    root: Joint | None,
    problems: Problems,
) -> Model | None:
    """The model, whose elements are right by themselves; with the problems of inertias, and what is left out."""
    model: Model | None = None
    with problems.collecting(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", FormatWarning)
        model = load_urdf(path, root=root, inertia="accept")
    for warning in caught:
        _add_notes(str(warning.message), problems)
    if model is None:
        return None
    with problems.collecting():
        rows, _ = rows_of(robot, links, joints, root, lambda note: None, MeshFiles(path, None))
        found = _inertias.examine(judged_links(rows))
        reason = _inertias.negative_energy(model) if found.negative else None
        for link, fault in (*found.faults, *(found.negative if reason else ())):
            why = "" if reason is None or (link, fault) in found.faults else f", and {reason}"
            problems.add("error", f"link {link.name!r}: inertia is not physical: {fault}{why}", link.line)
        for link, fault in found.bodies:
            if reason is None or (link, fault) not in found.negative:
                problems.add("warning", f"link {link.name!r}: inertia is not physical: {fault}", link.line)
        for link in found.merged:
            problems.add(
                "note",
                f"link {link.name!r}: inertia is not physical, but is together with the links that it is fixed to",
                link.line,
            )
    return model


def _add_notes(message: str, problems: Problems) -> None:
    """The notes of a warning of the loader."""
    text = message.partition(": ")[2].strip()
    for note in text.split("\n- ") if text.startswith("- ") else [text]:
        line, note = None, note.removeprefix("- ").strip()
        if note.startswith("line ") and note[5 : note.index(":")].isdecimal():
            line, note = int(note[5 : note.index(":")]), note.partition(": ")[2]
        problems.add("warning", note, line)
