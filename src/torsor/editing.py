"""Models from others: parts added, taken away, exchanged. What refers to names goes along, or is refused by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from torsor._check import listed, unknown
from torsor._errors import ModelError
from torsor.actuators import Actuator, Tendon
from torsor.inertia import Inertia
from torsor.model import PARAMETERS, WORLD, Body, Frame, Model, ModelBuilder, require_model
from torsor.spatial import SE3, frozen_array

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from torsor._typing import FloatArray
    from torsor.collision import Collision, CollisionRules
    from torsor.joints import Joint

_CHANGES = (
    *("placement", "inertia", "joint_name", "position_limits", "velocity_limits", "effort_limits"),
    *("dry_friction", "damping", "stiffness", "rest", "armature", "gravity_compensation", "visuals", "collisions"),
)
_OF_JOINT = (
    *("position_limits", "velocity_limits", "effort_limits", "dry_friction", "damping", "stiffness", "rest"),
    "armature",
)


def _with_bodies(model: Model, changed: dict[str, Body]) -> Model:
    return replace(model, bodies=tuple(changed.get(b.name, b) for b in model.bodies))


def _made(body: Body, joint: Joint, given: dict[str, Any]) -> Body:
    """A body with other values of some arguments of `ModelBuilder.add_body`."""
    keep = {name: getattr(body, name) for name in _CHANGES if name not in given}
    builder = ModelBuilder()
    builder.add_body(body.name, WORLD, joint, **{**keep, **given})
    return replace(builder._bodies[body.name], parent=body.parent)


def with_placement(model: Model, name: str, placement: SE3) -> Model:
    """As `Model.with_placement`."""
    if not isinstance(placement, SE3):
        raise TypeError(f"placement must be an SE3, got {placement!r}; SE3.translation(x, y, z) makes one")
    i = model._find(name, "frame")
    if i < model.nbodies:
        body = model.bodies[i]
        return _with_bodies(model, {body.name: replace(body, placement=placement)})
    return replace(model, frames=tuple(replace(f, placement=placement) if f.name == name else f for f in model.frames))


def with_body(model: Model, name: str, changes: dict[str, Any]) -> Model:
    """As `Model.with_body`."""
    body = model.body(name)
    for key in changes:
        if key not in _CHANGES:
            remedy = "; with_joint changes the joint" if key == "joint" else ""
            raise TypeError(f"with_body takes no {key!r}, expected some of {', '.join(map(repr, _CHANGES))}{remedy}")
    made = _made(body, body.joint, changes)
    if made.joint_name != body.joint_name:
        _refuse(_constraints_in(model, body), f"with_body({name!r}) renames the joint {body.joint_name!r}")
    return _with_bodies(model, {body.name: made})


def with_joint(model: Model, name: str, joint: Joint) -> Model:
    """As `Model.with_joint`."""
    body = model.bodies[model._find(name, "joint")]
    if joint is None:
        raise TypeError(f"joint of {name!r} must be a Joint, got None")
    if (body.joint.nq, body.joint.nv) == (getattr(joint, "nq", None), getattr(joint, "nv", None)):
        return _with_bodies(model, {body.name: _made(body, joint, {})})
    _refuse(_constraints_in(model, body), f"with_joint({name!r}) changes coordinates")
    return _with_bodies(model, {body.name: _made(body, joint, dict.fromkeys(_OF_JOINT))})


# ---- what refers to bodies and joints by name


def _constraints_in(model: Model, body: Body) -> list[str]:
    """Constraints and couplings in coordinates of the joint of a body."""
    found = [c.shown_name for c in model.constraints if body.joint_name in c._joints(model)]
    i = model.body_index(body.name)
    return found + [
        repr(c) for k, c in enumerate(model.couplings) if model._map is not None and i in model._map.joints_of(k)
    ]


def _refuse(names: Iterable[str], what: str) -> None:
    found = list(names)
    if found:
        verb, it = ("is", "it") if len(found) == 1 else ("are", "them")
        raise ModelError(
            f"{what} that {listed(found)} {verb} given in; leave {it} out first, by with_constraints(...) or, for "
            f"couplings, model.tree.couple(...), and add what replaces {it} afterwards"
        )


def _subjects(model: Model, constraint: Any) -> set[str] | None:
    """The bodies that a constraint concerns; None if it is given in all coordinates."""
    named = constraint._named()
    if named is None:
        return None
    places, joints = named
    return {WORLD if p == WORLD else model.frame(p).body for p in places} | {model.joint(j).body for j in joints}


def subtree(model: Model, name: str) -> Model:
    """As `Model.subtree`."""
    root = model.body(name)
    inside = _below(model, root)
    bodies = tuple(replace(b, parent=WORLD) if b is root else b for b in model.bodies if b.name in inside)
    rest = _kept(model, inside, f"subtree({name!r})", world=root.parent == WORLD)
    return replace(model, bodies=bodies, world_collisions=(), **rest)


def without(model: Model, name: str) -> Model:
    """As `Model.without`."""
    if isinstance(name, str) and any(f.name == name for f in model.frames):
        used = [c.shown_name for c in model.constraints if (named := c._named()) is not None and name in named[0]]
        _refuse(used, f"without({name!r}) removes a frame")
        return replace(model, frames=tuple(f for f in model.frames if f.name != name))
    removed = _below(model, model.body(name))
    outside = {b.name for b in model.bodies} - removed
    bodies = tuple(b for b in model.bodies if b.name in outside)
    return replace(model, bodies=bodies, **_kept(model, outside, f"without({name!r})", world=True))


def _below(model: Model, root: Body) -> set[str]:
    """Names of a body and of all bodies that it carries."""
    out = {root.name}
    for b in model.bodies:
        if b.parent in out:
            out.add(b.name)
    return out


def _kept(model: Model, kept: set[str], what: str, *, world: bool) -> dict[str, Any]:
    """Constraints, frames and rules of the bodies that are kept, and of the world where that is the same one."""
    known = kept | {WORLD} if world else kept
    constraints, cut = [], []
    for c in model.constraints:
        subjects = _subjects(model, c)
        if subjects is not None and subjects <= known:
            constraints.append(c)
        elif subjects is None or subjects & kept:
            cut.append(c.shown_name)
    _refuse(cut, f"{what} cuts apart bodies or coordinates")
    frames = tuple(f for f in model.frames if f.body in known)
    gone = {b.name for b in model.bodies} - kept
    shapes = {c.name for b in model.bodies if b.name in gone for c in b.collisions}
    rules = replace(
        model.collision_rules,
        exclude=tuple(pair for pair in model.collision_rules.exclude if not gone & {*pair}),
        pairs=tuple(pair for pair in model.collision_rules.pairs if not shapes & {pair.first, pair.second}),
    )
    couplings = []
    for i, coupling in enumerate(model.couplings):
        assert model._map is not None
        inside = [model.bodies[j].name in kept for j in model._map.joints_of(i)]
        if all(inside):
            couplings.append(coupling)
        elif any(inside):
            raise ModelError(
                f"{what} cuts apart joints that {coupling!r} couples; leave them out of model.tree.couple(...)"
            )
    tendons, actuators = _kept_drives(model, known)
    return {
        "constraints": tuple(constraints), "frames": frames, "collision_rules": rules, "couplings": tuple(couplings),
        "tendons": tendons, "actuators": actuators,
    }  # fmt: skip


def _kept_drives(model: Model, known: set[str]) -> tuple[tuple[Tendon, ...], tuple[Actuator, ...]]:
    """Tendons and actuators that act on bodies and joints that are kept alone."""

    def bodies(joints: Iterable[str], places: Iterable[str]) -> set[str]:
        return {model.joint(j).body for j in joints} | {WORLD if p == WORLD else model.frame(p).body for p in places}

    tendons = tuple(t for t in model.tendons if bodies(t.joints, t.bodies) <= known)
    names = {t.name for t in tendons} | {None}
    actuators = tuple(
        a
        for a in model.actuators
        if a.tendon in names and bodies([a.joint] if a.joint else [], [a.body] if a.body else []) <= known
    )
    return tendons, actuators


# ---- two models


def attach(model: Model, other: Model, at: str, prefix: str) -> Model:
    """As `Model.attach`."""
    require_model(other)
    if not isinstance(prefix, str):
        raise TypeError(f"prefix must be a string, got {prefix!r}")
    on = Frame(WORLD, WORLD) if at == WORLD else model.frame(at)

    def rename(name: str) -> str:
        return WORLD if name == WORLD else prefix + name

    def shape(c: Collision) -> Collision:
        return replace(c, name=_prefixed(c.name, prefix), source=_prefixed(c.source, prefix))

    _require_apart(model, other, rename, prefix)
    still = on.placement == SE3()
    bodies = []
    for b in other.bodies:
        placement = b.placement if still or b.parent != WORLD else on.placement @ b.placement
        bodies.append(
            replace(
                b, name=rename(b.name), joint_name=rename(b.joint_name), placement=placement,
                parent=on.body if b.parent == WORLD else rename(b.parent), collisions=tuple(map(shape, b.collisions)),
            )
        )  # fmt: skip
    frames = [
        Frame(rename(f.name), on.body, f.placement if still else on.placement @ f.placement)
        if f.body == WORLD
        else Frame(rename(f.name), rename(f.body), f.placement)
        for f in other.frames
    ]
    tendons = [_carried_tendon(t, rename, prefix, on) for t in other.tendons]
    actuators = [
        replace(
            a, name=prefix + a.name, joint=_prefixed(a.joint, prefix), tendon=_prefixed(a.tendon, prefix),
            body=_prefixed(a.body, prefix),
        )
        for a in other.actuators
    ]  # fmt: skip
    ground = tuple(shape(c) if still else shape(c).moved(on.placement) for c in other.world_collisions)
    own, world = model.bodies, model.world_collisions
    if on.body == WORLD:
        world += ground
    elif ground:
        own = tuple(replace(b, collisions=b.collisions + ground) if b.name == on.body else b for b in own)
    refused = [c.shown_name for c in model.constraints if c._named() is None]
    constraints = list(model.constraints)
    for c in other.constraints:
        made = _carried(c, rename, prefix, on)
        if made is None:
            refused.append(c.shown_name)
        else:
            constraints.append(made)
    _refuse(refused, f"attach({other.name!r}) changes the coordinates or the world")
    return replace(
        model,
        bodies=(*own, *bodies),
        frames=(*model.frames, *frames),
        constraints=tuple(constraints),
        world_collisions=world,
        tendons=(*model.tendons, *tendons),
        actuators=(*model.actuators, *actuators),
        collision_rules=_joined_rules(model, other, rename, prefix),
        couplings=(*model.couplings, *(c.renamed(rename) for c in other.couplings)),
    )


def _carried_tendon(tendon: Tendon, rename: Callable[[str], str], prefix: str, on: Frame) -> Tendon:
    """A tendon of a model whose world becomes a frame."""
    places = [
        (on.body, on.placement.R @ point + on.placement.p) if body == WORLD else (rename(body), np.array(point))
        for body, point in zip(tendon.bodies, tendon.points, strict=True)
    ]
    return replace(
        tendon, name=prefix + tendon.name, joints=tuple(map(rename, tendon.joints)),
        bodies=tuple(body for body, _ in places), points=tuple(tuple(x.tolist()) for _, x in places),
    )  # fmt: skip


def _prefixed(name: str | None, prefix: str) -> str | None:
    return None if name is None else prefix + name


def _carried(constraint: Any, rename: Callable[[str], str], prefix: str, on: Frame) -> Any:
    """A constraint of a model that is attached; None if it cannot go along."""
    named = constraint._named()
    if named is None:
        return None
    renamed = constraint._renamed(rename, _prefixed(constraint.name, prefix))
    if on.body == WORLD and on.placement == SE3():
        return renamed
    moves = any(callable(getattr(constraint, f.name)) for f in fields(constraint))
    if getattr(constraint, "a", None) == WORLD and WORLD not in named[0]:  # a prescribed motion in the world
        return None
    if WORLD not in named[0]:
        return renamed
    return None if moves else renamed._on({WORLD: (on.body, on.placement)})


def _require_apart(model: Model, other: Model, rename: Callable[[str], str], prefix: str) -> None:
    """Rejects names that both models have."""

    def names(m: Model) -> dict[str, set[str]]:
        shapes = [c for b in m.bodies for c in b.collisions] + [*m.world_collisions]
        return {
            "body or frame": {b.name for b in m.bodies} | {f.name for f in m.frames},
            "joint": {b.joint_name for b in m.bodies},
            "constraint": {c.name for c in m.constraints if c.name is not None},
            "collision shape": {c.name for c in shapes if c.name is not None},
        }

    own, others = names(model), names(other)
    for kind, mine in own.items():
        both = mine & {rename(name) for name in others[kind]}
        if both:
            shown = listed(sorted(both))
            hint = "another prefix=" if prefix else "prefix="
            raise ModelError(f"both models have a {kind} named {shown}; give {hint}")


def _joined_rules(model: Model, other: Model, rename: Callable[[str], str], prefix: str) -> CollisionRules:
    a, b = model.collision_rules, other.collision_rules
    shapes = [bool(m.world_collisions or any(x.collisions for x in m.bodies)) for m in (model, other)]
    if all(shapes) and a.parents != b.parents:
        raise ModelError(
            f"collision_rules of {model.name!r} have parents={a.parents!r}, those of {other.name!r} {b.parents!r}, "
            "expected the same; give one of them other rules by dataclasses.replace(model, collision_rules=...)"
        )
    exclude = tuple((rename(x), rename(y)) for x, y in b.exclude)
    pairs = tuple(replace(p, first=prefix + p.first, second=prefix + p.second) for p in b.pairs)
    return replace(a if shapes[0] else b, exclude=(*a.exclude, *exclude), pairs=(*a.pairs, *pairs))


# ---- numbers


def with_parameters(
    model: Model,
    inertia: Any,
    placement: Any,
    gravity: Any,
    armature: Any,
    constraints: Any,
    couplings: Any,
    allow_unphysical: bool,
) -> Model:
    """As `Model.with_parameters`."""
    changed: dict[str, Any] = {}
    bodies = list(model.bodies)
    n = model.nbodies
    if placement is not None:
        twists = _rows_of(placement, n, 6, "placement")
        for i, x in enumerate(twists):
            if x.any():
                bodies[i] = replace(bodies[i], placement=bodies[i].placement @ SE3.exp(x))
    if inertia is not None:
        rows = _rows_of(inertia, n, 10, "inertia")
        faults = []
        for i, (b, pi) in enumerate(zip(bodies, rows, strict=True)):
            if np.array_equal(b.inertia.parameters, pi):
                continue
            try:
                made = Inertia.from_parameters(pi, allow_unphysical=True)
            except ModelError as error:
                raise ModelError(f"inertia of {b.name!r}: {error}") from None
            if not allow_unphysical and b.inertia.physical and (fault := made._fault()):
                faults.append(f"{b.name!r} ({fault})")
            bodies[i] = replace(b, inertia=made)
        if faults:
            shown = "; ".join(faults[:6]) + (f"; and {len(faults) - 6} more" if len(faults) > 6 else "")
            raise ModelError(
                f"inertia is not physical: {shown}; take a smaller step, or pass allow_unphysical=True to accept it"
            )
    if armature is not None:
        tree = model.tree
        values = frozen_array(armature, (tree.nv,), "armature").tolist()
        bodies = [replace(b, armature=tuple(values[j.v_slice])) for b, j in zip(bodies, tree.joints, strict=True)]
    if any(x is not None for x in (inertia, placement, armature)):
        changed["bodies"] = tuple(bodies)
    if gravity is not None:
        changed["gravity"] = gravity
    described: tuple[tuple[str, tuple[Any, ...], Any], ...] = (
        ("constraints", model.constraints, constraints), ("couplings", model.couplings, couplings),
    )  # fmt: skip
    for what, own, given in described:
        if given is None:
            continue
        if isinstance(given, (str, Mapping)) or len(list(given)) != len(own):
            raise ValueError(f"{what} must have a dict or None for each of {len(own)} {what}")
        changed[what] = tuple(c.with_parameters(values) if values else c for c, values in zip(own, given, strict=True))
    return replace(model, **changed)


def _rows_of(value: Any, n: int, size: int, name: str) -> FloatArray:
    """A row for each body (n, size), also from one flat vector of all."""
    if np.shape(value) == (n * size,) and n != 1:
        value = np.asarray(value).reshape(n, size)
    elif np.shape(value) == (size,) and n == 1:
        value = np.asarray(value)[None]
    return frozen_array(value, (n, size), name)


def _shapes(model: Model, names: Sequence[str]) -> dict[str, tuple[int, ...]]:
    known: dict[str, tuple[int, ...]] = {
        "inertia": (model.nbodies, 10), "placement": (model.nbodies, 6), "gravity": (3,), "armature": (model.tree.nv,),
    }  # fmt: skip
    if isinstance(names, str):
        raise TypeError(f"names is {names!r}, expected a sequence of some of {listed([*known])}")
    for name in names:
        if name not in known:
            raise unknown("parameter", name, [*known])
    if len({*names}) < len(list(names)):
        raise ValueError(f"names is {list(names)}, expected each name once")
    return {name: known[name] for name in names}


def parameter_vector(model: Model, source: object, names: Sequence[str]) -> FloatArray:
    """As `Model.parameter_vector`."""
    source = model.parameters if source is None else source
    parts = [np.zeros(0)]
    for name, shape in _shapes(model, names).items():
        if not hasattr(source, name):
            raise TypeError(
                f"source has no {name!r}, expected a record as AdjointGradient, got {type(source).__name__}"
            )
        value = np.asarray(getattr(source, name), dtype=np.float64)
        lead = value.ndim - len(shape)
        if lead < 0 or value.shape[lead:] != shape:
            raise ValueError(f"{name} of source has shape {value.shape}, expected (..., {', '.join(map(str, shape))})")
        parts.append(value.reshape((*value.shape[:lead], -1)))
    batch = np.broadcast_shapes(*(part.shape[:-1] for part in parts[1:]))
    return np.concatenate([np.broadcast_to(part, (*batch, part.shape[-1])) for part in parts], axis=-1)


def with_parameter_vector(model: Model, x: ArrayLike, names: Sequence[str], allow_unphysical: bool) -> Model:
    """As `Model.with_parameter_vector`."""
    shapes = _shapes(model, names)
    flat = frozen_array(x, (sum(prod(shape) for shape in shapes.values()),), "x")
    given: dict[str, Any] = dict.fromkeys((*PARAMETERS, "armature"))
    at = 0
    for name, shape in shapes.items():
        given[name] = flat[at : at + prod(shape)].reshape(shape)
        at += prod(shape)
    inertia, placement, gravity, armature = (given[k] for k in ("inertia", "placement", "gravity", "armature"))
    return with_parameters(model, inertia, placement, gravity, armature, None, None, allow_unphysical)
