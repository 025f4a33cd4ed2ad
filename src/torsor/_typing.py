"""Types that annotations share. Type checkers alone import this module."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[Any]
FloatArray = NDArray[np.float64]
Wrenches = ArrayLike | Mapping[str, ArrayLike]  # of all bodies, or of some by name

# Options given as strings.
Frame = Literal["body", "world", "local_world_aligned"]
ReferencePoint = Literal["com", "world"]
EulerChart = Literal["XYX", "XYZ", "XZX", "XZY", "YXY", "YXZ", "YZX", "YZY", "ZXY", "ZXZ", "ZYX", "ZYZ"]
Shape = Literal["box", "sphere", "cylinder", "capsule", "ellipsoid", "mesh"]
QuadratureRule = Literal["gauss", "lobatto", "trapezoid", "midpoint"]
ScipyMethod = Literal["RK23", "RK45", "DOP853", "Radau", "BDF", "LSODA"]
EnergyPart = Literal["kinetic", "potential", "forces"]
Inputs = Literal["q", "v", "u", "qv", "vq", "qu", "uq", "vu", "uv", "qvu", "quv", "vqu", "vuq", "uqv", "uvq"]
Threads = int | Literal["auto"]
RefuseOrWarn = Literal["refuse", "warn"]
ConstrainOrCoupleOrIgnore = Literal["constrain", "couple", "ignore"]
RefuseOrCoupleOrIgnore = Literal["refuse", "couple", "ignore"]
RefuseOrAccept = Literal["refuse", "accept"]
RefuseOrRepairOrAccept = Literal["refuse", "repair", "accept"]
ParentFilter = Literal["filter", "filter_moving", "allow"]
RaiseOrSkip = Literal["raise", "skip"]
OnFailure = Literal["raise", "keep"]
Severity = Literal["error", "warning", "note"]

# When a cost counts: at rows of a trajectory, or over time; as it is given, and as it is kept.
AtLike = int | slice | Sequence[int] | NDArray[np.integer[Any]] | Literal["time"]
At = int | slice | tuple[int, ...] | Literal["time"]
