"""Dynamics, and first derivatives, of random trees of every joint against those from poses alone (pose_oracle.py)."""

import numpy as np
import pytest
from population import FRAMES, JOINTS
from pose_oracle import Oracle

import torsor as ts
from torsor import testing

STEP = 1e-30
# Relative to the largest entry. Both sides lose a few digits: in sums over bodies whose terms are larger than the sum,
# in products along chains, and in the squarings of matrix exponentials. What is solved with the mass matrix loses as
# many as its condition number has, by which its errors are divided. Over 5,000 trees values are off by 1.3e-13 at most,
# over 3,000 derivatives by 4e-14.
TOLERANCE = 1e-12


def random_state(seed):
    """A tree of one to eight joints, and a state of it with wrenches on the bodies.

    Exponential coordinates are sometimes tiny, or close to half a turn; splines sometimes beyond their ends.
    """
    rng = np.random.default_rng(seed)
    population = (ts.Fixed(), *JOINTS)
    picked = [population[k] for k in rng.integers(len(population), size=rng.integers(0, 8))]
    picked.insert(rng.integers(len(picked) + 1), JOINTS[rng.integers(len(JOINTS))])  # one that moves
    model = testing.random_tree(rng, picked, branching=rng.uniform())
    q = model.random(rng)
    for j in model.joints:
        x = q[j.q_slice]
        if isinstance(j.joint, ts.SphericalExp) and rng.uniform() < 0.5:
            x *= rng.choice([1e-12, 1e-5, np.pi * (1 - 1e-9)]) / np.linalg.norm(x)
        if isinstance(j.joint, (ts.SplineCurve, ts.SplineSurface)) and rng.uniform() < 0.3:
            x += rng.uniform(-1, 1, x.size)
    v, a = rng.uniform(0.1, 5) * rng.standard_normal((2, model.nv))
    return rng, model, q, v, a, rng.uniform(0, 20) * rng.standard_normal((model.nbodies, 6))


def off(value, expected, condition=1.0):
    assert value.shape == expected.shape
    return np.abs(value - expected).max(initial=0.0) / max(1.0, np.abs(expected).max(initial=0.0)) / condition


def errors_of_values(seed):
    """Name of a function -> how far it is off at a random state."""
    rng, model, q, v, a, f_ext = random_state(seed)
    oracle, body, point = Oracle(model), int(rng.integers(model.nbodies)), rng.standard_normal(3)
    name, frame, zero = model.bodies[body].name, FRAMES[rng.integers(3)], np.zeros(model.nv)
    each = np.eye(model.nv)
    wrenches = {"f_ext": f_ext, "f_ext_frame": frame}
    T, M = oracle.poses(q, v)[0], oracle.mass_matrix(q)
    tau = oracle.inverse_dynamics(q, v, a, f_ext, frame)
    condition, inverse = np.linalg.cond(M), np.linalg.inv(M)
    linear = oracle.momentum(q[None], each)[:, 3:].T / oracle.counted[:, 3, 3].sum()
    out = {
        "body_poses": off(ts.body_poses(model, q), T),
        "point_positions": off(ts.point_positions(model, q, name, point), (T[body] @ np.append(point, 1))[:3]),
        "point_jacobian": off(ts.point_jacobian(model, q, name, point), oracle.point_jacobian(q, body, point)),
        "mass_matrix": off(ts.mass_matrix(model, q), M),
        "inverse_dynamics": off(ts.inverse_dynamics(model, q, v, a, **wrenches), tau),
        "bias_forces": off(ts.bias_forces(model, q, v), oracle.inverse_dynamics(q, v, zero)),
        "gravity_forces": off(ts.gravity_forces(model, q), oracle.inverse_dynamics(q, zero, zero)),
        "joint_reactions": off(ts.joint_reactions(model, q, v, a, f_ext=f_ext), oracle.joint_reactions(q, v, a, f_ext)),
        "kinetic_energy": off(ts.kinetic_energy(model, q, v), oracle.kinetic_energy(q, v)),
        "potential_energy": off(ts.potential_energy(model, q), oracle.potential_energy(q)),
        "center_of_mass": off(ts.center_of_mass(model, q), oracle.center_of_mass(q)),
        "center_of_mass_jacobian": off(ts.center_of_mass_jacobian(model, q), linear),
        "generalized_momenta": off(ts.generalized_momenta(model, q, v), M @ v),
        "mass_matrix_inverse": off(ts.mass_matrix_inverse(model, q), inverse, condition),
        "mass_matrix_solve": off(ts.mass_matrix_solve(model, q, tau), inverse @ tau, condition),
        "forward_dynamics": off(ts.forward_dynamics(model, q, v, tau, **wrenches), a, condition),
    }
    C = ts.coriolis_matrix(model, q, v)
    out["coriolis_matrix"] = off(C @ v, oracle.inverse_dynamics(q, v, zero) - oracle.inverse_dynamics(q, zero, zero))
    for frame in FRAMES:
        out |= {
            f"body_velocities {frame}": off(
                ts.body_velocities(model, q, v, frame=frame), oracle.velocities(q, v, frame)
            ),
            f"body_accelerations {frame}": off(
                ts.body_accelerations(model, q, v, a, frame=frame), oracle.accelerations(q, v, a, frame)
            ),
            f"jacobian {frame}": off(ts.jacobian(model, q, name, frame=frame), oracle.jacobian(q, body, frame)),
        }
    for about in ("com", "world"):
        A = ts.momentum_matrix(model, q, about=about)
        out[f"momentum {about}"] = off(ts.momentum(model, q, v, about=about), oracle.momentum(q, v, about))
        out[f"momentum_matrix {about}"] = off(A, oracle.momentum(q[None], each, about).T)
    # hybrid dynamics: the other accelerations from the rows of M that are left
    given = rng.uniform(size=model.nv) < 0.5
    found, torques = ts.hybrid_dynamics(model, q, v, a=a, tau=tau, prescribed=given, **wrenches)
    out["hybrid_dynamics"] = max(off(found, a, condition), off(torques, tau, condition))
    # dJ/dt by a complex step along the motion
    rate = np.imag(oracle.velocities(oracle.moved(q, 1j * STEP * v), each[:, None])[:, 0]) / STEP
    out["maximal_jacobian"] = off(
        ts.maximal_jacobian(model, q), oracle.velocities(q[None], each).reshape(model.nv, -1).T
    )
    out["maximal_jacobian_dot"] = off(ts.maximal_jacobian_dot(model, q, v), rate.reshape(model.nv, -1).T)
    out["jacobian_dot_product"] = off(ts.jacobian_dot_product(model, q, v, a), np.tensordot(a, rate, 1))
    return out


def errors_of_derivatives(seed):
    """Name of a derivative -> how far it is off at a random state; by complex steps through the oracle."""
    rng, model, q, v, a, f_ext = random_state(seed)
    oracle, frame = Oracle(model), FRAMES[rng.integers(3)]
    each = 1j * STEP * np.eye(model.nv)
    moved, tau = oracle.moved(q, each), rng.standard_normal(model.nv)
    condition = np.linalg.cond(oracle.mass_matrix(q))

    def of(rows):
        return np.imag(rows).T / STEP

    d = ts.inverse_dynamics_derivatives(model, q, v, a, f_ext=f_ext, f_ext_frame=frame)
    out = {
        "dtau_dq": off(d.dtau_dq, of(oracle.inverse_dynamics(moved, v, a, f_ext, frame))),
        "dtau_dv": off(d.dtau_dv, of(oracle.inverse_dynamics(q, v + each, a, f_ext, frame))),
        "dtau_da": off(d.dtau_da, oracle.mass_matrix(q)),
    }
    d = ts.forward_dynamics_derivatives(model, q, v, tau, f_ext=f_ext, f_ext_frame=frame)
    return out | {
        "da_dq": off(d.da_dq, of(oracle.forward_dynamics(moved, v, tau, f_ext, frame)), condition),
        "da_dv": off(d.da_dv, of(oracle.forward_dynamics(q, v + each, tau, f_ext, frame)), condition),
        "da_dtau": off(d.da_dtau, np.linalg.inv(oracle.mass_matrix(q)), condition),
    }


def worst(errors, seeds):
    """Name -> (largest error, its seed)."""
    out = {}
    for seed in seeds:
        for name, error in errors(seed).items():
            out[name] = max(out.get(name, (-1.0, seed)), (float(error), seed))
    return out


@pytest.mark.parametrize("seeds", [range(40), pytest.param(range(40, 250), marks=pytest.mark.slow)], ids=len)
def test_values(seeds):
    for name, (error, seed) in worst(errors_of_values, seeds).items():
        assert error <= TOLERANCE, f"{name} is off by {error:.1e} in the tree of seed {seed}"


@pytest.mark.parametrize("seeds", [range(10), pytest.param(range(10, 50), marks=pytest.mark.slow)], ids=len)
def test_derivatives(seeds):
    for name, (error, seed) in worst(errors_of_derivatives, seeds).items():
        assert error <= TOLERANCE, f"{name} is off by {error:.1e} in the tree of seed {seed}"
