"""The models that ship with the package: sizes, masses, symmetry, and that they can be computed with."""

import numpy as np
import pytest

import torsor as ts

MODELS = {
    "pendulum": ts.models.pendulum(),
    "acrobot": ts.models.acrobot(),
    "arm7": ts.models.arm7(),
    "quadruped": ts.models.quadruped(),
    "humanoid": ts.models.humanoid(),
    "chain": ts.models.chain(12),
    "tree": ts.models.tree(4, 3),
}


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.mark.parametrize(
    ("name", "nq", "nv", "nbodies", "mass"),
    [
        ("pendulum", 1, 1, 1, (1, 1)),
        ("acrobot", 2, 2, 2, (2, 2)),
        ("arm7", 7, 7, 9, (16, 20)),
        ("quadruped", 19, 18, 17, (30, 45)),
        ("humanoid", 38, 37, 32, (60, 75)),
        ("chain", 12, 12, 12, (1.2, 1.2)),
        ("tree", 40, 40, 40, (4, 4)),
    ],
)
def test_sizes(name, nq, nv, nbodies, mass):
    model = MODELS[name]
    assert (model.nq, model.nv, model.nbodies) == (nq, nv, nbodies)
    low, high = mass
    assert low - 1e-9 <= model.mass <= high + 1e-9


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_bodies_are_in_depth_first_order(model):
    path = ["world"]
    for body in model.bodies:
        assert body.parent in path
        path = [*path[: path.index(body.parent) + 1], body.name]


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_bodies_are_physical_and_drawn(model):
    for body in model.bodies:
        assert body.inertia.mass > 0
        assert body.inertia.physical
        assert body.visuals
        moments, _ = body.inertia.principal()
        assert moments.min() > 0


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_mass_matrix_is_well_conditioned(model, rng):
    # Shortest and longest links set the scale; a rod that could spin about its own axis, or a body forgotten,
    # would show as a condition number far beyond these.
    M = ts.mass_matrix(model, model.random(rng))
    eigenvalues = np.linalg.eigvalsh(M)
    assert eigenvalues[0] > 1e-6
    assert eigenvalues[-1] / eigenvalues[0] < 1e6


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_forward_dynamics_inverts_inverse_dynamics(model, rng):
    q, v, a = model.random(rng), rng.standard_normal(model.nv), rng.standard_normal(model.nv)
    again = ts.forward_dynamics(model, q, v, ts.inverse_dynamics(model, q, v, a))
    # Condition numbers up to 1e6 (above) times the rounding of a double.
    np.testing.assert_allclose(again, a, atol=1e-9)


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_limits_hold_the_neutral_configuration(model):
    assert np.all(model.position_limits[0] <= model.neutral)
    assert np.all(model.neutral <= model.position_limits[1])
    assert np.all(model.position_limits[0] < model.position_limits[1])
    assert np.all(model.velocity_limits > 0)
    assert np.all(model.effort_limits >= 0)


@pytest.mark.parametrize("name", ["arm7", "quadruped", "humanoid"])
def test_robots_have_limits_on_every_driven_joint(name):
    for joint in MODELS[name].joints:
        if isinstance(joint.joint, ts.Revolute):
            assert np.isfinite([*joint.position_limits, joint.velocity_limits, joint.effort_limits]).all()


@pytest.mark.parametrize("name", ["quadruped", "humanoid"])
def test_floating_robots_stand_symmetric(name):
    model = MODELS[name]
    assert isinstance(model.joints[0].joint, ts.Free)
    com = ts.center_of_mass(model, model.neutral)
    assert abs(com[1]) < 1e-12
    positions = dict(zip([body.name for body in model.bodies], ts.body_poses(model, model.neutral), strict=True))
    for body, pose in positions.items():
        if "left" in body:
            other = positions[body.replace("left", "right")]
            np.testing.assert_allclose(pose[:3, 3] * [1, -1, 1], other[:3, 3], atol=1e-12)
            left, right = model.joint(body), model.joint(body.replace("left", "right"))
            if left.nv and left.joint == ts.Revolute((0, 1, 0)):
                assert left.position_limits == right.position_limits
            elif left.nv:
                lower, upper = right.position_limits
                assert left.position_limits == ((-upper[0],), (-lower[0],))


def test_feet_stand_where_the_docstrings_say():
    model = MODELS["quadruped"]
    foot = ts.point_positions(model, model.neutral, "front_left_foot", (0, 0, 0))
    np.testing.assert_allclose(foot[2], -0.61, atol=1e-12)
    model = MODELS["humanoid"]
    sole = ts.point_positions(model, model.neutral, "left_ankle_roll", (0, 0, -0.08))
    np.testing.assert_allclose(sole[2], -0.90, atol=1e-12)


def test_pendulum_swings_as_a_rod():
    model = MODELS["pendulum"]
    # Inertia about the pivot of a cylinder of length l and radius r hung by its end.
    inertia = (3 * 0.02**2 + 1.0) / 12 + 0.25
    a = ts.forward_dynamics(model, np.array([0.3]), np.zeros(1), np.zeros(1))
    np.testing.assert_allclose(a, -9.81 * 0.5 * np.sin(0.3) / inertia, rtol=1e-14)


def test_acrobot_shoulder_is_passive():
    model = MODELS["acrobot"]
    assert model.joint("shoulder").effort_limits == (0,)
    assert model.joint("elbow").effort_limits[0] > 0


def test_tree_names_and_shape():
    model = ts.models.tree(3, 2)
    assert [body.name for body in model.bodies] == [
        "link", "link_1", "link_1_1", "link_1_2", "link_2", "link_2_1", "link_2_2",
    ]  # fmt: skip
    assert ts.models.tree(5, 1).nv == 5
    assert ts.models.tree(1, 9).nv == 1


def test_chain_of_one_and_of_many():
    assert ts.models.chain(1).nv == 1
    assert ts.models.chain(np.int64(300)).nv == 300


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: ts.models.chain(0), ValueError, "n must be at least 1, got 0"),
        (lambda: ts.models.chain(-3), ValueError, "n must be at least 1, got -3"),
        (lambda: ts.models.chain(2.5), TypeError, "n must be an integer, got 2.5"),
        (lambda: ts.models.chain("7"), TypeError, "n must be an integer, got '7'"),
        (lambda: ts.models.tree(0, 2), ValueError, "depth must be at least 1, got 0"),
        (lambda: ts.models.tree(2, 0), ValueError, "branching must be at least 1, got 0"),
        (lambda: ts.models.tree(2, None), TypeError, "branching must be an integer, got None"),
    ],
)
def test_errors(call, error, message):
    with pytest.raises(error, match=message.replace(".", r"\.")):
        call()
