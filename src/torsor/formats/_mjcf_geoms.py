"""Geoms of MJCF files: visuals, collision shapes, and the rules of contact."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from torsor.collision import Collision, CollisionPair, CollisionRules
from torsor.formats._mjcf_names import Names, mujoco_package, pose_of
from torsor.model import Visual
from torsor.shapes import Box, Capsule, Cylinder, Ellipsoid, HalfSpace, HeightField, Mesh, Sphere

if TYPE_CHECKING:
    import mujoco

    from torsor import shapes
    from torsor._typing import Shape

_DEFAULT_RGBA = np.array([0.5, 0.5, 0.5, 1.0], np.float32)  # of geoms; only then does the material's show
_LAST_SHOWN = 2  # of the groups of geoms, those that MuJoCo shows by default


def visuals_of(mj: mujoco.MjModel, body: int) -> tuple[Visual, ...]:
    """Geoms of a body that MuJoCo shows by default. It has half sizes and half lengths; visuals have whole ones."""
    kinds = mujoco_package().mjtGeom
    visuals = []
    for geom in range(mj.body_geomadr[body], mj.body_geomadr[body] + mj.body_geomnum[body]):
        if mj.geom_group[geom] > _LAST_SHOWN:
            continue
        kind, (x, y, z) = kinds(mj.geom_type[geom]), mj.geom_size[geom].tolist()
        placement = pose_of(mj.geom_pos[geom], mj.geom_quat[geom])
        mesh, scale = None, (1.0, 1.0, 1.0)
        shape: Shape
        size: tuple[float, ...] = ()
        if kind == kinds.mjGEOM_BOX:
            shape, size = "box", (2.0 * x, 2.0 * y, 2.0 * z)
        elif kind == kinds.mjGEOM_SPHERE:
            shape, size = "sphere", (x,)
        elif kind == kinds.mjGEOM_CYLINDER:
            shape, size = "cylinder", (x, 2.0 * y)
        elif kind == kinds.mjGEOM_CAPSULE:
            shape, size = "capsule", (x, 2.0 * y)
        elif kind == kinds.mjGEOM_ELLIPSOID:
            shape, size = "ellipsoid", (x, y, z)
        elif kind in (kinds.mjGEOM_MESH, kinds.mjGEOM_SDF):
            shape, asset = "mesh", mj.geom_dataid[geom]
            if mj.mesh_pathadr[asset] < 0:  # given by its vertices: there is no file to draw
                continue
            mesh = bytes(mj.paths)[mj.mesh_pathadr[asset] :].split(b"\0", 1)[0].decode()
            scale = tuple(mj.mesh_scale[asset].tolist())
            # MuJoCo centres meshes and turns them to their principal axes; back to the file's frame
            placement = placement @ pose_of(mj.mesh_pos[asset], mj.mesh_quat[asset]).inverse()
        else:
            continue
        color = mj.geom_rgba[geom]
        if mj.geom_matid[geom] >= 0 and np.array_equal(color, _DEFAULT_RGBA):
            color = mj.mat_rgba[mj.geom_matid[geom]]
        red, green, blue, alpha = color.tolist()
        file = None if mesh is None else os.path.abspath(mesh)  # MuJoCo's is seen from the current directory
        visuals.append(Visual(shape, size, placement, (red, green, blue, alpha), mesh, scale, file))
    return tuple(visuals)


# ---- collision


def is_contact_disabled(mj: mujoco.MjModel) -> bool:
    """Whether nothing touches in this file."""
    flags = mujoco_package().mjtDisableBit
    return bool(mj.opt.disableflags & (int(flags.mjDSBL_CONTACT) | int(flags.mjDSBL_CONSTRAINT)))


def geom_fault(mj: mujoco.MjModel, geom: int) -> str | None:
    """Why the shape of a geom that may touch others cannot be held, or None."""
    kinds = mujoco_package().mjtGeom
    return "is a signed distance field" if kinds(mj.geom_type[geom]) == kinds.mjGEOM_SDF else None


def collisions_of(mj: mujoco.MjModel, names: Names, body: int) -> tuple[Collision, ...]:
    """Geoms of a body that may touch others."""
    if is_contact_disabled(mj):
        return ()
    paired = {*mj.pair_geom1.tolist(), *mj.pair_geom2.tolist()}
    out = []
    for geom in range(mj.body_geomadr[body], mj.body_geomadr[body] + mj.body_geomnum[body]):
        contype, conaffinity = int(mj.geom_contype[geom]), int(mj.geom_conaffinity[geom])
        if not (contype or conaffinity or geom in paired) or (shape := _shape(mj, geom)) is None:
            continue
        out.append(
            Collision(
                shape,
                names.geoms[geom],
                friction=float(mj.geom_friction[geom, 0]),
                contype=contype,
                conaffinity=conaffinity,
                priority=int(mj.geom_priority[geom]),
                condim=int(mj.geom_condim[geom]),
                solref=tuple(mj.geom_solref[geom].tolist()),
                solimp=tuple(mj.geom_solimp[geom].tolist()),
                solmix=float(mj.geom_solmix[geom]),
                margin=float(mj.geom_margin[geom]),
                gap=float(mj.geom_gap[geom]),
            )
        )
    return tuple(out)


def rules_of(mj: mujoco.MjModel, names: Names) -> CollisionRules:
    """The section <contact> of the file, and the flag that parents and children touch."""
    if is_contact_disabled(mj):
        return CollisionRules("filter_moving")
    exclude = [(names.bodies[int(s) >> 16], names.bodies[int(s) & 0xFFFF]) for s in mj.exclude_signature]
    pairs = []
    for i in range(mj.npair):
        geoms = [int(ends[i]) for ends in (mj.pair_geom1, mj.pair_geom2)]
        if any(_shape(mj, geom) is None for geom in geoms):
            continue
        first, second = (names.geoms[geom] for geom in geoms)
        pairs.append(
            CollisionPair(
                first or "",
                second or "",
                friction=float(mj.pair_friction[i, 0]),
                condim=int(mj.pair_dim[i]),
                solref=tuple(mj.pair_solref[i].tolist()),
                solimp=tuple(mj.pair_solimp[i].tolist()),
                margin=float(mj.pair_margin[i]),
                gap=float(mj.pair_gap[i]),
            )
        )
    allow = mj.opt.disableflags & mujoco_package().mjtDisableBit.mjDSBL_FILTERPARENT
    return CollisionRules("allow" if allow else "filter_moving", tuple(exclude), tuple(pairs))


def _shape(mj: mujoco.MjModel, geom: int) -> shapes.Shape | None:
    """The shape of a geom. MuJoCo has half sizes and half lengths; shapes have whole ones."""
    kinds = mujoco_package().mjtGeom
    kind, (x, y, z) = kinds(mj.geom_type[geom]), mj.geom_size[geom].tolist()
    placement = pose_of(mj.geom_pos[geom], mj.geom_quat[geom])
    asset = int(mj.geom_dataid[geom])
    if kind == kinds.mjGEOM_PLANE:
        normal = placement.R[:, 2]
        return HalfSpace(normal, float(normal @ placement.p))
    if kind == kinds.mjGEOM_SPHERE:
        return Sphere(x, placement.p)
    if kind == kinds.mjGEOM_CAPSULE:
        return Capsule(x, 2.0 * y, placement)
    if kind == kinds.mjGEOM_CYLINDER:
        return Cylinder(x, 2.0 * y, placement)
    if kind == kinds.mjGEOM_BOX:
        return Box((2.0 * x, 2.0 * y, 2.0 * z), placement)
    if kind == kinds.mjGEOM_ELLIPSOID:
        return Ellipsoid((x, y, z), placement)
    if kind == kinds.mjGEOM_HFIELD:
        size, first = mj.hfield_size[asset].tolist(), int(mj.hfield_adr[asset])
        rows, columns = int(mj.hfield_nrow[asset]), int(mj.hfield_ncol[asset])
        heights = size[2] * mj.hfield_data[first : first + rows * columns].reshape(rows, columns).astype(np.float64)
        return HeightField(heights, (2.0 * size[0], 2.0 * size[1]), size[3], placement)
    if kind == kinds.mjGEOM_MESH:
        path = None
        if mj.mesh_pathadr[asset] >= 0:
            path = bytes(mj.paths)[mj.mesh_pathadr[asset] :].split(b"\0", 1)[0].decode()
        return Mesh(path, mj.mesh_scale[asset], placement, *_hull(mj, asset))
    return None


def _hull(mj: mujoco.MjModel, mesh: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Vertices and triangles of the convex hull of a mesh, or all of them if MuJoCo has made none."""
    first, count = int(mj.mesh_vertadr[mesh]), int(mj.mesh_vertnum[mesh])
    vertices = mj.mesh_vert[first : first + count].astype(np.float64)
    at = int(mj.mesh_graphadr[mesh])
    if at < 0:
        first, count = int(mj.mesh_faceadr[mesh]), int(mj.mesh_facenum[mesh])
        return vertices, mj.mesh_face[first : first + count].astype(np.int64)
    # the graph: numbers of vertices and triangles, where the edges of each vertex begin, which vertices of the mesh
    # they are, the edges, and the triangles by vertices of the mesh
    graph = mj.mesh_graph[at:]
    points, triangles = int(graph[0]), int(graph[1])
    used = graph[2 + points : 2 + 2 * points]
    faces = graph[2 + 2 * points + points + 3 * triangles :][: 3 * triangles]
    number = np.zeros(count, np.int64)
    number[used] = np.arange(points)
    return vertices[used], number[faces].reshape(triangles, 3)
