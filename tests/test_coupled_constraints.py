"""Constraints on models with couplings: steps of every integrator against those written from their equations
(constraint_oracle.py) and against the couplings as constraints of the tree; projections, dynamics, and derivatives."""

from functools import cache
from typing import NamedTuple

import constraint_oracle as oracle
import numpy as np
import pytest
from compare import arrays_of
from coupled_models import MAPS, Bend, close, columns, directional, state, tree

import torsor as ts
from torsor.constraints.constraint import compile_constraints
from torsor.testing import STEP, complex_inputs, example_joints, random_tree

H = 0.02
INTEGRATORS = {
    "BDF1": ts.BDF1(H, tolerance=1e-12),
    "BDF2": ts.BDF2(H, tolerance=1e-12),
    "SDIRK2": ts.SDIRK2(H, tolerance=1e-12),
    "SDIRK3": ts.SDIRK3(H, tolerance=1e-12),
    "SymplecticEuler": ts.SymplecticEuler(H),
    "LinearlyImplicitEuler": ts.LinearlyImplicitEuler(H),
    "Variational2": ts.Variational(H, 2, tolerance=1e-12),
    "Variational4": ts.Variational(H, 4, tolerance=1e-12),
}
POST = {
    "SymplecticEuler": ts.SymplecticEuler(H, stabilization="post"),
    "LinearlyImplicitEuler": ts.LinearlyImplicitEuler(H, stabilization="post"),
}
FORCES = [ts.JointSpring(None, 3.0, damping=0.4), ts.JointDamping("tip", 0.2)]
CASES = [pytest.param(m, i, id=f"{m}-{i}") for m in MAPS for i in INTEGRATORS]


class Case(NamedTuple):
    model: ts.Model
    constraints: list[ts.Constraint]
    q: np.ndarray
    v: np.ndarray

    @property
    def parts(self):
        return compile_constraints(self.model, self.constraints).parts


def constraints_at(model, q):
    """Two bodies on branches held by a ball joint, a bar, and a relation of joints, of which some follow others."""
    T, tree_q = ts.body_poses(model, q), model.expand(q)
    at = {b.name: k for k, b in enumerate(model.bodies)}
    length = np.linalg.norm((T[at["knee"]] @ [0.1, 0.2, 0.3, 1] - T[at["screw"]] @ [0.3, 0, 0.1, 1])[:3])
    tip, hip, screw = (tree_q[model.tree.joint(name).q_slice][0] for name in ("tip", "hip", "screw"))
    return [
        ts.Loop("tip", "toe", ts.Spherical(), placement_b=ts.SE3.translation(0.1, 0.3, 0.2)).at(model, q),
        ts.Distance("knee", (0.1, 0.2, 0.3), "screw", (0.3, 0, 0.1), float(length)),
        ts.PointOnPlane("world", "ball", ts.SE3.translation(0, 0, float(T[at["ball"], 2, 3])), (0, 0, 0)),
        ts.Coupling(["tip", "hip", "screw"], [1.0, 0.4, 0.7], offset=float(tip + 0.4 * hip + 0.7 * screw)),
    ]


@cache
def case(name):
    model = tree().couple(*MAPS[name])
    q, v, *_ = state(model)
    constraints = constraints_at(model, q)
    if name == "mimic":  # where the relation of tip and hip is that of their coupling, up to the screw
        constraints = constraints[:-1]
    q, v = ts.project(model, constraints, q, 0.3 * v)
    return Case(model, constraints, q, v)


def errors(model, constraints, q, v, t=0.0):
    g, gdot, _ = ts.constraint_errors(model, constraints, q, v, t=t)
    return np.abs(g).max(), np.abs(gdot).max()


def oracle_step(of, integrator, q, v, u):
    """q1 and v1, complex or real."""
    model, parts = of.model, of.parts
    if isinstance(integrator, ts.Variational):
        q1, p1, _ = oracle.variational_step(
            model, parts, integrator, q, oracle.mass_matrix(model, q) @ v, u, forces=FORCES
        )
        return q1, oracle.solve(oracle.mass_matrix(model, q1), p1)
    if isinstance(integrator, (ts.SymplecticEuler, ts.LinearlyImplicitEuler)):
        linearised = isinstance(integrator, ts.LinearlyImplicitEuler)
        return oracle.euler_step(model, parts, H, q, v, u, forces=FORCES, linearised=linearised)[:2]
    return oracle.implicit_step(model, parts, integrator, q, v, u, forces=FORCES)[:2]


# ---- steps


@pytest.mark.parametrize(("name", "method"), CASES)
def test_steps_and_their_derivatives_are_those_of_the_equations(name, method):
    """By complex steps through them, along random directions, off the constraints too."""
    of, integrator, rng = case(name), INTEGRATORS[method], np.random.default_rng(1)
    model = of.model
    q = model.plus(of.q, 1e-3 * rng.standard_normal(model.nv))
    v, u = of.v + 0.1 * rng.standard_normal(model.nv), rng.standard_normal(model.nv)
    dq, dv, du = rng.standard_normal((3, model.nv))
    d = ts.step_derivatives(model, integrator, q, v, u, forces=FORCES, constraints=of.constraints)
    found = [d.dq1_dq @ dq + d.dq1_dv @ dv + d.dq1_du @ du, d.dv1_dq @ dq + d.dv1_dv @ dv + d.dv1_du @ du]
    if method == "LinearlyImplicitEuler":  # of whose equations stiffnesses of forces are real

        def moved(s):
            at = model.plus(q, s * dq), v + s * dv, u + s * du
            q1, v1 = ts.step(model, integrator, *at, forces=FORCES, constraints=of.constraints)
            return np.stack([model.minus(q1, d.q1), v1])

        q1, v1 = oracle_step(of, integrator, q, v, u)
        expected, tolerance = slope(moved), 1e-8
    else:
        e = 1j * STEP
        q1, v1 = oracle_step(of, integrator, oracle.moved(model, q, e * dq), v + e * dv, u + e * du)
        with complex_inputs():
            expected = np.imag(model.minus(q1, d.q1.astype(complex))) / STEP, np.imag(v1) / STEP
        tolerance = 1e-9
    close(model.minus(d.q1, q1.real), np.zeros(model.nv), 1e-11)
    close(d.v1, v1.real, 1e-9)
    close(found[0], expected[0], tolerance)
    close(found[1], expected[1], tolerance)
    close(ts.step(model, integrator, q, v, u, forces=FORCES, constraints=of.constraints).q1, d.q1, 1e-13)


@pytest.mark.parametrize(("name", "method"), CASES)
def test_motions_meet_the_constraints(name, method):
    of = case(name)
    motion = ts.simulate(
        of.model, of.q, of.v, steps=10, integrator=INTEGRATORS[method], forces=FORCES, constraints=of.constraints
    )
    g, gdot = errors(of.model, of.constraints, motion.q, motion.v)
    explicit = method in POST
    assert g < (1e-2 if explicit else 1e-11)  # explicit steps impose velocities at their beginning
    assert gdot < (1.0 if explicit else 1e-10)
    assert np.abs(of.model.minus(motion.q[-1], of.q)).max() > 0.03
    # a of implicit rows are those of formulas; of the first row, and of variational steps, those of forward dynamics
    a, _, _ = ts.constrained_forward_dynamics(
        of.model, of.constraints, of.q, of.v,
        ts.generalized_forces(of.model, FORCES, of.q, of.v),
    )  # fmt: skip
    if not explicit:
        close(motion.a[0], a, 1e-9)


@pytest.mark.parametrize("method", POST)
@pytest.mark.parametrize("name", MAPS)
def test_post_stabilisation(name, method):
    """The end of a step is moved onto the constraints by the shortest way; derivatives by differences."""
    of, integrator, rng = case(name), POST[method], np.random.default_rng(2)
    model, options = of.model, {"forces": FORCES, "constraints": of.constraints}
    motion = ts.simulate(model, of.q, of.v, steps=10, integrator=integrator, **options)
    plain = ts.simulate(model, of.q, of.v, steps=10, integrator=INTEGRATORS[method], **options)
    assert errors(model, of.constraints, motion.q, motion.v)[0] < 0.1 * errors(
        model, of.constraints, plain.q, plain.v
    )[0]  # fmt: skip
    d = ts.step_derivatives(model, integrator, of.q, of.v, **options)
    dq, dv = rng.standard_normal((2, model.nv))

    def moved(s):
        q1, v1 = ts.step(model, integrator, model.plus(of.q, s * dq), of.v + s * dv, **options)
        return np.concatenate([model.minus(q1, d.q1), v1])

    found = np.concatenate([d.dq1_dq @ dq + d.dq1_dv @ dv, d.dv1_dq @ dq + d.dv1_dv @ dv])
    close(found, slope(moved), 1e-8)


def slope(f, s=1e-4):
    """f'(0) of fourth order."""
    return (8 * (f(s) - f(-s)) - (f(2 * s) - f(-2 * s))) / (12 * s)


def test_user_defined_rows():
    """On coordinates of the tree, with parameters and time; by differences."""

    class Level(ts.CustomConstraint):
        rows = 1

        def __init__(self, p):
            self.p = np.asarray(p)

        def value(self, q, t, p):  # of the hip, the knee and the tip
            return np.array([q[7] + 0.5 * q[8] ** 2 + p[0] * np.sin(q[-2]) + 0.1 * t - p[1]])

    of = case("polynomial")
    model, rng = of.model, np.random.default_rng(4)
    level = Level([0.4, Level([0.4, 0.0]).value(model.expand(of.q), 0.0, np.array([0.4, 0.0]))[0]])
    constraints = [level, of.constraints[0]]
    q, v = ts.project(model, constraints, of.q, of.v)
    for method in ("BDF1", "SDIRK2", "SymplecticEuler", "Variational4"):
        integrator = INTEGRATORS[method]
        motion = ts.simulate(model, q, v, steps=3, integrator=integrator, constraints=constraints)
        wq, wv, dq, dv = rng.standard_normal((4, model.nv))
        g = ts.adjoint(motion, dloss_dq=wq, dloss_dv=wv)
        dp = rng.standard_normal(2)

        def loss(s, q=q, v=v, integrator=integrator, motion=motion, wq=wq, wv=wv, dq=dq, dv=dv, dp=dp):
            at, rate = model.plus(q, s * dq), v + s * dv
            for k in range(3):
                rows = [Level(level.p + s * dp), constraints[1]]
                at, rate = ts.step(model, integrator, at, rate, constraints=rows, t=k * H)
            return wq @ model.minus(at, motion.q[-1]) + wv @ rate

        found = g.q0 @ dq + g.v0 @ dv + g.constraints[0]["p"] @ dp
        assert found == pytest.approx(slope(loss), rel=1e-6, abs=1e-6)


# ---- gradients


def steps_of(of, integrator, q, v, u, constraints=None):
    """The rows of a motion, step by step: starts need not satisfy the constraints."""
    constraints = of.constraints if constraints is None else constraints
    rows = [(q, v)]
    for k in range(len(u)):
        previous = rows[-2] if isinstance(integrator, ts.BDF2) and k else None
        rows.append(
            tuple(
                ts.step(
                    of.model, integrator, *rows[-1], u[k], forces=FORCES, constraints=constraints, t=k * H,
                    **({} if previous is None else {"previous": previous}),
                )
            )
        )  # fmt: skip
    return rows


@pytest.mark.parametrize(("name", "method"), [*CASES, pytest.param("custom", "post", id="custom-post")])
def test_gradients(name, method):
    """Of a loss over three steps, by the start, by controls, by parameters of couplings and constraints, and by bodies:
    the derivative along a direction of all of them, by differences."""
    of, maps = case(name), MAPS[name]
    integrator = POST["SymplecticEuler"] if method == "post" else INTEGRATORS[method]
    model, rng = of.model, np.random.default_rng(3)
    u = rng.standard_normal((3, model.nv))
    motion = ts.simulate(
        model, of.q, of.v, steps=3, integrator=integrator, forces=FORCES, constraints=of.constraints, controls=u
    )
    wq, wv, dq, dv = rng.standard_normal((4, model.nv))
    g = ts.adjoint(motion, dloss_dq=wq, dloss_dv=wv)
    du, length = rng.standard_normal(u.shape), of.constraints[1].length
    along = [{key: rng.standard_normal(x.shape) for key, x in c.parameters.items()} for c in maps]
    pi = 0.01 * rng.standard_normal(10)
    body, knee = model.bodies[5], 5

    def loss(s, only):
        def by(part):
            return s if part == only else 0.0

        moved = [
            c.with_parameters({key: x + by("couplings") * d[key] for key, x in c.parameters.items()})
            for c, d in zip(maps, along, strict=True)
        ]
        other = tree().couple(*moved)
        other = other.with_inertia(body.name, ts.Inertia.from_parameters(body.inertia.parameters + by("inertia") * pi))
        bar = ts.Distance("knee", (0.1, 0.2, 0.3), "screw", (0.3, 0, 0.1), length + by("constraints"))
        constraints = [of.constraints[0], bar, *of.constraints[2:]]
        start = model.plus(of.q, by("q") * dq), of.v + by("v") * dv
        q1, v1 = steps_of(of._replace(model=other), integrator, *start, u + by("u") * du, constraints)[-1]
        return wq @ model.minus(q1, motion.q[-1]) + wv @ v1

    found = {
        "q": g.q0 @ dq,
        "v": g.v0 @ dv,
        "u": np.sum(g.controls * du),
        "couplings": sum(np.sum(g.couplings[k][key] * d[key]) for k, d in enumerate(along) for key in d),
        "constraints": g.constraints[1]["length"],
        "inertia": g.inertia[knee] @ pi,
    }
    for part, value in found.items():
        expected = slope(lambda s, part=part: loss(s, part), 5e-5)
        assert value == pytest.approx(expected, rel=2e-7, abs=2e-7), part


@pytest.mark.parametrize(("name", "method"), CASES)
def test_motions_in_lanes_are_those_of_single_states(name, method):
    of, integrator, rng = case(name), INTEGRATORS[method], np.random.default_rng(4)
    moved = of.model.plus(of.q, 0.05 * rng.standard_normal((9, of.model.nv)))
    q, v = ts.project(of.model, of.constraints, moved, np.broadcast_to(of.v, (9, of.model.nv)))
    options = {"steps": 4, "integrator": integrator, "forces": FORCES, "constraints": of.constraints}
    batch = ts.simulate(of.model, q, v, **options)
    gradients = ts.adjoint(batch, dloss_dq=np.ones((9, of.model.nv)))
    for k in (0, 8):
        alone = ts.simulate(of.model, q[k], v[k], **options)
        np.testing.assert_array_equal(batch.q[k], alone.q)
        np.testing.assert_array_equal(batch.v[k], alone.v)
        one = ts.adjoint(alone, dloss_dq=np.ones(of.model.nv))
        for x, y in zip(arrays_of(gradients), arrays_of(one), strict=True):
            np.testing.assert_array_equal(x[k], y)
    d = ts.step_derivatives(of.model, integrator, q, v, forces=FORCES, constraints=of.constraints)
    one = ts.step_derivatives(of.model, integrator, q[3], v[3], forces=FORCES, constraints=of.constraints)
    for x, y in zip(arrays_of(d), arrays_of(one), strict=True):
        np.testing.assert_array_equal(x[3], y)


@pytest.mark.parametrize("method", INTEGRATORS)
def test_models_in_lanes(method):
    """Models of other inertias in one batch have the bits of single motions, and of their gradients."""
    of, integrator = case("custom"), INTEGRATORS[method]
    inertias = [ts.Inertia.box(mass=1.0 + 0.1 * k, size=(0.2, 0.3, 0.1)) for k in range(5)]
    models = [of.model.with_inertia("knee", inertia) for inertia in inertias]
    options = {"steps": 3, "integrator": integrator, "forces": FORCES, "constraints": of.constraints}
    batch = ts.simulate(models, of.q, of.v, **options)
    alone = ts.simulate(models[3], of.q, of.v, **options)
    np.testing.assert_array_equal(batch.q[3], alone.q)
    gradients = ts.adjoint(batch, dloss_dv=np.ones((5, of.model.nv)))
    for x, y in zip(arrays_of(gradients), arrays_of(ts.adjoint(alone, dloss_dv=np.ones(of.model.nv))), strict=True):
        np.testing.assert_array_equal(x[3], y)


@pytest.mark.parametrize("order", [2, 4])
def test_variational_steps_of_momenta(order):
    """From (q, p) to (q, p): against the equations, by complex step; and in the discrete equations themselves."""
    of, integrator, rng = case("custom"), ts.Variational(H, order, tolerance=1e-12), np.random.default_rng(7)
    model = of.model
    p = ts.generalized_momenta(model, of.q, of.v)
    dq, dp = rng.standard_normal((2, model.nv))
    e = 1j * STEP
    q1, p1, multipliers = oracle.variational_step(
        model, of.parts, integrator, oracle.moved(model, of.q, e * dq), p + e * dp
    )
    d = ts.step_derivatives(model, integrator, of.q, p=p, constraints=of.constraints)
    close(d.p1, p1.real, 1e-10)
    with complex_inputs():
        close(d.dq1_dq @ dq + d.dq1_dp @ dp, np.imag(model.minus(q1, d.q1.astype(complex))) / STEP, 1e-9)
    close(d.dp1_dq @ dq + d.dp1_dp @ dp, np.imag(p1) / STEP, 1e-9)
    if order == 2:
        r = ts.variational.discrete_euler_lagrange(
            model, integrator, [of.q, d.q1], constraints=of.constraints, multipliers=multipliers.real
        )
        close(r.p0, p, 1e-9)
        close(r.p1, d.p1, 1e-9)


# ---- the same couplings as constraints


def mimics_as_constraints(model):
    return [
        ts.Coupling(["tip", "hip"], [1.0, 0.7], offset=0.2),
        ts.Coupling(["slide", "tip"], [1.0, -1.5], offset=0.0),
    ]


@pytest.mark.parametrize("method", ["BDF1", "BDF2", "SDIRK2", "SymplecticEuler", "Variational2", "Variational4"])
def test_linear_couplings_move_as_constraints_of_the_tree(method):
    of = case("mimic")
    options = {"steps": 8, "integrator": INTEGRATORS[method], "forces": FORCES}
    motion = ts.simulate(of.model, of.q, of.v, constraints=of.constraints, **options)
    other = ts.simulate(
        of.model.tree, of.model.expand(of.q), of.model.expand_velocity(of.q, of.v),
        constraints=[*of.constraints, *mimics_as_constraints(of.model)], **options,
    )  # fmt: skip
    close(motion.tree_q, other.q, 1e-9)
    close(motion.tree_v, other.v, 1e-8)
    close(motion.multipliers, other.multipliers[..., : motion.multipliers.shape[-1]], 1e-7)
    close(motion.reactions, other.reactions[..., : len(of.constraints), :], 1e-7)


@pytest.mark.parametrize("method", [*INTEGRATORS, "HardContact"])
def test_rows_that_couplings_satisfy_change_nothing(method):
    of = case("mimic")
    integrator = ts.HardContact(H) if method == "HardContact" else INTEGRATORS[method]
    both = [*of.constraints, *mimics_as_constraints(of.model)]
    options = {"steps": 4, "integrator": integrator, "forces": FORCES}
    motion = ts.simulate(of.model, of.q, of.v, constraints=both, **options)
    plain = ts.simulate(of.model, of.q, of.v, constraints=of.constraints, **options)
    close(motion.q, plain.q, 1e-10)
    assert ts.mobility(of.model, both, of.q).redundant == ("Coupling(tip, hip)", "Coupling(slide, tip)")


def test_dynamics_with_rows_that_couplings_satisfy():
    of = case("mimic")
    both = [*of.constraints, *mimics_as_constraints(of.model)]
    tau = np.linspace(-1.0, 1.0, of.model.nv)
    found = ts.constrained_forward_dynamics(of.model, both, of.q, of.v, tau)
    plain = ts.constrained_forward_dynamics(of.model, of.constraints, of.q, of.v, tau)
    close(found.a, plain.a)
    close(found.multipliers, np.concatenate([plain.multipliers, np.zeros(2)]), 1e-10)
    assert found.rank == plain.rank == 5


@pytest.mark.parametrize("kind", [ts.SDIRK2, ts.BDF2, ts.Variational])
def test_nonlinear_couplings_approach_constraints_of_the_tree(kind):
    """Steps of second order along other coordinates: their ends differ by that order."""
    of = case("polynomial")
    model, maps = of.model, MAPS["polynomial"]
    held = [
        ts.PolynomialCoupling("hip", "knee", maps[0].coefficients, center=maps[0].center),
        ts.Coupling(["tip", "knee"], [1.0, 0.6], offset=0.1),
        ts.PolynomialCoupling("knee", "toe", maps[2].coefficients, center=0.0),
    ]

    def miss(h):
        options = {"T": 0.08, "integrator": kind(h, tolerance=1e-12), "forces": FORCES}
        motion = ts.simulate(model, of.q, of.v, constraints=of.constraints, **options)
        other = ts.simulate(
            model.tree, model.expand(of.q), model.expand_velocity(of.q, of.v),
            constraints=[*of.constraints, *held], **options,
        )  # fmt: skip
        return np.abs(model.tree.minus(motion.tree_q[-1], other.q[-1])).max()

    coarse, fine = miss(0.005), miss(0.0025)
    assert 3.0 < coarse / fine < 5.5 and fine < 1e-4


# ---- hard contact


def falling(name, maps=None):
    """Above the ground, with limits and dry friction in joints that follow others: model, forces and state."""
    base = tree().with_body("tip", position_limits=((-0.5,), (0.5,)))
    maps = MAPS[name] if maps is None else maps
    model = base.couple(*maps)
    law = {"stiffness": 1e5, "friction": 0.6}
    ground = ts.shapes.HalfSpace(offset=-1.0)
    forces = [
        ts.Contact("tip", ts.shapes.Sphere(0.2), "world", ground, **law),
        ts.Contact("toe", ts.shapes.Sphere(0.3), "world", ground, **law),
        ts.JointFriction("tip", 0.3),
        ts.JointSpring(None, 20.0, damping=1.0),
    ]
    if name != "custom":  # which bends so much there that impulses turn joints by half a turn
        forces.append(ts.JointLimits("tip", 100.0, 1.0))
    q, v, *_ = state(model)
    q[2] = 1.0
    return model, forces, q, 0.3 * v


@pytest.mark.parametrize("name", MAPS)
def test_hard_contact(name):
    """A fall: gaps stay closed and rows hold; derivatives of steps and gradients by differences."""
    model, forces, q, v = falling(name)
    bar = constraints_at(model, q)[1:2]
    q, v = ts.project(model, bar, q, v)
    integrator = ts.HardContact(0.01, tolerance=1e-12)
    options = {"integrator": integrator, "forces": forces, "constraints": bar}
    motion = ts.simulate(model, q, v, T=0.8, **options)
    assert (np.abs(motion.contacts.force).sum(axis=-1) > 0.0).any()
    assert motion.contacts.gap.min() > -0.02  # steps impose velocities, at their beginning
    assert errors(model, bar, motion.q, motion.v)[0] < 0.005
    if name != "custom":
        assert np.abs(motion.tree_q[:, model.tree.joint("tip").q_slice]).max() < 0.5 + 1e-4
    touching = np.flatnonzero((np.abs(motion.contacts.force).sum(axis=-1) > 0).any(axis=-1))
    row = next(int(k) for k in touching[2:] if motion.kinks[k : k + 2].sum() == 0 and k + 2 < len(motion.q))
    at, rate = motion.q[row], motion.v[row]
    d = ts.step_derivatives(model, integrator, at, rate, forces=forces, constraints=bar)
    rng = np.random.default_rng(5)
    dq, dv, du = rng.standard_normal((3, model.nv))

    def moved(s):
        q1, v1 = ts.step(
            model, integrator, model.plus(at, s * dq), rate + s * dv, s * du, forces=forces, constraints=bar
        )
        return np.concatenate([model.minus(q1, d.q1), v1])

    found = np.concatenate(
        [d.dq1_dq @ dq + d.dq1_dv @ dv + d.dq1_du @ du, d.dv1_dq @ dq + d.dv1_dv @ dv + d.dv1_du @ du]
    )
    close(found, slope(moved, 2e-6), 1e-6)


@pytest.mark.parametrize("name", MAPS)
def test_gradients_of_hard_contact_by_couplings(name):
    model, forces, q, v = falling(name)
    integrator, maps = ts.HardContact(0.01, tolerance=1e-12), MAPS[name]
    fall = ts.simulate(model, q, v, T=0.8, integrator=integrator, forces=forces)
    touching = np.flatnonzero((np.abs(fall.contacts.force).sum(axis=-1) > 0).any(axis=-1))
    row = next(int(k) for k in touching[2:] if fall.kinks[k : k + 3].sum() == 0 and k + 3 < len(fall.q))
    q, v = fall.q[row], fall.v[row]
    motion = ts.simulate(model, q, v, steps=2, integrator=integrator, forces=forces)
    rng = np.random.default_rng(6)
    wq, wv = rng.standard_normal((2, model.nv))
    g = ts.adjoint(motion, dloss_dq=wq, dloss_dv=wv)
    along = [{key: rng.standard_normal(x.shape) for key, x in c.parameters.items()} for c in maps]
    body, pi = model.bodies[5], 0.01 * rng.standard_normal(10)

    def loss(s, t):
        moved = [
            c.with_parameters({key: x + s * d[key] for key, x in c.parameters.items()})
            for c, d in zip(maps, along, strict=True)
        ]
        other = falling(name, moved)[0].with_inertia(
            body.name, ts.Inertia.from_parameters(body.inertia.parameters + t * pi)
        )
        last = ts.simulate(other, q, v, steps=2, integrator=integrator, forces=forces)
        return wq @ model.minus(last.q[-1], motion.q[-1]) + wv @ last.v[-1]

    found = sum(np.sum(g.couplings[k][key] * d[key]) for k, d in enumerate(along) for key in d)
    assert found == pytest.approx(slope(lambda s: loss(s, 0.0), 2e-6), rel=2e-6, abs=2e-6)
    assert g.inertia[5] @ pi == pytest.approx(slope(lambda s: loss(0.0, s), 1e-4), rel=2e-6, abs=2e-6)


def test_hard_contact_of_linear_couplings_is_that_of_constraints():
    model, forces, q, v = falling("mimic")
    integrator = ts.HardContact(0.01, tolerance=1e-12)
    q[2] = 0.2
    motion = ts.simulate(model, q, v, T=0.6, integrator=integrator, forces=forces)
    other = ts.simulate(
        model.tree, model.expand(q), model.expand_velocity(q, v), T=0.6, integrator=integrator, forces=forces,
        constraints=mimics_as_constraints(model),
    )  # fmt: skip
    assert (np.abs(motion.contacts.force).sum(axis=(-1, -2)) > 0).sum() > 5
    close(motion.tree_q, other.q, 1e-6)


def test_bearings_of_followers_in_hard_steps():
    """Loads of bearings depend on the motion of all joints: derivatives and gradients by differences."""
    maps = (ts.Polynomial("knee", of="hip", coefficients=(0.1, 0.8, -0.4, 0.3)), ts.Mimic("tip", of="hip", ratio=0.6))
    rng = np.random.default_rng(8)

    def built(maps):
        return tree().couple(*maps)

    model = built(maps)
    forces = [ts.BearingFriction("knee", 0.2, radius=0.05), ts.BearingFriction("tip", 0.3, radius=0.04)]
    q, v, *_ = state(model)
    integrator = ts.HardContact(0.01, tolerance=1e-12)
    motion = ts.simulate(model, q, v, steps=2, integrator=integrator, forces=forces)
    assert motion.kinks.sum() == 0
    wq, wv, dq, dv = rng.standard_normal((4, model.nv))
    g = ts.adjoint(motion, dloss_dq=wq, dloss_dv=wv)
    along = [{key: rng.standard_normal(x.shape) for key, x in c.parameters.items()} for c in maps]

    def loss(s, t):
        moved = [
            c.with_parameters({key: x + t * d[key] for key, x in c.parameters.items()})
            for c, d in zip(maps, along, strict=True)
        ]
        last = ts.simulate(
            built(moved), model.plus(q, s * dq), v + s * dv, steps=2, integrator=integrator, forces=forces
        )
        return wq @ model.minus(last.q[-1], motion.q[-1]) + wv @ last.v[-1]

    assert g.q0 @ dq + g.v0 @ dv == pytest.approx(slope(lambda s: loss(s, 0.0)), rel=2e-7, abs=2e-7)
    found = sum(np.sum(g.couplings[k][key] * d[key]) for k, d in enumerate(along) for key in d)
    assert found == pytest.approx(slope(lambda s: loss(0.0, s)), rel=2e-7, abs=2e-7)


# ---- projections and mobility


@pytest.mark.parametrize("name", MAPS)
def test_projections(name):
    """The nearest state, and its derivatives, by complex steps through the equations that define it."""
    of, rng = case(name), np.random.default_rng(9)
    model = of.model
    q, v = model.plus(of.q, 0.05 * rng.standard_normal(model.nv)), of.v + 0.2 * rng.standard_normal(model.nv)
    q1, v1 = ts.project(model, of.constraints, q, v)
    assert max(errors(model, of.constraints, q1, v1)) < 1e-11
    dq, dv = rng.standard_normal((2, model.nv))
    e = 1j * STEP
    at = oracle.project(model, of.parts, oracle.moved(model, q, e * dq))
    rate, _ = oracle.project_velocity(model, of.parts, at, v + e * dv)
    close(model.minus(q1, at.real), np.zeros(model.nv), 1e-10)
    close(v1, rate.real, 1e-9)
    d = ts.project_derivatives(model, of.constraints, q, v)
    with complex_inputs():
        expected = np.imag(model.minus(at, q1.astype(complex))) / STEP
    close(d.dq1_dq @ dq, expected, 1e-8)
    close(d.dv1_dq @ dq + d.dv1_dv @ dv, np.imag(rate) / STEP, 1e-8)
    wq, wv = rng.standard_normal((2, model.nv))
    g = ts.project_vjp(model, of.constraints, q, v, wq, wv)
    close(g.q, wq @ d.dq1_dq + wv @ d.dv1_dq, 1e-8)
    close(g.v, wv @ d.dv1_dv, 1e-8)
    close(
        g.constraints[1]["length"],
        wq @ d.dq1_dparameters[1]["length"] + wv @ d.dv1_dparameters[1]["length"], 1e-8,
    )  # fmt: skip
    pi = 0.01 * rng.standard_normal(10)

    def heavier(s):
        body = model.bodies[4]
        other = model.with_inertia(body.name, ts.Inertia.from_parameters(body.inertia.parameters + s * pi))
        a, b = ts.project(other, of.constraints, q, v)
        return wq @ model.minus(a, q1) + wv @ b

    assert g.inertia[4] @ pi == pytest.approx(slope(heavier), rel=1e-6, abs=1e-7)


def test_kept_joints():
    of = case("subspace")
    q = of.model.plus(of.q, 0.02 * np.random.default_rng(1).standard_normal(of.model.nv))
    q1 = ts.project(of.model, of.constraints, q, keep=["bend"])
    k = of.model._map.columns["bend"]
    assert q1[of.model.nq - of.model.nv + k] == q[of.model.nq - of.model.nv + k]
    with pytest.raises(ts.ModelError, match=r"joint 'tip' follows .*; keep .* in its place"):
        ts.project(of.model, of.constraints, q, keep=["tip"])


def test_mobility():
    """That of the tree with the couplings as constraints."""
    of = case("mimic")
    found = ts.mobility(of.model, of.constraints, of.q)
    other = ts.mobility(of.model.tree, [*of.constraints, *mimics_as_constraints(of.model)], of.model.expand(of.q))
    assert found.freedoms == other.freedoms == of.model.nv - found.rank
    assert not found.singular
    G = ts.constraint_jacobian(of.model, of.constraints, of.q)
    close(G @ found.motions, np.zeros((len(G), found.freedoms)), 1e-11)


# ---- dynamics


@pytest.mark.parametrize("redundant", [False, True])
@pytest.mark.parametrize("name", MAPS)
def test_directional_and_second_derivatives(name, redundant):
    of = case(name)
    model, rng = of.model, np.random.default_rng(10)
    constraints = [*of.constraints, of.constraints[1]] if redundant else of.constraints
    q, v, tau, dq, dv, dtau = of.q, *rng.standard_normal((5, model.nv))
    f_ext, df_ext = rng.standard_normal((2, model.nbodies, 6))
    options = {"f_ext": f_ext, "f_ext_frame": "world", "baumgarte": (2.0, 3.0)}
    d = ts.constrained_forward_dynamics_derivatives(model, constraints, q, v, tau, **options)
    j = ts.constrained_forward_dynamics_jvp(
        model, constraints, q, v, tau, dq=dq, dv=dv, dtau=dtau, df_ext=df_ext, **options
    )

    def along_wrenches(s):
        moved = ts.constrained_forward_dynamics(
            model, constraints, q, v, tau, **options | {"f_ext": f_ext + s * df_ext}
        )
        return np.concatenate([moved.a, moved.multipliers])

    with complex_inputs():
        by_wrenches = np.imag(along_wrenches(1j * STEP)) / STEP
    expected = np.concatenate(
        [
            d.da_dq @ dq + d.da_dv @ dv + d.da_dtau @ dtau,
            d.dmultipliers_dq @ dq + d.dmultipliers_dv @ dv + d.dmultipliers_dtau @ dtau,
        ]
    )
    close(np.concatenate([j.da, j.dmultipliers]), expected + by_wrenches)
    found = ts.constrained_forward_dynamics(model, constraints, q, v, tau, **options)
    close(j.a, found.a)
    close(j.multipliers, found.multipliers)
    wa, wl = rng.standard_normal(model.nv), rng.standard_normal(len(found.multipliers))
    h = ts.constrained_forward_dynamics_hessians(model, constraints, q, v, tau, contract=(wa, wl), **options)

    def gradient(q, v, tau):
        d = ts.constrained_forward_dynamics_derivatives(model, constraints, q, v, tau, **options)
        return (
            wa @ d.da_dq + wl @ d.dmultipliers_dq, wa @ d.da_dv + wl @ d.dmultipliers_dv,
            wa @ d.da_dtau + wl @ d.dmultipliers_dtau,
        )  # fmt: skip

    for x, y in zip((h.dq, h.dv, h.dtau), gradient(q, v, tau), strict=True):
        close(x, y)
    close(h.dqdq, columns(model, lambda x: gradient(x, v, tau)[0], q), 1e-10)
    close(h.dqdv, directional(lambda x: gradient(q, x, tau)[0], v), 1e-10)
    close(h.dvdv, directional(lambda x: gradient(q, x, tau)[1], v), 1e-10)
    close(h.dtaudq, columns(model, lambda x: gradient(x, v, tau)[2], q), 1e-10)


@pytest.mark.parametrize("name", MAPS)
def test_inverse_dynamics_under_constraints(name):
    of = case(name)
    model, rng = of.model, np.random.default_rng(11)
    motors = np.ones(model.nv, bool)
    motors[:3] = False  # of the base
    tau0 = np.where(motors, rng.standard_normal(model.nv), 0.0)
    a = ts.constrained_forward_dynamics(model, of.constraints, of.q, of.v, tau0).a
    options = {"actuated": motors}
    tau, multipliers = ts.constrained_inverse_dynamics(model, of.constraints, of.q, of.v, a, **options)
    G = ts.constraint_jacobian(model, of.constraints, of.q)
    close(tau + G.T @ multipliers, ts.inverse_dynamics(model, of.q, of.v, a), 1e-9)
    close(tau[:3], np.zeros(3))
    close(ts.constrained_forward_dynamics(model, of.constraints, of.q, of.v, tau).a, a, 1e-8)
    motors[:] = True
    d = ts.constrained_inverse_dynamics_derivatives(model, of.constraints, of.q, of.v, a, **options)

    def value(q, v, a):
        return np.concatenate(ts.constrained_inverse_dynamics(model, of.constraints, q, v, a, **options))

    close(np.concatenate([d.dtau_dq, d.dmultipliers_dq]), columns(model, lambda x: value(x, of.v, a), of.q))
    close(np.concatenate([d.dtau_dv, d.dmultipliers_dv]), directional(lambda x: value(of.q, x, a), of.v))
    close(np.concatenate([d.dtau_da, d.dmultipliers_da]), directional(lambda x: value(of.q, of.v, x), a))
    with pytest.raises(ts.ModelError, match="actuate"):
        ts.constrained_inverse_dynamics(model, of.constraints, of.q, of.v, a, actuated=["tip"])


# ---- every kind of joint


@pytest.mark.parametrize("seed", range(6))
def test_random_trees(seed):
    """Random trees of all kinds of joints, with nonlinear couplings between them and a loop."""
    rng = np.random.default_rng(seed)
    kinds = [j for j in example_joints() if not isinstance(j, ts.Fixed)]
    chosen = [kinds[k] for k in rng.permutation(len(kinds))[:4]]
    joints = [ts.Revolute((0, 0, 1)), *chosen[:2], ts.Prismatic((1, 0, 0)), *chosen[2:], ts.Revolute((0, 1, 0))]
    base = random_tree(rng, joints)
    names = [base.joints[k].name for k in (0, 3, 6)]
    model = base.couple(
        ts.Polynomial(names[1], of=names[0], coefficients=(0.1, 0.5, 0.3, -0.2)), Bend([names[2]], of=[names[0]])
    )
    q, v = model.random(rng), 0.3 * rng.standard_normal(model.nv)
    ends = [model.bodies[k].name for k in (-1, 2)]
    loop = ts.Loop(ends[0], ends[1], ts.Spherical(), placement_b=ts.SE3.translation(*rng.standard_normal(3)))
    constraints = [loop.at(model, q)]
    q, v = ts.project(model, constraints, q, v)
    for integrator in (ts.BDF1(1e-3, tolerance=1e-12), ts.SymplecticEuler(1e-3), ts.Variational(1e-3, tolerance=1e-12)):
        d = ts.step_derivatives(model, integrator, q, v, constraints=constraints)
        if not isinstance(integrator, ts.SymplecticEuler):
            assert max(errors(model, constraints, d.q1, d.v1)) < 1e-9
        dq, dv, du = rng.standard_normal((3, model.nv))

        def moved(s, integrator=integrator, d=d, dq=dq, dv=dv, du=du):
            q1, v1 = ts.step(model, integrator, model.plus(q, s * dq), v + s * dv, s * du, constraints=constraints)
            return np.concatenate([model.minus(q1, d.q1), v1])

        found = np.concatenate(
            [d.dq1_dq @ dq + d.dq1_dv @ dv + d.dq1_du @ du, d.dv1_dq @ dq + d.dv1_dv @ dv + d.dv1_du @ du]
        )
        close(found, slope(moved, 1e-4), 1e-7)
