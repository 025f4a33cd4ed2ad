"""Derivatives of twists, accelerations, Jacobians and momentum against complex steps of the functions."""

import numpy as np
import pytest
from compare import along_q, arrays_of, close
from functions import VARIANTS
from population import FRAMES, JOINTS, Own, models, moved_by, state

import torsor as ts
from torsor import testing
from torsor.spatial import hat6
from torsor.testing import complex_step

over_models = pytest.mark.parametrize("model", models(seed=3))
KINEMATIC = [name for name, f in VARIANTS.items() if f.function.__module__ == "torsor.derivatives.kinematics"]


# ---- against the functions


@over_models
@pytest.mark.parametrize("frame", FRAMES)
def test_velocities(model, frame):
    q, v, *_ = state(model)
    d = ts.body_velocities_derivatives(model, q, v, frame=frame)
    close(d.dV_dq, along_q(lambda q: ts.body_velocities(model, q, v, frame=frame), model, q))
    close(d.dV_dv, complex_step(lambda v: ts.body_velocities(model, q, v, frame=frame), v))
    for i, body in enumerate(model.bodies):
        close(d.dV_dv[i], ts.jacobian(model, q, body.name, frame=frame))


@over_models
@pytest.mark.parametrize("frame", FRAMES)
def test_accelerations(model, frame):
    q, v, a, *_ = state(model)
    d = ts.body_accelerations_derivatives(model, q, v, a, frame=frame)
    close(d.dA_dq, along_q(lambda q: ts.body_accelerations(model, q, v, a, frame=frame), model, q))
    close(d.dA_dv, complex_step(lambda v: ts.body_accelerations(model, q, v, a, frame=frame), v))
    close(d.dA_da, complex_step(lambda a: ts.body_accelerations(model, q, v, a, frame=frame), a))


@over_models
def test_poses_move_with_the_columns_of_the_jacobian(model):
    """What the module's docstring says in place of a function."""
    q, v, *_ = state(model)
    dT = along_q(lambda q: ts.body_poses(model, q), model, q)
    J = ts.body_velocities_derivatives(model, q, v).dV_dv
    T = ts.body_poses(model, q)
    for k in range(model.nv):
        close(dT[..., k], np.stack([T[i] @ hat6(J[i, :, k]) for i in range(model.nbodies)]))


@over_models
def test_maximal_jacobian(model):
    q, v, *_ = state(model)
    d = ts.maximal_jacobian_derivatives(model, q, v)
    close(d.dJ_dq, along_q(lambda q: ts.maximal_jacobian(model, q), model, q))
    close(d.Jdot, ts.maximal_jacobian_dot(model, q, v))
    close(d.Jdot, d.dJ_dq @ v)
    close(d.dJdot_dq, along_q(lambda q: ts.maximal_jacobian_dot(model, q, v), model, q))
    close(d.dJ_dq, complex_step(lambda v: ts.maximal_jacobian_dot(model, q, v), v))


@over_models
def test_point_hessian(model):
    q, *_ = state(model)
    body, point = model.bodies[-1].name, np.array([0.3, -0.2, 0.5])
    H = ts.point_hessian(model, q, body, point)
    close(H, along_q(lambda q: ts.point_jacobian(model, q, body, point), model, q))
    names = [body.name for body in model.bodies]
    points = np.random.default_rng(1).standard_normal((len(names), 3))
    many = ts.point_hessian(model, q, names, points)
    close(many, along_q(lambda q: ts.point_jacobian(model, q, names, points), model, q))
    # Symmetric, but for two directions of one joint whose directions do not commute.
    skew = np.abs(many - np.swapaxes(many, -1, -2)).max(axis=(0, 1))
    for joint in model.joints:
        lie = (joint.joint, *getattr(joint.joint, "joints", ()))
        if any(isinstance(part, (ts.Spherical, ts.Free)) for part in lie):
            skew[joint.v_slice, joint.v_slice] = 0
    close(skew / max(1.0, np.abs(many).max()), np.zeros_like(skew))


@over_models
@pytest.mark.parametrize("about", ["com", "world"])
def test_momentum(model, about):
    q, v, a, *_ = state(model)
    d = ts.momentum_derivatives(model, q, v, a, about=about)
    close(d.dh_dq, along_q(lambda q: ts.momentum(model, q, v, about=about), model, q))
    close(d.dh_dv, ts.momentum_matrix(model, q, about=about))

    def rate(q, v):
        d = ts.momentum_derivatives(model, q, v, about=about)
        return d.dh_dq @ v + d.dh_dv @ a

    close(d.dhdot_dq, along_q(lambda q: rate(q, v), model, q))
    close(d.dhdot_dv, complex_step(lambda v: rate(q, v), v))


def test_rate_of_momentum_is_the_wrench_on_the_base():
    """About the world's origin hdot is the wrench of inertial forces, as a free base's torques are."""
    free = testing.random_tree(5, [ts.Free(), *(JOINTS[k] for k in (1, 12, 13, 19))], branching=0.0)
    q, v, a, *_ = state(free)
    d = ts.momentum_derivatives(free, q, v, a, about="world")
    hdot = d.dh_dq @ v + d.dh_dv @ a
    held = ts.inverse_dynamics(free, q, v, a) - ts.gravity_forces(free, q)
    J = ts.jacobian(free, q, "body0", frame="world")[:, :6]
    close(J.T @ hdot, held[:6])


@pytest.mark.parametrize("name", KINEMATIC)
def test_joints_of_the_users_own(name):
    f, joint = VARIANTS[name], ts.SphericalExp()
    built_in, own = (testing.random_tree(6, [JOINTS[1], j, JOINTS[5]], branching=0.0) for j in (joint, Own(joint)))
    arrays = f.arguments(built_in)
    for x, y in zip(arrays_of(f(own, *arrays)), arrays_of(f(built_in, *arrays)), strict=True):
        close(x, y)


# ---- closed forms


def test_pendulum():
    """A point at distance L on a revolute joint: p = L (cos q, sin q, 0)."""
    builder = ts.ModelBuilder()
    builder.add_body("rod", "world", ts.Revolute((0, 0, 1)), inertia=ts.Inertia.point(2.0, (1.5, 0, 0)))
    model = builder.build()
    q, v, a = np.array([0.7]), np.array([1.3]), np.array([-0.4])
    c, s = np.cos(q[0]), np.sin(q[0])
    H = ts.point_hessian(model, q, "rod", (1.5, 0, 0))
    close(H[:, 0, 0], -1.5 * np.array([c, s, 0]))
    d = ts.momentum_derivatives(model, q, v, a)
    close(d.dh_dq[:, 0], 2.0 * 1.5 * v[0] * np.array([0, 0, 0, -c, -s, 0]))
    close(d.dhdot_dv[:, 0], 2.0 * 1.5 * 2 * v[0] * np.array([0, 0, 0, -c, -s, 0]))
    assert not ts.maximal_jacobian_derivatives(model, q, v).dJ_dq.any()


def test_free_body_turns_do_not_commute():
    builder = ts.ModelBuilder()
    builder.add_body("top", "world", ts.Spherical(), inertia=ts.Inertia.point(1.0, (0, 0, 1)))
    model = builder.build()
    H = ts.point_hessian(model, model.neutral, "top", (1.0, 0, 0))
    x = np.array([1.0, 0, 0])
    # J[:, j] = e_j x p, and turning by e_k turns both: the column becomes e_k x (e_j x p).
    expected = np.stack([np.stack([np.cross(k, np.cross(j, x)) for k in np.eye(3)], -1) for j in np.eye(3)], -2)
    close(H, expected)
    assert np.abs(H - np.swapaxes(H, -1, -2)).max() > 0.5


# ---- zeros


def test_structural_zeros_are_exact():
    joints = [JOINTS[k] for k in (1, 12, 13, 14, 16, 19, 20, 5)]
    model = testing.random_tree(11, [ts.Fixed(), *joints, ts.Fixed(), ts.Fixed()], branching=0.3)
    q, v, a, *_ = state(model)
    nv = model.nv
    moves = moved_by(model)
    assert not moves.all()
    assert moves.any()
    arrays = [
        *ts.body_velocities_derivatives(model, q, v),
        *ts.body_accelerations_derivatives(model, q, v, a, frame="world"),
        *ts.body_accelerations_derivatives(model, q, v, a, frame="local_world_aligned"),
    ]
    for x in arrays:
        assert not x[np.broadcast_to(~moves[:, None, :], x.shape)].any()
    d = ts.maximal_jacobian_derivatives(model, q, v)
    pairs = moves[:, :, None] & moves[:, None, :]
    for x in (d.dJ_dq, d.dJdot_dq):
        x = x.reshape(model.nbodies, 6, nv, nv)
        assert not x[np.broadcast_to(~pairs[:, None], x.shape)].any()
        # Columns of a joint do not change, in the frames of the bodies that they move, along joints above it.
        for body in model.bodies:
            joint = model.joint(body.name)
            while body.parent != "world":
                body = model.body(body.parent)
                assert not x[:, :, joint.v_slice, model.joint(body.name).v_slice].any()
    H = ts.point_hessian(model, q, [b.name for b in model.bodies], np.ones((model.nbodies, 3)))
    assert not H[np.broadcast_to(~pairs[:, None], H.shape)].any()


# ---- velocities and accelerations that may be left out


def test_what_needs_more_than_is_given_is_none():
    model = ts.models.quadruped()
    q, v, a, *_ = state(model)
    rest, full = ts.maximal_jacobian_derivatives(model, q), ts.maximal_jacobian_derivatives(model, q, v)
    assert rest.Jdot is None and rest.dJdot_dq is None
    assert np.array_equal(rest.dJ_dq, full.dJ_dq)
    h = ts.momentum_derivatives(model, q, v)
    assert h.dhdot_dq is None and h.dhdot_dv is None
    assert np.array_equal(h.dh_dq, ts.momentum_derivatives(model, q, v, a).dh_dq)
    with pytest.raises(TypeError, match=r"a is missing, expected an array of shape"):
        ts.momentum_derivatives(model, q, v, outputs=["dhdot_dq"])
    with pytest.raises(TypeError, match=r"v is missing, expected an array of shape"):
        ts.maximal_jacobian_derivatives(model, q, outputs=["Jdot"])
