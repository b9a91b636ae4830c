"""The lean part of the benchmarks: the order of its samples, its targets and its section of the report."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

from benchmarks import venvs
from benchmarks.__main__ import main
from benchmarks.call_times import MEASURED, processor_times
from benchmarks.figures import MeasuredRows
from benchmarks.lean import page
from benchmarks.lean.scenarios import lacking, lean_scenarios, on
from benchmarks.lean.targets import LEAN_TARGETS
from benchmarks.report import longest_table, processor_table
from benchmarks.scenarios import RUNS, Scenario
from benchmarks.server import ask, connected
from benchmarks.sizes import TINY
from benchmarks.slow_log import LONGEST, LONGEST_COMMAND
from benchmarks.suite import SERVERS, in_turns, run_suite
from benchmarks.targets import judge
from glidemq_async import JobOptions, Queue
from glidemq_async.functions.loader import LIBRARY, function_name
from tests.bench.test_bench import run_benchmarks


def _scenario(run: str, rounds: int = 1_000) -> Scenario:
    return Scenario(run, lambda _: (), rounds=rounds)


def test_every_second_round_runs_backwards() -> None:
    scenarios = [_scenario("a"), _scenario("b", rounds=1), _scenario("c")]
    assert ["".join(s.run for s in in_turns(scenarios, number)) for number in range(3)] == ["abc", "ca", "ac"]


def test_the_loop_and_the_queue_alternate_on_each_version_of_python() -> None:
    scenarios = lean_scenarios({"3.11": "own", "3.13": "other"})
    drains = [(s.run, s.suffix, s.python) for s in scenarios if s.suffix.startswith(", Python")]
    assert drains == [
        ("loop", ", Python 3.11", ""),
        ("drain_100", ", Python 3.11", ""),
        ("loop", ", Python 3.13", "other"),
        ("drain_100", ", Python 3.13", "other"),
    ]
    assert {s.run for s in scenarios} <= RUNS.keys()
    assert {s.server for s in scenarios} == {"redis", "valkey"} < SERVERS.keys()


def test_a_drain_is_compared_with_the_loop_of_the_same_version() -> None:
    figures = MeasuredRows()
    for version, rate in (("3.11", 90.0), ("3.13", 110.0)):
        rows = {"drain, concurrency 100": {"rate": rate}, "loop, drain": {"rate": 100.0}}
        figures.add(0, rows, on(version))
    found = {verdict.target.what: verdict for verdict in judge(figures, LEAN_TARGETS)}
    for version, share in (("3.11", 0.9), ("3.13", 1.1)):
        verdict = found[f"drain of plain jobs at concurrency 100, Python {version}"]
        assert verdict.found is not None
        assert verdict.found.median == pytest.approx(share)
        assert verdict.met


def test_the_worst_run_of_the_service_and_the_longest_call_are_judged() -> None:
    figures = MeasuredRows()
    for number, p99 in enumerate((4_000.0, 12_000.0, 5_000.0)):
        figures.add(number, {"FastAPI, 200 clients, 1,000/s: add": {"p99_us": p99}})
        figures.add(number, {f"{LONGEST}addJob, drain_100": {"most_us": 1_000.0 * number}})
        figures.add(number, {f"{LONGEST}addJob, add_bulk": {"most_us": 1_500.0}})
        figures.add(number, {f"{LONGEST_COMMAND}XADD, loop": {"most_us": 9_000.0}})
    found = {verdict.target.what: verdict for verdict in judge(figures, LEAN_TARGETS)}
    service = found["add in a FastAPI service with 200 clients and 1,000 requests/s, p99, worst run"]
    assert service.found is not None
    assert service.found.median == 12_000
    assert not service.met
    longest = found["longest function call"]
    assert longest.found is not None
    assert longest.found.median == 2_000
    assert longest.met
    assert longest_table(figures)[1:] == [["XADD", "9,000", "loop"], ["addJob", "2,000", "drain_100"]]


def test_the_longest_call_is_reported_with_its_own_processor_time() -> None:
    figures = MeasuredRows()
    for number, (wall, processor, most) in enumerate(((9_000.0, 900.0, 2_000.0), (4_000.0, 3_000.0, 3_000.0))):
        row = {"wall_us": wall, "processor_us": processor, "most_processor_us": most}
        figures.add(number, {f"{MEASURED}addJob, fastapi_service": row})
    assert processor_table(figures)[1:] == [["addJob", "fastapi_service", "9,000", "900", "3,000"]]
    (verdict,) = (v for v in judge(figures, LEAN_TARGETS) if v.target.what.startswith("processor time of a function"))
    assert verdict.found is not None
    assert verdict.found.median == 3_000


@pytest.mark.skipif(bool(lacking()), reason=lacking())
async def test_a_call_does_not_use_more_processor_time_than_it_lasts() -> None:
    with SERVERS["redis"]() as url:
        async with connected(url) as wire, Queue[int, None]("measured", url) as queue:
            async with processor_times(wire, "test") as rows:
                await queue.add_bulk([("job", 0, JobOptions(key=f"k{number}")) for number in range(5_000)])
            after = await ask(wire, "FUNCTION", "LIST", "LIBRARYNAME", LIBRARY, "WITHCODE")
    row = rows[f"{MEASURED}{function_name('addGroups')}, test"]
    assert 0 < row["processor_us"] <= row["most_processor_us"]
    assert row["processor_us"] <= row["wall_us"]
    assert "benchmarkTimes" not in str(after)


def test_a_new_section_replaces_the_earlier_one() -> None:
    first = page.section(MeasuredRows(), 1, {"date": "first"})
    text = page.with_section("# Benchmark\n", first)
    assert text == f"# Benchmark\n\n{first}"
    second = page.section(MeasuredRows(), 1, {"date": "second"})
    assert page.with_section(text + "rest\n", second) == f"# Benchmark\n\n{second}rest\n"


async def test_a_failed_sample_is_reported_and_the_others_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SERVERS, "embedded", lambda: nullcontext("redis://127.0.0.1:1"))
    said: list[str] = []
    figures = await run_suite(TINY, 1, [_scenario("add_bulk"), _scenario("no such run")], said.append)
    assert figures.rows == []
    assert figures.failures == [
        "round 1/1: add_bulk: the process ended with status 1",
        "round 1/1: no such run: the process ended with status 1",
    ]
    assert "- FAILED round 1/1: add_bulk: the process ended with status 1\n" in page.section(figures, 1, {})


def test_without_a_server_the_lean_part_reports_that_it_did_not_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", "")
    written = tmp_path / "bench.md"
    assert main(["--only", "lean", "--tiny", "--check", "--output", str(written)]) == 2
    assert "the lean part did NOT run: there is no redis-server" in capsys.readouterr().err
    assert not written.exists()


def test_an_environment_is_created_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(venvs, "FOLDER", tmp_path)
    first = venvs.install_commands("saq", "python3.13", ["saq[redis]"], uses_uv=False)
    assert first[0] == ["python3.13", "-m", "venv", str(venvs.FOLDER / "saq")]
    assert first[1][-1] == "saq[redis]"
    [create, add] = venvs.install_commands("saq", "python3.13", ["saq[redis]"], uses_uv=True)
    assert create[:2] == ["uv", "venv"]
    assert add[:3] == ["uv", "pip", "install"]
    venvs.python_in("saq").parent.mkdir(parents=True)
    venvs.python_in("saq").touch()
    assert len(venvs.install_commands("saq", "python3.13", ["saq[redis]"], uses_uv=True)) == 1


def test_this_interpreter_measures_its_own_version() -> None:
    assert venvs.version_of(venvs.interpreters()[venvs.OWN_VERSION]) == venvs.OWN_VERSION


# Each of about thirty samples runs in a separate process.
@pytest.mark.slow
@pytest.mark.redis7
@pytest.mark.timeout(400)
async def test_every_target_of_the_lean_path_is_measured(tmp_path: Path) -> None:
    written = tmp_path / "bench.md"
    status, _ = await run_benchmarks("--only", "lean", "--output", str(written))
    assert status == 0
    lines = written.read_text(encoding="utf-8").splitlines()
    # Another version of Python may not be installed.
    assert [line for line in lines if "not measured" in line and "Python 3." not in line] == []
    assert any(line.startswith("| drain, concurrency 100, Valkey |") for line in lines)
