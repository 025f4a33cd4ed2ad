"""Tools to verify derivatives and user-defined joints, forces, constraints and costs: complex step, checks, random
trees."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from torsor import _check, _core, shapes, spatial
from torsor._core import JointKind
from torsor.constraints import (
    Constraint,
    Coupling,
    CustomConstraint,
    Distance,
    Gear,
    Loop,
    PointOnLine,
    PointOnPlane,
    PolynomialCoupling,
    PrescribedBody,
    PrescribedJoint,
    TwistConstraint,
)
from torsor.constraints.couplings import has_charts
from torsor.costs import ControlEffort, Cost, CustomCost, EnergyCost, PointTarget, PositionTarget, VelocityTarget
from torsor.costs.cost import States
from torsor.couplings import CustomCoupling
from torsor.dynamics import center_of_mass, center_of_mass_jacobian
from torsor.forces import (
    BodyDamping,
    BodyWrench,
    Cable,
    Contact,
    CustomCable,
    CustomForce,
    CustomSpring,
    Force,
    GroundContact,
    JointDamping,
    JointFriction,
    JointLimits,
    JointSpring,
    JointTorque,
    PointForce,
    PointSpring,
    SpringDamper,
)
from torsor.forces.force import compile_forces
from torsor.inertia import Inertia
from torsor.integrators import (
    BDF1,
    BDF2,
    SDIRK2,
    SDIRK3,
    CustomIntegrator,
    Integrator,
    LinearlyImplicitEuler,
    SymplecticEuler,
    Variational,
)
from torsor.joints import (
    Composite,
    Cylindrical,
    Fixed,
    Free,
    Free2D,
    Joint,
    Planar,
    Prismatic,
    Revolute,
    Screw,
    Spherical,
    SphericalEuler,
    SphericalExp,
    SplineCurve,
    SplineSurface,
    Translational,
    Universal,
)
from torsor.kinematics import point_jacobian, point_positions
from torsor.model import WORLD, Model, ModelBuilder, carrier

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from torsor._typing import Array, FloatArray

STEP = _core.complex_step  # far below rounding, far above underflow


@contextmanager
def complex_inputs() -> Iterator[None]:
    """A context in which value functions, first derivatives, `plus` and `minus` accept complex arrays.

    Results are complex then: functions are analytic in their arguments, for imaginary parts whose squares underflow.

    Examples
    --------
    >>> with ts.testing.complex_inputs():
    ...     dtau = ts.inverse_dynamics(model, q, v + 1e-30j * w, a).imag / 1e-30  # along w
    >>> np.allclose(dtau, ts.inverse_dynamics_derivatives(model, q, v, a).dtau_dv @ w)
    True
    """
    token = _check.complex_allowed.set(True)
    try:
        yield
    finally:
        _check.complex_allowed.reset(token)


def complex_step(f: Callable[[Array], Array], x: ArrayLike) -> FloatArray:
    """The derivative of a function by complex steps, exact to rounding.

    To differentiate with respect to q use `lambda d: f(model.plus(q, d))` at zeros(nv).

    Parameters
    ----------
    f : callable
        A function of an array (n,), which must accept complex numbers.
    x : (n,) array_like
        Where to differentiate.

    Returns
    -------
    derivative : (*f(x).shape, n) array
    """
    x = np.asarray(x, dtype=np.float64)
    columns = []
    with complex_inputs():
        for k in range(x.size):
            z = x.astype(np.complex128)
            z[k] += 1j * STEP
            columns.append(np.imag(f(z)) / STEP)
    return np.stack(columns, axis=-1) if columns else np.zeros((*np.shape(f(x)), 0))


def check_joint(joint: Joint, rng: np.random.Generator | int | None = None, *, tolerance: float = 1e-11) -> None:
    """Checks that T, S, dS, d2S, plus and minus of a joint agree with each other at a random q.

    S is compared with complex steps of T, dS with those of S, d2S with those of dS, Sdot and dSdot with dS and d2S, and
    plus with minus. The methods of a user-defined joint must accept complex numbers.

    Parameters
    ----------
    joint : Joint
    rng : Generator or int, optional
        Generator of random numbers, or its seed.
    tolerance : float
        Allowed error, relative to the largest entry, or to 1 if that is larger.

    Raises
    ------
    AssertionError
        If two of them differ by more than the tolerance.
    """
    rng = np.random.default_rng(rng)
    q, n = joint.random(rng), joint.nv
    v = rng.standard_normal(n)
    zero = np.zeros(n)

    def close(name: str, value: Array, expected: Array) -> None:
        scale = max(1.0, float(np.abs(expected).max(initial=0.0)))
        error = float(np.abs(value - expected).max(initial=0.0)) / scale
        if not error <= tolerance or np.shape(value) != np.shape(expected):
            raise AssertionError(f"{joint!r}: {name} is off by {error:.1e} at q = {q.tolist()}")

    T, S, dS, d2S = joint.T(q), joint.S(q), joint.dS(q), joint.d2S(q)
    close("T's rotation", T[:3, :3] @ T[:3, :3].T, np.eye(3))
    close("T's last row", T[3], np.array([0.0, 0.0, 0.0, 1.0]))
    if n == 0:
        return
    dT = complex_step(lambda d: joint.T(joint.plus(q, d)), zero)
    inverse = np.linalg.inv(T)
    close("S", S, np.stack([spatial.vee6(inverse @ dT[..., k]) for k in range(n)], axis=-1))
    close("dS", dS, complex_step(lambda d: joint.S(joint.plus(q, d)), zero))
    close("d2S", d2S, complex_step(lambda d: joint.dS(joint.plus(q, d)), zero))
    close("Sdot", joint.Sdot(q, v), dS @ v)
    close("dSdot", joint.dSdot(q, v), np.einsum("ijkl,k->ijl", d2S, v))
    step = 0.3 * rng.standard_normal(n)
    q1 = joint.plus(q, step)
    close("minus(plus(q, dv), q)", joint.minus(q1, q), step)
    close("T at plus(q, minus(q1, q))", joint.T(joint.plus(q, joint.minus(q1, q))), joint.T(q1))


def check_coupling(
    coupling: CustomCoupling, rng: np.random.Generator | int | None = None, *, tolerance: float = 1e-11
) -> None:
    """Checks that phi, dphi, d2phi and d3phi of a user-defined coupling agree with each other at a random z.

    Each is compared with complex steps of the one before it. Complex steps of `d3phi`, and of all of them with respect
    to parameters, are compared with differences.

    Parameters
    ----------
    coupling : CustomCoupling
    rng : Generator or int, optional
        Generator of random numbers, or its seed.
    tolerance : float
        Allowed error, relative to the largest entry, or to 1 if that is larger.

    Raises
    ------
    AssertionError
        If two of them differ by more than the tolerance.
    """
    rng = np.random.default_rng(rng)
    k, m = len(coupling.followers), len(coupling.leaders) + len(coupling.new)
    z = rng.standard_normal(m)
    sizes = [k * m**order for order in range(4)]

    def parts(x: Array, level: int) -> list[Array]:
        flat = coupling._evaluate(np.atleast_2d(x), level)[0]
        ends = np.cumsum(sizes)
        return [flat[end - n : end].reshape((k, *(m,) * i)) for i, (n, end) in enumerate(zip(sizes, ends, strict=True))]

    def close(name: str, value: Array, expected: Array, allowed: float = tolerance) -> None:
        scale = max(1.0, float(np.abs(expected).max(initial=0.0)))
        error = float(np.abs(value - expected).max(initial=0.0)) / scale
        if not error <= allowed:
            raise AssertionError(f"{type(coupling).__name__}: {name} is off by {error:.1e} at z = {z.tolist()}")

    found = parts(z, 3)
    names = ("phi", "dphi", "d2phi", "d3phi")
    slopes = [complex_step(lambda x: parts(x, 3)[0], z), complex_step(lambda x: parts(x, 3)[1], z)]
    slopes += [complex_step(lambda x: parts(x, 3)[2], z), complex_step(lambda x: parts(x, 3)[3], z)]
    for order in range(3):
        close(names[order + 1], found[order + 1], slopes[order])
    h = 1e-4  # d3phi has no derivative to compare with, but must have one
    steps = [h * e for e in np.eye(m)]
    differences = np.stack([(parts(z + d, 3)[3] - parts(z - d, 3)[3]) / (2 * h) for d in steps], axis=-1)
    close("a complex step of d3phi", slopes[3], differences, 1e-5)
    p = np.asarray(coupling.p, dtype=np.float64).reshape(-1)
    for i in range(p.size):
        d = h * np.eye(p.size)[i]
        ends = [coupling.with_parameters({"p": p + s * d})._evaluate(z[None], 2) for s in (1, -1)]
        close(f"a complex step by p[{i}]", coupling._vary(z[None], 2, i), (ends[0] - ends[1]) / (2 * h), 1e-5)


def check_force(
    force: Force, model: Model, rng: np.random.Generator | int | None = None, *, tolerance: float = 1e-11
) -> None:
    """Checks that the derivatives and the energy of a force agree with its generalized force at a random state.

    K, D and the gradients with respect to parameters and placements are compared with complex steps of the generalized
    force, and minus complex steps of the energy with the generalized force at v = 0. Entries that the core assumes to
    be zero are checked. A user-defined force must accept complex numbers in `value` and `energy`, a user-defined spring
    in its law. With `complex_derivatives`, complex steps of the derivatives are compared with differences, to 1e-7. A
    user-defined force that is `batched` must give the same results, to the last bit, for several states at once and for
    each of them alone.

    Parameters
    ----------
    force : Force
    model : Model
    rng : Generator or int, optional
        Generator of random numbers, or its seed.
    tolerance : float
        Allowed error, relative to the largest entry, or to 1 if that is larger.

    Raises
    ------
    AssertionError
        If two of them differ by more than the tolerance.
    """
    rng = np.random.default_rng(rng)
    q, v, w, t = model.random(rng), rng.standard_normal(model.nv), rng.standard_normal(model.nv), rng.uniform(0.0, 2.0)
    zero = np.zeros(model.nv)
    scene = compile_forces(model, [force])
    p, options = scene.parameters, {"forces": scene.core}

    def close(name: str, value: Array, expected: Array, allowed: float = tolerance) -> None:
        scale = max(1.0, float(np.abs(expected).max(initial=0.0)))
        error = float(np.abs(value - expected).max(initial=0.0)) / scale
        if not error <= allowed:
            raise AssertionError(f"{force!r}: {name} is off by {error:.1e} at q = {q.tolist()}, v = {v.tolist()}")

    def torque(q: ArrayLike, v: ArrayLike, p: ArrayLike) -> FloatArray:
        return _core.generalized_forces(model, q, v, t, p, options, None, 1)

    def energy(dq: ArrayLike) -> FloatArray:
        return np.asarray(_core.force_energies(model, model.plus(q, dq), zero, t, p, options, None, 1)[0])

    K, D = _core.generalized_forces_derivatives(model, q, v, t, p, options, None, 1)
    close("K", K, complex_step(lambda dq: torque(model.plus(q, dq), v, p), zero))
    close("D", D, complex_step(lambda v: torque(q, v, p), v))
    gq, gv, gp = _core.generalized_forces_vjp(model, q, v, t, p, w, options, None, 1)
    close("gradient by q", gq, w @ K)
    close("gradient by v", gv, w @ D)
    close("gradient by parameters", gp, complex_step(lambda p: np.asarray(torque(q, v, p) @ w), p))
    gv, placement = _core.force_gradients(model, q, v, t, p, w, options, None, 1)
    close("gradient by v without D", gv, w @ D)
    direction = rng.standard_normal((model.nbodies, 6))
    along = np.zeros(1) if force._joints(model) else _along_placements(force, model, q, v, w, t, direction)
    close("gradient by placements", np.array([(placement * direction).sum()]), along)
    _check_zeros(force, model, q, v, t, close)
    if isinstance(force, (CustomForce, CustomSpring, CustomCable)) and force.batched:
        _check_rows(force, model, t, rng)
    if isinstance(force, CustomForce) and force.complex_derivatives:

        def first(s: complex) -> Array:
            """K, D and gradient along a direction."""
            with complex_inputs():
                at = (model.plus(q, s * v)[None], (v + s * w)[None], t, (p + 0 * s)[None])
                matrices = (x.ravel() for x in force._derivatives(*at))
                return np.concatenate([*matrices, force._gradient(*at, (w + 0 * s)[None])[0] if p.size else p])

        near, far = (first(1e-3) - first(-1e-3)) / 2e-3, (first(2e-3) - first(-2e-3)) / 4e-3
        close("second derivative", first(1e-30j).imag / 1e-30, (4 * near - far) / 3, 1e-7)
    if force.has_energy:
        close("energy's gradient", -complex_step(energy, zero), torque(q, zero, p))
    else:
        close("energy of a force that has none", energy(zero), np.zeros(()))


def _check_rows(
    force: CustomForce | CustomSpring | CustomCable, model: Model, t: float, rng: np.random.Generator
) -> None:
    """Checks that the methods of a batched force compute each state independently of the others."""
    n = 5
    calls: list[tuple[str, Any, tuple[Any, ...]]]
    if isinstance(force, CustomForce):
        q, (v, w) = np.stack([model.random(rng) for _ in range(n)]), rng.standard_normal((2, n, model.nv))
        p = np.tile(np.ravel(force.p).astype(np.float64), (n, 1)) * rng.uniform(0.9, 1.1, (n, np.size(force.p)))
        calls = [("value", force._value, (q, v, t, p)), ("derivatives", force._derivatives, (q, v, t, p))]
        calls += [("energy", force._energy, (q, t, p))]
        calls += [("gradient", force._gradient, (q, v, t, p, w))] if p.size else []
    else:
        x = np.stack([rng.uniform(0.5, 2.0, n), rng.standard_normal(n)], axis=1)
        p = np.tile(force.law_parameters, (n, 1)) * rng.uniform(0.9, 1.1, (n, len(force.law_parameters)))
        calls = [("law", force._tension, (x, p)), ("energy", force._energy, (x[:, :1], p))]
    for name, method, arguments in calls:
        whole = method(*arguments)
        for i in range(n):
            alone = method(*(a[i : i + 1] if isinstance(a, np.ndarray) else a for a in arguments))
            pairs = zip(whole, alone, strict=True) if isinstance(whole, tuple) else [(whole, alone)]
            if any(many[i].tobytes() != one[0].tobytes() for many, one in pairs):
                raise AssertionError(
                    f"{force!r}: {name} of state {i} of {n} is not the same as alone; a batched function must compute "
                    "each state independently of the others, which a product of matrices may not: use einsum"
                )


def _along_placements(
    force: Force, model: Model, q: FloatArray, v: FloatArray, w: FloatArray, t: float, direction: FloatArray
) -> FloatArray:
    """The derivative (1,) of w . tau when the placement of each body k moves with the twist direction[k].

    A complex step of free joints in the placements, for a force on bodies.
    """
    builder, own = ModelBuilder(), []
    for b in model.bodies:
        builder.add_body(f"placement of {b.name}", b.parent, Free(), b.placement, Inertia.zero())
        builder.add_body(b.name, f"placement of {b.name}", b.joint, joint_name=b.joint_name)
        own.append(b.joint_name)
    wide = builder.build()
    at = [wide.joint(name) for name in own]
    neutral, rates, weights, step = wide.neutral, np.zeros(wide.nv), np.zeros(wide.nv), np.ones(wide.nv)
    for j, k in zip(at, model.joints, strict=True):
        neutral[j.q_slice], rates[j.v_slice], weights[j.v_slice] = q[k.q_slice], v[k.v_slice], w[k.v_slice]
        step[j.v_slice] = 0.0
    step[step == 1.0] = direction.ravel()
    scene = compile_forces(wide, [force])

    def power(s: Array) -> Array:
        moved = wide.plus(neutral, s[0] * step)
        tau = _core.generalized_forces(wide, moved, rates, t, scene.parameters, {"forces": scene.core}, None, 1)
        return np.asarray(tau @ weights)

    return complex_step(power, np.zeros(1))


def _check_zeros(
    force: Force, model: Model, q: FloatArray, v: FloatArray, t: float, close: Callable[[str, Array, Array], None]
) -> None:
    """Checks that the entries which the core omits from its systems for this force are zero."""
    scene = compile_forces(model, [force])
    p, options = scene.parameters, {"forces": scene.core}
    branches = scene.core.keeps_branches(model._core)
    if scene.core.on_single_bodies and not branches:
        raise AssertionError(f"{force!r}: it acts on single bodies, but not within branches")
    index = {b.name: i for i, b in enumerate(model.bodies)}
    above = np.eye(model.nbodies, dtype=np.bool_)  # [i, j]: whether body j is body i or an ancestor of it
    for i, b in enumerate(model.bodies):
        if b.parent in index:
            above[i] |= above[index[b.parent]]
    body = np.repeat(np.arange(model.nbodies), [j.nv for j in model.joints])
    if branches:
        apart = ~(above | above.T)[np.ix_(body, body)]
        for matrix in _core.generalized_forces_derivatives(model, q, v, t, p, options, None, 1):
            close("K or D between branches", matrix * apart, np.zeros_like(matrix))
    if not scene.core.depends_on_place:  # a displacement of a root at rest moves the whole model rigidly
        root = np.isin(body, [i for i, b in enumerate(model.bodies) if b.parent not in index])
        K, _ = _core.generalized_forces_derivatives(model, q, np.where(root, 0.0, v), t, p, options, None, 1)
        close("K of displaced roots", K * np.outer(~root, root), np.zeros_like(K))


def _example_contacts(model: Model, point: Callable[..., FloatArray], rng: np.random.Generator) -> Iterator[Contact]:
    """Large soft shapes, so that most of them touch wherever the bodies are: those whose formulas hold at any depth."""
    moving = [b.name for i, b in enumerate(model.bodies) if carrier(model, i) >= 0]
    if not moving:
        return
    first, second = (moving[rng.integers(len(moving))] for _ in range(2))
    places = [carrier(model, model._index["body"][name]) for name in (first, second)]
    other = WORLD if places[0] == places[1] else second
    law = {"stiffness": 3.0, "dissipation": 0.4, "friction": 0.7, "slip": 2.0, "onset": 0.5}
    ground, ball = shapes.HalfSpace(point(), 4.0), shapes.Sphere(1.5, point())
    boxes = shapes.Capsule(1.2, 2.0, random_pose(rng)), shapes.Box((2.0, 3.0, 4.0), random_pose(rng), 0.5)
    solids = (
        shapes.Sphere(1.0, point()),
        shapes.Capsule(1.0, 1.5, random_pose(rng)),
        shapes.Box((1.0, 1.5, 2.0), random_pose(rng), 0.3),
        shapes.Ellipsoid((0.7, 1.1, 1.6), random_pose(rng)),
        shapes.Cylinder(0.8, 1.7, random_pose(rng)),
    )
    yield from (Contact(first, solid, WORLD, ground, **law) for solid in solids[:-1])
    yield from (Contact(first, solid, other, ball, **law) for solid in solids)
    yield from (Contact(first, ball, other, solid, **law) for solid in boxes)


def example_forces(model: Model, rng: np.random.Generator | int | None = None) -> tuple[Force, ...]:
    """Examples of every built-in force on random joints and bodies of a model: the list that the tests use.

    Parameters
    ----------
    model : Model
        With at least one body.
    rng : Generator or int, optional
        Generator of random numbers, or its seed.

    Returns
    -------
    tuple of Force
    """
    rng = np.random.default_rng(rng)
    names = [b.name for b in model.bodies]
    times = (0.0, 0.5, 1.7)

    def body() -> str:
        return names[rng.integers(len(names))]

    def point(*shape: int) -> FloatArray:
        return rng.standard_normal((*shape, 3))

    def cubic(l: Any, ldot: Any) -> tuple[Any, Any, Any]:
        return l**3 + 0.5 * l * ldot, 3 * l**2 + 0.5 * ldot, 0.5 * l

    def adjustable(l: Any, ldot: Any, p: Array) -> tuple[Any, Any, Any, Array]:
        return p[0] * l**3 + p[1] * l * ldot, 3 * p[0] * l**2 + p[1] * ldot, p[1] * l, np.array([l**3, l * ldot])

    def adjustable_energy(l: Any, p: Array) -> Any:
        return p[0] * l**4 / 4

    via = [body(), body(), "world", body()]
    joint = model.joints[max(range(len(names)), key=lambda i: model.joints[i].nv)]
    plain = [j for j in model.joints if j.nq == j.nv > 0]
    normal = point()
    above = 5.0 * normal / np.sqrt(normal @ normal)
    return (
        JointSpring(None, rng.uniform(1, 2, model.nv), model.random(rng), rng.uniform(1, 2, model.nv)),
        JointSpring(joint.name, 3.0, damping=0.5),
        JointDamping(None, rng.uniform(1, 2, model.nv)),
        JointDamping(joint.name, 0.7),
        JointLimits(None, 4.0, 0.3, np.full(model.nq, -0.4), np.full(model.nq, 0.2)),
        *(JointLimits(j.name, 4.0, np.full(j.nv, 0.2), np.full(j.nq, -0.1), np.full(j.nq, 0.1)) for j in plain[:1]),
        JointTorque(None, rng.standard_normal(model.nv)),
        JointTorque(joint.name, rng.standard_normal((3, joint.nv)), times),
        BodyDamping(body(), rng.uniform(1, 2, 6)),
        BodyWrench(body(), rng.standard_normal(6)),
        BodyWrench(body(), rng.standard_normal((3, 6)), times, frame="world"),
        BodyWrench(body(), rng.standard_normal((3, 6)), times, frame="local_world_aligned"),
        PointForce(body(), point(), point()),
        PointForce(body(), point(), point(3), times),
        PointSpring(body(), point(), body(), point(), 2.0, 0.7),
        PointSpring("world", point(), body(), point(), 2.0, 0.7),
        SpringDamper(body(), point(), body(), point(), 3.0, 0.4, 0.5),
        SpringDamper(body(), point(), "world", point(), 3.0, 0.4, 5.0),
        CustomSpring(body(), point(), body(), point(), cubic),
        CustomSpring("world", point(), body(), point(), adjustable, adjustable_energy, (0.7, 0.3)),
        CustomCable(via, point(4), adjustable, adjustable_energy, (0.7, 0.3)),
        Cable(via, point(4), 3.0, 0.5, 0.2),
        Cable(via, point(4), 3.0, 0.5, 1e3),
        GroundContact(body(), point(4), 5.0, 0.4, 0.1, 10.0, above, normal),
        GroundContact(body(), point(4), 5.0, 0.4, 10.0, 0.1, above, normal),
        GroundContact(body(), point(), 5.0, 0.4, 1.0, 0.3, -100 * normal, normal),
        JointFriction(None, rng.uniform(1, 2, model.nv), rng.uniform(0.3, 2, model.nv)),
        JointFriction(joint.name, 0.8, 0.6),
        JointLimits(None, 4, 0, np.full(model.nq, -0.1), np.full(model.nq, 0.1), rng.uniform(0.2, 2, model.nv), 0.5),
        *(JointLimits(j.name, 4.0, 0.3, np.full(j.nq, -0.1), np.full(j.nq, 0.1), 0.9, 0.3) for j in plain[:1]),
        *_example_contacts(model, point, rng),
    )


@dataclass(frozen=True, eq=False)
class _Wave:
    """A motion that swings about a value: (value, rate, second rate)."""

    center: FloatArray
    amplitude: FloatArray

    def __call__(self, t: float) -> tuple[FloatArray, FloatArray, FloatArray]:
        s, c = np.sin(2 * t), np.cos(2 * t)
        return self.center + s * self.amplitude, 2 * c * self.amplitude, -4 * s * self.amplitude


@dataclass(frozen=True, eq=False)
class _Turning:
    """A marker that turns and moves with a twist about a pose: (pose, twist, twist rate)."""

    pose: spatial.SE3
    twist: FloatArray

    def __call__(self, t: float) -> tuple[spatial.SE3, FloatArray, FloatArray]:
        along = np.sin(2 * t) * self.twist
        return self.pose @ spatial.SE3.exp(along), 2 * np.cos(2 * t) * self.twist, -4 * along


def _swing(t: float) -> tuple[float, float]:
    """A rate that swings: (value, rate)."""
    return float(np.sin(3 * t)), float(3 * np.cos(3 * t))


class _Surface(CustomConstraint):
    """A point of a body stays on a surface that breathes, and its first two coordinates on a moving curve."""

    rows = 2

    def __init__(self, model: Model, body: str, point: FloatArray, p: ArrayLike = (0.7, -0.4)) -> None:
        self.model, self.body, self.point, self.p = model, body, point, p

    def value(self, q: Array, t: Any, p: Array) -> ArrayLike:
        x, y, z = point_positions(self.model, q, self.body, self.point)
        return np.array([x * x + p[0] * y * y + np.sin(p[1] * z) - 1 - 0.3 * np.sin(t), x * y - p[1] ** 2 * np.cos(t)])


class _SurfaceWithJacobian(_Surface):
    """The same with its derivatives."""

    def jacobian(self, q: Array, t: Any, p: Array) -> ArrayLike:
        x, y, z = point_positions(self.model, q, self.body, self.point)
        normals = np.array([[2 * x, 2 * p[0] * y, p[1] * np.cos(p[1] * z)], [y, x, 0 * z]])
        return normals @ point_jacobian(self.model, q, self.body, self.point)


def example_constraints(model: Model, rng: np.random.Generator | int | None = None) -> tuple[Constraint, ...]:
    """Examples of every constraint on random bodies and joints of a model: the list that the tests use.

    A random configuration is off most of them.

    Parameters
    ----------
    model : Model
        With a body that moves. Couplings are between its first coordinates that are plain numbers, if there are two.
    rng : Generator or int, optional
        Generator of random numbers, or its seed.

    Returns
    -------
    tuple of Constraint
    """
    rng = np.random.default_rng(rng)
    everything = [-1, *range(model.nbodies)]
    moving = [i for i in everything if carrier(model, i) >= 0]

    def name(i: int) -> str:
        return WORLD if i < 0 else model.bodies[i].name

    def body() -> str:
        return name(moving[rng.integers(len(moving))])

    def pair() -> tuple[str, str]:
        """Two bodies, or the world and one, that move relative to each other."""
        b = moving[rng.integers(len(moving))]
        others = [i for i in everything if carrier(model, i) != carrier(model, b)]
        a = others[rng.integers(len(others))]
        return (name(a), name(b)) if rng.uniform() < 0.7 else (name(b), name(a))

    def pose() -> spatial.SE3:
        return random_pose(rng)

    def point() -> FloatArray:
        return rng.standard_normal(3)

    def turning() -> _Turning:
        return _Turning(pose(), 0.3 * rng.standard_normal(6))

    loops = (
        Fixed(),
        Revolute((1, 2, -1)),
        Prismatic((0, 1, 1)),
        Cylindrical((0.2, 1, 0)),
        Universal(),
        Universal(((1, 0, 1), (0, 1, 0.3))),
        Spherical(),
        SphericalEuler(),
        SphericalExp(),
        Planar(((1, 0, 1), (0, 1, 0.5))),
        Free2D(),
        Translational(),
    )
    distance_a, distance_b = pair()
    plain = [j for j in model.joints if j.nq == j.nv > 0 and not has_charts(j.joint)]
    coordinates = [(j.name, k) for j in plain for k in range(j.nq)]
    joint = model.joints[max(range(model.nbodies), key=lambda i: model.joints[i].nv)]
    couplings: list[Constraint] = []
    if len(coordinates) > 1:
        first, last, some = coordinates[0], coordinates[-1], coordinates[:3]
        couplings = [
            Gear(first, last, -0.6, offset=0.2),
            Coupling(some, rng.uniform(0.5, 1.5, len(some)), offset=-0.3, name="coupling"),
            PolynomialCoupling(last, first, rng.uniform(-0.5, 0.5, 5), center=0.1),
        ]
    if plain:
        j = plain[-1]
        couplings += [
            PrescribedJoint(j.name, rng.standard_normal(j.nq), name="held"),
            PrescribedJoint(j.name, _Wave(rng.standard_normal(j.nq), rng.standard_normal(j.nq)), name="driven"),
        ]
    return (
        *(Loop(*pair(), loop, pose(), pose()) for loop in loops),
        Loop(WORLD, body(), Revolute((1, 0, 2)), turning(), pose(), name="moving hinge"),
        PointOnPlane(*pair(), pose(), point(), offset=0.3),
        PointOnLine(*pair(), pose(), point()),
        Distance(distance_a, point(), distance_b, point(), 1.3),
        PrescribedBody(body(), pose(), pose(), name="held body"),
        PrescribedBody(body(), turning(), pose(), name="driven body"),
        *couplings,
        TwistConstraint({body(): rng.standard_normal(6)}, {joint.name: rng.standard_normal(joint.nv)}, 0.4),
        TwistConstraint({body(): rng.standard_normal(6)}, rate=_swing, name="driven twist"),
        TwistConstraint(joints={joint.name: rng.standard_normal(joint.nv)}),
        _Surface(model, body(), point()),
        _SurfaceWithJacobian(model, body(), point()),
    )


def check_cost(
    cost: Cost,
    model: Model,
    rng: np.random.Generator | int | None = None,
    *,
    forces: Sequence[Force] = (),
    tolerance: float = 1e-11,
) -> None:
    """Checks that the derivatives of a cost agree with its value at random states.

    Gradients are compared with complex steps of the value, second derivatives with complex steps of the gradients
    (unless a `CustomCost` has neither), and a batch with its states one by one. The functions of a `CustomCost` must
    accept complex numbers. Gradients are also compared with real differences along random directions, because a
    function with abs or norm has wrong complex steps; so are those with respect to inertias, placements, gravity and
    parameters of `forces`, to 1e-6.

    Parameters
    ----------
    cost : Cost
    model : Model
    rng : Generator or int, optional
        Generator of random numbers, or its seed.
    forces : sequence of Force
        Forces whose energies the cost contains.
    tolerance : float
        Allowed error, relative to the largest entry, or to 1 if that is larger.

    Raises
    ------
    AssertionError
        If two of them differ by more than the tolerance.
    """
    rng = np.random.default_rng(rng)
    terms = [term for _, term in cost.terms]
    n = max(term._rows() or 2 for term in terms)
    nv = nu = model.nv
    for effort in terms:
        if isinstance(effort, ControlEffort) and np.ndim(effort.weight):
            nu = np.size(effort.weight)
    q, v, u = model.random(rng, n), rng.standard_normal((n, nv)), rng.standard_normal((n, nu))
    t = rng.uniform(0.0, 2.0, n)
    second = all(c.hessian or c.gradient for c in terms if isinstance(c, CustomCost))

    def value_and_gradient(q: Array, v: Array, u: Array) -> Array:
        """(n, 1 + nv + nv + nu)."""
        c = cost.evaluate(model, q, v, u, t, forces=forces)
        gradient = zip((c.dq, c.dv, c.du), (nv, nv, nu), strict=True)
        return np.concatenate([c.value[:, None], *(np.zeros((n, k)) if g is None else g for g, k in gradient)], axis=1)

    def close(name: str, value: Any, expected: Array, allowed: float = tolerance, least: float = 1.0) -> None:
        value = np.zeros(expected.shape) if value is None else value
        scale = max(least, float(np.abs(expected).max(initial=0.0)))
        error = float(np.abs(value - expected).max(initial=0.0)) / scale
        if not error <= allowed or np.shape(value) != np.shape(expected):
            raise AssertionError(f"{cost!r}: {name} is off by {error:.1e} at q = {q.tolist()}, v = {v.tolist()}")

    found = cost.evaluate(model, q, v, u, t, forces=forces, hessians=second)
    steps = {
        "q": complex_step(lambda d: value_and_gradient(model.plus(q, d), v, u), np.zeros(nv)),
        "v": complex_step(lambda d: value_and_gradient(q, v + d, u), np.zeros(nv)),
        "u": complex_step(lambda d: value_and_gradient(q, v, u + d), np.zeros(nu)),
    }
    rows = {"q": slice(1, 1 + nv), "v": slice(1 + nv, 1 + 2 * nv), "u": slice(1 + 2 * nv, None)}
    for k, a in enumerate("qvu"):
        close(f"d{a}", getattr(found, f"d{a}"), steps[a][:, 0])
        for b in "qvu"[k:] if second else "":
            block, other = steps[b][:, rows[a]], np.swapaxes(steps[a][:, rows[b]], -1, -2)
            if a == b:
                block = other = (block + other) / 2
            close(f"d{a}d{b}", getattr(found, f"d{a}d{b}"), block)
            close(f"d{b}d{a}", getattr(found, f"d{a}d{b}"), other)
    if all(term._rows() is None for term in terms):
        for k in range(n):
            one = cost.evaluate(model, q[k], v[k], u[k], t[k], forces=forces, hessians=second)
            for name, whole, part in zip(found._fields, found, one, strict=True):
                if whole is not None:
                    close(f"{name} in a batch", part, whole[k])
    # Differences with steps of 1e-5: 1e-11 of the value is rounding, 1e-10 of the third derivative, which may be large,
    # truncation.
    size = max(1.0, float(np.abs(found.value).max()))
    states = cost._states(model, q, v, u, t, forces)
    for name, derivative, value in _along_directions(cost, states, rng):
        close(f"{name}, against real differences,", derivative, _difference(value), 1e-6, size)


def _difference(f: Callable[[float], Array], eps: float = 1e-5) -> Array:
    """The derivative of f at 0 from values at s >= 0, where inertias remain physical."""
    return np.asarray((4 * f(eps) - 3 * f(0.0) - f(2 * eps)) / (2 * eps))


def _along_directions(
    cost: Cost, x: States, rng: np.random.Generator
) -> Iterator[tuple[str, Array, Callable[[float], Array]]]:
    """For every argument of a cost: its name, the derivatives (...) at states along a random direction, and the cost as
    a function of the displacement along it."""
    model, springs = x.model, x.springs
    found = cost._evaluate(x, False)
    by_parameters: dict[str, Array] = {}
    for factor, term in cost.terms:
        for name, part in term._by_parameters(x).items():
            by_parameters[name] = factor * part + by_parameters.get(name, 0.0)

    def along(derivative: Array | None, direction: Array) -> Array:
        axes = tuple(range(len(x.shape) - (0 if derivative is None else derivative.ndim), 0))
        return np.zeros(x.shape) if derivative is None else np.asarray((derivative * direction).sum(axis=axes))

    def value(**changed: Any) -> Array:
        return cost._evaluate(replace(x, **changed), False).value

    def of_model(changed: Model) -> Array:
        return value(model=changed, springs=None if springs is None else compile_forces(changed, springs.forces))

    def of_bodies(**fields: Sequence[Any]) -> Array:
        rows = [dict(zip(fields, row, strict=True)) for row in zip(*fields.values(), strict=True)]
        bodies = (replace(b, **row) for b, row in zip(model.bodies, rows, strict=True))
        return of_model(replace(model, bodies=tuple(bodies)))

    dq, dv, du = (rng.standard_normal(n) for n in (model.nv, model.nv, x.u.shape[-1]))
    yield "dq", along(found.dq, dq), lambda s: value(q=model.plus(x.q, s * dq))
    yield "dv", along(found.dv, dv), lambda s: value(v=x.v + s * dv)
    yield "du", along(found.du, du), lambda s: value(u=x.u + s * du)
    # The sum of an inertia and a physical one is an inertia.
    more = [random_inertia(rng) for _ in model.bodies]
    yield (
        "derivative by inertias",
        along(by_parameters.get("inertia"), np.array([i.parameters for i in more])),
        lambda s: of_bodies(
            inertia=[
                Inertia.from_parameters(b.inertia.parameters + s * i.parameters)
                for b, i in zip(model.bodies, more, strict=True)
            ]
        ),
    )
    twists = rng.standard_normal((model.nbodies, 6))
    yield (
        "derivative by placements",
        along(by_parameters.get("placement"), twists),
        lambda s: of_bodies(
            placement=[b.placement @ spatial.SE3.exp(s * w) for b, w in zip(model.bodies, twists, strict=True)]
        ),
    )
    drives = [random_armature(rng, b.joint) for b in model.bodies]
    yield (
        "derivative by armature",
        along(by_parameters.get("armature"), np.concatenate([np.zeros(0), *drives])),
        lambda s: of_bodies(
            armature=[tuple((b.armature + s * d).tolist()) for b, d in zip(model.bodies, drives, strict=True)]
        ),
    )
    gravity = rng.standard_normal(3)
    yield (
        "derivative by gravity",
        along(by_parameters.get("gravity"), gravity),
        lambda s: of_model(model.with_gravity(np.array(model.gravity) + s * gravity)),
    )
    if springs is not None:
        p = springs.parameters
        direction = np.where(np.isfinite(p), rng.standard_normal(p.shape), 0.0)
        yield (
            "derivative by parameters of forces",
            along(by_parameters.get("springs"), direction),
            lambda s: value(springs=replace(springs, parameters=p + s * direction)),
        )


@dataclass(frozen=True)
class _Coupled:
    """A function of states, controls and time: (|c|^2 / 2 + v.v) sin(sum u) (1 + t), c the centre of mass."""

    model: Model

    def parts(self, q: Array, v: Array, u: Array, t: Array) -> tuple[Array, Array, Array]:
        c = center_of_mass(self.model, q)
        return c, (c * c).sum(-1) / 2 + (v * v).sum(-1), u.sum(-1)

    def value(self, q: Array, v: Array, u: Array, t: Array) -> Array:
        _, state, control = self.parts(q, v, u, t)
        return np.asarray(state * np.sin(control) * (1 + t))

    def gradient(self, q: Array, v: Array, u: Array, t: Array) -> tuple[Array, Array, Array]:
        c, state, control = self.parts(q, v, u, t)
        factor = (np.sin(control) * (1 + t))[..., None]
        dq = np.einsum("...ij,...i->...j", center_of_mass_jacobian(self.model, q), c)
        return factor * dq, factor * 2 * v, (state * np.cos(control) * (1 + t))[..., None] * np.ones_like(u)


def example_costs(model: Model, rng: np.random.Generator | int | None = None) -> tuple[Cost, ...]:
    """Examples of every cost for random joints and bodies of a model: the list that the tests use.

    Parameters
    ----------
    model : Model
        With at least one body.
    rng : Generator or int, optional
        Generator of random numbers, or its seed.

    Returns
    -------
    tuple of Cost
    """
    rng = np.random.default_rng(rng)
    nv, times = model.nv, (0.1, 0.7, 1.4)
    bodies = [b.name for b in model.bodies]
    moving = [j for j in model.joints if j.nv]
    first, last = moving[rng.integers(len(moving))], max(moving, key=lambda j: j.nv)
    both = tuple({j.name: None for j in (first, last)})
    coordinates = np.concatenate([model.joint(name).joint.random(rng) for name in both])
    coupled = _Coupled(model)

    def body() -> str:
        return bodies[rng.integers(len(bodies))]

    point = PointTarget(body(), rng.standard_normal(3), rng.standard_normal(3), 3.0)
    speed = VelocityTarget(0.3, rng.uniform(1, 2, nv), at="time")
    return (
        PositionTarget(model.random(rng), 2.0),
        PositionTarget(model.random(rng), rng.uniform(1, 2, nv), at="time"),
        PositionTarget(last.joint.random(rng), rng.uniform(1, 2, last.nv), last.name, at=0),
        PositionTarget(coordinates, 1.5, both, at=[0, -1]),
        PositionTarget(model.random(rng, 3), at=slice(-3, None)),
        PositionTarget(model.random(rng, 3), rng.uniform(1, 2, nv), at="time", times=times),
        VelocityTarget(),
        speed,
        VelocityTarget(rng.standard_normal(last.nv), 2.0, last.name),
        VelocityTarget(rng.standard_normal((3, nv)), at=[0, 1, -1]),
        VelocityTarget(rng.standard_normal((3, last.nv)), joints=[last.name], at="time", times=times),
        point,
        PointTarget(body(), rng.standard_normal(3), rng.standard_normal((3, 3)), at=[1, 0, -1]),
        PointTarget(body(), rng.standard_normal(3), rng.standard_normal((3, 3)), at="time", times=times),
        EnergyCost(),
        EnergyCost(["potential"], 2.0, at=slice(None)),
        EnergyCost(["forces"], 0.1, at=0),
        EnergyCost(["kinetic", "potential", "forces"], 0.3, at="time"),
        ControlEffort(),
        ControlEffort(rng.uniform(1, 2, nv)),
        CustomCost(coupled.value, coupled.gradient, inputs="qvu", at="time"),
        CustomCost(coupled.value, inputs="qvu", at="time"),
        2.0 * point - speed / 3 + 1e-2 * ControlEffort(),
    )


def example_joints() -> tuple[Joint, ...]:
    """Examples of every built-in joint that moves: the list that random trees and the tests use.

    Returns
    -------
    tuple of Joint
    """
    turn = spatial.SE3.rotation
    frames = [spatial.SE3.translation(0.3 * k, 0.1 * k * k, -0.1 * k) @ turn((1, k, 2), 0.4 * k) for k in range(6)]
    u, w = np.meshgrid(np.arange(4.0), np.arange(5.0), indexing="ij")
    slopes = ((0.5, -0.1), (0.1, 0.4), (0.2, 0.3), (0.3, 0.1), (-0.2, 0.2), (0.1, -0.4))
    grid = [a * u + b * w + 0.1 * np.sin(k + u * w) for k, (a, b) in enumerate(slopes)]
    return (
        Revolute((1, 0, 0)),
        Revolute((0.3, -0.5, 0.8)),
        Prismatic((0, 1, 0)),
        Prismatic((1, 2, -1)),
        Screw((0, 0, 1), 0.2),
        Screw((1, -1, 0.5), -0.4),
        Cylindrical((0.2, 1, 0)),
        Planar(),
        Planar(((1, 0, 1), (0, 1, 0.5))),
        Translational(),
        Universal(),
        Universal(((1, 0, 1), (0, 1, 0))),
        Spherical(),
        SphericalExp(),
        Free(),
        Free2D(),
        Composite(Prismatic((0, 1, 0)), Spherical(), Prismatic((1, 0, 1))),
        Composite(Translational(), SphericalEuler("XYZ")),
        Composite(SphericalExp(), Translational()),
        SplineCurve(frames),
        SplineSurface(grid),
        *(SphericalEuler(chart) for chart in SphericalEuler.CHARTS),
    )


def example_integrators(h: float) -> tuple[Integrator, ...]:
    """One integrator of every kind that has steps: the list that the tests use.

    Parameters
    ----------
    h : float
        Step size.

    Returns
    -------
    tuple of Integrator
    """
    kinds = (SymplecticEuler, LinearlyImplicitEuler, BDF1, BDF2, SDIRK2, SDIRK3, Variational)
    custom = CustomIntegrator(h, [[0.25], [0.5, 0.25], [0.3, 0.3, 0.4]])
    return (*(kind(h) for kind in kinds), Variational(h, order=4, rule="lobatto"), custom)


def random_inertia(rng: np.random.Generator) -> Inertia:
    """A random physical inertia: that of a cloud of point masses.

    Parameters
    ----------
    rng : Generator
        Generator of random numbers.

    Returns
    -------
    Inertia
    """
    points, masses = rng.standard_normal((6, 3)) * 0.3, rng.uniform(0.2, 1.0, 6)
    return sum((Inertia.point(m, p) for m, p in zip(masses, points, strict=True)), Inertia.zero())


def random_armature(rng: np.random.Generator, joint: Joint) -> Array:
    """Random armature of a joint, positive where it may have any.

    Parameters
    ----------
    rng : Generator
        Generator of random numbers.
    joint : Joint

    Returns
    -------
    (joint.nv,) array
    """
    values = [np.zeros(0)]
    for factor in joint._factors[0]:
        own = rng.uniform(0.1, 0.6, factor.nv)
        if factor.kind == JointKind.spherical:
            own[:] = own[0]
        values.append(own if factor.kind != JointKind.free else np.zeros(factor.nv))
    return np.concatenate(values)


def random_pose(rng: np.random.Generator) -> spatial.SE3:
    """A random pose.

    Parameters
    ----------
    rng : Generator
        Generator of random numbers.

    Returns
    -------
    SE3
    """
    return spatial.SE3.from_quaternion(rng.standard_normal(4), 0.5 * rng.standard_normal(3))


def random_tree(
    rng: np.random.Generator | int | None = None,
    joints: Sequence[Joint] | int = 8,
    *,
    branching: float = 0.5,
    armature: bool = True,
) -> Model:
    """A model with random tree, placements, inertias, armature and gravity.

    Parameters
    ----------
    rng : Generator or int, optional
        Generator of random numbers, or its seed.
    joints : sequence of Joint, or int
        The joints to use, in order, or the number of joints to draw from `example_joints`.
    branching : float
        Probability with which a body is attached to a random one instead of the one before it.
    armature : bool
        Whether joints have armature.

    Returns
    -------
    Model
    """
    rng = np.random.default_rng(rng)
    if isinstance(joints, int):
        population = example_joints()
        joints = [population[k] for k in rng.integers(len(population), size=joints)]
    drives = np.random.default_rng(len(joints))
    builder = ModelBuilder("random tree", gravity=rng.standard_normal(3) * 5)
    names = ["world"]
    for k, joint in enumerate(joints):
        parent = names[rng.integers(len(names))] if rng.uniform() < branching else names[-1]
        pose, inertia = random_pose(rng), random_inertia(rng)
        own = random_armature(drives, joint) if armature else None
        builder.add_body(f"body{k}", parent, joint, pose, inertia, armature=own)
        names.append(f"body{k}")
    return builder.build()
