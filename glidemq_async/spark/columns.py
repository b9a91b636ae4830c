"""Columns of a frame as Python values, from record batches or from rows, the two forms that Spark hands over."""

# pyarrow comes without annotations.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

__all__ = ["Batch", "Columns", "chunks_of", "columns_of_batch", "columns_of_rows"]

Batch: TypeAlias = Any
"""A record batch of pyarrow, which has no annotations."""

Columns: TypeAlias = Mapping[str, Sequence[Any]]
"""Values by the name of their column, in lower case."""


def chunks_of(batches: Iterable[Batch]) -> Iterator[tuple[Columns, int]]:
    """Yield the columns of record batches, and how many rows they have."""
    for batch in batches:
        yield columns_of_batch(batch), batch.num_rows


def columns_of_batch(batch: Batch) -> Columns:
    """Return the columns of a record batch by their names in lower case, as Python values; maps are dicts."""
    found: dict[str, Sequence[Any]] = {}
    for field, column in zip(batch.schema, batch.columns, strict=True):
        values = column.to_pylist()
        convert = _map_reader(field.type)
        found[field.name.lower()] = [convert(value) for value in values] if convert else values
    return found


def columns_of_rows(rows: Sequence[Any], names: Sequence[str]) -> Columns:
    """Return the columns of rows as Spark hands them over without Arrow."""
    columns = zip(*rows, strict=True) if rows else ((),) * len(names)
    return {name.lower(): [_plain(value) for value in column] for name, column in zip(names, columns, strict=True)}


def _plain(value: Any) -> Any:
    if hasattr(value, "asDict"):
        return value.asDict(recursive=True)
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, bytearray):
        return bytes(value)
    return value


def _map_reader(kind: Any) -> Callable[[Any], Any] | None:
    """Return what turns Arrow's values of a type into dicts where it holds maps, None if it holds none."""
    import pyarrow as pa

    if pa.types.is_map(kind):
        inside = _map_reader(kind.item_type) or _same
        return lambda pairs: None if pairs is None else {key: inside(item) for key, item in pairs}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        inner = _map_reader(kind.value_type)
        return inner and (lambda items: None if items is None else [inner(item) for item in items])
    if pa.types.is_struct(kind):
        fields = [kind.field(number) for number in range(kind.num_fields)]
        readers = {field.name: reader for field in fields if (reader := _map_reader(field.type))}
        if readers:
            return lambda struct: None if struct is None else {k: readers.get(k, _same)(v) for k, v in struct.items()}
    return None


def _same(value: Any) -> Any:
    return value
