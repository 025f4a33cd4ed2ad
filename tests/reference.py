"""Numbers of other programs; `data/reference/README.md` says which, and how they were made."""

import json
from pathlib import Path
from typing import Any

DIRECTORY = Path(__file__).resolve().parent / "data" / "reference"


def load(name: str) -> Any:
    """The contents of `data/reference/<name>.json`. A missing file is an error: it is part of the repository."""
    return json.loads((DIRECTORY / f"{name}.json").read_text(encoding="utf-8"))
