"""Tendons, actuators, equality constraints and keyframes of MJCF files."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from torsor._errors import FormatError, ModelError
from torsor.actuators import Actuator, Keyframe, Tendon
from torsor.constraints.constraint import Constraint, compile_constraints
from torsor.constraints.couplings import Coupling, Gear, PolynomialCoupling, PrescribedJoint
from torsor.constraints.pairs import Loop
from torsor.couplings import JointCoupling, Mimic, Polynomial
from torsor.formats._mjcf_names import Names, mujoco_package, pose_of
from torsor.joints import Fixed, Spherical
from torsor.spatial import SE3

if TYPE_CHECKING:
    import mujoco

    from torsor.model import Model


def is_disabled(mj: mujoco.MjModel, *flags: str) -> bool:
    """Whether the file disables one of these parts of the computation."""
    bits = mujoco_package().mjtDisableBit
    return any(mj.opt.disableflags & int(getattr(bits, f"mjDSBL_{flag}", 0)) for flag in flags)


def is_compensated(mj: mujoco.MjModel) -> bool:
    """Whether the weight of bodies is compensated: with springs and dampers disabled, all passive forces are."""
    return bool(mj.body_gravcomp.any()) and not (is_disabled(mj, "SPRING") and is_disabled(mj, "DAMPER"))


def _interval(limited: int, bounds: NDArray[np.float64]) -> tuple[float, float]:
    return (float(bounds[0]), float(bounds[1])) if limited else (-inf, inf)


# ---- tendons


def _wraps(mj: mujoco.MjModel, i: int) -> range:
    return range(int(mj.tendon_adr[i]), int(mj.tendon_adr[i] + mj.tendon_num[i]))


def tendon_fault(mj: mujoco.MjModel, i: int) -> str | None:
    """Why a tendon cannot be held, or None."""
    kinds = mujoco_package().mjtWrap
    for k in _wraps(mj, i):
        kind = kinds(mj.wrap_type[k])
        if kind in (kinds.mjWRAP_SPHERE, kinds.mjWRAP_CYLINDER):
            return "winds around a geom"
        if kind == kinds.mjWRAP_PULLEY:
            return "runs over a pulley"
    return None


def range_of(mj: mujoco.MjModel, kind: str, i: int) -> tuple[float, float]:
    """The limits of a joint ("jnt") or of the length of a tendon ("tendon"), which push from their margins on."""
    if not getattr(mj, f"{kind}_limited")[i] or is_disabled(mj, "LIMIT", "CONSTRAINT"):
        return -inf, inf
    low, high = getattr(mj, f"{kind}_range")[i].tolist()
    margin = 0.0 if margins_meet(mj, kind, i) else float(getattr(mj, f"{kind}_margin")[i])
    return low + margin, high - margin


def margins_meet(mj: mujoco.MjModel, kind: str, i: int) -> bool:
    """Whether both limits of a joint or tendon push at once, everywhere within the range."""
    low, high = getattr(mj, f"{kind}_range")[i].tolist()
    return bool(2 * getattr(mj, f"{kind}_margin")[i] >= high - low)


def tendons_of(mj: mujoco.MjModel, names: Names) -> tuple[Tendon, ...]:
    """The tendons that can be held."""
    kinds, out = mujoco_package().mjtWrap, []
    for i in range(mj.ntendon):
        if tendon_fault(mj, i):
            continue
        wraps = _wraps(mj, i)
        ends = [int(mj.wrap_objid[k]) for k in wraps]
        rest = mj.tendon_lengthspring[i]
        numbers = {
            "stiffness": 0.0 if is_disabled(mj, "SPRING") else float(mj.tendon_stiffness[i]),
            "damping": 0.0 if is_disabled(mj, "DAMPER") else float(mj.tendon_damping[i]),
            "rest": (float(rest[0]), float(rest[1])),
            "limits": range_of(mj, "tendon", i),
        }
        if kinds(mj.wrap_type[wraps[0]]) == kinds.mjWRAP_JOINT:
            joints = tuple(names.coordinates[j] for j in ends)
            coefficients = tuple(float(mj.wrap_prm[k]) for k in wraps)
            out.append(Tendon(names.tendons[i], joints, coefficients, **numbers))  # type: ignore[arg-type]
        else:
            bodies = tuple(names.bodies[mj.site_bodyid[site]] for site in ends)
            points = tuple(tuple(mj.site_pos[site].tolist()) for site in ends)
            out.append(Tendon(names.tendons[i], bodies=bodies, points=points, **numbers))  # type: ignore[arg-type]
    return tuple(out)


# ---- actuators


def actuator_count(mj: mujoco.MjModel) -> int:
    """The number of actuators. In new versions of MuJoCo some have several controls, or none."""
    return int(getattr(mj, "nactuator", mj.nu))


def _control(mj: mujoco.MjModel, i: int) -> int:
    """Where the control of an actuator is."""
    return int(getattr(mj, "actuator_ctrladr", range(mj.nu))[i])


def _has_size(mj: mujoco.MjModel, i: int, name: str) -> bool:
    """Whether a number of an actuator that new versions of MuJoCo have is one."""
    return bool(getattr(mj, f"actuator_{name}", np.ones(i + 1))[i] == 1)


def actuator_fault(mj: mujoco.MjModel, i: int) -> str | None:
    """Why an actuator cannot be held, or None."""
    mujoco = mujoco_package()
    kinds, joints = mujoco.mjtTrn, mujoco.mjtJoint
    if mj.actuator_gaintype[i] == int(mujoco.mjtGain.mjGAIN_MUSCLE):
        return "is a muscle"
    if mj.actuator_dyntype[i] != int(mujoco.mjtDyn.mjDYN_NONE):
        return "has a state of its own (dyntype)"
    if mj.actuator_gaintype[i] not in (int(mujoco.mjtGain.mjGAIN_FIXED), int(mujoco.mjtGain.mjGAIN_AFFINE)):
        return "has a gain that is not affine"
    if mj.actuator_biastype[i] not in (int(mujoco.mjtBias.mjBIAS_NONE), int(mujoco.mjtBias.mjBIAS_AFFINE)):
        return "has a bias that is not affine"
    if not (_has_size(mj, i, "ctrlnum") and _has_size(mj, i, "outnum")):
        return "has not one control and one force"
    if np.any(getattr(mj, "actuator_dampingpoly", np.zeros((i + 1, 1)))[i]):
        return "has damping that is not linear"
    if np.any(getattr(mj, "actuator_delay", np.zeros(i + 1))[i]):
        return "acts with a delay"
    if getattr(mj, "actuator_plugin", -np.ones(i + 1))[i] >= 0:
        return "is computed by a plugin"
    kind, (first, second) = kinds(mj.actuator_trntype[i]), mj.actuator_trnid[i]
    if kind == kinds.mjTRN_SITE and second >= 0:
        return "acts between two sites (refsite)"
    if kind == kinds.mjTRN_TENDON and tendon_fault(mj, first):
        return "pulls a tendon that is left out"
    if kind not in (kinds.mjTRN_JOINT, kinds.mjTRN_JOINTINPARENT, kinds.mjTRN_TENDON, kinds.mjTRN_SITE):
        return f"has a transmission of another kind ({kind.name[6:].lower()})"
    if kind in (kinds.mjTRN_JOINT, kinds.mjTRN_JOINTINPARENT) and mj.jnt_type[first] == int(joints.mjJNT_BALL):
        gain, bias = _laws(mj, i)
        if gain[1] or bias[1]:
            return "measures the rotation of a ball joint"
    return None


def _laws(mj: mujoco.MjModel, i: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The gain and bias of an actuator, each affine in length and velocity."""
    mujoco = mujoco_package()
    group = int(mj.actuator_group[i])
    if is_disabled(mj, "ACTUATION") or (0 <= group < 31 and mj.opt.disableactuator & (1 << group)):
        return (0.0, 0.0, 0.0), (0.0, 0.0, 0.0)
    gain, bias = mj.actuator_gainprm[i, :3].tolist(), [0.0, 0.0, 0.0]
    if mj.actuator_gaintype[i] == int(mujoco.mjtGain.mjGAIN_FIXED):
        gain[1:] = 0.0, 0.0
    if mj.actuator_biastype[i] == int(mujoco.mjtBias.mjBIAS_AFFINE):
        bias = mj.actuator_biasprm[i, :3].tolist()
    return tuple(gain), tuple(bias)


def actuators_of(mj: mujoco.MjModel, names: Names) -> tuple[Actuator, ...]:
    """The actuators that can be held."""
    kinds, out = mujoco_package().mjtTrn, []
    for i in range(actuator_count(mj)):
        if actuator_fault(mj, i):
            continue
        control = _control(mj, i)
        kind, target = kinds(mj.actuator_trntype[i]), int(mj.actuator_trnid[i, 0])
        gain, bias = _laws(mj, i)
        clamped = mj.actuator_ctrllimited[control] and not is_disabled(mj, "CLAMPCTRL")
        on: dict[str, object]
        if kind == kinds.mjTRN_TENDON:
            on = {"tendon": names.tendons[target]}
        elif kind == kinds.mjTRN_SITE:
            on = {
                "body": names.bodies[mj.site_bodyid[target]],
                "placement": pose_of(mj.site_pos[target], mj.site_quat[target]),
            }
        else:
            on = {"joint": names.coordinates[target], "in_parent": kind == kinds.mjTRN_JOINTINPARENT}
        out.append(
            Actuator(
                names.actuators[i],
                gear=tuple(mj.actuator_gear[i].tolist()),
                gain=gain,
                bias=bias,
                control_limits=_interval(clamped, mj.actuator_ctrlrange[control]),
                force_limits=_interval(mj.actuator_forcelimited[i], mj.actuator_forcerange[i]),
                **on,  # type: ignore[arg-type]
            )
        )
    return tuple(out)


# ---- equality


def equality_fault(mj: mujoco.MjModel, i: int) -> str | None:
    """Why an equality constraint cannot be held, or None."""
    mujoco = mujoco_package()
    kinds = mujoco.mjtEq
    kind = kinds(mj.eq_type[i])
    if kind == kinds.mjEQ_JOINT:
        return None
    if kind in (kinds.mjEQ_CONNECT, kinds.mjEQ_WELD):
        open_ = is_idle(mj, i) and not is_met(mj, i)
        return "is between bodies that are fixed to each other, and not satisfied" if open_ else None
    if kind != kinds.mjEQ_TENDON:
        return "is of flexes or distances"
    ends = [int(t) for t in (mj.eq_obj1id[i], mj.eq_obj2id[i]) if t >= 0]
    if any(mj.wrap_type[mj.tendon_adr[t]] != int(mujoco.mjtWrap.mjWRAP_JOINT) for t in ends):
        return "is of a tendon through sites"
    return "is of tendons and not linear" if len(ends) > 1 and mj.eq_data[i, 2:5].any() else None


def closed(model: Model, mj: mujoco.MjModel, names: Names, *, couple: bool) -> Model:
    """The model with the active equality constraints of the file, those of two joints as couplings or constraints."""
    made: list[Constraint] = []
    faults: list[str] = []
    couplings: list[JointCoupling] = []
    for i in range(mj.neq):
        if not mj.eq_active0[i] or equality_fault(mj, i) or is_disabled(mj, "EQUALITY", "CONSTRAINT"):
            continue
        if is_idle(mj, i):
            continue
        label = names.label("equality", i)
        try:
            constraint = _equality(mj, names, i, names.of("EQUALITY", i))
            if couple and isinstance(constraint, Gear):
                couplings.append(Mimic(constraint.driven, constraint.driver, constraint.ratio, constraint.offset))
                continue
            if couple and isinstance(constraint, PolynomialCoupling):
                ends, center = (constraint.driven, constraint.driver), constraint.center
                couplings.append(Polynomial(*ends, tuple(constraint.coefficients), center))
                continue
            compile_constraints(model, [constraint])
            made.append(constraint)
        except (KeyError, ValueError) as error:
            faults.append(f"{label}: {error.args[0]}")
    if faults:
        raise FormatError(f"{'; '.join(faults)}; pass equality='ignore' to load the tree alone")
    return _coupled(model.with_constraints(made), couplings)


def _coupled(model: Model, couplings: list[JointCoupling]) -> Model:
    """The model with couplings, and with keyframes in its reduced coordinates."""
    if not couplings:
        return model
    try:
        coupled = model.couple(*couplings)
    except ModelError as error:
        raise FormatError(f"{error}; pass equality='constrain' to load equalities as constraints") from error
    assert coupled._map is not None
    keys = {}
    for name, key in model.keyframes.items():
        q, v = coupled._reduced(np.array(key.q), 0.0), coupled._reduced(np.array(key.v), 0.0, coupled._map.runs_v)
        keys[name] = replace(key, q=tuple(q.tolist()), v=tuple(v.tolist()))
    return replace(coupled, keyframes=keys)


def is_idle(mj: mujoco.MjModel, i: int) -> bool:
    """Whether an equality constraint is between bodies that are fixed to each other."""
    kinds = mujoco_package().mjtEq
    if kinds(mj.eq_type[i]) not in (kinds.mjEQ_CONNECT, kinds.mjEQ_WELD):
        return False
    first, second = (int(mj.body_weldid[body]) for body in _markers(mj, i)[0])
    fixed = [0 if mj.body_mocapid[body] >= 0 else body for body in (first, second)]  # which is how those are held
    return fixed[0] == fixed[1]


def is_met(mj: mujoco.MjModel, i: int) -> bool:
    """Whether a connect or weld constraint is satisfied in the reference configuration."""
    mujoco = mujoco_package()
    data = mujoco.MjData(mj)
    mujoco.mj_kinematics(mj, data)
    bodies, placements, connects = _markers(mj, i)
    first, second = (pose_of(data.xpos[b], data.xquat[b]) @ x for b, x in zip(bodies, placements, strict=True))
    same = np.allclose(first.p, second.p, rtol=0, atol=1e-8)
    return same and (connects or np.allclose(first.R, second.R, rtol=0, atol=1e-8))


def _markers(mj: mujoco.MjModel, i: int) -> tuple[list[int], list[SE3], bool]:
    """The bodies of a connect or weld constraint, the frames on them that it brings together, and whether it is their
    origins alone."""
    mujoco = mujoco_package()
    ends, data = (int(mj.eq_obj1id[i]), int(mj.eq_obj2id[i])), mj.eq_data[i]
    is_connect = mujoco.mjtEq(mj.eq_type[i]) == mujoco.mjtEq.mjEQ_CONNECT
    connects = bool(is_connect or data[10] == 0.0)
    if mj.eq_objtype[i] == int(mujoco.mjtObj.mjOBJ_SITE):
        placements = [pose_of(mj.site_pos[site], mj.site_quat[site]) for site in ends]
        return [int(mj.site_bodyid[site]) for site in ends], placements, connects
    if is_connect:  # anchors in both bodies
        return [*ends], [SE3.translation(data[:3]), SE3.translation(data[3:6])], connects
    # the anchor in the second body, and its pose in the first
    return [*ends], [pose_of(data[3:6], data[6:10]), SE3.translation(data[:3])], connects


def _equality(mj: mujoco.MjModel, names: Names, i: int, name: str | None) -> Constraint:
    """One equality constraint, whose residuals are zero where those of MuJoCo are."""
    kinds = mujoco_package().mjtEq
    kind = kinds(mj.eq_type[i])
    ends = int(mj.eq_obj1id[i]), int(mj.eq_obj2id[i])
    if kind == kinds.mjEQ_JOINT:
        return _coupling(mj, names, *ends, mj.eq_data[i, :5], name)
    if kind == kinds.mjEQ_TENDON:
        return _tendon_coupling(mj, names, *ends, mj.eq_data[i, :5], name)
    bodies, placements, connects = _markers(mj, i)
    a, b = (names.bodies[body] for body in bodies)
    return Loop(a, b, Spherical() if connects else Fixed(), *placements, name=name)


def _coupling(
    mj: mujoco.MjModel, names: Names, driven: int, driver: int, c: NDArray[np.float64], name: str | None
) -> Constraint:
    """y - y0 = c0 + c1 (x - x0) + ... + c4 (x - x0)^4, with x0 and y0 the values at the reference."""
    y, y0 = names.coordinates[driven], float(mj.qpos0[mj.jnt_qposadr[driven]])
    if driver < 0 or not c[1:].any():
        return PrescribedJoint(y, y0 + c[0], name=name)
    x, x0 = names.coordinates[driver], float(mj.qpos0[mj.jnt_qposadr[driver]])
    if c[2:].any():
        return PolynomialCoupling(x, y, [y0 + c[0], *c[1:]], center=x0, name=name)
    return Gear(x, y, c[1], offset=y0 + c[0] - c[1] * x0, name=name)


def _tendon_coupling(
    mj: mujoco.MjModel, names: Names, driven: int, driver: int, c: NDArray[np.float64], name: str | None
) -> Constraint:
    """y - y0 = c0 + c1 (x - x0) of two sums of coordinates, with x0 and y0 their values at the reference."""
    total: dict[str, float] = {}
    offset = float(c[0])
    for tendon, factor in ((driven, 1.0), (driver, -float(c[1]))):
        if tendon < 0:
            continue
        offset += factor * float(mj.tendon_length0[tendon])
        for k in _wraps(mj, tendon):
            joint = names.coordinates[int(mj.wrap_objid[k])]
            total[joint] = total.get(joint, 0.0) + factor * float(mj.wrap_prm[k])
    terms = {joint: x for joint, x in total.items() if x}
    return Coupling([*terms], [*terms.values()], offset=offset, name=name)


# ---- keyframes


def keyframes_of(mj: mujoco.MjModel, names: Names, model: Model) -> dict[str, Keyframe]:
    """The keyframes, with quaternions and velocities of free joints as here; first of them that of the file's bodies as
    they stand, `qpos0`, if it is not the neutral configuration."""
    mujoco = mujoco_package()
    free, ball = int(mujoco.mjtJoint.mjJNT_FREE), int(mujoco.mjtJoint.mjJNT_BALL)
    held = [_control(mj, i) for i in range(actuator_count(mj)) if not actuator_fault(mj, i)]
    out: dict[str, Keyframe] = {}
    titles = ["qpos0", *names.numbered("KEY", mj.nkey)]
    keys = [(mj.qpos0, np.zeros(mj.nv), np.zeros(mj.nu), 0.0)]
    keys += [(mj.key_qpos[k], mj.key_qvel[k], mj.key_ctrl[k], float(mj.key_time[k])) for k in range(mj.nkey)]
    for title, (q, v, controls, t) in zip(titles, keys, strict=True):
        q, v = q.copy(), v.copy()
        for j in range(mj.njnt):
            at, dof = int(mj.jnt_qposadr[j]), int(mj.jnt_dofadr[j])
            if mj.jnt_type[j] not in (free, ball):
                continue
            at += 3 if mj.jnt_type[j] == free else 0
            q[at : at + 4] = np.roll(q[at : at + 4], -1)
            if mj.jnt_type[j] == free:
                R = SE3.from_quaternion(q[at : at + 4]).R
                v[dof : dof + 6] = np.concatenate([v[dof + 3 : dof + 6], R.T @ v[dof : dof + 3]])
        q = model.normalize(q)
        out[title] = Keyframe(tuple(q.tolist()), tuple(v.tolist()), tuple(controls[held].tolist()), t)
    if "qpos0" not in titles[1:] and not model.minus(np.array(out["qpos0"].q), model.neutral).any():
        del out["qpos0"]
    return out


# ---- drives of joints


def size_of(mj: mujoco.MjModel, j: int) -> int:
    """The number of velocities of a joint."""
    kinds = mujoco_package().mjtJoint
    return {int(kinds.mjJNT_FREE): 6, int(kinds.mjJNT_BALL): 3}.get(int(mj.jnt_type[j]), 1)


def on_hinge(mj: mujoco.MjModel, i: int) -> bool:
    """Whether an actuator drives a joint with one coordinate."""
    kinds = mujoco_package().mjtTrn
    on_joint = mj.actuator_trntype[i] in (int(kinds.mjTRN_JOINT), int(kinds.mjTRN_JOINTINPARENT))
    return bool(on_joint and size_of(mj, int(mj.actuator_trnid[i, 0])) == 1)


def reflected(mj: mujoco.MjModel, name: str) -> NDArray[np.float64]:
    """What armature or damping of actuators adds to those of the joints that they drive, by velocity."""
    out, values = np.zeros(mj.nv), getattr(mj, f"actuator_{name}", ())
    for i, value in enumerate(values):
        if value and on_hinge(mj, i):
            out[mj.jnt_dofadr[mj.actuator_trnid[i, 0]]] += float(mj.actuator_gear[i, 0]) ** 2 * float(value)
    return out
