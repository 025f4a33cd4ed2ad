"""Configuration of Sphinx. `make docs` builds the manual against the installed package."""

import importlib
import re

from sphinx.util.docutils import SphinxDirective

import torsor

project = "torsor"
author = "the torsor developers"
copyright = author
release = torsor.__version__
version = release

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx.ext.mathjax",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]

# Docstrings are NumPy's; types stand in them and in the signatures, once.
napoleon_google_docstring = False
napoleon_use_param = False  # types are prose: "array_like of shape (..., nq)"
napoleon_use_rtype = False
napoleon_use_ivar = True
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "show-inheritance": False}
python_use_unqualified_type_names = True
add_module_names = False
default_role = "code"
suppress_warnings = ["ref.python"]  # types are prose: nq in the shape of an attribute is no reference to one of many

html_theme = "furo"
html_title = f"torsor {release}"


def escape_marks(app, what, name, obj, options, lines):
    """Keep * and | of docstrings as they are: there they are arithmetic, and never markup."""
    for i, line in enumerate(lines):
        parts = line.split("`")
        parts[::2] = [re.sub(r"([*|])", r"\\\1", part) for part in parts[::2]]  # not between backticks
        lines[i] = "`".join(parts)


class Names(SphinxDirective):
    """``.. names::``, one name to a line: a table of summaries, and the documentation of each.

    ``torsor.Cost: evaluate, terms`` documents these members alone.
    """

    has_content = True

    def run(self):
        """Called by Sphinx."""
        lines = [line.strip().partition(":") for line in self.content if line.strip()]
        text = [
            ".. currentmodule:: None",
            "",
            ".. autosummary::",
            "   :nosignatures:",
            "",
            *(f"   {name}" for name, _, _ in lines),
            "",
        ]
        for name, _, members in lines:
            text += [f".. {directive(name)}:: {name}", *([f"   :members: {members}"] if members else []), ""]
        return self.parse_text_to_nodes("\n".join(text))


def directive(name):
    """The directive of autodoc for a public name."""
    module, _, attribute = name.rpartition(".")
    thing = getattr(importlib.import_module(module), attribute)
    if not isinstance(thing, type):
        return "autofunction"
    return "autoexception" if issubclass(thing, Exception) else "autoclass"


def setup(app):
    """Called by Sphinx."""
    app.add_directive("names", Names)
    app.connect("autodoc-process-docstring", escape_marks, priority=400)  # before napoleon
