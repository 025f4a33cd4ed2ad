"""Inertias: solids against integrals, composites, changes of frame, physical validity."""

import copy
import pickle
import sys

import numpy as np
import pytest
import trimesh
from compare import close_each

import torsor as ts
from torsor import spatial

BOX = ts.Inertia.box(mass=1.2, size=(0.1, 0.2, 0.4), com=(0.1, -0.3, 0.2), rotation=ts.SE3.rpy(0.3, 0.5, -0.7).R)
BODIES = {
    "box": BOX,
    "point": ts.Inertia.point(2.0, (1, 2, 3)),
    "rotor": ts.Inertia(0.0, I_com=(1, 2, 3)),
    "zero": ts.Inertia.zero(),
    "sphere": ts.Inertia.sphere(0.3, density=5.0, com=(0, 1, 0)),
    "plate": ts.Inertia.box((1, 2, 0), mass=3, com=(1, 1, 1)),
    "rod": ts.Inertia.box((0, 0, 1e-3), mass=3, com=(1, 2, 3), rotation=ts.SE3.rpy(1, 2, 3).R),
    "unphysical": ts.Inertia(-1.0, (1, 2, 3), (1, 1, 5), allow_unphysical=True),
}
every_body = pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def same(a, b, tol=1e-12):
    close_each(a.mass, b.mass, tol)
    close_each(a.com, b.com, tol)
    close_each(a.I_com, b.I_com, tol)


def moments(points, weights):
    """Mass, centre of mass and inertia about it, of many points, straight from their definitions."""
    m = weights.sum()
    com = weights @ points / m
    d = points - com
    return (
        m,
        com,
        np.einsum("n,nij->ij", weights, (d**2).sum(-1)[:, None, None] * np.eye(3) - d[:, :, None] * d[:, None]),
    )


def gauss(n, lower, upper):
    """Nodes and weights of Gauss-Legendre integration."""
    x, w = np.polynomial.legendre.leggauss(n)
    return (upper - lower) / 2 * x + (upper + lower) / 2, (upper - lower) / 2 * w


def grid(*rules):
    points = np.stack(np.meshgrid(*(x for x, _ in rules), indexing="ij"), -1).reshape(-1, len(rules))
    weights = np.prod(np.stack(np.meshgrid(*(w for _, w in rules), indexing="ij"), -1), -1).ravel()
    return points, weights


def box_points(size):
    return grid(*(gauss(3, -s / 2, s / 2) for s in size))


def ball_points(radii, z_from=-1.0, z_to=1.0):
    """An ellipsoid, or a slice between two heights of the unit ball: exact for polynomials of degree 2."""
    (r_phi_z, w) = grid(gauss(4, 0, 1), (np.arange(8) * np.pi / 4, np.full(8, np.pi / 4)), gauss(6, z_from, z_to))
    s, phi, z = r_phi_z.T
    rho = s * np.sqrt(1 - z**2)
    unit = np.stack((rho * np.cos(phi), rho * np.sin(phi), z), -1)
    return unit * radii, w * s * (1 - z**2) * np.prod(radii)


def cylinder_points(r, L):
    (s, phi, z), w = (
        a.T for a in grid(gauss(4, 0, r), (np.arange(8) * np.pi / 4, np.full(8, np.pi / 4)), gauss(3, -L / 2, L / 2))
    )
    return np.stack((s * np.cos(phi), s * np.sin(phi), z), -1), w * s


def capsule_points(r, L):
    parts = [cylinder_points(r, L)]
    for sign, z in ((1, (0.0, 1.0)), (-1, (-1.0, 0.0))):
        points, w = ball_points((r, r, r), *z)
        parts.append((points + np.array([0, 0, sign * L / 2]), w))
    return tuple(np.concatenate(a) for a in zip(*parts, strict=True))


SOLIDS = {
    "box": (ts.Inertia.box, {"size": (0.3, 0.5, 0.7)}, box_points((0.3, 0.5, 0.7))),
    "sphere": (ts.Inertia.sphere, {"radius": 0.3}, ball_points((0.3, 0.3, 0.3))),
    "ellipsoid": (ts.Inertia.ellipsoid, {"radii": (0.3, 0.5, 0.7)}, ball_points((0.3, 0.5, 0.7))),
    "cylinder": (ts.Inertia.cylinder, {"radius": 0.3, "length": 0.7}, cylinder_points(0.3, 0.7)),
    "capsule": (ts.Inertia.capsule, {"radius": 0.3, "length": 0.7}, capsule_points(0.3, 0.7)),
}
every_solid = pytest.mark.parametrize(("make", "size", "points"), SOLIDS.values(), ids=SOLIDS)


# ---- solids


@every_solid
def test_solids_are_integrals_over_their_volume(make, size, points):
    x, w = points
    pose = ts.SE3.rpy(0.4, -0.2, 1.1) if make is not ts.Inertia.sphere else ts.SE3()
    pose = ts.SE3(pose.R, (0.5, -1, 2))
    where = {"com": pose.p} if make is ts.Inertia.sphere else {"com": pose.p, "rotation": pose.R}
    m, com, I_com = moments(pose @ x, 7.0 * w)
    body = make(**size, density=7.0, **where)
    close_each(body.mass, m)
    close_each(body.com, com)
    close_each(body.I_com, I_com)
    same(make(**size, mass=m, **where), body)


@every_solid
def test_solids_need_mass_or_density(make, size, points):
    with pytest.raises(ValueError, match="exactly one of them; got neither"):
        make(**size)
    with pytest.raises(ValueError, match="exactly one of them; got both"):
        make(**size, mass=1, density=1)
    with pytest.raises(ValueError, match=r"density is -1\.0, expected 0 or more"):
        make(**size, density=-1)
    negative = {k: np.negative(v) for k, v in size.items()}
    with pytest.raises(ValueError, match="expected 0 or more"):
        make(**negative, mass=1)


def test_flat_and_thin_solids_have_mass_but_no_density():
    same(ts.Inertia.capsule(0.0, 2.0, mass=3.0), ts.Inertia(3.0, I_com=(1, 1, 0)))
    same(ts.Inertia.capsule(0.0, 0.0, mass=3.0), ts.Inertia.point(3.0))
    with pytest.raises(ValueError, match="give mass= instead"):
        ts.Inertia.cylinder(1.0, 0.0, density=1.0)


def test_rotation_of_a_solid_must_be_one():
    with pytest.raises(ValueError, match="R is not a rotation"):
        ts.Inertia.box((1, 1, 1), mass=1, rotation=2 * np.eye(3))


# ---- matrix and parameters


@every_body
def test_matrix_gives_the_kinetic_energy(body, rng):
    """V^T M V / 2 is the energy of the motion of the centre of mass and of the rotation about it."""
    w, v = rng.standard_normal((2, 3))
    V = np.concatenate((w, v))
    v_com = v + np.cross(w, body.com)
    assert V @ body.matrix @ V == pytest.approx(body.mass * v_com @ v_com + w @ body.I_com @ w, rel=1e-12, abs=1e-12)
    assert np.array_equal(body.matrix, body.matrix.T)


def test_matrix_of_points_is_their_sum(rng):
    """Kim 2012, eq. (20): the integral of [[r]^T [r], [r]; [r]^T, 1] dm."""
    points, weights = rng.standard_normal((5, 3)), rng.random(5)
    direct = np.zeros((6, 6))
    for r, m in zip(points, weights, strict=True):
        G = np.hstack((spatial.hat(r).T, np.eye(3)))
        direct += m * G.T @ G
    close_each(sum(map(ts.Inertia.point, weights, points)).matrix, direct)


@every_body
def test_parameters_are_about_the_origin_in_order(body):
    M, pi = body.matrix, body.parameters
    assert pi.shape == (10,)
    close_each(pi[:4], [body.mass, *body.mass * body.com])
    close_each(pi[4:], [M[0, 0], M[0, 1], M[1, 1], M[0, 2], M[1, 2], M[2, 2]])


@every_body
def test_parameters_and_matrix_round_trip(body):
    for again in (
        ts.Inertia.from_parameters(body.parameters, allow_unphysical=not body.physical),
        ts.Inertia.from_matrix(body.matrix, allow_unphysical=not body.physical),
    ):
        same(again, body)
        assert again.physical == body.physical
        same(ts.Inertia.from_parameters(again.parameters, allow_unphysical=not body.physical), body)


def test_points_come_back_from_their_parameters_as_points(rng):
    """Rounding must not leave a tensor that is unphysical once the frame moves to the point."""
    for com in rng.standard_normal((50, 3)):
        point = ts.Inertia.from_parameters(ts.Inertia.point(1.7, com).parameters)
        assert not point.I_com.any()
        assert point.transformed(ts.SE3.translation(-point.com)).physical


def test_parallel_axis_theorem():
    """A rod about its end has four times its inertia about the middle."""
    rod = ts.Inertia.box((0, 0, 2.0), mass=3.0, com=(0, 0, 1.0))
    close_each(rod.I_com[0, 0], 3.0 * 2**2 / 12)
    close_each(rod.matrix[0, 0], 3.0 * 2**2 / 3)
    assert rod.matrix[2, 2] == 0


def test_from_matrix_wants_the_shape_of_an_inertia():
    M = BOX.matrix
    swapped = np.roll(M, 3, (0, 1))  # linear part first
    skewed = M.copy()
    skewed[0, 1] += 1e-3
    for wrong in (swapped, skewed, np.diag([1.0, 1, 1, 1, 1, 2])):
        with pytest.raises(ts.ModelError, match="off every rigid body's inertia"):
            ts.Inertia.from_matrix(wrong)


def test_first_moment_without_mass_is_refused():
    with pytest.raises(ts.ModelError, match="mass is 0 but"):
        ts.Inertia.from_parameters([0, 1, 0, 0, 0, 0, 0, 0, 0, 0], allow_unphysical=True)


# ---- composites and frames


def test_composite_is_the_sum_of_matrices():
    a, b = BODIES["box"], BODIES["sphere"]
    close_each((a + b).matrix, a.matrix + b.matrix)
    total = sum(BODIES.values())
    close_each(total.matrix, sum(body.matrix for body in BODIES.values()))
    close_each(total.parameters, sum(body.parameters for body in BODIES.values()))


def test_composite_of_two_half_boxes_is_the_box():
    halves = [ts.Inertia.box((1, 2, 1.5), density=2, com=(0, 0, z)) for z in (-0.75, 0.75)]
    same(sum(halves), ts.Inertia.box((1, 2, 3), density=2))


def test_composite_far_from_the_origin_keeps_its_digits():
    far = np.array([1e6, -2e6, 3e6])
    pair = ts.Inertia.point(1.0, far) + ts.Inertia.point(1.0, far + np.array([1, 0, 0]))
    np.testing.assert_array_equal(pair.I_com, np.diag([0, 0.5, 0.5]))


@every_body
def test_nothing_added_is_nothing_changed(body):
    same(body + ts.Inertia.zero(), body)
    same(ts.Inertia.zero() + body, body)
    assert sum([body]) is body


def test_only_inertias_are_added():
    for other in (1, "box", np.zeros(3)):
        with pytest.raises(TypeError):
            BOX + other
        with pytest.raises(TypeError):
            other + BOX


@every_body
def test_transformed_matrix_is_congruent(body, rng):
    """Kim 2012, eq. (21), with the pose of the old frame in the new one."""
    pose = ts.SE3.exp(rng.standard_normal(6))
    A = pose.inverse().adjoint
    close_each(body.transformed(pose).matrix, A.T @ body.matrix @ A)
    same(body.transformed(pose).transformed(pose.inverse()), body)


def test_transformed_moves_the_body():
    pose = ts.SE3.rpy(0.3, 0.5, -0.7)
    box = ts.Inertia.box(mass=1.2, size=(0.1, 0.2, 0.4)).transformed(ts.SE3(pose.R, (0.1, -0.3, 0.2)))
    same(box, BOX)


@every_body
def test_principal_axes_diagonalise(body):
    values, frame = body.principal()
    assert (np.diff(values) >= 0).all()
    close_each(np.linalg.det(frame.R), 1.0)
    seen = body.transformed(frame.inverse())
    close_each(seen.com, np.zeros(3))
    close_each(seen.I_com, np.diag(values))


def test_principal_moments_of_a_turned_box():
    values, frame = BOX.principal()
    close_each(values, 1.2 / 12 * np.array([0.1**2 + 0.2**2, 0.1**2 + 0.4**2, 0.2**2 + 0.4**2]))
    close_each(np.abs(frame.R), np.abs(ts.SE3.rpy(0.3, 0.5, -0.7).R[:, [2, 1, 0]]))
    close_each(frame.p, BOX.com)


# ---- validity


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ((-1.0,), "mass is -1"),
        ((1.0, (0, 0, 0), (-0.02, 1, 1)), "smallest principal moment is -0.02"),
        ((1.0, (0, 0, 0), (1, 1, 2.1)), r"triangle inequality: 1 \+ 1 < 2.1"),
        ((1.0, (0, 0, 0), [[1, 2, 0], [2, 1, 0], [0, 0, 1]]), "smallest principal moment is -1"),
        ((0.0, (0, 0, 0), (-1, 0, 0)), "smallest principal moment is -1"),
        ((1.0, (0, 0, 0), (1 + 1e-8, 0.5, 0.5)), "triangle inequality"),
    ],
)
def test_unphysical_inertias_are_refused_unless_asked_for(arguments, fault):
    with pytest.raises(ts.ModelError, match=f"inertia is not physical: .*{fault}.*; pass allow_unphysical=True"):
        ts.Inertia(*arguments)
    body = ts.Inertia(*arguments, allow_unphysical=True)
    assert not body.physical
    assert "allow_unphysical=True" in repr(body)
    with pytest.raises(ts.ModelError, match=fault):
        ts.Inertia.from_parameters(body.parameters)
    with pytest.raises(ts.ModelError, match=fault):
        ts.Inertia.from_matrix(body.matrix)


@pytest.mark.parametrize("I_com", [(1, 1, 2), (0, 1, 1), (1 + 1e-10, 0.5, 0.5), (-1e-10, 1, 1), (0, 0, 0)])
def test_limits_of_the_physical_are_physical(I_com):
    for R in (np.eye(3), ts.SE3.rpy(1, 2, 3).R):
        assert ts.Inertia(1.0, (1, 2, 3), R @ np.diag(I_com) @ R.T).physical


def test_nearest_physical_is_the_nearest(rng):
    """No second moments C = tr(I) / 2 - I of a distribution of mass are nearer, in the Frobenius norm."""

    def second_moments(inertia):
        return np.trace(inertia.I_com) / 2 * np.eye(3) - inertia.I_com

    for _ in range(50):
        A = rng.standard_normal((3, 3))
        given = ts.Inertia(2.0, rng.standard_normal(3), A + A.T, allow_unphysical=True)
        found = given.nearest_physical()
        assert found.physical
        assert found.mass == given.mass
        np.testing.assert_array_equal(found.com, given.com)
        if given.physical:
            assert found is given
        C, nearest = second_moments(given), second_moments(found)
        # the condition of a projection onto a convex cone: C - nearest is normal to nearest, and obtuse to all others
        assert abs(np.sum((C - nearest) * nearest)) < 1e-12
        B = rng.standard_normal((20, 3, 3))
        assert (np.einsum("ij,kil,kjl->k", C - nearest, B, B) < 1e-12).all()
    with pytest.raises(ts.ModelError, match="mass is -1, expected 0 or more"):
        ts.Inertia(-1.0, allow_unphysical=True).nearest_physical()


def test_every_cloud_of_points_is_physical(rng):
    for n in (1, 2, 3, 10):
        for _ in range(20):
            points, weights = rng.standard_normal((n, 3)) + 10, rng.random(n)
            cloud = sum(map(ts.Inertia.point, weights, points))
            m, com, I_com = moments(points, weights)
            same(cloud, ts.Inertia(m, com, I_com), 1e-11)
            assert cloud.physical and ts.Inertia.from_parameters(cloud.parameters).physical


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.nan,), "mass is not finite"),
        ((1.0, (0, 0, np.inf)), "com is not finite"),
        ((1.0, (0, 0)), r"com has shape \(2,\), expected \(3,\)"),
        ((1.0, (0, 0, 0), np.eye(2)), r"I_com has shape \(2, 2\), expected \(3, 3\)"),
        ((1.0, (0, 0, 0), np.zeros(6)), r"I_com has shape \(6,\), expected \(3, 3\)"),
        ((1.0, (0, 0, 0), np.eye(3) + np.eye(3, k=1)), "I_com is not symmetric"),
        (("heavy",), "mass has dtype"),
        (([1.0, 2.0],), r"mass has shape \(2,\), expected \(\)"),
    ],
)
@pytest.mark.parametrize("allow", [False, True])
def test_what_is_no_inertia_at_all_is_always_refused(arguments, message, allow):
    with pytest.raises(ValueError, match=message):
        ts.Inertia(*arguments, allow_unphysical=allow)


def test_without_mass_there_is_no_centre_of_mass():
    assert ts.Inertia(0.0, (1, 2, 3), (1, 1, 1)) == ts.Inertia(0.0, I_com=np.eye(3))
    assert ts.Inertia.zero() == ts.Inertia(0) and not ts.Inertia.zero().matrix.any()


# ---- meshes

TETRAHEDRON = (
    np.array([[0.0, 0, 0], [1, 0, 0], [0, 2, 0], [0, 0, 3]]),
    np.array([[0, 2, 1], [0, 1, 3], [0, 3, 2], [1, 2, 3]]),
)


def tetrahedron_inertia(density):
    """From the barycentric quadrature of degree 2: four points of equal weight."""
    a, b = (5 + 3 * np.sqrt(5)) / 20, (5 - np.sqrt(5)) / 20
    points = (np.full((4, 4), b) + (a - b) * np.eye(4)) @ TETRAHEDRON[0]
    return ts.Inertia(*moments(points, np.full(4, density * 1 * 2 * 3 / 6 / 4)))


def test_mesh_of_triangles():
    same(ts.Inertia.mesh(TETRAHEDRON, density=5.0), tetrahedron_inertia(5.0))
    same(ts.Inertia.mesh(TETRAHEDRON, mass=5.0), tetrahedron_inertia(5.0))
    inward = TETRAHEDRON[0], TETRAHEDRON[1][:, ::-1]
    same(ts.Inertia.mesh(inward, density=5.0), tetrahedron_inertia(5.0))


def test_mesh_from_a_file(tmp_path):
    path = tmp_path / "box.stl"
    box = trimesh.creation.box((0.5, 1, 2))
    box.apply_translation((1, 2, 3))
    box.export(path)
    for name in (path, str(path)):
        same(ts.Inertia.mesh(name, density=2.0), ts.Inertia.box((0.5, 1, 2), density=2.0, com=(1, 2, 3)))


def test_mesh_must_be_closed():
    vertices, faces = TETRAHEDRON
    flipped = np.vstack((faces[:3], faces[3:, ::-1]))
    for wrong in (faces[:3], flipped):
        with pytest.raises(ts.ModelError, match="mesh is not a closed surface"):
            ts.Inertia.mesh((vertices, wrong), density=1.0)
    with pytest.raises(ts.ModelError, match="encloses no volume"):
        ts.Inertia.mesh(([[0, 0, 0], [1, 0, 0], [0, 2, 0], [1, 2, 0]], faces), density=1.0)


def test_mesh_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "trimesh", None)
    with pytest.raises(ImportError, match=r"pip install 'torsor\[mesh\]'"):
        ts.Inertia.mesh(TETRAHEDRON, density=1.0)


# ---- as an object


@every_body
def test_inertia_is_a_frozen_value(body):
    with pytest.raises(AttributeError):
        body.mass = 1.0
    for a in (body.com, body.I_com):
        with pytest.raises(ValueError, match="read-only"):
            a[0] = 1
    for again in (
        pickle.loads(pickle.dumps(body)),
        copy.deepcopy(body),
        eval(repr(body), {"Inertia": ts.Inertia}),
    ):
        assert again == body and hash(again) == hash(body) and not again.com.flags.writeable
    assert body != "inertia" and body != ts.Inertia.sphere(1.0, mass=9.0)


def test_inertia_copies_its_arguments():
    com, I_com = np.zeros(3), np.eye(3)
    body = ts.Inertia(1.0, com, I_com)
    com[:] = I_com[:] = 7
    assert body == ts.Inertia(1.0, I_com=(1, 1, 1))
