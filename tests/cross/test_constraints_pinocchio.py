"""Constrained forward dynamics against Pinocchio: welds and points, to the world and between bodies.

Where both mean the same rows, accelerations and all derivatives agree: welds, because both closures are the motion of
one frame, and points of the world, because the axes of the first marker do not turn. A point between two bodies is
another matter off the constraint: Pinocchio takes the difference of two accelerations, the library the second
derivative of coordinates in the axes of the first body. On the constraint these agree, and so do derivatives along it.
"""

import constraint_oracle as oracle
import numpy as np
import pinocchio as pin
import pytest
from compare import to_within
from constraint_models import Tie, closed

import torsor as ts
from torsor import testing
from torsor.demo import pinocchio_model
from torsor.interop import to_pinocchio

close = to_within(1e-11)
KINDS = {
    "weld to the world": (("weld", "world"),),
    "point of the world": (("point", "world"),),
    "weld": (("weld", "left5"),),
    "weld and point of the world": (("weld", "left5"), ("point", "world")),
    "point": (("point", "left5"),),
}


def two_arms() -> ts.Model:
    """A floating base with two arms of six revolutes."""
    rng = np.random.default_rng(7)
    b = ts.ModelBuilder("two arms")
    b.add_body("base", "world", ts.Free(), None, testing.random_inertia(rng))
    for side in ("left", "right"):
        parent = "base"
        for k, axis in enumerate(((0, 0, 1), (0, 1, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (0, 1, 0))):
            b.add_body(f"{side}{k}", parent, ts.Revolute(axis), testing.random_pose(rng), testing.random_inertia(rng))
            parent = f"{side}{k}"
    return b.build()


class Comparison:
    """A case on its constraints, with the results of both libraries, Pinocchio's in our coordinates."""

    def __init__(self, kind: str) -> None:
        model, rng = two_arms(), np.random.default_rng(3)
        q = model.random(rng)
        ties = []
        for k, (rows, a) in enumerate(KINDS[kind]):
            A, B = (testing.random_pose(rng).matrix for _ in range(2))
            ties.append(Tie(rows, a, "right5" if k == 0 else "left3", A, B).at(model, q))
        case = closed(model, ties, q, rng.standard_normal(model.nv))
        self.model, self.case, self.tau = model, case, rng.standard_normal(model.nv)
        peer = pinocchio_model(model, pin)
        self.E = to_pinocchio(model, np.tile(case.q, (model.nv, 1)), np.eye(model.nv), order=peer)[1].T
        rows = pin.StdVec_RigidConstraintModel([self._peer_row(peer, tie) for tie in case.ties])
        data, row_data = peer.createData(), pin.StdVec_RigidConstraintData([row.createData() for row in rows])
        settings = pin.ProximalSettings(1e-14, 1e-10, 20)
        pin.initConstraintDynamics(peer, data, rows, row_data)
        state = to_pinocchio(model, case.q, case.v, order=peer)
        a = pin.constraintDynamics(peer, data, *state, self.E @ self.tau, rows, row_data, settings)
        self.a = self.E.T @ a
        found = pin.computeConstraintDynamicsDerivatives(peer, data, rows, row_data, settings)
        self.d = [self.E.T @ np.asarray(x) @ self.E for x in found[:3]]
        arguments = model, case.constraints, case.q, case.v, self.tau
        self.ours = ts.constrained_forward_dynamics(*arguments)
        self.our_d = ts.constrained_forward_dynamics_derivatives(*arguments)

    @staticmethod
    def _peer_row(peer, tie):
        kind = pin.ContactType.CONTACT_3D if tie.kind == "point" else pin.ContactType.CONTACT_6D
        joints = [0 if name == "world" else peer.getJointId(name) for name in (tie.a, tie.b)]
        A, B = pin.SE3(tie.A), pin.SE3(tie.B)
        return pin.RigidConstraintModel(kind, peer, joints[0], A, joints[1], B, pin.ReferenceFrame.LOCAL)


@pytest.mark.parametrize("kind", KINDS)
def test_accelerations(kind: str) -> None:
    x = Comparison(kind)
    close(x.ours.a, x.a)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "point"])
def test_derivatives(kind: str) -> None:
    x = Comparison(kind)
    for ours, theirs in zip(x.our_d, x.d, strict=False):
        close(ours, theirs)


@pytest.mark.parametrize("kind", KINDS)
def test_derivatives_along_the_constraint(kind: str) -> None:
    x = Comparison(kind)
    case, rng = x.case, np.random.default_rng(0)
    G = oracle.jacobian(x.model, case.parts, case.q)
    rate = oracle.derivatives(x.model, case.parts, case.q, case.v, 0 * case.v)[0]
    null = np.linalg.svd(G)[2][len(G) :].T
    dq = null @ rng.standard_normal(null.shape[1])
    dv = null @ rng.standard_normal(null.shape[1]) - np.linalg.pinv(G) @ rate @ dq
    close(x.our_d.da_dq @ dq + x.our_d.da_dv @ dv, x.d[0] @ dq + x.d[1] @ dv)
    close(x.our_d.da_dtau, x.d[2])


def test_a_point_between_bodies_differs_off_the_constraint() -> None:
    """So the matrices da_dq differ, by much more than rounding: neither is wrong."""
    x = Comparison("point")
    assert np.abs(x.our_d.da_dq - x.d[0]).max() > 1e-3 * np.abs(x.d[0]).max()
