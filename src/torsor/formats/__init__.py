"""Readers of robot description files: :mod:`~torsor.formats.urdf` and :mod:`~torsor.formats.mjcf`.

Their functions, ``load_urdf`` and ``load_mjcf``, are public names of :mod:`torsor` itself.
"""
