"""Configuration of Sphinx. `make docs` builds the manual against the installed package."""

import importlib
import re
import sys
from pathlib import Path
from typing import TypeVar

from sphinx.util.docutils import SphinxDirective

import torsor

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "extensions"))
import benchmark_tables  # noqa: E402
import inventories  # noqa: E402

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
    "sphinx.ext.intersphinx",
    "sphinx_copybutton",
    "benchmark_tables",
    "gallery",
]
myst_enable_extensions = ["dollarmath", "substitution", "attrs_block"]
myst_heading_anchors = 3
myst_substitutions = benchmark_tables.substitutions()
exclude_patterns = ["_build", "extensions"]

# Inventories are made here, of the names that the manual refers to: a build needs no network.
intersphinx_mapping = inventories.mapping(HERE / "_build" / "inventories")

# Output is not copied, nor the prompts of examples in docstrings.
copybutton_selector = "div:not(.output) > div.highlight > pre"
copybutton_prompt_text = r">>> |\.\.\. "
copybutton_prompt_is_regexp = True

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
html_static_path = ["static"]
html_css_files = ["manual.css"]


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


class Members(SphinxDirective):
    """``.. members:: torsor.spatial``: a table of summaries of all that a module has, and the documentation of each."""

    required_arguments = 1

    def run(self):
        """Called by Sphinx."""
        name = self.arguments[0]
        module = importlib.import_module(name)
        public = [key for key in getattr(module, "__all__", vars(module)) if not key.startswith("_")]
        own = [
            key
            for key in public
            if callable(value := getattr(module, key))
            and getattr(value, "__module__", None) == name
            and key not in torsor.__all__
            and not isinstance(value, TypeVar)
        ]
        text = [
            f".. automodule:: {name}",
            "   :no-members:",
            "",
            ".. names::",
            "",
            *(f"   {name}.{key}" for key in own),
        ]
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
    app.add_directive("members", Members)
    app.connect("autodoc-process-docstring", escape_marks, priority=400)  # before napoleon
