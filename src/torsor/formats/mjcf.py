"""MJCF files, read and compiled by the `mujoco` package."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from torsor._errors import FormatError, FormatWarning, ModelError
from torsor.formats._mjcf_drives import (
    actuators_of,
    closed,
    is_compensated,
    is_disabled,
    keyframes_of,
    range_of,
    reflected,
    tendons_of,
)
from torsor.formats._mjcf_geoms import collisions_of, rules_of, visuals_of
from torsor.formats._mjcf_left_out import left_out
from torsor.formats._mjcf_names import Names, mujoco_package, pose_of
from torsor.formats._source import Source, text_or_path
from torsor.inertia import Inertia
from torsor.joints import Fixed, Free, Joint, Prismatic, Revolute, Spherical
from torsor.model import Model, ModelBuilder
from torsor.spatial import SE3

if TYPE_CHECKING:
    import mujoco

    from torsor._typing import ConstrainOrCoupleOrIgnore, RefuseOrAccept, RefuseOrWarn


def load_mjcf(
    path_or_text: Source | mujoco.MjModel,
    *,
    unsupported: RefuseOrWarn = "refuse",
    equality: ConstrainOrCoupleOrIgnore = "constrain",
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
    ball           `Spherical()`
    free           `Free()`
    several joints one massless body (`'thigh/joint'`) for each but the last, so that each joint has its
                   name: `model.joint("hip_x")`
    ============== ====================================================================================

    A hinge or ball that is not at the origin of its body (`pos`), or has a `ref` that rotates the next, also has a
    massless body of its own, to which the MuJoCo body is fixed.

    What else a file has becomes what the library has for it: `forces_from(model)` makes forces of it, and `actuation`
    or `ActuatorForce` apply controls (docs/mjcf.md has the whole table).

    ========================================== ========================================================
    in the file                                becomes
    ========================================== ========================================================
    armature of joints                         `Body.armature`, part of the mass matrix
    stiffness, springref, damping              `Body.stiffness`, `rest`, `damping`
    frictionloss, range, actuatorfrcrange      `Body.dry_friction`, `position_limits`, `effort_limits`
    gravcomp                                   `Body.gravity_compensation`
    fixed tendons; spatial ones through sites  `Model.tendons`
    motors, servos, general actuators          `Model.actuators`
    keyframes                                  `Model.keyframes`
    sites and cameras with names               frames, `Model.frames`
    equality connect, weld                     `Loop` in `Model.constraints`
    equality joint                             `Gear`, `PrescribedJoint` or `PolynomialCoupling`; or couplings
    equality tendon of fixed tendons           `Coupling`
    geoms                                      visuals; collision shapes and rules for `contacts`
    ========================================== ========================================================

    Constraints are rigid here: `solref` and `solimp` of equalities and limits are not used. Geoms of
    the groups 0 to 2, which MuJoCo shows by default, are kept as visuals, except planes, height fields, meshes without
    a file, and what belongs to the world; meshes keep their scale and pose, but not `refpos` and `refquat`, and the
    path where MuJoCo found them. Collision shapes are those of geoms that
    may touch others; planes become half-spaces, meshes their convex hulls. Nothing is kept of contact if the file
    disables it. Likewise flags that disable springs, dampers, friction, limits, equalities and actuation are obeyed.

    What changes the mechanism and has no counterpart is refused, all of it in one message, or left out with one
    warning (`unsupported`): armature of free joints and tendons, ranges of balls, tendons around geoms and over
    pulleys, actuators with states of their own, muscles, equalities of flexes and of spatial tendons, fluids, flexes,
    plugins, mocap bodies. Sensors, lights, and how MuJoCo solves and draws are not part of a mechanism.

    Parameters
    ----------
    path_or_text : str, bytes, path-like or mujoco.MjModel
        Path of a file; or the text: bytes, or a string that starts with `<`; or a compiled model.
    unsupported : {'refuse', 'warn'}
        Whether to refuse files with something that a model cannot hold, or to leave it out with a warning.
    equality : {'constrain', 'couple', 'ignore'}
        Whether equality constraints become constraints of the model, or are ignored: the tree alone. With 'couple',
        those of two joints become couplings (`Model.couple`, with `Mimic` and `Polynomial`), the others constraints:
        `joint1` is a function of `joint2` and has no coordinate. The default keeps the layout of qpos and qvel, and
        files with loops as well can be simulated.
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
    if unsupported not in ("refuse", "warn"):
        raise ValueError(f"unsupported must be 'refuse' or 'warn', got {unsupported!r}")
    if equality not in ("constrain", "couple", "ignore"):
        raise ValueError(f"equality must be 'constrain', 'couple' or 'ignore', got {equality!r}")
    if unphysical not in ("refuse", "accept"):
        raise ValueError(f"unphysical must be 'refuse' or 'accept', got {unphysical!r}")
    mj = compile_mjcf(path_or_text)
    names = Names(mj)
    _report(mj, names, unsupported == "warn", equality != "ignore")
    if gravity is None:
        gravity = np.zeros(3) if is_disabled(mj, "GRAVITY") else mj.opt.gravity
    if name is None:
        name = bytes(mj.names).split(b"\0", 1)[0].decode()
    builder = ModelBuilder(name, gravity)
    try:
        joints = _JointNumbers(mj)
        for body in range(1, mj.nbody):
            _add_body(builder, mj, names, joints, body, unphysical == "accept")
        for collision in collisions_of(mj, names, 0):
            builder.add_world_collision(collision)
        _add_frames(builder, mj, names)
        model = replace(builder.build(), collision_rules=rules_of(mj, names))
        model = model.with_actuators(actuators_of(mj, names), tendons_of(mj, names))
        model = replace(model, keyframes=keyframes_of(mj, names, model))
        return model if equality == "ignore" else closed(model, mj, names, couple=equality == "couple")
    except FormatError:
        raise
    except ValueError as error:
        raise FormatError(f"MJCF model {name!r}: {error}") from error


def _report(mj: mujoco.MjModel, names: Names, warn: bool, equality: bool) -> None:
    """Refuses what a model cannot hold, or warns of it."""
    lines = [*left_out(mj, names, equality)]
    if not lines:
        return
    what = "; ".join(lines)
    if not warn:
        raise FormatError(f"the file has what a model cannot hold: {what}; pass unsupported='warn' to load it without")
    warnings.warn(f"left out of the model: {what}", FormatWarning, stacklevel=3)


def compile_mjcf(path_or_text: Source | mujoco.MjModel) -> mujoco.MjModel:
    """Reads the file with MuJoCo, whose messages become Python warnings."""
    mujoco = mujoco_package()
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


@dataclass
class _Step:
    """A joint of a MuJoCo body, and its place in the frame where the joint before has left the body."""

    placement: SE3
    joint: Joint
    member: int  # its number in MuJoCo


def _steps(mj: mujoco.MjModel, body: int) -> tuple[list[_Step], SE3]:
    """The joints of a body one after another; also the body's pose in the frame of the last one.

    MuJoCo moves a body by one joint after another, each in the frame where the last one left it. A joint with
    axis a, place p and reference r is, with Tr for translation and Rot for rotation,

        hinge: Tr(p) Rot(a, q - r) Tr(-p),    slide: Tr(a (q - r)),    ball: Tr(p) Rot(q) Tr(-p).
    """
    kinds = mujoco_package().mjtJoint
    steps: list[_Step] = []
    after = pose_of(mj.body_pos[body], mj.body_quat[body])
    for j in range(mj.body_jntadr[body], mj.body_jntadr[body] + mj.body_jntnum[body]):
        kind, axis, p = kinds(mj.jnt_type[j]), mj.jnt_axis[j], mj.jnt_pos[j]
        ref = float(mj.qpos0[mj.jnt_qposadr[j]])
        before, behind = SE3.translation(p), SE3.translation(-p)
        joint: Joint
        if kind == kinds.mjJNT_FREE:  # the only joint of its body; its pose is in the world
            return [_Step(SE3(), Free(), j)], SE3()
        if kind == kinds.mjJNT_SLIDE:
            joint, before, behind = Prismatic(axis), SE3.translation(-ref * axis), SE3()
        elif kind == kinds.mjJNT_HINGE:
            joint, before = Revolute(axis), before @ SE3.rotation(axis, -ref)
        else:
            joint = Spherical()
        steps.append(_Step(after @ before, joint, j))
        after = behind
    return steps, after


class _JointNumbers:
    """Limits, springs, dampers, friction and armature of joints, as arguments of `add_body`."""

    def __init__(self, mj: mujoco.MjModel) -> None:
        self.mj = mj
        self.stiffness = 0.0 * mj.jnt_stiffness if is_disabled(mj, "SPRING") else mj.jnt_stiffness
        self.damping = mj.dof_damping + reflected(mj, "damping")
        if is_disabled(mj, "DAMPER"):
            self.damping = 0.0 * self.damping
        self.friction = mj.dof_frictionloss
        if is_disabled(mj, "FRICTIONLOSS", "CONSTRAINT"):
            self.friction = 0.0 * self.friction
        self.armature = mj.dof_armature + reflected(mj, "armature")

    def of(self, step: _Step) -> dict[str, Any]:
        """Those of one joint."""
        mj, j, joint = self.mj, step.member, step.joint
        v = slice(int(mj.jnt_dofadr[j]), int(mj.jnt_dofadr[j]) + joint.nv)
        rest = mj.qpos_spring[int(mj.jnt_qposadr[j]) :][: joint.nq].copy()
        if joint.nq > joint.nv:
            rest[-4:] = np.roll(rest[-4:], -1)
        low, high = range_of(mj, "jnt", j) if joint.nq == 1 else (-np.inf, np.inf)
        effort = np.abs(mj.jnt_actfrcrange[j]).max() if joint.nq == 1 and mj.jnt_actfrclimited[j] else np.inf
        free = isinstance(joint, Free)  # damping and friction of its translation come first
        order = np.roll(np.arange(joint.nv), 3 if free else 0)
        return {
            "position_limits": ([low] * joint.nq, [high] * joint.nq),
            "effort_limits": np.full(joint.nv, effort),
            "stiffness": np.full(joint.nv, self.stiffness[j]),
            "rest": rest if self.stiffness[j] else None,
            "damping": self.damping[v][order],
            "dry_friction": self.friction[v][order],
            "armature": np.zeros(joint.nv) if free else self.armature[v],
        }


def _add_body(
    builder: ModelBuilder, mj: mujoco.MjModel, names: Names, joints: _JointNumbers, body: int, accept: bool
) -> None:
    """Adds one MuJoCo body, with massless bodies for all joints but the one at its origin."""
    name = names.bodies[body]
    parent = names.bodies[mj.body_parentid[body]]
    steps, end = _steps(mj, body)
    own = steps.pop() if steps and end == SE3() else None
    for step in steps:
        carrier = names.new(f"{name}/joint")
        joint_name = names.joint(step.member, carrier)
        names.coordinates[step.member] = joint_name or carrier
        builder.add_body(carrier, parent, step.joint, step.placement, joint_name=joint_name, **joints.of(step))
        parent = carrier
    try:
        R = pose_of(mj.body_ipos[body], mj.body_iquat[body]).R
        I_com = R @ np.diag(mj.body_inertia[body]) @ R.T
        I_com = (I_com + I_com.T) / 2.0
        inertia = Inertia(mj.body_mass[body], mj.body_ipos[body], I_com, allow_unphysical=accept)
    except ModelError as error:
        fault = str(error).partition(";")[0]
        raise FormatError(f"body {name!r}: {fault}; pass unphysical='accept' to load it as it is") from error
    joint_name = names.joint(None if own is None else own.member, name)
    if own is not None:
        names.coordinates[own.member] = joint_name or name
    builder.add_body(
        name,
        parent,
        Fixed() if own is None else own.joint,
        end if own is None else own.placement,
        inertia,
        joint_name=joint_name,
        visuals=visuals_of(mj, body),
        collisions=collisions_of(mj, names, body),
        gravity_compensation=float(mj.body_gravcomp[body]) if is_compensated(mj) else 0.0,
        **({} if own is None else joints.of(own)),
    )


def _add_frames(builder: ModelBuilder, mj: mujoco.MjModel, names: Names) -> None:
    """Sites and cameras with names as frames; of names that bodies have, `'hand/site'`."""
    taken = {*names.bodies}
    for kind, part, own in (("site", "site", names.sites), ("camera", "cam", names.cameras)):
        bodies, places, turns = (getattr(mj, f"{part}_{field}") for field in ("bodyid", "pos", "quat"))
        for i, name in enumerate(own):
            if name is None:
                continue
            name = name if name not in taken else names.new(f"{name}/{kind}")
            taken.add(name)
            builder.add_frame(name, names.bodies[bodies[i]], pose_of(places[i], turns[i]))
