"""Second derivatives of inverse and forward dynamics: complex steps of first derivatives, and identities."""

import subprocess
import sys
import textwrap

import numpy as np
import pytest
from compare import along_q, close, conditioned
from hypothesis import given, settings
from hypothesis import strategies as st
from population import CURVE, FRAMES, JOINTS, SURFACE, Own, models, state, sweep, wrenches

import torsor as ts
from torsor import spatial, testing
from torsor.testing import complex_step

over_models = pytest.mark.parametrize("model", sweep(models(seed=9), 5))
over_wrenches = pytest.mark.parametrize("frame", [None, *FRAMES])


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
    check(call, first, expected, model, q, v, tau, w, conditioned(model, q, solutions=3), **more)


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
    for n in (48, 49, 60):
        model = ts.models.chain(n)
        q, v, tau, w, f = state(model)
        check_forward(model, q, v, tau, w, f_ext=f)


# ---- near the singular places


def check_at(joint, place, forward=False):
    """The joint between a free base and a body on a revolute joint."""
    joints = [ts.Free(), joint, ts.Revolute((1, 2, 3))]
    model = testing.random_tree(4, joints, branching=0.0, armature=False)
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
    tol = conditioned(model, q, solutions=3)
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
        conditioned(model, q, solutions=3),
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
        close(x, y, conditioned(model, q, solutions=3))


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
    tol = conditioned(model, q, solutions=3)
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
            close(left, right.imag / testing.STEP, conditioned(model, q, solutions=3))


def rebuilt(model, inertia=lambda i: i, gravity=(0, 0, 0)):
    builder = ts.ModelBuilder(model.name, np.add(model.gravity, gravity))
    for b in model.bodies:
        builder.add_body(b.name, b.parent, b.joint, b.placement, inertia(b.inertia), armature=b.armature)
    return builder.build()


@over_models
def test_directions_in_which_the_model_is_linear(model):
    q, v, x, _, f = state(model)
    rates = {b.name: 0.3 * b.inertia.parameters for b in model.bodies[::2]}
    heavier = ts.Inertia.from_parameters
    grown = ts.ModelBuilder(model.name, np.add(model.gravity, (1, -2, 3)))
    for k, b in enumerate(model.bodies):
        inertia = heavier(1.3 * b.inertia.parameters) if k % 2 == 0 else b.inertia
        grown.add_body(b.name, b.parent, b.joint, b.placement, inertia, armature=b.armature)
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
            loose.add_body(b.name, "base", b.joint, inertia=b.inertia, armature=b.armature)
        else:
            loose.add_body(b.name, b.parent, b.joint, b.placement, b.inertia, armature=b.armature)
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
