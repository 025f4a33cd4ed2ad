"""What holds of every implicit step, over random stiff scenes: a returned row solves its equations, its derivatives are
those of the step, and no energy comes from nowhere.

`python tests/test_stiff_steps.py 0 20000` goes over the scenes of these seeds and prints what it found.
"""

import re
import sys

import numpy as np
import pytest
from population import sweep
from stiff_scenes import KINDS, StiffScene, stiff_scene

import torsor as ts
from torsor import testing
from torsor.integrators.base import Implicit

BUILT_IN = [i for i in testing.example_integrators(1.0) if not isinstance(i, ts.CustomIntegrator)]
IMPLICIT = [type(i) for i in BUILT_IN if isinstance(i, Implicit)]


# Each kind of scene once in the first range, and more than twice in the others.
SEEDS = sweep((range(5), range(5, 20), range(20, 35), range(35, 50)), 4)


def step_size(seed):
    return float(10 ** np.random.default_rng(10**6 + seed).uniform(np.log10(3e-3), 0.0))


def scene_of(seed):
    return stiff_scene(seed, KINDS[seed % len(KINDS)])


def run(scene, integrator, steps):
    """The trajectory, or as much of it as there is."""
    try:
        return ts.simulate(
            scene.model, scene.q, scene.v, steps=steps, integrator=integrator, forces=scene.forces, controls=scene.u
        )
    except ts.ConvergenceError as error:
        return error.trajectory


def rate(integrator, row, substeps):
    """The factor c between a change of the row's configuration and one of its velocities."""
    if isinstance(integrator, ts.BDF2) and row > 1 and substeps == 1:
        return 1.5 / integrator.h
    if substeps == 0:  # with an impact, by implicit Euler
        return 1 / integrator.h
    return abs(substeps) / (integrator.A[-1][-1] * integrator.h)


def missing(scene, trajectory):
    """For each row after the first the correction of v that Newton's method finds there, in units of the tolerance."""
    integrator, switched = trajectory.integrator, {s.row for s in trajectory.switches}
    out = np.zeros(trajectory.steps)
    for _, first, last, model in trajectory.segments():
        for row in range(max(first, 1), last):
            if row in switched:  # in the coordinates of the next step
                continue
            q, v, a, t = (x[row] for x in (trajectory.q, trajectory.v, trajectory.a, trajectory.t))
            c = rate(integrator, row, int(trajectory.substeps[row - 1]))
            r = ts.inverse_dynamics(model, q, v, a) - ts.generalized_forces(model, scene.forces, q, v, t=t) - scene.u
            d = ts.inverse_dynamics_derivatives(model, q, v, a)
            f = ts.generalized_forces_derivatives(model, scene.forces, q, v, t=t)
            # A quaternion's chart changes this by h |omega|, of the order of one.
            H = d.dtau_dq - f.dtau_dq + c * (d.dtau_dv - f.dtau_dv) + c**2 * d.dtau_da
            correction = c * np.abs(np.linalg.solve(H, r)).max()
            rounding = 4e-16 * c * max(1.0, np.abs(q).max())
            out[row - 1] = correction / (integrator.tolerance * (1 + np.abs(v).max()) + rounding)
    return out


@pytest.mark.parametrize("kind", sweep(IMPLICIT, len(IMPLICIT)))
@pytest.mark.parametrize("seeds", SEEDS, ids=str)
def test_every_row_solves_its_equations(seeds, kind):
    for seed in seeds:
        scene = scene_of(seed)
        found = missing(scene, run(scene, kind(step_size(seed)), 3))
        assert (found <= 10).all(), (seed, found)


def differences(scene, integrator, rng):
    """Of one step along a random direction: by step_derivatives, by central differences, and how far the one-sided
    ones are apart; None if the step cannot be taken."""
    model, options = scene.model, {"forces": scene.forces}
    dq, dv = rng.standard_normal((2, model.nv))

    def step(e):
        q, v = model.plus(scene.q, e * dq), scene.v + e * dv
        return ts.simulate(model, q, v, steps=1, integrator=integrator, controls=scene.u, **options)

    try:
        d = ts.step_derivatives(model, integrator, scene.q, scene.v, scene.u, **options)
        mid = step(0.0)
    except ts.ConvergenceError:
        return None
    exact = np.concatenate([d.dq1_dq @ dq + d.dq1_dv @ dv, d.dv1_dq @ dq + d.dv1_dv @ dv])
    best = None
    for e in (1e-5, 1e-6, 1e-7):
        try:
            up, down = step(e), step(-e)
        except ts.ConvergenceError:
            continue
        if up.switches or down.switches or mid.switches:
            return None
        sides = [np.concatenate([model.minus(x.q[1], mid.q[1]), x.v[1] - mid.v[1]]) / s
                 for x, s in ((up, e), (down, -e))]  # fmt: skip
        central = (sides[0] + sides[1]) / 2
        size = 1.0 + np.abs(central).max()
        apart = np.abs(sides[0] - sides[1]).max() / size
        if best is None or apart < best[2]:
            best = (exact / size, central / size, apart)
    return best


@pytest.mark.parametrize("kind", sweep(IMPLICIT, len(IMPLICIT)))
@pytest.mark.parametrize("seeds", SEEDS, ids=str)
def test_derivatives_are_those_of_the_step(seeds, kind):
    """Where differences to both sides agree, as they do not at a kink or where a neighbour is divided differently."""
    compared = 0
    for seed in seeds:
        found = differences(scene_of(seed), kind(step_size(seed), tolerance=1e-12), np.random.default_rng(seed))
        if found is not None and found[2] < 1e-5:
            compared += 1
            np.testing.assert_allclose(found[0], found[1], atol=1e-5, err_msg=str(seed))
    assert compared >= 2


def light_body(k, v):
    builder = ts.ModelBuilder()
    builder.add_body("a", "world", ts.Translational(), inertia=ts.Inertia.point(1.0))
    forces = [ts.SpringDamper("world", (0, 0, 0), "a", (0, 0, 0), k, 0.0, 0.5)]
    return StiffScene(builder.build(), forces, np.array([1.5, 0, 0]), np.array(v), np.zeros(3))


@pytest.mark.parametrize("kind", IMPLICIT)
def test_a_light_body_on_a_stiff_spring(kind):
    """Newton's method goes through velocities of 1e7 here, relative to which anything is small."""
    for k in (1e5, 1e6):
        for h in (0.01, 0.033, 0.1):
            scene = light_body(k, [0.0, 5.0, 0.0])
            trajectory = run(scene, kind(h), 20)
            assert trajectory.steps == 20
            assert (missing(scene, trajectory) <= 10).all()
            energy = trajectory.energies.total
            assert energy.max() <= 1.01 * energy[0]


@pytest.mark.parametrize("kind", IMPLICIT)
@pytest.mark.parametrize("seed", range(4))
def test_springs_stretched_far_on_a_tree(seed, kind):
    """1e6 N/m stretched by 1 m: 5e5 J on a few kilograms. The equations of a step have many solutions, of which those
    with more energy than there was are not meant."""
    rng = np.random.default_rng(seed)
    joints = [ts.Revolute((0, 1, 0)), ts.Universal(), ts.Spherical(), ts.Prismatic((1, 0, 0)), ts.Free(), ts.Planar()]
    model = ts.testing.random_tree(rng, [joints[k] for k in rng.integers(len(joints), size=5)])
    q, body, point = model.random(rng), model.bodies[-1].name, np.array([0.1, 0.2, 0.3])
    away = rng.standard_normal(3)
    anchor = ts.point_positions(model, q, body, point) + away / np.linalg.norm(away)
    forces = [ts.PointSpring("world", anchor, body, point, 1e6, [0.0, 1e2][seed % 2])]
    for h in (1e-2, 1e-3):
        energy = ts.simulate(model, q, steps=100, integrator=kind(h), forces=forces).energies
        # A step may err by a hundredth of the energy. That of gravity counts from where it is.
        assert (energy.total - energy.total[0]).max() <= 0.05 * energy.forces[0].sum()


def corrections(message):
    """The correction that a message reports, and the one that is allowed; None if it has another reason."""
    found = re.search("correction of v (.*) > (.*);", message)
    return found and tuple(float(x) for x in found.groups())


@pytest.mark.parametrize("kind", [*IMPLICIT, ts.Variational])
@pytest.mark.parametrize("speed", [1e16, 1e40, 1e77, 1e150, 1e200, 1e300])
def test_motions_beyond_all_digits_are_errors(speed, kind):
    """Angles without digits, and products that overflow; a body that moves along straight lines has neither.

    A solution that is refused has no correction that is too large, and its message reports none.
    """
    for joint in (ts.Revolute((0, 1, 0)), ts.Universal(), ts.Spherical(), ts.Free(), ts.SphericalExp()):
        builder = ts.ModelBuilder()
        builder.add_body("a", "world", joint, inertia=ts.Inertia.box((0.1, 0.2, 0.3), mass=1.0, com=(0.1, 0.2, 0.3)))
        model = builder.build()
        v = speed * np.random.default_rng(2).standard_normal(model.nv)
        with pytest.raises(ts.ConvergenceError) as error:
            ts.simulate(model, model.neutral, v, steps=1, integrator=kind(1e-3))
        reported = corrections(str(error.value))
        assert reported is None or reported[0] > reported[1]


def failures(**options):
    """Messages of all steps that fail in some scenes."""
    out = []
    for seed in range(60):
        scene = scene_of(seed)
        for kind in IMPLICIT:
            integrator = kind(step_size(seed), **options)
            try:
                ts.simulate(scene.model, scene.q, scene.v, steps=5, integrator=integrator, forces=scene.forces)
            except ts.ConvergenceError as error:
                out.append(str(error))
    return out


def test_steps_that_gain_energy_are_errors():
    """Within four parts of a step some scenes have no other solutions."""
    wanted = re.compile(r"BDF1 stopped at t = .*: all solutions .* gain energy, also with the step h = .* by 4; try")
    assert any(wanted.match(message) for message in failures(substeps=4))


def test_messages_name_what_failed():
    """The correction that is reported is above the one that is allowed."""
    reported = [x for message in failures(iterations=20, substeps=1) if (x := corrections(message)) is not None]
    assert len(reported) > 5
    assert all(got > allowed for got, allowed in reported)


def soak(first, last):
    """Goes over many scenes, 20 steps of each."""
    rows, unsolved, failed, compared, wrong = 0, [], 0, 0, []
    for seed in range(first, last):
        scene, kind = scene_of(seed), IMPLICIT[seed // len(KINDS) % 3]
        trajectory = run(scene, kind(step_size(seed)), 20)
        found = missing(scene, trajectory)
        rows, failed = rows + len(found), failed + (trajectory.steps < 20)
        unsolved += [(seed, k, x) for k, x in enumerate(found) if not x <= 10]
        sides = differences(scene, kind(step_size(seed), tolerance=1e-12), np.random.default_rng(seed))
        if sides is not None and sides[2] < 1e-5:
            compared += 1
            if not np.abs(sides[0] - sides[1]).max() <= 1e-5:
                wrong.append((seed, np.abs(sides[0] - sides[1]).max()))
        if (seed + 1) % 500 == 0:
            print(
                f"{seed + 1 - first} scenes: {rows} rows, {len(unsolved)} unsolved, {failed} ended by an error;",
                end=" ",
            )
            print(f"{compared} derivatives compared, {len(wrong)} wrong", unsolved[-3:], wrong[-3:], flush=True)


if __name__ == "__main__":
    soak(int(sys.argv[1]), int(sys.argv[2]))
