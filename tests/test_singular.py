"""Mass matrices that are singular, which solvers refuse and name the joint; and those that are only nearly so."""

from functools import cache

import numpy as np
import pytest
from population import sweep

import torsor as ts
from torsor import testing

# ---- motions that move no mass


def on(joint, inertia=None):
    """A heavy arm with a body on `joint` at its end."""
    rng = np.random.default_rng(1)
    b = ts.ModelBuilder().add_body("arm", "world", ts.Revolute((1, 0, 0)), inertia=testing.random_inertia(rng))
    return b.add_body("hand", "arm", joint, testing.random_pose(rng), inertia, joint_name="finger").build()


SOLVERS = {
    "forward": lambda m, q, **o: ts.forward_dynamics(m, q, np.ones(m.nv), np.ones(m.nv), **o),
    "hybrid": lambda m, q, **o: ts.hybrid_dynamics(m, q, np.ones(m.nv), prescribed=["arm"], **o),
    "inverse": lambda m, q, **o: ts.mass_matrix_inverse(m, q, **o),
    "solve": lambda m, q, **o: ts.mass_matrix_solve(m, q, np.ones(m.nv), **o),
}
solvers = pytest.mark.parametrize("solve", SOLVERS.values(), ids=SOLVERS)


@solvers
@pytest.mark.parametrize(
    ("joint", "inertia"),
    [
        *((j, None) for j in (ts.Revolute(), ts.Prismatic(), ts.Screw((0, 0, 1), 0.1), ts.Spherical(), ts.Free())),
        *((j, None) for j in (ts.Free2D(), ts.Universal(), ts.SphericalExp(), ts.Composite(ts.Free(), ts.Revolute()))),
        (ts.Revolute((0, 0, 1)), ts.Inertia.point(1.0, (0, 0, 2))),
        (ts.Spherical(), ts.Inertia.point(1.0, (1, 2, 3))),
        (ts.SphericalExp(), ts.Inertia.point(1.0, (1, 2, 3))),
        (ts.Free(), ts.Inertia.point(1.0, (1, 2, 3))),
        (ts.Prismatic(), ts.Inertia(0.0, I_com=(1, 2, 3))),
        (ts.SphericalEuler("XYX"), ts.Inertia.sphere(1.0, mass=1.0)),
    ],
)
def test_massless_motions(solve, joint, inertia):
    model = on(joint, inertia)
    q = np.tile(model.neutral, (5, 1))
    with pytest.raises(ts.SingularMassMatrixError, match="singular at joint 'finger': some motion") as error:
        solve(model, q[0])
    assert "prescribe it in hybrid_dynamics" in str(error.value)
    with pytest.raises(ts.SingularMassMatrixError, match="singular at joint 'finger' in state 0 of the batch"):
        solve(model, q)
    # inverse dynamics has no trouble, nor hybrid dynamics that prescribes it, nor a solve with more on it
    ones = np.ones(model.nv)
    assert np.isfinite(ts.inverse_dynamics(model, q, ones, ones)).all()
    a, tau = ts.hybrid_dynamics(model, q[0], ones, a=2 * ones, prescribed=["finger"])
    np.testing.assert_allclose(ts.inverse_dynamics(model, q[0], ones, a), tau, atol=1e-12)  # a few roundings
    added = ts.mass_matrix_solve(model, q[0], ones, joint_terms=ones)
    np.testing.assert_allclose((ts.mass_matrix(model, q[0]) + np.eye(model.nv)) @ added, ones, atol=1e-12)


@pytest.mark.parametrize("mass", [1e-12, 1e-6, 1e6])
def test_small_and_large_masses_are_not_singular(mass):
    for joint in (ts.Revolute((1, 2, 3)), ts.Spherical(), ts.Free(), ts.Free2D(), ts.SphericalEuler()):
        inertia = testing.random_inertia(np.random.default_rng(2)).parameters * mass
        model = on(joint, ts.Inertia.from_parameters(inertia))
        q, v, a = model.random(3), *np.random.default_rng(3).standard_normal((2, model.nv))
        tau = ts.inverse_dynamics(model, q, v, a)
        # the torque on the arm is rounded to digits of the heavy hand's weight, and moves the arm, which is light
        np.testing.assert_allclose(ts.forward_dynamics(model, q, v, tau), a, atol=1e-13 * max(1.0, 10 * mass))


# ---- singular mass matrices whose parts are all regular

REDUNDANT = {
    "rotations": (ts.Revolute((1, 2, 3)), ts.Spherical()),
    "rotations in a chart": (ts.Revolute((1, 2, 3)), ts.SphericalEuler("XYZ")),
    "exponential coordinates": (ts.Revolute((1, 2, 3)), ts.SphericalExp()),
    "translations": (ts.Prismatic((1, 2, 3)), ts.Translational()),
    "two balls": (ts.Spherical(), ts.Spherical()),
    "free": (ts.Spherical(), ts.Free()),
    "composites": (ts.Composite(ts.Translational(), ts.SphericalEuler("XYZ")), ts.Free()),
}


@pytest.mark.parametrize("joints", REDUNDANT.values(), ids=REDUNDANT)
def test_freedoms_that_repeat_each_other_through_a_massless_body_are_singular(joints):
    builder = ts.ModelBuilder().add_body("frame", joint=joints[0])
    builder.add_body("ball", "frame", joints[1], inertia=ts.Inertia.box((1, 2, 3), mass=1, com=(0.1, 0.2, 0.3)))
    builder.add_body("tail", "ball", ts.Revolute(), ts.SE3.translation(0, 1, 0), ts.Inertia.sphere(0.3, mass=2))
    model = builder.build()
    q = model.random(np.random.default_rng(0))
    v = np.ones(model.nv)
    for call in (
        lambda: ts.forward_dynamics(model, q, v, v),
        lambda: ts.forward_dynamics(model, np.stack([q] * 5), v, v),
        lambda: ts.mass_matrix_inverse(model, q),
        lambda: ts.mass_matrix_solve(model, q, v),
    ):
        with pytest.raises(ts.SingularMassMatrixError):
            call()
    # Held, the first joint repeats nothing: the others are as regular as ever.
    a, _ = ts.hybrid_dynamics(model, q, v, prescribed=["frame"], tau=v)
    assert np.isfinite(a).all()


def near_axis(rng):
    """A unit vector, a third of them close to an axis, where the answers of other joints are large."""
    u = rng.standard_normal(3)
    if rng.random() < 0.3:
        u = np.eye(3)[rng.integers(3)] + 10.0 ** rng.uniform(-8, -1) * u
    return u / np.linalg.norm(u)


def redundant_joint(rng):
    u, euler = near_axis(rng), ts.SphericalEuler(("XYZ", "ZYX", "ZXZ")[rng.integers(3)])
    parts = (
        (ts.Translational(), ts.Prismatic(u)),
        (ts.Prismatic(u), ts.Translational()),
        (euler, ts.Revolute(u)),
        (ts.Revolute(u), euler),
        (ts.Free(), ts.Revolute(u)),
        (ts.Free(), ts.Prismatic(u)),
        (ts.Cylindrical(u), ts.Free()),
        (ts.Spherical(), ts.Spherical()),
        (ts.Revolute(u), ts.SphericalExp()),
        (ts.SphericalExp(), ts.Revolute(u)),
        (ts.Revolute(u), ts.Revolute(u)),
        (ts.Universal(), euler),
        (ts.Free2D(), ts.Translational()),
        (ts.Translational(), euler, ts.Screw(u, 0.3)),
    )
    return ts.Composite(*parts[rng.integers(len(parts))])


def any_mass(rng):
    return ts.Inertia.from_parameters(testing.random_inertia(rng).parameters * 10.0 ** rng.uniform(-6, 6))


def with_redundant_joint(rng):
    """A redundant joint "x" at a root or deep in a tree, with bodies from 1e-6 to 1e6 kg before and beyond it."""
    builder, parent = ts.ModelBuilder(), "world"
    for k in range(rng.integers(4)):
        joint = (ts.Revolute(near_axis(rng)), ts.Prismatic(near_axis(rng)), ts.Spherical(), ts.Free())[rng.integers(4)]
        builder.add_body(f"a{k}", parent, joint, testing.random_pose(rng), any_mass(rng))
        parent = f"a{k}"
    builder.add_body("x", parent, redundant_joint(rng), testing.random_pose(rng), any_mass(rng))
    for k in range(rng.integers(3)):
        joint = (ts.Revolute(near_axis(rng)), ts.Universal(), ts.Spherical())[rng.integers(3)]
        builder.add_body(f"b{k}", "x", joint, testing.random_pose(rng), any_mass(rng))
    return builder.build()


REFUSING = {
    "forward dynamics": lambda m, q, x: ts.forward_dynamics(m, q, x, x),
    "a batch": lambda m, q, x: ts.forward_dynamics(m, np.stack([q] * 5), x, x),
    "wrenches": lambda m, q, x: ts.forward_dynamics(m, q, x, x, f_ext=np.ones((m.nbodies, 6))),
    "hybrid dynamics": lambda m, q, x: ts.hybrid_dynamics(m, q, x, tau=x, prescribed=[]),
    "inverse": lambda m, q, x: ts.mass_matrix_inverse(m, q),
    "solve": lambda m, q, x: ts.mass_matrix_solve(m, q, x),
    "derivatives": lambda m, q, x: ts.forward_dynamics_derivatives(m, q, x, x),
    "hessians": lambda m, q, x: ts.forward_dynamics_hessians(m, q, x, x, contract=x),
    "tangent": lambda m, q, x: ts.forward_dynamics_jvp(m, q, x, x, dq=x),
    "vjp": lambda m, q, x: ts.forward_dynamics_vjp(m, q, x, x, x),
}


@cache
def redundant_models():
    rng = np.random.default_rng(1)
    models = [with_redundant_joint(rng) for _ in range(300)]
    return [(model, model.random(rng), rng.standard_normal(model.nv)) for model in models]


@pytest.mark.parametrize("call", sweep(REFUSING.values(), 4), ids=REFUSING)
def test_joints_that_repeat_themselves_are_singular_at_all_states(call):
    """300 of them; 2.7 % slipped through while pivots were compared with rigid ones alone."""
    for model, q, x in redundant_models():
        with pytest.raises(ts.SingularMassMatrixError, match="at joint 'x'"):
            call(model, q, x)


def poor_joint(rng):
    """A joint with massless frames that is regular, by little more than 1e-6 or so."""
    close = np.array([10.0 ** rng.uniform(-5, 0), 0.0, 1.0])
    return (
        ts.Revolute(near_axis(rng)),
        ts.Screw(near_axis(rng), 10.0 ** rng.uniform(-3, 1)),
        ts.Universal(),
        ts.SphericalExp(),
        ts.Free2D(),
        ts.Free(),
        ts.Composite(ts.Revolute((0, 0, 1)), ts.Revolute(close)),
        ts.Composite(ts.Prismatic((0, 0, 1)), ts.Prismatic(close)),
        ts.Composite(ts.Translational(), ts.SphericalEuler("XYZ")),
    )[rng.integers(9)]


def poor_inertia(rng):
    """From 1e-5 to 1e5 kg and 0.003 to 2 m: solids, and rods 1e-4 as thick as long."""
    mass, size = 10.0 ** rng.uniform(-5, 5), 10.0 ** rng.uniform(-2.5, 0.3)
    thick = 1e-4 if rng.random() < 0.3 else 0.5
    return ts.Inertia.box((thick * size, thick * size, size), mass=mass, com=size * rng.standard_normal(3))


@pytest.mark.parametrize("count", sweep([200, 600], 2))
def test_poor_mass_matrices_are_not_singular(count):
    """What can be solved to two digits is solved. Derivatives are found about one point, which costs more of them."""
    rng = np.random.default_rng(2)
    poor, least = 0, 0
    for _ in range(count):
        builder = ts.ModelBuilder(gravity=(0, 0, 0))
        for k in range(rng.integers(1, 7)):
            parent = f"b{rng.integers(max(0, k - 2), k)}" if k else "world"
            builder.add_body(f"b{k}", parent, poor_joint(rng), testing.random_pose(rng), poor_inertia(rng))
        model = builder.build()
        q, a = model.random(rng), rng.standard_normal(model.nv)
        M = ts.mass_matrix(model, q)
        scale = 1 / np.sqrt(np.diag(M))
        condition = np.linalg.cond(scale[:, None] * M * scale)
        poor += condition > 1e6
        least += condition > 1e10
        if condition > 1e12:  # at which two digits are left
            continue
        tau = ts.inverse_dynamics(model, q, 0 * a, a)
        np.testing.assert_allclose(ts.forward_dynamics(model, q, 0 * a, tau), a, atol=0.1)
        np.testing.assert_allclose(ts.mass_matrix_solve(model, q, tau), a, atol=0.1)
        if condition < 1e8:
            ts.forward_dynamics_derivatives(model, q, 0 * a, tau)
    assert poor > count / 12 and least > count / 120  # or this has no point


def test_light_bodies_beside_heavy_ones_are_not_singular():
    builder = ts.ModelBuilder().add_body("heavy", joint=ts.Revolute(), inertia=ts.Inertia.box((1, 1, 1), mass=1e3))
    light = ts.Inertia.sphere(1e-6, mass=1e-3)  # 4e-16 kg m^2
    builder.add_body("light", "heavy", ts.Revolute((0, 1, 0)), ts.SE3.translation(0, 0, 1), light)
    model = builder.build()
    a = np.array([0.3, -0.7])
    tau = ts.inverse_dynamics(model, [0.1, 0.2], [0.0, 0.0], a)
    # 1e-10: torques of 1e-16 stand beside gravity's moment of 1e-9 on the light ball's axis
    np.testing.assert_allclose(ts.forward_dynamics(model, [0.1, 0.2], [0.0, 0.0], tau), a, rtol=1e-10)
