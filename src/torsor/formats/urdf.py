"""URDF files.

The reader is the standard library's expat, told to refuse document type declarations: without them a file
has no entities to define, so none that expand without bound and none that fetch other files.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, NoReturn, cast

import numpy as np
from numpy.typing import ArrayLike

from torsor._errors import FormatError, ModelError
from torsor.collision import Collision, CollisionRules
from torsor.constraints.constraint import Constraint, compile_constraints
from torsor.constraints.couplings import Gear
from torsor.constraints.pairs import Loop
from torsor.formats._source import Source, text_or_path
from torsor.inertia import Inertia
from torsor.joints import Composite, Fixed, Free, Free2D, Joint, Planar, Prismatic, Revolute, Spherical, z_to
from torsor.model import WORLD, Model, ModelBuilder, Visual
from torsor.shapes import Box, Capsule, Cylinder, Mesh, Sphere
from torsor.spatial import SE3

if TYPE_CHECKING:
    from torsor import shapes
    from torsor._typing import RefuseOrAccept, RefuseOrCoupleOrIgnore, Shape

_MAX_DEPTH = 100  # of nested elements; a robot needs six, extensions somewhat more
_SIZES: dict[str, tuple[tuple[str, int], ...]] = {  # attributes of a shape, and how many numbers are in each
    "box": (("size", 3),),
    "sphere": (("radius", 1),),
    "cylinder": (("radius", 1), ("length", 1)),
    "capsule": (("radius", 1), ("length", 1)),
    "mesh": (),
}
_JOINT_TYPES = ("fixed", "revolute", "continuous", "prismatic", "floating", "planar")
_LOOP_TYPES = ("fixed", "revolute", "continuous", "prismatic", "spherical", "planar")

Color = tuple[float, float, float, float]


def load_urdf(
    path_or_text: Source,
    root: Joint | None = None,
    *,
    loops: Source | None = None,
    mimic: RefuseOrCoupleOrIgnore = "refuse",
    unphysical: RefuseOrAccept = "refuse",
    gravity: ArrayLike = (0.0, 0.0, -9.81),
    name: str | None = None,
) -> Model:
    """Loads a robot from a URDF file, or from URDF text.

    Every link becomes a body of the same name, whose joint has the name of the URDF joint above it. The root
    link is a body too; its joint is `root`, named `'root_joint'` unless the file uses that name. A root
    link that is itself called `'world'` is the world, and `root` must be None. Bodies are in depth-first
    order, children of one link in the order of the file.

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
    are kept, with colours of materials resolved and mesh file names as they are written. Transmissions, safety
    controllers, sensors and extensions of simulators are ignored.

    Forces are not part of a model, which only keeps what `contacts` and `JointFriction` need: collision shapes
    (`Body.collisions`: boxes, spheres, cylinders, capsules, and meshes, whose files are not read), and the `friction`
    of a joint's `<dynamics>` (`Body.dry_friction`), but not its damping. Links that a joint or a loop connects do not
    touch each other. Collision shapes of other kinds, or without volume, are left out with a warning.

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
    mimic : {'refuse', 'couple', 'ignore'}
        Whether to refuse files with joints that copy others; to couple them by a `Gear`, which becomes a constraint of
        the model; or to load them as independent joints.
    unphysical : {'refuse', 'accept'}
        Whether to refuse files with unphysical inertias, or to load them as they are.
    gravity : (3,) array_like
        Acceleration of gravity in the world frame.
    name : str, optional
        Name of the model; that of the robot in the file by default.

    Returns
    -------
    Model

    Raises
    ------
    FormatError
        If the file is not a valid URDF. The message names the element and its line.
    FileNotFoundError
        If there is no file at the path.

    Examples
    --------
    >>> import torsor as ts
    >>> model = ts.load_urdf('<robot name="point"><link name="base"/></robot>', root=ts.Free())
    >>> model.nq, model.nv
    (7, 6)
    """
    _check_option("mimic", mimic, ("refuse", "couple", "ignore"))
    _check_option("unphysical", unphysical, ("refuse", "accept"))
    if root is not None and not isinstance(root, Joint):
        raise TypeError(f"root must be a joint such as Free(), or None to fix the robot; got {root!r}")

    robot = _parse(path_or_text)
    links = _by_name(robot, "link")
    joints = _by_name(robot, "joint")
    materials = _materials(robot)
    root_link, ordered = _tree(robot, links, joints)
    builder = ModelBuilder(robot.attributes.get("name") or "robot" if name is None else name, gravity)

    def add(link: _Element, parent: str, joint: Joint, joint_name: str | None, above: _Element | None) -> None:
        inertia, visuals, collisions = _inertia(link, unphysical), _visuals(link, materials), _collisions(link)
        limits = _Limits() if above is None else _limits(above)
        placement = SE3() if above is None else _pose(above)
        try:
            builder.add_body(
                link.text("name"),
                parent,
                joint,
                placement,
                inertia,
                joint_name=joint_name,
                position_limits=limits.position,
                velocity_limits=limits.velocity,
                effort_limits=limits.effort,
                dry_friction=limits.friction,
                visuals=visuals,
                collisions=collisions,
            )
        except ValueError as error:
            (above or link).fail(str(error), error)

    if root_link.text("name") != "world":
        root_name = None if "root_joint" in joints else "root_joint"
        add(root_link, "world", Fixed() if root is None else root, root_name, None)
    elif root is not None:
        root_link.fail("a root link called 'world' cannot move in the world; rename it, or pass root=None")
    else:
        for collision in _collisions(root_link):
            builder.add_world_collision(collision)
    made: list[tuple[_Element, Constraint]] = []
    for above in ordered:
        copies = above.child("mimic") is not None and above.text("type") != "fixed"
        if mimic == "refuse" and copies:
            above.fail(
                "mimics another joint; pass mimic='couple' for a constraint of the model that couples them, or "
                "mimic='ignore' to load it as a joint in its own right"
            )
        if mimic == "couple" and copies:
            made.append((above, _gear(above, joints)))
        link = links[above.required("child").text("link")]
        if link.text("name") == "world":
            link.fail("a link called 'world' must be the root of the tree; rename it")
        add(link, above.required("parent").text("link"), _joint(above), above.text("name"), above)
    try:
        model = builder.build()
    except ValueError as error:
        robot.fail(str(error), error)
    for source in (robot, *(() if loops is None else (_parse(loops),))):
        made += [(child, _loop(child, links)) for child in source.children if child.tag == "loop_joint"]
    for element, constraint in made:
        try:
            compile_constraints(model, [constraint])
        except (KeyError, ValueError) as error:
            element.fail(str(error), error)
    closed = tuple((loop.a, loop.b) for _, loop in made if isinstance(loop, Loop))
    try:
        model = model.with_constraints([constraint for _, constraint in made])
        return replace(model, collision_rules=CollisionRules(exclude=closed))
    except ValueError as error:
        robot.fail(str(error), error)


def _check_option(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{name} must be {' or '.join(map(repr, choices))}, got {value!r}")


# ---- XML ---------------------------------------------------------------------------------------------------


class _Element:
    """An XML element with its position in the file, for error messages."""

    __slots__ = ("attributes", "children", "line", "owner", "source", "tag")

    def __init__(self, tag: str, attributes: dict[str, str], source: str, line: int, owner: str | None) -> None:
        self.tag = tag
        self.attributes = attributes
        self.children: list[_Element] = []
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

    def child(self, tag: str) -> _Element | None:
        """The child called `tag`, if there is one; two are refused."""
        found = [child for child in self.children if child.tag == tag]
        if len(found) > 1:
            found[1].fail(f"there are {len(found)} of them, expected at most one")
        return found[0] if found else None

    def required(self, tag: str) -> _Element:
        """The child called `tag`, which must be there."""
        child = self.child(tag)
        if child is None:
            self.fail(f"has no <{tag}>")
        return child

    def text(self, attribute: str) -> str:
        """An attribute that must be there and not be empty."""
        text = self.attributes.get(attribute, "")
        if not text.strip():
            self.fail(f"has no attribute {attribute!r}")
        return text

    def numbers(self, attribute: str, count: int, *, infinite: bool = False) -> tuple[float, ...]:
        """The `count` numbers of an attribute that must be there; infinity only where it makes sense."""
        text = self.text(attribute)
        words = text.split()
        if len(words) != count:
            self.fail(f"{attribute} has {len(words)} values, expected {count}: {text!r}")
        values = []
        for word in words:
            try:
                value = float(word.replace("_", "?"))  # float() alone would read 1_0 as 10
            except ValueError as error:
                self.fail(f"{attribute} has {word!r}, expected a number", error)
            if math.isnan(value) or (math.isinf(value) and not infinite):
                self.fail(f"{attribute} has {word!r}, expected a finite number")
            values.append(value)
        return tuple(values)

    def number(self, attribute: str, *, infinite: bool = False) -> float:
        """The one number of an attribute that must be there."""
        return self.numbers(attribute, 1, infinite=infinite)[0]


def _parse(path_or_text: Source) -> _Element:
    """Parse XML into elements, and check that they describe a robot."""
    from xml.parsers import expat

    found = text_or_path(path_or_text, "URDF")
    source = repr(str(found)) if isinstance(found, Path) else "URDF text"
    text = found.read_bytes() if isinstance(found, Path) else found
    if not text.strip():
        raise FormatError(f"{source} is empty")

    parser = expat.ParserCreate()
    document: list[_Element] = []
    open_elements: list[_Element] = []

    def start(tag: str, attributes: dict[str, str]) -> None:
        line = parser.CurrentLineNumber
        if tag.startswith("xacro:"):
            raise FormatError(f"{source}, line {line}: <{tag}> is a macro; expand the file with xacro first")
        if len(open_elements) == _MAX_DEPTH:
            raise FormatError(f"{source}, line {line}: <{tag}> is inside {_MAX_DEPTH} others, too deep")
        owner = open_elements[-1].owner if open_elements else None
        if len(open_elements) == 1 and tag in ("link", "joint", "material", "loop_joint"):
            owner = f"{tag} {attributes.get('name', '')!r}"
        element = _Element(tag, attributes, source, line, owner)
        (open_elements[-1].children if open_elements else document).append(element)
        open_elements.append(element)

    def refuse(*_: object) -> None:
        raise FormatError(
            f"{source}, line {parser.CurrentLineNumber}: document type declarations are refused, because the "
            "entities that they define can expand without bound; remove <!DOCTYPE ...>"
        )

    parser.StartElementHandler = start
    parser.EndElementHandler = lambda _: open_elements.pop()
    parser.StartDoctypeDeclHandler = refuse
    parser.EntityDeclHandler = refuse
    try:
        parser.Parse(text, True)
    except expat.ExpatError as error:
        raise FormatError(f"{source} is not well-formed XML: {error}") from error
    except (LookupError, UnicodeError, ValueError) as error:
        if isinstance(error, FormatError):
            raise
        raise FormatError(f"{source} cannot be decoded: {error}") from error

    robot = document[0]
    if robot.tag != "robot":
        hint = "; load_mjcf loads MuJoCo files" if robot.tag == "mujoco" else ""
        robot.fail(f"a URDF file has <robot> at its top{hint}")
    return robot


# ---- the tree of links and joints --------------------------------------------------------------------------


def _by_name(robot: _Element, tag: str) -> dict[str, _Element]:
    """All links, or all joints, under their names, in the order of the file."""
    named: dict[str, _Element] = {}
    for element in robot.children:
        if element.tag == tag:
            name = element.text("name")
            if name in named:
                element.fail(f"the name is already used on line {named[name].line}")
            named[name] = element
    return named


def _tree(robot: _Element, links: dict[str, _Element], joints: dict[str, _Element]) -> tuple[_Element, list[_Element]]:
    """The root link, and the joints depth first from it, those of one link in the order of the file."""
    if not links:
        robot.fail("has no <link>")
    above: dict[str, _Element] = {}
    below: dict[str, list[_Element]] = {name: [] for name in links}
    for joint in joints.values():
        ends = [joint.required(tag).text("link") for tag in ("parent", "child")]
        for tag, end in zip(("parent", "child"), ends, strict=True):
            if end not in links:
                joint.fail(f"its {tag} link {end!r} is not in the file")
        parent, child = ends
        if child in above:
            joint.fail(f"its child link {child!r} already has a parent, through {above[child]}")
        above[child] = joint
        below[parent].append(joint)

    roots = [name for name in links if name not in above]
    if len(roots) > 1:
        shown = ", ".join(map(repr, roots[:5])) + (", ..." if len(roots) > 5 else "")
        robot.fail(f"{len(roots)} links have no parent, expected one root: {shown}; join them with <joint>s")
    ordered: list[_Element] = []
    ahead = list(reversed(below[roots[0]])) if roots else []
    while ahead:
        joint = ahead.pop()
        ordered.append(joint)
        ahead.extend(reversed(below[joint.required("child").text("link")]))
    if len(roots) + len(ordered) < len(links):
        reached = {joint.required("child").text("link") for joint in ordered}
        name = next(name for name in links if name in above and name not in reached)
        climbed = {name: 0}  # upwards, until a link comes back
        while (name := above[name].required("parent").text("link")) not in climbed:
            climbed[name] = len(climbed)
        loop = [name, *reversed(list(climbed)[climbed[name] :])]
        shown = " -> ".join(map(repr, loop if len(loop) <= 8 else [*loop[:4], "...", *loop[-3:]]))
        above[name].fail(f"links form a loop: {shown}; only trees can be loaded")
    return links[roots[0]], ordered


# ---- what is in a link or a joint --------------------------------------------------------------------------


def _pose(element: _Element) -> SE3:
    """Pose given by the <origin> of an element, the identity when it has none."""
    origin = element.child("origin")
    return SE3() if origin is None else _placed(origin)


def _placed(origin: _Element) -> SE3:
    """Pose given by the attributes of an element."""
    p = origin.numbers("xyz", 3) if "xyz" in origin.attributes else (0.0, 0.0, 0.0)
    if "quat_xyzw" in origin.attributes:
        if "rpy" in origin.attributes:
            origin.fail("has both rpy and quat_xyzw, expected one of them")
        quaternion = origin.numbers("quat_xyzw", 4)
        if not any(quaternion):
            origin.fail("quat_xyzw is zero, expected a unit quaternion")
        return SE3.from_quaternion(quaternion, p)
    rpy = origin.numbers("rpy", 3) if "rpy" in origin.attributes else (0.0, 0.0, 0.0)
    return SE3(SE3.rpy(*rpy).R, p)


def _joint(joint: _Element) -> Joint:
    """The joint of a <joint>, by its type."""
    kind = joint.text("type")
    if kind == "fixed":
        return Fixed()
    if kind == "floating":
        return Free()
    if kind not in _JOINT_TYPES:
        joint.fail(f"unknown type {kind!r}, expected one of {', '.join(_JOINT_TYPES)}")

    axis = _axis(joint)
    if kind == "prismatic":
        return Prismatic(axis)
    rotation = Revolute(axis)
    if kind != "planar":
        return rotation
    n = np.array(rotation.axis)
    first = np.roll(np.eye(3)[np.abs(n).argmax()], 1)
    first -= n * (n @ first)
    first /= np.linalg.norm(first)
    return Composite(Planar((tuple(first.tolist()), tuple(np.cross(n, first).tolist()))), rotation)


def _axis(joint: _Element) -> tuple[float, float, float]:
    """The axis of a <joint> or <loop_joint>."""
    child = joint.child("axis")
    if child is None:
        return 1.0, 0.0, 0.0
    x, y, z = child.numbers("xyz", 3)
    if x == y == z == 0.0:
        child.fail("is zero, expected a direction")
    return x, y, z


def _gear(joint: _Element, joints: dict[str, _Element]) -> Gear:
    """The coupling of a joint that mimics another."""
    mimic = joint.required("mimic")
    driver = mimic.text("joint")
    if driver not in joints:
        mimic.fail(f"its joint {driver!r} is not in the file")
    ratio, offset = (
        mimic.number(attribute) if attribute in mimic.attributes else default
        for attribute, default in (("multiplier", 1.0), ("offset", 0.0))
    )
    try:
        return Gear(driver, joint.text("name"), ratio, offset=offset, name=f"mimic {joint.text('name')}")
    except ValueError as error:
        mimic.fail(str(error), error)


def _loop(joint: _Element, links: dict[str, _Element]) -> Loop:
    """The loop that a <loop_joint> closes."""
    kind = joint.text("type") if "type" in joint.attributes else "revolute"
    if kind not in _LOOP_TYPES:
        joint.fail(f"unknown type {kind!r}, expected one of {', '.join(_LOOP_TYPES)}")
    axis = _axis(joint)
    made: Joint = {"fixed": Fixed(), "prismatic": Prismatic(axis), "spherical": Spherical()}.get(kind, Revolute(axis))
    turn = SE3()
    if kind == "planar":
        made, turn = Free2D(), SE3(z_to(Revolute(axis).axis))
    ends: list[str] = []
    placements: list[SE3] = []
    for tag in ("link1", "link2"):
        end = joint.required(tag)
        name = end.text("link")
        if name not in links and name != WORLD:
            end.fail(f"its link {name!r} is not in the file")
        ends.append(name)
        placements.append(_placed(end) @ turn)
    try:
        return Loop(ends[0], ends[1], made, placements[0], placements[1], name=joint.text("name"))
    except ValueError as error:
        joint.fail(str(error), error)


class _Limits(NamedTuple):
    position: tuple[float, float] | None = None
    velocity: float | None = None
    effort: float | None = None
    friction: float | None = None


def _limits(joint: _Element) -> _Limits:
    """Limits and dry friction of a joint of one degree of freedom."""
    limit, dynamics = joint.child("limit"), joint.child("dynamics")
    kind = joint.text("type")
    if kind not in ("revolute", "continuous", "prismatic"):
        return _Limits()
    friction = None
    if dynamics is not None and "friction" in dynamics.attributes:
        friction = dynamics.number("friction")
        if friction < 0.0:
            dynamics.fail(f"friction = {friction:g} is negative")
    if limit is None:
        return _Limits(friction=friction)
    position = None
    if kind != "continuous":
        lower, upper = (
            limit.number(end, infinite=True) if end in limit.attributes else 0.0 for end in ("lower", "upper")
        )
        if lower > upper:
            limit.fail(f"lower = {lower:g} is above upper = {upper:g}")
        position = (lower, upper)
    rates = []
    for attribute in ("velocity", "effort"):
        value = limit.number(attribute, infinite=True) if attribute in limit.attributes else None
        if value is not None and value < 0.0:
            limit.fail(f"{attribute} = {value:g} is negative")
        rates.append(value)
    velocity, effort = rates
    return _Limits(position, velocity, effort, friction)


def _inertia(link: _Element, unphysical: str) -> Inertia:
    """Inertia of a link in the link's frame; zero when the file gives none."""
    inertial = link.child("inertial")
    if inertial is None:
        return Inertia.zero()
    mass = inertial.required("mass").number("value")
    tensor = inertial.required("inertia")
    entries = (("ixx", "ixy", "ixz"), ("ixy", "iyy", "iyz"), ("ixz", "iyz", "izz"))
    pose = _pose(inertial)
    I_given = np.array([[tensor.number(entry) for entry in row] for row in entries])
    with np.errstate(over="ignore", invalid="ignore"):  # Inertia refuses what overflows
        I_com = pose.R @ I_given @ pose.R.T
        I_com = (I_com + I_com.T) / 2.0
    try:
        return Inertia(mass, pose.p, I_com, allow_unphysical=unphysical == "accept")
    except ModelError as error:
        fault = str(error).partition(";")[0]
        link.fail(f"{fault}; pass unphysical='accept' to load it as it is", error)
    except ValueError as error:
        link.fail(str(error), error)


def _materials(robot: _Element) -> dict[str, Color]:
    """Colours of named materials: those defined for the robot, then those defined in passing in a visual."""
    visuals = (child for link in robot.children if link.tag == "link" for child in link.children)
    inline = [visual.child("material") for visual in visuals if visual.tag == "visual"]
    named: dict[str, Color] = {}
    for material in [*(child for child in robot.children if child.tag == "material"), *inline]:
        if material is not None and (color := _color(material)) is not None:
            named.setdefault(material.attributes.get("name", ""), color)
    return named


def _color(material: _Element) -> Color | None:
    """The colour that a <material> itself gives, if it gives one."""
    color = material.child("color")
    if color is None:
        return None
    red, green, blue, alpha = color.numbers("rgba", 4)
    return red, green, blue, alpha


def _visuals(link: _Element, materials: dict[str, Color]) -> tuple[Visual, ...]:
    """Visuals of a link. A material that is defined nowhere gives no colour."""
    visuals = []
    for visual in link.children:
        if visual.tag != "visual":
            continue
        material = visual.child("material")
        color = None
        if material is not None:
            color = _color(material) or materials.get(material.attributes.get("name", ""))
        visuals.append(_visual(visual, color))
    return tuple(visuals)


def _visual(visual: _Element, color: Color | None) -> Visual:
    shape = _geometry(visual)
    if shape is None:
        visual.required("geometry").fail(f"has no shape, expected one of {', '.join(_SIZES)}")
    return Visual(cast("Shape", shape.kind), shape.size, _pose(visual), color, shape.mesh, shape.scale)


class _Geometry(NamedTuple):
    kind: str
    size: tuple[float, ...]
    mesh: str | None
    scale: tuple[float, float, float]


def _geometry(owner: _Element) -> _Geometry | None:
    """The shape of a <visual> or <collision>, if it is a known one."""
    shape = next((child for child in owner.required("geometry").children if child.tag in _SIZES), None)
    if shape is None:
        return None
    size = tuple(x for attribute, count in _SIZES[shape.tag] for x in shape.numbers(attribute, count))
    if min(size, default=0.0) < 0.0:
        shape.fail("has a negative size")
    mesh, scale = None, (1.0, 1.0, 1.0)
    if shape.tag == "mesh":
        mesh = shape.text("filename")
        if "scale" in shape.attributes:
            x, y, z = shape.numbers("scale", 3)
            scale = (x, y, z)
    return _Geometry(shape.tag, size, mesh, scale)


def _collisions(link: _Element) -> tuple[Collision, ...]:
    """Collision shapes of a link."""
    out = []
    for collision in link.children:
        if collision.tag != "collision":
            continue
        shape = _geometry(collision)
        if shape is None:
            fault = f"has no shape that can be read, expected one of {', '.join(_SIZES)}"
        elif min(shape.size[:1] if shape.kind == "capsule" else shape.size, default=1.0) == 0.0:
            fault = f"its {shape.kind} has no volume"
        else:
            out.append(Collision(_shape(shape, _pose(collision)), collision.attributes.get("name") or None))
            continue
        warnings.warn(f"{collision.source}, line {collision.line}: {collision}: {fault}; left out", stacklevel=4)
    return tuple(out)


def _shape(shape: _Geometry, placement: SE3) -> shapes.Shape:
    if shape.kind == "box":
        return Box(shape.size, placement)
    if shape.kind == "mesh":
        return Mesh(shape.mesh, shape.scale, placement)
    radius, *length = shape.size
    if shape.kind == "sphere":
        return Sphere(radius, placement.p)
    return (Cylinder if shape.kind == "cylinder" else Capsule)(radius, length[0], placement)
