"""Runs a command that builds the package and shows its progress: the stages of pip, and the files that ninja compiles.

    python tools/progress.py pip wheel --verbose .

On a terminal the progress is one line that changes. If the command fails, its whole output is shown. The exit status is
that of the command.
"""

import re
import subprocess
import sys
import time

# A line of ninja: [12/30] Building CXX object .../dynamics.cpp.o
STEP = re.compile(r"\[(\d+)/(\d+)\] .*?([\w./-]+?)(?:\.o)?$")
STAGE = re.compile(r"(Installing build dependencies|\*\*\* Configuring CMake|Building wheel for \S+)")


def progress(line: str) -> str | None:
    """The text to show for a line of output, if any."""
    if found := STEP.search(line.rstrip()):
        done, total, name = found.groups()
        return f"[{done}/{total}] {name.rsplit('/', 1)[-1]}"
    if found := STAGE.search(line):
        return found.group(1).lstrip("* ")
    return None


def run(command: list[str]) -> int:
    """Runs the command, shows its progress, and returns its exit status."""
    start = time.monotonic()
    terminal = sys.stdout.isatty()
    output = []
    shown = ""
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            output.append(line)
            text = progress(line)
            if text is None or text == shown:
                continue
            shown = text
            if terminal:
                print(f"\r\033[K{text}", end="", flush=True)
            else:
                print(text, flush=True)
    if terminal and shown:
        print("\r\033[K", end="")
    if process.returncode:
        sys.stdout.writelines(output)
        print(f"failed with status {process.returncode}: {' '.join(command)}")
        return process.returncode
    if shown:
        print(f"built in {time.monotonic() - start:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
