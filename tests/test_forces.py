"""Every force: one contract over all, independent ways to the same numbers, and what the papers' forces must do."""

import gc
import pickle
import weakref
from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest
from compare import arrays_of, close_each, same_bits
from population import sweep

import torsor as ts
from torsor import _core, testing
from torsor.forces.force import compile_forces

X, Y, Z = np.eye(3)


def tree(seed=0):
    """Two branches with joints of every mechanism, a body welded to another and one to the world."""
    rng = np.random.default_rng(seed)
    builder = ts.ModelBuilder("tree", gravity=(1, 2, -9))
    for name, parent, joint in (
        ("base", "world", ts.Free()),
        ("arm", "base", ts.Revolute((1, 2, 3))),
        ("camera", "arm", ts.Fixed()),
        ("ball", "arm", ts.Spherical()),
        ("wrist", "ball", ts.SphericalExp()),
        ("slider", "base", ts.Composite(ts.Prismatic((0, 1, 0)), ts.Spherical(), ts.Universal())),
        ("hand", "slider", ts.SphericalEuler("ZYX")),
        ("post", "world", ts.Fixed()),
        ("other", "world", ts.Screw((1, 0, 1), 0.3)),
    ):
        builder.add_body(name, parent, joint, testing.random_pose(rng), testing.random_inertia(rng))
    return builder.build()


class Swirl(ts.CustomForce):
    """Pulls the centre of mass to the origin and swirls it: a force of the user's own, with two parameters."""

    def __init__(self, model, p=(2.0, 0.3)):
        self.model, self.p = model, p

    def value(self, q, v, t, p):
        J = ts.center_of_mass_jacobian(self.model, q)
        c = ts.center_of_mass(self.model, q)
        return J.T @ (-p[0] * c + p[1] * np.sin(t) * np.cross(Z, J @ v))

    def derivatives(self, q, v, t, p):
        K = testing.complex_step(lambda d: self.value(self.model.plus(q, d), v, t, p), np.zeros(v.size))
        return K, testing.complex_step(lambda v: self.value(q, v, t, p), v)

    def energy(self, q, t, p):
        c = ts.center_of_mass(self.model, q)
        return p[0] * (c @ c) / 2

    def gradient(self, q, v, t, p, w):
        return [w @ self.value(q, v, t, unit) for unit in np.eye(2)]


class BatchedSwirl(Swirl):
    """The same for all states of a pack at once; `calls` has the number of states of each call."""

    batched = True

    def __init__(self, model, p=(2.0, 0.3)):
        super().__init__(model, p)
        self.calls = []

    def value(self, q, v, t, p):
        assert isinstance(t, float) and len(q) == len(v) == len(p)
        self.calls.append(len(q))
        J = ts.center_of_mass_jacobian(self.model, q)
        velocity = np.einsum("...ij,...j->...i", J, v)
        pull = -p[..., :1] * ts.center_of_mass(self.model, q) + p[..., 1:] * np.sin(t) * np.cross(Z, velocity)
        return np.einsum("...ij,...i->...j", J, pull)

    def derivatives(self, q, v, t, p):
        n, unit, one = v.shape[-1], np.eye(v.shape[-1]), len(q)

        def along(dq, dv):
            with testing.complex_inputs():
                x = self.model.plus(np.repeat(q, n, axis=0) + 0j, 1e-30j * np.tile(dq, (one, 1)))
                y = np.repeat(v, n, axis=0) + 1e-30j * np.tile(dv, (one, 1))
                by = self.value(x, y, t, np.repeat(p, n, axis=0) + 0j).imag / 1e-30
            return by.reshape(one, n, n).swapaxes(1, 2)

        return along(unit, 0 * unit), along(0 * unit, unit)

    def energy(self, q, t, p):
        c = ts.center_of_mass(self.model, q)
        return p[..., 0] * np.einsum("...i,...i->...", c, c) / 2

    def gradient(self, q, v, t, p, w):
        units = [self.value(q, v, t, np.tile(unit, (len(q), 1))) for unit in np.eye(2)]
        return np.stack([np.einsum("...i,...i->...", w, by) for by in units], axis=-1)


MODEL = tree()
MODELS = {"tree": MODEL} | {f"random{seed}": testing.random_tree(seed, 7) for seed in range(4)}
EXAMPLES = [(name, k) for name, m in MODELS.items() for k in range(len(testing.example_forces(m, 0)))]


# ---- the contract


@pytest.mark.parametrize(("name", "k"), sweep((pytest.param(*x) for x in EXAMPLES), 3))
def test_contract(name, k):
    model = MODELS[name]
    for seed in range(3):
        testing.check_force(testing.example_forces(model, seed)[k], model, seed)


def test_contract_of_a_force_of_the_users_own():
    testing.check_force(Swirl(MODEL), MODEL, 0)


@pytest.mark.parametrize("k", range(len(testing.example_forces(MODEL, 0))))
def test_descriptions_are_frozen_compared_pickled_and_shown(k):
    force = testing.example_forces(MODEL, 0)[k]
    assert isinstance(force, ts.Force)
    with pytest.raises(FrozenInstanceError):
        force.joint = force.body = None
    assert repr(force).startswith(type(force).__name__ + "(")
    assert hash(force) == hash(force.with_parameters({}))
    for name, value in force.parameters.items():
        changed = force.with_parameters({name: 1.25 * value})
        close_each(changed.parameters[name], 1.25 * value)
        assert changed != force or not value.any()
    if "law" not in repr(force):
        assert pickle.loads(pickle.dumps(force)) == force


def test_check_force_finds_errors():
    class Wrong(Swirl):
        def derivatives(self, q, v, t, p):
            K, D = super().derivatives(q, v, t, p)
            return K, 1.001 * D

    with pytest.raises(AssertionError, match="D is off"):
        testing.check_force(Wrong(MODEL), MODEL, 0)


def gradients(forces, q, v, w, t):
    """Of w . tau of forces on MODEL by v, without D, and by placements."""
    scene = compile_forces(MODEL, forces)
    return _core.force_gradients(MODEL, q, v, t, scene.parameters, w, {"forces": scene.core}, None, 1)


def test_all_forces_together_are_their_sum():
    rng = np.random.default_rng(1)
    forces = (*testing.example_forces(MODEL, 1), Swirl(MODEL))
    q, v, w, t = MODEL.random(rng), rng.standard_normal(MODEL.nv), rng.standard_normal(MODEL.nv), 0.6
    each = [ts.generalized_forces(MODEL, [f], q, v, t=t) for f in forces]
    close_each(ts.generalized_forces(MODEL, forces, q, v, t=t), sum(each))
    d = ts.generalized_forces_derivatives(MODEL, forces, q, v, t=t)
    parts = [ts.generalized_forces_derivatives(MODEL, [f], q, v, t=t) for f in forces]
    close_each(d.dtau_dq, sum(x.dtau_dq for x in parts))
    close_each(d.dtau_dv, sum(x.dtau_dv for x in parts))
    close_each(ts.force_energies(MODEL, forces, q, t=t), [ts.force_energies(MODEL, [f], q, t=t)[0] for f in forces])
    g = ts.generalized_forces_vjp(MODEL, forces, q, v, w, t=t)
    close_each(g.q, w @ d.dtau_dq)
    close_each(g.v, w @ d.dtau_dv)
    by_v, placement = gradients(forces, q, v, w, t)
    close_each(by_v, w @ d.dtau_dv)
    close_each(placement, sum(gradients([f], q, v, w, t)[1] for f in forces))
    for f, mine in zip(forces, g.parameters, strict=True):
        assert {k: x.shape for k, x in mine.items()} == {k: x.shape for k, x in f._for_model(MODEL).parameters.items()}
        alone = ts.generalized_forces_vjp(MODEL, [f], q, v, w, t=t).parameters[0]
        for name, gradient in mine.items():
            close_each(gradient, alone[name])


def test_parameter_gradients_against_differences():
    """Through the public descriptions: what with_parameters changes is what the gradient is of. Rounding of
    differences allows 1e-8."""
    rng = np.random.default_rng(2)
    q, v, w, t, h = MODEL.random(rng), rng.standard_normal(MODEL.nv), rng.standard_normal(MODEL.nv), 0.6, 1e-5
    for force in testing.example_forces(MODEL, 2):
        ready = force._for_model(MODEL)
        g = ts.generalized_forces_vjp(MODEL, [force], q, v, w, t=t).parameters[0]
        for name, value in ready.parameters.items():
            d = rng.standard_normal(value.shape) * np.isfinite(value) * (value != 0)  # inside of what is allowed
            plus, minus = (
                w @ ts.generalized_forces(MODEL, [ready.with_parameters({name: value + s * d})], q, v, t=t)
                for s in (h, -h)
            )
            np.testing.assert_allclose((g[name] * d).sum(), (plus - minus) / (2 * h), rtol=1e-7, atol=1e-7)


# ---- the same numbers by other ways


def test_wrenches_are_those_of_inverse_dynamics():
    rng = np.random.default_rng(3)
    q, v, a = MODEL.random(rng), rng.standard_normal(MODEL.nv), rng.standard_normal(MODEL.nv)
    for frame in ("body", "world", "local_world_aligned"):
        wrenches = rng.standard_normal((MODEL.nbodies, 6))
        forces = [ts.BodyWrench(b.name, x, frame=frame) for b, x in zip(MODEL.bodies, wrenches, strict=True)]
        options = {"f_ext": wrenches, "f_ext_frame": frame}
        expected = ts.inverse_dynamics(MODEL, q, v, a) - ts.inverse_dynamics(MODEL, q, v, a, **options)
        close_each(ts.generalized_forces(MODEL, forces, q, v), expected, 1e-11)
        d0 = ts.inverse_dynamics_derivatives(MODEL, q, v, a)
        d1 = ts.inverse_dynamics_derivatives(MODEL, q, v, a, **options)
        d = ts.generalized_forces_derivatives(MODEL, forces, q, v)
        close_each(d.dtau_dq, d0.dtau_dq - d1.dtau_dq, 1e-11)
        close_each(d.dtau_dv, 0 * d.dtau_dv)


def test_damping_of_bodies_by_their_jacobian():
    rng = np.random.default_rng(4)
    q, v, c = MODEL.random(rng), rng.standard_normal(MODEL.nv), rng.uniform(1, 2, 6)
    J = ts.jacobian(MODEL, q, "camera")
    close_each(ts.generalized_forces(MODEL, [ts.BodyDamping("camera", c)], q, v), -J.T @ (c * (J @ v)))
    close_each(ts.generalized_forces(MODEL, [ts.BodyDamping("camera", 2)], q, v), -2 * J.T @ J @ v)
    close_each(ts.generalized_forces(MODEL, [ts.BodyDamping("post", c)], q, v), np.zeros(MODEL.nv))


def test_springs_by_places_and_jacobians_of_points():
    rng = np.random.default_rng(5)
    q, v = MODEL.random(rng), rng.standard_normal(MODEL.nv)
    a, b, c = rng.standard_normal((3, 3))
    xa, xb = ts.point_positions(MODEL, q, "camera", a), ts.point_positions(MODEL, q, "hand", b)
    Ja, Jb = ts.point_jacobian(MODEL, q, "camera", a), ts.point_jacobian(MODEL, q, "hand", b)
    dx, dv = xb - xa, (Jb - Ja) @ v
    l, u = np.linalg.norm(dx), dx / np.linalg.norm(dx)
    zero = np.zeros(MODEL.nv)

    def tau(*forces):
        return ts.generalized_forces(MODEL, forces, q, v)

    close_each(tau(ts.PointForce("hand", b, c)), Jb.T @ c)
    close_each(tau(ts.PointSpring("camera", a, "hand", b, 3.0, 0.5)), (Ja - Jb).T @ (3 * dx + 0.5 * dv))
    f = 3 * (l - 0.5) / 0.5 + 0.7 * (u @ dv) / 0.5
    spring = ts.SpringDamper("camera", a, "hand", b, 3.0, 0.7, 0.5)
    close_each(tau(spring), f * (Ja - Jb).T @ u)
    close_each(tau(ts.SpringDamper("hand", b, "camera", a, 3.0, 0.7, 0.5)), f * (Ja - Jb).T @ u)
    close_each(ts.force_energies(MODEL, [spring], q), [0.5 * 3 * ((l - 0.5) / 0.5) ** 2 * 0.5])
    assert spring.at_rest(MODEL, q).rest_length == pytest.approx(l, rel=1e-14)
    # through the world and a body welded to it
    xp = ts.point_positions(MODEL, q, "post", a)
    cable = ts.Cable(["camera", "post", "world", "hand"], [a, a, c, b], 2.0, 0.3, 1e-3).at_rest(MODEL, q)
    length = sum(np.linalg.norm(x) for x in (xp - xa, c - xp, xb - c))
    assert cable.rest_length == pytest.approx(length, rel=1e-14)
    taut = cable.with_parameters({"rest_length": 0.9 * length})
    ua, ub = (xp - xa) / np.linalg.norm(xp - xa), (c - xb) / np.linalg.norm(c - xb)
    rate = -ua @ Ja @ v - ub @ Jb @ v
    f = (2.0 * 0.1 * length + 0.3 * rate) / (0.9 * length)
    close_each(tau(taut), f * (Ja.T @ ua + Jb.T @ ub))
    close_each(tau(cable.with_parameters({"rest_length": 1.01 * length})), zero)

    def law(l, ldot):
        return 2 * (l - 1) ** 3 + ldot, 6 * (l - 1) ** 2, 1.0

    close_each(tau(ts.CustomSpring("camera", a, "hand", b, law)), law(l, u @ dv)[0] * (Ja - Jb).T @ u)
    path = ts.CustomCable(["camera", "hand"], [a, b], law)
    close_each(tau(path), tau(ts.CustomSpring("camera", a, "hand", b, law)))


def test_segments_without_length_pull_at_nothing():
    q, v = MODEL.random(0), np.ones(MODEL.nv)
    a, b = np.array([0.3, -0.2, 0.1]), np.array([-0.4, 0.5, 1.0])
    once = ts.Cable(["arm", "ball", "hand"], [a, b, a], 2.0, 0.3, 0.1)
    twice = ts.Cable(["arm", "ball", "ball", "hand", "hand"], [a, b, b, a, a], 2.0, 0.3, 0.1)
    close_each(ts.generalized_forces(MODEL, [twice], q, v), ts.generalized_forces(MODEL, [once], q, v))
    for x, y in zip(*(ts.generalized_forces_derivatives(MODEL, [f], q, v) for f in (once, twice)), strict=True):
        close_each(x, y)
    testing.check_force(ts.SpringDamper("arm", a, "arm", a, 2.0, 0.3, 0.5), MODEL)
    # two bodies whose points coincide
    place = ts.point_positions(MODEL, q, "hand", a)
    meeting = ts.SpringDamper("hand", a, "world", place, 5.0, 1.0, 0.2)
    close_each(ts.generalized_forces(MODEL, [meeting], q, v), np.zeros(MODEL.nv))
    for matrix in ts.generalized_forces_derivatives(MODEL, [meeting], q, v):
        close_each(matrix, np.zeros_like(matrix))
    assert np.isfinite(ts.generalized_forces_vjp(MODEL, [meeting], q, v, v).parameters[0]["point1"]).all()


# ---- joints


def test_joint_springs_in_closed_form():
    rng = np.random.default_rng(6)
    q, v = MODEL.random(rng), rng.standard_normal(MODEL.nv)
    rest, k, d = MODEL.random(rng), 3.0, rng.uniform(1, 2, MODEL.nv)
    tau = ts.generalized_forces(MODEL, [ts.JointSpring(None, k, rest, d)], q, v) + d * v
    x = MODEL.minus(q, rest)
    for j in MODEL.joints:
        if j.name != "base":  # a stiffness that is the same for all axes: torque along the displacement
            close_each(tau[j.v_slice], -k * x[j.v_slice])
    base = MODEL.joint("base")
    R = ts.body_poses(MODEL, q)[0][:3, :3] @ MODEL.bodies[0].placement.R.T
    R = MODEL.bodies[0].placement.R.T @ R @ MODEL.bodies[0].placement.R
    close_each(tau[base.v_slice][:3], -k * x[base.v_slice][:3])
    close_each(tau[base.v_slice][3:], -k * R.T @ (q[:3] - rest[:3]))
    # by its own name, from neutral
    one = ts.generalized_forces(MODEL, [ts.JointSpring("wrist", (1, 2, 3))], q, v)
    wrist = MODEL.joint("wrist")
    close_each(one[wrist.v_slice], -np.array([1, 2, 3]) * q[wrist.q_slice])
    assert not np.delete(one, np.arange(MODEL.nv)[wrist.v_slice]).any()


@pytest.mark.parametrize("angle", [0.0, 1e-9, 1e-4, 1e-3, 0.1, 1.0, 1.9, 2.1, 3.0, 3.14])
def test_rotation_springs_at_all_angles(angle):
    """Where series change to closed forms, and near half a turn."""
    model = ts.ModelBuilder().add_body("top", joint=ts.Spherical(), inertia=ts.Inertia.sphere(mass=1, radius=1)).build()
    rest = model.random(1)
    q = model.plus(rest, angle * np.array([2, -1, 2]) / 3)
    force = ts.JointSpring("top", (1, 2, 3), rest)
    K = ts.generalized_forces_derivatives(model, [force], q, np.zeros(3)).dtau_dq
    expected = testing.complex_step(
        lambda d: ts.generalized_forces(model, [force], model.plus(q, d), d * 0), np.zeros(3)
    )
    close_each(K, expected, 1e-11)
    gradient = testing.complex_step(lambda d: ts.force_energies(model, [force], model.plus(q, d))[0], np.zeros(3))
    close_each(ts.generalized_forces(model, [force], q, np.zeros(3)), -gradient, 1e-11)
    close_each(ts.force_energies(model, [force], q), [0.5 * angle**2 * (4 + 2 + 12) / 9], 1e-11)


def test_limits():
    model = (
        ts.ModelBuilder()
        .add_body("a", joint=ts.Revolute(), inertia=ts.Inertia.sphere(mass=1, radius=1), position_limits=(-1, 2))
        .add_body("b", "a", joint=ts.Universal(), inertia=ts.Inertia.sphere(mass=1, radius=1))
        .add_body("c", "b", joint=ts.Spherical(), inertia=ts.Inertia.sphere(mass=1, radius=1))
        .build()
    )
    limits = ts.JointLimits(None, 10.0, 0.5)
    q = model.neutral

    def tau(a, rate=0.0):
        q[0] = a
        return ts.generalized_forces(model, [limits], q, np.full(model.nv, rate))

    assert not tau(-0.999, 3.0).any() and not tau(2.0, 3.0).any()
    close_each(tau(-1.2, 3.0), [10 * 0.2 - 0.5 * 3, 0, 0, 0, 0, 0])
    close_each(tau(2.5, 3.0), [-10 * 0.5 - 0.5 * 3, 0, 0, 0, 0, 0])
    close_each(ts.force_energies(model, [limits], q), [0.5 * 10 * 0.25])
    assert abs(tau(2 + 1e-12)[0]) < 1e-10  # the spring sets in from zero
    own = ts.JointLimits("b", 1.0, lower=(-np.inf, 0.5), upper=(np.inf, 0.7))
    close_each(ts.generalized_forces(model, [own], q, np.zeros(6)), [0, 0, 0.5, 0, 0, 0])


def test_limits_with_the_law_of_a_contact():
    """Depth and velocity in its three ranges each; without dissipation and onset, springs and dampers to the last
    bit."""
    model = ts.ModelBuilder().add_body("a", joint=ts.Revolute(), inertia=ts.Inertia.sphere(mass=1, radius=1)).build()
    k, d, e, low, high = 10.0, 0.4, 0.2, -1.0, 2.0
    p = lambda x: 0 if x <= 0 else x * x / (2 * e) if x < e else x - e / 2  # noqa: E731
    P = lambda x: 0 if x <= 0 else x**3 / (6 * e) if x < e else x * x / 2 - e * x / 2 + e * e / 6  # noqa: E731
    D = lambda s: 1 - s if s <= 0.5 else (1.5 - s) ** 2 / 2 if s < 1.5 else 0  # noqa: E731
    law = ts.JointLimits("a", k, 0.0, low, high, d, e)
    both = ts.JointLimits("a", k, 0.7, low, high, d, e)
    for depth in (-0.1, 0.05, 0.2, 0.9):
        for out in (-2.0, 0.3, 2.0, 3.0, 9.0):
            for q, side in ((low - depth, -1), (high + depth, 1)):
                v = -side * out
                expected = -side * k * p(depth) * D(d * out)
                close_each(ts.generalized_forces(model, [law], [q], [v]), [expected])
                assert expected * -side >= 0  # it never pulls
                close_each(ts.generalized_forces(model, [both], [q], [v]), [expected - (depth > 0) * 0.7 * v])
                close_each(ts.force_energies(model, [law], [q]), [k * P(depth)])
    q, v = np.linspace(-3, 4, 50)[:, None], np.random.default_rng(0).standard_normal((50, 1))
    before = np.where(q < low, -(k * (q - low) + 0.7 * v), np.where(q > high, -(k * (q - high) + 0.7 * v), 0.0))
    assert np.array_equal(ts.generalized_forces(model, [ts.JointLimits("a", k, 0.7, low, high)], q, v), before)


def test_a_limit_takes_energy_as_hunt_and_crossley_say():
    """To first order in the speed, the coefficient of restitution is 1 - 2/3 dissipation speed, whatever the onset."""
    model = ts.ModelBuilder(gravity=(0, 0, 0)).add_body("a", joint=ts.Prismatic(), inertia=ts.Inertia.point(1)).build()
    for onset in (0.0, 0.01):
        limit = ts.JointLimits("a", 1e4, 0.0, -9.0, 0.0, dissipation=0.02, onset=onset)
        run = ts.simulate(model, [-0.01], [1.0], T=0.1, integrator=ts.SDIRK3(5e-5), forces=[limit])
        speed = -run.v[-1, 0]
        assert run.q[-1, 0] < 0
        assert abs(speed - (1 - 2 / 3 * 0.02)) < 0.02**2
        energies = 0.5 * run.v[:, 0] ** 2 + ts.force_energies(model, [limit], run.q)[:, 0]
        assert np.diff(energies).max() < 1e-9


def test_dry_friction():
    """Its limit from the slip velocity on, smooth at rest, and never any work done by it."""
    rng = np.random.default_rng(0)
    limit, slip = rng.uniform(1, 2, (2, MODEL.nv))
    friction = ts.JointFriction(None, limit, slip)
    q, v = MODEL.random(rng, 200), 2 * rng.standard_normal((200, MODEL.nv))
    tau = ts.generalized_forces(MODEL, [friction], q, v)
    s = np.abs(v) / slip
    close_each(tau, -np.sign(v) * limit * np.where(s < 1, s * (2 - s), 1))
    assert (tau * v <= 0).all() and (np.abs(tau) <= limit).all()
    d = ts.generalized_forces_derivatives(MODEL, [friction], q[0], 0 * v[0])
    close_each(d.dtau_dv, -np.diag(2 * limit / slip))
    one = ts.generalized_forces(MODEL, [ts.JointFriction("ball", 0.5)], q[0], v[0])
    close_each(one[MODEL.joint("ball").v_slice], -0.5 * np.sign(v[0][MODEL.joint("ball").v_slice]))
    assert np.count_nonzero(one) == 3


@pytest.mark.parametrize("integrator", [ts.BDF1(1e-2), ts.BDF2(1e-2), ts.SDIRK2(1e-2)], ids=lambda i: type(i).__name__)
def test_dry_friction_stops_and_holds(integrator):
    """A slide on dry friction: it stops after v^2 / (2 mu), and under a load of r times the limit it creeps at slip
    (1 - sqrt(1 - r)), or moves on if r > 1."""
    model = ts.ModelBuilder(gravity=(0, 0, 0)).add_body("a", joint=ts.Prismatic(), inertia=ts.Inertia.point(2)).build()
    friction = ts.JointFriction("a", 4.0, slip=1e-3)
    run = ts.simulate(model, [0.0], [1.0], T=1.0, integrator=integrator, forces=[friction])
    # BDF1 is of first order: it loses up to v h / 2 in a motion that decelerates
    assert abs(run.q[-1, 0] - 0.25) < (6e-3 if isinstance(integrator, ts.BDF1) else 2e-4)
    assert abs(run.v[-1, 0]) < 1e-9
    for load in (0.75, -0.2):
        pushed = ts.simulate(
            model, [0.0], T=1.0, integrator=integrator, forces=[friction, ts.JointTorque("a", 4 * load)]
        )
        creep = np.sign(load) * 1e-3 * (1 - np.sqrt(1 - abs(load)))
        assert abs(pushed.v[-1, 0] - creep) < 1e-9
    moved = ts.simulate(model, [0.0], T=1.0, integrator=integrator, forces=[friction, ts.JointTorque("a", 5.0)])
    assert abs(moved.v[-1, 0] - 0.5) < 1e-3


def test_tables():
    force = ts.PointForce("arm", (0, 0, 0), [X, 3 * Y], times=(1.0, 2.0))
    q, v = MODEL.random(0), np.zeros(MODEL.nv)
    J = ts.point_jacobian(MODEL, q, "arm", (0, 0, 0))
    t = np.array([-5, 1.0, 1.25, 2.0, 9.0])
    expected = np.array([X, X, 0.75 * X + 0.75 * Y, 3 * Y, 3 * Y])
    close_each(ts.generalized_forces(MODEL, [force], q, v, t=t), expected @ J)
    g = ts.generalized_forces_vjp(MODEL, [force], q, v, np.ones(MODEL.nv), t=t).parameters[0]["force"]
    close_each(g, np.array([[1, 0], [1, 0], [0.75, 0.25], [0, 1], [0, 1]])[..., None] * (J.sum(1)))
    once = ts.JointTorque("arm", [[4.0]], times=[1.0])
    assert ts.generalized_forces(MODEL, [once], q, v, t=7.0)[6] == 4.0
    assert np.isnan(ts.generalized_forces(MODEL, [force], q, v, t=np.nan)).any()


# ---- contact


def ball(**options):
    """A free body with its centre for a contact point, and the contact."""
    model = ts.ModelBuilder().add_body("ball", joint=ts.Free(), inertia=ts.Inertia.sphere(mass=1, radius=1)).build()
    return model, ts.GroundContact("ball", (0, 0, 0), 100.0, **options)


def test_contact_in_closed_form():
    model, contact = ball(damping=2.0, friction_stiffness=10.0, friction=0.5)
    q, v = model.neutral, np.zeros(6)

    def force(depth, velocity):
        q[2], v[3:] = -depth, velocity
        return ts.generalized_forces(model, [contact], q, v)[3:]

    close_each(force(-0.1, (1, 2, -3)), (0, 0, 0))
    close_each(force(0.1, (0, 0, 0)), (0, 0, 10))  # out of the ground
    close_each(force(0.1, (0, 0, -3)), (0, 0, 16))
    close_each(force(0.1, (0.3, 0.4, 0)), (-3, -4, 10))  # 10 |v| = 5 is just the limit mu f_n
    close_each(force(0.1, (0.03, 0.04, 0)), (-0.3, -0.4, 10))  # static
    close_each(force(0.1, (30, 40, 0)), (-3, -4, 10))  # dynamic
    close_each(force(0.1, (30, 40, -3)), (-3, -4, 16))  # the damper does not raise the limit
    close_each(ts.force_energies(model, [contact], q), [0.5])


@pytest.mark.parametrize("seed", range(20))
def test_friction_never_does_positive_work(seed):
    rng = np.random.default_rng(seed)
    model = MODELS[list(MODELS)[seed % len(MODELS)]]
    q, v = model.random(rng), rng.standard_normal(model.nv)
    body = model.bodies[rng.integers(model.nbodies)].name
    at = {"ground": 3 * rng.standard_normal(3), "normal": rng.standard_normal(3)}
    points = rng.standard_normal((8, 3))
    rough = ts.GroundContact(body, points, 5.0, 0.4, rng.uniform(0, 3), rng.uniform(0, 2), **at)
    smooth = ts.GroundContact(body, points, 5.0, 0.4, **at)
    power = v @ (ts.generalized_forces(model, [rough], q, v) - ts.generalized_forces(model, [smooth], q, v))
    assert power <= 1e-12


def test_friction_is_continuous():
    model, contact = ball(friction_stiffness=10.0, friction=0.5)
    q, v = model.neutral, np.zeros(6)
    q[2] = -0.1
    speeds = np.linspace(0.49, 0.51, 2001)
    states = np.tile(v, (2001, 1))
    states[:, 3] = speeds
    tau = ts.generalized_forces(model, [contact], q, states)
    assert np.abs(np.diff(tau, axis=0)).max() < 1.1 * 10 * 1e-5
    depths = np.tile(q, (2001, 1))
    depths[:, 2] = np.linspace(-1e-3, 1e-3, 2001)
    tau = ts.generalized_forces(model, [contact], depths, states[0])
    assert np.abs(np.diff(tau, axis=0)).max() < 1.1 * 100 * 1e-6


def test_dampers_take_energy():
    """Power of every force with an energy: at most the loss of its energy. Rounding of differences allows 1e-6."""
    rng = np.random.default_rng(7)
    h = 1e-6
    for force in testing.example_forces(MODEL, 7):
        if not force.has_energy:
            continue
        q, v = MODEL.random(rng), rng.standard_normal(MODEL.nv)
        ahead, behind = (ts.force_energies(MODEL, [force], MODEL.plus(q, s * v), t=0.3)[0] for s in (h, -h))
        power = v @ ts.generalized_forces(MODEL, [force], q, v, t=0.3)
        assert power + (ahead - behind) / (2 * h) <= 1e-6 * max(1.0, abs(power)), force


# ---- published

# Steps 3 to 5; dofs last joint first; energies less that of the start
PUBLISHED_Q = [
    [-0.04406699253256215, 0.05553121823984714],
    [-0.05881630126406146, 0.0860304296183904],
    [-0.0718580330978647, 0.1203353664408471],
]
PUBLISHED_V = [
    [-1.652546964422675, 2.559260373246586],
    [-1.4749308731499309, 3.0499211378543256],
    [-1.3041731833803243, 3.4304936822456695],
]
PUBLISHED_ENERGY = [-7953.939939716888, -12064.645168441604, -16076.142328278529]


def test_spring_damper_of_redmax():
    """Scene 12 of Sueda's redmax, "Spring-damper" (commit 40f89b29): steps 3 and 4 of BDF1 as published solve the
    equations of motion, and the energy is the published one. Its Newton stops at 1e-9, which is 1e-5 in torques of
    size 1e4."""
    box = ts.Inertia.box(mass=10, size=(10, 1, 1), com=(0, 0, 0)).transformed(ts.SE3.translation(5, 0, 0))
    model = (
        ts.ModelBuilder(gravity=(0, 0, -980))
        .add_body("link1", joint=ts.Revolute(Y), inertia=box)
        .add_body("link2", "link1", joint=ts.Revolute(Y), placement=ts.SE3.translation(10, 0, 0), inertia=box)
        .build()
    )
    forces = [
        ts.SpringDamper("world", (-5, 0, -5), "link2", (5, 0, -2), 1e6, 1e3).at_rest(model, (0, 0)),
        ts.SpringDamper("link1", (5, 0, 2), "link2", (5, 0, 2), 1e6, 1e3).at_rest(model, (0, 0)),
    ]
    close_each([f.rest_length for f in forces], [20.223748416156685, 10])
    q = np.array(PUBLISHED_Q)[:, ::-1]
    v = np.array(PUBLISHED_V)[:, ::-1]
    a = np.diff(v, axis=0) / 0.01
    tau = ts.generalized_forces(model, forces, q, v)
    close_each(tau[1:], ts.inverse_dynamics(model, q[1:], v[1:], a), 2e-5)
    energy = ts.potential_energy(model, q) + ts.force_energies(model, forces, q).sum(-1)
    np.testing.assert_allclose(energy, PUBLISHED_ENERGY, rtol=1e-10)


# ---- calls


def test_batches_with_forces_of_the_users_own_are_their_states():
    rng = np.random.default_rng(8)
    forces = (*testing.example_forces(MODEL, 8), Swirl(MODEL))
    q, v, w = MODEL.random(rng, (66, 2)), rng.standard_normal((66, 2, MODEL.nv)), rng.standard_normal(MODEL.nv)
    t = rng.uniform(0, 2, (66, 1))
    calls = {
        ts.generalized_forces: lambda f, q, v, t, **o: f(MODEL, forces, q, v, t=t, **o),
        ts.generalized_forces_derivatives: lambda f, q, v, t, **o: f(MODEL, forces, q, v, t=t, **o),
        ts.force_energies: lambda f, q, v, t, **o: f(MODEL, forces, q, t=t, **o),
        ts.generalized_forces_vjp: lambda f, q, v, t, **o: f(MODEL, forces, q, v, w, t=t, **o),
    }
    for function, call in calls.items():
        batch = arrays_of(call(function, q, v, t, threads=2))
        for s in ((0, 0), (65, 1), (37, 0)):
            assert same_bits([x[s] for x in batch], call(function, q[s], v[s], t[s[0], 0]))


def test_out_and_no_forces():
    q, v = MODEL.random(0), np.ones(MODEL.nv)
    out = np.full(MODEL.nv, np.nan)
    assert ts.generalized_forces(MODEL, [], q, v, out=out) is out
    assert not out.any()
    assert ts.force_energies(MODEL, [], q).shape == (0,)
    assert ts.generalized_forces_vjp(MODEL, [], q, v, v).parameters == ()
    d = ts.forces.GeneralizedForcesDerivatives(np.empty((MODEL.nv, MODEL.nv)), np.empty((MODEL.nv, MODEL.nv)))
    given = ts.generalized_forces_derivatives(MODEL, [ts.JointDamping(None, 2.0)], q, v, out=d)
    assert given.dtau_dv is d.dtau_dv
    close_each(d.dtau_dv, -2 * np.eye(MODEL.nv))
    empty = ts.ModelBuilder().build()
    assert ts.generalized_forces(empty, [ts.JointDamping(None, 1.0)], [], []).shape == (0,)


@pytest.mark.parametrize("k", range(len(testing.example_forces(MODEL, 0))))
def test_what_is_no_number_comes_out(k):
    """Also where a force looks on which side of a limit the state is."""
    force = testing.example_forces(MODEL, 0)[k]
    q, v = MODEL.random(0), np.ones(MODEL.nv)
    d = ts.generalized_forces_derivatives(MODEL, [force], q, v)
    if d.dtau_dq.any():
        assert np.isnan(ts.generalized_forces(MODEL, [force], np.full(MODEL.nq, np.nan), v)).any()
    if d.dtau_dv.any():
        assert np.isnan(ts.generalized_forces(MODEL, [force], q, np.full(MODEL.nv, np.nan))).any()


def test_errors_of_python_forces_come_out():
    class Broken(Swirl):
        def value(self, q, v, t, p):
            raise RuntimeError("broken")

        def derivatives(self, q, v, t, p):
            return np.eye(2), np.eye(2)

        def energy(self, q, t, p):
            return "much"

    force = Broken(MODEL)
    q, v = MODEL.random(0, 500), np.zeros((500, MODEL.nv))
    for threads in (1, 2):
        with pytest.raises(RuntimeError, match="broken"):
            ts.generalized_forces(MODEL, [force], q, v, threads=threads)
    force.value = lambda q, v, t, p: np.zeros(3)
    with pytest.raises(ValueError, match=r"Broken.value gave shape \(3,\).*expected \(23,\) and float64"):
        ts.generalized_forces(MODEL, [force], q[0], v[0])
    force.value = lambda q, v, t, p: np.zeros(MODEL.nv)
    with pytest.raises(ValueError, match=r"derivatives gave shape \(2, 2\)"):
        ts.generalized_forces_derivatives(MODEL, [force], q[0], v[0])
    force.derivatives = lambda q, v, t, p: None
    with pytest.raises(ValueError, match=r"Broken.derivatives gave None, expected \(K, D\)"):
        ts.generalized_forces_derivatives(MODEL, [force], q[0], v[0])
    with pytest.raises(ValueError, match=r"energy of Broken gave .* expected a number"):
        ts.force_energies(MODEL, [force], q[0])
    silent = Swirl(MODEL)
    silent.gradient = super(Swirl, silent).gradient
    with pytest.raises(NotImplementedError, match="Swirl has parameters p and needs a method gradient"):
        ts.generalized_forces_vjp(MODEL, [silent], q[0], v[0], v[0])

    def spring(law, **options):
        return ts.CustomSpring("arm", X, "hand", Y, law, **options)

    for law, message in (
        (lambda l, ldot: 1.0, r"gave 1.0, expected \(f, df_dl, df_dldot\)"),
        (lambda l, ldot: (1.0, 2.0), r"expected \(f, df_dl, df_dldot\)"),
        (lambda l, ldot: (np.ones(2), 2.0, 3.0), r"gave shapes \[\(2,\), \(\), \(\)\]"),
        (lambda l, ldot: (1j, 2.0, 3.0), "gave dtype complex128, expected float64"),
    ):
        with pytest.raises(ValueError, match=message):
            ts.generalized_forces(MODEL, [spring(law)], q[0], v[0])
    short = spring(lambda l, ldot, p: (1.0, 2.0, 3.0, p[:1]), law_parameters=(1, 2))
    with pytest.raises(ValueError, match=r"df_dp \(2,\)"):
        ts.generalized_forces(MODEL, [short], q[0], v[0])


def batched_law(l, ldot, p):
    s = l - p[..., 1]
    return p[..., 0] * s * s + 0.1 * ldot, 2 * p[..., 0] * s, 0.1, np.stack([s * s, -2 * p[..., 0] * s], axis=-1)


def batched_energy(l, p):
    s = l - p[..., 1]
    return p[..., 0] * s * s * s / 3


BATCHED_SPRINGS = (
    ts.CustomSpring("arm", X, "hand", Y, batched_law, batched_energy, (2.0, 0.3), batched=True),
    ts.CustomCable(["arm", "world", "hand"], [X, Y, Z], batched_law, batched_energy, (2.0, 0.3), batched=True),
    ts.CustomSpring("arm", X, "hand", Y, lambda l, ldot: (l * l, 2 * l, 0.0), lambda l: l * l * l / 3, batched=True),
)


def functions_of_forces(forces, q, v, w, t):
    vjp = ts.generalized_forces_vjp(MODEL, forces, q, v, w, t=t)
    return [
        ts.generalized_forces(MODEL, forces, q, v, t=t),
        *ts.generalized_forces_derivatives(MODEL, forces, q, v, t=t),
        ts.force_energies(MODEL, forces, q, t=t),
        vjp.q,
        vjp.v,
        *(x for by in vjp.parameters for x in by.values()),
    ]


@pytest.mark.parametrize("times", ["one", "several"])
def test_batched_forces_of_the_users_own(times):
    swirl, n = BatchedSwirl(MODEL), 4 * _core.lanes + 3
    for force in (swirl, *BATCHED_SPRINGS):
        testing.check_force(force, MODEL, 3)
    rng = np.random.default_rng(4)
    q = np.stack([MODEL.random(rng) for _ in range(n)])
    v, w = rng.standard_normal((2, n, MODEL.nv))
    t = np.full(n, 0.7) if times == "one" else rng.integers(0, 3, n) / 4
    forces = [swirl, *BATCHED_SPRINGS]
    found = functions_of_forces(forces, q, v, w, t)
    for i in (0, 5, n - 1):
        alone = functions_of_forces(forces, q[i], v[i], w[i], t[i])
        assert all(x[i].tobytes() == y.tobytes() for x, y in zip(found, alone, strict=True)), i
    one_by_one = functions_of_forces([Swirl(MODEL), *(replace(s, batched=False) for s in BATCHED_SPRINGS)], q, v, w, t)
    for x, y in zip(found, one_by_one, strict=True):
        close_each(x, y)
    # Once for all states of a pack that have the same time, and with a leading axis for one state too.
    swirl.calls.clear()
    ts.generalized_forces(MODEL, forces, q, v, t=t)
    assert sum(swirl.calls) == 5 * _core.lanes and (len(swirl.calls) == 5) == (times == "one")
    swirl.calls.clear()
    ts.generalized_forces(MODEL, forces, q[0], v[0])
    assert swirl.calls == [1]


def test_batched_forces_are_checked():
    q, v = np.stack([MODEL.neutral] * 2), np.zeros((2, MODEL.nv))
    force = BatchedSwirl(MODEL)
    force.value = lambda q, v, t, p: np.zeros(MODEL.nv)
    lanes = _core.lanes
    with pytest.raises(
        ValueError, match=rf"Swirl.value gave shape \(23,\).*\({lanes}, 23\).*for {lanes} states at once"
    ):
        ts.generalized_forces(MODEL, [force], q, v)
    with pytest.raises(ValueError, match=r"Swirl.value gave shape \(23,\).*\(1, 23\).*for 1 states at once"):
        ts.generalized_forces(MODEL, [force], q[0], v[0])
    force.energy = lambda q, t, p: 0.0
    with pytest.raises(ValueError, match=r"Swirl.energy gave shape \(\).*expected \(1,\)"):
        ts.force_energies(MODEL, [force], q[0])
    spring = replace(BATCHED_SPRINGS[0], law=lambda l, ldot, p: (1.0, 2.0, 3.0, p[0]))
    with pytest.raises(ValueError, match=r"gave shapes .*expected .*numbers or \(1,\), df_dp \(1, 2\)"):
        ts.generalized_forces(MODEL, [spring], q[0], v[0])
    spring = replace(BATCHED_SPRINGS[0], energy=lambda l, p: 0.0)
    with pytest.raises(ValueError, match=r"energy of a batched CustomSpring gave shape \(\).*expected \(1,\)"):
        ts.force_energies(MODEL, [spring], q[0])
    with pytest.raises(TypeError, match="batched is 1, expected True or False"):
        replace(spring, batched=1)

    class Mixed(BatchedSwirl):
        def gradient(self, q, v, t, p, w):
            return super().gradient(q, v, t, p, w) * (1.0 + 1e-15 * len(q))

    with pytest.raises(AssertionError, match="gradient of state 0 of 5 is not the same as alone"):
        testing.check_force(Mixed(MODEL), MODEL, 0, tolerance=1e-10)


def test_forces_of_the_users_own_are_freed():
    model = MODEL.with_gravity(MODEL.gravity)  # which remembers the forces that it was used with
    force = Swirl(model)
    force.compiled = ts.forces.force.compile_forces(model, [force])  # a cycle through the core
    alive = weakref.ref(force)
    del force, model
    gc.collect()
    assert alive() is None


# ---- errors

P = (0, 0, 1)
WRONG = [
    (lambda: ts.JointSpring("arm", -1.0), ValueError, "stiffness is -1, expected 0 at least"),
    (lambda: ts.JointSpring("arm", (1.0, -2.0)), ValueError, r"stiffness is \[1.0, -2.0\], expected numbers of 0"),
    (lambda: ts.JointSpring("arm", np.ones((2, 2))), ValueError, r"stiffness has shape \(2, 2\), expected one number"),
    (lambda: ts.JointSpring("arm", 1.0, damping=np.nan), ValueError, "damping is not finite"),
    (lambda: ts.JointSpring("arm", "stiff"), ValueError, "stiffness has dtype"),
    (lambda: ts.JointSpring("arm", 1j), ValueError, "stiffness has dtype complex128, expected real numbers"),
    (lambda: ts.JointLimits("arm", 1.0, lower=2.0, upper=1.0), ValueError, "lower limit 2 is above the upper limit 1"),
    (lambda: ts.JointLimits("arm", 1.0, lower=np.nan), ValueError, "lower is not finite"),
    (lambda: ts.JointLimits("arm", 1.0, onset=-1), ValueError, "onset is -1, expected 0 at least"),
    (lambda: ts.JointFriction("arm", -1.0), ValueError, "torque is -1, expected 0 at least"),
    (lambda: ts.JointFriction("arm", 1.0, slip=0), ValueError, "slip is 0.0, expected above 0: dry friction without a"),
    (lambda: ts.JointFriction(None, 1.0, slip=(1, -1)), ValueError, r"slip is \(1.0, -1.0\), expected above 0"),
    (lambda: ts.JointTorque("arm", [[1.0]]), ValueError, r"torque has shape \(1, 1\), expected \(n,\); give times="),
    (lambda: ts.JointTorque("arm", [1.0], times=[0, 1]), ValueError, r"expected \(2, n\): one row for each"),
    (lambda: ts.BodyWrench("arm", P), ValueError, r"wrench has shape \(3,\), expected \(6,\)"),
    (lambda: ts.BodyWrench("arm", np.zeros(6), frame="mine"), ValueError, "frame is 'mine', expected 'body', 'world'"),
    (lambda: ts.BodyWrench("arm", np.zeros((2, 6)), times=[0, 1, 2]), ValueError, r"expected \(3, 6\)"),
    (lambda: ts.BodyWrench("arm", np.zeros((2, 6)), times=[1, 1]), ValueError, r"times must increase, but times\[1\]"),
    (lambda: ts.BodyWrench("arm", np.zeros((0, 6)), times=[]), ValueError, r"times has shape \(0,\), expected \(n,\)"),
    (lambda: ts.BodyWrench(3, np.zeros(6)), TypeError, "a body is named by a string, got 3"),
    (lambda: ts.BodyDamping("arm", (1, 2, 3)), ValueError, r"coefficients has shape \(3,\), expected \(6,\)"),
    (lambda: ts.BodyDamping("arm", -1), ValueError, "coefficients is .*expected numbers of 0 at least"),
    (lambda: ts.PointForce("arm", (1, 2), P), ValueError, r"point has shape \(2,\), expected \(3,\)"),
    (lambda: ts.PointSpring("arm", P, "hand", (1,), 1.0), ValueError, r"point2 has shape \(1,\)"),
    (lambda: ts.PointSpring("arm", P, "hand", P, (1, 2)), ValueError, r"stiffness has shape \(2,\), expected \(\)"),
    (lambda: ts.SpringDamper("arm", P, "hand", P, 1.0, 0.0, 0.0), ValueError, "rest_length is 0, expected .* above 0"),
    (lambda: ts.Cable("arm", [P, P], 1.0), TypeError, "bodies is 'arm', expected a sequence of names"),
    (lambda: ts.Cable(["arm"], [P], 1.0), ValueError, "a path needs 2 points at least, got 1"),
    (lambda: ts.Cable(["arm", "hand"], [P], 1.0), ValueError, r"points has shape \(1, 3\), expected \(2, 3\)"),
    (lambda: ts.CustomSpring("arm", P, "hand", P, 3.0), TypeError, "law must be a function, got 3.0"),
    (lambda: ts.GroundContact("arm", np.zeros((0, 3)), 1.0), ValueError, r"points has shape \(0, 3\), expected \(3,\)"),
    (lambda: ts.GroundContact("arm", P, 1.0, friction=-1), ValueError, "friction is -1, expected 0 at least"),
    (lambda: ts.GroundContact("arm", P, 1.0, normal=(0, 0, 0)), ValueError, "normal is zero"),
    (lambda: ts.GroundContact("arm", P, 1.0, normal=(0, 0, 1e200)), ValueError, "a length between 1e-100"),
    (lambda: ts.JointSpring("arm", 1.0).with_parameters({"rigour": 1}), ValueError, "no parameter 'rigour'; it has"),
    (lambda: ts.JointSpring("arm", 1.0).with_parameters(2.0), TypeError, "values is 2.0, expected a dict"),
    (lambda: Swirl(MODEL).with_parameters(None), TypeError, "values is None, expected a dict"),
    (lambda: ts.JointSpring(None, 1.0, rest=np.eye(2)), ValueError, r"rest has shape \(2, 2\), expected \(n,\)"),
    (lambda: ts.JointLimits(None, 1.0, lower=np.eye(2)), ValueError, r"lower has shape \(2, 2\), expected \(n,\)"),
    (
        lambda: ts.CustomSpring("arm", P, "hand", P, abs, law_parameters=np.eye(2)),
        ValueError,
        r"law_parameters has shape \(2, 2\), expected \(n,\)",
    ),
    (lambda: ts.Cable(None, [P, P], 1.0), TypeError, "bodies is None, expected a sequence of names"),
    (
        lambda: ts.Cable(["arm", "hand"], [P, P], 1.0).at_rest(MODEL, np.stack([MODEL.neutral] * 2)),
        ValueError,
        r"q has shape \(2, 26\), expected \(26,\): a force is at rest at one",
    ),
]
REFUSED = [
    (ts.JointSpring("arms", 1.0), KeyError, "no joint named 'arms'; joints are 'base', 'arm'"),
    (
        ts.JointSpring("ball", (1, 2)),
        ValueError,
        r"stiffness of JointSpring has shape \(2,\).*\(3,\): joint 'ball' has 3",
    ),
    (
        ts.JointSpring(None, 1.0, rest=(1, 2)),
        ValueError,
        r"rest of JointSpring has shape \(2,\), expected \(26,\): the mod",
    ),
    (ts.JointSpring("ball", 1.0, rest=np.zeros(4)), ValueError, "rest of joint 'ball' has a zero quaternion"),
    (ts.JointLimits("arm", 1.0), ValueError, "joint 'arm' has no limits, so JointLimits would do nothing; give lower="),
    (ts.JointLimits("arm", 1.0, lower=-np.inf), ValueError, "joint 'arm' has no limits"),
    (ts.JointLimits(None, 1.0), ValueError, "no joint of the model has limits, so JointLimits would do nothing"),
    (ts.JointLimits("ball", 1.0), ValueError, "joint 'ball' has a quaternion, which has no limits; use SphericalEuler"),
    (ts.JointLimits("arm", 1.0, lower=(1, 2)), ValueError, r"lower of JointLimits has shape \(2,\), expected \(1,\)"),
    (ts.JointTorque("ball", 1.0), ValueError, r"expected 3 columns: joint 'ball' has 3 velocities"),
    (ts.BodyDamping("head", 1.0), KeyError, "no body named 'head' for a force to act on; bodies are 'base'"),
    (ts.BodyWrench("world", np.zeros(6)), ValueError, "a force on 'world' has no effect; name one of the bodies"),
    (ts.PointSpring("arm", P, "head", P, 1.0), KeyError, "no body named 'head'.* bodies are 'world', 'base'"),
    (
        ts.SpringDamper("arm", P, "hand", P, 1.0),
        ValueError,
        "rest_length of SpringDamper is not known; give it, or take",
    ),
    (ts.Cable(["arm", "hand"], [P, P], 1.0), ValueError, "rest_length of Cable is not known"),
    (ts.JointSpring, TypeError, r"force 0 must be a Force, got .*; did you mean JointSpring\(...\)\?"),
    ("spring", TypeError, "force 0 must be a Force, got 'spring'"),
]


@pytest.mark.parametrize("k", range(len(WRONG)))
def test_wrong_descriptions_are_refused(k):
    make, error, message = WRONG[k]
    with pytest.raises(error, match=message):
        make()


@pytest.mark.parametrize("k", range(len(REFUSED)))
def test_forces_that_do_not_fit_the_model_are_refused(k):
    force, error, message = REFUSED[k]
    with pytest.raises(error, match=message):
        ts.generalized_forces(MODEL, [force], MODEL.neutral, np.zeros(MODEL.nv))


def test_wrong_calls_are_refused():
    q, v = MODEL.neutral, np.zeros(MODEL.nv)
    damping = ts.JointDamping(None, 1.0)
    for call, error, message in (
        (lambda: ts.generalized_forces("arm", [], q, v), TypeError, "model must be a torsor.Model, got str"),
        (lambda: ts.generalized_forces(MODEL, damping, q, v), TypeError, r"got JointDamping; did you mean \[JointDam"),
        (lambda: ts.generalized_forces(MODEL, None, q, v), TypeError, "forces must be a sequence of forces, got None"),
        (lambda: ts.generalized_forces(MODEL, [damping], q[1:], v), ValueError, r"q has shape \(25,\), expected"),
        (lambda: ts.generalized_forces(MODEL, [damping], q, v, t=[[0.0], "x"]), ValueError, "t is not an array"),
        (lambda: ts.generalized_forces(MODEL, [damping], q + 0j, v), TypeError, "q is complex, expected real"),
        (lambda: ts.generalized_forces(MODEL, [damping], q, v, threads=-1), ValueError, "threads is -1"),
        (lambda: ts.generalized_forces_vjp(MODEL, [damping], q, v, v[1:]), ValueError, r"w has shape \(22,\)"),
    ):
        with pytest.raises(error, match=message):
            call()
    with testing.complex_inputs(), pytest.raises(TypeError, match="this function takes real numbers only"):
        ts.generalized_forces_derivatives(MODEL, [damping], q + 0j, v)
