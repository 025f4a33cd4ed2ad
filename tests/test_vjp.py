"""Reverse derivatives and the inertial regressor: transposes of the matrices and of the tangents, and bits."""

import numpy as np
import pytest
from population import CURVE, FRAMES, JOINTS, SURFACE, models

import torsor as ts
from torsor import testing
from torsor.testing import complex_inputs, complex_step

over_models = pytest.mark.parametrize("model", list(models(seed=6)))
over_frames = pytest.mark.parametrize("frame", FRAMES)


class State:
    """A state, weights on the results, and a mask of prescribed velocities."""

    def __init__(self, model, seed=0, batch=()):
        rng = np.random.default_rng(seed)
        self.q = model.random(rng, batch or None)
        self.v, self.a, self.tau, self.w, self.w_tau = (rng.standard_normal((*batch, model.nv)) for _ in range(5))
        self.f = rng.standard_normal((*batch, model.nbodies, 6))
        self.mask = rng.uniform(size=model.nv) < 0.4

    def __getitem__(self, k):
        part = State.__new__(State)
        part.mask = self.mask
        for name in ("q", "v", "a", "tau", "w", "w_tau", "f"):
            setattr(part, name, getattr(self, name)[k])
        return part


def inverse(model, s, **more):
    return ts.inverse_dynamics_vjp(model, s.q, s.v, s.a, s.w, **more)


def forward(model, s, **more):
    return ts.forward_dynamics_vjp(model, s.q, s.v, s.tau, s.w, **more)


def hybrid(model, s, **more):
    return ts.hybrid_dynamics_vjp(model, s.q, s.v, a=s.a, tau=s.tau, prescribed=s.mask, w_a=s.w, w_tau=s.w_tau, **more)


def close(x, y, tol=1e-12):
    """Agreement to `tol` of the largest entry, or of 1: sums of some hundred products, each rounded."""
    assert np.shape(x) == np.shape(y)
    scale = max(1.0, np.abs(y).max(initial=0.0))
    np.testing.assert_allclose(np.divide(x, scale), np.divide(y, scale), rtol=0, atol=tol)


def conditioned(model, q):
    """What the solution of a system with the mass matrix may lose: its condition number in roundings, times four."""
    return max(1e-12, 1e-15 * np.linalg.cond(ts.mass_matrix(model, q)))


# ---- the transposes of the matrices


@over_models
@over_frames
def test_gradients_are_products_with_the_matrices(model, frame):
    s = State(model)
    more = {"f_ext": s.f, "f_ext_frame": frame}
    tol = conditioned(model, s.q)
    d, g = ts.inverse_dynamics_derivatives(model, s.q, s.v, s.a, **more), inverse(model, s, **more)
    assert type(g) is ts.derivatives.InverseDynamicsVJP
    for x, y in ((g.q, d.dtau_dq), (g.v, d.dtau_dv), (g.a, d.dtau_da)):
        close(x, s.w @ y)
    d, g = ts.forward_dynamics_derivatives(model, s.q, s.v, s.tau, **more), forward(model, s, **more)
    assert type(g) is ts.derivatives.ForwardDynamicsVJP
    for x, y in ((g.q, d.da_dq), (g.v, d.da_dv), (g.tau, d.da_dtau)):
        close(x, s.w @ y, tol)
    given = {"a": s.a, "tau": s.tau, "prescribed": s.mask, **more}
    d, g = ts.hybrid_dynamics_derivatives(model, s.q, s.v, **given), hybrid(model, s, **more)
    assert type(g) is ts.derivatives.HybridDynamicsVJP
    for x, y, z in zip((g.q, g.v, g.a, g.tau), d[:4], d[4:], strict=True):
        close(x, s.w @ y + s.w_tau @ z, tol)


@over_models
@over_frames
def test_wrenches(model, frame):
    s = State(model)
    step = lambda f: complex_step(lambda x: f(x.reshape(s.f.shape)), s.f.ravel()).reshape(s.f.shape)  # noqa: E731
    kind = {"f_ext_frame": frame}
    g = inverse(model, s, f_ext=s.f, **kind)
    close(g.f_ext, step(lambda f: s.w @ ts.inverse_dynamics(model, s.q, s.v, s.a, f_ext=f, **kind)))
    assert np.array_equal(g.f_ext, inverse(model, s, **kind).f_ext)  # torques are linear in wrenches
    g = forward(model, s, f_ext=s.f, **kind)
    close(
        g.f_ext,
        step(lambda f: s.w @ ts.forward_dynamics(model, s.q, s.v, s.tau, f_ext=f, **kind)),
        conditioned(model, s.q),
    )
    # in the body's frame it is the body's virtual velocity
    if frame == "body":
        close(inverse(model, s).f_ext.ravel(), -ts.maximal_jacobian(model, s.q) @ s.w)


# ---- the transposes of the tangents: <w, J d> = <J^T w, d>


def parts(model, rng):
    """A direction in everything that a model is made of, by name."""
    return {
        "inertia": {b.name: rng.standard_normal(10) for b in model.bodies},
        "placement": {b.name: rng.standard_normal(6) for b in model.bodies},
        "gravity": rng.standard_normal(3),
    }


def product(gradient, rate):
    """<gradient, rate>, and the sum of the terms' sizes."""
    rate = np.stack(list(rate.values())) if isinstance(rate, dict) else rate
    return np.sum(gradient * rate), np.abs(gradient * rate).sum()


def check_transposed(left, right, size, tol=1e-12):
    """`tol` of the sum of the sizes of the terms that are added up on both sides."""
    assert abs(left - right) <= tol * max(1.0, size)
    assert size > 1e-6  # that there is something to compare


@over_models
@over_frames
def test_transposition(model, frame):
    s, rng = State(model), np.random.default_rng(1)
    x = {key: rng.standard_normal(model.nv) for key in ("q", "v", "a", "tau")}
    x["f_ext"] = rng.standard_normal(s.f.shape)
    m = parts(model, rng)
    directions = {key: {f"d{key}": d} for key, d in x.items()}
    directions |= {key: {"model_direction": ts.ModelDirection(**{key: d})} for key, d in m.items()}
    more = {"f_ext": s.f, "f_ext_frame": frame}
    given = {"a": s.a, "tau": s.tau, "prescribed": s.mask}
    solving = conditioned(model, s.q)
    tangents = {  # and what is no argument, because it is the result
        inverse: (lambda **d: ts.inverse_dynamics_jvp(model, s.q, s.v, s.a, **d, **more)[1:], "tau", 1e-12),
        forward: (lambda **d: ts.forward_dynamics_jvp(model, s.q, s.v, s.tau, **d, **more)[1:], "a", solving),
        hybrid: (lambda **d: ts.hybrid_dynamics_jvp(model, s.q, s.v, **given, **d, **more)[2:], None, solving),
    }
    for gradient, (tangent, result, tol) in tangents.items():
        g = gradient(model, s, **more)
        sums = np.zeros(2)
        for key, d in (x | m).items():
            if key == result:
                continue
            changes = np.concatenate(tangent(**directions[key]))
            weights = np.concatenate([s.w, s.w_tau])[: len(changes)]
            right, size = product(getattr(g, key), d)
            size += np.abs(weights) @ np.abs(changes)
            check_transposed(weights @ changes, right, size, tol)
            sums += right, size
        together = {f"d{key}": d for key, d in x.items() if key != result}  # all at once
        changes = np.concatenate(tangent(**together, model_direction=ts.ModelDirection(**m)))
        check_transposed(weights @ changes, *sums, tol)


@pytest.fixture(scope="module")
def mixed():
    """A floating tree with joints of constant S and of S(q), and bodies on fixed joints, on the world too."""
    rng = np.random.default_rng(0)
    builder = ts.ModelBuilder("tree", gravity=(1, 2, -9))
    for name, parent, joint in (
        ("base", "world", ts.Free()),
        ("arm", "base", ts.Revolute((1, 2, 3))),
        ("camera", "arm", ts.Fixed()),
        ("ball", "arm", ts.Spherical()),
        ("lens", "camera", ts.Fixed()),
        ("wrist", "ball", ts.SphericalExp()),
        ("slider", "base", ts.Composite(ts.Prismatic((0, 1, 0)), ts.Universal())),
        ("post", "world", ts.Fixed()),
        ("lamp", "post", ts.Fixed()),
        ("gate", "post", ts.Revolute((0, 1, 1))),
    ):
        builder.add_body(name, parent, joint, testing.random_pose(rng), testing.random_inertia(rng))
    return builder.build()


@over_frames
def test_every_placement_by_itself(mixed, frame):
    s = State(mixed)
    more = {"f_ext": s.f, "f_ext_frame": frame}
    G = inverse(mixed, s, **more).placement
    for i, body in enumerate(mixed.bodies):
        for k, twist in enumerate(np.eye(6)):
            direction = ts.ModelDirection(placement={body.name: twist})
            t = ts.inverse_dynamics_jvp(mixed, s.q, s.v, s.a, model_direction=direction, **more)
            assert abs(G[i, k] - s.w @ t.dtau) <= 1e-12 * max(1.0, np.abs(G).max())


@over_models
def test_gravity(model):
    s = State(model)
    expected = [s.w @ ts.gravity_forces(model.with_gravity(e), s.q) for e in np.eye(3)]
    close(inverse(model, s).gravity, expected)


# ---- inertial parameters


@over_models
def test_regressor(model):
    s = State(model)
    Y = ts.inertial_regressor(model, s.q, s.v, s.a)
    assert Y.shape == (model.nv, 10 * model.nbodies)
    tau = ts.inverse_dynamics(model, s.q, s.v, s.a)
    close(Y @ model.inertial_parameters, tau)
    close(inverse(model, s, f_ext=s.f).inertia.ravel(), s.w @ Y)
    # a column is what one more unit of its parameter adds
    for i, body in enumerate(model.bodies):
        for k, unit in enumerate(np.eye(10)):
            more = ts.Inertia.from_parameters(body.inertia.parameters + unit, allow_unphysical=True)
            added = ts.inverse_dynamics(model.with_inertia(body.name, more), s.q, s.v, s.a) - tau
            close(Y[:, 10 * i + k], added, 1e-12 * max(1.0, np.abs(tau).max()))
    # of forward dynamics: implicit differentiation
    a = ts.forward_dynamics(model, s.q, s.v, s.tau)
    Y = ts.inertial_regressor(model, s.q, s.v, a)
    close(forward(model, s).inertia.ravel(), -ts.mass_matrix_solve(model, s.q, s.w) @ Y, conditioned(model, s.q))


def test_regressor_identifies():
    """Torques of some states determine what of the parameters can be seen, and predict the rest."""
    model = ts.models.arm7()
    rng = np.random.default_rng(0)
    q, (v, a) = model.random(rng, 60), rng.standard_normal((2, 60, model.nv))
    Y, tau = ts.inertial_regressor(model, q, v, a), ts.inverse_dynamics(model, q, v, a)
    pi = np.linalg.lstsq(Y[:40].reshape(-1, Y.shape[-1]), tau[:40].ravel(), rcond=1e-10)[0]
    close(Y[40:] @ pi, tau[40:], 1e-9)  # a least-squares problem that leaves directions of 1e-10 out
    assert np.abs(pi - model.inertial_parameters).max() > 0.1  # the smallest parameters that do, not the model's own


def test_a_regressor_in_closed_form():
    """A pendulum about y: tau = Iyy a - g (m c_z sin q + m c_x cos q)."""
    model = ts.ModelBuilder(gravity=(0, 0, -9.81)).add_body("bob", joint=ts.Revolute((0, 1, 0))).build()
    for q, v, a in np.random.default_rng(0).uniform(-3, 3, (10, 3, 1)):
        expected = np.zeros((1, 10))
        expected[0, [1, 3, 6]] = -9.81 * np.cos(q[0]), -9.81 * np.sin(q[0]), a[0]
        close(ts.inertial_regressor(model, q, v, a), expected, 1e-14)


# ---- identities


@over_models
def test_identities(model):
    s = State(model)
    tol = conditioned(model, s.q)
    M = ts.mass_matrix(model, s.q)
    close(inverse(model, s).a, M @ s.w)
    close(forward(model, s).tau, ts.mass_matrix_solve(model, s.q, s.w), tol)
    # with all prescribed hybrid dynamics is inverse dynamics, and the weights on a go to a
    names = [j.name for j in model.joints]
    g = ts.hybrid_dynamics_vjp(model, s.q, s.v, a=s.a, prescribed=names, w_a=s.v, w_tau=s.w, f_ext=s.f)
    i = inverse(model, s, f_ext=s.f)
    for key in ("q", "v", "f_ext", "inertia", "placement", "gravity"):
        assert np.array_equal(getattr(g, key), getattr(i, key))
    assert np.array_equal(g.a, s.v + i.a) and not g.tau.any()
    # with none it is forward dynamics, and those on tau to tau
    g = ts.hybrid_dynamics_vjp(model, s.q, s.v, tau=s.tau, prescribed=[], w_a=s.w, w_tau=s.v, f_ext=s.f)
    h = forward(model, s, f_ext=s.f)
    for key in ("q", "v", "f_ext", "inertia", "placement", "gravity"):
        assert np.array_equal(getattr(g, key), getattr(h, key))
    close(g.tau, h.tau + s.v, 1e-15)
    assert not g.a.any()
    # linear in the weights
    for call in (inverse, forward, hybrid):
        one, other = call(model, s, f_ext=s.f), State(model)
        other.w, other.w_tau = -4 * s.w, -4 * s.w_tau  # a power of two rounds nothing
        for x, y in zip(call(model, other, f_ext=s.f), one, strict=True):
            assert np.array_equal(x, -4 * y)
        other.w, other.w_tau = 0 * s.w, 0 * s.w
        assert not any(x.any() for x in call(model, other, f_ext=s.f))


@over_models
def test_second_derivatives_are_symmetric(model):
    """Complex steps go through: the Jacobian of a gradient is a Hessian."""
    s = State(model)
    gradient = lambda q, v, a: ts.inverse_dynamics_vjp(model, q, v, a, s.w, f_ext=s.f)  # noqa: E731
    vv = complex_step(lambda v: gradient(s.q, v, s.a).v, s.v)
    close(vv, vv.T)
    qv = complex_step(lambda v: gradient(s.q, v, s.a).q, s.v)
    vq = complex_step(lambda d: gradient(model.plus(s.q, d), s.v, s.a).v, np.zeros(model.nv))
    close(qv, vq.T)
    qa = complex_step(lambda a: gradient(s.q, s.v, a).q, s.a)
    aq = complex_step(lambda d: gradient(model.plus(s.q, d), s.v, s.a).a, np.zeros(model.nv))
    close(qa, aq.T)


@over_models
def test_zeros_are_exact(model):
    s = State(model)
    g = hybrid(model, s, f_ext=s.f)
    assert not g.a[~s.mask].any() and g.a[s.mask].all()
    assert not g.tau[s.mask].any() and g.tau[~s.mask].all()
    # bodies that are fixed to the world move nothing
    still = {"world"}
    for b in model.bodies:
        if b.joint.nv == 0 and b.parent in still:
            still.add(b.name)
    fixed = np.array([b.name in still for b in model.bodies])
    assert fixed.any()
    for call in (inverse, forward, hybrid):
        g = call(model, s, f_ext=s.f)
        assert not g.inertia[fixed].any() and not g.f_ext[fixed].any()
        assert g.inertia[~fixed].any(1).all() and g.f_ext[~fixed].any(1).all()
    Y = ts.inertial_regressor(model, s.q, s.v, s.a).reshape(model.nv, model.nbodies, 10)
    moves = ts.maximal_jacobian(model, s.q).reshape(model.nbodies, 6, model.nv).any(1)
    assert np.array_equal(Y.any(2), moves.T)


# ---- near the singular places, deep, far away


@pytest.mark.parametrize(
    ("joint", "place"),
    [
        *((ts.SphericalExp(), x * np.array([0.6, -0.64, 0.48])) for x in (0, 1e-160, 1e-12, 1e-5, np.pi)),
        *((ts.SphericalExp(), (2 * np.pi + x) * np.array([0.6, -0.64, 0.48])) for x in (-1e-6, 0, 1e-9)),
        *((ts.SphericalEuler("ZYX"), [0.3, np.pi / 2 + x, -0.7]) for x in (0, 1e-12, 1e-6)),
        *((ts.SphericalEuler("ZXZ"), [0.3, x, -0.7]) for x in (0, 1e-12, 1e-6)),
        *((CURVE, [x]) for x in (-2.5, 0, 1, 2, 3, 4.5)),
        *((SURFACE, [x, y]) for x, y in ((0, 0), (1, 1), (0.5, 2), (-1, 3))),
    ],
)
def test_near_the_singular_places(joint, place):
    model = testing.random_tree(4, [ts.Free(), joint, ts.Revolute((1, 2, 3))], branching=0.0)
    s = State(model)
    s.q[model.joints[1].q_slice] = place
    for frame in FRAMES:
        more = {"f_ext": s.f, "f_ext_frame": frame}
        g = inverse(model, s, **more)
        step = complex_step(
            lambda d, more=more: s.w @ ts.inverse_dynamics(model, model.plus(s.q, d), s.v, s.a, **more),
            np.zeros(model.nv),
        )
        close(g.q, step)
        close(g.v, complex_step(lambda v, more=more: s.w @ ts.inverse_dynamics(model, s.q, v, s.a, **more), s.v))


def test_deep_trees():
    model = testing.random_tree(5, [*JOINTS, ts.Fixed(), JOINTS[3]], branching=0.04)
    s = State(model)
    s.mask &= np.arange(model.nv) % 3 == 0  # more than 48 free velocities on one path: the matrices' other way
    d, g = ts.hybrid_dynamics_derivatives(model, s.q, s.v, a=s.a, tau=s.tau, prescribed=s.mask), hybrid(model, s)
    for x, y, z in zip((g.q, g.v, g.a, g.tau), d[:4], d[4:], strict=True):
        close(x, s.w @ y + s.w_tau @ z, conditioned(model, s.q))


def test_digits_far_from_the_origin():
    near, far = ts.ModelBuilder(), ts.ModelBuilder()
    for builder, distance in ((near, 0.0), (far, 1e8)):
        rng = np.random.default_rng(4)
        for k, joint in enumerate((ts.Fixed(), *(JOINTS[i] for i in (14, 1, 13, 12, 5)))):
            place = testing.random_pose(rng)
            place = ts.SE3(place.R, distance * np.array([1, -1, 1])) if k == 0 else place
            builder.add_body(f"b{k}", f"b{k - 1}" if k else "world", joint, place, testing.random_inertia(rng))
    near, far = near.build(), far.build()
    s = State(near)
    for frame in ("body", "local_world_aligned"):
        for x, y in zip(*(inverse(m, s, f_ext=s.f, f_ext_frame=frame) for m in (far, near)), strict=True):
            close(x, y)
        for x, y in zip(*(forward(m, s, f_ext=s.f, f_ext_frame=frame) for m in (far, near)), strict=True):
            close(x, y, conditioned(near, s.q))
    close(ts.inertial_regressor(far, s.q, s.v, s.a), ts.inertial_regressor(near, s.q, s.v, s.a))


# ---- how one asks makes no difference, to the last bit


ALL = testing.random_tree(7, [*JOINTS, ts.Fixed()])


def calls(model, s, **more):
    """Every function in every frame, as name and record."""
    for frame in FRAMES:
        for call in (inverse, forward, hybrid):
            yield f"{call.__name__} {frame}", call(model, s, f_ext=s.f, f_ext_frame=frame, **more)
    yield "inverse", inverse(model, s, **more)
    yield "regressor", (ts.inertial_regressor(model, s.q, s.v, s.a, **more),)


def assert_same(x, y, pick=lambda z: z):
    for (name, one), (_, other) in zip(x, y, strict=True):
        for k, (left, right) in enumerate(zip(one, other, strict=True)):
            assert np.array_equal(pick(left), right, equal_nan=True), (name, k)


def test_batches_lanes_and_threads_change_no_bit():
    n = 35  # no multiple of any machine's lanes
    s = State(ALL, batch=(n,))
    whole = list(calls(ALL, s))
    for k in (0, 1, 7, 8, 33, n - 1):
        assert_same(whole, calls(ALL, s[k]), lambda z, k=k: z[k])
    assert_same(whole, calls(ALL, s, threads=2))
    assert_same(whole, calls(ALL, s[3:-4]), lambda z: z[3:-4])  # other lanes
    shaped = np.arange(n).reshape(5, 1, 7)
    assert_same(whole, calls(ALL, s[shaped], threads=0), lambda z: z[shaped])


def test_many_states_over_threads_change_no_bit():
    model = ts.models.quadruped()
    s = State(model, batch=(700,))
    whole = list(calls(model, s))
    for threads in (2, 5):
        assert_same(whole, calls(model, s, threads=threads))


@pytest.mark.parametrize("seed", range(2))
@over_models
def test_the_order_of_bodies_changes_no_bit(model, seed):
    rng = np.random.default_rng(seed)
    builder, waiting, order = ts.ModelBuilder(model.name, model.gravity), list(model.bodies), []
    while waiting:
        ready = [b for b in waiting if b.parent == "world" or b.parent in order]
        b = ready[rng.integers(len(ready))]
        waiting.remove(b)
        order.append(b.name)
        builder.add_body(b.name, b.parent, b.joint, b.placement, b.inertia)
    slices = [(model.joint(name).q_slice, model.joint(name).v_slice) for name in order]
    to_q, to_v = (np.concatenate([np.arange(k.start, k.stop) for k in part]) for part in zip(*slices, strict=True))
    bodies = [model._find(name, "body") for name in order]
    s, other = State(model), State(model)
    other.q, other.f, other.mask = s.q[to_q], s.f[bodies], s.mask[to_v]
    for name in ("v", "a", "tau", "w", "w_tau"):
        setattr(other, name, getattr(s, name)[to_v])

    def pick(z):
        if z.shape == (model.nv,):
            return z[to_v]
        if z.shape == (model.nv, 10 * model.nbodies):
            return z.reshape(model.nv, model.nbodies, 10)[np.ix_(to_v, bodies)].reshape(z.shape)
        return z if z.shape == (3,) else z[bodies]

    assert model.nv != 3
    assert_same(calls(model, s), calls(builder.build(), other), pick)


def test_batch_shapes_broadcast():
    model = ts.models.quadruped()
    s = State(model, batch=(4,))
    g = ts.inverse_dynamics_vjp(model, s.q[:, None], s.v[0], s.a, s.w[:3, None, None], f_ext=s.f[1])
    assert g.q.shape == (3, 4, 4, model.nv) and g.placement.shape == (3, 4, 4, model.nbodies, 6)
    assert g.inertia.shape == (3, 4, 4, model.nbodies, 10) and g.gravity.shape == (3, 4, 4, 3)
    one = ts.inverse_dynamics_vjp(model, s.q[3], s.v[0], s.a[1], s.w[2], f_ext=s.f[1])
    assert all(np.array_equal(x[2, 3, 1], y) for x, y in zip(g, one, strict=True))
    empty = ts.forward_dynamics_vjp(model, s.q[:0], s.v[0], s.tau[:0], s.w[0])
    assert [x.shape[0] for x in empty] == [0] * 7


def test_complex_results_have_the_real_ones_as_real_part(mixed):
    s = State(mixed)
    real = list(calls(mixed, s))
    with complex_inputs():
        s.q = s.q + 0j
        for (name, x), (_, y) in zip(real, calls(mixed, s), strict=True):
            for left, right in zip(x, y, strict=True):
                assert right.dtype == np.complex128 and not right.imag.any(), name
                close(right.real, left, conditioned(mixed, s.q.real))


# ---- outputs, out, wrong arguments


FUNCTIONS = {
    "inverse": (inverse, ts.derivatives.InverseDynamicsVJP),
    "forward": (forward, ts.derivatives.ForwardDynamicsVJP),
    "hybrid": (hybrid, ts.derivatives.HybridDynamicsVJP),
}
every_function = pytest.mark.parametrize("name", FUNCTIONS)


@every_function
@pytest.mark.parametrize("batch", [(), (5,), (2, 3)])
def test_only_what_is_asked_for_is_computed(mixed, name, batch):
    f, record = FUNCTIONS[name]
    s = State(mixed, batch=batch)
    for more in ({}, {"f_ext": s.f, "f_ext_frame": "world"}):
        full = f(mixed, s, **more)
        for field in record._fields:
            others = [other for other in record._fields if other != field]
            for outputs, wanted in (([field], {field}), (field, {field}), (tuple(others), set(others)), ([], set())):
                part = f(mixed, s, outputs=outputs, **more)
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
    s = State(mixed, batch=batch)
    expected = f(mixed, s, f_ext=s.f)
    fresh = lambda: [np.full_like(x, np.nan) for x in expected]  # noqa: E731

    def check(out, wanted=record._fields, **more):
        result = f(mixed, s, f_ext=s.f, out=out, **more)
        assert type(result) is record
        for key, got, target, right in zip(record._fields, result, out, expected, strict=True):
            if key in wanted:
                assert got is target
                assert np.array_equal(target, right)
            else:
                assert got is None

    spread = [np.full([2 * n for n in x.shape], np.nan)[tuple(slice(1, None, 2) for _ in x.shape)] for x in expected]
    for out in (record(*fresh()), tuple(fresh()), fresh(), spread):
        check(out)
    for field, array in zip(record._fields, fresh(), strict=True):  # for the wanted ones only
        for junk in (None, "junk", np.full((2, 2), 7.0)):
            check(record(*[junk] * len(expected))._replace(**{field: array}), {field}, outputs=[field])
    untouched = fresh()
    f(mixed, s, out=tuple(untouched), outputs=["inertia"])
    changed = {key for key, x in zip(record._fields, untouched, strict=True) if not np.isnan(x).any()}
    assert changed == {"inertia"} and all(np.isnan(x).all() for x in untouched if x.shape[-1] != 10)
    # an input may take a result
    expected_q, other = expected.q, State(mixed, batch=batch)
    f(mixed, other, f_ext=other.f, outputs=["q"], out=record(*[None] * len(expected))._replace(q=other.w))
    assert np.array_equal(other.w, expected_q)
    for wrong in (fresh()[0], fresh()[:1], 3, {"q": 3}):
        with pytest.raises(TypeError, match=f"out must be a tuple of {len(expected)} arrays, got"):
            f(mixed, s, out=wrong)
    for key, wrong, error, message in (
        ("q", fresh()[0][..., None], ValueError, "has shape"),
        ("inertia", None, TypeError, "must be a NumPy array, got NoneType"),
        ("placement", np.zeros(3), ValueError, "has shape"),
        ("gravity", np.zeros((*batch, 3), np.float32), TypeError, "has dtype float32, expected float64"),
    ):
        with pytest.raises(error, match=rf"^out \({key}\) {message}"):
            f(mixed, s, out=record(*fresh())._replace(**{key: wrong}))


def test_out_of_the_regressor(mixed):
    s = State(mixed, batch=(3,))
    expected = ts.inertial_regressor(mixed, s.q, s.v, s.a)
    out = np.full_like(expected, np.nan)
    assert ts.inertial_regressor(mixed, s.q, s.v, s.a, out=out) is out
    assert np.array_equal(out, expected)
    with pytest.raises(ValueError, match=r"^out has shape \(3,\), expected \(3, 17, 100\)"):
        ts.inertial_regressor(mixed, s.q, s.v, s.a, out=np.zeros(3))
    with pytest.raises(TypeError, match="a is missing, expected an array of shape"):
        ts.inertial_regressor(mixed, s.q, s.v, None)


def test_weights_left_out_are_zero(mixed):
    s = State(mixed)
    zero = np.zeros(mixed.nv)
    given = {"a": s.a, "tau": s.tau, "prescribed": s.mask}
    for left, right in (
        ({"w_a": s.w}, {"w_a": s.w, "w_tau": zero}),
        ({"w_tau": s.w}, {"w_a": zero, "w_tau": s.w}),
        ({}, {"w_a": zero, "w_tau": zero}),
    ):
        x, y = (ts.hybrid_dynamics_vjp(mixed, s.q, s.v, **given, **w) for w in (left, right))
        assert all(np.array_equal(a, b) for a, b in zip(x, y, strict=True))
    x = ts.hybrid_dynamics_vjp(mixed, s.q, s.v, prescribed=["ball"], w_a=s.w)
    y = ts.hybrid_dynamics_vjp(mixed, s.q, s.v, a=zero, tau=zero, prescribed=["ball"], w_a=s.w)
    assert all(np.array_equal(a, b) for a, b in zip(x, y, strict=True))


@every_function
def test_errors(mixed, name):
    f, record = FUNCTIONS[name]
    s = State(mixed)

    def call(**changed):
        other = State(mixed)
        for key in ("q", "v", "a", "tau", "w", "w_tau"):
            setattr(other, key, changed.pop(key, getattr(other, key)))
        return f(changed.pop("model", mixed), other, **changed)

    for key, wrong in (("q", s.v), ("v", s.q), ("w", s.w[:-1]), ("f_ext", s.f[:, :5])):
        label = "w_a|w" if key == "w" else key
        with pytest.raises(ValueError, match=rf"^({label}) has shape \(.*\), expected \(\.\.\., "):
            call(**{key: wrong})
    with pytest.raises(ValueError, match="batch shapes do not fit together"):
        call(q=np.stack([s.q] * 3), w=np.stack([s.w] * 4))
    with pytest.raises(TypeError, match=r"^v has dtype <U"):
        call(v=s.v.astype(str))
    with pytest.raises(TypeError, match=r"^v is complex, expected real numbers"):
        call(v=s.v + 0j)
    with pytest.raises(TypeError, match=r"^v is missing"):
        call(v=None)
    with pytest.raises(ValueError, match=r"^f_ext_frame is 'tool', expected"):
        call(f_ext_frame="tool")
    with pytest.raises(ValueError, match=rf"^no output 'mass'; outputs are '{record._fields[0]}', "):
        call(outputs=["q", "mass"])
    with pytest.raises(ValueError, match=r"^threads is 1.5, expected an integer"):
        call(threads=1.5)
    for model in (None, "arm", ts.ModelBuilder(), 3):
        with pytest.raises(TypeError, match=r"^model must be a torsor\.Model, got"):
            call(model=model)


@every_function
@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300])
def test_bad_numbers_stay_in_their_state(mixed, name, value):
    f, _ = FUNCTIONS[name]
    expected = f(mixed, (good := State(mixed, batch=(19,))), f_ext=good.f)
    others = np.arange(19) != 6
    for key in ("q", "v", "a" if name == "inverse" else "tau", "w", "f"):
        s = State(mixed, batch=(19,))
        getattr(s, key)[6] = value
        result = f(mixed, s, f_ext=s.f)
        for got, right, one in zip(result, expected, f(mixed, s[6], f_ext=s.f[6]), strict=True):
            assert np.array_equal(got[others], right[others])
            assert np.array_equal(got[6], one, equal_nan=True)
        if np.isnan(value):
            assert any(np.isnan(x[6]).any() for x in result)


@pytest.mark.parametrize("threads", [1, 2])
def test_the_singular_state_is_named(threads):
    rng = np.random.default_rng(1)
    builder = ts.ModelBuilder().add_body("arm", "world", ts.Revolute((1, 0, 0)), inertia=testing.random_inertia(rng))
    builder.add_body("hand", "arm", ts.SphericalEuler(), None, testing.random_inertia(rng), joint_name="finger")
    model = builder.build()
    q = model.random(rng, 300)
    one = np.ones(4)
    for call in (
        lambda q: ts.forward_dynamics_vjp(model, q, one, one, one, threads=threads),
        lambda q: ts.hybrid_dynamics_vjp(model, q, one, prescribed=["arm"], w_a=one, threads=threads),
    ):
        for bad in (0, 3, 299):
            spoilt = q.copy()
            spoilt[bad, 2] = np.pi / 2
            with pytest.raises(ts.SingularMassMatrixError, match=f"at joint 'finger' in state {bad} of the batch"):
                call(spoilt)
            with pytest.raises(ts.SingularMassMatrixError, match="singular at joint 'finger': some motion"):
                call(spoilt[bad])
        assert all(np.isfinite(x).all() for x in call(q))
    q[3, 2] = np.pi / 2  # neither inverse dynamics nor hybrid dynamics that prescribes it minds
    assert all(np.isfinite(x).all() for x in ts.inverse_dynamics_vjp(model, q, one, one, one))
    assert all(np.isfinite(x).all() for x in ts.hybrid_dynamics_vjp(model, q, one, prescribed=["finger"], w_a=one))


def test_models_that_do_not_move():
    for bodies in (0, 2):
        builder = ts.ModelBuilder()
        for k in range(bodies):
            builder.add_body(f"b{k}", f"b{k - 1}" if k else "world", inertia=ts.Inertia.point(1.0, (0, 0, 1)))
        model = builder.build()
        for batch in ((), (5,), (2, 0)):
            none, f = np.zeros((*batch, 0)), np.ones((bodies, 6))
            for g in (
                ts.inverse_dynamics_vjp(model, none, none, none, none, f_ext=f),
                ts.forward_dynamics_vjp(model, none, none, none, none, f_ext=f),
                ts.hybrid_dynamics_vjp(model, none, none, prescribed=[], f_ext=f),
            ):
                assert g.q.shape == (*batch, 0) and g.inertia.shape == (*batch, bodies, 10)
                assert g.gravity.shape == (*batch, 3) and not any(x.any() for x in g)
            assert ts.inertial_regressor(model, none, none, none).shape == (*batch, 0, 10 * bodies)
