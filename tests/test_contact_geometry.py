"""Gaps, normals and points of pairs of shapes: against convex optimisation, complex step, and what they must mean.

Shapes are about 1 in size, so that tolerances are relative.
"""

from itertools import pairwise

import numpy as np
import pytest
from shape_oracle import PAIRS, SOLIDS, Pair, gaps, random_numbers, random_pair, random_pose

import torsor as ts
from torsor._core import shape_spots, shape_spots_derivatives
from torsor.spatial import exp3, hat6

STEP = 1e-30
ORDERS = [*PAIRS, *((b, a) for a, b in PAIRS if a != b)]


def names(pair: tuple[str, str]) -> str:
    return "-".join(pair)


def touching(kinds: tuple[str, str], rng: np.random.Generator, depth: float, count: int, **options) -> list[Pair]:
    """Pairs that overlap by `depth`: separate ones, moved along the normal of their nearest place."""
    found = [random_pair(kinds, rng, rng.choice([1.0, 2.0]), **options) for _ in range(4 * count)]
    out = []
    for pair in found:
        for _ in range(20):  # the normal turns on the way
            gap, normal, _ = shape_spots(*pair.args)
            k = gap.argmin()
            if abs(gap[k] + depth) < 1e-3 * depth:
                break
            pair = pair.moved(-(gap[k] + depth) * normal[k])
        else:
            continue
        out.append(pair)
    return out[:count]


def displaced(pose: np.ndarray, twist: np.ndarray) -> np.ndarray:
    """To first order, by a twist about the origin of the common frame."""
    return pose + hat6(twist) @ pose


# ---- derivatives


def states(kinds: tuple[str, str], rng: np.random.Generator) -> list[Pair]:
    """Near, touching, overlapping, deep; and the same far from the origin, up to 1e3."""
    out = [random_pair(kinds, rng, spread) for spread in (0.0, 0.1, 0.3, 0.6, 1.0, 2.0) for _ in range(2)]
    out += touching(kinds, rng, 1e-4, 2)
    far = np.eye(4)
    far[:3, 3] = (1e3, -3e2, 1e2)
    return [*out, *(pair.seen_by(far) for pair in out[::4])]


@pytest.mark.parametrize("kinds", ORDERS, ids=names)
def test_derivatives_by_complex_step(kinds) -> None:
    rng = np.random.default_rng(len(names(kinds)))
    checked = left = 0
    for pair in states(kinds, rng):
        exact = shape_spots_derivatives(*pair.args)
        size = [1.0 + np.abs(d).reshape(len(d), -1).max(1) for d in exact]
        # Where features change, as they do inside of cores, derivatives jump; rounding decides on which side.
        smooth = shape_spots(*pair.args)[0] < 0.1  # others carry nothing and are at a distance
        for _ in range(4):
            nearby = shape_spots_derivatives(*pair.moved(1e-9 * rng.normal(size=3)).args)
            for d, e, s in zip(exact, nearby, size, strict=True):
                smooth &= np.abs(d - e).reshape(len(d), -1).max(1) < 1e-4 * s**2
        checked += smooth.sum()
        left += (shape_spots(*pair.args)[0] < 0.1).sum() - smooth.sum()
        for j in range(6):
            pose = displaced(pair.pose_a, 1j * STEP * np.eye(6)[j])
            moved = Pair(pair.kind_a, pair.numbers_a, pose, *pair.args[3:])
            for value, derivative, s in zip(shape_spots(*moved.args), exact, size, strict=True):
                error = np.abs(value.imag / STEP - derivative[..., j]).reshape(len(s), -1).max(1)
                # relative to the largest derivative of the place; curvature amplifies rounding of positions, which
                # is 1e-13 far from the origin
                assert (error / s**2 < (1e-11 if np.abs(pair.pose_b).max() < 1e2 else 1e-9))[smooth].all()
    assert left <= 1 + 0.02 * checked


@pytest.mark.parametrize("kinds", PAIRS, ids=names)
def test_derivatives_by_numbers(kinds) -> None:
    """Complex step along all numbers of both shapes against central differences, of places that touch."""
    rng = np.random.default_rng(5)
    for pair in touching(kinds, rng, 1e-2, 3):
        da, db = (rng.normal(size=len(x)) for x in (pair.numbers_a, pair.numbers_b))
        if kinds[0] == "box" and pair.numbers_a[10] == 0.0:
            da[10] = 0.0  # cannot be less
        if kinds[1] == "box" and pair.numbers_b[10] == 0.0:
            db[10] = 0.0

        def at(t: complex, pair=pair, da=da, db=db) -> tuple[np.ndarray, ...]:
            a, b = pair.numbers_a + t * da, pair.numbers_b + t * db
            return shape_spots(pair.kind_a, a, pair.pose_a, pair.kind_b, b, pair.pose_b)

        active = at(0.0)[0] < 0.0
        h = 1e-6
        for value, ahead, behind in zip(at(1j * STEP), at(h), at(-h), strict=True):
            error = np.abs(value.imag / STEP - (ahead - behind) / (2 * h))[active]
            assert error.max() < 1e-6 * (1.0 + np.abs(value.imag / STEP).max())


# ---- gaps


@pytest.mark.parametrize("kinds", PAIRS, ids=names)
def test_a_gap_changes_by_the_velocity_along_the_normal(kinds) -> None:
    """dphi = n.(v_A - v_B) at the point: else contact would do work that is not in its energy."""
    rng = np.random.default_rng(2)
    pairs = touching(kinds, rng, 1e-6, 60)
    wrong = 0
    for pair in pairs:
        gap, normal, point = shape_spots(*pair.args)
        k = gap.argmin()
        change = shape_spots_derivatives(*pair.args)[0][k]
        error = np.abs(change - np.concatenate([np.cross(point[k], normal[k]), normal[k]])).max()
        # a rim on an edge, off by the angle between the two normals; cylinders that are nearly parallel
        if kinds in (("cylinder", "box"), ("cylinder", "cylinder")):
            wrong += error > 1e-9
        else:
            assert error < 1e-9
    assert wrong <= (0.35 if kinds == ("cylinder", "box") else 0.05) * len(pairs)


@pytest.mark.parametrize("kinds", PAIRS, ids=names)
def test_gaps_of_separate_shapes(kinds) -> None:
    rng = np.random.default_rng(3)
    pairs = [random_pair(kinds, rng, spread) for spread in (1.0, 2.0, 4.0) for _ in range(20)]
    true = gaps(pairs)
    found = np.array([shape_spots(*pair.args)[0].min() for pair in pairs])
    apart = true > 1e-3
    assert apart.sum() > 10
    if kinds == ("cylinder", "box"):  # other places may have any gap above 0
        assert (found[apart] > 0.0).all()
        assert (found[apart] < true[apart] + 1e-6).all()
    else:  # 4000 iterations of the oracle leave 1e-9 and less
        np.testing.assert_allclose(found[apart], true[apart], atol=1e-7)


@pytest.mark.parametrize("kinds", PAIRS, ids=names)
def test_depth_is_how_far_shapes_moved_into_each_other(kinds) -> None:
    """From a gap of 1e-3 to 1e-4 beyond touching, along the normal; to second order in this, by curvature."""
    rng = np.random.default_rng(4)
    pairs = [random_pair(kinds, rng, 2.0) for _ in range(40)]
    near = []
    for pair in pairs:
        gap, normal, _ = shape_spots(*pair.args)
        near.append(pair.moved(-(gap.min() - 1e-3) * normal[gap.argmin()]))
    true = gaps(near)
    tested = 0
    for pair, gap in zip(near, true, strict=True):
        found, normal, _ = shape_spots(*pair.args)
        if not 1e-6 < gap < 2e-3 or found.min() > 2e-3:  # the oracle knows no depth
            continue
        along = normal[found.argmin()]
        deeper, normals, _ = shape_spots(*pair.moved(-(gap + 1e-4) * along).args)
        assert deeper.min() < 0.0
        if (deeper < 0.0).sum() > 1 or normals[deeper.argmin()] @ along < 0.999:
            continue  # a corner slips over an edge, and two places share the load
        tested += 1
        if kinds in (("cylinder", "box"), ("cylinder", "cylinder")):
            assert -1.01e-4 < deeper.min() < -0.5e-4  # of a rim on an edge the nearest way out, or half of the load
        else:
            assert deeper.min() == pytest.approx(-1e-4, abs=5e-6)
    assert tested > 8


# ---- symmetries


@pytest.mark.parametrize("kinds", PAIRS, ids=names)
def test_order_frames_and_units(kinds) -> None:
    rng = np.random.default_rng(6)
    for spread in (0.8, 1.5, 2.5) * 3:
        pair = random_pair(kinds, rng, spread)
        gap, normal, point = shape_spots(*pair.args)
        np.testing.assert_allclose(np.linalg.norm(normal, axis=1), 1.0, atol=1e-13)
        # the other order
        order = np.arange(len(gap))
        if kinds == ("box", "box"):
            order = np.r_[16:32, 0:16, 32, 33]
        if kinds == ("cylinder", "cylinder"):
            order = np.r_[0, 13:25, 1:13, 25]
        other = shape_spots(*pair.swapped().args)
        if kinds == ("capsule", "capsule"):
            assert other[0].min() == pytest.approx(gap.min(), abs=1e-13) or gap.min() < -0.05
        else:
            np.testing.assert_allclose(other[0][order], gap, atol=1e-11)
            np.testing.assert_allclose(other[1][order], -normal, atol=1e-9)
            np.testing.assert_allclose(other[2][order], point, atol=1e-9)
        # another frame
        pose = random_pose(rng, 3.0)
        moved = shape_spots(*pair.seen_by(pose).args)
        np.testing.assert_allclose(moved[0], gap, atol=1e-11)
        np.testing.assert_allclose(moved[1], normal @ pose[:3, :3].T, atol=1e-8)
        np.testing.assert_allclose(moved[2], point @ pose[:3, :3].T + pose[:3, 3], atol=1e-8)
        # another unit of length
        unit = 1e-3
        scaled = []
        for kind, numbers, at in (pair.args[:3], pair.args[3:]):
            lengths = np.array(numbers)
            lengths[3 if kind == "half_space" else slice(0, 3)] *= unit
            lengths[7 if len(numbers) > 4 else 3 :] *= 1.0 if kind == "half_space" else unit
            place = at * [[1.0, 1.0, 1.0, unit]]
            scaled += [kind, lengths, place]
        small = shape_spots(*scaled)
        np.testing.assert_allclose(small[0] / unit, gap, atol=1e-10)
        np.testing.assert_allclose(small[1], normal, atol=1e-8)
        np.testing.assert_allclose(small[2] / unit, point, atol=1e-8)


@pytest.mark.parametrize("kinds", PAIRS, ids=names)
def test_depths_are_continuous(kinds) -> None:
    """Along random paths, up to a tenth of the size: no place begins or ends while it is deep."""
    rng = np.random.default_rng(7)
    for _ in range(4):
        pair = random_pair(kinds, rng, 0.8)
        turn, shift = rng.normal(size=3), rng.normal(size=3)
        count = 400
        depths = []
        for t in np.linspace(-0.5, 0.5, count):
            pose = np.array(pair.pose_a)
            pose[:3, :3] = exp3(t * turn) @ pose[:3, :3]
            pose[:3, 3] += t * shift
            gap = shape_spots(pair.kind_a, pair.numbers_a, pose, *pair.args[3:])[0]
            depths.append(np.clip(-gap, 0.0, 0.1))
        jump = max(np.abs(a - b).max() for a, b in pairwise(depths))
        # Bodies move by some 3/400 a step; where a place gives way to another, depths change by several times that.
        assert jump < 0.06


SHAPES = {
    "half_space": ts.shapes.HalfSpace((0.1, 0.2, 1.0), 0.1),
    "sphere": ts.shapes.Sphere(0.5, (0.1, 0.0, -0.1)),
    "capsule": ts.shapes.Capsule(0.3, 1.0, ts.SE3.rotation((1, 2, 3), 0.7)),
    "box": ts.shapes.Box((0.8, 1.0, 1.2), ts.SE3.rotation((3, 2, 1), 0.4), 0.05),
    "cylinder": ts.shapes.Cylinder(0.4, 0.9, ts.SE3.rotation((1, 0, 3), 0.3)),
    "ellipsoid": ts.shapes.Ellipsoid((0.4, 0.6, 0.5), ts.SE3.rotation((1, 1, 0), 0.2)),
}


@pytest.mark.parametrize("kinds", PAIRS, ids=names)
def test_states_side_by_side_have_the_same_forces(kinds) -> None:
    """A batch in lanes against state by state: iterations and choices of one lane do not touch another."""
    rng = np.random.default_rng(11)
    ball = ts.Inertia.sphere(0.1, mass=1.0)
    tree = ts.ModelBuilder().add_body("a", joint=ts.Free(), inertia=ball)
    model = tree.add_body("b", joint=ts.Free(), inertia=ball).build()
    contact = ts.Contact("a", SHAPES[kinds[0]], "b", SHAPES[kinds[1]], stiffness=1e4, friction=0.5)
    q = model.random(rng, 13)
    q[:, :3], q[:, 7:10] = 0.5 * rng.normal(size=(13, 3)), 0.0
    v = rng.normal(size=(13, 12))
    together = ts.contact_states(model, [contact], q, v)
    derivatives = ts.generalized_forces_derivatives(model, [contact], q, v)
    assert (together.gap < 0.0).any()
    for k in range(13):
        alone = ts.contact_states(model, [contact], q[k], v[k])
        for name in ("gap", "normal", "point", "force"):
            np.testing.assert_allclose(getattr(alone, name), getattr(together, name)[k], rtol=1e-9, atol=1e-9)
        one = ts.generalized_forces_derivatives(model, [contact], q[k], v[k])
        for x, y in zip(one, derivatives, strict=True):
            np.testing.assert_allclose(x, y[k], rtol=1e-8, atol=1e-6 * (1.0 + np.abs(x).max()))


# ---- bad and degenerate input


@pytest.mark.parametrize("kinds", PAIRS, ids=names)
def test_nan_is_passed_on(kinds) -> None:
    rng = np.random.default_rng(8)
    pair = random_pair(kinds, rng, 1.0)
    for place in (1, 2, 4, 5):
        for k in range(np.size(pair.args[place])):
            args = list(pair.args)
            args[place] = np.array(args[place])
            if args[place].ndim == 2 and k >= 12:
                continue  # the last row of a pose is not read
            args[place].flat[k] = np.nan
            assert np.isnan(shape_spots(*args)[0]).all()


@pytest.mark.parametrize("kinds", PAIRS, ids=names)
def test_coincident_and_parallel_shapes_have_numbers(kinds) -> None:
    """In one place, along axes of each other, upright, and touching exactly."""
    rng = np.random.default_rng(9)
    for _ in range(3):
        a, b = (random_numbers(kind, rng, 0.0) for kind in kinds)
        for numbers in (a, b):
            if len(numbers) > 4:
                numbers[:7] = (0, 0, 0, 0, 0, 0, 1)
        if kinds[1] == "half_space":
            b = np.array([0.0, 0.0, 1.0, 0.0])
        if kinds[0] == "sphere":
            a[:3] = 0.0
        if kinds[1] == "sphere":
            b[:3] = 0.0
        for shift in ((0, 0, 0), (0, 0, 1), (0.5, 0, 0), (0, 0, a[-1] + b[-1]), (0.3, 0.3, 0), (0, 0, a[-1] - b[-1])):
            for turn in ((0, 0, 0), (0, 0, np.pi / 2), (np.pi / 2, 0, 0), (0, np.pi / 4, 0)):
                pose = np.eye(4)
                pose[:3, :3] = exp3(turn)
                pose[:3, 3] = shift
                args = kinds[0], a, pose, kinds[1], b, np.eye(4)
                for x in (*shape_spots(*args), *shape_spots_derivatives(*args)):
                    assert np.isfinite(x).all()


def test_numbers_and_poses_are_checked() -> None:
    sphere = np.zeros(4)
    with pytest.raises(ValueError, match="kind is 'ball', expected one of half_space, sphere"):
        shape_spots("ball", sphere, np.eye(4), "sphere", sphere, np.eye(4))
    with pytest.raises(ValueError, match="numbers_a has 3 entries, expected 4"):
        shape_spots("sphere", np.zeros(3), np.eye(4), "sphere", sphere, np.eye(4))
    with pytest.raises(ValueError, match="pose_b has 9 entries, expected 16"):
        shape_spots("sphere", sphere, np.eye(4), "sphere", sphere, np.eye(3))
    with pytest.raises(ValueError, match="could not convert"):
        shape_spots("sphere", sphere, np.eye(4), "sphere", "many", np.eye(3))


# ---- what lies is supported

PLACE = (0, 0, 0, 0, 0, 0, 1)
PLANE = ("half_space", np.array([0.0, 0.0, 1.0, 0.0]), np.eye(4))
DEPTH = 1e-4


def at(x: float, y: float, z: float, turn=(0.0, 0.0, 0.0)) -> np.ndarray:
    pose = np.eye(4)
    pose[:3, :3] = exp3(turn)
    pose[:3, 3] = x, y, z
    return pose


def box(*half: float, radius: float = 0.0) -> np.ndarray:
    return np.array([*PLACE, *half, radius])


def supports(args: tuple) -> np.ndarray:
    """Points of all places as deep as they can be, which must be pushed up."""
    gap, normal, point = shape_spots(*args)
    on = gap < -0.9 * DEPTH
    np.testing.assert_allclose(gap[on], -DEPTH, rtol=0.05)
    np.testing.assert_allclose(normal[on], np.tile([0.0, 0.0, 1.0], (on.sum(), 1)), atol=1e-3)
    return point[on]


def spans(points: np.ndarray, corners: np.ndarray) -> bool:
    """Whether points lie at all corners, and nowhere else."""
    apart = np.linalg.norm(points[:, None, :2] - corners[None], axis=2)
    return bool((apart.min(0) < 2e-3).all() and (apart.min(1) < 2e-3).all())


SQUARE = np.array([[x, y] for x in (-1.0, 1.0) for y in (-1.0, 1.0)])


@pytest.mark.parametrize("radius", [0.0, 0.02])
def test_a_flat_box_touches_a_plane_by_four_corners(radius) -> None:
    points = supports(("box", box(0.1, 0.2, 0.3, radius=radius), at(0, 0, 0.3 - DEPTH), *PLANE))
    assert len(points) == 4
    assert spans(points, SQUARE * (0.1 - radius, 0.2 - radius))


@pytest.mark.parametrize("radius", [0.0, 0.01])
@pytest.mark.parametrize("offset", [0.0, 1e-9, 1e-6, -1e-6, 1e-5])
def test_a_stack_of_equal_boxes_touches_in_eight_places(radius, offset) -> None:
    """Four corners of each box, pushed up although they lie nearer to side faces than to the top."""
    cube = box(0.1, 0.1, 0.1, radius=radius)
    for turn in (0.0, 1e-6, -1e-5):
        above = at(offset, -0.5 * offset, 0.2 - DEPTH, (0, 0, turn))
        points = supports(("box", cube, above, "box", cube, np.eye(4)))
        assert len(points) == 8
        assert spans(points, SQUARE * (0.1 - radius))


def test_a_shifted_stack_is_supported_at_the_corners_of_what_overlaps() -> None:
    cube = box(0.1, 0.1, 0.1)
    for x, y, turn in ((0.01, 0.02, 0.0), (0.05, -0.03, 0.0), (0.0, 0.04, 0.0)):
        points = supports(("box", cube, at(x, y, 0.2 - DEPTH, (0, 0, turn)), "box", cube, np.eye(4)))
        low, high = np.maximum(-0.1, np.array([x, y]) - 0.1), np.minimum(0.1, np.array([x, y]) + 0.1)
        assert spans(points, np.where(SQUARE < 0, low, high))


def test_planks_that_lie_across_are_supported_where_edges_cross() -> None:
    """No corner of either lies on the other."""
    for turn in (0.0, 0.3):
        long, wide = box(0.5, 0.05, 0.05), box(0.05, 0.5, 0.05)
        points = supports(("box", long, at(0, 0, 0.1 - DEPTH, (0, 0, turn)), "box", wide, np.eye(4)))
        c, s = np.cos(turn), np.sin(turn)
        crossings = [[x, (v + s * x) / c] for x in (-0.05, 0.05) for v in (-0.05, 0.05)]
        assert spans(points, np.array(crossings))


def test_a_plank_over_the_edge_of_a_box_is_supported_along_this_edge() -> None:
    plank, turn = box(0.5, 0.05, 0.05), 0.7
    up = np.array([np.sin(turn), 0.0, np.cos(turn)])
    pose = at(*(np.array([0.1, 0.0, 0.1]) + (0.05 - DEPTH) * up), (0, turn, 0))
    gap, normal, point = shape_spots("box", plank, pose, "box", box(0.1, 0.1, 0.1), np.eye(4))
    on = gap < -0.1 * DEPTH
    np.testing.assert_allclose(normal[on], np.tile(up, (on.sum(), 1)), atol=1e-12)
    assert spans(point[on], np.array([[0.1, -0.05], [0.1, 0.05]]))


def test_two_edges_touch_in_one_place() -> None:
    cube = box(0.1, 0.1, 0.1)
    pose = at(0.01, 0.02, 0.2 * np.sqrt(2.0) - DEPTH, (np.pi / 4, 0, 0))
    gap, normal, point = shape_spots("box", cube, pose, "box", cube, at(0, 0, 0, (0, np.pi / 4, 0)))
    assert (gap < 0.0).nonzero()[0].tolist() == [32]
    assert gap[32] == pytest.approx(-DEPTH, rel=1e-9)
    np.testing.assert_allclose(normal[32], [0, 0, 1], atol=1e-12)
    np.testing.assert_allclose(point[32, :2], [0.0, 0.02], atol=1e-12)


def cylinder(radius: float, half: float) -> np.ndarray:
    return np.array([*PLACE, radius, half])


@pytest.mark.parametrize("ground", [PLANE, ("box", box(1.0, 1.0, 0.5), at(0, 0, -0.5))], ids=["half_space", "box"])
def test_a_cylinder_stands_on_four_places_and_rolls_on_two(ground) -> None:
    tin = cylinder(0.1, 0.2)
    points = supports(("cylinder", tin, at(0, 0, 0.2 - DEPTH), *ground))
    assert len(points) == 4
    np.testing.assert_allclose(np.linalg.norm(points[:, :2], axis=1), 0.1, atol=1e-9)
    for angle in np.linspace(0.0, 1.0, 9):  # lying, rolled by any angle: exactly its ends
        lying = at(0, 0, 0.1 - DEPTH, (np.pi / 2, 0, 0)) @ at(0, 0, 0, (0, 0, angle))
        points = supports(("cylinder", tin, lying, *ground))
        assert len(points) == 2
        assert spans(points, np.array([[0.0, -0.2], [0.0, 0.2]]))
        leaning = at(0, 0, 0.0, (0.5, 0, 0)) @ at(0, 0, 0, (0, 0, angle))
        leaning[2, 3] = 0.2 * np.cos(0.5) + 0.1 * np.sin(0.5) - DEPTH
        gap = shape_spots("cylinder", tin, leaning, *ground)[0]
        assert (gap < 0.0).sum() == 1
        assert gap.min() == pytest.approx(-DEPTH, rel=1e-6)


@pytest.mark.parametrize("angle", [0.0, 1e-12, 1e-9, 1e-6, 1e-4])
def test_a_standing_cylinder_is_held_upright(angle) -> None:
    """The moment of all places about the centre of its base, each by its depth, turns it back, and is linear."""
    tin = cylinder(0.1, 0.2)
    for direction in np.linspace(0.0, 2.0, 7):
        axis = np.array([np.cos(direction), np.sin(direction), 0.0])
        base = at(0, 0, 0, angle * axis) @ at(0, 0, 0.2)
        base[2, 3] -= DEPTH
        gap, normal, point = shape_spots("cylinder", tin, base, *PLANE)
        depth = np.maximum(-gap, 0.0)
        moment = (depth[:, None] * np.cross(point, normal)).sum(0)
        assert moment @ axis <= 1e-15
        if angle == 1e-6:  # four points carry 2 r^2, the deepest one less than that again
            assert -4.0 < moment @ axis / (0.1**2 * angle) < -1.9


@pytest.mark.parametrize(
    ("other", "height", "ends"),
    [
        (("box", box(0.5, 0.5, 0.1), np.eye(4)), 0.1, 0.2),
        (("box", box(0.1, 0.5, 0.1), np.eye(4)), 0.1, 0.1),  # over both edges
        (("capsule", np.array([*PLACE, 0.03, 0.4]), at(0, 0, 0, (0, np.pi / 2, 0))), 0.03, 0.2),
        (("cylinder", cylinder(0.5, 0.1), np.eye(4)), 0.1, 0.2),
        (("cylinder", cylinder(0.15, 0.1), np.eye(4)), 0.1, 0.15),  # over its rim
        (("cylinder", cylinder(0.1, 0.1), at(0, 0, 0, (0, np.pi / 2, 0))), 0.1, 0.1),
    ],
    ids=["box", "narrow box", "capsule", "cylinder", "narrow cylinder", "side of a cylinder"],
)
def test_a_capsule_that_lies_is_supported_at_two_places(other, height, ends) -> None:
    bar = np.array([*PLACE, 0.05, 0.2])
    for tilt in (0.0, 1e-9, 1e-5):
        pose = at(0, 0, height + 0.05 - DEPTH, (0, np.pi / 2 + tilt, 0))
        points = supports(("capsule", bar, pose, *other))
        assert len(points) == 2
        assert spans(points, np.array([[-ends, 0.0], [ends, 0.0]]))


def test_what_carries_a_lying_capsule_does_not_depend_on_which_place() -> None:
    """A tilt shifts the load from one support to the other, and to the nearest place: the sum is that of both."""
    bar, slab = np.array([*PLACE, 0.05, 0.2]), ("box", box(0.5, 0.5, 0.1), np.eye(4))
    for tilt in np.linspace(0.0, 1e-3, 23):
        pose = at(0, 0, 0.15 - DEPTH, (0, np.pi / 2 + tilt, 0))
        gap, normal, point = shape_spots("capsule", bar, pose, *slab)
        force = np.maximum(-gap, 0.0)
        ends = np.maximum(DEPTH + np.array([-0.2, 0.2]) * np.sin(tilt), 0.0)
        assert force.sum() == pytest.approx(ends.sum(), rel=1e-3)
        moment = (force[:, None] * np.cross(point, normal)).sum(0)[1]
        assert moment == pytest.approx(-ends @ [-0.2, 0.2], abs=2e-7)


@pytest.mark.parametrize("kind", SOLIDS)
def test_what_is_deep_is_pushed_out(kind) -> None:
    """From anywhere inside of a box, steps along the sum of all forces, each as its depth, end outside."""
    rng = np.random.default_rng(10)
    for _ in range(4):
        numbers, other = random_numbers(kind, rng), random_numbers("box", rng)
        pair = Pair(kind, numbers, random_pose(rng, 0.3), "box", other, random_pose(rng, 0.3))
        for _ in range(200):
            gap, normal, _ = shape_spots(*pair.args)
            depth = np.maximum(-gap, 0.0)
            if depth.max() < 1e-6:
                break
            force = depth @ normal
            pair = pair.moved(0.5 * depth.max() / np.linalg.norm(force) * force)
        assert gap.min() > -1e-3
