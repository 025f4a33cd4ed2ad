"""Named frames on bodies: everything that takes a body's name takes theirs, with the results that a massless body on a
fixed joint has."""

import pickle

import numpy as np
import pytest
from population import FRAMES, state

import torsor as ts
from torsor import testing

pin = pytest.importorskip("pinocchio")


def pair(seed, joints=6):
    """A random tree with frames, and its twin, which has massless bodies on fixed joints in their place."""
    rng = np.random.default_rng(seed)
    tree = testing.random_tree(rng, joints)
    framed, bodies = tree, list(tree.bodies)
    for k, body in enumerate(["world", *(b.name for b in tree.bodies), "body1"]):
        placement = testing.random_pose(rng)
        framed = framed.with_frame(f"frame{k}", body, placement)
        nothing = ((), ()), (), ()
        bodies.append(ts.Body(f"frame{k}", body, ts.Fixed(), placement, ts.Inertia.zero(), f"frame{k}", *nothing))
    return framed, ts.Model(tree.name, tree.gravity, tuple(bodies))


PAIRS = [pair(seed) for seed in range(4)]
NAMES = [f.name for f in PAIRS[0][0].frames]


def same(a, b):
    np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-11)


@pytest.mark.parametrize(("framed", "twin"), PAIRS)
def test_kinematics(framed, twin):
    q, *_ = state(framed, 1, (3,))
    poses = ts.body_poses(twin, q)
    for name in NAMES:
        same(ts.body_pose(framed, q, name), poses[:, twin.body_index(name)])
        for axes in FRAMES:
            same(ts.jacobian(framed, q, name, frame=axes), ts.jacobian(twin, q, name, frame=axes))
    points = np.random.default_rng(2).standard_normal((len(NAMES), 3))
    for function in (ts.point_positions, ts.point_jacobian, ts.point_hessian):
        same(function(framed, q, NAMES, points), function(twin, q, NAMES, points))
        same(function(framed, q, "frame2", points[0]), function(twin, q, "frame2", points[0]))


@pytest.mark.parametrize(("framed", "twin"), PAIRS)
def test_twists_and_their_derivatives(framed, twin):
    q, v, a, _, _ = state(framed, 1, (2,))
    names = [*NAMES, "body3"]
    rows = [twin.body_index(name) for name in names]
    one = rows[3]
    for axes in FRAMES:
        for function, args in (
            (ts.body_velocities, (q, v)),
            (ts.body_accelerations, (q, v, a)),
            (ts.body_velocities_derivatives, (q, v)),
            (ts.body_accelerations_derivatives, (q, v, a)),
        ):
            several = function(framed, *args, bodies=names, frame=axes)
            single = function(framed, *args, bodies=names[3], frame=axes)
            whole = function(twin, *args, frame=axes)
            if isinstance(whole, np.ndarray):
                same(several, whole[:, rows])
                same(single, whole[:, one])
                same(function(framed, *args, bodies=names, frame=axes, out=np.empty_like(several)), several)
            for x, y, z in zip(several, single, whole, strict=True) if isinstance(whole, tuple) else ():
                same(x, z[:, rows])
                same(y, z[:, one])


@pytest.mark.parametrize(("framed", "twin"), PAIRS)
def test_forces(framed, twin):
    rng = np.random.default_rng(3)
    q, v, w, _, _ = state(framed, rng)
    n = framed.nbodies
    named = [f for f in testing.example_forces(twin, rng) if "frame" in repr(f)]
    assert len(named) > 5
    for force in named:
        a, b = (ts.generalized_forces(m, [force], q, v) for m in (framed, twin))
        same(a, b)
        a, b = (ts.generalized_forces_derivatives(m, [force], q, v) for m in (framed, twin))
        for x, y in zip(a, b, strict=True):
            same(x, y)
        a, b = (ts.generalized_forces_vjp(m, [force], q, v, w) for m in (framed, twin))
        same(a.q, b.q)
        same(a.v, b.v)
        for x, y in zip(a.parameters, b.parameters, strict=True):
            for key in y:
                same(x[key], y[key])
        motions = (ts.simulate(m, q, v, steps=2, integrator=ts.BDF1(h=1e-4), forces=[force]) for m in (framed, twin))
        a, b = (ts.adjoint(motion, ts.VelocityTarget()) for motion in motions)
        same(a.placement, b.placement[:n])


@pytest.mark.parametrize(("framed", "twin"), PAIRS)
def test_constraints(framed, twin):
    rng = np.random.default_rng(4)
    q, v, acceleration, _, _ = state(framed, rng)
    named = [c for c in testing.example_constraints(twin, rng) if "frame" in repr(c)]
    assert len(named) > 5
    for constraint in named:
        J, J_twin = (ts.constraint_jacobian(m, [constraint], q) for m in (framed, twin))
        same(J, J_twin)
        a, b = (ts.constraint_derivatives(m, [constraint], q, v, acceleration) for m in (framed, twin))
        for x, y in zip(a, b, strict=True):
            same(x, y)
        w = dict(zip(("w_g", "w_gdot", "w_gamma"), rng.standard_normal((3, len(J))), strict=True))
        a, b = (ts.constraint_vjp(m, [constraint], q, v, acceleration, **w) for m in (framed, twin))
        same(a.placement, b.placement[: framed.nbodies])
        for key, value in b.parameters[0].items():
            same(a.parameters[0][key], value)


def test_costs():
    framed, twin = PAIRS[0]
    q, v, _, _, _ = state(framed, 5)
    scenes = []
    for model in (framed, twin):
        cost = ts.PointTarget("frame3", (0.1, 0.2, 0.3), (1, 2, 3)) + ts.PointTarget("frame0", (0, 0, 1), (1, 1, 0))
        damping = [ts.BodyDamping("frame4", 2.0)]
        motion = ts.simulate(model, q, 0.1 * v, steps=5, integrator=ts.BDF1(h=1e-2), forces=damping)
        scenes.append(ts.adjoint(motion, cost))
    a, b = scenes
    same(a.q0, b.q0)
    same(a.inertia, b.inertia[: framed.nbodies])
    same(a.placement, b.placement[: framed.nbodies])
    same(a.forces[0]["coefficients"], b.forces[0]["coefficients"])


def test_motions_of_hard_contact_and_lanes():
    """Contact at frames in steps of hard contact with gradients by placements, and in batches with models of their
    own."""
    ball = ts.shapes.Sphere(0.1)
    models = []
    for twin in (False, True):
        b = ts.ModelBuilder()
        b.add_body("box", joint=ts.Free(), inertia=ts.Inertia.box((0.4, 0.4, 0.2), mass=1.0))
        for k, (x, y) in enumerate(((0.2, 0.2), (-0.2, 0.2), (0.0, -0.2))):
            at = ts.SE3.translation(x, y, -0.1)
            if twin:
                b.add_body(f"foot{k}", "box", placement=at)
            else:
                b.add_frame(f"foot{k}", "box", at)
        models.append(b.build())
    contacts = [
        ts.Contact(f"foot{k}", ball, "world", ts.shapes.HalfSpace(), stiffness=1e4, friction=0.5) for k in range(3)
    ]
    q0, v0 = np.array([0, 0, 0.205, 0, 0, 0, 1.0]), np.array([0.3, 0.1, 0, 0.5, 0.2, -0.4])
    for integrator in (ts.HardContact(h=5e-3), ts.BDF1(h=2e-3)):
        grads = []
        for model in models:
            motion = ts.simulate(model, q0, v0, steps=30, integrator=integrator, forces=contacts)
            grads.append((motion.q, ts.adjoint(motion, ts.PointTarget("foot0", (0, 0, 0), (1, 1, 0.2)))))
        same(grads[0][0], grads[1][0])
        np.testing.assert_allclose(grads[0][1].placement, grads[1][1].placement[:1], rtol=1e-9, atol=1e-9)
    heavier = models[0].with_inertia("box", ts.Inertia.box((0.4, 0.4, 0.2), mass=2.0))
    moved = ts.Model(
        models[0].name, models[0].gravity, models[0].bodies,
        frames=tuple(ts.Frame(f.name, f.body, ts.SE3.translation(0.01, 0, 0) @ f.placement) for f in models[0].frames),
    )  # fmt: skip
    several = [models[0], heavier, moved, models[0]]
    batch = ts.simulate(several, q0, v0, steps=20, integrator=ts.BDF1(h=2e-3), forces=contacts)
    for k, model in enumerate(several):
        alone = ts.simulate(model, q0, v0, steps=20, integrator=ts.BDF1(h=2e-3), forces=contacts)
        np.testing.assert_array_equal(batch.q[k], alone.q)


def test_against_pinocchio():
    rng = np.random.default_rng(0)
    model = testing.random_tree(rng, [ts.Revolute((0, 0, 1)), ts.Prismatic((1, 0, 0)), ts.Revolute((0, 1, 0))])
    model = model.with_frame("tool", "body2", testing.random_pose(rng))
    theirs = pin.Model()
    joints = (pin.JointModelRZ, pin.JointModelPX, pin.JointModelRY)
    ids = {"world": 0}
    for body, joint in zip(model.bodies, joints, strict=True):
        ids[body.name] = theirs.addJoint(ids[body.parent], joint(), pin.SE3(body.placement.matrix), body.name)
    at = pin.SE3(model.frame("tool").placement.matrix)
    tool = theirs.addFrame(pin.Frame("tool", ids["body2"], 0, at, pin.FrameType.OP_FRAME))
    data, q = theirs.createData(), model.random(rng)
    pin.framesForwardKinematics(theirs, data, q)
    same(ts.body_pose(model, q, "tool"), data.oMf[tool].homogeneous)
    for name, axes in zip(FRAMES, (pin.LOCAL, pin.WORLD, pin.LOCAL_WORLD_ALIGNED), strict=True):
        J = pin.computeFrameJacobian(theirs, data, q, tool, axes)
        same(ts.jacobian(model, q, "tool", frame=name), np.roll(J, 3, axis=0))


def test_records():
    model = ts.models.arm7()
    hand = model.bodies[-1].name
    at = ts.SE3.translation(0, 0, 0.1)
    framed = model.with_frame("tool", hand, at).with_frame("tip", "tool", at).with_frame("origin", "world")
    assert framed.frame("tip") == ts.Frame("tip", hand, at @ at)
    assert framed.frame(hand) == ts.Frame(hand, hand)
    assert "frame tool on" in str(framed)
    assert pickle.loads(pickle.dumps(framed)) == framed != model
    built = ts.ModelBuilder().add_body("a").add_frame("f", "a", at).add_frame("g", "f", at).build()
    assert built.frame("g") == ts.Frame("g", "a", at @ at)
    assert ts.body_pose(framed, model.neutral, "origin").tolist() == np.eye(4).tolist()


def test_lock_keeps_names():
    rng = np.random.default_rng(6)
    tree = testing.random_tree(rng, 6).with_frame("tool", "body5", testing.random_pose(rng))
    tree = tree.with_constraints([ts.Distance("tool", (0, 0, 0), "world", (0, 0, 0), 3.0)])
    q = tree.random(rng)
    names = [j.name for j in tree.joints if j.body != "body0"][1:4]
    locked = tree.lock({name: q[tree.joint(name).q_slice] for name in names})
    rest = np.concatenate([q[j.q_slice] for j in tree.joints if j.name not in names])
    for name in ("tool", *(b.name for b in tree.bodies)):
        same(ts.body_pose(locked, rest, name), ts.body_pose(tree, q, name))
    a, b = (ts.constraint_errors(m, m.constraints, x) for m, x in ((tree, q), (locked, rest)))
    same(a.g, b.g)


def test_loops_between_frames_can_have_coordinates():
    framed, _ = PAIRS[1]
    loop = ts.Loop("frame1", "frame4", ts.Screw(pitch=0.1), name="thread")
    model, weld = framed.with_loop(loop)
    q = model.random(0)
    at = np.linalg.inv(ts.body_pose(model, q, "frame1")) @ ts.body_pose(model, q, "thread")
    same(at, ts.Screw(pitch=0.1).T(q[model.joint("thread").q_slice]))
    assert (weld.a, weld.b) == ("thread", "body3")


def test_errors():
    model = ts.models.arm7()
    hand = model.bodies[-1].name
    with pytest.raises(ts.ModelError, match=f"already a body named {hand!r}"):
        model.with_frame(hand, hand)
    with pytest.raises(ts.ModelError, match="already a frame named 'tool'"):
        model.with_frame("tool", hand).with_frame("tool", hand)
    with pytest.raises(KeyError, match="did you mean"):
        model.with_frame("tool", hand + "x")
    with pytest.raises(KeyError, match="did you mean 'tool'"):
        ts.jacobian(model.with_frame("tool", hand), model.neutral, "tol")
    with pytest.raises(KeyError, match="no body named 'tool'"):
        model.with_frame("tool", hand).body("tool")
    with pytest.raises(TypeError, match="must be a SE3"):
        model.with_frame("tool", hand, np.eye(4))
    with pytest.raises(ts.ModelError, match="name of the world"):
        model.with_frame("world", hand)
    with pytest.raises(ts.ModelError, match=r"no body named \['b'\] for the frame 'a'"):
        ts.ModelBuilder().add_frame("a", ["b"])
    with pytest.raises(TypeError, match="bodies must be a name or a sequence"):
        ts.body_velocities(model, model.neutral, np.zeros(model.nv), bodies=[])
    framed = model.with_frame("tool", hand)
    with pytest.raises(ts.ConstraintError, match="fixed to each other"):
        ts.constraint_errors(framed, [ts.Loop(hand, "tool", ts.Revolute())], framed.neutral)


WITH_WRENCHES = {
    "inverse_dynamics": "qva",
    "forward_dynamics": "qvu",
    "joint_reactions": "qva",
    "inverse_dynamics_derivatives": "qva",
    "forward_dynamics_derivatives": "qvu",
    "inverse_dynamics_hessians": "qva",
    "forward_dynamics_hessians": "qvu",
    "inverse_dynamics_vjp": "qvaw",
}


@pytest.mark.parametrize("name", WITH_WRENCHES)
def test_wrenches_by_name(name):
    """A dict of wrenches on bodies and frames is the array of them on the twin's bodies."""
    framed, twin = PAIRS[2]
    rng = np.random.default_rng(7)
    q, v, a, u, _ = state(framed, rng)
    given = {"q": q, "v": v, "a": a, "u": u, "w": rng.standard_normal(framed.nv)}
    args = [given[key] for key in WITH_WRENCHES[name]]
    wrenches = {"frame0": rng.standard_normal(6), "frame3": rng.standard_normal(6), "body2": rng.standard_normal(6)}
    wrenches |= {"frame7": rng.standard_normal(6)}
    for axes in ("body", "world"):
        rows = np.zeros((twin.nbodies, 6))
        for key, wrench in wrenches.items():
            rows[twin.body_index(key)] = wrench
        x = getattr(ts, name)(framed, *args, f_ext=wrenches, f_ext_frame=axes)
        y = getattr(ts, name)(twin, *args, f_ext=rows, f_ext_frame=axes)
        for one, other in zip([x], [y], strict=True) if isinstance(x, np.ndarray) else zip(x, y, strict=True):
            if one is not None:
                same(one, other[: len(one)] if one.shape != other.shape else other)


def test_wrenches_by_name_in_batches_and_wrong_ones():
    framed, _ = PAIRS[2]
    q, v, a, _, _ = state(framed, 8, (4,))
    tau = ts.inverse_dynamics(framed, q, v, a, f_ext={"frame2": np.ones((4, 6)), "body1": np.ones(6)})
    for k in range(4):
        one = ts.inverse_dynamics(framed, q[k], v[k], a[k], f_ext={"frame2": np.ones(6), "body1": np.ones(6)})
        same(tau[k], one)
    same(ts.inverse_dynamics(framed, q, v, a, f_ext={}), ts.inverse_dynamics(framed, q, v, a))
    with pytest.raises(KeyError, match="did you mean 'frame2'"):
        ts.inverse_dynamics(framed, q, v, a, f_ext={"fram2": np.ones(6)})
    with pytest.raises(ValueError, match=r"f_ext\['frame2'\] has shape \(3,\), expected \(\.\.\., 6\)"):
        ts.inverse_dynamics(framed, q, v, a, f_ext={"frame2": np.ones(3)})
    with pytest.raises(ValueError, match="about which its moment changes with q"):
        ts.inverse_dynamics(framed, q, v, a, f_ext={"frame2": np.ones(6)}, f_ext_frame="local_world_aligned")
    with pytest.raises(ValueError, match=r"batch shapes of f_ext do not fit together: 'frame2' \(3, 6\), 'body1'"):
        ts.inverse_dynamics(framed, q, v, a, f_ext={"frame2": np.ones((3, 6)), "body1": np.ones((4, 6))})
    with pytest.raises(TypeError, match="q is a dict, expected an array"):
        ts.inverse_dynamics(framed, {"frame2": q}, v, a)


def test_contacts_of_frames():
    """Frames stand for their bodies where contacts are chosen; what was locked keeps its exclusions."""
    box = ts.Collision(ts.shapes.Box((0.1, 0.1, 0.1)))
    b = ts.ModelBuilder()
    for name in ("a", "b", "c"):
        b.add_body(name, joint=ts.Free(), inertia=ts.Inertia.box((0.1, 0.1, 0.1), mass=1.0), collisions=[box])
    b.add_body("flap", "c", ts.Revolute((1, 0, 0)), inertia=ts.Inertia.point(0.1))
    model = b.add_frame("tip", "b").build()
    ground = ts.shapes.HalfSpace()

    def pairs(m, **options):
        made = ts.contacts(m, ground=ground, stiffness=1e3, unsupported="skip", **options)
        return {frozenset((x.body, x.other)) for x in made}

    assert pairs(model, bodies=["tip"]) == pairs(model, bodies=["b"])
    assert pairs(model, exclude=[("tip", "world")]) == pairs(model) - {frozenset(("b", "world"))}
    locked = model.lock({"flap": 0.0})
    assert pairs(locked, exclude=[("flap", "world")]) == pairs(model) - {frozenset(("c", "world"))}
