"""Controls: actuation, and policies with gradients through the feedback, against equivalent formulations and
differences of rollouts."""

import copy
import math
import pickle

import numpy as np
import pytest
from population import models, sweep
from test_adjoint import INTEGRATORS, JOINTS, close, differences, scene, weighted
from test_steps import NAMES

import torsor as ts
from torsor.testing import random_inertia, random_tree

H = 0.01
# Four evaluations of differences of the fourth order, whose rounding is 1e-13 / 1e-3, on top of that of the rollout.
ACTUATED = ["b1", "b3"]


def same(a, b):
    """Two trajectories, or two gradients, to the last bit."""
    for name in ("t", "q", "v", "a", "q0", "v0", "inertia", "placement", "gravity"):
        if hasattr(a, name):
            np.testing.assert_array_equal(getattr(a, name), getattr(b, name), err_msg=name)


def tip_policy(model, rng, size=None):
    """Torques from the position of a point and from the velocities, with derivatives; all states of a batch at once."""
    size = model.nv if size is None else size
    body = model.bodies[-1].name
    A, B = rng.standard_normal((size, 3)), 0.3 * rng.standard_normal((size, model.nv))

    def value(t, q, v):
        x = ts.point_positions(model, q, body, (0.1, 0.2, 0.3))
        return np.tanh(x) @ A.T + v @ B.T + math.sin(t)

    def derivatives(t, q, v):
        x, J = (f(model, q, body, (0.1, 0.2, 0.3)) for f in (ts.point_positions, ts.point_jacobian))
        return A @ ((1 - np.tanh(x) ** 2)[..., None] * J), np.broadcast_to(B, (*v.shape[:-1], *B.shape))

    return ts.Policy(value, derivatives)


def pushed(policy, d):
    """The policy with controls d (steps, nu) added."""
    return lambda t, q, v: policy(t, q, v) + d[min(round(t / H), len(d) - 1)]


# ---- actuation


@pytest.mark.parametrize("integrator", [*INTEGRATORS, ts.Adaptive(H)], ids=[*NAMES, "Adaptive"])
def test_actuated_joints_are_columns_of_the_torques(integrator):
    model, q, v, rng = scene(JOINTS[:5])
    columns = [k for name in ACTUATED for k in range(*model.joint(name).v_slice.indices(model.nv))]
    steps, nu = 4, len(columns)
    assert nu == 4  # three of a ball, one of a hinge
    u = rng.standard_normal((3, steps, nu))
    wide = np.zeros((3, steps, model.nv))
    wide[..., columns] = u

    def run(controls, **options):
        return ts.simulate(model, q, v, steps=steps, integrator=integrator, controls=controls, **options)

    a, b = run(u, actuation=ACTUATED), run(wide)
    same(a, b)
    np.testing.assert_array_equal(a.controls, u)
    np.testing.assert_array_equal(a.actuation, np.eye(model.nv)[:, columns])
    same(run(u[0, 0], actuation=ACTUATED), run(wide[0, 0]))
    of_time = np.array([0.3, -0.2, 0.5, 0.1])
    same(
        run(lambda t: of_time * np.cos(t), actuation=ACTUATED),
        run(lambda t: (of_time @ a.actuation.T) * np.cos(t)),
    )
    if isinstance(integrator, ts.Adaptive):
        return
    wq, wv = rng.standard_normal((2, 3, steps + 1, model.nv))
    g, full = ts.adjoint(a, dloss_dq=wq, dloss_dv=wv), ts.adjoint(b, dloss_dq=wq, dloss_dv=wv)
    same(g, full)
    np.testing.assert_array_equal(g.controls, full.controls[..., columns])


@pytest.mark.parametrize("integrator", sweep(INTEGRATORS, 4), ids=NAMES)
@pytest.mark.parametrize("every", [1, 2])
def test_gradients_through_a_matrix(integrator, every):
    model, q, v, rng = scene(JOINTS[:5])
    B, u = rng.standard_normal((model.nv, 3)), rng.standard_normal((4, 3))

    def run(u):
        given = {"steps": 4, "integrator": integrator, "controls": u, "actuation": B, "every": every}
        return ts.simulate(model, q, v, **given)

    base = run(u)
    wide = ts.simulate(model, q, v, steps=4, integrator=integrator, controls=u @ B.T, every=every)
    np.testing.assert_allclose(base.q, wide.q, rtol=0, atol=1e-13)
    w = rng.standard_normal((2, len(base.t), model.nv))
    du = rng.standard_normal((4, 3))
    loss = weighted(model, base, *w)
    g = ts.adjoint(base, dloss_dq=w[0], dloss_dv=w[1], dloss_du=du)
    close(g.controls, differences(lambda u: loss(run(u)) + (du * u).sum(), u, 1e-2))
    effort = ts.ControlEffort([1.0, 2.0, 3.0])
    assert ts.loss(base, effort).value == pytest.approx(0.5 * H * (u**2 @ [1.0, 2.0, 3.0]).sum(), rel=1e-13)
    np.testing.assert_allclose(ts.adjoint(base, effort).controls, H * u * [1.0, 2.0, 3.0], rtol=1e-13)


@pytest.mark.parametrize("integrator", sweep(INTEGRATORS, 4), ids=NAMES)
def test_steps_with_actuation(integrator):
    model, q, v, rng = scene(JOINTS[:5])
    for actuation in (ACTUATED, rng.standard_normal((model.nv, 2))):
        B = ts.simulate(model, q, steps=0, integrator=integrator, actuation=actuation).actuation
        u = rng.standard_normal((2, B.shape[1]))
        one, wide = ts.step(model, integrator, q, v, u, actuation=actuation), ts.step(model, integrator, q, v, u @ B.T)
        np.testing.assert_allclose(one.v1, wide.v1, rtol=1e-12, atol=1e-12)
        d = ts.step_derivatives(model, integrator, q, v, u, actuation=actuation)
        full = ts.step_derivatives(model, integrator, q, v, u @ B.T)
        assert d.dq1_du.shape == (2, *B.shape)
        np.testing.assert_allclose(d.dq1_du, full.dq1_du @ B, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(d.dv1_du, full.dv1_du @ B, rtol=1e-9, atol=1e-10)
        np.testing.assert_array_equal(
            ts.step(model, integrator, q, v, actuation=actuation).q1, ts.step(model, integrator, q, v).q1
        )


# ---- policies


@pytest.mark.parametrize("integrator", [*INTEGRATORS, ts.Adaptive(H)], ids=[*NAMES, "Adaptive"])
@pytest.mark.parametrize("actuation", [None, ACTUATED])
def test_a_policy_that_ignores_the_state_is_an_array(integrator, actuation):
    model, q, v, rng = scene(JOINTS[:5])
    nu = model.nv if actuation is None else 4
    u = rng.standard_normal((3, 6, nu))
    forces = [ts.JointSpring("b3", 2.0, (0.1,), 0.1)]
    calls = []

    def policy(t, q, v):
        calls.append((t, q.shape, v.shape))
        q[:], v[:] = np.nan, np.nan  # which are copies
        return u[:, round(t / H)]

    given = {"steps": 6, "integrator": integrator, "forces": forces, "actuation": actuation}
    qs = model.plus(q, 0.1 * rng.standard_normal((3, model.nv)))
    run, other = ts.simulate(model, qs, v, controls=policy, **given), ts.simulate(model, qs, v, controls=u, **given)
    same(run, other)
    np.testing.assert_array_equal(run.controls, u)
    assert [c[0] for c in calls] == pytest.approx(list(H * np.arange(6)))
    assert {c[1:] for c in calls} == {((3, model.nq), (3, model.nv))}
    if isinstance(integrator, ts.Adaptive):
        return
    kept = ts.simulate(model, qs, v, controls=policy, every=3, **given)
    np.testing.assert_array_equal(kept.q, run.q[:, ::3])
    still = ts.Policy(policy, lambda t, q, v: (np.zeros((nu, model.nv)), np.zeros((nu, model.nv))))
    w = rng.standard_normal((3, 7, model.nv))
    g = ts.adjoint(ts.simulate(model, qs, v, controls=still, **given), dloss_dq=w)
    h = ts.adjoint(other, dloss_dq=w)
    same(g, h)
    np.testing.assert_array_equal(g.controls, h.controls)


def test_feedback_at_the_beginning_of_a_step_is_an_explicit_spring():
    """Symplectic Euler takes forces where a step begins, as it does the torques of a policy."""
    model, q, v, _ = scene([ts.Revolute((0, 1, 0)), ts.Prismatic((1, 0, 1)), ts.Universal()])
    k, d = 4.0, 0.3
    given = {"steps": 50, "integrator": ts.SymplecticEuler(H)}
    springs = ts.simulate(model, q, v, forces=[ts.JointSpring(None, k, np.zeros(model.nq), d)], **given)
    policy = ts.simulate(model, q, v, controls=lambda t, q, v: -k * q - d * v, **given)
    np.testing.assert_allclose(policy.q, springs.q, atol=1e-11)  # rounding of 50 steps


@pytest.mark.parametrize("kind", [ts.BDF1, ts.SDIRK2, ts.Variational])
def test_feedback_tends_to_springs(kind):
    """Held over a step, it lags by h / 2: the difference is of the first order."""
    model, q, v, _ = scene([ts.Revolute((0, 1, 0)), ts.Prismatic((1, 0, 1)), ts.Universal()])
    errors = []
    for h in (4e-3, 2e-3, 1e-3):
        forces = [ts.JointSpring(None, 4.0, np.zeros(model.nq), 0.3)]
        springs = ts.simulate(model, q, v, T=0.2, integrator=kind(h), forces=forces)
        policy = ts.simulate(model, q, v, T=0.2, integrator=kind(h), controls=lambda t, q, v: -4.0 * q - 0.3 * v)
        errors.append(np.abs(policy.q[-1] - springs.q[-1]).max())
    np.testing.assert_allclose(np.log2(np.divide(errors[:-1], errors[1:])), 1.0, atol=0.1)


@pytest.mark.parametrize("integrator", sweep(INTEGRATORS, 4), ids=NAMES)
@pytest.mark.parametrize("actuation", [None, "matrix"])
def test_gradients_through_feedback(integrator, actuation):
    model, q, v, rng = scene(JOINTS[:5])
    B = None if actuation is None else rng.standard_normal((model.nv, 2))
    nu = model.nv if B is None else 2
    policy, steps = tip_policy(model, rng, nu), 6
    forces = [ts.JointSpring(None, 2.0, model.neutral, 0.1)]

    def run(dq=0.0, dv=0.0, du=None, stiffness=2.0, every=1):
        controls = policy if du is None else pushed(policy, du)
        return ts.simulate(
            model, model.plus(q, dq + np.zeros(model.nv)), v + dv, steps=steps, integrator=integrator,
            controls=controls, actuation=B, forces=forces, parameters=[{"stiffness": stiffness}], every=every,
        )  # fmt: skip

    base = run()
    assert base.policy is policy and base.controls.shape == (steps, nu)
    wq, wv = rng.standard_normal((2, steps + 1, model.nv))
    c = rng.standard_normal((steps, nu))
    states = weighted(model, base, wq, wv)

    def loss(run):  # with a part in the controls themselves
        return states(run) + (c * run.controls**2).sum()

    g = ts.adjoint(base, dloss_dq=wq, dloss_dv=wv, dloss_du=2 * c * base.controls)
    close(g.q0, differences(lambda x: loss(run(dq=x)), np.zeros(model.nv)))
    close(g.v0, differences(lambda x: loss(run(dv=x)), np.zeros(model.nv)))
    close(g.forces[0]["stiffness"], differences(lambda x: loss(run(stiffness=x)), 2.0, 1e-2))

    def at(x):
        d = np.zeros((steps, nu))
        d[::2] = x
        return d

    close(g.controls[::2], differences(lambda x: loss(run(du=at(x))), np.zeros((3, nu)), 1e-2))
    few = run(every=3)
    np.testing.assert_array_equal(few.controls, base.controls)
    rows = np.zeros_like(wq)
    rows[::3] = wq[::3]
    a = ts.adjoint(base, dloss_dq=rows, dloss_du=2 * c * base.controls)
    b = ts.adjoint(few, dloss_dq=wq[::3], dloss_du=2 * c * base.controls)
    # Variational's rows are velocities, made of momenta and back again at the ends of windows.
    tolerance = 1e-12 if isinstance(integrator, ts.Variational) else 0.0
    for name in ("q0", "v0", "controls"):
        scale = np.abs(getattr(a, name)).max()
        np.testing.assert_allclose(getattr(b, name), getattr(a, name), rtol=0, atol=tolerance * scale, err_msg=name)


@pytest.mark.parametrize("integrator", sweep(INTEGRATORS, 4), ids=NAMES)
def test_feedback_through_chart_switches(integrator):
    """The policy sees the coordinates of the moment, and so does the gradient."""
    rng = np.random.default_rng(0)
    builder = ts.ModelBuilder(gravity=(0, 0, -9.81))
    builder.add_body("a", "world", ts.SphericalEuler("XYZ"), inertia=random_inertia(rng))
    exponential = ts.Composite(ts.Prismatic((1, 0, 0)), ts.SphericalExp())
    builder.add_body("b", "a", exponential, ts.SE3.translation(0.3, 0.1, -0.4), random_inertia(rng))
    model = builder.build()
    q, v = np.array([0.1, 0.95, 0.3, 0.1, 2.9, 0.8, 0.2]), np.array([0.5, 2.0, 0.3, 0.2, 2.0, 2.0, 0.5])
    A, B = rng.standard_normal((2, model.nv, model.nv))
    policy = ts.Policy(
        lambda t, q, v: (A * np.sin(q)[..., None, :]).sum(-1) + (0.1 * B * v[..., None, :]).sum(-1),
        lambda t, q, v: (A * np.cos(q)[..., None, :], np.broadcast_to(0.1 * B, (*v.shape, model.nv))),
    )

    def run(q=q, v=v, du=None):
        controls = policy if du is None else pushed(policy, du)
        return ts.simulate(model, q, v, steps=12, integrator=integrator, controls=controls)

    base = run()
    rows = [s.row for s in base.switches]
    assert len(rows) == 2 and 0 < rows[0] < 12
    wq, wv = rng.standard_normal((2, 13, model.nv))

    def loss(other):
        assert [s.row for s in other.switches] == rows
        return (wq * other.q).sum() + (wv * other.v).sum()

    g = ts.adjoint(base, dloss_dq=wq, dloss_dv=wv)
    close(g.q0, differences(lambda x: loss(run(q=x)), q))
    close(g.v0, differences(lambda x: loss(run(v=x)), v))

    def at(x):
        d = np.zeros((12, model.nv))
        d[rows[0]] = x
        return d

    close(g.controls[rows[0]], differences(lambda x: loss(run(du=at(x))), np.zeros(model.nv)))
    both = ts.simulate(model, np.stack([q, q + 0.1]), v, steps=12, integrator=integrator, controls=policy)
    np.testing.assert_array_equal(both.q[0], base.q)
    h = ts.adjoint(both, dloss_dq=np.stack([wq, wq]), dloss_dv=np.stack([wv, wv]))
    np.testing.assert_array_equal(h.q0[0], g.q0)
    np.testing.assert_array_equal(h.controls[0], g.controls)


@pytest.mark.parametrize("model", models(5))
def test_feedback_with_every_joint(model):
    """One step: the gradient by the initial state is that of step_derivatives, through u too."""
    rng = np.random.default_rng(0)
    policy = tip_policy(model, rng)
    for integrator in (ts.BDF1(1e-3), ts.Variational(1e-3)):
        for _ in range(100):  # until no chart changes
            q, v = model.random(rng), 0.3 * rng.standard_normal(model.nv)
            run = ts.simulate(model, q, v, steps=1, integrator=integrator, controls=policy)
            if not run.switches:
                break
        assert not run.switches
        wq, wv = rng.standard_normal((2, model.nv))
        g = ts.adjoint(run, dloss_dq=wq, dloss_dv=wv)
        d = ts.step_derivatives(model, integrator, run.q[0], v, run.controls[0])
        Kq, Kv = policy.derivatives(0.0, run.q[0], v)
        u = wq @ d.dq1_du + wv @ d.dv1_du
        close(g.controls[0], u, 1e-9)
        close(g.q0, wq @ d.dq1_dq + wv @ d.dv1_dq + u @ Kq, 1e-9)
        close(g.v0, wq @ d.dq1_dv + wv @ d.dv1_dv + u @ Kv, 1e-9)


@pytest.mark.parametrize("integrator", sweep(INTEGRATORS, 4), ids=NAMES)
def test_batches_of_policies_have_the_bits_of_their_parts(integrator):
    """Of a policy that has them itself: products of matrices have not."""
    model, q, v, rng = scene(JOINTS[:5])
    gains = rng.standard_normal(model.nv)
    policy = ts.Policy(
        lambda t, q, v: gains * np.sin(v),
        lambda t, q, v: (np.zeros((model.nv, model.nv)), gains[:, None] * np.eye(model.nv) * np.cos(v)[..., None, :]),
    )
    qs = model.plus(q, 0.1 * rng.standard_normal((2, 2, model.nv)))
    w = rng.standard_normal((5, model.nv))
    given = {"steps": 4, "integrator": integrator, "controls": policy, "threads": 2}
    run = ts.simulate(model, qs, v, **given)
    g = ts.adjoint(run, dloss_dq=np.broadcast_to(w, run.v.shape), threads=2)
    one = ts.simulate(model, qs[1, 0], v, **given)
    np.testing.assert_array_equal(run.q[1, 0], one.q)
    np.testing.assert_array_equal(run.controls[1, 0], one.controls)
    h = ts.adjoint(one, dloss_dq=w)
    for name in ("q0", "v0", "controls", "inertia"):
        np.testing.assert_array_equal(getattr(g, name)[1, 0], getattr(h, name))


def test_policies_with_several_models_and_callbacks():
    model, q, v, rng = scene(JOINTS[:5])
    several = [model, model.with_gravity((0, 0, -3.0))]
    policy, rows = tip_policy(model, rng), []
    given = {"steps": 4, "integrator": ts.BDF1(H), "controls": policy}
    run = ts.simulate(several, q, v, callback=lambda *row: rows.append(row), **given)
    assert [r[0] for r in rows] == [1, 2, 3, 4]
    for k, one in enumerate(several):
        # A row of a batch and one state are summed in another order by NumPy.
        np.testing.assert_allclose(run.q[k], ts.simulate(one, q, v, **given).q, atol=1e-12)


def test_what_is_a_policy():
    model, q, v, _ = scene([ts.Revolute()])

    class Gains:
        def __call__(self, t, q, v):
            return -q

    given = {"steps": 3, "integrator": ts.BDF1(H)}
    states = ts.simulate(model, q, v, controls=lambda t, q, v: -q, **given)
    same(states, ts.simulate(model, q, v, controls=Gains(), **given))
    same(states, ts.simulate(model, q, v, controls=ts.Policy(lambda *given: -given[1]), **given))
    assert states.policy == ts.Policy(states.policy.function)
    # What can be called with the time alone is a function of time.
    assert ts.simulate(model, q, v, controls=lambda t, q=1.0, v=2.0: [q + v], **given).policy is None
    with pytest.raises(TypeError, match="which may be one of time or a policy"):
        ts.simulate(model, q, v, controls=lambda *given: [1.0], **given)
    nothing = ts.simulate(model, q, v, steps=0, integrator=ts.BDF1(H), controls=Gains())
    assert nothing.controls.shape == (0, 1)


def test_files_and_copies(tmp_path):
    model, q, v, rng = scene(JOINTS[:5])
    B = rng.standard_normal((model.nv, 2))
    policy = tip_policy(model, rng, 2)
    run = ts.simulate(model, q, v, steps=4, integrator=ts.BDF2(H), controls=policy, actuation=B)
    assert copy.copy(run).policy is policy
    w = rng.standard_normal((5, model.nv))
    expected = ts.adjoint(run, dloss_dq=w)
    run.save(tmp_path / "run.npz")
    back = ts.Trajectory.load(tmp_path / "run.npz", model, policy=policy)
    same(back, run)
    np.testing.assert_array_equal(back.actuation, B)
    np.testing.assert_array_equal(back.controls, run.controls)
    np.testing.assert_array_equal(ts.adjoint(back, dloss_dq=w).controls, expected.controls)
    lost = ts.Trajectory.load(tmp_path / "run.npz", model)
    same(lost, run)
    with pytest.raises(TypeError, match=r"a policy without derivatives.*give it to Trajectory.load"):
        ts.adjoint(lost, dloss_dq=w)
    with pytest.raises(RuntimeError, match="the policy is not in the file of a trajectory"):
        lost.policy(0.0, q, v)
    with pytest.raises(ValueError, match="is a trajectory of another policy: its first controls differ"):
        ts.Trajectory.load(tmp_path / "run.npz", model, policy=lambda t, q, v: np.ones(2))
    still = ts.simulate(model, q, v, steps=4, integrator=ts.BDF2(H), controls=run.controls, actuation=B)
    still.save(tmp_path / "still.npz")
    with pytest.raises(ValueError, match="was simulated without a policy"):
        ts.Trajectory.load(tmp_path / "still.npz", model, policy=policy)
    again = pickle.loads(pickle.dumps(still))
    np.testing.assert_array_equal(again.actuation, B)


def test_a_step_that_fails_under_a_policy():
    model, q, v, _ = scene([ts.Revolute((0, 1, 0)), ts.Prismatic((1, 0, 1))])
    integrator = ts.SymplecticEuler(H)
    policy = ts.Policy(lambda t, q, v: np.where(t < 0.025, 0.0, 1e300) * np.ones_like(v))
    with pytest.raises(ts.ConvergenceError, match=r"stopped at t = 0.03|stopped at t = 0.04") as error:
        ts.simulate(model, q, v, steps=10, integrator=integrator, controls=policy)
    part = error.value.trajectory
    assert part.controls.shape == (part.steps, 2) and np.isfinite(part.controls).all()


# ---- bad input


@pytest.mark.parametrize(
    ("actuation", "error", "message"),
    [
        ("b1", TypeError, r"actuation is 'b1', expected a list of names of joints: did you mean \['b1'\]\?"),
        ([], ValueError, r"actuation is empty, expected names of joints or a matrix \(nv, nu\)"),
        (["b1", "b9"], KeyError, "no joint named 'b9'; joints are 'b0', 'b1'"),
        (["b0"], ValueError, "actuation names the joint 'b0', which is fixed"),
        (["b3", "b3"], ValueError, "actuation names the joint 'b3' twice"),
        (["b3", 2], KeyError, "no joint named 2"),
        (
            np.ones((2, 2)),
            ValueError,
            r"actuation has shape \(2, 2\), expected \(10, nu\), a column of nv = 10 torques",
        ),
        (np.ones(10), ValueError, r"actuation has shape \(10,\), expected \(10, nu\)"),
        (np.ones((10, 0)), ValueError, r"actuation has shape \(10, 0\), expected \(10, nu\)"),
        (np.full((10, 1), np.inf), ValueError, "actuation is not finite"),
        (3, ValueError, r"actuation has shape \(\), expected \(10, nu\)"),
    ],
)
def test_bad_actuation_is_told(actuation, error, message):
    model, q, v, _ = scene(JOINTS[:5])
    for call in (
        lambda: ts.simulate(model, q, v, steps=2, integrator=ts.BDF1(H), actuation=actuation),
        lambda: ts.step(model, ts.BDF1(H), q, v, actuation=actuation),
        lambda: ts.step_derivatives(model, ts.BDF1(H), q, v, actuation=actuation),
    ):
        with pytest.raises(error, match=message):
            call()


def test_bad_controls_are_told():
    model, q, v, _ = scene(JOINTS[:5])
    given = {"steps": 3, "integrator": ts.BDF1(H)}

    def refused(error, message, controls, **options):
        with pytest.raises(error, match=message):
            ts.simulate(model, np.stack([q, q]), v, controls=controls, **{**given, **options})

    refused(ValueError, r"controls have shape \(3, 10\), expected \(..., 3, 4\), a row of nu = 4 torques for each of 3",
            np.zeros((3, 10)), actuation=ACTUATED)  # fmt: skip
    refused(ValueError, r"controls\(t\) has shape \(10,\), expected \(..., 4\)", lambda t: np.zeros(10),
            actuation=ACTUATED)  # fmt: skip
    refused(ValueError, r"policy\(t, q, v\) has shape \(2, 3\) at t = 0, expected \(2, 10\): a row of 10 controls for",
            lambda t, q, v: np.zeros((2, 3)))  # fmt: skip
    refused(ValueError, r"policy\(t, q, v\) has shape \(3, 10\) at t = 0", lambda t, q, v: np.zeros((3, 10)))
    refused(ValueError, r"policy\(t, q, v\) has shape \(\) at t = 0", lambda t, q, v: 1.0)
    refused(TypeError, r"policy\(t, q, v\) has dtype", lambda t, q, v: "left")
    bad = np.zeros((2, 10))
    bad[1, 3] = np.nan
    refused(ValueError, r"policy\(t, q, v\) is not finite at t = 0.02 in trajectory 1 of the batch",
            lambda t, q, v: np.where(t > 0.015, bad, 0.0))  # fmt: skip

    def broken(t, q, v):
        raise ZeroDivisionError("mine")

    refused(ZeroDivisionError, "mine", broken)
    with pytest.raises(TypeError, match="function of a Policy is 3, expected a function of"):
        ts.Policy(3)
    with pytest.raises(TypeError, match="derivatives of a Policy is 3, expected a function of"):
        ts.Policy(broken, 3)
    with pytest.raises(ValueError, match=r"u has shape \(10,\), expected \(..., 4\): the actuation has 4 controls"):
        ts.step(model, ts.BDF1(H), q, v, np.zeros(10), actuation=ACTUATED)


def test_bad_derivatives_of_policies_are_told():
    model, q, v, _ = scene(JOINTS[:5])
    K = np.zeros((10, 10))

    def gradient(derivatives):
        policy = ts.Policy(lambda t, q, v: 0 * v, derivatives)
        run = ts.simulate(model, q, v, steps=2, integrator=ts.BDF1(H), controls=policy)
        return ts.adjoint(run, dloss_dq=v)

    with pytest.raises(TypeError, match=r"the controls come from a policy without derivatives.*Policy\(function"):
        gradient(None)
    with pytest.raises(ValueError, match=r"derivatives of the policy gave ndarray at t = 0, expected a pair \(du_dq"):
        gradient(lambda t, q, v: K)
    with pytest.raises(ValueError, match=r"du_dv of the policy has shape \(3, 3\) at t = 0, expected \(10, 10\)"):
        gradient(lambda t, q, v: (K, K[:3, :3]))
    with pytest.raises(ValueError, match="du_dq of the policy is not finite at t = 0"):
        gradient(lambda t, q, v: (K + np.nan, K))
    run = ts.simulate(model, q, v, steps=2, integrator=ts.BDF1(H), controls=np.zeros(4), actuation=ACTUATED)
    with pytest.raises(ValueError, match=r"dloss_du has shape \(2, 10\), expected \(2, 4\), as the controls"):
        ts.adjoint(run, dloss_du=np.zeros((2, 10)))
    with pytest.raises(
        ValueError, match=r"weight has shape \(10,\), expected a number or \(4,\): there are 4 controls"
    ):
        ts.adjoint(run, ts.ControlEffort(np.ones(10)))


def test_random_trees_under_feedback():
    """Damping by a policy takes energy away where there is nothing else."""
    for seed in range(3):
        model = random_tree(seed, [ts.Revolute(), ts.Spherical(), ts.Free()]).with_gravity((0, 0, 0))
        v = np.random.default_rng(seed).standard_normal(model.nv)
        run = ts.simulate(model, model.neutral, v, steps=200, integrator=ts.SDIRK2(5e-3), controls=lambda t, q, v: -v)
        assert run.energies.total[-1] < 0.9 * run.energies.total[0]


def gimbal(links):
    """A deep chain with massless rings at its tip, whose mass matrix is singular where these are aligned."""
    mass = ts.Inertia.point(0.5, (0.1, 0.05, 0.02)) + ts.Inertia.point(0.3, (-0.1, 0.02, -0.2))
    mass = mass + ts.Inertia.point(0.2, (0, -0.12, 0.1))
    bodies = [(f"b{k}", ((1, 0, 0), (0, 1, 0))[k % 2], -0.1 if k else 0.0, mass) for k in range(links)]
    bodies += [("r0", (1, 0, 0), 0.0, ts.Inertia.zero()), ("r1", (0, 1, 0), 0.0, ts.Inertia.zero())]
    bodies += [("r2", (1, 0, 0), 0.0, mass)]
    builder, parent = ts.ModelBuilder(), "world"
    for name, axis, z, inertia in bodies:
        builder.add_body(name, parent, ts.Revolute(axis), ts.SE3.translation(0, 0, z), inertia)
        parent = name
    return builder.build()


@pytest.mark.parametrize("kind", [ts.BDF1, ts.BDF2, ts.SDIRK2])
def test_steps_from_singular_rows_are_repeated_to_the_bit(kind):
    """Whether a row is singular decides how its step is solved: by itself, in a window, or on the way back alike."""
    model = gimbal(28)
    n, rng = model.nv, np.random.default_rng(0)
    q, v = 0.1 * rng.standard_normal(n), np.zeros(n)
    q[-2], v[-2] = 0.0, 1.0
    assert np.linalg.cond(ts.mass_matrix(model, q)) > 1e14
    policy = ts.Policy(lambda t, q, v: 0.1 - 0.1 * v, lambda t, q, v: (np.zeros((n, n)), -0.1 * np.eye(n)))
    options = {"integrator": kind(H), "forces": [ts.JointSpring(None, 5.0, model.neutral, 0.3)], "controls": policy}
    whole, kept = (ts.simulate(model, q, v, steps=8, **options, every=every) for every in (1, 4))
    np.testing.assert_array_equal(whole.q[::4], kept.q)
    first = ts.step(model, kind(H), q, v, policy(0.0, q, v), forces=options["forces"])
    np.testing.assert_array_equal(first.q1, whole.q[1])
    w = rng.standard_normal(n)
    gradients = [ts.adjoint(motion, dloss_dq=w).q0 for motion in (whole, kept)]
    np.testing.assert_array_equal(*gradients)
