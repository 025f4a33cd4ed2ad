"""Models and motions in a browser, in notebooks and in files: the extra `torsor[view]`."""

from __future__ import annotations

from torsor.view import geometry as geometry

__all__ = ["geometry"]
