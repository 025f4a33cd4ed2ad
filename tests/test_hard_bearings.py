"""Friction in bearings with HardContact: closed forms, the conditions of every step, and gradients."""

from dataclasses import replace

import numpy as np
import pytest
from linkages import parallelogram
from test_bearings import load, loosened, pendulum, wheel
from test_hard_contact import check_step, contact

import torsor as ts
from torsor import shapes, testing

H = 0.01
X, Y, Z = np.eye(3)


# ---- closed forms


def test_a_wheel_stops_and_stays():
    """It decelerates by mu m g r / I and stops within a step; no creep."""
    mass, inertia, mu, r = 2.0, 0.05, 0.1, 0.03
    bearing = ts.BearingFriction("wheel", mu, r)
    run = ts.simulate(wheel(mass, inertia), [0.0], [0.5], T=1.0, integrator=ts.HardContact(H), forces=[bearing])
    rate = mu * mass * 10 * r / inertia
    np.testing.assert_allclose(run.v[:, 0], np.maximum(0.5 - rate * run.t, 0.0), rtol=0, atol=1e-6)
    assert np.abs(run.v[50:]).max() < 1e-15


@pytest.mark.parametrize("part", [0.98, 1.02])
def test_the_angle_of_friction_of_a_pendulum(part):
    """At rest the load is the weight: it stays where l sin(th) < mu r, and falls beyond."""
    l, mu, r = 0.7, 0.5, 0.2
    th = part * np.arcsin(mu * r / l)
    run = ts.simulate(pendulum(1.3, l), [th], T=0.5, integrator=ts.HardContact(H),
                      forces=[ts.BearingFriction("arm", mu, r)])  # fmt: skip
    moved = np.abs(run.q[:, 0] - th).max()
    assert moved < 1e-14 if part < 1 else moved > 1e-3


def test_a_pendulum_in_a_dry_bearing():
    """Against I alpha = -m g l sin(th) + mu r |f| with the load f of the pin in closed form, while it swings to the
    other side: the error of the state falls with the step. It turns where the equation says."""
    scipy = pytest.importorskip("scipy.integrate")
    m, l, inertia, mu, r = 1.3, 0.7, 0.02, 0.5, 0.1
    total = inertia + m * l**2

    def rate(t, y):
        th, w = y
        along, alpha = m * (10 * np.cos(th) + l * w**2), 0.0
        for _ in range(50):
            friction = mu * r * np.hypot(along, m * (10 * np.sin(th) + l * alpha))
            alpha = (-m * 10 * l * np.sin(th) + friction) / total  # while w < 0
        return [w, alpha]

    def stops(t, y):
        return y[1] if t > 0.1 else -1.0

    stops.terminal = True
    exact = scipy.solve_ivp(rate, (0, 1), [1.2, 0.0], rtol=1e-11, atol=1e-12, events=stops)
    early = scipy.solve_ivp(rate, (0, 0.4), [1.2, 0.0], rtol=1e-11, atol=1e-12).y[:, -1]
    errors = []
    for h in (2e-3, 1e-3):
        run = ts.simulate(pendulum(m, l, inertia), [1.2], T=1.0, integrator=ts.HardContact(h),
                          forces=[ts.BearingFriction("arm", mu, r, smoothing=1e-9)])  # fmt: skip
        k = round(0.4 / h)
        errors.append(np.abs([run.q[k, 0] - early[0], run.v[k, 0] - early[1]]).max())
        assert abs(run.q[:, 0].min() - exact.y[0, -1]) < 1e-4
    assert errors[1] < 5e-3
    assert errors[0] / errors[1] == pytest.approx(2.0, abs=0.2)


def test_it_is_the_limit_of_implicit_steps():
    """Of BDF2 with a small slip velocity: a chain of all joints with bearings."""
    model, forces, q, v = tree(np.random.default_rng(4))
    fine = [replace_slip(f, 1e-5) for f in forces]
    exact = ts.simulate(model, q, v, T=0.2, integrator=ts.BDF2(1e-4), forces=fine)
    errors = [
        np.abs(ts.simulate(model, q, v, T=0.2, integrator=ts.HardContact(h), forces=forces).v[-1] - exact.v[-1]).max()
        for h in (2e-3, 1e-3)
    ]
    assert errors[1] < 0.05 * np.abs(v - exact.v[-1]).max()
    assert errors[0] / errors[1] > 1.5


def replace_slip(force, slip):
    if not isinstance(force, ts.BearingFriction):
        return force
    return ts.BearingFriction(force.joint, force.friction, force.radius, force.length, slip=slip)


# ---- the conditions


def tree(rng, friction=(0.1, 0.4)):
    """All joints that have bearings, under forces on bodies."""
    builder = ts.ModelBuilder(gravity=(1, 2, -9))
    for name, parent, joint in (
        ("turret", "world", ts.Revolute((0.2, 0.1, 1))),
        ("arm", "turret", ts.Universal(((1, 0.2, 0), (0, 1, 0.3)))),
        ("slider", "arm", ts.Prismatic((1, 0.5, 0))),
        ("tool", "slider", ts.Fixed()),
        ("ball", "turret", ts.Spherical()),
        ("free", "ball", ts.Revolute(X)),
    ):
        builder.add_body(name, parent, joint, testing.random_pose(rng), testing.random_inertia(rng))
    model = builder.build()
    names = ("turret", "arm", "slider", "ball")
    forces = [
        ts.BearingFriction(k, rng.uniform(*friction), rng.uniform(0.05, 0.2), rng.uniform(0.2, 0.5), smoothing=0.1)
        for k in names
    ]
    forces += [
        ts.JointSpring("free", 2.0, damping=0.2),
        ts.BodyWrench("tool", rng.standard_normal(6), frame="local_world_aligned"),
        ts.SpringDamper("world", rng.standard_normal(3), "slider", rng.standard_normal(3), 5.0, 0.3, 0.5),
    ]
    return model, forces, model.random(rng), rng.standard_normal(model.nv)


def conditions(model, forces, q, v, v1, more=()):
    """What is left of the conditions of a step in each bearing, as velocities, and the power of each. Wrenches, those
    through the joints included, are the torques of free joints that are put there; `more`: forces on bodies."""
    bearings = [f for f in forces if isinstance(f, ts.BearingFriction)]
    others = [f for f in forces if not isinstance(f, (ts.BearingFriction, ts.Contact))]
    wide, own_q, own_v, free_v = loosened(model)
    Q, V, A = wide.neutral, np.zeros(wide.nv), np.zeros(wide.nv)
    Q[own_q], V[own_v], A[own_v] = q, v, (v1 - v) / H
    onto = [f for f in others if not f._joints(model)] + list(more)
    r = ts.inverse_dynamics(wide, Q, V, A) - ts.generalized_forces(wide, onto, Q, V)
    tau = r[own_v] - ts.generalized_forces(model, [f for f in others if f._joints(model)], q, v)
    index = {b.name: k for k, b in enumerate(model.bodies)}
    mobility = np.diag(ts.mass_matrix_inverse(model, q)) * H
    left, power = [], []
    for force in bearings:
        j, p = model.joint(force.joint), force.parameters
        W = r[free_v][index[j.body]]
        parts = [(j.v_slice, j.joint, W)]
        if isinstance(j.joint, ts.Universal):
            R = ts.Revolute(j.joint.axes[1]).T(q[j.q_slice][1:])[:3, :3]
            first, s = np.concatenate([R @ W[:3], R @ W[3:]]), j.v_slice.start
            parts = [(slice(s + k, s + k + 1), ts.Revolute(axis), wrench)
                     for k, (axis, wrench) in enumerate(zip(j.joint.axes, (first, W), strict=True))]  # fmt: skip
        for at, joint, wrench in parts:
            limit, speed, unit = p["friction"] * load(joint, wrench, p), np.linalg.norm(v1[at]), mobility[at].max()
            power.append(tau[at] @ v1[at])
            left.append(max(np.linalg.norm(tau[at]) - limit, 0.0) * unit)
            if speed > 1e-9:
                left.append(np.abs(tau[at] + limit * v1[at] / speed).max() * unit)
        tau[j.v_slice] = 0.0
    left.append((np.abs(tau) * mobility).max())
    return np.array(left), np.array(power)


def test_every_step_meets_its_conditions():
    """Of random trees, friction up to where bearings jam: torques are within the limits, at them and against the
    velocity where joints move. So friction does no positive work."""
    rng = np.random.default_rng(1)
    moving = 0
    for k in range(40):
        model, forces, q, v = tree(rng, (0.1, 0.4) if k < 25 else (0.5, 1.5))
        v *= 10 ** rng.uniform(-2, 0.5)
        for _ in range(3):
            v1 = ts.step(model, ts.HardContact(H), q, v, forces=forces).v1
            left, power = conditions(model, forces, q, v, v1)
            assert left.max() < 1e-8 * (1 + np.abs(v).max()) and power.max() < 1e-8
            moving += np.sum(power < -1e-6)
            q, v = model.plus(q, H * v1), v1
    assert moving > 100


def test_contacts_load_bearings():
    """The same with a foot on the ground, whose impulse the step finds together with friction. Its force is applied to
    the body here, in the world's axes at its centre."""
    rng, touched = np.random.default_rng(7), 0
    for _ in range(10):
        model, forces, q, v = tree(rng)
        centre = ts.body_poses(model, q)[3][:3, 3]
        ground = shapes.HalfSpace((0.1, 0.2, 1.0), float(np.dot(centre, np.array([0.1, 0.2, 1.0])) / np.sqrt(1.05)))
        forces.append(contact("tool", shapes.Sphere(0.0), "world", ground, 0.3))
        run = ts.simulate(model, q, v, steps=1, integrator=ts.HardContact(H), forces=forces)
        force = run.contacts.force[0].sum(axis=0)
        wrench = ts.BodyWrench("tool", [0, 0, 0, *force], frame="local_world_aligned")
        touched += np.abs(force).max() > 0
        left, power = conditions(model, forces, q, v, run.v[1], [wrench])
        assert left.max() < 1e-8 * (1 + np.abs(v).max()) and power.max() < 1e-8
    assert touched > 2


def test_constraints_load_bearings():
    """A body that is welded to an arm by a loop loads its bearing as one that is fixed to it does."""
    rng = np.random.default_rng(2)
    own, other = testing.random_inertia(rng), testing.random_inertia(rng)
    at, placement = testing.random_pose(rng), testing.random_pose(rng)
    bearing = ts.BearingFriction("arm", 0.3, 0.1, 0.2)

    def builder():
        return ts.ModelBuilder(gravity=(1, 2, -9)).add_body("arm", "world", ts.Revolute((0.2, 0.1, 1)), at, own)

    one = builder().add_body("load", "arm", ts.Fixed(), placement, other).build()
    pose = ts.SE3.from_matrix(ts.body_poses(one, [0.7])[1])
    two = builder().add_body("load", "world", ts.Free(), pose, other).build()
    q, v = two.neutral, np.concatenate([[1.5], ts.body_velocities(one, [0.7], [1.5])[1]])
    q[0] = 0.7
    loop = ts.Loop("arm", "load", ts.Fixed(), placement)
    expected = ts.step(one, ts.HardContact(H), [0.7], [1.5], forces=[bearing]).v1
    got = ts.step(two, ts.HardContact(H), q, v, forces=[bearing], constraints=[loop]).v1
    assert abs(got[0] - expected[0]) < 1e-9
    assert abs(ts.step(two, ts.HardContact(H), q, v, constraints=[loop]).v1[0] - expected[0]) > 1e-3


# ---- gradients


def test_derivatives_of_a_step():
    """With all bearings slipping, with some that stick, and with a contact."""
    rng = np.random.default_rng(3)
    for friction in ((0.1, 0.4), (2.0, 3.0)):
        model, forces, q, v = tree(rng, friction)
        integrator = ts.HardContact(H, tolerance=1e-13)
        check_step(model, integrator, forces, q, v, 1e-6)
        centre = ts.body_poses(model, q)[3][:3, 3]
        ground = shapes.HalfSpace((0, 0, 1.0), float(centre[2]) - 0.1)
        touching = [*forces, contact("tool", shapes.Sphere(0.1), "world", ground, 0.3)]
        check_step(model, integrator, touching, q, v, 1e-6)


def test_derivatives_of_a_step_with_a_loop():
    """The closing joint of a loop loads the bearings too."""
    model, constraints = parallelogram()
    q, v = ts.project(model, constraints, np.array([-0.9, 0.9, -0.9]), np.array([1.0, -1.0, 1.0]))
    forces = [ts.BearingFriction(j.name, 0.2, 0.05, 0.1) for j in model.joints[:2]]
    free = ts.step(model, ts.HardContact(H), q, v, constraints=constraints).v1
    slowed = ts.step(model, ts.HardContact(H), q, v, forces=forces, constraints=constraints).v1
    M = ts.mass_matrix(model, q)
    assert slowed @ M @ slowed < free @ M @ free
    check_step(model, ts.HardContact(H, tolerance=1e-13), forces, q, v, 1e-6, constraints=constraints)


def test_gradients_of_a_rollout():
    """By the state, the model, and all parameters of bearings and of forces that load them."""
    rng = np.random.default_rng(5)
    model, forces, q, v = tree(rng)
    steps, integrator = 4, ts.HardContact(H, tolerance=1e-13)
    wq, wv = rng.standard_normal((2, steps + 1, model.nv))

    def run(model=model, forces=forces, q=q, v=v):
        return ts.simulate(model, q, v, steps=steps, integrator=integrator, forces=forces)

    base = run()
    assert not base.kinks.any()
    g = ts.adjoint(base, dloss_dq=wq, dloss_dv=wv)

    def along(make, eps=1e-5):
        a, b = (run(**make(s * eps)) for s in (1, -1))
        return ((wq * (model.minus(a.q, base.q) - model.minus(b.q, base.q))).sum() + (wv * (a.v - b.v)).sum()) / 2 / eps

    def check(value, make):
        assert abs(value - along(make)) < 2e-6 * max(1.0, abs(value)), value

    d = rng.standard_normal(model.nv)
    check(g.q0 @ d, lambda s: {"q": model.plus(q, s * d)})
    check(g.v0 @ d, lambda s: {"v": v + s * d})
    check(g.gravity[0], lambda s: {"model": model.with_gravity(np.array(model.gravity) + s * X)})

    def body(k, **parts):
        return replace(model, bodies=tuple(replace(b, **parts) if i == k else b for i, b in enumerate(model.bodies)))

    def heavier(k, by):
        return ts.Inertia.from_parameters(model.bodies[k].inertia.parameters + by, allow_unphysical=True)

    for k in (1, 2, 4):
        b = model.bodies[k]
        d, e = rng.standard_normal(10), rng.standard_normal(6)
        check(g.inertia[k] @ d, lambda s, k=k, d=d: {"model": body(k, inertia=heavier(k, s * d))})
        check(g.placement[k] @ e, lambda s, k=k, b=b, e=e: {"model": body(k, placement=b.placement @ ts.SE3.exp(s * e))}
              )  # fmt: skip
    for k, force in enumerate(forces):
        for name, value in force._for_model(model).parameters.items():
            if not value.any():
                continue
            if name == "slip":
                assert g.forces[k][name] == 0
                continue
            d = rng.standard_normal(value.shape) * (value != 0)
            check((g.forces[k][name] * d).sum(), lambda s, k=k, name=name, value=value, d=d, force=force: {
                "forces": [*forces[:k], force.with_parameters({name: value + s * d}), *forces[k + 1 :]]})  # fmt: skip


# ---- what is refused


class Closed(ts.CustomConstraint):
    rows = 1

    def value(self, q, t, p):
        return q[:1]


def test_user_defined_constraints():
    """Their rows are known as generalised forces only, not as wrenches on bodies."""
    model, bearing = wheel(1.0, 1.0), ts.BearingFriction("wheel", 0.1, 0.1)
    given = {"forces": [bearing], "constraints": [Closed()]}
    for call in (
        lambda: ts.simulate(model, [0.0], steps=1, integrator=ts.HardContact(H), **given),
        lambda: ts.step(model, ts.HardContact(H), [0.0], [0.0], **given),
    ):
        with pytest.raises(ValueError, match="user-defined constraints, as Closed, do not say how they load joints"):
            call()
