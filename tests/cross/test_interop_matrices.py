"""Mass matrices, Jacobians and derivatives in the conventions of Pinocchio and MuJoCo, against theirs."""

import mujoco
import numpy as np
import pinocchio as pin
import pytest
from compare import to_within

import torsor as ts
from torsor import testing
from torsor.derivatives import ForwardDynamicsDerivatives, InverseDynamicsDerivatives
from torsor.interop import convert_derivatives, convert_jacobian, convert_matrix, from_mujoco, to_mujoco, to_pinocchio

close = to_within(1e-10)
XML = """
<mujoco><option gravity="1 -2 -9"/><worldbody>
  <body name="base" pos="0 0 1"><freejoint name="base"/><geom type="box" size=".1 .2 .3" pos=".1 0 0"/>
    <body name="ball" pos=".3 .1 0"><joint name="ball" type="ball"/><geom size=".1" pos=".2 .1 .1"/>
      <body name="hinge" pos=".1 .2 0"><joint name="hinge" axis="1 1 0"/><geom size=".1" pos=".2 0 .1"/></body>
    </body>
    <body name="slide" pos="-.3 0 0"><joint name="slide" type="slide" axis="0 1 1"/><geom size=".2"/></body>
  </body>
</worldbody></mujoco>
"""


def random_tree(seed):
    """The same tree in both libraries, of joints with other velocities there among others, depth first."""
    rng = np.random.default_rng(seed)
    joints = [
        (ts.Free(), pin.JointModelFreeFlyer()),
        (ts.Revolute((0, 1, 0)), pin.JointModelRY()),
        (ts.Free2D(), pin.JointModelPlanar()),  # there v is in the child's frame
        (ts.Spherical(), pin.JointModelSpherical()),
        (ts.Prismatic((1, 0, 0)), pin.JointModelPX()),
    ]
    builder, theirs = ts.ModelBuilder(gravity=(1, 2, -9)), pin.Model()
    theirs.gravity.linear = np.array([1.0, 2, -9])
    path = [("world", 0)]
    for k in rng.permutation(5):
        path = path[: 1 + rng.integers(len(path))] if rng.uniform() < 0.4 else path
        parent, index = path[-1]
        pose, inertia = testing.random_pose(rng), testing.random_inertia(rng)
        builder.add_body(f"b{k}", parent, joints[k][0], pose, inertia)
        joint = theirs.addJoint(index, joints[k][1], pin.SE3(pose.R, pose.p), f"b{k}")
        theirs.appendBodyToJoint(joint, pin.Inertia(inertia.mass, inertia.com, inertia.I_com), pin.SE3.Identity())
        path.append((f"b{k}", joint))
    return builder.build(), theirs


def both(d, back):
    for x, y in zip(d, back, strict=True):
        np.testing.assert_allclose(x, y, atol=1e-10 * np.abs(y).max())


@pytest.mark.parametrize("seed", range(8))
def test_pinocchio(seed):
    model, theirs = random_tree(seed)
    rng = np.random.default_rng(seed)
    q = model.random(rng)
    v, a = rng.standard_normal((2, model.nv))
    tau = ts.inverse_dynamics(model, q, v, a)
    q_, v_, a_, tau_ = to_pinocchio(model, q, v, a, tau, order=theirs)
    data, options = theirs.createData(), {"to": "pinocchio", "order": theirs}
    pin.crba(theirs, data, q_)
    M = np.triu(data.M) + np.triu(data.M, 1).T
    ours = ts.mass_matrix(model, q)
    close(convert_matrix(model, q, ours, **options), M)
    close(convert_matrix(model, q, M, source="pinocchio", order=theirs), ours)
    joint = theirs.njoints - 1
    J = pin.computeJointJacobian(theirs, data, q_, joint)
    own = ts.jacobian(model, q, theirs.names[joint])
    close(convert_jacobian(model, q, own, **options), J)
    close(convert_jacobian(model, q, J, source="pinocchio", order=theirs), own)
    center = pin.jacobianCenterOfMass(theirs, data, q_)
    close(convert_jacobian(model, q, ts.center_of_mass_jacobian(model, q), **options), center)
    pin.computeRNEADerivatives(theirs, data, q_, v_, a_)
    d = ts.inverse_dynamics_derivatives(model, q, v, a)
    made = convert_derivatives(model, d, q, v, a, tau, **options)
    close(made.dtau_dq, data.dtau_dq)
    close(made.dtau_dv, data.dtau_dv)
    close(made.dtau_da, M)
    both(convert_derivatives(model, made, q, v, a, tau, source="pinocchio", order=theirs), d)
    pin.computeABADerivatives(theirs, data, q_, v_, tau_)
    d = ts.forward_dynamics_derivatives(model, q, v, tau)
    made = convert_derivatives(model, d, q, v, a, tau, **options)
    close(made.da_dq, data.ddq_dq)
    close(made.da_dv, data.ddq_dv)
    both(convert_derivatives(model, made, q, v, a, tau, source="pinocchio", order=theirs), d)


def test_mujoco():
    theirs = mujoco.MjModel.from_xml_string(XML)
    model = ts.load_mjcf(theirs)
    rng = np.random.default_rng(1)
    q = model.random(rng)
    v, a = rng.standard_normal((2, model.nv))
    tau = ts.inverse_dynamics(model, q, v, a)
    data = mujoco.MjData(theirs)
    data.qpos[:], data.qvel[:], data.qacc[:] = to_mujoco(model, q, v, a)
    mujoco.mj_forward(theirs, data)
    data.qacc[:] = to_mujoco(model, q, v, a)[2]
    M = np.zeros((model.nv, model.nv))
    for row, unit in zip(M, np.eye(model.nv), strict=True):
        mujoco.mj_mulM(theirs, data, row, unit)
    close(convert_matrix(model, q, ts.mass_matrix(model, q), to="mujoco"), M)
    jacp, jacr = np.zeros((2, 3, model.nv))
    mujoco.mj_jacBody(theirs, data, jacp, jacr, theirs.body("hinge").id)
    own = ts.jacobian(model, q, "hinge", frame="local_world_aligned")
    close(convert_jacobian(model, q, own, to="mujoco"), np.concatenate([jacp, jacr]))
    close(convert_jacobian(model, q, np.concatenate([jacp, jacr]), source="mujoco"), own)
    d = ts.inverse_dynamics_derivatives(model, q, v, a)
    made = convert_derivatives(model, d, q, v, a, tau, to="mujoco")
    Dq, Dv, Da = (np.zeros((model.nv, model.nv)) for _ in range(3))
    mujoco.mjd_inverseFD(theirs, data, 1e-6, 0, Dq, Dv, Da, None, None, None, None)  # rows are directions
    for ours, finite in zip(made, (Dq.T, Dv.T, Da.T), strict=True):
        np.testing.assert_allclose(ours, finite, atol=2e-5 * np.abs(finite).max())
    both(convert_derivatives(model, made, q, v, a, tau, source="mujoco"), d)


@pytest.mark.parametrize("inverse", [True, False])
def test_derivatives_of_mujoco_are_those_of_converted_functions(inverse):
    """By complex steps of ours between states of theirs, in directions of their velocities."""
    model = ts.load_mjcf(XML)
    rng = np.random.default_rng(2)
    q = model.random(rng)
    v, a = rng.standard_normal((2, model.nv))
    tau = ts.inverse_dynamics(model, q, v, a)
    q_, v_, a_, tau_ = to_mujoco(model, q, v, a, tau)
    given = a_ if inverse else tau_

    def theirs(dq, v_, given):
        """Their function at q moved along their velocities dq, first order."""
        back = from_mujoco(model, q_, dq)[1]
        at = model.plus(q, back)
        position = to_mujoco(model, at)
        if inverse:
            _, ours_v, ours_a = from_mujoco(model, position, v_, given)
            out = ts.inverse_dynamics(model, at, ours_v, ours_a)
            return to_mujoco(model, at, None, None, out)[1]
        _, ours_v, force = from_mujoco(model, position, v_, None, given)
        return to_mujoco(model, at, ours_v, ts.forward_dynamics(model, at, ours_v, force))[2]

    zero = np.zeros(model.nv)
    steps = (
        ts.testing.complex_step(lambda x: theirs(x, v_, given), zero),
        ts.testing.complex_step(lambda x: theirs(zero, x, given), v_),
        ts.testing.complex_step(lambda x: theirs(zero, v_, x), given),
    )
    functions = (ts.inverse_dynamics_derivatives, ts.forward_dynamics_derivatives)
    d = functions[0](model, q, v, a) if inverse else functions[1](model, q, v, tau)
    assert isinstance(d, InverseDynamicsDerivatives if inverse else ForwardDynamicsDerivatives)
    for made, exact in zip(convert_derivatives(model, d, q, v, a, tau, to="mujoco"), steps, strict=True):
        close(made, exact)


def test_batches_and_wrong_arguments():
    model = ts.load_mjcf(XML)
    q = model.random(0, (4,))
    M = ts.mass_matrix(model, q)
    made = convert_matrix(model, q, M, to="mujoco")
    for k in range(4):
        close(made[k], convert_matrix(model, q[k], M[k], to="mujoco"))
    with pytest.raises(ValueError, match="expected 'pinocchio' or 'mujoco' for one of both"):
        convert_matrix(model, q, M)
    with pytest.raises(ValueError, match="expected 'pinocchio' or 'mujoco' for one of both"):
        convert_matrix(model, q, M, to="drake")
    with pytest.raises(ValueError, match=r"J has shape \(4, 11\)"):
        convert_jacobian(model, q[0], np.zeros((4, model.nv)), to="mujoco")
    with pytest.raises(TypeError, match="got tuple"):
        convert_derivatives(model, (M[0],) * 3, q[0], *np.zeros((3, model.nv)), to="mujoco")
