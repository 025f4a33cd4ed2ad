"""Scenes of contact: closed forms, the equations of every step from the outside, robustness, energy, gradients."""

from typing import NamedTuple

import contact_oracle as oracle
import contact_scenes as scenes
import numpy as np
import pytest
from compare import close

import torsor as ts

pytestmark = pytest.mark.filterwarnings("ignore::torsor.ImpactWarning")  # gradients here are those of the steps
INTEGRATORS = (ts.BDF1, ts.BDF2, ts.SDIRK2)
THETA, SPEED, FRICTION = 0.2, 2.0, 0.5  # of the incline
SMALL = {  # scenes that are checked step by step, with a time and a step
    "incline": lambda: (scenes.incline(onset=1e-5), 0.8, 0.01),
    "turned incline": lambda: (scenes.incline(turned=True), 0.8, 0.01),
    "landing": lambda: (scenes.quadruped(), 0.6, 0.02),
    "stiff landing": lambda: (scenes.quadruped(stiffness=1e7, slip=1e-6), 0.6, 0.02),
    "thrown box": lambda: (scenes.thrown_box(3), 0.6, 0.01),
    "pyramid": lambda: (scenes.pyramid(onset=1e-5), 0.3, 0.01),
    "collision": lambda: (scenes.collision(), 0.2, 0.005),
}


def jacobian_of(d):
    """The Jacobian of a step, as `oracle.step_jacobian` has it."""
    rows = [[d.dq1_dq, d.dq1_dv, d.dq1_du], [d.dv1_dq, d.dv1_dv, d.dv1_du]]
    if hasattr(d, "dq1_dprevious_q"):
        rows[0] += [d.dq1_dprevious_q, d.dq1_dprevious_v]
        rows[1] += [d.dv1_dprevious_q, d.dv1_dprevious_v]
    return np.block(rows)


def end_gradient(motion, w):
    """The gradient of w . (q, v) of the last row, w (2 nv,)."""
    n = motion.model.nv
    by_q, by_v = np.zeros((2, *motion.v.shape))
    by_q[-1], by_v[-1] = w[:n], w[n:]
    return ts.adjoint(motion, dloss_dq=by_q, dloss_dv=by_v)


# The law and the steps, from the outside


@pytest.mark.parametrize("name", SMALL)
def test_forces_are_those_of_the_law(name):
    scene, T, h = SMALL[name]()
    motion = scene.simulate(ts.BDF1(h), T=T)
    rng = np.random.default_rng(0)
    q = motion.q[:: max(1, len(motion.t) // 20)]
    v = motion.v[:: max(1, len(motion.t) // 20)] + 1e-3 * rng.standard_normal((len(q), scene.model.nv))
    found = ts.generalized_forces(scene.model, scene.contacts, q, v)
    expected = oracle.torques(scene.model, scene.contacts, q, v)
    largest = np.abs(expected).max()
    assert largest > 1.0
    rounding = scene.contacts[0].stiffness * 1e-15  # of gaps, which are differences of lengths of 1
    close(found, expected, 1e-12 + rounding / largest)
    energies = ts.force_energies(scene.model, scene.contacts, q)
    close(energies, oracle.energies(scene.model, scene.contacts, q))


@pytest.mark.parametrize("kind", INTEGRATORS)
@pytest.mark.parametrize("name", SMALL)
def test_a_step_solves_its_equations(name, kind):
    scene, T, h = SMALL[name]()
    motion = scene.simulate(kind(h), T=T)
    errors = oracle.step_errors(motion)
    assert np.isfinite(errors).mean() > 0.95  # the others are divided
    assert np.nanmax(errors) < 1e-9  # ten times the tolerance of Newton's method


@pytest.mark.parametrize("kind", INTEGRATORS)
@pytest.mark.parametrize("name", SMALL)
def test_jacobians_of_steps_are_exact(name, kind):
    scene, T, h = SMALL[name]()
    integrator = kind(h, tolerance=1e-12)
    motion = scene.simulate(integrator, T=T)
    for k in np.linspace(1, motion.steps - 1, 12).astype(int):
        parts = oracle.parts_of_step(motion, k)
        if parts is None or len(parts) > 1:
            continue
        ((part, q, v, q1, v1, u, t, previous),) = parts
        options = {} if previous is None else {"previous": previous}
        d = ts.step_derivatives(scene.model, integrator, q, v, np.zeros(scene.model.nv), forces=scene.forces, **options)
        expected = oracle.step_jacobian(scene.model, part, scene.forces, q, v, q1, v1, u, t, previous)
        close(jacobian_of(d), expected, 1e-8)


# The incline


@pytest.mark.parametrize("turned", [False, True])
def test_a_box_stops_where_coulomb_says(turned):
    scene = scenes.incline(THETA, SPEED, turned=turned)
    time = scenes.stop(THETA, SPEED, FRICTION)
    motion = scene.simulate(ts.BDF2(0.01), T=1.0)
    way = np.linalg.norm(motion.q[-1, :3] - motion.q[0, :3])
    assert abs(way - SPEED * time / 2) < 1e-5
    gradient = end_gradient(motion, np.eye(12)[3])
    assert gradient.v0[3] == pytest.approx(time, rel=3e-3)
    # from rest on, it creeps down as the law says: the load is tan(theta) / mu of the limit
    assert motion.v[-1, 3] == pytest.approx(oracle.creep(np.tan(THETA) / FRICTION, 1e-4), rel=0.01)


def test_slip_to_stick_does_not_spoil_order_two():
    # A soft law, so that its own time scales do not hide errors of the steps. Where a step changes the velocity by less
    # than the slip velocity, BDF2 goes through the end of the slip without starting anew.
    scene = scenes.incline(THETA, SPEED, stiffness=1e4, slip=2e-2, onset=1e-4)
    fine = scene.simulate(ts.SDIRK2(5e-4), T=1.0).q[-1, 0]
    for h in (0.02, 0.01, 0.005):
        first, second = (abs(scene.simulate(kind(h), T=1.0).q[-1, 0] - fine) for kind in (ts.BDF1, ts.BDF2))
        assert second < 2 * h * first


@pytest.mark.parametrize("kind", INTEGRATORS)
@pytest.mark.parametrize("share", [0.9, 1.1])
def test_it_sticks_below_the_angle_of_friction_and_slips_above(share, kind):
    theta = share * np.arctan(FRICTION)
    motion = scenes.incline(theta, 0.0).simulate(kind(0.01), T=0.5)
    if share < 1:
        assert motion.v[-1, 3] == pytest.approx(oracle.creep(np.tan(theta) / FRICTION, 1e-4), rel=0.01)
    else:
        assert motion.v[-1, 3] == pytest.approx(-(scenes.stop(theta, 1.0, FRICTION) ** -1) * 0.5, rel=1e-3)


@pytest.mark.parametrize("kind", INTEGRATORS)
def test_gradients_of_sliding_and_stopping_are_products_of_jacobians(kind):
    scene = scenes.incline(onset=1e-5)
    scene = scene._replace(v=scene.v + [0.1, 0.2, 0.3, 0, 0, 0])
    motion = scene.simulate(kind(0.01, tolerance=1e-12), T=0.8)
    assert np.abs(motion.v[-1]).max() < 1e-3  # it has stopped
    w = np.random.default_rng(0).standard_normal(12)
    g = end_gradient(motion, w)
    close(np.concatenate([g.q0, g.v0]), w @ oracle.chained(motion), 1e-9)


@pytest.mark.parametrize("kind", INTEGRATORS)
def test_jacobians_are_those_of_differences_through_slip_to_stick(kind):
    scene, n = scenes.incline(onset=1e-5), 6
    model, integrator = scene.model, kind(0.01)
    motion = scene.simulate(integrator, T=0.75)
    stop = int(np.argmax(np.abs(motion.v[:, 3]) < 1e-4))
    for k in (20, stop - 1, stop, motion.steps - 1):
        d = ts.step_derivatives(model, integrator, motion.q[k], motion.v[k], np.zeros(n), forces=scene.forces)

        def end(x, q=motion.q[k], v=motion.v[k], at=d.q1):
            """Without the error of Newton's method, which differences would magnify by 1e7."""
            q0, v0 = model.plus(q, x[:n]), v + x[n:]
            q1, v1 = ts.step(model, integrator, q0, v0, forces=scene.forces)
            c = oracle.correction(model, integrator, scene.forces, q0, v0, q1, v1)
            return np.concatenate([model.minus(model.plus(q1, c[:n]), at), v1 + c[n:]])

        narrow, wide = (
            np.stack([(end(x) - end(-x)) / (2 * e) for x in e * np.eye(2 * n)], axis=1) for e in (1e-7, 2e-7)
        )
        close(jacobian_of(d)[:, : 2 * n], (4 * narrow - wide) / 3, 1e-8)


# Landings


@pytest.mark.parametrize(("stiffness", "slip"), [(1e5, 1e-3), (1e5, 1e-4), (1e6, 1e-4), (1e7, 1e-6)])
@pytest.mark.parametrize("friction", [0.5, 0.8, 2.0])
def test_a_quadruped_lands(stiffness, slip, friction):
    scene, parts = scenes.quadruped(stiffness=stiffness, slip=slip, friction=friction), []
    for kind in INTEGRATORS:
        motion = scene.simulate(kind(0.02), T=1.5)
        parts.append(motion.substeps)
        assert np.abs(motion.v[-1]).max() < 0.2  # it stands
        assert motion.q[-1, 2] == pytest.approx(0.51, abs=0.02)
        depth = -oracle.gaps(scene.model, scene.forces, motion.q).min()
        assert depth < 2.4 * np.sqrt(scene.model.mass / 4 / stiffness)  # that of a quarter of it at the speed of impact
    assert (np.concatenate(parts) > 1).mean() <= 0.01  # of 225 steps


def land(number, frictions, kind=ts.BDF1, **law):
    """Random landings for each friction: none fails. The share of steps that were divided."""
    divided = []
    for friction in frictions:
        scene = scenes.landings(int(100 * friction), number, friction=friction, **law)
        motion = scene.simulate(kind(0.02), T=0.8)
        assert motion.finished.all()
        divided.append((motion.substeps > 1).mean())
    return np.mean(divided)


@pytest.mark.parametrize("kind", INTEGRATORS)
def test_random_landings_succeed(kind):
    assert land(16, [0.5, 0.8, 2.0], kind) <= 0.01


def test_stiff_landings_succeed():
    assert land(16, [0.5, 0.8], stiffness=1e7, slip=1e-6) <= 0.01


@pytest.mark.slow
@pytest.mark.parametrize("kind", INTEGRATORS)
def test_a_thousand_landings_succeed(kind):
    assert land(250, [0.5, 0.8, 1.3, 2.0], kind) <= 0.01


@pytest.mark.parametrize("kind", INTEGRATORS)
def test_the_gradient_of_a_landing_is_that_of_differences(kind):
    scene = scenes.quadruped(onset=1e-4)
    n, rng = scene.model.nv, np.random.default_rng(0)
    integrator = kind(0.02, tolerance=1e-12)
    motion = scene.simulate(integrator, T=0.4)
    feet = oracle.gaps(scene.model, scene.forces, motion.q)
    assert (feet[0] > 0).all()
    assert (feet.min(axis=0) < 0).all()  # all four land
    w, d = rng.standard_normal((2, 2 * n))
    g = end_gradient(motion, w)
    slope = g.q0 @ d[:n] + g.v0 @ d[n:]

    def along(e):
        moved = scene._replace(q=scene.model.plus(scene.q, e * d[:n]), v=scene.v + e * d[n:])
        end = moved.simulate(integrator, T=0.4)
        return scene.model.minus(end.q[-1], motion.q[-1]) @ w[:n] + end.v[-1] @ w[n:]

    e = 1e-6
    assert slope == pytest.approx((along(e) - along(-e)) / (2 * e), rel=1e-6)


@pytest.mark.parametrize("name", ["stiffness", "dissipation", "friction", "slip", "onset", "radius", "other_offset"])
def test_gradients_by_parameters_are_those_of_differences(name):
    scene = scenes.quadruped(onset=1e-4)
    integrator = ts.BDF2(0.02, tolerance=1e-12)
    w = np.random.default_rng(1).standard_normal(2 * scene.model.nv)
    motion = scene.simulate(integrator, T=0.4)
    at = next(k for k, force in enumerate(scene.forces) if isinstance(force, ts.Contact))
    slope = float(end_gradient(motion, w).forces[at][name])
    value = float(scene.forces[at].parameters[name])
    e = 1e-5 * (value or 1e-2)

    def end(x):
        forces = [*scene.forces]
        forces[at] = forces[at].with_parameters({name: x})
        last = scene._replace(forces=forces).simulate(integrator, T=0.4)
        n = scene.model.nv
        return scene.model.minus(last.q[-1], motion.q[-1]) @ w[:n] + last.v[-1] @ w[n:]

    difference = (end(value + e) - end(value - e)) / (2 * e)
    assert abs(slope - difference) < 1e-5 * abs(difference) + 1e-8 / e


def test_lanes_land_as_single_motions_do():
    scene = scenes.landings(5, 6)
    motion = scene.simulate(ts.BDF1(0.02), T=0.6)
    for k in range(6):
        alone = scene._replace(q=scene.q[k], v=scene.v[k]).simulate(ts.BDF1(0.02), T=0.6)
        np.testing.assert_array_equal(motion.q[k], alone.q)


@pytest.mark.filterwarnings("error::torsor.ImpactWarning")
def test_a_gradient_through_an_impact_in_between_warns():
    h = 0.01
    builder = ts.ModelBuilder("ball")
    builder.add_body("ball", "world", ts.Free(), inertia=ts.Inertia.sphere(0.1, mass=2.0))
    model = builder.build()
    q = model.neutral
    q[2] = 0.3

    def fall(models=model, parameters=None, signals=None, **law):
        ball = ts.Contact("ball", ts.shapes.Sphere(0.1), "world", ts.shapes.HalfSpace(), **law)
        given = {"forces": [ball], "parameters": parameters, "signals": signals}
        motion = ts.simulate(models, q, T=0.5, integrator=ts.BDF1(h), **given)
        return ts.adjoint(motion, dloss_dv=np.ones(motion.v.shape))

    rigid, between = ts.Contact.rigid(h, 2.0), 2.0 * (5.0 / h) ** 2
    fall(**rigid)
    fall(stiffness=2.0 * (0.1 / h) ** 2, onset=4 * h * 2.0)
    fall(stiffness=between, parameters=[{"stiffness": rigid["stiffness"]}])
    fall(stiffness=between, signals=[{"stiffness": np.full(50, rigid["stiffness"])}])
    warns = {"expected_warning": ts.ImpactWarning, "match": "'ball' on 'world'"}
    with pytest.warns(**warns):
        fall(stiffness=between)
    with pytest.warns(**warns):
        fall(**rigid | {"stiffness": 1e9}, parameters=[{"stiffness": [1e9, between]}])
    with pytest.warns(**warns):
        fall(models=[model, model.with_inertia("ball", ts.Inertia.sphere(0.1, mass=200.0))], **rigid)


@pytest.mark.parametrize(
    ("hw", "dissipation", "onset", "h", "within"),
    [
        (200.0, 1.0, 0.0, 0.02, 2e-3),
        (50.0, 1.0, 0.0, 5e-3, 0.06),
        (0.1, 0.0, 4.0, 5e-3, 0.01),
        (0.03, 0.0, 4.0, 5e-3, 1e-3),
    ],
)
def test_the_time_of_an_impact_is_exact_in_gradients(hw, dissipation, onset, h, within):
    """The table of docs/impacts.md: dx/dz0 = mu (1 + e) of a ball that falls obliquely, at all phases of a step."""
    builder = ts.ModelBuilder("ball", gravity=(0, 0, 0))
    builder.add_body("ball", "world", ts.Translational(), inertia=ts.Inertia.sphere(0.05, mass=1.0))
    law = {"stiffness": (hw / h) ** 2, "dissipation": dissipation, "friction": 0.3, "slip": 1e-4, "onset": onset * h}
    contact = ts.Contact("ball", ts.shapes.Sphere(0.05), "world", ts.shapes.HalfSpace(), **law)
    q, v = np.zeros((24, 3)), np.tile([1.0, 0.0, -1.0], (24, 1))
    q[:, 2] = 0.35 + h * (0.5 + np.arange(24)) / 24
    motion = ts.simulate(builder.build(), q, v, T=1.0, integrator=ts.BDF1(h), forces=[contact])
    last = np.zeros(motion.v.shape)
    last[:, -1, 0] = 1.0
    slope = ts.adjoint(motion, dloss_dq=last, parameters=False).q0[:, 2]
    np.testing.assert_allclose(slope, 0.3 * (1 + motion.v[:, -1, 2].mean()), rtol=0, atol=within)


# Thrown boxes


class Rises(NamedTuple):
    """Rises of energy over the energy at the start, the largest of a batch."""

    step: float  # in one step
    above: float  # above the start
    since: float  # above the least value before: what a slow gain of many steps adds up to


def rises(motion):
    E = scenes.energy(motion)
    ratio = E / E[..., :1]
    return Rises(np.diff(ratio, axis=-1).max(), ratio.max() - 1, (ratio - np.minimum.accumulate(ratio, axis=-1)).max())


def throw(number, seeds, kind, h=0.01):
    """None fails; the largest rises of energy."""
    found = []
    for seed in seeds:
        motion = scenes.thrown_box(seed, number).simulate(kind(h), T=0.8)
        assert motion.finished.all()
        found.append(rises(motion))
    return Rises(*np.max(found, axis=0))


def test_thrown_boxes_lose_energy():
    found = throw(100, [0], ts.BDF1)
    assert max(found.step, found.above) < 1e-3


@pytest.mark.parametrize(("kind", "h"), [(ts.BDF1, 2.5e-3), (ts.SDIRK2, 1e-3), (ts.BDF2, 2.5e-4)])
def test_no_energy_is_gained_by_any_measure_once_impacts_are_resolved(kind, h):
    """Boxes that roll over an edge gain with `BDF1`, by some 1e-4 a step of 10 ms; methods of order 2 are not
    dissipative and gain some 1e-2 in impacts that they do not resolve."""
    assert max(throw(20, [0], kind, h)) < 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("kind", INTEGRATORS)
def test_ten_thousand_throws_succeed(kind):
    found = throw(1000, range(10), kind)
    if kind is ts.BDF1:
        assert max(found.step, found.above) < 1e-3


@pytest.mark.parametrize(
    ("stiffness", "slip", "friction", "h"), [(1e7, 1e-6, 0.5, 0.02), (1e6, 1e-5, 1.5, 0.02), (1e8, 1e-7, 1.0, 0.05)]
)
def test_stiff_throws_with_long_steps_succeed(stiffness, slip, friction, h):
    motion = scenes.thrown_box(1, 40, stiffness=stiffness, slip=slip, friction=friction).simulate(ts.BDF1(h), T=0.8)
    assert motion.finished.all()
    assert np.isfinite(motion.q).all()
    assert (motion.substeps > 1).mean() < 0.1


@pytest.mark.parametrize("stiffness", [1e5, 1e7])
def test_a_deep_start_is_resolved_without_an_explosion(stiffness):
    # The normal force ends where bodies separate at 3 / (2 d), however deep they are.
    scene = scenes.incline(0.0, 0.0, stiffness=stiffness, dissipation=0.5)
    q = scene.q.copy()
    q[2] = 0.0  # half of the box
    scene = scene._replace(q=q)
    for kind in INTEGRATORS:
        motion = scene.simulate(kind(0.01), T=2.0)
        E = scenes.energy(motion)
        assert E.argmax() == 0
        if kind is ts.BDF1:
            assert np.abs(motion.v).max() < 3.0
            assert motion.q[-1, 2] == pytest.approx(0.05, abs=1e-4)
            assert np.diff(E).max() < 1e-9


# What must stand, fall, stay and roll


def tilt(model, q, body):
    """The angle between the z axes of a body and of the world, (...)."""
    names = [b.name for b in model.bodies]
    return np.arccos(np.clip(ts.body_poses(model, q)[..., names.index(body), 2, 2], -1, 1))


def stands(scene, T, within):
    motion = scene.simulate(ts.BDF1(0.01), T=T, every=20)
    places = scenes.positions(scene.model, motion.q)
    assert np.abs(places - places[0]).max() < within
    return motion


def test_a_stack_stands():
    stands(scenes.stack(5), 2.0, 3e-3)


@pytest.mark.slow
def test_ten_boxes_stand_for_a_minute():
    stands(scenes.stack(10), 60.0, 5e-3)


def test_a_pyramid_of_spheres_stands():
    stands(scenes.pyramid(), 2.0, 1e-3)


@pytest.mark.slow
def test_a_pyramid_stands_for_a_minute():
    # friction needs tan(pi/8) / 0.6 of its limit, and spheres creep apart at this rate
    creep = oracle.creep(np.tan(np.pi / 8) / 0.6, 1e-4)
    stands(scenes.pyramid(), 60.0, 3 * 60 * creep)
    stands(scenes.pyramid(stiffness=1e7, slip=1e-6), 60.0, 2e-3)


def test_a_pyramid_without_enough_friction_falls():
    motion = scenes.pyramid(friction=0.3).simulate(ts.BDF1(0.01), T=1.0)
    top = scenes.positions(motion.model, motion.q, "ball4")[:, 0, 2]
    assert top[-1] < 0.11


@pytest.mark.parametrize("number", [8, pytest.param(50, marks=pytest.mark.slow)])
def test_dominoes_fall_one_after_the_other(number):
    scene = scenes.dominoes(number)
    motion = scene.simulate(ts.BDF1(0.005), T=0.4 + 0.08 * number)
    angles = -motion.q[:, 2::3]
    assert (angles[-1, :-1] > 0.5).all()  # each lies on the next
    assert angles[-1, -1] > 1.2  # the last one flat
    fallen = np.argmax(angles > 0.3, axis=0)
    assert (np.diff(fallen) > 0).all()


@pytest.mark.parametrize("walls", ["capsules", "boxes", "spheres"])
def test_a_ball_stays_in_a_cup(walls):
    scene = scenes.cup(walls)
    motion = scene.simulate(ts.BDF1(0.005), T=3.0)
    radius = np.linalg.norm(motion.q[:, :2], axis=1)
    assert radius.max() < 0.5
    assert motion.q[-1, 2] == pytest.approx(0.1, abs=1e-3)  # on the ground
    assert np.diff(scenes.energy(motion)).max() < 1e-3 * scenes.energy(motion)[0]


@pytest.mark.parametrize("shape", ["sphere", "capsule", "cylinder"])
def test_a_wheel_rolls_without_slipping(shape):
    scene = scenes.wheel(shape)
    ends, slips = [], []
    for h in (0.01, 0.005):
        motion = scene.simulate(ts.BDF2(h), T=2.0)
        w, v = in_the_world(scene, motion)
        ends.append(abs(motion.q[-1, 0] - 4.0))
        slips.append(np.abs(v + np.cross(w, [0, 0, -motion.q[0, 2]])).max())
    # what is left is the error of the steps, of order 2: the wheel turns by 4 degrees in one
    assert ends[0] < 2e-3
    assert ends[1] < ends[0] / 3
    assert slips[1] < 1e-3


def in_the_world(scene, motion):
    """Angular and linear velocity (rows, 3) of the first body."""
    R = ts.body_poses(scene.model, motion.q)[:, 0, :3, :3]
    return (np.einsum("nij,nj->ni", R, x) for x in (motion.v[:, :3], motion.v[:, 3:]))


@pytest.mark.parametrize(("shape", "share"), [("sphere", 5 / 7), ("cylinder", 2 / 3)])
def test_a_wheel_that_slides_begins_to_roll(shape, share):
    # Sliding friction mu m g turns it until v = w r: a closed form, whatever the friction.
    scene = scenes.wheel(shape, speed=2.0, spin=0.0)
    motion = scene.simulate(ts.BDF2(0.005), T=0.5)
    w, v = in_the_world(scene, motion)
    assert v[-1, 0] == pytest.approx(2.0 * share, rel=2e-3)
    assert w[-1, 1] * 0.3 == pytest.approx(2.0 * share, rel=2e-3)


# Momentum and work


@pytest.mark.parametrize("name", ["pyramid", "collision"])
def test_contact_changes_no_total_momentum(name):
    scene, T, h = SMALL[name]()
    pairs = [c for c in scene.contacts if c.other != "world"]
    motion = scene.simulate(ts.BDF1(h), T=T)
    tau = ts.generalized_forces(scene.model, pairs, motion.q, motion.v)
    poses = ts.body_poses(scene.model, motion.q)
    w, u = np.random.default_rng(0).standard_normal((2, 3))
    R, p = poses[..., :3, :3], poses[..., :3, 3]
    rigid = np.concatenate(
        [np.einsum("...ji,j->...i", R, w), np.einsum("...ji,...j->...i", R, u + np.cross(w, p))], axis=-1
    ).reshape(motion.v.shape)
    assert np.abs(tau).max() > 1.0
    assert np.abs((tau * rigid).sum(-1)).max() < 1e-12 * np.abs(tau).max()


def test_a_collision_of_bodies_that_do_not_turn_keeps_their_momentum():
    scene = scenes.collision(turning=False)
    for kind in INTEGRATORS:
        motion = scene.simulate(kind(0.005, tolerance=1e-13), T=0.3)
        p = ts.momentum(scene.model, motion.q, motion.v, about="world")[..., 3:]
        assert np.abs(motion.v[-1] - motion.v[0]).max() > 0.1
        np.testing.assert_allclose(p, np.broadcast_to(p[0], p.shape), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", SMALL)
def test_friction_does_no_positive_work(name):
    scene, T, h = SMALL[name]()
    motion = scene.simulate(ts.BDF1(h / 10), T=T)
    smooth = [c.with_parameters({"friction": 0.0}) for c in scene.contacts]
    f = ts.generalized_forces(scene.model, scene.contacts, motion.q, motion.v)
    power = ((f - ts.generalized_forces(scene.model, smooth, motion.q, motion.v)) * motion.v).sum(-1)
    assert power.min() < 0
    assert power.max() < 1e-12 * np.abs(f).max()


# Painleve's rod


# Methods of order 2 with steps of 10 ms, two of which contain it all, overshoot the stop.
@pytest.mark.parametrize(("kind", "h"), [(ts.BDF1, 1e-2), (ts.BDF1, 1e-3), (ts.BDF2, 1e-3), (ts.SDIRK2, 1e-3)])
def test_painleves_rod_jams_without_falling(kind, h):
    """Stated behaviour. Friction presses the tip into the ground the more the harder it is pressed, so that no rigid
    solution slides on: the force of the compliant contact grows at an exponential rate until the tip stops, within 5 ms
    here, an impact without a collision. It is caught: the angular momentum about it is kept, w = 3 v sin / (4 l)."""
    scene = scenes.rod()
    angle = -scene.q[2]
    assert scene.forces[0].friction > scenes.critical_friction(angle)
    motion = scene.simulate(kind(h), T=0.02)
    tip = oracle.states(scene.model, scene.forces, motion.q, motion.v)[0]
    assert np.abs(tip.slip[-1]).max() < 0.02
    assert motion.v[-1, 2] == pytest.approx(-0.75 * np.sin(angle), rel=0.15)  # it rebounds by a part of that
    E = scenes.energy(motion)
    assert (E - np.minimum.accumulate(E)).max() < 1e-3 * E[0]


def test_below_the_critical_friction_the_rod_slides_on():
    scene = scenes.rod(friction=1.0)
    assert scene.forces[0].friction < scenes.critical_friction(-scene.q[2])
    ends = []
    for h in (1e-2, 1e-3):
        motion = scene.simulate(ts.BDF1(h), T=0.01)
        ends.append(oracle.states(scene.model, scene.forces, motion.q, motion.v)[0].slip[-1, 0, 0])
    assert ends[0] == pytest.approx(ends[1], rel=0.1)
    assert 0.3 < ends[1] < 0.6
