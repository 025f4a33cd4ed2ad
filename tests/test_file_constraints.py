"""Constraints that belong to a model: those of MJCF and URDF files, and what functions make of them."""

import pickle

import numpy as np
import pytest
from compare import close

import torsor as ts
from torsor import testing


def errors(model, constraints, q, v=None):
    """g, gdot and gamma."""
    v = np.zeros(model.nv) if v is None else v
    return ts.constraint_errors(model, constraints, q, v, np.zeros(model.nv))


# ---- MJCF --------------------------------------------------------------------------------------------------

BODIES = """
<body name="a" pos="0 0 1" quat="0.9 0.1 0.2 0.3">
  <joint name="ja" axis="0 1 0" ref="20" pos="0.1 0 0"/><geom size="0.1" pos="0.2 0 0.1"/>
  <site name="on_a" pos="0.1 0.2 0.3" quat="0.5 0.6 0.1 0.2"/>
  <body name="b" pos="0.5 0.1 0">
    <joint name="jb" axis="1 0 1"/><joint name="jc" type="slide" axis="0 1 0" ref="0.2"/><geom size="0.1"/>
  </body>
</body>
<body name="c" pos="0.3 0.2 0.1"><freejoint/><geom size="0.1" pos="0 0.1 0"/><site name="on_c" pos="0 0.1 0.2"/></body>
"""
EQUALITIES = {
    "connect": '<connect name="x" body1="a" body2="c" anchor="0.1 0.2 0.3"/>',
    "connect to the world": '<connect name="x" body1="b" anchor="0.1 0.2 0.3"/>',
    "connect sites": '<connect name="x" site1="on_a" site2="on_c"/>',
    "weld": '<weld name="x" body1="a" body2="c" anchor="0.4 0.5 0.6" torquescale="0.7"/>',
    "weld at a pose": '<weld name="x" body1="a" body2="c" relpose="1 2 3 0.5 0.5 0.1 0.2" anchor="0.4 0.5 0.6"/>',
    "weld to the world": '<weld name="x" body1="c"/>',
    "weld sites": '<weld name="x" site1="on_a" site2="on_c" torquescale="2"/>',
    "weld without torque": '<weld name="x" body1="a" body2="c" torquescale="0"/>',
    "joint": '<joint name="x" joint1="ja" joint2="jb" polycoef="0.1 0.5 0 0 0"/>',
    "joint, constant": '<joint name="x" joint1="ja" polycoef="0.1 0 0 0 0"/>',
    "joint of several, constant": '<joint name="x" joint1="jc" polycoef="0.1 0 0 0 0"/>',
    "joint, polynomial": '<joint name="x" joint1="jc" joint2="ja" polycoef="0.1 0.5 -0.2 0.4 0.3"/>',
}


def with_equality(text):
    return f"<mujoco><worldbody>{BODIES}</worldbody><equality>{text}</equality></mujoco>"


@pytest.fixture
def mujoco():
    return pytest.importorskip("mujoco")


def mujoco_state(mujoco, mj, model, q):
    """MuJoCo's data at the configuration q: the same numbers but for the order of quaternions."""
    data = mujoco.MjData(mj)
    qpos = q.copy()
    at = model.joint("c").q_slice.start + 3
    qpos[at : at + 4] = np.roll(q[at : at + 4], 1)
    data.qpos[:] = qpos
    mujoco.mj_forward(mj, data)
    return data


@pytest.mark.parametrize("kind", EQUALITIES)
def test_residuals_are_those_of_mujoco(kind, mujoco):
    text = with_equality(EQUALITIES[kind])
    mj, model = mujoco.MjModel.from_xml_string(text), ts.load_mjcf(text)
    (constraint,) = model.constraints
    assert constraint.name == "x"
    rng = np.random.default_rng(1)
    for _ in range(10):
        q = model.random(rng)
        data = mujoco_state(mujoco, mj, model, q)
        g = errors(model, model.constraints, q)[0]
        if not kind.startswith(("connect", "weld")):
            close(g, data.efc_pos, 1e-14)
            continue
        # Theirs are A's point less B's in the world's axes, and the vector u of the quaternion from b to a times the
        # torque scale; ours are B's less A's in A's axes, and the sine of the angle about its axis.
        frames = dict(zip([b.name for b in model.bodies], ts.body_poses(model, q), strict=True)) | {"world": np.eye(4)}
        R = frames[constraint.a][:3, :3] @ constraint.placement_a.R
        close(g[:3], -R.T @ data.efc_pos[:3], 1e-14)
        if kind == "weld without torque":
            assert type(constraint.joint) is ts.Spherical
            assert len(g) == 3
        elif kind.startswith("weld"):
            u = data.efc_pos[3:] / mj.eq_data[0, 10]
            sine = 2 * np.sqrt(1 - u @ u) * u  # up to the sign of the quaternion
            assert min(np.abs(g[3:] - sine).max(), np.abs(g[3:] + sine).max()) < 1e-13


@pytest.mark.parametrize("kind", ["connect", "connect to the world", "weld", "weld to the world"])
def test_closed_at_the_reference(kind, mujoco):
    """Anchors and poses that a file gives for one body are completed at qpos0."""
    text = with_equality(EQUALITIES[kind])
    mj, model = mujoco.MjModel.from_xml_string(text), ts.load_mjcf(text)
    q = mj.qpos0.copy()
    at = model.joint("c").q_slice.start + 3
    q[at : at + 4] = np.roll(q[at : at + 4], -1)
    close(errors(model, model.constraints, q)[0], 0 * errors(model, model.constraints, q)[0], 1e-14)


def test_kinds_of_equalities(mujoco):
    kinds = {
        "connect": ts.Loop, "weld": ts.Loop, "joint": ts.Gear, "joint, constant": ts.PrescribedJoint,
        "joint of several, constant": ts.PrescribedJoint, "joint, polynomial": ts.PolynomialCoupling,
    }  # fmt: skip
    for name, kind in kinds.items():
        assert type(ts.load_mjcf(with_equality(EQUALITIES[name])).constraints[0]) is kind


def test_inactive_equalities_are_skipped(mujoco):
    text = with_equality('<connect body1="a" body2="c" anchor="0 0 0" active="false"/>')
    assert ts.load_mjcf(text).constraints == ()
    assert ts.load_mjcf(with_equality(EQUALITIES["weld"]), equality="ignore").constraints == ()


def test_what_a_model_cannot_hold_is_refused(mujoco):
    fixed = '<tendon><fixed name="t"><joint joint="ja" coef="1"/></fixed></tendon>'
    tendon = with_equality('<tendon name="rope" tendon1="t"/>').replace("<equality>", f"{fixed}<equality>")
    assert ts.load_mjcf(tendon).constraints == (ts.Coupling(["ja"], [1.0], offset=np.radians(20), name="rope"),)
    assert ts.load_mjcf(tendon, equality="ignore").nv == 9
    through = '<tendon><spatial name="t"><site site="x"/><site site="y"/></spatial></tendon>'
    sites = '<site name="x"/><site name="y" pos="1 0 0"/></worldbody>'
    spatial = tendon.replace(fixed, through).replace("</worldbody>", sites)
    with pytest.raises(ts.FormatError, match=r"equality 'rope' is of a tendon through sites; pass unsupported='warn'"):
        ts.load_mjcf(spatial)
    with pytest.warns(UserWarning, match="left out of the model: equality 'rope'"):
        assert ts.load_mjcf(spatial, unsupported="warn").constraints == ()
    rigid = '<body name="d" pos="0 0 1"><geom size="0.1"/></body>'
    text = f'<mujoco><worldbody>{rigid}</worldbody><equality><weld body1="d" name="w"/></equality></mujoco>'
    assert ts.load_mjcf(text).constraints == ()  # it holds what is fixed already
    apart = text.replace('name="w"', 'name="w" relpose="0 0 2 1 0 0 0"')
    with pytest.raises(ts.FormatError, match="equality 'w' is between bodies that are fixed to each other, and not"):
        ts.load_mjcf(apart)
    moved = text.replace('name="d"', 'name="d" mocap="true"')
    with pytest.warns(ts.FormatWarning, match="body 'd' is moved from outside"):
        assert ts.load_mjcf(moved, unsupported="warn").constraints == ()
    with pytest.raises(ValueError, match="equality must be 'constrain', 'couple' or 'ignore', got 'soft'"):
        ts.load_mjcf(with_equality(""), equality="soft")


COUPLED = """<mujoco><compiler angle="radian"/><worldbody>
  <body name="a"><joint name="ja" axis="0 1 0" range="-1 1" ref="0.1"/><geom size="0.1" pos="0.2 0 0"/>
    <body name="b" pos="0.4 0 0"><joint name="jb" axis="0 1 0" ref="-0.2" damping="0.3"/>
      <geom size="0.1" pos="0.2 0 0"/>
      <body name="c" pos="0.4 0 0"><joint name="jc" type="slide" axis="1 0 0" stiffness="2"/><geom size="0.1"/></body>
    </body></body></worldbody>
  <equality><joint joint1="jb" joint2="ja" polycoef="0.05 -0.5 0 0 0"/>
    <joint joint1="jc" joint2="jb" polycoef="0 0.2 0.3 -0.1 0.05"/></equality>
  <actuator><motor name="mb" joint="jb" gear="3"/><position name="pc" joint="jc" kp="5" kv="0.2"/></actuator>
  <keyframe><key name="k" qpos="0.3 -0.25 0" qvel="1 2 3" ctrl="0.5 0.1"/></keyframe></mujoco>"""


def test_equalities_of_joints_as_couplings(mujoco):
    """The motions that they leave are those of the constraints, and actuators on followers act on leaders."""
    constrained = ts.load_mjcf(COUPLED)
    model = ts.load_mjcf(COUPLED, equality="couple")
    assert [type(c) for c in constrained.constraints] == [ts.Gear, ts.PolynomialCoupling]
    assert [type(c) for c in model.couplings] == [ts.Mimic, ts.Polynomial] and model.constraints == ()
    assert (constrained.nv, model.nv) == (3, 1)
    q, v = np.array([0.4]), np.array([0.7])
    whole = model.expand(q)
    np.testing.assert_allclose(ts.constraint_errors(constrained, constrained.constraints, whole), 0, atol=1e-15)
    forces = [*ts.forces_from(model, actuators=False), ts.ActuatorForce(model, [0.3, -0.4])]
    tau = ts.generalized_forces(model, forces, q, v)
    a = ts.forward_dynamics(model, q, v, tau)
    vs = model.expand_velocity(q, v)
    other = ts.generalized_forces(constrained, forces, whole, vs)
    result = ts.constrained_forward_dynamics(constrained, constrained.constraints, whole, vs, other)
    np.testing.assert_allclose(model.expand_acceleration(q, v, a), result.a, rtol=1e-11)
    key = model.keyframes["k"]
    assert key.q == (0.3,) and key.v == (1.0,) and key.controls == (0.5, 0.1)


def test_coupled_models_are_written(mujoco):
    model = ts.load_mjcf(COUPLED, equality="couple")
    again = ts.load_mjcf(ts.to_mjcf(model), equality="couple")
    assert [type(c) for c in again.couplings] == [ts.Mimic, ts.Polynomial]
    q, v = np.array([0.4]), np.array([0.7])
    np.testing.assert_allclose(again.expand(q), model.expand(q), rtol=1e-14)
    np.testing.assert_allclose(ts.bias_forces(again, q, v), ts.bias_forces(model, q, v), rtol=1e-12)
    assert again.keyframes["k"].q == (0.3,)
    subspace = model.tree.couple(ts.Subspace(["ja", "jb"], [[1.0], [2.0]]))
    with pytest.raises(ts.ModelError, match=r"cannot carry .*the coupling Subspace\("):
        ts.to_mjcf(subspace)
    fifth = model.tree.couple(ts.Polynomial("jb", "ja", (0, 1, 0, 0, 0, 1)))
    with pytest.raises(ts.ModelError, match=r"cannot carry .*the coupling Polynomial\("):
        ts.to_mjcf(fifth)


def test_couplings_that_cannot_be_made(mujoco):
    ring = COUPLED.replace('joint1="jb" joint2="ja"', 'joint1="jb" joint2="jc"')
    with pytest.raises(ts.FormatError, match=r"equality='constrain' to load equalities as constraints"):
        ts.load_mjcf(ring, equality="couple")
    assert len(ts.load_mjcf(ring).constraints) == 2
    held = COUPLED.replace(' joint2="ja" polycoef="0.05 -0.5 0 0 0"', ' polycoef="0.05 0 0 0 0"')
    model = ts.load_mjcf(held, equality="couple")
    assert [type(c) for c in model.constraints] == [ts.PrescribedJoint] and len(model.couplings) == 1


# ---- URDF --------------------------------------------------------------------------------------------------


def link(name):
    inertia = '<inertia ixx="0.1" iyy="0.1" izz="0.1" ixy="0" ixz="0" iyz="0"/>'
    return f'<link name="{name}"><inertial><mass value="1"/>{inertia}</inertial></link>'


def hinge(name, parent, child, x, more=""):
    ends = f'<parent link="{parent}"/><child link="{child}"/><origin xyz="{x} 0 0"/><axis xyz="0 1 0"/>'
    return f'<joint name="{name}" type="continuous">{ends}{more}</joint>'


CLOSING = """<loop_joint name="closing"{type}><link1 link="coupler" xyz="2 0 0" rpy="0.1 0.2 0.3"/>
    <link2 link="rocker" xyz="1.5 0 0.5"/><axis xyz="0 3 0"/></loop_joint>"""


def four_bar(*content, more=""):
    links = "".join(map(link, ("base", "crank", "coupler", "rocker")))
    joints = (
        hinge("one", "base", "crank", 0)
        + hinge("two", "crank", "coupler", 1)
        + hinge("three", "base", "rocker", 2, more)
    )
    return f'<robot name="four_bar">{links}{joints}{"".join(content)}</robot>'


@pytest.mark.parametrize(
    ("kind", "joint"),
    [
        ("", ts.Revolute((0, 1, 0))), ("revolute", ts.Revolute((0, 1, 0))), ("continuous", ts.Revolute((0, 1, 0))),
        ("fixed", ts.Fixed()), ("prismatic", ts.Prismatic((0, 1, 0))), ("spherical", ts.Spherical()),
        ("planar", ts.Free2D()),
    ],
)  # fmt: skip
def test_loop_joints(kind, joint):
    closing = CLOSING.format(type=f' type="{kind}"' if kind else "")
    model = ts.load_urdf(four_bar(closing))
    (loop,) = model.constraints
    assert (loop.a, loop.b, loop.joint, loop.name) == ("coupler", "rocker", joint, "closing")
    on_a, on_b = ts.SE3(ts.SE3.rpy(0.1, 0.2, 0.3).R, (2, 0, 0)), ts.SE3.translation(1.5, 0, 0.5)
    if kind == "planar":  # free to move in the plane normal to the axis
        close(loop.placement_a.R[:, 2], on_a.R[:, 1], 1e-15)
        close(loop.placement_b.R[:, 2], [0, 1, 0], 1e-15)
    else:
        assert (loop.placement_a, loop.placement_b) == (on_a, on_b)
    close(loop.placement_a.p, on_a.p, 1e-15)
    # the same from a second file
    second = ts.load_urdf(four_bar(), loops=f'<robot name="loops">{closing}</robot>')
    assert second.constraints == model.constraints


def test_mimic_joints_follow_others_in_loops_too():
    mimic = '<mimic joint="one" multiplier="-0.5" offset="0.2"/>'
    model = ts.load_urdf(four_bar(CLOSING.format(type=""), more=mimic))
    assert model.couplings == (ts.Mimic("three", "one", -0.5, 0.2),)
    assert [c.name for c in model.constraints] == ["closing"]
    assert (model.nv, ts.load_urdf(four_bar(more=mimic), mimic="ignore").nv) == (2, 3)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (CLOSING.format(type=' type="screw"'), r"loop_joint 'closing': unknown type 'screw', expected one of fixed"),
        (CLOSING.format(type="").replace('"rocker"', '"rock"'), r"<link2> of loop_joint 'closing': its link 'rock' is"),
        (CLOSING.format(type="").replace("<axis", "<axes"), None),
        (CLOSING.format(type="").replace("0 3 0", "0 0 0"), r"is zero, expected a direction"),
        (CLOSING.format(type="").replace("link1", "parent"), r"has no <link1>"),
        (CLOSING.format(type="").replace('"rocker"', '"coupler"'), r"between 'coupler' and itself"),
        (CLOSING.format(type="") * 2, r"two constraints named 'closing'"),
        (CLOSING.format(type="").replace(' name="closing"', ""), r"has no attribute 'name'"),
    ],
)
def test_errors_name_loop_joints(wrong, message):
    if message is None:  # an axis is optional
        assert ts.load_urdf(four_bar(wrong)).constraints[0].joint == ts.Revolute((1, 0, 0))
        return
    with pytest.raises(ts.FormatError, match=message):
        ts.load_urdf(four_bar(wrong))
    text = four_bar(more='<mimic joint="none"/>')
    with pytest.raises(ts.FormatError, match=r"<mimic> of joint 'three': its joint 'none' is not in the file"):
        ts.load_urdf(text, mimic="couple")


# ---- models ------------------------------------------------------------------------------------------------


def closed_four_bar():
    """A parallelogram of rods, closed by a hinge of its own."""
    builder = ts.ModelBuilder("four_bar")
    rod = ts.Inertia.box(mass=1.0, size=(1.0, 0.1, 0.1), com=(0.5, 0, 0))
    y = ts.Revolute((0, 1, 0))
    builder.add_body("crank", "world", y, ts.SE3(), rod)
    builder.add_body("coupler", "crank", y, ts.SE3.translation(1, 0, 0), rod)
    builder.add_body("rocker", "world", y, ts.SE3.translation(1, 0, 0), rod)
    end = ts.SE3.translation(1, 0, 0)
    builder.add_constraint(ts.Loop("coupler", "rocker", y, end, end, name="closing"))
    return builder.build(), np.array([1.0, -1.0, 1.0])


def test_simulations_impose_the_constraints_of_the_model():
    model, q = closed_four_bar()
    loops = model.constraints
    assert [c.name for c in loops] == ["closing"]
    assert "constraint closing" in str(model)
    for integrator in (ts.BDF2(h=1e-2), ts.SymplecticEuler(h=1e-2)):
        own = ts.simulate(model, q, steps=20, integrator=integrator)
        given = ts.simulate(model.with_constraints(()), q, steps=20, integrator=integrator, constraints=loops)
        np.testing.assert_array_equal(own.q, given.q)
        assert own.constraints == loops
        tree = ts.simulate(model, q, steps=20, integrator=integrator, constraints=())
        falls = ts.simulate(model.with_constraints(()), q, steps=20, integrator=integrator)
        np.testing.assert_array_equal(tree.q, falls.q)
        assert np.abs(tree.q[-1] - own.q[-1]).max() > 1e-2
        s = ts.step(model, integrator, q, 0 * q)
        np.testing.assert_array_equal(s.q1, ts.step(model, integrator, q, 0 * q, constraints=loops).q1)
        assert np.abs(s.q1 - ts.step(model, integrator, q, 0 * q, constraints=()).q1).max() > 1e-6
        d = ts.step_derivatives(model, integrator, q, 0 * q)
        np.testing.assert_array_equal(
            d.dq1_dq, ts.step_derivatives(model, integrator, q, 0 * q, constraints=loops).dq1_dq
        )
    # functions of the tree do not
    np.testing.assert_array_equal(
        ts.forward_dynamics(model, q, 0 * q, 0 * q), ts.forward_dynamics(model.with_constraints(()), q, 0 * q, 0 * q)
    )
    with pytest.raises(ts.ConstraintError, match="'closing: position x' stays open"):
        ts.simulate(model, q + [0.1, 0, 0], steps=1, integrator=ts.BDF1(h=1e-2))


def test_batches_of_models_share_constraints():
    model, q = closed_four_bar()
    other = model.with_gravity((0, 0, -3))
    run = ts.simulate([model, other], q, steps=5, integrator=ts.BDF1(h=1e-2))
    assert run.q.shape == (2, 6, 3)
    with pytest.raises(ValueError, match=r"model\[1\] has other constraints of its own than model\[0\]"):
        ts.simulate([model, other.with_constraints(())], q, steps=5, integrator=ts.BDF1(h=1e-2))


def test_copies_keep_constraints(tmp_path):
    model, q = closed_four_bar()
    for copy in (
        pickle.loads(pickle.dumps(model)),
        model.with_gravity((0, 0, 1)),
        model.with_inertia("crank", ts.Inertia(2, I_com=(1, 1, 1))),
    ):
        assert copy.constraints == model.constraints
    assert pickle.loads(pickle.dumps(model)) == model
    assert model != model.with_constraints(())
    assert model.with_loop(ts.Loop("crank", "rocker", ts.Screw(), name="s"))[0].constraints == model.constraints
    run = ts.simulate(model, q, steps=5, integrator=ts.BDF1(h=1e-2))
    run.save(tmp_path / "run.npz")
    assert ts.Trajectory.load(tmp_path / "run.npz", model).constraints == model.constraints
    with pytest.raises(ValueError, match="number of constraints"):
        ts.Trajectory.load(tmp_path / "run.npz", model, constraints=())


def test_wrong_constraints_of_a_model():
    model, _ = closed_four_bar()
    with pytest.raises(TypeError, match="must be constraints such as Loop"):
        model.with_constraints([ts.Revolute()])
    with pytest.raises(TypeError, match="must be a sequence of constraints"):
        model.with_constraints(model.constraints[0])
    with pytest.raises(ts.ModelError, match="two constraints named 'closing'"):
        model.with_constraints([*model.constraints, *model.constraints])
    with pytest.raises(TypeError, match="must be constraints such as Loop"):
        ts.ModelBuilder().add_constraint("closing")


def test_lock_moves_constraints():
    """Rows between bodies keep their values when a body becomes part of its parent."""
    rng = np.random.default_rng(4)
    joints = [ts.Revolute((0, 1, 0)), ts.Spherical(), ts.Revolute((1, 0, 0)), ts.Universal(), ts.Prismatic((0, 0, 1))]
    model = testing.random_tree(3, joints, branching=0.5)
    names = [b.name for b in model.bodies]
    locked = next(b for b in model.bodies if b.parent != "world" and b.joint.nv)
    other = next(n for n in names if n not in (locked.name, locked.parent))
    x, y = testing.random_pose(rng), testing.random_pose(rng)
    model = model.with_constraints([
        ts.Loop(locked.name, other, ts.Universal(), x, y, name="first"),
        ts.Loop(other, locked.name, ts.Fixed(), x, y),
        ts.PointOnPlane(locked.name, other, x, (1, 2, 3)),
        ts.PointOnLine(other, locked.name, x, (1, 2, 3)),
        ts.Distance(locked.name, (1, 2, 3), other, (0, 1, 0), 2.0),
        ts.PrescribedBody(locked.name, x, y),
        ts.TwistConstraint({locked.name: rng.standard_normal(6), locked.parent: rng.standard_normal(6)}),
    ])  # fmt: skip
    q, v = model.random(rng), rng.standard_normal(model.nv)
    at = model.joint(locked.name)
    v[at.v_slice] = 0
    small = model.lock({locked.name: q[at.q_slice]})
    keep_q, keep_v = (np.delete(z, s) for z, s in ((q, at.q_slice), (v, at.v_slice)))
    for one, two in zip(
        errors(model, model.constraints, q, v), errors(small, small.constraints, keep_q, keep_v), strict=True
    ):
        close(two, one, 1e-13)
    geared = model.with_constraints([ts.PrescribedJoint(next(b.name for b in model.bodies if b.joint.nq == 1), 0.3)])
    (name,) = geared.constraints[0]._joints(geared)
    with pytest.raises(ts.ModelError, match="removes coordinates that the constraint 'PrescribedJoint"):
        geared.lock({name: 0.3})


def test_polynomial_coupling():
    """Against its closed form and its straight line."""
    model, _ = closed_four_bar()
    c = np.array([0.1, 0.5, -0.2, 0.4, 0.3])
    one = ts.PolynomialCoupling("crank", "rocker", c, center=0.3)
    rng = np.random.default_rng(0)
    q, v = rng.standard_normal(3), rng.standard_normal(3)
    p = np.polynomial.Polynomial(c)
    u = q[0] - 0.3
    g, gdot, gamma = errors(model, [one], q, v)
    close(g, [q[2] - p(u)], 1e-15)
    close(gdot, [v[2] - p.deriv()(u) * v[0]], 1e-15)
    close(gamma, [-p.deriv(2)(u) * v[0] ** 2], 1e-15)
    straight = (
        ts.PolynomialCoupling("crank", "rocker", [0.2, -0.5], center=0.3),
        ts.Gear("crank", "rocker", -0.5, offset=0.35),
    )
    h = ts.BDF2(h=1e-2)
    q = np.array([0.2, 0.3, 0.25])
    tree = model.with_constraints(())
    runs = [ts.simulate(tree, q, steps=10, integrator=h, constraints=[x]) for x in straight]
    close(runs[0].q, runs[1].q, 1e-10)
    for wrong, match in (([0.1], "a constant"), ([0.1, 0, 0], "a constant")):
        with pytest.raises(ValueError, match=match):
            ts.PolynomialCoupling("crank", "rocker", wrong)
    with pytest.raises(ts.ConstraintError, match="couples a coordinate with itself"):
        errors(model, [ts.PolynomialCoupling("crank", "crank", [0, 1])], q)


def test_second_derivatives_of_steps_do_not_drop_them():
    model, q = closed_four_bar()
    options = {"contract": (np.ones(3), np.ones(3))}
    with pytest.raises(TypeError, match="no second derivatives of steps under constraints"):
        ts.variational.step_hessian(model, ts.Variational(1e-2), q, 0 * q, **options)
    assert ts.variational.step_hessian(model, ts.Variational(1e-2), q, 0 * q, constraints=(), **options)
