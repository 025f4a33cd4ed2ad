"""Every joint of the library on one body, and what its coordinates mean."""

import numpy as np

import torsor as ts

joints = [
    ts.Fixed(),
    ts.Revolute(axis=(0, 0, 1)),
    ts.Prismatic(axis=(1, 0, 0)),
    ts.Screw(axis=(0, 0, 1), pitch=0.01),
    ts.Cylindrical(axis=(0, 0, 1)),
    ts.Planar(),
    ts.Translational(),
    ts.Universal(),
    ts.Spherical(),
    ts.SphericalEuler("ZYX"),
    ts.SphericalExp(),
    ts.Free(),
    ts.Free2D(),
    ts.Composite(ts.Translational(), ts.SphericalEuler("XYZ")),
    ts.SplineCurve([ts.SE3.rotation((0, 0, 1), 0.4 * k) @ ts.SE3.translation(1, 0, 0.1 * k) for k in range(6)]),
    ts.SplineSurface(0.1 * np.random.default_rng(0).standard_normal((6, 4, 4))),
]

rng = np.random.default_rng(1)
brick = ts.Inertia.box(size=(0.1, 0.2, 0.3), mass=1.0)
print(f"{'joint':16} nq nv   pose of the body after plus(neutral, dv)")
for joint in joints:
    b = ts.ModelBuilder()
    b.add_body("brick", joint=joint, inertia=brick)
    model = b.build()
    dv = 0.1 * rng.standard_normal(model.nv)
    q = model.plus(model.neutral, dv)
    assert np.allclose(model.minus(q, model.neutral), dv)
    position = ts.body_poses(model, q)[0, :3, 3]
    print(f"{type(joint).__name__:16} {model.nq:2} {model.nv:2}   at {np.round(position, 3)}")
