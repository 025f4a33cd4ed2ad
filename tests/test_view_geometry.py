"""What is drawn of models: shapes have their sizes, volumes and inertias, are where the bodies are, and no model is
without any."""

import numpy as np
import pytest
import trimesh
from coupled_models import MAPS, tree
from population import JOINTS, models
from scipy.spatial import cKDTree

import torsor as ts
from torsor import shapes, testing
from torsor.view import geometry
from torsor.view.stage import Figure

# Circles are polygons of 32 corners, whose area is 0.994 of theirs; spheres lose 1.6 percent, moments a little more.
ROUND = 0.03


def solid(part):
    """The part as one closed surface: corners at sharp edges are there once for each face."""
    return trimesh.Trimesh(part.vertices, part.faces, process=True)


def shown(model, i, show="visual"):
    return [part for part in geometry.parts(model, show) if part.body == i]


# ---- shapes


@pytest.mark.parametrize(
    ("shape", "size", "lengths", "volume"),
    [
        ("box", (0.2, 0.3, 0.5), (0.2, 0.3, 0.5), 0.03),
        ("sphere", (0.4,), (0.8, 0.8, 0.8), 4 / 3 * np.pi * 0.4**3),
        ("cylinder", (0.3, 0.7), (0.6, 0.6, 0.7), np.pi * 0.09 * 0.7),
        ("capsule", (0.3, 0.7), (0.6, 0.6, 1.3), np.pi * 0.09 * (0.7 + 4 / 3 * 0.3)),
        ("capsule", (0.3, 0.0), (0.6, 0.6, 0.6), 4 / 3 * np.pi * 0.027),
        ("ellipsoid", (0.1, 0.2, 0.4), (0.2, 0.4, 0.8), 4 / 3 * np.pi * 0.008),
    ],
)
def test_primitives_are_closed_surfaces_of_their_size(shape, size, lengths, volume):
    surface = trimesh.Trimesh(*geometry.primitive(shape, size))
    assert surface.is_watertight
    np.testing.assert_allclose(np.ptp(surface.vertices, axis=0), lengths, rtol=1e-12)
    assert surface.volume == pytest.approx(volume, rel=1e-12 if shape == "box" else ROUND)


@pytest.mark.parametrize("seed", range(6))
def test_solids_of_inertias_have_these_inertias(seed):
    rng = np.random.default_rng(seed)
    pose = testing.random_pose(rng)
    inertia = [
        lambda: testing.random_inertia(rng),
        lambda: ts.Inertia.box(mass=2.0, size=(0.3, 0.5, 0.1), com=pose.p, rotation=pose.R),
        lambda: ts.Inertia.sphere(mass=2.0, radius=0.3, com=pose.p),
        lambda: ts.Inertia.cylinder(mass=2.0, radius=0.1, length=0.9, com=pose.p, rotation=pose.R),
        lambda: ts.Inertia.cylinder(mass=2.0, radius=0.9, length=0.1, com=pose.p, rotation=pose.R),
        lambda: ts.Inertia.ellipsoid((0.3, 0.2, 0.6), mass=2.0, com=pose.p, rotation=pose.R),
    ][seed]()
    model = ts.ModelBuilder().add_body("body", "world", ts.Free(), ts.SE3(), inertia).build()
    (part,) = shown(model, 0, "inertia")
    surface = solid(part)
    surface.density = inertia.mass / surface.volume
    exact = len(part.faces) == 12
    np.testing.assert_allclose(surface.center_mass, inertia.com, atol=1e-9)
    size = np.linalg.eigvalsh(inertia.I_com)[-1]
    np.testing.assert_allclose(surface.moment_inertia, inertia.I_com, atol=(1e-9 if exact else ROUND) * size)


def test_solids_of_inertias_without_size_can_be_seen():
    builder = ts.ModelBuilder()
    builder.add_body("point", "world", ts.Free(), ts.SE3(), ts.Inertia.point(2.0, (0, 0, 1)))
    rod = ts.Inertia(1.0, (0, 0, 0.5), np.diag([1 / 12, 1 / 12, 0.0]))
    builder.add_body("rod", "point", ts.Spherical(), ts.SE3.translation(0, 0, 1), rod)
    odd = ts.Inertia(1.0, (0, 0, 0), np.diag([1.0, 1.0, 3.0]), allow_unphysical=True)
    builder.add_body("odd", "rod", ts.Spherical(), ts.SE3(), odd)
    for part in geometry.parts(builder.build()):
        assert np.isfinite(part.vertices).all()
        assert solid(part).volume > 1e-6


def test_shapes_of_contact_are_drawn_where_they_are():
    pose = ts.SE3.translation(1, 2, 3) @ ts.SE3.rotation((0, 1, 0), 0.7)
    for shape, volume in (
        (shapes.Sphere(0.2, pose.p), 4 / 3 * np.pi * 0.008),
        (shapes.Box((0.2, 0.4, 0.6), pose), 0.048),
        (shapes.Capsule(0.1, 0.5, pose), np.pi * 0.01 * (0.5 + 0.4 / 3)),
        (shapes.Cylinder(0.1, 0.5, pose), np.pi * 0.01 * 0.5),
        (shapes.Ellipsoid((0.1, 0.2, 0.3), pose), 4 / 3 * np.pi * 0.006),
    ):
        surface = trimesh.Trimesh(*geometry.shape_surface(shape, 1.0))
        assert surface.volume == pytest.approx(volume, rel=ROUND)
        np.testing.assert_allclose(surface.center_mass, pose.p, atol=1e-9)
    hull = shapes.Mesh(vertices=[(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1)], placement=pose,
                       faces=[(0, 2, 1), (0, 1, 3), (0, 3, 2), (1, 2, 3)])  # fmt: skip
    assert trimesh.Trimesh(*geometry.shape_surface(hull, 1.0)).volume == pytest.approx(1 / 6)
    assert geometry.shape_surface(shapes.Mesh("some.stl"), 1.0) is None


def test_half_spaces_and_height_fields_are_surfaces_with_the_outside_up():
    vertices, faces = geometry.shape_surface(shapes.HalfSpace((0, 0, 2), 0.3), 5.0)
    np.testing.assert_allclose(vertices[:, 2], 0.3)
    assert trimesh.Trimesh(vertices, faces).area == pytest.approx(100.0)
    heights = np.arange(12.0).reshape(3, 4)
    surface = trimesh.Trimesh(*geometry.shape_surface(shapes.HeightField(heights, (3.0, 2.0)), 1.0))
    assert (surface.face_normals[:, 2] > 0).all()
    # rows are along y, columns along x, from the smallest coordinates up
    np.testing.assert_allclose(
        surface.vertices[:, 2], (surface.vertices[:, 0] + 1.5) + 4 * (surface.vertices[:, 1] + 1)
    )


# ---- every model


@pytest.mark.parametrize("model", [*models(5), *(pytest.param(tree().couple(*MAPS[k]), id=k) for k in MAPS)])
def test_every_moving_body_is_seen(model):
    carriers, _ = geometry.rigid_groups(model)
    for show in ("visual", "inertia", "skeleton"):
        seen = {carriers[part.body] for part in geometry.parts(model, show) if part.body >= 0}
        assert seen >= {carrier for carrier in carriers if carrier >= 0}
    extent = geometry.extent(model, model.neutral)
    assert np.isfinite(extent).all()
    assert extent.size > 0


def test_models_with_little_to_see():
    empty = ts.ModelBuilder().build()
    assert geometry.parts(empty) == ()
    assert geometry.extent(empty, np.zeros(0)).size > 0
    massless = ts.ModelBuilder().add_body("one", "world", ts.Revolute(), ts.SE3(), ts.Inertia.zero()).build()
    assert len(geometry.parts(massless)) == 1
    assert geometry.extent(massless, massless.neutral).size > 0
    assert len(geometry.parts(ts.models.chain(1000))) >= 1000


def test_names_are_unique_and_arguments_are_checked():
    model = ts.models.humanoid()
    for show in ("visual", "collision", "inertia", "skeleton"):
        names = [part.name for part in geometry.parts(model, show)]
        assert len(set(names)) == len(names)
    with pytest.raises(ValueError, match="show is 'all', expected 'visual', 'collision', 'inertia' or 'skeleton'"):
        geometry.parts(model, "all")
    with pytest.raises(TypeError, match="Model"):
        geometry.parts("humanoid")


class Scene:
    """A scene that remembers its nodes, as viser's does."""

    class Node:
        def __init__(self, **given):
            self.wxyz, self.position = (1.0, 0.0, 0.0, 0.0), (0.0, 0.0, 0.0)
            self.__dict__.update(given)

        def points(self):
            """All vertices, where they are drawn."""
            turns = getattr(self, "batched_wxyzs", [self.wxyz])
            places = getattr(self, "batched_positions", [self.position])
            poses = [ts.SE3.from_quaternion(np.roll(q, -1), p) for q, p in zip(turns, places, strict=True)]
            return [pose @ self.vertices.astype(float) for pose in poses]

    def __init__(self):
        self.offset, self.nodes = None, []

    def add_frame(self, name, **given):
        self.offset = given["position"]

    def add_mesh_simple(self, name, **given):
        self.nodes.append(self.Node(**given))
        return self.nodes[-1]

    def add_batched_meshes_simple(self, name, **given):
        return self.add_mesh_simple(name, **given)


@pytest.mark.parametrize(
    "model", [ts.models.humanoid(), ts.models.chain(20), *models(3)[:2], tree().couple(*MAPS["mimic"])]
)
def test_figures_are_at_the_poses_of_their_bodies(model):
    q, offset = model.random(np.random.default_rng(1)), np.array([1.0, -2.0, 0.5])
    drawn, scene = geometry.parts(model, "inertia"), Scene()
    figure = Figure(scene, "/model", model, drawn, offset)
    figure.move(ts.body_poses(model, model.neutral))
    figure.move(ts.body_poses(model, q))
    there = np.concatenate([points for node in scene.nodes for points in node.points()]) + scene.offset
    poses = (ts.SE3.from_matrix(ts.body_pose(model, q, model.bodies[part.body].name)) for part in drawn)
    expected = np.concatenate([pose @ part.vertices for pose, part in zip(poses, drawn, strict=True)]) + offset
    assert len(there) == len(expected)
    for one, other in ((there, expected), (expected, there)):
        assert cKDTree(one).query(other)[0].max() < 1e-5  # of float32


# ---- meshes

ROBOT = """<robot name="r"><link name="base"/>{links}</robot>"""
LINK = """<link name="{name}"><inertial><mass value="1"/><inertia ixx="1" ixy="0" ixz="0" iyy="1" iyz="0" izz="1"/>
</inertial><visual><origin xyz="0 0 1"/><geometry><mesh filename="{mesh}" scale="2 1 1"/></geometry></visual>
<collision><geometry><mesh filename="{mesh}"/></geometry></collision></link>
<joint name="to_{name}" type="revolute"><parent link="base"/><child link="{name}"/><limit/></joint>"""


def robot(*meshes):
    return ROBOT.format(links="".join(LINK.format(name=f"link{k}", mesh=mesh) for k, mesh in enumerate(meshes)))


@pytest.fixture
def package(tmp_path):
    """A package 'robot_data' with a mesh, a box, and a directory for a file beside it."""
    (tmp_path / "robot_data" / "meshes").mkdir(parents=True)
    (tmp_path / "robot_data" / "urdf").mkdir()
    trimesh.creation.box((0.1, 0.2, 0.3)).export(tmp_path / "robot_data" / "meshes" / "box.stl")
    return tmp_path


@pytest.mark.parametrize("mesh", ["package://robot_data/meshes/box.stl", "model://robot_data/meshes/box.stl",
                                  "../meshes/box.stl", "file://{package}/robot_data/meshes/box.stl",
                                  "{package}/robot_data/meshes/box.stl"])  # fmt: skip
def test_meshes_are_found_from_the_file(package, mesh):
    path = package / "robot_data" / "urdf" / "robot.urdf"
    path.write_text(robot(mesh.format(package=package)))
    model = ts.load_urdf(path)
    assert model.bodies[1].visuals[0].mesh == mesh.format(package=package)  # as it is written
    (part,) = shown(model, 1)
    surface = solid(part)
    np.testing.assert_allclose(surface.center_mass, (0, 0, 1), atol=1e-7)
    np.testing.assert_allclose(np.ptp(part.vertices, axis=0), (0.2, 0.2, 0.3), rtol=1e-6)  # of an STL file's float32
    (part,) = shown(model, 1, "collision")
    assert solid(part).volume == pytest.approx(0.006)


def test_meshes_are_found_by_packages_and_by_the_environment(package, tmp_path_factory, monkeypatch):
    text = robot("package://robot_data/meshes/box.stl")
    (part,) = shown(ts.load_urdf(text, packages={"robot_data": package / "robot_data"}), 1)
    assert part.kind == "visual"
    other = tmp_path_factory.mktemp("elsewhere")
    for variable, value in (
        ("ROS_PACKAGE_PATH", f"{other}:{package}"),
        ("ROS_PACKAGE_PATH", f"{package / 'robot_data'}"),
    ):
        monkeypatch.setenv(variable, value)
        assert shown(ts.load_urdf(text), 1)[0].kind == "visual"
    monkeypatch.delenv("ROS_PACKAGE_PATH")
    (package / "share").symlink_to(package)
    monkeypatch.setenv("AMENT_PREFIX_PATH", str(package))
    assert shown(ts.load_urdf(text), 1)[0].kind == "visual"
    with pytest.raises(FileNotFoundError, match=r"packages has '.*nowhere' for 'robot_data', which is no directory"):
        ts.load_urdf(text, packages={"robot_data": package / "nowhere"})
    with pytest.raises(TypeError, match="packages must be a dict of directories by names"):
        ts.load_urdf(text, packages=[package])


def test_meshes_that_are_missing_are_named_once_and_replaced_by_inertias(tmp_path):
    (tmp_path / "odd.stl").write_text("nothing of a mesh")
    model = ts.load_urdf(robot("package://none/a.stl", "b.dae", str(tmp_path / "odd.stl"), "b.dae"))
    with pytest.warns(ts.FormatWarning, match=r"none/a\.stl': no such file; 'b\.dae': no such file; '.*odd") as found:
        geometry.parts(model)
    assert len(found) == 1
    for i in range(1, 5):
        assert [part.kind for part in shown(model, i)][:1] == ["inertia"]  # warns no more


def test_meshes_without_trimesh_name_the_extra(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "trimesh", None)
    with pytest.raises(ImportError, match=r"torsor\[view\]"):
        geometry.mesh_surfaces("box.stl")


def test_mirrored_meshes_keep_their_outside_and_colours_are_those_of_the_file(tmp_path):
    box = trimesh.creation.box((0.1, 0.2, 0.3))
    box.export(tmp_path / "box.stl")
    (((vertices, faces), color),) = geometry.mesh_surfaces(tmp_path / "box.stl", (-1.0, 2.0, 1.0))
    assert trimesh.Trimesh(vertices, faces).volume == pytest.approx(0.012)
    assert color is None
    box.visual.face_colors = (255, 0, 51, 255)
    box.export(tmp_path / "box.ply")
    ((_, color),) = geometry.mesh_surfaces(tmp_path / "box.ply")
    np.testing.assert_allclose(color, (1.0, 0.0, 0.2, 1.0))


def test_meshes_of_mjcf_files(tmp_path, monkeypatch):
    (tmp_path / "assets").mkdir()
    trimesh.creation.box((0.1, 0.2, 0.3)).apply_translation((1, 0, 0)).export(tmp_path / "assets" / "box.stl")
    (tmp_path / "model.xml").write_text("""<mujoco><compiler meshdir="assets"/>
    <asset><mesh name="box" file="box.stl" scale="2 1 1"/></asset><worldbody><geom type="plane" size="1 1 1"/>
    <body name="one" pos="0 0 3"><freejoint/><geom type="mesh" mesh="box" rgba="1 0 0 1" mass="1"/>
    <geom type="sphere" size="0.5" group="3" mass="1"/></body></worldbody></mujoco>""")
    monkeypatch.chdir(tmp_path)
    model = ts.load_mjcf("model.xml")
    monkeypatch.chdir("/")
    (part,) = shown(model, 0)  # without the sphere, which is for collision alone
    np.testing.assert_allclose(part.vertices.min(axis=0), (1.9, -0.1, -0.15), atol=1e-6)
    np.testing.assert_allclose(part.vertices.max(axis=0), (2.1, 0.1, 0.15), atol=1e-6)
    assert part.color == (1.0, 0.0, 0.0, 1.0)
    assert {part.kind for part in shown(model, -1)} == {"collision"}


def test_coarser_parts_have_fewer_triangles_and_the_same_form():
    ball = trimesh.creation.icosphere(subdivisions=5)
    part = geometry.Part(0, np.asarray(ball.vertices), np.asarray(ball.faces, np.int32), (1, 1, 1, 1), "ball")
    assert geometry.coarser(part, 30_000) is part
    coarse = geometry.coarser(part, 2_000)
    assert 500 < len(coarse.faces) <= 2_000
    assert solid(coarse).volume == pytest.approx(ball.volume, rel=0.15)


def test_joints_of_all_kinds_have_something_to_see_by_themselves():
    for joint in JOINTS:
        model = ts.ModelBuilder().add_body("one", "world", joint, ts.SE3(), ts.Inertia.zero()).build()
        assert geometry.parts(model), joint
