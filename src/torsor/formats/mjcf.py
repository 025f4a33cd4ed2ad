"""MJCF files, read and compiled by the `mujoco` package."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from torsor._errors import FormatError, ModelError
from torsor.collision import Collision, CollisionPair, CollisionRules
from torsor.constraints.constraint import Constraint, compile_constraints
from torsor.constraints.couplings import Coupling, Gear, PolynomialCoupling, PrescribedJoint
from torsor.constraints.pairs import Loop
from torsor.formats._source import Source, text_or_path
from torsor.inertia import Inertia
from torsor.joints import Composite, Fixed, Free, Joint, Prismatic, Revolute, Spherical
from torsor.model import Model, ModelBuilder, Visual
from torsor.shapes import Box, Capsule, Cylinder, Ellipsoid, HalfSpace, HeightField, Mesh, Sphere
from torsor.spatial import SE3

if TYPE_CHECKING:
    import mujoco

    from torsor import shapes
    from torsor._typing import ConstrainOrIgnore, RefuseOrAccept, RefuseOrIgnore, Shape
    from torsor.constraints.couplings import Coordinate

_DEFAULT_RGBA = np.array([0.5, 0.5, 0.5, 1.0], np.float32)  # of geoms; only then does the material's show


def load_mjcf(
    path_or_text: Source | mujoco.MjModel,
    *,
    armature: RefuseOrIgnore = "refuse",
    equality: ConstrainOrIgnore = "constrain",
    unphysical: RefuseOrAccept = "refuse",
    gravity: ArrayLike | None = None,
    name: str | None = None,
) -> Model:
    """Loads a model from an MJCF file, from MJCF text, or from a compiled `mujoco.MjModel`.

    Needs the `mujoco` package: `pip install torsor[mjcf]`.

    Every MuJoCo body becomes a body of the same name and the same frame, in the same order (`'body3'` when
    the third has no name). `q` and `v` have the layout of `qpos` and `qvel`, `ref` included, up to the order
    of quaternions and the frames of free joints, which `torsor.interop` converts.

    ============== ====================================================================================
    MuJoCo         becomes
    ============== ====================================================================================
    no joint       `Fixed()`
    hinge          `Revolute(axis)`, with its range
    slide          `Prismatic(axis)`, with its range
    ball           `Spherical()`; its range, of one angle, is dropped
    free           `Free()`
    several joints `Composite(...)` of these, named as the body
    ============== ====================================================================================

    A hinge or ball that is not at the origin of its body (`pos`) has a separate massless body
    (`'thigh/joint'`), to which the MuJoCo body is fixed; and so has each of several joints of one body that
    are at different places, or have a `ref` that rotates the next.

    Active equality constraints become the constraints of the model, with their names (`Model.constraints`), which
    `simulate` imposes. They are rigid here: `solref` and `solimp` are not used.

    ============== ====================================================================================
    equality       becomes
    ============== ====================================================================================
    connect        `Loop` by a `Spherical` joint
    weld           `Loop` by a `Fixed` joint; with `torquescale` 0, by a `Spherical` one. Other torque
                   scales change the units of MuJoCo's residuals alone
    joint          `Gear`; `PrescribedJoint` without a second joint; `PolynomialCoupling` if `polycoef`
                   has powers above the first
    ============== ====================================================================================

    Geoms are kept as visuals, except planes, height fields, meshes without a file, and what belongs to the
    world; meshes keep their scale and pose, but not `refpos` and `refquat`, and the path where MuJoCo found
    them. Forces are not part of a model and are ignored: actuators, springs, damping, gravity compensation,
    fluids, tendons. So is armature, the inertia of joints: see below.

    What `contacts` and `JointFriction` need is kept: geoms that may touch others (`Body.collisions`,
    `Model.world_collisions`), with their filters and softness; `<exclude>`, `<pair>` and the flag `filterparent`
    (`Model.collision_rules`); and `frictionloss` of joints (`Body.dry_friction`). Planes become half-spaces, meshes
    their convex hulls. Nothing is kept if the file disables contact; signed distance fields and flexes never are.

    Parameters
    ----------
    path_or_text : str, bytes, path-like or mujoco.MjModel
        Path of a file; or the text: bytes, or a string that starts with `<`; or a compiled model.
    armature : {'refuse', 'ignore'}
        Whether to refuse files in which joints, tendons or actuators have armature, or to ignore armature.
    equality : {'constrain', 'ignore'}
        Whether equality constraints become constraints of the model, or are ignored: the tree alone. Those of tendons
        and flexes, which a model does not have, are refused in the first case.
    unphysical : {'refuse', 'accept'}
        Whether to refuse files with unphysical inertias, or to load them as they are.
    gravity : (3,) array_like, optional
        Acceleration of gravity in the world frame; that of the file by default.
    name : str, optional
        Name of the model; that in the file by default.

    Returns
    -------
    Model

    Raises
    ------
    FormatError
        If MuJoCo rejects the file, or it has something to be refused.
    FileNotFoundError
        If there is no file at the path.
    ImportError
        If `mujoco` is not installed.

    Examples
    --------
    >>> import torsor as ts
    >>> model = ts.load_mjcf('''<mujoco><worldbody><body name="ball">
    ...     <freejoint/><geom size="0.1"/></body></worldbody></mujoco>''')
    >>> model.nq, model.nv
    (7, 6)
    """
    if armature not in ("refuse", "ignore"):
        raise ValueError(f"armature must be 'refuse' or 'ignore', got {armature!r}")
    if equality not in ("constrain", "ignore"):
        raise ValueError(f"equality must be 'constrain' or 'ignore', got {equality!r}")
    if unphysical not in ("refuse", "accept"):
        raise ValueError(f"unphysical must be 'refuse' or 'accept', got {unphysical!r}")
    mj = _compile(path_or_text)
    if armature == "refuse":
        _refuse_armature(mj)
    if gravity is None:
        weightless = mj.opt.disableflags & _mujoco().mjtDisableBit.mjDSBL_GRAVITY
        gravity = np.zeros(3) if weightless else mj.opt.gravity
    if name is None:
        name = bytes(mj.names).split(b"\0", 1)[0].decode()
    builder = ModelBuilder(name, gravity)
    names = _Names(mj)
    try:
        for body in range(1, mj.nbody):
            _add_body(builder, mj, names, body, unphysical == "accept")
        for collision in _collisions(mj, names, 0):
            builder.add_world_collision(collision)
        model = replace(builder.build(), collision_rules=_rules(mj, names))
        return _close(model, mj, names) if equality == "constrain" else model
    except FormatError:
        raise
    except ValueError as error:
        raise FormatError(f"MJCF model {name!r}: {error}") from error


def _mujoco() -> Any:
    try:
        import mujoco
    except ImportError as error:
        raise ImportError("load_mjcf needs the package 'mujoco': pip install torsor[mjcf]") from error
    return mujoco


def _compile(path_or_text: Source | mujoco.MjModel) -> mujoco.MjModel:
    """Reads the file with MuJoCo, whose messages become Python warnings."""
    mujoco = _mujoco()
    if isinstance(path_or_text, mujoco.MjModel):
        return path_or_text
    found = text_or_path(path_or_text, "MJCF")
    source = repr(str(found)) if isinstance(found, Path) else "MJCF text"
    notes: list[str] = []
    handler = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(notes.append)
    try:
        if isinstance(found, Path):
            mj = mujoco.MjModel.from_xml_path(str(found))
        else:
            mj = mujoco.MjModel.from_xml_string(found if isinstance(found, str) else found.decode("utf-8-sig"))
    except (ValueError, mujoco.FatalError) as error:
        reasons = " ".join(" ".join([*notes, str(error)]).split())
        raise FormatError(f"MuJoCo refuses {source}: {reasons}") from error
    finally:
        mujoco.set_mju_user_warning(handler)
    for note in notes:
        if "NaN" in note:
            raise FormatError(f"{source}: {note}")
        warnings.warn(f"MuJoCo on {source}: {note}", stacklevel=3)
    return mj


def _refuse_armature(mj: mujoco.MjModel) -> None:
    mujoco = _mujoco()
    armatures = {  # tendons and actuators of older versions have none
        "joint": (mj.dof_armature, mujoco.mjtObj.mjOBJ_JOINT),
        "tendon": (getattr(mj, "tendon_armature", ()), mujoco.mjtObj.mjOBJ_TENDON),
        "actuator": (getattr(mj, "actuator_armature", ()), mujoco.mjtObj.mjOBJ_ACTUATOR),
    }
    for kind, (values, objects) in armatures.items():
        if np.any(values):
            first = int(np.flatnonzero(values)[0])
            index = int(mj.dof_jntid[first]) if kind == "joint" else first
            name = mujoco.mj_id2name(mj, objects, index)
            label = f"{kind} {index if name is None else repr(name)}"
            raise FormatError(
                f"{label} has armature {values[first]:g}, inertia that a model does not hold; "
                "pass armature='ignore' to leave it out"
            )


class _Names:
    """Names of bodies and joints: those of the file, and new ones where it has none."""

    def __init__(self, mj: mujoco.MjModel) -> None:
        mujoco = _mujoco()
        bodies = [mujoco.mj_id2name(mj, mujoco.mjtObj.mjOBJ_BODY, i) for i in range(mj.nbody)]
        self.joints: list[str | None] = [mujoco.mj_id2name(mj, mujoco.mjtObj.mjOBJ_JOINT, i) for i in range(mj.njnt)]
        self._used = {name for name in [*bodies, *self.joints] if name}
        self.bodies = [name or self.new(f"body{i}") for i, name in enumerate(bodies)]
        self.geoms: list[str | None] = [mujoco.mj_id2name(mj, mujoco.mjtObj.mjOBJ_GEOM, i) for i in range(mj.ngeom)]
        self.coordinates: dict[int, Coordinate] = {}  # of MuJoCo's joints in the model

    def joint(self, segment: _Segment | None, body: str) -> str | None:
        """Name of the joint of a body: that of the file, or None for the name of the body, if that is free."""
        if segment is not None and len(segment.members) == 1 and (own := self.joints[segment.members[0]]):
            return own
        return self.new(f"{body}/joint") if body in self.joints else None

    def place(self, segment: _Segment, joint: str) -> None:
        """Notes where the coordinates of the joints of a segment are: in a joint of the model."""
        k = 0
        for member, part in zip(segment.members, segment.joints, strict=True):
            self.coordinates[member] = joint if len(segment.joints) == 1 else (joint, k)
            k += part.nq

    def new(self, name: str) -> str:
        """The name, with a number after it if it is taken."""
        number, free = 1, name
        while free in self._used:
            number += 1
            free = f"{name}{number}"
        self._used.add(free)
        return free


def _pose(p: NDArray[np.float64], wxyz: NDArray[np.float64]) -> SE3:
    return SE3.from_quaternion(np.roll(wxyz, -1), p)


@dataclass
class _Segment:
    """Joints of a MuJoCo body without bodies between them, which become one joint."""

    placement: SE3
    joints: list[Joint]
    members: list[int]  # their numbers in MuJoCo


def _segments(mj: mujoco.MjModel, body: int) -> tuple[list[_Segment], SE3]:
    """Divide the joints of a body into segments; also the body's pose in the frame of the last one.

    MuJoCo moves a body by one joint after another, each in the frame where the last one left it. A joint with
    axis a, place p and reference r is, with Tr for translation and Rot for rotation,

        hinge: Tr(p) Rot(a, q - r) Tr(-p),    slide: Tr(a (q - r)),    ball: Tr(p) Rot(q) Tr(-p).
    """
    kinds = _mujoco().mjtJoint
    segments: list[_Segment] = []
    after = _pose(mj.body_pos[body], mj.body_quat[body])
    for j in range(mj.body_jntadr[body], mj.body_jntadr[body] + mj.body_jntnum[body]):
        kind, axis, p = kinds(mj.jnt_type[j]), mj.jnt_axis[j], mj.jnt_pos[j]
        ref = float(mj.qpos0[mj.jnt_qposadr[j]])
        before, behind = SE3.translation(p), SE3.translation(-p)
        joint: Joint
        if kind == kinds.mjJNT_FREE:  # the only joint of its body; its pose is in the world
            return [_Segment(SE3(), [Free()], [j])], SE3()
        if kind == kinds.mjJNT_SLIDE:
            joint, before, behind = Prismatic(axis), SE3.translation(-ref * axis), SE3()
        elif kind == kinds.mjJNT_HINGE:
            joint, before = Revolute(axis), before @ SE3.rotation(axis, -ref)
        else:
            joint = Spherical()
        gap = after @ before
        if segments and np.array_equal(gap.R, np.eye(3)):
            last = segments[-1]
            if kind == kinds.mjJNT_SLIDE:  # slides and translations commute
                behind, gap = gap, SE3()
            elif all(isinstance(other, Prismatic) for other in last.joints):
                last.placement, gap = last.placement @ gap, SE3()
        if segments and gap == SE3():
            segments[-1].joints.append(joint)
            segments[-1].members.append(j)
        else:
            segments.append(_Segment(gap, [joint], [j]))
        after = behind
    return segments, after


def _add_body(builder: ModelBuilder, mj: mujoco.MjModel, names: _Names, body: int, accept: bool) -> None:
    """Adds one MuJoCo body, with massless bodies for joints that are not at its origin."""
    name = names.bodies[body]
    parent = names.bodies[mj.body_parentid[body]]
    segments, end = _segments(mj, body)
    own = segments.pop() if segments and end == SE3() else None
    for segment in segments:
        carrier = names.new(f"{name}/joint")
        joint_name = names.joint(segment, carrier)
        names.place(segment, joint_name or carrier)
        builder.add_body(
            carrier,
            parent,
            _joint(segment),
            segment.placement,
            joint_name=joint_name,
            position_limits=_limits(mj, segment),
            dry_friction=_dry_friction(mj, segment),
        )
        parent = carrier
    try:
        R = _pose(mj.body_ipos[body], mj.body_iquat[body]).R
        I_com = R @ np.diag(mj.body_inertia[body]) @ R.T
        I_com = (I_com + I_com.T) / 2.0
        inertia = Inertia(mj.body_mass[body], mj.body_ipos[body], I_com, allow_unphysical=accept)
    except ModelError as error:
        fault = str(error).partition(";")[0]
        raise FormatError(f"body {name!r}: {fault}; pass unphysical='accept' to load it as it is") from error
    joint_name = names.joint(own, name)
    if own is not None:
        names.place(own, joint_name or name)
    builder.add_body(
        name,
        parent,
        Fixed() if own is None else _joint(own),
        end if own is None else own.placement,
        inertia,
        joint_name=joint_name,
        position_limits=None if own is None else _limits(mj, own),
        dry_friction=None if own is None else _dry_friction(mj, own),
        visuals=_visuals(mj, body),
        collisions=_collisions(mj, names, body),
    )


def _joint(segment: _Segment) -> Joint:
    return segment.joints[0] if len(segment.joints) == 1 else Composite(*segment.joints)


def _close(model: Model, mj: mujoco.MjModel, names: _Names) -> Model:
    """The model with the active equality constraints of the file."""
    mujoco = _mujoco()
    made: list[Constraint] = []
    for i in range(mj.neq):
        if not mj.eq_active0[i]:
            continue
        name = mujoco.mj_id2name(mj, mujoco.mjtObj.mjOBJ_EQUALITY, i) or None
        label = f"equality {i if name is None else repr(name)}"
        try:
            constraint = _equality(mj, names, i, name, label)
            compile_constraints(model, [constraint])
        except FormatError:
            raise
        except (KeyError, ValueError) as error:
            raise FormatError(f"{label}: {error}; pass equality='ignore' to load the tree alone") from error
        made.append(constraint)
    return model.with_constraints(made)


def _equality(mj: mujoco.MjModel, names: _Names, i: int, name: str | None, label: str) -> Constraint:
    """One equality constraint, whose residuals are zero where those of MuJoCo are."""
    kinds, data = _mujoco().mjtEq, mj.eq_data[i]
    kind = kinds(mj.eq_type[i])
    ends = int(mj.eq_obj1id[i]), int(mj.eq_obj2id[i])
    if kind == kinds.mjEQ_JOINT:
        return _coupling(mj, names, *ends, data[:5], name)
    if kind not in (kinds.mjEQ_CONNECT, kinds.mjEQ_WELD):
        what = "tendons" if kind == kinds.mjEQ_TENDON else "flexes or distances"
        raise FormatError(
            f"{label} is of {what}, which a model does not have; pass equality='ignore' to load the tree alone"
        )
    connects = kind == kinds.mjEQ_CONNECT or data[10] == 0.0
    if mj.eq_objtype[i] == int(_mujoco().mjtObj.mjOBJ_SITE):
        bodies = [int(mj.site_bodyid[site]) for site in ends]
        placements = [_pose(mj.site_pos[site], mj.site_quat[site]) for site in ends]
    else:
        bodies = list(ends)
        if kind == kinds.mjEQ_CONNECT:  # anchors in both bodies
            placements = [SE3.translation(data[:3]), SE3.translation(data[3:6])]
        else:  # the anchor in the second body, and its pose in the first
            placements = [_pose(data[3:6], data[6:10]), SE3.translation(data[:3])]
    a, b = (names.bodies[body] for body in bodies)
    return Loop(a, b, Spherical() if connects else Fixed(), *placements, name=name)


def _coupling(
    mj: mujoco.MjModel, names: _Names, driven: int, driver: int, c: NDArray[np.float64], name: str | None
) -> Constraint:
    """y - y0 = c0 + c1 (x - x0) + ... + c4 (x - x0)^4, with x0 and y0 the values at the reference."""
    y, y0 = names.coordinates[driven], float(mj.qpos0[mj.jnt_qposadr[driven]])
    if driver < 0 or not c[1:].any():
        if isinstance(y, str):
            return PrescribedJoint(y, y0 + c[0], name=name)
        return Coupling([y], [1.0], offset=y0 + c[0], name=name)
    x, x0 = names.coordinates[driver], float(mj.qpos0[mj.jnt_qposadr[driver]])
    if c[2:].any():
        return PolynomialCoupling(x, y, [y0 + c[0], *c[1:]], center=x0, name=name)
    return Gear(x, y, c[1], offset=y0 + c[0] - c[1] * x0, name=name)


def _limits(mj: mujoco.MjModel, segment: _Segment) -> tuple[list[float], list[float]]:
    """Lower and upper limits of all coordinates of a segment."""
    lower, upper = [], []
    for j, joint in zip(segment.members, segment.joints, strict=True):
        limited = joint.nq == 1 and mj.jnt_limited[j]
        low, high = mj.jnt_range[j] if limited else (-np.inf, np.inf)
        lower += [float(low)] * joint.nq
        upper += [float(high)] * joint.nq
    return lower, upper


def _dry_friction(mj: mujoco.MjModel, segment: _Segment) -> list[float]:
    """Friction loss of all velocities of a segment."""
    firsts = ((int(mj.jnt_dofadr[j]), joint.nv) for j, joint in zip(segment.members, segment.joints, strict=True))
    return [float(x) for first, count in firsts for x in mj.dof_frictionloss[first : first + count]]


def _visuals(mj: mujoco.MjModel, body: int) -> tuple[Visual, ...]:
    """Geoms of a body. MuJoCo has half sizes and half lengths; visuals have whole ones."""
    kinds = _mujoco().mjtGeom
    visuals = []
    for geom in range(mj.body_geomadr[body], mj.body_geomadr[body] + mj.body_geomnum[body]):
        kind, (x, y, z) = kinds(mj.geom_type[geom]), mj.geom_size[geom].tolist()
        placement = _pose(mj.geom_pos[geom], mj.geom_quat[geom])
        mesh, scale = None, (1.0, 1.0, 1.0)
        shape: Shape
        size: tuple[float, ...] = ()
        if kind == kinds.mjGEOM_BOX:
            shape, size = "box", (2.0 * x, 2.0 * y, 2.0 * z)
        elif kind == kinds.mjGEOM_SPHERE:
            shape, size = "sphere", (x,)
        elif kind == kinds.mjGEOM_CYLINDER:
            shape, size = "cylinder", (x, 2.0 * y)
        elif kind == kinds.mjGEOM_CAPSULE:
            shape, size = "capsule", (x, 2.0 * y)
        elif kind == kinds.mjGEOM_ELLIPSOID:
            shape, size = "ellipsoid", (x, y, z)
        elif kind in (kinds.mjGEOM_MESH, kinds.mjGEOM_SDF):
            shape, asset = "mesh", mj.geom_dataid[geom]
            if mj.mesh_pathadr[asset] < 0:  # given by its vertices: there is no file to draw
                continue
            mesh = bytes(mj.paths)[mj.mesh_pathadr[asset] :].split(b"\0", 1)[0].decode()
            scale = tuple(mj.mesh_scale[asset].tolist())
            # MuJoCo centres meshes and turns them to their principal axes; back to the file's frame
            placement = placement @ _pose(mj.mesh_pos[asset], mj.mesh_quat[asset]).inverse()
        else:
            continue
        color = mj.geom_rgba[geom]
        if mj.geom_matid[geom] >= 0 and np.array_equal(color, _DEFAULT_RGBA):
            color = mj.mat_rgba[mj.geom_matid[geom]]
        red, green, blue, alpha = color.tolist()
        visuals.append(Visual(shape, size, placement, (red, green, blue, alpha), mesh, scale))
    return tuple(visuals)


# ---- collision


def _collisions(mj: mujoco.MjModel, names: _Names, body: int) -> tuple[Collision, ...]:
    """Geoms of a body that may touch others."""
    if mj.opt.disableflags & _mujoco().mjtDisableBit.mjDSBL_CONTACT:
        return ()
    paired = {*mj.pair_geom1.tolist(), *mj.pair_geom2.tolist()}
    out = []
    for geom in range(mj.body_geomadr[body], mj.body_geomadr[body] + mj.body_geomnum[body]):
        contype, conaffinity = int(mj.geom_contype[geom]), int(mj.geom_conaffinity[geom])
        if not (contype or conaffinity or geom in paired) or (shape := _shape(mj, geom)) is None:
            continue
        out.append(
            Collision(
                shape,
                names.geoms[geom],
                friction=float(mj.geom_friction[geom, 0]),
                contype=contype,
                conaffinity=conaffinity,
                priority=int(mj.geom_priority[geom]),
                condim=int(mj.geom_condim[geom]),
                solref=tuple(mj.geom_solref[geom].tolist()),
                solimp=tuple(mj.geom_solimp[geom].tolist()),
                solmix=float(mj.geom_solmix[geom]),
                margin=float(mj.geom_margin[geom]),
                gap=float(mj.geom_gap[geom]),
            )
        )
    return tuple(out)


def _rules(mj: mujoco.MjModel, names: _Names) -> CollisionRules:
    """The section <contact> of the file, and the flag that parents and children touch."""
    flags = _mujoco().mjtDisableBit
    if mj.opt.disableflags & flags.mjDSBL_CONTACT:
        return CollisionRules("filter_moving")
    exclude = [(names.bodies[int(s) >> 16], names.bodies[int(s) & 0xFFFF]) for s in mj.exclude_signature]
    pairs = []
    for i in range(mj.npair):
        geoms = [int(ends[i]) for ends in (mj.pair_geom1, mj.pair_geom2)]
        if any(_shape(mj, geom) is None for geom in geoms):
            continue
        first, second = (names.geoms[geom] for geom in geoms)
        pairs.append(
            CollisionPair(
                first or "",
                second or "",
                friction=float(mj.pair_friction[i, 0]),
                condim=int(mj.pair_dim[i]),
                solref=tuple(mj.pair_solref[i].tolist()),
                solimp=tuple(mj.pair_solimp[i].tolist()),
                margin=float(mj.pair_margin[i]),
                gap=float(mj.pair_gap[i]),
            )
        )
    allow = mj.opt.disableflags & flags.mjDSBL_FILTERPARENT
    return CollisionRules("allow" if allow else "filter_moving", tuple(exclude), tuple(pairs))


def _shape(mj: mujoco.MjModel, geom: int) -> shapes.Shape | None:
    """The shape of a geom. MuJoCo has half sizes and half lengths; shapes have whole ones."""
    kinds = _mujoco().mjtGeom
    kind, (x, y, z) = kinds(mj.geom_type[geom]), mj.geom_size[geom].tolist()
    placement = _pose(mj.geom_pos[geom], mj.geom_quat[geom])
    asset = int(mj.geom_dataid[geom])
    if kind == kinds.mjGEOM_PLANE:
        normal = placement.R[:, 2]
        return HalfSpace(normal, float(normal @ placement.p))
    if kind == kinds.mjGEOM_SPHERE:
        return Sphere(x, placement.p)
    if kind == kinds.mjGEOM_CAPSULE:
        return Capsule(x, 2.0 * y, placement)
    if kind == kinds.mjGEOM_CYLINDER:
        return Cylinder(x, 2.0 * y, placement)
    if kind == kinds.mjGEOM_BOX:
        return Box((2.0 * x, 2.0 * y, 2.0 * z), placement)
    if kind == kinds.mjGEOM_ELLIPSOID:
        return Ellipsoid((x, y, z), placement)
    if kind == kinds.mjGEOM_HFIELD:
        size, first = mj.hfield_size[asset].tolist(), int(mj.hfield_adr[asset])
        rows, columns = int(mj.hfield_nrow[asset]), int(mj.hfield_ncol[asset])
        heights = size[2] * mj.hfield_data[first : first + rows * columns].reshape(rows, columns).astype(np.float64)
        return HeightField(heights, (2.0 * size[0], 2.0 * size[1]), size[3], placement)
    if kind == kinds.mjGEOM_MESH:
        path = None
        if mj.mesh_pathadr[asset] >= 0:
            path = bytes(mj.paths)[mj.mesh_pathadr[asset] :].split(b"\0", 1)[0].decode()
        return Mesh(path, mj.mesh_scale[asset], placement, *_hull(mj, asset))
    return None


def _hull(mj: mujoco.MjModel, mesh: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Vertices and triangles of the convex hull of a mesh, or all of them if MuJoCo has made none."""
    first, count = int(mj.mesh_vertadr[mesh]), int(mj.mesh_vertnum[mesh])
    vertices = mj.mesh_vert[first : first + count].astype(np.float64)
    at = int(mj.mesh_graphadr[mesh])
    if at < 0:
        first, count = int(mj.mesh_faceadr[mesh]), int(mj.mesh_facenum[mesh])
        return vertices, mj.mesh_face[first : first + count].astype(np.int64)
    # the graph: numbers of vertices and triangles, where the edges of each vertex begin, which vertices of the mesh
    # they are, the edges, and the triangles by vertices of the mesh
    graph = mj.mesh_graph[at:]
    points, triangles = int(graph[0]), int(graph[1])
    used = graph[2 + points : 2 + 2 * points]
    faces = graph[2 + 2 * points + points + 3 * triangles :][: 3 * triangles]
    number = np.zeros(count, np.int64)
    number[used] = np.arange(points)
    return vertices[used], number[faces].reshape(triangles, 3)
