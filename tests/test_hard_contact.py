"""HardContact: closed forms, the conditions of contact and friction in random scenes, and gradients."""

import numpy as np
import pytest
from compare import close
from linkages import parallelogram

import torsor as ts
from torsor import shapes

G, H = 9.81, 0.01
NO_PART = ("stiffness", "damping", "dissipation", "slip", "onset")  # parameters of contacts, limits, dry friction
GROUND = shapes.HalfSpace()
# Normals give way by this part of the velocity that their impulses change, so that these are unique where more places
# touch than are needed.
GIVES_WAY = 1e-8


def contact(body, shape, other="world", other_shape=GROUND, friction=0.5):
    return ts.Contact(body, shape, other, other_shape, stiffness=1e5, friction=friction, onset=1e-3)


def box_on_incline(theta, friction, size=(0.4, 0.3, 0.1)):
    """A box that lies on a plane: model, forces and configuration. Gravity is inclined."""
    builder = ts.ModelBuilder(gravity=(G * np.sin(theta), 0.0, -G * np.cos(theta)))
    builder.add_body("box", "world", ts.Free(), ts.SE3(), ts.Inertia.box(mass=2.0, size=size))
    model = builder.build()
    q = model.neutral.copy()
    q[2] = size[2] / 2
    return model, [contact("box", shapes.Box(size), friction=friction)], q


def slide(model, forces, q, velocity=(0.0, 0.0), T=1.0):
    v = np.zeros(model.nv)
    v[3:5] = velocity
    return ts.simulate(model, q, v, T=T, integrator=ts.HardContact(H), forces=forces)


# ---- closed forms


def test_a_box_slides_and_stops():
    """Coulomb: v0^2 / 2a. Symplectic Euler with constant deceleration misses v0 h / 2 of it, and the step in which the
    box stops less than a h^2."""
    theta, mu, v0 = 0.2, 0.5, 2.0
    model, forces, q = box_on_incline(theta, mu)
    run = slide(model, forces, q, (v0, 0.0))
    a = G * (mu * np.cos(theta) - np.sin(theta))
    error = run.q[-1, 0] - v0**2 / (2 * a)
    assert error == pytest.approx(-v0 * H / 2, abs=a * H**2)
    assert np.abs(run.v[-1]).max() < 1e-13
    # no lift-off, and what the normals give way
    assert run.q[:, 2].max() - q[2] < 1e-15 and np.ptp(run.q[:, 2]) < 2 * GIVES_WAY * G * H**2
    assert np.abs(run.q[:, 3:6]).max() < GIVES_WAY


def test_a_box_sticks_below_the_friction_angle_and_slides_above():
    theta = 0.2
    for mu in (1.01 * np.tan(theta), 0.5):
        model, forces, q = box_on_incline(theta, mu)
        run = slide(model, forces, q)
        assert np.abs(run.v[2:, 3:5]).max() < 1e-12  # no creep, once normals have given way
        assert run.kinks.sum() == 0
    mu = 0.99 * np.tan(theta)
    model, forces, q = box_on_incline(theta, mu)
    a = G * (np.sin(theta) - mu * np.cos(theta))
    assert slide(model, forces, q).v[-1, 3] == pytest.approx(a, rel=1e-7)  # normals give way


@pytest.mark.parametrize("angle", [0.0, np.pi / 4, 1.0])
def test_the_cone_is_round(angle):
    """Pyramids and boxes of friction would give other distances, and turn the motion."""
    model, forces, q = box_on_incline(0.0, 0.5)
    run = slide(model, forces, q, (2 * np.cos(angle), 2 * np.sin(angle)))
    assert np.hypot(*run.q[-1, :2]) == pytest.approx(4 / (2 * 0.5 * G) - 2 * H / 2, abs=0.5 * G * H**2)
    assert np.arctan2(run.q[-1, 1], run.q[-1, 0]) == pytest.approx(angle, abs=1e-8)


def test_a_ball_begins_to_roll():
    """A ball that slides with v0 rolls with 5/7 of it in the end, whatever the friction."""
    radius, v0 = 0.1, 1.4
    builder = ts.ModelBuilder(gravity=(0, 0, -G))
    inertia = ts.Inertia(1.0, np.zeros(3), 0.4 * radius**2 * np.eye(3))
    builder.add_body("ball", "world", ts.Composite(ts.Translational(), ts.Spherical()), ts.SE3(), inertia)
    model = builder.build()
    q, v = model.neutral.copy(), np.zeros(6)
    q[2], v[0] = radius, v0
    forces = [contact("ball", shapes.Sphere(radius))]
    run = ts.simulate(model, q, v, T=1.0, integrator=ts.HardContact(H), forces=forces)
    spin, center = np.split(ts.body_velocities(model, run.q, run.v, frame="local_world_aligned")[:, 0], 2, axis=-1)
    assert center[-1, 0] == pytest.approx(5 / 7 * v0, rel=1e-9)
    assert spin[-1, 1] * radius == pytest.approx(center[-1, 0], abs=1e-10)


def test_an_impact_is_plastic():
    builder = ts.ModelBuilder(gravity=(0, 0, -G))
    builder.add_body("ball", "world", ts.Translational(), ts.SE3(), ts.Inertia(1.0, np.zeros(3), np.eye(3)))
    model = builder.build()
    run = ts.simulate(
        model,
        [0, 0, 0.5],
        [0.1, 0, -1],
        T=1.0,
        integrator=ts.HardContact(H),
        forces=[contact("ball", shapes.Sphere(0.1))],
    )
    assert run.q[:, 2].min() == pytest.approx(0.1, abs=1e-9)
    assert np.abs(run.v[-1]).max() < 1e-12


# ---- the conditions, from outside


def shaped(rng, bodies):
    """Free balls of several sizes in a corner of three planes, and a list of all contacts."""
    builder = ts.ModelBuilder(gravity=(0, 0, -G))
    radii = rng.uniform(0.1, 0.3, bodies)
    for k, r in enumerate(radii):
        inertia = ts.Inertia(
            rng.uniform(0.5, 3.0), rng.uniform(-0.2, 0.2, 3) * r, 0.4 * r**2 * np.diag(rng.uniform(1, 1.5, 3))
        )
        builder.add_body(f"{k}", "world", ts.Free(), ts.SE3(), inertia)
    model = builder.build()
    walls = [shapes.HalfSpace(n) for n in ((0, 0, 1), (1, 0, 0.5), (-0.2, 1, 0.3))]
    forces = [
        contact(f"{k}", shapes.Sphere(r), "world", w, rng.uniform(0, 1)) for k, r in enumerate(radii) for w in walls
    ]
    for k in range(bodies):
        for j in range(k):
            forces.append(contact(f"{k}", shapes.Sphere(radii[k]), f"{j}", shapes.Sphere(radii[j]), rng.uniform(0, 1)))
    return model, forces, radii


def random_state(rng, model, radii):
    """Near the corner, some of the balls touching planes or each other."""
    q, v = model.random(rng), rng.normal(size=model.nv)
    for k, joint in enumerate(model.joints):
        q[joint.q_slice][:3] = rng.uniform(0.0, 0.2 if len(radii) == 1 else 0.4, 3) + radii[k]
        v[joint.v_slice][:3] *= 5.0
    return q, v


def rows_of(model, forces, q, v):
    """Gaps, normals and Jacobians (places, 3, nv) of the velocities of the first shapes relative to the second."""
    states = ts.contact_states(model, forces, q, v)
    poses = dict(zip((b.name for b in model.bodies), ts.body_poses(model, q), strict=True))
    J = np.zeros((len(states.gap), 3, model.nv))
    for k, x in enumerate(states.point):
        force = forces[states.force_index[k]]
        for sign, name in ((1, force.body), (-1, force.other)):
            if name != "world":
                local = poses[name][:3, :3].T @ (x - poses[name][:3, 3])
                J[k] += sign * ts.point_jacobian(model, q, name, local)
    friction = np.array([forces[i].friction for i in states.force_index])
    return states.gap, states.normal, J, friction


@pytest.mark.parametrize("bodies", [1, 2, 3])
def test_random_scenes_satisfy_all_conditions(bodies):
    """Impulses are recovered from the change of momentum. Rows of so few places do not depend on each other."""
    rng = np.random.default_rng(bodies)
    integrator, counts = ts.HardContact(H), np.zeros(3, int)
    for _ in range(8):
        model, forces, radii = shaped(rng, bodies)
        states = [random_state(rng, model, radii) for _ in range(150 // bodies)]
        q, v = (np.array(x) for x in zip(*states, strict=True))
        free = ts.step(model, integrator, q, v).v1
        v1 = ts.step(model, integrator, q, v, forces=forces).v1
        for k in range(len(q)):
            gap, n, J, mu = rows_of(model, forces, q[k], v1[k])
            size = 1.0 + np.abs(v1[k]).max() + np.abs(gap.min(initial=0.0)) / H
            u = J @ v1[k]
            un = np.einsum("ij,ij->i", n, u)
            slack = un + gap / H
            assert slack.min() > -1e-6 * size  # normals give way where impulses are large
            touching = slack < 1e-6 * size
            p = ts.mass_matrix(model, q[k]) @ (v1[k] - free[k])
            f, *_ = np.linalg.lstsq(J[touching].reshape(-1, model.nv).T, p, rcond=None)
            close(J[touching].reshape(-1, model.nv).T @ f, p, 1e-9)
            f = f.reshape(-1, 3)
            if np.linalg.matrix_rank(J[touching].reshape(-1, model.nv)) < 3 * touching.sum():
                continue
            fn = np.einsum("ij,ij->i", n[touching], f)
            ft, ut = f - fn[:, None] * n[touching], u[touching] - un[touching, None] * n[touching]
            most, slip = np.linalg.norm(ft, axis=1), np.linalg.norm(ut, axis=1)
            scale = 1.0 + np.abs(p).max()
            assert fn.min(initial=0.0) > -1e-6 * scale
            assert (most <= mu[touching] * fn + 1e-6 * scale).all()
            # where it slips, friction is against the slip and as large as it may be
            power = np.einsum("ij,ij->i", ft, ut)
            np.testing.assert_allclose(power, -mu[touching] * fn * slip, atol=1e-6 * scale * size)
            counts += [len(fn), np.count_nonzero(slip > 1e-6), np.count_nonzero(slip < 1e-9)]
    assert counts.min() > 10  # closed, slipping, sticking


def test_contact_changes_no_total_momentum():
    rng = np.random.default_rng(5)
    model, forces, radii = shaped(rng, 3)
    pairs = [f for f in forces if f.other != "world"]
    hit = 0
    for _ in range(40):
        q, v = random_state(rng, model, radii)
        p = [ts.momentum(model, q, ts.step(model, ts.HardContact(H), q, v, forces=f).v1) for f in ([], pairs)]
        hit += not np.allclose(p[0], p[1] + 1e-3)
        close(p[1], p[0], 1e-12)
    assert hit > 0


def test_friction_does_no_positive_work():
    """Without gravity and overlap, energy never rises in an impact: M at the beginning of the step."""
    rng = np.random.default_rng(8)
    model, forces, radii = shaped(rng, 2)
    for _ in range(100):
        q, v = random_state(rng, model, radii)
        gap = ts.contact_states(model, forces, q, v).gap
        if gap.min() < 0:
            continue
        M = ts.mass_matrix(model, q)
        free, v1 = (ts.step(model, ts.HardContact(H), q, v, forces=f).v1 for f in ([], forces))
        assert v1 @ M @ v1 < free @ M @ free + 1e-9


def test_thrown_boxes():
    """Random throws: none fails, and energy falls but for the error of explicit steps."""
    size = (0.4, 0.3, 0.1)
    model, forces, q = box_on_incline(0.0, 0.6, size)
    rng = np.random.default_rng(0)
    q = np.array([model.plus(q, [*rng.normal(size=3), 0, 0, 0]) for _ in range(200)])
    q[:, 2] = 0.5
    v = rng.normal(size=(200, 6)) * [3, 3, 3, 1, 1, 1]
    run = ts.simulate(model, q, v, T=3.0, integrator=ts.HardContact(H), forces=forces)
    energies = run.energies
    e = energies.kinetic + energies.potential
    assert (e[:, -1] < e[:, 0]).all() and np.abs(run.v[:, -1]).max() < 1e-3
    gap = ts.contact_states(model, forces, run.q, run.v).gap
    assert gap.min() > -(0.5 * 20**2 * 0.26 * H**2)  # of an arc of 20 rad/s, seen from its tangent


# ---- redundancy, limits, friction of joints, loops


def test_places_that_are_given_twice_change_nothing():
    model, forces, q = box_on_incline(0.2, 0.5)
    once, twice = slide(model, forces, q, (2.0, 0.7)), slide(model, forces * 2, q, (2.0, 0.7))
    close(twice.q, once.q, 1e-7)  # twice as many normals give way
    assert twice.kinks.max() == once.kinks.max() == 0 or (twice.kinks > 0).sum() < 5


def test_limits_of_joints_are_hard():
    builder = ts.ModelBuilder(gravity=(0, 0, -G))
    rod = ts.Inertia(1.0, (0.5, 0, 0), 0.02 * np.eye(3))
    builder.add_body("a", "world", ts.Revolute((0, 1, 0)), ts.SE3(), rod)
    builder.add_body("b", "a", ts.Revolute((0, 1, 0)), ts.SE3.translation(1, 0, 0), rod)
    model = builder.build()
    limits = [
        ts.JointLimits("a", 1.0, lower=[-np.inf], upper=[0.8]),
        ts.JointLimits("b", 1.0, lower=[-0.3], upper=[0.5]),
    ]
    run = ts.simulate(model, [0.0, 0.0], T=3.0, integrator=ts.HardContact(H), forces=limits)
    assert run.q[:, 0].max() < 0.8 + 1e-9 and run.q[:, 1].max() < 0.5 + 1e-9 and run.q[:, 1].min() > -0.3 - 1e-9
    np.testing.assert_allclose(run.q[-1], [0.8, 0.5], atol=1e-9)
    assert np.abs(run.v[-1]).max() < 1e-12


def test_dry_friction_of_a_joint_stops_it():
    """A slider with dry friction F stops after m v0^2 / 2F, and stays."""
    builder = ts.ModelBuilder(gravity=(0, 0, -G))
    builder.add_body("slider", "world", ts.Prismatic((1, 0, 0)), ts.SE3(), ts.Inertia(2.0, np.zeros(3), np.eye(3)))
    model = builder.build()
    friction = ts.JointFriction("slider", 3.0, slip=1e-3)
    run = ts.simulate(model, [0.0], [1.0], T=1.0, integrator=ts.HardContact(H), forces=[friction])
    assert run.q[-1, 0] == pytest.approx(2.0 / 6.0 - H / 2, abs=1.5 * H**2)
    assert run.v[-1, 0] == 0.0 or abs(run.v[-1, 0]) < 1e-15
    held = ts.simulate(model, [0.0], [0.0], T=1.0, integrator=ts.HardContact(H), forces=[friction], controls=[2.9])
    assert np.abs(held.v).max() < 1e-15
    pushed = ts.simulate(model, [0.0], [0.0], T=1.0, integrator=ts.HardContact(H), forces=[friction], controls=[3.1])
    assert pushed.v[-1, 0] == pytest.approx(0.1 / 2.0, rel=1e-9)


def test_loops_and_contacts_together():
    """A parallelogram under gravity whose coupler falls on a ball: both hold."""
    model, constraints = parallelogram()
    q = np.array([-0.9, 0.9, -0.9])
    q, v = ts.project(model, constraints, q, np.zeros(3))
    forces = [contact("coupler", shapes.Sphere(0.05, (1.0, 0, 0)), "world", shapes.HalfSpace((0, 0, 1), 0.3), 0.4)]
    run = ts.simulate(model, q, v, T=1.0, integrator=ts.HardContact(H), forces=forces, constraints=constraints)
    g = ts.constraint_errors(model, constraints, run.q, run.v)[0]
    assert np.abs(g).max() < 5 * H**2
    gap = ts.contact_states(model, forces, run.q, run.v).gap[:, 0]
    assert gap[0] > 0.3 and gap.min() > -5 * H**2 and abs(gap[-1]) < 1e-6
    assert np.abs(run.v[-1]).max() < 1e-6 and run.kinks.max() <= 1


def test_without_contact_steps_are_those_of_symplectic_euler():
    rng = np.random.default_rng(2)
    model = ts.models.quadruped()
    q, v = model.random(rng), rng.normal(size=model.nv)
    forces = [ts.JointDamping(None, 0.3), ts.JointSpring("front_left_calf", 10.0, 0.1)]
    u = rng.normal(size=(5, model.nv))
    runs = [
        ts.simulate(model, q, v, steps=5, integrator=kind(1e-3), forces=forces, controls=u)
        for kind in (ts.SymplecticEuler, ts.HardContact)
    ]
    for name in "qva":
        close(getattr(runs[1], name), getattr(runs[0], name), 1e-11)
    assert runs[0].kinks is None and not runs[1].kinks.any()


def test_forces_of_contacts():
    """In the trajectory: they carry the weight of a box that rests, and brake it while it slides."""
    theta, mu = 0.2, 0.5
    model, forces, q = box_on_incline(theta, mu)
    run = slide(model, forces, q, (2.0, 0.0))
    weight = 2.0 * G
    total = run.contacts.force.sum(axis=-2)
    np.testing.assert_allclose(total[:, 2], weight * np.cos(theta), rtol=1e-6)
    np.testing.assert_allclose(total[:60, 0], -mu * weight * np.cos(theta), rtol=1e-6)
    np.testing.assert_allclose(total[80:, 0], -weight * np.sin(theta), rtol=1e-6)
    pushed = ts.simulate(model, q, T=0.1, integrator=ts.HardContact(H), forces=forces, controls=[0, 0, 0, 1.0, 0, -5.0])
    np.testing.assert_allclose(pushed.contacts.normal_force.sum(axis=-1), weight * np.cos(theta) + 5.0, rtol=1e-6)


# ---- gradients


LEG = ts.Inertia.box(mass=0.5, size=(0.05, 0.05, 0.3), com=(0, 0, -0.15))


def walker(leg=LEG.parameters, twist=(0, 0, 0, 0, 0, 0)):
    """A body on two legs with unequal feet, a ball on each shin, a limit, a spring and dry friction. The left leg may
    have another inertia and placement."""
    builder = ts.ModelBuilder(gravity=(0.5, 0.2, -G))
    builder.add_body("base", "world", ts.Free(), ts.SE3(), ts.Inertia.box(mass=2.0, size=(0.4, 0.3, 0.1)))
    place, inertia = ts.SE3.translation(0.2, 0, 0) @ ts.SE3.exp(twist), ts.Inertia.from_parameters(leg)
    builder.add_body("left", "base", ts.Revolute((0, 1, 0)), place, inertia)
    builder.add_body("right", "base", ts.Revolute((1, 0, 0)), ts.SE3.translation(-0.2, 0.1, 0), LEG)
    model = builder.build()
    forces = [
        contact("left", shapes.Sphere(0.03, (0, 0, -0.3)), "world", shapes.HalfSpace((0.1, 0, 1), 0.01), 0.6),
        contact("right", shapes.Capsule(0.02, 0.1, ts.SE3.translation(0, 0, -0.3)), "world", GROUND, 0.4),
        contact("left", shapes.Sphere(0.26, (0.1, 0, -0.2)), "right", shapes.Sphere(0.2, (0, -0.05, -0.2)), 0.3),
        ts.JointLimits("left", 10.0, 1.0, lower=[0.2], upper=[0.3]),
        ts.JointSpring("right", 0.5, 0.1, 0.02),
        ts.JointFriction("right", 0.05, slip=1e-3),
    ]
    q = model.neutral.copy()
    v = 0.5 * np.random.default_rng(1).normal(size=model.nv)
    q[2], q[-2:], v[-1] = 0.36, (0.25, 0.3), -4.0
    return model, forces, q, v


def differences(f, x, step):
    """Central differences of a number by the entries of an array."""
    x = np.array(x, dtype=float)
    out = np.zeros(x.size)
    for j in range(x.size):
        e = np.zeros(x.size)
        e[j] = step
        out[j] = (f(x + e.reshape(x.shape)) - f(x - e.reshape(x.shape))) / (2 * step)
    return out.reshape(x.shape)


def test_gradients_of_a_motion():
    """By everything, against differences of motions over which contacts close, slip and stick. Accuracy of differences:
    1e-6 of the gradient, which the motion enlarges."""
    model, forces, q, v = walker()
    steps, step = 24, 3e-8
    u = np.full((steps, model.nv), 0.01)
    rng = np.random.default_rng(3)
    wq, wv, wm = rng.normal(size=(3, model.nv))

    def run(q=q, v=v, u=u, forces=forces, model=model):
        return ts.simulate(
            model, q, v, steps=steps, integrator=ts.HardContact(H, tolerance=1e-13), forces=forces, controls=u
        )

    base = run()
    touched = (ts.contact_states(model, forces, base.q, base.v).gap < 1e-4).sum(axis=0)
    assert base.kinks.sum() == 0 and (touched > 5).sum() == 3 and base.q[:, -2].min() < 0.2 + 1e-9

    def loss(run):
        return wq @ model.minus(run.q[-1], base.q[-1]) + wv @ run.v[-1] + wm @ run.v[15]

    dq, dv = np.zeros((2, steps + 1, model.nv))
    dq[-1], dv[-1], dv[15] = wq, wv, wm
    g = ts.adjoint(base, dloss_dq=dq, dloss_dv=dv)
    scale = max(np.abs(g.q0).max(), np.abs(g.v0).max())

    def same(x, y):
        np.testing.assert_allclose(x, y, rtol=1e-6, atol=1e-6 * scale)

    zero = np.zeros(model.nv)
    same(g.q0, differences(lambda x: loss(run(q=model.plus(q, x))), zero, step))
    same(g.v0, differences(lambda x: loss(run(v=x)), v, step))
    same(
        g.controls[[0, 17]],
        differences(lambda x: loss(run(u=np.vstack([x[:1], u[1:17], x[1:], u[18:]]))), u[[0, 17]], step),
    )
    for k, force in enumerate(forces):
        for name, value in force.parameters.items():
            expected = np.zeros(value.shape)
            if isinstance(force, ts.JointSpring) or name not in NO_PART:
                expected = differences(
                    lambda x, k=k, name=name, force=force: loss(
                        run(forces=[*forces[:k], force.with_parameters({name: x}), *forces[k + 1 :]])
                    ),
                    np.where(np.isfinite(value), value, 0.0),
                    step,
                )
            same(g.forces[k][name], expected)
    same(g.inertia[1], differences(lambda x: loss(run(model=walker(leg=x)[0])), LEG.parameters, step))
    same(g.placement[1], differences(lambda x: loss(run(model=walker(twist=x)[0])), np.zeros(6), step))
    same(g.gravity, differences(lambda x: loss(run(model=model.with_gravity(x))), (0.5, 0.2, -G), step))


def test_steps_from_every_phase():
    """Jacobians of single steps while a box slides, sticks, spins, lands on a corner, and on a sphere."""
    model, forces, q = box_on_incline(0.2, 0.5)
    on_corner = model.plus(q, [0.1, 0.2, 0.3, 0, 0, 0])
    gap = ts.contact_states(model, forces, on_corner, np.zeros(6)).gap.min()
    on_corner[2] += 1e-3 - gap
    cases = [
        (q, [0, 0, 0, 0, 0, 0], 1e-6),
        (q, [0, 0, 0, 2, 0.3, 0], 1e-6),
        (on_corner, [1, 0.5, -0.3, 1, 0.2, -3], 1e-6),
        (on_corner, [0, 0, 0, 0.05, 0.02, -0.11], 1e-6),
        # four places slip in four directions: how they share the load follows from what they give way, to few digits
        (q, [0, 0, 0.7, 2, -0.5, 0], 1e-4),
    ]
    for q0, v0, tol in cases:
        check_step(model, ts.HardContact(H), forces, q0, np.array(v0, dtype=float), tol)


def check_step(model, integrator, forces, q, v, tol, **more):
    n, u = model.nv, np.zeros(model.nv)
    d = ts.step_derivatives(model, integrator, q, v, u, forces=forces, **more)
    step = 1e-6
    for k, name in enumerate(("q", "v", "u")):
        columns = np.zeros((2, n, n))
        for j in range(n):
            e = np.zeros(n)
            e[j] = step
            ends = []
            for s in (1, -1):
                x = [model.plus(q, s * e), v, u] if k == 0 else [q, v + s * e, u] if k == 1 else [q, v, u + s * e]
                ends.append(ts.step(model, integrator, *x, forces=forces, **more))
            columns[0, :, j] = model.minus(ends[0].q1, ends[1].q1) / (2 * step)
            columns[1, :, j] = (ends[0].v1 - ends[1].v1) / (2 * step)
        for part, expected in zip(("q1", "v1"), columns, strict=True):
            close(getattr(d, f"d{part}_d{name}"), expected, tol)


def test_steps_with_loops_and_contacts():
    """Without friction: a mechanism with one motion cannot stick at two places."""
    model, constraints = parallelogram()
    q, v = ts.project(model, constraints, np.array([-0.9, 0.9, -0.9]), np.array([1.0, -1.0, 1.0]))
    height = ts.body_poses(model, q)[1][2] @ [1.0, 0, 0, 1.0]
    for floor in (height - 0.05, height - 0.052):
        forces = [
            contact("coupler", shapes.Sphere(0.05, (1.0, 0, 0)), "world", shapes.HalfSpace((0, 0, 1), floor), 0.0)
        ]
        check_step(model, ts.HardContact(H), forces, q, v, 1e-6, constraints=constraints)


def test_an_impact_has_the_gradient_of_its_time():
    """A point falls obliquely onto the ground: plastic, with friction. dx/dz0 is mu, dz/dz0 is 0; rows without gaps
    would give 0 and 1."""
    builder = ts.ModelBuilder(gravity=(0, 0, 0))
    builder.add_body("point", "world", ts.Translational(), ts.SE3(), ts.Inertia(1.0, np.zeros(3), np.eye(3)))
    model = builder.build()
    forces = [contact("point", shapes.Sphere(0.0), friction=0.3)]
    for z in (0.1, 0.1033, 0.1071):
        run = ts.simulate(model, [0, 0, z], [1, 0, -1], T=0.5, integrator=ts.HardContact(0.02), forces=forces)
        g = ts.adjoint(run, dloss_dq=[1.0, 0.0, 0.0], dloss_dv=np.zeros(3))
        assert g.q0[2] == pytest.approx(0.3, abs=1e-6)
        assert ts.adjoint(run, dloss_dq=[0.0, 0.0, 1.0], dloss_dv=np.zeros(3)).q0[2] == pytest.approx(0.0, abs=1e-6)


def test_kinks_are_counted():
    """A point that rests on the ground without a load: the derivative is that of the open side."""
    builder = ts.ModelBuilder(gravity=(0, 0, 0))
    builder.add_body("point", "world", ts.Translational(), ts.SE3(), ts.Inertia(1.0, np.zeros(3), np.eye(3)))
    model = builder.build()
    forces = [contact("point", shapes.Sphere(0.1))]
    run = ts.simulate(model, [0, 0, 0.1], T=0.1, integrator=ts.HardContact(H), forces=forces)
    assert (run.kinks == 1).all() and run.kinks.shape == (10,)
    close(ts.step_derivatives(model, ts.HardContact(H), run.q[0], run.v[0], forces=forces).dv1_dv, np.eye(3))
    model, forces, q = box_on_incline(0.2, np.tan(0.2))  # about to slip
    assert (slide(model, forces, q, T=0.1).kinks > 0).all()


# ---- as every integrator


def test_batches_checkpoints_and_files(tmp_path):
    model, forces, q, v = walker()
    rng = np.random.default_rng(4)
    Q = np.array([model.plus(q, 0.1 * rng.normal(size=model.nv)) for _ in range(6)])
    given = {"steps": 12, "integrator": ts.HardContact(H), "forces": forces}
    batch = ts.simulate(model, Q, v, **given, threads=2)
    some = ts.simulate(model, Q, v, **given, every=4)
    assert some.kinks.shape == batch.kinks.shape == (6, 12)
    np.testing.assert_array_equal(some.q, batch.q[:, ::4])
    np.testing.assert_array_equal(some.kinks, batch.kinks)
    w = rng.normal(size=model.nv)
    all_w = np.tile(w, (6, 1))
    g, h = (ts.adjoint(run, dloss_dq=all_w, dloss_dv=all_w) for run in (batch, some))
    np.testing.assert_array_equal(g.q0, h.q0)
    for k in (0, 5):
        alone = ts.simulate(model, Q[k], v, **given)
        np.testing.assert_array_equal(alone.q, batch.q[k])
        np.testing.assert_array_equal(ts.adjoint(alone, dloss_dq=w, dloss_dv=w).v0, g.v0[k])
    batch.save(tmp_path / "run.npz")
    loaded = ts.Trajectory.load(tmp_path / "run.npz", model, forces)
    assert loaded.integrator == batch.integrator
    np.testing.assert_array_equal(loaded.kinks, batch.kinks)
    d = ts.step_derivatives(model, ts.HardContact(H), Q, v, forces=forces)
    np.testing.assert_array_equal(d.q1, batch.q[:, 1])


def test_contradictions_are_reported():
    """A bar that is longer than the distance of two walls."""
    builder = ts.ModelBuilder()
    builder.add_body("bar", "world", ts.Prismatic((1, 0, 0)), ts.SE3(), ts.Inertia(1.0, np.zeros(3), np.eye(3)))
    model = builder.build()
    forces = [
        contact("bar", shapes.Sphere(0.6), "world", shapes.HalfSpace((1, 0, 0), -0.5)),
        contact("bar", shapes.Sphere(0.6), "world", shapes.HalfSpace((-1, 0, 0), -0.5)),
    ]
    with pytest.raises(ts.ConvergenceError, match="contacts, limits and constraints contradict each other"):
        ts.step(model, ts.HardContact(H), [0.0], [0.0], forces=forces)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"h": 0.0}, "h of HardContact is 0.0, expected a positive number"),
        ({"h": 0.1, "tolerance": -1.0}, "tolerance of HardContact is -1.0, expected a positive number"),
        ({"h": 0.1, "iterations": 0}, "iterations of HardContact is 0, expected an integer of at least 1"),
    ],
)
def test_bad_numbers(given, message):
    with pytest.raises(ValueError, match=message):
        ts.HardContact(**given)
