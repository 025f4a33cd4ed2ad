"""Variational integrators under constraints: against steps written from their equations (constraint_oracle.py), orders,
symplectic form, momenta, energy, derivatives and gradients, redundant rows, and lanes."""

from dataclasses import replace

import constraint_models as models
import constraint_oracle as oracle
import numpy as np
import pytest
from compare import arrays_of
from population import sweep
from variational_cases import mixed_forces, symplectic_form

import torsor as ts
from torsor import _core, testing
from torsor.constraints.constraint import compile_constraints
from torsor.testing import complex_inputs

STEP = oracle.STEP
SCHEMES = [pytest.param(order, rule) for rule in ("gauss", "lobatto") for order in (2, 4, 6)]
CASES = {
    "four-bar": lambda: models.four_bar("planes"),
    "slider-crank": lambda: models.slider_crank("line"),
    "floating loop": lambda: models.floating_loop((0.2, -0.3, -9.81)),
    "floating hinge": lambda: models.floating_loop((0, 0, -9.81), "revolute"),
    "driven arm": models.driven,
    "ring": lambda: models.ring(11, "line", seed=3),
}


class Level(ts.CustomConstraint):
    """The sum of squares of some coordinates, less a drift in time, keeps the value that it has at a state."""

    rows = 1

    def __init__(self, at, weights, t=0.0):
        self.weights, self.p = np.asarray(weights), np.array([0.3, 0.0])
        self.p = np.array([0.3, self.value(np.asarray(at), t, self.p)[0]])

    def value(self, q, t, p):
        x = q[: len(self.weights)]
        return np.array([self.weights @ (x * x) - p[0] * t * t - p[1]])


def scheme(order, rule, h=0.02, tolerance=1e-13):
    return ts.Variational(h, order, rule, tolerance=tolerance)


def momenta(case):
    return ts.generalized_momenta(case.model, case.q, case.v)


def errors(case, q, v, t, constraints=None):
    """g and G v + g_t of rows of a trajectory."""
    options = compile_constraints(case.model, case.constraints if constraints is None else constraints).options
    return _core.constraint_errors(case.model, q, v, t, None, options, None, 1)[:2]


def simulate(case, integrator, steps, **options):
    return ts.simulate(
        case.model,
        case.q,
        case.v,
        steps=steps,
        integrator=integrator,
        constraints=case.constraints,
        t0=case.t,
        **options,
    )


# ---- steps


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(("order", "rule"), SCHEMES)
def test_a_step_is_that_of_the_equations(name, order, rule):
    case, integrator = CASES[name](), scheme(order, rule)
    model, p = case.model, momenta(case)
    u = np.random.default_rng(0).standard_normal(model.nv)
    q1, p1, multipliers = oracle.variational_step(model, case.parts, integrator, case.q, p, u, case.t)
    d = ts.step_derivatives(model, integrator, case.q, p=p, u=u, constraints=case.constraints, t=case.t)
    np.testing.assert_allclose(model.minus(d.q1, q1), 0, atol=1e-12)
    np.testing.assert_allclose(d.p1, p1, atol=1e-11 * (1 + np.abs(p1).max()))
    step = ts.step(model, integrator, case.q, case.v, u, constraints=case.constraints, t=case.t)
    np.testing.assert_allclose(model.minus(step.q1, q1), 0, atol=1e-12)
    np.testing.assert_allclose(ts.generalized_momenta(model, step.q1, step.v1), p1, atol=1e-11 * (1 + np.abs(p1).max()))
    # The control points of the step satisfy the discrete equations with these multipliers.
    if order == 2:
        r = ts.variational.discrete_euler_lagrange(
            model, integrator, [case.q, d.q1], u, constraints=case.constraints, multipliers=multipliers, t=case.t
        )
        for value, expected in ((r.p0, p), (r.p1, d.p1)):
            np.testing.assert_allclose(value, expected, atol=1e-9 * (1 + np.abs(p1).max()))


@pytest.mark.parametrize("name", ["floating loop", "driven arm", "ring"])
@pytest.mark.parametrize(("order", "rule"), sweep(SCHEMES, 2))
def test_rows_hold_and_accelerations_are_those_of_forward_dynamics(name, order, rule):
    case = CASES[name]()
    motion = simulate(case, scheme(order, rule, tolerance=1e-12), 12)
    g, rate = errors(case, motion.q, motion.v, motion.t)
    assert np.abs(g).max() < 1e-12
    assert np.abs(rate).max() < 1e-12
    assert np.abs(case.model.minus(motion.q[-1], case.q)).max() > 0.05
    for row in (0, 7, 12):
        a, _ = oracle.forward_dynamics(
            case.model, case.parts, motion.q[row], motion.v[row], np.zeros(case.model.nv), motion.t[row]
        )
        np.testing.assert_allclose(motion.a[row], a, atol=1e-9 * (1 + np.abs(a).max()))


@pytest.mark.parametrize("name", ["four-bar", "floating loop", "floating hinge", "driven arm"])
@pytest.mark.parametrize(("order", "rule"), SCHEMES)
def test_newton_takes_few_corrections(name, order, rule):
    """The derivatives of the multipliers' forces are in its matrix, dense or over the tree."""
    case = CASES[name]()
    integrator = ts.Variational(0.03, order, rule, iterations=4)
    ts.step(case.model, integrator, case.q, case.v, constraints=case.constraints, t=case.t)


def test_momenta_at_the_start():
    case = CASES["floating loop"]()
    integrator, p = scheme(4, "gauss", tolerance=1e-12), momenta(case)
    motion = simulate(case, integrator, 3)
    other = ts.simulate(
        case.model, case.q, p0=p, steps=3, integrator=integrator, constraints=case.constraints, t0=case.t
    )
    np.testing.assert_allclose(other.q, motion.q, atol=1e-12)
    np.testing.assert_allclose(other.p, motion.p, atol=1e-11 * (1 + np.abs(p).max()))
    across = p + 0.1 * oracle.jacobian(case.model, case.parts, case.q)[0]
    with pytest.raises(ts.ConstraintError, match="moves at"):
        ts.simulate(case.model, case.q, p0=across, steps=3, integrator=integrator, constraints=case.constraints)


@pytest.mark.parametrize("name", ["four-bar", "slider-crank", "floating loop"])
@pytest.mark.parametrize(("order", "rule"), SCHEMES)
def test_orders(name, order, rule):
    case = CASES[name]()
    counts = {2: 24, 4: 12, 6: 3} if name == "floating loop" else {2: 12, 4: 6, 6: 4}  # that one moves fast
    T, steps = 0.48, counts[order]
    fine = simulate(case, ts.Variational(T / 160, 6, rule), 160)

    def error(count):
        motion = simulate(case, scheme(order, rule, T / count), count)
        q = np.abs(case.model.minus(motion.q[-1], fine.q[-1])).max()
        return np.array([q, np.abs(motion.p[-1] - fine.p[-1]).max()])

    misses = np.array([error(k * steps) for k in (2, 4, 8)])
    observed = np.log2(misses[:-1] / misses[1:])
    assert misses[-1].min() > 1e-11  # above rounding
    assert (observed[-1] > order - 0.3).all(), (observed, misses)
    assert (observed[-1] < order + 0.6).all(), (observed, misses)


# ---- conservation


def tangents(case, q, p, t):
    """A basis, columns (dq, dp), of the tangent space of {g = 0, G M^-1 p + g_t = 0}."""
    model, nv = case.model, case.model.nv

    def rows(x):
        moved = oracle.moved(model, q, x[:nv])
        v = oracle.solve(oracle.mass_matrix(model, moved), p + x[nv:])
        return np.concatenate([
            oracle.g(model, case.parts, moved, t), oracle.gdot(model, case.parts, moved, v, t)
        ])  # fmt: skip

    J = oracle.along(rows, np.zeros(2 * nv))
    _, values, V = np.linalg.svd(J)
    rank = np.count_nonzero(values > 1e-9 * values[0])
    return V[rank:].T, J


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(("order", "rule"), sweep(SCHEMES, 2))
def test_steps_are_symplectic_on_the_constrained_phase_space(name, order, rule):
    case, integrator = CASES[name](), scheme(order, rule)
    model, p = case.model, momenta(case)
    d = ts.step_derivatives(model, integrator, case.q, p=p, constraints=case.constraints, t=case.t)
    X = np.block([[d.dq1_dq, d.dq1_dp], [d.dp1_dq, d.dp1_dp]])
    basis, _ = tangents(case, case.q, p, case.t)
    moved = X @ basis
    before = basis.T @ symplectic_form(model, p) @ basis
    after = moved.T @ symplectic_form(model, d.p1) @ moved
    np.testing.assert_allclose(after, before, atol=1e-12 * np.abs(moved).max() ** 2)
    # The image is tangent to the constrained phase space, and not degenerate.
    _, J = tangents(case, d.q1, d.p1, case.t + integrator.h)
    np.testing.assert_allclose(J @ moved, 0, atol=1e-11 * np.abs(J).max() * np.abs(moved).max())
    assert np.linalg.cond(before) < 1e8


@pytest.mark.parametrize(("order", "rule"), SCHEMES)
def test_momentum_of_a_floating_loop_is_conserved(order, rule):
    case = models.floating_loop()
    model = case.model
    motion = simulate(case, scheme(order, rule, 0.03), 40)
    momentum = ts.momentum(model, motion.q, motion.v, about="world")
    assert np.abs(momentum - momentum[0]).max() < 1e-12 * np.abs(momentum[0]).max()
    assert np.abs(model.minus(motion.q[-1], case.q)).max() > 0.5


def energies(case, integrator, steps, every):
    motion = simulate(case, integrator, steps, every=every)
    model = case.model
    g, rate = errors(case, motion.q, motion.v, motion.t)
    assert np.abs(g).max() < 1e-12
    assert np.abs(rate).max() < 1e-12 * (1 + np.abs(motion.v).max())
    return ts.kinetic_energy(model, motion.q, motion.v) + ts.potential_energy(model, motion.q)


def check_energy(order, rule, h, steps, every):
    """Its range over the second half of a motion is that over the first, and its mean moves by little of that."""
    E = energies(models.four_bar("planes"), ts.Variational(h, order, rule), steps, every)
    first, second = E[: len(E) // 2], E[len(E) // 2 :]
    assert np.ptp(second) < 1.1 * np.ptp(first)
    assert abs(second.mean() - first.mean()) < 0.02 * np.ptp(first)


@pytest.mark.parametrize(("order", "rule", "h"), [(2, "gauss", 0.01), (2, "lobatto", 0.01), (4, "gauss", 0.03)])
def test_energy_does_not_drift(order, rule, h):
    check_energy(order, rule, h, 10_000, 1)


@pytest.mark.slow
@pytest.mark.parametrize(("order", "rule", "h"), [(2, "lobatto", 0.01), (4, "lobatto", 0.03), (6, "gauss", 0.05)])
def test_energy_does_not_drift_over_many_steps(order, rule, h):
    check_energy(order, rule, h, 100_000, 5)


# ---- derivatives


def described(seed, joints):
    """A random case whose constraints have descriptions: the first from a seed on."""
    for k in range(100):
        with np.errstate(invalid="ignore"):
            case = models.random_case(100 * seed + k, joints=joints)
        try:
            assert case.constraints
        except (TypeError, ValueError):  # a distance of frames, or a plane that moves
            continue
        return case
    raise AssertionError("there is none")


def random_cases():
    for seed in range(12):
        yield pytest.param(seed, 3 + seed % 6, *SCHEMES[(5 * seed) % 6].values)


def along_step(case, integrator, q, p, direction, u, forces=(), x=None):
    """The derivative of (q1, p1) of the oracle's step along (dq, dp, du)."""
    model, nv = case.model, case.model.nv
    dq, dp, du = (1j * STEP * direction[k * nv : (k + 1) * nv] for k in range(3))
    q1, p1, _ = oracle.variational_step(
        model, case.parts, integrator, oracle.moved(model, q, dq), p + dp, u + du, case.t, forces=forces, x=x
    )
    with complex_inputs():
        base = oracle.numbers(q1, np.real(q1))[1]
        return np.real(q1), np.real(p1), np.imag(model.minus(q1, base)) / STEP, np.imag(p1) / STEP


def check_derivatives(case, integrator, seed, forces=(), tolerance=1e-10):
    model, nv, rng = case.model, case.model.nv, np.random.default_rng(seed)
    q, p, u = case.q, momenta(case), rng.standard_normal(case.model.nv)
    options = {"constraints": case.constraints, "forces": forces, "t": case.t}
    d = ts.step_derivatives(model, integrator, q, p=p, u=u, **options)
    by_p = np.block([[d.dq1_dq, d.dq1_dp, d.dq1_du], [d.dp1_dq, d.dp1_dp, d.dp1_du]])
    e = ts.step_derivatives(model, integrator, q, case.v, u, **options)
    by_v = np.block([[e.dq1_dq, e.dq1_dv, e.dq1_du], [e.dv1_dq, e.dv1_dv, e.dv1_du]])
    for part in range(3):  # one after the other, their sizes being different
        direction = np.zeros(3 * nv)
        direction[part * nv : (part + 1) * nv] = rng.standard_normal(nv)
        q1, _, dq1, dp1 = along_step(case, integrator, q, p, direction, u, forces)
        np.testing.assert_allclose(model.minus(d.q1, q1), 0, atol=1e-11)
        found = by_p @ direction
        for value, expected in ((found[:nv], dq1), (found[nv:], dp1)):
            np.testing.assert_allclose(value, expected, atol=tolerance * np.abs(expected).max())
    # v = M^-1 p: the same linear map, in other variables
    h, eps = np.zeros((nv, nv)), 1j * STEP
    for k in range(nv):
        h[:, k] = np.imag(oracle.mass_matrix(model, oracle.moved(model, q, eps * np.eye(nv)[k])) @ case.v) / STEP
    start = np.block([[np.eye(nv), np.zeros((nv, 2 * nv))], [h, ts.mass_matrix(model, q), np.zeros((nv, nv))],
                      [np.zeros((nv, 2 * nv)), np.eye(nv)]])  # fmt: skip
    expected = by_p @ start
    v1, turned = e.v1, np.zeros((nv, nv))
    for k in range(nv):
        turned[:, k] = np.imag(oracle.mass_matrix(model, oracle.moved(model, e.q1, eps * np.eye(nv)[k])) @ v1) / STEP
    expected[nv:] = np.linalg.solve(ts.mass_matrix(model, e.q1), expected[nv:] - turned @ expected[:nv])
    for rows in (slice(0, nv), slice(nv, 2 * nv)):
        for columns in (slice(0, nv), slice(nv, 2 * nv), slice(2 * nv, 3 * nv)):
            scale = np.abs(expected[rows, columns]).max()
            np.testing.assert_allclose(by_v[rows, columns], expected[rows, columns], atol=1e-8 * scale)


@pytest.mark.parametrize(("seed", "joints", "order", "rule"), sweep(random_cases(), 2))
def test_derivatives_of_steps_of_random_trees(seed, joints, order, rule):
    """All joints, pairs of all relations, moving markers, couplings; from a state on the constraints."""
    check_derivatives(described(seed, joints), scheme(order, rule, 0.01), seed)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(("order", "rule"), sweep(SCHEMES, 3))
def test_derivatives_of_steps(name, order, rule):
    case = CASES[name]()
    check_derivatives(case, scheme(order, rule), 1, mixed_forces(case.model) if name == "floating loop" else ())


@pytest.mark.slow
@pytest.mark.parametrize("order", [2, 4])
def test_derivatives_with_many_columns_over_the_tree(order):
    """So many velocities that their columns are found over the tree; along the constraint, against differences."""
    model, rng = ts.models.chain(130), np.random.default_rng(0)
    q = 0.1 * rng.standard_normal(130)
    names = [body.name for body in model.bodies]
    constraints = [
        ts.Loop("world", names[-1], ts.Spherical()).at(model, q),
        ts.Loop(names[30], names[90], ts.Spherical()).at(model, q),
    ]
    G = ts.constraint_jacobian(model, constraints, q)
    Y = ts.mass_matrix_solve(model, q, G).T
    v, dq, dv = rng.standard_normal((3, 130))
    v = 0.02 * (v - Y @ np.linalg.pinv(G @ Y, 1e-10) @ (G @ v))
    dq -= np.linalg.pinv(G) @ (G @ dq)
    integrator = ts.Variational(0.002, order)
    d = ts.step_derivatives(model, integrator, q, v, constraints=constraints)

    def step(s):
        return np.stack(ts.step(model, integrator, q + s * dq, v + s * dv, constraints=constraints))

    expected = richardson(step, 1e-6)
    found = np.stack([d.dq1_dq @ dq + d.dq1_dv @ dv, d.dv1_dq @ dq + d.dv1_dv @ dv])
    for value, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(value, wanted, atol=1e-6 * np.abs(wanted).max())


def test_derivatives_off_the_constraint():
    """A gradient by q0 or p0 is that of the step from any state."""
    case = CASES["floating loop"]()
    rng = np.random.default_rng(0)
    q = case.model.plus(case.q, 1e-3 * rng.standard_normal(case.model.nv))
    check_derivatives(replace(case, q=q, v=case.v + 0.01 * rng.standard_normal(case.model.nv)), scheme(4, "gauss"), 2)


def richardson(f, e):
    return (45 * (f(e) - f(-e)) - 9 * (f(2 * e) - f(-2 * e)) + (f(3 * e) - f(-3 * e))) / (60 * e)


def check_gradients(case, constraints, integrator, forces=(), seed=0, steps=3):
    """The adjoint along random directions against differences of motions that start anywhere, by single steps."""
    model, rng, t0 = case.model, np.random.default_rng(seed), case.t
    u = rng.standard_normal((steps, model.nv))
    wq, wv = rng.standard_normal((2, steps + 1, model.nv))
    options = {"integrator": integrator, "constraints": constraints, "forces": forces, "t0": t0}
    base = ts.simulate(model, case.q, case.v, steps=steps, controls=u, **options)
    g = ts.adjoint(base, dloss_dq=wq, dloss_dv=wv)

    def loss(q=case.q, v=case.v, u=u, model=model, forces=forces, constraints=constraints):
        total = 0.0
        for k in range(steps + 1):
            total += wq[k] @ model.minus(q, base.q[k]) + wv[k] @ v
            if k < steps:
                t = t0 + k * integrator.h
                q, v = ts.step(model, integrator, q, v, u[k], forces=forces, constraints=constraints, t=t)
        return total

    def close(value, f, e=1e-3):
        expected = richardson(f, e)
        assert abs(value - expected) <= 1e-7 * max(abs(expected), 1.0), (value, expected)

    d = rng.standard_normal(model.nv)
    close(g.q0 @ d, lambda s: loss(q=model.plus(case.q, s * d)), 2e-4)
    close(g.v0 @ d, lambda s: loss(v=case.v + s * d))
    du = rng.standard_normal(u.shape)
    close((g.controls * du).sum(), lambda s: loss(u=u + s * du), 1e-2)
    d3 = rng.standard_normal(3)
    close(g.gravity @ d3, lambda s: loss(model=model.with_gravity(np.asarray(model.gravity) + s * d3)), 1e-2)

    def check_body(k):
        body, at = model.bodies[k], model.bodies[k].inertia.parameters
        d6, d10 = rng.standard_normal(6), at * rng.uniform(0.5, 1, 10)

        def moved(**parts):
            bodies = list(model.bodies)
            bodies[k] = replace(body, **parts)
            return loss(model=replace(model, bodies=tuple(bodies)))

        close(g.placement[k] @ d6, lambda s: moved(placement=body.placement @ ts.SE3.exp(s * d6)), 2e-4)
        close(g.inertia[k] @ d10, lambda s: moved(inertia=ts.Inertia.from_parameters(at + s * d10)))

    def check_force(k, name, value):
        p = forces[k]._for_model(model).parameters[name]
        dp = rng.standard_normal(p.shape)

        def moved(s):
            return loss(forces=[*forces[:k], forces[k].with_parameters({name: p + s * dp}), *forces[k + 1 :]])

        close((value * dp).sum(), moved)

    def check_constraint(k, name, value):
        own, dp = constraints[k], rng.standard_normal(value.shape)
        twist = isinstance(getattr(own, name), ts.SE3)

        def moved(s):
            x = s * dp if twist else own.parameters[name] + s * dp
            return loss(constraints=[*constraints[:k], own.with_parameters({name: x}), *constraints[k + 1 :]])

        close((value * dp).sum(), moved, 2e-4)

    for k in rng.choice(model.nbodies, min(3, model.nbodies), replace=False).tolist():
        check_body(k)
    for k, of_force in enumerate(g.forces):
        for name, value in of_force.items():
            check_force(k, name, value)
    assert len(g.constraints) == len(constraints)
    for k, of_constraint in enumerate(g.constraints):
        for name, value in of_constraint.items():
            check_constraint(k, name, value)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(("order", "rule"), [SCHEMES[0], SCHEMES[4], SCHEMES[2]])
def test_gradients_of_motions(name, order, rule):
    case = CASES[name]()
    forces = mixed_forces(case.model)[:2] if name == "floating loop" else ()
    check_gradients(case, case.constraints, scheme(order, rule, 0.01), forces)


@pytest.mark.parametrize("order", [2, 4])
def test_a_constraint_of_the_users_own(order):
    case = models.four_bar("planes")
    model = case.model
    rows = [Level(case.q, [1.0, 0.5, -0.4])]
    v = case.v - (w := 2 * np.array([1.0, 0.5, -0.4]) * case.q) * (w @ case.v) / (w @ w)
    motion = ts.simulate(model, case.q, v, steps=20, integrator=ts.Variational(0.01, order), constraints=rows)
    g, rate = errors(case, motion.q, motion.v, motion.t, rows)
    assert np.abs(g).max() < 1e-12
    assert np.abs(rate).max() < 1e-11
    check_gradients(replace(case, v=v), rows, scheme(order, "gauss", 0.01))


# ---- redundant rows


@pytest.mark.parametrize(("order", "rule"), SCHEMES)
def test_redundant_rows_change_nothing(order, rule):
    """A planar four-bar closed in the plane, by a point and by a hinge: 2, 3 and 5 rows of rank 2."""
    integrator = ts.Variational(0.02, order, rule)
    few, *others = (models.four_bar(closing) for closing in ("planes", "line", "point", "revolute"))
    expected = simulate(few, integrator, 25)
    w = np.random.default_rng(0).standard_normal((2, 26, 3))
    gradient = ts.adjoint(expected, dloss_dq=w[0], dloss_dv=w[1])
    for case in others:
        found = simulate(case, integrator, 25)
        np.testing.assert_allclose(found.q, expected.q, atol=1e-10)
        np.testing.assert_allclose(found.v, expected.v, atol=1e-9)
        g, rate = errors(case, found.q, found.v, found.t)
        assert max(np.abs(g).max(), np.abs(rate).max()) < 1e-12
        other = ts.adjoint(found, dloss_dq=w[0], dloss_dv=w[1])
        for name in ("inertia", "gravity", "controls"):
            value, wanted = getattr(other, name), getattr(gradient, name)
            np.testing.assert_allclose(value, wanted, atol=1e-7 * (1 + np.abs(wanted).max()))


def test_a_bennett_linkage_moves():
    """Overconstrained in space: five rows, of which two are independent at any of its configurations."""
    case = models.bennett()
    motion = simulate(case, ts.Variational(0.02, 4), 30)
    g, rate = errors(case, motion.q, motion.v, motion.t)
    assert max(np.abs(g).max(), np.abs(rate).max()) < 1e-11
    assert np.abs(motion.q[-1] - case.q).max() > 0.3


def test_what_is_refused():
    case = CASES["slider-crank"]()
    integrator, p = ts.Variational(0.01), momenta(case)
    twist = ts.TwistConstraint(joints={"crank": [1.0]}, rate=1.0)
    with pytest.raises(TypeError, match="row on velocities"):
        ts.simulate(case.model, case.q, case.v, steps=1, integrator=integrator, constraints=[twist])
    with pytest.raises(TypeError, match="second derivatives of steps under constraints"):
        ts.variational.step_hessian(case.model, integrator, case.q, p, contract=(p, p), constraints=case.constraints)
    with pytest.raises(TypeError, match="constraints with their multipliers"):
        ts.variational.discrete_euler_lagrange(case.model, integrator, [case.q, case.q], constraints=case.constraints)
    with pytest.raises(ValueError, match=r"expected \(..., 2, 2\)"):
        ts.variational.discrete_euler_lagrange(
            case.model, integrator, [case.q, case.q], constraints=case.constraints, multipliers=np.zeros(2)
        )


# ---- lanes

SIZE, STEPS = 9, 4


def batch_of(case, seed):
    """States on the constraints, from the given one to far away from it, some fast."""
    rng = np.random.default_rng(seed)
    starts = [(case.q, case.v)]
    while len(starts) < SIZE:
        scale = 10.0 ** rng.uniform(-3, 0)
        q = case.model.plus(case.q, 0.1 * scale * rng.standard_normal(case.model.nv))
        moved = models.closed(case.model, case.ties, q, case.v * rng.uniform(0, 8), t=case.t)
        if np.abs(oracle.g(case.model, case.parts, moved.q, case.t)).max() < 1e-10:
            starts.append((moved.q, moved.v))
    return (np.stack(x) for x in zip(*starts, strict=True))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(("order", "rule"), sweep(SCHEMES, 3))
def test_motions_in_lanes_are_those_of_each_alone(name, order, rule):
    case = CASES[name]()
    model, seed = case.model, 7
    forces = mixed_forces(model) if name == "floating hinge" else []
    integrator = ts.Variational(0.02, order, rule)
    q, v = batch_of(case, seed)
    rng = np.random.default_rng(seed)
    u = rng.standard_normal((SIZE, STEPS, model.nv)) * rng.uniform(0, 1, (SIZE, 1, 1))
    wq, wv = rng.standard_normal((2, SIZE, STEPS + 1, model.nv))
    options = {"integrator": integrator, "forces": forces, "constraints": case.constraints, "t0": case.t}

    def run(i):
        return ts.simulate(model, q[i], v[i], steps=STEPS, controls=u[i], on_failure="keep", **options)

    before = _core.lane_counts()
    order_of = rng.permutation(SIZE)
    batch = run(order_of)
    steps, alone_steps = np.subtract(_core.lane_counts(), before)
    assert steps > 0
    assert alone_steps <= 0.5 * steps
    gradient = ts.adjoint(batch, dloss_dq=wq[order_of], dloss_dv=wv[order_of])
    for j, i in enumerate(order_of):
        alone = run(i)
        for field in ("q", "v", "a"):
            np.testing.assert_array_equal(getattr(batch, field)[j], getattr(alone, field), err_msg=f"{field} of {i}")
        own = ts.adjoint(alone, dloss_dq=wq[i], dloss_dv=wv[i])
        for k, (x, y) in enumerate(zip(arrays_of(gradient), arrays_of(own), strict=True)):
            np.testing.assert_array_equal(x[j], y, err_msg=f"gradient {k} of {i}")

    def derivatives(i):
        try:
            return ts.step_derivatives(
                model, integrator, q[i], v[i], u[i][..., 0, :], constraints=case.constraints, forces=forces, t=case.t
            )
        except ts.ConvergenceError:
            return None

    own = [derivatives(i) for i in range(SIZE)]
    good = [i for i in range(SIZE) if own[i] is not None]
    assert len(good) > SIZE // 2
    for j, i in enumerate(good):
        for x, y in zip(arrays_of(derivatives(good)), arrays_of(own[i]), strict=True):
            np.testing.assert_array_equal(x[j], y)


def test_models_of_their_own_in_lanes():
    case = CASES["floating loop"]()
    model = case.model
    changed = [model.with_gravity((0, 0.1 * k, -9.81)) for k in range(SIZE)]
    integrator = ts.Variational(0.02, 4)
    options = {"steps": STEPS, "integrator": integrator, "constraints": case.constraints}
    batch = ts.simulate(changed, case.q, case.v, **options)
    gradient = ts.adjoint(batch, dloss_dq=np.ones((SIZE, model.nv)))
    for k, own in enumerate(changed):
        alone = ts.simulate(own, case.q, case.v, **options)
        np.testing.assert_array_equal(batch.q[k], alone.q)
        of = ts.adjoint(alone, dloss_dq=np.ones(model.nv))
        for x, y in zip(arrays_of(gradient), arrays_of(of), strict=True):
            np.testing.assert_array_equal(x[k], y)


def test_custom_rows_in_lanes():
    case = models.four_bar("planes")
    rng = np.random.default_rng(0)
    rows = [Level(case.q, [1.0, 0.5, -0.4])]
    slope = 2 * np.array([1.0, 0.5, -0.4]) * case.q
    v = case.v + rng.standard_normal((SIZE, 3))
    v -= np.outer(v @ slope, slope) / (slope @ slope)
    options = {"steps": STEPS, "integrator": ts.Variational(0.02, 4), "constraints": rows}
    batch = ts.simulate(case.model, np.tile(case.q, (SIZE, 1)), v, **options)
    gradient = ts.adjoint(batch, dloss_dq=np.ones((SIZE, 3)))
    for k in range(SIZE):
        alone = ts.simulate(case.model, case.q, v[k], **options)
        np.testing.assert_array_equal(batch.q[k], alone.q)
        for x, y in zip(arrays_of(gradient), arrays_of(ts.adjoint(alone, dloss_dq=np.ones(3))), strict=True):
            np.testing.assert_array_equal(x[k], y)


def test_examples_of_constraints_hold_along_a_motion():
    """Every loop there is, one at a time, on a tree of joints whose charts do not switch."""
    joints = [ts.Free(), ts.Spherical(), ts.Universal(), ts.Revolute((1, 2, 3)), ts.Screw((0, 0, 1), 0.1), ts.Free2D()]
    model = testing.random_tree(5, joints)
    count = 0
    for constraint in testing.example_constraints(model, 1):
        if isinstance(constraint, (ts.TwistConstraint, ts.CustomConstraint)) or not hasattr(constraint, "at"):
            continue
        rng = np.random.default_rng(count)
        q = model.random(rng)
        try:
            closed = constraint.at(model, q)
        except (TypeError, ValueError):
            continue
        options = compile_constraints(model, [closed]).options
        zero = np.zeros(model.nv)
        _, rate, _ = _core.constraint_errors(model, q, zero, 0.0, None, options, None, 1)
        G = _core.constraint_jacobian(model, q, None, 0.0, None, options, None, 1)
        Y = ts.mass_matrix_solve(model, q, G).T
        v = rng.standard_normal(model.nv)
        v -= Y @ np.linalg.pinv(G @ Y, 1e-10) @ (G @ v + rate)
        motion = ts.simulate(model, q, v, steps=5, integrator=ts.Variational(0.01, 4), constraints=[closed])
        g, rate, _ = _core.constraint_errors(model, motion.q, motion.v, motion.t, None, options, None, 1)
        assert max(np.abs(g).max(), np.abs(rate).max()) < 1e-11, constraint
        count += 1
    assert count >= 8
