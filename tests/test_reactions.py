"""Derivatives of joint reactions: complex steps, transposes, and the torques that the reactions contain."""

import numpy as np
import pytest
from compare import along_q, close
from hypothesis import given, settings
from hypothesis import strategies as st
from population import FRAMES, JOINTS, deep_tree, mixed_tree, models, moved_by, state, sweep, wrenches

import torsor as ts
from torsor import testing
from torsor.testing import complex_step

over_models = pytest.mark.parametrize("model", sweep(models(seed=8), 5))
over_wrenches = pytest.mark.parametrize("frame", [None, *FRAMES])


def check(model, q, v, a, **more):
    d = ts.joint_reactions_derivatives(model, q, v, a, **more)
    assert type(d) is ts.derivatives.JointReactionsDerivatives
    close(d.dF_dq, along_q(lambda q: ts.joint_reactions(model, q, v, a, **more), model, q))
    close(d.dF_dv, complex_step(lambda v: ts.joint_reactions(model, q, v, a, **more), v))
    close(d.dF_da, complex_step(lambda a: ts.joint_reactions(model, q, v, a, **more), a))
    return d


# ---- against complex steps of the function


@over_models
@over_wrenches
def test_matrices(model, frame):
    q, v, a, _, f = state(model)
    check(model, q, v, a, **wrenches(f, frame))


@settings(max_examples=30, deadline=None, derandomize=True, print_blob=False)
@given(st.lists(st.integers(0, len(JOINTS)), min_size=1, max_size=9), st.integers(0, 2**16), st.sampled_from(FRAMES))
def test_drawn_trees(joints, seed, frame):
    model = testing.random_tree(seed, [(*JOINTS, ts.Fixed())[k] for k in joints])
    q, v, a, _, f = state(model, seed)
    check(model, q, v, a, f_ext=f, f_ext_frame=frame)


def test_entries_between_branches_are_zero():
    """A reaction depends on the joints between the world and its body, and on those that the body carries."""
    model = mixed_tree()
    q, v, a, _, f = state(model)
    d = check(model, q, v, a, f_ext=f, f_ext_frame="world")
    moves = moved_by(model)
    index = {body.name: k for k, body in enumerate(model.bodies)}
    related = moves.copy()
    for i, body in enumerate(model.bodies):
        while body.parent != "world":
            body = model.body(body.parent)
            related[index[body.name], model.joint(model.bodies[i].name).v_slice] = True
    assert related[index["post"], model.joint("gate").v_slice].all() and not related.all()
    for matrix in d:
        assert not np.moveaxis(matrix, 1, -1)[~related].any()
        assert np.moveaxis(matrix, 1, -1)[related].any()


@over_models
def test_the_torques_are_those_of_inverse_dynamics(model):
    """tau = S^T F of each joint, less what its drive takes, and so for derivatives where S does not depend on q."""
    q, v, a, _, f = state(model)
    more = {"f_ext": f, "f_ext_frame": "local_world_aligned"}
    d = ts.joint_reactions_derivatives(model, q, v, a, **more)
    whole = ts.inverse_dynamics_derivatives(model, q, v, a, **more)
    F = ts.joint_reactions(model, q, v, a, **more)
    for j, body in zip(model.joints, range(model.nbodies), strict=True):
        if not j.nv:
            continue
        S = j.joint.S(q[j.q_slice])
        close(S.T @ d.dF_dv[body], whole.dtau_dv[j.v_slice])
        close(S.T @ d.dF_da[body], (whole.dtau_da - np.diag(model.armature))[j.v_slice])
        by_q = S.T @ d.dF_dq[body]
        by_q[:, j.v_slice] += np.einsum("ijk,i->jk", j.joint.dS(q[j.q_slice]), F[body])
        close(by_q, whole.dtau_dq[j.v_slice])


# ---- the products


@over_models
@over_wrenches
def test_products_are_those_of_the_matrices(model, frame):
    q, v, a, _, f = state(model)
    rng = np.random.default_rng(1)
    w = rng.standard_normal((model.nbodies, 6))
    dq, dv, da = rng.standard_normal((3, model.nv))
    more = wrenches(f, frame)
    d = ts.joint_reactions_derivatives(model, q, v, a, **more)
    g = ts.joint_reactions_vjp(model, q, v, a, w, **more)
    assert type(g) is ts.derivatives.JointReactionsVJP
    for x, y in zip(g[:3], d, strict=True):
        close(x, np.einsum("ij,ijk->k", w, y))
    t = ts.joint_reactions_jvp(model, q, v, a, dq=dq, dv=dv, da=da, **more)
    assert type(t) is ts.derivatives.JointReactionsJVP
    close(t.F, ts.joint_reactions(model, q, v, a, **more))
    close(t.dF, d.dF_dq @ dq + d.dF_dv @ dv + d.dF_da @ da)


@over_models
@pytest.mark.parametrize("frame", FRAMES)
def test_wrenches(model, frame):
    q, v, a, _, f = state(model)
    w = np.random.default_rng(1).standard_normal(f.shape)
    value = lambda x: np.sum(w * ts.joint_reactions(model, q, v, a, f_ext=x.reshape(f.shape), f_ext_frame=frame))  # noqa: E731
    g = ts.joint_reactions_vjp(model, q, v, a, w, f_ext=f, f_ext_frame=frame)
    close(g.f_ext, complex_step(value, f.ravel()).reshape(f.shape))
    assert np.array_equal(g.f_ext, ts.joint_reactions_vjp(model, q, v, a, w, f_ext_frame=frame).f_ext)


@pytest.mark.parametrize("frame", FRAMES)
def test_parameters_of_the_model(frame):
    """Each by itself, of every body; those that are fixed to the world too, which have reactions."""
    model = mixed_tree()
    q, v, a, _, f = state(model)
    w = np.random.default_rng(1).standard_normal(f.shape)
    more = {"f_ext": f, "f_ext_frame": frame}
    g = ts.joint_reactions_vjp(model, q, v, a, w, **more)

    def along(**direction):
        rate = ts.joint_reactions_jvp(model, q, v, a, model_direction=ts.ModelDirection(**direction), **more).dF
        return np.sum(w * rate)

    close(g.gravity, [along(gravity=e) for e in np.eye(3)])
    for kind in ("inertia", "placement"):
        gradient = getattr(g, kind)
        assert gradient.any(axis=1).all()
        unit = np.eye(gradient.shape[1])
        close(gradient, [[along(**{kind: {b.name: e}}) for e in unit] for b in model.bodies])


def test_parameters_of_a_deep_tree():
    """All at once: <w, J d> = <J^T w, d>."""
    model = deep_tree()
    q, v, a, _, f = state(model)
    rng = np.random.default_rng(1)
    w = rng.standard_normal(f.shape)
    parts = {
        "inertia": rng.standard_normal((model.nbodies, 10)),
        "placement": rng.standard_normal((model.nbodies, 6)),
        "gravity": rng.standard_normal(3),
    }
    names = [b.name for b in model.bodies]
    direction = {k: x if k == "gravity" else dict(zip(names, x, strict=True)) for k, x in parts.items()}
    g = ts.joint_reactions_vjp(model, q, v, a, w, f_ext=f)
    t = ts.joint_reactions_jvp(model, q, v, a, model_direction=ts.ModelDirection(**direction), f_ext=f)
    terms = [getattr(g, k) * x for k, x in parts.items()]
    size = np.abs(w * t.dF).sum() + sum(np.abs(x).sum() for x in terms)
    assert abs(np.sum(w * t.dF) - sum(x.sum() for x in terms)) <= 1e-12 * size


def test_of_one_joint_alone_they_are_those_of_inverse_dynamics():
    """Weights S on the wrench of a joint give its torque."""
    model = ts.models.quadruped()
    q, v, a, _, _ = state(model)
    w = np.zeros((model.nbodies, 6))
    j = model.joint("front_left_calf")
    w[[b.name for b in model.bodies].index(j.body)] = j.joint.S(q[j.q_slice])[:, 0]
    unit = np.zeros(model.nv)
    unit[j.v_slice] = 1.0
    found, expected = ts.joint_reactions_vjp(model, q, v, a, w), ts.inverse_dynamics_vjp(model, q, v, a, unit)
    for name in set(found._fields) - {"armature"}:
        close(getattr(found, name), getattr(expected, name))
    assert not found.armature.any()
