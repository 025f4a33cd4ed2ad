"""Steps and trajectories under constraints: against the oracle, their derivatives, conservation, orders and batches."""

from dataclasses import replace

import constraint_models as mechanisms
import constraint_oracle as oracle
import numpy as np
import pytest
from compare import close
from population import sweep

import torsor as ts
from torsor import _core, testing
from torsor.constraints.constraint import compile_constraints

IMPLICIT = (ts.BDF1, ts.BDF2, ts.SDIRK2, ts.SDIRK3)
EULER = (ts.SymplecticEuler, ts.LinearlyImplicitEuler)
CASES = {
    "four-bar": mechanisms.four_bar,
    "slider-crank": mechanisms.slider_crank,
    "ring": mechanisms.ring,
    "bennett": mechanisms.bennett,
    "stewart": mechanisms.stewart,
    "floating": lambda: mechanisms.floating_loop((0.0, 0.0, -9.81)),
    "humanoid": mechanisms.humanoid,
    "driven": mechanisms.driven,
}


def errors(model, constraints, q, v, t=0.0):
    """Largest g and dg/dt."""
    options = compile_constraints(model, constraints).options
    g, gdot, _ = _core.constraint_errors(model, q, v, t, None, options, None, 1)
    return np.abs(g).max(), np.abs(gdot).max()


def describable(seed, joints):
    """A random case whose constraints users can write: points of a distance do not move by themselves. Without joints
    whose charts change, which the oracle does not do."""
    while True:
        case = mechanisms.random_case(seed, joints=joints, count=2)
        moving = any(tie.kind == "distance" and tie.course is not None for tie in case.ties if hasattr(tie, "kind"))
        if not moving and not any(isinstance(j.joint, (ts.SphericalEuler, ts.SphericalExp)) for j in case.model.joints):
            return case
        seed += 1000


def sharp(kind, h=1e-2):
    """An integrator whose steps are exact to rounding."""
    return kind(h, tolerance=1e-12) if kind in IMPLICIT else kind(h)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("kind", [*IMPLICIT, *EULER])
def test_steps_are_those_of_the_oracle(kind, name):
    case = CASES[name]()
    u = np.random.default_rng(0).standard_normal(case.model.nv)
    forces = [ts.JointDamping(None, 0.2)]
    integrator = sharp(kind)
    q1, v1 = ts.step(case.model, integrator, case.q, case.v, u, forces=forces, constraints=case.constraints, t=case.t)
    kept = oracle.kept_rows(case.model, case.parts, case.q, case.t)
    options = {"forces": forces, "only": kept}
    if kind in IMPLICIT:
        expected = oracle.implicit_step(case.model, case.parts, integrator, case.q, case.v, u, case.t, **options)
    else:
        linearised = kind is ts.LinearlyImplicitEuler
        expected = oracle.euler_step(
            case.model, case.parts, integrator.h, case.q, case.v, u, case.t, linearised=linearised, **options
        )
    close(q1, expected[0], 1e-11)  # Newton's method stops at 1e-12 of velocities, times h
    close(v1, expected[1], 1e-9)


def big_ring(joint, n=30):
    """A ring of n links, closed to the world, with a random motion: deep enough for systems over the tree."""
    length = 2 * np.pi / n
    builder = ts.ModelBuilder(gravity=(0, 0, -9.81))
    for i in range(n):
        place = ts.SE3.translation(length if i else 0.0, 0, 0)
        link = mechanisms.rod(length, length)
        builder.add_body(f"link{i}", f"link{i - 1}" if i else "world", ts.Revolute((0, 1, 0)), place, link)
    model = builder.build()
    q = np.where(np.arange(n) == 0, 0.3, length)
    loop = ts.Loop("world", f"link{n - 1}", joint, None, ts.SE3.translation(length, 0, 0)).at(model, q)
    q, v = ts.project(model, [loop], q, 0.3 * np.random.default_rng(1).standard_normal(n))
    return model, [loop], q, v


@pytest.mark.parametrize("joint", [ts.Spherical(), ts.Revolute((0, 1, 0))], ids=["point", "hinge"])
@pytest.mark.parametrize("kind", [ts.BDF1, ts.SDIRK2])
def test_deep_trees(kind, joint):
    """Systems over the tree with a border: a step, and its gradient along a direction."""
    model, loops, q, v = big_ring(joint)
    parts = compile_constraints(model, loops).parts
    rng, integrator = np.random.default_rng(0), sharp(kind, 5e-3)
    u, du, dq, dv = 0.1 * rng.standard_normal((4, model.nv))
    kept = oracle.kept_rows(model, parts, q)
    expected = oracle.implicit_step(model, parts, integrator, q, v, u, only=kept)
    trajectory = ts.simulate(model, q, v, steps=1, integrator=integrator, controls=u[None], constraints=loops)
    close(trajectory.q[-1], expected[0], 1e-10)
    close(trajectory.v[-1], expected[1], 1e-8)
    w_q, w_v = rng.standard_normal((2, model.nv))
    gradient = ts.adjoint(trajectory, dloss_dq=w_q, dloss_dv=w_v)
    e = 1j * testing.STEP
    moved = oracle.implicit_step(model, parts, integrator, q + e * dq, v + e * dv, u + e * du, only=kept)
    slope = np.imag(w_q @ moved[0] + w_v @ moved[1]) / testing.STEP
    close(gradient.q0 @ dq + gradient.v0 @ dv + gradient.controls[0] @ du, slope, 1e-7)


@pytest.mark.parametrize("seed", sweep(range(40), 8))
@pytest.mark.parametrize("kind", [ts.BDF1, ts.BDF2, ts.SDIRK2])
def test_stiff_forces_beside_constraints(kind, seed):
    """Springs of 1e3 to 1e6 N/m with dampers, pulled by up to half a metre: every row satisfies the constraints, and
    energy never grows by more than a tenth of what the spring has stored."""
    rng = np.random.default_rng(seed)
    case = (mechanisms.four_bar, mechanisms.slider_crank, mechanisms.floating_loop)[seed % 3]()
    model = case.model
    k = 10.0 ** rng.uniform(3, 6)
    body = model.bodies[int(rng.integers(model.nbodies))].name
    spring = ts.SpringDamper("world", rng.uniform(-1, 1, 3), body, (0.3, 0, 0), k, 1e-3 * k, 0.5)
    start = ts.force_energies(model, [spring], case.q)[0]
    t = ts.simulate(
        model, case.q, case.v, steps=20, integrator=kind(1e-2), constraints=case.constraints, forces=[spring]
    )
    g, gdot = errors(model, case.constraints, t.q, t.v)
    speed = 1 + np.abs(t.v).max()
    assert g < 1e-11 * speed and gdot < 1e-11 * speed
    total = t.energies.total
    assert total.max() < total[0] + 0.1 * (start + t.energies.kinetic[0]) + 1e-9 * abs(total[0])


@pytest.mark.parametrize("seed", sweep(range(24), 6))
@pytest.mark.parametrize("kind", [*IMPLICIT, *EULER])
def test_step_derivatives_by_complex_step_of_the_oracle(kind, seed):
    case = describable(seed, 5)
    rng = np.random.default_rng(seed)
    integrator = sharp(kind)
    # Off the constraints too: a step has derivatives from anywhere.
    q = case.model.plus(case.q, 1e-3 * rng.standard_normal(case.model.nv))
    v, u = case.v + 0.1 * rng.standard_normal(case.model.nv), rng.standard_normal(case.model.nv)
    d = ts.step_derivatives(case.model, integrator, q, v, u, constraints=case.constraints, t=case.t)
    dq, dv, du = (rng.standard_normal(case.model.nv) for _ in range(3))
    e = 1j * testing.STEP
    start, velocity, torque = oracle.moved(case.model, q, e * dq), v + e * dv, u + e * du
    if kind in IMPLICIT:
        moved = oracle.implicit_step(case.model, case.parts, integrator, start, velocity, torque, case.t)
    else:
        linearised = kind is ts.LinearlyImplicitEuler
        moved = oracle.euler_step(
            case.model, case.parts, integrator.h, start, velocity, torque, case.t, linearised=linearised
        )
    with testing.complex_inputs():
        q1 = np.imag(case.model.minus(moved[0], d.q1.astype(complex))) / testing.STEP
    v1 = np.imag(moved[1]) / testing.STEP
    # The solution of the step is exact to 1e-12 of velocities, whose derivatives are those of a nearby point.
    close(d.dq1_dq @ dq + d.dq1_dv @ dv + d.dq1_du @ du, q1, 1e-9)
    close(d.dv1_dq @ dq + d.dv1_dv @ dv + d.dv1_du @ du, v1, 1e-8)


@pytest.mark.parametrize("seed", sweep(range(12), 4))
@pytest.mark.parametrize("kind", [*IMPLICIT, *EULER])
def test_adjoint_by_complex_step_of_the_oracle(kind, seed):
    case = describable(seed, 4)
    rng, model, steps = np.random.default_rng(seed), case.model, 3
    u = rng.standard_normal((steps, model.nv))
    integrator = sharp(kind)
    trajectory = ts.simulate(
        model, case.q, case.v, steps=steps, integrator=integrator, constraints=case.constraints, controls=u, t0=case.t
    )
    if trajectory.substeps.max() > 1:
        pytest.fail("a step was divided, which the oracle does not do")
    w_q, w_v = rng.standard_normal((2, model.nv))
    gradient = ts.adjoint(trajectory, dloss_dq=w_q, dloss_dv=w_v)
    du = rng.standard_normal(u.shape)
    dq, dv = rng.standard_normal((2, model.nv))
    e = 1j * testing.STEP

    def loss(start, velocity, torques):
        rows = oracle.rollout(model, case.parts, integrator, start, velocity, steps, torques, case.t)
        with testing.complex_inputs():
            end = model.minus(rows[0][-1], trajectory.q[-1].astype(complex))
        return np.imag(w_q @ end + w_v @ rows[1][-1]) / testing.STEP

    close(np.sum(gradient.controls * du), loss(case.q, case.v, u + e * du), 1e-8)
    close(gradient.q0 @ dq, loss(oracle.moved(model, case.q, e * dq), case.v, u), 1e-8)
    close(gradient.v0 @ dv, loss(case.q, case.v + e * dv, u), 1e-8)


@pytest.mark.parametrize("kind", [*IMPLICIT, *EULER])
def test_adjoint_with_respect_to_parameters(kind):
    """Markers, offsets and ratios, placements, inertias, gravity and forces, against Richardson differences."""
    case = mechanisms.floating_loop((0.0, 0.0, -9.81))
    model, integrator, steps = case.model, sharp(kind), 4
    rng = np.random.default_rng(0)
    forces = [ts.JointDamping(None, 0.3)]
    w_q, w_v = rng.standard_normal((2, model.nv))
    constraints = case.constraints
    trajectory = ts.simulate(
        model, case.q, case.v, steps=steps, integrator=integrator, constraints=constraints, forces=forces
    )
    gradient = ts.adjoint(trajectory, dloss_dq=w_q, dloss_dv=w_v)

    def loss(model, constraints, forces):
        # Step by step: a start that the moved constraints do not satisfy is meant here.
        q, v, previous = case.q, case.v, None
        for _ in range(steps):
            before = (q, v)
            q, v = ts.step(
                model, integrator, q, v, forces=forces, constraints=constraints,
                previous=previous if kind is ts.BDF2 else None,
            )  # fmt: skip
            previous = before
        return w_q @ model.minus(q, trajectory.q[-1]) + w_v @ v

    def slope(scene, e=2e-4):
        near, far = ((loss(*scene(s)) - loss(*scene(-s))) / (2 * s) for s in (e, 2 * e))
        return (4 * near - far) / 3

    for k, constraint in enumerate(constraints):
        for name, value in constraint.parameters.items():
            d = rng.standard_normal(value.shape)

            def moved(s, k=k, name=name, value=value, d=d):
                changed = list(constraints)
                changed[k] = constraints[k].with_parameters({name: value + s * d})
                return model, changed, forces

            close(np.sum(gradient.constraints[k][name] * d), slope(moved), 1e-7)
    x = 0.3 * rng.standard_normal((model.nbodies, 6))
    share = 0.1 * rng.standard_normal(model.nbodies)
    pull = rng.standard_normal(3)

    def rebuilt(place=0.0, mass=0.0, down=0.0):
        builder = ts.ModelBuilder(gravity=np.add(model.gravity, down * pull))
        for i, b in enumerate(model.bodies):
            inertia = ts.Inertia.from_parameters(b.inertia.parameters * (1 + mass * share[i]))
            builder.add_body(
                b.name, b.parent, b.joint, b.placement @ ts.SE3.exp(place * x[i]), inertia, armature=b.armature
            )
        return builder.build()

    close(np.sum(gradient.placement * x), slope(lambda s: (rebuilt(place=s), constraints, forces)), 1e-7)
    masses = np.array([b.inertia.parameters * share[i] for i, b in enumerate(model.bodies)])
    close(np.sum(gradient.inertia * masses), slope(lambda s: (rebuilt(mass=s), constraints, forces)), 1e-7)
    close(gradient.gravity @ pull, slope(lambda s: (rebuilt(down=s), constraints, forces)), 1e-7)
    softer = gradient.forces[0]["damping"]
    close(np.sum(softer), slope(lambda s: (model, constraints, [ts.JointDamping(None, 0.3 + s)])), 1e-7)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("kind", IMPLICIT)
def test_every_row_satisfies_the_constraints(kind, name):
    case = CASES[name]()
    trajectory = ts.simulate(
        case.model, case.q, case.v, steps=50, integrator=kind(1e-2), constraints=case.constraints, t0=case.t
    )
    times = trajectory.t
    g, gdot = errors(case.model, case.constraints, trajectory.q, trajectory.v, times)
    # Newton's method leaves at most 1e-10 (1 + |v|) of velocities, so that of positions times h; rates are projected.
    assert g < 1e-11 * (1 + np.abs(trajectory.v).max())
    assert gdot < 1e-12 * (1 + np.abs(trajectory.v).max())


@pytest.mark.parametrize("kind", EULER)
def test_euler_has_no_drift(kind):
    """Errors of positions stay of order h^2 (Sueda 2021, 1.12, with beta = 1/h), and grow without stabilisation."""
    case = mechanisms.four_bar()
    gaps = []
    for steps in (100, 200, 400):
        trajectory = ts.simulate(
            case.model, case.q, case.v, T=1.0, integrator=kind(1.0 / steps), constraints=case.constraints
        )
        assert len(trajectory.t) == steps + 1
        gaps.append(errors(case.model, case.constraints, trajectory.q, trajectory.v)[0])
    assert 3.0 < gaps[0] / gaps[1] < 5.0 and 3.0 < gaps[1] / gaps[2] < 5.0
    loose = ts.simulate(
        case.model, case.q, case.v, T=1.0, integrator=kind(1.0 / 400, baumgarte=0.0), constraints=case.constraints
    )
    assert errors(case.model, case.constraints, loose.q, loose.v)[0] > 10 * gaps[2]


@pytest.mark.parametrize(("kind", "order"), [(ts.BDF1, 1), (ts.BDF2, 2), (ts.SDIRK2, 2), (ts.SymplecticEuler, 1)])
def test_orders(kind, order):
    """Of q and v, on a slider-crank against a fine solution."""
    case = mechanisms.slider_crank()

    def end(integrator, steps):
        t = ts.simulate(case.model, case.q, case.v, steps=steps, integrator=integrator, constraints=case.constraints)
        return np.concatenate([t.q[-1], t.v[-1]])

    exact = end(ts.SDIRK3(0.2 / 3200), 3200)
    misses = [np.abs(end(kind(0.2 / n), n) - exact).max() for n in (40, 80, 160)]
    rates = np.log2([misses[0] / misses[1], misses[1] / misses[2]])
    assert (np.abs(rates - order) < 0.25).all(), rates


@pytest.mark.parametrize("kind", IMPLICIT)
def test_accelerations_of_rows_converge(kind):
    """To those of constrained forward dynamics, with the order of the formula: 2 for BDF2, 1 for the others."""
    case = mechanisms.slider_crank()
    misses = []
    for steps in (40, 80):
        t = ts.simulate(case.model, case.q, case.v, T=0.2, integrator=kind(0.2 / steps), constraints=case.constraints)
        a = ts.constrained_forward_dynamics(case.model, case.constraints, t.q, t.v, np.zeros_like(t.v)).a
        misses.append(np.abs(a - t.a)[steps // 2 :].max() / np.abs(a).max())
    assert misses[1] < 0.02 and misses[0] / misses[1] > (3.5 if kind is ts.BDF2 else 1.8)


def test_a_loop_cut_elsewhere_moves_the_same():
    """A four-bar closed at any of its joints, by a hinge, a point or in the plane, is one mechanism."""
    rows = []
    for cut in ("coupler-rocker", "crank-coupler", "rocker-world"):
        for closing in ("line", "point", "revolute"):
            case = mechanisms.four_bar(closing, cut)

            def end(h, case=case):
                t = ts.simulate(
                    case.model, case.q, case.v, T=0.2, integrator=ts.SDIRK2(h), constraints=case.constraints
                )
                return np.concatenate(mechanisms.link_angles(replace(case, q=t.q[-1], v=t.v[-1])))

            # Cuts have different coordinates, so that steps differ by their errors, which are of order 2: extrapolated.
            rows.append((4 * end(5e-4) - end(1e-3)) / 3)
    for row in rows[1:]:
        close(row, rows[0], 1e-7)


def test_sides_may_be_swapped():
    """Which marker is A changes nothing but the signs and axes of multipliers."""
    case = mechanisms.floating_loop((0.0, 0.0, -9.81))
    model = case.model
    (loop,) = case.constraints
    other = ts.Loop(loop.b, loop.a, loop.joint, loop.placement_b, loop.placement_a)
    rows = [
        ts.simulate(model, case.q, case.v, steps=20, integrator=ts.BDF2(1e-2), constraints=[c]) for c in (loop, other)
    ]
    close(rows[0].q, rows[1].q, 1e-9)
    close(rows[0].v, rows[1].v, 1e-8)


@pytest.mark.parametrize("kind", [*IMPLICIT, *EULER])
def test_batches_in_lanes_have_the_bits_of_single_motions(kind):
    case = mechanisms.floating_loop((0.0, 0.0, -9.81))
    model, n = case.model, 19
    rng = np.random.default_rng(1)
    speeds = rng.uniform(0.1, 2.0, n)[:, None]
    u = 0.3 * rng.standard_normal((n, 6, model.nv))
    options = {"steps": 6, "integrator": kind(1e-2), "constraints": case.constraints}
    batch = ts.simulate(model, np.broadcast_to(case.q, (n, model.nq)), speeds * case.v, controls=u, **options)
    w = rng.standard_normal((n, model.nv))
    gradients = ts.adjoint(batch, dloss_dq=w)
    for i in range(n):
        single = ts.simulate(model, case.q, speeds[i] * case.v, controls=u[i], **options)
        for x in ("q", "v", "a"):
            np.testing.assert_array_equal(getattr(batch, x)[i], getattr(single, x))
        gradient = ts.adjoint(single, dloss_dq=w[i])
        for x in ("q0", "v0", "controls", "inertia", "placement", "gravity"):
            np.testing.assert_array_equal(getattr(gradients, x)[i], getattr(gradient, x))
        for name, value in gradient.constraints[0].items():
            np.testing.assert_array_equal(gradients.constraints[0][name][i], value)


@pytest.mark.parametrize("kind", [ts.BDF1, ts.BDF2, ts.SDIRK2, ts.SymplecticEuler])
def test_checkpointing(kind):
    case = mechanisms.four_bar()
    options = {"steps": 12, "integrator": kind(1e-2), "constraints": case.constraints}
    whole = ts.simulate(case.model, case.q, case.v, **options)
    sparse = ts.simulate(case.model, case.q, case.v, every=4, **options)
    np.testing.assert_array_equal(whole.q[::4], sparse.q)
    w = np.arange(1.0, case.model.nv + 1)
    a, b = (ts.adjoint(t, dloss_dq=w, dloss_dv=w) for t in (whole, sparse))
    close(a.q0, b.q0, 1e-12)
    close(a.controls, b.controls, 1e-12)
    for name in a.constraints[0]:
        close(a.constraints[0][name], b.constraints[0][name], 1e-12)


def test_prescribed_joint_follows_its_motion():
    builder = ts.ModelBuilder(gravity=(0, 0, -9.81))
    builder.add_body("motor", "world", ts.Revolute((0, 1, 0)), inertia=mechanisms.rod(1.0))
    builder.add_body("arm", "motor", ts.Revolute((0, 1, 0)), ts.SE3.translation(1, 0, 0), inertia=mechanisms.rod(0.7))
    model = builder.build()
    motion = ts.PrescribedJoint("motor", lambda t: (np.sin(2 * t), 2 * np.cos(2 * t), -4 * np.sin(2 * t)))
    trajectory = ts.simulate(model, [0.0, 0.3], [2.0, 0.0], T=1.0, integrator=ts.SDIRK2(1e-2), constraints=[motion])
    close(trajectory.q[:, 0], np.sin(2 * trajectory.t), 1e-12)
    close(trajectory.v[:, 0], 2 * np.cos(2 * trajectory.t), 1e-12)


def test_prescribed_body_follows_its_motion():
    builder = ts.ModelBuilder(gravity=(0, 0, -9.81))
    builder.add_body("base", "world", ts.Free(), inertia=mechanisms.rod(1.0))
    builder.add_body("arm", "base", ts.Revolute((0, 1, 0)), ts.SE3.translation(1, 0, 0), inertia=mechanisms.rod(0.7))
    model = builder.build()

    def motion(t):
        rate = np.array([0.0, 0.0, 1.5, 0.0, 0.0, 0.0])
        return ts.SE3.exp(rate * t) @ ts.SE3.translation(0.5, 0, 0), rate + [0, 0, 0, 0, 0.75, 0], np.zeros(6)

    pose, twist, _ = motion(0.0)
    q0 = np.concatenate([pose.p, [0, 0, 0, 1], [0.2]])
    v0 = np.concatenate([twist, [0.0]])
    trajectory = ts.simulate(
        model, q0, v0, T=0.5, integrator=ts.BDF2(1e-2), constraints=[ts.PrescribedBody("base", motion)]
    )
    poses = ts.body_poses(model, trajectory.q)[:, 0]
    for t, found in zip(trajectory.t, poses, strict=True):
        close(found[:3, 3], motion(t)[0].p, 1e-10)
        close(found[:3, :3], motion(t)[0].R, 1e-10)


class TestStarts:
    def test_open_loops_are_refused(self):
        case = mechanisms.four_bar()
        q = case.q + [0.0, 0.1, 0.0]
        with pytest.raises(
            ts.ConstraintError, match=r"stays open by .* ts\.project\(model, constraints, q0, v0\)"
        ) as caught:
            ts.simulate(case.model, q, steps=1, integrator=ts.BDF1(1e-2), constraints=case.constraints)
        assert caught.value.rows and all("position" in row for row in caught.value.rows)

    def test_inconsistent_velocities_are_refused(self):
        case = mechanisms.four_bar()
        with pytest.raises(ts.ConstraintError, match=r"moves at .*ts\.project"):
            ts.simulate(
                case.model, case.q, case.v + [0.1, 0, 0], steps=1, integrator=ts.BDF1(1e-2),
                constraints=case.constraints,
            )  # fmt: skip

    def test_of_a_batch_are_named(self):
        case = mechanisms.four_bar()
        q = np.stack([case.q, case.q, case.q + [0.0, 0.1, 0.0]])
        with pytest.raises(ts.ConstraintError, match="in trajectory 2 of the batch"):
            ts.simulate(case.model, q, steps=1, integrator=ts.BDF1(1e-2), constraints=case.constraints)

    def test_rows_on_velocities_need_an_explicit_integrator(self):
        case = mechanisms.four_bar()
        row = ts.TwistConstraint({"coupler": (0, 1, 0, 0, 0, 0)})
        with pytest.raises(TypeError, match="a row on velocities, and BDF1 imposes constraints on positions"):
            ts.simulate(case.model, case.q, steps=1, integrator=ts.BDF1(1e-2), constraints=[row])

    def test_not_a_constraint(self):
        case = mechanisms.four_bar()
        with pytest.raises(TypeError, match="constraint 0 must be a Constraint"):
            ts.simulate(case.model, case.q, steps=1, integrator=ts.BDF1(1e-2), constraints=[ts.JointDamping(None, 1.0)])


@pytest.mark.parametrize(
    "integrator",
    [ts.BDF1(1e-1, substeps=2), ts.Variational(1e-1), ts.SymplecticEuler(1e-1), ts.LinearlyImplicitEuler(1e-1)],
)
def test_contradicting_rows_are_not_passed_over(integrator):
    """One joint that must be in two places: no step satisfies both, and the error names the rows."""
    builder = ts.ModelBuilder(gravity=(0, 0, -9.81))
    builder.add_body("arm", "world", ts.Revolute((0, 1, 0)), inertia=mechanisms.rod(1.0))
    model = builder.build()
    lock = ts.PrescribedJoint("arm", 0.0, name="lock")
    turn = ts.PrescribedJoint("arm", lambda t: (t**3, 3 * t**2, 6 * t), name="turn")
    for constraints in ([lock, turn], [turn, lock]):
        with pytest.raises(ts.ConvergenceError, match=r"turn|lock"):
            ts.simulate(model, [0.0], steps=100, integrator=integrator, constraints=constraints)


def test_other_constraints_are_refused_when_a_trajectory_is_loaded(tmp_path):
    case = mechanisms.four_bar()
    (loop,) = case.constraints
    trajectory = ts.simulate(case.model, case.q, case.v, steps=3, integrator=ts.BDF1(1e-2), constraints=[loop])
    trajectory.save(tmp_path / "motion.npz")
    again = ts.Trajectory.load(tmp_path / "motion.npz", case.model, constraints=[loop])
    np.testing.assert_array_equal(again.multipliers, trajectory.multipliers)
    moved = loop.with_parameters({"placement_a": (0, 0, 0, 0.1, 0, 0)})
    other = ts.Loop(loop.a, loop.b, ts.Spherical(), loop.placement_a, loop.placement_b)
    for wrong in ([], [moved], [other], [loop, ts.Gear("crank", "rocker", 1.0)]):
        with pytest.raises(ValueError, match="or of other forces or constraints"):
            ts.Trajectory.load(tmp_path / "motion.npz", case.model, constraints=wrong)
