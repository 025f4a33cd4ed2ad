"""What of an MJCF file changes the mechanism, and a model cannot hold."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from torsor.formats._mjcf_drives import (
    actuator_count,
    actuator_fault,
    equality_fault,
    is_compensated,
    is_disabled,
    margins_meet,
    on_hinge,
    size_of,
    tendon_fault,
)
from torsor.formats._mjcf_geoms import geom_fault, is_contact_disabled
from torsor.formats._mjcf_names import Names, mujoco_package

if TYPE_CHECKING:
    import mujoco


def left_out(mj: mujoco.MjModel, names: Names, equality: bool) -> Iterator[str]:
    """What of the file changes the mechanism and is not in the model, one text for each."""
    yield from _joints(mj, names)
    yield from _tendons(mj, names)
    yield from _actuators(mj, names)
    for i in range(mj.neq if equality and not is_disabled(mj, "EQUALITY", "CONSTRAINT") else 0):
        if mj.eq_active0[i] and (fault := equality_fault(mj, i)):
            yield f"{names.label('equality', i)} {fault}"
    if mj.opt.density or mj.opt.viscosity:
        yield "a fluid (density, viscosity) acts on the bodies"
    if mj.nflex:
        yield "the file has flexes"
    for body in range(mj.nbody):
        if _of(mj, "body_plugin", -1)[body] >= 0:
            yield f"{names.label('body', body)} has a plugin"
        if mj.body_mocapid[body] >= 0:
            yield f"{names.label('body', body)} is moved from outside (mocap)"
    if not is_contact_disabled(mj):
        yield from _contact(mj, names)


def _of(mj: mujoco.MjModel, name: str, default: float = 0.0) -> NDArray[Any]:
    """An array of the compiled model, or the default for all if this version of MuJoCo has none."""
    found: NDArray[Any] | None = getattr(mj, name, None)
    count = max(mj.nv, mj.njnt, mj.ntendon, mj.nbody, mj.ngeom, mj.npair, actuator_count(mj))
    return np.full(count, default) if found is None else found


def _joints(mj: mujoco.MjModel, names: Names) -> Iterator[str]:
    joints = mujoco_package().mjtJoint
    for j in range(mj.njnt):
        dofs = slice(int(mj.jnt_dofadr[j]), int(mj.jnt_dofadr[j]) + size_of(mj, j))
        label = names.label("joint", j)
        if mj.jnt_type[j] == int(joints.mjJNT_FREE) and mj.dof_armature[dofs].any():
            yield f"{label} is free and has armature {mj.dof_armature[dofs.start]:g}"
        limited = mj.jnt_limited[j] and not is_disabled(mj, "LIMIT", "CONSTRAINT")
        if limited and mj.jnt_type[j] == int(joints.mjJNT_BALL):
            yield f"{label} is a ball with a range"
        elif limited and margins_meet(mj, "jnt", j):
            yield f"{label} has a margin of {mj.jnt_margin[j]:g}, half its range or more"
        if np.any(_of(mj, "jnt_stiffnesspoly")[j]):
            yield f"{label} has stiffness that is not linear"
        if np.any(_of(mj, "dof_dampingpoly")[dofs]):
            yield f"{label} has damping that is not linear"
        if _of(mj, "jnt_plasticadr", -1)[j] >= 0:
            yield f"{label} has a spring that yields"
        low, high = mj.jnt_actfrcrange[j].tolist()
        bounded = mj.jnt_actfrclimited[j] and actuator_count(mj) and not is_disabled(mj, "ACTUATION")
        if bounded and low != -high:
            yield f"{label} has an actuatorfrcrange from {low:g} to {high:g}, which is not symmetric"
        if mj.jnt_actgravcomp[j] and is_compensated(mj):
            if not actuator_count(mj) or is_disabled(mj, "ACTUATION"):
                yield f"{label} has actuatorgravcomp, and there are no actuators that compensate gravity"
            elif mj.jnt_actfrclimited[j]:
                yield f"{label} has actuatorgravcomp, which its actuatorfrcrange limits"


def _tendons(mj: mujoco.MjModel, names: Names) -> Iterator[str]:
    for i in range(mj.ntendon):
        label, fault = names.label("tendon", i), tendon_fault(mj, i)
        if fault and (mj.tendon_stiffness[i] or mj.tendon_damping[i] or mj.tendon_limited[i]):
            yield f"{label} {fault}"
        limited = mj.tendon_limited[i] and not is_disabled(mj, "LIMIT", "CONSTRAINT")
        if limited and margins_meet(mj, "tendon", i):
            yield f"{label} has a margin of {mj.tendon_margin[i]:g}, half its range or more"
        for name in ("armature", "frictionloss"):
            if _of(mj, f"tendon_{name}")[i]:
                yield f"{label} has {name}"
        for name in ("stiffness", "damping"):
            if np.any(_of(mj, f"tendon_{name}poly")[i]):
                yield f"{label} has {name} that is not linear"
        if _of(mj, "tendon_plasticadr", -1)[i] >= 0:
            yield f"{label} has a spring that yields"
        if _of(mj, "tendon_actfrclimited")[i] and not is_disabled(mj, "ACTUATION"):
            yield f"{label} has an actuatorfrcrange"


def _actuators(mj: mujoco.MjModel, names: Names) -> Iterator[str]:
    for i in range(actuator_count(mj)):
        label, fault = names.label("actuator", i), actuator_fault(mj, i)
        if fault:
            yield f"{label} {fault}"
        for name in ("armature", "damping"):
            if _of(mj, f"actuator_{name}")[i] and not on_hinge(mj, i):
                yield f"{label} has {name} on something else than a hinge or slide"


def _contact(mj: mujoco.MjModel, names: Names) -> Iterator[str]:
    paired = {*mj.pair_geom1.tolist(), *mj.pair_geom2.tolist()}
    for geom in range(mj.ngeom):
        if not (mj.geom_contype[geom] or mj.geom_conaffinity[geom] or geom in paired):
            continue
        label = names.label("geom", geom)
        if fault := geom_fault(mj, geom):
            yield f"{label} {fault}"
        if np.any(_of(mj, "geom_adhesion")[geom]):
            yield f"{label} has adhesion"
        if np.any(_of(mj, "geom_surfacevel")[geom]):
            yield f"{label} has a surface that moves (surfacevel)"
    for pair in range(mj.npair):
        if np.any(_of(mj, "pair_adhesion")[pair]):
            yield f"{names.label('pair', pair)} has adhesion"
    if mj.opt.enableflags & int(mujoco_package().mjtEnableBit.mjENBL_OVERRIDE):
        yield "the flag 'override' replaces the numbers of all contacts"
