"""Friction in bearings by the wrenches that joints transmit: closed forms, equations of every row, and derivatives."""

from dataclasses import replace

import numpy as np
import pytest
from compare import close, differences

import torsor as ts
from torsor import testing

IMPLICIT = [ts.BDF1, ts.BDF2, ts.SDIRK2]
over_kinds = pytest.mark.parametrize("kind", IMPLICIT)
X, Y, Z = np.eye(3)


def share(v, slip):
    """F(|v| / slip) v / |v|."""
    s = np.linalg.norm(v) / slip
    return np.asarray(v) / slip * ((2 - s) if s < 1 else 1 / s)


def length(x, e):
    return np.sqrt(np.dot(x, x) + e**2) - e


def along_z(axis):
    """Axes of which the last is this one, as rows."""
    axis = np.asarray(axis) / np.linalg.norm(axis)
    other = np.cross(axis, X if abs(axis[0]) < 0.6 else Y)
    other /= np.linalg.norm(other)
    return np.stack([other, np.cross(axis, other), axis])


def load(joint, W, p):
    """R of a pin or of a slider along its axis, or of a ball: docs/derivations/joint_friction.md."""
    n, f, r, l, e = W[:3], W[3:], p["radius"], p["length"], p["smoothing"]
    if isinstance(joint, ts.Spherical):
        return r * length(f, e)
    Q = along_z(joint.axis)
    n, f = Q @ n, Q @ f
    tilt, across = np.array([n[1], -n[0]]), f[:2]
    if isinstance(joint, ts.Prismatic):
        ends = length(across / 2 + tilt / l, e) + length(across / 2 - tilt / l, e)
        return ends + length(n[2] / r, e)
    lever = l / 4 / (l**2 / 4 + r**2)
    ends = length(across / 2 + lever * tilt, e) + length(across / 2 - lever * tilt, e)
    return r * (ends + length([f[2], *(r / (l**2 / 4 + r**2) * tilt)], e))


def torques(model, forces, q, v, wrenches):
    """Of all bearings, from the wrenches (nbodies, 6) through the joints, in the bodies' frames."""
    tau = np.zeros(model.nv)
    index = {b.name: k for k, b in enumerate(model.bodies)}
    for force in forces:
        if not isinstance(force, ts.BearingFriction):
            continue
        j, p = model.joint(force.joint), force.parameters
        W = wrenches[index[j.body]]
        if isinstance(j.joint, ts.Universal):
            # The first pin turns against the body by the second angle.
            second = ts.Revolute(j.joint.axes[1])
            R = second.T(q[j.q_slice][1:])[:3, :3]
            first = np.concatenate([R @ W[:3], R @ W[3:]])
            for k, (axis, wrench) in enumerate(zip(j.joint.axes, (first, W), strict=True)):
                R_k = load(ts.Revolute(axis), wrench, p)
                tau[j.v_slice.start + k] -= p["friction"] * R_k * share(v[j.v_slice][k : k + 1], p["slip"])[0]
            continue
        tau[j.v_slice] -= p["friction"] * load(j.joint, W, p) * share(v[j.v_slice], p["slip"])
    return tau


def loosened(model):
    """The model with a free joint behind each joint, and where the coordinates of both are."""
    builder = ts.ModelBuilder(gravity=model.gravity)
    own_q, own_v, free_v, nq, nv = [], [], [], 0, 0
    for b in model.bodies:
        parent = b.parent
        builder.add_body(
            b.name + "~", parent, b.joint, b.placement, ts.Inertia.zero(), joint_name=b.joint_name, armature=b.armature
        )
        builder.add_body(b.name, b.name + "~", ts.Free(), inertia=b.inertia, joint_name=b.joint_name + "~")
        own_q.append(nq + np.arange(b.joint.nq))
        own_v.append(nv + np.arange(b.joint.nv))
        free_v.append(nv + b.joint.nv + np.arange(6))
        nq, nv = nq + b.joint.nq + 7, nv + b.joint.nv + 6
    return builder.build(), np.concatenate(own_q), np.concatenate(own_v), np.array(free_v)


def residual(model, forces, q, v, a, t=0.0):
    """ID - tau of all forces, the loads of bearings being the torques of joints that are put there."""
    wide, own_q, own_v, free_v = loosened(model)
    Q, V, A = wide.neutral, np.zeros(wide.nv), np.zeros(wide.nv)
    Q[own_q], V[own_v], A[own_v] = q, v, a
    others = [f for f in forces if not isinstance(f, ts.BearingFriction)]
    onto = [f for f in others if not f._joints(model)]
    r = ts.inverse_dynamics(wide, Q, V, A) - ts.generalized_forces(wide, onto, Q, V, t=t)
    at_joints = ts.generalized_forces(model, [f for f in others if f._joints(model)], q, v, t=t)
    return r[own_v] - at_joints - torques(model, forces, q, v, r[free_v])


def scene():
    """A tree with all joints that have bearings, and others, under forces at joints and on bodies and in contact."""
    rng = np.random.default_rng(3)
    builder = ts.ModelBuilder("tree", gravity=(1, 2, -9))
    for name, parent, joint in (
        ("post", "world", ts.Fixed()),
        ("turret", "post", ts.Revolute((0.2, 0.1, 1))),
        ("arm", "turret", ts.Universal(((1, 0.2, 0), (0, 1, 0.3)))),
        ("slider", "arm", ts.Prismatic((1, 0.5, 0))),
        ("tool", "slider", ts.Fixed()),
        ("ball", "turret", ts.Spherical()),
        ("other", "ball", ts.SphericalExp()),
    ):
        builder.add_body(name, parent, joint, testing.random_pose(rng), testing.random_inertia(rng))
    model = builder.build()
    forces = [
        ts.BearingFriction("turret", 0.3, 0.2, 0.5, slip=0.6, smoothing=0.1),
        ts.BearingFriction("arm", 0.2, 0.1, 0.3, slip=0.8, smoothing=0.2),
        ts.BearingFriction("slider", 0.25, 0.3, 0.7, slip=0.5, smoothing=0.1),
        ts.BearingFriction("ball", 0.4, 0.15, slip=0.9, smoothing=0.3),
        ts.BearingFriction("ball", 0.1, 0.05, slip=0.3, smoothing=0.3),
        ts.JointSpring("other", 2.0, damping=0.2),
        ts.JointDamping(None, 0.1),
        ts.BodyWrench("tool", rng.standard_normal(6), frame="local_world_aligned"),
        ts.BodyWrench("other", rng.standard_normal(6), frame="world"),
        ts.BodyDamping("slider", rng.uniform(0.1, 0.5, 6)),
        ts.PointSpring("tool", rng.standard_normal(3), "ball", rng.standard_normal(3), 3.0, 0.4),
        ts.SpringDamper("world", rng.standard_normal(3), "slider", rng.standard_normal(3), 5.0, 0.3, 0.5),
    ]
    q, v = model.random(rng), rng.standard_normal(model.nv)
    ground = ts.shapes.HalfSpace((0.1, 0.2, 1.0), float(ts.body_poses(model, q)[3, 2, 3]))
    forces.append(ts.Contact("slider", ts.shapes.Sphere(0.3), "world", ground, stiffness=50.0, slip=0.5, onset=0.1))
    return model, forces, q, v, rng


# ---- closed forms


def wheel(mass, inertia, axis=Y):
    body = ts.Inertia(mass, (0, 0, 0), inertia * np.eye(3))
    return ts.ModelBuilder(gravity=(0, 0, -10)).add_body("wheel", joint=ts.Revolute(axis), inertia=body).build()


@over_kinds
@pytest.mark.parametrize(("axis", "length"), [(Y, 0.0), (Z, 0.0), (Y, 0.4), ((1, 2, 2), 0.0)])
def test_a_spinning_wheel(kind, axis, length):
    """It decelerates by mu m g r / I on a pin across or along the weight, and stops. Of an oblique pin, both parts of
    the weight count."""
    mass, inertia, mu, r = 2.0, 0.05, 0.1, 0.03
    model, bearing = wheel(mass, inertia, axis), ts.BearingFriction("wheel", mu, r, length, slip=1e-4)
    along = abs(np.dot(axis, Z)) / np.linalg.norm(axis)
    rate = mu * mass * 10 * r * (along + np.sqrt(1 - along**2)) / inertia
    steps = 100
    run = ts.simulate(model, [0.0], [3.0], steps=steps, integrator=kind(1e-2), forces=[bearing])
    # Of each of the smoothed loads 1e-6 is missing, of 20 N.
    np.testing.assert_allclose(run.v[:, 0], 3.0 - rate * run.t, rtol=0, atol=1e-6)
    np.testing.assert_allclose(run.a[:, 0], -rate, rtol=1e-6)
    stopped = ts.simulate(model, [0.0], [0.2], steps=steps, integrator=kind(1e-2), forces=[bearing])
    assert abs(stopped.v[-1, 0]) < 1e-6


def carriage(com):
    return (
        ts.ModelBuilder(gravity=(0, 0, -10))
        .add_body("slider", joint=ts.Prismatic(X), inertia=ts.Inertia.point(2.0, com))
        .build()
    )


@over_kinds
def test_a_slider_with_its_load_above(kind):
    """A carriage on a horizontal guide with its mass above it: friction raises the load at the front end and lowers it
    behind, and as long as both press down their sum is the weight."""
    bearing = ts.BearingFriction("slider", 0.2, 0.1, 0.5, slip=1e-4)
    run = ts.simulate(carriage((0, 0, 0.1)), [0.0], [3.0], steps=20, integrator=kind(1e-2), forces=[bearing])
    np.testing.assert_allclose(run.a[1:, 0], -0.2 * 10, rtol=1e-6)


@over_kinds
def test_a_slider_with_its_load_aside(kind):
    """The weight turns it about the guide, which the sides take, and the deceleration yaws it: the ends take m a s / l
    more and less, across the weight."""
    mass, mu, l, r, s = 2.0, 0.2, 0.5, 0.1, 0.3
    bearing = ts.BearingFriction("slider", mu, r, l, slip=1e-4)
    run = ts.simulate(carriage((0, s, 0)), [0.0], [3.0], steps=20, integrator=kind(1e-2), forces=[bearing])
    a = -run.a[1:, 0]
    ends = 2 * np.hypot(mass * 10 / 2, mass * a * s / l)
    np.testing.assert_allclose(mass * a, mu * (ends + mass * 10 * s / r), rtol=1e-6)


@pytest.mark.parametrize("kind", [*IMPLICIT, ts.SDIRK3, ts.HardContact])
def test_a_slider_that_jams(kind):
    """The ends of the same guide take 2 mu m a s / l at least: beyond s = l / 2 mu no deceleration is enough to slide
    on, and the slider stops within a step, where a little less would let it slide for 15. There are no accelerations
    with which it slides."""
    bearing = ts.BearingFriction("slider", 0.4, 0.1, 0.5, slip=1e-4)

    def run(s, v0=3.0):
        return ts.simulate(carriage((0, s, 0)), [0.0], [v0], steps=5, integrator=kind(1e-3), forces=[bearing])

    slides = run(0.55)
    assert slides.v[-1, 0] > 2.0 and np.isfinite(slides.a).all()
    for s in (0.65, 2.0):
        jammed = run(s)
        assert np.abs(jammed.v[1:]).max() < 1e-4 and np.abs(jammed.v[-1]).max() < 1e-7
        assert np.isnan(jammed.a[0]).all() == (kind is not ts.HardContact)
        g = ts.adjoint(jammed, dloss_dq=np.ones(1), dloss_dv=np.zeros(1))
        close(g.v0, (run(s, 3.01).q[-1] - run(s, 2.99).q[-1]) / 0.02, 1e-6)


@over_kinds
def test_a_spinning_ball(kind):
    """The friction of a ball is against its angular velocity, whatever the direction."""
    model = (
        ts.ModelBuilder(gravity=(0, 0, -10))
        .add_body("ball", joint=ts.Spherical(), inertia=ts.Inertia(2.0, (0, 0, 0), 0.05 * np.eye(3)))
        .build()
    )
    w = np.array([1.0, -2.0, 2.0])
    bearing = ts.BearingFriction("ball", 0.1, 0.03, slip=1e-4)
    run = ts.simulate(model, model.neutral, w, steps=50, integrator=kind(1e-2), forces=[bearing])
    expected = (3.0 - 1.2 * run.t)[:, None] * w / 3.0
    # BDF1 and BDF2 in body twists: a body that turns about a fixed axis keeps it.
    np.testing.assert_allclose(run.v, expected, rtol=0, atol=1e-6)


def pendulum(m=1.3, l=0.7, inertia=0.02):
    body = ts.Inertia(m, (0, 0, -l), inertia * np.eye(3))
    return ts.ModelBuilder(gravity=(0, 0, -10)).add_body("arm", joint=ts.Revolute(Y), inertia=body).build()


@pytest.mark.parametrize("kind", [ts.BDF2, ts.SDIRK2])
def test_a_pendulum_in_a_dry_bearing(kind):
    """Against the equation I alpha = -m g l sin(th) - mu r |f| with the load f of the pin in closed form, a quadratic
    equation for alpha. The error falls with the square of the step."""
    scipy = pytest.importorskip("scipy.integrate")
    m, l, inertia, mu, r, slip = 1.3, 0.7, 0.02, 0.5, 0.1, 0.3
    model = pendulum(m, l, inertia)
    total = inertia + m * l**2

    def rate(t, y):
        th, w = y
        along = m * (10 * np.cos(th) + l * w**2)
        friction = mu * r * (w / slip * (2 - abs(w) / slip) if abs(w) < slip else np.sign(w))
        # total alpha = -m g l sin - friction sqrt(along^2 + (m (g sin + l alpha))^2)
        alpha = -m * 10 * l * np.sin(th) / total
        for _ in range(50):
            alpha = (-m * 10 * l * np.sin(th) - friction * np.hypot(along, m * (10 * np.sin(th) + l * alpha))) / total
        return [w, alpha]

    exact = scipy.solve_ivp(rate, (0, 1), [1.2, 2.0], rtol=1e-11, atol=1e-12).y[:, -1]
    errors = []
    for h in (2e-3, 1e-3):
        bearing = ts.BearingFriction("arm", mu, r, slip=slip, smoothing=1e-9)
        run = ts.simulate(model, [1.2], [2.0], T=1.0, integrator=kind(h), forces=[bearing])
        errors.append(np.abs([run.q[-1, 0] - exact[0], run.v[-1, 0] - exact[1]]).max())
    assert errors[1] < 1e-4  # 0.25 rad of 2 swings, of second order
    assert errors[0] / errors[1] > 3.0


class Balance(ts.CustomForce):
    """A motor that holds the pendulum against its weight, everywhere."""

    p = (1.3 * 10 * 0.7,)

    def value(self, q, v, t, p):
        return p[0] * np.sin(q)

    def derivatives(self, q, v, t, p):
        return p[0] * np.cos(q)[:, None], np.zeros((1, 1))

    def gradient(self, q, v, t, p, w):
        return [w @ np.sin(q)]


def test_the_energy_that_a_slow_turn_takes():
    """Turned once by itself, so slowly that the load is the weight but for (l w^2 / g)^2 = 4e-5 of it: friction takes
    2 pi mu m g r, from the kinetic energy alone."""
    m, l, inertia, mu, r = 1.3, 0.7, 0.02, 0.1, 1e-3
    forces = [ts.BearingFriction("arm", mu, r, slip=1e-3), Balance()]
    run = ts.simulate(pendulum(m, l, inertia), [0.0], [0.3], steps=2300, integrator=ts.BDF2(1e-2), forces=forces)
    k = int(np.searchsorted(run.q[:, 0], 2 * np.pi))
    assert 0 < k < run.steps
    at_end = np.interp(2 * np.pi, run.q[k - 1 : k + 1, 0], run.v[k - 1 : k + 1, 0])
    lost = 0.5 * (inertia + m * l**2) * (0.3**2 - at_end**2)
    np.testing.assert_allclose(lost, 2 * np.pi * mu * m * 10 * r, rtol=2e-4)


@over_kinds
def test_a_pendulum_that_sticks(kind):
    """Released within the angle of friction, sin(th) l < mu r, it creeps at slip (1 - sqrt(1 - load / limit))."""
    m, l, mu, r, slip = 1.3, 0.7, 0.5, 0.2, 1e-4
    bearing = ts.BearingFriction("arm", mu, r, slip=slip)
    th = 0.1
    run = ts.simulate(pendulum(m, l), [th], T=0.5, integrator=kind(1e-2), forces=[bearing])
    creep = slip * (1 - np.sqrt(1 - l * np.sin(th) / (mu * r)))
    assert abs(run.v[-1, 0] + creep) < 1e-3 * creep
    assert abs(run.q[-1, 0] - th) < slip


# ---- the equations


@pytest.mark.parametrize("kind", [*IMPLICIT, ts.SDIRK3])
def test_every_row_solves_its_equations(kind):
    """Loads include weight, inertia, and all forces on bodies: found here as torques of free joints that stay."""
    model, forces, q, v, _ = scene()
    run = ts.simulate(model, q, v, steps=20, integrator=kind(1e-2, tolerance=1e-12), forces=forces)
    c = 1 / (kind(1e-2).A[-1][-1] * 1e-2)
    for k in range(run.steps + 1):
        r = residual(model, forces, run.q[k], run.v[k], run.a[k])
        size = np.abs(ts.inverse_dynamics(model, run.q[k], run.v[k], run.a[k])).max()
        M = ts.mass_matrix(model, run.q[k])
        assert np.abs(np.linalg.solve(M, r)).max() / c < 1e-10 * (1 + np.abs(run.v[k]).max()), (k, size)
    # friction does work, and matters
    free = ts.simulate(model, q, v, steps=20, integrator=kind(1e-2), forces=forces[5:])
    assert np.abs(free.v[-1] - run.v[-1]).max() > 0.05


def random_scene(rng):
    """A tree of joints with bearings, many of which jam: some bodies are light, and springs are stiff."""
    builder, forces, light = ts.ModelBuilder(), [], rng.random() < 0.4
    friction, slip = 10 ** rng.uniform(-1.3, 0.18), 10 ** rng.uniform(-4, -2)
    for k in range(rng.integers(1, 7)):
        axis, other = rng.standard_normal((2, 3))
        joints = (ts.Revolute(axis), ts.Prismatic(axis), ts.Spherical(), ts.Universal((axis, np.cross(axis, other))))
        mass = 10 ** rng.uniform(-3, 0) if light else rng.uniform(0.3, 3)
        inertia = ts.Inertia.box(mass=mass, size=rng.uniform(0.05, 0.4, 3), com=rng.uniform(-0.3, 0.3, 3))
        parent = "world" if k == 0 else f"b{rng.integers(max(0, k - 2), k)}"
        placement = ts.SE3(np.eye(3), rng.uniform(-0.4, 0.4, 3))
        builder.add_body(f"b{k}", parent, joints[rng.integers(4)], placement, inertia)
        size = rng.uniform((0.02, 0.05), (0.15, 0.4))
        forces.append(ts.BearingFriction(f"b{k}", friction, *size, slip=slip))
        if rng.random() < 0.4:
            forces.append(ts.JointSpring(f"b{k}", 10 ** rng.uniform(1, 4), damping=rng.uniform(0, 1)))
    model = builder.build()
    return model, forces, model.random(rng), 10 ** rng.uniform(-1, 1) * rng.standard_normal(model.nv)


@over_kinds
def test_random_trees(kind):
    """No step fails, and rows solve their equations. In a quarter of the scenes no accelerations exist at the start."""
    rng, jams = np.random.default_rng(0), 0
    for _ in range(60):
        model, forces, q, v = random_scene(rng)
        h = 10 ** rng.uniform(-3, -1.7)
        run = ts.simulate(model, q, v, steps=20, integrator=kind(h), forces=forces)
        jams += np.isnan(run.a[0]).any()
        r, M = residual(model, forces, run.q[-1], run.v[-1], run.a[-1]), ts.mass_matrix(model, run.q[-1])
        assert h * np.abs(np.linalg.solve(M, r)).max() < 1e-5 * (1 + np.abs(run.v[-1]).max())
    assert jams > 10


def test_friction_never_gains_energy():
    model, forces, q, _, _ = scene()
    bearings = forces[:5]
    for seed in range(4):
        v = 2 * np.random.default_rng(seed).standard_normal(model.nv)
        run = ts.simulate(model, q, v, steps=100, integrator=ts.SDIRK3(1e-3), forces=bearings)
        energy = run.energies.total
        # what the integrator itself changes is of third order
        assert np.diff(energy).max() < 1e-6 * abs(energy[0])
        assert energy[-1] < energy[0]


# ---- derivatives


@over_kinds
def test_derivatives_of_a_step(kind):
    """Against differences of fourth order, whose roundings are 1e-9."""
    model, forces, q, v, rng = scene()
    integrator, u = kind(2e-2, tolerance=1e-13), rng.standard_normal(model.nv)
    more = {"forces": forces}
    if kind is ts.BDF2:
        before = ts.step(model, integrator, q, v, u, **more)
        more["previous"] = (q, v)
        q, v = before.q1, before.v1
    d = ts.step_derivatives(model, integrator, q, v, u, **more)
    mid = ts.step(model, integrator, q, v, u, **more)

    def moved(dq=0.0, dv=0.0, du=0.0):
        end = ts.step(model, integrator, model.plus(q, dq + np.zeros(model.nv)), v + dv, u + du, **more)
        return np.concatenate([model.minus(end.q1, mid.q1), end.v1])

    for name in ("q", "v", "u"):
        expected = differences(lambda x, name=name: moved(**{f"d{name}": x}), np.zeros(model.nv), 1e-4)
        close(np.vstack([getattr(d, f"dq1_d{name}"), getattr(d, f"dv1_d{name}")]), expected, 1e-8)


@over_kinds
def test_gradients_of_a_rollout(kind):
    """By everything: the state, controls, the model, and all parameters of bearings and of forces that load them."""
    model, forces, q, v, rng = scene()
    integrator, steps = kind(1e-2, tolerance=1e-13), 6
    u = rng.standard_normal((steps, model.nv))
    wq, wv = rng.standard_normal((2, steps + 1, model.nv))

    def run(q=q, v=v, u=u, model=model, forces=forces):
        return ts.simulate(model, q, v, steps=steps, integrator=integrator, forces=forces, controls=u)

    base = run()
    g = ts.adjoint(base, dloss_dq=wq, dloss_dv=wv)
    loss = lambda other: (wq * model.minus(other.q, base.q)).sum() + (wv * other.v).sum()  # noqa: E731
    eps = 1e-4
    close(g.q0, differences(lambda x: loss(run(q=model.plus(q, x))), np.zeros(model.nv), eps), 1e-7)
    close(g.v0, differences(lambda x: loss(run(v=x)), v, eps), 1e-7)
    close(g.gravity, differences(lambda x: loss(run(model=model.with_gravity(x))), np.array(model.gravity), eps), 1e-7)
    at = u[2].copy()
    close(g.controls[2], differences(lambda x: loss(run(u=np.concatenate([u[:2], [x], u[3:]]))), at, eps), 1e-7)

    def body(k, **parts):
        bodies = list(model.bodies)
        bodies[k] = replace(bodies[k], **parts)
        return replace(model, bodies=tuple(bodies))

    def inertia(x):
        return ts.Inertia.from_parameters(x, allow_unphysical=True)

    for k in (1, 2, 3, 4, 5):
        at = model.bodies[k].inertia.parameters
        by = differences(lambda x, k=k: loss(run(model=body(k, inertia=inertia(x)))), at, eps)
        close(g.inertia[k], by, 1e-7)
        b = model.bodies[k]
        by = differences(lambda x, k=k, b=b: loss(run(model=body(k, placement=b.placement @ ts.SE3.exp(x)))),
                         np.zeros(6), eps)  # fmt: skip
        close(g.placement[k], by, 1e-7)
    for k, force in enumerate(forces):
        for name, value in force._for_model(model).parameters.items():
            if not value.any():
                continue
            d = rng.standard_normal(value.shape) * (value != 0)

            def moved(s, k=k, name=name, value=value, d=d, force=force):
                changed = force.with_parameters({name: value + s * d})
                return loss(run(forces=[*forces[:k], changed, *forces[k + 1 :]]))

            by = (g.forces[k][name] * d).sum()
            assert abs(by - differences(moved, 0.0, eps)) <= 1e-7 * max(1.0, abs(by)), (k, name)


def test_lanes_and_threads_change_no_bit():
    model, forces, q, v, rng = scene()
    qs = model.plus(q, 0.1 * rng.standard_normal((11, model.nv)))
    given = {"steps": 5, "forces": forces}
    for kind in IMPLICIT:
        batch = ts.simulate(model, qs, v, integrator=kind(1e-2), threads=2, **given)
        g = ts.adjoint(batch, dloss_dq=np.ones(batch.v.shape), dloss_dv=np.ones(batch.v.shape))
        for k in (0, 7, 10):
            one = ts.simulate(model, qs[k], v, integrator=kind(1e-2), **given)
            for x, y in ((one.q, batch.q[k]), (one.v, batch.v[k]), (one.a, batch.a[k])):
                assert np.array_equal(x, y)
            h = ts.adjoint(one, dloss_dq=np.ones(one.v.shape), dloss_dv=np.ones(one.v.shape))
            assert np.array_equal(h.q0, g.q0[k]) and np.array_equal(h.placement, g.placement[k])
            for a, b in zip(h.forces, g.forces, strict=True):
                assert all(np.array_equal(a[name], b[name][k]) for name in a)


# ---- what is refused


def test_functions_without_accelerations():
    model, bearing = wheel(1.0, 1.0), ts.BearingFriction("wheel", 0.1, 0.1)
    match = (
        "BearingFriction of 'wheel' depends on accelerations, which this function does not have; it acts in simulate"
    )
    for function in (ts.generalized_forces, ts.generalized_forces_derivatives):
        with pytest.raises(ValueError, match=match):
            function(model, [bearing], [0.0], [0.0])
    with pytest.raises(ValueError, match=match):
        ts.generalized_forces_vjp(model, [bearing], [0.0], [0.0], [1.0])
    assert ts.force_energies(model, [bearing], [0.0]) == [0.0]


@pytest.mark.parametrize("integrator", [ts.SymplecticEuler(0.1), ts.LinearlyImplicitEuler(0.1), ts.Variational(0.1),
                                        ts.Adaptive(0.1)], ids=lambda i: type(i).__name__)  # fmt: skip
def test_integrators_that_do_not_solve_for_accelerations(integrator):
    model, bearing = wheel(1.0, 1.0), ts.BearingFriction("wheel", 0.1, 0.1)
    match = f"depends on accelerations, for which {type(integrator).__name__} does not solve"
    with pytest.raises(ValueError, match=match):
        ts.simulate(model, [0.0], steps=1, integrator=integrator, forces=[bearing])
    if not isinstance(integrator, ts.Adaptive):
        with pytest.raises(ValueError, match=match):
            ts.step(model, integrator, [0.0], [0.0], forces=[bearing])


def test_constraints():
    model, bearing = wheel(1.0, 1.0), ts.BearingFriction("wheel", 0.1, 0.1)
    constraint = ts.PrescribedJoint("wheel", 0.0)
    for call in (
        lambda: ts.simulate(model, [0.0], steps=1, integrator=ts.BDF1(0.1), forces=[bearing], constraints=[constraint]),
        lambda: ts.step(model, ts.BDF1(0.1), [0.0], [0.0], forces=[bearing], constraints=[constraint]),
    ):
        with pytest.raises(ValueError, match="and is not available under constraints"):
            call()


@pytest.mark.parametrize(("make", "error", "message"), [
    (lambda: ts.BearingFriction("a", -1.0, 0.1), ValueError, "friction is -1, expected 0 at least"),
    (lambda: ts.BearingFriction("a", 1.0, 0.0), ValueError, "radius is 0, expected a number above 0"),
    (lambda: ts.BearingFriction("a", 1.0, 1.0, -1.0), ValueError, "length is -1, expected 0 at least"),
    (lambda: ts.BearingFriction("a", 1.0, 1.0, slip=0.0), ValueError, "slip is 0.0, expected above 0"),
    (lambda: ts.BearingFriction("a", 1.0, 1.0, smoothing=0.0), ValueError, "smoothing is 0, expected a number above 0"),
])  # fmt: skip
def test_wrong_numbers(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_joints_without_a_bearing():
    builder = ts.ModelBuilder()
    for name, joint in (("screw", ts.Screw()), ("slider", ts.Prismatic()), ("free", ts.Free())):
        builder.add_body(name, "world", joint, inertia=ts.Inertia.sphere(mass=1, radius=1))
    model = builder.build()

    def run(force):
        ts.simulate(model, model.neutral, steps=1, integrator=ts.BDF1(0.1), forces=[force])

    for name in ("screw", "free"):
        with pytest.raises(
            ValueError, match=f"joint '{name}' is .*; BearingFriction is for Revolute, Prismatic, Spher"
        ):
            run(ts.BearingFriction(name, 0.1, 0.1))
    with pytest.raises(
        ValueError, match="length of BearingFriction is 0, expected above 0: joint 'slider' is Prismatic"
    ):
        run(ts.BearingFriction("slider", 0.1, 0.1))
    with pytest.raises(KeyError, match="no joint named 'wheel'"):
        run(ts.BearingFriction("wheel", 0.1, 0.1))
