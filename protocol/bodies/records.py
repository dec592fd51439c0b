"""Converts records in bodies: a NamedTuple of numbers, texts and booleans <-> a JSON object with its field names.

As in headers, names are camelCase unless `rename_on_wire` says otherwise. A field with the value None is not written.
"""

from typing import Any, TypeVar

from lockstep.protocol.bodies.codec import as_object, take
from lockstep.protocol.headers.spec import spec_of

__all__ = ["record_from_wire", "record_to_wire"]

R = TypeVar("R", bound=tuple[Any, ...])


def record_to_wire(record: tuple[Any, ...]) -> dict[str, Any]:
    fields = spec_of(type(record)).fields
    return {field.wire_name: value for field, value in zip(fields, record, strict=True) if value is not None}


def record_from_wire(record_class: type[R], value: Any) -> R:
    """Read a record. Raises BodyError with the name of a missing or wrong member."""
    wire = as_object(value, f"a {record_class.__name__}")
    values = [
        take(wire, field.wire_name, field.kind, field.default)
        if field.optional
        else take(wire, field.wire_name, field.kind)
        for field in spec_of(record_class).fields
    ]
    return record_class._make(values)  # type: ignore[attr-defined, no-any-return]
