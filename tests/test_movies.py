"""Movies: frames show bodies where they are, hide what is behind, and files are complete or not there."""

import re
import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest

import torsor as ts
from torsor.pictures import Camera, raster
from torsor.view.geometry import Part, primitive

iio = pytest.importorskip("imageio.v3")
ffmpeg = pytest.importorskip("imageio_ffmpeg")

RED, BLUE = (1.0, 0.0, 0.0, 1.0), (0.0, 0.0, 1.0, 1.0)


def balls():
    """A red ball that slides along y, and a blue one above it that slides along x."""
    b = ts.ModelBuilder("balls", gravity=(0, 0, 0))
    for name, axis, z, color in (("red", (0, 1, 0), 0.5, RED), ("blue", (1, 0, 0), 1.5, BLUE)):
        visual = ts.Visual("sphere", (0.15,), color=color)
        placement, inertia = ts.SE3.translation(0, 0, z), ts.Inertia.sphere(0.15, mass=1.0)
        b.add_body(name, joint=ts.Prismatic(axis), placement=placement, inertia=inertia, visuals=[visual])
    return b.build()


def run_of(model, T=0.5, v=(1.0, -1.0), q=(-0.5, 0.5)):
    return ts.simulate(model, q, v, T=T, integrator=ts.BDF1(0.05))


def read(file, size):
    """All frames of a file, decoded by the program ffmpeg."""
    command = [ffmpeg.get_ffmpeg_exe(), "-v", "error", "-i", str(file), "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    raw = subprocess.run(command, capture_output=True, check=True).stdout
    return np.frombuffer(raw, np.uint8).reshape(-1, size[1], size[0], 3)


def pinhole(point, camera, size):
    """Column and row of a point, by the formula of a camera with an angle of 34 degrees."""
    a, e = np.radians([camera.azimuth, camera.elevation])
    back = np.array([np.cos(a) * np.cos(e), np.sin(a) * np.cos(e), np.sin(e)])
    right = np.array([-np.sin(a), np.cos(a), 0])
    up = np.cross(back, right)
    d = np.asarray(point) - (np.array(camera.look_at) + camera.distance * back)
    focal = min(size) / 2 / np.tan(np.radians(17))
    return np.array([size[0] / 2 + focal * (d @ right) / -(d @ back), size[1] / 2 - focal * (d @ up) / -(d @ back)])


def center_of(frame, channel):
    """Mean place of pixels in which a colour prevails over the two others by far."""
    other = np.delete(frame.astype(int), channel, axis=2).max(axis=2)
    rows, columns = np.nonzero(frame[..., channel].astype(int) - other > 60)
    return np.array([columns.mean() + 0.5, rows.mean() + 0.5])


def test_bodies_are_where_they_are(tmp_path):
    model, size = balls(), (200, 160)
    run = run_of(model, v=(1.0, 1.0))
    for camera in (Camera(-60, 20, 5.0, (0, 0, 1)), Camera(10, -5, 4.0, (0.1, 0, 0.9)), Camera(90, 80, 6.0, (0, 0, 1))):
        file = run.movie(tmp_path / "balls.gif", fps=10, size=size, camera=camera, ground=False)
        frames = iio.imread(file)
        assert frames.shape == (6, 160, 200, 3)
        for k, t in enumerate(np.arange(6) / 10):
            poses = ts.body_poses(model, [-0.5 + t, 0.5 + t])
            for body, channel in ((0, 0), (1, 2)):
                place = pinhole(poses[body, :3, 3], camera, size)
                assert np.abs(center_of(frames[k], channel) - place).max() < 1.5


@pytest.mark.parametrize("ending", ["mp4", "gif", "MP4"])
def test_files(tmp_path, ending):
    run = run_of(balls(), T=1.0)
    file = run.movie(tmp_path / f"motion.{ending}", fps=12, size=(128, 96))
    frames = iio.imread(file) if ending == "gif" else read(file, (128, 96))
    assert frames.shape == (13, 96, 128, 3)
    for a, b in pairwise(frames):
        assert np.abs(a.astype(int) - b).max() > 40
    assert [path.name for path in tmp_path.iterdir()] == [f"motion.{ending}"]
    if ending == "gif":
        durations = [iio.immeta(file, index=k)["duration"] for k in range(13)]
        assert set(durations) == {80, 90} and sum(durations) == pytest.approx(13 / 12 * 1000, abs=5)
        assert iio.immeta(file, index=0)["loop"] == 0
    else:
        told = subprocess.run([ffmpeg.get_ffmpeg_exe(), "-i", str(file)], capture_output=True, text=True).stderr
        assert re.search(r"h264.* 128x96.* 12 fps", told) and re.search(r"Duration: 00:00:01\.0[78]", told)


def test_speed_and_times_between_rows(tmp_path):
    run = run_of(balls(), T=0.5)  # eleven rows
    camera = Camera(0, 0, 5.0, (0, 0, 1))
    slow = iio.imread(run.movie(tmp_path / "slow.gif", fps=20, size=(200, 160), speed=0.5, camera=camera))
    assert len(slow) == 21
    at = np.array([center_of(frame, 0)[0] for frame in slow])
    np.testing.assert_allclose(np.diff(at), np.diff(at).mean(), atol=0.7)  # evenly, also between rows
    assert len(iio.imread(run.movie(tmp_path / "fast.gif", fps=20, size=(64, 64), speed=5))) == 3


def test_a_camera_that_moves_along(tmp_path):
    run = run_of(balls(), T=0.5)
    camera = Camera(azimuth=0, elevation=10, track="red")
    frames = iio.imread(run.movie(tmp_path / "track.gif", fps=10, size=(160, 120), camera=camera))
    at = np.array([center_of(frame, 0) for frame in frames])
    assert np.ptp(at, axis=0).max() < 1.0
    fixed = iio.imread(
        run.movie(tmp_path / "fixed.gif", fps=10, size=(160, 120), camera=Camera(azimuth=0, elevation=10))
    )
    assert np.ptp([center_of(frame, 0) for frame in fixed], axis=0)[0] > 10


def test_all_of_the_motion_is_in_view(tmp_path):
    for name in ("acrobot", "quadruped", "arm7"):
        model = getattr(ts.models, name)()
        run = ts.simulate(model, model.random(1), steps=10, integrator=ts.BDF1(0.02))
        frames = iio.imread(run.movie(tmp_path / "all.gif", fps=10, size=(160, 120), ground=False)).astype(int)
        colored = np.ptp(frames, axis=-1) > 40
        assert colored.any(axis=(1, 2)).all()
        assert not colored[:, [0, -1]].any() and not colored[:, :, [0, -1]].any()
        rows, columns = (np.flatnonzero(colored.any(axis=axes)) for axes in ((0, 2), (0, 1)))
        assert max(np.ptp(rows) / 120, np.ptp(columns) / 160) > 0.5


def test_slopes_are_where_they_are(tmp_path):
    """A box above an incline, which is a shape of the model or of a contact."""
    normal = np.array([0.5, 0.0, 1.0]) / np.hypot(0.5, 1.0)
    plane, size = ts.shapes.HalfSpace(normal, 0.1), (160, 120)
    visual, inertia = ts.Visual("box", (0.2, 0.2, 0.2), color=RED), ts.Inertia.box(mass=1, size=(0.2, 0.2, 0.2))
    b = ts.ModelBuilder().add_body("box", joint=ts.Free(), inertia=inertia, visuals=[visual])
    contact = ts.Contact("box", ts.shapes.Box((0.2, 0.2, 0.2)), "world", plane, stiffness=1e4)
    plain, with_plane = b.build(), b.add_world_collision(ts.Collision(plane)).build()
    q = plain.neutral
    q[:3] = 0.25 * normal
    camera = Camera(-70, 40, 2.0, (0, 0, 0.1))
    along = np.array([1.0, 0.0, -0.5]) / np.hypot(0.5, 1.0)
    inside, outside = ([0.1 * normal + d * along - 0.1 * np.array([0, 1, 0])] for d in (0.3, 0.42))
    for model, forces in ((plain, [contact]), (with_plane, [])):
        run = ts.simulate(model, q, steps=1, integrator=ts.BDF1(0.001), forces=forces)
        files = (run.movie(tmp_path / "slope.gif", size=size, camera=camera, ground=g) for g in (None, False))
        changed = np.ptp([iio.imread(file)[0].astype(int) for file in files], axis=0).max(axis=-1)
        for point, there in ((inside, True), (outside, False)):
            column, row = np.floor(pinhole(point[0], camera, size)).astype(int)
            assert (changed[row, column] > 15) == there


def test_batches_side_by_side(tmp_path):
    model = balls()
    run = ts.simulate(
        model, np.zeros((4, 2)), np.array([[1, 0], [-1, 0], [0, 1], [0, 0]]), steps=2, integrator=ts.BDF1(0.1)
    )
    camera = Camera(azimuth=0, elevation=0)
    one = iio.imread(run.movie(tmp_path / "one.gif", fps=5, size=(400, 120), index=1, camera=camera))
    three = iio.imread(run.movie(tmp_path / "three.gif", fps=5, size=(400, 120), index=[0, 1, 3], camera=camera))

    def count(frame):
        """Number of red spots along the width."""
        red = (frame[..., 0].astype(int) - frame[..., 1:].max(axis=2) > 60).any(axis=0)
        return int(np.diff(red.astype(int)).clip(0).sum())

    assert [count(frame) for frame in one] == [1, 1]
    assert [count(frame) for frame in three] == [3, 3]
    with pytest.raises(IndexError, match="index is 4, but the batch has 4"):
        run.movie(tmp_path / "x.gif", index=[0, 4])


def test_coupled_models_and_failed_motions(tmp_path):
    from test_pictures import hand

    run = ts.simulate(hand(), [0.4], [2.0], steps=5, integrator=ts.BDF2(0.02))
    frames = iio.imread(run.movie(tmp_path / "hand.gif", fps=50, size=(64, 64)))
    assert len(frames) == 6 and np.abs(frames[0].astype(int) - frames[-1]).max() > 40
    q = np.array(run.q)
    q[3:] = np.nan
    torn = ts.Trajectory(run.model, run.integrator, (), run.t, q, run.v, run.a, None, run.substeps)
    assert len(iio.imread(torn.movie(tmp_path / "torn.gif", fps=50, size=(64, 64)))) == 3
    single = ts.simulate(ts.models.pendulum(), [0.5], steps=0, integrator=ts.BDF1(0.01))
    assert read(single.movie(tmp_path / "single.mp4", size=(64, 64)), (64, 64)).shape == (1, 64, 64, 3)


def test_progress(tmp_path, capsys):
    pytest.importorskip("tqdm")
    run = run_of(balls(), T=0.2)
    run.movie(tmp_path / "quiet.gif", fps=10, size=(32, 32))
    assert capsys.readouterr() == ("", "")
    run.movie(tmp_path / "shown.gif", fps=10, size=(32, 32), progress=True)
    assert "3/3" in capsys.readouterr().err


def test_errors(tmp_path, monkeypatch):
    run = run_of(balls(), T=0.1)
    with pytest.raises(ValueError, match=r"ends in '.avi', expected a name that ends in .mp4 or .gif"):
        run.movie(tmp_path / "motion.avi")
    with pytest.raises(ValueError, match="ends in '', expected"):
        run.movie(tmp_path / "motion")
    with pytest.raises(FileNotFoundError, match=r"no directory .*nowhere.* to write 'motion.mp4' to; make it first"):
        run.movie(tmp_path / "nowhere" / "motion.mp4")
    (tmp_path / "taken.gif").mkdir()
    with pytest.raises(IsADirectoryError, match="is a directory, expected the name of a file"):
        run.movie(tmp_path / "taken.gif")
    with pytest.raises(OSError, match="cannot be written: File name too long; choose another place"):
        run.movie(tmp_path / f"{'a' * 300}.gif")
    with pytest.raises(ValueError, match=r"size is \(641, 480\), but an mp4 file needs even numbers; \(642, 480\) is"):
        run.movie(tmp_path / "odd.mp4", size=(641, 480))
    assert iio.imread(run.movie(tmp_path / "odd.gif", size=(41, 33), fps=10)).shape[1:3] == (33, 41)
    for size in ((0, 0), (640,), (64.5, 32), (10**6, 64)):
        with pytest.raises(ValueError, match=r"expected \(width, height\) in pixels, 16 to 8192 each"):
            run.movie(tmp_path / "size.gif", size=size)
    for name in ("fps", "speed"):
        for value in (0, -1, np.nan, np.inf):
            with pytest.raises(ValueError, match=f"{name} is .*, expected a number above 0"):
                run.movie(tmp_path / "rate.gif", **{name: value})
    with pytest.raises(ValueError, match="fps is 60, but programs show at most 50 frames of a gif file per second"):
        run.movie(tmp_path / "rate.gif", fps=60)
    with pytest.raises(KeyError, match="no body named 'green'"):
        run.movie(tmp_path / "camera.gif", camera=Camera(track="green"))
    with pytest.raises(ValueError, match="show is 'all'"):
        run.movie(tmp_path / "show.gif", show="all")
    empty = ts.Trajectory(
        run.model, run.integrator, (), run.t[:0], run.q[:0], run.v[:0], run.a[:0], None, run.substeps[:0]
    )
    with pytest.raises(ValueError, match="the trajectory has no rows, so there is nothing to draw"):
        empty.movie(tmp_path / "empty.gif")
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    with pytest.raises(ImportError, match=r"movie needs imageio with Pillow and ffmpeg: pip install 'torsor\[view\]'"):
        run.movie(tmp_path / "extra.mp4", size=(32, 32))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["odd.gif", "taken.gif"]


def test_a_movie_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    run = run_of(balls(), T=0.3)
    file = run.movie(tmp_path / "motion.gif", size=(32, 32), fps=10)
    before = file.read_bytes()
    drawn = []

    def render(*args):
        drawn.append(args)
        if len(drawn) == 2:
            raise KeyboardInterrupt
        return np.zeros((32, 32, 3), np.uint8)

    monkeypatch.setattr(raster, "render", render)
    with pytest.raises(KeyboardInterrupt):
        run.movie(file, size=(32, 32), fps=10)
    assert file.read_bytes() == before and [path.name for path in tmp_path.iterdir()] == ["motion.gif"]


# ---- the renderer


def picture(*parts, azimuth=0.0, elevation=0.0, ground=None, size=(240, 200), distance=10.0):
    view = raster.View.of(np.zeros(3), azimuth, elevation, distance, size, 34.0)
    light = np.array([0.6, -0.3, 0.74])
    back = raster.backdrop(view, ground, 0.5, 3.0)
    poses = np.eye(4)[None]
    return raster.render(raster.Mesh(parts), poses, view, light / np.linalg.norm(light), ground, 3.0, back), view


def ball(at, radius, color):
    vertices, faces = primitive("sphere", (radius,))
    return Part(-1, vertices + at, faces, color, "ball")


def colored(image, channel):
    return image[..., channel].astype(int) - np.delete(image, channel, axis=2).max(axis=2) > 40


def test_size_of_a_ball():
    image, view = picture(ball((0, 0, 0), 1.0, BLUE))
    radius = view.focal * 1.0 / np.sqrt(10.0**2 - 1.0)  # of the outline of a sphere
    assert colored(image, 2).sum() == pytest.approx(np.pi * radius**2, rel=0.03)


def test_near_hides_far():
    near, far = ball((2.0, 0, 0), 0.5, RED), ball((-2.0, 0, 0), 0.5, BLUE)
    for parts in ((near, far), (far, near)):
        image, _ = picture(*parts)
        middle = image[100, 120].astype(int)
        assert middle[0] > middle[2] + 50
    image, _ = picture(near, far, azimuth=180.0)
    assert image[100, 120, 2] > 50 + image[100, 120, 0].astype(int)


def test_surfaces_that_cut_each_other():
    """Two boxes that cross: at each pixel the nearer one is seen, not the one that comes last."""
    vertices, faces = primitive("box", (0.2, 2.0, 1.0))
    parts = []
    for angle, color in ((0.4, RED), (-0.4, BLUE)):
        R = ts.SE3.rotation((0, 0, 1), angle).R
        parts.append(Part(-1, vertices @ R.T, faces, color, "box"))
    image, _ = picture(*parts)
    row = image[100]
    left, right = colored(row[None], 0)[0], colored(row[None], 2)[0]
    assert left[:115].any() != right[:115].any() and left[125:].any() != right[125:].any()


def test_round_surfaces_look_round_and_edges_sharp():
    def jumps(part):
        image, _ = picture(part, elevation=15.0)
        line = image[100, :, 2].astype(int)
        inside = np.flatnonzero(colored(image[100:101], 2)[0])[4:-4]
        return np.abs(np.diff(line[inside])).max()

    round_one = Part(-1, *primitive("cylinder", (1.0, 2.0)), BLUE, "cylinder")
    vertices, faces = primitive("box", (1.4, 1.4, 2.0))
    edged = Part(-1, vertices @ ts.SE3.rotation((0, 0, 1), 0.6).R.T, faces, BLUE, "box")
    assert jumps(round_one) < 8 < 16 < jumps(edged)


def test_shadows_fall_on_the_ground():
    part = ball((0, 0, 1.0), 0.5, BLUE)
    plain, _ = picture(elevation=30.0, ground=0.0)
    image, view = picture(part, elevation=30.0, ground=0.0)
    light = np.array([0.6, -0.3, 0.74])
    place, _ = view.project(np.array([0, 0, 1.0]) - light / light[2])
    x, y = np.round(place).astype(int)
    assert image[y, x].mean() < 0.8 * plain[y, x].mean()
    assert not colored(image, 2)[y, x]
    assert (image[:5] == plain[:5]).all()  # the sky


def test_what_is_behind_the_camera_or_too_small_is_left_out():
    empty, _ = picture()
    for part in (ball((20.0, 0, 0), 1.0, RED), ball((0, 50.0, 0), 1.0, RED)):
        assert (picture(part)[0] == empty).all()
    assert (picture(Part(-1, np.zeros((3, 3)), np.array([[0, 1, 2]]), RED, "point"))[0] == empty).all()


def test_merging_small_triangles_changes_little():
    vertices, faces = primitive("sphere", (1.0,))
    part = Part(-1, vertices, faces, BLUE, "ball")
    fine, coarse = raster.Mesh([part]), raster.Mesh([part], cell=0.2)
    assert len(coarse.faces) < 0.7 * len(fine.faces)
    assert np.abs(np.linalg.norm(coarse.vertices, axis=1) - 1.0).max() < 1e-6
