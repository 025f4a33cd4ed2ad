"""Derivatives of twists, accelerations, Jacobians and momentum against complex steps of the functions."""

import numpy as np
import pytest
from population import Own

import torsor as ts
from torsor import testing
from torsor.spatial import hat6
from torsor.testing import complex_step

JOINTS = testing.example_joints()
FRAMES = ("body", "world", "local_world_aligned")
TOLERANCE = 1e-12  # of the largest entry, or of 1: some hundred products of that size, each rounded


def with_fixed(seed, joints):
    """A random tree with bodies on fixed joints: on the world, between others, and at the tips."""
    return testing.random_tree(seed, [ts.Fixed(), *joints, ts.Fixed(), ts.Fixed()], branching=0.3)


def models():
    """Two of every joint: in trees on the world, and again in trees on a free base."""
    rng = np.random.default_rng(3)
    for turn in range(2):
        order = rng.permutation(len(JOINTS))
        for first in range(0, len(JOINTS), 6):
            picked = [JOINTS[k] for k in order[first : first + 6]]
            base = [ts.Free()] if turn else []
            yield pytest.param(with_fixed(first + turn, base + picked), id=f"{turn}-{first}")


over_models = pytest.mark.parametrize("model", list(models()))


def state(model, seed=0, batch=None):
    rng = np.random.default_rng(seed)
    shape = (*(batch or ()), model.nv)
    return model.random(rng, batch), rng.standard_normal(shape), rng.standard_normal(shape)


def close(x, y, tol=TOLERANCE):
    scale = max(1.0, np.abs(y).max(initial=0.0))
    np.testing.assert_allclose(x / scale, y / scale, rtol=0, atol=tol)


def along_q(f, model, q):
    return complex_step(lambda d: f(model.plus(q, d)), np.zeros(model.nv))


def bits_equal(x, y):
    assert x.shape == y.shape
    assert x.tobytes() == np.ascontiguousarray(y).tobytes()


# ---- against the functions


@over_models
@pytest.mark.parametrize("frame", FRAMES)
def test_velocities(model, frame):
    q, v, _ = state(model)
    d = ts.body_velocities_derivatives(model, q, v, frame=frame)
    close(d.dV_dq, along_q(lambda q: ts.body_velocities(model, q, v, frame=frame), model, q))
    close(d.dV_dv, complex_step(lambda v: ts.body_velocities(model, q, v, frame=frame), v))
    for i, body in enumerate(model.bodies):
        close(d.dV_dv[i], ts.jacobian(model, q, body.name, frame=frame))


@over_models
@pytest.mark.parametrize("frame", FRAMES)
def test_accelerations(model, frame):
    q, v, a = state(model)
    d = ts.body_accelerations_derivatives(model, q, v, a, frame=frame)
    close(d.dA_dq, along_q(lambda q: ts.body_accelerations(model, q, v, a, frame=frame), model, q))
    close(d.dA_dv, complex_step(lambda v: ts.body_accelerations(model, q, v, a, frame=frame), v))
    close(d.dA_da, complex_step(lambda a: ts.body_accelerations(model, q, v, a, frame=frame), a))


@over_models
def test_poses_move_with_the_columns_of_the_jacobian(model):
    """What the module's docstring says in place of a function."""
    q, v, _ = state(model)
    dT = along_q(lambda q: ts.body_poses(model, q), model, q)
    J = ts.body_velocities_derivatives(model, q, v).dV_dv
    T = ts.body_poses(model, q)
    for k in range(model.nv):
        close(dT[..., k], np.stack([T[i] @ hat6(J[i, :, k]) for i in range(model.nbodies)]))


@over_models
def test_maximal_jacobian(model):
    q, v, _ = state(model)
    d = ts.maximal_jacobian_derivatives(model, q, v)
    close(d.dJ_dq, along_q(lambda q: ts.maximal_jacobian(model, q), model, q))
    close(d.Jdot, ts.maximal_jacobian_dot(model, q, v))
    close(d.Jdot, d.dJ_dq @ v)
    close(d.dJdot_dq, along_q(lambda q: ts.maximal_jacobian_dot(model, q, v), model, q))
    close(d.dJ_dq, complex_step(lambda v: ts.maximal_jacobian_dot(model, q, v), v))


@over_models
def test_point_hessian(model):
    q, _, _ = state(model)
    body, point = model.bodies[-1].name, np.array([0.3, -0.2, 0.5])
    H = ts.point_hessian(model, q, body, point)
    close(H, along_q(lambda q: ts.point_jacobian(model, q, body, point), model, q))
    names = [body.name for body in model.bodies]
    points = np.random.default_rng(1).standard_normal((len(names), 3))
    many = ts.point_hessian(model, q, names, points)
    close(many, along_q(lambda q: ts.point_jacobian(model, q, names, points), model, q))
    # Symmetric, but for two directions of one joint whose directions do not commute.
    skew = np.abs(many - np.swapaxes(many, -1, -2)).max(axis=(0, 1))
    for joint in model.joints:
        lie = (joint.joint, *getattr(joint.joint, "joints", ()))
        if any(isinstance(part, (ts.Spherical, ts.Free)) for part in lie):
            skew[joint.v_slice, joint.v_slice] = 0
    assert skew.max() < TOLERANCE * max(1.0, np.abs(many).max())


@over_models
@pytest.mark.parametrize("about", ["com", "world"])
def test_momentum(model, about):
    q, v, a = state(model)
    d = ts.momentum_derivatives(model, q, v, a, about=about)
    close(d.dh_dq, along_q(lambda q: ts.momentum(model, q, v, about=about), model, q))
    close(d.dh_dv, ts.momentum_matrix(model, q, about=about))

    def rate(q, v):
        d = ts.momentum_derivatives(model, q, v, about=about)
        return d.dh_dq @ v + d.dh_dv @ a

    close(d.dhdot_dq, along_q(lambda q: rate(q, v), model, q))
    close(d.dhdot_dv, complex_step(lambda v: rate(q, v), v))


def test_rate_of_momentum_is_the_wrench_on_the_base():
    """About the world's origin hdot is the wrench of inertial forces, as a free base's torques are."""
    free = testing.random_tree(5, [ts.Free(), *(JOINTS[k] for k in (1, 12, 13, 19))], branching=0.0)
    q, v, a = state(free)
    d = ts.momentum_derivatives(free, q, v, a, about="world")
    hdot = d.dh_dq @ v + d.dh_dv @ a
    held = ts.inverse_dynamics(free, q, v, a) - ts.gravity_forces(free, q)
    J = ts.jacobian(free, q, "body0", frame="world")[:, :6]
    close(J.T @ hdot, held[:6])


def test_joints_of_the_users_own():
    joints = [JOINTS[1], ts.SphericalExp(), JOINTS[5]]
    built_in, own = (
        testing.random_tree(6, [joints[0], j, joints[2]], branching=0.0) for j in (joints[1], Own(joints[1]))
    )
    q, v, a = state(built_in)
    for x, y in zip(calls(own, q, v, a), calls(built_in, q, v, a), strict=True):
        for one, other in zip(x, y, strict=True):
            close(one, other)


# ---- closed forms


def test_pendulum():
    """A point at distance L on a revolute joint: p = L (cos q, sin q, 0)."""
    builder = ts.ModelBuilder()
    builder.add_body("rod", "world", ts.Revolute((0, 0, 1)), inertia=ts.Inertia.point(2.0, (1.5, 0, 0)))
    model = builder.build()
    q, v, a = np.array([0.7]), np.array([1.3]), np.array([-0.4])
    c, s = np.cos(q[0]), np.sin(q[0])
    H = ts.point_hessian(model, q, "rod", (1.5, 0, 0))
    close(H[:, 0, 0], -1.5 * np.array([c, s, 0]))
    d = ts.momentum_derivatives(model, q, v, a)
    close(d.dh_dq[:, 0], 2.0 * 1.5 * v[0] * np.array([0, 0, 0, -c, -s, 0]))
    close(d.dhdot_dv[:, 0], 2.0 * 1.5 * 2 * v[0] * np.array([0, 0, 0, -c, -s, 0]))
    assert not ts.maximal_jacobian_derivatives(model, q, v).dJ_dq.any()


def test_free_body_turns_do_not_commute():
    builder = ts.ModelBuilder()
    builder.add_body("top", "world", ts.Spherical(), inertia=ts.Inertia.point(1.0, (0, 0, 1)))
    model = builder.build()
    H = ts.point_hessian(model, model.neutral, "top", (1.0, 0, 0))
    x = np.array([1.0, 0, 0])
    # J[:, j] = e_j x p, and turning by e_k turns both: the column becomes e_k x (e_j x p).
    expected = np.stack([np.stack([np.cross(k, np.cross(j, x)) for k in np.eye(3)], -1) for j in np.eye(3)], -2)
    close(H, expected)
    assert np.abs(H - np.swapaxes(H, -1, -2)).max() > 0.5


# ---- zeros, batches, distance


@pytest.fixture(scope="module")
def mixed():
    return with_fixed(11, [JOINTS[k] for k in (1, 12, 13, 14, 16, 19, 20, 5)])


def test_structural_zeros_are_exact(mixed):
    q, v, a = state(mixed)
    nv = mixed.nv
    moves = np.zeros((mixed.nbodies, nv), bool)  # which velocities move a body
    for i, body in enumerate(mixed.bodies):
        b = body
        while True:
            moves[i, mixed.joint(b.name).v_slice] = True
            if b.parent == "world":
                break
            b = mixed.body(b.parent)
    assert not moves.all()
    assert moves.any()
    arrays = [
        *ts.body_velocities_derivatives(mixed, q, v),
        *ts.body_accelerations_derivatives(mixed, q, v, a, frame="world"),
        *ts.body_accelerations_derivatives(mixed, q, v, a, frame="local_world_aligned"),
    ]
    for x in arrays:
        assert not x[np.broadcast_to(~moves[:, None, :], x.shape)].any()
    d = ts.maximal_jacobian_derivatives(mixed, q, v)
    pairs = moves[:, :, None] & moves[:, None, :]
    for x in (d.dJ_dq, d.dJdot_dq):
        x = x.reshape(mixed.nbodies, 6, nv, nv)
        assert not x[np.broadcast_to(~pairs[:, None], x.shape)].any()
        # Columns of a joint do not change, in the frames of the bodies that they move, along joints above it.
        for body in mixed.bodies:
            joint = mixed.joint(body.name)
            while body.parent != "world":
                body = mixed.body(body.parent)
                assert not x[:, :, joint.v_slice, mixed.joint(body.name).v_slice].any()
    H = ts.point_hessian(mixed, q, [b.name for b in mixed.bodies], np.ones((mixed.nbodies, 3)))
    assert not H[np.broadcast_to(~pairs[:, None], H.shape)].any()


def calls(model, q, v, a, **more):
    """Every function, as name and tuple of arrays."""
    names = [b.name for b in model.bodies]
    points = np.random.default_rng(2).standard_normal((len(names), 3))
    for frame in FRAMES:
        yield ts.body_velocities_derivatives(model, q, v, frame=frame, **more)
        yield ts.body_accelerations_derivatives(model, q, v, a, frame=frame, **more)
    for about in ("com", "world"):
        yield ts.momentum_derivatives(model, q, v, a, about=about, **more)
    yield ts.maximal_jacobian_derivatives(model, q, v, **more)
    yield (ts.point_hessian(model, q, names, points, **more),)


@pytest.mark.parametrize("threads", [1, 2])
def test_batch_is_single_to_the_last_bit(mixed, threads):
    # More states than one thread takes at a time, and a part of a vector left over.
    q, v, a = state(mixed, batch=(3, 47))
    batched = [tuple(x.copy() for x in record) for record in calls(mixed, q, v, a, threads=threads)]
    for s in ((0, 0), (1, 23), (2, 46)):
        for many, one in zip(batched, calls(mixed, q[s], v[s], a[s]), strict=True):
            for x, y in zip(many, one, strict=True):
                bits_equal(y, x[s])


def test_digits_far_from_the_origin():
    """Seen from each body, nothing depends on where the world's origin is."""
    joints = [JOINTS[k] for k in (1, 13, 5)]
    near, far = ts.ModelBuilder(), ts.ModelBuilder()
    for builder, distance in ((near, 0.0), (far, 1e8)):
        rng = np.random.default_rng(4)
        parent = "world"
        for k, joint in enumerate(joints):
            place = testing.random_pose(rng)
            if k == 0:
                place = ts.SE3.translation(distance, -distance, distance) @ ts.SE3(place.R, np.zeros(3))
            builder.add_body(f"b{k}", parent, joint, place, testing.random_inertia(rng))
            parent = f"b{k}"
    near, far = near.build(), far.build()
    q, v, a = state(near)
    for frame in ("body", "local_world_aligned"):
        for f in (ts.body_velocities_derivatives, ts.body_accelerations_derivatives):
            arguments = (q, v) if f is ts.body_velocities_derivatives else (q, v, a)
            for x, y in zip(f(far, *arguments, frame=frame), f(near, *arguments, frame=frame), strict=True):
                close(x, y)
    for x, y in zip(
        ts.maximal_jacobian_derivatives(far, q, v), ts.maximal_jacobian_derivatives(near, q, v), strict=True
    ):
        close(x, y)
    for x, y in zip(
        ts.momentum_derivatives(far, q, v, a),
        ts.momentum_derivatives(near, q, v, a),
        strict=True,
    ):
        close(x, y)
    close(ts.point_hessian(far, q, "b2", (1, 2, 3)), ts.point_hessian(near, q, "b2", (1, 2, 3)))


# ---- arguments


def test_what_is_not_asked_for_is_none(mixed):
    q, v, a = state(mixed)
    full = ts.maximal_jacobian_derivatives(mixed, q, v)
    at_rest = ts.maximal_jacobian_derivatives(mixed, q)
    assert at_rest.Jdot is None
    assert at_rest.dJdot_dq is None
    bits_equal(at_rest.dJ_dq, full.dJ_dq)
    only = ts.maximal_jacobian_derivatives(mixed, q, v, outputs=["dJdot_dq"])
    assert only.dJ_dq is None
    bits_equal(only.dJdot_dq, full.dJdot_dq)
    h = ts.momentum_derivatives(mixed, q, v)
    assert h.dhdot_dq is None
    assert h.dhdot_dv is None
    bits_equal(h.dh_dq, ts.momentum_derivatives(mixed, q, v, a).dh_dq)
    d = ts.body_accelerations_derivatives(mixed, q, v, a, outputs=["dA_dv"])
    assert d.dA_dq is None
    assert d.dA_da is None
    bits_equal(d.dA_dv, ts.body_accelerations_derivatives(mixed, q, v, a).dA_dv)


def test_out_receives_the_results(mixed):
    q, v, a = state(mixed, batch=(5,))
    for f, arguments in (
        (ts.body_velocities_derivatives, (q, v)),
        (ts.body_accelerations_derivatives, (q, v, a)),
        (ts.maximal_jacobian_derivatives, (q, v)),
        (ts.momentum_derivatives, (q, v, a)),
    ):
        expected = f(mixed, *arguments)
        out = type(expected)(*(np.full_like(x, np.nan) for x in expected))
        result = f(mixed, *arguments, out=out)
        for x, y, z in zip(result, out, expected, strict=True):
            assert x is y
            bits_equal(x, z)
    expected = ts.point_hessian(mixed, q, mixed.bodies[-1].name, (1, 2, 3))
    out = np.full_like(expected, np.nan)
    assert ts.point_hessian(mixed, q, mixed.bodies[-1].name, (1, 2, 3), out=out) is out
    bits_equal(out, expected)


def test_batch_shapes_broadcast(mixed):
    q, _, _ = state(mixed)
    vs = np.random.default_rng(1).standard_normal((2, 3, mixed.nv))
    d = ts.body_velocities_derivatives(mixed, q, vs)
    assert d.dV_dq.shape == (2, 3, mixed.nbodies, 6, mixed.nv)
    bits_equal(ts.body_velocities_derivatives(mixed, q, vs[1, 2]).dV_dq, d.dV_dq[1, 2])
    bodies = [mixed.bodies[-1].name, mixed.bodies[1].name]
    assert ts.point_hessian(mixed, q, bodies, np.ones((4, 2, 3))).shape == (4, 2, 3, mixed.nv, mixed.nv)
    assert ts.maximal_jacobian_derivatives(mixed, q, vs).dJdot_dq.shape == (
        2, 3, 6 * mixed.nbodies, mixed.nv, mixed.nv,
    )  # fmt: skip


def test_a_model_without_velocities():
    builder = ts.ModelBuilder()
    builder.add_body("post", "world", ts.Fixed(), inertia=ts.Inertia.point(1.0, (0, 0, 1)))
    model = builder.build()
    none = np.zeros(0)
    assert ts.body_accelerations_derivatives(model, none, none, none).dA_dq.shape == (1, 6, 0)
    assert ts.maximal_jacobian_derivatives(model, none, none).dJ_dq.shape == (6, 0, 0)
    assert ts.point_hessian(model, none, "post").shape == (3, 0, 0)
    assert ts.momentum_derivatives(model, none, none).dh_dq.shape == (6, 0)


def test_errors(mixed):
    q, v, a = state(mixed)
    with pytest.raises(ValueError, match=r"v has shape \(2,\), expected \(\.\.\., \d+\): model.nv is"):
        ts.body_velocities_derivatives(mixed, q, v[:2])
    with pytest.raises(ValueError, match="frame is 'tool', expected 'body', 'world' or 'local_world_aligned'"):
        ts.body_accelerations_derivatives(mixed, q, v, a, frame="tool")
    with pytest.raises(ValueError, match="about is 'hip', expected 'com' or 'world'"):
        ts.momentum_derivatives(mixed, q, v, about="hip")
    with pytest.raises(ValueError, match="no output 'dh_da'; outputs are 'dh_dq', 'dh_dv', 'dhdot_dq', 'dhdot_dv'"):
        ts.momentum_derivatives(mixed, q, v, outputs=["dh_da"])
    with pytest.raises(TypeError, match=r"a is missing, expected an array of shape"):
        ts.momentum_derivatives(mixed, q, v, outputs=["dhdot_dq"])
    with pytest.raises(TypeError, match=r"v is missing, expected an array of shape"):
        ts.maximal_jacobian_derivatives(mixed, q, outputs=["Jdot"])
    with pytest.raises(TypeError, match="v is missing"):
        ts.body_velocities_derivatives(mixed, q, None)
    with pytest.raises(KeyError, match="no body named 'elbo'"):
        ts.point_hessian(mixed, q, "elbo")
    with pytest.raises(ValueError, match=r"points has shape \(2,\), expected"):
        ts.point_hessian(mixed, q, mixed.bodies[0].name, (1.0, 2.0))
    with pytest.raises(TypeError, match="out must be a tuple of 2 arrays, got ndarray"):
        ts.body_velocities_derivatives(mixed, q, v, out=np.zeros(3))
    with pytest.raises(TypeError, match=r"model must be a torsor\.Model, got str"):
        ts.body_velocities_derivatives("arm", q, v)


def test_nan_stays_in_its_state(mixed):
    q, v, a = state(mixed, batch=(9,))
    poisoned = v.copy()
    poisoned[4, 0] = np.nan
    clean = np.arange(9) != 4
    x = ts.body_accelerations_derivatives(mixed, q, poisoned, a).dA_dq
    y = ts.body_accelerations_derivatives(mixed, q, v, a).dA_dq
    bits_equal(np.ascontiguousarray(x[clean]), y[clean])
    assert np.isnan(x[4]).any()
