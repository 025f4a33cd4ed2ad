"""Derivatives of inverse, forward and hybrid dynamics as matrices: complex steps, closed forms, and bits."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from population import CURVE, FRAMES, JOINTS, SURFACE, Own, models

import torsor as ts
from torsor import testing
from torsor.testing import complex_step

over_models = pytest.mark.parametrize("model", list(models(seed=3)))
over_wrenches = pytest.mark.parametrize("frame", [None, *FRAMES])


def state(model, seed=0, batch=()):
    """q, v, a, another such vector, and external wrenches."""
    rng = np.random.default_rng(seed)
    v, a, x = (rng.standard_normal((*batch, model.nv)) for _ in range(3))
    return model.random(rng, batch or None), v, a, x, rng.standard_normal((*batch, model.nbodies, 6))


def wrenches(f, frame):
    return {} if frame is None else {"f_ext": f, "f_ext_frame": frame}


def some(model, seed=0):
    """A mask of velocities: whole joints, and single velocities of joints."""
    return np.random.default_rng(seed).uniform(size=model.nv) < 0.4


def close(x, y, tol=1e-12):
    """Agreement to `tol` of the largest entry, or of 1: sums of some hundred products, each rounded."""
    assert np.shape(x) == np.shape(y)
    scale = max(1.0, np.abs(y).max(initial=0.0))
    np.testing.assert_allclose(np.divide(x, scale), np.divide(y, scale), rtol=0, atol=tol)


def conditioned(model, q, free=None):
    """What the solution of a system with the mass matrix may lose: its condition number in roundings, times four.

    Both sides solve, in different orders; nothing else in them is so sensitive.
    """
    M = ts.mass_matrix(model, q)
    M = M if free is None else M[np.ix_(free, free)]
    return max(1e-12, 1e-15 * np.linalg.cond(M)) if M.size else 1e-12


def along_q(f, model, q):
    return complex_step(lambda d: f(model.plus(q, d)), np.zeros(model.nv))


def check_inverse(model, q, v, a, **more):
    d = ts.inverse_dynamics_derivatives(model, q, v, a, **more)
    close(d.dtau_dq, along_q(lambda q: ts.inverse_dynamics(model, q, v, a, **more), model, q))
    close(d.dtau_dv, complex_step(lambda v: ts.inverse_dynamics(model, q, v, a, **more), v))
    close(d.dtau_da, complex_step(lambda a: ts.inverse_dynamics(model, q, v, a, **more), a))


def check_forward(model, q, v, tau, **more):
    d = ts.forward_dynamics_derivatives(model, q, v, tau, **more)
    tol = conditioned(model, q)
    close(d.da_dq, along_q(lambda q: ts.forward_dynamics(model, q, v, tau, **more), model, q), tol)
    close(d.da_dv, complex_step(lambda v: ts.forward_dynamics(model, q, v, tau, **more), v), tol)
    close(d.da_dtau, complex_step(lambda tau: ts.forward_dynamics(model, q, v, tau, **more), tau), tol)


def check_hybrid(model, q, v, a, tau, mask, **more):
    d = ts.hybrid_dynamics_derivatives(model, q, v, a=a, tau=tau, prescribed=mask, **more)
    tol = conditioned(model, q, ~mask)

    def both(q, v, a, tau):
        return np.concatenate(ts.hybrid_dynamics(model, q, v, a=a, tau=tau, prescribed=mask, **more))

    close(np.vstack([d.da_dq, d.dtau_dq]), along_q(lambda q: both(q, v, a, tau), model, q), tol)
    close(np.vstack([d.da_dv, d.dtau_dv]), complex_step(lambda v: both(q, v, a, tau), v), tol)
    close(np.vstack([d.da_da, d.dtau_da]), complex_step(lambda a: both(q, v, a, tau), a), tol)
    close(np.vstack([d.da_dtau, d.dtau_dtau]), complex_step(lambda tau: both(q, v, a, tau), tau), tol)


# ---- against complex steps of the functions


def test_the_population():
    counts = dict.fromkeys((*JOINTS, ts.Fixed()), 0)
    for parameter in models(seed=3):
        for body in parameter.values[0].bodies:
            counts[body.joint] += 1
    assert min(counts.values()) == 2


@over_models
@over_wrenches
def test_inverse_dynamics(model, frame):
    q, v, a, _, f = state(model)
    check_inverse(model, q, v, a, **wrenches(f, frame))


@over_models
@over_wrenches
def test_forward_dynamics(model, frame):
    q, v, tau, _, f = state(model)
    check_forward(model, q, v, tau, **wrenches(f, frame))


@over_models
@over_wrenches
def test_hybrid_dynamics(model, frame):
    q, v, a, tau, f = state(model)
    check_hybrid(model, q, v, a, tau, some(model), **wrenches(f, frame))


@settings(max_examples=40, deadline=None, derandomize=True, print_blob=False)
@given(st.lists(st.integers(0, len(JOINTS)), min_size=1, max_size=9), st.integers(0, 2**16), st.sampled_from(FRAMES))
def test_drawn_trees(joints, seed, frame):
    model = testing.random_tree(seed, [(*JOINTS, ts.Fixed())[k] for k in joints])
    q, v, a, tau, f = state(model, seed)
    check_inverse(model, q, v, a, f_ext=f, f_ext_frame=frame)
    check_forward(model, q, v, tau, f_ext=f, f_ext_frame=frame)
    check_hybrid(model, q, v, a, tau, some(model, seed), f_ext=f, f_ext_frame=frame)


@pytest.mark.parametrize("joint", JOINTS, ids=lambda j: getattr(j, "chart", type(j).__name__))
def test_a_joint_upon_another_of_its_kind(joint):
    model = testing.random_tree(1, [joint, joint, ts.Prismatic((1, 2, 3)), joint], branching=0.0)
    q, v, a, tau, f = state(model, 1)
    check_inverse(model, q, v, a, f_ext=f, f_ext_frame="world")
    check_hybrid(model, q, v, a, tau, some(model, 1), f_ext=f, f_ext_frame="local_world_aligned")


def test_joints_of_the_users_own_are_as_good_as_built_in_ones():
    built_in, own = (
        testing.random_tree(6, [JOINTS[1], j, JOINTS[5]]) for j in (ts.SphericalExp(), Own(ts.SphericalExp()))
    )
    q, v, a, _, f = state(built_in)
    for x, y in zip(
        ts.inverse_dynamics_derivatives(own, q, v, a, f_ext=f),
        ts.inverse_dynamics_derivatives(built_in, q, v, a, f_ext=f),
        strict=True,
    ):
        close(x, y)


# ---- near the singular places


def carrying(joint):
    """The joint between a free base and a body on a revolute joint."""
    return testing.random_tree(4, [ts.Free(), joint, ts.Revolute((1, 2, 3))], branching=0.0)


def check_at(joint, place, forward=False):
    model = carrying(joint)
    q, v, a, _, f = state(model, 2)
    q[model.joints[1].q_slice] = place
    for frame in (None, *FRAMES):
        check_inverse(model, q, v, a, **wrenches(f, frame))
    if forward:
        check_forward(model, q, v, a)
    return model, q, v, a


SMALL = (0.0, 1e-300, 1e-160, 1e-20, 1e-12, 1e-8, 1e-5, 1e-2)


@pytest.mark.parametrize("length", [*SMALL, np.pi - 1e-9, np.pi, np.pi + 1e-3])
def test_exponential_coordinates_near_zero_and_half_a_turn(length):
    check_at(ts.SphericalExp(), length * np.array([0.6, -0.64, 0.48]), forward=True)


@pytest.mark.parametrize("turns", [1, 2])
@pytest.mark.parametrize("off", [-1e-2, -1e-6, -1e-9, 0.0, 1e-9, 1e-3])
def test_exponential_coordinates_near_whole_turns(turns, off):
    # S is singular there, so forward dynamics has no derivative; inverse dynamics is as good as anywhere.
    place = (2 * np.pi * turns + off) * np.array([0.6, -0.64, 0.48])
    model, q, v, a = check_at(ts.SphericalExp(), place)
    if off == 0:
        with pytest.raises(ts.SingularMassMatrixError, match="singular at joint 'body1'"):
            ts.forward_dynamics_derivatives(model, q, v, a)


@pytest.mark.parametrize("chart", ts.SphericalEuler.CHARTS)
@pytest.mark.parametrize("off", [0.0, 1e-12, 1e-6, 1e-2])
def test_euler_angles_near_their_singularity(chart, off):
    joint = ts.SphericalEuler(chart)
    singular = 0.0 if chart[0] == chart[2] else np.pi / 2
    model, q, v, a = check_at(joint, [0.3, singular + off, -0.7], forward=off == 1e-2)
    if off == 0:
        with pytest.raises(ts.SingularMassMatrixError, match="singular at joint 'body1'"):
            ts.forward_dynamics_derivatives(model, q, v, a)


@pytest.mark.parametrize("place", [-9.0, -0.5, -1e-12, 0.0, 1.0, 1 - 1e-12, 2.0, 3 - 1e-12, 3.0, 3 + 1e-12, 3.7, 12.0])
def test_curves_at_knots_and_beyond_their_ends(place):
    check_at(CURVE, place)


@pytest.mark.parametrize("u", [-1.5, 0.0, 0.4, 1.0, 1.8])
@pytest.mark.parametrize("w", [-0.3, 0.0, 1.0, 1.5, 2.0, 3.1])
def test_surfaces_at_knots_and_beyond_their_ends(u, w):
    check_at(SURFACE, [u, w])


def test_at_a_knot_the_derivative_is_that_of_the_segment_that_begins():
    # A cubic spline's third derivative jumps there, and dtau_dq with it; at the last knot the last segment goes on.
    model = carrying(CURVE)
    q, v, a, _, _ = state(model, 2)
    at = model.joints[1].q_slice

    def dtau_dq(place):
        q[at] = place
        return ts.inverse_dynamics_derivatives(model, q, v, a).dtau_dq

    for knot in (1.0, 2.0):
        close(dtau_dq(knot), dtau_dq(knot + 1e-9), 1e-7)  # the step times the next derivative
        assert np.abs(dtau_dq(knot) - dtau_dq(knot - 1e-9)).max() > 1e-3
    for end in (0.0, 3.0):
        close(dtau_dq(end - 1e-9), dtau_dq(end + 1e-9), 1e-7)


# ---- closed forms and identities


def test_pendulum():
    m, l, I, g = 1.3, 0.7, 0.02, 9.81
    inertia = ts.Inertia(m, (0, 0, -l), np.diag([0.5, I, 0.5]), allow_unphysical=True)
    model = ts.ModelBuilder().add_body("bob", "world", ts.Revolute((0, 1, 0)), inertia=inertia).build()
    for q, v, x in np.random.default_rng(0).uniform(-4, 4, (20, 3, 1)):
        d = ts.inverse_dynamics_derivatives(model, q, v, x)
        close(d.dtau_dq, [m * g * l * np.cos(q)], 1e-14)
        close(d.dtau_dv, [[0.0]], 1e-14)
        close(d.dtau_da, [[m * l**2 + I]], 1e-14)
        d = ts.forward_dynamics_derivatives(model, q, v, x)
        close(d.da_dq, [-m * g * l * np.cos(q) / (m * l**2 + I)], 1e-14)
        close(d.da_dtau, [[1 / (m * l**2 + I)]], 1e-14)


def test_cart_pole():
    M, m, l, g = 1.5, 0.4, 0.6, 9.81
    builder = ts.ModelBuilder()
    builder.add_body("cart", "world", ts.Prismatic((1, 0, 0)), inertia=ts.Inertia.point(M, (0, 0, 0)))
    builder.add_body("pole", "cart", ts.Revolute((0, 1, 0)), inertia=ts.Inertia.point(m, (0, 0, -l)))
    model = builder.build()
    for q, v, a in np.random.default_rng(0).uniform(-3, 3, (20, 3, 2)):
        s, c, w = np.sin(q[1]), np.cos(q[1]), v[1]
        # tau_x = (M + m) a_x - m l c a + m l s w^2, tau = -m l c a_x + m l^2 a + m g l s
        d = ts.inverse_dynamics_derivatives(model, q, v, a)
        close(d.dtau_dq, [[0, m * l * (s * a[1] + c * w**2)], [0, m * l * (s * a[0] + g * c)]], 1e-14)
        close(d.dtau_dv, [[0, 2 * m * l * s * w], [0, 0]], 1e-14)
        h = ts.hybrid_dynamics_derivatives(model, q, v, a=a, tau=a, prescribed=["cart"])
        # a = (tau / (m l) + c a_x - g s) / l with a_x given, and tau_x with that a put in
        da = [0, (-s * a[0] - g * c) / l]
        a1 = (a[1] / (m * l) + c * a[0] - g * s) / l
        close(h.da_dq, [[0, 0], da], 1e-13)
        close(h.da_da, [[1, 0], [c / l, 0]], 1e-13)
        close(h.da_dtau, [[0, 0], [0, 1 / (m * l**2)]], 1e-13)
        close(h.dtau_dq, [[0, m * l * (s * a1 + c * w**2 - c * da[1])], [0, 0]], 1e-13)
        close(h.dtau_da, [[M + m - m * c**2, 0], [0, 0]], 1e-13)
        close(h.dtau_dtau, [[0, -c / l], [0, 1]], 1e-13)


def test_free_body_obeys_euler():
    I = np.array([0.3, 0.5, 0.7])
    model = ts.ModelBuilder(gravity=(0, 0, 0)).add_body(
        "top", "world", ts.Spherical(), inertia=ts.Inertia(0.0, I_com=np.diag(I))
    ).build()  # fmt: skip
    q, v, a, _, _ = state(model)
    d = ts.inverse_dynamics_derivatives(model, q, v, a)  # tau = I a + v x I v, in the body, wherever it stands
    close(d.dtau_dq, np.zeros((3, 3)), 1e-14)
    expected = np.stack([np.cross(e, I * v) + np.cross(v, I * e) for e in np.eye(3)], -1)
    close(d.dtau_dv, expected, 1e-14)
    close(d.dtau_da, np.diag(I), 1e-14)


@over_models
def test_identities(model):
    q, v, a, tau, f = state(model)
    d = ts.inverse_dynamics_derivatives(model, q, v, a, f_ext=f)
    close(d.dtau_da, ts.mass_matrix(model, q))
    # Coriolis and centrifugal forces are of second degree in v
    close(d.dtau_dv @ v, 2 * (ts.bias_forces(model, q, v) - ts.gravity_forces(model, q)))
    # implicit differentiation of tau = ID(q, v, FD(q, v, tau))
    acc = ts.forward_dynamics(model, q, v, tau, f_ext=f)
    i = ts.inverse_dynamics_derivatives(model, q, v, acc, f_ext=f)
    d = ts.forward_dynamics_derivatives(model, q, v, tau, f_ext=f)
    tol = conditioned(model, q)
    close(d.da_dq, -np.linalg.solve(i.dtau_da, i.dtau_dq), tol)
    close(d.da_dv, -np.linalg.solve(i.dtau_da, i.dtau_dv), tol)
    close(d.da_dtau, np.linalg.inv(i.dtau_da), tol)
    # at rest torques are the gradient of the potential energy, whose second derivatives are symmetric; not so for two
    # directions of a joint that do not commute
    rest = ts.inverse_dynamics_derivatives(model, q, 0 * v, 0 * v).dtau_dq
    skew = rest - rest.T
    for joint in model.joints:
        if any(
            isinstance(part, (ts.Spherical, ts.Free)) for part in (joint.joint, *getattr(joint.joint, "joints", ()))
        ):
            skew[joint.v_slice, joint.v_slice] = 0
    close(skew / max(1.0, np.abs(rest).max()), np.zeros_like(skew))


@over_models
def test_wrenches_fixed_in_the_world_do_not_follow(model):
    """The same wrenches in three frames give the same torques, and other derivatives."""
    q, v, a, _, f = state(model)
    T = ts.body_poses(model, q)
    R = T[:, :3, :3]
    turned = np.concatenate([(R @ f[:, :3, None])[..., 0], (R @ f[:, 3:, None])[..., 0]], -1)
    moved = np.concatenate([turned[:, :3] + np.cross(T[:, :3, 3], turned[:, 3:]), turned[:, 3:]], -1)
    held = {"body": f, "world": moved, "local_world_aligned": turned}
    d = {
        frame: ts.inverse_dynamics_derivatives(model, q, v, a, f_ext=x, f_ext_frame=frame) for frame, x in held.items()
    }
    for frame in FRAMES[1:]:
        close(d[frame].dtau_dv, d["body"].dtau_dv)
        assert np.abs(d[frame].dtau_dq - d["body"].dtau_dq).max() > 1e-3
    # -J^T f with f held in the body's frame: J is the body Jacobian, in the world's frame the spatial one
    none = ts.inverse_dynamics_derivatives(model, q, v, a)
    for frame, x in held.items():
        J = along_q(lambda q, frame=frame: [ts.jacobian(model, q, b.name, frame=frame) for b in model.bodies], model, q)
        close(d[frame].dtau_dq - none.dtau_dq, -np.einsum("bijk,bi->jk", J, x), 1e-11)  # a difference of larger ones


# ---- zeros and ones are exact


def above(model):
    """Which velocities move a body: (nbodies, nv)."""
    moves = np.zeros((model.nbodies, model.nv), bool)
    for i, body in enumerate(model.bodies):
        while True:
            moves[i, model.joint(body.name).v_slice] = True
            if body.parent == "world":
                break
            body = model.body(body.parent)
    return moves


@over_models
def test_blocks_of_hybrid_dynamics(model):
    q, v, a, tau, f = state(model)
    mask = some(model)
    d = ts.hybrid_dynamics_derivatives(model, q, v, a=a, tau=tau, prescribed=mask, f_ext=f)
    one = np.eye(model.nv)
    ours, free = np.ix_(mask, mask), np.ix_(~mask, ~mask)
    for x in (d.da_dq, d.da_dv, d.da_dtau):  # accelerations that are given depend on nothing else
        assert not x[mask].any()
    for x in (d.dtau_dq, d.dtau_dv, d.dtau_da):
        assert not x[~mask].any()
    for x in (d.da_da, d.dtau_da):  # and what is not read changes nothing
        assert not x[:, ~mask].any()
    for x in (d.da_dtau, d.dtau_dtau):
        assert not x[:, mask].any()
    assert np.array_equal(d.da_da[mask], one[mask])
    assert np.array_equal(d.dtau_dtau[~mask], one[~mask])
    # and every block that should be full is
    assert d.da_dq[~mask].any() and d.da_dv[~mask].any() and d.dtau_dq[mask].any() and d.dtau_dv[mask].any()
    assert d.dtau_da[ours].any() and d.da_dtau[free].any()
    # as a linear map of (da_p, dtau_f) the last four are M's principal pivot transform
    M = ts.mass_matrix(model, q)
    inverse = np.linalg.inv(M[free])
    tol = conditioned(model, q, ~mask)
    close(d.da_dtau[free], inverse, tol)
    close(d.da_da[np.ix_(~mask, mask)], -inverse @ M[np.ix_(~mask, mask)], tol)
    close(d.dtau_dtau[np.ix_(mask, ~mask)], M[np.ix_(mask, ~mask)] @ inverse, tol)
    close(d.dtau_da[ours], M[ours] - M[np.ix_(mask, ~mask)] @ inverse @ M[np.ix_(~mask, mask)], tol)


@over_models
def test_hybrid_dynamics_with_all_or_nothing_prescribed(model):
    q, v, a, tau, f = state(model)
    nv = model.nv
    names = [j.name for j in model.joints]
    d = ts.hybrid_dynamics_derivatives(model, q, v, a=a, prescribed=names, f_ext=f)
    i = ts.inverse_dynamics_derivatives(model, q, v, a, f_ext=f)
    for x, y in ((d.dtau_dq, i.dtau_dq), (d.dtau_dv, i.dtau_dv), (d.dtau_da, i.dtau_da), (d.da_da, np.eye(nv))):
        assert np.array_equal(x, y)
    assert not any(x.any() for x in (d.da_dq, d.da_dv, d.da_dtau, d.dtau_dtau))
    d = ts.hybrid_dynamics_derivatives(model, q, v, tau=tau, prescribed=[], f_ext=f)
    for x, y in zip(
        (d.da_dq, d.da_dv, d.da_dtau), ts.forward_dynamics_derivatives(model, q, v, tau, f_ext=f), strict=True
    ):
        assert np.array_equal(x, y)
    assert np.array_equal(d.dtau_dtau, np.eye(nv))
    assert not any(x.any() for x in (d.da_da, d.dtau_dq, d.dtau_dv, d.dtau_da))


def test_branches_do_not_see_each_other():
    model = testing.random_tree(11, [JOINTS[k] for k in (1, 12, 13, 14, 16, 19, 20, 5)], branching=0.6)
    q, v, a, tau, f = state(model)
    moves = above(model)
    carried = np.array([moves[:, k].argmax() for k in range(model.nv)])  # the first body that a velocity moves
    related = np.array(
        [[moves[carried[i], j] or moves[carried[j], i] for j in range(model.nv)] for i in range(model.nv)]
    )
    root = np.array([moves[i].argmax() for i in carried])  # the first velocity of its tree
    assert not related.all() and len(set(root)) > 1
    for frame in FRAMES:
        for x in ts.inverse_dynamics_derivatives(model, q, v, a, f_ext=f, f_ext_frame=frame):
            assert not x[~related].any()
            assert (x[related] != 0).mean() > 0.7
        for x in ts.forward_dynamics_derivatives(
            model, q, v, tau, f_ext=f, f_ext_frame=frame
        ):  # through a common base they do
            assert not x[root[:, None] != root].any()


# ---- deep trees, for which forward dynamics' derivatives solve by articulated bodies


def test_deep_trees():
    # 48 velocities on one path is where the core changes from one way to the other.
    for n in (47, 48, 49, 60):
        model = ts.models.chain(n)
        q, v, tau, _, f = state(model)
        d = ts.forward_dynamics_derivatives(model, q, v, tau, f_ext=f)
        i = ts.inverse_dynamics_derivatives(model, q, v, ts.forward_dynamics(model, q, v, tau, f_ext=f), f_ext=f)
        tol = conditioned(model, q)
        close(d.da_dq, -np.linalg.solve(i.dtau_da, i.dtau_dq), tol)
        close(d.da_dv, -np.linalg.solve(i.dtau_da, i.dtau_dv), tol)
        close(d.da_dtau, np.linalg.inv(i.dtau_da), tol)


@pytest.fixture(scope="module")
def deep():
    """Every joint on one path, and two branches."""
    model = testing.random_tree(5, [*JOINTS, ts.Fixed(), JOINTS[3], JOINTS[12]], branching=0.04)
    moves = above(model)
    assert moves.sum(1).max() > 60 and not moves[-1].all()
    return model


@over_wrenches
def test_deep_trees_of_every_joint(deep, frame):
    q, v, a, tau, f = state(deep)
    check_forward(deep, q, v, tau, **wrenches(f, frame))
    mask = some(deep) & (np.arange(deep.nv) % 3 == 0)
    assert (above(deep) & ~mask).sum(1).max() > 48
    check_hybrid(deep, q, v, a, tau, mask, **wrenches(f, frame))


def test_deep_and_shallow_trees_are_one(deep):
    """The deep tree twice: by articulated bodies, and, with joints at one end prescribed, as a shallow one."""
    q, v, a, tau, f = state(deep)
    mask = np.zeros(deep.nv, bool)
    mask[: deep.nv - 40] = True
    shallow = ts.hybrid_dynamics_derivatives(deep, q, v, a=a, tau=tau, prescribed=mask, f_ext=f)
    x, _ = ts.hybrid_dynamics(deep, q, v, a=a, tau=tau, prescribed=mask, f_ext=f)
    i = ts.inverse_dynamics_derivatives(deep, q, v, x, f_ext=f)
    d = ts.forward_dynamics_derivatives(deep, q, v, ts.inverse_dynamics(deep, q, v, x, f_ext=f), f_ext=f)
    # the same accelerations: da_f = -M_ff^-1 (M_fp da_p + ID_q dq) in one, and with the torques' change in the other
    tol = conditioned(deep, q)
    close(-i.dtau_da @ d.da_dq, i.dtau_dq, tol)
    M = i.dtau_da[np.ix_(~mask, ~mask)]
    close(-M @ shallow.da_dq[~mask], i.dtau_dq[~mask], tol)
    close(d.da_dtau @ shallow.dtau_dq - shallow.da_dq + d.da_dq, np.zeros_like(d.da_dq), 10 * tol)


# ---- how one asks makes no difference, to the last bit


ALL = testing.random_tree(7, [*JOINTS, ts.Fixed()])


def calls(model, q, v, a, tau, f, mask, **more):
    """Every function in every frame, as name and record."""
    for frame in FRAMES:
        k = {"f_ext": f, "f_ext_frame": frame, **more}
        yield "inverse " + frame, ts.inverse_dynamics_derivatives(model, q, v, a, **k)
        yield "forward " + frame, ts.forward_dynamics_derivatives(model, q, v, tau, **k)
        yield "hybrid " + frame, ts.hybrid_dynamics_derivatives(model, q, v, a=a, tau=tau, prescribed=mask, **k)
    yield "inverse", ts.inverse_dynamics_derivatives(model, q, v, a, **more)
    yield "forward", ts.forward_dynamics_derivatives(model, q, v, tau, **more)


def assert_same(x, y, pick=lambda z: z):
    """Two lists of calls with equal bits; `pick` takes from those of the first what the second has."""
    for (name, one), (_, other) in zip(x, y, strict=True):
        for field, left, right in zip(one._fields, one, other, strict=True):
            assert np.array_equal(pick(left), right, equal_nan=True), (name, field)


@pytest.mark.parametrize("model", [pytest.param(ALL, id="all"), pytest.param(None, id="deep")])
def test_batches_lanes_and_threads_change_no_bit(model, deep):
    model = deep if model is None else model
    n = 35  # no multiple of any machine's lanes
    arrays = state(model, batch=(n,))
    mask = some(model)
    whole = list(calls(model, *arrays, mask))
    for s in (0, 1, 7, 8, 33, n - 1):
        assert_same(whole, calls(model, *(x[s] for x in arrays), mask), lambda z, s=s: z[s])
    assert_same(whole, calls(model, *arrays, mask, threads=2))
    assert_same(whole, calls(model, *(x[3:-4] for x in arrays), mask), lambda z: z[3:-4])  # other lanes
    shaped = calls(model, *(x.reshape(5, 1, 7, *x.shape[1:]) for x in arrays), mask, threads=0)
    assert_same(whole, shaped, lambda z: z.reshape(5, 1, 7, *z.shape[1:]))


def test_many_states_over_threads_change_no_bit():
    model = ts.models.quadruped()
    arrays = state(model, batch=(700,))
    mask = some(model)
    whole = list(calls(model, *arrays, mask))
    for threads in (2, 5):
        assert_same(whole, calls(model, *arrays, mask, threads=threads))
    assert_same(whole, calls(model, *(x[[3, 699]] for x in arrays), mask), lambda z: z[[3, 699]])


def test_batch_shapes_broadcast():
    model = ts.models.quadruped()
    q, v, a, tau, f = state(model, batch=(4,))
    mask = some(model)
    d = list(calls(model, q[:, None], v[:3], a[0], tau[:, None], f[:3], mask))
    for i, j in ((0, 0), (3, 2), (1, 1)):
        assert_same(d, calls(model, q[i], v[j], a[0], tau[i], f[j], mask), lambda z, i=i, j=j: z[i, j])
    for name, record in calls(model, q[:0], v[0], a[:0], tau[0], f[0], mask):
        assert all(x.shape == (0, model.nv, model.nv) for x in record), name


def shuffled(model, rng):
    """The same tree with its bodies added in another order, and where each body, q and v of it is in the first."""
    builder, waiting, order = ts.ModelBuilder(model.name, model.gravity), list(model.bodies), []
    while waiting:
        ready = [b for b in waiting if b.parent == "world" or b.parent in order]
        b = ready[rng.integers(len(ready))]
        waiting.remove(b)
        order.append(b.name)
        builder.add_body(b.name, b.parent, b.joint, b.placement, b.inertia)
    joints = [model.joint(name) for name in order]
    to_q, to_v = (
        np.concatenate([np.r_[s] for s in slices])
        for slices in zip(*((j.q_slice, j.v_slice) for j in joints), strict=True)
    )
    return builder.build(), [model._find(name, "body") for name in order], to_q.astype(int), to_v.astype(int)


@pytest.mark.parametrize("seed", range(3))
@over_models
def test_the_order_of_bodies_changes_no_bit(model, seed):
    other, bodies, to_q, to_v = shuffled(model, np.random.default_rng(seed))
    q, v, a, tau, f = state(model)
    mask = some(model)
    x = calls(model, q, v, a, tau, f, mask)
    y = calls(other, q[to_q], v[to_v], a[to_v], tau[to_v], f[bodies], mask[to_v])
    assert_same(x, y, lambda z: z[np.ix_(to_v, to_v)])


def test_complex_results_have_the_real_ones_as_real_part():
    model = testing.random_tree(8, [ts.Free(), *(JOINTS[k] for k in (1, 12, 13, 16, 19, 20))])
    q, v, a, tau, f = state(model, batch=(3,))
    mask = some(model)
    real = list(calls(model, q, v, a, tau, f, mask))
    tol = max(conditioned(model, x) for x in q)
    with testing.complex_inputs():
        for (name, x), (_, y) in zip(real, calls(model, q + 0j, v, a, tau, f, mask), strict=True):
            for left, right in zip(x, y, strict=True):
                assert right.dtype == np.complex128 and not right.imag.any(), name
                close(right.real, left, tol)


def test_digits_far_from_the_origin():
    """Nothing depends on where the world's origin is, wrenches in the world's own frame apart."""
    near, far = ts.ModelBuilder(), ts.ModelBuilder()
    for builder, distance in ((near, 0.0), (far, 1e8)):
        rng = np.random.default_rng(4)
        for k, joint in enumerate(JOINTS[i] for i in (14, 1, 13, 12, 5)):
            place = testing.random_pose(rng)
            place = ts.SE3(place.R, distance * np.array([1, -1, 1])) if k == 0 else place
            builder.add_body(f"b{k}", f"b{k - 1}" if k else "world", joint, place, testing.random_inertia(rng))
    near, far = near.build(), far.build()
    q, v, a, tau, f = state(near)
    for frame in ("body", "local_world_aligned"):
        more = {"f_ext": f, "f_ext_frame": frame}
        for x, y in zip(
            ts.inverse_dynamics_derivatives(far, q, v, a, **more),
            ts.inverse_dynamics_derivatives(near, q, v, a, **more),
            strict=True,
        ):
            close(x, y)
        for x, y in zip(
            ts.forward_dynamics_derivatives(far, q, v, tau, **more),
            ts.forward_dynamics_derivatives(near, q, v, tau, **more),
            strict=True,
        ):
            close(x, y, conditioned(near, q))


def test_the_length_of_quaternions_does_not_matter():
    model = testing.random_tree(9, [ts.Free(), JOINTS[1], ts.Spherical()], branching=0.0)
    q, v, a, tau, f = state(model)
    longer = q.copy()
    longer[3:7] *= 2.5
    longer[-4:] *= 0.3
    for (_, x), (_, y) in zip(
        calls(model, q, v, a, tau, f, some(model)), calls(model, longer, v, a, tau, f, some(model)), strict=True
    ):
        for left, right in zip(x, y, strict=True):
            close(right, left, conditioned(model, q))


# ---- outputs and out


FUNCTIONS = {
    "inverse": (ts.inverse_dynamics_derivatives, ts.derivatives.InverseDynamicsDerivatives),
    "forward": (ts.forward_dynamics_derivatives, ts.derivatives.ForwardDynamicsDerivatives),
    "hybrid": (
        lambda m, q, v, x, mask=None, **o: ts.hybrid_dynamics_derivatives(
            m, q, v, a=x, tau=x, prescribed=np.arange(16) % 3 == 1 if mask is None else mask, **o
        ),
        ts.derivatives.HybridDynamicsDerivatives,
    ),
}
every_function = pytest.mark.parametrize("name", FUNCTIONS)


@pytest.fixture(scope="module")
def mixed():
    """A floating tree with joints of constant S and of S(q), and bodies on fixed joints."""
    rng = np.random.default_rng(0)
    builder = ts.ModelBuilder("tree", gravity=(1, 2, -9))
    for name, parent, joint in (
        ("base", "world", ts.Free()),
        ("arm", "base", ts.Revolute((1, 2, 3))),
        ("camera", "arm", ts.Fixed()),
        ("ball", "arm", ts.Spherical()),
        ("wrist", "ball", ts.SphericalExp()),
        ("slider", "base", ts.Composite(ts.Prismatic((0, 1, 0)), ts.Universal())),
        ("post", "world", ts.Fixed()),
    ):
        builder.add_body(name, parent, joint, testing.random_pose(rng), testing.random_inertia(rng))
    model = builder.build()
    assert model.nv == 16
    return model


@every_function
@pytest.mark.parametrize("batch", [(), (5,), (2, 3)])
def test_only_what_is_asked_for_is_computed(mixed, name, batch):
    f, record = FUNCTIONS[name]
    q, v, x, _, wrench = state(mixed, batch=batch)
    for more in ({}, {"f_ext": wrench, "f_ext_frame": "world"}):
        full = f(mixed, q, v, x, **more)
        assert type(full) is record
        for field in record._fields:
            others = [other for other in record._fields if other != field]
            for outputs, wanted in (([field], {field}), (field, {field}), (tuple(others), set(others)), ([], set())):
                part = f(mixed, q, v, x, outputs=outputs, **more)
                assert type(part) is record
                for key in record._fields:
                    if key in wanted:
                        assert np.array_equal(getattr(part, key), getattr(full, key))
                    else:
                        assert getattr(part, key) is None
        again = f(mixed, q, v, x, outputs=record._fields[::-1] + record._fields, **more)  # in any order, any number
        assert all(np.array_equal(left, right) for left, right in zip(again, full, strict=True))


@every_function
@pytest.mark.parametrize("batch", [(), (5,), (2, 3)])
def test_out(mixed, name, batch):
    f, record = FUNCTIONS[name]
    q, v, x, _, _ = state(mixed, batch=batch)
    expected = f(mixed, q, v, x)

    def fresh():
        return [np.full_like(y, np.nan) for y in expected]

    def check(out, result, wanted=record._fields):
        for key, target, got, right in zip(record._fields, out, result, expected, strict=True):
            if key in wanted:
                assert got is target
                assert np.array_equal(target, right)
            else:
                assert got is None

    for out in (record(*fresh()), tuple(fresh()), fresh()):  # the record, or any sequence
        result = f(mixed, q, v, x, out=out)
        assert type(result) is record
        check(out, result)
    spread = [np.full([2 * n for n in y.shape], np.nan)[tuple(slice(1, None, 2) for _ in y.shape)] for y in expected]
    check(spread, f(mixed, q, v, x, out=spread))
    check(turned := [np.asfortranarray(y) for y in fresh()], f(mixed, q, v, x, out=turned))
    # for the wanted ones only: what stands in the other places is not looked at, nor written to
    first, last = record._fields[0], record._fields[-1]
    for junk in (None, "junk", np.full((2, 2), 7.0)):
        out = record(*[junk] * len(expected))._replace(**{last: fresh()[-1]})
        check(out, f(mixed, q, v, x, out=out, outputs=[last]), {last})
    untouched = fresh()
    f(mixed, q, v, x, out=tuple(untouched), outputs=[first])
    assert not np.isnan(untouched[0]).any() and all(np.isnan(y).all() for y in untouched[1:])
    # what is wrong with the wanted ones is said
    for wrong, error, message in (
        ([y[..., None] for y in fresh()], ValueError, r"has shape .*, expected"),
        ([np.zeros((2, *y.shape)) for y in fresh()], ValueError, r"has shape .*, expected"),
        ([y.astype(np.float32) for y in fresh()], TypeError, "has dtype float32, expected float64"),
        ([y.tolist() for y in fresh()], TypeError, "must be a NumPy array, got"),
        ([None for _ in fresh()], TypeError, "must be a NumPy array, got NoneType"),
    ):
        with pytest.raises(error, match=rf"^out \({first}\) {message}"):
            f(mixed, q, v, x, out=tuple(wrong))
        with pytest.raises(error, match=rf"^out \({last}\) {message}"):
            f(mixed, q, v, x, out=tuple(wrong), outputs=[last])
    frozen = fresh()
    frozen[0].flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        f(mixed, q, v, x, out=tuple(frozen))
    with pytest.raises(ValueError, match="two arrays of out share memory"):
        f(mixed, q, v, x, out=(frozen[1],) * len(frozen))
    for wrong in (frozen[1], (frozen[1],), 3, {"dtau_dq": frozen[1]}):
        with pytest.raises(TypeError, match=f"out must be a tuple of {len(expected)} arrays, got"):
            f(mixed, q, v, x, out=wrong)


@every_function
def test_out_that_overlaps_the_inputs(mixed, name):
    f, record = FUNCTIONS[name]
    arrays = state(mixed, batch=(3,))[:3]
    expected = f(mixed, *arrays)
    for k, x in enumerate(arrays):
        for y in range(len(expected)):
            buffer = np.zeros(x.size + expected[y].size)
            for offset in (0, x.size // 2):
                inside = buffer[: x.size].reshape(x.shape)
                inside[...] = x
                outs = [np.empty_like(e) for e in expected]
                outs[y] = buffer[offset : offset + expected[y].size].reshape(expected[y].shape)
                f(mixed, *arrays[:k], inside, *arrays[k + 1 :], out=record(*outs))
                assert all(np.array_equal(left, right) for left, right in zip(outs, expected, strict=True))


# ---- wrong arguments


@every_function
def test_errors(mixed, name):
    f, record = FUNCTIONS[name]
    q, v, x, _, wrench = state(mixed)
    third = "tau" if name == "forward" else "a"
    with pytest.raises(ValueError, match=r"^q has shape \(17,\), expected \(\.\.\., 18\): model.nq is 18"):
        f(mixed, q[:-1], v, x)
    with pytest.raises(ValueError, match=r"^v has shape \(18,\), expected \(\.\.\., 16\): model.nv is 16; nq is 18"):
        f(mixed, q, q, x)
    with pytest.raises(ValueError, match=rf"^{third} has shape \(15,\), expected"):
        f(mixed, q, v, x[:-1])
    with pytest.raises(ValueError, match=r"^f_ext has shape \(7, 5\), expected \(\.\.\., 7, 6\): model.nbodies is 7"):
        f(mixed, q, v, x, f_ext=wrench[:, :5])
    with pytest.raises(ValueError, match="batch shapes do not fit together: q"):
        f(mixed, np.stack([q] * 3), np.stack([v] * 4), x)
    with pytest.raises(TypeError, match=r"^v is missing, expected an array of shape"):
        f(mixed, q, None, x)
    with pytest.raises(TypeError, match=r"^v has dtype <U"):
        f(mixed, q, v.astype(str), x)
    with pytest.raises(TypeError, match=r"^v is complex, expected real numbers; torsor.testing.complex_inputs\(\)"):
        f(mixed, q, v + 0j, x)
    for frame in ("tool", "World", None, 1):
        with pytest.raises(ValueError, match=r"^f_ext_frame is .*, expected 'body', 'world' or 'local_world_aligned'"):
            f(mixed, q, v, x, f_ext=wrench, f_ext_frame=frame)
    for outputs in (["M"], "M", [record._fields[0], "M"]):
        with pytest.raises(
            ValueError, match=f"^no output 'M'; outputs are '{record._fields[0]}', '{record._fields[1]}'"
        ):
            f(mixed, q, v, x, outputs=outputs)
    for threads in (-1, 1.0, "2", None, True):
        with pytest.raises(ValueError, match=r"^threads is .*, expected an integer"):
            f(mixed, q, v, x, threads=threads)
    for model in (None, "arm", ts.ModelBuilder(), ts.Model, 3):
        with pytest.raises(
            TypeError, match=r"^model must be a torsor\.Model, got .*; ModelBuilder.build\(\) makes one"
        ):
            f(model, q, v, x)


def test_errors_of_hybrid_dynamics(mixed):
    q, v, _, _, _ = state(mixed)
    with pytest.raises(KeyError, match="no joint named 'leg'"):
        ts.hybrid_dynamics_derivatives(mixed, q, v, prescribed=["leg"])
    with pytest.raises(TypeError, match=r"prescribed is 'arm', .* \['arm'\]"):
        ts.hybrid_dynamics_derivatives(mixed, q, v, prescribed="arm")
    with pytest.raises(TypeError, match=r"shape \(1,\), expected names"):
        ts.hybrid_dynamics_derivatives(mixed, q, v, prescribed=[True])
    # names stand for masks, and what is left out is zero
    mask = np.zeros(mixed.nv, bool)
    mask[mixed.joint("ball").v_slice] = True
    rest = np.zeros(mixed.nv)
    for x, y in zip(
        ts.hybrid_dynamics_derivatives(mixed, q, v, prescribed=["ball"]),
        ts.hybrid_dynamics_derivatives(mixed, q, v, a=rest, tau=rest, prescribed=mask),
        strict=True,
    ):
        assert np.array_equal(x, y)


@every_function
def test_other_kinds_of_numbers_and_arrays(mixed, name):
    f, _ = FUNCTIONS[name]
    arrays = [np.round(3 * x) for x in state(mixed, batch=(4,))[:3]]
    expected = f(mixed, *arrays)
    keep = [x.copy() for x in arrays]
    for change in (
        lambda x: x.astype(np.int32),
        lambda x: x.astype(np.float32),
        lambda x: x.astype(">f8"),
        lambda x: x.tolist(),
        np.asfortranarray,
        lambda x: np.repeat(x, 2, axis=-1)[:, ::2],
        lambda x: np.frombuffer(x.tobytes()).reshape(x.shape),  # read-only
    ):
        result = f(mixed, *map(change, arrays))
        assert all(np.array_equal(x, y) for x, y in zip(result, expected, strict=True))
    assert all(np.array_equal(x, y) for x, y in zip(arrays, keep, strict=True))


@every_function
@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300])
def test_bad_numbers_stay_in_their_state(mixed, name, value):
    f, _ = FUNCTIONS[name]
    q, v, x, _, wrench = state(mixed, batch=(19,))
    arrays = [q, v, x, wrench]
    call = lambda q, v, x, wrench: f(mixed, q, v, x, f_ext=wrench)  # noqa: E731
    expected = call(*arrays)
    others = np.arange(19) != 6
    for k in range(4):
        spoilt = [y.copy() for y in arrays]
        spoilt[k][6] = value
        result = call(*spoilt)
        alone = call(*(y[6] for y in spoilt))
        for got, right, one in zip(result, expected, alone, strict=True):
            assert np.array_equal(got[others], right[others])
            assert np.array_equal(got[6], one, equal_nan=True)
        if np.isnan(value):
            assert any(np.isnan(y[6]).any() for y in result)


SOLVERS = {
    "forward": lambda m, q, **o: ts.forward_dynamics_derivatives(m, q, np.ones(m.nv), np.ones(m.nv), **o),
    "hybrid": lambda m, q, **o: ts.hybrid_dynamics_derivatives(m, q, np.ones(m.nv), prescribed=["arm"], **o),
}


def on(joint, inertia=None):
    """A heavy arm with a body on `joint` at its end."""
    rng = np.random.default_rng(1)
    b = ts.ModelBuilder().add_body("arm", "world", ts.Revolute((1, 0, 0)), inertia=testing.random_inertia(rng))
    return b.add_body("hand", "arm", joint, testing.random_pose(rng), inertia, joint_name="finger").build()


@pytest.mark.parametrize("solve", SOLVERS.values(), ids=SOLVERS)
@pytest.mark.parametrize(
    ("joint", "inertia"),
    [
        *((j, None) for j in (ts.Revolute(), ts.Prismatic(), ts.Spherical(), ts.Free())),
        *((j, None) for j in (ts.Universal(), ts.SphericalExp())),
        (ts.Revolute((0, 0, 1)), ts.Inertia.point(1.0, (0, 0, 2))),
        (ts.Spherical(), ts.Inertia.point(1.0, (1, 2, 3))),
        (ts.SphericalEuler("XYX"), ts.Inertia.sphere(1.0, mass=1.0)),
    ],
)  # fmt: skip
def test_motions_that_move_no_mass(solve, joint, inertia):
    model = on(joint, inertia)
    q = np.tile(model.neutral, (5, 1))
    with pytest.raises(ts.SingularMassMatrixError, match="singular at joint 'finger': some motion"):
        solve(model, q[0])
    with pytest.raises(ts.SingularMassMatrixError, match="singular at joint 'finger' in state 0 of the batch"):
        solve(model, q)
    # inverse dynamics has derivatives, and hybrid dynamics that prescribes the joint
    ones = np.ones(model.nv)
    assert all(np.isfinite(x).all() for x in ts.inverse_dynamics_derivatives(model, q, ones, ones))
    d = ts.hybrid_dynamics_derivatives(model, q[0], ones, a=2 * ones, prescribed=["finger"])
    assert all(np.isfinite(x).all() for x in d)


@pytest.mark.parametrize("solve", SOLVERS.values(), ids=SOLVERS)
@pytest.mark.parametrize("threads", [1, 2])
def test_the_singular_state_is_named(solve, threads):
    model = on(ts.SphericalEuler("ZYX"), ts.Inertia.box((0.1, 0.2, 0.3), mass=1.0, com=(0.1, 0.2, 0.3)))
    q = model.random(np.random.default_rng(1), 300)
    for bad in (0, 3, 250, 299):
        spoilt = q.copy()
        spoilt[bad, 2] = np.pi / 2
        with pytest.raises(ts.SingularMassMatrixError, match=f"at joint 'finger' in state {bad} of the batch"):
            solve(model, spoilt, threads=threads)
    assert np.isfinite(solve(model, q, threads=threads)[0]).all()  # nothing is left behind


@every_function
@pytest.mark.parametrize("bodies", [0, 2])
def test_models_that_do_not_move(name, bodies):
    builder = ts.ModelBuilder()
    for k in range(bodies):
        builder.add_body(f"b{k}", f"b{k - 1}" if k else "world", inertia=ts.Inertia.point(1.0, (0, 0, 1)))
    model = builder.build()
    f, _ = FUNCTIONS[name]
    more = {"mask": []} if name == "hybrid" else {}
    for batch in ((), (5,), (2, 0)):
        none = np.zeros((*batch, 0))
        result = f(model, none, none, none, f_ext=np.ones((bodies, 6)), threads=2, **more)
        assert all(x.shape == (*batch, 0, 0) for x in result)


@pytest.mark.parametrize("length", [0.05, 1.0, 10.0])
def test_a_mass_on_the_axis_of_a_joint_far_from_the_root_is_singular(length):
    rng = np.random.default_rng(1)
    builder = ts.ModelBuilder("arm")
    parent = "world"
    for name in ("upper", "lower", "hand"):
        placement = ts.SE3.translation(length if parent != "world" else 0.0, 0.0, 0.0)
        builder.add_body(name, parent, ts.Revolute(rng.standard_normal(3)), placement, testing.random_inertia(rng))
        parent = name
    axis = rng.standard_normal(3)
    mass = ts.Inertia.point(0.7, 0.3 * axis)
    builder.add_body("drill", parent, ts.Revolute(axis), ts.SE3.translation(length, 0.0, 0.0), mass)
    model = builder.build()
    q, v, tau = rng.standard_normal((3, model.nv))
    for solve in (ts.forward_dynamics_derivatives, ts.forward_dynamics_hessians):
        with pytest.raises(ts.SingularMassMatrixError, match="'drill'"):
            solve(model, q, v, tau)


@pytest.mark.parametrize("joint", [ts.Free2D(), ts.Translational(), ts.Composite(ts.Translational(), ts.Spherical())])
def test_nothing_is_lost_far_away_on_joints_in_parts(joint):
    rng = np.random.default_rng(3)
    builder = ts.ModelBuilder("far")
    builder.add_body("base", "world", joint, inertia=testing.random_inertia(rng))
    builder.add_body("arm", "base", ts.Revolute((1, 2, 3)), testing.random_pose(rng), testing.random_inertia(rng))
    model = builder.build()
    q = model.random(rng)
    q[:2] = 0.0
    far = q.copy()
    far[:2] = 2.0**20
    v, x = rng.standard_normal((2, model.nv))
    for f in (ts.inverse_dynamics_derivatives, ts.forward_dynamics_derivatives):
        for here, there in zip(f(model, q, v, x), f(model, far, v, x), strict=True):
            close(there, here, 1e-12)
