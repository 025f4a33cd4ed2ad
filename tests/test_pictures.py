"""Stick figures: what is drawn is where it must be, for all joints, constraints and couplings."""

import numpy as np
import pytest

import torsor as ts
from torsor.pictures import Camera
from torsor.pictures.symbols import kind_of, symbol

pytest.importorskip("matplotlib")

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from mpl_toolkits.mplot3d import proj3d
from mpl_toolkits.mplot3d.art3d import Poly3DCollection


class Lift(ts.CustomJoint):
    """A translation along z."""

    dofs = 1

    def T(self, q):
        out = np.eye(4, dtype=np.asarray(q).dtype)
        out[2, 3] = q[0]
        return out

    def S(self, q):
        return np.eye(6, dtype=np.asarray(q).dtype)[:, 5:]

    def dS(self, q):
        return np.zeros((6, 1, 1), np.asarray(q).dtype)

    def d2S(self, q):
        return np.zeros((6, 1, 1, 1), np.asarray(q).dtype)


WAY = [ts.SE3.translation(0.2 * np.sin(k), 0, 0.1 * k) for k in range(6)]
SURFACE = 0.1 * np.random.default_rng(0).uniform(-1, 1, (6, 5, 5))
JOINTS = [
    ts.Fixed(), ts.Revolute((0, 1, 0)), ts.Prismatic((0, 0, 1)), ts.Screw((0, 0, 1), 0.1), ts.Cylindrical((1, 0, 0)),
    ts.Planar(), ts.Translational(), ts.Universal(), ts.Spherical(), ts.SphericalEuler("ZYX"), ts.SphericalExp(),
    ts.Free(), ts.Free2D(), ts.Composite(ts.Revolute((0, 1, 0)), ts.Prismatic((1, 0, 0))), ts.SplineCurve(WAY),
    ts.SplineSurface(SURFACE), Lift(),
]  # fmt: skip


def image(ax):
    """Colours (height, width, 3) of a figure, from 0 to 1."""
    canvas = FigureCanvasAgg(ax.figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3] / 255.0


def pixels(ax, points):
    """Columns and rows (n, 2) in the image of points (n, 3) of the axes."""
    x, y, _ = proj3d.proj_transform(*np.asarray(points, float).T, ax.get_proj())
    at = ax.transData.transform(np.stack([x, y], axis=-1))
    return np.stack([at[:, 0], ax.figure.bbox.height - at[:, 1]], axis=-1)


def ink(picture, at, radius=3):
    """The largest difference from white within some pixels of each place."""
    out = []
    for x, y in np.round(at).astype(int):
        part = picture[max(y - radius, 0) : y + radius + 1, max(x - radius, 0) : x + radius + 1]
        out.append(0.0 if part.size == 0 else float(1.0 - part.min()))
    return np.array(out)


def four_bar():
    hinge = ts.Revolute((0, -1, 0))
    b = ts.ModelBuilder("four-bar")
    for name, parent, x, length in (
        ("crank", "world", 0.0, 0.4),
        ("coupler", "crank", 0.4, 1.2),
        ("rocker", "world", 1.1, 1.0),
    ):
        inertia = ts.Inertia.box(mass=length, size=(length, 0.05, 0.05), com=(length / 2, 0, 0))
        b.add_body(name, parent, hinge, ts.SE3.translation(x, 0, 0), inertia)
    ends = ts.SE3.translation(1.2, 0, 0), ts.SE3.translation(1.0, 0, 0)
    b.add_constraint(ts.Loop("coupler", "rocker", hinge, *ends, name="closing"))
    model = b.build()
    return model, ts.project(model, model.constraints, [1.0, -0.4, 1.8], keep=["crank"])


def hand():
    """A finger of three joints, of which two follow the first."""
    b = ts.ModelBuilder("hand")
    for k in range(3):
        inertia = ts.Inertia.box(mass=0.1, size=(0.02, 0.02, 0.3), com=(0, 0, 0.15))
        at = ts.SE3.translation(0, 0, 0.3 if k else 0.0)
        b.add_body(f"link{k}", f"link{k - 1}" if k else "world", ts.Revolute((1, 0, 0)), at, inertia)
    return b.build().couple({"link1": ("link0", 0.8), "link2": ("link0", 0.5)})


def shapes(ax):
    return [artist for artist in ax.collections if isinstance(artist, Poly3DCollection) and artist.get_zorder() > 2]


@pytest.mark.parametrize("name", ["pendulum", "acrobot", "arm7", "quadruped", "humanoid"])
def test_bodies_are_drawn_where_they_are(name):
    model = getattr(ts.models, name)()
    q = model.random(1)
    ax = model.draw(q, ground=False, frames=False, legend=False)
    at = pixels(ax, ts.body_poses(model, q)[:, :3, 3])
    height, width = image(ax).shape[:2]
    assert (at > 0).all() and (at < (width, height)).all()
    assert ink(image(ax), at, 8).min() > 0.2  # bones are grey, joints are darker, their pins are white
    corners = np.array([(2, 2), (width - 3, 2), (2, height - 3), (width - 3, height - 3)])
    assert ink(image(ax), corners).max() == 0.0


def test_another_configuration_is_another_picture():
    model = ts.models.acrobot()
    ax = model.draw([0.3, 0.4], ground=False, frames=False, legend=False)
    tip = ts.body_poses(model, [0.3, 2.0])[1] @ [0, 0, -2.0, 1]
    mine = ts.body_poses(model, [0.3, 0.4])[1] @ [0, 0, -1.95, 1]
    assert ink(image(ax), pixels(ax, mine[None, :3]))[0] > 0.2
    assert ink(image(ax), pixels(ax, tip[None, :3]))[0] == 0.0


def test_every_kind_of_joint_has_a_symbol_of_its_own():
    seen = {}
    for joint in JOINTS:
        solids = symbol(joint, joint.neutral, 0.1)
        quads = np.concatenate([quad for quad, _ in solids])
        assert np.isfinite(quads).all() and quads.shape[1:] == (4, 3) and len(quads) > 3
        look = (len(quads), *np.ptp(quads.reshape(-1, 3), axis=0).round(6).tolist())
        seen.setdefault(kind_of(joint).name, set()).add(look)
    assert len(seen) == len(JOINTS) - 2  # the three spherical joints look the same
    looks = [look for found in seen.values() for look in found]
    assert len(set(looks)) == len(looks) == len(seen)
    library = {getattr(ts, n) for n in ts.__all__ if isinstance(getattr(ts, n), type)}
    library = {kind for kind in library if issubclass(kind, ts.Joint)} - {ts.Joint, ts.CustomJoint}
    assert library <= {type(joint) for joint in JOINTS}


@pytest.mark.parametrize("joint", JOINTS, ids=lambda joint: type(joint).__name__)
def test_models_with_any_joint_are_drawn(joint):
    b = ts.ModelBuilder()
    b.add_body("base", inertia=ts.Inertia.box(mass=1, size=(0.1, 0.1, 0.1)))
    b.add_body(
        "arm",
        "base",
        joint,
        ts.SE3.translation(0, 0, 0.5),
        ts.Inertia.box(mass=1, size=(0.1, 0.1, 0.6), com=(0, 0, 0.4)),
    )
    model = b.build()
    q = model.random(3)
    ax = model.draw(q, ground=False, frames=False, legend=False)
    X = ts.body_pose(model, q, "arm")
    drawn = np.stack([X[:3, 3], (X @ [0, 0, 0.4, 1])[:3]])
    assert ink(image(ax), pixels(ax, drawn)).min() > 0.1
    legend = model.draw(q).figure.legends[0]
    assert kind_of(joint).name in [text.get_text() for text in legend.get_texts()]


def test_frames_by_name():
    b = ts.ModelBuilder.from_model(ts.models.arm7())
    b.add_frame("tool", "hand", ts.SE3.rotation((1, 0, 0), 0.7) @ ts.SE3.translation(0.1, 0, 0.2))
    model = b.build()
    q = model.random(0)
    ax = model.draw(q, frames=["tool", "elbow"])
    lines = {line.get_label(): np.array(line.get_data_3d()) for line in ax.lines}
    for name in ("tool", "elbow"):
        X = ts.body_pose(model, q, name)
        for k, axis in enumerate("xyz"):
            first, last = lines[f"frame {name} {axis}"].T
            np.testing.assert_allclose(first, X[:3, 3], atol=1e-12)
            np.testing.assert_allclose((last - first) / np.linalg.norm(last - first), X[:3, k], atol=1e-12)
    assert {text.get_text() for text in ax.texts} == {"tool", "elbow"}
    assert "frame world x" in lines
    assert not model.draw(q, frames=False).lines
    assert {text.get_text() for text in model.draw(q, frames=True).texts} == {"tool"}
    with pytest.raises(KeyError, match=r"no body named 'tol'.*did you mean 'tool'"):
        model.draw(q, frames="tol")


def test_names_do_not_overlap():
    model = ts.models.humanoid()
    ax = model.draw(names=True)
    image(ax)
    boxes = []
    for text, (x, y) in zip(ax.texts, pixels(ax, [text.get_position_3d() for text in ax.texts]), strict=True):
        size = text.get_window_extent()
        left = x if text.get_ha() == "left" else x - size.width
        boxes.append((left, y - size.height / 2, left + size.width, y + size.height / 2))
    assert {text.get_text() for text in ax.texts} == {joint.name for joint in model.joints}
    for i, a in enumerate(boxes):
        for b in boxes[:i]:
            assert a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]
    assert [text.get_text() for text in model.draw(names="left_knee").texts] == ["left_knee"]


def test_loops_and_their_gaps():
    model, q = four_bar()
    closed = model.draw(q)
    meeting = ts.point_positions(model, q, "coupler", (1.2, 0, 0))
    assert ink(image(closed), pixels(closed, [meeting]), 1)[0] > 0.05
    names = [text.get_text() for text in closed.figure.legends[0].get_texts()]
    assert names == ["revolute", "revolute loop"]

    def dashed(ax):
        return [np.array(line.get_data_3d()).T for line in ax.lines if line.get_linestyle() == "--"]

    assert not dashed(closed)
    (gap,) = dashed(model.draw([1.0, 0.3, 1.0]))
    ends = [ts.point_positions(model, [1.0, 0.3, 1.0], b, (x, 0, 0)) for b, x in (("coupler", 1.2), ("rocker", 1.0))]
    np.testing.assert_allclose(gap, ends, atol=1e-12)
    assert "loop" not in str([t.get_text() for t in model.draw(q, constraints=[]).figure.legends[0].get_texts()])


def test_other_constraints():
    model = ts.models.arm7()
    q = model.random(0)
    shown = [
        ts.Distance("world", (0.5, 0, 0), "hand", (0, 0, 0.1), 1.0),
        ts.PointOnPlane("world", "elbow", ts.SE3.translation(0, 0, 0.4)),
        ts.PointOnLine("world", "wrist", ts.SE3.translation(0, 0.3, 0.4)),
        ts.PrescribedBody("forearm", lambda t: (ts.SE3(), np.zeros(6), np.zeros(6))),
        ts.Gear("shoulder_yaw", "wrist_roll", 2.0),
    ]
    ax = model.draw(q, constraints=shown)
    names = {text.get_text() for text in ax.figure.legends[0].get_texts()}
    assert {"distance", "point on a plane", "point on a line", "prescribed body", "coupling"} <= names
    middle = (np.array([0.5, 0, 0]) + ts.point_positions(model, q, "hand", (0, 0, 0.1))) / 2
    assert ink(image(ax), pixels(ax, [middle]))[0] > 0.5


def test_joints_that_follow_others():
    model = hand()
    q = np.array([0.6])
    ax = model.draw(q, ground=False, frames=False)
    poses = ts.body_poses(model, q)
    np.testing.assert_allclose(poses, ts.body_poses(model.tree, model.expand(q)), atol=1e-14)
    assert ink(image(ax), pixels(ax, poses[:, :3, 3])).min() > 0.2
    dotted = [np.array(line.get_data_3d()).T for line in ax.lines if line.get_linestyle() == ":"]
    np.testing.assert_allclose(dotted, [poses[[1, 0], :3, 3], poses[[2, 0], :3, 3]], atol=1e-12)


def test_the_default_view_is_along_the_axes_of_a_flat_mechanism():
    hinge = {"x": (1, 0, 0), "y": (0, 1, 0), "z": (0, 0, 1)}
    for axis, (azimuth, elevation) in {"x": (0, 0), "y": (-90, 0), "z": (-90, 90)}.items():
        b = ts.ModelBuilder()
        side = np.roll(hinge[axis], 1)
        b.add_body("a", joint=ts.Revolute(hinge[axis]), inertia=ts.Inertia.point(1.0, side))
        b.add_body("b", "a", ts.Revolute(hinge[axis]), ts.SE3(p=side), ts.Inertia.point(1.0, side))
        ax = b.build().draw([0.4, 0.5])
        assert (ax.azim, ax.elev) == pytest.approx((azimuth, elevation))
    model = ts.models.arm7()
    space = model.draw()
    assert 0 < space.elev < 45
    turned = model.draw(camera=Camera(azimuth=10, elevation=5))
    assert (turned.azim, turned.elev) == (10, 5)


def test_equal_scales_and_axes_that_are_given():
    figure = Figure()
    ax = figure.add_subplot(projection="3d")
    model = ts.models.quadruped()
    assert model.draw(ax=ax) is ax
    ranges = [np.ptp(getattr(ax, f"get_{k}lim")()) for k in "xyz"]
    np.testing.assert_allclose(ranges, ranges[0])
    at = pixels(ax, ts.body_poses(model, model.neutral)[:, :3, 3])
    box = ax.get_window_extent().extents
    assert (at[:, 0] > box[0]).all() and (at[:, 0] < box[2]).all()
    assert np.ptp(at[:, 0]) > 0.4 * (box[2] - box[0])
    with pytest.raises(TypeError, match=r"ax must be axes in three dimensions, got Axes; figure.add_subplot"):
        model.draw(ax=figure.add_subplot())


def test_up_is_against_gravity():
    b = ts.ModelBuilder(gravity=(0, -9.81, 0))
    b.add_body("a", joint=ts.Universal(), inertia=ts.Inertia.point(1.0, (0, 1, 0)))
    b.add_body("b", "a", ts.Revolute((1, 0, 0)), ts.SE3.translation(0, 1, 0), ts.Inertia.point(1.0, (0, 1, 0)))
    model = b.build()
    ax = model.draw(frames=["b"], camera=Camera(azimuth=-60, elevation=20))
    (line,) = (line for line in ax.lines if line.get_label() == "frame b y")
    _, _, z = line.get_data_3d()
    assert z[1] - z[0] > 0 and z[0] == pytest.approx(1.0)


def test_ground():
    def grounded(model, height, **options):
        """Whether there is a surface at a height, beside the model."""
        ax = model.draw(camera=Camera(azimuth=-60, elevation=20), frames=False, legend=False, **options)
        return 0.0 < ink(image(ax), pixels(ax, [(0.04, -0.04, height)]), 0)[0] < 0.2

    box = ts.Inertia.box(mass=1, size=(0.2, 0.2, 0.2), com=(0, 0, 0.6))
    b = ts.ModelBuilder().add_body(
        "a", joint=ts.Revolute((1, 0, 0)), placement=ts.SE3.translation(0, 0, 0.4), inertia=box
    )
    model = b.build()
    assert grounded(model, 0.0)
    assert not grounded(model, 0.0, ground=False)
    assert grounded(model, -0.2, ground=-0.2) and not grounded(model, -0.2)
    hanging = ts.models.pendulum()
    assert not grounded(hanging, -1.0) and grounded(hanging, -1.0, ground=True)
    low = ts.Collision(ts.shapes.HalfSpace(offset=-0.3))
    assert grounded(b.add_world_collision(low).build(), -0.3)
    with pytest.raises(ValueError, match="ground is not finite"):
        model.draw(ground=np.nan)


def test_rows_are_overlaid_and_fade():
    model = ts.models.acrobot()
    run = ts.simulate(model, [1.2, 0.5], T=1.0, integrator=ts.BDF2(0.01))
    ax = run.draw(rows=[0, 50, -1], trace="lower")
    layers = shapes(ax)
    assert len(layers) == 3
    pale = [1.0 - layer.get_facecolor()[:, :3].mean() for layer in layers]
    assert pale[0] < pale[1] < pale[2] and pale[2] > 2 * pale[0]
    assert len(shapes(run.draw())) == 6
    (trace,) = (np.array(line.get_data_3d()).T for line in ax.lines if line.get_label() == "trace")
    np.testing.assert_allclose(trace, ts.body_poses(model, run.q)[:, 1, :3, 3], atol=1e-12)
    assert ink(image(ax), pixels(ax, ts.body_poses(model, run.q[[0, 50, -1]])[:, 1, :3, 3])).min() > 0.15


def test_rows_of_batches_and_of_motions_that_failed():
    model = ts.models.acrobot()
    run = ts.simulate(model, [[[1.2, 0.5], [0.2, 0.1]]], T=0.1, integrator=ts.BDF2(0.01))
    for index in (1, (0, 1), -1):
        ax = run.draw(rows=3, index=index, frames="lower")
        at = next(np.array(line.get_data_3d())[:, 0] for line in ax.lines if line.get_label() == "frame lower x")
        np.testing.assert_allclose(at, ts.body_pose(model, run.q[0, 1, 3], "lower")[:3, 3], atol=1e-12)
    with pytest.raises(IndexError, match="index is 2, but the batch has 2 trajectories"):
        run.draw(index=2)
    q = np.array(run.q)
    q[0, 0, 5:] = np.nan
    torn = ts.Trajectory(model, run.integrator, (), run.t, q, run.v, run.a, None, run.substeps)
    assert len(shapes(torn.draw())) == 5
    with pytest.raises(ValueError, match="row 7 is not finite: the motion was not finished; the last row is 4"):
        torn.draw(rows=7)


def test_charts_of_a_row_are_those_of_the_row():
    b = ts.ModelBuilder()
    b.add_body(
        "top", joint=ts.SphericalEuler("ZYX"), inertia=ts.Inertia.box(mass=1, size=(0.1, 0.2, 1.0), com=(0, 0, -0.5))
    )
    model = b.build()
    run = ts.simulate(model, [0.1, 1.2, 0.2], [0.5, 3.0, 1.0], T=1.0, integrator=ts.BDF1(0.01))
    assert run.switches  # it came near the singularity of its chart
    (trace,) = (
        np.array(x.get_data_3d()).T for x in run.draw(frames="top", rows=-1).lines if x.get_label() == "frame top z"
    )
    last = run.segments()[-1][3]
    direction = trace[1] - trace[0]
    np.testing.assert_allclose(
        direction / np.linalg.norm(direction), ts.body_pose(last, run.q[-1], "top")[:3, 2], atol=1e-9
    )


def test_wrong_arguments():
    model = ts.models.acrobot()
    run = ts.simulate(model, [1.2, 0.5], steps=3, integrator=ts.BDF2(0.01))
    with pytest.raises(ValueError, match=r"q has shape \(3,\), expected \(2,\)"):
        model.draw([0.0, 0.0, 0.0])
    with pytest.raises(ValueError, match="q is not finite"):
        model.draw([0.0, np.nan])
    with pytest.raises(TypeError, match=r"camera must be a torsor.pictures.Camera"):
        model.draw(camera="left")
    with pytest.raises(KeyError, match="no joint named 'knee'"):
        model.draw(names=["knee"])
    with pytest.raises(ValueError, match="rows is 'all', expected numbers of rows"):
        run.draw(rows="all")
    with pytest.raises(ValueError, match=r"rows is \[\], expected numbers"):
        run.draw(rows=[])
    with pytest.raises(IndexError, match="rows are from 0 to 9, but the trajectory has 4"):
        run.draw(rows=[0, 9])
    for wrong, text in (
        ({"distance": -1}, "distance of a Camera is -1"),
        ({"elevation": 120}, "elevation of a Camera is 120"),
        ({"track": "a", "look_at": (0, 0, 0)}, "look_at= or track=, not both"),
    ):
        with pytest.raises(ValueError, match=text):
            Camera(**wrong)
    empty = ts.Trajectory(model, run.integrator, (), run.t[:0], run.q[:0], run.v[:0], run.a[:0], None, run.substeps[:0])
    with pytest.raises(ValueError, match="the trajectory has no rows, so there is nothing to draw"):
        empty.draw()


def test_a_model_without_bodies_and_one_without_mass():
    assert not shapes(ts.ModelBuilder().build().draw())
    b = ts.ModelBuilder()
    b.add_body("a", joint=ts.Free())
    assert len(shapes(b.build().draw())) == 1
