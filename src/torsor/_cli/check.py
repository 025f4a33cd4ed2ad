"""``torsor check``: all problems of a file."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from typing import Any

from torsor._cli.output import CommandError, add_command, one_line, plural, show
from torsor._cli.sources import add_model_argument, example, find

_EXAMPLES = """\
error    keeps the file from being loaded, or the model from being simulated
warning  is likely to be a mistake, or is left out of the model
note     may be intended, as a joint without limits

exit status: 0 without errors and warnings, 1 with some, 2 if the file cannot be
read at all

examples:
  torsor check robot.urdf
  torsor check robot.urdf --severity error      errors alone, for scripts
  torsor check scene.xml --json"""
_SEVERITIES = ("error", "warning", "note")


def add(commands: Any) -> None:
    """The arguments of the command."""
    parser = add_command(
        commands,
        "check",
        "all problems of a file: inertias, limits, names, meshes",
        "Reports all problems of a model's file at once: what cannot be read, names that are missing or "
        "used twice, inertias that are not physical, joints that move no mass, limits, mesh files, and what a model "
        "leaves out.",
        _EXAMPLES,
    )
    add_model_argument(parser)
    parser.add_argument(
        "--severity", choices=_SEVERITIES, default="note", help="the least severity to report (default: %(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Prints the problems."""
    from torsor.formats.problems import find_problems
    from torsor.joints import Free

    source = find(arguments.file)
    if source.kind == "motion":
        raise CommandError(f"{source.label} is a motion; check takes a model")
    if arguments.root == "free" and source.kind != "URDF":
        raise CommandError(f"--root free is for URDF files; {source.label} has its own root")
    if source.path is None:
        found = find_problems(example(source.label.removeprefix("example:")))
    else:
        found = find_problems(source.path, root=Free() if arguments.root == "free" else None)
    most = _SEVERITIES.index(arguments.severity)
    told = [problem for problem in found if _SEVERITIES.index(problem.severity) <= most]
    counts = Counter[str](problem.severity for problem in told)
    status = 1 if counts["error"] or counts["warning"] else 0
    if arguments.json:
        rows = [{"severity": p.severity, "line": p.line, "message": p.message} for p in told]
        show(json.dumps({"file": source.label, "problems": rows}, indent=2))
        return status
    width = max((len(f"line {p.line}") for p in told if p.line is not None), default=0)
    for p in told:
        place = "" if not width else ("" if p.line is None else f"line {p.line}").ljust(width) + "  "
        show(f"{p.severity:<9}{place}{one_line(p.message)}")
    parts = [plural(counts[severity], severity) for severity in _SEVERITIES if counts[severity]]
    none = {"error": "no errors", "warning": "no errors or warnings", "note": "no problems"}[arguments.severity]
    show(f"{source.label}: {', '.join(parts) or none}")
    return status
