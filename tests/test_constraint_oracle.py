"""The oracle of constraints against itself: poses against rates, forces against powers, steps against the library's own
where there are no constraints, and against the motion."""

from dataclasses import replace

import constraint_models as models
import constraint_oracle as oracle
import numpy as np
import pytest
from compare import close, differences
from pose_oracle import Oracle
from scipy.integrate import solve_ivp

import torsor as ts
from torsor import spatial
from torsor.testing import STEP, complex_inputs, random_tree

CLOSED = {
    "four-bar": lambda: models.four_bar("line"),
    "slider-crank": lambda: models.slider_crank("line"),
    "ring": models.ring,
    "Stewart platform": models.stewart,
    "floating loop": models.floating_loop,
    "humanoid": models.humanoid,
}
MOVING = {"driven arm": models.driven}


def random_cases():
    return [pytest.param(seed, on, id=f"{seed}-{'on' if on else 'off'}") for seed in range(4) for on in (True, False)]


def extended(case, rng):
    """The parts of a case and a row on twists."""
    bodies = rng.choice(case.model.nbodies, size=2, replace=False)
    terms = [(int(i), rng.standard_normal(6).tolist()) for i in bodies]
    return [*case.parts, ("twist", terms, [(0.7, 0), (-0.3, case.model.nv - 1)], lambda t: np.array([t**2, 2 * t]))]


def along_motion(case, a, f, e):
    """f(q, v, t) at the time e later."""
    with complex_inputs():
        q = case.model.plus(case.q + 0j, e * case.v + e * e / 2 * a)
    return f(q, case.v + e * a, case.t + e)


@pytest.mark.parametrize(("seed", "on"), random_cases())
def test_rates_are_those_of_the_rows_along_a_motion(seed, on):
    case, rng = models.random_case(seed, on=on), np.random.default_rng(seed)
    model, a = case.model, rng.standard_normal(case.model.nv)
    parts = extended(case, rng)
    g, gdot, gamma = oracle.rows(model, parts, case.q, case.v, a, case.t)
    has_g = ~oracle.at_velocity_level(parts)

    def value(e):
        return along_motion(case, a, lambda q, v, t: oracle.g(model, parts, q, t), e)

    def rate(e):
        return along_motion(case, a, lambda q, v, t: oracle.gdot(model, parts, q, v, t), e)

    if on:
        assert np.abs(g).max() < 1e-14
    close(gdot[has_g], value(1j * STEP).imag[has_g] / STEP, 1e-13)
    close(gamma, rate(1j * STEP).imag / STEP, 1e-13)
    # Im(F(x) + F(-x)) / h^2 with x = h exp(i pi/4) is F'' - h^4 F^(6) / 360 + h^8 ..., and loses one rounding over h.
    h, turn = 3e-3, np.exp(0.25j * np.pi)
    wide, narrow = ((value(turn * x) + value(-turn * x)).imag[has_g] / x**2 for x in (h, h / 2))
    close(gamma[has_g], (16 * narrow - wide) / 15, 1e-11)


@pytest.mark.parametrize(("seed", "on"), random_cases())
def test_jacobian_and_derivatives(seed, on):
    case, rng = models.random_case(seed, on=on), np.random.default_rng(seed)
    model, a, n = case.model, rng.standard_normal(case.model.nv), case.model.nv
    parts = extended(case, rng)
    m = oracle.number_of_rows(parts)
    has_g = ~oracle.at_velocity_level(parts)
    G = oracle.jacobian(model, parts, case.q, case.t)
    assert G.shape == (m, n)
    close(G[has_g], oracle.along_q(lambda q: oracle.g(model, parts, q, case.t), model, case.q)[has_g], 1e-13)
    close(G, oracle.along(lambda a: oracle.gamma(model, parts, case.q, case.v, a, case.t), a), 1e-13)
    found = oracle.derivatives(model, parts, case.q, case.v, a, case.t)
    expected = [
        differences(lambda d: oracle.rows(model, parts, model.plus(case.q, d), case.v, a, case.t)[1], np.zeros(n)),
        differences(lambda d: oracle.rows(model, parts, model.plus(case.q, d), case.v, a, case.t)[2], np.zeros(n)),
        differences(lambda d: oracle.rows(model, parts, case.q, case.v + d, a, case.t)[2], np.zeros(n)),
    ]
    for x, y in zip(found, expected, strict=True):
        close(x, y, 1e-8)
    w = rng.standard_normal(m)
    K = differences(lambda d: w @ oracle.jacobian(model, parts, model.plus(case.q, d), case.t), np.zeros(n))
    close(oracle.stiffness(model, parts, case.q, w, case.t), K, 1e-8)


def test_poses_alone_give_the_same_rates():
    """Rows of markers from the series of poses that the definitions of joints give, without the library."""
    case, rng = models.random_case(11), np.random.default_rng(5)
    q, v, a = case.model.random(rng), *rng.standard_normal((2, case.model.nv))
    T = Oracle(case.model).poses(q, v, a)
    for tie in case.ties:
        if isinstance(tie, models.Relation):
            continue
        part, here = tie.part(case.model), []
        for (index, twelve), moving in ((part[1], part[4]), (part[2], None)):
            if moving is not None:
                given = moving(case.t)
                here.append(oracle.series(oracle.matrix_of(given), given[12:18], given[18:]))
            elif index < 0:
                here.append([oracle.matrix_of(twelve), np.zeros((4, 4)), np.zeros((4, 4))])
            else:
                here.append([x[index] @ oracle.matrix_of(twelve) for x in T])
        seen = oracle.product(oracle.inverse(here[0]), here[1])
        found = oracle.rows(case.model, [part], q, v, a, case.t)
        for k, row in enumerate(part[3]):
            close([x[k] for x in found], oracle.read_row(row, seen, 0.0), 1e-12)


def displaced(tie, x):
    """A tie with moved markers and offset."""
    if tie.course is not None:
        return replace(tie, B=tie.B @ spatial.exp6(x[6:12]))
    return replace(tie, A=tie.A @ spatial.exp6(x[:6]), B=tie.B @ spatial.exp6(x[6:12]))


def test_parameters():
    case = models.random_case(2, on=False)
    model, rng = case.model, np.random.default_rng(0)
    a = rng.standard_normal(model.nv)
    for tie in case.ties:
        part = tie.part(model)
        found = oracle.by_parameters(model, [part], case.q, case.v, a, case.t)
        if isinstance(tie, models.Relation):
            n = len(tie.coefficients)

            def moved(x, tie=tie, n=n):
                new = replace(tie, coefficients=tuple(np.array(tie.coefficients) + x[:n]), offset=tie.offset + x[n])
                return np.stack(oracle.rows(model, [new.part(model)], case.q, case.v, a, case.t))

            close(np.stack(found), differences(moved, np.zeros(n + 1)), 1e-8)
            continue

        def moved(x, tie=tie):
            part = displaced(tie, x).part(model)
            return np.stack(oracle.rows(model, [part], case.q, case.v, a, case.t))

        first = 6 if tie.course is not None else 0
        close(np.stack(found)[..., first:12], differences(moved, np.zeros(12))[..., first:], 1e-8)
        close(found[0][:, 12:], -np.eye(len(part[3])))
        assert not found[1][:, 12:].any() and not found[2][:, 12:].any()
        if first:  # a moving marker: the frame that it carries is displaced at all times
            x = rng.standard_normal(6)
            moving = part[4]

            def turned(t, part=part, moving=moving, x=x, e=1e-4):
                values = []
                for s in (e, -e):
                    given, E = moving(t), spatial.exp6(s * x)
                    back = spatial.Ad(np.linalg.inv(E))
                    T = oracle.matrix_of(given) @ E
                    course = np.concatenate([models.twelve(T), back @ given[12:18], back @ given[18:]])
                    new = (*part[:4], lambda t, course=course: course)
                    values.append(np.stack(oracle.rows(model, [new], case.q, case.v, a, t)))
                return (values[0] - values[1]) / (2 * e)

            close(np.stack(found)[..., :6] @ x, turned(case.t), 1e-6)


def test_wrenches_have_the_power_of_the_multipliers():
    for seed in range(4):
        case, rng = models.random_case(seed, on=False), np.random.default_rng(seed)
        model, parts = case.model, [tie.part(case.model) for tie in case.ties if isinstance(tie, models.Tie)]
        parts = [(*part[:4], None) for part in parts]
        multipliers = rng.standard_normal(oracle.number_of_rows(parts))
        T = [np.eye(4), *ts.body_poses(model, case.q)]
        V = [np.zeros(6), *ts.body_velocities(model, case.q, case.v)]
        found = oracle.wrenches(model, parts, case.q, multipliers)
        power = 0.0
        for part, W in zip(parts, found, strict=True):
            a, b = part[1][0] + 1, part[2][0] + 1
            power += W @ (V[b] - spatial.Ad(np.linalg.inv(T[b]) @ T[a]) @ V[a])
        close(power, multipliers @ oracle.gdot(model, parts, case.q, case.v), 1e-13)


# Dynamics


@pytest.mark.parametrize("name", CLOSED)
def test_forward_dynamics_solves_its_equations_without_power(name):
    case, rng = CLOSED[name](), np.random.default_rng(0)
    model, parts, q, v = case.model, case.parts, case.q, case.v
    tau = rng.standard_normal(model.nv)
    a, multipliers = oracle.forward_dynamics(model, parts, q, v, tau)
    G = oracle.jacobian(model, parts, q)
    force = G.T @ multipliers
    close(ts.inverse_dynamics(model, q, v, a), tau + force, 1e-11, least=np.abs(force).max())
    close(oracle.gamma(model, parts, q, v, a), np.zeros(len(G)), 1e-11, least=1 + np.abs(a).max())
    assert abs(v @ force) < 1e-10 * (1 + np.abs(multipliers).max())

    def energy(e):
        with complex_inputs():
            at = model.plus(q + 0j, e * v)
            return ts.kinetic_energy(model, at, v + e * a) + ts.potential_energy(model, at)

    close(np.imag(energy(1j * STEP)) / STEP, tau @ v, 1e-10, least=1 + abs(force) @ abs(v))


def test_momentum_of_a_floating_loop_does_not_change():
    case = models.floating_loop()
    a, _ = oracle.forward_dynamics(case.model, case.parts, case.q, case.v, np.zeros(case.model.nv))

    def momentum(e):
        with complex_inputs():
            return ts.momentum(case.model, case.model.plus(case.q + 0j, e * case.v), case.v + e * a, about="world")

    assert np.abs(momentum(1j * STEP).imag / STEP).max() < 1e-13 * np.abs(momentum(0j)).max() * np.abs(a).max()


@pytest.mark.parametrize(("seed", "on"), random_cases())
def test_derivatives_of_forward_dynamics(seed, on):
    case, rng = models.random_case(seed, on=on), np.random.default_rng(seed)
    model, parts, n = case.model, case.parts, case.model.nv
    tau = rng.standard_normal(n)
    options = {"baumgarte": (0.7, 1.3), "compliance": 0.1 * (seed % 2)}
    found = oracle.forward_dynamics_derivatives(model, parts, case.q, case.v, tau, case.t, **options)

    def both(dq, v, tau):
        q = model.plus(case.q, dq)
        return np.concatenate(oracle.forward_dynamics(model, parts, q, v, tau, case.t, **options))

    d, directions = 1e-4, rng.standard_normal((3, n))
    for k, direction in enumerate(directions):

        def f(e, k=k, direction=direction):
            return both(*(x + (e * direction if i == k else 0.0) for i, x in enumerate((np.zeros(n), case.v, tau))))

        expected = (8 * (f(d) - f(-d)) - (f(2 * d) - f(-2 * d))) / (12 * d)
        close(np.concatenate([found[k], found[3 + k]]) @ direction, expected, 1e-7)


def test_ways_to_close_a_four_bar_agree():
    """Accelerations of the links, whichever joint is cut and by whatever rows it is closed."""
    expected = None
    for cut in ("coupler-rocker", "crank-coupler", "rocker-world", "world-crank"):
        for closing in ("line", "point", "revolute", "planes"):
            case = models.four_bar(closing, cut)
            names = [b.name for b in case.model.bodies]
            order = [names.index(name) for name in ("crank", "coupler", "rocker")]
            # A torque on the crank from the world, as a wrench on that body.
            f_ext = np.zeros((3, 6))
            f_ext[order[0], 1] = 2.0
            a, _ = oracle.forward_dynamics(case.model, case.parts, case.q, case.v, np.zeros(3), f_ext=f_ext)
            A = ts.body_accelerations(case.model, case.q, case.v, a, frame="world")[order, 1]
            found = np.concatenate([*models.link_angles(case), A])
            expected = found if expected is None else expected
            close(found, expected, 1e-12)


@pytest.mark.parametrize("closing", ["point", "revolute"])
def test_redundant_rows_have_the_multipliers_of_least_norm(closing):
    case, tau = models.four_bar(closing), np.array([1.0, 2.0, -1.0])
    model, parts = case.model, case.parts
    kept = oracle.kept_rows(model, parts, case.q)
    assert len(kept) == oracle.rank(model, parts, case.q) == 2
    a, multipliers = oracle.forward_dynamics(model, parts, case.q, case.v, tau)
    few = models.four_bar("line")
    close(a, oracle.forward_dynamics(few.model, few.parts, few.q, few.v, tau)[0])
    G = oracle.jacobian(model, parts, case.q)
    close(multipliers, np.linalg.pinv(G.T, rcond=1e-9) @ (ts.inverse_dynamics(model, case.q, case.v, a) - tau), 1e-11)
    found = oracle.forward_dynamics_derivatives(model, parts, case.q, case.v, tau)

    def f(q):
        return np.concatenate(oracle.forward_dynamics(model, parts, q, case.v, tau))

    close(np.concatenate([found[0], found[3]]), differences(f, case.q), 1e-8)


def test_mobility_of_a_bennett_linkage():
    case = models.bennett()
    assert oracle.number_of_rows(case.parts) == 5 and oracle.rank(case.model, case.parts, case.q) == 2
    near = oracle.project(case.model, case.parts, case.q + 0.02 * case.v)
    assert np.abs(oracle.g(case.model, case.parts, near)).max() < 1e-14
    assert oracle.rank(case.model, case.parts, near) == 2 and np.abs(near - case.q).max() > 0.01


def test_compliance_gives_way():
    case, tau = models.floating_loop((0, 0, -9.81)), np.zeros(13)
    a, multipliers = oracle.forward_dynamics(case.model, case.parts, case.q, case.v, tau, compliance=0.01)
    close(oracle.gamma(case.model, case.parts, case.q, case.v, a), -0.01 * multipliers)
    rigid = oracle.forward_dynamics(case.model, case.parts, case.q, case.v, tau)
    soft = oracle.forward_dynamics(case.model, case.parts, case.q, case.v, tau, compliance=1e-9)
    close(soft[0], rigid[0], 1e-7)


def test_inverse_dynamics_finds_the_torque_of_the_crank():
    case = models.four_bar("line")
    tau = np.array([3.0, 0.0, 0.0])
    a, multipliers = oracle.forward_dynamics(case.model, case.parts, case.q, case.v, tau)
    found = oracle.inverse_dynamics_under(case.model, case.parts, case.q, case.v, a, [0])
    close(found[0], tau)
    close(found[1], multipliers)


def test_second_derivatives_of_forward_dynamics():
    """Against differences of first derivatives, with a quaternion in the loop: the order of directions matters."""
    b = ts.ModelBuilder()
    b.add_body("crank", "world", ts.Revolute((0, 1, 0)), None, models.rod(0.6))
    b.add_body("coupler", "crank", ts.Spherical(), ts.SE3.translation(0.6, 0, 0), models.rod(1.0, radius=0.3))
    model, rng = b.build(), np.random.default_rng(0)
    tie = models.Tie("distance", "world", "coupler", models.frame((0, 0, 1)), models.frame((0, 0, 1), (1, 0, 0)), 1.2)
    parts, q, (v, tau) = [tie.part(model)], model.random(rng), rng.standard_normal((2, 4))
    weights = rng.standard_normal(4), rng.standard_normal(1)
    options = {"baumgarte": (0.5, 1.5)}
    found = oracle.forward_dynamics_hessians(model, parts, q, v, tau, weights, **options)

    def first(dq, dv, dtau):
        at = model.plus(q, dq), v + dv, tau + dtau
        d = oracle.forward_dynamics_derivatives(model, parts, *at, **options)
        return np.stack([weights[0] @ d[k] + weights[1] @ d[3 + k] for k in range(3)])

    none = np.zeros(4)
    close(found["qq"], differences(lambda d: first(d, none, none)[0], none), 1e-9)
    close(found["qv"], differences(lambda d: first(none, d, none)[0], none), 1e-9)
    close(found["qtau"], differences(lambda d: first(none, none, d)[0], none), 1e-9)
    close(found["vv"], differences(lambda d: first(none, d, none)[1], none), 1e-9)
    assert np.abs(found["qq"] - found["qq"].T).max() > 1e-3


@pytest.mark.parametrize("kind", models.KINDS)
def test_descriptions_have_the_rows_of_the_theory(kind):
    """What users write compiles to rows with the same values, and their rates, as those written here."""
    rng = np.random.default_rng(7)
    model = random_tree(rng, 8)
    q, (v, a), t = model.random(rng), rng.standard_normal((2, model.nv)), 0.3
    for moving in (False, True):
        if moving and kind in ("distance", "plane", "line"):
            continue
        tie = models.random_tie(model, rng, kind, moving=moving)
        found = oracle.rows(model, tie.describe()._parts(model), q, v, a, t)
        expected = oracle.rows(model, [tie.part(model)], q, v, a, t)
        for x, y in zip(found, expected, strict=True):
            close(x, y, 1e-13)


def test_descriptions_of_couplings_have_the_rows_of_the_theory():
    rng = np.random.default_rng(7)
    model = random_tree(rng, [ts.Revolute(), ts.Free(), ts.Prismatic(), ts.Revolute((1, 0, 0))])
    q, (v, a), t = model.random(rng), rng.standard_normal((2, model.nv)), 0.3
    seen = set()
    for _ in range(12):
        relation = models.random_relation(model, rng)
        seen.add(len(relation.joints))
        found = oracle.rows(model, relation.describe()._parts(model), q, v, a, t)
        for x, y in zip(found, oracle.rows(model, [relation.part(model)], q, v, a, t), strict=True):
            close(x, y, 1e-14)
    assert seen == {1, 2, 3}


class Helix:
    """User-defined rows: the hand of a planar arm on a curve that changes with time, by trigonometry of q alone."""

    rows = 2
    p = np.array([0.8, 0.3])

    def value(self, q, t, p):
        x, y = p[0] * np.cos(q[0]) + np.cos(q[0] + q[1]), p[0] * np.sin(q[0]) + np.sin(q[0] + q[1])
        return np.array([x * x + p[1] * y - np.sin(t), x * y * np.cos(t) + q[2] ** 3 * p[0]])


def test_user_defined_rows():
    model = random_tree(0, [ts.Revolute(), ts.Prismatic(), ts.Revolute((1, 0, 0))])
    rng, own = np.random.default_rng(0), Helix()
    q, v, a, t = model.random(rng), *rng.standard_normal((2, 3)), 0.3
    parts = [("custom", own, 2, 2)]
    g, gdot, gamma = oracle.rows(model, parts, q, v, a, t)

    def along(e):
        return own.value(q + e * v + e * e / 2 * a, t + e, own.p)

    close(g, along(0.0), 1e-14)
    close(gdot, along(1j * STEP).imag / STEP, 1e-13)
    close(gamma, oracle.second(along), 1e-11)
    close(oracle.jacobian(model, parts, q, t), oracle.along(lambda q: own.value(q, t, own.p), q), 1e-13)
    G = oracle.jacobian(model, parts, q, t)
    close(oracle.along(lambda a: oracle.gamma(model, parts, q, v, a, t), a), G, 1e-12)
    found = oracle.derivatives(model, parts, q, v, a, t)
    close(found[0], differences(lambda q: oracle.gdot(model, parts, q, v, t), q), 1e-8)
    close(found[1], differences(lambda q: oracle.gamma(model, parts, q, v, a, t), q), 1e-8)
    close(found[2], differences(lambda v: oracle.gamma(model, parts, q, v, a, t), v), 1e-8)
    found = oracle.by_parameters(model, parts, q, v, a, t)
    close(np.stack(found), differences(lambda x: np.stack(oracle.rows(model, parts, q, v, a, t, x)), np.zeros(2)), 1e-8)


# Projections


@pytest.mark.parametrize("exponential", [True, False])
def test_projection_onto_the_constraint(exponential):
    case, rng = models.floating_loop(), np.random.default_rng(0)
    model, parts, n = case.model, case.parts, case.model.nv
    G, M = oracle.jacobian(model, parts, case.q), ts.mass_matrix(model, case.q)
    Y = np.linalg.solve(M, G.T)
    P = np.eye(n) - Y @ np.linalg.solve(G @ Y, G)
    q1 = oracle.project(model, parts, case.q, exponential=exponential)
    assert np.abs(model.minus(q1, case.q)).max() < 1e-14

    def tangent(q):
        found = oracle.project(model, parts, q, exponential=exponential)
        with complex_inputs():
            return model.minus(found, case.q + 0j)

    close(oracle.along_q(tangent, model, case.q), P, 1e-11)
    away = model.plus(case.q, 0.1 * rng.standard_normal(n))
    q1 = oracle.project(model, parts, away, exponential=exponential)
    assert np.abs(oracle.g(model, parts, q1)).max() < 1e-14

    def displacement(q1):
        xi = model.minus(q1, away) if exponential else oracle.chart(model, away, q1)
        return xi @ ts.mass_matrix(model, away) @ xi

    # No neighbour on the constraint is nearer.
    G = oracle.jacobian(model, parts, q1)
    for direction in np.linalg.svd(G)[2][len(G) :]:
        around = [displacement(oracle.project(model, parts, model.plus(q1, e * direction))) for e in (-1e-3, 1e-3)]
        assert min(around) > displacement(q1)
    derivative = oracle.along_q(
        lambda q: oracle.g(model, parts, oracle.project(model, parts, q, exponential=exponential)), model, away
    )
    assert np.abs(derivative).max() < 1e-12


def test_projection_keeps_joints():
    case = models.slider_crank("line")
    q = oracle.project(case.model, case.parts, case.q + np.array([0.1, 0, 0]), keep=(0,))
    assert q[0] == pytest.approx(case.q[0] + 0.1, abs=1e-15)
    assert np.abs(oracle.g(case.model, case.parts, q)).max() < 1e-14


def test_projection_of_velocities():
    for seed in range(3):
        case = models.random_case(seed, on=False)
        model, parts = case.model, case.parts
        v, kappa = oracle.project_velocity(model, parts, case.q, case.v, case.t)
        G = oracle.jacobian(model, parts, case.q, case.t)
        assert np.abs(oracle.gdot(model, parts, case.q, v, case.t)).max() < 1e-11
        close(ts.mass_matrix(model, case.q) @ (v - case.v), -G.T @ kappa, 1e-10)


# Steps


METHODS = (ts.BDF1, ts.SDIRK2, ts.SDIRK3, ts.BDF2)


@pytest.mark.parametrize("method", METHODS)
def test_steps_without_constraints_are_those_of_the_library(method):
    model = random_tree(4, [ts.Free(), ts.Revolute(), ts.Spherical(), ts.Universal(), ts.SphericalExp()])
    rng = np.random.default_rng(1)
    q, v, u = model.random(rng), *rng.standard_normal((2, model.nv))
    integrator = method(1e-2, tolerance=1e-14)
    first = ts.step(model, integrator, q, v, u, t=0.2)
    found = oracle.implicit_step(model, [], integrator, q, v, u, 0.2)
    close(found[0], first.q1, 1e-13)
    close(found[1], first.v1, 1e-11)
    if method is ts.BDF2:
        second = ts.step(model, integrator, first.q1, first.v1, u, t=0.21, previous=(q, v))
        found = oracle.implicit_step(model, [], integrator, first.q1, first.v1, u, 0.21, previous=(q, v))
        close(found[0], second.q1, 1e-13)
        close(found[1], second.v1, 1e-11)
    forces = [ts.JointDamping(None, 0.3), ts.SpringDamper("body1", (0, 0, 1), "world", (0, 1, 0), 20.0, 0.5, 0.5)]
    found = oracle.implicit_step(model, [], integrator, q, v, u, 0.2, forces=forces)
    close(found[1], ts.step(model, integrator, q, v, u, t=0.2, forces=forces).v1, 1e-11)


@pytest.mark.parametrize("linearised", [False, True])
def test_euler_without_constraints_is_that_of_the_library(linearised):
    model = random_tree(4, [ts.Free(), ts.Revolute(), ts.Spherical(), ts.Universal()])
    rng = np.random.default_rng(1)
    q, v, u = model.random(rng), *rng.standard_normal((2, model.nv))
    forces = [ts.JointDamping(None, 0.3), ts.SpringDamper("body1", (0, 0, 1), "world", (0, 1, 0), 20.0, 0.5, 0.5)]
    integrator = (ts.LinearlyImplicitEuler if linearised else ts.SymplecticEuler)(1e-2)
    found = oracle.euler_step(model, [], 1e-2, q, v, u, forces=forces, linearised=linearised)
    expected = ts.step(model, integrator, q, v, u, forces=forces)
    close(found[0], expected.q1)
    close(found[1], expected.v1, 1e-11)


@pytest.mark.parametrize(("order", "rule"), [(2, "gauss"), (2, "lobatto"), (4, "gauss"), (4, "lobatto"), (6, "gauss")])
def test_variational_steps_without_constraints_are_those_of_the_library(order, rule):
    model = random_tree(4, [ts.Free(), ts.Revolute(), ts.Spherical(), ts.Universal()])
    rng = np.random.default_rng(1)
    q, v, u = model.random(rng), *rng.standard_normal((2, model.nv))
    integrator = ts.Variational(1e-2, order, rule, tolerance=1e-14)
    found = oracle.variational_step(model, [], integrator, q, ts.mass_matrix(model, q) @ v, u)
    expected = ts.step(model, integrator, q, v, u)
    close(found[0], expected.q1, 1e-13)
    close(found[1], ts.mass_matrix(model, expected.q1) @ expected.v1, 1e-11)


def reference(case, T):
    """The state after a time T, by SciPy, in the chart at the start."""
    model, n = case.model, case.model.nv

    def rate(t, y):
        q = oracle.retract(model, case.q, y[:n])
        a, _ = oracle.forward_dynamics(model, case.parts, q, y[n:], np.zeros(n), case.t + t, baumgarte=(5.0, 5.0))
        return np.concatenate([np.linalg.solve(oracle.chart_jacobian(model, y[:n]), y[n:]), a])

    y = solve_ivp(rate, (0, T), np.concatenate([np.zeros(n), case.v]), method="DOP853", rtol=1e-12, atol=1e-13).y[:, -1]
    return oracle.retract(model, case.q, y[:n]), y[n:]


def run(case, integrator, T):
    """The state after a time T, and its time."""
    steps = round(T / integrator.h)
    q, v = oracle.rollout(case.model, case.parts, integrator, case.q, case.v, steps, t=case.t)
    return q[-1], v[-1], case.t + steps * integrator.h


ORDERS = [
    (ts.SymplecticEuler(4e-3), 1), (ts.BDF1(4e-3), 1), (ts.BDF2(5e-3), 2), (ts.SDIRK2(2e-2), 2),
    (ts.Variational(2e-2), 2), (ts.Variational(2e-2, 2, "lobatto"), 2),
    (ts.Variational(4e-2, 4), 4), (ts.Variational(4e-2, 4, "lobatto"), 4),
]  # fmt: skip


@pytest.mark.parametrize(("integrator", "order"), ORDERS)
@pytest.mark.parametrize("name", ["slider-crank", "floating loop", "driven arm"])
def test_orders(integrator, order, name):
    case, T = (CLOSED | MOVING)[name](), 0.16
    q1, v1 = reference(case, T)
    errors = []
    for h in (integrator.h, integrator.h / 2):
        q, v, t = run(case, replace(integrator, h=h), T)
        errors.append([np.abs(case.model.minus(q, q1)).max(), np.abs(v - v1).max()])
        if not isinstance(integrator, ts.SymplecticEuler):
            assert np.abs(oracle.g(case.model, case.parts, q, t)).max() < 1e-13
            assert np.abs(oracle.gdot(case.model, case.parts, q, v, t)).max() < 1e-12
    observed = np.log2(np.array(errors[0]) / np.array(errors[1]))
    assert (observed > order - 0.35).all() and (observed < order + 1.0).all(), (observed, errors)


@pytest.mark.parametrize(("order", "rule"), [(2, "gauss"), (2, "lobatto"), (4, "gauss"), (4, "lobatto")])
def test_variational_steps_conserve_momentum(order, rule):
    case = models.floating_loop()
    model = case.model
    q, v, _ = run(case, ts.Variational(0.02, order, rule), 0.2)
    start = ts.momentum(model, case.q, case.v, about="world")
    assert np.abs(ts.momentum(model, q, v, about="world") - start).max() < 1e-12 * max(1, np.abs(start).max())
    assert np.abs(model.minus(q, case.q)).max() > 0.1


@pytest.mark.parametrize("kind", ["BDF1", "SDIRK2", "BDF2", "Euler", "gauss 2", "lobatto 4"])
def test_derivatives_of_steps(kind):
    """By the start, torques and parameters of the constraint, against differences."""
    case, rng = models.floating_loop((0, 0, -9.81)), np.random.default_rng(0)
    model, parts, n, k = case.model, case.parts, case.model.nv, oracle.size(case.parts)
    before = oracle.implicit_step(model, parts, ts.SDIRK2(0.01), case.q, -case.v)[:2]
    before = before[0], -before[1]

    def f(x):
        dq, dv, u, p = x[:n], x[n : 2 * n], x[2 * n : 3 * n], x[3 * n :]
        q, v, options = oracle.moved(model, case.q, dq), case.v + dv, {"x": p}
        if kind in ("BDF1", "SDIRK2", "BDF2"):
            options |= {"previous": before} if kind == "BDF2" else {}
            found = oracle.implicit_step(model, parts, getattr(ts, kind)(0.01), q, v, u, **options)
        elif kind == "Euler":
            found = oracle.euler_step(model, parts, 0.01, q, v, u, **options)
        else:
            rule, order = kind.split()
            momenta = oracle.mass_matrix(model, q) @ v
            found = oracle.variational_step(model, parts, ts.Variational(0.01, int(order), rule), q, momenta, u, x=p)
        return np.concatenate([np.ravel(y) for y in found])

    zero, direction, d = np.zeros(3 * n + k), rng.standard_normal(3 * n + k), 1e-4
    exact = f(1j * STEP * direction).imag / STEP
    expected = (8 * (f(d * direction) - f(-d * direction)) - (f(2 * d * direction) - f(-2 * d * direction))) / (12 * d)
    scale = np.abs(f(zero)) + np.abs(expected) + 1
    assert (np.abs(exact - expected) / scale).max() < 1e-7


def test_redundant_rows_in_steps():
    """A hinge of five rows in a Bennett linkage: two of them with multipliers keep all five."""
    case = models.bennett()
    model, parts, q, v, previous = case.model, case.parts, case.q, case.v, None
    for _ in range(5):
        kept = oracle.kept_rows(model, parts, q)
        found = oracle.implicit_step(model, parts, ts.BDF2(0.02), q, v, previous=previous, only=kept)
        previous, (q, v, _) = (q, v), found
        assert np.abs(oracle.g(model, parts, q)).max() < 1e-13
        assert np.abs(oracle.gdot(model, parts, q, v)).max() < 1e-12
    assert np.abs(q - case.q).max() > 0.1


def test_rows_on_twists_hold_at_the_end_of_a_step():
    """A row on twists of bodies and joints, as rates of a coupling where it is one, and a body that cannot move along
    its own y, which has no g."""
    case = models.driven()
    model, h = case.model, 0.01
    joint = model.joint("column")
    tie = case.ties[1]
    as_rate = ("twist", [], [(1.0, joint.v_slice.start)], lambda t: np.array(tie.course(t)[1:]))
    for integrator in (ts.BDF1(h), ts.SDIRK2(h)):
        a = oracle.implicit_step(model, case.parts, integrator, case.q, case.v, t=case.t)
        b = oracle.implicit_step(model, [case.parts[0], as_rate], integrator, case.q, case.v, t=case.t)
        close(b[1][joint.v_slice], a[1][joint.v_slice], 1e-12)  # the rates agree, positions to the order
        assert np.abs(b[0] - a[0]).max() < 0.01 * h
    skate = ("twist", [(3, [0, 0, 0, 0, 1, 0])], [], None)
    v, _ = oracle.project_velocity(model, [skate], case.q, case.v)
    a, multipliers = oracle.forward_dynamics(model, [skate], case.q, v, np.zeros(model.nv))
    assert np.abs(oracle.gamma(model, [skate], case.q, v, a)).max() < 1e-12 and np.abs(multipliers).max() > 0.1
    q1, v1, _ = oracle.implicit_step(model, [skate], ts.BDF1(h), case.q, v)
    assert abs(ts.body_velocities(model, q1, v1)[3, 4]) < 1e-13


@pytest.mark.parametrize("integrator", [ts.BDF1(0.01), ts.BDF2(0.01), ts.SDIRK2(0.01), ts.Variational(0.01, 4)])
def test_gradients_of_rollouts(integrator):
    """Complex steps through several steps, with a start that is moved onto the constraint, against differences."""
    case, rng = models.driven(), np.random.default_rng(0)
    model, parts, n, k = case.model, case.parts, case.model.nv, oracle.size(case.parts)
    w = rng.standard_normal((2, n))

    def loss(e, d):
        x, q = e * d[2 * n :], oracle.moved(model, case.q, e * d[:n])
        q = oracle.project(model, parts, q, case.t, x=x)
        v, _ = oracle.project_velocity(model, parts, q, case.v + e * d[n : 2 * n], case.t, x=x)
        q, v = oracle.rollout(model, parts, integrator, q, v, 3, t=case.t, x=x)
        with complex_inputs():
            return w[0] @ model.minus(q[-1], oracle.numbers(q, case.q)[1]) + w[1] @ v[-1]

    d, e = rng.standard_normal(2 * n + k), 1e-4
    expected = (8 * (loss(e, d) - loss(-e, d)) - (loss(2 * e, d) - loss(-2 * e, d))) / (12 * e)
    assert loss(1j * STEP, d).imag / STEP == pytest.approx(expected, rel=1e-8, abs=1e-8)
