"""What variational integrators conserve, and their measured order."""

from dataclasses import replace

import numpy as np
import pytest
from population import JOINTS
from variational_cases import (
    RULES,
    ordered_tree,
    pendulum,
    state,
    symplectic_form,
)

import torsor as ts
from torsor import testing
from torsor.testing import random_inertia

# ---- order


def distance(model, a, b):
    return np.abs(model.minus(a.q[-1], b.q[-1])).max() + np.abs(a.v[-1] - b.v[-1]).max()


@pytest.mark.parametrize("with_forces", [False, True])
@pytest.mark.parametrize(("rule", "order"), RULES)
def test_measured_order(rule, order, with_forces):
    """Order 2s, of q and of v, also with damping and with controls that are functions of time."""
    model, q, v = ordered_tree()
    T = 0.48
    given = {}
    if with_forces:
        given["forces"] = [
            ts.JointSpring(None, 3.0, model.neutral, 0.3),
            ts.BodyDamping("b2", np.full(6, 0.2)),
            ts.PointSpring("b3", (0.1, 0, 0), "world", (0, 0, 1), 10.0, 0.5),
        ]
        given["controls"] = lambda t: np.sin(10 * t + np.arange(model.nv))
    exact = ts.simulate(model, q, v, T=T, integrator=ts.Variational(T / 96, 8), **given)
    # Steps whose errors are far above the 1e-11 of Newton's method and of the fine solution, and far enough below 1 for
    # the first term to rule; the next one is O(h), and shifts the order by some per cent.
    coarse = {2: 60, 4: 16, 6: 6 if with_forces else 3}[order]
    errors = [
        distance(model, ts.simulate(model, q, v, T=T, integrator=ts.Variational(T / n, order, rule), **given), exact)
        for n in (coarse, 2 * coarse)
    ]
    assert errors[1] > 1e-10
    assert np.log2(errors[0] / errors[1]) == pytest.approx(order, abs=0.25)


def test_another_method_agrees():
    """High order in few steps: to the tolerance of SciPy's integrator."""
    model, q, v = ordered_tree()
    exact = ts.simulate(model, q, v, T=0.24, integrator=ts.Adaptive(0.24, rtol=1e-12, atol=1e-12))
    for rule in ("gauss", "lobatto"):
        run = ts.simulate(model, q, v, T=0.24, integrator=ts.Variational(0.01, 10, rule))
        assert distance(model, run, exact) < 1e-10


def test_very_high_order_in_one_step():
    """A pendulum by one step of order 32, whose error is that of rounding."""
    builder = ts.ModelBuilder(gravity=(0, 0, -9.81))
    builder.add_body("a", "world", ts.Revolute((0, 1, 0)), inertia=ts.Inertia.point(1.0, (0, 0, -1.0)))
    model = builder.build()
    exact = ts.simulate(model, [1.0], [0.5], T=0.4, integrator=ts.Variational(0.02, 8))
    run = ts.simulate(model, [1.0], [0.5], steps=1, integrator=ts.Variational(0.4, 32))
    assert distance(model, run, exact) < 1e-11
    # The most unknowns that a joint may have, in the step and in its derivatives.
    model, q, v = ordered_tree()
    p = ts.generalized_momenta(model, q, v)
    for rule in ("gauss", "lobatto"):
        d = ts.step_derivatives(model, ts.Variational(0.05, 32, rule), q, p=p)
        exact = ts.simulate(model, q, v, T=0.05, integrator=ts.Variational(0.005, 8))
        np.testing.assert_allclose(model.minus(d.q1, exact.q[-1]), 0, atol=1e-11)
        D = np.block([[d.dq1_dq, d.dq1_dp], [d.dp1_dq, d.dp1_dp]])
        assert np.abs(D.T @ symplectic_form(model, d.p1) @ D - symplectic_form(model, p)).max() < 1e-10


# ---- what is conserved


def six_joints():
    """Six joints of several kinds in a tree; the chart of exponential coordinates is kept."""
    rng = np.random.default_rng(2)
    builder = ts.ModelBuilder(gravity=(0, 0, -9.81))
    kinds = [ts.Revolute((0, 1, 0)), ts.Spherical(), ts.Prismatic((1, 0, 0)), ts.Universal(), ts.Revolute((1, 0, 0))]
    parents = ["world", "b0", "b0", "b1", "b3", "b2"]
    for k, joint in enumerate([*kinds, ts.Screw((0, 0, 1), 0.2)]):
        placement = ts.SE3.translation(*(0.3 * rng.standard_normal(3)))
        builder.add_body(f"b{k}", parents[k], joint, placement, random_inertia(rng))
    return builder.build()


@pytest.mark.parametrize(
    ("make", "h", "forces"),
    [
        pytest.param(lambda: pendulum(2), 0.02, (), id="double pendulum"),
        pytest.param(six_joints, 0.01, (ts.JointSpring(None, 60.0),), id="tree", marks=pytest.mark.slow),
    ],
)
def test_energy_does_not_drift(make, h, forces):
    model = make()
    rng = np.random.default_rng(0)
    q = model.plus(model.neutral, (8.0 if not forces else 0.3) * rng.standard_normal(model.nv))

    def energies(integrator, steps):
        found = ts.simulate(model, q, steps=steps, every=100, integrator=integrator, forces=forces).energies
        return found.total - found.total[0], found.kinetic.max()

    error, size = energies(ts.Variational(h), 100_000)
    # It swings within a narrow band (h^2 times what is there) that does not move: of both, the first tenth knows all.
    tenths = np.array_split(error[1:], 10)
    assert np.abs(error).max() < 5e-3 * size
    assert np.abs(error).max() < 3 * np.abs(tenths[0]).max()
    means = [x.mean() for x in tenths]
    assert max(means) - min(means) < 0.5 * np.abs(error).max()
    # BDF2 loses far more in a tenth of the time, and goes on.
    damped, _ = energies(ts.BDF2(h), 10_000)
    assert damped[-1] < damped[50] < damped[20] < damped[10] < -10 * np.abs(error).max()


@pytest.mark.parametrize(("rule", "order"), RULES)
def test_energy_error_shrinks_with_the_order(rule, order):
    model = six_joints()
    rng = np.random.default_rng(0)
    q = model.plus(model.neutral, 0.4 * rng.standard_normal(model.nv))
    worst = []
    for h in (0.04, 0.02):
        total = ts.simulate(model, q, T=4.0, integrator=ts.Variational(h, order, rule)).energies.total
        worst.append(np.abs(total - total[0]).max())
    assert np.log2(worst[0] / worst[1]) > order - 0.8  # the largest of an error that swings


def world_momentum(model, q, v):
    return ts.momentum(model, q, v, about="world")


@pytest.mark.parametrize("internal", [False, True], ids=["free", "springs"])
@pytest.mark.parametrize(("rule", "order"), [("gauss", 2), ("lobatto", 4), ("gauss", 6)])
@pytest.mark.parametrize("part", range(4))
def test_momentum_of_a_floating_tree(part, rule, order, internal):
    """All joints there are, on a free base without gravity; also with springs, dampers and torques inside."""
    joints = [JOINTS[k] for k in np.array_split(np.random.default_rng(0).permutation(len(JOINTS)), 4)[part]]
    model = testing.random_tree(part, [ts.Free(), ts.Fixed(), *joints], branching=0.3)
    model = joined_to_base(model).with_gravity((0, 0, 0))
    q, _, v = state(model, 3, 0.3)
    forces, controls = [], None
    if internal:
        own = [b.name for b in model.bodies[1:]]
        forces = [
            *(ts.JointSpring(name, 1.0, damping=0.1) for name in own[1:4]),
            ts.SpringDamper(own[2], (0.1, 0.2, 0), own[-1], (0, 0, 0.3), 2.0, 0.2, 0.5),  # along its line
        ]
        controls = np.r_[np.zeros(6), np.sin(np.arange(model.nv - 6))]
    integrator = ts.Variational(0.004, order, rule, tolerance=1e-13)
    run = ts.simulate(model, q, v, steps=25, integrator=integrator, forces=forces, controls=controls)
    value = np.concatenate([world_momentum(at, run.q[a:b], run.v[a:b]) for _, a, b, at in run.segments()])
    assert value.shape == (26, 6)
    # Of each step: what Newton's method and rounding leave.
    assert np.abs(np.diff(value, axis=0)).max() < 1e-11 * (1 + np.abs(value[0]).max())


def joined_to_base(model):
    """The same with all trees on the first body."""
    bodies = [model.bodies[0]]
    for b in model.bodies[1:]:
        bodies.append(replace(b, parent=model.bodies[0].name) if b.parent in (None, "world") else b)
    return ts.Model(model.name, model.gravity, tuple(bodies))


def test_momentum_over_many_steps():
    """10 000 steps of a tumbling tree: the sum of the rounding of each, which is far below 1e-11 a step."""
    model, q, v = ordered_tree()
    model = model.with_gravity((0, 0, 0))
    run = ts.simulate(model, q, 2 * v, steps=10_000, every=100, integrator=ts.Variational(0.005))
    rows = [world_momentum(at, run.q[a:b], run.v[a:b]) for _, a, b, at in run.segments()]
    value = np.concatenate(rows)
    assert np.abs(value - value[0]).max() < 1e-9 * (1 + np.abs(value[0]).max())


def test_rest_stays_rest():
    """Equations that hold from the beginning, to the last bit; the mass matrix is all that there is to factor."""
    model = pendulum(3)
    for q in (np.zeros(3), np.array([np.pi, 0, 0])):
        for rule, order in (p.values for p in RULES):
            run = ts.simulate(model, q, steps=20, integrator=ts.Variational(0.01, order, rule))
            np.testing.assert_allclose(run.q, np.tile(q, (21, 1)), atol=1e-13)
