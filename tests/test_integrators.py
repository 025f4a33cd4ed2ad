"""The contract of integrators, over the list of all of them: order, equations, derivatives, and tables of numbers."""

import copy
import pickle
from dataclasses import replace

import numpy as np
import pytest

import torsor as ts
from torsor import testing
from torsor.integrators.base import Implicit, earlier_weights

KINDS = {
    f"{type(i).__name__}{i.order if isinstance(i, ts.Variational) else ''}": i for i in testing.example_integrators(0.1)
}
IMPLICIT = {name: i for name, i in KINDS.items() if isinstance(i, Implicit)}


def with_step(integrator, h, **changes):
    """The same integrator with another step."""
    return replace(integrator, h=h, **changes)


def tight(integrator, h):
    """With a tolerance near rounding, so that differences of steps are those of their equations."""
    return with_step(integrator, h, **({"tolerance": 1e-13} if hasattr(integrator, "tolerance") else {}))


@pytest.fixture(scope="module")
def tree():
    """Every kind of coordinates: angles, lengths, quaternions, exponential ones."""
    joints = [
        ts.Free(),
        ts.Revolute((0, 1, 0)),
        ts.Spherical(),
        ts.Prismatic((1, 0, 0)),
        ts.SphericalExp(),
        ts.Universal(),
    ]
    return testing.random_tree(5, joints, branching=0.3)


@pytest.fixture(scope="module")
def start(tree):
    rng = np.random.default_rng(2)
    q = tree.random(rng)
    # Exponential coordinates far from their singularity, so that no chart is changed.
    q[tree.joints[4].q_slice] = (0.2, -0.1, 0.3)
    return q, 0.4 * rng.standard_normal(tree.nv)


@pytest.mark.parametrize("name", KINDS)
def test_errors_shrink_with_the_order(name, tree, start):
    """Of the end of a motion with forces that depend on q, v and t, against a method of order 8."""
    integrator = KINDS[name]
    forces = [ts.JointDamping(tree.joints[1].name, 0.3), ts.JointSpring(tree.joints[3].name, 2.0)]
    u = np.linspace(-1.0, 1.0, tree.nv)

    def end(kind, steps):
        motion = ts.simulate(
            tree, *start, steps=steps, integrator=kind, forces=forces, controls=lambda t: u * np.cos(3.0 * t)
        )
        assert (motion.substeps == 1).all()
        return motion.q[-1], motion.v[-1]

    T, order = 0.16, integrator.order
    q, v = end(ts.Variational(T / 64, 8, tolerance=1e-13), 64)
    counts = (8, 16) if order >= 4 else (32, 64)
    errors = []
    for steps in counts:
        q1, v1 = end(tight(integrator, T / steps), steps)
        errors.append(np.linalg.norm([*tree.minus(q1, q), *(v1 - v)]))
    # Twice as many steps: 2^order, up to higher orders of h, which the last factor allows for.
    assert errors[0] / errors[1] > 0.8 * 2.0**order
    assert errors[1] < 1e-2


@pytest.mark.parametrize("name", IMPLICIT)
def test_a_step_solves_its_equations(name, tree, start):
    """ID(q1, v1, a1) = u at the end of the step, all integrators being stiffly accurate."""
    motion = ts.simulate(tree, *start, steps=3, integrator=tight(IMPLICIT[name], 0.01), controls=np.ones(tree.nv))
    tau = ts.inverse_dynamics(tree, motion.q[1:], motion.v[1:], motion.a[1:])
    np.testing.assert_allclose(tau, np.ones_like(tau), atol=1e-8 * np.abs(motion.a).max())


@pytest.mark.parametrize("name", KINDS)
def test_derivatives_are_those_of_the_step(name, tree, start):
    q, v = start
    integrator = tight(KINDS[name], 0.02)
    forces = [
        ts.JointSpring(tree.joints[3].name, 5.0, damping=0.2),
        ts.BodyDamping(tree.bodies[-1].name, np.full(6, 0.1)),
    ]
    u = np.linspace(-1.0, 1.0, tree.nv)
    found = ts.step_derivatives(tree, integrator, q, v, u, forces=forces)

    def step(dq, dv, du):
        one = ts.step_derivatives(tree, integrator, tree.plus(q, dq), v + dv, u + du, forces=forces)
        return tree.minus(one.q1, found.q1), one.v1

    eps, zero = 1e-5, np.zeros(tree.nv)
    for k in range(tree.nv):
        unit = eps * np.eye(tree.nv)[k]
        for place, by in enumerate(("dq", "dv", "du")):
            arguments = [zero, zero, zero]
            arguments[place] = unit
            (q_up, v_up), (q_down, v_down) = step(*arguments), step(*(-x for x in arguments))
            # Differences are good to eps^2 and to rounding over eps.
            np.testing.assert_allclose(
                getattr(found, f"dq1_{by}")[:, k], (q_up - q_down) / (2 * eps), atol=1e-8, rtol=1e-7
            )
            np.testing.assert_allclose(
                getattr(found, f"dv1_{by}")[:, k], (v_up - v_down) / (2 * eps), atol=2e-6, rtol=1e-6
            )


@pytest.mark.parametrize("name", KINDS)
def test_gradients_are_those_of_the_motion(name, tree, start):
    q, v = start
    integrator = tight(KINDS[name], 0.01)
    rng = np.random.default_rng(1)
    controls = rng.standard_normal((6, tree.nv))
    weight_q, weight_v = rng.standard_normal((7, tree.nv)), rng.standard_normal((7, tree.nv))

    def run(dq, dv, controls):
        return ts.simulate(tree, tree.plus(q, dq), v + dv, steps=6, integrator=integrator, controls=controls)

    base = run(np.zeros(tree.nv), np.zeros(tree.nv), controls)
    gradient = ts.adjoint(base, dloss_dq=weight_q, dloss_dv=weight_v)

    def loss(motion):
        return (weight_q * tree.minus(motion.q, base.q)).sum() + (weight_v * motion.v).sum()

    dq, dv, du = rng.standard_normal(tree.nv), rng.standard_normal(tree.nv), rng.standard_normal(controls.shape)
    expected = gradient.q0 @ dq + gradient.v0 @ dv + (gradient.controls * du).sum()
    eps = 1e-6
    ends = [loss(run(s * eps * dq, s * eps * dv, controls + s * eps * du)) for s in (1.0, -1.0)]
    assert (ends[0] - ends[1]) / (2 * eps) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("name", KINDS)
def test_copies_and_pickles_step_alike(name, tree, start):
    integrator = with_step(KINDS[name], 0.01)
    expected = ts.simulate(tree, *start, steps=2, integrator=integrator)
    for other in (copy.deepcopy(integrator), pickle.loads(pickle.dumps(integrator))):
        assert other == integrator
        np.testing.assert_array_equal(ts.simulate(tree, *start, steps=2, integrator=other).q, expected.q)


def test_a_custom_integrator_is_its_table(tree, start, tmp_path):
    """The matrix is all that the core needs: with that of SDIRK2 the steps of SDIRK2."""
    mine = ts.CustomIntegrator(0.01, ts.SDIRK2.A, tolerance=1e-11)
    controls = {"controls": lambda t: np.full(tree.nv, np.sin(t))}
    expected = ts.simulate(tree, *start, steps=4, integrator=ts.SDIRK2(0.01, tolerance=1e-11), **controls)
    motion = ts.simulate(tree, *start, steps=4, integrator=mine, **controls)
    np.testing.assert_array_equal(motion.q, expected.q)
    motion.save(tmp_path / "motion.npz")
    assert ts.Trajectory.load(tmp_path / "motion.npz", tree).integrator == mine
    whole = np.array([[*row, *[0.0] * (2 - len(row))] for row in ts.SDIRK2.A])
    assert ts.CustomIntegrator(0.01, whole, tolerance=1e-11) == mine
    assert mine != ts.CustomIntegrator(0.01, ts.SDIRK3.A, tolerance=1e-11)
    assert hash(mine) == hash(replace(mine))


def test_the_order_of_a_custom_integrator_is_that_of_its_table():
    for kind in (ts.BDF1, ts.SDIRK2, ts.SDIRK3):
        assert ts.CustomIntegrator(0.1, kind.A).order == kind.order
    assert ts.CustomIntegrator(0.1, [[0.5], [0.5, 0.5]]).order == 1


@pytest.mark.parametrize(
    ("A", "error", "message"),
    [
        ((), ValueError, "A has no rows, expected the matrix"),
        (3.0, TypeError, "A is 3.0, expected the rows of a matrix"),
        (((0.5,), (0.5, 0.5, 0.1)), ValueError, "row 1 of A is .* expected 2 numbers, the last positive, and zeros"),
        (((0.5,), (0.5, 0.0)), ValueError, "row 1 of A is .* expected 2 numbers, the last positive"),
        (((0.5,), (1.0,)), ValueError, "row 1 of A is .* expected 2 numbers, the last positive"),
        (((np.inf,),), ValueError, "row 0 of A is .* expected 1 numbers, the last positive"),
        (((0.5,), (0.2, 0.5)), ValueError, "A ends with .* expected a row with the sum 1"),
        (((1.2,), (0.5, 0.5)), ValueError, "the stages of A are at .* expected increasing fractions"),
    ],
)
def test_wrong_tables(A, error, message):
    with pytest.raises(error, match=message):
        ts.CustomIntegrator(0.1, A)


@pytest.mark.parametrize("name", KINDS)
def test_the_integral_of_what_is_positive_is_positive(name):
    """Weights of controls at the stages of a step: an effort must not be negative."""
    weights = KINDS[name]._weights
    assert min(weights) >= 0.0
    assert sum(weights) == pytest.approx(1.0, rel=1e-14)


def test_weights_of_earlier_stages_invert_the_table():
    A = np.array([[*row, *[0.0] * (3 - len(row))] for row in ts.SDIRK3.A])
    inverse = np.linalg.inv(A)
    for k in range(3):
        # s_k = (x_k - z.x) / A_kk are the rows of A^-1.
        np.testing.assert_allclose(-np.array(earlier_weights(ts.SDIRK3.A, k)) / A[k, k], inverse[k, :k], rtol=1e-13)
