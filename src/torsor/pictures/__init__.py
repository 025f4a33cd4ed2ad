"""Pictures: stick figures and plots with Matplotlib, and movies without a display.

`Model.draw`, `Trajectory.draw`, `Trajectory.plot` and `Trajectory.movie` make them; a `Camera` says from where.
"""

from __future__ import annotations

from torsor.pictures.scene import Camera as Camera

__all__ = ["Camera"]
