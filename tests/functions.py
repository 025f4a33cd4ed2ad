"""One line for every public function that takes a model and a state: what it takes, and what it gives.

`test_contract.py` calls them all, in all ways: a new function needs a line here, and no more tests of how it is called.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
from population import FRAMES, moved_by

import torsor as ts
from torsor import testing
from torsor.constraints.constraint import compile_constraints
from torsor.model import carrier

Arguments = dict[str, Any]


def nothing(model: ts.Model) -> Arguments:
    return {}


@dataclass(frozen=True)
class Function:
    """A public function and how one calls it.

    Attributes
    ----------
    function : the public function itself
    takes : its arrays, as name or name:axes with commas; `AXES` has those of the other names
    gives : the axes of its results, in order: v is nv, q is nq, b is nbodies, a number itself, b6 is 6 nbodies in one
        axis, m and n are the rows and the number of `constraints_of` the model, r the rows of `few_constraints_of` it;
        "..." stands for further results, of any axes
    given : its other arguments, for a model
    pack : turns the arrays into keyword arguments, where these are not the same
    error : what it raises where the mass matrix is singular, if it solves with it
    real : whether it refuses complex numbers in any case, because it differentiates already
    finite : whether it refuses what is not finite
    placed : whether results depend on where the origin of the world is
    dense : whether it sums or solves over all velocities at once, so that roundings depend on the order of bodies
    from_origin : whether they are found about it, so that they lose digits with the distance
    simulates : whether it takes several steps
    slow : whether it takes milliseconds for a state
    told : names of arrays in its errors, where they are not those of the arguments (patterns)
    optional : arrays that may be left out, though the signature does not say so
    """

    function: Callable[..., Any]
    takes: tuple[str, ...]
    gives: tuple[str, ...]
    given: Callable[[ts.Model], Arguments] = nothing
    pack: Callable[..., Arguments] = dict
    error: type[Exception] | None = None
    real: bool = False
    finite: bool = False
    placed: bool = False
    dense: bool = False
    from_origin: bool = False
    simulates: bool = False
    slow: bool = False
    told: Mapping[str, str] = field(default_factory=dict)
    optional: tuple[str, ...] = ()
    options: tuple[tuple[str, Any], ...] = ()

    @property
    def labels(self) -> list[str]:
        """The names of its arrays."""
        return [name.partition(":")[0] for name in self.takes]

    @property
    def names(self) -> list[str]:
        """Those by which its errors call them."""
        return [self.told.get(label, label) for label in self.labels]

    @property
    def parameters(self) -> set[str]:
        return set(inspect.signature(self.function).parameters)

    def arguments(self, model: ts.Model, batch: tuple[int, ...] = (), seed: int = 0) -> list[np.ndarray]:
        """Arrays in general position."""
        rng = np.random.default_rng(seed)
        return [draw(name, model, batch, rng) for name in self.takes]

    def __call__(self, model: ts.Model, *arrays: Any, **options: Any) -> Any:
        packed = self.pack(**dict(zip(self.labels, arrays, strict=True)))
        return self.function(model, **{**packed, **self.given(model), **dict(self.options), **options})

    def shapes(self, model: ts.Model) -> list[tuple[int, ...]]:
        """The shapes of its results at one state, but for "..."."""
        return [shape_of(axes, model) for axes in self.gives if axes != "..."]


AXES = {"q": "q", "q0": "q", "q1": "q", "f_ext": "b 6", "df_ext": "b 6", "y": "b 6", "points": "3 3", "t": "",
        "body_terms": "b 6 6", "w_g": "m", "w_gdot": "m", "w_gamma": "m", "multipliers": "m",
        "w_multipliers": "r"}  # fmt: skip


def axes_of(name: str) -> str:
    """The axes of an argument; those of vectors of velocities by default."""
    name, colon, axes = name.partition(":")
    return axes.replace(",", " ") if colon else AXES.get(name, "v")


def shape_of(axes: str, model: ts.Model) -> tuple[int, ...]:
    sizes = {"v": model.nv, "q": model.nq, "b": model.nbodies}
    if {"m", "n", "r"} & set(axes.split()):
        every, few = (compile_constraints(model, f(model)) for f in (constraints_of, few_constraints_of))
        sizes |= {"m": every.rows, "n": len(every.constraints), "r": few.rows}

    def size(axis: str) -> int:
        merged = axis[1:] if axis[0] == "b" else ""
        return model.nbodies * int(merged) if merged else sizes[axis] if axis in sizes else int(axis)

    return tuple(size(axis) for axis in axes.split())


def draw(name: str, model: ts.Model, batch: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """An argument in general position; what the mass matrix is solved with is positive."""
    axes = axes_of(name)
    if axes.split()[-1:] == ["q"]:
        return model.random(rng, (*batch, *shape_of(axes, model)[:-1]))
    x = rng.standard_normal((*batch, *shape_of(axes, model)))
    if name == "body_terms":
        return x @ np.swapaxes(x, -1, -2)
    return np.abs(x) if name in ("joint_terms", "t") else x


# ---- other arguments, chosen by the names of bodies and joints, so that they do not depend on the order of these


def bodies(model: ts.Model, count: int = 3) -> list[str]:
    """Some bodies, the last that moves among them."""
    names = sorted(b.name for b in model.bodies)
    moving = sorted(j.body for j in model.joints if j.nv) or names
    return [*names[: count - 1], *[moving[-1]] * (count - len(names[: count - 1]))]


def body(model: ts.Model) -> Arguments:
    return {"body": bodies(model, 1)[0]}


def one_point(model: ts.Model) -> Arguments:
    return {**body(model), "points": (1, 2, 3)}


def three_bodies(model: ts.Model) -> Arguments:
    return {"body": bodies(model)}


def prescribed(model: ts.Model) -> Arguments:
    """Some velocities: whole joints, and single velocities of joints."""
    mask = np.zeros(model.nv, bool)
    for k, joint in enumerate(sorted(model.joints, key=lambda j: j.name)):
        mask[joint.v_slice] = (np.arange(joint.nv) + k) % 3 == 1
    return {"prescribed": mask}


@cache
def direction_of(model: ts.Model) -> ts.ModelDirection:
    rng = np.random.default_rng(1)
    names = sorted(b.name for b in model.bodies)
    return ts.ModelDirection(
        inertia={name: rng.standard_normal(10) for name in names},
        placement={name: rng.standard_normal(6) for name in names},
        gravity=rng.standard_normal(3),
        armature={name: testing.random_armature(rng, model.joint(name).joint) for name in names},
    )


def direction(model: ts.Model) -> Arguments:
    return {"model_direction": direction_of(model)}


@cache
def forces_of(model: ts.Model) -> tuple[ts.Force, ...]:
    """Every kind of force, some of them with laws in Python."""
    moving = sorted(j.name for j in model.joints if j.nv)
    if not moving:
        return (ts.JointDamping(None, 1.0),)
    rng = np.random.default_rng(2)
    point = lambda *shape: rng.standard_normal((*shape, 3))  # noqa: E731
    one, two, three = bodies(model)
    place = lambda name: carrier(model, [b.name for b in model.bodies].index(name))  # noqa: E731
    joint = model.joint(moving[0])
    plain = [j for j in map(model.joint, moving) if j.nq == j.nv]
    times = (0.0, 0.5, 1.7)

    def law(l: Any, ldot: Any, p: Any) -> Any:
        return p[0] * l**3 + p[1] * l * ldot, 3 * p[0] * l**2 + p[1] * ldot, p[1] * l, np.array([l**3, l * ldot])

    def energy(l: Any, p: Any) -> Any:
        return p[0] * l**4 / 4

    normal = point()
    above = 5.0 * normal / np.sqrt(normal @ normal)
    return (
        ts.JointSpring(joint.name, 2.0, damping=0.3),
        ts.JointDamping(joint.name, 0.7),
        ts.JointFriction(joint.name, 0.8, 0.6),
        *(ts.JointLimits(j.name, 4.0, 0.3, np.full(j.nq, -0.4), np.full(j.nq, 0.2), 0.5, 0.1) for j in plain[:1]),
        ts.JointTorque(joint.name, rng.standard_normal((3, joint.nv)), times),
        ts.BodyDamping(one, rng.uniform(1, 2, 6)),
        *(ts.BodyWrench(three, rng.standard_normal((3, 6)), times, frame=frame) for frame in FRAMES),
        ts.PointForce(two, point(), point(3), times),
        ts.PointSpring(one, point(), three, point(), 2.0, 0.7),
        ts.SpringDamper("world", point(), three, point(), 3.0, 0.4, 0.5),
        ts.CustomSpring(two, point(), three, point(), law, energy, (0.7, 0.3)),
        ts.CustomCable([one, "world", three], point(3), law, energy, (0.7, 0.3)),
        ts.Cable([one, "world", three], point(3), 3.0, 0.5, 0.2),
        ts.GroundContact(three, point(4), 5.0, 0.4, 0.1, 10.0, above, normal),
        ts.Contact(three, ts.shapes.Box((1, 2, 3), radius=0.2), "world", ts.shapes.HalfSpace(normal, 4.0),
                   stiffness=3.0, friction=0.7, slip=2.0, onset=0.3),
        *(ts.Contact(one, ts.shapes.Capsule(1.0, 1.5), three, ts.shapes.Sphere(1.4), stiffness=3.0, slip=2.0)
          for _ in range(place(one) != place(three))),
    )  # fmt: skip


def forces(model: ts.Model) -> Arguments:
    return {"forces": forces_of(model)}


@cache
def ends(model: ts.Model) -> list[str]:
    """Two bodies that move relative to each other, or the world and one: the last is that which most velocities move.
    None if nothing moves."""
    moves = moved_by(model).sum(1)
    if not moves.any():
        return []
    index = {b.name: k for k, b in enumerate(model.bodies)}
    last = max(index, key=lambda name: (moves[index[name]], name))
    others = [name for name in sorted(index) if carrier(model, index[name]) != carrier(model, index[last])]
    return [*others[:1], "world", last][:3] if others else ["world", last]


@cache
def constraints_of(model: ts.Model) -> tuple[ts.Constraint, ...]:
    """Every kind of constraint, but for those with functions in Python."""
    found = ends(model)
    if not found:
        return ()
    rng = np.random.default_rng(3)
    point = lambda: rng.standard_normal(3)  # noqa: E731
    pose = lambda: testing.random_pose(rng)  # noqa: E731
    first, last = found[0], found[-1]
    kinds = (ts.Fixed(), ts.Revolute((1, 2, 3)), ts.Prismatic((0, 1, 1)), ts.Cylindrical(), ts.Universal(),
             ts.Spherical(), ts.Planar(), ts.Free2D(), ts.Translational())  # fmt: skip
    plain = sorted(j.name for j in model.joints if isinstance(j.joint, (ts.Revolute, ts.Prismatic)))
    joint = max(model.joints, key=lambda j: (j.nv, j.name))
    return (
        *(ts.Loop((first, "world")[k % 2], last, kind, pose(), pose()) for k, kind in enumerate(kinds)),
        ts.PointOnPlane(last, first, pose(), point(), offset=0.3),
        ts.PointOnLine(first, last, pose(), point()),
        ts.Distance(last, point(), "world", 5 + point(), 2.0),
        ts.PrescribedBody(last, pose(), pose()),
        *(ts.Gear(*pair, 0.7, offset=0.1) for pair in [plain[:2]] if len(pair) == 2),
        *(ts.Coupling(plain[:3], rng.uniform(1, 2, len(plain[:3])), offset=0.2) for _ in plain[:1]),
        *(ts.PrescribedJoint(name, 0.4) for name in plain[:1]),
        ts.TwistConstraint({last: rng.standard_normal(6)}, {joint.name: rng.standard_normal(joint.nv)}, 0.3),
    )


@cache
def few_constraints_of(model: ts.Model) -> tuple[ts.Constraint, ...]:
    """So few that they do not depend on each other."""
    found = ends(model)
    if not found:
        return ()
    rng = np.random.default_rng(4)
    distance = ts.Distance("world", 5 + rng.standard_normal(3), found[-1], rng.standard_normal(3), 2.0)
    plane = ts.PointOnPlane(found[0], found[-1], testing.random_pose(rng), rng.standard_normal(3))
    return (distance, plane) if moved_by(model).sum(1).max() > 2 else (distance,)


def constraints(model: ts.Model) -> Arguments:
    return {"constraints": constraints_of(model)}


def few_constraints(model: ts.Model) -> Arguments:
    return {"constraints": few_constraints_of(model)}


def integrated(integrator: ts.Integrator) -> Callable[[ts.Model], Arguments]:
    return lambda model: {"integrator": integrator, **forces(model)}


def simulated(integrator: ts.Integrator) -> Callable[[ts.Model], Arguments]:
    return lambda model: {"steps": 3, **integrated(integrator)(model)}


def adjoint(model: ts.Model, q0: Any, v0: Any = None, controls: Any = None, threads: int = 1, **given: Any) -> Any:
    """The gradient of a cost of a simulation."""
    run = ts.simulate(model, q0, v0, controls=controls, threads=threads, **given)
    cost: ts.Cost = ts.EnergyCost(("kinetic", "forces"))
    if model.bodies:
        cost += ts.PointTarget(bodies(model, 1)[0], (0.1, 0.2, 0.3), (1.0, 0.0, 0.0))
    return ts.adjoint(run, cost, threads=threads)


# ---- the table

H = 1e-3
SINGULAR = ts.SingularMassMatrixError


def line(function: Callable[..., Any], takes: str, gives: str | Sequence[str], **traits: Any) -> Function:
    return Function(function, tuple(takes.split()), (gives,) if isinstance(gives, str) else tuple(gives), **traits)


def _packed_steps(**arrays: Any) -> Arguments:
    before = {key: arrays.pop(key) for key in ("previous_q", "previous_v")}
    return {**arrays, "previous": tuple(before.values())}


def _packed_contract(*, w_a: Any, w_multipliers: Any, **arrays: Any) -> Arguments:
    return {**arrays, "contract": (w_a, w_multipliers)}


def _packed_weights(*, wq: Any, wp: Any, **arrays: Any) -> Arguments:
    return {**arrays, "contract": (wq, wp)}


_STEP = ["q", "v"] + ["v v"] * 6
_GRADIENT = ["b 6", "b 10", "b 6", "3", "v"]  # by wrenches, inertias, placements, gravity and armature

FUNCTIONS: dict[str, Function] = {
    # dynamics
    "inverse_dynamics": line(ts.inverse_dynamics, "q v a f_ext", "v", optional=("v", "a")),
    "forward_dynamics": line(ts.forward_dynamics, "q v tau f_ext", "v", error=SINGULAR),
    "hybrid_dynamics": line(ts.hybrid_dynamics, "q v a tau f_ext", ["v", "v"], given=prescribed, error=SINGULAR),
    "joint_reactions": line(ts.joint_reactions, "q v a f_ext", "b 6", from_origin=True),
    "bias_forces": line(ts.bias_forces, "q v f_ext", "v", optional=("v",)),
    "gravity_forces": line(ts.gravity_forces, "q", "v"),
    "mass_matrix": line(ts.mass_matrix, "q", "v v", from_origin=True),
    "mass_matrix_inverse": line(ts.mass_matrix_inverse, "q", "v v", error=SINGULAR),
    "mass_matrix_solve": line(ts.mass_matrix_solve, "q x", "v", error=SINGULAR),
    "mass_matrix_solve.terms": line(ts.mass_matrix_solve, "q x joint_terms body_terms", "v"),
    "coriolis_matrix": line(ts.coriolis_matrix, "q v", "v v", from_origin=True),
    "kinetic_energy": line(ts.kinetic_energy, "q v", ""),
    "potential_energy": line(ts.potential_energy, "q", "", placed=True),
    "generalized_momenta": line(ts.generalized_momenta, "q v", "v"),
    "momentum": line(ts.momentum, "q v", "6", from_origin=True),
    "momentum_matrix": line(ts.momentum_matrix, "q", "6 v", from_origin=True),
    "center_of_mass": line(ts.center_of_mass, "q", "3", placed=True),
    "center_of_mass_jacobian": line(ts.center_of_mass_jacobian, "q", "3 v"),
    # kinematics
    "body_poses": line(ts.body_poses, "q", "b 4 4", placed=True),
    "body_velocities": line(ts.body_velocities, "q v", "b 6"),
    "body_accelerations": line(ts.body_accelerations, "q v a", "b 6"),
    "jacobian": line(ts.jacobian, "q", "6 v", given=body, from_origin=True),
    "point_positions": line(ts.point_positions, "q points", "3 3", given=three_bodies, placed=True),
    "point_positions.one": line(ts.point_positions, "q", "3", given=one_point, placed=True),
    "point_jacobian": line(ts.point_jacobian, "q points", "3 3 v", given=three_bodies, from_origin=True),
    "point_jacobian.one": line(ts.point_jacobian, "q", "3 v", given=one_point, from_origin=True),
    "maximal_jacobian": line(ts.maximal_jacobian, "q", "b6 v", from_origin=True),
    "maximal_jacobian_dot": line(ts.maximal_jacobian_dot, "q v", "b6 v", from_origin=True),
    "jacobian_product": line(ts.jacobian_product, "q x", "b 6", told={"x": "v"}),
    "jacobian_dot_product": line(ts.jacobian_dot_product, "q v x", "b 6"),
    "jacobian_transpose_product": line(ts.jacobian_transpose_product, "q y", "v"),
    "plus": line(ts.Model.plus, "q dv", "q"),
    "minus": line(ts.Model.minus, "q1 q0", "v"),
    "normalize": line(ts.Model.normalize, "q", "q"),
    "expand": line(ts.Model.expand, "q", "q"),
    # first derivatives
    "inverse_dynamics_derivatives": line(ts.inverse_dynamics_derivatives, "q v a f_ext", ["v v"] * 3),
    "forward_dynamics_derivatives": line(ts.forward_dynamics_derivatives, "q v tau f_ext", ["v v"] * 3, error=SINGULAR),
    "hybrid_dynamics_derivatives": line(
        ts.hybrid_dynamics_derivatives, "q v a tau f_ext", ["v v"] * 8, given=prescribed, error=SINGULAR
    ),
    "inverse_dynamics_vjp": line(ts.inverse_dynamics_vjp, "q v a w f_ext", ["v"] * 3 + _GRADIENT),
    "forward_dynamics_vjp": line(ts.forward_dynamics_vjp, "q v tau w f_ext", ["v"] * 3 + _GRADIENT, error=SINGULAR),
    "hybrid_dynamics_vjp": line(
        ts.hybrid_dynamics_vjp, "q v a tau w_a w_tau f_ext", ["v"] * 4 + _GRADIENT, given=prescribed, error=SINGULAR
    ),
    "joint_reactions_derivatives": line(ts.joint_reactions_derivatives, "q v a f_ext", ["b 6 v"] * 3, from_origin=True),
    "joint_reactions_vjp": line(ts.joint_reactions_vjp, "q v a w:b,6 f_ext", ["v"] * 3 + _GRADIENT, from_origin=True),
    "inertial_regressor": line(ts.inertial_regressor, "q v a", "v b10"),
    "inverse_dynamics_jvp": line(
        ts.inverse_dynamics_jvp, "q v a dq dv da f_ext df_ext", ["v", "v"], given=direction, real=True
    ),
    "forward_dynamics_jvp": line(
        ts.forward_dynamics_jvp,
        "q v tau dq dv dtau f_ext df_ext",
        ["v", "v"],
        given=direction,
        real=True,
        error=SINGULAR,
    ),
    "hybrid_dynamics_jvp": line(
        ts.hybrid_dynamics_jvp,
        "q v a tau dq dv da dtau f_ext df_ext",
        ["v"] * 4,
        real=True,
        error=SINGULAR,
        given=lambda model: prescribed(model) | direction(model),
    ),
    "joint_reactions_jvp": line(
        ts.joint_reactions_jvp,
        "q v a dq dv da f_ext df_ext",
        ["b 6", "b 6"],
        given=direction,
        real=True,
        from_origin=True,
    ),
    "body_velocities_derivatives": line(ts.body_velocities_derivatives, "q v", ["b 6 v"] * 2),
    "body_accelerations_derivatives": line(ts.body_accelerations_derivatives, "q v a", ["b 6 v"] * 3),
    "maximal_jacobian_derivatives": line(ts.maximal_jacobian_derivatives, "q v", ["b6 v v", "b6 v", "b6 v v"]),
    "momentum_derivatives": line(ts.momentum_derivatives, "q v a", ["6 v"] * 4),
    "point_hessian": line(ts.point_hessian, "q points", "3 3 v v", given=three_bodies),
    "point_hessian.one": line(ts.point_hessian, "q", "3 v v", given=one_point),
    # second derivatives
    "christoffel_symbols": line(ts.christoffel_symbols, "q", "v v v", real=True, told={"out": r"out \(d2tau_dvdv\)"}),
    "inverse_dynamics_hessians": line(ts.inverse_dynamics_hessians, "q v a f_ext", ["v v v"] * 4, real=True),
    "inverse_dynamics_hessians.contracted": line(
        ts.inverse_dynamics_hessians, "q v a f_ext contract", ["v v"] * 4 + ["v"] * 3, real=True
    ),
    "forward_dynamics_hessians": line(
        ts.forward_dynamics_hessians, "q v tau f_ext", ["v v v"] * 4, real=True, error=SINGULAR
    ),
    "forward_dynamics_hessians.contracted": line(
        ts.forward_dynamics_hessians, "q v tau f_ext contract", ["v v"] * 4 + ["v"] * 3, real=True, error=SINGULAR
    ),
    "inverse_dynamics_derivatives_jvp": line(
        ts.inverse_dynamics_derivatives_jvp, "q v a dq dv da f_ext df_ext", ["v v"] * 6, given=direction, real=True
    ),
    "forward_dynamics_derivatives_jvp": line(
        ts.forward_dynamics_derivatives_jvp,
        "q v tau dq dv dtau f_ext df_ext",
        ["v v"] * 6,
        given=direction,
        real=True,
        error=SINGULAR,
    ),
    # forces
    "generalized_forces": line(ts.generalized_forces, "q v t", "v", given=forces, placed=True),
    "force_energies": line(ts.force_energies, "q t", "...", given=forces, placed=True),
    "generalized_forces_derivatives": line(
        ts.generalized_forces_derivatives, "q v t", ["v v", "v v"], given=forces, placed=True, real=True
    ),
    "generalized_forces_vjp": line(
        ts.generalized_forces_vjp, "q v w t", ["v", "v", "..."], given=forces, placed=True, real=True, dense=True
    ),
}

_ROWS = {"given": constraints, "placed": True}
_DYNAMICS = {"given": few_constraints, "placed": True, "error": SINGULAR}
FUNCTIONS |= {
    "constraint_errors": line(ts.constraint_errors, "q v a", ["m", "m", "m"], **_ROWS),
    "constraint_jacobian": line(ts.constraint_jacobian, "q", "m v", **_ROWS),
    "constraint_derivatives": line(ts.constraint_derivatives, "q v a", ["m v"] * 3, optional=("v", "a"), **_ROWS),
    "constraint_wrenches": line(ts.constraint_wrenches, "q multipliers", "n 6", **_ROWS),
    "constraint_vjp": line(ts.constraint_vjp, "q v a w_g w_gdot w_gamma", ["v", "v", "v", "b 6", "..."], **_ROWS),
    "constrained_forward_dynamics": line(ts.constrained_forward_dynamics, "q v tau f_ext", ["v", "r", ""], **_DYNAMICS),
    "constrained_forward_dynamics_derivatives": line(
        ts.constrained_forward_dynamics_derivatives,
        "q v tau f_ext",
        ["v v", "v v", "v v", "r v", "r v", "r v"],
        **_DYNAMICS,
    ),
    "constrained_forward_dynamics_jvp": line(
        ts.constrained_forward_dynamics_jvp,
        "q v tau dq dv dtau f_ext df_ext",
        ["v", "r", "v", "r"],
        real=True,
        **_DYNAMICS,
    ),
    "constrained_forward_dynamics_vjp": line(
        ts.constrained_forward_dynamics_vjp,
        "q v tau w_a w_multipliers f_ext",
        ["v"] * 3 + [*_GRADIENT, "..."],
        **_DYNAMICS,
    ),
    "constrained_forward_dynamics_hessians": line(
        ts.constrained_forward_dynamics_hessians,
        "q v tau w_a w_multipliers f_ext",
        ["v v"] * 4 + ["v"] * 3,
        real=True,
        pack=_packed_contract,
        **_DYNAMICS,
    ),
    "constrained_inverse_dynamics": line(
        ts.constrained_inverse_dynamics, "q v a f_ext", ["v", "r"], given=few_constraints, placed=True, dense=True
    ),
    "constrained_inverse_dynamics_derivatives": line(
        ts.constrained_inverse_dynamics_derivatives,
        "q v a f_ext",
        ["v v"] * 3 + ["r v"] * 3,
        given=few_constraints,
        placed=True,
        dense=True,
    ),
}

_VARIATIONAL = integrated(ts.Variational(H, order=4))
_STEPS = {"real": True, "finite": True, "placed": True, "dense": True, "error": ts.ConvergenceError}
_PREVIOUS = {"previous_q": "previous[ _]q", "previous_v": "previous[ _]v"}


def steps(integrator: ts.Integrator) -> dict[str, Function]:
    """The functions that take any integrator, with this one."""
    given, simulation = integrated(integrator), simulated(integrator)
    run = {**_STEPS, "given": simulation, "simulates": True}
    return {
        "step": line(ts.step, "q v u t", ["q", "v"], given=given, **_STEPS),
        "step_derivatives": line(ts.step_derivatives, "q v u t", _STEP, given=given, **_STEPS),
        "simulate": line(ts.simulate, "q0 v0 controls:3,v", ["4 q", "4 v", "4 v"], **run),
        "adjoint": line(adjoint, "q0 v0 controls:3,v", ["v", "v", "3 v", *_GRADIENT[1:], "..."], **run),
    }


FUNCTIONS |= steps(ts.BDF1(H))
FUNCTIONS |= {
    "step.two": line(
        ts.step,
        "q v u t previous_q:q previous_v",
        ["q", "v"],
        given=integrated(ts.BDF2(H)),
        pack=_packed_steps,
        told=_PREVIOUS,
        **_STEPS,
    ),
    "step_derivatives.two": line(
        ts.step_derivatives,
        "q v u t previous_q:q previous_v",
        _STEP + ["v v"] * 4,
        given=integrated(ts.BDF2(H)),
        pack=_packed_steps,
        told=_PREVIOUS,
        **_STEPS,
    ),
    "step_derivatives.momenta": line(ts.step_derivatives, "q p u t", [*_STEP, "..."], given=_VARIATIONAL, **_STEPS),
    "step_hessian": line(
        ts.variational.step_hessian,
        "q p u t wq wp",
        ["v v"] * 6,
        given=_VARIATIONAL,
        pack=_packed_weights,
        told={"wq": "weight of q1", "wp": "weight of p1"},
        slow=True,
        **_STEPS,
    ),
    "discrete_euler_lagrange": line(
        ts.variational.discrete_euler_lagrange, "q:3,q u t", ["v", "1 v", "v"], given=_VARIATIONAL, placed=True
    ),
}


def variants(name: str, f: Function) -> dict[str, Function]:
    """The function with each choice that it offers: frames, points about which moments are taken, what is left out."""
    found = {name: f}
    for option, values in (("f_ext_frame", FRAMES[1:]), ("frame", FRAMES[1:]), ("about", ("world",))):
        for value in values if option in f.parameters else ():
            at_origin = f.placed or value == "world"
            found[f"{name}-{value}"] = replace(f, options=(*f.options, (option, value)), placed=at_origin)
    if "f_ext" in f.takes:
        bare = replace(f, takes=tuple(x for x in f.takes if not x.endswith("f_ext")))
        found[f"{name}-alone"] = bare
        if "model_direction" in f.parameters:
            found[f"{name}-state"] = replace(bare, given=prescribed if "prescribed" in f.parameters else nothing)
    return found


VARIANTS = {key: f for name, function in FUNCTIONS.items() for key, f in variants(name, function).items()}
VARIANTS |= {
    f"{name}.{type(integrator).__name__}-{integrator.order}": f
    for integrator in testing.example_integrators(H)
    if not isinstance(integrator, ts.BDF1)
    for name, f in steps(integrator).items()
}
