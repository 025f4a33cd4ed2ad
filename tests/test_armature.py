"""Armature: the inertia of drives, on the diagonal of the mass matrix.

Derivatives are tested with the random trees of the other tests, whose joints have armature."""

from dataclasses import replace

import numpy as np
import pytest
from compare import close
from population import mixed_tree

import torsor as ts
from torsor import testing


def without(model: ts.Model) -> ts.Model:
    return replace(model, bodies=tuple(replace(b, armature=()) for b in model.bodies))


def with_more(model: ts.Model, more: np.ndarray) -> ts.Model:
    """The model with armature added by velocity."""
    values = model.armature + more
    bodies = (
        replace(b, armature=tuple(values[j.v_slice].tolist())) for b, j in zip(model.bodies, model.joints, strict=True)
    )
    return replace(model, bodies=tuple(bodies))


def direction(model: ts.Model) -> np.ndarray:
    rng = np.random.default_rng(7)
    return np.concatenate([testing.random_armature(rng, b.joint) for b in model.bodies])


def difference(f, h: float = 1e-3):
    return sum(c * (f(k * h) - f(-k * h)) for k, c in ((1, 3 / 4), (2, -3 / 20), (3, 1 / 60))) / h


@pytest.mark.parametrize("seed", range(4))
def test_it_is_a_diagonal_of_the_mass_matrix(seed: int) -> None:
    model = testing.random_tree(seed, 10)
    plain, rng = without(model), np.random.default_rng(seed)
    q, (v, a) = model.random(rng), rng.standard_normal((2, model.nv))
    A = np.diag(model.armature)
    close(ts.mass_matrix(model, q), ts.mass_matrix(plain, q) + A)
    close(ts.inverse_dynamics(model, q, v, a), ts.inverse_dynamics(plain, q, v, a) + A @ a)
    close(ts.kinetic_energy(model, q, v), ts.kinetic_energy(plain, q, v) + v @ A @ v / 2)
    close(ts.coriolis_matrix(model, q, v), ts.coriolis_matrix(plain, q, v))
    tau = ts.inverse_dynamics(model, q, v, a)
    close(ts.forward_dynamics(model, q, v, tau), a, 1e-10)
    close(ts.mass_matrix_inverse(model, q) @ ts.mass_matrix(model, q), np.eye(model.nv), 1e-10)
    close(ts.mass_matrix_solve(model, q, ts.mass_matrix(model, q) @ v), v, 1e-10)
    held = [b.name for b in model.bodies[::2]]
    found = ts.hybrid_dynamics(model, q, v, a=a, tau=tau, prescribed=held)
    close(found[0], a, 1e-10)
    close(found[1], tau, 1e-10)


def test_zero_armature_is_none() -> None:
    """Bit for bit: nothing is added where there is nothing."""
    model = without(mixed_tree())
    zero = with_more(model, np.zeros(model.nv))
    rng = np.random.default_rng(0)
    q, (v, tau) = model.random(rng), rng.standard_normal((2, model.nv))
    assert np.array_equal(ts.forward_dynamics(model, q, v, tau), ts.forward_dynamics(zero, q, v, tau))
    assert np.array_equal(ts.mass_matrix(model, q), ts.mass_matrix(zero, q))
    run = [ts.simulate(m, q, v, steps=5, integrator=ts.BDF2(h=1e-2)) for m in (model, zero)]
    assert np.array_equal(run[0].q, run[1].q)


def test_massless_links_move_by_armature_alone() -> None:
    builder = ts.ModelBuilder(gravity=(0, 0, -9.81))
    builder.add_body("link", joint=ts.Revolute((0, 1, 0)), armature=0.5)
    builder.add_body("tip", "link", ts.Prismatic((1, 0, 0)), armature=2.0)
    model = builder.build()
    close(ts.forward_dynamics(model, [0.3, 0.1], [1.0, 2.0], [1.0, 3.0]), [2.0, 1.5])


def test_where_it_is_refused() -> None:
    with pytest.raises(ts.ModelError, match=r"armature of 'b' is \[.*\], but its joint is free"):
        ts.ModelBuilder().add_body("b", joint=ts.Free(), armature=0.1)
    with pytest.raises(ts.ModelError, match="three equal numbers"):
        ts.ModelBuilder().add_body("b", joint=ts.Spherical(), armature=[0.1, 0.2, 0.1])
    with pytest.raises(ts.ModelError, match="is negative"):
        ts.ModelBuilder().add_body("b", joint=ts.Revolute(), armature=-1.0)
    model, zeros = mixed_tree(), np.zeros(mixed_tree().nv)
    along = ts.ModelDirection(armature={"base": np.ones(6)})
    with pytest.raises(ts.ModelError, match="free"):
        ts.inverse_dynamics_jvp(model, model.neutral, zeros, zeros, model_direction=along)


INTEGRATORS = [*testing.example_integrators(0.02), ts.Variational(0.02, order=2)]


@pytest.mark.parametrize("integrator", INTEGRATORS, ids=lambda x: f"{type(x).__name__}{getattr(x, 'order', '')}")
@pytest.mark.parametrize("closed", [False, True], ids=["tree", "loop"])
def test_gradients_of_trajectories(integrator: ts.Integrator, closed: bool) -> None:
    joints = [ts.Spherical(), ts.Revolute((1, 2, 0)), ts.Prismatic((0, 1, 1)), ts.SphericalExp()]
    model = testing.random_tree(2, joints, branching=0.0)
    rng = np.random.default_rng(1)
    q, v = model.random(rng), 0.3 * rng.standard_normal(model.nv)
    forces = [ts.JointSpring("body1", 3.0), ts.JointDamping("body2", 0.4)]
    constraints: list[ts.Constraint] = [ts.Gear("body1", "body2", 0.5, offset=0.1)] if closed else []
    if closed:
        q, v = ts.project(model, constraints, q, v)
    w = rng.standard_normal((2, model.nv))

    def run(more: float) -> ts.Trajectory:
        return ts.simulate(
            with_more(model, more * direction(model)), q, v, steps=4, integrator=integrator, forces=forces,
            constraints=constraints,
        )  # fmt: skip

    base = run(0.0)

    def value(more: float) -> float:
        moved = run(more)
        return float(w[0] @ model.minus(moved.q[-1], base.q[-1]) + w[1] @ moved.v[-1])

    # at the last row minus is the identity to first order
    gradient = ts.adjoint(base, dloss_dq=w[0], dloss_dv=w[1])
    close(gradient.armature @ direction(model), difference(value), 2e-8)


def test_gradients_of_constrained_accelerations_and_projections() -> None:
    model = testing.random_tree(2, [ts.Revolute((1, 2, 0)), ts.Prismatic((0, 1, 1)), ts.Spherical()], branching=0.0)
    rng = np.random.default_rng(1)
    rows = [ts.Gear("body0", "body1", 0.5, offset=0.1)]
    given, v = model.random(rng), rng.standard_normal(model.nv)
    w, tau = rng.standard_normal((2, model.nv))
    q, v1 = ts.project(model, rows, given, v)

    def accelerations(s: float) -> float:
        moved = with_more(model, s * direction(model))
        return w @ ts.constrained_forward_dynamics(moved, rows, q, v1, tau).a

    found = ts.constrained_forward_dynamics_vjp(model, rows, q, v1, tau, w_a=w).armature
    close(found @ direction(model), difference(accelerations), 1e-9)

    def projected(s: float) -> float:
        q1, v1 = ts.project(with_more(model, s * direction(model)), rows, given, v)
        return w @ model.minus(q1, q) + tau @ v1

    g = ts.project_vjp(model, rows, given, v, w_q=w, w_v=tau)
    close(g.armature @ direction(model), difference(projected), 1e-8)


def test_gradients_of_hard_contact() -> None:
    builder = ts.ModelBuilder(gravity=(0, 0, -9.81))
    builder.add_body("slide", joint=ts.Prismatic((0, 0, 1)), inertia=ts.Inertia.sphere(0.1, mass=1.0), armature=0.3)
    builder.add_body("arm", "slide", ts.Revolute((0, 1, 0)), inertia=ts.Inertia.point(0.5, (0.3, 0, 0)), armature=0.2)
    model = builder.build()
    forces = [ts.GroundContact("slide", (0, 0, -0.1), stiffness=1e4)]

    def run(s: float) -> ts.Trajectory:
        moved = with_more(model, s * np.array([1.0, 0.5]))
        return ts.simulate(moved, [0.1001, 0.4], [-0.5, 1.0], steps=6, integrator=ts.HardContact(1e-2), forces=forces)

    w = np.array([0.7, -0.4])
    g = ts.adjoint(run(0.0), dloss_dq=w, dloss_dv=w)
    close(g.armature @ [1.0, 0.5], difference(lambda s: w @ run(s).q[-1] + w @ run(s).v[-1]), 1e-8)


def test_gradients_keep_to_what_armature_can_be() -> None:
    """Free joints have none, and the three numbers of a spherical joint are equal: a step along gradients keeps to it.
    Along directions that do, gradients are derivatives."""
    joints = [ts.Free(), ts.Spherical(), ts.Revolute((1, 2, 0)), ts.Composite(ts.Prismatic((0, 1, 0)), ts.Spherical())]
    model, rng = testing.random_tree(2, joints, branching=0.3), np.random.default_rng(3)
    q, (v, a, w) = model.random(rng), rng.standard_normal((3, model.nv))
    trajectories = [
        ts.simulate(model, q, 0.1 * v, steps=3, integrator=integrator)
        for integrator in (ts.BDF1(1e-2), ts.SymplecticEuler(1e-2), ts.Variational(1e-2), ts.Variational(1e-2, order=4))
    ]
    energy = ts.EnergyCost(("kinetic",))
    found = [
        ts.inverse_dynamics_vjp(model, q, v, a, w).armature,
        ts.forward_dynamics_vjp(model, q, v, a, w).armature,
        ts.hybrid_dynamics_vjp(model, q, v, a=a, tau=w, prescribed=["body2"], w_a=w, w_tau=a).armature,
        *(ts.adjoint(one, dloss_dq=w, dloss_dv=a).armature for one in trajectories),
        *(ts.adjoint(one, energy).armature for one in trajectories),
        ts.loss(trajectories[0], energy).darmature,
    ]
    for g in found:
        assert not g[:6].any()
        for ball in (g[6:9], g[11:14]):
            assert ball[0] != 0
            close(ball, np.full(3, ball[0]))
        more = model.with_parameters(armature=model.armature + 1e-3 * g / np.abs(g).max())
        assert np.abs(more.armature - model.armature).max() == pytest.approx(1e-3)
    along = direction(model)
    rates = {b.name: along[j.v_slice] for b, j in zip(model.bodies, model.joints, strict=True)}
    _, dtau = ts.inverse_dynamics_jvp(model, q, v, a, model_direction=ts.ModelDirection(armature=rates))
    close(found[0] @ along, w @ dtau)
    slope = difference(lambda s: w @ ts.forward_dynamics(with_more(model, s * along), q, v, a))
    close(found[1] @ along, slope, 1e-9)


def test_a_direction_may_be_one_number() -> None:
    model = testing.random_tree(2, [ts.Spherical(), ts.Universal()])
    rng = np.random.default_rng(3)
    q, (v, a) = model.random(rng), rng.standard_normal((2, model.nv))

    def dtau(rate: object) -> np.ndarray:
        given = ts.ModelDirection(armature={"body0": rate, "body1": 0.2})
        return ts.inverse_dynamics_jvp(model, q, v, a, model_direction=given)[1]

    close(dtau(0.5), np.r_[0.5, 0.5, 0.5, 0.2, 0.2] * a)
    assert np.array_equal(dtau(0.5), dtau([0.5] * 3))
    with pytest.raises(ValueError, match="armature of 'body0'"):
        dtau([0.5, 0.5])


def test_models_side_by_side() -> None:
    """Models of a batch with armature of their own, as alone."""
    model = testing.random_tree(3, [ts.Spherical(), ts.Revolute(), ts.Prismatic(), ts.Universal()])
    models = [without(model), *(with_more(model, s * direction(model)) for s in np.linspace(0, 1, 5))]
    rng = np.random.default_rng(0)
    q, v = model.random(rng), rng.standard_normal(model.nv)
    for integrator in (ts.BDF2(1e-2), ts.SymplecticEuler(1e-2), ts.Variational(1e-2)):
        together = ts.simulate(models, q, v, steps=4, integrator=integrator)
        for k, one in enumerate(models):
            assert np.array_equal(ts.simulate(one, q, v, steps=4, integrator=integrator).q, together.q[k])
