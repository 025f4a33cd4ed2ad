"""Identities of mechanics over random trees of every joint; and how one asks changes no bit of the answer."""

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import torsor as ts
from torsor import spatial, testing
from torsor.testing import complex_inputs, complex_step

JOINTS = (*testing.example_joints(), ts.Fixed())
STEP = testing.STEP
steady = settings(max_examples=25, deadline=None, derandomize=True, print_blob=False)


@cache
def tree(joints, seed):
    return testing.random_tree(seed, [JOINTS[k] for k in joints])


# A tree of one to nine joints, any of the list, and the seed of its shape, inertias and state.
trees = st.builds(
    lambda joints, seed: (tree(tuple(joints), seed), seed),
    st.lists(st.integers(0, len(JOINTS) - 1), min_size=1, max_size=9),
    st.integers(0, 2**16),
)
# Every joint at once; what must hold for all of them is shown for this tree too.
ALL = testing.random_tree(7, JOINTS)


def over_trees(test):
    """Runs test(model, rng) over drawn trees, and over the tree of all joints."""

    @steady
    @given(trees)
    def drawn(case):
        test(case[0], np.random.default_rng(case[1]))

    def both():
        test(ALL, np.random.default_rng(7))
        drawn()

    both.__name__, both.__doc__ = test.__name__, test.__doc__
    return both


def state(model, rng, batch=()):
    """q, v, a and external wrenches."""
    sizes = (model.nv,), (model.nv,), (model.nbodies, 6)
    return model.random(rng, batch or None), *(rng.standard_normal((*batch, *size)) for size in sizes)


def close(x, y, tol=1e-12):
    """Agreement to `tol` of the largest entry, or of 1: a sum of some hundred terms, each rounded."""
    scale = max(1.0, np.abs(y).max(initial=0.0))
    np.testing.assert_allclose(x / scale, y / scale, rtol=0, atol=tol)


def conditioned(M):
    """What a solution with M may lose: 1e-14 times its condition number."""
    return 1e-14 * np.linalg.cond(M) if M.size else 1e-14


def along(f, model, q, v, a=None):
    """df/dt of f(q, v) when the state moves with v and a, by a complex step."""
    with complex_inputs():
        moved = model.plus(q, 1j * STEP * v)
        return np.imag(f(moved) if a is None else f(moved, v + 1j * STEP * a)) / STEP


# ---- dynamics


@over_trees
def test_forward_dynamics_inverts_inverse_dynamics(model, rng):
    q, v, a, f = state(model, rng)
    tau = ts.inverse_dynamics(model, q, v, a, f_ext=f)
    close(ts.forward_dynamics(model, q, v, tau, f_ext=f), a, conditioned(ts.mass_matrix(model, q)))


@over_trees
def test_hybrid_dynamics_is_forward_or_inverse_dynamics_or_between(model, rng):
    q, v, a, f = state(model, rng)
    tau = ts.inverse_dynamics(model, q, v, a, f_ext=f)
    tol = conditioned(ts.mass_matrix(model, q))
    names = [j.name for j in model.joints]
    junk = np.full(model.nv, 1e3)
    some = [n for n in names if rng.uniform() < 0.5]
    mask = np.zeros(model.nv, bool)
    for name in some:
        mask[model.joint(name).v_slice] = True
    single = rng.uniform(size=model.nv) < 0.5  # single velocities, also of one joint
    for prescribed, given_a in (
        (names, ~np.zeros_like(mask)),
        ([], np.zeros_like(mask)),
        (some, mask),
        (single, single),
    ):
        x, y = ts.hybrid_dynamics(
            model,
            q,
            v,
            a=np.where(given_a, a, junk),
            tau=np.where(given_a, junk, tau),
            prescribed=prescribed,
            f_ext=f,
        )
        close(x, a, tol)
        close(y, tau, 10 * tol)
        assert np.array_equal(x[given_a], a[given_a])
        assert np.array_equal(y[~given_a], tau[~given_a])
    x, y = ts.hybrid_dynamics(model, q, v, a=a, tau=tau, prescribed=some)
    x2, y2 = ts.hybrid_dynamics(model, q, v, a=a, tau=tau, prescribed=mask)
    assert np.array_equal(x, x2)
    assert np.array_equal(y, y2)
    x, _ = ts.hybrid_dynamics(model, q, v, tau=tau, prescribed=[])
    close(x, ts.forward_dynamics(model, q, v, tau), tol)
    _, y = ts.hybrid_dynamics(model, q, v, prescribed=names)
    close(y, ts.bias_forces(model, q, v))


@over_trees
def test_wrenches_in_three_frames(model, rng):
    q, v, a, f = state(model, rng)
    T = ts.body_poses(model, q)
    R = T[:, :3, :3]
    world = np.einsum("bji,bj->bi", np.linalg.inv(spatial.Ad(T)), f)
    turned = np.concatenate([(R @ f[:, :3, None])[..., 0], (R @ f[:, 3:, None])[..., 0]], -1)
    tol = conditioned(ts.mass_matrix(model, q))
    for function in (ts.inverse_dynamics, ts.forward_dynamics, ts.joint_reactions):
        expected = function(model, q, v, a, f_ext=f)
        for frame, wrench in (("body", f), ("world", world), ("local_world_aligned", turned)):
            close(function(model, q, v, a, f_ext=wrench, f_ext_frame=frame), expected, tol)
    # without motion and gravity, torques hold against the wrenches: tau = -J^T f
    still = model.with_gravity((0, 0, 0))
    close(
        ts.bias_forces(still, q, 0 * v, f_ext=world, f_ext_frame="world"),
        -ts.jacobian_transpose_product(model, q, f),
    )
    some = [j.name for j in model.joints][::2]
    x, y = (
        ts.hybrid_dynamics(model, q, v, a=a, tau=a, prescribed=some, f_ext=w, f_ext_frame=frame)
        for w, frame in ((f, "body"), (world, "world"))
    )
    close(x[0], y[0], tol)
    close(x[1], y[1], 10 * tol)


@over_trees
def test_mass_matrix(model, rng):
    q, v, a, f = state(model, rng)
    M = ts.mass_matrix(model, q)
    bias = ts.bias_forces(model, q, v, f_ext=f)
    columns = [ts.inverse_dynamics(model, q, v, e, f_ext=f) - bias for e in np.eye(model.nv)]
    close(M, np.array(columns).reshape(model.nv, model.nv), 1e-11)  # differences of torques ten times as large
    assert np.array_equal(M, M.T)
    if model.nv:
        assert np.linalg.eigvalsh(M)[0] > 0
    inverse = ts.mass_matrix_inverse(model, q)
    assert np.array_equal(inverse, inverse.T)
    close(inverse @ M, np.eye(model.nv), conditioned(M))
    close(ts.mass_matrix_solve(model, q, a), inverse @ a, conditioned(M))
    close(ts.kinetic_energy(model, q, v), 0.5 * v @ M @ v)


@over_trees
def test_mass_matrix_solve_with_added_terms(model, rng):
    q, x, _, _ = state(model, rng)
    d = rng.uniform(0, 3, model.nv)
    P = rng.standard_normal((model.nbodies, 6, 6))
    P = P @ np.swapaxes(P, -1, -2)
    M, J = ts.mass_matrix(model, q), ts.maximal_jacobian(model, q).reshape(model.nbodies, 6, model.nv)
    JPJ = np.einsum("bik,bij,bjl->kl", J, P, J)
    for added, terms in (
        (np.diag(d), {"joint_terms": d}),
        (JPJ, {"body_terms": P}),
        (np.diag(d) + JPJ, {"joint_terms": d, "body_terms": P}),
    ):
        close(ts.mass_matrix_solve(model, q, x, **terms), np.linalg.solve(M + added, x), conditioned(M + added))


@over_trees
def test_coriolis_matrix(model, rng):
    q, v, _, _ = state(model, rng)
    C, bias = ts.coriolis_matrix(model, q, v), ts.bias_forces(model, q, v)
    close(C @ v + ts.gravity_forces(model, q), bias)
    Mdot = along(lambda q: ts.mass_matrix(model, q), model, q, v)
    close(C + C.T, Mdot)  # Mdot - 2 C is skew


@over_trees
def test_power_balance(model, rng):
    q, v, a, f = state(model, rng)
    tau = ts.inverse_dynamics(model, q, v, a, f_ext=f)

    def energy(q, v):
        return ts.kinetic_energy(model, q, v) + ts.potential_energy(model, q)

    power = tau @ v + np.sum(f * ts.body_velocities(model, q, v))
    close(along(energy, model, q, v, a), power, 1e-11)  # sums of powers ten times as large
    gradient = complex_step(lambda d: ts.potential_energy(model, model.plus(q, d)), np.zeros(model.nv))
    close(ts.gravity_forces(model, q), gradient)


# ---- kinematics


@over_trees
def test_velocities_and_accelerations_are_rates_of_poses(model, rng):
    q, v, a, _ = state(model, rng)
    T = ts.body_poses(model, q)
    R, p = T[:, :3, :3], T[:, :3, 3]
    Tdot = along(lambda q: ts.body_poses(model, q), model, q, v)
    body = ts.body_velocities(model, q, v)
    world = ts.body_velocities(model, q, v, frame="world")
    local = ts.body_velocities(model, q, v, frame="local_world_aligned")
    inverse = np.linalg.inv(T)
    close(body, spatial.vee6(inverse @ Tdot))
    close(world, spatial.vee6(Tdot @ inverse))
    close(local, np.concatenate([spatial.vee(Tdot[:, :3, :3] @ np.swapaxes(R, 1, 2)), Tdot[:, :3, 3]], -1))

    def rate(frame):
        return along(lambda q, v: ts.body_velocities(model, q, v, frame=frame), model, q, v, a)

    for frame in ("body", "world", "local_world_aligned"):
        close(ts.body_accelerations(model, q, v, a, frame=frame), rate(frame), 1e-11)
    # points fixed in bodies
    points, names = rng.standard_normal((model.nbodies, 3)), [b.name for b in model.bodies]
    x = ts.point_positions(model, q, names, points)
    close(x, (R @ points[..., None])[..., 0] + p)
    Jx = ts.point_jacobian(model, q, names, points)
    close(Jx @ v, along(lambda q: ts.point_positions(model, q, names, points), model, q, v))
    close(Jx @ v, local[:, 3:] + np.cross(local[:, :3], x - p))
    one = names[-1]
    close(ts.point_positions(model, q, one, points[-1]), x[-1])
    close(ts.point_positions(model, q, one, points[-1:]), x[-1:])
    close(ts.point_jacobian(model, q, one, points[-1]), Jx[-1])
    close(ts.point_jacobian(model, q, one) @ v, local[-1, 3:])


@over_trees
def test_jacobians_and_their_products(model, rng):
    q, v, x, y = state(model, rng)
    J, Jdot = ts.maximal_jacobian(model, q), ts.maximal_jacobian_dot(model, q, v)
    assert J.shape == Jdot.shape == (6 * model.nbodies, model.nv)
    close(Jdot, along(lambda q: ts.maximal_jacobian(model, q), model, q, v))
    close(ts.jacobian_product(model, q, x).ravel(), J @ x)
    close(ts.jacobian_dot_product(model, q, v, x).ravel(), Jdot @ x)
    close(ts.jacobian_transpose_product(model, q, y), J.T @ y.ravel())
    close(ts.body_accelerations(model, q, v, x).ravel(), J @ x + Jdot @ v, 1e-11)
    for frame in ("body", "world", "local_world_aligned"):
        V = ts.body_velocities(model, q, v, frame=frame)
        for k, body in enumerate(model.bodies):
            close(ts.jacobian(model, q, body.name, frame=frame) @ v, V[k])
    for k, body in enumerate(model.bodies):
        close(ts.jacobian(model, q, body.name), J[6 * k : 6 * k + 6])
    # a joint moves what hangs on it, and nothing else
    for k, body in enumerate(model.bodies):
        above = {body.name}
        while model.body(body.name).parent != "world":
            body = model.body(body.parent)
            above.add(body.name)
        for j in model.joints:
            if j.body not in above:
                assert not J[6 * k : 6 * k + 6, j.v_slice].any()


# ---- momentum, centre of mass, reactions


def moving(model):
    """Bodies that are not fixed to the world."""
    fixed = {"world"}
    for b in model.bodies:
        if b.joint.nv == 0 and b.parent in fixed:
            fixed.add(b.name)
    return np.array([b.name not in fixed for b in model.bodies])


@over_trees
def test_centre_of_mass_and_momentum(model, rng):
    q, v, _, _ = state(model, rng)
    keep = moving(model)
    if not keep.any():
        assert np.isnan(ts.center_of_mass(model, q)).all()
        return
    masses = np.array([b.inertia.mass for b in model.bodies])[keep]
    points = ts.point_positions(model, q, [b.name for b in model.bodies], [b.inertia.com for b in model.bodies])[keep]
    com = ts.center_of_mass(model, q)
    close(com, masses @ points / masses.sum())
    J = ts.center_of_mass_jacobian(model, q)
    close(J, complex_step(lambda d: ts.center_of_mass(model, model.plus(q, d)), np.zeros(model.nv)))
    close(ts.potential_energy(model, q), -masses.sum() * np.dot(model.gravity, com))
    # momentum as the sum over bodies, about either point
    twists = ts.body_velocities(model, q, v, frame="local_world_aligned")[keep]
    T = ts.body_poses(model, q)[keep]
    for about, centre in (("com", com), ("world", np.zeros(3))):
        h = ts.momentum(model, q, v, about=about)
        total = np.zeros(6)
        for body, pose, twist in zip(np.array(model.bodies, object)[keep], T, twists, strict=True):
            R, I = pose[:3, :3], body.inertia
            point = R @ I.com + pose[:3, 3]
            linear = I.mass * (twist[3:] + np.cross(twist[:3], R @ I.com))
            total += [*(R @ I.I_com @ R.T @ twist[:3] + np.cross(point - centre, linear)), *linear]
        close(h, total)
        close(ts.momentum_matrix(model, q, about=about) @ v, h)
    close(ts.momentum(model, q, v)[3:], masses.sum() * J @ v)
    assert np.array_equal(ts.momentum(model, q, v), ts.momentum(model, q, v, about="com"))


@over_trees
def test_reactions(model, rng):
    q, v, a, f = state(model, rng)
    tau = ts.inverse_dynamics(model, q, v, a, f_ext=f)
    F = ts.joint_reactions(model, q, v, a, f_ext=f)
    assert F.shape == (model.nbodies, 6)
    for j, wrench in zip(model.joints, F, strict=True):
        close(
            j.joint.S(q[j.q_slice]).T @ wrench / max(1, np.abs(F).max()),
            tau[j.v_slice] / max(1, np.abs(F).max()),
        )
    # each body: what comes from its parent and from outside, less what goes to its children, accelerates it
    T = ts.body_poses(model, q)
    V, A = ts.body_velocities(model, q, v), ts.body_accelerations(model, q, v, a)
    names = [b.name for b in model.bodies]
    to_world = np.swapaxes(np.linalg.inv(spatial.Ad(T)), -1, -2)
    total = np.zeros(6)
    for k, body in enumerate(model.bodies):
        weight = np.concatenate([np.zeros(3), T[k, :3, :3].T @ model.gravity])
        I = spatial_inertia(body.inertia)
        needed = I @ (A[k] - weight) - spatial.ad(V[k]).T @ I @ V[k]
        left = to_world[k] @ (F[k] + f[k] - needed)
        left -= sum(
            to_world[names.index(c.name)] @ F[names.index(c.name)] for c in model.bodies if c.parent == body.name
        )
        close(left / max(1, np.abs(to_world @ F[..., None]).max()), np.zeros(6))
        if body.parent == "world":
            total += to_world[k] @ F[k]
    # what the world gives, with gravity and the external wrenches, changes the momentum
    keep = moving(model)
    masses = np.array([b.inertia.mass for b in model.bodies])
    if keep.all():
        rate = along(lambda q, v: ts.momentum(model, q, v, about="world"), model, q, v, a)
        pull = masses.sum() * np.array(model.gravity)
        outside = [*np.cross(ts.center_of_mass(model, q), pull), *pull] + np.einsum("bij,bj->i", to_world, f)
        close(total + outside, rate, 1e-11)


def spatial_inertia(inertia):
    """The 6 x 6 matrix about the origin of the body's frame."""
    m, c = inertia.mass, spatial.hat(inertia.com)
    return np.block([[inertia.I_com - m * c @ c, m * c], [-m * c, m * np.eye(3)]])


def floating(inner, rng):
    """The tree on a free body of its own."""
    builder = ts.ModelBuilder(gravity=inner.gravity).add_body(
        "base", "world", ts.Free(), inertia=testing.random_inertia(rng)
    )
    for b in inner.bodies:
        builder.add_body(b.name, "base" if b.parent == "world" else b.parent, b.joint, b.placement, b.inertia)
    return builder.build()


@over_trees
def test_momentum_of_a_floating_tree_changes_by_gravity_and_wrenches_alone(model, rng):
    model = floating(model, rng)
    q, v, tau, f = state(model, rng)
    tau[:6] = 0
    a = ts.forward_dynamics(model, q, v, tau, f_ext=f)
    tol = conditioned(ts.mass_matrix(model, q)) * 10
    to_world = np.swapaxes(np.linalg.inv(spatial.Ad(ts.body_poses(model, q))), -1, -2)
    centre, pull = ts.center_of_mass(model, q), model.mass * np.array(model.gravity)
    for about in ("com", "world"):
        rate = along(lambda q, v, about=about: ts.momentum(model, q, v, about=about), model, q, v, a)
        outside = np.einsum("bij,bj->i", to_world, f) + [*np.cross(centre, pull), *pull]
        if about == "com":
            outside[:3] -= np.cross(centre, outside[3:])
        close(rate, outside, tol)


@over_trees
def test_far_from_the_origin(model, rng):
    # A position of 1e4 is known to 1e-12; no more is lost, as recursions are about the bodies' own origins.
    model = floating(model, rng)
    q, v, a, f = state(model, rng)
    far = q.copy()
    far[:3] += 1e4
    tau = ts.inverse_dynamics(model, far, v, a, f_ext=f)
    close(ts.forward_dynamics(model, far, v, tau, f_ext=f), a, 1e-9)
    close(tau, ts.inverse_dynamics(model, q, v, a, f_ext=f), 1e-11)
    close(ts.mass_matrix(model, far), ts.mass_matrix(model, q), 1e-11)
    close(ts.coriolis_matrix(model, far, v), ts.coriolis_matrix(model, q, v), 1e-11)
    close(ts.mass_matrix_solve(model, far, a), ts.mass_matrix_solve(model, q, a), 1e-9)
    close(ts.joint_reactions(model, far, v, a), ts.joint_reactions(model, q, v, a), 1e-11)
    close(ts.momentum(model, far, v), ts.momentum(model, q, v), 1e-11)


# ---- how one asks makes no difference, to the last bit


def functions(model, rng, n):
    """Every value function as f(*arrays, **options) with the arrays of n states."""
    q, v, a, f = state(model, rng, (n,))
    q1 = model.random(rng, n)
    names = [b.name for b in model.bodies]
    points = rng.standard_normal((n, model.nbodies, 3))
    mask = rng.uniform(size=model.nv) < 0.4
    d = rng.uniform(0, 1, (n, model.nv))
    P = rng.standard_normal((n, model.nbodies, 6, 6))
    P = P @ np.swapaxes(P, -1, -2)
    wrench = lambda f: lambda m, *x, **o: f(m, *x[:-1], f_ext=x[-1], **o)  # noqa: E731
    yield from (
        ("inverse_dynamics", wrench(ts.inverse_dynamics), (q, v, a, f)),
        ("forward_dynamics", wrench(ts.forward_dynamics), (q, v, a, f)),
        ("joint_reactions", wrench(ts.joint_reactions), (q, v, a, f)),
        ("bias_forces", wrench(ts.bias_forces), (q, v, f)),
        ("without wrenches", ts.inverse_dynamics, (q, v, a)),
        ("forward without", ts.forward_dynamics, (q, v, a)),
        (
            "hybrid_dynamics",
            lambda m, q, v, a, t, f, **o: ts.hybrid_dynamics(m, q, v, a=a, tau=t, f_ext=f, prescribed=mask, **o),
            (q, v, a, d, f),
        ),
        ("gravity_forces", ts.gravity_forces, (q,)),
        ("mass_matrix", ts.mass_matrix, (q,)),
        ("mass_matrix_inverse", ts.mass_matrix_inverse, (q,)),
        (
            "mass_matrix_solve",
            lambda m, q, x, d, P, **o: ts.mass_matrix_solve(m, q, x, joint_terms=d, body_terms=P, **o),
            (q, a, d, P),
        ),
        ("coriolis_matrix", ts.coriolis_matrix, (q, v)),
        ("kinetic_energy", ts.kinetic_energy, (q, v)),
        ("potential_energy", ts.potential_energy, (q,)),
        ("momentum", ts.momentum, (q, v)),
        ("momentum_matrix", ts.momentum_matrix, (q,)),
        ("center_of_mass", ts.center_of_mass, (q,)),
        ("center_of_mass_jacobian", ts.center_of_mass_jacobian, (q,)),
        ("body_poses", ts.body_poses, (q,)),
        ("body_velocities", lambda m, *x, **o: ts.body_velocities(m, *x, frame="world", **o), (q, v)),
        (
            "body_accelerations",
            lambda m, *x, **o: ts.body_accelerations(m, *x, frame="world", **o),
            (q, v, a),
        ),
        ("jacobian", lambda m, q, **o: ts.jacobian(m, q, names[-1], frame="world", **o), (q,)),
        ("point_positions", lambda m, q, x, **o: ts.point_positions(m, q, names, x, **o), (q, points)),
        ("point_jacobian", lambda m, q, x, **o: ts.point_jacobian(m, q, names, x, **o), (q, points)),
        ("maximal_jacobian", ts.maximal_jacobian, (q,)),
        ("maximal_jacobian_dot", ts.maximal_jacobian_dot, (q, v)),
        ("jacobian_product", ts.jacobian_product, (q, v)),
        ("jacobian_dot_product", ts.jacobian_dot_product, (q, v, a)),
        ("jacobian_transpose_product", ts.jacobian_transpose_product, (q, f)),
        ("plus", ts.Model.plus, (q, v)),
        ("minus", ts.Model.minus, (q1, q)),
        ("normalize", ts.Model.normalize, (q,)),
    )


def as_tuple(result):
    return result if isinstance(result, tuple) else (result,)


def identical(x, y):
    return all(np.array_equal(a, b, equal_nan=True) for a, b in zip(as_tuple(x), as_tuple(y), strict=True))


def case_ids():
    return [name for name, _, _ in functions(ts.models.pendulum(), np.random.default_rng(0), 1)]


@pytest.mark.parametrize("name", case_ids())
def test_batches_lanes_and_threads_change_no_bit(name):
    n = 330  # more than one block of any machine's lanes, and no multiple of them
    _, f, arrays = next(c for c in functions(ALL, np.random.default_rng(1), n) if c[0] == name)
    whole = as_tuple(f(ALL, *arrays))
    picked = [0, 1, 2, 3, 4, 5, 6, 7, 8, 127, 128, 129, 200, n - 1]
    for k in picked:
        assert identical(f(ALL, *(x[k] for x in arrays)), tuple(x[k] for x in whole)), k
    for threads in (0, 2, 5):
        assert identical(f(ALL, *arrays, threads=threads), whole)
    for k in (1, 2, 3, 5, 9):  # other lanes, other lengths
        assert identical(f(ALL, *(x[k:-k] for x in arrays)), tuple(x[k:-k] for x in whole))
    shape = (2, 3, 1, 55)
    shaped = f(ALL, *(x.reshape(*shape, *x.shape[1:]) for x in arrays), threads=2)
    assert identical(shaped, tuple(x.reshape(*shape, *x.shape[1:]) for x in whole))


@pytest.mark.parametrize("name", case_ids())
def test_complex_results_have_the_real_ones_as_real_part(name):
    _, f, arrays = next(c for c in functions(ALL, np.random.default_rng(2), 3) if c[0] == name)
    real = as_tuple(f(ALL, *arrays))
    with complex_inputs():
        batch = as_tuple(f(ALL, *(x.astype(complex) for x in arrays)))
        single = as_tuple(f(ALL, *(x[1].astype(complex) for x in arrays)))
        mixed = as_tuple(f(ALL, arrays[0] + 0j, *arrays[1:]))
    # the solutions of linear systems amplify roundings, which are others in complex numbers
    tol = (
        conditioned(ts.mass_matrix(ALL, arrays[0][0])) * 100
        if name.startswith(("forward", "hybrid")) or "_inverse" in name
        else 1e-11
    )
    for x, y, z, w in zip(real, batch, single, mixed, strict=True):
        assert y.dtype == z.dtype == np.complex128
        assert not y.imag.any()
        close(y.real, x, tol)
        assert np.array_equal(y[1], z)
        assert np.array_equal(y, w)


def shuffled(model, rng):
    """The same tree with its bodies added in another order, and where each q and v of it is in the first."""
    builder, waiting, order = ts.ModelBuilder(model.name, model.gravity), list(model.bodies), []
    added = {"world"}
    while waiting:
        ready = [b for b in waiting if b.parent in added]
        b = ready[rng.integers(len(ready))]
        waiting.remove(b)
        added.add(b.name)
        order.append(b.name)
        builder.add_body(b.name, b.parent, b.joint, b.placement, b.inertia, joint_name=b.joint_name)
    joints = [model.joint(name) for name in order]
    to_q = np.concatenate([np.arange(j.q_slice.start, j.q_slice.stop) for j in joints])
    to_v = np.concatenate([np.arange(j.v_slice.start, j.v_slice.stop) for j in joints])
    return builder.build(), [model._find(name, "body") for name in order], to_q, to_v


def check_order(model, rng):
    other, bodies, to_q, to_v = shuffled(model, rng)
    q, v, a, f = state(model, rng)
    q2, v2, a2, f2 = q[to_q], v[to_v], a[to_v], f[bodies]
    square = np.ix_(to_v, to_v)
    mask = rng.uniform(size=model.nv) < 0.4
    hybrid = [
        ts.hybrid_dynamics(m, q, v, a=a, tau=a, prescribed=p, f_ext=f)
        for m, q, v, a, p, f in ((model, q, v, a, mask, f), (other, q2, v2, a2, mask[to_v], f2))
    ]
    pairs = {
        "ID": (
            ts.inverse_dynamics(other, q2, v2, a2, f_ext=f2),
            ts.inverse_dynamics(model, q, v, a, f_ext=f)[to_v],
        ),
        "FD": (
            ts.forward_dynamics(other, q2, v2, a2, f_ext=f2),
            ts.forward_dynamics(model, q, v, a, f_ext=f)[to_v],
        ),
        "hybrid a": (hybrid[1][0], hybrid[0][0][to_v]),
        "hybrid tau": (hybrid[1][1], hybrid[0][1][to_v]),
        "M": (ts.mass_matrix(other, q2), ts.mass_matrix(model, q)[square]),
        "C": (ts.coriolis_matrix(other, q2, v2), ts.coriolis_matrix(model, q, v)[square]),
        "solve": (ts.mass_matrix_solve(other, q2, a2), ts.mass_matrix_solve(model, q, a)[to_v]),
        "inverse": (ts.mass_matrix_inverse(other, q2), ts.mass_matrix_inverse(model, q)[square]),
        "poses": (ts.body_poses(other, q2), ts.body_poses(model, q)[bodies]),
        "V": (ts.body_velocities(other, q2, v2), ts.body_velocities(model, q, v)[bodies]),
        "A": (ts.body_accelerations(other, q2, v2, a2), ts.body_accelerations(model, q, v, a)[bodies]),
        "reactions": (
            ts.joint_reactions(other, q2, v2, a2, f_ext=f2),
            ts.joint_reactions(model, q, v, a, f_ext=f)[bodies],
        ),
        "J^T y": (
            ts.jacobian_transpose_product(other, q2, f2),
            ts.jacobian_transpose_product(model, q, f)[to_v],
        ),
        "T": (ts.kinetic_energy(other, q2, v2), ts.kinetic_energy(model, q, v)),
        "U": (ts.potential_energy(other, q2), ts.potential_energy(model, q)),
        "com": (ts.center_of_mass(other, q2), ts.center_of_mass(model, q)),
        "h": (ts.momentum(other, q2, v2), ts.momentum(model, q, v)),
        "A_h": (ts.momentum_matrix(other, q2), ts.momentum_matrix(model, q)[:, to_v]),
    }
    assert [name for name, (x, y) in pairs.items() if not np.array_equal(x, y, equal_nan=True)] == []


@over_trees
def test_the_order_of_bodies_changes_no_bit(model, rng):
    check_order(model, rng)
    check_order(model, rng)


def test_the_order_of_bodies_fixed_to_one_body_changes_no_bit():
    rng = np.random.default_rng(3)
    builder = ts.ModelBuilder().add_body("a", "world", ts.Free(), inertia=testing.random_inertia(rng))
    for k, parent in enumerate("aaa012"):
        joint = ts.Fixed() if k < 5 else ts.Revolute()
        builder.add_body(f"{k}", parent, joint, testing.random_pose(rng), testing.random_inertia(rng))
    for _ in range(5):
        check_order(builder.build(), rng)
