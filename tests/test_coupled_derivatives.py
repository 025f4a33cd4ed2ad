"""Derivatives of every function of coupled models, by complex step to 1e-11."""

import numpy as np
import pytest
from coupled_models import MAPS, RANDOM, along, close, columns, coupled_model, directional, state

import torsor as ts
from torsor.testing import complex_inputs


@pytest.fixture(scope="module", params=MAPS)
def coupled(request):
    return coupled_model(request.param)


@pytest.fixture(scope="module", params=[*MAPS, *RANDOM])
def any_coupled(request):
    return coupled_model(request.param)


def wrenches(model, seed=1):
    return np.random.default_rng(seed).standard_normal((model.nbodies, 6))


# ---- first derivatives


@pytest.mark.parametrize("frame", ["body", "world"])
def test_inverse_dynamics_derivatives(any_coupled, frame):
    q, v, a, *_ = state(any_coupled)
    f = {"f_ext": wrenches(any_coupled), "f_ext_frame": frame}
    d = ts.inverse_dynamics_derivatives(any_coupled, q, v, a, **f)
    close(d.dtau_dq, columns(any_coupled, lambda x: ts.inverse_dynamics(any_coupled, x, v, a, **f), q))
    close(d.dtau_dv, directional(lambda x: ts.inverse_dynamics(any_coupled, q, x, a, **f), v))
    close(d.dtau_da, ts.mass_matrix(any_coupled, q))
    alone = ts.inverse_dynamics_derivatives(any_coupled, q, v, a, outputs=["dtau_dq"], **f)
    np.testing.assert_array_equal(alone.dtau_dq, d.dtau_dq)


def test_forward_dynamics_derivatives(any_coupled):
    q, v, tau, *_ = state(any_coupled)
    d = ts.forward_dynamics_derivatives(any_coupled, q, v, tau)
    close(d.da_dq, columns(any_coupled, lambda x: ts.forward_dynamics(any_coupled, x, v, tau), q))
    close(d.da_dv, directional(lambda x: ts.forward_dynamics(any_coupled, q, x, tau), v))
    close(d.da_dtau, ts.mass_matrix_inverse(any_coupled, q))


@pytest.mark.parametrize(("k", "name"), [(0, "da"), (1, "dtau")])
def test_hybrid_dynamics_derivatives(any_coupled, k, name):
    q, v, a, tau, _ = state(any_coupled)
    held = np.arange(any_coupled.nv) % 3 == 1
    d = ts.hybrid_dynamics_derivatives(any_coupled, q, v, a=a, tau=tau, prescribed=held)
    run = lambda x, y, s, u: ts.hybrid_dynamics(any_coupled, x, y, a=s, tau=u, prescribed=held)[k]  # noqa: E731
    close(getattr(d, f"{name}_dq"), columns(any_coupled, lambda x: run(x, v, a, tau), q))
    close(getattr(d, f"{name}_dv"), directional(lambda x: run(q, x, a, tau), v))
    close(getattr(d, f"{name}_da"), directional(lambda x: run(q, v, x, tau), a))
    close(getattr(d, f"{name}_dtau"), directional(lambda x: run(q, v, a, x), tau))


def test_batches_of_derivatives_are_those_of_single_states(any_coupled):
    q, v, a, *_ = state(any_coupled, size=9)
    d = ts.forward_dynamics_derivatives(any_coupled, q, v, a)
    one = ts.forward_dynamics_derivatives(any_coupled, q[4], v[4], a[4])
    for x, y in zip(d, one, strict=True):
        np.testing.assert_array_equal(x[4], y)


def test_directional_derivatives(any_coupled):
    q, v, a, dq, dv = state(any_coupled)
    da, df, f = dq[::-1].copy(), wrenches(any_coupled, 2), wrenches(any_coupled)
    options = {"f_ext": f, "dq": dq, "dv": dv, "df_ext": df}

    def tangent(run):
        with complex_inputs():
            h = 1e-30j
            return np.imag(run(any_coupled.plus(q, h * dq), v + h * dv, a + h * da, f + h * df)) / 1e-30

    tau, dtau = ts.inverse_dynamics_jvp(any_coupled, q, v, a, da=da, **options)
    close(tau, ts.inverse_dynamics(any_coupled, q, v, a, f_ext=f))
    close(dtau, tangent(lambda x, y, z, w: ts.inverse_dynamics(any_coupled, x, y, z, f_ext=w)))
    _, dout = ts.forward_dynamics_jvp(any_coupled, q, v, a, dtau=da, **options)
    close(dout, tangent(lambda x, y, z, w: ts.forward_dynamics(any_coupled, x, y, z, f_ext=w)))
    F = ts.joint_reactions_jvp(any_coupled, q, v, a, da=da, **options)
    close(F.dF, tangent(lambda x, y, z, w: ts.joint_reactions(any_coupled, x, y, z, f_ext=w)))
    d = ts.inverse_dynamics_derivatives_jvp(any_coupled, q, v, a, da=da, **options)
    for name in ("dtau_dq", "dtau_dv", "dtau_da"):
        run = lambda x, y, z, w, name=name: getattr(  # noqa: E731
            ts.inverse_dynamics_derivatives(any_coupled, x, y, z, f_ext=w), name
        )
        close(getattr(d, f"d{name}"), tangent(run))
    d = ts.forward_dynamics_derivatives_jvp(any_coupled, q, v, a, dtau=da, **options)
    for name in ("da_dq", "da_dv", "da_dtau"):
        run = lambda x, y, z, w, name=name: getattr(  # noqa: E731
            ts.forward_dynamics_derivatives(any_coupled, x, y, z, f_ext=w), name
        )
        close(getattr(d, f"d{name}"), tangent(run), 1e-10)
    held = np.arange(any_coupled.nv) % 3 == 1
    h = ts.hybrid_dynamics_jvp(any_coupled, q, v, a=a, tau=dv, prescribed=held, dq=dq, dv=dv, da=da)
    with complex_inputs():
        moved = ts.hybrid_dynamics(
            any_coupled, any_coupled.plus(q, 1e-30j * dq), v + 1e-30j * dv, a=a + 1e-30j * da, tau=dv, prescribed=held
        )
    close(h.da, np.imag(moved[0]) / 1e-30)
    close(h.dtau, np.imag(moved[1]) / 1e-30)


def test_directions_of_the_model(coupled):
    """Inertia, placement and gravity change along a direction; the gradients agree with it."""
    q, v, a, w, _ = state(coupled)
    rng = np.random.default_rng(7)
    gravity, inertia, placement = rng.standard_normal(3), rng.standard_normal(10), rng.standard_normal(6)
    direction = ts.ModelDirection(gravity=gravity, inertia={"toe": inertia}, placement={"knee": placement})
    toe, knee = (next(i for i, b in enumerate(coupled.bodies) if b.name == name) for name in ("toe", "knee"))

    def along_model(g):
        return g.gravity @ gravity + g.inertia[toe] @ inertia + g.placement[knee] @ placement

    _, dtau = ts.inverse_dynamics_jvp(coupled, q, v, a, model_direction=direction)
    close(w @ dtau, along_model(ts.inverse_dynamics_vjp(coupled, q, v, a, w)))
    _, da = ts.forward_dynamics_jvp(coupled, q, v, a, model_direction=direction)
    close(w @ da, along_model(ts.forward_dynamics_vjp(coupled, q, v, a, w)))


def test_gradients(any_coupled):
    q, v, a, w, u = state(any_coupled)
    f = wrenches(any_coupled)
    d = ts.inverse_dynamics_derivatives(any_coupled, q, v, a, f_ext=f)
    g = ts.inverse_dynamics_vjp(any_coupled, q, v, a, w, f_ext=f)
    for got, D in ((g.q, d.dtau_dq), (g.v, d.dtau_dv), (g.a, d.dtau_da)):
        close(got, w @ D)
    close(g.inertia.ravel(), w @ ts.inertial_regressor(any_coupled, q, v, a))
    d = ts.forward_dynamics_derivatives(any_coupled, q, v, a, f_ext=f)
    g = ts.forward_dynamics_vjp(any_coupled, q, v, a, w, f_ext=f)
    for got, D in ((g.q, d.da_dq), (g.v, d.da_dv), (g.tau, d.da_dtau)):
        close(got, w @ D)
    held = np.arange(any_coupled.nv) % 3 == 1
    d = ts.hybrid_dynamics_derivatives(any_coupled, q, v, a=a, tau=w, prescribed=held)
    g = ts.hybrid_dynamics_vjp(any_coupled, q, v, a=a, tau=w, prescribed=held, w_a=w, w_tau=u)
    for name in ("q", "v", "a", "tau"):
        close(getattr(g, name), w @ getattr(d, f"da_d{name}") + u @ getattr(d, f"dtau_d{name}"))
    y = wrenches(any_coupled, 3)
    d = ts.joint_reactions_derivatives(any_coupled, q, v, a, f_ext=f)
    g = ts.joint_reactions_vjp(any_coupled, q, v, a, y, f_ext=f)
    for got, D in ((g.q, d.dF_dq), (g.v, d.dF_dv), (g.a, d.dF_da)):
        close(got, np.einsum("bi,bik->k", y, D))


def test_gradients_with_respect_to_the_couplings(any_coupled):
    """Ratios, offsets, bases, coefficients and users' parameters, by differences through new models."""
    model = any_coupled
    given = model.couplings
    q, v, a, w, _ = state(model)
    f = wrenches(model)
    found = ts.coupling_vjp(model, q, v, a, w, f_ext=f)
    assert len(found) == len(given)
    for i, coupling in enumerate(given):
        assert found[i].keys() == coupling.parameters.keys()
        for key, value in coupling.parameters.items():
            assert found[i][key].shape == value.shape
            d = np.random.default_rng(i).standard_normal(value.shape)

            def at(step, i=i, coupling=coupling, key=key, value=value, d=d):
                moved = coupling.with_parameters({key: value + step * d})
                other = model.tree.couple(*given[:i], moved, *given[i + 1 :])
                return w @ ts.inverse_dynamics(other, q, v, a, f_ext=f)

            h = 2.5e-4
            slope = (8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h)
            expected = np.sum(found[i][key] * d)
            size = max(1.0, abs(expected), abs(at(0.0)))
            assert abs(slope - expected) < 1e-8 * size, (key, slope, expected)


# ---- kinematics, forces, constraints


@pytest.mark.parametrize("frame", ["body", "world", "local_world_aligned"])
def test_derivatives_of_bodies_motions(any_coupled, frame):
    q, v, a, *_ = state(any_coupled)
    d = ts.body_velocities_derivatives(any_coupled, q, v, frame=frame)
    close(d.dV_dq, columns(any_coupled, lambda x: ts.body_velocities(any_coupled, x, v, frame=frame), q))
    close(d.dV_dv, directional(lambda x: ts.body_velocities(any_coupled, q, x, frame=frame), v))
    d = ts.body_accelerations_derivatives(any_coupled, q, v, a, frame=frame)
    close(d.dA_dq, columns(any_coupled, lambda x: ts.body_accelerations(any_coupled, x, v, a, frame=frame), q))
    close(d.dA_dv, directional(lambda x: ts.body_accelerations(any_coupled, q, x, a, frame=frame), v))
    close(d.dA_da, directional(lambda x: ts.body_accelerations(any_coupled, q, v, x, frame=frame), a))


def test_kinematics_derivatives(coupled):
    q, v, a, *_ = state(coupled)
    d = ts.joint_reactions_derivatives(coupled, q, v, a)
    close(d.dF_dq, columns(coupled, lambda x: ts.joint_reactions(coupled, x, v, a), q))
    close(d.dF_dv, directional(lambda x: ts.joint_reactions(coupled, q, x, a), v))
    d = ts.maximal_jacobian_derivatives(coupled, q, v)
    close(d.dJ_dq, columns(coupled, lambda x: ts.maximal_jacobian(coupled, x), q))
    close(d.Jdot, ts.maximal_jacobian_dot(coupled, q, v))
    close(d.dJdot_dq, columns(coupled, lambda x: ts.maximal_jacobian_dot(coupled, x, v), q))
    points = np.random.default_rng(4).standard_normal((2, 3))
    bodies = ["toe", "tip"]
    H = ts.point_hessian(coupled, q, bodies, points)
    close(H, columns(coupled, lambda x: ts.point_jacobian(coupled, x, bodies, points), q))
    d = ts.momentum_derivatives(coupled, q, v, a)
    close(d.dh_dq, columns(coupled, lambda x: ts.momentum(coupled, x, v), q))
    close(d.dh_dv, ts.momentum_matrix(coupled, q))
    rate = lambda x, y: along(coupled, lambda z: ts.momentum(coupled, z, y), x, y)  # noqa: E731
    hdot = lambda x, y: rate(x, y) + ts.momentum_matrix(coupled, x) @ a  # noqa: E731
    e, h = np.eye(coupled.nv), 1e-4
    slopes = np.stack([(hdot(coupled.plus(q, h * c), v) - hdot(coupled.plus(q, -h * c), v)) / (2 * h) for c in e], -1)
    close(d.dhdot_dq, slopes, 1e-6)
    close(d.dhdot_dv, np.stack([(hdot(q, v + h * c) - hdot(q, v - h * c)) / (2 * h) for c in e], -1), 1e-6)


def test_force_derivatives(coupled):
    q, v, w, *_ = state(coupled)
    forces = [ts.JointSpring("tip", 3.0), ts.JointDamping(None, 0.4), ts.BodyDamping("toe", 0.2),
              ts.PointSpring("tip", (0, 0, 1), "world", (1, 0, 0), 2.0, 0.3)]  # fmt: skip
    d = ts.generalized_forces_derivatives(coupled, forces, q, v)
    close(d.dtau_dq, columns(coupled, lambda x: ts.generalized_forces(coupled, forces, x, v), q))
    close(d.dtau_dv, directional(lambda x: ts.generalized_forces(coupled, forces, q, x), v))
    g = ts.generalized_forces_vjp(coupled, forces, q, v, w)
    close(g.q, w @ d.dtau_dq)
    close(g.v, w @ d.dtau_dv)
    tree_g = ts.generalized_forces_vjp(
        coupled.tree, forces, coupled.expand(q), coupled.expand_velocity(q, v), coupled.expand_velocity(q, w)
    )
    close(g.parameters[0]["stiffness"], tree_g.parameters[0]["stiffness"])


def test_constraint_derivatives(coupled):
    q, v, a, *_ = state(coupled)
    rows = [ts.Distance("toe", (0, 0, 0.1), "tip", (0.2, 0, 0), 1.0), ts.Gear("hip", "tip", 2.0)]
    errors = lambda x, y: ts.constraint_errors(coupled, rows, x, y, a)  # noqa: E731
    close(ts.constraint_jacobian(coupled, rows, q), columns(coupled, lambda x: errors(x, v).g, q))
    close(errors(q, v).gdot, ts.constraint_jacobian(coupled, rows, q) @ v)
    d = ts.constraint_derivatives(coupled, rows, q, v, a)
    close(d.dgdot_dq, columns(coupled, lambda x: errors(x, v).gdot, q))
    close(d.dgamma_dq, columns(coupled, lambda x: errors(x, v).gamma, q))
    close(d.dgamma_dv, directional(lambda x: errors(q, x).gamma, v))
    lam = np.array([0.7, -1.3])
    g = ts.constraint_vjp(coupled, rows, q, v, a, w_gamma=lam)
    close(g.q, lam @ d.dgamma_dq)
    close(g.v, lam @ d.dgamma_dv)
    close(g.a, lam @ ts.constraint_jacobian(coupled, rows, q))


# ---- second derivatives


def test_inverse_dynamics_hessians(any_coupled):
    q, v, a, w, _ = state(any_coupled)
    f = wrenches(any_coupled)
    H = ts.inverse_dynamics_hessians(any_coupled, q, v, a, f_ext=f)
    first = lambda x, y: ts.inverse_dynamics_derivatives(any_coupled, x, y, a, f_ext=f)  # noqa: E731
    close(H.d2tau_dqdq, columns(any_coupled, lambda x: first(x, v).dtau_dq, q))
    close(H.d2tau_dqdv, directional(lambda x: first(q, x).dtau_dq, v))
    close(H.d2tau_dvdv, directional(lambda x: first(q, x).dtau_dv, v))
    close(H.d2tau_dadq, columns(any_coupled, lambda x: ts.mass_matrix(any_coupled, x), q))
    c = ts.inverse_dynamics_hessians(any_coupled, q, v, a, f_ext=f, contract=w)
    for name in ("d2tau_dqdq", "d2tau_dqdv", "d2tau_dvdv", "d2tau_dadq"):
        close(getattr(c, name), np.einsum("i,ijk->jk", w, getattr(H, name)))
    d = first(q, v)
    close(c.dtau_dq, w @ d.dtau_dq)
    batch = ts.inverse_dynamics_hessians(any_coupled, *(np.stack([x] * 5) for x in (q, v, a)), f_ext=f)
    np.testing.assert_array_equal(batch.d2tau_dqdq[3], H.d2tau_dqdq)


def test_forward_dynamics_hessians(any_coupled):
    q, v, tau, w, _ = state(any_coupled)
    H = ts.forward_dynamics_hessians(any_coupled, q, v, tau)
    first = lambda x, y: ts.forward_dynamics_derivatives(any_coupled, x, y, tau)  # noqa: E731
    close(H.d2a_dqdq, columns(any_coupled, lambda x: first(x, v).da_dq, q), 1e-10)
    close(H.d2a_dqdv, directional(lambda x: first(q, x).da_dq, v), 1e-10)
    close(H.d2a_dvdv, directional(lambda x: first(q, x).da_dv, v), 1e-10)
    close(H.d2a_dtaudq, columns(any_coupled, lambda x: ts.mass_matrix_inverse(any_coupled, x), q), 1e-10)
    c = ts.forward_dynamics_hessians(any_coupled, q, v, tau, contract=w)
    for name in ("d2a_dqdq", "d2a_dqdv", "d2a_dvdv", "d2a_dtaudq"):
        close(getattr(c, name), np.einsum("i,ijk->jk", w, getattr(H, name)), 1e-10)
    close(c.da_dtau, w @ first(q, v).da_dtau)


# ---- constrained dynamics


def rows_of(name):
    """Constraints of the tree, and some that depend on them."""
    rows = [ts.Distance("toe", (0, 0, 0.1), "tip", (0.2, 0, 0), 1.0, name="rod"), ts.Gear("hip", "screw", 2.0)]
    if name == "redundant":
        rows.append(ts.Distance("tip", (0.2, 0, 0), "toe", (0, 0, 0.1), 1.0, name="the same rod"))
    return rows


@pytest.mark.parametrize("name", ["independent", "redundant"])
def test_constrained_forward_dynamics(coupled, name):
    q, v, tau, *_ = state(coupled)
    rows, options = rows_of(name), {"baumgarte": (1.5, 2.0)}
    found = ts.constrained_forward_dynamics(coupled, rows, q, v, tau, **options)
    G = ts.constraint_jacobian(coupled, rows, q)
    M, errors = ts.mass_matrix(coupled, q), ts.constraint_errors(coupled, rows, q, v, found.a)
    close(M @ found.a + ts.bias_forces(coupled, q, v), tau + G.T @ found.multipliers, 1e-10)
    close(errors.gamma + 3.0 * errors.gdot + 4.0 * errors.g, np.zeros(len(rows)), 1e-10)
    assert found.rank == 2
    d = ts.constrained_forward_dynamics_derivatives(coupled, rows, q, v, tau, **options)
    run = lambda x, y, u: ts.constrained_forward_dynamics(coupled, rows, x, y, u, **options)  # noqa: E731
    for out, k in (("a", 0), ("multipliers", 1)):
        close(getattr(d, f"d{out}_dq"), columns(coupled, lambda x, k=k: run(x, v, tau)[k], q), 1e-10)
        close(getattr(d, f"d{out}_dv"), directional(lambda x, k=k: run(q, x, tau)[k], v), 1e-10)
        close(getattr(d, f"d{out}_dtau"), directional(lambda x, k=k: run(q, v, x)[k], tau), 1e-10)


@pytest.mark.parametrize("name", ["independent", "redundant"])
def test_constrained_gradients(coupled, name):
    q, v, tau, w, _ = state(coupled)
    rows, options = rows_of(name), {"baumgarte": (1.5, 2.0), "f_ext": wrenches(coupled)}
    u = np.array([0.7, -1.3, 0.4])[: len(rows)]
    d = ts.constrained_forward_dynamics_derivatives(coupled, rows, q, v, tau, **options)
    g = ts.constrained_forward_dynamics_vjp(coupled, rows, q, v, tau, w_a=w, w_multipliers=u, **options)
    for key in ("q", "v", "tau"):
        close(getattr(g, key), w @ getattr(d, f"da_d{key}") + u @ getattr(d, f"dmultipliers_d{key}"), 1e-10)

    def total(model, given):
        found = ts.constrained_forward_dynamics(model, given, q, v, tau, **options)
        return w @ found.a + u @ found.multipliers

    h, e = 1e-5, np.array([0.3, -0.2, 0.5])
    ends = [total(coupled.with_gravity(np.array(coupled.gravity) + s * h * e), rows) for s in (1, -1)]
    close(g.gravity @ e, (ends[0] - ends[1]) / (2 * h), 1e-7)
    if name == "independent":
        ends = [
            total(coupled, [ts.Distance("toe", (0, 0, 0.1), "tip", (0.2, 0, 0), 1.0 + s * h), rows[1]]) for s in (1, -1)
        ]
        close(g.parameters[0]["length"], (ends[0] - ends[1]) / (2 * h), 1e-7)


def test_compliant_rows(coupled):
    q, v, tau, *_ = state(coupled)
    rows = rows_of("redundant")
    found = ts.constrained_forward_dynamics(coupled, rows, q, v, tau, compliance=0.1)
    errors = ts.constraint_errors(coupled, rows, q, v, found.a)
    close(errors.gamma, -0.1 * found.multipliers, 1e-10)
