"""Motions in the lanes of a pack: each is, to the last bit, what it is alone.

The scenes are stiff, deep, or made of every joint and force; the motions of one pack range from easy to violent, so
that some converge at once, some need more corrections or new factors, and some leave the pack for a step.
"""

from dataclasses import replace

import numpy as np
import pytest
from compare import arrays_of
from population import sweep
from stiff_scenes import KINDS, stiff_scene

import torsor as ts
from torsor import _core, testing

SIZE, STEPS = 9, 4  # one more motion than the widest pack has lanes
# With few divisions of steps, so that motions which fail do so soon.
INTEGRATORS = [replace(i, substeps=4) if hasattr(i, "substeps") else i for i in testing.example_integrators(0.01)]
NAMES = [f"{type(i).__name__}{i.order}" for i in INTEGRATORS]


def stiff(seed):
    return stiff_scene(seed, KINDS[seed % len(KINDS)])[:5]


def random(seed):
    """A random tree of any joints, with some of all forces."""
    rng = np.random.default_rng(seed)
    model = testing.random_tree(rng, 6)
    forces = [force for force in testing.example_forces(model, rng) if rng.uniform() < 0.2]
    return model, forces, model.random(rng), rng.standard_normal(model.nv), rng.standard_normal(model.nv)


def deep(seed):
    """A chain that is solved over the tree, with forces on single bodies, or none."""
    rng = np.random.default_rng(seed)
    model = ts.models.chain(30)
    forces = [ts.JointDamping(None, 0.1), ts.BodyDamping("link29", 0.1)] if seed % 2 else []
    return model, forces, 0.1 * rng.standard_normal(30), rng.standard_normal(30), np.zeros(30)


SCENES = [pytest.param(make, seed, id=f"{make.__name__}-{seed}") for make in (stiff, random, deep) for seed in range(4)]


def batch_of(make, seed):
    """The scene with SIZE starts, from the given one to far away from it, and one that is not finite after a step."""
    model, forces, q, v, u = make(seed)
    rng = np.random.default_rng(seed + 1000)
    scale = np.concatenate([[0.0, 0.01], 10.0 ** rng.uniform(-4, 0.6, SIZE - 2)])
    away = rng.standard_normal((SIZE, model.nv)) * scale[:, None]
    starts = model.plus(np.broadcast_to(q, (SIZE, model.nq)), 0.1 * away), v + away
    starts[1][-1] *= 1e160  # overflows
    controls = u * rng.uniform(0, 1, (SIZE, STEPS, 1))
    weights = rng.standard_normal((2, SIZE, STEPS + 1, model.nv))
    return model, forces, *starts, controls, weights


@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")
@pytest.mark.parametrize("integrator", INTEGRATORS, ids=NAMES)
@pytest.mark.parametrize(("make", "seed"), sweep(SCENES, 3))
def test_motions_and_gradients_in_lanes_are_those_of_each_alone(make, seed, integrator):
    model, forces, q, v, u, (wq, wv) = batch_of(make, seed)

    def run(i):
        return ts.simulate(
            model, q[i], v[i], steps=STEPS, integrator=integrator, forces=forces, controls=u[i], on_failure="keep"
        )

    before = _core.lane_counts()
    order = np.random.default_rng(seed).permutation(SIZE)
    batch = run(order)
    assert _core.lane_counts()[0] > before[0]
    gradient = ts.adjoint(batch, dloss_dq=wq[order], dloss_dv=wv[order])
    for j, i in enumerate(order):
        alone = run(i)
        for name in ("q", "v", "a", "substeps"):
            np.testing.assert_array_equal(getattr(batch, name)[j], getattr(alone, name), err_msg=f"{name} of {i}")
        assert batch.finished[j] == alone.finished
        own = ts.adjoint(alone, dloss_dq=wq[i], dloss_dv=wv[i])
        for k, (x, y) in enumerate(zip(arrays_of(gradient), arrays_of(own), strict=True)):
            np.testing.assert_array_equal(x[j], y, err_msg=f"gradient {k} of {i}")


@pytest.mark.parametrize("integrator", INTEGRATORS, ids=NAMES)
@pytest.mark.parametrize(("make", "seed"), sweep(SCENES, 3))
def test_derivatives_of_steps_in_lanes_are_those_of_each_alone(make, seed, integrator):
    model, forces, q, v, u, _ = batch_of(make, seed)

    def derivatives(i):
        try:
            return ts.step_derivatives(model, integrator, q[i], v[i], u[i][..., 0, :], forces=forces)
        except ts.ConvergenceError:
            return None

    alone = [derivatives(i) for i in range(SIZE)]
    good = [i for i in range(SIZE) if alone[i] is not None]
    batch = derivatives(good)
    for j, i in enumerate(good):
        for x, y in zip(arrays_of(batch), arrays_of(alone[i]), strict=True):
            np.testing.assert_array_equal(x[j], y)
    if len(good) < SIZE:
        assert derivatives(range(SIZE)) is None


@pytest.mark.parametrize("seed", range(3))
def test_most_steps_stay_in_their_lanes(seed):
    """Motions of moderate speed do not leave the pack: otherwise lanes would not pay."""
    model, rng = ts.models.quadruped(), np.random.default_rng(seed)
    q = np.stack([model.random(rng) for _ in range(32)])
    v = rng.standard_normal((32, model.nv))
    forces = [ts.JointDamping(None, 0.1), ts.PointSpring("world", (0, 0, 1), model.bodies[-1].name, (0, 0, 0), 10.0)]
    for integrator in (ts.SymplecticEuler(1e-3), ts.BDF1(1e-3), ts.BDF2(1e-3), ts.SDIRK2(1e-3), ts.Variational(1e-3)):
        for chosen in ([], forces):
            before = _core.lane_counts()
            ts.simulate(model, q, v, steps=10, integrator=integrator, forces=chosen)
            steps, alone = np.subtract(_core.lane_counts(), before)
            assert steps == 320
            assert alone <= 0.02 * steps
