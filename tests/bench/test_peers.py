"""The measurement of other queues: its order, its phases and its page. The peers themselves are not installed."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.peers import page, phases
from benchmarks.peers.__main__ import main
from benchmarks.peers.catalogue import LOOP, OURS, PEERS, candidates
from benchmarks.peers.harness import server_seconds
from benchmarks.peers.runner import PeerRun, in_turns, last_line, measure_all, row_of
from benchmarks.server import tcp_server
from tests.support.servers import redis7_binary

ADAPTERS = Path(page.__file__).parent / "adapters"
SAQ = next(peer for peer in PEERS if peer.name == "saq")


def _run() -> PeerRun:
    run = PeerRun(versions={OURS.title: "0.1.0", SAQ.title: "0.26.4"})
    for number, slowness in enumerate((1, 4)):
        rates = {OURS.title: 8_000.0, SAQ.title: 2_000.0}
        run.figures.add(
            number, {row_of(title, "drain"): {"rate": rate / slowness, "repeated": 0} for title, rate in rates.items()}
        )
    return run


def test_each_candidate_has_an_adapter_and_a_short_method() -> None:
    for candidate in (OURS, LOOP, *PEERS):
        assert (ADAPTERS / f"{candidate.name}_adapter.py").exists()
        assert candidate.method.count(". ") <= 2
        assert candidate.jobs in {5_000, 20_000}


def test_the_candidates_take_turns() -> None:
    everybody = candidates(None)
    assert [each.name for each in everybody[:2]] == ["glidemq", "bare_loop"]
    assert in_turns(everybody, 0) == everybody
    assert in_turns(everybody, 1) == everybody[::-1]
    assert candidates(["saq"]) == [OURS, LOOP, SAQ]


def test_an_unknown_peer_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", "sidekiq"]) == 2
    assert "there is no peer 'sidekiq'; the peers are ardiq, arq," in capsys.readouterr().err


def test_without_a_server_nothing_is_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "")
    assert main([]) == 2
    assert "NOT measured: there is no redis-server" in capsys.readouterr().err


def test_the_processor_time_of_the_server_is_read_from_its_report() -> None:
    assert server_seconds("# CPU\r\nused_cpu_sys:1.5\r\nused_cpu_user:2.25\r\nused_cpu_sys_children:9\r\n") == 3.75


def test_the_first_jobs_are_no_part_of_the_latency() -> None:
    called = {str(number): 10.0 for number in range(1, 41)}
    started = {number: 15.0 if int(number) < phases.WARM_UP else 10.001 for number in called}
    assert phases.latencies(called, started)["p99_us"] == pytest.approx(1_000, rel=0.01)


def test_the_last_line_of_an_installer_is_the_error() -> None:
    failed = subprocess.CalledProcessError(
        1, ["pip"], output="", stderr="collecting\nERROR: no wheel for this system\n"
    )
    assert last_line(failed) == "ERROR: no wheel for this system"
    assert last_line(FileNotFoundError("no uv")) == "FileNotFoundError: no uv"


def test_shares_are_computed_for_each_round() -> None:
    [_, saq] = page.share_table(_run(), [OURS, SAQ])
    assert saq[:2] == ["SAQ", "0.25"]


def test_the_page_shows_a_failure_with_its_error() -> None:
    run = _run()
    run.failures[SAQ.title] = "work: TypeError: a | b"
    text = page.page(run, [OURS, SAQ], 2, {"load": "1.0 before the first round"})
    assert "| SAQ | 0.26.4 | on, 10 minutes | 5,000 | 0 | FAILED: work: TypeError: a \\| b |" in text
    assert "| glidemq_async | 0.1.0 |" in text
    assert "- load: 1.0 before the first round" in text


def _this_python(_name: str) -> Path:
    return Path(sys.executable)


@pytest.mark.redis7
async def test_a_candidate_is_measured_and_a_missing_one_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(phases, "python_in", _this_python)
    monkeypatch.setattr(phases, "IDLE_JOBS", 30)
    binary, run, said = redis7_binary(), PeerRun(), list[str]()
    assert binary is not None
    with tcp_server(binary) as url:
        await measure_all(run, [replace(OURS, jobs=600), replace(SAQ, jobs=600)], 1, url, said.append)
    for phase in ("one", "callers", "bulk", "drain"):
        metrics = run.figures.metrics(row_of(OURS.title, phase))
        assert metrics["rate"].median > 0
        assert metrics["server_us"].median > 0
    assert run.figures.metrics(row_of(OURS.title, "drain"))["repeated"].most == 0
    idle = run.figures.metrics(row_of(OURS.title, "idle"))
    assert 0 < idle["p50_us"].median <= idle["p99_us"].median
    # The package saq is not installed in the environment of the tests.
    assert run.failures == {"SAQ": "add: ModuleNotFoundError: No module named 'saq'"}
    assert "!!! SAQ: add: ModuleNotFoundError: No module named 'saq'" in said
