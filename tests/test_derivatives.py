"""Derivatives of inverse, forward and hybrid dynamics as matrices: complex steps, closed forms, and zeros."""

import numpy as np
import pytest
from compare import along_q, close, conditioned
from hypothesis import given, settings
from hypothesis import strategies as st
from population import (
    CURVE,
    FRAMES,
    JOINTS,
    SURFACE,
    Own,
    deep_tree,
    mixed_tree,
    models,
    moved_by,
    state,
    sweep,
    wrenches,
)

import torsor as ts
from torsor import testing
from torsor.testing import complex_step

over_models = pytest.mark.parametrize("model", sweep(models(seed=3), 5))
over_wrenches = pytest.mark.parametrize("frame", [None, *FRAMES])


def some(model, seed=0):
    """A mask of velocities: whole joints, and single velocities of joints."""
    return np.random.default_rng(seed).uniform(size=model.nv) < 0.4


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
    joints = [ts.Free(), joint, ts.Revolute((1, 2, 3))]
    return testing.random_tree(4, joints, branching=0.0, armature=False)


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
    moves = moved_by(model)
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


@over_wrenches
def test_deep_trees_of_every_joint(frame):
    deep = deep_tree()
    q, v, a, tau, f = state(deep)
    check_forward(deep, q, v, tau, **wrenches(f, frame))
    mask = some(deep) & (np.arange(deep.nv) % 3 == 0)
    assert (moved_by(deep) & ~mask).sum(1).max() > 48
    check_hybrid(deep, q, v, a, tau, mask, **wrenches(f, frame))


def test_deep_and_shallow_trees_are_one():
    """The deep tree twice: by articulated bodies, and, with joints at one end prescribed, as a shallow one."""
    deep = deep_tree()
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


# ---- which velocities are prescribed, and which motions move no mass


def test_errors_of_hybrid_dynamics():
    mixed = mixed_tree()
    q, v, *_ = state(mixed)
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
