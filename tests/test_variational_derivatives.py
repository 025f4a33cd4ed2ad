"""Steps of variational integrators and their first and second derivatives, by momenta and by velocities."""

import numpy as np
import pytest
from compare import differences
from population import models
from reference import load
from variational_cases import (
    RULES,
    chain,
    check_step,
    mixed_forces,
    rods,
    state,
    step_matrices,
    symplectic_form,
)

import torsor as ts
from torsor import testing
from torsor.testing import complex_step, random_inertia, random_pose

# ---- derivatives of a step


@pytest.mark.parametrize(("rule", "order"), RULES)
@pytest.mark.parametrize("model", models(7))
def test_step_and_its_jacobian_for_every_joint(model, rule, order):
    check_step(model, ts.Variational(0.02, order, rule, tolerance=1e-13), 3)


@pytest.mark.parametrize(("rule", "order"), RULES)
def test_jacobian_with_forces(rule, order):
    """Forces that stay within a joint, and others; once on a tree small enough for a dense solve, once beyond."""
    forces = mixed_forces(chain())
    for given in (forces[:1], forces):
        check_step(chain(), ts.Variational(0.02, order, rule, tolerance=1e-13), 4, given)
    small = ts.ModelBuilder(gravity=(0, 0, -9.81))
    rng = np.random.default_rng(1)
    for k, joint in enumerate((ts.Spherical(), ts.Revolute((0, 1, 0)), ts.Universal())):
        small.add_body(f"b{k}", f"b{k - 1}" if k else "world", joint, random_pose(rng), random_inertia(rng))
    model = small.build()
    for given in (mixed_forces(model)[:1], mixed_forces(model)):
        check_step(model, ts.Variational(0.02, order, rule, tolerance=1e-13), 4, given)


@pytest.mark.parametrize(("rule", "order"), [("gauss", 2), ("lobatto", 4)])
def test_derivatives_by_parameters_of_forces(rule, order):
    """By differences of fourth order, of 1e-3: 1e-12 of truncation and 1e-12 / 1e-3 of what Newton's method leaves."""
    model = chain()
    q, p, _ = state(model, 4)
    integrator = ts.Variational(0.05, order, rule, tolerance=1e-13)
    for forces in (mixed_forces(model), [*mixed_forces(model)[:2], mixed_forces(model)[3]]):
        d = ts.step_derivatives(model, integrator, q, p=p, forces=forces, t=0.3)
        scale = [
            max(np.abs(x).max() for part in all_ for x in part.values()) for all_ in (d.dq1_dforces, d.dp1_dforces)
        ]
        for k, force in enumerate(forces):
            for name, value in force._for_model(model).parameters.items():
                x = np.random.default_rng(k).standard_normal(value.shape)

                def moved(s, k=k, name=name, value=value, x=x, forces=forces, d=d):
                    changed = [*forces[:k], forces[k].with_parameters({name: value + s * x}), *forces[k + 1 :]]
                    m = ts.step_derivatives(model, integrator, q, p=p, forces=changed, t=0.3)
                    return np.stack([model.minus(m.q1, d.q1), m.p1])

                e = 1e-3
                expected = (8 * (moved(e) - moved(-e)) - (moved(2 * e) - moved(-2 * e))) / (12 * e)
                for part, got in enumerate((d.dq1_dforces, d.dp1_dforces)):
                    along = (got[k][name] * x).reshape(model.nv, -1).sum(axis=-1)
                    np.testing.assert_allclose(along, expected[part], atol=1e-8 * scale[part])
    assert ts.step_derivatives(model, integrator, q, p=p).dq1_dforces is None


@pytest.mark.parametrize(("rule", "order"), RULES)
@pytest.mark.parametrize("model", models(8))
def test_steps_are_symplectic(model, rule, order):
    q, p, _ = state(model, 5, 1.0)
    d = ts.step_derivatives(model, ts.Variational(0.02, order, rule, tolerance=1e-13), q, p=p)
    D = np.block([[d.dq1_dq, d.dq1_dp], [d.dp1_dq, d.dp1_dp]])
    defect = D.T @ symplectic_form(model, d.p1) @ D - symplectic_form(model, p)
    # Columns of D are solutions of linear systems, to rounding times the condition of the mass matrix, in their norm.
    norms = np.linalg.norm(D, axis=0)
    rounding = 10 * np.finfo(float).eps * np.linalg.cond(ts.mass_matrix(model, q))
    assert (np.abs(defect) <= rounding * (1.0 + np.outer(norms, norms))).all()


def test_symplectic_without_scaling():
    """The same as a bound on all entries, over 100 steps with springs, which have a potential too."""
    model = chain()
    q, p, _ = state(model, 5)
    forces = [
        ts.JointSpring("b1", 5.0, (0.3,)),
        ts.PointSpring("b2", (0.1, 0.2, 0), "world", (0, 0, 1), 4.0),
        ts.SpringDamper("b3", (0.1, 0.2, 0), "b0", (0, 0.5, 1), 4.0, rest_length=0.3),
    ]
    integrator = ts.Variational(0.01, 4)
    start, D = symplectic_form(model, p), np.eye(2 * model.nv)
    for _ in range(100):
        d = ts.step_derivatives(model, integrator, q, p=p, forces=forces)
        step = np.block([[d.dq1_dq, d.dq1_dp], [d.dp1_dq, d.dp1_dp]])
        defect = step.T @ symplectic_form(model, d.p1) @ step - symplectic_form(model, p)
        assert np.abs(defect).max() < 1e-10
        D, q, p = step @ D, d.q1, d.p1
    # Of the whole motion, whose Jacobian has grown: relative to that.
    assert np.abs(D.T @ symplectic_form(model, p) @ D - start).max() < 1e-10 * np.abs(D).max() ** 2


# ---- second derivatives


def check_hessian(model, integrator, seed, forces=()):
    nv = model.nv
    q, p, _ = state(model, seed)
    rng = np.random.default_rng(seed)
    u, wq, wp = rng.standard_normal((3, nv))
    H = ts.variational.step_hessian(model, integrator, q, p, u, contract=(wq, wp), forces=forces, t=0.3)
    base = ts.step_derivatives(model, integrator, q, p=p, u=u, forces=forces, t=0.3)

    def gradient(dq=0.0, dp=0.0, du=0.0):
        """wq.q1 + wp.p1 along the first directions, q1 in the tangent space of where it is."""
        at = model.plus(q, dq + np.zeros(nv))
        d = ts.step_derivatives(model, integrator, at, p=p + dp, u=u + du, forces=forces, t=0.3)
        dq1, dp1 = step_matrices(d)
        return wq @ dq1 + wp @ dp1

    assert np.isfinite(base.q1).all()
    scale = max(np.abs(x).max() for x in H)
    blocks = (
        (differences(lambda x: gradient(dq=x), np.zeros(nv)), (H.dqdq, None, None)),
        (differences(lambda x: gradient(dp=x), np.zeros(nv)), (H.dqdp, H.dpdp, None)),
        (differences(lambda x: gradient(du=x), np.zeros(nv), 1e-2), (H.dqdu, H.dpdu, H.dudu)),
    )
    for expected, given in blocks:
        for k, value in enumerate(given):
            if value is not None:
                # Truncation, 1e-8 (eps^4), and rounding of the Jacobians, 1e-12 / eps, of the largest entry.
                np.testing.assert_allclose(value, expected[k * nv : (k + 1) * nv], atol=1e-7 * scale)


@pytest.mark.parametrize("model", models(9))
def test_second_derivatives_for_every_joint(model):
    check_hessian(model, ts.Variational(0.02, tolerance=1e-13), 6)


@pytest.mark.parametrize(("rule", "order"), RULES)
def test_second_derivatives_with_forces(rule, order):
    model = chain()
    check_hessian(model, ts.Variational(0.05, order, rule, tolerance=1e-13), 6, mixed_forces(model))
    check_hessian(model, ts.Variational(0.05, order, rule, tolerance=1e-13), 7, mixed_forces(model)[:1])


@pytest.mark.parametrize("joint", [ts.Spherical(), ts.Free()])
def test_order_of_second_derivatives(joint):
    # R^-1 d_j R is a different thing to differentiate than R^-1 d_k R, by their bracket.
    model = testing.random_tree(3, [joint, ts.Revolute((0, 1, 0))], branching=0.0)
    nv, n, integrator = model.nv, joint.nv, ts.Variational(0.02, order=4, tolerance=1e-13)
    q, p, _ = state(model, 2)
    wq, wp = np.random.default_rng(2).standard_normal((2, nv))
    H = ts.variational.step_hessian(model, integrator, q, p, contract=(wq, wp))
    d = ts.step_derivatives(model, integrator, q, p=p)

    def bracket(a, b):
        turn = np.cross(a[:3], b[:3])
        return turn if n == 3 else np.concatenate([turn, np.cross(a[:3], b[3:]) - np.cross(b[:3], a[3:])])

    def excess(by_j, by_k):
        return np.array([[wq[:n] @ bracket(by_j[:n, j], by_k[:n, k]) for k in range(nv)] for j in range(nv)])

    for block, by in ((H.dpdp, d.dq1_dp), (H.dudu, d.dq1_du)):
        np.testing.assert_allclose(block - block.T, excess(by, by), rtol=0, atol=1e-12 * np.abs(block).max())

    def by_momenta(dq):
        moved = ts.step_derivatives(model, integrator, model.plus(q, dq), p=p)
        return wq @ moved.dq1_dp + wp @ moved.dp1_dp

    other = differences(by_momenta, np.zeros(nv)).T
    # Truncation and rounding as in check_hessian.
    np.testing.assert_allclose(H.dqdp - other, excess(d.dq1_dq, d.dq1_dp), rtol=0, atol=1e-7 * np.abs(H.dqdp).max())


# ---- against trep


def load_reference():
    return load("variational/double_pendulum_pointmass")


def read_pendulum(data):
    builder = ts.ModelBuilder(gravity=(0, 0, -9.81))
    parent, placement = "world", ts.SE3()
    for body in data["bodies"]:
        assert body["joint"] == "RY" and body["then"] == "TZ(-1)"
        inertia = ts.Inertia.point(body["mass"], (0, 0, -1))
        builder.add_body(body["q"], parent, ts.Revolute((0, 1, 0)), placement, inertia)
        parent, placement = body["q"], ts.SE3.translation(0, 0, -1)
    return builder.build(), ts.Variational(data["dt"], rule="midpoint")


def test_trajectory_of_trep():
    data = load_reference()
    model, integrator = read_pendulum(data)
    run = ts.simulate(model, data["q0"], p0=data["p0"], steps=data["nsteps"], integrator=integrator)
    # trep solves to 1e-11, and 200 steps add that up.
    np.testing.assert_allclose(run.q, data["q_traj"], atol=1e-9)
    np.testing.assert_allclose(run.p, data["p_traj"], atol=1e-9)
    middle, rate = (run.q[1:] + run.q[:-1]) / 2, np.diff(run.q, axis=0) / data["dt"]
    energy = ts.kinetic_energy(model, middle, rate) + ts.potential_energy(model, middle)
    np.testing.assert_allclose(energy, data["midpoint_energy_traj"], atol=1e-8)


@pytest.mark.parametrize("step", [0, 100])
def test_step_derivatives_of_trep(step):
    data = load_reference()
    model, integrator = read_pendulum(data)
    expected = data[f"derivs_step{step}"]
    d = ts.step_derivatives(model, integrator, expected["q1"], p=expected["p1"])
    for ours, theirs in (("q1", "q2"), ("p1", "p2")):
        np.testing.assert_allclose(getattr(d, ours), expected[theirs], atol=1e-10)
        for by in "qp":
            np.testing.assert_allclose(getattr(d, f"d{ours}_d{by}"), expected[f"{theirs}_d{by}1"], atol=1e-8)


def test_second_derivatives_of_trep():
    data = load_reference()
    model, integrator = read_pendulum(data)
    expected = data["derivs_step0"]
    for i, w in enumerate(np.eye(4)):
        H = ts.variational.step_hessian(model, integrator, expected["q1"], expected["p1"], contract=(w[:2], w[2:]))
        name, output = ("q2", i) if i < 2 else ("p2", i - 2)
        for by, value in (("dq1dq1", H.dqdq), ("dq1dp1", H.dqdp), ("dp1dp1", H.dpdp)):
            theirs = np.array(expected[f"{name}_{by}"])[:, :, output]  # their output comes last
            np.testing.assert_allclose(value, theirs, atol=1e-8)


# ---- by velocities


@pytest.mark.parametrize(("rule", "order"), RULES)
@pytest.mark.parametrize("with_forces", [False, True])
def test_step_derivatives_by_velocities(rule, order, with_forces):
    """p0 = M(q0) v0 and v1 = M(q1)^-1 p1 around the step by momenta."""
    model = chain()
    q, p, v = state(model, 8)
    u = np.random.default_rng(8).standard_normal(model.nv)
    given = {"forces": mixed_forces(model), "t": 0.3} if with_forces else {}
    integrator = ts.Variational(0.02, order, rule)
    d = ts.step_derivatives(model, integrator, q, p=p, u=u, **given)
    by_v = ts.step_derivatives(model, integrator, q, v, u, **given)
    assert type(by_v) is ts.simulation.StepDerivatives
    np.testing.assert_allclose(model.minus(by_v.q1, d.q1), 0, atol=1e-12)
    np.testing.assert_allclose(ts.generalized_momenta(model, by_v.q1, by_v.v1), d.p1, atol=1e-11 * np.abs(d.p1).max())
    zero = np.zeros(model.nv)
    M0, M1 = ts.mass_matrix(model, q), ts.mass_matrix(model, by_v.q1)
    turned0 = complex_step(lambda x: ts.generalized_momenta(model, model.plus(q, x), v), zero)
    turned1 = complex_step(lambda x: ts.generalized_momenta(model, model.plus(by_v.q1, x), by_v.v1), zero)
    for name, q_part, p_part in (
        ("q", d.dq1_dq + d.dq1_dp @ turned0, d.dp1_dq + d.dp1_dp @ turned0),
        ("v", d.dq1_dp @ M0, d.dp1_dp @ M0),
        ("u", d.dq1_du, d.dp1_du),
    ):
        v_part = np.linalg.solve(M1, p_part - turned1 @ q_part)
        for value, expected in ((f"dq1_d{name}", q_part), (f"dv1_d{name}", v_part)):
            # Products with M and M^-1: its condition number, 1e3 or so, times rounding and Newton's tolerance.
            np.testing.assert_allclose(getattr(by_v, value), expected, atol=1e-10 * np.abs(expected).max())


def test_generalized_momenta_of_every_joint():
    for case in models(12):
        model = case.values[0]
        rng = np.random.default_rng(0)
        q, v = np.stack([model.random(rng) for _ in range(5)]), rng.standard_normal((5, model.nv))
        p = ts.generalized_momenta(model, q, v)
        expected = np.einsum("...ij,...j->...i", ts.mass_matrix(model, q), v)
        np.testing.assert_allclose(p, expected, atol=1e-13 * np.abs(expected).max())
        np.testing.assert_allclose(0.5 * (p * v).sum(axis=-1), ts.kinetic_energy(model, q, v), rtol=1e-12)
        # dT/dv, and every state alone as in the batch
        by_v = complex_step(lambda x, model=model, q=q: ts.kinetic_energy(model, q[0], x), v[0])
        np.testing.assert_allclose(p[0], by_v, atol=1e-12 * np.abs(by_v).max())
        np.testing.assert_allclose(ts.generalized_momenta(model, q[3], v[3]), p[3], atol=1e-13 * np.abs(p).max())
        out = np.empty_like(p)
        assert ts.generalized_momenta(model, q, v, out=out) is out
        np.testing.assert_array_equal(out, p)


# ---- wrong arguments

MODEL = chain()


def test_actuation_is_a_matrix_before_the_torques():
    q, p, _ = state(MODEL, 3)
    B = np.random.default_rng(4).standard_normal((MODEL.nv, 2))
    integrator, u = ts.Variational(0.01, 4), np.array([0.3, -0.2])
    d = ts.step_derivatives(MODEL, integrator, q, p=p, u=u, actuation=B)
    torques = B[:, 0] * u[0] + B[:, 1] * u[1]  # column by column, as the library sums; B @ u may round otherwise
    full = ts.step_derivatives(MODEL, integrator, q, p=p, u=torques)
    assert type(d) is ts.simulation.MomentumStepDerivatives
    np.testing.assert_array_equal(d.p1, full.p1)
    np.testing.assert_allclose(d.dq1_du, full.dq1_du @ B, rtol=1e-12)
    np.testing.assert_allclose(d.dp1_du, full.dp1_du @ B, rtol=1e-12)


GOOD = {"model": MODEL, "integrator": ts.Variational(0.01), "q": state(MODEL, 0)[0], "p": np.zeros(MODEL.nv)}


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"integrator": ts.BDF1(0.01)}, TypeError, r"is for Variational, .* to BDF1|Variational\(h, order\), got BDF1"),
        ({"integrator": ts.Variational}, TypeError, r"integrator must .* got <class"),
        ({"integrator": 0.01}, TypeError, r"integrator must .* got 0.01"),
        ({"model": "arm"}, TypeError, "model must be a torsor.Model, got str"),
        ({"q": np.zeros(3)}, ValueError, r"q has shape \(3,\), expected \(..., 16\): model.nq is 16"),
        ({"p": np.zeros(3)}, ValueError, r"p has shape \(3,\), expected \(..., 14\): model.nv is 14"),
        ({"p": "fast"}, TypeError, r"p has dtype .*, expected numbers, got str"),
        ({"p": 1j * np.zeros(14)}, TypeError, r"p is complex, expected real numbers"),
        ({"u": np.zeros((2, 3))}, ValueError, r"u has shape \(2, 3\), expected \(..., 14\)"),
        ({"q": np.zeros((2, 16)), "p": np.zeros((3, 14))}, ValueError, "batch shapes do not fit together"),
        ({"forces": ts.JointSpring(None, 1.0)}, TypeError, "forces must be a sequence of forces, got JointSpring"),
        ({"forces": [3]}, TypeError, "force 0 must be a Force, got 3"),
        ({"forces": [ts.BodyDamping("b9", 1.0)]}, KeyError, "no body named 'b9'"),
        ({"threads": -1}, ValueError, "threads is -1, expected an integer"),
    ],
)
def test_bad_input_is_told(change, error, message):
    with pytest.raises(error, match=message):
        ts.step_derivatives(**{**GOOD, **change})
    weights = (np.ones(14), np.ones(14))
    with pytest.raises(error, match=message):
        ts.variational.step_hessian(**{**GOOD, **change}, contract=weights)


def test_other_bad_input_is_told():
    model, integrator, q, p = GOOD.values()
    for contract in (None, 3, (p,), (p, p, p)):
        with pytest.raises(TypeError, match=r"contract must be \(wq, wp\), weights on q1 and on p1, got"):
            ts.variational.step_hessian(model, integrator, q, p, contract=contract)
    with pytest.raises(ValueError, match=r"weight of p1 has shape \(3,\), expected \(..., 14\)"):
        ts.variational.step_hessian(model, integrator, q, p, contract=(p, np.zeros(3)))
    with pytest.raises(TypeError, match=r"weight of q1 is missing, expected an array"):
        ts.variational.step_hessian(model, integrator, q, p, contract=(None, p))
    with pytest.raises(TypeError, match=r"integrator must be Variational\(h, order\), got BDF2"):
        ts.variational.discrete_euler_lagrange(model, ts.BDF2(0.01), np.stack([q, q]))
    with pytest.raises(ValueError, match=r"q has shape \(16,\), expected \(..., 2, 16\)"):
        ts.variational.discrete_euler_lagrange(model, integrator, q)
    with pytest.raises(ValueError, match=r"q has shape \(2, 16\), expected \(..., 3, 16\)"):
        ts.variational.discrete_euler_lagrange(model, ts.Variational(0.01, 4), np.stack([q, q]))
    with pytest.raises(TypeError, match="previous is for BDF2, which has two steps; Variational has one"):
        ts.step_derivatives(model, integrator, q, p, previous=(q, p))
    for given, count in (({"v": p, "p": p}, "both"), ({}, "neither")):
        with pytest.raises(TypeError, match=f"either v, the velocities, or p, the momenta: got {count}"):
            ts.step_derivatives(model, integrator, q, **given)
    for t, message in ((None, "dtype object"), ("now", "dtype <U3"), (1j, "t is complex")):
        for given in ({"v": p}, {"p": p}):
            with pytest.raises(TypeError, match=message):
                ts.step_derivatives(model, integrator, q, **given, t=t)
        with pytest.raises(TypeError, match=message):
            ts.variational.discrete_euler_lagrange(model, integrator, np.stack([q, q]), t=t)
        with pytest.raises(TypeError, match=message):
            ts.step_derivatives(model, ts.BDF1(0.01), q, p, t=t)
    with pytest.raises(ValueError, match=r"h of Variational is 10+, expected a positive number"):
        ts.Variational(10**400)
    given = {"steps": 1, "integrator": integrator}
    with pytest.raises(TypeError, match="either v0, the velocities, or p0, the momenta: got both"):
        ts.simulate(model, q, p, p0=p, **given)
    with pytest.raises(ValueError, match=r"p0 has shape \(3,\), expected \(..., 14\): model.nv is 14"):
        ts.simulate(model, q, p0=np.zeros(3), **given)
    with pytest.raises(ValueError, match=r"p0 is not finite: p0\[0\] is nan"):
        ts.simulate(model, q, p0=np.full(14, np.nan), **given)
    with pytest.raises(ValueError, match=r"batch shapes do not fit together: q0 \(2, 16\), p0 \(3, 14\)"):
        ts.simulate(model, np.stack([q, q]), p0=np.zeros((3, 14)), **given)
    builder = ts.ModelBuilder()
    builder.add_body("a", "world", ts.Revolute(), inertia=ts.Inertia.zero())
    with pytest.raises(ts.SingularMassMatrixError, match="the mass matrix is singular at joint 'a'"):
        ts.simulate(builder.build(), [1.0], p0=[0.0], **given)


def test_derivatives_by_velocities_keep_their_digits():
    """Against gradients of the same step in reverse, on a chain whose mass matrix has a condition of 1e6 and more."""
    model, rng, n = rods(40), np.random.default_rng(0), 40
    q, v = 0.1 * rng.standard_normal((2, n))
    integrator = ts.Variational(1e-3)
    d = ts.step_derivatives(model, integrator, q, v)
    run = ts.simulate(model, q, v, steps=1, integrator=integrator)
    for k in (0, 17, 39):
        g = ts.adjoint(run, dloss_dv=np.eye(n)[k])
        for ours, reverse in ((d.dv1_dq[k], g.q0), (d.dv1_dv[k], g.v0)):
            np.testing.assert_allclose(ours, reverse, atol=1e-8 * np.abs(reverse).max())
