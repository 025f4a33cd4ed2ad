"""Models and motions in a browser, in notebooks and in files: the extra `torsor[view]`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torsor import _lazy

if TYPE_CHECKING:
    from torsor.view import geometry as geometry
    from torsor.view.viewer import Viewer as Viewer
else:
    __getattr__, __all__ = _lazy.attach(__name__, {"viewer": "Viewer"}, submodules="geometry")
