"""Convert the columns of a frame to Python values, from record batches or from rows: Spark passes either form."""

# pyarrow comes without annotations.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeAlias

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    CalendarIntervalType,
    DataType,
    MapType,
    StructType,
    TimestampType,
    VariantType,
    VariantVal,
    YearMonthIntervalType,
)

__all__ = ["Batch", "Columns", "check_types", "chunks_of", "columns_of_batch", "columns_of_rows"]

Batch: TypeAlias = Any
"""A record batch of pyarrow, which has no annotations."""

Columns: TypeAlias = Mapping[str, Sequence[Any]]
"""The values of each column, by its name in lower case."""


def chunks_of(batches: Iterable[Batch]) -> Iterator[tuple[Columns, int]]:
    """Yield the columns of each record batch and its number of rows."""
    for batch in batches:
        yield columns_of_batch(batch), batch.num_rows


def columns_of_batch(batch: Batch) -> Columns:
    """Return the columns of a record batch as Python values, by their names in lower case. Maps become dicts."""
    found: dict[str, Sequence[Any]] = {}
    for field, column in zip(batch.schema, batch.columns, strict=True):
        values = column.to_pylist()
        convert = _map_reader(field.type)
        found[field.name.lower()] = [convert(value) for value in values] if convert else values
    return found


def columns_of_rows(rows: Sequence[Any], schema: StructType) -> Columns:
    """Return the columns of rows that Spark passes without Arrow, with the same values as from record batches."""
    columns = zip(*rows, strict=True) if rows else ((),) * len(schema)
    found: dict[str, Sequence[Any]] = {}
    for field, column in zip(schema, columns, strict=True):
        convert = _row_reader(field.dataType)
        found[field.name.lower()] = [convert(value) for value in column] if convert else [*column]
    return found


def check_types(schema: StructType) -> None:
    """Raise ValueError for a column of a type that jobs cannot contain."""
    for field in schema:
        if _contains_months(field.dataType):
            raise ValueError(
                f"the column `{field.name}` contains {field.dataType.simpleString()}, but job data cannot contain "
                "months, because their length varies; cast them to a string or a number, or drop the column"
            )


def _contains_months(kind: DataType) -> bool:
    if isinstance(kind, ArrayType):
        return _contains_months(kind.elementType)
    if isinstance(kind, MapType):
        return _contains_months(kind.keyType) or _contains_months(kind.valueType)
    if isinstance(kind, StructType):
        return any(_contains_months(field.dataType) for field in kind)
    return isinstance(kind, YearMonthIntervalType | CalendarIntervalType)


def _row_reader(kind: DataType) -> Callable[[Any], Any] | None:
    """Return the conversion from a row's values of a type to Arrow's values, or None if they are the same."""
    convert: Callable[[Any], Any] | None = None
    if isinstance(kind, StructType):
        readers = [(field.name, _row_reader(field.dataType) or _same) for field in kind]
        convert = lambda row: {name: read(value) for (name, read), value in zip(readers, row, strict=True)}  # noqa: E731
    elif isinstance(kind, ArrayType):
        inner = _row_reader(kind.elementType)
        convert = inner and (lambda items: [inner(item) for item in items])
    elif isinstance(kind, MapType):
        of_key, of_value = _row_reader(kind.keyType) or _same, _row_reader(kind.valueType) or _same
        convert = lambda pairs: {of_key(key): of_value(value) for key, value in pairs.items()}  # noqa: E731
    elif isinstance(kind, BinaryType):
        convert = bytes
    elif isinstance(kind, TimestampType):
        convert = _instant
    elif isinstance(kind, VariantType):
        convert = VariantVal.toPython
    return convert and _unless_null(convert)


def _unless_null(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else convert(value)


def _instant(local: datetime) -> datetime:
    """Return an instant in UTC. Spark passes it as local time of this machine without a time zone."""
    # A naive datetime is taken as local time here, as Spark made it. The jobs of a query must not depend on the time
    # zone of the executor that ran the task.
    return local.astimezone(UTC)


def _map_reader(kind: Any) -> Callable[[Any], Any] | None:
    """Return the conversion of Arrow's maps to dicts for a type, or None if it contains no maps."""
    import pyarrow as pa

    if pa.types.is_map(kind):
        inside = _map_reader(kind.item_type) or _same
        return lambda pairs: None if pairs is None else {key: inside(item) for key, item in pairs}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        inner = _map_reader(kind.value_type)
        return inner and (lambda items: None if items is None else [inner(item) for item in items])
    if _is_variant(kind):
        return lambda pair: None if pair is None else VariantVal(pair["value"], pair["metadata"]).toPython()
    if pa.types.is_struct(kind):
        fields = [kind.field(number) for number in range(kind.num_fields)]
        readers = {field.name: reader for field in fields if (reader := _map_reader(field.type))}
        if readers:
            return lambda struct: None if struct is None else {k: readers.get(k, _same)(v) for k, v in struct.items()}
    return None


def _is_variant(kind: Any) -> bool:
    """Return True for the struct by which Spark represents a variant. Metadata of a field marks it."""
    import pyarrow as pa

    if not pa.types.is_struct(kind) or kind.num_fields != 2:
        return False
    fields = {field.name: field.metadata or {} for field in (kind.field(0), kind.field(1))}
    return fields.keys() == {"value", "metadata"} and fields["metadata"].get(b"variant") == b"true"


def _same(value: Any) -> Any:
    return value
