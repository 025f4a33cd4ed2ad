"""What is in a link of a URDF: poses, inertia, visuals and collision shapes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from torsor.collision import Collision
from torsor.formats._meshes import MeshFiles
from torsor.formats._xml import Element
from torsor.inertia import Inertia
from torsor.model import Visual
from torsor.shapes import Box, Capsule, Cylinder, Mesh, Sphere
from torsor.spatial import SE3, rpy_matrix

if TYPE_CHECKING:
    from torsor import shapes
    from torsor._typing import Shape

SIZES: dict[str, tuple[tuple[str, int], ...]] = {  # attributes of a shape, and how many numbers are in each
    "box": (("size", 3),),
    "sphere": (("radius", 1),),
    "cylinder": (("radius", 1), ("length", 1)),
    "capsule": (("radius", 1), ("length", 1)),
    "mesh": (),
}
TENSOR = ("ixx", "ixy", "ixz", "iyy", "iyz", "izz")
IDENTITY = SE3()
LARGEST = 1e100  # of lengths and inertias

Color = tuple[float, float, float, float]


# ---- poses -------------------------------------------------------------------------------------------------


def pose(element: Element) -> SE3:
    """Pose given by the <origin> of an element, the identity when it has none."""
    origin = element.child("origin")
    return IDENTITY if origin is None else placed(origin)


def placed(origin: Element) -> SE3:
    """Pose given by the attributes of an element."""
    attributes = origin.attributes
    p = origin.numbers("xyz", 3) if "xyz" in attributes else [0.0, 0.0, 0.0]
    if max(map(abs, p)) > LARGEST:
        origin.fail(f"xyz has numbers beyond {LARGEST:g}, whose products overflow: got {p}")
    if "quat_xyzw" in attributes:
        if "rpy" in attributes:
            origin.fail("has both rpy and quat_xyzw, expected one of them")
        quaternion = origin.numbers("quat_xyzw", 4)
        if not any(quaternion):
            origin.fail("quat_xyzw is zero, expected a unit quaternion")
        return SE3.from_quaternion(quaternion, p)
    rpy = origin.numbers("rpy", 3) if "rpy" in attributes else ()
    if any(rpy):
        return SE3._of(rpy_matrix(*rpy), np.array(p))
    return SE3._of(IDENTITY.R, np.array(p)) if any(p) else IDENTITY


# ---- inertia -----------------------------------------------------------------------------------------------


def inertia(link: Element) -> Inertia:
    """Inertia of a link in the link's frame, physical or not; zero when the file gives none."""
    inertial = link.child("inertial")
    if inertial is None:
        return _MASSLESS
    mass = inertial.required("mass").number("value")
    tensor = inertial.required("inertia")
    xx, xy, xz, yy, yz, zz = (tensor.number(entry) for entry in TENSOR)
    if max(map(abs, (mass, xx, xy, xz, yy, yz, zz))) > LARGEST:
        inertial.fail(f"has numbers beyond {LARGEST:g}, whose products overflow")
    at = pose(inertial)
    I_com = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
    if at.R is not IDENTITY.R:
        I_com = at.R @ I_com @ at.R.T
        I_com = (I_com + I_com.T) / 2.0
    return Inertia._of(mass, at.p if mass else IDENTITY.p, I_com)


_MASSLESS = Inertia.zero()


# ---- shapes ------------------------------------------------------------------------------------------------


def materials(robot: Element) -> dict[str, Color]:
    """Colours of named materials: those defined for the robot, then those defined in passing in a visual."""
    visuals = (child for link in robot.children if link.tag == "link" for child in link.children)
    inline = [visual.child("material") for visual in visuals if visual.tag == "visual"]
    named: dict[str, Color] = {}
    for material in [*(child for child in robot.children if child.tag == "material"), *inline]:
        if material is not None and (color := color_of(material)) is not None:
            named.setdefault(material.attributes.get("name", ""), color)
    return named


def color_of(material: Element) -> Color | None:
    """The colour that a <material> itself gives, if it gives one."""
    color = material.child("color")
    if color is None:
        return None
    red, green, blue, alpha = color.numbers("rgba", 4)
    return red, green, blue, alpha


def visuals(link: Element, colors: dict[str, Color], files: MeshFiles) -> tuple[Visual, ...]:
    """Visuals of a link. A material that is defined nowhere gives no colour."""
    out = []
    for visual in link.children:
        if visual.tag != "visual":
            continue
        material = visual.child("material")
        color = None
        if material is not None:
            color = color_of(material) or colors.get(material.attributes.get("name", ""))
        shape = _geometry(visual)
        if shape is None:
            visual.required("geometry").fail(f"has no shape, expected one of {', '.join(SIZES)}")
        file = None if shape.mesh is None else files.find(shape.mesh)
        out.append(Visual(cast("Shape", shape.kind), shape.size, pose(visual), color, shape.mesh, shape.scale, file))
    return tuple(out)


class _Geometry(NamedTuple):
    kind: str
    size: tuple[float, ...]
    mesh: str | None
    scale: tuple[float, float, float]


def _geometry(owner: Element) -> _Geometry | None:
    """The shape of a <visual> or <collision>, if it is a known one."""
    shape = next((child for child in owner.required("geometry").children if child.tag in SIZES), None)
    if shape is None:
        return None
    size = tuple(x for attribute, count in SIZES[shape.tag] for x in shape.numbers(attribute, count))
    if min(size, default=0.0) < 0.0:
        shape.fail("has a negative size")
    mesh, scale = None, (1.0, 1.0, 1.0)
    if shape.tag == "mesh":
        mesh = shape.text("filename")
        if "scale" in shape.attributes:
            x, y, z = shape.numbers("scale", 3)
            scale = (x, y, z)
    return _Geometry(shape.tag, size, mesh, scale)


def collisions(link: Element, left_out: Callable[[str], object], files: MeshFiles) -> tuple[Collision, ...]:
    """Collision shapes of a link. Those that cannot be carried are reported to `left_out`."""
    out = []
    for collision in link.children:
        if collision.tag != "collision":
            continue
        shape = _geometry(collision)
        if shape is None:
            fault = f"has no shape that can be read, expected one of {', '.join(SIZES)}"
        elif min(shape.size[:1] if shape.kind == "capsule" else shape.size, default=1.0) == 0.0:
            fault = f"its {shape.kind} has no volume"
        else:
            out.append(Collision(_shape(shape, pose(collision), files), collision.attributes.get("name") or None))
            continue
        left_out(f"line {collision.line}: {collision}: {fault}; left out")
    return tuple(out)


def _shape(shape: _Geometry, placement: SE3, files: MeshFiles) -> shapes.Shape:
    if shape.kind == "box":
        return Box(shape.size, placement)
    if shape.mesh is not None:
        return Mesh(shape.mesh, shape.scale, placement, file=files.find(shape.mesh))
    radius, *length = shape.size
    if shape.kind == "sphere":
        return Sphere(radius, placement.p)
    return (Cylinder if shape.kind == "cylinder" else Capsule)(radius, length[0], placement)
