"""Checks that includes in core/ and imports in src/torsor/ point downwards only, and prints those that do not.

The layers are listed from the lowest up. A file may use those of its own layer and of lower ones; an import within a
function counts too, one for type checkers alone does not.
"""

import ast
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "torsor"
CORE = (
    *("base", "scalar", "spatial", "contact", "model", "linear", "tree", "dynamics", "derivatives", "forces"),
    *("constraints", "integrators", "bind"),
)
PYTHON = (
    *(
        "_lazy",
        "_files",
        "_typing",
        "_errors",
        "_cpu",
        "_core",
        "_runtime",
        "spatial",
        "shapes",
        "_check",
        "_compile",
        "inertia",
    ),
    *("collision", "joints", "actuators", "couplings", "model", "editing", "models"),
    *("dynamics", "kinematics", "derivatives", "forces", "constraints", "saving", "formats", "maximal", "integrators"),
    *("costs", "ik", "view", "pictures"),
    *("simulation", "variational", "interop", "testing", "demo", "_cli", "__main__", "__init__"),
)


def core_edges() -> list[tuple[str, str, str]]:
    """(file, its layer, the layer of what it includes)."""
    out = []
    for file in sorted((ROOT / "core").rglob("*.[ch]pp")):
        layer = file.relative_to(ROOT / "core").parts[0]
        for included in re.findall(r'^#include "([^"]+)"', file.read_text(), re.M):
            out.append((f"core/{file.relative_to(ROOT / 'core')}", layer, included.split("/")[0]))
    return out


def python_edges() -> list[tuple[str, str, str]]:
    """The same of modules and packages in src/torsor/, but for what stub files and type checkers alone read."""
    out = []
    for file in sorted(PACKAGE.rglob("*.py")):
        layer = file.relative_to(PACKAGE).parts[0].removesuffix(".py")
        tree = ast.parse(file.read_text())
        hidden = [
            node for node in ast.walk(tree) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        ]
        unread = {id(node) for block in hidden for node in ast.walk(block)}
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module and id(node) not in unread:
                parts = node.module.split(".")
                used = parts[1:2] or [alias.name for alias in node.names] if parts[0] == "torsor" else []
                out += [(f"src/torsor/{file.relative_to(PACKAGE)}", layer, name) for name in used]
    return out


def wrong(edges: list[tuple[str, str, str]], layers: tuple[str, ...]) -> list[str]:
    """What points upwards, or is in no layer."""
    at = {layer: k for k, layer in enumerate(layers)}
    return [
        f"{file}: {layer!r} must not use {used!r}"
        for file, layer, used in edges
        if layer not in at or used not in at or at[used] > at[layer]
    ]


def main() -> int:
    """Prints all wrong edges; the number of them is the exit code."""
    found = wrong(core_edges(), CORE) + wrong(python_edges(), PYTHON)
    print("\n".join(found), end="\n" if found else "")
    return min(len(found), 1)


if __name__ == "__main__":
    sys.exit(main())
