"""The lag of a streaming query, from the offsets that sources tell."""

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
        # Ours: ids are no numbers, "b" is where the batch began.
        (
            '{"b":{"q":{"id":"1-0","n":1}},"s":{"q":{"id":"5-0","n":40}},"v":1}',
            '{"b":{"q":{"id":"9-0","n":90}},"s":{"q":{"id":"9-9","n":50}},"v":1}',
            10,
        ),
        # A partition, a topic, a queue that came later is read from its beginning.
        ('{"events":{"0":23}}', '{"events":{"0":25,"1":9},"more":{"0":4}}', 15),
        ('{"b":{},"s":{},"v":1}', '{"b":{"q":{"n":90}},"s":{"q":{"id":"9-9","n":50}},"v":1}', 50),
        ("null", '{"events":{"0":3}}', 3),
        # One that has gone holds nothing to read.
        ('{"events":{"0":23,"1":5}}', '{"events":{"0":25}}', 2),
        ('{"events":{}}', '{"events":{"0":"new"}}', None),
        ('{"logOffset":4}', '{"logOffset":2}', 0),
        ("null", "null", None),
        (None, "{}", None),
        ("not json", "neither", None),
    ],
)
def test_lag(end: object, latest: object, lag: int | None) -> None:
    assert lag_of([(end, latest)]) == lag


def test_lag_of_several_sources() -> None:
    assert lag_of([("1", "2"), ("1", "4")]) == 4
    assert lag_of([("1", "2"), ("?", "?")]) is None
    assert lag_of([]) is None
