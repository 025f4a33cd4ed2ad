"""Multipliers and reactions of trajectories, and the reference integrator under constraints."""

import numpy as np
import pytest
from compare import close
from constraint_models import floating_loop, four_bar, rod, slider_crank
from linkages import errors

import torsor as ts
from torsor.constraints.dynamics import constrained_forward_dynamics

INTEGRATORS = [ts.BDF1(0.01), ts.BDF2(0.01), ts.SDIRK2(0.01), ts.SymplecticEuler(0.01), ts.LinearlyImplicitEuler(0.01)]


@pytest.mark.parametrize("integrator", INTEGRATORS, ids=lambda x: type(x).__name__)
def test_multipliers_are_those_of_forward_dynamics(integrator):
    """With the forces and the controls of the step that ends at a row; at the first row of the first step."""
    case = four_bar("line")
    model, constraints = case.model, case.constraints
    forces = [ts.JointSpring("crank", 3.0, damping=0.2), ts.JointTorque("rocker", [[0.0], [1.0]], [0.0, 1.0])]
    u = np.random.default_rng(0).standard_normal((6, 3))
    motion = ts.simulate(
        model, case.q, case.v, integrator=integrator, steps=6, constraints=constraints, forces=forces, controls=u
    )
    assert motion.multipliers.shape == (7, 2)
    assert motion.reactions.shape == (7, 1, 6)
    for row, step in enumerate((0, 0, 1, 2, 3, 4, 5)):
        q, v, t = motion.q[row], motion.v[row], motion.t[row]
        tau = ts.generalized_forces(model, forces, q, v, t=t) + u[step]
        expected = constrained_forward_dynamics(model, constraints, q, v, tau, t=t)
        close(motion.multipliers[row], expected.multipliers, 1e-12)
        # the wrench on the second body does the same as the multipliers
        wrenches = np.zeros((3, 6))
        wrenches[2] = motion.reactions[row, 0]
        wrenches[1] = on_first(model, q, wrenches[2])
        close(ts.forward_dynamics(model, q, v, tau, f_ext=wrenches), expected.a, 1e-11)


def on_first(model, q, wrench):
    """The opposite wrench, in the frame of the coupler."""
    T = ts.body_poses(model, q)
    seen = np.linalg.inv(T[2]) @ T[1]
    return -ts.spatial.Ad(seen).T @ wrench


def test_every_rows_and_batches():
    case = four_bar("line")
    other = case.model.with_inertia("rocker", rod(1.8, 3.0))
    models, shape = [case.model, other], (2,)
    u = np.random.default_rng(1).standard_normal((*shape, 8, 3))
    given = {"integrator": ts.BDF2(0.01), "steps": 8, "constraints": case.constraints}
    whole = ts.simulate(models, case.q, case.v, controls=u, **given)
    some = ts.simulate(models, case.q, case.v, controls=u, every=4, **given)
    assert whole.multipliers.shape == (2, 9, 2)
    close(some.multipliers, whole.multipliers[:, ::4], 1e-12)
    close(some.reactions, whole.reactions[:, ::4], 1e-12)
    for k, model in enumerate(models):
        alone = ts.simulate(model, case.q, case.v, controls=u[k], **given)
        close(alone.multipliers, whole.multipliers[k], 1e-12)
    shared = ts.simulate(case.model, [case.q, case.q], case.v, controls=u[0], **given)
    close(shared.multipliers[1], whole.multipliers[0], 1e-12)


def test_functions_of_time_and_actuation():
    case = four_bar("line")
    B = np.array([[1.0], [0.0], [0.0]])
    given = {"steps": 5, "constraints": case.constraints}
    motion = ts.simulate(
        case.model,
        case.q,
        case.v,
        integrator=ts.SDIRK2(0.01),
        controls=lambda t: np.array([1 + t]),
        actuation=B,
        **given,
    )
    q, v, t = motion.q[-1], motion.v[-1], motion.t[-1]
    tau = B @ [1 + t]
    expected = constrained_forward_dynamics(case.model, case.constraints, q, v, tau, t=t)
    close(motion.multipliers[-1], expected.multipliers, 1e-12)


def test_charts_change_and_multipliers_do_not():
    """A ball joint in Euler angles, whose chart changes, against one with a quaternion."""

    def swing(joint):
        builder = ts.ModelBuilder()
        builder.add_body("arm", "world", joint, inertia=rod(1.0, radius=0.3))
        builder.add_body("slider", "world", ts.Translational(), inertia=ts.Inertia(1.0, (0, 0, 0), np.eye(3)))
        model = builder.build()
        tie = [ts.Loop("arm", "slider", ts.Spherical(), ts.SE3.translation(1, 0, 0), name="tie")]
        q = model.neutral.copy()
        q[-3:] = (1, 0, 0)
        v = np.zeros(6)
        v[:3] = (0, 6.0, 0)
        q, v = ts.project(model, tie, q, v, keep=["arm"])
        return ts.simulate(model, q, v, integrator=ts.SDIRK2(2e-3), steps=200, constraints=tie)

    motion, other = swing(ts.SphericalEuler()), swing(ts.Spherical())
    assert motion.switches
    close(ts.body_poses(other.model, other.q)[-1, 1], ts.body_poses(other.model, motion_poses(motion, other))[1], 1e-3)
    close(motion.multipliers, other.multipliers, 2e-3)  # errors of the steps, which differ with coordinates
    close(motion.reactions, other.reactions, 2e-3)


def motion_poses(motion, other):
    """The last configuration of the slider, with the arm of the other motion."""
    q = other.q[-1].copy()
    q[-3:] = motion.q[-1, -3:]
    return q


def test_trajectories_without_constraints_and_without_steps():
    model = ts.models.pendulum()
    motion = ts.simulate(model, model.neutral, np.zeros(model.nv), integrator=ts.BDF1(0.01), steps=3)
    assert motion.multipliers.shape == (4, 0)
    assert motion.reactions.shape == (4, 0, 6)
    case = four_bar()
    still = ts.simulate(case.model, case.q, case.v, integrator=ts.BDF1(0.01), steps=0, constraints=case.constraints)
    expected = constrained_forward_dynamics(case.model, case.constraints, case.q, case.v, np.zeros(3))
    close(still.multipliers[0], expected.multipliers, 1e-11)


def test_adaptive_is_on_the_constraints_at_every_row():
    for case in (four_bar(), slider_crank(), floating_loop()):
        motion = ts.simulate(
            case.model, case.q, case.v, integrator=ts.Adaptive(0.02), steps=10, constraints=case.constraints
        )
        g, gdot = errors(case.model, case.constraints, motion.q, motion.v)
        size = max(np.abs(motion.q).max(), np.abs(ts.body_poses(case.model, motion.q)[..., :3, 3]).max())
        assert np.abs(g).max() <= 1e-12 * (1 + size)  # the tolerance of `project`
        assert np.abs(gdot).max() < 1e-11 * (1 + np.abs(motion.v).max())
        energy = motion.energies.total
        close(energy, np.full_like(energy, energy[0]), 1e-8)


def test_adaptive_is_the_limit_of_steps():
    case = four_bar()
    given = {"constraints": case.constraints, "T": 0.2}
    exact = ts.simulate(case.model, case.q, case.v, integrator=ts.Adaptive(0.1), **given)
    gaps = []
    for h in (4e-3, 2e-3):
        found = ts.simulate(case.model, case.q, case.v, integrator=ts.SDIRK2(h), **given)
        gaps.append(np.abs(found.q[-1] - exact.q[-1]).max())
    assert 3.5 < gaps[0] / gaps[1] < 4.5
    close(found.multipliers[-1], exact.multipliers[-1], 1e-3)


def test_adaptive_follows_prescribed_motions():
    case = four_bar("line")
    start, speed = case.q[0], 2.0
    drive = ts.PrescribedJoint("crank", lambda t: (start + speed * t + t**2, speed + 2 * t, 2.0), name="drive")
    constraints = [*case.constraints, drive]
    q, v = ts.project(case.model, constraints, case.q, case.v)
    motion = ts.simulate(case.model, q, v, integrator=ts.Adaptive(0.0125), steps=24, constraints=constraints)
    close(motion.q[:, 0], start + speed * motion.t + motion.t**2, 1e-12)
    close(motion.v[:, 0], speed + 2 * motion.t, 1e-11)
    # the multiplier of the drive is its torque: its work, by Simpson's rule, is the energy gained
    power, h = motion.multipliers[:, -1] * motion.v[:, 0], motion.t[1]
    work = h / 3 * (power[0] + 4 * power[1:-1:2].sum() + 2 * power[2:-1:2].sum() + power[-1])
    close(work, motion.energies.total[-1] - motion.energies.total[0], 1e-5)
