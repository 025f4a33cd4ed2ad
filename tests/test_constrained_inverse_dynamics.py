"""Inverse dynamics under constraints: torques of some joints and multipliers, unique or of least norm."""

import numpy as np
import pytest
from compare import along_q, close
from population import FRAMES, models, sweep
from test_constrained_derivatives import T, chosen, four_bar

import torsor as ts
from torsor import testing
from torsor.constraints.constraint import compile_constraints
from torsor.constraints.dynamics import constrained_forward_dynamics
from torsor.testing import complex_step

EXACT = 1e-11  # systems whose condition numbers are at most 1e4
TREES = sweep(models(6), 2)


def consistent(model, constraints, q, seed=0, t=T):
    """Velocities and accelerations with which constraints go on to hold, wherever they hold."""
    v, a = np.random.default_rng(seed).standard_normal((2, model.nv))
    G = ts.constraint_jacobian(model, constraints, q, t=t)
    v = v - np.linalg.pinv(G) @ ts.constraint_errors(model, constraints, q, v, t=t).gdot
    return v, a - np.linalg.pinv(G) @ ts.constraint_errors(model, constraints, q, v, a, t=t).gamma


def masks(model, constraints, q):
    """All velocities, and as few as are needed: those that constraints do not move."""
    G = ts.constraint_jacobian(model, constraints, q, t=T)
    few, columns = np.zeros(model.nv, bool), G.T
    for k in np.random.default_rng(1).permutation(model.nv):
        more = np.column_stack([columns, np.eye(model.nv)[k]])
        if np.linalg.matrix_rank(more, 1e-2) > np.linalg.matrix_rank(columns, 1e-2):
            few[k], columns = True, more
    return np.ones(model.nv, bool), few


@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize("model", TREES)
def test_forward_dynamics_gives_the_motion_back(model, frame):
    constraints, rng = chosen(model), np.random.default_rng(2)
    q, f = model.random(np.random.default_rng(100)), rng.standard_normal((model.nbodies, 6))
    v, a = consistent(model, constraints, q)
    options = {"f_ext": f, "f_ext_frame": frame, "t": T}
    G = ts.constraint_jacobian(model, constraints, q, t=T)
    needed = ts.inverse_dynamics(model, q, v, a, f_ext=f, f_ext_frame=frame)
    for actuated in masks(model, constraints, q):
        tau, multipliers = ts.constrained_inverse_dynamics(model, constraints, q, v, a, actuated=actuated, **options)
        assert not tau[~actuated].any()
        terms = np.abs(multipliers) @ np.abs(G)  # which may cancel
        close(tau + multipliers @ G, needed, least=terms.max())
        A = np.hstack([np.eye(model.nv)[:, actuated], G.T])
        close(np.concatenate([tau[actuated], multipliers]), np.linalg.pinv(A) @ needed, EXACT)  # of least norm
        found = constrained_forward_dynamics(model, constraints, q, v, tau, **options)
        close(found.a, a, EXACT)
        if np.linalg.matrix_rank(A) == A.shape[1]:
            close(found.multipliers, multipliers, EXACT)


@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize("model", TREES)
def test_derivatives(model, frame):
    constraints, rng = chosen(model), np.random.default_rng(3)
    q, f = model.random(np.random.default_rng(100)), rng.standard_normal((model.nbodies, 6))
    v, a = rng.standard_normal((2, model.nv))
    for actuated in masks(model, constraints, q):
        options = {"actuated": actuated, "f_ext": f, "f_ext_frame": frame, "t": T}
        check_derivatives(model, constraints, q, v, a, **options)


def check_derivatives(model, constraints, q, v, a, **options):
    def value(q, v, a):
        return np.concatenate(ts.constrained_inverse_dynamics(model, constraints, q, v, a, **options))

    found = ts.constrained_inverse_dynamics_derivatives(model, constraints, q, v, a, **options)
    expected = (
        along_q(lambda q: value(q, v, a), model, q),
        complex_step(lambda v: value(q, v, a), v),
        complex_step(lambda a: value(q, v, a), a),
    )
    for k in range(3):
        close(np.concatenate([found[k], found[3 + k]]), expected[k], EXACT)


@pytest.mark.parametrize("joint", [ts.Revolute((0, 1, 0)), ts.Spherical()], ids=["hinge", "ball"])
def test_redundant_rows_and_motors(joint):
    """Three motors for one degree of freedom, and rows that depend on each other."""
    model, constraints = four_bar(joint)
    rng = np.random.default_rng(4)
    q, (v, a) = model.random(rng), rng.standard_normal((2, 3))
    for actuated in (None, ["crank"], ["crank", "rocker"]):
        check_derivatives(model, constraints, q, v, a, actuated=actuated)


def test_prescribed_joints_are_not_actuated_by_default():
    """Their multipliers are their torques."""
    model = ts.models.acrobot()
    first = model.joints[0].name
    motion = [ts.PrescribedJoint(first, lambda t: (np.sin(t), np.cos(t), -np.sin(t)))]
    q, v, a = np.random.default_rng(5).standard_normal((3, model.nv))
    tau, multipliers = ts.constrained_inverse_dynamics(model, motion, q, v, a, t=T)
    needed = ts.inverse_dynamics(model, q, v, a)
    close(multipliers, needed[:1])
    close(tau, np.concatenate([[0.0], needed[1:]]))


# ---- Stewart platform


def stewart(massless):
    """A platform on six legs, each on a universal joint and a slider; at a configuration where the loops are closed.

    Feet and tips are pairs that lie opposite: with similar hexagons the platform would be movable with all legs locked.
    """
    rng = np.random.default_rng(6)
    apart = np.where(np.arange(6) % 2, 0.3, -0.3)
    feet, tips = np.pi / 3 * np.arange(6) + apart, np.pi / 3 * np.arange(6) - apart
    base = np.stack([1.5 * np.cos(feet), 1.5 * np.sin(feet), 0 * feet], axis=1)
    top = np.stack([0.8 * np.cos(tips), 0.8 * np.sin(tips), 0 * tips], axis=1)
    pose = ts.SE3.translation(0.1, -0.2, 1.6) @ ts.SE3.exp([0.1, 0.15, -0.2, 0, 0, 0])
    builder, q, loops = ts.ModelBuilder(gravity=(0, 0, -9.81)), [], []
    builder.add_body("platform", "world", ts.Free(), inertia=testing.random_inertia(rng))
    q.append(ts.Free().plus(ts.Free().neutral, pose.log()))
    for k in range(6):
        own = ts.Inertia.zero() if massless else testing.random_inertia(rng)
        rod = ts.Inertia.zero() if massless else testing.random_inertia(rng)
        builder.add_body(f"leg {k}", "world", ts.Universal([(1, 0, 0), (0, 1, 0)]), ts.SE3(p=base[k]), own)
        builder.add_body(f"rod {k}", f"leg {k}", ts.Prismatic((0, 0, 1)), ts.SE3(), rod)
        d = pose.R @ top[k] + pose.p - base[k]
        length = np.linalg.norm(d)
        q.append([np.arctan2(-d[1], d[2]), np.arcsin(d[0] / length), length])
        loops.append(ts.Loop(f"rod {k}", "platform", ts.Spherical(), ts.SE3(), ts.SE3(p=top[k])))
    return builder.build(), loops, np.concatenate(q), base, pose.R @ top.T + pose.p[:, None]


LEGS = [f"rod {k}" for k in range(6)]


def test_forces_of_the_legs_of_a_stewart_platform_at_rest():
    """On legs without mass: the forces along them hold the weight, with no moment about any point."""
    model, loops, q, base, tips = stewart(massless=True)
    assert np.abs(ts.constraint_errors(model, loops, q).g).max() < 1e-14
    rest = np.zeros(model.nv)
    tau, multipliers = ts.constrained_inverse_dynamics(model, loops, q, rest, rest, actuated=LEGS)
    along = (tips.T - base) / np.linalg.norm(tips.T - base, axis=1)[:, None]
    wrenches = np.vstack([along.T, np.cross(tips.T, along).T])
    inertia, pose = model.body("platform").inertia, ts.body_poses(model, q)[0]
    center = pose[:3, :3] @ inertia.com + pose[:3, 3]
    weight = np.array([0, 0, 9.81 * inertia.mass])
    forces = np.linalg.solve(wrenches, np.concatenate([weight, np.cross(center, weight)]))
    close([tau[model.joint(leg).v_slice][0] for leg in LEGS], forces)
    # and the loops hand them on to the platform
    on_platform = ts.constraint_wrenches(model, loops, q, multipliers)
    close(on_platform[:, 3:] @ pose[:3, :3].T, forces[:, None] * along)


def test_forces_of_the_legs_of_a_stewart_platform_in_motion():
    """By virtual work, in motions that the loops allow, and without multipliers."""
    model, loops, q, _, _ = stewart(massless=False)
    v, a = consistent(model, loops, q)
    tau, _ = ts.constrained_inverse_dynamics(model, loops, q, v, a, actuated=LEGS)
    at = [model.joint(leg).v_slice.start for leg in LEGS]
    G = ts.constraint_jacobian(model, loops, q)
    allowed = np.linalg.svd(G)[2][18:]  # six motions
    forces = np.linalg.solve(allowed[:, at], allowed @ ts.inverse_dynamics(model, q, v, a))
    close(tau[at], forces)
    close(constrained_forward_dynamics(model, loops, q, v, tau).a, a, EXACT)
    check_derivatives(model, loops, q, v, a, actuated=LEGS)


# ---- errors


def test_motions_that_motors_cannot_make():
    model, loops, q, _, _ = stewart(massless=False)
    v, a = consistent(model, loops, q)
    with pytest.raises(ts.ConstraintError, match="lack actuation: neither motors nor constraints can give"):
        ts.constrained_inverse_dynamics(model, loops, q, v, a, actuated=LEGS[:5])
    many = np.stack([q, q, q]), np.zeros((3, model.nv)), np.stack([0 * a, 0 * a, a])
    weightless = model.with_gravity((0, 0, 0))
    with pytest.raises(ts.ConstraintError, match=r"lack actuation in state 2 of the batch \(counted flat\)"):
        ts.constrained_inverse_dynamics(weightless, loops, *many, actuated=[])
    free = testing.random_tree(0, [ts.Free(), ts.Revolute(), ts.Revolute()])
    q, (v, a) = free.random(np.random.default_rng(0)), np.random.default_rng(0).standard_normal((2, free.nv))
    names = [j.name for j in free.joints]
    with pytest.raises(ts.ConstraintError, match=rf"^velocities of '{names[0]}' lack actuation"):
        ts.constrained_inverse_dynamics(free, [], q, v, a, actuated=names[1:])


def test_actuated_joints_are_named():
    model, loops, q, _, _ = stewart(massless=False)
    rest = np.zeros(model.nv)
    with pytest.raises(TypeError, match="expected a sequence of names"):
        ts.constrained_inverse_dynamics(model, loops, q, rest, rest, actuated="rod 0")
    with pytest.raises(TypeError, match=r"expected names of joints or a mask of bool of shape \(24,\)"):
        ts.constrained_inverse_dynamics(model, loops, q, rest, rest, actuated=np.ones(3))
    with pytest.raises(KeyError, match="no joint"):
        ts.constrained_inverse_dynamics(model, loops, q, rest, rest, actuated=["motor"])
    assert compile_constraints(model, loops).rows == 18


def test_states_that_are_not_numbers_pass():
    model, loops, q, _, _ = stewart(massless=False)
    rest = np.zeros((2, model.nv))
    states = np.stack([q, np.full_like(q, np.nan)])
    tau, multipliers = ts.constrained_inverse_dynamics(model, loops, states, rest, rest, actuated=LEGS)
    assert np.isfinite(tau[0]).all() and np.isfinite(multipliers[0]).all()
    assert np.isnan(tau[1][model.joint("rod 0").v_slice]).all()
