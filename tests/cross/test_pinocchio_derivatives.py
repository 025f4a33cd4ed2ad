"""First derivatives and the regressor against Pinocchio's, over random trees built depth first and over robots."""

from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pinocchio as pin
import pytest
from compare import to_within

import torsor as ts
from torsor import testing
from torsor.interop import to_pinocchio
from torsor.testing import STEP, complex_inputs

TREES = 24
close = to_within(1e-10)


def random_joint(rng: np.random.Generator) -> tuple[ts.Joint, Any]:
    """One joint of ours, and Pinocchio's.

    Not SphericalZYX: there Pinocchio's derivatives are not those of its own rnea (they take S as constant).
    """
    axis = rng.standard_normal(3)
    axis /= np.linalg.norm(axis)
    kinds = [
        (ts.Revolute(axis), pin.JointModelRevoluteUnaligned(axis)),
        (ts.Revolute((0, 1, 0)), pin.JointModelRY()),
        (ts.Prismatic(axis), pin.JointModelPrismaticUnaligned(axis)),
        (ts.Prismatic((1, 0, 0)), pin.JointModelPX()),
        (ts.Spherical(), pin.JointModelSpherical()),
        (ts.Translational(), pin.JointModelTranslation()),
        (ts.Free(), pin.JointModelFreeFlyer()),
        (ts.Screw((0, 0, 1), 0.3), pin.JointModelHZ(0.3)),
        (ts.Screw(axis, -0.2), pin.JointModelHelicalUnaligned(axis, -0.2)),
        (ts.Free2D(), pin.JointModelPlanar()),  # there v is in the child's frame
    ]
    return kinds[rng.integers(len(kinds))]


def random_tree(seed: int) -> tuple[ts.Model, Any]:
    """The same tree in both libraries, depth first: Pinocchio's derivatives are silently wrong in another order."""
    rng = np.random.default_rng(seed)
    gravity = rng.standard_normal(3) * 5
    builder, theirs = ts.ModelBuilder(gravity=gravity), pin.Model()
    theirs.gravity.linear = gravity
    path: list[tuple[str, int]] = [("world", 0)]
    for k in range(10):
        path = path[: 1 + rng.integers(len(path))] if rng.uniform() < 0.4 else path
        parent, index = path[-1]
        one, other = (ts.Free(), pin.JointModelFreeFlyer()) if seed % 2 and k == 0 else random_joint(rng)
        pose, inertia = testing.random_pose(rng), testing.random_inertia(rng)
        builder.add_body(f"b{k}", parent, one, pose, inertia)
        joint = theirs.addJoint(index, other, pin.SE3(pose.R, pose.p), f"b{k}")
        theirs.appendBodyToJoint(joint, pin.Inertia(inertia.mass, inertia.com, inertia.I_com), pin.SE3.Identity())
        path.append((f"b{k}", joint))
    return builder.build(), theirs


def full(upper: np.ndarray) -> np.ndarray:
    """A symmetric matrix of which Pinocchio fills one half."""
    return np.triu(upper) + np.triu(upper, 1).T


class Change:
    """From our numbers to theirs, v' = E(q) v, a' = E a + dE/dt v, tau = E^T tau', and its derivatives."""

    def __init__(self, model: ts.Model, theirs: Any, q: np.ndarray, v: np.ndarray, a: np.ndarray) -> None:
        one = np.eye(model.nv)
        self.q, self.v, self.a = to_pinocchio(model, q, v, a, order=theirs)
        self.E = to_pinocchio(model, q, one, order=theirs)[1].T
        self.inverse = np.linalg.inv(self.E)
        with complex_inputs():  # one step along each direction, all at once
            moved = model.plus(q, 1j * STEP * one)
            _, v_q, a_q = to_pinocchio(model, moved, v, a, order=theirs)
            _, _, a_v = to_pinocchio(model, q, v + 1j * STEP * one, a, order=theirs)
            _, E_q = to_pinocchio(model, moved[:, None], one, order=theirs)
        self.v_q, self.a_q, self.a_v, self.E_q = (np.imag(x).T / STEP for x in (v_q, a_q, a_v, E_q))


def check(model: ts.Model, theirs: Any, f: np.ndarray | None) -> None:
    """All derivatives of inverse and forward dynamics at a random state, changed to our coordinates."""
    rng = np.random.default_rng(1)
    q, (v, a, tau) = model.random(rng), rng.standard_normal((3, model.nv))
    data = theirs.createData()
    wrenches: tuple[Any, ...] = ()
    if f is not None:
        forces = pin.StdVec_Force()
        forces.append(pin.Force.Zero())
        for x in f:
            forces.append(pin.Force(x[3:], x[:3]))
        wrenches = (forces,)

    c = Change(model, theirs, q, v, a)
    torque = pin.rnea(theirs, data, c.q, c.v, c.a, *wrenches).copy()
    Dq, Dv, Da = (np.array(x) for x in pin.computeRNEADerivatives(theirs, data, c.q, c.v, c.a, *wrenches))
    Da = full(Da)
    d = ts.inverse_dynamics_derivatives(model, q, v, a, f_ext=f)
    close(d.dtau_dq, c.E.T @ (Dq @ c.E + Dv @ c.v_q + Da @ c.a_q) + np.einsum("pik,p->ik", c.E_q, torque))
    close(d.dtau_dv, c.E.T @ (Dv @ c.E + Da @ c.a_v))
    close(d.dtau_da, c.E.T @ Da @ c.E)

    c = Change(model, theirs, q, v, ts.forward_dynamics(model, q, v, tau, f_ext=f))
    torque = c.inverse.T @ tau
    Aq, Av, At = (np.array(x) for x in pin.computeABADerivatives(theirs, data, c.q, c.v, torque, *wrenches))
    At = full(At)
    torque_q = -c.inverse.T @ np.einsum("pik,p->ik", c.E_q, torque)
    d = ts.forward_dynamics_derivatives(model, q, v, tau, f_ext=f)
    tol = max(1e-10, 1e-15 * np.linalg.cond(ts.mass_matrix(model, q)))  # what rounding does to a solution with M
    close(d.da_dq, c.inverse @ (Aq @ c.E + Av @ c.v_q + At @ torque_q - c.a_q), tol)
    close(d.da_dv, c.inverse @ (Av @ c.E - c.a_v), tol)
    close(d.da_dtau, c.inverse @ At @ c.inverse.T, tol)


def test_trees_differ() -> None:
    kinds = {type(b.joint).__name__ for seed in range(TREES) for b in random_tree(seed)[0].bodies}
    assert kinds == {"Revolute", "Prismatic", "Spherical", "Translational", "Free", "Screw", "Free2D"}


@pytest.mark.parametrize("seed", range(TREES))
@pytest.mark.parametrize("wrenches", [False, True])
def test_trees(seed: int, wrenches: bool) -> None:
    model, theirs = random_tree(seed)
    check(model, theirs, np.random.default_rng(seed).standard_normal((10, 6)) if wrenches else None)


@pytest.mark.parametrize("seed", range(TREES))
def test_regressor(seed: int) -> None:
    model, theirs = random_tree(seed)
    rng = np.random.default_rng(seed)
    q, (v, a) = model.random(rng), rng.standard_normal((2, model.nv))
    c = Change(model, theirs, q, v, a)
    Y = pin.computeJointTorqueRegressor(theirs, theirs.createData(), c.q, c.v, c.a)
    close(ts.inertial_regressor(model, q, v, a), c.E.T @ Y)


@pytest.mark.filterwarnings("ignore::torsor.FormatWarning")
@pytest.mark.parametrize(
    ("name", "free"),
    [
        ("panda_description/urdf/panda.urdf", False),
        ("hyq_description/robots/hyq_no_sensors.urdf", True),
        ("talos_data/robots/talos_full_v2.urdf", True),
        ("double_pendulum_description/urdf/double_pendulum_continuous.urdf", False),
    ],
)
def test_robots(name: str, free: bool) -> None:
    found = metadata.distribution("example-robot-data").locate_file("cmeel.prefix/share/example-robot-data/robots")
    path = Path(str(found)) / name
    theirs = pin.buildModelFromUrdf(str(path), *([pin.JointModelFreeFlyer()] if free else []))
    model = ts.load_urdf(path, root=ts.Free() if free else None, mimic="ignore")
    check(model, theirs, None)
