"""Permissions are checked when they are created."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from glidemq_async.executors import Permissions
from glidemq_async.executors.sandbox import child_environment

OPEN: Any = Permissions


def test_nothing_is_granted_by_default() -> None:
    nothing = Permissions()
    assert (nothing.read, nothing.write, nothing.network, nothing.environment) == ((), (), False, ())
    assert not nothing.subprocess
    assert nothing == OPEN(read=False, write=[], network=[], environment=False)
    assert {nothing: 1}[Permissions()] == 1


@pytest.mark.parametrize(
    ("written", "size"),
    [(2**30, 2**30), ("512MiB", 2**29), ("2 GB", 2 * 10**9), ("64mib", 2**26), ("99999999", 99999999)],
)
def test_sizes_are_read(written: int | str, size: int) -> None:
    assert Permissions(memory=written).memory == size


def test_paths_are_absolute_and_ports_are_sorted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    granted = Permissions(read=["data", tmp_path / "data"], write=[Path("out")], network=[5432, 443], cpu=0.2)
    assert granted.read == (f"{tmp_path}/data",)
    assert granted.write == (f"{tmp_path}/out",)
    assert granted.network == (443, 5432)
    assert granted.cpu == 1


def test_permissions_can_be_serialized() -> None:
    granted = Permissions(read=True, write=["/tmp"], network=[443], environment=["AWS_*"], memory="1GiB", processes=4)
    assert Permissions(**asdict(granted)) == granted


@pytest.mark.parametrize(
    "wrong",
    [
        *({"read": "/data"}, {"read": [1]}, {"write": [""]}, {"write": Path("/data")}, {"read": None}),
        *({"network": 443}, {"network": [0]}, {"network": [65536]}, {"network": ["443"]}, {"network": [True]}),
        *({"environment": "PATH"}, {"environment": ["A=B"]}, {"environment": ["A*B"]}, {"environment": [""]}),
        *({"memory": "lots"}, {"memory": "1TB"}, {"memory": 1.5}, {"memory": "1MiB"}, {"memory": -1}),
        *({"cpu": 0}, {"cpu": "1"}, {"cpu": float("nan")}, {"cpu": float("inf")}, {"file_size": -1}),
        *({"open_files": 2}, {"open_files": 9.5}, {"processes": 0}, {"processes": True}),
        *({"subprocess": 1}, {"strict": None}),
    ],
    ids=repr,
)
def test_invalid_permissions_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError), match=next(iter(wrong))):
        Permissions(**wrong)


def test_the_environment_of_a_child_is_filtered(tmp_path: Path) -> None:
    environ = {"PATH": "/bin", "LC_ALL": "C", "AWS_KEY": "k", "PASSWORD": "p", "TOKEN": "t"}
    assert child_environment(Permissions(), environ) == {"PATH": "/bin", "LC_ALL": "C"}
    assert child_environment(Permissions(environment=["AWS_*", "TOKEN"]), environ).keys() == environ.keys() - {
        "PASSWORD"
    }
    assert child_environment(Permissions(environment=True), environ) == environ
    helped = child_environment(Permissions(write=[tmp_path], memory="1GiB", network=[53, 443]), {})
    assert helped == {"TMPDIR": str(tmp_path), "MALLOC_ARENA_MAX": "2", "RES_OPTIONS": "use-vc"}
    assert child_environment(Permissions(write=[tmp_path], environment=["TMPDIR"]), {"TMPDIR": "/t"}) == {
        "TMPDIR": "/t"
    }
