"""Types that annotations share. Type checkers alone import this module."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
FloatArray = NDArray[np.float64]

Frame = Literal["body", "world", "local_world_aligned"]
ReferencePoint = Literal["com", "world"]
EulerChart = Literal["XYX", "XYZ", "XZX", "XZY", "YXY", "YXZ", "YZX", "YZY", "ZXY", "ZXZ", "ZYX", "ZYZ"]
QuadratureRule = Literal["gauss", "lobatto", "trapezoid", "midpoint"]
