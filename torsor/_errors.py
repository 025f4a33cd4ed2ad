"""The exceptions that torsor raises beside the built-in ones."""


class TorsorError(Exception):
    """Base of every exception that is torsor's own."""


class ModelError(TorsorError, ValueError):
    """A model, or a part of one, that makes no sense: names, tree, inertias."""


class FormatError(ModelError):
    """A model file that cannot be read as what it claims to be."""


class SingularMassMatrixError(TorsorError, ValueError):
    """The mass matrix cannot be inverted: some motion carries no inertia."""
