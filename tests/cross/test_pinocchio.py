"""Random trees of the joints that Pinocchio has too, built depth first in both: every quantity to 1e-11."""

from typing import Any

import numpy as np
import pytest

import torsor as ts
from torsor import testing
from torsor.interop import to_pinocchio

pin = pytest.importorskip("pinocchio")

FRAMES = {
    "body": pin.ReferenceFrame.LOCAL,
    "world": pin.ReferenceFrame.WORLD,
    "local_world_aligned": pin.ReferenceFrame.LOCAL_WORLD_ALIGNED,
}


def random_joint(rng: np.random.Generator, constant: bool) -> tuple[ts.Joint, Any]:
    """One joint of ours, and Pinocchio's; constant: neither S nor how the velocities relate depends on q."""
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
        (ts.SphericalEuler("ZYX"), pin.JointModelSphericalZYX()),
        (ts.Free2D(), pin.JointModelPlanar()),
    ]
    return kinds[rng.integers(len(kinds) - 2 * constant)]


class Pair:
    """The same tree in both libraries, and a state."""

    def __init__(self, seed: int, constant: bool = False) -> None:
        rng = np.random.default_rng(seed)
        gravity = rng.standard_normal(3) * 5
        builder, self.pin = ts.ModelBuilder(gravity=gravity), pin.Model()
        self.pin.gravity.linear = gravity
        # depth first: a body hangs on the one before it, or on one on the way from there to the world
        path: list[tuple[str, int]] = [("world", 0)]
        for k in range(12):
            path = path[: 1 + rng.integers(len(path))] if rng.uniform() < 0.4 else path
            parent, index = path[-1]
            ours, theirs = (
                (ts.Free(), pin.JointModelFreeFlyer()) if seed % 2 and k == 0 else random_joint(rng, constant)
            )
            pose, inertia = testing.random_pose(rng), testing.random_inertia(rng)
            builder.add_body(f"b{k}", parent, ours, pose, inertia)
            joint = self.pin.addJoint(index, theirs, pin.SE3(pose.R, pose.p), f"b{k}")
            self.pin.appendBodyToJoint(joint, pin.Inertia(inertia.mass, inertia.com, inertia.I_com), pin.SE3.Identity())
            path.append((f"b{k}", joint))
        self.ours = builder.build()
        self.data = self.pin.createData()
        n = self.ours.nv
        self.q, self.v, self.a, self.f = (
            self.ours.random(rng),
            *rng.standard_normal((2, n)),
            rng.standard_normal((12, 6)),
        )
        self.q_pin, self.v_pin, self.a_pin = to_pinocchio(self.ours, self.q, self.v, self.a, order=self.pin)
        # v_pin = E v: power, and with it every torque, is the same in both
        self.E = np.array([to_pinocchio(self.ours, self.q, e, order=self.pin)[1] for e in np.eye(n)]).T
        self.inverse = np.linalg.inv(self.E)

    def torque(self, tau: np.ndarray) -> np.ndarray:
        """Pinocchio's torques as ours."""
        return self.E.T @ tau

    def wrenches(self) -> Any:
        """The external wrenches, force first, on each of Pinocchio's joints."""
        forces = pin.StdVec_Force()
        forces.append(pin.Force.Zero())
        for f in self.f:
            forces.append(pin.Force(f[3:], f[:3]))
        return forces


@pytest.fixture(scope="module", params=range(30))
def pair(request: pytest.FixtureRequest) -> Pair:
    return Pair(request.param)


def close(x: np.ndarray, y: np.ndarray, tol: float = 1e-11) -> None:
    """Agreement to 1e-11 of the largest entry: 1e5 roundings, of which there are some thousand."""
    np.testing.assert_allclose(x, y, rtol=0, atol=tol * max(1.0, np.abs(y).max(initial=0.0)))


def angular_first(x: np.ndarray) -> np.ndarray:
    """Pinocchio's spatial vectors, or rows of matrices, in our order."""
    return np.concatenate([x[3:], x[:3]])


def test_trees_differ() -> None:
    shapes = {tuple(type(b.joint).__name__ for b in Pair(seed).ours.bodies) for seed in range(30)}
    kinds = {name for shape in shapes for name in shape}
    assert len(shapes) == 30
    assert len(kinds) == 8


def test_inverse_dynamics(pair: Pair) -> None:
    tau = pin.rnea(pair.pin, pair.data, pair.q_pin, pair.v_pin, pair.a_pin)
    close(ts.inverse_dynamics(pair.ours, pair.q, pair.v, pair.a), pair.torque(tau))
    tau = pin.rnea(pair.pin, pair.data, pair.q_pin, pair.v_pin, pair.a_pin, pair.wrenches())
    close(ts.inverse_dynamics(pair.ours, pair.q, pair.v, pair.a, f_ext=pair.f), pair.torque(tau))
    gravity = pin.computeGeneralizedGravity(pair.pin, pair.data, pair.q_pin)
    close(ts.gravity_forces(pair.ours, pair.q), pair.torque(gravity))


def test_forward_dynamics(pair: Pair) -> None:
    tau = pair.inverse.T @ pair.a
    a_pin = pin.aba(pair.pin, pair.data, pair.q_pin, pair.v_pin, tau, pair.wrenches())
    a = ts.forward_dynamics(pair.ours, pair.q, pair.v, pair.a, f_ext=pair.f)
    ours = to_pinocchio(pair.ours, pair.q, pair.v, a, order=pair.pin)[2]
    condition = np.linalg.cond(ts.mass_matrix(pair.ours, pair.q))
    close(ours, a_pin, max(1e-11, 1e-15 * condition))  # what rounding does to a solution with M


def test_mass_matrix(pair: Pair) -> None:
    M_pin = pin.crba(pair.pin, pair.data, pair.q_pin)
    M_pin = np.triu(M_pin) + np.triu(M_pin, 1).T
    M = ts.mass_matrix(pair.ours, pair.q)
    close(M, pair.E.T @ M_pin @ pair.E)
    inverse = pin.computeMinverse(pair.pin, pair.data, pair.q_pin)
    inverse = np.triu(inverse) + np.triu(inverse, 1).T
    tol = max(1e-11, 1e-15 * np.linalg.cond(M))
    close(ts.mass_matrix_inverse(pair.ours, pair.q), pair.inverse @ inverse @ pair.inverse.T, tol)


@pytest.mark.parametrize("seed", range(15))
def test_coriolis_matrix(seed: int) -> None:
    # Not for joints with S(q): with a SphericalZYX Pinocchio's C v is not its nonLinearEffects less gravity.
    pair = Pair(seed, constant=True)
    C = pin.computeCoriolisMatrix(pair.pin, pair.data, pair.q_pin, pair.v_pin)
    close(ts.coriolis_matrix(pair.ours, pair.q, pair.v), pair.E.T @ C @ pair.E)


def test_poses_velocities_accelerations_and_jacobians(pair: Pair) -> None:
    pin.forwardKinematics(pair.pin, pair.data, pair.q_pin, pair.v_pin, pair.a_pin)
    pin.computeJointJacobians(pair.pin, pair.data, pair.q_pin)
    poses = ts.body_poses(pair.ours, pair.q)
    for k, pose in enumerate(poses):
        close(pose, pair.data.oMi[k + 1].homogeneous)
    for name, frame in FRAMES.items():
        V = ts.body_velocities(pair.ours, pair.q, pair.v, frame=name)
        A = ts.body_accelerations(pair.ours, pair.q, pair.v, pair.a, frame=name)
        for k, body in enumerate(pair.ours.bodies):
            close(V[k], angular_first(pin.getVelocity(pair.pin, pair.data, k + 1, frame).vector))
            if name == "local_world_aligned":  # the acceleration of the origin as a point
                theirs = pin.getClassicalAcceleration(pair.pin, pair.data, k + 1, frame).vector
            else:
                theirs = pin.getAcceleration(pair.pin, pair.data, k + 1, frame).vector
            close(A[k], angular_first(theirs))
            J = angular_first(pin.getJointJacobian(pair.pin, pair.data, k + 1, frame))
            close(ts.jacobian(pair.ours, pair.q, body.name, frame=name), J @ pair.E)


def test_energies_centre_of_mass_and_momentum(pair: Pair) -> None:
    close(
        ts.kinetic_energy(pair.ours, pair.q, pair.v),
        pin.computeKineticEnergy(pair.pin, pair.data, pair.q_pin, pair.v_pin),
    )
    close(ts.potential_energy(pair.ours, pair.q), pin.computePotentialEnergy(pair.pin, pair.data, pair.q_pin))
    close(ts.center_of_mass(pair.ours, pair.q), pin.centerOfMass(pair.pin, pair.data, pair.q_pin))
    J = pin.jacobianCenterOfMass(pair.pin, pair.data, pair.q_pin)
    close(ts.center_of_mass_jacobian(pair.ours, pair.q), J @ pair.E)
    A = pin.computeCentroidalMap(pair.pin, pair.data, pair.q_pin)
    close(ts.momentum_matrix(pair.ours, pair.q), angular_first(A) @ pair.E)
    h = pin.computeCentroidalMomentum(pair.pin, pair.data, pair.q_pin, pair.v_pin).vector
    close(ts.momentum(pair.ours, pair.q, pair.v), angular_first(h))


def test_reactions(pair: Pair) -> None:
    pin.rnea(pair.pin, pair.data, pair.q_pin, pair.v_pin, pair.a_pin, pair.wrenches())
    F = ts.joint_reactions(pair.ours, pair.q, pair.v, pair.a, f_ext=pair.f)
    for k in range(12):
        close(F[k], angular_first(pair.data.f[k + 1].vector))
