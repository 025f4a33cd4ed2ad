"""URDF files: the tree of links and joints. Its parts are read by `_xml`, `_urdf_links` and `_inertias`."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from numpy.typing import ArrayLike

from torsor._check import listed
from torsor._errors import FormatError, FormatWarning
from torsor.collision import CollisionRules
from torsor.constraints.constraint import compile_constraints
from torsor.constraints.pairs import Loop
from torsor.couplings import Mimic
from torsor.formats import _inertias, _urdf_links
from torsor.formats._meshes import MeshFiles
from torsor.formats._source import Source, text_or_path
from torsor.formats._urdf_joints import ONE_AXIS, joint_numbers, joint_of, loop_of
from torsor.formats._urdf_links import pose
from torsor.formats._xml import Element, parse_robot
from torsor.joints import Fixed, Joint
from torsor.model import WORLD, Body, Frame, Model
from torsor.spatial import SE3

if TYPE_CHECKING:
    from torsor._typing import RefuseOrCoupleOrIgnore, RefuseOrRepairOrAccept
    from torsor.collision import Collision
    from torsor.inertia import Inertia
    from torsor.model import Visual

_MOST_SHOWN = 100  # links in a message

# Elements that are read, and elements that change no mechanism: drawings, drives, sensors, controllers, planning.
_OF_ROBOT = {"link", "joint", "loop_joint", "material", "gazebo", "transmission", "ros2_control", "sensor", "plugin"}
_OF_LINK = {"inertial", "visual", "collision", "sensor", "self_filter", "collision_checking", "gravity", "kinematic"}
_OF_JOINT = {
    *("origin", "parent", "child", "axis", "limit", "dynamics", "mimic"),
    *("safety_controller", "calibration", "hardwareInterface"),
}
_OF_GAZEBO = {"joint", "springStiffness", "springReference"}  # what changes a mechanism in a simulator's extension


def load_urdf(
    path_or_text: Source,
    root: Joint | None = None,
    *,
    loops: Source | None = None,
    mimic: RefuseOrCoupleOrIgnore = "couple",
    inertia: RefuseOrRepairOrAccept = "refuse",
    gravity: ArrayLike = (0.0, 0.0, -9.81),
    name: str | None = None,
    packages: Mapping[str, str | os.PathLike[str]] | None = None,
) -> Model:
    """Loads a robot from a URDF file, or from URDF text.

    Every link becomes a body of the same name, whose joint has the name of the URDF joint above it. The root
    link is a body too; its joint is `root`, named `'root_joint'` unless the file uses that name. Bodies are in
    depth-first order, children of one link in the order of the file. The name of a fixed joint is also that of a frame
    (`Model.frames`) at its child link, unless a link has this name.

    A root link that is itself called `'world'` is the world. With `root`, all that hangs on it moves: the link then
    becomes a body called `'world_link'`, on `root`.

    ========== ========================================================================================
    URDF joint becomes
    ========== ========================================================================================
    fixed      `Fixed()`
    revolute   `Revolute(axis)`, with limits
    continuous `Revolute(axis)`, with velocity and effort limits only
    prismatic  `Prismatic(axis)`, with limits
    floating   `Free()`
    planar     `Composite(Planar(directions), Revolute(axis))`: translation along two directions normal to
               the axis (x and y for axis z, and so on cyclically), then rotation about it
    ========== ========================================================================================

    Defaults are those of the format: no `<origin>` is the identity, no `<axis>` is (1, 0, 0), axes are
    normalised, a `<limit>` without `lower` or `upper` has 0 there, a link without `<inertial>` is
    massless. A `<limit>` that is missing, or that lacks `velocity` or `effort`, does not limit. Visuals
    are kept, with colours of materials resolved, mesh file names as they are written, and where the files
    were found (`Visual.file`). Mesh files are not read.

    Forces are not part of a model, which only keeps what they need: `damping` and `friction` of a joint's `<dynamics>`
    (`Body.damping`, `Body.dry_friction`), limits, and collision shapes (`Body.collisions`: boxes, spheres, cylinders,
    capsules, and meshes, whose files are not read). Links that a joint or a loop connects do not touch each other.

    What is not carried is listed in one `FormatWarning` for the file: unknown elements, unknown attributes of
    `<dynamics>`, limits and dynamics of planar and floating joints, collision shapes without volume, and what a
    `<gazebo>` element changes in the mechanism. Transmissions, sensors, plugins, materials, safety controllers and
    calibrations change no mechanism, and are ignored.

    Links form a tree; loops are closed by an extension that other readers of URDF ignore, or have too::

        <loop_joint name="closing" type="revolute">
          <link1 link="coupler" xyz="0.4 0 0" rpy="0 0 0"/>
          <link2 link="rocker" xyz="0.3 0 0" rpy="0 0 0"/>
          <axis xyz="0 1 0"/>
        </loop_joint>

    Each becomes a `Loop` between the two links, by a joint whose frames they place: `fixed`, `revolute` or
    `continuous` (the default), `prismatic`, `spherical` or `planar`, which is a plane normal to the axis with rotation
    about it. They are constraints of the model (`Model.constraints`), which `simulate` imposes.

    Parameters
    ----------
    path_or_text : str, bytes or path-like
        Path of a file, or the text: bytes, or a string that starts with `<`.
    root : Joint, optional
        Joint between the world and the root link. None fixes it to the world; `Free()` lets it float.
    loops : str, bytes or path-like, optional
        A second file, or its text: a `<robot>` of `<loop_joint>` elements, which are added to those of the first.
    mimic : {'couple', 'refuse', 'ignore'}
        Whether joints that copy others follow them (`Model.couple`, with `Mimic`), so that they have no coordinates of
        their own; are refused; or are loaded as independent joints.
    inertia : {'refuse', 'repair', 'accept'}
        What to do with inertias that no distribution of mass has. Links that are fixed to each other are judged
        together. Those of bodies that make kinetic energy negative are refused by default: bodies with negative mass,
        with a negative moment about the origin of their frame, or with a negative principal moment if the mass matrix
        is not positive semidefinite in one of 64 configurations. All others load with a warning that names them.
        'repair' replaces the inertias of links in unphysical bodies by `Inertia.nearest_physical`, with a warning;
        'accept' loads all as they are.
    gravity : (3,) array_like
        Acceleration of gravity in the world frame.
    name : str, optional
        Name of the model; that of the robot in the file by default.
    packages : dict of paths by name, optional
        Directories of packages, for meshes called `package://name/...`. Others are looked for in directories of that
        name in or above that of the file, then in those of the environment variables ROS_PACKAGE_PATH and
        AMENT_PREFIX_PATH.

    Returns
    -------
    Model

    Raises
    ------
    FormatError
        If the file is not a valid URDF. The message names the element and its line.
    FileNotFoundError
        If there is no file at the path.

    Warns
    -----
    FormatWarning
        Once, of all that is left out or doubtful.

    Examples
    --------
    >>> import torsor as ts
    >>> model = ts.load_urdf('<robot name="point"><link name="base"/></robot>', root=ts.Free())
    >>> model.nq, model.nv
    (7, 6)
    """
    _check_option("mimic", mimic, ("couple", "refuse", "ignore"))
    _check_option("inertia", inertia, ("refuse", "repair", "accept"))
    if root is not None and not isinstance(root, Joint):
        raise TypeError(f"root must be a joint such as Free(), or None to fix the robot; got {root!r}")

    robot = parse_robot(path_or_text)
    given = text_or_path(path_or_text, "URDF")
    files = MeshFiles(given if isinstance(given, Path) else None, packages)
    links = _by_name(robot, "link")
    joints = _by_name(robot, "joint")
    notes: list[str] = []
    rows, world_collisions = rows_of(robot, links, joints, root, notes.append, files)
    if not rows:
        robot.fail("has no <link> but 'world'")
    negative = _judged(robot, rows, inertia, notes)
    mimics = _mimics(rows, joints, mimic)
    if name is None:
        name = robot.attributes.get("name") or "robot"
    bodies = tuple(row.body() for row in rows)
    _check_ranges(mimics, bodies, notes)
    try:
        model = Model(
            name, gravity, bodies, world_collisions=world_collisions, frames=_frames(rows)  # type: ignore[arg-type]
        )  # fmt: skip
    except ValueError as error:
        robot.fail(str(error), error)
    if negative and (reason := _inertias.negative_energy(model)):
        _refuse(robot, negative, reason)
    renamed = {WORLD: rows[0].name} if root is not None and WORLD in links else {}
    sources = (robot, *(() if loops is None else (parse_robot(loops),)))
    found = [child for source in sources for child in source.children if child.tag == "loop_joint"]
    closed = [(child, loop_of(child, links, renamed)) for child in found]
    model = _coupled(_closed(model, closed), mimics)
    note_ignored(robot, notes)
    if notes:
        text = notes[0] if len(notes) == 1 else "".join(f"\n- {note}" for note in notes)
        warnings.warn(f"{robot.source}: {text}", FormatWarning, stacklevel=2)
    return model


def _check_option(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{name} must be {' or '.join(map(repr, choices))}, got {value!r}")


# ---- the tree of links and joints --------------------------------------------------------------------------


class _Edge(NamedTuple):
    """A joint of the file, with the names of its links."""

    joint: Element
    parent: str
    child: str


def _by_name(robot: Element, tag: str) -> dict[str, Element]:
    """All links, or all joints, under their names, in the order of the file."""
    named: dict[str, Element] = {}
    for element in robot.children:
        if element.tag == tag:
            name = element.text("name")
            if name in named:
                element.fail(f"the name is already used on line {named[name].line}; rename one of them")
            named[name] = element
    return named


def _tree(robot: Element, links: dict[str, Element], joints: dict[str, Element]) -> tuple[Element, list[_Edge]]:
    """The root link, and the joints depth first from it, those of one link in the order of the file."""
    if not links:
        robot.fail("has no <link>")
    above: dict[str, _Edge] = {}
    below: dict[str, list[_Edge]] = {name: [] for name in links}
    for joint in joints.values():
        edge = _Edge(joint, joint.required("parent").text("link"), joint.required("child").text("link"))
        for tag, end in (("parent", edge.parent), ("child", edge.child)):
            if end not in links:
                joint.fail(f"its {tag} link {end!r} is not in the file; links are {listed(list(links))}")
        if edge.child in above:
            joint.fail(
                f"its child link {edge.child!r} already has a parent, through {above[edge.child].joint}; links form a "
                "tree, and <loop_joint> closes loops"
            )
        above[edge.child] = edge
        below[edge.parent].append(edge)

    roots = [name for name in links if name not in above]
    if len(roots) > 1:
        shown = ", ".join(map(repr, roots[:5])) + (", ..." if len(roots) > 5 else "")
        robot.fail(f"{len(roots)} links have no parent, expected one root: {shown}; join them with <joint>s")
    ordered: list[_Edge] = []
    ahead = below[roots[0]][::-1] if roots else []
    while ahead:
        edge = ahead.pop()
        ordered.append(edge)
        ahead.extend(reversed(below[edge.child]))
    if len(roots) + len(ordered) < len(links):
        reached = {edge.child for edge in ordered}
        name = next(name for name in links if name in above and name not in reached)
        climbed = {name: 0}  # upwards, until a link comes back
        while (name := above[name].parent) not in climbed:
            climbed[name] = len(climbed)
        loop = [name, *reversed(list(climbed)[climbed[name] :])]
        shown = " -> ".join(map(repr, loop if len(loop) <= 8 else [*loop[:4], "...", *loop[-3:]]))
        above[name].joint.fail(f"links form a loop: {shown}; links form a tree, and <loop_joint> closes loops")
    return links[roots[0]], ordered


@dataclass(slots=True)
class _Row:
    """A body in the making."""

    link: Element
    name: str
    parent: str
    joint: Joint
    joint_name: str
    above: Element | None
    placement: SE3
    inertia: Inertia
    visuals: tuple[Visual, ...]
    collisions: tuple[Collision, ...]

    def body(self) -> Body:
        return Body(
            name=self.name,
            parent=self.parent,
            joint=self.joint,
            placement=self.placement,
            inertia=self.inertia,
            joint_name=self.joint_name,
            visuals=self.visuals,
            collisions=self.collisions,
            **joint_numbers(self.above, self.joint),
        )


def rows_of(
    robot: Element,
    links: dict[str, Element],
    joints: dict[str, Element],
    root: Joint | None,
    note: Callable[[str], object],
    files: MeshFiles,
) -> tuple[list[_Row], tuple[Collision, ...]]:
    """The bodies of the model, and the collision shapes of the world."""
    root_link, ordered = _tree(robot, links, joints)
    colors = _urdf_links.materials(robot)
    made: dict[tuple[str, ...], Joint] = {}  # joints are shared, because many have the same axis
    rows: list[_Row] = []
    world_collisions: tuple[Collision, ...] = ()

    def add(link: Element, name: str, parent: str, joint: Joint, joint_name: str, above: Element | None) -> None:
        rows.append(
            _Row(
                link, name, parent, joint, joint_name, above,
                placement=_urdf_links.IDENTITY if above is None else pose(above),
                inertia=_urdf_links.inertia(link),
                visuals=_urdf_links.visuals(link, colors, files),
                collisions=_urdf_links.collisions(link, note, files),
            )
        )  # fmt: skip

    at_root = root_link.text("name")
    if at_root == WORLD and root is None:
        world_collisions = _urdf_links.collisions(root_link, note, files)
        if _urdf_links.visuals(root_link, colors, files):
            note("visuals of the link 'world', which is the world, are left out")
    else:
        if at_root == WORLD:
            at_root = "world_link"
            while at_root in links:
                at_root += "_"
        root_name = at_root if "root_joint" in joints else "root_joint"
        while root_name in joints:
            root_name += "_"
        add(root_link, at_root, WORLD, Fixed() if root is None else root, root_name, None)
    for edge in ordered:
        if edge.child == WORLD:
            links[WORLD].fail("a link called 'world' must be the root of the tree; rename it")
        parent = at_root if edge.parent == root_link.attributes["name"] else edge.parent
        add(
            links[edge.child], edge.child, parent, joint_of(edge.joint, made), edge.joint.attributes["name"], edge.joint
        )
    return rows, world_collisions


def _frames(rows: Sequence[_Row]) -> tuple[Frame, ...]:
    """Frames with the names of fixed joints, at their links."""
    names = {row.name for row in rows}
    return tuple(
        Frame(row.joint_name, row.name, _urdf_links.IDENTITY)
        for row in rows
        if row.above is not None and row.above.attributes["type"] == "fixed" and row.joint_name not in names
    )


# ---- inertias ----------------------------------------------------------------------------------------------


def _judged(robot: Element, rows: Sequence[_Row], option: str, notes: list[str]) -> list[tuple[_inertias.Link, str]]:
    """Refuses inertias that are faults, repairs them, or accepts them, and adds to the notes.

    Returns the links for which it depends on the robot whether they are faults.
    """
    if option == "accept" or _inertias.all_physical([row.inertia for row in rows]):
        return []
    links = judged_links(rows)
    found = _inertias.examine(links)
    if found.merged:
        total = sum(link.inertia.mass for link in links) or 1.0
        shares = [f"{link.name!r} ({link.inertia.mass / total:.2g})" for link in found.merged]
        notes.append(
            "inertias of links that are not physical by themselves, but are together with the links that they are "
            f"fixed to (name, and share of the robot's mass): {_joined(shares, ', ')}"
        )
    if option == "repair":
        negative = [link.name for link, _ in (*found.faults, *found.bodies) if link.inertia.mass < 0]
        if negative:
            robot.fail(f"links of negative mass cannot be repaired: {listed(negative)}; correct the mass")
        if changed := [f"{link.name!r} ({change:.2g})" for link, change in _inertias.repaired(found)]:
            notes.append(
                "inertias of links that were repaired (name, and relative change of the tensor): "
                + _joined(changed, ", ")
            )
        for row, link in zip(rows, links, strict=True):
            row.inertia = link.inertia
        return []
    if found.faults:
        _refuse(robot, found.faults)
    if found.bodies:
        shown = _joined([f"{link.name!r}: {fault}" for link, fault in found.bodies], "; ")
        notes.append(
            "inertias that no distribution of mass has, loaded as they are because they do not make kinetic energy "
            f"negative: {shown}; inertia='repair' takes the nearest physical ones"
        )
    return found.negative


def judged_links(rows: Sequence[_Row]) -> list[_inertias.Link]:
    """The links, with the bodies that they are part of."""
    at: dict[str, tuple[int, SE3]] = {WORLD: (-1, SE3())}  # the body that a link is part of, and its pose there
    links = []
    for i, row in enumerate(rows):
        body, place = at[row.parent]
        at[row.name] = (i, SE3()) if row.joint.nv else (body, place @ row.placement)
        links.append(_inertias.Link(row.name, row.link.line, row.inertia, *at[row.name]))
    return links


def _refuse(robot: Element, faults: Sequence[tuple[_inertias.Link, str]], reason: str | None = None) -> NoReturn:
    """Raises the error for all links whose inertia is a fault."""
    shown = _joined([f"link {link.name!r} (line {link.line}): {fault}" for link, fault in faults], "; ")
    why = "" if reason is None else f", and {reason}"
    raise FormatError(
        f"{robot.source}: inertia is not physical{why}: {shown}; correct the file, or pass inertia='repair' for the "
        "nearest physical inertia, or inertia='accept' to load it as it is"
    )


def _joined(parts: Sequence[str], separator: str) -> str:
    """The parts in one line; of very many, the first."""
    shown = separator.join(parts[:_MOST_SHOWN])
    return shown if len(parts) <= _MOST_SHOWN else f"{shown}, ... ({len(parts)} in all)"


# ---- couplings ---------------------------------------------------------------------------------------------


class _Mimic(NamedTuple):
    """A joint that copies another: q = ratio q_of + offset."""

    element: Element
    joint: str
    of: str
    ratio: float
    offset: float


def _mimics(rows: Sequence[_Row], joints: dict[str, Element], option: str) -> list[_Mimic]:
    """All joints that copy others. Those on fixed joints copy nothing."""
    copying = [row for row in rows if row.above is not None and row.joint.nv and row.above.child("mimic") is not None]
    if option == "ignore" or not copying:
        return []
    first = copying[0].above or copying[0].link
    if option == "refuse":
        names = listed([row.joint_name for row in copying])
        first.fail(
            f"mimics another joint, as do in all {names}; pass mimic='couple' for a model in which they are coupled, "
            "or mimic='ignore' to load them as joints in their own right"
        )
    out = []
    for row in copying:
        element = (row.above or row.link).required("mimic")
        ratio, offset = (
            element.number(attribute) if attribute in element.attributes else default
            for attribute, default in (("multiplier", 1.0), ("offset", 0.0))
        )
        out.append(_Mimic(element, row.joint_name, element.text("joint"), ratio, offset))
    if missing := [mimic for mimic in out if mimic.of not in joints]:
        shown = ", ".join(f"{mimic.of!r} (of {mimic.joint!r})" for mimic in missing)
        missing[0].element.fail(
            f"its joint {missing[0].of!r} is not in the file; joints that are mimicked and missing: {shown}; add them, "
            "or pass mimic='ignore' to load the joints that mimic them as joints in their own right"
        )
    for mimic in out:
        kinds = [joints[name].attributes["type"] for name in (mimic.joint, mimic.of)]
        if wrong := [kind for kind in kinds if kind not in ONE_AXIS]:
            mimic.element.fail(f"couples a {wrong[0]} joint, expected {', '.join(ONE_AXIS)} on both sides")
        if mimic.joint == mimic.of:
            mimic.element.fail(f"joint {mimic.joint!r} mimics itself")
    return out


def _check_ranges(mimics: Sequence[_Mimic], bodies: Sequence[Body], notes: list[str]) -> None:
    """Notes joints whose limits keep those that they mimic from moving."""
    limits = {body.joint_name: body.position_limits for body in bodies}
    stuck = []
    for mimic in mimics:
        (low,), (high,) = limits[mimic.of]
        (least,), (most,) = limits[mimic.joint]
        ends = [mimic.ratio * end + mimic.offset if mimic.ratio else mimic.offset for end in (low, high)]
        room = min(most, max(ends)) - max(least, min(ends))
        if low < high and (room < 0 or (room == 0 and mimic.ratio)):
            stuck.append(mimic.joint)
    if stuck:
        notes.append(f"limits of joints that mimic others leave these no range of motion: {listed(stuck)}")


def _coupled(model: Model, mimics: Sequence[_Mimic]) -> Model:
    """The model in which joints follow those that they mimic."""
    if not mimics:
        return model
    try:
        return model.couple(*(Mimic(mimic.joint, mimic.of, mimic.ratio, mimic.offset) for mimic in mimics))
    except ValueError as error:
        mimics[0].element.fail(str(error), error)


def _closed(model: Model, loops: Sequence[tuple[Element, Loop]]) -> Model:
    """The model with its loops, across which links do not touch."""
    for element, loop in loops:
        try:
            compile_constraints(model, [loop])
        except (KeyError, ValueError) as error:
            element.fail(str(error), error)
    if not loops:
        return model
    constraints = tuple(loop for _, loop in loops)
    rules = CollisionRules(exclude=tuple((loop.a, loop.b) for loop in constraints))
    try:
        return replace(model, constraints=constraints, collision_rules=rules)
    except ValueError as error:
        loops[-1][0].fail(str(error), error)


# ---- what is left out --------------------------------------------------------------------------------------


def note_ignored(robot: Element, notes: list[str]) -> None:
    """Adds what the model does not carry to the notes."""
    found: dict[str, list[str]] = {}  # names of links or joints, by what is ignored in them

    def ignore(what: str, owner: Element) -> None:
        found.setdefault(what, []).append(owner.attributes.get("name") or owner.attributes.get("reference") or "")

    for child in robot.children:
        if child.tag == "link":
            for part in child.children:
                off = part.true if part.tag == "kinematic" else part.tag == "gravity" and not part.true
                if part.tag not in _OF_LINK or off:
                    ignore(f"<{part.tag}> of links", child)
        elif child.tag == "joint":
            for part in child.children:
                if part.tag not in _OF_JOINT:
                    ignore(f"<{part.tag}> of joints", child)
                elif part.tag in ("limit", "dynamics") and child.attributes.get("type") in ("floating", "planar"):
                    ignore(f"<{part.tag}> of floating and planar joints", child)
                elif part.tag == "dynamics" and (more := sorted(part.attributes.keys() - {"damping", "friction"})):
                    ignore(f"{', '.join(more)} of <dynamics> of joints", child)
        elif child.tag == "gazebo":
            for part in child.children:
                on = part.true if part.tag in ("turnGravityOff", "static") else part.tag == "gravity" and not part.true
                if part.tag in _OF_GAZEBO or on:
                    ignore(f"<{part.tag}> of <gazebo>", child)
        elif child.tag not in _OF_ROBOT:
            ignore(f"<{child.tag}>", child)
    if found:
        shown = "; ".join(f"{what} {listed(owners)}" for what, owners in sorted(found.items()))
        notes.append(f"ignored: {shown}")
