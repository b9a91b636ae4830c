"""Check what the wheel holds: each file once, the server functions, the type marker, nothing at the top."""

import sys
import zipfile
from collections import Counter
from pathlib import Path

TOPS = {"glidemq_async", "pyspark_glidemq"}
"""What may be imported: the package, and the module whose name Spark looks for."""


def check(wheel: Path, source: Path) -> list[str]:
    """Return what is wrong with the wheel, compared with the tree it was built from."""
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if not name.endswith("/")]
    faults = [f"twice in the wheel: {name}" for name, times in Counter(names).items() if times > 1]
    tops = {name.split("/")[0] for name in names}
    foreign = {top for top in tops if top not in TOPS and not top.endswith(".dist-info")}
    faults += [f"importable under a bare name: {top}" for top in sorted(foreign)]
    faults += [f"missing from the wheel: {name}" for name in sorted(expected(source) - set(names))]
    return faults


def expected(source: Path) -> set[str]:
    """Return the files that the tree says the wheel must hold."""
    files = {"glidemq_async/py.typed"}
    for folder, target in [
        ("glidemq_async", ""),
        ("pyspark_glidemq", ""),
        ("functions", "glidemq_async/"),
        ("executors", "glidemq_async/"),
        ("demo", "glidemq_async/"),
    ]:
        for pattern in ("*.py", "*.pyi", "*.lua", "*.j2", "web/static/**/*.*"):
            found = (source / folder).rglob(pattern)
            files |= {target + path.relative_to(source).as_posix() for path in found}
    return files


if __name__ == "__main__":
    problems = check(Path(sys.argv[1]), Path(__file__).parent.parent)
    sys.exit("\n".join(problems) or None)
