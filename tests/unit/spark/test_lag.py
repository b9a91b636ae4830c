"""The lag of a streaming query, computed from the offsets of its sources."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

from glidemq_async.spark.driver.streams import lag_of


@pytest.mark.parametrize(
    ("end", "latest", "lag"),
    [
        ("3", "10", 7),
        (3, 10, 7),
        ('{"events":{"0":23,"1":5}}', '{"events":{"0":25,"1":9}}', 6),
        # Offsets of format("glidemq"): ids are strings, and "b" contains the begins.
        (
            '{"b":{"q":{"id":"1-0","n":1}},"s":{"q":{"id":"5-0","n":40}},"v":1}',
            '{"b":{"q":{"id":"9-0","n":90}},"s":{"q":{"id":"9-9","n":50}},"v":1}',
            10,
        ),
        # A new partition, topic or queue counts from its beginning.
        ('{"events":{"0":23}}', '{"events":{"0":25,"1":9},"more":{"0":4}}', 15),
        ('{"b":{},"s":{},"v":1}', '{"b":{"q":{"n":90}},"s":{"q":{"id":"9-9","n":50}},"v":1}', 50),
        ("null", '{"events":{"0":3}}', 3),
        # A removed one has no unread rows.
        ('{"events":{"0":23,"1":5}}', '{"events":{"0":25}}', 2),
        ('{"events":{}}', '{"events":{"0":"new"}}', None),
        ('{"logOffset":4}', '{"logOffset":2}', 0),
        ("null", "null", None),
        (None, "{}", None),
        ("not json", "neither", None),
    ],
)
def test_the_lag_is_the_distance_to_the_newest_event(end: object, latest: object, lag: int | None) -> None:
    assert lag_of([(end, latest)]) == lag


def test_the_lag_of_several_sources_is_their_sum() -> None:
    assert lag_of([("1", "2"), ("1", "4")]) == 4
    assert lag_of([("1", "2"), ("?", "?")]) is None
    assert lag_of([]) is None
