"""Actuators and tendons: forces of what a model keeps, and the matrix from controls to torques."""

from dataclasses import replace

import numpy as np
import pytest
from compare import close
from mjcf_models import ARM, CRANE, HAND, MODELS, QUADRUPED, WALKER
from test_mjcf_dynamics import accelerations, smooth, states

import torsor as ts
from torsor import testing

mujoco = pytest.importorskip("mujoco")


def loaded(text: str) -> ts.Model:
    return ts.load_mjcf(text)


# ---- forces and their derivatives


@pytest.mark.parametrize("name", ["swimmer", "hand", "balls", "drone", "crane", "machine"])
def test_forces_and_their_derivatives(name: str) -> None:
    """By complex steps: of every kind of transmission, and of tendons."""
    model = loaded(MODELS[name])
    rng = np.random.default_rng(0)
    u = rng.uniform(0.05, 0.4, len(model.actuators))
    for force in (ts.ActuatorForce(model, u), *ts.forces_from(model, actuators=False, friction=False)):
        testing.check_force(force, model, rng)


def test_limits_of_controls_and_forces() -> None:
    """Beyond them nothing depends on the controls, or on the state."""
    model = loaded(ARM)
    q, v = np.array([0.1, -0.2, 0.3, 0.02]), np.array([0.4, 0.1, -0.3, 0.2])
    at = ts.ActuatorForce(model, [0.1 + 0.4 * 0.1, 1.0, 0.5, 300.0])
    tau = ts.generalized_forces(model, [at], q, v)
    d = ts.generalized_forces_derivatives(model, [at], q, v)
    close(tau[1], 30.0)  # the limit of its force
    assert not d.dtau_dq[1].any() and not d.dtau_dv[1].any()
    close(tau[3], 2.0)
    g = ts.generalized_forces_vjp(model, [at], q, v, np.ones(4)).parameters[0]["p"]
    assert g[1] == 0 and g[2] == 35.0
    clipped = ts.ActuatorForce(model, [0.14, 1.0, 0.5, 255.0])
    assert np.array_equal(ts.generalized_forces(model, [clipped], q, v), tau)


def test_limits_of_joints() -> None:
    """The sum of the torques of all actuators is clipped at the limit of the joint, with its derivatives."""
    text = HAND.replace('name="t_1"', 'name="t_1" actuatorfrcrange="-0.05 0.05"')
    text = text.replace("<velocity", '<motor joint="t_1"/><velocity')
    mj = smooth(text)
    model, data = ts.load_mjcf(mj), mujoco.MjData(mj)
    q, v = np.zeros(model.nq), np.zeros(model.nv)
    at = model.joint("t_1").v_slice.start
    for u, clipped in ((0.01, False), (0.2, True), (-0.2, True)):
        controls = np.array([0.1, 0.2, 0.3, 0.4, u, 0.5])
        data.ctrl[:] = controls
        mujoco.mj_forward(mj, data)
        force = ts.ActuatorForce(model, controls)
        close(ts.generalized_forces(model, [force], q, v), data.qfrc_actuator, 1e-12)
        d = ts.generalized_forces_derivatives(model, [force], q, v)
        g = ts.generalized_forces_vjp(model, [force], q, v, np.ones(model.nv)).parameters[0]["p"]
        assert (d.dtau_dv[at, at] == 0) == (g[4] == 0) == clipped
    testing.check_force(ts.ActuatorForce(model, 0.01 * controls), model, np.random.default_rng(0))
    testing.check_force(ts.ActuatorForce(model, controls), model, np.random.default_rng(0))
    fixed = model.with_actuators([x for x in model.actuators if x.joint == "t_1"])
    with pytest.raises(ValueError, match=r"the torques of 'actuator4', 'actuator5' are no constant matrix"):
        ts.actuation(fixed)
    with pytest.raises(ValueError, match=r"the forces of 'actuator5' are limited"):
        ts.forces_from(fixed)


def test_an_actuator_on_the_world_does_nothing() -> None:
    text = CRANE.replace("<velocity", '<motor name="idle" site="top" gear="1 2 3"/><velocity')
    mj = smooth(text)
    model = ts.load_mjcf(mj)
    assert model.actuators[2].body == "world"
    passive = ts.forces_from(model, actuators=False)
    for data, q, v, u in states(mj, model, seed=2, count=2):
        close(accelerations(model, q, v, [*passive, ts.ActuatorForce(model, u)]), data.qacc, 1e-10)


# ---- the matrix of controls, and the bias


@pytest.mark.parametrize("name", ["cartpole", "hopper", "walker", "cheetah", "ant", "humanoid", "gripper", "machine"])
def test_bias_and_controls_add_up(name: str) -> None:
    mj = smooth(MODELS[name])
    model = ts.load_mjcf(mj)
    forces, B = ts.forces_from(model, friction=False), ts.actuation(model)
    assert B.shape == (model.nv, mj.nu)
    for data, q, v, u in states(mj, model, seed=1, count=2):
        a = accelerations(model, q, v, forces, B @ np.clip(u, *model.control_limits))
        close(a, data.qacc, 1e-10)


def test_what_is_no_matrix() -> None:
    with pytest.raises(ValueError, match=r"the torques of 'actuator2', 'actuator3' are no constant matrix"):
        ts.actuation(loaded(HAND))
    with pytest.raises(ValueError, match="has no actuators"):
        ts.actuation(ts.models.arm7())
    with pytest.raises(ValueError, match="has no actuators"):
        ts.ActuatorForce(ts.models.arm7())
    with pytest.raises(ValueError, match=r"the forces of 'actuator0', .* are limited.*actuators=False"):
        ts.forces_from(loaded(QUADRUPED))
    with pytest.raises(ValueError, match=r"controls has shape \(2,\), expected \(5,\)"):
        ts.ActuatorForce(loaded(QUADRUPED), [1, 2])


@pytest.mark.parametrize("integrator", [ts.BDF2(1e-2), ts.SDIRK3(1e-2), ts.Variational(1e-2)], ids=type)
def test_controls_in_simulations(integrator: ts.Integrator) -> None:
    """As controls through a matrix beside bias forces, or as signals of one force: the same motion and gradients."""
    model = loaded(WALKER)
    rng = np.random.default_rng(0)
    q, u = 0.1 * rng.standard_normal(model.nq), 0.2 * rng.standard_normal((8, 4))
    forces = ts.forces_from(model)
    one = ts.simulate(
        model, q, steps=8, integrator=integrator, forces=forces, controls=u, actuation=ts.actuation(model)
    )
    passive = ts.forces_from(model, actuators=False)
    other = ts.simulate(
        model, q, steps=8, integrator=integrator, forces=[*passive, ts.ActuatorForce(model)],
        signals=[*[None] * len(passive), {"p": u}],
    )  # fmt: skip
    close(one.q, other.q, 1e-10)
    w = rng.standard_normal(model.nv)
    a, b = ts.adjoint(one, dloss_dq=w), ts.adjoint(other, dloss_dq=w)
    assert b.signals is not None
    close(a.controls, b.signals[-1]["p"], 1e-8)
    close(a.q0, b.q0, 1e-8)


def test_a_servo_holds_in_one_long_step() -> None:
    """Stiff position servos are springs in the residual: an implicit step of many of their times is at the target."""
    model = replace(loaded(MODELS["machine"]), gravity=(0.0, 0.0, 0.0))
    stiff = [replace(a, gain=(1e7, 0, 0), bias=(0, -1e7, -1e4)) for a in model.actuators if a.joint in ("X", "Y")]
    model = model.with_actuators(stiff)
    u = np.array([0.2, 0.4])
    run = ts.simulate(
        model, model.neutral, steps=30, integrator=ts.SDIRK2(0.1), forces=ts.forces_from(model), controls=u,
        actuation=ts.actuation(model),
    )  # fmt: skip
    np.testing.assert_allclose(run.q[-1, [0, 1]], [0.2, 0.2], atol=1e-5)  # Y has a gear of 2


def test_actuators_and_tendons_of_coupled_models() -> None:
    """Forces act on the tree: those on followers reach the leaders."""
    tree = loaded(HAND).with_constraints(())
    model = tree.couple(
        ts.Mimic("f1_3", of="f1_2", ratio=0.7, offset=0.1), ts.Polynomial("t_2", "t_1", (0.0, 0.5, 0.3))
    )
    assert (tree.nv, model.nv) == (6, 4)
    rng = np.random.default_rng(0)
    q, v, u = rng.uniform(-0.5, 0.5, 4), rng.standard_normal(4), rng.uniform(0.05, 0.4, 5)
    forces = [*ts.forces_from(model, actuators=False, friction=False), ts.ActuatorForce(model, u)]
    whole = ts.generalized_forces(tree, forces, model.expand(q), model.expand_velocity(q, v))
    close(ts.generalized_forces(model, forces, q, v), model.coupling_jacobian(q).T @ whole, 1e-13)
    assert model.with_actuators(model.actuators, model.tendons) == model
    # the matrix of controls
    linear = tree.couple(ts.Mimic("f1_3", of="f1_2", ratio=0.7)).with_actuators(tree.actuators[:2])
    B = ts.actuation(linear)
    close(B[:, 1], 0.5 * np.array([0, 0, 1 - 0.8 * 0.7, 0, 0]))
    bent = model.with_actuators([ts.Actuator("m", joint="t_2")])
    with pytest.raises(ValueError, match="the torques of 'm' are no constant matrix"):
        ts.actuation(bent)
    # a simulation with controls, both ways, and its gradient
    u = rng.uniform(-0.1, 0.1, (6, 2))
    options = {"steps": 6, "integrator": ts.BDF2(5e-3)}
    one = ts.simulate(linear, forces=ts.forces_from(linear), actuation=B, controls=u, q0=np.zeros(5), **options)
    passive = ts.forces_from(linear, actuators=False)
    other = ts.simulate(
        linear, forces=[*passive, ts.ActuatorForce(linear)], signals=[*[None] * len(passive), {"p": u}],
        q0=np.zeros(5), **options,
    )  # fmt: skip
    close(one.q, other.q, 1e-10)
    w = rng.standard_normal(5)
    gradient = ts.adjoint(other, dloss_dq=w).signals
    assert gradient is not None
    close(ts.adjoint(one, dloss_dq=w).controls, gradient[-1]["p"], 1e-8)


def test_forces_are_shown_by_the_names_of_actuators() -> None:
    model = loaded(CRANE)
    shown = [repr(force) for force in ts.forces_from(model)]
    assert "ActuatorBias(hoist)" in shown
    assert repr(ts.ActuatorForce(model, [1, 2, 3.5])) == "ActuatorForce(hoist=1, actuator1=2, actuator2=3.5)"
    (spring,) = (f for f in ts.forces_from(loaded(HAND)) if isinstance(f, ts.TendonSpring) and len(f.joints) == 2 and
                 f.joints[0] == "f1_2")  # fmt: skip
    assert repr(spring) == "TendonSpring(1 f1_2 + -0.8 f1_3, stiffness=0.3, damping=0.01, rest=(0.1, 0.1))"
    bias = ts.ActuatorBias(model)
    assert repr(bias) == "ActuatorBias(hoist, actuator1, actuator2)" and bias.parameters == {}
    testing.check_force(bias, model, np.random.default_rng(0))


# ---- forces_from


def test_forces_of_a_model() -> None:
    model = loaded(HAND)
    kinds = [type(force).__name__ for force in ts.forces_from(model)]
    assert kinds[:2] == ["JointSpring", "JointFriction"]
    assert kinds.count("TendonSpring") == 2 and kinds.count("Cable") == 1
    assert ts.forces_from(ts.models.arm7()) == ()
    names = {type(f).__name__ for f in ts.forces_from(model, limits=100.0)}
    assert "CustomCable" in names  # of the tendon with a range
    assert ts.forces_from(model, springs=False, damping=False, friction=False, tendons=False, actuators=False) == ()
    hopper = loaded(MODELS["hopper"])
    limits = [f for f in ts.forces_from(hopper, limits=100.0, limit_damping=1.0) if isinstance(f, ts.JointLimits)]
    assert [f.joint for f in limits] == ["thigh_joint", "leg_joint", "foot_joint"]


def test_gravity_compensation() -> None:
    model = loaded(ARM)
    q = np.array([0.3, -0.4, 0.5, 0.01])
    tau = ts.generalized_forces(model, ts.forces_from(model, actuators=False), q, np.zeros(4))
    light = [replace(b, inertia=b.inertia if b.gravity_compensation else ts.Inertia.zero()) for b in model.bodies]
    weights = [b.gravity_compensation for b in model.bodies if b.gravity_compensation]
    assert weights == [1.0, 0.5]
    ours = np.zeros(4)
    for b in light:
        if b.gravity_compensation:
            alone = [replace(x, inertia=x.inertia if x.name == b.name else ts.Inertia.zero()) for x in light]
            ours += b.gravity_compensation * ts.gravity_forces(replace(model, bodies=tuple(alone)), q)
    close(tau, ours)


def test_charts_are_not_held_by_forces_on_other_joints() -> None:
    builder = ts.ModelBuilder()
    builder.add_body("a", joint=ts.SphericalExp(), inertia=ts.Inertia.sphere(0.1, mass=1.0))
    builder.add_body("b", "a", ts.Revolute(), inertia=ts.Inertia.sphere(0.1, mass=1.0), damping=0.1, stiffness=2.0)
    (force,) = ts.forces_from(builder.build())
    assert force.joint == "b"  # type: ignore[attr-defined]


# ---- records


def test_records_are_checked() -> None:
    model = ts.models.arm7()
    name = model.joints[0].name
    motor = ts.Actuator("m", joint=name)
    assert model.with_actuators([motor]).actuators == (motor,)
    with pytest.raises(ts.ModelError, match="two actuators named 'm'"):
        model.with_actuators([motor, motor])
    with pytest.raises(KeyError, match="nowhere"):
        model.with_actuators([ts.Actuator("m", joint="nowhere")])
    with pytest.raises(ts.ModelError, match="pulls tendon 'rope'; tendons are none"):
        model.with_actuators([ts.Actuator("m", tendon="rope")])
    with pytest.raises(ts.ModelError, match="expected one of them"):
        ts.Actuator("m", joint=name, body="x")
    with pytest.raises(ts.ModelError, match="lower 2 above upper 1"):
        ts.Actuator("m", joint=name, control_limits=(2, 1))
    with pytest.raises(ts.ModelError, match="at least two points"):
        ts.Tendon("t", bodies=("x",), points=((0, 0, 0),))
    with pytest.raises(ts.ModelError, match="must be 3 finite numbers"):
        ts.Actuator("m", joint=name, gain=(1, 2))


def test_records_are_shown() -> None:
    """Without defaults; and by one line each in the text of the model."""
    model = loaded(CRANE)
    hoist = "Actuator('hoist', tendon='luffing', gain=(300.0, 0.0, 0.0), bias=(0.0, -300.0, -30.0))"
    assert repr(model.actuators[0]) == hoist
    assert repr(ts.Tendon("t", ("a",), (1.0,))) == "Tendon('t', joints=('a',), coefficients=(1.0,))"
    lines = str(model).splitlines()
    assert lines[-3:] == [
        "actuator hoist on tendon 'luffing'",
        "actuator actuator1 on joint 'slew'",
        "actuator actuator2 on joint 'travel'",
    ]
    assert "tendon guy" in lines


def test_locking_keeps_what_still_moves() -> None:
    model = loaded(CRANE)
    locked = model.lock({"travel": 0.4})
    assert [a.name for a in locked.actuators] == ["hoist", "actuator1"]
    q = np.array([0.1, -0.2, 0.3, 0.2])
    whole = np.insert(q, 2, 0.4)
    forces = [ts.forces_from(m, actuators=False, damping=False, springs=False) for m in (locked, model)]
    tau = [ts.generalized_forces(m, f, x, 0 * x) for m, f, x in zip((locked, model), forces, (q, whole), strict=True)]
    close(tau[0], np.delete(tau[1], 2))


def test_editing_keeps_what_belongs_to_the_bodies() -> None:
    model = loaded(CRANE)
    assert [t.name for t in model.subtree("boom").tendons] == ["guy"]
    assert [a.name for a in model.without("trolley").actuators] == ["hoist", "actuator1"]
    both = ts.models.arm7().attach(model, at="world", prefix="x/")
    assert [t.name for t in both.tendons] == ["x/luffing", "x/guy"]
    q = np.array([0.1, -0.2, 0.3, 0.2, 0.1])
    arm = both.nq - model.nq
    tau = ts.generalized_forces(
        both, ts.forces_from(both, actuators=False), np.insert(q, 0, [0.0] * arm), [0.0] * both.nv
    )
    close(tau[arm:], ts.generalized_forces(model, ts.forces_from(model, actuators=False), q, 0 * q))


def test_armature_is_a_parameter_of_the_model() -> None:
    model = loaded(CRANE)
    other = model.with_parameters(armature=model.parameters.armature + 1.0)
    close(other.armature, model.armature + 1.0)
    x = model.parameter_vector(names=("armature", "gravity"))
    assert model.with_parameter_vector(x, names=("armature", "gravity")) == model


# ---- writing


@pytest.mark.parametrize("name", MODELS)
def test_written_models_are_the_same(name: str) -> None:
    """MuJoCo's accelerations of the file that is written are those of the model; and it is read again."""
    model = loaded(MODELS[name])
    text = ts.to_mjcf(model)
    mj, again = smooth(text), ts.load_mjcf(text)
    assert [b.name for b in again.bodies] == [b.name for b in model.bodies]
    assert [j.name for j in again.joints if j.nv] == [j.name for j in model.joints if j.nv]
    assert len(again.constraints) == len(model.constraints) and [*again.keyframes] == [*model.keyframes]
    passive = ts.forces_from(model, friction=False, actuators=False)
    for data, q, v, u in states(mj, model, seed=3, count=2):
        close(accelerations(model, q, v, [*passive, ts.ActuatorForce(model, u)]), data.qacc, 1e-10)
    for numbers in ("armature", "damping", "stiffness", "rest", "dry_friction"):
        close(getattr(again, numbers), getattr(model, numbers))


def test_chains_of_factors_are_written(tmp_path) -> None:
    rng = np.random.default_rng(0)
    builder = ts.ModelBuilder("chains", gravity=(0.1, 0.2, -9.81))
    joints = [ts.Universal(), ts.SphericalEuler("ZYX"), ts.Planar(), ts.Cylindrical((1, 2, 3)), ts.Free2D()]
    for k, joint in enumerate(joints):
        parent = f"b{k - 1}" if k else "world"
        armature = testing.random_armature(rng, joint)
        builder.add_body(
            f"b{k}", parent, joint, testing.random_pose(rng), testing.random_inertia(rng), armature=armature
        )
    builder.add_body("tip", "b4", ts.Fixed(), testing.random_pose(rng))
    builder.add_constraint(ts.Coupling([("b0", 0), ("b3", 1)], [1.0, -2.0], offset=0.1, name="c"))
    builder.add_constraint(ts.PolynomialCoupling(("b2", 0), ("b2", 1), [0.1, 0.2, 0.3], center=0.5))
    builder.add_constraint(ts.Loop("b1", "b3", ts.Spherical(), testing.random_pose(rng), testing.random_pose(rng)))
    model = builder.build()
    again = ts.load_mjcf(ts.to_mjcf(model, tmp_path / "m.xml"))
    assert ts.load_mjcf(tmp_path / "m.xml") == again
    q, (v, a) = model.random(rng), rng.standard_normal((2, model.nv))
    close(ts.inverse_dynamics(again, q, v, a), ts.inverse_dynamics(model, q, v, a), 1e-11)
    close(ts.body_poses(again, q)[-1], ts.body_poses(model, q)[-1], 1e-11)
    errors = [ts.constraint_errors(m, m.constraints, q) for m in (model, again)]
    close(errors[1], errors[0], 1e-11)


@pytest.mark.parametrize("name", ["hand", "crane", "humanoid"])
def test_writing_again_adds_nothing(name: str) -> None:
    text = ts.to_mjcf(loaded(MODELS[name]))
    again = loaded(text)
    assert ts.to_mjcf(again).count("<geom") == text.count("<geom")
    assert len(again.tendons) == len(loaded(ts.to_mjcf(again)).tendons)
    assert [len(b.visuals) for b in again.bodies] == [len(b.visuals) for b in loaded(MODELS[name]).bodies]


def test_what_cannot_be_written() -> None:
    builder = ts.ModelBuilder()
    rod = ts.Inertia.point(1.0, (0, 0, -1))
    builder.add_body("a", joint=ts.Screw(pitch=0.1), inertia=rod)
    builder.add_body("b", "a", ts.Free(), inertia=ts.Inertia.sphere(0.1, mass=1.0))
    builder.add_body("c", "b", ts.Revolute(), inertia=ts.Inertia.sphere(0.1, mass=1.0), velocity_limits=1.0)
    with pytest.raises(ts.ModelError) as caught:
        ts.to_mjcf(builder.build())
    for part in (
        "joint 'a' is Screw",
        "'a' moves and has the principal moments",
        "joint 'b' is free",
        "velocity limits",
    ):
        assert part in str(caught.value)
    builder = ts.ModelBuilder()
    builder.add_body("c", joint=ts.Revolute(), inertia=ts.Inertia.sphere(0.1, mass=1.0), velocity_limits=1.0)
    with pytest.raises(ts.ModelError, match=r"velocity limits of joint 'c'; .*unsupported='warn'"):
        ts.to_mjcf(builder.build())
    held = builder.build().with_body("c", position_limits=(0.5, 0.5), velocity_limits=(np.inf,))
    with pytest.raises(ts.ModelError, match=r"limits of joint 'c', which leave one position"):
        ts.to_mjcf(held)
    with pytest.warns(UserWarning, match="left out of the MJCF.*velocity limits"):
        assert mujoco.MjModel.from_xml_string(ts.to_mjcf(builder.build(), unsupported="warn")).nv == 1
