"""Post-stabilisation of explicit steps: their end is moved onto the constraints. Sueda 2021, 1.12."""

import numpy as np
import pytest
from compare import close

import torsor as ts
from torsor import testing

H = 0.02
EULER = (ts.SymplecticEuler, ts.LinearlyImplicitEuler)


class Surface(ts.CustomConstraint):
    """Two rows that depend on time and on parameters."""

    rows = 2

    def __init__(self, p=(0.3, 0.7), offset=(0.0, 0.0)):
        self.p, self.offset = np.array(p), np.array(offset)

    def value(self, q, t, p):
        return np.array([q[4] * q[5] - p[0] * np.sin(t + q[6]), q[4] ** 2 + p[1] * q[7] * t]) - self.offset


class Cases:
    """A floating tree with joints on groups, and constraints that it nearly satisfies."""

    def __init__(self):
        self.rng = rng = np.random.default_rng(3)
        builder = ts.ModelBuilder()
        for name, parent, joint in (
            ("a", "world", ts.Spherical()), ("b", "a", ts.Revolute((0, 1, 1))), ("c", "world", ts.Free()),
            ("d", "c", ts.SphericalExp()), ("e", "b", ts.Universal()),
        ):  # fmt: skip
            builder.add_body(name, parent, joint, testing.random_pose(rng), testing.random_inertia(rng))
        self.model = builder.build()
        self.q, self.v, self.t = self.model.random(rng), rng.standard_normal(self.model.nv), 0.4
        self.forces = [ts.BodyDamping("c", 0.3), ts.SpringDamper("a", (1, 0, 0), "c", (0, 1, 0), 30.0, 1.0, 0.5)]
        T, at = ts.body_poses(self.model, self.q), testing.random_pose(rng)
        length = np.linalg.norm((T[0] @ [1, 2, 3, 1] - T[2] @ [0, 1, 0, 1])[:3])
        start, twist = self.near("world", "e", at), 0.5 * rng.standard_normal(6)

        def moving(t):
            return start @ ts.SE3.exp((t - self.t) * twist), twist, np.zeros(6)

        point, beside = (1, 0, 2), self.near("d", "e", ts.SE3.translation(1, 0, 2))
        offset = Surface().value(self.q, self.t, Surface().p) + 0.02
        self.constraints = {
            "loop": [
                ts.Loop("e", "d", ts.Revolute((0, 1, 0)), self.near("e", "d", at), at),
                ts.Distance("a", (1, 2, 3), "c", (0, 1, 0), length + 0.03),
            ],
            "moving": [
                ts.Loop("world", "e", ts.Spherical(), moving, at),
                ts.Coupling(["b"], [1.0], offset=float(self.q[4]) + 0.05),
            ],
            "custom": [Surface(offset=offset), ts.PointOnLine("d", "e", beside, point)],
            "twist": [
                ts.TwistConstraint({"c": rng.standard_normal(6), "e": rng.standard_normal(6)}, {"b": 2.0}),
                ts.PointOnPlane("d", "e", beside, point),
            ],
        }  # fmt: skip

    def near(self, a, b, on_b):
        """A placement on a that is nearly that of b."""
        loop = ts.Loop(a, b, ts.Fixed(), placement_b=on_b).at(self.model, self.q)
        return loop.placement_a @ ts.SE3.exp(0.05 * self.rng.standard_normal(6))


CASES = Cases()


def errors(model, constraints, q, v, t):
    return ts.constraint_errors(model, constraints, q, v, t=t)


@pytest.mark.parametrize("kind", EULER)
@pytest.mark.parametrize("name", CASES.constraints)
def test_the_displacement_is_the_shortest(name, kind):
    """q1 = q^ (+) d with M d = -G^T mu, G d = -g at q^, where the step without stabilisation ends; the same v1."""
    model, q, v, t, constraints = CASES.model, CASES.q, CASES.v, CASES.t, CASES.constraints[name]
    options = {"forces": CASES.forces, "constraints": constraints, "t": t}
    plain = ts.step(model, kind(H, baumgarte=0.0), q, v, **options)
    post = ts.step(model, kind(H, stabilization="post"), q, v, **options)
    np.testing.assert_array_equal(post.v1, plain.v1)
    zero = np.zeros(model.nv)
    g = errors(model, constraints, plain.q1, zero, t + H)[0]
    G = ts.constraint_jacobian(model, constraints, plain.q1, t=t + H)
    Y = np.linalg.solve(ts.mass_matrix(model, plain.q1), G.T)
    d = -Y @ np.linalg.solve(G @ Y, g)
    # the chart of a step is that of the joints, R exp(w) and p + R y for a free one
    expected = model.plus(plain.q1, d)
    i = model.joint("c").q_slice.start
    w, y = np.split(d[model.joint("c").v_slice], 2)
    R = ts.SE3.from_quaternion(plain.q1[i + 3 : i + 7]).R
    expected[i : i + 3] = plain.q1[i : i + 3] + R @ y
    expected[i + 3 : i + 7] = ts.SE3(R @ ts.SE3.exp([*w, 0, 0, 0]).R).quaternion
    expected[i + 3 : i + 7] *= np.sign(expected[i + 3 : i + 7] @ post.q1[i + 3 : i + 7])
    close(post.q1, expected, 1e-13)
    after = errors(model, constraints, post.q1, zero, t + H)[0]
    assert np.abs(after).max() < 0.15 * np.abs(g).max()


@pytest.mark.parametrize("kind", EULER)
@pytest.mark.parametrize("baumgarte", [None, 3.0])
@pytest.mark.parametrize("stabilization", ["baumgarte", "post"])
@pytest.mark.parametrize("name", CASES.constraints)
def test_step_derivatives(name, stabilization, baumgarte, kind):
    model, q, v, t = CASES.model, CASES.q, CASES.v, CASES.t
    integrator = kind(H, baumgarte, stabilization)
    options = {"forces": CASES.forces, "constraints": CASES.constraints[name], "t": t}
    u = 0.3 * CASES.v
    d = ts.step_derivatives(model, integrator, q, v, u, **options)
    nv = model.nv

    def step(e):
        s = ts.step(model, integrator, model.plus(q, e[:nv]), v + e[nv : 2 * nv], u + e[2 * nv :], **options)
        return np.concatenate([model.minus(s.q1, d.q1), s.v1])

    eps, columns = 1e-5, []
    for k in range(3 * nv):
        e = eps * np.eye(3 * nv)[k]
        columns.append((8 * (step(e) - step(-e)) - (step(2 * e) - step(-2 * e))) / (12 * eps))
    made = np.block([[d.dq1_dq, d.dq1_dv, d.dq1_du], [d.dv1_dq, d.dv1_dv, d.dv1_du]])
    close(made, np.stack(columns, axis=1), 2e-9)  # rounding of differences


@pytest.mark.parametrize("kind", EULER)
@pytest.mark.parametrize("name", CASES.constraints)
def test_adjoint(name, kind):
    """Gradients of a rollout by the state, controls, inertias, placements, and numbers of constraints."""
    model, t = CASES.model, CASES.t
    constraints = CASES.constraints[name]
    integrator, rng = kind(H, stabilization="post"), np.random.default_rng(0)
    # a start on the constraints, which simulate asks for
    q, v = CASES.q, CASES.v
    for _ in range(40):
        q = ts.step(
            model, ts.SymplecticEuler(1e-6, stabilization="post"), q, 0 * v, constraints=constraints, t=t - 1e-6
        ).q1
    u = 0.2 * rng.standard_normal((5, model.nv))
    target = model.random(rng)
    weights = rng.uniform(0.5, 1.5, model.nv)

    def value(model=model, q=q, v=v, u=u, constraints=constraints):
        for k in range(5):
            q, v = ts.step(model, integrator, q, v, u[k], forces=CASES.forces, constraints=constraints, t=t + k * H)
        return 0.5 * np.sum(weights * v**2) + 0.5 * np.sum(weights * model.minus(q, target) ** 2)

    run = ts.simulate(
        model, q, v, steps=5, integrator=integrator, forces=CASES.forces, constraints=constraints, controls=u, t0=t
    )
    loss = ts.loss(run, ts.PositionTarget(target, weights) + ts.VelocityTarget(0 * v, weights))
    assert loss.value == pytest.approx(value(), rel=1e-9)
    made = ts.adjoint(run, loss)

    def along(f, eps=1e-4):
        return (8 * (f(eps) - f(-eps)) - (f(2 * eps) - f(-2 * eps))) / (12 * eps)

    def check(gradient, f):
        expected = along(f)
        assert float(gradient) == pytest.approx(expected, rel=1e-7, abs=1e-7 * abs(loss.value))

    x = rng.standard_normal(model.nv)
    check(made.q0 @ x, lambda s: value(q=model.plus(q, s * x)))
    check(made.v0 @ x, lambda s: value(v=v + s * x))
    y = rng.standard_normal(u.shape)
    check(np.sum(made.controls * y), lambda s: value(u=u + s * y))
    more, twists = testing.random_inertia(rng).parameters, rng.standard_normal((model.nbodies, 6))

    def changed(s, inertia=0.0, placement=0.0):
        bodies = tuple(
            ts.Body(
                b.name, b.parent, b.joint, b.placement @ ts.SE3.exp(s * placement * w),
                ts.Inertia.from_parameters(b.inertia.parameters + s * inertia * more, allow_unphysical=True),
                b.joint_name, b.position_limits, b.velocity_limits, b.effort_limits,
            )
            for b, w in zip(model.bodies, twists, strict=True)
        )  # fmt: skip
        return ts.Model(model.name, model.gravity, bodies)

    check(np.sum(made.inertia @ more), lambda s: value(model=changed(s, inertia=1.0)))
    check(np.sum(made.placement * twists), lambda s: value(model=changed(s, placement=1.0)))
    for k, (one, gradients) in enumerate(zip(constraints, made.constraints, strict=True)):
        for parameter, now in one.parameters.items():
            z = rng.standard_normal(now.shape)

            def moved(s, k=k, one=one, parameter=parameter, now=now, z=z):
                other = list(constraints)
                other[k] = one.with_parameters({parameter: now + s * z})
                return value(constraints=other)

            check(np.sum(gradients[parameter] * z), moved)


def test_batches_are_the_same_to_the_last_bit():
    model, constraints = CASES.model, CASES.constraints["loop"]
    rng = np.random.default_rng(1)
    q = model.plus(CASES.q, 0.01 * rng.standard_normal((7, model.nv)))
    v = rng.standard_normal((7, model.nv))
    for kind in EULER:
        integrator = kind(H, stabilization="post")
        options = {"forces": CASES.forces, "constraints": constraints}
        together = ts.step_derivatives(model, integrator, q, v, **options)
        for k in range(7):
            alone = ts.step_derivatives(model, integrator, q[k], v[k], **options)
            for x, y in zip(together, alone, strict=True):
                np.testing.assert_array_equal(x[k], y)


def test_a_state_on_the_constraints_does_not_move():
    """With nothing to correct the step is the one without."""
    builder = ts.ModelBuilder(gravity=(0, 0, 0))
    rod = ts.Inertia.box(mass=1.0, size=(1.0, 0.1, 0.1), com=(0.5, 0, 0))
    y = ts.Revolute((0, 1, 0))
    for name, parent, x in (("crank", "world", 0), ("coupler", "crank", 1), ("rocker", "world", 1)):
        builder.add_body(name, parent, y, ts.SE3.translation(x, 0, 0), rod)
    model, end = builder.build(), ts.SE3.translation(1, 0, 0)
    loop = [ts.Loop("coupler", "rocker", y, end, end)]  # five rows of rank two
    q = np.array([1.0, -1.0, 1.0])
    s = ts.step(model, ts.SymplecticEuler(1e-2, stabilization="post"), q, 0 * q, constraints=loop)
    close(s.q1, q, 1e-15)
    run = ts.simulate(
        model,
        q,
        np.array([1.0, -1.0, 1.0]),
        T=2.0,
        integrator=ts.SymplecticEuler(1e-2, stabilization="post"),
        constraints=loop,
    )
    assert np.abs(errors(model, loop, run.q, run.v, 0.0)[0]).max() < 1e-7


def test_wrong_options():
    with pytest.raises(ValueError, match="stabilization of SymplecticEuler is 'projection', expected 'baumgarte' or"):
        ts.SymplecticEuler(1e-2, stabilization="projection")
    assert ts.SymplecticEuler(1e-2, stabilization="post") != ts.SymplecticEuler(1e-2)
