"""Models: the builder and its refusals, names, configurations, copies with changes, pickles and workers."""

import copy
import multiprocessing
import pickle
from dataclasses import replace

import numpy as np
import pytest

import torsor as ts
from torsor import spatial, testing

ROD = ts.Inertia.cylinder(0.05, 0.4, mass=1.3, com=(0, 0, -0.2))
BALL = ts.Inertia.sphere(0.1, mass=0.7, com=(0.1, 0, 0.05))
LIFT = ts.SE3.translation(0, 0, 0.4)


def close(a, b, tol=1e-12):
    """A few roundings of numbers around 1 to 100."""
    np.testing.assert_allclose(a, b, rtol=tol, atol=tol)


def arm():
    """A floating base with two branches; one joint has a name of its own, one body is fixed."""
    builder = ts.ModelBuilder("arm")
    builder.add_body("base", "world", ts.Free(), inertia=BALL)
    builder.add_body("upper", "base", ts.Revolute((0, 1, 0)), LIFT, ROD, joint_name="shoulder", position_limits=(-1, 2))
    builder.add_body("lower", "upper", ts.SphericalEuler("XYZ"), LIFT, ROD, velocity_limits=3, effort_limits=(1, 2, 3))
    builder.add_body("camera", "base", placement=LIFT, inertia=BALL)
    builder.add_body("tool", "lower", ts.Prismatic((1, 0, 0)), LIFT, BALL, position_limits=([0.1], [0.3]))
    return builder.build()


MODEL = arm()
TREE = testing.random_tree(3, testing.example_joints())


def state(model, seed=0, batch=()):
    rng = np.random.default_rng(seed)
    return (model.random(rng, batch), *rng.standard_normal((2, *batch, model.nv)))


# ---- names, sizes, limits


def test_sizes_slices_and_look_ups():
    assert (MODEL.nq, MODEL.nv, MODEL.nbodies) == (12, 11, 5)
    assert [j.name for j in MODEL.joints] == ["base", "shoulder", "lower", "camera", "tool"]
    assert (
        [j.body for j in MODEL.joints] == [b.name for b in MODEL.bodies] == ["base", "upper", "lower", "camera", "tool"]
    )
    assert [(j.q_slice, j.v_slice) for j in MODEL.joints] == [
        (slice(0, 7), slice(0, 6)),
        (slice(7, 8), slice(6, 7)),
        (slice(8, 11), slice(7, 10)),
        (slice(11, 11), slice(10, 10)),
        (slice(11, 12), slice(10, 11)),
    ]
    assert [(j.nq, j.nv) for j in MODEL.joints] == [(7, 6), (1, 1), (3, 3), (0, 0), (1, 1)]
    assert MODEL.joint("shoulder") is MODEL.joint("upper") is MODEL.joints[1]
    assert MODEL.body("shoulder") is MODEL.body("upper") is MODEL.bodies[1]
    assert MODEL.body("camera").joint == ts.Fixed()
    close(MODEL.mass, 3 * 0.7 + 2 * 1.3)


def test_a_joint_may_have_the_name_of_another_body():
    builder = ts.ModelBuilder().add_body("a", "world", ts.Revolute(), joint_name="b")
    model = builder.add_body("b", "a", ts.Prismatic(), joint_name="c").build()
    assert [model.joint(name).body for name in "abc"] == [
        "a",
        "a",
        "b",
    ]  # a joint's name first, then a body's
    assert [model.body(name).name for name in "abc"] == ["a", "b", "b"]
    a, _ = ts.hybrid_dynamics(model.with_inertia("b", ROD), [0, 0], [0, 0], a=[7, 7], prescribed=["b"])
    assert a[0] == 7
    assert a[1] != 7


def test_limits():
    inf = np.inf
    assert MODEL.position_limits[0].tolist() == [-inf] * 7 + [-1] + [-inf] * 3 + [0.1]
    assert MODEL.position_limits[1].tolist() == [inf] * 7 + [2] + [inf] * 3 + [0.3]
    assert MODEL.velocity_limits.tolist() == [inf] * 7 + [3, 3, 3, inf]
    assert MODEL.effort_limits.tolist() == [inf] * 7 + [1, 2, 3, inf]
    spline = next(j for j in testing.example_joints() if isinstance(j, ts.SplineCurve))
    model = ts.ModelBuilder().add_body("car", "world", spline).build()
    assert (model.position_limits[0].tolist(), model.position_limits[1].tolist()) == ([0], [3])


def test_a_builder_goes_on_after_building():
    builder = ts.ModelBuilder().add_body("a", "world", ts.Revolute())
    first = builder.build()
    second = builder.add_body("b", "a", ts.Revolute()).build()
    assert (first.nv, second.nv) == (1, 2)
    assert first == ts.ModelBuilder().add_body("a", "world", ts.Revolute()).build()


def test_a_refused_body_leaves_nothing_behind():
    builder = ts.ModelBuilder().add_body("a", "world", ts.Revolute())
    before = builder.build()
    for arguments in (
        {"name": "b", "joint": "hinge"},
        {"name": "b", "parent": "x"},
        {"name": "b", "joint": ts.Revolute(), "position_limits": (1, 0)},
        {"name": "b", "joint": ts.Revolute(), "velocity_limits": (1, 2)},
    ):
        with pytest.raises((TypeError, ts.ModelError)):
            builder.add_body(**arguments)
    assert builder.build() == before
    builder.add_body("b", "a")


def add(**arguments):
    builder = ts.ModelBuilder().add_body("a", "world", ts.Revolute(), joint_name="hinge")
    return lambda: builder.add_body(**{"name": "b", "parent": "a", "joint": ts.Revolute(), **arguments})


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (add(name="a"), ts.ModelError, "already a body named 'a'"),
        (add(name="hinge"), ts.ModelError, "already a joint named 'hinge'; give joint_name= another"),
        (add(joint_name="hinge"), ts.ModelError, "already a joint named 'hinge'; give joint_name= another"),
        (add(name="world"), ts.ModelError, "'world' is the name of the world"),
        (add(joint_name="world"), ts.ModelError, "'world' is the name of the world"),
        (add(name=""), ts.ModelError, "a body's name must be a non-empty string, got ''"),
        (add(name=3), ts.ModelError, "a body's name must be a non-empty string, got 3"),
        (add(joint_name=""), ts.ModelError, "a joint's name must be a non-empty string"),
        (
            add(parent="c"),
            ts.ModelError,
            "parent of 'b' is 'c', which has not been added; bodies are 'world', 'a'",
        ),
        (add(parent="b"), ts.ModelError, "parent of 'b' is 'b'"),
        (add(parent="hinge"), ts.ModelError, "parent of 'b' is 'hinge'"),
        (add(parent=None), ts.ModelError, "parent of 'b' is None"),
        (add(joint=ts.Revolute), TypeError, r"joint of 'b' must be a Joint, .*; did you mean Revolute\(\)\?"),
        (add(joint="revolute"), TypeError, "joint of 'b' must be a Joint, got 'revolute'"),
        (add(placement=np.eye(4)), TypeError, "placement of 'b' must be a SE3, got"),
        (add(inertia=1.0), TypeError, "inertia of 'b' must be a Inertia, got 1.0"),
        (add(position_limits=3), ts.ModelError, r"position_limits of 'b' must be \(lower, upper\), got 3"),
        (add(position_limits=(1, 2, 3)), ts.ModelError, r"must be \(lower, upper\)"),
        (add(position_limits=(2, 1)), ts.ModelError, r"lower \[2.0\] above upper \[1.0\]"),
        (add(position_limits=((1, 1), 2)), ts.ModelError, r"lower position limit of 'b' has shape \(2,\)"),
        (add(position_limits=(np.nan, 1)), ts.ModelError, "lower position limit of 'b' is not a number"),
        (
            add(effort_limits=(1, 2)),
            ts.ModelError,
            r"effort_limits of 'b' has shape \(2,\), expected one number or 1",
        ),
        (lambda: ts.ModelBuilder(gravity=(0, 1)), ValueError, r"gravity has shape \(2,\), expected \(3,\)"),
        (lambda: ts.ModelBuilder(gravity=(0, 0, np.nan)), ValueError, "gravity is not finite"),
        (lambda: MODEL.with_gravity(9.81), ValueError, "gravity has shape"),
        (lambda: MODEL.with_inertia("upper", 3), TypeError, "inertia must be an Inertia, got 3"),
        (
            lambda: MODEL.with_inertia("uper", ROD),
            KeyError,
            "no body named 'uper'; bodies are 'base', 'upper', 'lower'",
        ),
        (
            lambda: MODEL.joint("elbo"),
            KeyError,
            "no joint named 'elbo'; joints are 'base', 'shoulder', 'lower'",
        ),
        (lambda: MODEL.body(2), KeyError, "no body named 2"),
        (lambda: MODEL.joint("world"), KeyError, "no joint named 'world'"),
        (lambda: MODEL.lock({"elbo": 0}), KeyError, "no joint named 'elbo'"),
        (
            lambda: MODEL.lock({"lower": 0.1}),
            ValueError,
            r"position of 'lower' has shape \(1,\), expected \(3,\)",
        ),
        (lambda: MODEL.lock({"tool": np.inf}), ValueError, "position of 'tool' is not finite"),
        (lambda: ts.models.chain(30).joint("x"), KeyError, r"\(30 in all\)"),
    ],
)
def test_errors(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_models_are_frozen():
    for name in ("name", "gravity", "bodies"):
        with pytest.raises(AttributeError):
            setattr(MODEL, name, None)
    with pytest.raises(AttributeError):
        MODEL.bodies[0].name = "x"
    with pytest.raises(ValueError):
        MODEL.bodies[0].inertia.com[0] = 1.0


# ---- printing


def test_print_shows_the_tree():
    lines = str(MODEL).splitlines()
    assert lines[0] == "arm: 5 bodies, nq 12, nv 11, mass 4.7"
    assert lines[1].split() == ["world", "joint", "q", "v", "mass"]
    assert [line.split()[0] for line in lines[2:]] == ["└─", "├─", "│", "│", "└─"]
    for line, words in zip(
        lines[2:],
        (
            ("base", "Free", "q[0:7]", "v[0:6]", "0.7"),
            ("upper", "Revolute(0, 1, 0) 'shoulder'", "q[7]", "v[6]", "1.3"),
            ("lower", "SphericalEuler(XYZ)", "q[8:11]", "v[7:10]"),
            ("tool", "Prismatic(1, 0, 0)", "q[11]", "v[10]"),
            ("camera", "Fixed", " - "),
        ),
        strict=True,
    ):
        for word in words:
            assert word in line
    assert len({line.index("v[") for line in lines[2:6]}) == 1  # columns stand under each other
    assert repr(MODEL) == "<Model 'arm': 5 bodies, nq 12, nv 11>"


def test_an_empty_model():
    model = ts.ModelBuilder("nothing").build()
    assert (model.nq, model.nv, model.nbodies, model.mass) == (0, 0, 0, 0)
    assert str(model).startswith("nothing: 0 bodies")
    assert model.neutral.shape == model.random(0).shape == model.position_limits[0].shape == (0,)


def test_a_chain_of_a_thousand_bodies():
    builder = ts.ModelBuilder()
    parent = "world"
    for k in range(1000):
        parent = builder.add_body(f"link{k}", parent, ts.Revolute((0, 1, 0)), LIFT, ROD) and f"link{k}"
    model = builder.build()
    assert len(str(model).splitlines()) == 1002
    assert pickle.loads(pickle.dumps(model)) == copy.deepcopy(model) == model
    assert hash(copy.copy(model)) == hash(model)
    q, v, a = state(model)
    tau = ts.inverse_dynamics(model, q, v, a)
    again = ts.inverse_dynamics(model, q, v, ts.forward_dynamics(model, q, v, tau))
    close(again / np.abs(tau).max(), tau / np.abs(tau).max(), 1e-9)  # M of 1000 links has a condition number around 1e9
    locked = model.lock({f"link{k}": 0.1 for k in range(1, 1000)})
    assert locked.nv == 1
    close(locked.mass, model.mass)


# ---- configurations


def test_neutral_and_random():
    assert MODEL.neutral.tolist() == [0] * 6 + [1] + [0] * 5
    q = MODEL.random(0, 200)
    assert q.shape == (200, 12)
    assert ((MODEL.position_limits[0] <= q) & (q <= MODEL.position_limits[1])).all()
    close(np.linalg.norm(q[:, 3:7], axis=1), np.ones(200))
    assert np.ptp(q[:, 11]) > 0.1
    assert np.array_equal(MODEL.random(0), q[0])
    assert np.array_equal(MODEL.random(np.random.default_rng(0), (2, 100)), q.reshape(2, 100, 12))
    assert MODEL.random(0, (3, 0)).shape == (3, 0, 12)
    assert not np.array_equal(MODEL.random(), MODEL.random())


def test_plus_minus_and_normalize():
    q0, dv, _ = state(TREE, 1, (5,))
    q1 = TREE.plus(q0, 0.4 * dv)
    close(TREE.minus(q1, q0), 0.4 * dv)
    close(TREE.plus(q0, TREE.minus(q1, q0)), q1)
    close(TREE.minus(q0, q0), np.zeros((5, TREE.nv)))
    for j in TREE.joints:  # each joint moves by itself
        close(q1[:, j.q_slice], j.joint.plus(q0[:, j.q_slice], 0.4 * dv[:, j.v_slice]))
        close(j.joint.minus(q1[:, j.q_slice], q0[:, j.q_slice]), 0.4 * dv[:, j.v_slice])
    # `plus` follows the twist: to first order, and for a free body to the end
    turn = testing.complex_step(lambda d: ts.body_poses(TREE, TREE.plus(q0[0], d)), np.zeros(TREE.nv))
    J = ts.maximal_jacobian(TREE, q0[0]).reshape(TREE.nbodies, 6, TREE.nv)
    poses = ts.body_poses(TREE, q0[0])
    close(spatial.vee6(np.linalg.inv(poses) @ np.moveaxis(turn, -1, 0)), np.moveaxis(J, -1, 0))
    free = ts.Free()
    x, d = free.random(np.random.default_rng(1)), np.arange(6) - 2.5
    close(free.T(free.plus(x, d)), free.T(x) @ spatial.exp6(d))
    # normalize: the same poses, the same q again
    long = q0.copy()
    scale = np.ones(TREE.nq)
    for j in TREE.joints:
        if isinstance(j.joint, ts.Spherical):
            scale[j.q_slice] = 3.0
        elif isinstance(j.joint, ts.Free):
            scale[j.q_slice.start + 3 : j.q_slice.stop] = 0.2
    close(TREE.normalize(long * scale), q0)
    close(ts.body_poses(TREE, long * scale), ts.body_poses(TREE, q0))
    close(TREE.normalize(TREE.normalize(long * scale)), q0)
    turns = np.array([2, -3, 6]) / 7
    model = ts.ModelBuilder().add_body("a", "world", ts.SphericalExp()).build()
    close(model.normalize(turns * 4), turns * (4 - 2 * np.pi))
    close(model.normalize(turns * 14), turns * (14 - 4 * np.pi))
    assert np.array_equal(model.normalize(turns * 3), turns * 3)


# ---- copies with changes


def test_with_gravity():
    q, v, a = state(TREE, 2)
    other = TREE.with_gravity((1, 2, 3))
    assert other.gravity == (1, 2, 3)
    assert TREE.gravity != other.gravity
    weightless = TREE.with_gravity((0, 0, 0))
    close(ts.gravity_forces(weightless, q), np.zeros(TREE.nv))
    # gravity is as good as an acceleration of the world: torques are linear in it
    x, y, z = (ts.gravity_forces(TREE.with_gravity(e), q) for e in np.eye(3))
    close(ts.gravity_forces(other, q), x + 2 * y + 3 * z, 1e-11)
    close(
        ts.inverse_dynamics(other, q, v, a),
        ts.inverse_dynamics(weightless, q, v, a) + x + 2 * y + 3 * z,
        1e-11,
    )
    assert other.with_gravity(TREE.gravity) == TREE


def test_with_inertia():
    q, *_ = state(MODEL, 3)
    heavy = MODEL.with_inertia("shoulder", ROD + BALL)
    close(heavy.mass, MODEL.mass + BALL.mass)
    assert heavy.body("upper").inertia == ROD + BALL
    assert MODEL.body("upper").inertia == ROD
    J = ts.jacobian(MODEL, q, "upper")
    I = ts.ModelBuilder().add_body("x", "world", ts.Free(), inertia=BALL).build()
    close(ts.mass_matrix(heavy, q) - ts.mass_matrix(MODEL, q), J.T @ ts.mass_matrix(I, I.neutral) @ J)
    assert heavy.with_inertia("upper", ROD) == MODEL


def locked_case(names, seed):
    """A locked copy of TREE, and q, v, a of both with the locked joints at rest."""
    q, v, a = state(TREE, seed)
    keep_q, keep_v = np.ones(TREE.nq, bool), np.ones(TREE.nv, bool)
    for name in names:
        j = TREE.joint(name)
        keep_q[j.q_slice] = keep_v[j.v_slice] = False
    v[~keep_v] = a[~keep_v] = 0
    locked = TREE.lock({name: q[TREE.joint(name).q_slice] for name in names})
    return locked, (q, v, a), keep_q, keep_v


def with_children(model):
    return [b.name for b in model.bodies if any(c.parent == b.name for c in model.bodies)]


FREE = next(j.name for j in TREE.joints if isinstance(j.joint, ts.Free))
NESTED = next([b.parent, b.name] for b in TREE.bodies if b.parent != "world" and TREE.body(b.parent).parent != "world")
ROOT = next(b.name for b in TREE.bodies if b.parent == "world")


@pytest.mark.parametrize(
    "names",
    [[FREE], NESTED, NESTED[::-1], [ROOT], with_children(TREE), [b.name for b in TREE.bodies][::2]],
    ids=["free", "nested", "nested, child first", "root", "all with children", "every other"],
)
def test_lock_is_hybrid_dynamics_with_joints_at_rest(names):
    locked, (q, v, a), keep_q, keep_v = locked_case(names, 4)
    assert (locked.nq, locked.nv) == (keep_q.sum(), keep_v.sum())
    close(locked.mass, TREE.mass)
    tau = np.random.default_rng(5).standard_normal(TREE.nv)
    # sums of the same inertias in another order; accelerations as well as M is conditioned, around 1e4
    expected = ts.inverse_dynamics(TREE, q, v, a)
    scale = np.abs(expected).max()
    close(ts.inverse_dynamics(locked, q[keep_q], v[keep_v], a[keep_v]) / scale, expected[keep_v] / scale, 1e-13)
    acceleration, _ = ts.hybrid_dynamics(TREE, q, v, a=a, tau=tau, prescribed=names)
    scale = np.abs(acceleration).max()
    close(
        ts.forward_dynamics(locked, q[keep_q], v[keep_v], tau[keep_v]) / scale,
        acceleration[keep_v] / scale,
        1e-10,
    )
    if ROOT not in names:  # bodies fixed to the world do not count
        close(ts.potential_energy(locked, q[keep_q]), ts.potential_energy(TREE, q))
    close(ts.kinetic_energy(locked, q[keep_q], v[keep_v]), ts.kinetic_energy(TREE, q, v))
    poses = dict(zip([b.name for b in TREE.bodies], ts.body_poses(TREE, q), strict=True))
    for body, pose in zip(locked.bodies, ts.body_poses(locked, q[keep_q]), strict=True):
        close(pose, poses[body.name])
    merged = [n for n in names if TREE.body(n).parent != "world"]
    assert {b.name for b in locked.bodies} == {b.name for b in TREE.bodies} - set(merged)


def test_lock_keeps_what_is_not_locked():
    locked = MODEL.lock({"shoulder": 0.3})
    assert [b.name for b in locked.bodies] == ["base", "lower", "camera", "tool"]
    assert locked.body("lower").parent == "base"
    assert locked.joint("tool").position_limits[0] == (0.1,)
    with pytest.raises(KeyError, match="no joint named 'shoulder'"):
        locked.joint("shoulder")
    assert MODEL.lock({}) == MODEL
    # one after the other, or at once
    twice = MODEL.lock({"lower": (0.1, 0.2, 0.3)}).lock({"upper": 0.4})
    once = MODEL.lock({"shoulder": 0.4, "lower": (0.1, 0.2, 0.3)})
    q, v, a = state(once, 6)
    close(ts.inverse_dynamics(twice, q, v, a), ts.inverse_dynamics(once, q, v, a))
    # a body locked to the world stays, with its children on it
    standing = MODEL.lock({"base": [1, 2, 3, 0, 0, 0, 2.0]})
    assert standing.body("base").joint == ts.Fixed()
    assert standing.nv == MODEL.nv - 6
    close(ts.body_poses(standing, standing.neutral)[0], ts.SE3.translation(1, 2, 3).matrix)


def test_lock_moves_visuals():
    box = ts.Visual("box", (1, 1, 1), ts.SE3.translation(0.1, 0, 0))
    builder = ts.ModelBuilder().add_body("a", "world", ts.Revolute(), inertia=ROD)
    model = builder.add_body("b", "a", ts.Prismatic((0, 0, 1)), LIFT, BALL, visuals=[box]).build()
    (visual,) = model.lock({"b": 0.5}).body("a").visuals
    close(visual.placement.p, [0.1, 0, 0.9])


# ---- equality, pickles, processes


def test_equality_and_hash():
    assert arm() == MODEL
    assert hash(arm()) == hash(MODEL)
    different = [
        MODEL.with_gravity((0, 0, -9.8)),
        MODEL.with_inertia("tool", ROD),
        MODEL.lock({"tool": 0.2}),
        ts.ModelBuilder("arm").build(),
        TREE,
    ]
    for other in different:
        assert other != MODEL
    assert MODEL != "arm"
    assert len({MODEL, arm(), *different}) == 6


@pytest.mark.parametrize("model", [MODEL, TREE], ids=["arm", "tree"])
def test_pickles_and_copies(model):
    q, v, a = state(model, 7)
    tau = ts.inverse_dynamics(model, q, v, a)  # so that there is something compiled to leave out
    for again in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model), copy.copy(model)):
        assert again == model
        assert str(again) == str(model)
        assert np.array_equal(ts.inverse_dynamics(again, q, v, a), tau)


@pytest.mark.parametrize("method", sorted({"fork", "spawn"} & set(multiprocessing.get_all_start_methods())))
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded, use of fork:DeprecationWarning")
def test_worker_processes(method):
    q, v, tau = state(TREE, 8, (300,))
    expected = ts.forward_dynamics(TREE, q, v, tau, threads=2)  # with threads, which a forked child does not have
    with multiprocessing.get_context(method).Pool(1) as pool:
        for threads in (1, 2):
            result = pool.apply_async(ts.forward_dynamics, (TREE, q, v, tau), {"threads": threads}).get(timeout=60)
            assert np.array_equal(result, expected)
        assert pool.apply_async(copy.copy, (MODEL,)).get(timeout=60) == MODEL  # there and back


def test_models_made_by_hand_are_checked_as_built_ones():
    arm = ts.models.arm7()
    with pytest.raises(ValueError, match=r"gravity has shape \(0,\), expected \(3,\)"):
        replace(arm, gravity=())
    with pytest.raises(ts.ModelError, match="which has not been added"):
        replace(arm, bodies=arm.bodies[::-1])
    with pytest.raises(ts.ModelError, match="already a body named"):
        replace(arm, bodies=(*arm.bodies, arm.bodies[-1]))
    with pytest.raises(TypeError, match="must be Body records"):
        replace(arm, bodies=(*arm.bodies, "hand"))
    with pytest.raises(ts.ModelError, match="velocity_limits of 'a' is negative"):
        ts.ModelBuilder().add_body("a", joint=ts.Revolute(), velocity_limits=-1)
    with pytest.raises(TypeError, match="visuals of 'a' must be Visual records"):
        ts.ModelBuilder().add_body("a", visuals=[1])


def test_random_keeps_to_limits_on_one_side():
    builder = ts.ModelBuilder().add_body("a", joint=ts.Prismatic(), position_limits=(5, np.inf))
    builder.add_body("b", "a", ts.Revolute(), position_limits=(-np.inf, -2))
    builder.add_body("c", "b", ts.Prismatic(), position_limits=(-1e308, 1e308))
    q = builder.build().random(0, size=np.int64(50))
    assert q.shape == (50, 3)
    assert (q[:, 0] >= 5).all()
    assert (q[:, 1] <= -2).all()
    assert np.isfinite(q).all()
    with pytest.raises(ValueError, match="size is -1"):
        builder.build().random(0, size=-1)


def test_lock_says_what_is_wrong():
    arm = ts.models.arm7()
    name = arm.joints[1].name
    with pytest.raises(ValueError, match="is named twice"):
        arm.lock({name: 0.1, arm.joints[1].body: 0.7})
    with pytest.raises(TypeError, match="lock takes a mapping"):
        arm.lock([name])
    with pytest.raises(ValueError, match="has a zero quaternion"):
        ts.models.quadruped().lock({ts.models.quadruped().joints[0].name: np.zeros(7)})


def test_deep_trees_print_in_little_space():
    text = str(ts.models.chain(3000))
    assert len(text.splitlines()) == 3002
    assert len(text) < 1e6  # 27 MB if each level were indented
