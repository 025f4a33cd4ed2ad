"""A model from a URDF, on a free base; locking a joint and changing an inertia make new models."""

import numpy as np

import torsor as ts

URDF = """
<robot name="gripper">
  <link name="palm">
    <inertial>
      <mass value="0.8"/><inertia ixx="1e-3" iyy="2e-3" izz="2e-3" ixy="0" ixz="0" iyz="0"/>
    </inertial>
  </link>
  <link name="finger">
    <inertial>
      <origin xyz="0 0 0.03"/>
      <mass value="0.1"/><inertia ixx="3e-5" iyy="3e-5" izz="1e-5" ixy="0" ixz="0" iyz="0"/>
    </inertial>
  </link>
  <joint name="slide" type="prismatic">
    <parent link="palm"/><child link="finger"/>
    <origin xyz="0 0.02 0.05"/><axis xyz="0 1 0"/>
    <limit lower="0" upper="0.04" effort="20" velocity="0.1"/>
  </joint>
</robot>
"""

model = ts.load_urdf(URDF, root=ts.Free())
print(model)
slide = model.joint("slide")
print("the slide runs from", slide.position_limits[0][0], "to", slide.position_limits[1][0])

# The finger welded where it is: one joint less, and the same mass.
welded = model.lock({"slide": 0.02})
print(welded.nv, "degrees of freedom instead of", model.nv)
assert np.isclose(ts.mass_matrix(welded, welded.neutral)[5, 5], 0.9)

# A heavier palm, in a new model; the old one stays as it was.
heavy = model.with_inertia("palm", ts.Inertia.box(size=(0.1, 0.1, 0.05), mass=2.0))
assert np.isclose(ts.mass_matrix(heavy, heavy.neutral)[5, 5], 2.1)
