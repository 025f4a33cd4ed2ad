"""Checks that the core compiles for systems that are not at hand, by the Clang in the package `ziglang`.

    python tools/cross.py [target ...]

Every file of CMakeLists.txt is parsed, with all templates instantiated, for each target: the core and its bindings,
with warnings as errors. `--code` also generates machine code, without optimisation, for some files.

Headers of the C and C++ libraries come with ziglang. Those of Python, NumPy and nanobind are of this machine; what they
know of the system (sizes of types, which headers there are) is replaced by that of the target. Not covered: linking,
running, and on Windows the library and ABI of MSVC, in whose place those of MinGW are taken.
"""

import argparse
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TARGETS = ("aarch64-linux-gnu", "aarch64-macos", "x86_64-windows-gnu", "x86_64-macos")
FLAGS = (
    *("-std=c++17", "-Icore", "-ffp-contract=off", "-fno-math-errno", "-fno-slp-vectorize"),
    *("-Wall", "-Wextra", "-Werror"),
)
CODE = ("core/base/blocks.cpp", "core/base/threads.cpp", "core/bind/cpu.cpp", "core/bind/dynamics.cpp")

# What Python.h and NumPy's headers ask of a system, beside what they find out themselves.
UNIX = """
#define SIZEOF_LONG 8
#define SIZEOF_WCHAR_T 4
#define HAVE_SYS_TYPES_H 1
#define HAVE_UNISTD_H 1
#define HAVE_PTHREAD_H 1
"""
WINDOWS = """
#define MS_WINDOWS
#define MS_WIN32
#define MS_WIN64
#define HAVE_DECLSPEC_DLL
#define SIZEOF_LONG 4
#define SIZEOF_WCHAR_T 2
typedef long long Py_ssize_t;
#define HAVE_PY_SSIZE_T 1
#define PY_SSIZE_T_MAX ((Py_ssize_t)(((size_t)-1) >> 1))
#define NT_THREADS 1
"""
COMMON = """
#pragma once
#define SIZEOF_SHORT 2
#define SIZEOF_INT 4
#define SIZEOF_LONG_LONG 8
#define SIZEOF_VOID_P 8
#define SIZEOF_SIZE_T 8
#define SIZEOF_TIME_T 8
#define SIZEOF_PID_T 4
#define SIZEOF_DOUBLE 8
#define HAVE_STDINT_H 1
#define HAVE_STDDEF_H 1
#define HAVE_UINTPTR_T 1
#define WITH_THREAD 1
"""


def warnings() -> list[str]:
    """The warnings of Clang that CMakeLists.txt turns off."""
    return re.findall(r"-Wno-[\w-]+", (ROOT / "CMakeLists.txt").read_text(encoding="utf-8"))


def sources() -> list[str]:
    """The files of the core, as CMakeLists.txt lists them."""
    named = re.findall(r"core/\w+/\w+\.cpp", (ROOT / "CMakeLists.txt").read_text(encoding="utf-8"))
    return sorted(set(named) - {"core/bind/cpu_target.cpp"})


def headers(target: str, folder: Path) -> list[str]:
    """Headers of Python, NumPy and nanobind for a target, as options of the compiler."""
    import nanobind
    import numpy

    windows = "windows" in target
    python, arrays = folder / "python", folder / "numpy"
    shutil.copytree(sysconfig.get_path("include"), python)
    (python / "pyconfig.h").unlink()
    (python / "pyconfig.h").write_text(COMMON + (WINDOWS if windows else UNIX), encoding="utf-8")
    shutil.copytree(numpy.get_include(), arrays)
    config = arrays / "numpy" / "_numpyconfig.h"
    text = config.read_text(encoding="utf-8")
    if "linux" not in target:
        text = re.sub(r"#define NPY_HAVE_ENDIAN_H 1", "", text)
    if windows:
        text = re.sub(r"(#define NPY_SIZEOF_LONG) 8", r"\1 4", text)
    if "linux" not in target or "aarch64" in target:  # of a long double
        text = re.sub(r"(#define NPY_SIZEOF_LONGDOUBLE) \d+", r"\1 16" if "linux" in target else r"\1 8", text)
    config.write_text(text, encoding="utf-8")
    (folder / "bind").mkdir()
    (folder / "bind" / "levels.inc").write_text('LEVEL("arch", "flags", target)\n', encoding="utf-8")
    return [
        f"-I{folder}",
        *(part for path in (python, arrays, nanobind.include_dir()) for part in ("-isystem", str(path))),
    ]


def check(target: str, code: bool) -> tuple[float, list[str]]:
    """The time that it took, and what the compiler says about the files that do not compile."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        zig = [sys.executable, "-m", "ziglang"]
        options = ["-target", target, *FLAGS, *warnings(), *headers(target, folder)]
        # zig has no -fsyntax-only, but it tells the command of its Clang.
        dry = [*zig, "c++", "-###", *options, "-c", "core/base/blocks.cpp", "-o", str(folder / "out.o")]
        told = subprocess.run(dry, cwd=ROOT, capture_output=True, text=True, check=True).stderr
        clang = shlex.split(next(line for line in told.splitlines() if '"-cc1"' in line))[1:-1]
        clang[clang.index("-emit-obj")] = "-fsyntax-only"

        def parse(file: str) -> str:
            run = subprocess.run([*zig, "clang", *clang, file], cwd=ROOT, capture_output=True, text=True)
            return f"{target}: {file}\n{run.stderr}" if run.returncode or run.stderr else ""

        def compile_code(file: str) -> str:
            command = [*zig, "c++", *options, "-O0", "-c", file, "-o", str(folder / f"{Path(file).stem}.o")]
            run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
            return f"{target}: {file}: machine code\n{run.stderr}" if run.returncode or run.stderr else ""

        with ThreadPoolExecutor(2) as pool:
            failures = [*pool.map(parse, sources()), *(pool.map(compile_code, CODE) if code else ())]
    return time.monotonic() - start, [failure for failure in failures if failure]


def main() -> int:
    """Prints what does not compile; the exit status is 1 if there is anything."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("targets", nargs="*", default=TARGETS, help=f"of zig; {', '.join(TARGETS)} unless given")
    parser.add_argument("--code", action="store_true", help="generate machine code for some files, too")
    given = parser.parse_args()
    status = 0
    for target in given.targets:
        seconds, failures = check(target, given.code)
        print("\n".join(failures), end="\n" if failures else "")
        print(f"{target}: {len(sources())} files in {seconds:.0f} s, {len(failures) or 'no'} failures", flush=True)
        status |= bool(failures)
    return status


if __name__ == "__main__":
    sys.exit(main())
