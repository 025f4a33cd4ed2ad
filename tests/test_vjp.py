"""Reverse derivatives and the inertial regressor: transposes of the matrices and of the tangents."""

import numpy as np
import pytest
from compare import close, conditioned
from population import CURVE, FRAMES, SURFACE, deep_tree, mixed_tree, models, sweep

import torsor as ts
from torsor import testing
from torsor.testing import complex_step

over_models = pytest.mark.parametrize("model", sweep(models(seed=6), 5))
over_frames = pytest.mark.parametrize("frame", FRAMES)


class State:
    """A state, weights on the results, and a mask of prescribed velocities."""

    def __init__(self, model, seed=0, batch=()):
        rng = np.random.default_rng(seed)
        self.q = model.random(rng, batch or None)
        self.v, self.a, self.tau, self.w, self.w_tau = (rng.standard_normal((*batch, model.nv)) for _ in range(5))
        self.f = rng.standard_normal((*batch, model.nbodies, 6))
        self.mask = rng.uniform(size=model.nv) < 0.4


def inverse(model, s, **more):
    return ts.inverse_dynamics_vjp(model, s.q, s.v, s.a, s.w, **more)


def forward(model, s, **more):
    return ts.forward_dynamics_vjp(model, s.q, s.v, s.tau, s.w, **more)


def hybrid(model, s, **more):
    return ts.hybrid_dynamics_vjp(model, s.q, s.v, a=s.a, tau=s.tau, prescribed=s.mask, w_a=s.w, w_tau=s.w_tau, **more)


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
        "armature": {b.name: testing.random_armature(rng, b.joint) for b in model.bodies},
    }


def product(gradient, rate):
    """<gradient, rate>, and the sum of the terms' sizes."""
    if isinstance(rate, dict):
        rate = np.concatenate([*rate.values()]).reshape(gradient.shape)
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


@over_frames
def test_every_placement_by_itself(frame):
    mixed = mixed_tree()
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
    close(Y @ model.inertial_parameters + model.armature * s.a, tau)
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


# ---- near the singular places, and deep


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
    model = deep_tree()
    s = State(model)
    s.mask &= np.arange(model.nv) % 3 == 0  # more than 48 free velocities on one path: the matrices' other way
    d, g = ts.hybrid_dynamics_derivatives(model, s.q, s.v, a=s.a, tau=s.tau, prescribed=s.mask), hybrid(model, s)
    for x, y, z in zip((g.q, g.v, g.a, g.tau), d[:4], d[4:], strict=True):
        close(x, s.w @ y + s.w_tau @ z, conditioned(model, s.q))


def test_weights_left_out_are_zero():
    mixed = mixed_tree()
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
