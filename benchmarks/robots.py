"""What is measured: robots and chains, each also as a model of Pinocchio, and trees of general joints."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import pinocchio as pin

import torsor as ts
from torsor.demo import pinocchio_model

FINGERS = {"panda_finger_joint1": 0.02, "panda_finger_joint2": 0.02}  # where they are locked


@dataclass(frozen=True)
class Pair:
    """The same mechanism here and in Pinocchio."""

    name: str
    model: ts.Model
    peer: Any  # pinocchio.Model


def robot_directory() -> Path:
    """The robots of the package example-robot-data, as pip or conda installs them."""
    places = [Path(sys.prefix) / "share/example-robot-data/robots"]
    try:
        package = metadata.distribution("example-robot-data")
    except metadata.PackageNotFoundError:
        files = []
    else:
        files = [file for file in package.files or () if "/example-robot-data/robots/" in file.as_posix()]
    for file in files[:1]:
        share = file.as_posix().partition("/example-robot-data/robots/")[0]
        places.insert(0, Path(str(package.locate_file(f"{share}/example-robot-data/robots"))))
    for place in places:
        if place.is_dir():
            return place
    raise FileNotFoundError(f"no robots in {' or '.join(map(str, places))}; pip install example-robot-data")


def load(path: Path | str, **options: Any) -> ts.Model:
    """The model of a file, whose warnings do not matter here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ts.FormatWarning)
        return ts.load_urdf(path, **options)


def robots() -> Iterator[Pair]:
    """Panda with its fingers locked (7 freedoms), HyQ (18, floating) and reduced Talos (38, floating)."""
    directory = robot_directory()
    panda = directory / "panda_description/urdf/panda.urdf"
    whole = pin.buildModelFromUrdf(str(panda))
    q = pin.neutral(whole)
    for finger, position in FINGERS.items():
        q[whole.joints[whole.getJointId(finger)].idx_q] = position
    peer = pin.buildReducedModel(whole, [whole.getJointId(finger) for finger in FINGERS], q)
    yield Pair("panda", load(panda, mimic="ignore").lock(FINGERS), peer)
    for name, file in (
        ("HyQ", directory / "hyq_description/robots/hyq_no_sensors.urdf"),
        ("Talos", directory / "talos_data/robots/talos_reduced.urdf"),
    ):
        peer = pin.buildModelFromUrdf(str(file), pin.JointModelFreeFlyer())
        yield Pair(name, load(file, root=ts.Free()), peer)


def mimicking() -> Iterator[Pair]:
    """Robots with joints that mimic others: panda (9 to 8 freedoms) and TIAGo Pro (33 to 23)."""
    directory = robot_directory()
    for name, path in (
        ("panda", "panda_description/urdf/panda.urdf"),
        ("TIAGo", "tiago_pro_description/robots/tiago_pro.urdf"),
    ):
        file = directory / path
        yield Pair(name, load(file), pin.buildModelFromUrdf(str(file), mimic=True))


def chain_file(links: int) -> str:
    """A URDF of a chain."""
    body = '<inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial></link>'
    place = '<axis xyz="0 1 0"/><origin xyz="0 0 1"/></joint>'
    parts = [f'<robot name="chain"><link name="l0">{body}']
    for k in range(1, links + 1):
        ends = f'<parent link="l{k - 1}"/><child link="l{k}"/>'
        parts.append(f'<link name="l{k}">{body}<joint name="j{k}" type="continuous">{ends}{place}')
    return "".join([*parts, "</robot>"])


def ur5() -> Pair:
    """The UR5 (6 freedoms)."""
    file = robot_directory() / "ur_description/urdf/ur5_robot.urdf"
    return Pair("UR5", load(file), pin.buildModelFromUrdf(str(file)))


def chain(n: int) -> Pair:
    """A chain of n revolute links."""
    model = ts.models.chain(n)
    return Pair(f"chain {n}", model, pinocchio_model(model, pin))


def peer_memory(nv: int) -> float:
    """Bytes of a pinocchio.Data, about: it holds eight arrays of nv^3 numbers, 64 GB for 1000 links."""
    return 64.0 * nv**3


GENERAL: Mapping[str, tuple[ts.Joint, tuple[ts.Joint, ...]]] = {  # and the same freedoms one by one
    "Universal": (ts.Universal(), (ts.Revolute((1, 0, 0)), ts.Revolute((0, 1, 0)))),
    "SphericalEuler": (
        ts.SphericalEuler("ZYX"),
        (ts.Revolute((0, 0, 1)), ts.Revolute((0, 1, 0)), ts.Revolute((1, 0, 0))),
    ),
    "Free2D": (ts.Free2D(), (ts.Prismatic((1, 0, 0)), ts.Prismatic((0, 1, 0)), ts.Revolute((0, 0, 1)))),
}


def joint_tree(joints: Sequence[ts.Joint], links: int) -> ts.Model:
    """A binary tree of links, each on these joints one after the other, with massless bodies between them."""
    builder = ts.ModelBuilder(f"tree of {links} links", gravity=(0.0, -9.81, 0.0))
    inertia = ts.Inertia.box(mass=1.0, size=(0.1, 0.3, 0.08), com=(0.0, -0.15, 0.01))
    for i in range(links):
        parent = f"link{(i - 1) // 2}" if i else "world"
        placement = ts.SE3.translation(0.1, -0.3, 0.05 * (-1) ** i)
        for k, joint in enumerate(joints[:-1]):
            builder.add_body(f"link{i} part{k}", parent, joint, placement)
            parent, placement = f"link{i} part{k}", ts.SE3()
        builder.add_body(f"link{i}", parent, joints[-1], placement, inertia)
    return builder.build()
