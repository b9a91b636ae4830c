"""The page of the benchmark of workflows: a part that is measured alone replaces only its own section."""

from __future__ import annotations

from benchmarks.workflows.figures import Figure, section, updated

PARTS = ("steps", "flows")


def test_a_measured_part_replaces_only_its_own_section() -> None:
    first = updated("", PARTS, {"flows": section("flows", [Figure("rate", 0.5, "ratio", least=1)], {"load": "1"})})
    both = updated(first, PARTS, {"steps": section("steps", [Figure("time", 3, "ms", most=5)], {"load": "2"})})
    assert [line for line in both.splitlines() if line.startswith("#")] == [
        "# Workflows and flows",
        "## Steps",
        "## Flows",
    ]
    again = updated(both, PARTS, {"flows": section("flows", [Figure("rate", 2, "ratio", least=1)], {"load": "3"})})
    assert "missed" in both
    assert "missed" not in again
    assert "- load: 2" in again
    assert "- load: 1" not in again
