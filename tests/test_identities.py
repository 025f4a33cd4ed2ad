"""Identities of mechanics over random trees of every joint."""

from functools import cache

import numpy as np
from compare import close, conditioned
from hypothesis import given, settings
from hypothesis import strategies as st
from population import state

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


def along(f, model, q, v, a=None):
    """df/dt of f(q, v) when the state moves with v and a, by a complex step."""
    with complex_inputs():
        moved = model.plus(q, 1j * STEP * v)
        return np.imag(f(moved) if a is None else f(moved, v + 1j * STEP * a)) / STEP


# ---- dynamics


@over_trees
def test_forward_dynamics_inverts_inverse_dynamics(model, rng):
    q, v, a, _, f = state(model, rng)
    tau = ts.inverse_dynamics(model, q, v, a, f_ext=f)
    close(ts.forward_dynamics(model, q, v, tau, f_ext=f), a, conditioned(model, q, solutions=3))


@over_trees
def test_hybrid_dynamics_is_forward_or_inverse_dynamics_or_between(model, rng):
    q, v, a, _, f = state(model, rng)
    tau = ts.inverse_dynamics(model, q, v, a, f_ext=f)
    tol = conditioned(model, q, solutions=3)
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
    q, v, a, _, f = state(model, rng)
    T = ts.body_poses(model, q)
    R = T[:, :3, :3]
    world = np.einsum("bji,bj->bi", np.linalg.inv(spatial.Ad(T)), f)
    turned = np.concatenate([(R @ f[:, :3, None])[..., 0], (R @ f[:, 3:, None])[..., 0]], -1)
    tol = conditioned(model, q, solutions=3)
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
    q, v, a, _, f = state(model, rng)
    M = ts.mass_matrix(model, q)
    bias = ts.bias_forces(model, q, v, f_ext=f)
    columns = [ts.inverse_dynamics(model, q, v, e, f_ext=f) - bias for e in np.eye(model.nv)]
    close(M, np.array(columns).reshape(model.nv, model.nv), 1e-11)  # differences of torques ten times as large
    assert np.array_equal(M, M.T)
    if model.nv:
        assert np.linalg.eigvalsh(M)[0] > 0
    inverse = ts.mass_matrix_inverse(model, q)
    assert np.array_equal(inverse, inverse.T)
    close(inverse @ M, np.eye(model.nv), conditioned(model, q, solutions=3))
    close(ts.mass_matrix_solve(model, q, a), inverse @ a, conditioned(model, q, solutions=3))
    close(ts.kinetic_energy(model, q, v), 0.5 * v @ M @ v)


@over_trees
def test_mass_matrix_solve_with_added_terms(model, rng):
    q, x, *_ = state(model, rng)
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
        allowed = 1e-14 * np.linalg.cond(M + added) if M.size else 0.0  # what a solution may lose
        close(ts.mass_matrix_solve(model, q, x, **terms), np.linalg.solve(M + added, x), allowed)


@over_trees
def test_coriolis_matrix(model, rng):
    q, v, *_ = state(model, rng)
    C, bias = ts.coriolis_matrix(model, q, v), ts.bias_forces(model, q, v)
    close(C @ v + ts.gravity_forces(model, q), bias)
    Mdot = along(lambda q: ts.mass_matrix(model, q), model, q, v)
    close(C + C.T, Mdot)  # Mdot - 2 C is skew


@over_trees
def test_power_balance(model, rng):
    q, v, a, _, f = state(model, rng)
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
    q, v, a, *_ = state(model, rng)
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
    q, v, x, _, y = state(model, rng)
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
    q, v, *_ = state(model, rng)
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
    q, v, a, _, f = state(model, rng)
    tau = ts.inverse_dynamics(model, q, v, a, f_ext=f)
    F = ts.joint_reactions(model, q, v, a, f_ext=f)
    assert F.shape == (model.nbodies, 6)
    for j, wrench in zip(model.joints, F, strict=True):
        close(
            j.joint.S(q[j.q_slice]).T @ wrench / max(1, np.abs(F).max()),
            (tau - model.armature * a)[j.v_slice] / max(1, np.abs(F).max()),
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
        builder.add_body(
            b.name, "base" if b.parent == "world" else b.parent, b.joint, b.placement, b.inertia, armature=b.armature
        )
    return builder.build()


@over_trees
def test_momentum_of_a_floating_tree_changes_by_gravity_and_wrenches_alone(model, rng):
    model = floating(model, rng)
    q, v, tau, _, f = state(model, rng)
    tau[:6] = 0
    a = ts.forward_dynamics(model, q, v, tau, f_ext=f)
    tol = conditioned(model, q, solutions=3) * 10
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
    q, v, a, _, f = state(model, rng)
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


def test_what_stands_still_is_carried():
    """The reaction at the root of fixed bodies is the weight of all of them."""
    rng = np.random.default_rng(0)
    builder = ts.ModelBuilder()
    for k in range(3):
        pose, inertia = testing.random_pose(rng), testing.random_inertia(rng)
        builder.add_body(f"b{k}", f"b{k - 1}" if k else "world", None, pose, inertia)
    model = builder.build()
    force = ts.joint_reactions(model, [], [], [])[0, 3:]
    close(np.linalg.norm(force), 9.81 * sum(body.inertia.mass for body in model.bodies))
