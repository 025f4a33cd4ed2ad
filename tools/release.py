"""Wheels of releases: fetches that of this checkout, or tries out those that were built.

    python tools/release.py fetch FOLDER          # for `make demo`
    python tools/release.py try DIST              # for `make dist`

`fetch` puts the wheel of this version into FOLDER, if the checkout is that of a release (at its tag, without changes)
and the package index has a wheel for this machine. The exit status is 1 if not: then one has to build.

`try` looks at what `make dist` made: the source distribution has every file that the build needs; the wheel has a core
for each level; it installs into a new environment, where there is no compiler; and the quick start runs there.
"""

import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def version() -> str:
    """The version of the package."""
    text = (ROOT / "src" / "torsor" / "__init__.py").read_text(encoding="utf-8")
    return re.findall(r'^__version__ = "(.+)"$', text, re.MULTILINE)[0]


def git(*command: str) -> str:
    """What git says; nothing where it fails."""
    run = subprocess.run(["git", *command], cwd=ROOT, capture_output=True, text=True)
    return run.stdout.strip() if run.returncode == 0 else ""


def is_release() -> bool:
    """Whether this is the checkout of a release: HEAD has the tag of the version, and no file is changed."""
    return f"v{version()}" in git("tag", "--points-at", "HEAD").split() and not git("status", "--porcelain")


def fetch(folder: Path) -> int:
    """Puts the wheel of this release into a folder."""
    if not shutil.which("git") or not is_release():
        print("this is not the checkout of a release: the package is built from source", flush=True)
        return 1
    if list(folder.glob(f"torsor-{version()}-*.whl")):
        return 0
    print(f"fetching the wheel of torsor {version()}", flush=True)
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--disable-pip-version-check",
        "download",
        "--no-deps",
        "--only-binary",
        ":all:",
    ]
    status = subprocess.run([*pip, "--dest", str(folder), f"torsor=={version()}"]).returncode
    if status:
        print("there is no wheel for this machine: the package is built from source", flush=True)
    return min(status, 1)


def one(folder: Path, pattern: str) -> Path:
    """The only file of a folder that matches."""
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        raise SystemExit(f"{folder} has {len(found)} files {pattern}, 1 expected")
    return found[0]


def check_source(archive: Path) -> None:
    """That the source distribution has all files of the repository that a build reads, of this version."""
    with tarfile.open(archive) as tar:
        has = {name.partition("/")[2] for name in tar.getnames()}
    parts = ("core", "src", "CMakeLists.txt", "pyproject.toml", "README.md", "LICENSE")
    missing = sorted(set(git("ls-files", *parts).splitlines()) - has)
    if missing:
        raise SystemExit(f"{archive.name} lacks {', '.join(missing)}")
    if archive.name != f"torsor-{version()}.tar.gz":
        raise SystemExit(f"{archive.name} is not that of version {version()}")
    print(f"{archive.name}: {archive.stat().st_size / 1e6:.1f} MB, {len(has)} files")


def check_wheel(wheel: Path) -> None:
    """Prints the size of the wheel, and that of each core within it."""
    with zipfile.ZipFile(wheel) as archive:
        cores = [
            x for x in archive.infolist() if re.search(r"/_core\.[\w.-]+$", x.filename) and "pyi" not in x.filename
        ]
    print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB")
    for core in cores:
        print(f"  {core.filename}: {core.file_size / 1e6:.1f} MB, {core.compress_size / 1e6:.1f} MB compressed")
    if not cores:
        raise SystemExit(f"{wheel.name} has no core")


def try_wheel(wheel: Path) -> None:
    """Installs the wheel into a new environment and runs the quick start there, without a compiler."""
    blocks = BLOCK.findall((ROOT / "docs" / "quick_start.md").read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
        scripts = Path(sysconfig.get_path("scripts", "venv", {"base": str(folder / "venv")}))
        env = {"PATH": str(scripts), "HOME": name, "CC": "none", "CXX": "none"}

        def run(*command: str) -> None:
            subprocess.run([scripts / "python", *command], cwd=folder, env=env, check=True)

        run("-m", "pip", "--quiet", "--disable-pip-version-check", "install", "--only-binary", ":all:", str(wheel))
        run("-c", "import torsor; torsor.show_config()")
        (folder / "quick_start.py").write_text("\n".join(blocks), encoding="utf-8")
        run("quick_start.py")
    print("the quick start runs in a new environment, without a compiler")


def main(arguments: list[str]) -> int:
    """The exit status."""
    match arguments:
        case ["fetch", folder]:
            return fetch(Path(folder))
        case ["try", folder]:
            dist = Path(folder).resolve()
            check_source(one(dist, "*.tar.gz"))
            wheel = one(dist, "*.whl")
            check_wheel(wheel)
            try_wheel(wheel)
            return 0
    print(__doc__)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
