"""The viewer without a browser: sliders, motions, gaps of constraints, pages, notebooks and errors."""

import html
import re
import socket
import sys

import numpy as np
import pytest
from constraint_models import four_bar
from coupled_models import MAPS, tree
from linkages import errors
from population import BarrelCam, models

import torsor as ts
from torsor import testing
from torsor.view import Viewer
from torsor.view.motion import motions, still
from torsor.view.sliders import handles
from torsor.view.stage import constraint_gaps

EVERY = [*models(2), *(pytest.param(tree().couple(*MAPS[k]), id=k) for k in MAPS)]


def view(model, **options):
    return Viewer(model, port=0, open_browser=False, **options)


def drop(**options):
    """A ball that falls on the ground and rolls."""
    ball = ts.shapes.Sphere(0.1)
    builder = ts.ModelBuilder("ball")
    builder.add_body("ball", "world", ts.Free(), ts.SE3(), ts.Inertia.sphere(mass=1.0, radius=0.1))
    ground = ts.Contact("ball", ball, "world", ts.shapes.HalfSpace(), stiffness=1e4, friction=0.5)
    model = builder.build()
    q0 = np.array([0, 0, 0.12, 0, 0, 0, 1.0])
    v0 = np.array([0, 0, 0, 0.5, 0, 0])
    return ts.simulate(model, q0, v0, steps=30, integrator=ts.BDF1(h=0.01), forces=[ground], **options)


# ---- sliders


@pytest.mark.parametrize("model", EVERY)
def test_sliders_move_their_joints_and_no_others(model):
    rng = np.random.default_rng(0)
    q = model.random(rng)
    found = handles(model, 2.0)
    assert sum(len(handle.sliders) for handle in found) == model.nv
    for handle in found:
        low, high = (np.array([getattr(s, end) for s in handle.sliders]) for end in ("lower", "upper"))
        values = rng.uniform(0.4 * low, 0.4 * high) if (low < 0).all() else rng.uniform(low, high)
        if len(values) == 3 or len(values) == 6:  # rotation vectors longer than half a turn are those of shorter ones
            values[-3:] *= 0.5
        moved = handle.write(q, values)
        np.testing.assert_allclose(handle.read(moved), values, atol=1e-12)
        changed = np.abs(model.minus(moved, q)) > 1e-12
        names = [joint.name for joint in model.joints for _ in range(joint.nv)]
        names += [name for coupling in model.couplings for name in coupling.new]
        assert {name for name, own in zip(names, changed, strict=True) if own} <= {handle.name}


def test_sliders_keep_to_limits_and_followers_have_none():
    builder = ts.ModelBuilder()
    for name, limits in (("a", (-0.5, 0.7)), ("b", (1.0, np.inf)), ("c", (-np.inf, -9.0)), ("d", (0.3, 0.3))):
        builder.add_body(name, "world", ts.Revolute(), ts.SE3(), ts.Inertia.point(1.0), position_limits=limits)
    builder.add_body("e", "world", ts.Prismatic(), ts.SE3(), ts.Inertia.point(1.0))
    model = builder.build()
    ranges = {handle.name: (handle.sliders[0].lower, handle.sliders[0].upper) for handle in handles(model, 2.0)}
    assert ranges["a"] == (-0.5, 0.7)
    assert ranges["b"] == (1.0, pytest.approx(np.pi, abs=1e-3))
    assert ranges["c"] == (pytest.approx(-9.0 - 2 * np.pi, abs=1e-2), -9.0)
    assert ranges["d"] == (0.3, 0.3)
    assert ranges["e"] == (-2.0, 2.0)
    coupled = model.couple(ts.Mimic("e", of="a", ratio=2.0))
    assert [handle.name for handle in handles(coupled, 2.0)] == ["a", "b", "c", "d"]
    with view(model) as viewer:
        np.testing.assert_allclose(viewer.q, (0, 1, -9, 0.3, 0))  # the neutral configuration within the limits


def test_ranges_of_splines_are_those_of_the_splines():
    curve = next(j for j in testing.example_joints() if isinstance(j, ts.SplineCurve))
    model = ts.ModelBuilder().add_body("one", "world", curve, ts.SE3(), ts.Inertia.point(1.0)).build()
    ((slider,),) = (handle.sliders for handle in handles(model, 2.0))
    assert (slider.lower, slider.upper) == (0.0, len(curve.frames) - 3)


def test_sliders_of_a_closed_loop_keep_it_closed():
    model = four_bar().model.with_constraints(four_bar().constraints)
    with view(model) as viewer:
        handle = viewer._handles[0]
        q = ts.project(model, model.constraints, viewer.q)
        viewer.show(q)
        assert viewer._move(handle, handle.read(q) + 0.1, closed=True) == ""
        assert viewer.q[0] == pytest.approx(q[0] + 0.1)
        np.testing.assert_allclose(errors(model, model.constraints, viewer.q)[0], 0, atol=1e-9)
        assert viewer._move(handle, handle.read(q) + 0.2, closed=False) == ""
        assert np.abs(errors(model, model.constraints, viewer.q)[0]).max() > 1e-3


# ---- motions


def test_motions_pass_through_their_rows_and_between_them():
    trajectory = drop()
    (motion,) = motions(trajectory)
    for row in (0, 7, 30):
        state = motion.at(trajectory.t[row])
        np.testing.assert_allclose(state.q, trajectory.q[row], atol=1e-12)
        assert state.row == row
    half = motion.at(0.5 * (trajectory.t[7] + trajectory.t[8]))
    step = trajectory.model.minus(trajectory.q[8], trajectory.q[7])
    np.testing.assert_allclose(trajectory.model.minus(half.q, trajectory.q[7]), 0.5 * step, atol=1e-9)
    np.testing.assert_array_equal(motion.at(-1.0).q, trajectory.q[0])
    np.testing.assert_array_equal(motion.at(9.0).q, trajectory.q[-1])


def test_motions_that_change_coordinates_have_the_poses_of_both():
    model = ts.ModelBuilder(gravity=(0, 0, 0)).add_body(
        "top", "world", ts.SphericalEuler("ZYX"), ts.SE3(), ts.Inertia.box((1, 2, 3), mass=1.0)).build()  # fmt: skip
    trajectory = ts.simulate(model, np.zeros(3), [0.0, 9.0, 0.3], steps=60, integrator=ts.BDF2(h=0.01))
    assert trajectory.switches
    (motion,) = motions(trajectory)
    poses = np.array([ts.body_poses(s.model, s.q)[0, :3, :3] for s in map(motion.at, trajectory.t)])
    turns = np.linalg.norm(ts.spatial.log3(np.swapaxes(poses[:-1], 1, 2) @ poses[1:]), axis=1)
    assert turns.max() < 0.12  # 9 rad/s for 0.01 s, without a jump


def test_motions_of_batches_and_of_failures():
    model = ts.models.pendulum()
    q0 = np.zeros((3, 2, 1)) + 0.1
    trajectory = ts.simulate(model, q0, np.zeros_like(q0), steps=5, integrator=ts.BDF1(h=0.01))
    assert [m.index for m in motions(trajectory)] == list(range(6))
    assert [m.index for m in motions(trajectory, -1)] == [5]
    assert len(motions(trajectory, most=2)) == 2
    with pytest.raises(IndexError, match="no motion 6 in a batch of 6"):
        motions(trajectory, [0, 6])
    with pytest.raises(ValueError, match="no motion in an empty batch, or none was chosen"):
        motions(trajectory, [])
    broken = trajectory.q.copy()
    broken[1, 0, 3:] = np.nan
    failed = ts.Trajectory(model, trajectory.integrator, (), trajectory.t, broken, trajectory.v, trajectory.a, None,
                           trajectory.substeps)  # fmt: skip
    assert [len(m.t) for m in motions(failed)] == [6, 6, 3, 6, 6, 6]
    with pytest.raises(TypeError, match="expected a Trajectory, got ndarray"):
        motions(trajectory.q)


def test_configurations_are_checked():
    model = ts.models.acrobot()
    assert len(still(model, np.zeros((2, 3, 2)))) == 6
    for q, message in ((np.zeros(3), "expected (..., 2): model.nq is 2"), (0.0, "shape ()"), ([0, np.nan], "finite"),
                       (np.zeros((0, 2)), "an empty batch")):  # fmt: skip
        with pytest.raises(ValueError, match=re.escape(message)):
            still(model, q)


def test_gaps_of_constraints_are_their_errors():
    rng = np.random.default_rng(4)
    model = ts.ModelBuilder().add_body("a", "world", ts.Free(), ts.SE3(), ts.Inertia.point(1.0)).add_body(
        "b", "world", ts.Free(), ts.SE3(), ts.Inertia.point(1.0)).build()  # fmt: skip
    pose, q = testing.random_pose(rng), model.random(rng)
    for constraint, rows in (
        (ts.Loop("a", "b", ts.Spherical(), pose, testing.random_pose(rng)), slice(0, 3)),
        (ts.Loop("a", "b", ts.Prismatic((0, 1, 0)), pose, testing.random_pose(rng)), slice(0, 2)),
        (ts.PointOnPlane("a", "b", pose, (0.1, 0.2, 0.3), offset=0.4), slice(0, 1)),
        (ts.PointOnLine("a", "b", pose, (0.1, 0.2, 0.3)), slice(0, 2)),
        (ts.Distance("a", (0.1, 0, 0), "b", (0, 0.2, 0), 0.7), slice(0, 1)),
        (ts.PrescribedBody("b", lambda t: (ts.SE3.translation(t, 0, 0), np.zeros(6), np.zeros(6))), slice(0, 3)),
    ):
        ((start, end),) = constraint_gaps(model, [constraint], ts.body_poses(model, q), 0.3)
        g, _ = errors(model, [constraint], q, t=0.3)
        assert np.linalg.norm(end - start) == pytest.approx(np.linalg.norm(g[rows])), constraint
    arm = ts.models.acrobot()  # constraints of coordinates are at no place
    gear = ts.Gear(arm.joints[0].name, arm.joints[1].name, 2.0)
    assert constraint_gaps(arm, [gear], ts.body_poses(arm, arm.neutral), 0.0).shape == (0, 2, 3)


# ---- the viewer


@pytest.mark.parametrize("model", [*EVERY[::4], ts.ModelBuilder().build(), ts.models.chain(60)])
def test_every_model_is_shown_and_played(model):
    q, rng = model.neutral, np.random.default_rng(0)
    with view(model) as viewer:
        for show in ("collision", "inertia", "skeleton", "visual"):
            viewer._stage.set_show(show)
        viewer.show(model.random(rng))
        viewer.show(model.random(rng, 3))
        viewer.add_ghost(q)
        viewer.add_center_of_mass()
        viewer.add_contacts()
        viewer.add_constraint_gaps()
        for body in model.bodies[:1]:
            viewer.add_frame(body.name)
        for steps in (0, 3) if model.nv else (0,):
            trajectory = ts.simulate(model, q, np.zeros(model.nv), steps=steps, integrator=ts.SymplecticEuler(h=1e-3))
            viewer.play(trajectory, speed=0.5)
            viewer.add_ghost(trajectory)
            viewer._seek(2e-3)
        viewer.remove_ghosts()


def test_motions_play_by_themselves_once_or_again_and_again():
    trajectory = drop()
    with view(trajectory.model) as viewer:
        viewer.play(trajectory, speed=10.0, loop=False)
        assert viewer._closed.wait(0.5) is False
        assert viewer._time == pytest.approx(trajectory.t[-1])
        viewer.play(trajectory, speed=10.0)
        times = []
        for _ in range(8):
            viewer._closed.wait(0.03)
            times.append(viewer._time)
        assert len(set(times)) > 4
        assert min(times) >= 0.0
        assert max(times) <= trajectory.t[-1]


def test_contacts_are_drawn_while_they_touch():
    trajectory = drop()
    with view(trajectory.model) as viewer:
        viewer.add_contacts(trajectory)
        viewer._playing.clear()
        (actor,) = viewer._stage.actors
        arrows, dots = (
            viewer._server.scene.get_handle_by_name(f"{actor.path}/contacts/{what}") for what in ("forces", "points")
        )
        viewer._seek(0.0)
        assert not arrows.visible
        assert not dots.visible
        viewer._seek(trajectory.t[-1])
        assert arrows.visible
        np.testing.assert_allclose(dots.points[0, :2], trajectory.q[-1, :2], atol=1e-6)
        force = trajectory.contacts.force[-1, 0]
        along = (arrows.points[0, 1] - arrows.points[0, 0]) / np.linalg.norm(arrows.points[0, 1] - arrows.points[0, 0])
        np.testing.assert_allclose(along, force / np.linalg.norm(force), atol=1e-5)


def test_batches_stand_side_by_side():
    model = ts.models.pendulum()
    with view(model) as viewer:
        viewer.show(np.zeros((4, 1)))
        offsets = np.array([actor.offset for actor in viewer._stage.actors])
        distances = np.linalg.norm(offsets[:, None] - offsets[None], axis=-1)[np.triu_indices(4, 1)]
        assert distances.min() > 0.2
        viewer.show(np.zeros((4, 1)), spacing=0.0)
        assert not np.any([actor.offset for actor in viewer._stage.actors])


def test_pages_are_for_this_machine_alone():
    with view(ts.models.pendulum()) as viewer:
        assert viewer.url == f"http://127.0.0.1:{viewer.port}"
        socket.create_connection(("127.0.0.1", viewer.port)).close()
        if sys.platform == "linux":  # where all of 127.x.x.x are this machine
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.2", viewer.port))


def test_nothing_is_printed(capfd):
    with view(ts.models.pendulum()) as viewer:
        viewer.show([0.3])
    assert capfd.readouterr() == ("", "")
    assert "closed" in repr(viewer)


def test_ports_and_hosts_that_cannot_be():
    model = ts.models.pendulum()
    with view(model) as viewer, pytest.raises(OSError, match=f"cannot listen at port {viewer.port} of '127.0.0.1'"):
        Viewer(model, port=viewer.port, open_browser=False)
    with Viewer(model, open_browser=False) as first, Viewer(model, open_browser=False) as second:
        assert first.port != second.port
    with pytest.raises(ValueError, match="host is 'no such host', which is no address of this machine"):
        Viewer(model, host="no such host", open_browser=False)
    for port in (-1, 70000, "8080"):
        with pytest.raises(ValueError, match=r"port is .*, expected a number from 1 to 65535"):
            Viewer(model, port=port, open_browser=False)


def test_errors_say_what_to_do():
    model, trajectory = ts.models.acrobot(), drop()
    with pytest.raises(TypeError, match="Model"):
        Viewer("acrobot")
    with view(model) as viewer:
        with pytest.raises(ValueError, match=re.escape("expected (..., 2): model.nq is 2")):
            viewer.show(np.zeros(3))
        with pytest.raises(ValueError, match=r"of the model 'ball' with 1 bodies.*make a Viewer of trajectory\.model"):
            viewer.play(trajectory)
        with pytest.raises(ValueError, match=r"speed is 0, expected a number above 0"):
            viewer.play(trajectory, speed=0)
        with pytest.raises(KeyError, match="no body named 'hand'"):
            viewer.add_frame("hand")
    with pytest.raises(RuntimeError, match="the viewer is closed; make a new one"):
        viewer.show(np.zeros(2))
    viewer.close()


def test_without_viser_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "viser", None)
    with pytest.raises(ImportError, match=r"torsor\[view\]"):
        Viewer(ts.models.pendulum())
    with pytest.raises(ImportError, match=r"torsor\[view\]"):
        drop().html("motion.html")
    assert ts.models.pendulum()._repr_html_() is None
    assert drop()._repr_html_() is None


# ---- pages


def test_pages_are_one_file_without_a_network(tmp_path):
    drop().html(tmp_path / "motion.html")
    page = (tmp_path / "motion.html").read_text()
    assert 500_000 < len(page) < 1_500_000
    addresses = set(
        re.findall(r"(?:https?:)?//[a-z][\w.-]*\.[a-z]{2,}[\w./-]*", re.sub(r'"[A-Za-z0-9+/=]{200,}"', "", page))
    )
    assert addresses <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xhtml", "http://www.w3.org/1999/xlink"}
    assert "<script src" not in page
    assert not re.search(r"<link[^>]*href=\"(?!data:)", page)


def test_pages_of_little_and_of_much(tmp_path):
    for model in (ts.ModelBuilder().build(), ts.models.pendulum()):
        ts.simulate(model, model.neutral, np.zeros(model.nv), steps=0, integrator=ts.BDF1(h=0.1)).html(tmp_path / "x")
    model = ts.models.pendulum()
    batch = ts.simulate(model, np.zeros((30, 1)), np.ones((30, 1)), steps=3, integrator=ts.BDF1(h=0.1))
    batch.html(tmp_path / "batch.html", pictures=2, show="inertia")
    with pytest.raises(ValueError, match="fps is 0, expected a number above 0"):
        batch.html(tmp_path / "x.html", fps=0)
    with pytest.raises(ValueError, match="show is 'all'"):
        batch.html(tmp_path / "x.html", show="all")
    assert not (tmp_path / "x.html").exists()


def test_notebooks_show_models_and_motions_of_bounded_size():
    for shown in (ts.models.humanoid(), drop(), ts.ModelBuilder().build(), ts.models.chain(300)):
        output = shown._repr_html_()
        assert output.startswith("<iframe srcdoc=")
        assert len(output) < 4_000_000
        assert html.unescape(output).count("</html>") == 1


def test_long_motions_of_large_models_are_no_larger_in_notebooks():
    model = ts.models.chain(100)
    trajectory = ts.simulate(
        model, model.neutral + 0.01, np.zeros(model.nv), steps=300, integrator=ts.SymplecticEuler(h=1e-3), every=1
    )
    assert len(trajectory._repr_html_()) < 4_000_000


def test_a_model_that_cannot_be_drawn_is_shown_as_text(monkeypatch):
    monkeypatch.setattr(BarrelCam, "T", lambda self, q: np.full((4, 4), "x"))
    model = ts.ModelBuilder().add_body("cam", "world", BarrelCam(), ts.SE3(), ts.Inertia.point(1.0)).build()
    assert model._repr_html_() is None


def test_a_viewer_can_be_closed_while_its_motion_ends():
    model = ts.models.pendulum()
    motion = ts.simulate(model, model.neutral, steps=0, integrator=ts.BDF1(h=1e-2))
    for _ in range(3):
        viewer = Viewer(model, open_browser=False)
        viewer.play(motion)
        viewer._closed.set()  # as `close` does before the thread clears what `close` sets
        viewer._playing.clear()
        assert viewer._thread is not None
        viewer._thread.join(timeout=5.0)
        assert not viewer._thread.is_alive()
        viewer._closed.clear()
        viewer.close()
