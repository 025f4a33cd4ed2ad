"""Checks what compilers, linters and Sphinx do not: lengths of lines, links between files, versions that must agree.

- Lines of core/ (clang-format does not wrap comments) and of Markdown have at most 120 columns. Rows of tables and
  lines of a single link cannot be wrapped and may be longer.
- Files that Markdown links to or names, as `core/model/joints.hpp`, exist.
- The version in CITATION.cff is that of the package, and the changelog has a section for it or for what is unreleased.
- The hooks of pre-commit install the versions of tools that the extra `lint` asks for.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COLUMNS = 120
UNWRAPPED = re.compile(r"\s*\||\s*[-*]?\s*!?\[[^]]*\]\([^)]*\)\s*$|\s*\[[^]]*\]: ")
LINK = re.compile(r"\[[^]]*\]\(([^)\s]+)\)")
NAMED = re.compile(r"`((?:benchmarks|core|docs|examples|src|tests|tools)/[\w./-]+)`")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def pages() -> list[Path]:
    """Markdown files of the repository."""
    folders = (ROOT, ROOT / ".github", ROOT / "docs", ROOT / "tests", ROOT / "benchmarks")
    found = {page for folder in folders for page in folder.glob("*.md" if folder == ROOT else "**/*.md")}
    made = {"_build", "gallery", "tutorials"}  # by Sphinx
    return sorted(page for page in found if not made & {*page.parts})


def long_lines() -> Iterator[str]:
    """Lines of C++ and of Markdown that are too long."""
    sources = sorted(path for path in (ROOT / "core").rglob("*") if path.suffix in {".hpp", ".cpp", ".inc"})
    for path in [*sources, *pages()]:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if len(line) > COLUMNS and not (path.suffix == ".md" and UNWRAPPED.match(line)):
                yield f"{path.relative_to(ROOT)}:{number}: {len(line)} columns, at most {COLUMNS} expected"


def missing_files() -> Iterator[str]:
    """Files that Markdown links to or names, and that do not exist."""
    for page in pages():
        text = FENCE.sub("", page.read_text(encoding="utf-8"))
        for path in NAMED.findall(text):
            if not (ROOT / path).exists():
                yield f"{page.relative_to(ROOT)}: there is no {path}"
        for target in LINK.findall(text):
            path = target.partition("#")[0]
            if path and "://" not in path and not path.startswith("mailto:") and not (page.parent / path).exists():
                yield f"{page.relative_to(ROOT)}: the link to {target} leads nowhere"


def one(pattern: str, path: str) -> str:
    """The only match of a pattern in a file."""
    found = re.findall(pattern, (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE)
    if len(found) != 1:
        raise SystemExit(f"{path}: {len(found)} lines match {pattern}, 1 expected")
    return str(found[0])


def differing_versions() -> Iterator[str]:
    """Places that name another version than the package has."""
    version = one(r'^__version__ = "(.+)"$', "src/torsor/__init__.py")
    cited = one(r"^version: (.+)$", "CITATION.cff")
    if cited != version:
        yield f"CITATION.cff: version {cited}, but torsor.__version__ is {version}"
    if not re.search(rf"^## (Unreleased|{re.escape(version)})\b", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE):
        yield f"CHANGELOG.md: there is neither a section for {version} nor one for what is unreleased"
    for tool in ("ruff", "mypy", "clang-format"):
        asked = one(rf'"({tool}==[^"]+)"', "pyproject.toml")
        hooks = set(re.findall(rf"\b{tool}==[^],\s]+", (ROOT / ".pre-commit-config.yaml").read_text()))
        if hooks != {asked}:
            yield f".pre-commit-config.yaml: {', '.join(hooks)}, but the extra `lint` has {asked}"


def main() -> int:
    """Prints everything that is wrong; the exit code is 1 if anything is."""
    found = [*long_lines(), *missing_files(), *differing_versions()]
    print("\n".join(found), end="\n" if found else "")
    return min(len(found), 1)


if __name__ == "__main__":
    sys.exit(main())
