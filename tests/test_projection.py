"""Projections onto constraints: they are on them, nearest in the metric of mass, and differentiable exactly."""

import re
from dataclasses import replace

import numpy as np
import pytest
from compare import close, same_bits
from constraint_models import bennett, floating_loop, four_bar, rod, slider_crank, stewart
from linkages import at_configuration, chain, errors, parallelogram, two_bodies
from population import models, sweep

import torsor as ts
from torsor import testing
from torsor.constraints.custom import _central

JOINTS = {
    "Fixed": ts.Fixed(),
    "Revolute": ts.Revolute((1, 2, 3)),
    "Prismatic": ts.Prismatic((1, 0, 1)),
    "Cylindrical": ts.Cylindrical((0, 1, 1)),
    "Universal": ts.Universal(((1, 0, 0.3), (0, 1, 0))),
    "Spherical": ts.Spherical(),
    "Planar": ts.Planar(),
    "Free2D": ts.Free2D(),
    "Translational": ts.Translational(),
}


def differences(f, n, step):
    """The derivative (..., n) of f at zero, by central differences of twelfth order."""
    nodes, weights = _central(6, 1)
    columns = []
    for k in range(n):
        unit = np.eye(n)[k]
        columns.append(sum(w * f(step * x * unit) for x, w in zip(nodes, weights, strict=True)) / step)
    return np.stack(columns, axis=-1)


def is_derivative(x, f, n, tol=1e-9, steps=(2e-3, 3e-4)):
    """Whether x (..., n) is the derivative of f at zero. Differences over a long step have little rounding, those over
    a short one little truncation, which third derivatives of splines that jump at knots make large."""
    worst = []
    for step in steps:
        found = differences(f, n, step).reshape(x.shape)
        worst.append(np.abs(x - found).max(initial=0.0) / max(1.0, np.abs(found).max(initial=0.0)))
        if worst[-1] <= tol:
            return True
    print(worst)
    return False


def distance(model, q, q1):
    """xi.M(q) xi."""
    xi = model.minus(q1, q)
    return np.einsum("...i,...ij,...j", xi, ts.mass_matrix(model, q), xi)


def is_closed(model, constraints, q, t=0.0):
    """On the constraints to 1e-12 of the size of the mechanism, and not flipped."""
    g, _ = errors(model, constraints, q, t=t)
    size = 1 + np.abs(ts.body_poses(model, q)[..., :3, 3]).max() + np.abs(q).max()
    return np.abs(g).max() <= 1e-12 * size and not any(c.flipped(model, q, t=t) for c in constraints)


def attempt(model, constraints, q):
    """(projected q, ""), or (None, the message of the error)."""
    try:
        return ts.project(model, constraints, q), ""
    except ts.ConvergenceError as error:
        return None, str(error)


# ---- configurations


@pytest.mark.parametrize("closing", ["line", "point", "revolute"])
def test_four_bar_moves_to_the_nearest_configuration_on_its_curve(closing):
    case = four_bar(closing)
    model, constraints = case.model, case.constraints
    q = case.q + [0.2, -0.1, 0.15]
    q1 = ts.project(model, constraints, q)
    assert is_closed(model, constraints, q1)
    # the curve itself, by the angle of the crank
    angles = q1[0] + np.linspace(-0.1, 0.1, 201)
    curve = ts.project(model, constraints, np.stack([angles, *np.full((2, 201), q1[1:, None])], -1), keep=["crank"])
    np.testing.assert_array_equal(curve[:, 0], angles)
    lengths = distance(model, q, curve)
    assert lengths.argmin() == 100
    close(lengths[100], distance(model, q, q1), 1e-12)


def test_redundant_rows_make_no_difference():
    found = []
    for closing in ("line", "point", "revolute"):
        case = four_bar(closing)
        found.append(ts.project(case.model, case.constraints, case.q + 0.1, case.v + 1.0))
    for q, v in found[1:]:
        close(q, found[0][0], 1e-13)
        close(v, found[0][1], 1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_stationary_over_random_trees(seed):
    """M xi is a combination of rows, as seen from q: xi is normal to the constraints."""
    rng = np.random.default_rng(seed)
    for parameter in models(seed)[::3]:
        model = parameter.values[0]
        q = model.random(rng)
        constraints = at_configuration(model, q, 0.3, rng, model.nv // 2)
        start = model.plus(q, 0.1 * rng.uniform(-1, 1, model.nv))
        q1 = ts.project(model, constraints, start, t=0.3)
        assert is_closed(model, constraints, q1, 0.3)
        assert distance(model, start, q1) <= distance(model, start, q) * (1 + 1e-12)
        # no closed configuration around is nearer
        moved = model.plus(q1, 1e-3 * rng.standard_normal((8, model.nv)))
        around = ts.project(model, constraints, moved, t=0.3)
        assert (distance(model, start, around) >= distance(model, start, q1) * (1 - 1e-12)).all()


def test_a_consistent_configuration_is_returned():
    for case in (four_bar(), bennett(), stewart(), floating_loop()):
        q, v = ts.project(case.model, case.constraints, case.q, case.v)
        close(q, case.q, 1e-14)
        close(v, case.v, 1e-13)


def test_a_projection_of_a_projection_is_the_same():
    case = floating_loop()
    rng = np.random.default_rng(0)
    start = (
        case.model.plus(case.q, 0.3 * rng.standard_normal(case.model.nv)),
        case.v + rng.standard_normal(case.model.nv),
    )
    once = ts.project(case.model, case.constraints, *start)
    again = ts.project(case.model, case.constraints, *once)
    close(again[0], once[0], 1e-13)
    close(again[1], once[1], 1e-13)


def test_units_and_order_of_bodies_make_no_difference():
    """Lengths in other units: the same configuration, because the metric is that of mass."""
    case = four_bar()
    scaled = four_bar()
    bodies = []
    for body in scaled.model.bodies:
        inertia = body.inertia
        place = ts.SE3(body.placement.R, 1000 * body.placement.p)
        grown = ts.Inertia(inertia.mass, 1000 * inertia.com, 1e6 * inertia.I_com)
        bodies.append(replace(body, placement=place, inertia=grown))
    model = replace(scaled.model, bodies=tuple(bodies))
    (loop,) = scaled.constraints
    far = (ts.SE3(x.R, 1000 * x.p) for x in (loop.placement_a, loop.placement_b))
    big = replace(loop, **dict(zip(("placement_a", "placement_b"), far, strict=True)))
    start = case.q + [0.2, -0.1, 0.15]
    close(ts.project(model, [big], start), ts.project(case.model, case.constraints, start), 1e-12)


def test_rows_on_velocities_alone_do_not_move_the_configuration():
    case = four_bar()
    row = ts.TwistConstraint(joints={"crank": 1.0}, rate=2.0)
    q, v = ts.project(case.model, [*case.constraints, row], case.q + 0.1, case.v)
    close(q, ts.project(case.model, case.constraints, case.q + 0.1), 1e-14)
    close(v[0], 2.0)
    q, v = ts.project(case.model, [row], case.q, case.v)
    np.testing.assert_array_equal(q, case.q)
    close(v[0], 2.0)


def test_no_constraints_leave_the_state():
    model = ts.models.pendulum()
    q, v = ts.project(model, [], model.neutral + 0.3, np.ones(model.nv))
    np.testing.assert_array_equal(q, model.neutral + 0.3)
    np.testing.assert_array_equal(v, 1.0)
    d = ts.project_derivatives(model, [], model.neutral + 0.3, np.ones(model.nv))
    close(d.dq1_dq, np.eye(model.nv))
    close(d.dv1_dv, np.eye(model.nv))
    assert d.dq1_dparameters == ()


def test_moving_markers_are_met_at_the_time():
    builder = ts.ModelBuilder()
    builder.add_body("hand", "world", ts.Free(), inertia=rod(1.0))
    twist = np.array([0.3, -0.2, 0.5, 1.0, 2.0, -1.0])

    def motion(t):
        return ts.SE3.exp(t * twist), twist, np.zeros(6)

    model = builder.build()
    held = [ts.PrescribedBody("hand", motion)]
    times = np.array([0.0, 0.4, 1.3])
    q, v = ts.project(model, held, model.neutral, np.zeros(6), t=times)
    for k, t in enumerate(times):
        close(ts.body_poses(model, q[k])[0], ts.SE3.exp(t * twist).matrix, 1e-13)
        close(v[k], twist, 1e-12)


# ---- keep


def test_kept_joints_keep_coordinates_and_velocities():
    case = stewart()
    keep = ["platform", "cylinder0"]
    rng = np.random.default_rng(2)
    moved = rng.uniform(-0.2, 0.2, case.model.nv)
    moved[:8] = 0
    start, v = case.model.plus(case.q, moved), rng.standard_normal(case.model.nv)
    v[6:8] = ts.project(case.model, case.constraints, case.q, v, keep=["platform"])[1][6:8]
    q1, v1 = ts.project(case.model, case.constraints, start, v, keep=keep)
    close(q1, case.q, 1e-12)
    np.testing.assert_array_equal(v1[:8], v[:8])
    assert np.abs(errors(case.model, case.constraints, q1, v1)[1]).max() < 1e-12


def test_kept_crank_chooses_the_branch_that_is_near():
    case = four_bar()
    for sign in (1, -1):
        start = case.q.copy()
        start[1:] = ts.project(case.model, case.constraints, [case.q[0], sign * 1.5, -sign * 2.0], keep=["crank"])[1:]
        nudged = start + [0, 0.05, -0.03]
        close(ts.project(case.model, case.constraints, nudged, keep=["crank"]), start, 1e-12)


def test_all_joints_kept():
    case = four_bar()
    keep = ["crank", "coupler", "rocker"]
    q, v = ts.project(case.model, case.constraints, case.q, case.v, keep=keep)
    np.testing.assert_array_equal(q, case.q)
    np.testing.assert_array_equal(v, case.v)
    with pytest.raises(ts.ConvergenceError, match="contradict keep="):
        ts.project(case.model, case.constraints, case.q + 0.1, keep=keep)
    d = ts.project_derivatives(case.model, case.constraints, case.q, case.v, keep=keep)
    np.testing.assert_array_equal(d.dq1_dq, np.eye(3))
    np.testing.assert_array_equal(d.dv1_dv, np.eye(3))


# ---- velocities


@pytest.mark.parametrize("seed", range(3))
def test_velocities_are_projected_orthogonally_in_mass(seed):
    rng = np.random.default_rng(seed)
    for parameter in models(seed)[1::3]:
        model = parameter.values[0]
        q = model.random(rng)
        constraints = [c for c in at_configuration(model, q, 0.3, rng, model.nv // 2) if not isinstance(c, ts.Gear)]
        v = rng.standard_normal((2, model.nv))
        try:
            q1, v1 = ts.project(model, constraints, q, v, t=0.3)
        except ts.ConstraintError:
            continue
        assert np.abs(errors(model, constraints, q1, v1, 0.3)[1]).max() < 1e-10 * np.abs(v1).max()
        # v1 - v is normal to what the rows leave free: the difference of two projected velocities
        free = v1[0] - v1[1]
        normal = np.einsum("ij,kj->ki", ts.mass_matrix(model, q1[0]), v1 - v)
        assert np.abs(normal @ free).max() < 1e-10 * (1 + np.abs(normal).max() * np.abs(free).sum())


def test_rates_that_contradict_each_other_are_named():
    case = four_bar("line")
    driven = [ts.PrescribedJoint(name, lambda t: (0.0, 1.0, 0.0)) for name in ("crank", "coupler", "rocker")]
    rows = [*case.constraints, *driven]
    with pytest.raises(ts.ConvergenceError):
        ts.project(case.model, rows, case.q, case.v)
    shifted = [
        ts.PrescribedJoint(name, lambda t, x=x: (x, 1.0, 0.0))
        for name, x in zip(("crank", "coupler", "rocker"), case.q, strict=True)
    ]
    with pytest.raises(ts.ConstraintError, match="no velocities satisfy") as caught:
        ts.project(case.model, [*case.constraints, *shifted], case.q, case.v)
    assert set(caught.value.rows) <= {name for c in (*case.constraints, *shifted) for name in c.row_names(case.model)}
    assert caught.value.rows


# ---- from far


@pytest.mark.parametrize("name", JOINTS)
@pytest.mark.parametrize("make", [chain, two_bodies])
def test_closes_from_anywhere(name, make):
    """Random mechanisms at random configurations. Each closes, or the error says which row does not; nearly all do:
    some closed configurations of a chain are out of reach of steps that decrease the error."""
    failed = 0
    for seed in range(25):
        rng = np.random.default_rng(seed)
        model, constraints = make(JOINTS[name], rng)
        q, message = attempt(model, constraints, model.random(rng))
        assert is_closed(model, constraints, q) if q is not None else "stays open by" in message
        failed += q is None
    assert failed <= 1


def test_stewart_platform_closes_from_anywhere():
    case = stewart()
    rng = np.random.default_rng(0)
    start = case.model.random(rng, 40)
    q = ts.project(case.model, case.constraints, start)
    assert all(is_closed(case.model, case.constraints, one) for one in q)


@pytest.mark.parametrize("make", [four_bar, bennett])
def test_thousands_of_starts_are_closed_or_refused(make):
    """No configuration is returned that is open or flipped; the nearest one is nearer than the first one found."""
    case = make()
    model, constraints = case.model, case.constraints
    start = np.random.default_rng(1).uniform(-3.1, 3.1, (2000, model.nv))
    refused = 0
    q, message = attempt(model, constraints, start)
    while q is None:
        state = re.search(r"stays open by .* in state (\d+) of the batch", message)
        start = np.delete(start, int(state[1]), axis=0)
        q, message = attempt(model, constraints, start)
        refused += 1
        assert refused < 20
    g, _ = errors(model, constraints, q)
    assert np.abs(g).max() < 1e-11
    assert not any(constraints[0].flipped(model, one) for one in q)
    # stationary: xi.M is zero along the only motion that is left
    for one, from_ in zip(q[:50], start[:50], strict=True):
        found = ts.mobility(model, constraints, one)
        if found.freedoms == 1:
            along = model.minus(one, from_) @ ts.mass_matrix(model, from_) @ found.motions[:, 0]
            assert abs(along) < 1e-9 * (1 + np.abs(model.minus(one, from_)).max())


def test_flipped_closures_are_left():
    """Half a turn from a closed weld all rows are zero too."""
    builder = ts.ModelBuilder().add_body(
        "body", "world", ts.Free(), inertia=testing.random_inertia(np.random.default_rng(0))
    )
    model = builder.build()
    for joint in (ts.Fixed(), ts.Revolute((0, 0, 1)), ts.Translational()):
        loop = ts.Loop("world", "body", joint)
        for axis in ((1, 0, 0), (0, 1, 0), (0.6, 0.8, 0)):
            q = np.concatenate([np.zeros(3), ts.SE3.rotation(axis, np.pi).quaternion])
            assert np.abs(errors(model, [loop], q)[0]).max() < 1e-12
            assert loop.flipped(model, q)
            q1 = ts.project(model, [loop], q)
            assert is_closed(model, [loop], q1)


# ---- dead points


def test_dead_points():
    case = slider_crank()  # crank 0.5, rod 1.5
    model, constraints = case.model, case.constraints
    # the slider at its end, where the crank is straight: reached, with half the digits in the angles
    q = ts.project(model, constraints, [0.3, -0.5, 2.0], keep=["slider"])
    assert q[2] == 2.0
    assert np.abs(q[:2]).max() < 1e-5
    assert np.abs(errors(model, constraints, q)[0]).max() < 1e-11
    # beyond it
    with pytest.raises(
        ts.ConvergenceError, match=r"contradict keep=: 'Loop\(rod, slider\): position .' stays open by 0.1"
    ):
        ts.project(model, constraints, [0.3, -0.5, 2.1], keep=["slider"])
    # a straight mechanism that must bend: rows have no effect to first order
    bent = ts.project(model, constraints, [0.0, 0.0, 1.7], keep=["slider"])
    assert is_closed(model, constraints, bent)
    assert abs(bent[0]) > 0.1
    # velocities at the dead point: the slider cannot be driven there, the crank can
    straight = np.array([0.0, 0.0, 2.0])
    with pytest.raises(ts.ConstraintError, match="dead point"):
        ts.project(model, constraints, straight, [0, 0, 1.0], keep=["slider"])
    close(ts.project(model, constraints, straight, [1.0, 0, 0], keep=["crank"])[1], [1.0, -4 / 3, 0])


def test_flat_parallelogram_is_a_fork():
    model, constraints = parallelogram()
    for start, mirrored in (([-0.3, 0.3, -0.3], False), ([-0.3, 0.9, 0.3], True)):
        q = ts.project(model, constraints, start)
        assert is_closed(model, constraints, q)
        assert (abs(q[0] - q[2]) > 1e-3) == mirrored
    np.testing.assert_array_equal(ts.project(model, constraints, np.zeros(3)), np.zeros(3))


# ---- derivatives


def cases_of_derivatives():
    for seed in range(2):
        for parameter in models(seed):
            yield pytest.param(parameter.values[0], seed, id=f"{parameter.id}-{seed}")


def drawn(model, seed, size):
    """Constraints that can be moved apart from each other, joints to keep, a time, and a state so far from them."""
    rng = np.random.default_rng(seed)
    t = 0.3
    for _ in range(40):
        q = model.random(rng)
        constraints = at_configuration(model, q, t, rng, model.nv // 2)
        keep = [model.joints[rng.integers(model.nbodies)].name] if seed % 2 else []
        start, v = model.plus(q, size * rng.uniform(-1, 1, model.nv)), rng.standard_normal(model.nv)
        try:
            found = ts.project_derivatives(model, constraints, start, v, t=t, keep=keep)
        except (ts.ConvergenceError, ts.ConstraintError):
            continue
        largest = max(np.abs(found.dq1_dq).max(), np.abs(found.dv1_dq).max() / 10)
        if largest < 5 and independent(model, constraints, found.q1, t, keep):
            return constraints, keep, t, start, v, found, rng
    raise AssertionError("no constraints found")


def independent(model, constraints, q, t, keep):
    """Whether rows are far from redundant, so that all parameters may move."""
    from torsor import _core
    from torsor.constraints.constraint import compile_constraints

    G = _core.constraint_jacobian(model, q, None, t, None, compile_constraints(model, constraints).options, None, 1)
    free = np.ones(model.nv, bool)
    for name in keep:
        free[model.joint(name).v_slice] = False
    s = np.linalg.svd(G[:, free], compute_uv=False)
    return len(s) == len(G) and s[-1] > 0.1


@pytest.mark.parametrize(("model", "seed"), sweep(cases_of_derivatives(), 7))
def test_derivatives_over_random_trees(model, seed):
    """From up to 0.05 in every coordinate away."""
    constraints, keep, t, q, v, d, rng = drawn(model, seed, 0.05)

    def projected(q=q, v=v, constraints=constraints, model=model):
        q1, v1 = ts.project(model, constraints, q, v, t=t, keep=keep)
        return np.concatenate([model.minus(q1, d.q1), v1])

    n = model.nv
    none = np.zeros((n, n))
    assert is_derivative(np.concatenate([d.dq1_dq, d.dv1_dq]), lambda x: projected(model.plus(q, x)), n)
    assert is_derivative(np.concatenate([none, d.dv1_dv]), lambda x: projected(v=v + x), n)
    for k, one in enumerate(constraints):
        for name, value in one.parameters.items():

            def moved(x, k=k, one=one, name=name, value=value):
                changed = one.with_parameters({name: value + x.reshape(value.shape)})
                return projected(constraints=[*constraints[:k], changed, *constraints[k + 1 :]])

            both = np.concatenate([d.dq1_dparameters[k][name], d.dv1_dparameters[k][name]])
            assert is_derivative(both.reshape(2 * n, value.size), moved, value.size), (one, name)
    # gradients of a weighted sum
    w_q, w_v = rng.standard_normal((2, n))
    g = ts.project_vjp(model, constraints, q, v, w_q, w_v, t=t, keep=keep)
    close(g.q, w_q @ d.dq1_dq + w_v @ d.dv1_dq, 1e-11)
    close(g.v, w_v @ d.dv1_dv, 1e-11)
    for k, one in enumerate(constraints):
        for name in one.parameters:
            both = (d.dq1_dparameters[k][name], d.dv1_dparameters[k][name])
            close(
                g.constraints[k][name], sum(np.tensordot(w, x, 1) for w, x in zip((w_q, w_v), both, strict=True)), 1e-11
            )
    i = int(rng.integers(model.nbodies))
    body, weights = model.bodies[i], np.concatenate([w_q, w_v])
    twist, rate = rng.standard_normal(6), body.inertia.parameters * rng.uniform(0, 0.1)

    def placed(x):
        bodies = list(model.bodies)
        bodies[i] = replace(body, placement=body.placement @ ts.SE3.exp(x[0] * twist))
        return weights @ projected(model=replace(model, bodies=tuple(bodies)))

    def heavier(x):
        inertia = ts.Inertia.from_parameters(body.inertia.parameters + x[0] * rate)
        return weights @ projected(model=model.with_inertia(body.name, inertia))

    assert is_derivative(np.array([g.placement[i] @ twist]), placed, 1)
    assert is_derivative(np.array([g.inertia[i] @ rate]), heavier, 1)


@pytest.mark.parametrize("seed", range(4))
def test_derivative_at_consistent_states_is_the_projector(seed):
    from torsor import _core
    from torsor.constraints.constraint import compile_constraints

    for parameter in models(seed)[::2]:
        model = parameter.values[0]
        constraints, _, t, _, _, d, _ = drawn(model, 2 * seed, 0.0)
        holonomic = [c for c in constraints if not isinstance(c, ts.TwistConstraint)]
        options = compile_constraints(model, holonomic).options
        G = _core.constraint_jacobian(model, d.q1, None, t, None, options, None, 1)
        Y = ts.mass_matrix_inverse(model, d.q1) @ G.T
        close(d.dq1_dq, np.eye(model.nv) - Y @ np.linalg.solve(G @ Y, G), 1e-10)
        close(d.dv1_dv @ d.dv1_dv, d.dv1_dv, 1e-10)


def test_derivatives_of_redundant_rows():
    """The same with 2, 3 and 5 rows; with Bennett's linkage, whose rows are redundant on the constraint alone."""
    found = []
    for closing in ("line", "point", "revolute"):
        case = four_bar(closing)
        found.append(ts.project_derivatives(case.model, case.constraints, case.q + [0.1, -0.2, 0.1], case.v))
    for d in found[1:]:
        for name in ("dq1_dq", "dv1_dq", "dv1_dv"):
            close(getattr(d, name), getattr(found[0], name), 1e-10)
    case = bennett()
    model, constraints, q = case.model, case.constraints, case.q + [0.05, -0.1, 0.08]
    d = ts.project_derivatives(model, constraints, q, case.v)
    by_q = differences(lambda x: np.concatenate(ts.project(model, constraints, q + x, case.v)), 3, 1e-2)
    close(d.dq1_dq, by_q[:3], 1e-8)  # closed to 1e-15 they are, where the smallest singular value is 0.5
    close(d.dv1_dq, by_q[3:], 1e-8)


def test_gradient_through_a_start_that_moves_with_the_constraints():
    """The adjoint of a trajectory, chained through `project`, is the gradient by a length of the mechanism."""
    case = four_bar("line")
    model, (line,) = case.model, case.constraints
    q, v, steps = case.q + 0.02, case.v, 20
    cost = ts.EnergyCost(("kinetic", "potential"), at=-1)

    def run(line):
        start = ts.project(model, [line], q, v)
        return ts.simulate(model, *start, integrator=ts.BDF2(0.01), steps=steps, constraints=[line])

    motion = run(line)
    along = ts.adjoint(motion, cost)
    start = ts.project_vjp(model, [line], q, v, along.q0, along.v0)
    total = along.constraints[0]["point_b"] + start.constraints[0]["point_b"]
    value = np.array(line.point_b)
    by_point = differences(
        lambda x: ts.loss(run(line.with_parameters({"point_b": value + [x[0], 0, x[1]]})), cost).value, 2, 1e-3
    )
    close(total[[0, 2]], by_point, 1e-7)


# ---- batches and inputs


def test_batches():
    case = floating_loop()
    model, constraints = case.model, case.constraints
    rng = np.random.default_rng(0)
    q = model.plus(case.q, 0.2 * rng.standard_normal((2, 3, model.nv)))
    v = rng.standard_normal((3, model.nv))
    q1, v1 = ts.project(model, constraints, q, v)
    d = ts.project_derivatives(model, constraints, q, v)
    w = rng.standard_normal((2, 1, model.nv))
    g = ts.project_vjp(model, constraints, q, v, w, v)
    assert q1.shape == q.shape
    assert v1.shape == (2, 3, model.nv)
    for i in np.ndindex(2, 3):
        assert same_bits((q1[i], v1[i]), ts.project(model, constraints, q[i], v[i[1]]))
        alone = ts.project_derivatives(model, constraints, q[i], v[i[1]])
        for x, y in zip(d[:5], alone[:5], strict=True):
            close(x[i], y, 1e-12)
        close(d.dv1_dparameters[0]["placement_b"][i], alone.dv1_dparameters[0]["placement_b"], 1e-11)
        one = ts.project_vjp(model, constraints, q[i], v[i[1]], w[i[0], 0], v[i[1]])
        close(g.q[i], one.q, 1e-11)
        close(g.inertia[i], one.inertia, 1e-11)
        close(g.constraints[0]["placement_a"][i], one.constraints[0]["placement_a"], 1e-11)
    q1, v1 = ts.project(model, constraints, np.zeros((0, model.nq)), np.zeros((0, model.nv)))
    assert q1.shape == (0, model.nq)
    assert v1.shape == (0, model.nv)
    # inputs are not changed, and quaternions need not have unit length
    kept = q.copy()
    ts.project(model, constraints, q)
    np.testing.assert_array_equal(q, kept)
    longer = q[0, 0].copy()
    longer[3:7] *= 2
    close(ts.project(model, constraints, longer), ts.project(model, constraints, q[0, 0]), 1e-12)


def test_wrong_inputs():
    case = four_bar()
    model, constraints, q, v = case.model, case.constraints, case.q, case.v
    with pytest.raises(KeyError, match="no joint named 'cranky'; joints are 'crank', 'coupler', 'rocker'"):
        ts.project(model, constraints, q, keep=["cranky"])
    with pytest.raises(TypeError, match=r"keep must be a sequence of names of joints, got 'crank'; did you mean"):
        ts.project(model, constraints, q, keep="crank")
    with pytest.raises(TypeError, match="keep must have names of joints, got 3"):
        ts.project(model, constraints, q, keep=[3])
    with pytest.raises(ValueError, match=r"q is not finite: q\[1\] is nan"):
        ts.project(model, constraints, [0.0, np.nan, 0.0])
    with pytest.raises(ValueError, match=r"v is not finite: v\[2\] is inf"):
        ts.project(model, constraints, q, [0, 0, np.inf])
    with pytest.raises(ValueError, match="t is not finite"):
        ts.project(model, constraints, q, t=np.nan)
    with pytest.raises(ValueError, match=r"q has shape \(2,\), expected \(..., 3\)"):
        ts.project(model, constraints, [0.0, 0.0])
    with pytest.raises(ValueError, match=r"v has shape \(4,\), expected \(..., 3\)"):
        ts.project(model, constraints, q, np.zeros(4))
    with pytest.raises(ValueError, match="batch shapes do not fit together"):
        ts.project(model, constraints, np.zeros((2, 3)), np.zeros((3, 3)))
    with pytest.raises(ValueError, match="tolerance is 0"):
        ts.project(model, constraints, q, tolerance=0)
    with pytest.raises(ValueError, match="iterations is 0"):
        ts.project(model, constraints, q, iterations=0)
    with pytest.raises(TypeError, match="did you mean"):
        ts.project(model, constraints[0], q)
    with pytest.raises(ValueError, match="w_v is given without v"):
        ts.project_vjp(model, constraints, q, None, v, v)
    with pytest.raises(ValueError, match=r"w_q has shape \(2,\), expected \(..., 3\)"):
        ts.project_vjp(model, constraints, q, v, [1.0, 2.0])
    with pytest.raises(ValueError, match=r"w_q has shape \(2, 3\), expected \(3,\)"):
        ts.project_vjp(model, constraints, q, v, np.zeros((2, 3)))
    with pytest.raises(ValueError, match="quaternion of length 0"):
        ts.project(stewart().model, stewart().constraints, np.zeros(25))


def test_constraints_that_cannot_be_satisfied_are_named():
    case = four_bar("point")
    far = ts.Loop("world", "rocker", ts.Spherical(), ts.SE3.translation(9, 0, 0), name="hook")
    with pytest.raises(ts.ConvergenceError, match=r"'hook: position x' stays open by 6.6") as caught:
        ts.project(case.model, [*case.constraints, far], case.q)
    assert caught.value.index is None
    case = slider_crank()
    with pytest.raises(ts.ConvergenceError, match=r"in state 1 of the batch \(counted flat\) while 'slider'") as caught:
        ts.project(case.model, case.constraints, [[0.3, -0.5, 1.9], [0.3, -0.5, 2.1]], keep=["slider"])
    assert caught.value.index == 1


def test_massless_bodies_are_refused_unless_they_are_kept():
    builder = ts.ModelBuilder()
    builder.add_body("a", "world", ts.Revolute((0, 1, 0)), inertia=rod(1.0))
    builder.add_body("b", "a", ts.Revolute((0, 1, 0)), ts.SE3.translation(1, 0, 0))
    model = builder.build()
    held = [ts.PrescribedJoint("a", 0.3)]
    with pytest.raises(ts.SingularMassMatrixError, match=r"singular at joint 'b': .* or name it in keep="):
        ts.project(model, held, np.zeros(2))
    with pytest.raises(ts.SingularMassMatrixError, match="in state 0 of the batch"):
        ts.project(model, held, np.zeros((2, 2)))
    close(ts.project(model, held, [0.0, 0.2], keep=["b"]), [0.3, 0.2])


def test_points_of_a_distance_that_coincide():
    builder = ts.ModelBuilder()
    builder.add_body("arm", "world", ts.Revolute((0, 1, 0)), inertia=ts.Inertia.box(mass=1.0, size=(1, 1, 1)))
    rod = ts.Distance("world", (0, 0, 0), "arm", (0, 0, 0), 1.0, name="rod")
    with pytest.raises(ts.ConstraintError, match="'rod' has no derivative at q: points of a distance coincide"):
        ts.project(builder.build(), [rod], [0.0])


class Never(ts.CustomConstraint):
    """A row that nothing satisfies."""

    rows = 1

    def value(self, q, t, p):
        return np.ones(1) + 0 * t


def test_a_model_that_cannot_move():
    builder = ts.ModelBuilder()
    builder.add_body("post", "world", ts.Fixed(), inertia=ts.Inertia.box(mass=1.0, size=(1, 1, 1)))
    model = builder.build()
    for q in (np.zeros(0), np.zeros((3, 0))):
        with pytest.raises(ts.ConvergenceError, match="stays open by 1: the model cannot move"):
            ts.project(model, [Never()], q)
