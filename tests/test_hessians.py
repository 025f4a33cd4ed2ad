"""Second derivatives of inverse and forward dynamics: complex steps of first derivatives, identities, and bits."""

import subprocess
import sys
import textwrap

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from population import CURVE, FRAMES, JOINTS, SURFACE, Own, models

import torsor as ts
from torsor import spatial, testing
from torsor.testing import complex_step

over_models = pytest.mark.parametrize("model", list(models(seed=9)))
over_wrenches = pytest.mark.parametrize("frame", [None, *FRAMES])


def state(model, seed=0, batch=()):
    """q, v, a (or tau), weights, and external wrenches."""
    rng = np.random.default_rng(seed)
    v, a, w = (rng.standard_normal((*batch, model.nv)) for _ in range(3))
    return model.random(rng, batch or None), v, a, w, rng.standard_normal((*batch, model.nbodies, 6))


def wrenches(f, frame):
    return {} if frame is None else {"f_ext": f, "f_ext_frame": frame}


def close(x, y, tol=1e-12):
    """Agreement to `tol` of the largest entry, or of 1: sums of some hundred products, each rounded."""
    assert np.shape(x) == np.shape(y)
    scale = max(1.0, np.abs(y).max(initial=0.0))
    np.testing.assert_allclose(np.divide(x, scale), np.divide(y, scale), rtol=0, atol=tol)


def conditioned(model, q):
    """What three solutions with the mass matrix, one after the other, may lose against others in another order."""
    return max(1e-12, 1e-14 * np.linalg.cond(ts.mass_matrix(model, q))) if model.nv else 1e-12


def along_q(f, model, q):
    return complex_step(lambda d: f(model.plus(q, d)), np.zeros(model.nv))


def expected_inverse(model, q, v, a, **more):
    """The four tensors by complex steps of first derivatives."""

    def d(q, v):
        return np.stack(ts.inverse_dynamics_derivatives(model, q, v, a, **more))

    by_q, by_v = along_q(lambda q: d(q, v), model, q), complex_step(lambda v: d(q, v), v)
    return ts.derivatives.InverseDynamicsHessians(by_q[0], by_v[0], by_v[1], by_q[2])


def expected_forward(model, q, v, tau, **more):
    def d(q, v):
        return np.stack(ts.forward_dynamics_derivatives(model, q, v, tau, **more))

    by_q, by_v = along_q(lambda q: d(q, v), model, q), complex_step(lambda v: d(q, v), v)
    return ts.derivatives.ForwardDynamicsHessians(by_q[0], by_v[0], by_v[1], by_q[2])


def check(hessians, derivatives, expected, model, q, v, x, w, tol, **more):
    """The tensors, and with weights the matrices and gradients."""
    for left, right in zip(hessians(model, q, v, x, **more), expected, strict=True):
        close(left, right, tol)
    c = hessians(model, q, v, x, contract=w, **more)
    for left, right in zip(c[:4], expected, strict=True):
        close(left, np.einsum("i,ijk->jk", w, right), tol)
    for left, right in zip(c[4:], derivatives(model, q, v, x, **more), strict=True):
        close(left, w @ right, tol)


def check_inverse(model, q, v, a, w, **more):
    expected = expected_inverse(model, q, v, a, **more)
    call, first = ts.inverse_dynamics_hessians, ts.inverse_dynamics_derivatives
    check(call, first, expected, model, q, v, a, w, 1e-12, **more)


def check_forward(model, q, v, tau, w, **more):
    expected = expected_forward(model, q, v, tau, **more)
    call, first = ts.forward_dynamics_hessians, ts.forward_dynamics_derivatives
    check(call, first, expected, model, q, v, tau, w, conditioned(model, q), **more)


# ---- against complex steps of first derivatives


def test_the_population():
    counts = dict.fromkeys((*JOINTS, ts.Fixed()), 0)
    for parameter in models(seed=9):
        for body in parameter.values[0].bodies:
            counts[body.joint] += 1
    assert min(counts.values()) == 2


@over_models
@over_wrenches
def test_inverse_dynamics(model, frame):
    q, v, a, w, f = state(model)
    check_inverse(model, q, v, a, w, **wrenches(f, frame))


@over_models
@over_wrenches
def test_forward_dynamics(model, frame):
    q, v, tau, w, f = state(model)
    check_forward(model, q, v, tau, w, **wrenches(f, frame))


@settings(max_examples=25, deadline=None, derandomize=True, print_blob=False)
@given(st.lists(st.integers(0, len(JOINTS)), min_size=1, max_size=8), st.integers(0, 2**16), st.sampled_from(FRAMES))
def test_drawn_trees(joints, seed, frame):
    model = testing.random_tree(seed, [(*JOINTS, ts.Fixed())[k] for k in joints])
    q, v, a, w, f = state(model, seed)
    check_inverse(model, q, v, a, w, f_ext=f, f_ext_frame=frame)
    check_forward(model, q, v, a, w, f_ext=f, f_ext_frame=frame)


@pytest.mark.parametrize("joint", JOINTS, ids=lambda j: getattr(j, "chart", type(j).__name__))
def test_a_joint_upon_another_of_its_kind(joint):
    model = testing.random_tree(1, [joint, joint, ts.Prismatic((1, 2, 3)), joint], branching=0.0)
    q, v, a, w, f = state(model, 1)
    for frame in FRAMES:
        check_inverse(model, q, v, a, w, f_ext=f, f_ext_frame=frame)


@pytest.mark.parametrize("inner", [ts.SphericalExp(), ts.Universal(), SURFACE], ids=lambda j: type(j).__name__)
def test_joints_of_the_users_own_are_as_good_as_built_in_ones(inner):
    built_in, own = (testing.random_tree(6, [JOINTS[1], j, JOINTS[5]]) for j in (inner, Own(inner)))
    q, v, a, w, f = state(built_in)
    for more in ({}, {"contract": w}):
        for x, y in zip(
            ts.inverse_dynamics_hessians(own, q, v, a, f_ext=f, **more),
            ts.inverse_dynamics_hessians(built_in, q, v, a, f_ext=f, **more),
            strict=True,
        ):
            close(x, y)


def test_deep_trees():
    # More velocities on one path than those for which first derivatives solve in the same way.
    for n in (48, 49, 90):
        model = ts.models.chain(n)
        q, v, tau, w, f = state(model)
        check_forward(model, q, v, tau, w, f_ext=f)


# ---- near the singular places


def check_at(joint, place, forward=False):
    """The joint between a free base and a body on a revolute joint."""
    model = testing.random_tree(4, [ts.Free(), joint, ts.Revolute((1, 2, 3))], branching=0.0)
    q, v, a, w, f = state(model, 2)
    q[model.joints[1].q_slice] = place
    for frame in (None, *FRAMES):
        check_inverse(model, q, v, a, w, **wrenches(f, frame))
    if forward:
        check_forward(model, q, v, a, w)
    else:
        return model, q, v, a
    return None


@pytest.mark.parametrize("length", [0.0, 1e-300, 1e-160, 1e-20, 1e-8, 1e-5, 1e-2, 1.9999, 2.0001, np.pi, np.pi + 1e-3])
def test_exponential_coordinates(length):
    check_at(ts.SphericalExp(), length * np.array([0.6, -0.64, 0.48]), forward=True)


@pytest.mark.parametrize("off", [-1e-2, -1e-9, 0.0, 1e-6])
def test_exponential_coordinates_near_a_whole_turn(off):
    model, q, v, a = check_at(ts.SphericalExp(), (2 * np.pi + off) * np.array([0.6, -0.64, 0.48]))
    if off == 0:
        for more in ({}, {"contract": a}):
            with pytest.raises(ts.SingularMassMatrixError, match="singular at joint 'body1'"):
                ts.forward_dynamics_hessians(model, q, v, a, **more)


@pytest.mark.parametrize("chart", ["ZYX", "XYX"])
@pytest.mark.parametrize("off", [0.0, 1e-9, 1e-2])
def test_euler_angles_near_their_singularity(chart, off):
    singular = 0.0 if chart[0] == chart[2] else np.pi / 2
    check_at(ts.SphericalEuler(chart), [0.3, singular + off, -0.7])


@pytest.mark.parametrize("place", [-0.5, 0.0, 1.0, 1 - 1e-12, 3.0, 3.7])
def test_curves_at_knots_and_beyond_their_ends(place):
    check_at(CURVE, place)


@pytest.mark.parametrize("place", [(-1.5, -0.3), (0.0, 1.0), (1.0, 2.0), (0.4, 3.1)])
def test_surfaces_at_knots_and_beyond_their_ends(place):
    check_at(SURFACE, place)


# ---- closed forms and identities


def test_pendulum():
    m, l, I, g = 1.3, 0.7, 0.02, 9.81
    inertia = ts.Inertia(m, (0, 0, -l), np.diag([0.5, I, 0.5]), allow_unphysical=True)
    model = ts.ModelBuilder().add_body("bob", "world", ts.Revolute((0, 1, 0)), inertia=inertia).build()
    for q, v, x in np.random.default_rng(0).uniform(-4, 4, (20, 3, 1)):
        H = ts.inverse_dynamics_hessians(model, q, v, x)
        close(H.d2tau_dqdq, [[-m * g * l * np.sin(q)]], 1e-14)
        for other in H[1:]:
            close(other, [[[0.0]]], 1e-14)
        H = ts.forward_dynamics_hessians(model, q, v, x)
        close(H.d2a_dqdq, [[m * g * l * np.sin(q) / (m * l**2 + I)]], 1e-14)


def test_cart_pole():
    M, m, l, g = 1.5, 0.4, 0.6, 9.81
    builder = ts.ModelBuilder()
    builder.add_body("cart", "world", ts.Prismatic((1, 0, 0)), inertia=ts.Inertia.point(M, (0, 0, 0)))
    builder.add_body("pole", "cart", ts.Revolute((0, 1, 0)), inertia=ts.Inertia.point(m, (0, 0, -l)))
    model = builder.build()
    for q, v, a in np.random.default_rng(0).uniform(-3, 3, (20, 3, 2)):
        s, c, w = np.sin(q[1]), np.cos(q[1]), v[1]
        # tau_x = (M + m) a_x - m l c a + m l s w^2, tau = -m l c a_x + m l^2 a + m g l s
        H = ts.inverse_dynamics_hessians(model, q, v, a)
        qq, qv, vv, aq = np.zeros((4, 2, 2, 2))
        qq[:, 1, 1] = m * l * (c * a[1] - s * w**2), m * l * (c * a[0] - g * s)
        qv[0, 1, 1] = 2 * m * l * c * w
        vv[0, 1, 1] = 2 * m * l * s
        aq[0, 1, 1] = aq[1, 0, 1] = m * l * s
        for x, y in zip(H, (qq, qv, vv, aq), strict=True):
            close(x, y, 1e-14)


def structure(model):
    """C[l, j, k]: component l of the commutator of directions k and j, zero but inside spherical and free joints."""
    C = np.zeros((model.nv,) * 3)
    for joint in model.joints:
        at = joint.v_slice.start
        for part in (joint.joint, *getattr(joint.joint, "joints", ())):
            if part is joint.joint and hasattr(part, "joints"):
                continue
            n = part.nv
            if isinstance(part, (ts.Spherical, ts.Free)):
                own = slice(at, at + n)
                ad = np.stack([spatial.ad(e)[:n, :n] for e in np.eye(6)[:n]])  # ad[k, :, j] = e_k x e_j
                C[own, own, own] = ad.transpose(1, 2, 0)
            at += n
    return C


@over_models
@over_wrenches
def test_two_directions_commute_or_differ_by_their_commutator(model, frame):
    q, v, x, w, f = state(model)
    more = wrenches(f, frame)
    C = structure(model)
    H = ts.inverse_dynamics_hessians(model, q, v, x, **more)
    d = ts.inverse_dynamics_derivatives(model, q, v, x, **more)
    close(H.d2tau_dqdq - H.d2tau_dqdq.swapaxes(1, 2), np.einsum("il,ljk->ijk", d.dtau_dq, C))
    assert np.array_equal(H.d2tau_dvdv, H.d2tau_dvdv.swapaxes(1, 2))
    close(H.d2tau_dadq, H.d2tau_dadq.swapaxes(0, 1))
    c = ts.inverse_dynamics_hessians(model, q, v, x, contract=w, **more)
    close(c.d2tau_dqdq - c.d2tau_dqdq.T, np.einsum("l,ljk->jk", c.dtau_dq, C))
    assert np.array_equal(c.d2tau_dvdv, c.d2tau_dvdv.T)
    tol = conditioned(model, q)
    H = ts.forward_dynamics_hessians(model, q, v, x, **more)
    d = ts.forward_dynamics_derivatives(model, q, v, x, **more)
    close(H.d2a_dqdq - H.d2a_dqdq.swapaxes(1, 2), np.einsum("il,ljk->ijk", d.da_dq, C), tol)
    close(H.d2a_dvdv, H.d2a_dvdv.swapaxes(1, 2), tol)
    close(H.d2a_dtaudq, H.d2a_dtaudq.swapaxes(0, 1), tol)


def test_a_free_body_shows_the_order_of_directions():
    # A force at rest in the world, seen from a body that turns about z and then x, or about x and then z.
    model = ts.ModelBuilder(gravity=(0, 0, 0)).add_body("ball", "world", ts.Free()).build()
    f = np.array([[0, 0, 0, 0, 0, 1.0]])
    rest = np.zeros(6)
    H = ts.inverse_dynamics_hessians(model, model.neutral, rest, rest, f_ext=f, f_ext_frame="local_world_aligned")
    # tau_force = -R^T z; d/dq_k is taken of d/dq_j at a body turned already: R = exp(s e_k) exp(t e_j)
    z = np.array([0, 0, 1.0])
    for j, k in np.ndindex(3, 3):
        close(H.d2tau_dqdq[3:, j, k], -np.cross(np.eye(3)[j], np.cross(np.eye(3)[k], z)), 1e-15)
    assert not np.array_equal(H.d2tau_dqdq[3:, 0, 2], H.d2tau_dqdq[3:, 2, 0])


@over_models
def test_identities(model):
    q, v, a, w, f = state(model)
    H = ts.inverse_dynamics_hessians(model, q, v, a, f_ext=f)
    close(H.d2tau_dadq, along_q(lambda q: ts.mass_matrix(model, q), model, q))
    close(
        ts.forward_dynamics_hessians(model, q, v, a, f_ext=f, outputs=["d2a_dtaudq"]).d2a_dtaudq,
        along_q(lambda q: ts.mass_matrix_inverse(model, q), model, q),
        conditioned(model, q),
    )
    # of second degree in v
    close(H.d2tau_dvdv @ v, ts.inverse_dynamics_derivatives(model, q, v, a).dtau_dv)
    # the mass matrix changes by C + C^T
    C = ts.coriolis_matrix(model, q, v)
    close(H.d2tau_dadq @ v, C + C.T)
    # contracted with unit vectors: the slabs
    slabs = ts.inverse_dynamics_hessians(model, q, v, a, f_ext=f, contract=np.eye(model.nv))
    for x, y in zip(slabs[:4], H, strict=True):
        close(x, y)
    gradient = ts.inverse_dynamics_vjp(model, q, v, a, w, f_ext=f)
    c = ts.inverse_dynamics_hessians(model, q, v, a, f_ext=f, contract=w)
    for x, y in ((c.dtau_dq, gradient.q), (c.dtau_dv, gradient.v), (c.dtau_da, gradient.a)):
        close(x, y)
    gradient = ts.forward_dynamics_vjp(model, q, v, a, w, f_ext=f)
    c = ts.forward_dynamics_hessians(model, q, v, a, f_ext=f, contract=w)
    for x, y in ((c.da_dq, gradient.q), (c.da_dv, gradient.v), (c.da_dtau, gradient.tau)):
        close(x, y, conditioned(model, q))


@over_models
def test_christoffel_symbols(model):
    q, v, _, _, _ = state(model)
    G = ts.christoffel_symbols(model, q)
    assert np.array_equal(G, G.swapaxes(1, 2))
    close(np.einsum("ijk,j,k->i", G, v, v), ts.bias_forces(model, q, v) - ts.gravity_forces(model, q))
    # of the mass matrix, and the structure constants of directions that do not commute
    dM = ts.inverse_dynamics_hessians(model, q, v, v).d2tau_dadq
    M = ts.mass_matrix(model, q)
    first = (dM + dM.swapaxes(1, 2) - dM.transpose(2, 1, 0)) / 2
    lie = np.einsum("jl,lki->ijk", M, structure(model))  # M_jl [e_i, e_k]_l
    close(G, first + (lie + lie.swapaxes(1, 2)) / 2)


def test_christoffel_symbols_into_an_array():
    model = ts.models.quadruped()
    q = model.random(np.random.default_rng(0), (3,))
    G = ts.christoffel_symbols(model, q)
    out = np.full_like(G, np.nan)
    assert ts.christoffel_symbols(model, q, out=out, threads=2) is out
    assert np.array_equal(out, G)
    assert np.array_equal(G[1], ts.christoffel_symbols(model, q[1]))
    with pytest.raises(ValueError, match="has shape"):
        ts.christoffel_symbols(model, q, out=out[0])
    with pytest.raises(TypeError, match=r"model must be a torsor\.Model, got NoneType"):
        ts.christoffel_symbols(None, q)


# ---- derivatives of first derivatives along one direction


@over_models
@over_wrenches
def test_directions(model, frame):
    q, v, x, _, f = state(model)
    more = wrenches(f, frame)
    dq, dv, dx = np.random.default_rng(1).standard_normal((3, model.nv))
    H = ts.inverse_dynamics_hessians(model, q, v, x, **more)
    t = ts.inverse_dynamics_derivatives_jvp(model, q, v, x, dq=dq, dv=dv, da=dx, **more)
    assert type(t) is ts.derivatives.InverseDynamicsDerivativesJVP
    for left, right in zip(t[:3], ts.inverse_dynamics_derivatives(model, q, v, x, **more), strict=True):
        close(left, right)
    close(t.ddtau_dq, H.d2tau_dqdq @ dq + H.d2tau_dqdv @ dv + np.einsum("ijk,j->ik", H.d2tau_dadq, dx))
    close(t.ddtau_dv, np.einsum("ijk,j->ik", H.d2tau_dqdv, dq) + H.d2tau_dvdv @ dv)
    close(t.ddtau_da, H.d2tau_dadq @ dq)
    tol = conditioned(model, q)
    H = ts.forward_dynamics_hessians(model, q, v, x, **more)
    t = ts.forward_dynamics_derivatives_jvp(model, q, v, x, dq=dq, dv=dv, dtau=dx, **more)
    assert type(t) is ts.derivatives.ForwardDynamicsDerivativesJVP
    for left, right in zip(t[:3], ts.forward_dynamics_derivatives(model, q, v, x, **more), strict=True):
        close(left, right, tol)
    close(t.dda_dq, H.d2a_dqdq @ dq + H.d2a_dqdv @ dv + np.einsum("ijk,j->ik", H.d2a_dtaudq, dx), tol)
    close(t.dda_dv, np.einsum("ijk,j->ik", H.d2a_dqdv, dq) + H.d2a_dvdv @ dv, tol)
    close(t.dda_dtau, H.d2a_dtaudq @ dq, tol)


@over_models
def test_directions_of_wrenches(model):
    q, v, x, _, f = state(model)
    df = np.random.default_rng(1).standard_normal(f.shape)
    for frame in FRAMES:  # torques are linear in them
        one = ts.inverse_dynamics_derivatives(model, q, v, x, f_ext=f, f_ext_frame=frame)
        other = ts.inverse_dynamics_derivatives(model, q, v, x, f_ext=f + df, f_ext_frame=frame)
        for more in ({"f_ext": f}, {}):
            t = ts.inverse_dynamics_derivatives_jvp(model, q, v, x, df_ext=df, f_ext_frame=frame, **more)
            close(t.ddtau_dq, other.dtau_dq - one.dtau_dq)
            assert not t.ddtau_dv.any() and not t.ddtau_da.any()
        t = ts.forward_dynamics_derivatives_jvp(model, q, v, x, f_ext=f, df_ext=df, f_ext_frame=frame)
        with testing.complex_inputs():
            z = ts.forward_dynamics_derivatives(model, q, v, x, f_ext=f + 1j * testing.STEP * df, f_ext_frame=frame)
        for left, right in zip(t[3:], z, strict=True):
            close(left, right.imag / testing.STEP, conditioned(model, q))


def rebuilt(model, inertia=lambda i: i, gravity=(0, 0, 0)):
    builder = ts.ModelBuilder(model.name, np.add(model.gravity, gravity))
    for b in model.bodies:
        builder.add_body(b.name, b.parent, b.joint, b.placement, inertia(b.inertia))
    return builder.build()


@over_models
def test_directions_in_which_the_model_is_linear(model):
    q, v, x, _, f = state(model)
    rates = {b.name: 0.3 * b.inertia.parameters for b in model.bodies[::2]}
    heavier = ts.Inertia.from_parameters
    grown = ts.ModelBuilder(model.name, np.add(model.gravity, (1, -2, 3)))
    for k, b in enumerate(model.bodies):
        inertia = heavier(1.3 * b.inertia.parameters) if k % 2 == 0 else b.inertia
        grown.add_body(b.name, b.parent, b.joint, b.placement, inertia)
    grown = grown.build()
    down = rebuilt(model, gravity=(1, -2, 3))
    one = ts.inverse_dynamics_derivatives(model, q, v, x, f_ext=f)
    for other, direction in (
        (rebuilt(grown, gravity=(-1, 2, -3)), ts.ModelDirection(inertia=rates)),
        (down, ts.ModelDirection(gravity=(1, -2, 3))),
    ):
        t = ts.inverse_dynamics_derivatives_jvp(model, q, v, x, f_ext=f, model_direction=direction)
        for left, right, start in zip(
            t[3:], ts.inverse_dynamics_derivatives(other, q, v, x, f_ext=f), one, strict=True
        ):
            close(left, right - start, 1e-11)  # a difference of larger ones


def test_placements_move_as_free_joints_before_the_joints_do():
    joints = [ts.Free(), JOINTS[1], JOINTS[13], JOINTS[12], CURVE]
    model = testing.random_tree(3, joints, branching=0.0)
    q, v, x, _, f = state(model)
    twist = np.random.default_rng(1).standard_normal(6)
    at = model.bodies[2]
    loose = ts.ModelBuilder(model.name, model.gravity)
    for b in model.bodies:
        if b is at:
            loose.add_body("base", b.parent, ts.Free(), b.placement)
            loose.add_body(b.name, "base", b.joint, inertia=b.inertia)
        else:
            loose.add_body(b.name, b.parent, b.joint, b.placement, b.inertia)
    loose = loose.build()
    base = loose.joint("base")
    rows = np.r_[0 : base.v_slice.start, base.v_slice.stop : loose.nv]

    def spread(values, where, size):
        y = np.zeros(size)
        y[np.r_[0 : where.start, where.stop : size]] = values
        return y

    lq = spread(q, base.q_slice, loose.nq)
    lq[base.q_slice] = ts.Free().neutral
    lv, lx = (spread(y, base.v_slice, loose.nv) for y in (v, x))
    lf = np.insert(f, 2, 0.0, axis=0)
    direction = ts.ModelDirection(placement={at.name: twist})
    for frame in FRAMES:
        H = ts.inverse_dynamics_hessians(loose, lq, lv, lx, f_ext=lf, f_ext_frame=frame)
        t = ts.inverse_dynamics_derivatives_jvp(model, q, v, x, f_ext=f, model_direction=direction, f_ext_frame=frame)
        close(t.ddtau_dq, (H.d2tau_dqdq[..., base.v_slice] @ twist)[np.ix_(rows, rows)])
        close(t.ddtau_dv, np.einsum("ijk,j->ik", H.d2tau_dqdv[:, base.v_slice], twist)[np.ix_(rows, rows)])
        close(t.ddtau_da, (H.d2tau_dadq[..., base.v_slice] @ twist)[np.ix_(rows, rows)])


# ---- size


def test_memory_of_the_contracted_form():
    """A tensor of this chain is 216 MB. Neither one state nor a batch takes as much as one of the four, nor near it."""
    script = """
        import resource
        import numpy as np
        import torsor as ts
        model = ts.models.chain(300)
        q, v, a, w = np.random.default_rng(0).standard_normal((4, 8, 300))
        peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        ts.forward_dynamics_derivatives(model, q, v, a)
        start = peak()
        ts.inverse_dynamics_hessians(model, q[0], v[0], a[0], contract=w[0])
        ts.forward_dynamics_hessians(model, q[0], v[0], a[0], contract=w[0])
        one = peak() - start
        ts.inverse_dynamics_hessians(model, q, v, a, contract=w)
        ts.forward_dynamics_hessians(model, q, v, a, contract=w)
        print(one, peak() - start)
    """
    script = f"import sys; sys.path[:] = {sys.path!r}\n" + textwrap.dedent(script)  # the same package as here
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    one, eight = map(int, run.stdout.split())  # kilobytes
    assert one < 30_000 and eight < 8 * 30_000


# ---- how one asks makes no difference, to the last bit


ALL = testing.random_tree(7, [*JOINTS[::2], ts.Fixed(), Own(ts.SphericalExp())])


def calls(model, q, v, x, w, f, **more):
    """Every function in every frame, as name and record."""
    for frame in FRAMES:
        k = {"f_ext": f, "f_ext_frame": frame, **more}
        yield "inverse " + frame, ts.inverse_dynamics_hessians(model, q, v, x, **k)
        yield "inverse contracted " + frame, ts.inverse_dynamics_hessians(model, q, v, x, contract=w, **k)
        yield "forward contracted " + frame, ts.forward_dynamics_hessians(model, q, v, x, contract=w, **k)
        yield "inverse tangent " + frame, ts.inverse_dynamics_derivatives_jvp(model, q, v, x, dq=w, **k)
        yield "forward tangent " + frame, ts.forward_dynamics_derivatives_jvp(model, q, v, x, dq=w, dtau=v, **k)
    yield "forward", ts.forward_dynamics_hessians(model, q, v, x, **more)
    yield "inverse", ts.inverse_dynamics_hessians(model, q, v, x, **more)


def assert_same(x, y, pick=lambda z: z):
    """Two lists of calls with equal bits; `pick` takes from those of the first what the second has."""
    for (name, one), (_, other) in zip(x, y, strict=True):
        for field, left, right in zip(one._fields, one, other, strict=True):
            assert np.array_equal(pick(left), right, equal_nan=True), (name, field)


def test_batches_lanes_and_threads_change_no_bit():
    n = 19  # no multiple of any machine's lanes
    arrays = state(ALL, batch=(n,))
    whole = list(calls(ALL, *arrays))
    for s in (0, 7, 8, n - 1):
        assert_same(whole, calls(ALL, *(x[s] for x in arrays)), lambda z, s=s: z[s])
    assert_same(whole, calls(ALL, *(x[3:-4] for x in arrays), threads=2), lambda z: z[3:-4])  # other lanes


def test_many_states_over_threads_change_no_bit():
    model = ts.models.quadruped()
    arrays = state(model, batch=(300,))
    whole = list(calls(model, *arrays))
    assert_same(whole, calls(model, *arrays, threads=3))
    assert_same(whole, calls(model, *(x[[3, 299]] for x in arrays)), lambda z: z[[3, 299]])


def test_batch_shapes_broadcast_and_weights_too():
    model = ts.models.quadruped()
    q, v, x, w, f = state(model, batch=(4,))
    d = list(calls(model, q[:, None], v[:3], x[0], w[:, None], f[:3]))
    for i, j in ((0, 0), (3, 2)):
        assert_same(d, calls(model, q[i], v[j], x[0], w[i], f[j]), lambda z, i=i, j=j: z[i, j])
    several = ts.inverse_dynamics_hessians(model, q[0], v[0], x[0], contract=w)
    assert several.d2tau_dqdq.shape == (4, model.nv, model.nv)
    for k in range(4):
        one = ts.inverse_dynamics_hessians(model, q[0], v[0], x[0], contract=w[k])
        assert all(np.array_equal(left[k], right) for left, right in zip(several, one, strict=True))
    H = ts.inverse_dynamics_hessians(model, q[:0], v[0], x[0])
    assert all(y.shape == (0, *(model.nv,) * 3) for y in H)


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


@over_models
def test_the_order_of_bodies_changes_no_bit(model):
    other, bodies, to_q, to_v = shuffled(model, np.random.default_rng(1))
    q, v, x, w, f = state(model)
    a, b = calls(model, q, v, x, w, f), calls(other, q[to_q], v[to_v], x[to_v], w[to_v], f[bodies])
    assert_same(a, b, lambda z: z[np.ix_(*[to_v] * z.ndim)])


def test_branches_do_not_see_each_other():
    model = testing.random_tree(11, [JOINTS[k] for k in (1, 12, 13, 14, 16, 19, 20, 5)], branching=0.6)
    q, v, x, w, f = state(model)
    M = ts.mass_matrix(model, q) != 0
    apart = ~(M[:, :, None] & M[:, None] & M[None])
    assert 0.3 < apart.mean() < 1
    for frame in FRAMES:
        for y in ts.inverse_dynamics_hessians(model, q, v, x, f_ext=f, f_ext_frame=frame):
            assert not y[apart].any()
        for y in ts.inverse_dynamics_hessians(model, q, v, x, f_ext=f, f_ext_frame=frame, contract=w)[:4]:
            assert not y[~M].any()


def test_digits_far_from_the_origin():
    near, far = ts.ModelBuilder(), ts.ModelBuilder()
    for builder, distance in ((near, 0.0), (far, 1e8)):
        rng = np.random.default_rng(4)
        for k, joint in enumerate(JOINTS[i] for i in (14, 1, 13, 12, 5)):
            place = testing.random_pose(rng)
            place = ts.SE3(place.R, distance * np.array([1, -1, 1])) if k == 0 else place
            builder.add_body(f"b{k}", f"b{k - 1}" if k else "world", joint, place, testing.random_inertia(rng))
    near, far = near.build(), far.build()
    q, v, x, w, f = state(near)
    for frame in ("body", "local_world_aligned"):
        for contract in (None, w):
            more = {"f_ext": f, "f_ext_frame": frame, "contract": contract}
            for call, tol in (
                (ts.inverse_dynamics_hessians, 1e-12),
                (ts.forward_dynamics_hessians, conditioned(near, q)),
            ):
                for left, right in zip(call(far, q, v, x, **more), call(near, q, v, x, **more), strict=True):
                    close(left, right, tol)


# ---- outputs, out and wrong arguments


def weights(model):
    return np.linspace(-1, 1, getattr(model, "nv", 1))


def with_weights(call):
    def contracted(m, q, v, x, **more):
        return call(m, q, v, x, contract=weights(m), **more)

    return contracted


FUNCTIONS = {
    "inverse": (ts.inverse_dynamics_hessians, ts.derivatives.InverseDynamicsHessians),
    "inverse contracted": (
        with_weights(ts.inverse_dynamics_hessians),
        ts.derivatives.ContractedInverseDynamicsHessians,
    ),
    "forward": (ts.forward_dynamics_hessians, ts.derivatives.ForwardDynamicsHessians),
    "forward contracted": (
        with_weights(ts.forward_dynamics_hessians),
        ts.derivatives.ContractedForwardDynamicsHessians,
    ),
    "inverse jvp": (
        lambda m, q, v, x, **o: ts.inverse_dynamics_derivatives_jvp(m, q, v, x, dq=weights(m), **o),
        ts.derivatives.InverseDynamicsDerivativesJVP,
    ),
    "forward jvp": (
        lambda m, q, v, x, **o: ts.forward_dynamics_derivatives_jvp(m, q, v, x, dq=weights(m), **o),
        ts.derivatives.ForwardDynamicsDerivativesJVP,
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
        ("wrist", "arm", ts.SphericalExp()),
        ("slider", "base", ts.Composite(ts.Prismatic((0, 1, 0)), ts.Universal())),
        ("post", "world", ts.Fixed()),
    ):
        builder.add_body(name, parent, joint, testing.random_pose(rng), testing.random_inertia(rng))
    return builder.build()


@every_function
@pytest.mark.parametrize("batch", [(), (5,)])
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


@every_function
@pytest.mark.parametrize("batch", [(), (5,), (2, 3)])
def test_out(mixed, name, batch):
    f, record = FUNCTIONS[name]
    q, v, x, _, _ = state(mixed, batch=batch)
    expected = f(mixed, q, v, x)

    def fresh():
        return [np.full_like(y, np.nan) for y in expected]

    spread = [np.full([2 * n for n in y.shape], np.nan)[tuple(slice(1, None, 2) for _ in y.shape)] for y in expected]
    for out in (record(*fresh()), tuple(fresh()), fresh(), spread):
        result = f(mixed, q, v, x, out=out)
        assert type(result) is record
        for got, target, right in zip(result, out, expected, strict=True):
            assert got is target
            assert np.array_equal(target, right)
    last = record._fields[-1]
    out = record(*[None] * len(expected))._replace(**{last: fresh()[-1]})
    assert np.array_equal(f(mixed, q, v, x, out=out, outputs=[last])[-1], expected[-1])
    with pytest.raises(ValueError, match=rf"^out \({last}\) has shape .*, expected"):
        f(mixed, q, v, x, out=[*fresh()[:-1], np.zeros(3)])
    with pytest.raises(ValueError, match="two arrays of out share memory"):
        f(mixed, q, v, x, out=(expected[0], expected[0], *expected[2:]))
    for wrong in (expected[0], expected[:1], 3):
        with pytest.raises(TypeError, match=f"out must be a tuple of {len(expected)} arrays, got"):
            f(mixed, q, v, x, out=wrong)


@every_function
def test_errors(mixed, name):
    f, record = FUNCTIONS[name]
    q, v, x, _, wrench = state(mixed)
    third = "tau" if name.startswith("forward") else "a"
    with pytest.raises(ValueError, match=r"^q has shape \(13,\), expected \(\.\.\., 14\): model.nq is 14"):
        f(mixed, q[:-1], v, x)
    with pytest.raises(ValueError, match=rf"^{third} has shape \(12,\), expected"):
        f(mixed, q, v, x[:-1])
    with pytest.raises(ValueError, match=r"^f_ext has shape \(6, 5\), expected \(\.\.\., 6, 6\): model.nbodies is 6"):
        f(mixed, q, v, x, f_ext=wrench[:, :5])
    with pytest.raises(TypeError, match=r"^v is missing, expected an array of shape"):
        f(mixed, q, None, x)
    with pytest.raises(TypeError, match=r"^v is complex, expected real numbers"):
        f(mixed, q, v + 0j, x)
    with (
        testing.complex_inputs(),
        pytest.raises(TypeError, match="this function takes real numbers only: it differentiates already"),
    ):
        f(mixed, q, v + 0j, x)
    with pytest.raises(ValueError, match=r"^f_ext_frame is 'tool', expected 'body', 'world' or 'local_world_aligned'"):
        f(mixed, q, v, x, f_ext=wrench, f_ext_frame="tool")
    with pytest.raises(ValueError, match=f"^no output 'M'; outputs are '{record._fields[0]}', '{record._fields[1]}'"):
        f(mixed, q, v, x, outputs=["M"])
    with pytest.raises(ValueError, match=r"^threads is -1, expected an integer"):
        f(mixed, q, v, x, threads=-1)
    with pytest.raises(TypeError, match=r"^model must be a torsor\.Model, got str"):
        f("arm", q, v, x)


@pytest.mark.parametrize("call", [ts.inverse_dynamics_hessians, ts.forward_dynamics_hessians])
def test_wrong_weights(mixed, call):
    q, v, x, w, _ = state(mixed)
    with pytest.raises(ValueError, match=r"^contract has shape \(12,\), expected \(\.\.\., 13\): model.nv is 13"):
        call(mixed, q, v, x, contract=w[:-1])
    with pytest.raises(ValueError, match="batch shapes do not fit together"):
        call(mixed, np.stack([q] * 3), v, x, contract=np.stack([w] * 2))
    with pytest.raises(TypeError, match=r"^contract has dtype <U"):
        call(mixed, q, v, x, contract="w")


@every_function
@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300])
def test_bad_numbers_stay_in_their_state(mixed, name, value):
    f, _ = FUNCTIONS[name]
    arrays = state(mixed, batch=(11,))[:3]
    expected = f(mixed, *arrays)
    others = np.arange(11) != 6
    for k in range(3):
        spoilt = [y.copy() for y in arrays]
        spoilt[k][6] = value
        result = f(mixed, *spoilt)
        alone = f(mixed, *(y[6] for y in spoilt))
        for got, right, one in zip(result, expected, alone, strict=True):
            assert np.array_equal(got[others], right[others])
            assert np.array_equal(got[6], one, equal_nan=True)


@pytest.mark.parametrize("name", [n for n in FUNCTIONS if n.startswith("forward")])
def test_the_singular_state_is_named(name):
    f, _ = FUNCTIONS[name]
    builder = ts.ModelBuilder().add_body("arm", "world", ts.Revolute((1, 0, 0)), inertia=ts.Inertia.sphere(1.0, mass=1))
    builder.add_body(
        "hand", "arm", ts.SphericalEuler("ZYX"), inertia=ts.Inertia.sphere(1.0, mass=1), joint_name="wrist"
    )
    model = builder.build()
    q = model.random(np.random.default_rng(1), 30)
    q[17, 2] = np.pi / 2
    ones = np.ones(model.nv)
    with pytest.raises(ts.SingularMassMatrixError, match="at joint 'wrist' in state 17 of the batch"):
        f(model, q, ones, ones)
    assert all(np.isfinite(x).all() for x in f(model, q[:17], ones, ones))


@every_function
@pytest.mark.parametrize("bodies", [0, 2])
def test_models_that_do_not_move(name, bodies):
    builder = ts.ModelBuilder()
    for k in range(bodies):
        builder.add_body(f"b{k}", f"b{k - 1}" if k else "world", inertia=ts.Inertia.point(1.0, (0, 0, 1)))
    model = builder.build()
    f, _ = FUNCTIONS[name]
    for batch in ((), (5,), (2, 0)):
        none = np.zeros((*batch, 0))
        result = f(model, none, none, none, f_ext=np.ones((bodies, 6)), threads=2)
        assert all(x.size == 0 and x.shape[: len(batch)] == batch for x in result)
