"""Forward dynamics under constraints, and its derivatives."""

from dataclasses import replace

import constraint_models as models
import constraint_oracle as oracle
import numpy as np
import pytest
from compare import along_q, close, conditioned, differences, same_bits
from population import deep_tree, mixed_tree, shuffled

import torsor as ts
from torsor import constrained_forward_dynamics as dynamics
from torsor import constrained_forward_dynamics_derivatives as dynamics_derivatives
from torsor import testing
from torsor.testing import complex_step

GAINS = {"baumgarte": (0.7, 1.3)}
OPTIONS = [{}, GAINS, {**GAINS, "compliance": 0.05}]
CLOSED = {
    "four-bar": lambda: models.four_bar("line"),
    "slider-crank": lambda: models.slider_crank("line"),
    "floating loop": lambda: models.floating_loop((0, 0, -9.81)),
    "humanoid": models.humanoid,
    "driven arm": models.driven,
}


class Parts(ts.Constraint):
    """What the core gets, where there is no description: a point on a moving plane, a distance from a moving point."""

    def __init__(self, tie, model):
        self.part = tie.part(model)

    def _subjects(self):
        return ()

    def _labels(self, model):
        return tuple(f"row {k}" for k in range(oracle.count(self.part)))

    def _parts(self, model):
        return [self.part]

    def _gradient(self, flat):
        return {}


def described(case):
    """The constraints of a case."""
    kinds = ("plane", "line", "distance")
    return [
        Parts(tie, case.model) if getattr(tie, "kind", "") in kinds and tie.course is not None else tie.describe()
        for tie in case.ties
    ]


def tolerance(case, least=1e-11):
    """What solutions of the two systems, one after the other, may lose: condition numbers in roundings."""
    G = oracle.jacobian(case.model, case.parts, case.q, case.t)
    D = G @ np.linalg.solve(ts.mass_matrix(case.model, case.q), G.T)
    values = np.linalg.eigvalsh(D)
    return max(
        least, conditioned(case.model, case.q), 1e-15 * values.max() / values[values > 1e-10 * values.max()].min()
    )


def torques(case, seed=0):
    return np.random.default_rng(seed).standard_normal(case.model.nv)


def joined(case, constraints, q, v, tau, **options):
    found = dynamics(case.model, constraints, q, v, tau, t=case.t, **options)
    return np.concatenate([found.a, found.multipliers])


def by_complex_step(case, constraints, tau, **options):
    """Derivatives of (a, multipliers) by q, v and tau."""
    model, q, v = case.model, case.q, case.v
    return (
        along_q(lambda q: joined(case, constraints, q, v, tau, **options), model, q),
        complex_step(lambda v: joined(case, constraints, q, v, tau, **options), v),
        complex_step(lambda tau: joined(case, constraints, q, v, tau, **options), tau),
    )


def stacked(d):
    """By q, v and tau, those of a above those of multipliers."""
    return [np.concatenate([a, l]) for a, l in zip(d[:3], d[3:], strict=True)]


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("on", [True, False])
@pytest.mark.parametrize("seed", range(8))
def test_random_trees(seed, on, options):
    """Values against dense matrices of independent rows, derivatives against complex steps: on the constraints and off
    them, over all joints and all kinds of pairs."""
    case = models.random_case(seed, on=on)
    constraints, tau = described(case), torques(case)
    found = dynamics(case.model, constraints, case.q, case.v, tau, t=case.t, **options)
    a, multipliers = oracle.forward_dynamics(case.model, case.parts, case.q, case.v, tau, case.t, **options)
    tol = tolerance(case)
    close(found.a, a, tol)
    close(found.multipliers, multipliers, tol)
    assert found.rank == len(multipliers)
    d = dynamics_derivatives(case.model, constraints, case.q, case.v, tau, t=case.t, **options)
    for x, expected in zip(stacked(d), by_complex_step(case, constraints, tau, **options), strict=True):
        close(x, expected, tol)


@pytest.mark.parametrize("frame", ["body", "world", "local_world_aligned"])
def test_external_wrenches(frame):
    case = models.random_case(3, on=False)
    rng = np.random.default_rng(0)
    options = {"f_ext": rng.standard_normal((case.model.nbodies, 6)), "f_ext_frame": frame, **GAINS}
    constraints, tau = described(case), torques(case)
    found = joined(case, constraints, case.q, case.v, tau, **options)
    expected = oracle.forward_dynamics(case.model, case.parts, case.q, case.v, tau, case.t, **options)
    close(found, np.concatenate(expected), tolerance(case))
    d = dynamics_derivatives(case.model, constraints, case.q, case.v, tau, t=case.t, **options)
    for x, expected in zip(stacked(d), by_complex_step(case, constraints, tau, **options), strict=True):
        close(x, expected, tolerance(case))


def test_a_deep_tree():
    """Where matrices are solved by articulated bodies."""
    model, rng = deep_tree(), np.random.default_rng(0)
    assert depth_of(model) > 48
    ties = [models.random_tie(model, rng, "weld", relation="two branches"), models.random_tie(model, rng, "point")]
    case = models.off_constraint(model, ties, rng)
    constraints, tau = described(case), torques(case)
    d = dynamics_derivatives(model, constraints, case.q, case.v, tau, t=case.t, **GAINS)
    for x, expected in zip(stacked(d), by_complex_step(case, constraints, tau, **GAINS), strict=True):
        close(x, expected, tolerance(case, 1e-10))


def depth_of(model):
    depth = {"world": 0}
    for b in model.bodies:
        depth[b.name] = depth[b.parent] + b.joint.nv
    return max(depth.values())


class Rolling(ts.CustomConstraint):
    """A row that depends on time and on all coordinates, and one that does not."""

    rows = 2

    def __init__(self, p):
        self.p = np.asarray(p, dtype=float)

    def value(self, q, t, p):
        return np.array([np.sin(q[0]) * q[1] + p[0] * q[2] ** 2 - np.cos(t) * q[1], q[2] - p[1] * q[0] * q[1]])


def test_rows_on_twists_and_user_defined_rows():
    rng = np.random.default_rng(0)
    model = ts.models.chain(5)
    names = [b.name for b in model.bodies]
    constraints = [
        ts.TwistConstraint(
            {names[2]: rng.standard_normal(6), names[4]: rng.standard_normal(6)}, {model.joints[1].name: 0.7}
        ),
        Rolling([0.3, 0.8]),
    ]
    q, v, tau = rng.standard_normal((3, 5))
    case = models.Case(model, (), q, v, 0.4)
    found = dynamics(model, constraints, q, v, tau, t=0.4, **GAINS)
    parts = [part for c in constraints for part in c._parts(model)]
    a, multipliers = oracle.forward_dynamics(model, parts, q, v, tau, 0.4, **GAINS)
    close(found.a, a, 1e-9)  # second derivatives of user-defined rows are good to about 1e-11
    close(found.multipliers, multipliers, 1e-9)
    d = dynamics_derivatives(model, constraints, q, v, tau, t=0.4, **GAINS)

    def f(x):
        return joined(case, constraints, *x.reshape(3, 5), **GAINS)

    expected = differences(f, np.concatenate([q, v, tau]))
    close(np.concatenate(stacked(d), axis=1), expected, 1e-7)


@pytest.mark.parametrize("name", CLOSED)
def test_motion_stays_on_the_constraints_without_power(name):
    """gamma = 0, and reactions of constraints at rest do no work."""
    case = CLOSED[name]()
    found = dynamics(case.model, described(case), case.q, case.v, torques(case), t=case.t)
    G = oracle.jacobian(case.model, case.parts, case.q, case.t)
    gamma = oracle.gamma(case.model, case.parts, case.q, case.v, found.a, case.t)
    close(gamma, np.zeros(len(G)), 1e-11, least=1 + np.abs(found.a).max())
    if name != "driven arm":
        assert abs(found.multipliers @ G @ case.v) < 1e-11 * (1 + np.abs(found.multipliers).max())


def test_momentum_of_a_floating_loop_does_not_change():
    case = models.floating_loop()
    a = dynamics(case.model, described(case), case.q, case.v, np.zeros(case.model.nv)).a

    def momentum(e):
        return ts.momentum(case.model, case.model.plus(case.q, e[0] * case.v), case.v + e[0] * a, about="world")

    change = complex_step(momentum, np.zeros(1))
    size = np.abs(ts.momentum(case.model, case.q, case.v, about="world")).max()
    assert np.abs(change).max() < 1e-12 * size * np.abs(a).max()


# Rows that depend on each other


@pytest.mark.parametrize("cut", ["coupler-rocker", "rocker-world"])
@pytest.mark.parametrize("closing", ["point", "revolute"])
def test_redundant_rows(closing, cut):
    """Against the same linkage with independent rows, eigenvectors, and complex steps through pseudo-inverses."""
    case, few = models.four_bar(closing, cut), models.four_bar("line", cut)
    tau = np.array([1.0, 2.0, -1.0])
    found = dynamics(case.model, described(case), case.q, case.v, tau)
    assert found.rank == 2 < len(found.multipliers)
    close(found.a, dynamics(few.model, described(few), few.q, few.v, tau).a)
    G = oracle.jacobian(case.model, case.parts, case.q)
    D = G @ np.linalg.solve(ts.mass_matrix(case.model, case.q), G.T)
    values, vectors = np.linalg.eigh(D)
    kept = vectors[:, values > 1e-9 * values.max()]
    force = np.linalg.solve(
        ts.mass_matrix(case.model, case.q), ts.inverse_dynamics(case.model, case.q, case.v, found.a) - tau
    )
    close(found.multipliers, kept @ np.diag(1 / values[-2:]) @ kept.T @ G @ force, 1e-12)
    d = dynamics_derivatives(case.model, described(case), case.q, case.v, tau)
    expected = oracle.forward_dynamics_derivatives(case.model, case.parts, case.q, case.v, tau)
    for x, y in zip(d, expected, strict=True):
        close(x, y, 1e-11)


def test_the_range_of_G_turns():
    """Without the term N N^T d(G x)/dq, derivatives of multipliers of least norm are wrong by as much as they are."""
    b = ts.ModelBuilder()
    for name, parent in (("one", "world"), ("two", "one"), ("three", "two")):
        b.add_body(name, parent, ts.Revolute((0, 1, 0)), ts.SE3.translation(0.7, 0, 0), models.rod(0.7))
    model, rng = b.build(), np.random.default_rng(0)
    # A point on three planes of the motion, of which two are enough.
    constraints = [
        ts.PointOnPlane(
            "world", "three", ts.SE3.rotation((0, 1, 0), angle) @ ts.SE3.translation(0, 0, 0.3), (0.7, 0, 0)
        )
        for angle in (0.2, 1.3, 2.1)
    ]
    q, v, tau = rng.standard_normal((3, 3))
    constraints = [
        replace(c, offset=float(c.offset + g)) for c, g in zip(constraints, _values(model, constraints, q), strict=True)
    ]
    parts = [part for c in constraints for part in c._parts(model)]
    assert oracle.rank(model, parts, q) == 2
    d = dynamics_derivatives(model, constraints, q, v, tau)
    expected = oracle.forward_dynamics_derivatives(model, parts, q, v, tau)
    for x, y in zip(d, expected, strict=True):
        close(x, y, 1e-11)
    case = models.Case(model, (), q, v)
    for x, y in zip(stacked(d), by_complex_step(case, constraints, tau), strict=True):
        close(x, y, 1e-11)


def _values(model, constraints, q):
    return oracle.g(model, [part for c in constraints for part in c._parts(model)], q)


def test_a_bennett_linkage_along_its_motion():
    """The rank is smaller on the constraints than nearby: derivatives along them are all that exist."""
    case, tau = models.bennett(), np.array([1.0, -0.5, 0.3])
    found = dynamics(case.model, described(case), case.q, case.v, tau)
    assert found.rank == 2 and len(found.multipliers) == 5
    d = dynamics_derivatives(case.model, described(case), case.q, case.v, tau)
    direction = case.v / case.v[0]

    def accelerations(e):
        q = oracle.project(case.model, case.parts, case.q + e[0] * direction)
        v = oracle.project_velocity(case.model, case.parts, q, case.v)[0]
        return np.concatenate([dynamics(case.model, described(case), q, v, tau).a, v])

    change = differences(accelerations, np.zeros(1), 1e-3)[:, 0]
    close(d.da_dq @ direction + d.da_dv @ change[3:], change[:3], 1e-7)


def test_compliance_makes_rows_independent():
    case, tau = models.four_bar("revolute"), np.array([1.0, 2.0, -1.0])
    options = {"compliance": 1e-3}
    found = dynamics(case.model, described(case), case.q, case.v, tau, **options)
    assert found.rank == 5
    close(oracle.gamma(case.model, case.parts, case.q, case.v, found.a), -1e-3 * found.multipliers, 1e-11)
    d = dynamics_derivatives(case.model, described(case), case.q, case.v, tau, **options)
    expected = oracle.forward_dynamics_derivatives(case.model, case.parts, case.q, case.v, tau, **options)
    for x, y in zip(d, expected, strict=True):
        close(x, y, 1e-10)


def test_an_unneeded_row_is_no_contradiction():
    """Rows out of the plane of a linkage, which no joint moves: at rest, in motion, far from the origin, off the
    constraints by rounding."""
    for speed in (0.0, 3.0, 300.0):
        case = models.four_bar("revolute", speed=speed)
        rng = np.random.default_rng(0)
        for _ in range(20):
            q = case.q + 1e-13 * rng.standard_normal(3)
            found = dynamics(
                case.model, described(case), q, case.v, rng.standard_normal(3) * 10.0 ** rng.integers(-8, 8)
            )
            assert found.rank == 2
            dynamics(case.model, described(case), q, case.v, np.zeros(3), baumgarte=(10.0, 10.0))


def contradictory():
    """A joint that must move in two ways at once."""
    model = ts.models.chain(3)
    joints = [j.name for j in model.joints]
    constraints = [
        ts.PrescribedJoint(joints[0], lambda t: (0.0, 0.0, 1.0), name="forwards"),
        ts.Gear(joints[1], joints[2], 2.0, name="gear"),
        ts.PrescribedJoint(joints[0], lambda t: (0.0, 0.0, -1.0), name="backwards"),
    ]
    return model, constraints


def test_contradictory_rows_are_named():
    model, constraints = contradictory()
    state = np.zeros((3, 3))
    for function in (dynamics, dynamics_derivatives):
        with pytest.raises(
            ts.ConstraintError, match=r"'backwards' contradicts 'forwards': it depends on these rows alone"
        ):
            function(model, constraints, *state)
        with pytest.raises(ts.ConstraintError, match=r"in state 0 of the batch"):
            function(model, constraints, *np.zeros((3, 5, 3)))
        function(model, constraints, *state, compliance=1e-3)


def test_a_contradiction_in_one_state_of_a_batch():
    """The same row, which agrees with the other at rest, but not in motion."""
    model = ts.models.chain(2)
    name = model.joints[0].name

    class Square(ts.CustomConstraint):
        rows = 1
        p = np.zeros(0)

        def value(self, q, t, p):
            return np.array([q[0] + q[0] ** 2])

    constraints = [ts.PrescribedJoint(name, 0.0, name="still"), Square()]
    v = np.zeros((21, 2))
    dynamics(model, constraints, np.zeros(2), v, np.zeros(2))
    v[13, 0] = 1.0
    with pytest.raises(ts.ConstraintError, match=r"Square.* contradicts 'still' in state 13 of the batch"):
        dynamics(model, constraints, np.zeros(2), v, np.zeros(2))


def test_a_row_that_nothing_moves():
    b = ts.ModelBuilder()
    b.add_body("bar", "world", ts.Revolute((0, 1, 0)), None, models.rod(1.0))
    model = b.build()
    moving = ts.PointOnPlane(
        "world", "bar", ts.SE3.rotation((1, 0, 0), -np.pi / 2), (1, 0, 0)
    )  # y = 0: across the plane
    assert dynamics(model, [moving], [0.3], [1.0], [0.0]).rank == 0

    def away(t):
        return ts.SE3.rotation((1, 0, 0), -np.pi / 2), np.zeros(6), np.array([0, 0, 0, 0, 0, 1.0])

    leaving = ts.Loop("world", "bar", ts.Free2D(), away, ts.SE3.rotation((1, 0, 0), -np.pi / 2), name="leaving")
    with pytest.raises(ts.ConstraintError, match=r"'leaving.*' cannot be fulfilled: no joint moves it"):
        dynamics(model, [leaving], [0.3], [1.0], [0.0])


# Batches


def batch_case(kind):
    rng = np.random.default_rng(1)
    if kind == "redundant":
        case = models.four_bar("revolute")
        q = case.q + 1e-3 * rng.standard_normal((19, 1)) * case.v
    elif kind == "both":  # independent rows, but at two states, where the linkage is flat
        b = ts.ModelBuilder()
        for name, parent in (("one", "world"), ("two", "one")):
            b.add_body(
                name,
                parent,
                ts.Revolute((0, 1, 0)),
                ts.SE3.translation(1.0 if parent != "world" else 0.0, 0, 0),
                models.rod(1.0),
            )
        model = b.build()
        ties = (
            models.Tie(
                "line", "world", "two", models.frame((0, 1, 0), (0.5, 0, 0)), models.frame((0, 1, 0), (1, 0, 0))
            ),
        )
        q = rng.standard_normal((19, 2))
        q[[3, 12], 1] = 0.0
        return models.Case(model, ties, q[0], np.zeros(2)), q, np.zeros((19, 2)), rng.standard_normal((19, 2))
    else:
        case = models.random_case(5, on=False) if kind == "random" else models.humanoid()
        q = case.model.plus(case.q, 0.3 * rng.standard_normal((19, case.model.nv)))
    n = case.model.nv
    return (
        case,
        q,
        np.broadcast_to(case.v, (19, n)) if kind == "redundant" else rng.standard_normal((19, n)),
        rng.standard_normal((19, n)),
    )


@pytest.mark.parametrize("kind", ["redundant", "both", "random", "humanoid"])
@pytest.mark.parametrize("function", [dynamics, dynamics_derivatives])
def test_a_state_has_the_same_bits_alone_and_in_any_lane(function, kind):
    case, q, v, tau = batch_case(kind)
    v = np.array(v)
    options = {"t": case.t, "compliance": 0.0}
    if kind == "both":
        tau[[3, 12]] = ts.inverse_dynamics(case.model, q[[3, 12]], v[[3, 12]], np.zeros((2, 2)))  # no contradiction
    constraints = described(case)
    alone = [function(case.model, constraints, *x, **options) for x in zip(q, v, tau, strict=True)]
    if kind == "both" and function is dynamics:
        assert {float(x.rank) for x in alone} == {1.0, 2.0}
    for first in range(9):
        together = function(case.model, constraints, q[first:], v[first:], tau[first:], **options)
        for k, one in enumerate(alone[first:]):
            assert same_bits(tuple(x[k] for x in together), tuple(one))
    neighbours = np.array(tau)
    neighbours[::2] = np.nan
    together = function(case.model, constraints, q, v, neighbours, **options)
    for k in range(1, 19, 2):
        assert same_bits(tuple(x[k] for x in together), tuple(alone[k]))
    for k in range(0, 19, 2):
        assert np.isnan(together[0][k]).any()


def test_times_of_a_batch():
    case = models.driven()
    t = np.linspace(0.0, 1.0, 11)
    tau = torques(case)
    together = dynamics(case.model, described(case), case.q, case.v, tau, t=t)
    for k in range(11):
        assert same_bits(
            tuple(x[k] for x in together), tuple(dynamics(case.model, described(case), case.q, case.v, tau, t=t[k]))
        )


def test_threads_and_out():
    case, q, v, tau = batch_case("humanoid")
    q, v, tau = (np.tile(x, (40, 1)) for x in (q, v, tau))
    constraints = described(case)
    one = dynamics(case.model, constraints, q, v, tau)
    assert same_bits(tuple(dynamics(case.model, constraints, q, v, tau, threads=2)), tuple(one))
    out = ts.constraints.dynamics.ConstrainedForwardDynamics(*(np.empty_like(x) for x in one))
    found = dynamics(case.model, constraints, q, v, tau, out=out)
    assert found.a is out.a and same_bits(tuple(out), tuple(one))
    d = dynamics_derivatives(case.model, constraints, q, v, tau)
    assert same_bits(tuple(dynamics_derivatives(case.model, constraints, q, v, tau, threads=2)), tuple(d))


@pytest.mark.parametrize("names", [("da_dq",), ("dmultipliers_dtau",), ("da_dv", "dmultipliers_dq"), ()])
def test_outputs_may_be_left_out(names):
    case = models.random_case(2, on=False)
    arguments = case.model, described(case), case.q, case.v, torques(case)
    d = dynamics_derivatives(*arguments, t=case.t, **GAINS)
    some = dynamics_derivatives(*arguments, t=case.t, outputs=names, **GAINS)
    for name in d._fields:
        if name in names:
            assert same_bits(getattr(some, name), getattr(d, name))
        else:
            assert getattr(some, name) is None


# What results must not depend on


@pytest.mark.parametrize("kind", ["point", "weld", "distance", "orientation"])
def test_neither_side_is_preferred(kind):
    """Accelerations, wrenches and derivatives along the constraints, with the two markers exchanged."""
    rng = np.random.default_rng(4)
    model = mixed_tree()
    tie = models.random_tie(model, rng, kind, relation="two branches")
    case = models.on_constraint(model, [tie], rng)
    tie = case.ties[0]
    tau = torques(case)
    swapped = replace(tie, a=tie.b, b=tie.a, A=tie.B, B=tie.A)
    one, other = [tie.describe()], [swapped.describe()]
    x, y = (dynamics(model, c, case.q, case.v, tau, t=case.t) for c in (one, other))
    close(x.a, y.a, tolerance(case))
    W = oracle.wrenches(model, [tie.part(model)], case.q, x.multipliers)[0]
    U = oracle.wrenches(model, [swapped.part(model)], case.q, y.multipliers)[0]
    T = ts.body_poses(model, case.q)
    index = {b.name: k for k, b in enumerate(model.bodies)}
    world = [np.linalg.inv(ts.spatial.Ad(T[index[name]])).T @ w for name, w in ((tie.b, W), (tie.a, U))]
    close(world[0], -world[1], 1e-10)
    d, e = (dynamics_derivatives(model, c, case.q, case.v, tau, t=case.t) for c in (one, other))
    G = oracle.jacobian(model, case.parts, case.q, case.t)
    rate = oracle.derivatives(model, case.parts, case.q, case.v, 0 * case.v, case.t)[0]
    null = np.linalg.svd(G)[2][len(G) :].T
    dv = -np.linalg.pinv(G) @ rate @ null  # keeps gdot at zero
    close(d.da_dq @ null + d.da_dv @ dv, e.da_dq @ null + e.da_dv @ dv, tolerance(case, 1e-10))
    close(d.da_dv @ null, e.da_dv @ null, tolerance(case, 1e-10))
    close(d.da_dtau, e.da_dtau, tolerance(case))


def test_order_of_bodies():
    """To the last bit."""
    rng = np.random.default_rng(0)
    for seed in range(4):
        case = models.random_case(seed, on=False)
        other, order = shuffled(case.model, rng)
        tau = torques(case)
        x = dynamics(case.model, described(case), case.q, case.v, tau, t=case.t)
        y = dynamics(other, described(case), case.q[order.q], case.v[order.v], tau[order.v], t=case.t)
        assert same_bits(x.a[order.v], y.a) and same_bits(x.multipliers, y.multipliers)


def test_the_way_a_linkage_is_cut_and_closed():
    """Accelerations of the links of a four-bar, whichever joint is cut and by whatever rows it is closed."""
    expected = None
    for cut in ("coupler-rocker", "crank-coupler", "rocker-world", "world-crank"):
        for closing in ("line", "point", "revolute", "planes"):
            case = models.four_bar(closing, cut)
            names = [b.name for b in case.model.bodies]
            order = [names.index(name) for name in ("crank", "coupler", "rocker")]
            f_ext = np.zeros((3, 6))
            f_ext[order[0], 1] = 2.0
            a = dynamics(case.model, described(case), case.q, case.v, np.zeros(3), f_ext=f_ext).a
            A = ts.body_accelerations(case.model, case.q, case.v, a, frame="world")[order, 1]
            expected = A if expected is None else expected
            close(A, expected, 1e-12)


def test_prescribed_joints_are_hybrid_dynamics():
    model, rng = mixed_tree(), np.random.default_rng(0)
    names = ["arm", "gate"]
    q, v, tau, a = model.random(rng), *rng.standard_normal((3, model.nv))
    joints = [model.joint(name) for name in names]

    def motion(joint):
        return lambda t: (0.0, 0.0, a[joint.v_slice.start])

    constraints = [ts.PrescribedJoint(name, motion(joint)) for name, joint in zip(names, joints, strict=True)]
    at = [joint.v_slice.start for joint in joints]
    tau[at] = 0.0
    found = dynamics(model, constraints, q, v, tau)
    expected = ts.hybrid_dynamics(model, q, v, a=a, tau=tau, prescribed=names)
    close(found.a, expected[0], 1e-12)
    close(found.multipliers, expected[1][at], 1e-12)


def test_a_free_joint_on_a_body():
    """A free joint transmits no force, whatever carries it."""
    rng = np.random.default_rng(0)
    b = ts.ModelBuilder()
    b.add_body("arm", "world", ts.Revolute((1, 2, 3)), None, ts.testing.random_inertia(rng))
    b.add_body("ball", "arm", ts.Free(), ts.testing.random_pose(rng), ts.testing.random_inertia(rng))
    b.add_body("tail", "ball", ts.Universal(), ts.testing.random_pose(rng), ts.testing.random_inertia(rng))
    model = b.build()
    case = models.off_constraint(model, [models.random_tie(model, rng, "universal", relation="one path")], rng)
    tau = torques(case)
    found = joined(case, described(case), case.q, case.v, tau)
    expected = oracle.forward_dynamics(model, case.parts, case.q, case.v, tau, case.t)
    close(found, np.concatenate(expected), tolerance(case))
    d = dynamics_derivatives(model, described(case), case.q, case.v, tau, t=case.t)
    for x, y in zip(stacked(d), by_complex_step(case, described(case), tau), strict=True):
        close(x, y, tolerance(case))


def test_no_constraints_at_all():
    model, rng = mixed_tree(), np.random.default_rng(0)
    q, v, tau = model.random(rng), *rng.standard_normal((2, model.nv))
    found = dynamics(model, [], q, v, tau)
    close(found.a, ts.forward_dynamics(model, q, v, tau), 1e-13)
    assert found.multipliers.shape == (0,) and found.rank == 0
    d = dynamics_derivatives(model, [], q, v, tau)
    for x, y in zip(d, ts.forward_dynamics_derivatives(model, q, v, tau), strict=False):
        close(x, y, 1e-13)


# Calls


def test_calls_find_the_compiled_constraints():
    """Lists are the same if their constraints are; a call with other ones, or another model, does not take the last."""
    case = models.four_bar("line")
    other = models.four_bar("point")
    arguments = case.q, case.v, np.ones(3)
    first = dynamics(case.model, described(case), *arguments)
    kept = described(case)
    for constraints in (kept, list(kept), tuple(kept), iter(kept)):
        assert same_bits(tuple(dynamics(case.model, constraints, *arguments)), tuple(first))
    assert len(dynamics(case.model, described(other), *arguments).multipliers) == 3
    assert same_bits(tuple(dynamics(case.model, kept, *arguments)), tuple(first))
    assert same_bits(tuple(dynamics(case.model, kept, *arguments, t=0.0)), tuple(first))


def test_errors():
    case = models.four_bar("line")
    model, constraints, arguments = case.model, described(case), (case.q, case.v, np.zeros(3))
    with pytest.raises(TypeError, match="constraints must be a sequence"):
        dynamics(model, constraints[0], *arguments)
    with pytest.raises(ValueError, match=r"q has shape \(2,\), expected \(\.\.\., 3\)"):
        dynamics(model, constraints, np.zeros(2), case.v, np.zeros(3))
    for gains in (1.0, (1.0,), (1.0, 2.0, 3.0), ("a", 1)):
        with pytest.raises(TypeError, match=r"baumgarte is .*, expected a pair \(alpha, beta\)"):
            dynamics(model, constraints, *arguments, baumgarte=gains)
    with pytest.raises(ValueError, match="baumgarte is"):
        dynamics(model, constraints, *arguments, baumgarte=(-1.0, 0.0))
    for compliance in (-1.0, np.nan, np.inf):
        with pytest.raises(ValueError, match="compliance is"):
            dynamics(model, constraints, *arguments, compliance=compliance)
    with pytest.raises(TypeError, match="model must be a"):
        dynamics("model", constraints, *arguments)
    with pytest.raises(ValueError, match="no output 'da'"):
        dynamics_derivatives(model, constraints, *arguments, outputs=["da"])


@pytest.mark.parametrize("below", [False, True], ids=["tip", "inner"])
def test_rows_on_a_free_joint_that_is_carried(below):
    """Rows in its coordinates act on the body that carries it too."""
    rng = np.random.default_rng(0)
    builder = ts.ModelBuilder(gravity=(1, 2, -9))
    joints = [ts.Revolute((0, 1, 0)), ts.Free(), *([ts.Revolute((0, 0, 1))] if below else [])]
    for k, joint in enumerate(joints):
        parent = f"body{k - 1}" if k else "world"
        builder.add_body(f"body{k}", parent, joint, testing.random_pose(rng), testing.random_inertia(rng))
    model = builder.build()
    row = ts.TwistConstraint(joints={"body1": rng.standard_normal(6)})
    loop = ts.Loop("body0", "body1", ts.Spherical(), testing.random_pose(rng), testing.random_pose(rng))
    q, v, tau = model.random(rng), rng.standard_normal(model.nv), rng.standard_normal(model.nv)
    for constraints in ([row], [row, loop], [loop, row]):
        found = ts.constrained_forward_dynamics(model, constraints, q, v, tau)
        G = ts.constraint_jacobian(model, constraints, q)
        close(ts.inverse_dynamics(model, q, v, found.a), tau + G.T @ found.multipliers, 1e-11)
        close(ts.constraint_errors(model, constraints, q, v, found.a).gamma, np.zeros(len(G)), 1e-11)


def test_contradictions_are_found_at_different_times():
    """Lanes of different times are computed one by one, and report what they find."""
    builder = ts.ModelBuilder()
    builder.add_body("arm", "world", ts.Revolute((0, 1, 0)), inertia=testing.random_inertia(np.random.default_rng(0)))
    model = builder.build()
    constraints = [
        ts.PrescribedJoint("arm", lambda t: (0.0, 0.0, 0.0), name="rest"),
        ts.PrescribedJoint("arm", lambda t: (t**3, 3 * t**2, 6 * t), name="turn"),
    ]
    x = np.zeros((9, 1))
    with pytest.raises(ts.ConstraintError, match="'turn' contradicts 'rest' in state 1 of the batch") as caught:
        ts.constrained_forward_dynamics(model, constraints, x, x, x, t=np.arange(9.0))
    assert caught.value.rows == ("turn", "rest")
