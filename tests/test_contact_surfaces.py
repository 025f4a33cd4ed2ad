"""Contact with convex hulls, height fields and terrains of triangles, where simpler shapes know better."""

from itertools import pairwise

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.spatial import ConvexHull
from shape_oracle import random_numbers, random_pose
from test_contact_geometry import DEPTH, STEP, at, displaced, spans

import torsor as ts
from torsor._core import shape_spots, shape_spots_derivatives

PLACE = np.array([0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0])
PLANE = np.array([0.0, 0.0, 1.0, 0.0])


def hull_of(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Vertices and outward triangles."""
    hull = ConvexHull(points)
    faces = []
    for simplex, equation in zip(hull.simplices, hull.equations, strict=True):
        a, b, c = points[simplex]
        faces.append(simplex if np.cross(b - a, c - a) @ equation[:3] > 0 else simplex[::-1])
    number = {v: k for k, v in enumerate(hull.vertices)}
    return points[hull.vertices], np.array([[number[v] for v in face] for face in faces])


def grid(heights: np.ndarray, size: float) -> tuple[np.ndarray, np.ndarray]:
    """Two triangles in each cell of a square of heights, seen from above."""
    n = len(heights)
    x = np.linspace(-0.5 * size, 0.5 * size, n)
    vertices = np.array([[x[j], x[i], heights[i, j]] for i in range(n) for j in range(n)])
    corners = [n * i + j for i in range(n - 1) for j in range(n - 1)]
    return vertices, np.array([f for a in corners for f in ([a, a + 1, a + n + 1], [a, a + n + 1, a + n])])


CUBE = np.array([[x, y, z] for x in (-1.0, 1.0) for y in (-1.0, 1.0) for z in (-1.0, 1.0)])
RNG = np.random.default_rng(0)
HULL = hull_of(RNG.normal(size=(20, 3)))
HILLS = 0.2 * RNG.normal(size=(9, 9))
SURFACES = {
    "convex": (np.append([0.1, 0.2, 0.3, 0.1, 0.2, 0.3, 0.9], 0.05), HULL),
    "height_field": (np.array([0.1, 0.2, 0.3, 0.1, 0.2, 0.3, 0.9]), (HILLS, (4.0, 4.0))),
    "terrain": (np.array([0.1, 0.2, 0.3, 0.1, 0.2, 0.3, 0.9]), grid(HILLS, 4.0)),
}
PAIRS = [("convex", "half_space"), *((kind, other) for kind in SURFACES for other in ("sphere", "capsule"))]


def small(kind: str, rng: np.random.Generator) -> np.ndarray:
    """Numbers of a shape with a radius of 0.1, below those of curvature of the hills."""
    numbers = random_numbers(kind, rng)
    if kind != "half_space":
        numbers[3 if kind == "sphere" else 7] = 0.1
    return numbers


def near_states(kind: str, other: str, rng: np.random.Generator, count: int) -> list[tuple]:
    """A surface moved along the normal of the nearest place, to a gap between -0.05 and 0.05."""
    numbers, data = SURFACES[kind]
    out = []
    while len(out) < count:
        pose, wanted = random_pose(rng, 0.5), rng.uniform(-0.05, 0.05)
        rest = other, small(other, rng), random_pose(rng, 0.5), data
        for _ in range(6):
            gap, normal, _ = shape_spots(kind, numbers, pose, *rest)
            pose = at(*((wanted - gap.min()) * normal[gap.argmin()])) @ pose
        if abs(shape_spots(kind, numbers, pose, *rest)[0].min()) < 0.1:
            out.append((kind, numbers, pose, *rest))
    return out


@pytest.mark.parametrize(("kind", "other"), PAIRS)
def test_derivatives_by_complex_step(kind, other) -> None:
    rng = np.random.default_rng(1)
    checked = left = 0
    for _, numbers, pose, *rest in near_states(kind, other, rng, 25):
        gap = shape_spots(kind, numbers, pose, *rest)[0]
        exact = shape_spots_derivatives(kind, numbers, pose, *rest)
        size = [1.0 + np.abs(d).reshape(len(d), -1).max(1) for d in exact]
        near = gap < 0.1
        smooth = near.copy()
        for _ in range(4):
            nearby = at(*(1e-9 * rng.normal(size=3))) @ pose
            for d, e, s in zip(exact, shape_spots_derivatives(kind, numbers, nearby, *rest), size, strict=True):
                smooth &= np.abs(d - e).reshape(len(d), -1).max(1) < 1e-4 * s**2
        checked += smooth.sum()
        left += near.sum() - smooth.sum()
        for j in range(6):
            values = shape_spots(kind, numbers, displaced(pose, 1j * STEP * np.eye(6)[j]), *rest)
            for value, derivative, s in zip(values, exact, size, strict=True):
                error = np.abs(value.imag / STEP - derivative[..., j]).reshape(len(s), -1).max(1)
                assert (error / s**2 < 1e-11)[smooth].all()
    assert checked > 10
    assert left <= 1 + 0.05 * checked


@pytest.mark.parametrize(("kind", "other"), PAIRS)
def test_a_gap_changes_by_the_velocity_along_the_normal(kind, other) -> None:
    """Of the nearest place, where it is separate from the surface or shallow."""
    rng = np.random.default_rng(2)
    tested = 0
    for args in near_states(kind, other, rng, 40):
        gap, normal, point = shape_spots(*args)
        k = gap.argmin()
        deep = (kind, other) == ("convex", "capsule") and k == len(gap) - 1
        if deep or (gap < 0.0).sum() > 1:
            continue
        tested += 1
        change = shape_spots_derivatives(*args)[0][k]
        np.testing.assert_allclose(change, np.concatenate([np.cross(point[k], normal[k]), normal[k]]), atol=1e-8)
    assert tested > 10


@pytest.mark.parametrize(("kind", "other"), PAIRS)
def test_order_and_nan(kind, other) -> None:
    rng = np.random.default_rng(3)
    numbers, data = SURFACES[kind]
    first = kind, numbers, random_pose(rng, 0.5)
    second = other, small(other, rng), random_pose(rng, 0.5)
    gap, normal, point = shape_spots(*first, *second, data)
    swapped = shape_spots(*second, *first, None, data)
    for a, b in zip((gap, -normal, point), swapped, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-14)
    bad = np.array(numbers)
    bad[1] = np.nan
    assert np.isnan(shape_spots(kind, bad, *first[2:], *second, data)[0]).all()


@pytest.mark.parametrize("other", ["half_space", "sphere", "capsule"])
def test_a_convex_cube_is_a_box(other) -> None:
    rng = np.random.default_rng(4)
    half, radius = np.array([0.5, 0.7, 0.4]), 0.1
    data = hull_of(CUBE * half)
    place = np.array([0.1, 0.2, 0.3, 0.1, 0.2, 0.3, 0.9])
    for _ in range(40):
        pose = random_pose(rng, 0.8)
        rest = other, random_numbers(other, rng), random_pose(rng, 0.2)
        a = shape_spots("convex", np.append(place, radius), pose, *rest, data)
        b = shape_spots("box", np.concatenate([place, half + radius, [radius]]), pose, *rest)
        if other == "half_space":
            assert a[0].min() == pytest.approx(b[0].min(), abs=1e-13)
            continue
        # Within, the faces of triangles are those of the box; at its medial planes rounding decides.
        np.testing.assert_allclose(a[0], b[0], atol=1e-9)
        if a[0].min() > -0.3:
            np.testing.assert_allclose(a[1][0], b[1][0], atol=1e-8)
            np.testing.assert_allclose(a[2][0], b[2][0], atol=1e-8)


def test_a_capsule_lies_on_two_edges_of_a_hull() -> None:
    data, bar = hull_of(CUBE * [0.1, 0.5, 0.1]), np.append(PLACE, [0.05, 0.2])
    pose = at(0, 0, 0.15 - DEPTH, (0, np.pi / 2, 0))
    gap, normal, point = shape_spots("capsule", bar, pose, "convex", np.append(PLACE, 0.0), np.eye(4), None, data)
    on = gap < -0.9 * DEPTH
    assert spans(point[on], np.array([[-0.1, 0.0], [0.1, 0.0]]))
    np.testing.assert_allclose(normal[on], [[0, 0, 1]] * 2, atol=1e-9)


@pytest.mark.parametrize("kind", ["sphere", "capsule"])
@pytest.mark.parametrize("surface", ["height_field", "terrain"])
def test_a_plane_of_heights_or_triangles_is_a_half_space(surface, kind) -> None:
    """Nothing is felt of inner edges: one place, or one for each end, and its normal."""
    rng = np.random.default_rng(5)
    slope = np.array([0.3, -0.2])
    x = np.linspace(-2.0, 2.0, 9)
    heights = slope[0] * x[None, :] + slope[1] * x[:, None]
    data = (heights, (4.0, 4.0)) if surface == "height_field" else grid(heights, 4.0)
    plane = np.append(-slope, [1.0, 0.0])
    for _ in range(60):
        numbers = random_numbers(kind, rng)
        numbers[-2:] = (0.1, 0.2) if kind == "capsule" else (numbers[-2], 0.1)
        pose = at(*rng.uniform(-1.0, 1.0, 2), 0.0, rng.normal(size=3))
        pose[2, 3] = slope @ pose[:2, 3] + rng.uniform(0.0, 0.5)
        a = shape_spots(kind, numbers, pose, surface, PLACE, np.eye(4), None, data)
        b = shape_spots(kind, numbers, pose, "half_space", plane, np.eye(4))
        if b[0].min() < -0.1:
            continue  # the centre is below
        touching, expected = a[0] < -1e-9, b[0] < -1e-9
        assert touching.sum() == expected.sum()
        np.testing.assert_allclose(np.sort(a[0][touching]), np.sort(b[0][expected]), atol=1e-12)
        np.testing.assert_allclose(a[1][touching], b[1][expected], atol=1e-11)
        assert a[0].min() == pytest.approx(b[0].min(), abs=1e-12)


def spline(heights: np.ndarray, size: float, x: float, y: float) -> float:
    """The height of the surface, written once more."""
    n = len(heights)
    total = 0.0
    u, v = ((c + 0.5 * size) * (n - 1) / size for c in (x, y))
    for i in range(-3, n + 3):
        for j in range(-3, n + 3):
            weight = 1.0
            for t in (abs(u - j), abs(v - i)):
                weight *= 0.75 - t**2 if t < 0.5 else 0.5 * (1.5 - t) ** 2 if t < 1.5 else 0.0
            total += weight * heights[min(max(i, 0), n - 1), min(max(j, 0), n - 1)]
    return total


def test_spheres_on_hills_are_as_far_as_their_nearest_point() -> None:
    rng = np.random.default_rng(6)
    sphere = np.array([0.0, 0.0, 0.0, 0.1])
    for _ in range(12):
        x, y = rng.uniform(-2.3, 2.3, 2)
        c = np.array([x, y, spline(HILLS, 4.0, x, y) + rng.uniform(-0.05, 0.2)])
        gap, normal, point = shape_spots(
            "sphere", sphere, at(*c), "height_field", PLACE, np.eye(4), None, (HILLS, (4.0, 4.0))
        )
        near = minimize(
            lambda u, c=c: np.linalg.norm([*u, spline(HILLS, 4.0, *u)] - c), c[:2], tol=1e-12, method="Nelder-Mead"
        )
        side = np.sign(c[2] - spline(HILLS, 4.0, x, y))
        assert gap[0] == pytest.approx(side * near.fun - 0.1, abs=1e-8)
        foot = point[0] - 0.5 * gap[0] * normal[0]
        assert foot[2] == pytest.approx(spline(HILLS, 4.0, *foot[:2]), abs=1e-12)


def test_depths_on_hills_are_continuous() -> None:
    rng = np.random.default_rng(7)
    for surface in ("height_field", "terrain"):
        numbers, data = SURFACES[surface]
        for other in ("sphere", "capsule"):
            shape = small(other, rng)
            for _ in range(3):
                pose, shift, turn = random_pose(rng, 0.3), rng.normal(size=3), rng.normal(size=3)
                depths = []
                for t in np.linspace(-0.5, 0.5, 400):
                    moved = at(*(pose[:3, 3] + t * shift), t * turn) @ at(0, 0, 0)
                    gap = shape_spots(surface, numbers, np.eye(4), other, shape, moved, data)[0]
                    depths.append(np.sort(np.clip(-gap, 0.0, 0.1)))
                # Bodies move by some 1/200 a step, and second walls of valleys begin four times as fast.
                assert max(np.abs(a - b).max() for a, b in pairwise(depths)) < 0.06


def test_a_sphere_in_a_valley_touches_both_sides() -> None:
    x = np.array([-1.0, 0.0, 1.0])
    data = grid(np.abs(x)[None, :] * np.ones((3, 1)), 2.0)
    r = 0.2
    pose = at(0.0, 0.3, np.sqrt(2.0) * (r - DEPTH))
    gap, normal, _ = shape_spots("sphere", [0, 0, 0, r], pose, "terrain", PLACE, np.eye(4), None, data)
    order = gap.argsort()[:2]
    np.testing.assert_allclose(gap[order], -DEPTH, atol=1e-12)
    np.testing.assert_allclose(np.sort(normal[order, 0]), [-np.sqrt(0.5), np.sqrt(0.5)], atol=1e-12)


def test_a_sphere_on_a_stair_touches_the_floor_and_the_edge() -> None:
    vertices = np.array([[x, y, z] for y in (-1.0, 1.0) for x, z in ((-1, 0), (0, 0), (0, 0.1), (1, 0.1))], float)
    faces = [f for k in range(3) for f in ([k, k + 1, k + 5], [k, k + 5, k + 4])]
    r, h = 0.3, 0.1
    x = -np.sqrt((r - DEPTH) ** 2 - (r - DEPTH - h) ** 2)
    gap, normal, _ = shape_spots(
        "sphere", [0, 0, 0, r], at(x, 0.2, r - DEPTH), "terrain", PLACE, np.eye(4), None, (vertices, faces)
    )
    order = gap.argsort()[:2]
    np.testing.assert_allclose(gap[order], -DEPTH, atol=1e-12)
    up = normal[order][normal[order, 2].argsort()[::-1]]
    np.testing.assert_allclose(up[0], [0, 0, 1], atol=1e-12)
    np.testing.assert_allclose(up[1], [x / (r - DEPTH), 0, (r - DEPTH - h) / (r - DEPTH)], atol=1e-12)
    assert gap[2] > 0.0  # the riser ends below


def test_a_capsule_lies_across_ridges() -> None:
    x = np.linspace(-1.0, 1.0, 9)
    data = grid(np.where(np.isin(np.arange(9), [2, 6]), 0.3, 0.0)[None, :] * np.ones((9, 1)), 2.0)
    bar = np.append(PLACE, [0.05, 0.9])
    pose = at(0.0, 0.1, 0.35 - DEPTH, (0, np.pi / 2, 0))
    gap, normal, point = shape_spots("capsule", bar, pose, "terrain", PLACE, np.eye(4), None, data)
    on = gap < 0.0
    np.testing.assert_allclose(gap[on], -DEPTH, atol=1e-12)
    np.testing.assert_allclose(normal[on], [[0, 0, 1]] * 2, atol=1e-12)
    assert spans(point[on], np.array([[x[2], 0.1], [x[6], 0.1]]))


# ---- as forces

BALL = ts.Inertia.sphere(0.1, mass=1.0)
LAW = {"stiffness": 1e4, "friction": 0.5}


def states(body: ts.shapes.Shape, ground: ts.shapes.Shape, q: np.ndarray, v: np.ndarray):
    model = ts.ModelBuilder().add_body("a", joint=ts.Free(), inertia=BALL).build()
    return ts.contact_states(model, [ts.Contact("a", body, "world", ground, **LAW)], q, v)


@pytest.mark.parametrize("batch", [(), (7,)])
def test_forces_on_surfaces_are_those_on_a_half_space(batch) -> None:
    """One state and lanes of them."""
    rng = np.random.default_rng(8)
    q = np.zeros((*batch, 7))
    q[..., :2] = rng.uniform(-0.5, 0.5, (*batch, 2))
    q[..., 2] = 0.1 - rng.uniform(0.0, 1e-3, batch)
    q[..., 6] = 1.0
    v = rng.normal(size=(*batch, 6))
    ball = ts.shapes.Sphere(0.1)
    flat = np.zeros((5, 5))
    expected = states(ball, ts.shapes.HalfSpace(), q, v).force.sum(-2)
    for ground in (ts.shapes.HeightField(flat, (2, 2)), ts.shapes.Terrain(*grid(flat, 2.0))):
        np.testing.assert_allclose(states(ball, ground, q, v).force.sum(-2), expected, rtol=1e-9, atol=1e-9)
    block = ts.shapes.Mesh(vertices=hull_of(CUBE * 0.1)[0], faces=hull_of(CUBE * 0.1)[1])
    crate = ts.shapes.Box((0.2, 0.2, 0.2))
    for a, b in ((block, crate),):
        np.testing.assert_allclose(
            states(a, ts.shapes.HalfSpace(), q, v).force.sum(-2),
            states(b, ts.shapes.HalfSpace(), q, v).force.sum(-2),
            rtol=1e-9,
            atol=1e-9,
        )


def test_surfaces_are_checked() -> None:
    with pytest.raises(ValueError, match="a Terrain needs at least one triangle"):
        ts.shapes.Terrain(CUBE, np.zeros((0, 3), int))
    with pytest.raises(ValueError, match="faces has indices 0 to 8 of 8 vertices"):
        ts.shapes.Terrain(CUBE, [[0, 1, 8]])
    hills = ts.shapes.HeightField(np.zeros((3, 3)), (1, 1))
    with pytest.raises(ValueError, match="no formulas for the contact of a Box of 'a' with a HeightField"):
        states(ts.shapes.Box((1, 1, 1)), hills, np.array([0, 0, 0, 0, 0, 0, 1.0]), np.zeros(6))
    many = RNG.normal(size=(400, 3))
    many /= np.linalg.norm(many, axis=1, keepdims=True)
    ball = ts.shapes.Mesh(vertices=hull_of(many)[0], faces=hull_of(many)[1])
    with pytest.raises(ValueError, match="no formulas for the contact of a Mesh"):
        states(ball, ts.shapes.HalfSpace(), np.array([0, 0, 0, 0, 0, 0, 1.0]), np.zeros(6))
    terrain = ts.shapes.Terrain(*grid(HILLS, 4.0))
    moved = terrain.with_numbers({"position": (1, 2, 3)})
    assert moved == ts.shapes.Terrain(*grid(HILLS, 4.0), ts.SE3.translation(1, 2, 3))
    assert moved != terrain
    mesh = ts.shapes.Mesh(vertices=HULL[0], faces=HULL[1]).with_numbers({"radius": 0.1})
    assert mesh.numbers["radius"] == 0.1
