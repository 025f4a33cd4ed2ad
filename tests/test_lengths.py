"""The lengths of axes and quaternions do not matter.

An axis counts as its direction, a quaternion of any length but zero as its rotation, and derivatives are those at the
normalised state. Functions of q are in `test_contract.py`.
"""

import numpy as np
import pytest
from compare import arrays_of, close
from functions import VARIANTS
from population import longer, sweep

import torsor as ts
from torsor import interop, testing

AXIS, OTHER = np.array([0.48, -0.6, 0.64]), np.array([0.36, 0.48, -0.8])  # of unit length to rounding
LENGTHS = (1e-100, 1e-3, -1.0, 2.5, 1e100)  # -1: the same rotation by the opposite quaternion
TOLERANCE = 1e-11  # some hundred roundings, and mass matrices with condition numbers of 1e3


def tree(length):
    axis, other = length * AXIS, length * OTHER
    joints = (
        ts.Free(),
        ts.Revolute(axis),
        ts.Spherical(),
        ts.Prismatic(axis),
        ts.Screw(other, 0.3),
        ts.Cylindrical(axis),
        ts.Planar((axis, other)),
        ts.Universal((axis, other)),
        ts.Composite(ts.Prismatic(other), ts.Spherical(), ts.Prismatic(axis)),
    )
    return testing.random_tree(5, joints, branching=0.4)


MODEL = tree(1.0)
rng = np.random.default_rng(1)
Q = MODEL.random(rng)
V, A, TAU, DQ = rng.standard_normal((4, MODEL.nv))
AFTER = MODEL.plus(Q, 0.3 * DQ)


def all_close(x, y, tol=TOLERANCE):
    for one, other in zip(arrays_of(x), arrays_of(y), strict=True):
        close(one, other, tol)


@pytest.mark.parametrize("name", sweep(VARIANTS, 4))
def test_axes(name):
    f = VARIANTS[name]
    arrays = f.arguments(MODEL)
    expected = f(MODEL, *arrays)
    for length in (1e-3, 7.0):
        all_close(f(tree(length), *arrays), expected, 1e-8 if f.finite else TOLERANCE)  # what Newton's method leaves


@pytest.mark.parametrize("length", [1e-3, 7.0])
def test_directions_of_axes(length):
    rates = {"body1": {"axis": rng.standard_normal(3)}, "body6": {"directions": rng.standard_normal((2, 3))}}
    direction = ts.ModelDirection(joint=rates)
    for call in (ts.inverse_dynamics_jvp, ts.forward_dynamics_jvp):
        one, other = (call(model, Q, V, A, dq=DQ, model_direction=direction) for model in (tree(length), MODEL))
        all_close(one, other)


@pytest.mark.parametrize("length", LENGTHS)
def test_methods_of_models_and_joints(length):
    q, after = longer(MODEL, Q, length), longer(MODEL, AFTER, length)
    all_close(MODEL.minus(after, q), MODEL.minus(AFTER, Q))
    for result in (MODEL.normalize(q), MODEL.plus(q, np.zeros(MODEL.nv))):
        all_close(MODEL.minus(result, Q), np.zeros(MODEL.nv))
    all_close(ts.body_poses(MODEL, MODEL.plus(q, DQ)), ts.body_poses(MODEL, MODEL.plus(Q, DQ)))
    names = ("body0", "body2", "body8")
    locked = [MODEL.lock({n: x[MODEL.joint(n).q_slice] for n in names}) for x in (q, Q)]
    rest = [j for j in locked[0].joints if j.nv]
    assert all(j.nq == j.nv for j in rest)
    all_close(*(ts.mass_matrix(m, np.full(m.nq, 0.3)) for m in locked))
    for j in MODEL.joints:
        x, y, v = q[j.q_slice], Q[j.q_slice], V[j.v_slice]
        for method in (j.joint.T, j.joint.S, j.joint.dS, j.joint.d2S):
            all_close(method(x), method(y))
        all_close(j.joint.Sdot(x, v), j.joint.Sdot(y, v))
        all_close(j.joint.dSdot(x, v), j.joint.dSdot(y, v))


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("to", [interop.to_pinocchio, interop.to_mujoco])
def test_velocities_of_other_libraries(to, length):
    all_close(to(MODEL, longer(MODEL, Q, length), V, A, TAU)[1:], to(MODEL, Q, V, A, TAU)[1:])
