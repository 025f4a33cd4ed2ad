"""Pages, notebooks, pictures and motions from the scripts in examples/: an extension of Sphinx, and a script.

At the start of a build every script runs, each in a process of its own and in an empty folder. What it prints and the
files that it writes there (pictures, films, and pages with motions that play) are shown below the cell that made them.
Results are kept in docs/_build/gallery until the script or the package changes.

A script is a docstring and cells. A cell begins with a comment at the left margin below an empty line, which becomes
text, in Markdown; what follows is code. The docstring is the lead; if its first line has no full stop, it is the title,
otherwise the name of the file is.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = {"tutorials": ROOT / "examples" / "tutorials", "gallery": ROOT / "examples"}  # a folder of docs for each
LEADS = {
    "tutorials": "# Tutorials\n\nEach has a goal and reaches it in a few dozen lines. All of them run as they stand, "
    "in seconds; each is also a script and a notebook to download. They need SciPy and the extra `torsor[view]`.",
    "gallery": "# Gallery\n\nThe scripts of `examples/`, one subject each, with what they print and draw. They run as "
    "they stand; each is also a notebook to download.",
}
PICTURES, FILMS = (".png", ".gif", ".svg"), (".mp4",)
WORDS = {"urdf": "URDF", "own": "Your own"}


class Cell(NamedTuple):
    """A part of a script."""

    text: str  # Markdown, without the marks of comments
    code: str
    line: int  # of the code in the script, from 1


class Script(NamedTuple):
    """What a script is, before it runs."""

    path: Path
    title: str
    lead: str
    cells: tuple[Cell, ...]


class Output(NamedTuple):
    """What a cell printed, and the names of the files that it wrote."""

    printed: str
    files: list[str]


def read(path: Path) -> Script:
    """A script, divided into its cells."""
    source = path.read_text(encoding="utf-8")
    docstring = ast.get_docstring(ast.parse(source)) or ""
    title, _, lead = docstring.partition("\n\n")
    if title.endswith("."):
        words = path.stem.lstrip("0123456789_").split("_")
        title, lead = " ".join(WORDS.get(word, word) for word in words), docstring
    lines = source.split("\n")
    body = ast.parse(source).body
    if not isinstance(body[0], ast.Expr):
        raise ValueError(f"{path.name} has no docstring")
    first = body[0].end_lineno or 1
    inside = {n for node in body for n in range(node.lineno + 1, (node.end_lineno or node.lineno) + 1)}
    starts = [
        n
        for n in range(first + 1, len(lines))
        if lines[n].startswith("#") and not lines[n - 1] and n + 1 not in inside  # n + 1: lines count from 1
    ]
    cells = []
    for begin, end in zip([first, *starts], [*starts, len(lines)], strict=True):
        code = begin
        while code < end and lines[code].startswith("#"):
            code += 1
        text = "\n".join(line.lstrip("#").removeprefix(" ") for line in lines[begin:code])
        while code < end and not lines[code]:
            code += 1
        cell = Cell(text, "\n".join(lines[code:end]).strip("\n"), code + 1)
        if cell.text or cell.code:
            cells.append(cell)
    title = title.strip().rstrip(".")
    return Script(path, title[:1].upper() + title[1:], lead.strip(), tuple(cells))


def notebook(script: Script) -> dict[str, Any]:
    """The script as a notebook."""
    import nbformat

    cells = [nbformat.v4.new_markdown_cell(f"# {script.title}\n\n{script.lead}")]
    for cell in script.cells:
        if cell.text:
            cells.append(nbformat.v4.new_markdown_cell(cell.text))
        if cell.code:
            cells.append(nbformat.v4.new_code_cell(cell.code))
    for k, made in enumerate(cells):
        made["id"] = f"cell-{k}"  # the same in every build
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    book: dict[str, Any] = nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel})
    nbformat.validate(book)
    return book


def run(path: Path) -> list[Output]:
    """Run a script in the current folder, cell by cell."""
    namespace: dict[str, Any] = {"__name__": "__main__", "__file__": str(path)}
    outputs, seen = [], set(os.listdir())
    for cell in read(path).cells:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            # Empty lines put the code where it stands in the script, so that a traceback points there.
            exec(compile("\n" * (cell.line - 1) + cell.code, str(path), "exec"), namespace)
        files = sorted(set(os.listdir()) - seen)
        seen |= set(files)
        lines = [line for line in printed.getvalue().splitlines() if line not in files]  # names of pictures
        outputs.append(Output("\n".join(lines), files))
    if not any(name.endswith(PICTURES) for output in outputs for name in output.files):
        outputs[0].files.extend(draw(path.stem, namespace))
    return outputs


def draw(name: str, namespace: dict[str, Any]) -> list[str]:
    """A picture of the model of a script that draws none itself."""
    import torsor

    models = [value for value in namespace.values() if isinstance(value, torsor.Model)]
    if not models:
        return []
    models[0].draw().figure.savefig(f"{name}.png", dpi=110)
    return [f"{name}.png"]


def outputs_of(path: Path, store: Path, package: str) -> tuple[Path, list[Output]]:
    """The folder with what a script wrote, and what its cells gave: from the store, or by running it."""
    key = hashlib.sha256(path.read_bytes() + Path(__file__).read_bytes() + package.encode()).hexdigest()[:16]
    folder = store / f"{path.stem}-{key}"
    record = folder / "outputs.json"
    if not record.exists():
        for old in store.glob(f"{path.stem}-*"):
            shutil.rmtree(old)
        folder.mkdir(parents=True)
        settings = {**os.environ, "MPLBACKEND": "Agg", "OPENBLAS_NUM_THREADS": "1"}
        command = [sys.executable, __file__, str(path)]
        done = subprocess.run(command, cwd=folder, env=settings, capture_output=True, text=True, encoding="utf-8")
        if done.returncode:
            raise RuntimeError(f"{path.relative_to(ROOT)} fails:\n{done.stderr}")
        record.write_text(done.stdout, encoding="utf-8")
    return folder, [Output(*output) for output in json.loads(record.read_text(encoding="utf-8"))]


def escape(text: str) -> str:
    """Text of a comment as Markdown: * and < are arithmetic outside of code and formulas."""
    parts = re.split(r"(`[^`]*`|\$[^$]*\$|\*\*[^*]*\*\*)", text)
    parts[::2] = [re.sub(r"([*<])", r"\\\1", part) for part in parts[::2]]
    return "".join(parts)


def show(name: str, title: str) -> str:
    """Markdown that shows a file beside the page."""
    if name.endswith(PICTURES):
        return f"![{title}]({name})"
    inner = f'<video controls loop muted playsinline src="{name}"></video>' if name.endswith(FILMS) else ""
    if name.endswith(".html"):
        inner = f'<iframe class="motion" src="{name}" loading="lazy" title="{title}: a motion that plays"></iframe>'
    return f"```{{raw}} html\n{inner}\n```" if inner else ""


def page(script: Script, outputs: list[Output]) -> str:
    """The page of a script, in Markdown."""
    source = os.path.relpath(script.path, ROOT / "docs" / "gallery")
    parts = [
        f"# {script.title}",
        escape(script.lead),
        f"Download: {{download}}`script <{source}>`, {{download}}`notebook <{script.path.stem}.ipynb>`.",
    ]
    for cell, output in zip(script.cells, outputs, strict=True):
        if cell.text:
            parts.append(escape(cell.text))
        if cell.code:
            parts.append(f"```python\n{cell.code}\n```")
        if output.printed:
            parts.append(f"```{{code-block}} text\n:class: output\n\n{output.printed}\n```")
        parts += [shown for name in output.files if (shown := show(name, script.title))]
    return "\n\n".join(parts) + "\n"


def index(lead: str, scripts: dict[str, tuple[Script, list[Output]]]) -> str:
    """The page with all scripts of a folder: cards with pictures, then those without."""
    cards, others = [], []
    for name, (script, outputs) in scripts.items():
        pictures = [file for output in outputs for file in output.files if file.endswith(PICTURES)]
        summary = script.lead.partition("\n\n")[0].replace("\n", " ")
        if pictures:
            image = f"[![{script.title}]({pictures[-1]})]({name}.md)"
            text = f"[**{script.title}**]({name}.md) {escape(summary)}"
            cards.append(f"````{{container}} card\n{image}\n\n{text}\n````")
        else:
            others.append(f"- [**{script.title}**]({name}.md): {escape(summary)}")
    parts = [lead]
    if cards:
        parts.append("`````{container} cards\n" + "\n\n".join(cards) + "\n`````")
    if others:
        parts.append("\n".join(others))
    parts.append("\n".join(["```{toctree}", ":hidden:", "", *scripts, "```"]))
    return "\n\n".join(parts) + "\n"


def newest(folder: Path) -> str:
    """Changes when the package does."""
    return str(max(path.stat().st_mtime for path in folder.rglob("*") if path.suffix in {".py", ".so", ".pyd"}))


def make(app: Any) -> None:
    """Run the scripts and write their pages; called by Sphinx when a build begins."""
    import torsor

    store, docs = Path(app.outdir).parent / "gallery", Path(app.srcdir)
    package = newest(Path(torsor.__file__).parent)
    paths = {kind: sorted(folder.glob("*.py")) for kind, folder in SCRIPTS.items()}
    every = [path for found in paths.values() for path in found]
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # of processes that do the work
        results = dict(zip(every, pool.map(lambda path: outputs_of(path, store, package), every), strict=True))
    app.motions = []
    for kind, found in paths.items():
        target = docs / kind
        target.mkdir(exist_ok=True)
        scripts = {}
        for path in found:
            script, (folder, outputs) = read(path), results[path]
            scripts[path.stem] = script, outputs
            for name in (name for output in outputs for name in output.files):
                if name.endswith(PICTURES):
                    shutil.copyfile(folder / name, target / name)
                elif name.endswith((".html", *FILMS)):
                    app.motions.append((folder / name, Path(kind) / name))
            write(target / f"{path.stem}.md", page(script, outputs))
            write(target / f"{path.stem}.ipynb", json.dumps(notebook(script), indent=1, ensure_ascii=False) + "\n")
        write(target / "index.md", index(LEADS[kind], scripts))
        kept = {"index", *scripts}
        for old in [*target.glob("*.md"), *target.glob("*.ipynb")]:
            if old.stem not in kept:
                old.unlink()


def write(path: Path, text: str) -> None:
    """Write a file only if it changes, so that Sphinx does not read it again."""
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def copy_motions(app: Any, exception: Exception | None) -> None:
    """Put films and pages with motions beside the pages that show them; called by Sphinx when a build ends."""
    if exception is None and app.builder.format == "html":
        for source, name in app.motions:
            shutil.copyfile(source, Path(app.outdir) / name)


def setup(app: Any) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("builder-inited", make)
    app.connect("build-finished", copy_motions)
    return {"parallel_read_safe": True}


if __name__ == "__main__":
    print(json.dumps(run(Path(sys.argv[1]))))
