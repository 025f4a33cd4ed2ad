"""Trajectories that fail, with on_failure="keep": what is kept of them, and what their neighbours get."""

import pickle

import numpy as np
import pytest

import torsor as ts
from torsor import _core
from torsor.simulation import Failure

MODEL = ts.models.acrobot()
HASTY = ts.BDF1(1e-2, iterations=5, substeps=1)
Q, V = np.array([[0.3, 0.2], [0.1, -0.4], [1.0, 0.5]]), np.zeros((3, 2))
ONE_NAN = np.where(np.arange(12).reshape(3, 4) == 6, np.nan, 1.0)  # at step 2 of trajectory 1
FIELDS = ("q", "v", "a", "substeps")


def torques(step=2, track=1, steps=4):
    """Controls of three trajectories, of which one fails."""
    u = np.full((3, steps, 2), 0.1)
    u[track, step] = 1e12
    return u


def kept(**options):
    given = {"steps": 4, "integrator": HASTY, "controls": torques(), "on_failure": "keep", **options}
    return ts.simulate(MODEL, Q, V, **given)


def test_a_failed_trajectory_has_its_rows_and_a_reason():
    run = kept()
    (failure,) = run.failed
    assert (failure.index, failure.step, failure.t) == ((1,), 2, 0.02)
    assert failure.reason.startswith("Newton's method of BDF1 stopped at t = 0.02 within 5 iterations")
    assert run.finished.tolist() == [True, False, True]
    for name in ("q", "v", "a"):
        rows = getattr(run, name)
        assert np.isfinite(rows[1, :3]).all() and np.isnan(rows[1, 3:]).all() and np.isfinite(rows[[0, 2]]).all()
    assert run.q[failure.index].shape == (5, 2)
    assert (run.substeps[1, 2:] == 1).all()
    np.testing.assert_array_equal(run.controls, torques())
    # Its rows before are those of the motion that ends there.
    before = ts.simulate(MODEL, Q[1], V[1], steps=2, integrator=HASTY, controls=torques()[1, :2])
    np.testing.assert_array_equal(run.q[1, :3], before.q)
    with pytest.raises(AttributeError):
        failure.step = 3


def test_raise_is_the_default_and_knows_the_same():
    with pytest.raises(ts.ConvergenceError, match=r"at t = 0\.02 in trajectory 1 of the batch") as caught:
        kept(on_failure="raise")
    run, other = caught.value.trajectory, kept()
    for name in FIELDS:
        np.testing.assert_array_equal(getattr(run, name), getattr(other, name))
    assert run.failed == other.failed and kept(controls=None).failed == ()
    with pytest.raises(ValueError, match="on_failure is 'ignore', expected 'raise' or 'keep'"):
        kept(on_failure="ignore")


def test_the_error_is_the_same_with_all_options():
    u = torques()
    u[0, 3] = 1e12  # a later failure of an earlier trajectory
    expected = kept(controls=u)
    assert [(f.index, f.step) for f in expected.failed] == [((0,), 3), ((1,), 2)]
    for options in ({}, {"every": 2}, {"every": 4}, {"progress": True}, {"threads": 2}):
        if "progress" in options:
            pytest.importorskip("tqdm")
        with pytest.raises(ts.ConvergenceError, match=r"at t = 0\.02 in trajectory 1 of the batch") as caught:
            kept(controls=u, on_failure="raise", **options)
        error = caught.value
        assert (error.index, error.step, error.t) == (1, 2, 0.02)
        assert error.trajectory.failed == expected.failed and error.trajectory.finished.tolist() == [False, False, True]
        np.testing.assert_array_equal(error.trajectory.q, expected.q[:, :: options.get("every", 1)])
    # A callback or a policy ends the call after the step, which the others have taken.
    for every in (1, 3):
        with pytest.raises(ts.ConvergenceError, match=r"at t = 0\.02 in trajectory 1 of the batch") as caught:
            ts.simulate(
                MODEL, Q, V, steps=6, integrator=HASTY, controls=torques(steps=6), every=every, callback=lambda *_: None
            )
        run = caught.value.trajectory
        assert [f.index for f in run.failed] == [(1,)] and not run.finished.any()
        known = np.isfinite(run.q).all(axis=-1).sum(axis=-1).tolist()
        assert known == ([4, 3, 4] if every == 1 else [2, 1, 2])


def test_a_batch_of_one_is_a_batch():
    given = {"steps": 4, "integrator": HASTY, "controls": torques()[1]}
    with pytest.raises(ts.ConvergenceError, match=r"at t = 0\.02 in trajectory 0 of the batch") as caught:
        ts.simulate(MODEL, Q[1:2], V[1:2], **given)
    run = caught.value.trajectory
    assert caught.value.index == 0 and run.q.shape == (1, 5, 2) and run.finished.tolist() == [False]
    assert [(f.index, f.step) for f in run.failed] == [((0,), 2)]
    assert np.isnan(run.q[0, 3:]).all() and np.isfinite(run.q[0, :3]).all()
    with pytest.raises(ts.ConvergenceError) as caught:
        ts.simulate(MODEL, Q[1], V[1], **given)
    single = caught.value.trajectory
    assert caught.value.index is None and single.q.shape == (3, 2) and not single.finished
    assert [(f.index, f.step) for f in single.failed] == [((), 2)]
    np.testing.assert_array_equal(single.q, run.q[0, :3])
    # It has all its rows, and so a gradient: that of a simulation which ends there.
    shorter = ts.simulate(MODEL, Q[1], V[1], steps=2, integrator=HASTY, controls=torques()[1][:2])
    own, expected = (ts.adjoint(x, ts.VelocityTarget()) for x in (single, shorter))
    np.testing.assert_array_equal(own.q0, expected.q0)


def test_a_single_trajectory_keeps_all_rows():
    run = ts.simulate(MODEL, Q[1], V[1], steps=4, integrator=HASTY, controls=torques()[1], on_failure="keep")
    (failure,) = run.failed
    assert failure.index == () and failure.step == 2 and not run.finished
    assert run.q.shape == (5, 2) and np.isnan(run.q[3:]).all() and np.isfinite(run.q[:3]).all()
    assert np.isnan(ts.adjoint(run, ts.VelocityTarget()).q0).all()
    assert np.isnan(ts.loss(run, ts.ControlEffort()).value)


def test_indices_have_the_shape_of_the_batch():
    u = np.full((2, 1, 4, 2), 0.1)
    u[1, 0, 0] = 1e12
    run = ts.simulate(MODEL, Q, V, steps=4, integrator=HASTY, controls=u, on_failure="keep")
    assert [f.index for f in run.failed] == [(1, 0), (1, 1), (1, 2)]
    assert run.finished.tolist() == [[True] * 3, [False] * 3]
    assert np.isnan(run.q[1, :, 1:]).all() and np.isfinite(run.q[:, :, 0]).all()


@pytest.mark.parametrize("step", range(8))
@pytest.mark.parametrize("kind", [ts.BDF1, ts.BDF2])
def test_rows_that_are_kept_are_those_of_all_rows(step, kind):
    integrator = kind(1e-2, iterations=5, substeps=1)
    u = torques(step, steps=8)
    all_rows = kept(steps=8, controls=u, integrator=integrator)
    for every in (2, 4, 8):
        some = kept(steps=8, controls=u, integrator=integrator, every=every)
        assert some.failed == all_rows.failed and len(some.failed) == 1
        for name in ("q", "v"):
            np.testing.assert_array_equal(getattr(some, name), getattr(all_rows, name)[:, ::every])
        np.testing.assert_array_equal(some.a[[0, 2]], all_rows.a[[0, 2], ::every])
        np.testing.assert_array_equal(some.substeps, all_rows.substeps)
        if some.previous is not None:
            assert np.isnan(some.previous[0][1, step // every + 1 :]).all()
        np.testing.assert_array_equal(
            ts.adjoint(some, ts.VelocityTarget()).q0, ts.adjoint(all_rows, ts.VelocityTarget()).q0
        )


def test_explicit_steps_that_fail_have_no_acceleration():
    options = {"steps": 4, "integrator": ts.SymplecticEuler(1e-2), "controls": np.where(torques() > 1, 1e308, 0.1)}
    plain, heard = kept(**options), kept(**options, callback=lambda *_: None)
    (failure,) = plain.failed
    assert np.isnan(plain.a[1, failure.step :]).all() and np.isfinite(plain.a[1, : failure.step]).all()
    np.testing.assert_array_equal(plain.a, heard.a)
    np.testing.assert_array_equal(plain.a[:, ::2], kept(**options, every=2).a)


@pytest.mark.parametrize("every", [1, 2, 4])
def test_a_policy_is_given_the_last_good_states(every):
    u, calls = torques(), []

    def policy(t, q, v):
        calls.append((q, v))
        return u[:, round(t / 1e-2)]

    run, given = kept(controls=policy, every=every), kept()
    for name in ("q", "v", "substeps"):
        rows = getattr(given, name)
        np.testing.assert_array_equal(getattr(run, name), rows if name == "substeps" else rows[:, ::every])
    assert len(calls) == 4 and run.failed == given.failed
    for k, (q, v) in enumerate(calls):
        np.testing.assert_array_equal(q, np.stack([given.q[0, k], given.q[1, min(k, 2)], given.q[2, k]]))
        np.testing.assert_array_equal(v, np.stack([given.v[0, k], given.v[1, min(k, 2)], given.v[2, k]]))
    np.testing.assert_array_equal(run.controls[:, :3], u[:, :3])  # of the failed step too, which was tried
    assert np.isnan(run.controls[1, 3]).all()
    np.testing.assert_array_equal(run.controls[[0, 2], 3], u[[0, 2], 3])


@pytest.mark.parametrize("every", [1, 2])
@pytest.mark.parametrize("integrator", [HASTY, ts.SymplecticEuler(1e-2), ts.Variational(1e-2), ts.Adaptive(1e-2)])
def test_a_policy_that_is_not_finite_ends_one_trajectory(integrator, every):
    if isinstance(integrator, ts.Adaptive) and every > 1:
        every = 1

    def policy(t, q, v):
        u = -0.1 * v
        if t > 0.015:
            u[1] = [0.0, np.nan]
        return u

    run = kept(controls=policy, integrator=integrator, every=every)
    good = kept(controls=lambda t, q, v: -0.1 * v, integrator=integrator, every=every)
    (failure,) = run.failed
    assert (failure.index, failure.step) == ((1,), 2)
    assert failure.reason == "policy(t, q, v) is not finite at t = 0.02, at step 2: got [0.0, nan]"
    np.testing.assert_array_equal(run.q[[0, 2]], good.q[[0, 2]])
    np.testing.assert_array_equal(run.q[1, : 2 // every + 1], good.q[1, : 2 // every + 1])
    assert np.isnan(run.q[1, 2 // every + 1 :]).all() and np.isnan(run.controls[1, 2:]).all()
    with pytest.raises(ValueError, match=r"at t = 0.02 in trajectory 1 of the batch, at step 2: got \[0.0, nan\]"):
        kept(controls=policy, integrator=integrator, every=every, on_failure="raise")


def test_a_call_ends_when_all_have_failed():
    calls = []

    def policy(t, q, v):
        calls.append(t)
        return np.full(2, np.nan if t > 0.005 else 0.0)

    run = kept(controls=policy)
    assert len(run.failed) == 3 and len(calls) == 2 and np.isnan(run.q[:, 2:]).all()
    assert not run.finished.any()
    assert np.isnan(ts.adjoint(kept(controls=np.full(2, 1e12)), ts.VelocityTarget()).controls).all()


def test_gradients_of_the_others_are_what_they_are_without_it():
    cost = ts.VelocityTarget() + ts.EnergyCost(("kinetic", "potential", "forces"), at="time") + 0.1 * ts.ControlEffort()
    cost += ts.CustomCost(lambda q, v, u, t: (q * v).sum(-1), inputs="qv", at="time")
    forces = [ts.JointSpring("elbow", stiffness=5.0), ts.JointDamping(None, 0.1)]
    signals = [{"rest": np.linspace(0, 1, 12).reshape(3, 4, 1)}, None]
    run = kept(forces=forces, signals=signals)
    good = ts.simulate(
        MODEL, Q[[0, 2]], V[[0, 2]], steps=4, integrator=HASTY, controls=torques()[[0, 2]], forces=forces,
        signals=[{"rest": signals[0]["rest"][[0, 2]]}, None],
    )  # fmt: skip
    loss, expected = ts.loss(run, cost), ts.loss(good, cost)
    for name in ("value", "dq", "dv", "du", "dinertia", "dplacement", "dgravity"):
        assert np.isnan(getattr(loss, name)[1]).all()
        np.testing.assert_array_equal(getattr(loss, name)[[0, 2]], getattr(expected, name))
    a, b = ts.adjoint(run, loss), ts.adjoint(good, expected)
    for name in ("q0", "v0", "controls", "inertia", "placement", "gravity"):
        assert np.isnan(getattr(a, name)[1]).all()
        np.testing.assert_array_equal(getattr(a, name)[[0, 2]], getattr(b, name))
    for mine, other in ((a.forces, b.forces), (a.signals, b.signals)):
        for k in range(2):
            for name in other[k]:
                assert np.isnan(mine[k][name][1]).all()
                np.testing.assert_array_equal(mine[k][name][[0, 2]], other[k][name])
    # Derivatives that are given may be anything where a trajectory failed, and must be finite elsewhere.
    dv = np.ones((3, 2))
    dv[1] = np.nan
    np.testing.assert_array_equal(
        ts.adjoint(run, dloss_dv=dv).q0[[0, 2]], ts.adjoint(good, dloss_dv=np.ones((2, 2))).q0
    )
    dv[2] = np.nan
    with pytest.raises(ValueError, match="dloss_dv is not finite in trajectory 2 of the batch"):
        ts.adjoint(run, dloss_dv=dv)


@pytest.mark.parametrize("every", [1, 2])
def test_gradients_through_a_policy_beside_a_failure(every):
    K, pushes = np.array([[2.0, 1.0], [0.5, 3.0]]), torques() - 0.1
    seen = []

    def derivatives(t, q, v):
        seen.append(np.isfinite(q).all() and np.isfinite(v).all())
        return np.zeros((2, 2)), -K

    policy = ts.Policy(lambda t, q, v: pushes[:, round(t / 1e-2)] - v @ K.T, derivatives)
    calm = ts.Policy(lambda t, q, v: -v @ K.T, derivatives)
    a = ts.adjoint(kept(controls=policy, every=every), ts.VelocityTarget())
    b = ts.adjoint(kept(controls=calm, every=every), ts.VelocityTarget())
    for x, y in ((a.q0, b.q0), (a.controls, b.controls), (a.inertia, b.inertia)):
        np.testing.assert_array_equal(x[[0, 2]], y[[0, 2]])
        assert np.isnan(x[1]).all()
    assert all(seen)


def test_trajectories_that_were_not_finished_have_no_gradient():
    run = kept()
    fields = {name: getattr(run, name) for name in run.__dataclass_fields__ if name != "compiled"}
    forgotten = ts.Trajectory(**{**fields, "failed": ()})
    with pytest.raises(ValueError, match="trajectory 1 of the batch is not finite: a motion that was not finished has"):
        ts.adjoint(forgotten, ts.VelocityTarget(at=0))


def test_energies_momenta_and_plots_have_gaps():
    run = kept(forces=[ts.JointSpring("elbow", stiffness=5.0)])
    for x in (*run.energies, run.p):
        assert np.isnan(x[1, 3:]).all() and np.isfinite(x[1, :3]).all() and np.isfinite(x[[0, 2]]).all()
    pytest.importorskip("matplotlib")
    assert len(run.plot(index=1).axes) == 3
    quadruped = ts.models.quadruped()
    u = np.zeros((2, 4, quadruped.nv))
    u[1, 1] = 1e308
    fallen = ts.simulate(
        quadruped, quadruped.neutral, steps=4, integrator=ts.SymplecticEuler(1e-3), controls=u, on_failure="keep",
        forces=[ts.JointDamping(None, 0.1)],
    )  # fmt: skip
    assert fallen.finished.tolist() == [True, False]
    assert np.isfinite(fallen.energies.total[0]).all() and np.isnan(fallen.energies.total[1, -1])
    assert np.isfinite(ts.adjoint(fallen, ts.VelocityTarget()).q0[0]).all()


def test_files_and_copies_have_the_failures(tmp_path):
    u = torques()

    def policy(t, q, v):
        row = u[:, round(t / 1e-2)].copy()
        row[2] = np.nan
        return row

    for controls in (u, policy):
        run = kept(controls=controls, every=2)
        run.save(tmp_path / "run.npz")
        given = {"policy": policy} if controls is policy else {}
        again = ts.Trajectory.load(tmp_path / "run.npz", MODEL, **given)
        assert again.failed == run.failed and all(type(f) is Failure for f in again.failed)
        np.testing.assert_array_equal(again.q, run.q)
        np.testing.assert_array_equal(again.finished, run.finished)
    single = ts.simulate(MODEL, Q[1], V[1], steps=4, integrator=HASTY, controls=u[1], on_failure="keep")
    assert pickle.loads(pickle.dumps(single)).failed == single.failed
    single.save(tmp_path / "one.npz")
    assert ts.Trajectory.load(tmp_path / "one.npz", MODEL).failed == single.failed
    # Files from before there were failures lack them.
    kept(controls=None).save(tmp_path / "old.npz")
    with np.load(tmp_path / "old.npz") as data:
        assert not [name for name in data.files if name.startswith("failed")]
    assert ts.Trajectory.load(tmp_path / "old.npz", MODEL).failed == ()


def test_adaptive_goes_on_with_the_others():
    start = np.array([[0.0, 0.0], [1.2, 0.0], [0.1, 0.0]])
    options = {"steps": 3, "integrator": ts.Adaptive(1e-2), "controls": np.zeros(2)}
    u = np.zeros((3, 3, 2))
    u[1, 1] = 1e308
    run = ts.simulate(MODEL, start, steps=3, integrator=ts.Adaptive(1e-2), controls=u, on_failure="keep")
    good = ts.simulate(MODEL, start, **options)
    (failure,) = run.failed
    assert failure.index == (1,) and failure.step == 1 and "SciPy's DOP853 stopped at t = 0.01" in failure.reason
    np.testing.assert_array_equal(run.q[[0, 2]], good.q[[0, 2]])
    np.testing.assert_array_equal(run.a[[0, 2]], good.a[[0, 2]])
    assert np.isnan(run.q[1, 2:]).all() and np.isfinite(run.q[1, :2]).all()


def test_models_of_a_batch_fail_on_their_own():
    heavy = [MODEL.with_gravity((0, 0, -g)) for g in (9.8, 1e200, 1.6)]
    run = ts.simulate(heavy, Q[0], V[0], steps=4, integrator=ts.SymplecticEuler(1e-2), on_failure="keep")
    assert [f.index for f in run.failed] == [(1,)]
    for k in (0, 2):
        alone = ts.simulate(heavy[k], Q[0], V[0], steps=4, integrator=ts.SymplecticEuler(1e-2))
        np.testing.assert_array_equal(run.q[k], alone.q)


# ---- exceptions of functions of the user


def test_a_policy_that_raises_says_at_which_step():
    class Own(Exception):
        pass

    def policy(t, q, v):
        if t > 0.015:
            raise Own("broken")
        return -v

    for options in ({}, {"every": 2}, {"integrator": ts.Adaptive(1e-2)}):
        for on_failure in ("raise", "keep"):
            with pytest.raises(Own, match=r"^broken") as caught:
                kept(controls=policy, on_failure=on_failure, **options)
            assert caught.value.args == ("broken",)
            assert caught.value.__notes__ == ["in the policy of simulate, at step 2, t = 0.02"]
            assert "policy" in [entry.name for entry in caught.traceback]

    def slope(t, q, v):
        raise Own("steep")

    run = kept(controls=ts.Policy(lambda t, q, v: -v, slope))
    with pytest.raises(Own, match="steep") as caught:
        ts.adjoint(run, ts.VelocityTarget())
    assert caught.value.__notes__ == ["in the derivatives of the policy, at step 0, t = 0"]

    def callback(k, t, q, v):
        if k == 3:
            raise Own("tired")

    with pytest.raises(Own, match="tired") as caught:
        kept(controls=None, callback=callback)
    assert caught.value.__notes__ == ["in the callback of simulate, after step 2, t = 0.03"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"controls": lambda t, q, v: np.zeros((3, 3))}, r"has shape \(3, 3\) at t = 0, expected \(3, 2\).*at step 0"),
        (
            {"controls": lambda t, q, v: np.zeros((3, 2) if t < 0.025 else 5)},
            r"has shape \(5,\) at t = 0.03, expected \(3, 2\).*at step 3",
        ),
        (
            {"controls": torques() * np.nan},
            r"controls are not finite: those of step 0 of trajectory \[0\] of the batch",
        ),
        (
            {"forces": [ts.JointDamping(None, 0.1)], "parameters": [{"damping": [0.1, np.nan, 0.2]}]},
            r"force 0 \(JointDamping\) in trajectory 1 of the batch: damping is not finite",
        ),
        (
            {"forces": [ts.JointDamping(None, 0.1)], "signals": [{"damping": ONE_NAN}]},
            r"force 0 \(JointDamping\) at step 2 in trajectory 1 of the batch: damping is not finite",
        ),
    ],
)
def test_bad_input_is_refused_with_its_place(options, message):
    for on_failure in ("raise", "keep"):
        with pytest.raises(ValueError, match=message):
            kept(**options, on_failure=on_failure)


def test_states_that_are_not_finite_are_refused_with_their_place():
    bad = V.copy()
    bad[1, 0], bad[2, 1] = np.inf, np.nan
    message = r"v0 is not finite: v0\[1, 0\] is inf \(2 of 3 trajectories are not\)"
    with pytest.raises(ValueError, match=message):
        ts.simulate(MODEL, Q, bad, steps=1, integrator=HASTY, on_failure="keep")
    free = ts.models.quadruped()
    q = np.tile(free.neutral, (3, 1))
    q[2, 3:7] = 0.0
    with pytest.raises(ValueError, match=r"q0 has a quaternion of length 0 at joint .* in state 2 of the batch"):
        ts.simulate(free, q, steps=1, integrator=HASTY, on_failure="keep")
    other = ts.ModelBuilder()
    for body in MODEL.bodies:
        joint = ts.Prismatic((0, 0, 1)) if body.name == "lower" else body.joint
        other.add_body(body.name, body.parent, joint, body.placement, body.inertia, armature=body.armature)
    with pytest.raises(ValueError, match=r"the joint of 'lower' is .* in model\[1\] and .* in model\[0\]"):
        ts.simulate([MODEL, other.build()], Q[0], steps=1, integrator=HASTY, on_failure="keep")


@pytest.mark.parametrize("value", [None, "no", 1j])
def test_values_of_a_policy_that_are_no_numbers_name_the_step(value):
    def policy(t, q, v):
        return -v if t < 0.015 else value

    with pytest.raises(TypeError, match=r"^policy\(t, q, v\)") as caught:
        ts.simulate(MODEL, Q, V, steps=4, integrator=HASTY, controls=policy)
    assert caught.value.__notes__ == ["in the policy of simulate, at step 2, t = 0.02"]

    def slopes(t, q, v):
        return (value, np.zeros((2, 2))) if t > 0.015 else (np.zeros((2, 2)), -np.eye(2))

    run = ts.simulate(MODEL, Q, V, steps=3, integrator=HASTY, controls=ts.Policy(lambda t, q, v: -v, slopes))
    with pytest.raises(TypeError, match=r"^du_dq of the policy") as caught:
        ts.adjoint(run, ts.VelocityTarget())
    assert caught.value.__notes__ == ["in the derivatives of the policy, at step 2, t = 0.02"]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.zeros(2), r"gave ndarray at t = 0\.02, expected a pair \(du_dq, du_dv\); at step 2"),
        ((np.zeros((2, 2)), np.zeros(3)), r"du_dv of the policy has shape \(3,\) at t = 0\.02, expected .*; at step 2"),
    ],
)
def test_derivatives_of_a_policy_of_a_wrong_form_name_the_step(value, message):
    def slopes(t, q, v):
        return value if t > 0.015 else (np.zeros((2, 2)), -np.eye(2))

    run = ts.simulate(MODEL, Q, V, steps=3, integrator=HASTY, controls=ts.Policy(lambda t, q, v: -v, slopes))
    with pytest.raises(ValueError, match=message):
        ts.adjoint(run, ts.VelocityTarget())


def test_functions_that_may_be_policies_or_of_time():
    given = {"steps": 2, "integrator": HASTY}
    for function in (lambda *args: np.zeros(2), lambda t, *args, **options: np.zeros(2)):
        with pytest.raises(
            TypeError, match=r"may be one of time or a policy: give Policy\(function\) for a policy, or"
        ):
            ts.simulate(MODEL, Q, V, controls=function, **given)
        assert ts.simulate(MODEL, Q, V, controls=ts.Policy(function), **given).policy is not None
    assert ts.simulate(MODEL, Q, V, controls=lambda t, a=1.0, b=2.0: np.array([a, b]), **given).policy is None
    assert ts.simulate(MODEL, Q, V, controls=lambda t, q, v, *more: -v, **given).policy is not None


def test_plots_take_the_index_of_a_failure():
    pytest.importorskip("matplotlib")
    u = np.stack([torques(), torques(track=2)])
    run = kept(controls=u)
    (_, failure) = run.failed
    assert failure.index == (1, 2)
    for line, flat in zip(run.plot(index=failure.index).axes[0].lines, run.plot(index=5).axes[0].lines, strict=True):
        np.testing.assert_array_equal(line.get_ydata(), flat.get_ydata())
    for index in ((1,), (), (0, 0, 0)):
        with pytest.raises(ValueError, match=r"expected one trajectory of a batch of shape \(2, 3\)"):
            run.plot(index=index)
    single = ts.simulate(MODEL, Q[1], V[1], steps=4, integrator=HASTY, controls=torques()[1], on_failure="keep")
    assert len(single.plot(index=single.failed[0].index).axes) == 3


@pytest.mark.parametrize("every", [1, 2])
def test_a_policy_gets_the_last_states_of_all_that_have_failed(every):
    """Failures at different steps, not in the order of the batch."""
    u = torques(step=3, track=0, steps=6)
    u[2, 1] = u[1, 4] = 1e12
    seen = []

    def policy(t, q, v):
        seen.append((q.copy(), v.copy()))
        return u[:, round(t / 1e-2)]

    run = ts.simulate(MODEL, Q, V, steps=6, integrator=HASTY, controls=policy, on_failure="keep", every=every)
    rows = ts.simulate(MODEL, Q, V, steps=6, integrator=HASTY, controls=u, on_failure="keep")
    assert [(f.index, f.step) for f in run.failed] == [((0,), 3), ((1,), 4), ((2,), 1)]
    assert len(seen) == 5
    for k, (q, v) in enumerate(seen):
        for i, step in enumerate((3, 4, 1)):
            np.testing.assert_array_equal(q[i], rows.q[i, min(k, step)])
            np.testing.assert_array_equal(v[i], rows.v[i, min(k, step)])


def poison(*shapes):
    """Leaves memory of these shapes behind that is not NaN, which the next arrays of the same sizes use."""
    for x in [_core.empty(shape) for shape in shapes]:
        x.fill(12345.0)


@pytest.mark.parametrize("integrator", [ts.SymplecticEuler(0.01), ts.BDF1(0.01), ts.Variational(0.01)], ids=repr)
@pytest.mark.parametrize("case", ["no steps", "all fail at once", "some fail at once"])
def test_rows_that_nobody_computes_are_nan(case, integrator):
    model, size, steps = ts.models.arm7(), 2000, 0 if case == "no steps" else 3

    def policy(t, q, v):
        u = np.zeros((size, model.nv))
        u[: size if case.startswith("all") else 2] = np.nan
        return u

    poison(*[(size, steps + 1, 7)] * 4)
    trajectory = ts.simulate(
        model, np.zeros((size, 7)), steps=steps, integrator=integrator, controls=policy if steps else None,
        on_failure="keep",
    )  # fmt: skip
    gone = slice(None) if case != "some fail at once" else slice(2)
    assert np.isnan(trajectory.q[gone, 1:]).all()
    assert np.isnan(trajectory.v[gone, 1:]).all()
    assert np.isnan(trajectory.a[gone]).all()
    assert not (trajectory.a == 12345.0).any()
