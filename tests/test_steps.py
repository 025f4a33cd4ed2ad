"""Single steps: against simulations and step_derivatives, in batches, with forces that change; and bad input."""

import gc
import weakref

import numpy as np
import pytest
from compare import close
from population import models

import torsor as ts
from torsor.forces.force import compile_forces
from torsor.testing import random_tree

H = 1e-2
INTEGRATORS = (
    ts.SymplecticEuler(H),
    ts.LinearlyImplicitEuler(H),
    ts.BDF1(H),
    ts.BDF2(H),
    ts.SDIRK2(H),
    ts.Variational(H),
    ts.Variational(H, order=4),
)
NAMES = [f"{type(i).__name__}{i.order}" for i in INTEGRATORS]
JOINTS = (ts.Free(), ts.Revolute((0, 1, 0)), ts.Spherical(), ts.Prismatic((1, 0, 0)), ts.Universal())


def scene(seed=0):
    rng = np.random.default_rng(seed)
    model = random_tree(seed, JOINTS)
    forces = [ts.JointSpring(None, 3.0, model.neutral, 0.2), ts.BodyDamping(model.bodies[-1].name, np.full(6, 0.1))]
    return model, model.random(rng), 0.3 * rng.standard_normal(model.nv), rng.standard_normal(model.nv), forces


@pytest.mark.parametrize("integrator", INTEGRATORS, ids=NAMES)
def test_a_step_is_the_first_of_a_simulation(integrator):
    """To the last bit: both take it without the accelerations of a step before."""
    model, q, v, u, forces = scene()
    run = ts.simulate(model, q, v, steps=1, integrator=integrator, forces=forces, controls=u, t0=0.5)
    one = ts.step(model, integrator, q, v, u, forces=forces, t=0.5)
    assert isinstance(one, ts.simulation.Step)
    np.testing.assert_array_equal(one.q1, run.q[1])
    np.testing.assert_array_equal(one.v1, run.v[1])
    d = ts.step_derivatives(model, integrator, q, v, u, forces=forces, t=0.5)
    np.testing.assert_array_equal(one.q1, d.q1)
    np.testing.assert_array_equal(one.v1, d.v1)


@pytest.mark.parametrize("model", models(3))
def test_steps_of_every_joint(model):
    rng = np.random.default_rng(1)
    q, v = model.random(rng, 2), 0.3 * rng.standard_normal((2, model.nv))
    for integrator in (ts.BDF1(1e-3), ts.Variational(1e-3)):
        both = ts.step(model, integrator, q, v)
        for k in range(2):
            run = ts.simulate(model, q[k], v[k], steps=1, integrator=integrator)
            if not run.switches:
                np.testing.assert_array_equal(both.q1[k], run.q[1])
                np.testing.assert_array_equal(both.v1[k], run.v[1])
            else:  # which change the coordinates of the row
                end = run.segments()[-1][3]
                close(ts.body_poses(model, both.q1[k]), ts.body_poses(end, run.q[1]))
                close(ts.body_velocities(model, both.q1[k], both.v1[k]), ts.body_velocities(end, run.q[1], run.v[1]))


def test_steps_in_a_loop_are_a_simulation():
    """With the state before, BDF2 takes the steps of a simulation, to what Newton's method leaves."""
    model, q, v, u, forces = scene(1)
    integrator = ts.BDF2(H, tolerance=1e-13)
    run = ts.simulate(model, q, v, steps=20, integrator=integrator, forces=forces, controls=u)
    previous, state = None, (q, v)
    for k in range(20):
        now = ts.step(model, integrator, *state, u, forces=forces, t=k * H, previous=previous)
        previous, state = state, now
    np.testing.assert_allclose(model.minus(state[0], run.q[-1]), 0, atol=1e-10)
    np.testing.assert_allclose(state[1], run.v[-1], atol=1e-9)


@pytest.mark.parametrize("integrator", INTEGRATORS, ids=NAMES)
def test_batches_have_the_bits_of_their_states(integrator):
    model, q, v, _, forces = scene(2)
    rng = np.random.default_rng(0)
    qs, us = model.plus(q, 0.1 * rng.standard_normal((3, 2, model.nv))), rng.standard_normal((3, 2, model.nv))
    ts_ = np.arange(6.0).reshape(3, 2)
    out = ts.simulation.Step(np.empty((3, 2, model.nq)), np.empty((3, 2, model.nv)))
    all_ = ts.step(model, integrator, qs, v, us, forces=forces, t=ts_, threads=2, out=out)
    assert all_.q1 is out.q1 and all_.v1 is out.v1
    for k in np.ndindex(3, 2):
        one = ts.step(model, integrator, qs[k], v, us[k], forces=forces, t=float(ts_[k]))
        np.testing.assert_array_equal(one.q1, all_.q1[k])
        np.testing.assert_array_equal(one.v1, all_.v1[k])


class Push(ts.CustomForce):
    """A constant torque p, which can be changed."""

    def __init__(self, p):
        self.p = np.array(p, dtype=float)

    def value(self, q, v, t, p):
        return p[0] * np.ones_like(v)

    def derivatives(self, q, v, t, p):
        return np.zeros((v.size, v.size)), np.zeros((v.size, v.size))

    def gradient(self, q, v, t, p, w):
        return np.array([w.sum()])


def test_forces_are_compiled_once_and_again_when_they_change():
    model, q, v, _, forces = scene(3)
    assert compile_forces(model, forces) is compile_forces(model, tuple(forces))
    assert compile_forces(model, forces) is not compile_forces(model, forces[:1])
    other = model.with_gravity((0, 0, -1))
    assert compile_forces(other, forces) is not compile_forces(model, forces)
    push = Push([1.0])
    first = ts.step(model, ts.BDF1(H), q, v, forces=[push])
    np.testing.assert_array_equal(first.v1, ts.step(model, ts.BDF1(H), q, v, forces=[push]).v1)
    push.p[0] = 2.0  # in place
    second = ts.step(model, ts.BDF1(H), q, v, forces=[push])
    np.testing.assert_array_equal(second.v1, ts.step(model, ts.BDF1(H), q, v, forces=[Push([2.0])]).v1)
    assert (first.v1 != second.v1).any()
    push.p = np.array([1.0])
    np.testing.assert_array_equal(first.v1, ts.step(model, ts.BDF1(H), q, v, forces=[push]).v1)


def test_models_forget_forces():
    """A model keeps the last few lists of forces, and goes with them."""
    model, q, v, _, _ = scene(4)
    push = Push([1.0])
    push.model = model  # a cycle
    ts.step(model, ts.BDF1(H), q, v, forces=[push])
    for k in range(20):
        ts.step(model, ts.BDF1(H), q, v, forces=[Push([float(k)])])
    assert len(model._cache["forces"]) < 10
    gone = weakref.ref(push)
    ts.step(model, ts.BDF1(H), q, v, forces=[push])
    del push, model
    gc.collect()
    assert gone() is None


def test_bad_input_is_told():
    model, q, v, _, forces = scene(5)
    nv = model.nv
    with pytest.raises(TypeError, match="integrator must have steps, such as"):
        ts.step(model, ts.Adaptive(H), q, v)
    with pytest.raises(TypeError, match="integrator must have steps, such as"):
        ts.step(model, None, q, v)
    with pytest.raises(TypeError, match=r"forces must be a sequence of forces, got JointSpring; did you mean"):
        ts.step(model, ts.BDF1(H), q, v, forces=forces[0])
    with pytest.raises(TypeError, match=r"force 0 must be a Force, got 3"):
        ts.step(model, ts.BDF1(H), q, v, forces=[3])
    with pytest.raises(TypeError, match=r"model must be a torsor.Model"):
        ts.step("arm", ts.BDF1(H), q, v, forces=forces)
    for integrator in INTEGRATORS:
        with pytest.raises(ValueError, match=rf"v has shape \(2,\), expected \(..., {nv}\)"):
            ts.step(model, integrator, q, np.zeros(2))
        with pytest.raises(ValueError, match=r"v is not finite: v\[0\] is nan"):
            ts.step(model, integrator, q, np.full(nv, np.nan))
        if not isinstance(integrator, ts.BDF2):
            with pytest.raises(TypeError, match="previous is for BDF2, which has two steps"):
                ts.step(model, integrator, q, v, previous=(q, v))
    with pytest.raises(TypeError, match=r"previous must be the state \(q, v\) one step before"):
        ts.step(model, ts.BDF2(H), q, v, previous=q)
    for half in ((q, None), (None, v), (None, None)):  # of which the core would read what is not there
        for function in (ts.step, ts.step_derivatives):
            with pytest.raises(TypeError, match=r"previous must be the state \(q, v\) one step before"):
                function(model, ts.BDF2(H), q, v, previous=half)
    with pytest.raises(TypeError, match="t has dtype"):
        ts.step(model, ts.BDF1(H), q, v, t="now")
    with pytest.raises(ts.ConvergenceError, match=r"in the step from state 1 of the batch .*correction of v") as error:
        ts.step(model, ts.BDF1(H, iterations=10, substeps=1), q, np.stack([0 * v, 1e3 + v]))
    assert error.value.index == 1
    massless = ts.ModelBuilder().add_body("a", "world", ts.Revolute()).build()
    for integrator in INTEGRATORS:
        with pytest.raises(ts.ConvergenceError, match=r"the given state: the mass matrix is singular at joint 'a'"):
            ts.step(massless, integrator, [0.1], [0.0])
