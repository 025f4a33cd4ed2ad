"""Pairs of convex shapes by support functions, and hulls: against coal, complex step, and what they must mean."""

import coal
import numpy as np
import pytest
from scipy.spatial import ConvexHull
from shape_oracle import random_numbers, random_pose
from test_contact_geometry import DEPTH, STEP, at, displaced
from test_contact_surfaces import CUBE, hull_of

import torsor as ts
from torsor._core import shape_spots, shape_spots_derivatives

SOLIDS = ("capsule", "box", "cylinder", "ellipsoid", "convex")
PAIRS = [(a, b) for i, a in enumerate(SOLIDS) for b in SOLIDS[: i + 1]]
HULLS = [(a, b) for a, b in PAIRS if a == "convex" and b != "capsule"]


def names(pair: tuple[str, str]) -> str:
    return "-".join(pair)


def random_shape(kind: str, rng: np.random.Generator, radius: float = 0.0) -> tuple:
    """Kind, numbers and data of a shape that is about 1 in size."""
    if kind == "convex":
        place = np.concatenate([0.3 * rng.normal(size=3), rng.normal(size=4)])
        points = rng.normal(size=(rng.integers(6, 30), 3)) * rng.uniform(0.2, 0.7, 3)
        return kind, np.append(place, radius), hull_of(points)
    return kind, random_numbers(kind, rng, radius), None


def random_state(kinds: tuple[str, str], rng: np.random.Generator, spread: float, radius: float = 0.0) -> list:
    """Arguments of `shape_spots`."""
    (a, na, sa), (b, nb, sb) = (random_shape(kind, rng, radius) for kind in kinds)
    return [a, na, random_pose(rng, spread), b, nb, random_pose(rng, 0.1), sa, sb]


def moved(state: list, shift: np.ndarray) -> list:
    return [*state[:2], at(*shift) @ state[2], *state[3:]]


def touching(kinds: tuple[str, str], rng: np.random.Generator, depth: float, count: int, radius: float = 0.0) -> list:
    """Pairs that overlap by `depth`, moved along the normal of their nearest place."""
    out: list = []
    while len(out) < count:
        state = random_state(kinds, rng, 2.0, radius)
        for _ in range(20):
            gap, normal, _ = shape_spots(*state)
            k = gap.argmin()
            if abs(gap[k] + depth) < 1e-3 * depth:
                out.append(state)
                break
            state = moved(state, -(gap[k] + depth) * normal[k])
    return out


def coal_shape(kind: str, numbers: np.ndarray, data) -> tuple:
    """The shape, without its radius, with the radius, and its pose in the body."""
    pose = np.eye(4)
    pose[:3, 3] = numbers[:3]
    pose[:3, :3] = ts.SE3.from_quaternion(numbers[3:7]).R
    x = numbers[7:]
    if kind == "convex":
        points, triangles = coal.StdVec_Vec3s(), coal.StdVec_Triangle()
        for p in data[0]:
            points.append(p)
        for f in data[1]:
            triangles.append(coal.Triangle(*(int(k) for k in f)))
        return coal.Convex(points, triangles), x[0], pose
    if kind == "box":
        return coal.Box(*(2.0 * (x[:3] - x[3]))), x[3], pose
    if kind == "ellipsoid":
        return coal.Ellipsoid(*x), 0.0, pose
    return {"capsule": coal.Capsule, "cylinder": coal.Cylinder}[kind](x[0], 2.0 * x[1]), 0.0, pose


def coal_distance(state: list) -> tuple[float, np.ndarray]:
    """Signed distance, and the normal from the second shape to the first."""
    placed = []
    radii = 0.0
    for kind, numbers, pose, data in ((*state[:3], state[6]), (*state[3:6], state[7])):
        shape, radius, own = coal_shape(kind, numbers, data)
        X = pose @ own
        placed += [shape, coal.Transform3s(X[:3, :3], X[:3, 3])]
        radii += radius
    request, result = coal.DistanceRequest(), coal.DistanceResult()
    request.enable_signed_distance = True
    request.gjk_tolerance, request.epa_tolerance = 1e-9, 1e-7
    request.gjk_max_iterations = request.epa_max_iterations = 1000
    return coal.distance(*placed, request, result) - radii, -result.normal


@pytest.mark.parametrize("kinds", PAIRS, ids=names)
def test_gaps_and_normals_of_separate_shapes_against_coal(kinds) -> None:
    rng = np.random.default_rng(1)
    checked = 0
    for spread in (0.8, 1.2, 2.0, 4.0):
        for radius in (0.0, 0.1):
            for _ in range(8):
                state = random_state(kinds, rng, spread, radius)
                gap, normal, _ = shape_spots(*state)
                true, along = coal_distance(state)
                if true < 1e-3:
                    continue
                checked += 1
                k = gap.argmin()
                if kinds == ("cylinder", "box"):  # other places may have any gap above 0
                    assert 0.0 < gap[k] < true + 1e-6
                    continue
                assert gap[k] == pytest.approx(true, abs=1e-6)
                core = true + radius * sum(kind in ("box", "convex") for kind in kinds)
                assert 1.0 - normal[k] @ along < 1e-8 / core
    assert checked > 25


@pytest.mark.parametrize("kinds", [p for p in PAIRS if "ellipsoid" in p and p[1] not in ("capsule", "box")], ids=names)
def test_depths_of_round_shapes_against_coal(kinds) -> None:
    """Of a place of least overlap the depth is that of the shortest way out, at any depth."""
    rng = np.random.default_rng(2)
    checked = 0
    for _ in range(60):
        state = random_state(kinds, rng, 0.5)
        true, _ = coal_distance(state)
        if true < -1e-3:
            checked += 1
            assert shape_spots(*state)[0].min() >= true - 2e-6 * abs(true) - 1e-6
    assert checked > 20


@pytest.mark.parametrize("kinds", HULLS, ids=names)
def test_derivatives_by_complex_step(kinds) -> None:
    rng = np.random.default_rng(3)
    checked = left = 0
    states = [random_state(kinds, rng, spread, 0.05) for spread in (0.1, 0.3, 0.6, 1.0) for _ in range(2)]
    for state in [*states, *touching(kinds, rng, 1e-3, 4, 0.05)]:
        gap = shape_spots(*state)[0]
        exact = shape_spots_derivatives(*state)
        size = [1.0 + np.abs(d).reshape(len(d), -1).max(1) for d in exact]
        near = gap < 0.0
        smooth = near.copy()
        for _ in range(3):
            nearby = shape_spots_derivatives(*moved(state, 1e-9 * rng.normal(size=3)))
            for d, e, s in zip(exact, nearby, size, strict=True):
                smooth &= np.abs(d - e).reshape(len(d), -1).max(1) < 1e-4 * s**2
        checked += smooth.sum()
        left += near.sum() - smooth.sum()
        for j in range(6):
            pose = displaced(state[2], 1j * STEP * np.eye(6)[j])
            for value, derivative, s in zip(shape_spots(*state[:2], pose, *state[3:]), exact, size, strict=True):
                error = np.abs(value.imag / STEP - derivative[..., j]).reshape(len(s), -1).max(1)
                assert (error / s**2 < 1e-11)[smooth].all()
        for value, plus in zip(shape_spots(*state), shape_spots(*moved(state, np.zeros(3))), strict=True):
            np.testing.assert_array_equal(value, plus)
    assert checked > 6
    assert left <= 1 + 0.03 * checked


@pytest.mark.parametrize("kinds", HULLS, ids=names)
def test_derivatives_by_numbers(kinds) -> None:
    rng = np.random.default_rng(4)
    for a, na, Xa, b, nb, Xb, *data in touching(kinds, rng, 1e-2, 3, 0.05):
        da, db, h = rng.normal(size=len(na)), rng.normal(size=len(nb)), 1e-6

        def value(t: complex, a=a, na=na, Xa=Xa, b=b, nb=nb, Xb=Xb, data=data, da=da, db=db) -> tuple[np.ndarray, ...]:
            return shape_spots(a, na + t * da, Xa, b, nb + t * db, Xb, *data)

        active = value(0.0)[0] < 0.0
        for x, ahead, behind in zip(value(1j * STEP), value(h), value(-h), strict=True):
            error = np.abs(x.imag / STEP - (ahead - behind) / (2 * h))[active]
            assert error.max() < 1e-6 * (1.0 + np.abs(x.imag / STEP).max())


@pytest.mark.parametrize("kinds", HULLS, ids=names)
def test_a_gap_changes_by_the_velocity_along_the_normal(kinds) -> None:
    rng = np.random.default_rng(5)
    wrong = 0
    for state in touching(kinds, rng, 1e-6, 40):
        gap, normal, point = shape_spots(*state)
        k = gap.argmin()
        change = shape_spots_derivatives(*state)[0][k]
        wrong += np.abs(change - np.concatenate([np.cross(point[k], normal[k]), normal[k]])).max() > 1e-9
    # Vertices that meet a vertex or a rim, where places hand over; no places do so of round shapes.
    assert wrong <= (0 if kinds == ("convex", "ellipsoid") else 8)


# ---- what lies is supported

PLACE = np.array([0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0])


def block(x: float, y: float, z: float, kind: str = "convex") -> tuple:
    """A box of half sizes, as a hull or as it is."""
    if kind == "box":
        return "box", np.append(PLACE, (x, y, z, 0.0)), None
    return "convex", np.append(PLACE, 0.0), hull_of(CUBE * (x, y, z))


def places(first: tuple, pose: np.ndarray, second: tuple) -> tuple[np.ndarray, ...]:
    gap, normal, point = shape_spots(*first[:2], pose, *second[:2], np.eye(4), first[2], second[2])
    touches = gap < 0.0
    return gap[touches], normal[touches], point[touches]


def spans(points: np.ndarray, centre: tuple[float, float]) -> bool:
    """Whether a point lies over the convex hull of others."""
    hull = ConvexHull(points[:, :2])
    return bool((hull.equations @ (*centre, 1.0) < 0.0).all())


CYLINDER = ("cylinder", np.append(PLACE, (0.5, 0.6)), None)


@pytest.mark.parametrize("other", ["convex", "box"])
@pytest.mark.parametrize("turn", [0.0, 0.3, 0.5 * np.pi, 2.0])
def test_crossing_planks_are_supported(other, turn) -> None:
    """None has a vertex on the other."""
    gap, normal, point = places(
        block(2.0, 0.3, 0.1), at(0.1, 0.05, 0.2 - DEPTH, (0, 0, turn)), block(0.4, 2.0, 0.1, other)
    )
    np.testing.assert_allclose(gap, -DEPTH, rtol=1e-6)
    np.testing.assert_allclose(normal, np.tile([0.0, 0.0, 1.0], (len(gap), 1)), atol=1e-12)
    assert spans(point, (0.1, 0.05))


@pytest.mark.parametrize(
    ("first", "height"), [(CYLINDER, 0.6), (block(0.4, 0.5, 0.3), 0.3), (block(0.4, 0.5, 0.3, "box"), 0.3)]
)
@pytest.mark.parametrize(
    ("second", "top"), [(CYLINDER, 0.6), (block(0.6, 0.3, 0.2), 0.2), (block(0.15, 1.0, 0.2), 0.2)]
)
@pytest.mark.parametrize("tilt", [(0.0, 0.0, 0.3), (0.0, 0.0, 0.8), (1e-5, -1e-5, 1.1)])
def test_what_stands_on_its_end_is_supported(first, height, second, top, tilt) -> None:
    if first[0] == "box" and second[0] == "cylinder":
        first = block(0.4, 0.5, 0.3)  # boxes with cylinders are tested elsewhere
    gap, normal, point = places(first, at(0.02, -0.01, height + top - DEPTH, tilt), second)
    assert spans(point, (0.02, -0.01))
    assert (gap > -2.0 * DEPTH).all()
    assert (normal[:, 2] > 0.99).all()


@pytest.mark.parametrize("second", [CYLINDER, block(0.4, 0.5, 0.6), block(0.2, 2.0, 0.6)])
def test_a_lying_cylinder_is_supported_at_two_points(second) -> None:
    gap, normal, point = places(CYLINDER, at(0.05, 0.0, 1.1 - DEPTH, (0.0, 0.5 * np.pi, 0.0)), second)
    assert len(gap) >= 2
    assert np.ptp(point[:, 0]) > 0.3
    assert point[:, 0].min() < 0.0 < point[:, 0].max()
    np.testing.assert_allclose(normal[:, 2], 1.0, atol=1e-9)
    beside = places(CYLINDER, at(1.0 - DEPTH, 0.0, 0.1), CYLINDER)  # axes parallel
    assert np.ptp(beside[2][:, 2]) > 0.3
    np.testing.assert_allclose(beside[1][:, 0], 1.0, atol=1e-9)


# ---- motions

SHAPES = {
    "sphere": ts.shapes.Sphere(0.1),
    "capsule": ts.shapes.Capsule(0.06, 0.2),
    "box": ts.shapes.Box((0.2, 0.25, 0.3)),
    "rounded": ts.shapes.Box((0.2, 0.25, 0.3), radius=0.02),
    "cylinder": ts.shapes.Cylinder(0.1, 0.3),
    "ellipsoid": ts.shapes.Ellipsoid((0.1, 0.15, 0.2)),
    "hull": ts.shapes.Mesh.convex_hull(
        0.15 * np.random.default_rng(0).normal(size=(24, 3)) / np.sqrt(3.0) * (1.0, 1.3, 0.8)
    ),
}
ALL = [(a, b) for i, a in enumerate(SHAPES) for b in list(SHAPES)[: i + 1]]
STEP_LENGTH = 0.01


def two_bodies() -> ts.Model:
    builder = ts.ModelBuilder(gravity=(0.0, 0.0, 0.0))
    for name in ("a", "b"):
        builder.add_body(name, "world", ts.Free(), ts.SE3(), ts.Inertia.box(mass=1.0, size=(0.2, 0.25, 0.3)))
    return builder.build()


def random_placements(model: ts.Model, rng: np.random.Generator, count: int, spread: float) -> np.ndarray:
    q = model.random(rng, count)
    q[:, :3], q[:, 7:10] = spread * rng.normal(size=(count, 3)), 0.0
    return q


@pytest.mark.parametrize("kinds", [x for x in ALL if x not in (("hull", "box"), ("hull", "hull"))], ids=names)
def test_deep_starts_separate_without_explosion(kinds) -> None:
    """From any overlap, in the limit of rigid bodies: apart in the end, with less energy than springs held, and with
    all momentum as it was. Hulls in boxes and hulls may fail (docs/contact.md)."""
    model, rng = two_bodies(), np.random.default_rng(6)
    contact = ts.Contact(
        "a", SHAPES[kinds[0]], "b", SHAPES[kinds[1]], friction=0.3, **ts.Contact.rigid(STEP_LENGTH, 1.0)
    )
    q0, v0 = random_placements(model, rng, 24, 0.04), np.zeros((24, model.nv))
    options = {"integrator": ts.BDF1(h=STEP_LENGTH), "forces": [contact], "on_failure": "keep"}
    motion = ts.simulate(model, q0, v0, T=0.5, **options)
    done = motion.finished
    assert done.sum() >= 22  # where directions jump, a step may fail, with an error
    q, v = motion.q[done, -1], motion.v[done, -1]
    depths = np.clip(-ts.contact_states(model, [contact], q0, v0).gap, 0.0, None)[done]
    assert (depths.max(1) > 0.01).sum() > 12
    assert ts.contact_states(model, [contact], q, v).gap.min() > -1e-3
    assert (ts.kinetic_energy(model, q, v) <= 0.5 * contact.stiffness * (depths**2).sum(1) + 1e-12).all()
    assert np.abs(v).max() < 30.0
    # A common motion of both bodies does no work: total momentum does not change.
    rates = ts.generalized_forces(model, [contact], q0, rng.normal(size=v0.shape))
    for twist in np.eye(6):
        common = np.hstack([_seen_by(q, twist) for q in (q0[:, :7], q0[:, 7:])])
        assert np.abs((rates * common).sum(1)).max() < 1e-12 * np.abs(rates).max()


def _seen_by(q: np.ndarray, twist: np.ndarray) -> np.ndarray:
    """Velocities of free bodies that move by a twist (angular, linear) about the origin of the world."""
    frames = np.array([ts.SE3.from_quaternion(x[3:]).R for x in q])
    linear = twist[3:] + np.cross(twist[:3], q[:, :3])
    return np.hstack([np.einsum("nji,j->ni", frames, twist[:3]), np.einsum("nji,nj->ni", frames, linear)])


@pytest.mark.parametrize("kinds", [(a, b) for a, b in ALL if a == "hull" or b in ("cylinder", "ellipsoid")], ids=names)
def test_colliding_bodies(kinds) -> None:
    """Thrown at each other: steps do not fail, and energy does not rise."""
    model, rng = two_bodies(), np.random.default_rng(7)
    contact = ts.Contact("a", SHAPES[kinds[0]], "b", SHAPES[kinds[1]], stiffness=1e5, friction=0.5, onset=1e-4)
    q0, v0 = random_placements(model, rng, 16, 0.0), rng.normal(size=(16, model.nv))
    away = rng.normal(size=(16, 3))
    away *= 0.6 / np.linalg.norm(away, axis=1, keepdims=True)
    q0[:, :3] = away
    frames = np.array([ts.SE3.from_quaternion(q[3:7]).R for q in q0])
    v0[:, 3:6], v0[:, 9:] = -5.0 * np.einsum("nji,nj->ni", frames, away), 0.0  # seen by the body
    motion = ts.simulate(model, q0, v0, T=0.4, integrator=ts.BDF1(h=5e-3), forces=[contact])
    energy = ts.kinetic_energy(model, motion.q[:, -1], motion.v[:, -1])
    start = ts.kinetic_energy(model, q0, v0)
    assert (energy <= 1.001 * start).all()
    assert (energy < 0.99 * start).sum() > 8  # they met


def test_hulls_of_files(tmp_path) -> None:
    corners = [[x, y, z] for x in (0.0, 1.0) for y in (0.0, 1.0) for z in (0.0, 1.0)]
    lines = [f"v {x} {y} {z}" for x, y, z in [*corners, (0.5, 0.5, 0.5)]]
    path = tmp_path / "cube.obj"
    path.write_text("\n".join([*lines, "f 1 2 3", "f 4 5 6", "f 7 8 9"]))
    cube = ts.shapes.Mesh.convex_hull(path, scale=(2.0, 1.0, 1.0), radius=0.1)
    assert sorted(cube.vertices.tolist()) == sorted([2.0 * x, y, z] for x, y, z in corners)
    assert cube.path == str(path)
    ball = np.random.default_rng(0).normal(size=(2000, 3))
    ball /= np.linalg.norm(ball, axis=1, keepdims=True)
    many = ts.shapes.Mesh.convex_hull(ball)
    assert 200 < len(many.vertices) <= 256
    outward = np.einsum("ni,ni->n", *(many.vertices[many.faces].mean(1),) * 2)
    assert (outward > 0.9).all()
    with pytest.raises(ValueError, match="3 points span no volume, expected at least 4"):
        ts.shapes.Mesh.convex_hull(np.eye(3))
    with pytest.raises(FileNotFoundError, match=r"no mesh file 'none.stl'"):
        ts.shapes.Mesh.convex_hull("none.stl")
