"""Names of MJCF files, and what else all parts of their reader use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from torsor.spatial import SE3

if TYPE_CHECKING:
    import mujoco


def mujoco_package() -> Any:
    """The module `mujoco`."""
    try:
        import mujoco
    except ImportError as error:
        raise ImportError("load_mjcf needs the package 'mujoco': pip install torsor[mjcf]") from error
    return mujoco


def pose_of(p: NDArray[np.float64], wxyz: NDArray[np.float64]) -> SE3:
    """A pose from a position and a quaternion, scalar first."""
    return SE3.from_quaternion(np.roll(wxyz, -1), p)


class Names:
    """Names of bodies, joints and other parts: those of the file, and new ones where it has none."""

    def __init__(self, mj: mujoco.MjModel) -> None:
        self._mj = mj
        bodies, self.joints, self.geoms = (
            self._of(kind, n) for kind, n in (("BODY", mj.nbody), ("JOINT", mj.njnt), ("GEOM", mj.ngeom))
        )
        self.sites, self.cameras = (self._of(kind, n) for kind, n in (("SITE", mj.nsite), ("CAMERA", mj.ncam)))
        self._used = {name for name in [*bodies, *self.joints, *self.sites, *self.cameras] if name}
        self.bodies = [name or self.new(f"body{i}") for i, name in enumerate(bodies)]
        self.tendons = self.numbered("TENDON", mj.ntendon)
        self.actuators = self.numbered("ACTUATOR", getattr(mj, "nactuator", mj.nu))
        self.coordinates: dict[int, str] = {}  # the joints of the model that are MuJoCo's, by their numbers there

    def _of(self, kind: str, count: int) -> list[str | None]:
        mujoco = mujoco_package()
        return [mujoco.mj_id2name(self._mj, getattr(mujoco.mjtObj, f"mjOBJ_{kind}"), i) or None for i in range(count)]

    def of(self, kind: str, index: int) -> str | None:
        """Name of another object of the file, or None."""
        mujoco = mujoco_package()
        return mujoco.mj_id2name(self._mj, getattr(mujoco.mjtObj, f"mjOBJ_{kind}"), index) or None

    def label(self, kind: str, index: int) -> str:
        """How messages call an object: by its name, or by its number."""
        name = self.of(kind.upper(), index)
        return f"{kind} {index if name is None else repr(name)}"

    def joint(self, member: int | None, body: str) -> str | None:
        """Name of the joint of a body: that of the file, or None for the name of the body, if that is free."""
        if member is not None and (own := self.joints[member]):
            return own
        return self.new(f"{body}/joint") if body in self.joints else None

    def numbered(self, kind: str, count: int) -> list[str]:
        """Names of all objects of a kind: those of the file, or the kind and a number."""
        names = self._of(kind, count)
        used, out = {name for name in names if name}, []
        for i, name in enumerate(names):
            own = name or _free(f"{kind.lower()}{i}", used)
            used.add(own)
            out.append(own)
        return out

    def new(self, name: str) -> str:
        """The name, with a number after it if it is taken."""
        free = _free(name, self._used)
        self._used.add(free)
        return free


def _free(name: str, used: set[str]) -> str:
    number, free = 1, name
    while free in used:
        number += 1
        free = f"{name}{number}"
    return free
