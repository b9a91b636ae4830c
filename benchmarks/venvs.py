"""Virtual environments for measurements: other versions of Python, and the peers.

`python -m benchmarks.venvs` builds one for each other version of Python that it finds.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
FOLDER: Final = ROOT / "build" / "venvs"
VERSIONS: Final = ("3.11", "3.12", "3.13")
OWN_VERSION: Final = f"{sys.version_info.major}.{sys.version_info.minor}"
INSTALL_SECONDS: Final = 600.0
_UV: Final = "uv"


def python_in(name: str) -> Path:
    """Return the interpreter of the environment `name`, whether it exists or not."""
    return FOLDER / name / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def find_python(version: str) -> str | None:
    """Return an interpreter of this version that starts, or None."""
    if version == OWN_VERSION:
        return sys.executable
    # A version manager's shim is on the path even when its version is not active.
    shims = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    installed = sorted(shims.glob(f"{version}.*/bin/python"))
    for candidate in (shutil.which(f"python{version}"), *map(str, installed)):
        if candidate and _starts(candidate):
            return candidate
    return None


def version_of(python: str) -> str:
    """Return the version of an interpreter, for example "3.13"."""
    ask = [python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    return subprocess.run(ask, capture_output=True, text=True, check=True).stdout.strip()


def _starts(python: str) -> bool:
    test = [python, "-c", "import venv, ensurepip"]
    return subprocess.run(test, capture_output=True, check=False).returncode == 0


def interpreters() -> dict[str, str]:
    """Return the interpreters that can run the benchmarks: this one, and those of the built environments."""
    found = {version: str(python_in(f"python{version}")) for version in VERSIONS if version != OWN_VERSION}
    return {OWN_VERSION: sys.executable} | {name: path for name, path in found.items() if Path(path).exists()}


def install(name: str, python: str, requirements: Sequence[str]) -> Path:
    """Build an environment, or bring an existing one up to date. Return its interpreter.

    Raises `subprocess.CalledProcessError` with the output of the installer.
    """
    target = python_in(name)
    for command in install_commands(name, python, requirements, uses_uv=shutil.which(_UV) is not None):
        subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=INSTALL_SECONDS)
    return target


def install_commands(name: str, python: str, requirements: Sequence[str], *, uses_uv: bool) -> list[list[str]]:
    """Return the commands that build an environment."""
    target = python_in(name)
    creates = not target.exists()
    if uses_uv:
        create = [_UV, "venv", "-q", "--python", python, str(FOLDER / name)]
        add = [_UV, "pip", "install", "-q", "--upgrade", "--python", str(target), *requirements]
    else:
        create = [python, "-m", "venv", str(FOLDER / name)]
        add = [str(target), "-m", "pip", "install", "-q", "--disable-pip-version-check", "--upgrade", *requirements]
    return [create, add] if creates else [add]


def main() -> int:
    """Build an environment for each other version of Python that is installed."""
    for version in VERSIONS:
        if version == OWN_VERSION:
            continue
        python = find_python(version)
        if python is None:
            print(f"!!! Python {version} is not installed: its figures will NOT be measured", file=sys.stderr)
            continue
        print(install(f"python{version}", python, ["--editable", f"{ROOT}[test]"]), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
