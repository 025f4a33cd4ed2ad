"""Models: a builder that validates, and the frozen model that it returns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import cached_property
from importlib import import_module
from math import prod
from operator import gt, index
from typing import TYPE_CHECKING, Any, Final, NamedTuple, final

import numpy as np

from torsor import _core
from torsor._check import as_array, direct, listed, unknown
from torsor._compile import Chain, Pose, compile_tree
from torsor._core import JointKind
from torsor._errors import ModelError
from torsor.actuators import Actuator, Keyframe, Tendon, on_locked, require_drives
from torsor.collision import Collision, CollisionRules, require_collisions
from torsor.couplings import JointCoupling, ReducedMap, as_couplings, reduced_position, reduced_velocity
from torsor.inertia import Inertia, parameters_of
from torsor.joints import Fixed, Joint
from torsor.spatial import SE3, frozen_array, refuse_mask

if TYPE_CHECKING:
    import os

    from numpy.typing import ArrayLike

    from torsor._typing import FloatArray, Shape, Threads
    from torsor.constraints.constraint import Constraint
    from torsor.constraints.pairs import Loop
    from torsor.pictures.scene import Camera


WORLD = "world"
_AT_PARENT, _NOTHING = SE3(), Inertia.zero()
_PASSIVE = ("dry_friction", "damping", "stiffness", "armature")  # numbers of a joint by velocity, zero by default


@final
@dataclass(frozen=True)
class Visual:
    """A visual shape attached to a body.

    Parameters
    ----------
    shape : {"box", "sphere", "cylinder", "capsule", "ellipsoid", "mesh"}
    size : tuple of float
        Edge lengths, radius, radius and length, or half axes; empty for a mesh.
    placement : SE3
        Pose in the frame of the body.
    color : (red, green, blue, alpha), optional
        Numbers from 0 to 1.
    mesh : str, optional
        File name of a mesh.
    mesh_scale : (x, y, z)
        Scale of a mesh.
    file : str, optional
        Where the file of the mesh was found, if not at `mesh`. Visuals compare without it.
    """

    shape: Shape
    size: tuple[float, ...] = ()
    placement: SE3 = field(default_factory=SE3)
    color: tuple[float, float, float, float] | None = None
    mesh: str | None = None
    mesh_scale: tuple[float, float, float] = (1.0, 1.0, 1.0)
    file: str | None = field(default=None, compare=False)


@final
@dataclass(frozen=True)
class Body:
    """A body of a model, with its joint: the arguments of `ModelBuilder.add_body`.

    `position_limits` is (lower, upper), each (joint.nq,); `velocity_limits` and `effort_limits` are (joint.nv,). They
    are infinite where there is no limit. `dry_friction`, `damping`, `stiffness` and `armature` are (joint.nv,), zero
    where there is none, and `rest` is (joint.nq,), the coordinates at which springs of the joint are at rest.
    `gravity_compensation` is the share of the body's weight that is compensated, for `forces_from`.
    """

    name: str
    parent: str
    joint: Joint
    placement: SE3
    inertia: Inertia
    joint_name: str
    position_limits: tuple[tuple[float, ...], tuple[float, ...]]
    velocity_limits: tuple[float, ...]
    effort_limits: tuple[float, ...]
    visuals: tuple[Visual, ...] = ()
    collisions: tuple[Collision, ...] = ()
    dry_friction: tuple[float, ...] = ()
    damping: tuple[float, ...] = ()
    stiffness: tuple[float, ...] = ()
    rest: tuple[float, ...] = ()
    armature: tuple[float, ...] = ()
    gravity_compensation: float = 0.0

    def __post_init__(self) -> None:
        if not isinstance(self.joint, Joint):  # which the model refuses
            return
        for name in _PASSIVE:
            if not getattr(self, name):
                object.__setattr__(self, name, (0.0,) * self.joint.nv)
        if not self.rest:
            object.__setattr__(self, "rest", self.joint._chain_data.neutral)

    @cached_property
    def _sound(self) -> bool:
        """True, or an error if a part of it is wrong by itself, whatever the model."""
        _require_sound(self)
        return True

    def __getstate__(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self)}


@final
@dataclass(frozen=True)
class Frame:
    """A named frame on a body: a tool, a sensor, the end of a spring.

    Its name is accepted wherever that of a body is: poses, Jacobians, points, costs, forces, constraints and `f_ext`.

    Parameters
    ----------
    name : str
        Unique among the frames and bodies of a model.
    body : str
        Name of the body that has it, or "world".
    placement : SE3
        Pose in the frame of the body.
    """

    name: str
    body: str
    placement: SE3 = field(default_factory=SE3)


@final
@dataclass(frozen=True)
class ModelJoint:
    """A joint of a model, and where its coordinates and velocities are: `q[j.q_slice]`, `v[j.v_slice]`.

    `position_limits` is (lower, upper), each (nq,); `velocity_limits` and `effort_limits` are (nv,). They are infinite
    where there is no limit. `dry_friction` (nv,) is the torque or force that friction of the joint reaches, `damping`
    and `stiffness` (nv,) are those of its damper and its spring, which is at rest at `rest` (nq,), and `armature` (nv,)
    is the inertia of its drive; they are zero where there is none. `forces_from` makes forces of them.

    In a model with couplings, slices are those of the model's reduced coordinates: empty for a joint that follows
    others, which `follows` names. The other numbers are those of the joint itself.
    """

    name: str
    body: str
    joint: Joint
    q_slice: slice
    v_slice: slice
    position_limits: tuple[tuple[float, ...], tuple[float, ...]]
    velocity_limits: tuple[float, ...]
    effort_limits: tuple[float, ...]
    dry_friction: tuple[float, ...]
    damping: tuple[float, ...]
    stiffness: tuple[float, ...]
    rest: tuple[float, ...]
    armature: tuple[float, ...]
    follows: tuple[str, ...] = ()

    @property
    def nq(self) -> int:
        """Number of coordinates."""
        return int(self.q_slice.stop - self.q_slice.start)

    @property
    def nv(self) -> int:
        """Number of velocities."""
        return int(self.v_slice.stop - self.v_slice.start)


_VISUAL_SIZES: Final = {"box": 3, "sphere": 1, "cylinder": 2, "capsule": 2, "ellipsoid": 3, "mesh": 0}


def _require_sound(body: Body) -> None:
    """Rejects a body with a part that is wrong by itself."""
    name = body.name
    for label, text in (("body", name), ("joint", body.joint_name)):
        if not isinstance(text, str) or not text:
            raise ModelError(f"a {label}'s name must be a non-empty string, got {text!r}")
    if WORLD in (name, body.joint_name):
        raise ModelError(f"{WORLD!r} is the name of the world; give the body and its joint other names")
    for part, kind in (("joint", Joint), ("placement", SE3), ("inertia", Inertia)):
        value = getattr(body, part)
        if not isinstance(value, kind):
            raise TypeError(f"{part} of {name!r} must be a {kind.__name__}, got {value!r}")
    for visual in body.visuals:
        if not isinstance(visual, Visual):
            raise TypeError(f"visuals of {name!r} must be Visual records, got {visual!r}")
        if _VISUAL_SIZES.get(visual.shape) != len(visual.size):
            count = _VISUAL_SIZES.get(visual.shape)
            expected = f"one of {', '.join(_VISUAL_SIZES)}" if count is None else f"{count} numbers as its size"
            raise ModelError(
                f"a visual of {name!r} has shape {visual.shape!r} and size {visual.size!r}: expected {expected}"
            )
    require_collisions(body.collisions, repr(name))
    nq, nv = body.joint.nq, body.joint.nv
    lower, upper = body.position_limits
    limits = {
        "lower position_limits": (lower, nq),
        "upper position_limits": (upper, nq),
        "velocity_limits": (body.velocity_limits, nv),
        "effort_limits": (body.effort_limits, nv),
        "rest": (body.rest, nq),
        **{name: (getattr(body, name), nv) for name in _PASSIVE},
    }
    for limit, (values, size) in limits.items():
        if len(values) != size:
            raise ModelError(f"{limit} of {name!r} has {len(values)} numbers, expected {size}")
    if any(map(gt, lower, upper)):
        raise ModelError(f"position_limits of {name!r} have lower {list(lower)} above upper {list(upper)}")
    for limit in ("velocity_limits", "effort_limits", *_PASSIVE):
        if min(getattr(body, limit), default=0.0) < 0:
            raise ModelError(f"{limit} of {name!r} is negative: got {list(getattr(body, limit))}")
    if any(body.armature):
        require_armature(name, body.joint, body.armature)


def _limits(value: Any, size: int, default: float, name: str) -> tuple[float, ...]:
    if value is None:
        return (default,) * size
    if type(value) is tuple and len(value) == size and all(type(x) is float and x == x for x in value):
        return value
    refuse_mask(name, value)
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise ModelError(f"{name} is not a number or a list of {size}: got {value!r}") from None
    if array.ndim == 0:
        array = np.full(size, float(array))
    if array.shape != (size,):
        raise ModelError(f"{name} has shape {array.shape}, expected one number or {size}")
    if np.isnan(array).any():
        raise ModelError(f"{name} is not a number: got {array.tolist()}")
    return tuple(array.tolist())


@final
class ModelBuilder:
    """Collects and validates bodies; `build` returns the model.

    Parameters
    ----------
    name : str
        Name of the model.
    gravity : (3,) array_like
        Acceleration of gravity in the world frame.

    Examples
    --------
    >>> b = ts.ModelBuilder()
    >>> _ = b.add_body("rod", joint=ts.Revolute((0, 1, 0)), inertia=ts.Inertia.point(1.0, (0, 0, -1)))
    >>> rod = b.build()
    >>> ts.gravity_forces(rod, [np.pi / 2])
    array([9.81])
    """

    def __init__(self, name: str = "model", gravity: ArrayLike = (0.0, 0.0, -9.81)) -> None:
        self.name = name
        self._gravity = _gravity(gravity)
        self._bodies: dict[str, Body] = {}
        self._joint_names: set[str] = set()
        self._constraints: list[Constraint] = []
        self._world: list[Collision] = []
        self._frames: dict[str, Frame] = {}
        self._others: dict[str, Any] = {}  # fields of a model that nothing is added to

    @staticmethod
    def from_model(model: Model) -> ModelBuilder:
        """A builder that has all that a `model` has, to add to it."""
        require_model(model)
        builder = ModelBuilder(model.name, model.gravity)
        builder._bodies = {b.name: b for b in model.bodies}
        builder._joint_names = {b.joint_name for b in model.bodies}
        builder._frames = {f.name: f for f in model.frames}
        builder._constraints = [*model.constraints]
        builder._world = [*model.world_collisions]
        built = ("name", "gravity", "bodies", "frames", "constraints", "world_collisions")
        builder._others = {f.name: getattr(model, f.name) for f in fields(model) if f.name not in built}
        return builder

    def add_body(
        self,
        name: str,
        parent: str = WORLD,
        joint: Joint | None = None,
        placement: SE3 | None = None,
        inertia: Inertia | None = None,
        *,
        joint_name: str | None = None,
        position_limits: tuple[ArrayLike, ArrayLike] | None = None,
        velocity_limits: ArrayLike | None = None,
        effort_limits: ArrayLike | None = None,
        dry_friction: ArrayLike | None = None,
        damping: ArrayLike | None = None,
        stiffness: ArrayLike | None = None,
        rest: ArrayLike | None = None,
        armature: ArrayLike | None = None,
        gravity_compensation: float = 0.0,
        visuals: Iterable[Visual] = (),
        collisions: Iterable[Collision] = (),
    ) -> ModelBuilder:
        """Adds a body and the joint that carries it.

        Parameters
        ----------
        name : str
            Name of the body, unique in the model and not "world".
        parent : str
            Name of a body that has been added, or "world".
        joint : Joint, optional
            Joint between parent and body; `Fixed()` by default.
        placement : SE3, optional
            Pose of the joint's frame in the parent's frame. The body's frame is the joint's, moved by the joint.
        inertia : Inertia, optional
            Inertia in the body's frame; zero by default.
        joint_name : str, optional
            Name of the joint; that of the body by default. Look-ups take either.
        position_limits : (lower, upper), optional
            Limits of the coordinates, each one number for all of them or (nq,) of the joint.
        velocity_limits, effort_limits : array_like, optional
            Limits of velocities and of generalized forces, each one number for all of them or (nv,) of the joint.
        dry_friction, damping, stiffness : array_like, optional
            Torque or force of dry friction in the joint, damping and stiffness of its spring, each one number for all
            of its velocities or (nv,). A model only keeps them: `forces_from` makes forces of them.
        rest : (nq,) array_like, optional
            Coordinates at which the spring is at rest; the neutral ones by default.
        armature : array_like, optional
            Inertia of the drive of the joint, which the mass matrix has on its diagonal beside that of the bodies: one
            number for all of the velocities of the joint or (nv,).
        gravity_compensation : float
            Share of the body's weight that is compensated, which a model only keeps: `forces_from` makes a force of it.
        visuals : iterable of Visual
            Shapes for drawing.
        collisions : iterable of Collision
            Shapes for contact. A model only keeps them: `contacts` makes forces of them.

        Returns
        -------
        ModelBuilder
            The builder itself, so that calls can be chained.

        Raises
        ------
        ModelError
            If the body does not fit into the tree, or a limit is invalid.
        """
        joint_name = name if joint_name is None else joint_name
        joint = Fixed() if joint is None else joint
        if not isinstance(joint, Joint):
            hint = f"; did you mean {joint.__name__}()?" if isinstance(joint, type) and issubclass(joint, Joint) else ""
            raise TypeError(f"joint of {name!r} must be a Joint, got {joint!r}{hint}")
        lower: Any
        upper: Any
        lower, upper = joint._chain_data.range
        if position_limits is not None:
            try:
                lower, upper = position_limits
            except (TypeError, ValueError):
                raise ModelError(
                    f"position_limits of {name!r} must be (lower, upper), got {position_limits!r}"
                ) from None
        body = Body(
            name,
            parent,
            joint,
            _AT_PARENT if placement is None else placement,
            _NOTHING if inertia is None else inertia,
            joint_name,
            (
                _limits(lower, joint.nq, -np.inf, f"lower position limit of {name!r}"),
                _limits(upper, joint.nq, np.inf, f"upper position limit of {name!r}"),
            ),
            _limits(velocity_limits, joint.nv, np.inf, f"velocity_limits of {name!r}"),
            _limits(effort_limits, joint.nv, np.inf, f"effort_limits of {name!r}"),
            tuple(visuals),
            tuple(collisions),
            _limits(dry_friction, joint.nv, 0.0, f"dry_friction of {name!r}"),
            _limits(damping, joint.nv, 0.0, f"damping of {name!r}"),
            _limits(stiffness, joint.nv, 0.0, f"stiffness of {name!r}"),
            () if rest is None else _limits(rest, joint.nq, 0.0, f"rest of {name!r}"),
            _limits(armature, joint.nv, 0.0, f"armature of {name!r}"),
            float(gravity_compensation),
        )
        self._add(body)
        return self

    def _add(self, body: Body) -> None:
        """Validates a body against those before it and registers it."""
        name, joint_name = body.name, body.joint_name
        if body._sound and name in self._bodies:
            raise ModelError(f"there is already a body named {name!r}; names must differ")
        if name in self._frames:
            raise ModelError(f"there is already a frame named {name!r}; names must differ")
        if joint_name in self._joint_names:
            raise ModelError(f"there is already a joint named {joint_name!r}; give joint_name= another")
        if not isinstance(body.parent, str) or (body.parent not in self._bodies and body.parent != WORLD):
            names = listed([WORLD, *self._bodies], body.parent)
            raise ModelError(f"parent of {name!r} is {body.parent!r}, which has not been added; bodies are {names}")
        self._bodies[name] = body
        self._joint_names.add(joint_name)

    def add_frame(self, name: str, body: str, placement: SE3 | None = None) -> ModelBuilder:
        """Adds a frame on a body: `Model.frames`.

        Parameters
        ----------
        name : str
            Name of the frame, unlike those of other frames and of bodies, and not "world".
        body : str
            Name of a body or frame that has been added, or "world".
        placement : SE3, optional
            Pose in the frame of `body`; the identity by default.

        Returns
        -------
        ModelBuilder
            The builder itself, so that calls can be chained.

        Raises
        ------
        ModelError
            If there is a frame or a body of that name, or no body to put it on.
        """
        placement = SE3() if placement is None else placement
        if isinstance(body, str) and body in self._frames and isinstance(placement, SE3):
            body, placement = self._frames[body].body, self._frames[body].placement @ placement
        self._add_frame(Frame(name, body, placement))
        return self

    def _add_frame(self, frame: Frame) -> None:
        """Validates a frame against bodies and frames before it and registers it."""
        if not isinstance(frame.name, str) or not frame.name:
            raise ModelError(f"a frame's name must be a non-empty string, got {frame.name!r}")
        if frame.name == WORLD:
            raise ModelError(f"{WORLD!r} is the name of the world; give the frame another name")
        for taken, label in ((self._bodies, "body"), (self._frames, "frame")):
            if frame.name in taken:
                raise ModelError(f"there is already a {label} named {frame.name!r}; names must differ")
        if not isinstance(frame.body, str) or (frame.body != WORLD and frame.body not in self._bodies):
            error = unknown("body", frame.body, [WORLD, *self._bodies], f" for the frame {frame.name!r}")
            raise ModelError(error.args[0])
        if not isinstance(frame.placement, SE3):
            raise TypeError(f"placement of {frame.name!r} must be a SE3, got {frame.placement!r}")
        self._frames[frame.name] = frame

    def add_constraint(self, constraint: Constraint) -> ModelBuilder:
        """Adds a constraint that belongs to the model, as a loop of a mechanism does: `Model.constraints`.

        The bodies and joints that it names are looked up when it is used.

        Returns
        -------
        ModelBuilder
            The builder itself, so that calls can be chained.
        """
        self._constraints.extend(_constraints([constraint]))
        return self

    def add_world_collision(self, collision: Collision) -> ModelBuilder:
        """Adds `collision`, a shape of the world for contact as the ground is: `Model.world_collisions`.

        Returns
        -------
        ModelBuilder
            The builder itself, so that calls can be chained.
        """
        self._world.extend(require_collisions([collision], "the world"))
        return self

    def build(self) -> Model:
        """Returns the model of all that has been added so far. The builder can be used further."""
        bodies, constraints = tuple(self._bodies.values()), tuple(self._constraints)
        frames = tuple(self._frames.values())
        return Model(self.name, self._gravity, bodies, constraints, tuple(self._world), frames=frames, **self._others)


def require_armature(name: str, joint: Joint, armature: Sequence[float]) -> None:
    """Refuses armature for which the energy of the drive would give forces that depend on velocities."""
    at = 0
    for factor in joint._factors[0]:
        values = [float(x) for x in armature[at : at + factor.nv]]
        at += factor.nv
        if factor.kind == JointKind.free and any(values):
            raise ModelError(
                f"armature of {name!r} is {values}, but its joint is free: nothing drives it, and it is the "
                "body that has inertia; give the inertia to the body"
            )
        if factor.kind == JointKind.spherical and len(set(values)) > 1:
            raise ModelError(
                f"armature of {name!r} is {values}, expected three equal numbers for the three angular "
                "velocities of a spherical joint: with others the drive would turn like a body, and its torque would "
                "depend on velocities; give such an inertia to a body"
            )


def _gravity(gravity: ArrayLike) -> tuple[float, float, float]:
    x, y, z = frozen_array(gravity, (3,), "gravity").tolist()
    return (x, y, z)


def _constraints(given: Iterable[Constraint]) -> tuple[Constraint, ...]:
    if isinstance(given, (str, Mapping)) or not isinstance(given, Iterable):
        raise TypeError(f"constraints of a model must be a sequence of constraints, got {given!r}")
    out = tuple(given)
    for one in out:  # of a layer above this one
        if isinstance(one, type) or not hasattr(one, "shown_name"):
            raise TypeError(f"constraints of a model must be constraints such as Loop(...), got {one!r}")
    names = [one.name for one in out if one.name is not None]
    if len({*names}) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ModelError(f"there are two constraints named {twice!r}; names must differ")
    return out


PARAMETERS: Final = ("inertia", "placement", "gravity")


class ModelParameters(NamedTuple):
    """Numbers of a model by which there are gradients: the fields of `AdjointGradient` of the same names.

    Attributes
    ----------
    inertia : (nbodies, 10)
        `Inertia.parameters` of every body.
    placement : (nbodies, 6)
        Twists x by which placements move, to placement @ SE3.exp(x): zeros.
    gravity : (3,)
    armature : (nv,)
    """

    inertia: FloatArray
    placement: FloatArray
    gravity: FloatArray
    armature: FloatArray


@final
@dataclass(frozen=True)
class Model:
    """A frozen tree of bodies, made by `ModelBuilder`, `load_urdf` or `load_mjcf`.

    `print(model)` shows the tree. Models compare by value, can be pickled, and can be used from many threads.

    Attributes
    ----------
    name : str
    gravity : (3,)
        Acceleration of gravity in the world frame.
    bodies : tuple of Body
        Parents before children, in the order in which they were added.
    constraints : tuple of Constraint
        What else holds in the mechanism: loops and couplings of a file. `simulate`, `step` and `step_derivatives`
        impose them unless they are given others; functions of the tree alone, as `forward_dynamics`, do not.
    world_collisions : tuple of Collision
        Shapes of the world for contact.
    collision_rules : CollisionRules
        Which collision shapes may touch. Shapes and rules are for `contacts`; no other function uses them.
    frames : tuple of Frame
        Named frames on bodies.
    couplings : tuple of JointCoupling
        Joints that are functions of others (`couple`): nq and nv are then fewer than those of the `tree`.
    tendons : tuple of Tendon
    actuators : tuple of Actuator
        Tendons and actuators of a file, for `forces_from`, `actuation` and `ActuatorForce`.
    keyframes : dict of Keyframe by name
        States of a file. A copy with other coordinates has none.
    """

    name: str
    gravity: tuple[float, float, float]
    bodies: tuple[Body, ...]
    constraints: tuple[Constraint, ...] = ()
    world_collisions: tuple[Collision, ...] = ()
    collision_rules: CollisionRules = field(default_factory=CollisionRules)
    frames: tuple[Frame, ...] = ()
    couplings: tuple[JointCoupling, ...] = ()
    tendons: tuple[Tendon, ...] = ()
    actuators: tuple[Actuator, ...] = ()
    keyframes: Mapping[str, Keyframe] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "gravity", _gravity(self.gravity))
        object.__setattr__(self, "bodies", tuple(self.bodies))
        object.__setattr__(self, "constraints", _constraints(self.constraints))
        object.__setattr__(self, "world_collisions", require_collisions(self.world_collisions, "the world"))
        if not isinstance(self.collision_rules, CollisionRules):
            raise TypeError(f"collision_rules must be CollisionRules, got {self.collision_rules!r}")
        builder = ModelBuilder()  # which checks every body
        for b in self.bodies:
            if not isinstance(b, Body):
                raise TypeError(f"bodies of a model must be Body records, got {b!r}; ModelBuilder makes them")
            builder._add(b)
        object.__setattr__(self, "tendons", tuple(self.tendons))
        object.__setattr__(self, "actuators", tuple(self.actuators))
        fitting = {name: key for name, key in self.keyframes.items() if (len(key.q), len(key.v)) == (self.nq, self.nv)}
        object.__setattr__(self, "keyframes", fitting)
        object.__setattr__(self, "frames", tuple(self.frames))
        for frame in self.frames:
            if not isinstance(frame, Frame):
                raise TypeError(f"frames of a model must be Frame records, got {frame!r}")
            builder._add_frame(frame)
        object.__setattr__(self, "couplings", as_couplings(self.couplings))
        if self.couplings:
            _ = self.position_limits  # which checks names, sizes and limits

    @cached_property
    def _core(self) -> _core.Model:
        made = _core.Model(*compile_tree(self._tree(), np.array(self.gravity), self.armature, self._named()))
        if self._map is not None:
            made.couple(*self._map.compiled())
        return made

    @cached_property
    def _map(self) -> ReducedMap | None:
        """The couplings, resolved, or None."""
        if not self.couplings:
            return None
        tree = self.tree
        return ReducedMap(tree.joints, lambda name: tree._find(name, "joint"), self.couplings)

    @cached_property
    def _cache(self) -> dict[str, Any]:
        """Objects compiled for this model, by kind."""
        return {}

    def _tree(self) -> list[tuple[str, int, Chain, Pose, FloatArray]]:
        """The rows of `compile_tree`."""
        at = {b.name: i for i, b in enumerate(self.bodies)}
        parameters = self.inertial_parameters.reshape(-1, 10)
        return [
            (b.name, at.get(b.parent, -1), b.joint._factors, (b.placement.R, b.placement.p), pi)
            for b, pi in zip(self.bodies, parameters, strict=True)
        ]

    def _named(self) -> list[tuple[int, Pose]]:
        """The frames of `compile_tree`."""
        at = {b.name: i for i, b in enumerate(self.bodies)}
        return [(at.get(f.body, -1), (f.placement.R, f.placement.p)) for f in self.frames]

    def __getstate__(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        added = {f.name: f.default for f in fields(self) if f.default is not MISSING}  # since the first ones
        self.__dict__.update({**added, "collision_rules": CollisionRules(), "keyframes": {}, **state})

    @cached_property
    def joints(self) -> tuple[ModelJoint, ...]:
        """One joint for each body, in the bodies' order; fixed ones have empty slices."""
        joints, nq, nv = [], 0, 0
        for b in self.bodies:
            q, v = slice(nq, nq + b.joint.nq), slice(nv, nv + b.joint.nv)
            limits = b.position_limits, b.velocity_limits, b.effort_limits
            passive = b.dry_friction, b.damping, b.stiffness, b.rest, b.armature
            joints.append(ModelJoint(b.joint_name, b.name, b.joint, q, v, *limits, *passive))
            nq, nv = q.stop, v.stop
        if self._map is not None:
            where = zip(joints, self._map.q_slices, self._map.v_slices, strict=True)
            return tuple(
                replace(j, q_slice=q, v_slice=v, follows=self._map.follows(i)) for i, (j, q, v) in enumerate(where)
            )
        return tuple(joints)

    @cached_property
    def _index(self) -> dict[str, dict[str, int]]:
        """Index of every body and joint by name, for look-ups of any kind. Where a body and a joint have the same name,
        the kind of the look-up decides. Frames, which are for look-ups of their kind alone, come after the bodies."""
        joints = {b.joint_name: i for i, b in enumerate(self.bodies)}
        bodies = {b.name: i for i, b in enumerate(self.bodies)}
        frames = {f.name: i for i, f in enumerate(self.frames, len(self.bodies))}
        return {"joint": bodies | joints, "body": joints | bodies, "frame": joints | frames | bodies}

    @property
    def nbodies(self) -> int:
        """Number of bodies, without the world."""
        return len(self.bodies)

    @cached_property
    def nq(self) -> int:
        """Number of coordinates: the length of q."""
        if self._map is not None:
            return self._map.nq
        return self.joints[-1].q_slice.stop if self.bodies else 0

    @cached_property
    def nv(self) -> int:
        """Number of velocities: the length of v, a and tau."""
        if self._map is not None:
            return self._map.nv
        return self.joints[-1].v_slice.stop if self.bodies else 0

    def _find(self, name: str, kind: str) -> int:
        if isinstance(name, str) and name in self._index[kind]:
            return self._index[kind][name]
        new = self._map.new if self._map is not None else self._cache.get("new", ())
        if kind == "joint" and name in new:
            raise KeyError(
                f"no joint named {name!r}: it is a new coordinate of a coupling, on no joint. Its name is taken by "
                "actuation, prescribed, lock, plot, PositionTarget and VelocityTarget; forces and constraints act on "
                f"the joints {listed([j.name for j in self.joints])}"
            )
        accepted = self._index[kind]
        names = [j.name for j in self.joints] if kind == "joint" else [b.name for b in self.bodies]
        if kind == "frame":
            kind, names = "body", [*names, *(f.name for f in self.frames)]
        raise unknown(kind, name, names, accepted=accepted)

    def joint(self, name: str) -> ModelJoint:
        """The joint with the name `name`, or of the body with that name."""
        return self.joints[self._find(name, "joint")]

    def body(self, name: str) -> Body:
        """The body with the name `name`, or of the joint with that name."""
        return self.bodies[self._find(name, "body")]

    def frame(self, name: str) -> Frame:
        """The frame with the name `name`; of a body, or of the joint with that name, the body's own frame."""
        i = self._find(name, "frame")
        return Frame(self.bodies[i].name, self.bodies[i].name) if i < self.nbodies else self.frames[i - self.nbodies]

    def body_index(self, name: str) -> int:
        """Where the body with the name `name`, or of the joint with that name, is in `bodies`, and so in the rows of
        `body_poses`, of `f_ext` and of all that has one row for each body."""
        return self._find(name, "body")

    @property
    def position_limits(self) -> tuple[FloatArray, FloatArray]:
        """Lower and upper position limits, (nq,) each, infinite where there is none.

        Those of followers in couplings that are linear in one coordinate limit that coordinate.
        """
        lower, upper = (np.array([x for b in self.bodies for x in b.position_limits[end]]) for end in (0, 1))
        if self._map is None:
            return lower, upper
        own = self._reduced(lower, -np.inf), self._reduced(upper, np.inf)
        self._map.limits(lower, upper, own)
        return own

    @property
    def velocity_limits(self) -> FloatArray:
        """Velocity limits (nv,), infinite where there is none. Those of followers count as in `position_limits`."""
        tree = np.array([x for b in self.bodies for x in b.velocity_limits])
        if self._map is None:
            return tree
        own = self._reduced(tree, np.inf, self._map.runs_v)
        self._map.narrow_velocities(tree, own)
        return own

    @property
    def effort_limits(self) -> FloatArray:
        """Limits of generalized forces (nv,), infinite where there is none; those of followers do not count."""
        tree = np.array([x for b in self.bodies for x in b.effort_limits])
        return tree if self._map is None else self._reduced(tree, np.inf, self._map.runs_v)

    def _reduced(self, tree: FloatArray, new: float, runs: Sequence[tuple[int, int, int]] | None = None) -> FloatArray:
        """Numbers of the tree's coordinates, or of velocities with their `runs`, for the reduced ones; `new` for those
        of no joint."""
        assert self._map is not None
        out = np.full(self._map.nq if runs is None else self._map.nv, new)
        for at, to, count in self._map.runs_q if runs is None else runs:
            out[to : to + count] = tree[at : at + count]
        return out

    @property
    def dry_friction(self) -> FloatArray:
        """Torques and forces of dry friction in the joints (nv,), zero where there is none: those of
        `JointFriction(None, model.dry_friction)`."""
        return np.array([x for b in self.bodies for x in b.dry_friction])

    @property
    def damping(self) -> FloatArray:
        """Damping in the joints (nv,), zero where there is none."""
        return np.array([x for b in self.bodies for x in b.damping])

    @property
    def stiffness(self) -> FloatArray:
        """Stiffness of springs in the joints (nv,), zero where there is none."""
        return np.array([x for b in self.bodies for x in b.stiffness])

    @property
    def rest(self) -> FloatArray:
        """The configuration (nq,) at which springs in the joints are at rest."""
        return np.array([x for b in self.bodies for x in b.rest])

    @property
    def armature(self) -> FloatArray:
        """Inertia of the drives of the joints (nv,), zero where there is none."""
        return np.array([x for b in self.bodies for x in b.armature])

    @property
    def mass(self) -> float:
        """Total mass of the bodies, those fixed to the world included."""
        return float(sum(b.inertia.mass for b in self.bodies))

    @property
    def inertial_parameters(self) -> FloatArray:
        """The ten parameters of every body (`Inertia.parameters`), concatenated: (10 nbodies,)."""
        return parameters_of([b.inertia for b in self.bodies]).ravel()

    @property
    def neutral(self) -> FloatArray:
        """The neutral configuration (nq,): zeros, and identity quaternions."""
        tree = np.concatenate([np.zeros(0)] + [b.joint.neutral for b in self.bodies])
        return tree if self._map is None else self._reduced(tree, 0.0)

    @property
    def start(self) -> FloatArray:
        """The configuration (nq,) in which the model is drawn by default, and from which the command line simulates:
        that of the keyframe `qpos0`, which `load_mjcf` gives to models whose bodies do not stand in the neutral one,
        else `neutral`."""
        key = self.keyframes.get("qpos0")
        return self.neutral if key is None else np.array(key.q)

    def random(
        self, rng: np.random.Generator | int | None = None, size: int | tuple[int, ...] | None = None
    ) -> FloatArray:
        """Random configurations, within limits where there are any.

        A coordinate with limits on both sides is uniform between them; with one limit, it is beyond the limit by the
        magnitude of the joint's own random value. Limits on quaternions are ignored.

        Parameters
        ----------
        rng : Generator or int, optional
            Generator of random numbers, or its seed.
        size : int or tuple of int, optional
            Batch shape.

        Returns
        -------
        q : (*size, nq) array
        """
        rng = np.random.default_rng(rng)
        shape = () if size is None else tuple(map(index, size if isinstance(size, Sequence) else (size,)))
        if any(n < 0 for n in shape):
            raise ValueError(f"size is {size!r}, expected numbers of at least 0")
        low, high = self.position_limits
        kinds = [np.full(b.joint.nq, float(b.joint.nq == b.joint.nv)) for b in self.bodies]
        of_tree = np.concatenate([np.zeros(0), *kinds])
        plain = (of_tree if self._map is None else self._reduced(of_tree, 1.0)) == 1.0
        with np.errstate(over="ignore", invalid="ignore"):
            both = plain & np.isfinite(high - low)
        above, below = plain & ~both & np.isfinite(low), plain & ~both & ~np.isfinite(low) & np.isfinite(high)
        q = np.empty((*shape, self.nq))
        for row in q.reshape(prod(shape), self.nq):
            tree = np.concatenate([np.zeros(0)] + [b.joint.random(rng) for b in self.bodies])
            row[:] = tree if self._map is None else self._reduced(tree, 0.0)
            if self._map is not None:
                row[self.nq - len(self._map.new) :] = rng.standard_normal(len(self._map.new))
            row[both] = rng.uniform(low[both], high[both] + 0.0)  # -0.0 would be below 0
            row[above] = low[above] + np.abs(row[above])
            row[below] = high[below] - np.abs(row[below])
        return self.normalize(q)

    @direct("plus")
    def plus(self, q: ArrayLike, dv: ArrayLike, *, out: FloatArray | None = None, threads: Threads = 1) -> FloatArray:
        """Moves q by the displacement dv in the tangent space at q.

        Vector joints add; a quaternion joint moves by the exponential of dv in the child's frame.

        Parameters
        ----------
        q : (..., nq) array_like
            Configurations.
        dv : (..., nv) array_like
            Displacements.
        out : (..., nq) array, optional
            Array for the result.
        threads : int or "auto"
            Most threads for a batch, of which as many take part as pay; "auto" for at most one per core.

        Returns
        -------
        q1 : (..., nq) array
        """
        return _core.plus(self, q, dv, out, threads)

    @direct("minus")
    def minus(self, q1: ArrayLike, q0: ArrayLike, *, out: FloatArray | None = None, threads: Threads = 1) -> FloatArray:
        """The displacement dv with plus(q0, dv) = q1; rotations take the shorter way, pi at most.

        Parameters
        ----------
        q1, q0 : (..., nq) array_like
            Configurations.
        out : (..., nv) array, optional
            Array for the result.
        threads : int or "auto"
            Most threads for a batch, of which as many take part as pay; "auto" for at most one per core.

        Returns
        -------
        dv : (..., nv) array
        """
        return _core.minus(self, q1, q0, out, threads)

    @direct("normalize")
    def normalize(self, q: ArrayLike, *, out: FloatArray | None = None, threads: Threads = 1) -> FloatArray:
        """The same configuration with quaternions of unit length and exponential coordinates of length pi at most.

        Parameters
        ----------
        q : (..., nq) array_like
            Configurations.
        out : (..., nq) array, optional
            Array for the result.
        threads : int or "auto"
            Most threads for a batch, of which as many take part as pay; "auto" for at most one per core.

        Returns
        -------
        q1 : (..., nq) array
        """
        return _core.normalize(self, q, out, threads)

    @cached_property
    def _weightless(self) -> Model:
        """A copy without gravity."""
        return self.with_gravity((0.0, 0.0, 0.0))

    def with_gravity(self, gravity: ArrayLike) -> Model:
        """A copy with the acceleration of gravity `gravity` (3,)."""
        return replace(self, gravity=_gravity(gravity))

    def with_inertia(self, name: str, inertia: Inertia) -> Model:
        """A copy in which the body `name` has the inertia `inertia`."""
        if not isinstance(inertia, Inertia):
            raise TypeError(f"inertia must be an Inertia, got {inertia!r}")
        i = self._find(name, "body")
        return replace(
            self, bodies=tuple(replace(b, inertia=inertia) if k == i else b for k, b in enumerate(self.bodies))
        )

    def with_actuators(self, actuators: Iterable[Actuator], tendons: Iterable[Tendon] | None = None) -> Model:
        """A copy with other `actuators` and, if given, other `tendons`, all of whose names must exist."""
        model = replace(self, actuators=tuple(actuators), tendons=self.tendons if tendons is None else tuple(tendons))
        require_drives(model)
        return model

    @property
    def control_limits(self) -> FloatArray:
        """Lower and upper limits (2, nu) of the controls of the actuators."""
        return np.asarray(np.array([a.control_limits for a in self.actuators]).reshape(-1, 2).T)

    def with_placement(self, name: str, placement: SE3) -> Model:
        """A copy in which the joint of the body `name`, or the frame `name`, is placed at `placement`."""
        return _edited("with_placement", self, name, placement)

    def with_body(self, name: str, /, **changes: Any) -> Model:
        """A copy in which the body `name` has other properties.

        Parameters
        ----------
        name : str
            Name of the body, or of its joint.
        **changes
            Those of the arguments of `ModelBuilder.add_body` that change: `inertia`, `placement`, `joint_name`, limits,
            friction, springs and armature of the joint, `gravity_compensation`, `visuals`, `collisions`.

        Returns
        -------
        Model

        Examples
        --------
        >>> model = model.with_body("elbow", position_limits=(-2.0, 2.0), damping=0.1)
        """
        return _edited("with_body", self, name, changes)

    def with_joint(self, name: str, joint: Joint) -> Model:
        """A copy in which the joint `name`, or that of the body `name`, is of another kind, or about another axis.

        Limits, friction and springs are kept if the joint has as many coordinates and velocities as before, and are
        those of a new joint otherwise; then constraints in its coordinates are refused.

        Parameters
        ----------
        name : str
            Name of the joint, or of its body.
        joint : Joint

        Returns
        -------
        Model
        """
        return _edited("with_joint", self, name, joint)

    def attach(self, other: Model, at: str = WORLD, prefix: str = "") -> Model:
        """A copy that carries another model, as an arm carries a gripper: the world of `other` is the frame `at`.

        Bodies, frames, constraints and collision shapes of `other` come after those of this model, and so do its
        coordinates. Gravity is that of this model. Refused are names that both have, constraints of users' own, and
        motions that are prescribed in the world of `other`, unless that is the same one.

        Parameters
        ----------
        other : Model
        at : str
            Name of a frame or body, or "world".
        prefix : str
            What all names of `other` begin with in the result.

        Returns
        -------
        Model

        Examples
        --------
        >>> robot = model.attach(ts.models.pendulum(), at="hand", prefix="left/")
        >>> robot.nv
        8
        """
        return _edited("attach", self, other, at, prefix)

    def subtree(self, name: str) -> Model:
        """The model of a body and all bodies that it carries, with the joint of the body on the world.

        The placement of that joint is kept. Frames, constraints and collision shapes of these bodies go along, those of
        others do not; a constraint between both is refused.

        Parameters
        ----------
        name : str
            Name of the body, or of its joint.

        Returns
        -------
        Model
        """
        return _edited("subtree", self, name)

    def without(self, name: str) -> Model:
        """A copy without a body and all bodies that it carries, or without a frame.

        Frames, constraints and collision shapes of these bodies are left out; a constraint between them and others is
        refused.

        Parameters
        ----------
        name : str
            Name of a body, of its joint, or of a frame.

        Returns
        -------
        Model
        """
        return _edited("without", self, name)

    @property
    def parameters(self) -> ModelParameters:
        """The numbers that gradients of `adjoint` are with respect to, under the same names."""
        placements = np.zeros((self.nbodies, 6))
        return ModelParameters(
            self.inertial_parameters.reshape(-1, 10), placements, np.array(self.gravity), self.armature
        )

    def with_parameters(
        self,
        *,
        inertia: ArrayLike | None = None,
        placement: ArrayLike | None = None,
        gravity: ArrayLike | None = None,
        armature: ArrayLike | None = None,
        constraints: Sequence[Mapping[str, ArrayLike] | None] | None = None,
        couplings: Sequence[Mapping[str, ArrayLike] | None] | None = None,
        allow_unphysical: bool = False,
    ) -> Model:
        """A copy with other numbers: the counterpart of the gradients of `adjoint`, which have the same names.

        Parameters
        ----------
        inertia : (nbodies, 10) or (10 nbodies,) array_like, optional
            `Inertia.parameters` of all bodies, as `parameters.inertia` or as `inertial_parameters`.
        placement : (nbodies, 6) or (6 nbodies,) array_like, optional
            Twists x by which all placements move, to placement @ SE3.exp(x).
        gravity : (3,) array_like, optional
        armature : (nv,) array_like, optional
            By the velocities of the `tree`.
        constraints : sequence of dict or None, optional
            Parameters of each of the constraints of the model, by name (`Constraint.with_parameters`).
        couplings : sequence of dict or None, optional
            The same of each of its couplings.
        allow_unphysical : bool
            Whether inertias that no body can have are accepted.

        Returns
        -------
        Model

        Raises
        ------
        ModelError
            If inertias are not physical; all such bodies are named.

        Examples
        --------
        >>> motion = ts.simulate(model, q, steps=10, integrator=ts.BDF2(h=1e-2))
        >>> gradient = ts.adjoint(motion, ts.PointTarget("hand", (0, 0, 0), (0.4, 0.2, 0.8)))
        >>> model = model.with_parameters(placement=-1e-2 * gradient.placement)
        >>> model = model.with_parameters(inertia=model.parameters.inertia - 1e-6 * gradient.inertia)
        """
        numbers = inertia, placement, gravity, armature, constraints, couplings
        return _edited("with_parameters", self, *numbers, allow_unphysical)

    def parameter_vector(self, source: object = None, names: Sequence[str] = PARAMETERS) -> FloatArray:
        """Parameters of the model, or gradients by them, as a flat vector (..., n) for optimizers.

        Parameters
        ----------
        source : optional
            A record with the fields `names`, as `AdjointGradient`, of any batch shape; by default `parameters`.
        names : sequence of {"inertia", "placement", "gravity", "armature"}
            What the vector consists of, in this order.

        Returns
        -------
        x : (..., n) array

        Examples
        --------
        >>> motion = ts.simulate(model, q, steps=10, integrator=ts.BDF2(h=1e-2))
        >>> gradient = ts.adjoint(motion, ts.PointTarget("hand", (0, 0, 0), (0.4, 0.2, 0.8)))
        >>> x = model.parameter_vector(names=["placement"])
        >>> g = model.parameter_vector(gradient, names=["placement"])
        >>> model = model.with_parameter_vector(x - 1e-2 * g, names=["placement"])
        """
        out: FloatArray = import_module("torsor.editing").parameter_vector(self, source, names)  # a layer above
        return out

    def with_parameter_vector(
        self, x: ArrayLike, names: Sequence[str] = PARAMETERS, *, allow_unphysical: bool = False
    ) -> Model:
        """A copy with the parameters of a vector that is laid out as by `parameter_vector`.

        Parameters
        ----------
        x : (n,) array_like
        names : sequence of {"inertia", "placement", "gravity", "armature"}
            What the vector consists of, in this order.
        allow_unphysical : bool
            Whether inertias that no body can have are accepted.

        Returns
        -------
        Model
        """
        return _edited("with_parameter_vector", self, x, names, allow_unphysical)

    def with_frame(self, name: str, body: str, placement: SE3 | None = None) -> Model:
        """A copy with a further frame.

        Parameters
        ----------
        name : str
            Name of the frame, unlike those of other frames and of bodies.
        body : str
            Name of a body or frame, or "world".
        placement : SE3, optional
            Pose in the frame of `body`; the identity by default.

        Returns
        -------
        Model

        Examples
        --------
        >>> model = model.with_frame("tool", "hand", ts.SE3.translation(0, 0, 0.1))
        >>> J = ts.jacobian(model, q, "tool")
        """
        placement = SE3() if placement is None else placement
        if body != WORLD and isinstance(placement, SE3):
            on = self.frame(body)
            body, placement = on.body, on.placement @ placement
        return replace(self, frames=(*self.frames, Frame(name, body, placement)))

    def with_constraints(self, constraints: Iterable[Constraint]) -> Model:
        """A copy with other constraints of its own; `with_constraints(())` is the tree alone."""
        return replace(self, constraints=_constraints(constraints))

    @cached_property
    def tree(self) -> Model:
        """The model without its couplings: the tree underneath, with all joints."""
        if not self.couplings:
            return self
        made = replace(self, couplings=())
        made._cache["new"] = tuple(name for coupling in self.couplings for name in coupling.new)
        return made

    @property
    def _label(self) -> str:
        """What messages about sizes call it: forces and costs see only the tree of a model with couplings."""
        return "the tree of this coupled model" if "new" in self._cache else "the model"

    def couple(self, *couplings: JointCoupling | Mapping[Any, tuple[Any, ...]]) -> Model:
        """A model with fewer coordinates, in which joints are functions of others: q = phi(z).

        Reduced coordinates are those of the joints that follow no others, in their order, and then new ones. All
        functions take and return vectors of the reduced nq and nv; generalized forces are P^T times those of the tree,
        with P = `coupling_jacobian`. Bodies, forces, losses and constraints are those of the tree.

        Parameters
        ----------
        *couplings : Mimic, Polynomial, Subspace, CustomCoupling or mapping
            A mapping is {follower: (leader, ratio, offset)}, the last two optional.

        Returns
        -------
        Model

        Raises
        ------
        ModelError
            If a joint is coupled twice or its coordinates are not a vector, couplings are a ring, columns of a
            subspace are dependent, or limits of followers leave no position for a leader.

        Examples
        --------
        >>> coupled = model.couple(ts.Mimic("flange", of="wrist_pitch", ratio=-1.0))
        >>> the_same = model.couple({"flange": ("wrist_pitch", -1.0)})
        >>> coupled.nv
        6
        """
        made = replace(self, couplings=self.couplings + as_couplings(couplings))
        return made if made._map is None else replace(made, couplings=made._map.named())

    @direct("expand")
    def expand(self, q: ArrayLike, *, out: FloatArray | None = None, threads: Threads = 1) -> FloatArray:
        """The configuration of all joints, that of the `tree`, from reduced coordinates q.

        Parameters
        ----------
        q : (..., nq) array_like
            Configurations.
        out : (..., tree.nq) array, optional
            Array for the result.
        threads : int or "auto"
            Most threads for a batch, of which as many take part as pay; "auto" for at most one per core.

        Returns
        -------
        tree_q : (..., tree.nq) array
        """
        return _core.expand(self, q, out, threads)

    @direct("expand_velocity")
    def expand_velocity(
        self, q: ArrayLike, v: ArrayLike, *, out: FloatArray | None = None, threads: Threads = 1
    ) -> FloatArray:
        """The velocities of all joints, P v.

        Parameters
        ----------
        q : (..., nq) array_like
            Configurations.
        v : (..., nv) array_like
            Velocities.
        out : (..., tree.nv) array, optional
            Array for the result.
        threads : int or "auto"
            Most threads for a batch, of which as many take part as pay; "auto" for at most one per core.

        Returns
        -------
        tree_v : (..., tree.nv) array
        """
        return _core.expand_velocity(self, q, v, out, threads)

    @direct("expand_acceleration")
    def expand_acceleration(
        self, q: ArrayLike, v: ArrayLike, a: ArrayLike, *, out: FloatArray | None = None, threads: Threads = 1
    ) -> FloatArray:
        """The accelerations of all joints, P a + dP/dt v.

        Parameters
        ----------
        q : (..., nq) array_like
            Configurations.
        v, a : (..., nv) array_like
            Velocities and accelerations.
        out : (..., tree.nv) array, optional
            Array for the result.
        threads : int or "auto"
            Most threads for a batch, of which as many take part as pay; "auto" for at most one per core.

        Returns
        -------
        tree_a : (..., tree.nv) array
        """
        return _core.expand_acceleration(self, q, v, a, out, threads)

    @direct("coupling_jacobian")
    def coupling_jacobian(self, q: ArrayLike, *, out: FloatArray | None = None, threads: Threads = 1) -> FloatArray:
        """The matrix P with which velocities of all joints are P v; the unit matrix without couplings.

        Parameters
        ----------
        q : (..., nq) array_like
            Configurations.
        out : (..., tree.nv, nv) array, optional
            Array for the result.
        threads : int or "auto"
            Most threads for a batch, of which as many take part as pay; "auto" for at most one per core.

        Returns
        -------
        P : (..., tree.nv, nv) array
        """
        return _core.coupling_jacobian(self, q, out, threads)

    def reduce(
        self,
        tree_q: ArrayLike,
        tree_v: ArrayLike | None = None,
        *,
        near: ArrayLike | None = None,
        tolerance: float = 1e-6,
    ) -> Any:
        """The reduced coordinates of a configuration of all joints: the inverse of `expand`.

        Parameters
        ----------
        tree_q : (..., tree.nq) array_like
            Configurations of the `tree` that fulfil the couplings.
        tree_v : (..., tree.nv) array_like, optional
            Velocities of it.
        near : (..., nq) array_like, optional
            Reduced configurations from which nonlinear functions of new coordinates are inverted; neutral ones by
            default.
        tolerance : float
            How far followers may be from what their leaders give.

        Returns
        -------
        q : (..., nq) array
            Alone, or (q, v) with velocities.

        Raises
        ------
        ConstraintError
            If a follower is further away.
        """
        given = {"tree_q": (tree_q, self.tree.nq), "tree_v": (tree_v, self.tree.nv), "near": (near, self.nq)}
        arrays: dict[str, FloatArray] = {}
        for name, (value, size) in given.items():
            if value is None:
                continue
            arrays[name] = as_array(name, value)
            if arrays[name].ndim == 0 or arrays[name].shape[-1] != size:
                raise ValueError(f"{name} has shape {arrays[name].shape}, expected (..., {size})")
            if not np.isfinite(arrays[name]).all():
                raise ValueError(f"{name} is not finite")
        if not tolerance >= 0:
            raise ValueError(f"tolerance is {tolerance!r}, expected a number of at least 0")
        q = reduced_position(self, arrays["tree_q"], arrays.get("near", self.neutral), tolerance)
        return (q, reduced_velocity(self, q, arrays["tree_v"], tolerance)) if "tree_v" in arrays else q

    def _velocities(self, name: str, purpose: str) -> slice:
        """Velocities of the joint `name` or of a new coordinate; ModelError if it follows others."""
        if self._map is not None and isinstance(name, str) and name in self._map.new:
            at = self._map.columns[name]
            return slice(at, at + 1)
        joint = self.joint(name)
        if joint.follows and joint.nv == 0:
            raise ModelError(
                f"joint {name!r} follows {listed(joint.follows)} by a coupling and has no velocity of its own; "
                f"{purpose} {listed(joint.follows)} in its place"
            )
        return joint.v_slice

    @cached_property
    def _owners(self) -> tuple[str, ...]:
        """The joint, or the new coordinate, of each velocity."""
        names = [""] * self.nv
        for joint in self.joints:
            names[joint.v_slice] = [joint.name] * (joint.v_slice.stop - joint.v_slice.start)
        if self._map is not None:
            for name in self._map.new:
                names[self._map.columns[name]] = name
        return tuple(names)

    def maximal(self) -> tuple[Model, tuple[Constraint, ...]]:
        """The same mechanism in maximal coordinates: all bodies on `Free` joints, and joints as constraints.

        Constraints are a `Loop` for each joint, of its name, then those of the model between bodies. `to_maximal` has
        the layout of coordinates, and the joints that keep theirs. Raises `ModelError` if a body has singular inertia.
        Not for couplings: use `tree.maximal()`.

        Examples
        --------
        >>> free, joints = model.maximal()
        >>> Q, V = ts.to_maximal(model, q, v)
        """
        out: tuple[Model, tuple[Constraint, ...]] = import_module("torsor.maximal").maximal(self)  # a layer above
        return out

    def with_loop(self, loop: Loop) -> tuple[Model, Loop]:
        """A model that has the coordinates of the joint of a loop, and the loop for it.

        For joints that cannot close a loop by themselves (`Screw`, splines, `Composite`, `CustomJoint`), and for
        springs, motors or limits in the coordinates of any joint that closes one. A body is added on this joint to the
        body a of the loop, and the loop that is returned welds it to b. It has the loop's name (`shown_name`) and half
        of b's inertia, of which b keeps the other half: where the loop is closed the mechanics are the same, and the
        mass matrix remains regular. Coordinates of the joint follow those of the model in q.

        Parameters
        ----------
        loop : Loop

        Returns
        -------
        model : Model
        loop : Loop
            By a `Fixed` joint.

        Examples
        --------
        >>> longer, loop = model.with_loop(ts.Loop("base", "hand", ts.Screw(pitch=0.1), name="thread"))
        >>> longer.nv
        8
        """
        split = getattr(loop, "_split", None)
        if split is None:
            raise TypeError(f"with_loop takes a Loop, got {loop!r}")
        out: tuple[Model, Loop] = split(self)
        return out

    def lock(self, positions: Mapping[str, ArrayLike]) -> Model:
        """A copy in which joints are welded at given positions: `lock({"finger": 0.02})`.

        A locked body becomes part of its parent: its inertia, visuals and collision shapes are merged there, its
        children are attached there, and its name becomes that of a frame there. A body locked to the world remains, on
        a fixed joint. Frames move with their bodies.
        Constraints of the model between bodies move with them; those in coordinates of a locked joint are refused.
        Joints that follow locked ones by couplings are locked too.

        Parameters
        ----------
        positions : mapping from str to (nq,) array_like
            Coordinates of the joints to lock, by name; new coordinates of couplings can be locked too.

        Returns
        -------
        Model
        """
        locked: dict[int, FloatArray] = {}
        if not isinstance(positions, Mapping):
            raise TypeError(f"lock takes a mapping from joints to positions, got {type(positions).__name__}")
        if self._map is not None:
            return self._lock_leaders(positions)
        for name, value in positions.items():
            i = self._find(name, "joint")
            if i in locked:
                raise ValueError(f"joint {name!r} is named twice, by its own name and by its body's")
            refuse_mask(f"position of {name!r}", value)
            q = np.atleast_1d(np.asarray(value, dtype=np.float64))
            joint = self.bodies[i].joint
            if q.shape != (joint.nq,):
                raise ValueError(f"position of {name!r} has shape {q.shape}, expected ({joint.nq},)")
            if not np.isfinite(q).all():
                raise ValueError(f"position of {name!r} is not finite: got {q.tolist()}")
            try:
                locked[i] = joint.normalize(q)
            except ValueError:
                raise ValueError(f"position of {name!r} has a zero quaternion: got {q.tolist()}") from None
        moved: dict[str, tuple[str, SE3]] = {}  # welded body -> the body it is now part of, and its pose there
        kept: dict[str, Body] = {}
        for i, b in enumerate(self.bodies):
            parent, at = moved.get(b.parent, (b.parent, SE3()))
            placement = at @ b.placement if b.parent in moved else b.placement
            if i not in locked:
                kept[b.name] = replace(b, parent=parent, placement=placement)
                continue
            pose = placement @ SE3.from_matrix(b.joint.T(locked[i]))
            if parent == WORLD:
                empty: tuple[float, ...] = ()
                numbers: dict[str, Any] = dict.fromkeys(("velocity_limits", "effort_limits", "rest", *_PASSIVE), empty)
                numbers["position_limits"] = (empty, empty)
                kept[b.name] = replace(b, parent=parent, placement=pose, joint=Fixed(), **numbers)
                continue
            moved[b.name] = (parent, pose)
            p = kept[parent]
            visuals = tuple(replace(s, placement=pose @ s.placement) for s in b.visuals)
            collisions = tuple(replace(c.moved(pose), source=c.source or b.name) for c in b.collisions)
            kept[parent] = replace(
                p, inertia=p.inertia + b.inertia.transformed(pose), visuals=p.visuals + visuals,
                collisions=p.collisions + collisions,
            )  # fmt: skip
        joints = {self.bodies[i].joint_name for i in locked}
        for constraint in self.constraints:
            if joints & {*constraint._joints(self)}:
                raise ModelError(
                    f"lock({sorted(joints)}) removes coordinates that the constraint {constraint.shown_name!r} is "
                    "given in; lock model.with_constraints(...) without it"
                )
        bodies = {name: self.bodies[i].name for name, i in self._index["body"].items()}
        places = {name: moved[body] for name, body in bodies.items() if body in moved}
        constraints = tuple(constraint._on(places) for constraint in self.constraints)
        frames = [Frame(name, *place) for name, place in moved.items()]
        for f in self.frames:
            body, at = moved.get(f.body, (f.body, SE3()))
            frames.append(replace(f, body=body, placement=at @ f.placement if f.body in moved else f.placement))
        tendons, actuators = on_locked(self.tendons, self.actuators, joints, places)
        return replace(
            self, bodies=tuple(kept.values()), constraints=constraints, frames=tuple(frames), tendons=tendons,
            actuators=actuators,
        )  # fmt: skip

    def _lock_leaders(self, positions: Mapping[str, ArrayLike]) -> Model:
        """`lock` for a model with couplings."""
        assert self._map is not None
        q = self.neutral
        new: dict[str, float] = {}
        for name, value in positions.items():
            at = self._velocities(name, "lock")
            if name in self._map.new:
                if np.size(value) != 1 or not np.isfinite(value).all():
                    raise ValueError(f"position of {name!r} is {value!r}, expected a finite number: a new coordinate")
                new[name] = q[self._map.position[at.start]] = float(np.asarray(value).reshape(()))
                continue
            joint = self.joint(name)
            if np.size(value) == joint.nq == joint.joint.nq:  # others are refused below
                q[joint.q_slice] = np.asarray(value, dtype=np.float64).reshape(-1)
        given = {self._find(name, "joint"): name for name in positions if name not in new}
        found, kept = self._map.locked(given, new)
        tree, full = self.tree, self.expand(q)
        all_positions = {given[j]: positions[given[j]] for j in given}
        all_positions |= {self.joints[j].name: full[tree.joints[j].q_slice] for j in sorted(found - {*given})}
        return replace(tree.lock(all_positions), couplings=kept)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the model to the file `path`, which `Model.load` reads: JSON, with exact numbers.

        Raises `ModelError`, naming it, for what a file cannot describe: joints and constraints of users' own, functions
        of time.
        """
        import_module("torsor.saving").save(self, path)  # a layer above

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Model:
        """The model in the file `path` that `save` has written, equal to the one that was saved.

        Raises `FormatError` if the file is not one, or is of a later version.
        """
        out: Model = import_module("torsor.saving").load(path)  # a layer above
        return out

    def draw(
        self,
        q: ArrayLike | None = None,
        ax: Any = None,
        *,
        camera: Camera | None = None,
        frames: bool | str | Sequence[str] | None = None,
        names: bool | str | Sequence[str] = False,
        ground: bool | float | None = None,
        legend: bool | None = None,
        constraints: Sequence[Constraint] | None = None,
    ) -> Any:
        """Draws the model as a stick figure with Matplotlib: bones between joints, a symbol for each kind of joint, and
        what constraints and couplings tie together.

        Bodies that carry no others are boxes of their inertia. Joints that close loops are black, and joined by dashed
        red lines where they are open; dotted lines join joints that follow each other.

        Parameters
        ----------
        q : (nq,) array_like, optional
            Configuration, the neutral one by default.
        ax : mpl_toolkits.mplot3d.Axes3D, optional
            Axes to draw in, ``figure.add_subplot(projection="3d")``; those of a new figure by default.
        camera : pictures.Camera, optional
            Its azimuth and elevation say from where; mechanisms that move in a plane are seen at right angles to it by
            default.
        frames : bool, str or sequence of str, optional
            Frames and bodies whose axes are shown with their names: red, green and blue for x, y and z. True for all
            `frames` of the model, False also without those of the world.
        names : bool, str or sequence of str
            Joints whose names are shown, or all.
        ground : bool or float, optional
            Height of the ground, True for the lowest point, False for none. By default a level surface for contact, or
            height 0 where nothing is below.
        legend : bool, optional
            Whether to name the kinds of joints; by default in a new figure.
        constraints : sequence of Constraint, optional
            Those that are shown; those of the model by default.

        Returns
        -------
        mpl_toolkits.mplot3d.Axes3D
            ``ax.figure.savefig("model.png")`` writes a file.

        Examples
        --------
        >>> ax = ts.models.arm7().draw([0, 0.5, 0, 1, 0, 0.5, 0], frames="hand")
        >>> ax.figure.savefig("arm.png")
        """
        options = {"camera": camera, "frames": frames, "names": names, "ground": ground, "legend": legend}
        return import_module("torsor.pictures.stick_figure").draw_model(self, q, ax, constraints, **options)

    def __str__(self) -> str:
        children: dict[str, list[int]] = {}
        for i, b in enumerate(self.bodies):
            children.setdefault(b.parent, []).append(i)
        rows: list[tuple[str, str, str, str, str]] = []
        stack = [(i, "", k == len(children[WORLD]) - 1) for k, i in enumerate(children.get(WORLD, []))][::-1]
        while stack:
            i, indent, last = stack.pop()
            b, j = self.bodies[i], self.joints[i]
            label = f"{indent}{'└─' if last else '├─'} {b.name}"
            place = _slice_text("q", j.q_slice)
            if j.follows:
                place = f"follows {', '.join(j.follows)}" if j.nq == 0 else f"{place}, follows {', '.join(j.follows)}"
            joint = _joint_text(b) if b.joint_name == b.name else f"{_joint_text(b)} {b.joint_name!r}"
            rows.append((label, joint, place, _slice_text("v", j.v_slice), f"{b.inertia.mass:.4g}"))
            below = children.get(b.name, [])
            inner = indent + ("   " if last else "│  ")
            if len(inner) > 3 * _DEEPEST:  # deeper ones stand below each other
                inner = f"{'   ' * _DEEPEST}… "
            stack.extend([(c, inner, k == len(below) - 1) for k, c in enumerate(below)][::-1])
        head = f"{self.name}: {self.nbodies} bodies, nq {self.nq}, nv {self.nv}, mass {self.mass:.6g}"
        table = [("world", "joint", "q", "v", "mass"), *rows]
        width = [max(len(row[k]) for row in table) for k in range(5)]
        lines = ["  ".join(cell.ljust(w) for cell, w in zip(row, width, strict=True)).rstrip() for row in table]
        if self._map is not None and self._map.new:
            first = self.nq - len(self._map.new)
            lines.append(f"new coordinates {', '.join(self._map.new)}: q[{first}:{self.nq}]")
        closed = [f"constraint {c.shown_name}" for c in self.constraints]
        frames = [f"frame {f.name} on {f.body}" for f in self.frames]
        driven = [f"tendon {t.name}" for t in self.tendons] + [
            f"actuator {a.name} on {a.place}" for a in self.actuators
        ]
        return "\n".join([head, *lines, *frames, *closed, *driven])

    def __repr__(self) -> str:
        return f"<Model {self.name!r}: {self.nbodies} bodies, nq {self.nq}, nv {self.nv}>"

    def _repr_html_(self) -> str | None:
        out: str | None = import_module("torsor.view.page").model_output(self)
        return out


def _edited(function: str, *args: Any) -> Model:
    """The result of a function of `torsor.editing`, a layer above."""
    out: Model = getattr(import_module("torsor.editing"), function)(*args)
    return out


def require_model(model: object) -> Model:
    """`model`, checked to be one, for functions that use it before the core does."""
    if not isinstance(model, Model):
        raise TypeError(f"model must be a torsor.Model, got {type(model).__name__}; ModelBuilder.build() makes one")
    return model


_DEEPEST = 40  # levels that a printed tree shows by indenting


def _joint_text(body: Body) -> str:
    name = type(body.joint).__name__
    axis = getattr(body.joint, "axis", None)
    chart = getattr(body.joint, "chart", None)
    if axis is not None:
        return f"{name}({', '.join(f'{x:.3g}' for x in axis)})"
    return f"{name}({chart})" if chart else name


def _slice_text(letter: str, s: slice) -> str:
    if s.start == s.stop:
        return "-"
    return f"{letter}[{s.start}]" if s.stop == s.start + 1 else f"{letter}[{s.start}:{s.stop}]"


def body_of_frame(model: Model, place: int) -> int:
    """Index of the body of a frame, or of a body itself; -1 for the world."""
    if place < model.nbodies:
        return place
    body = model.frames[place - model.nbodies].body
    return -1 if body == WORLD else model._index["body"][body]


def place_name(model: Model, place: int) -> str:
    """Name of a body or frame; -1 is the world."""
    if place < 0:
        return WORLD
    return model.bodies[place].name if place < model.nbodies else model.frames[place - model.nbodies].name


def carrier(model: Model, place: int) -> int:
    """The first of the bodies that are rigidly fixed to each other, from this one, or that of this frame, towards the
    root; -1 if it is fixed to the world."""
    body = body_of_frame(model, place)
    while body >= 0 and model.joints[body].nv == 0:
        parent = model.bodies[body].parent
        body = -1 if parent == WORLD else model._index["body"][parent]
    return body
