"""How a typed header, a NamedTuple, meets the wire: names, kinds and limits derived from its annotations.

A header's fields are declared once. In JSON they go by name (camelCase unless `rename_on_wire` says otherwise)
and as text; in MSGPACK by position and typed.
"""

import typing
from collections.abc import Mapping
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, NamedTuple

from lockstep.protocol.errors import HeaderError, shown

__all__ = ["HeaderSpec", "Int32", "rename_on_wire", "spec_of"]

Int32 = Annotated[int, 32]

_RENAMED: dict[type[tuple[Any, ...]], Mapping[str, str]] = {}
_SHAPES_MAX = 64  # a header has a handful of shapes; a hostile peer must not grow this


class _Field(NamedTuple):
    name: str
    wire_name: str
    kind: type  # int, str or bool
    bits: int  # 32 or 64, for ints
    optional: bool
    default: Any

    @property
    def nullable(self) -> bool:
        return self.optional and self.default is None


class HeaderSpec:
    """The table made from one header class; `spec_of` keeps one per class."""

    def __init__(self, header_class: type[tuple[Any, ...]]) -> None:
        self._class = header_class
        self._make: Any = header_class._make  # type: ignore[attr-defined]
        self.fields = tuple(_fields_of(header_class))
        self._accepted_shapes: set[tuple[type, ...]] = set()
        self._int32 = tuple(i for i, f in enumerate(self.fields) if f.kind is int and f.bits == 32)
        self._int64 = tuple(i for i, f in enumerate(self.fields) if f.kind is int and f.bits == 64)

    def to_texts(self, header: tuple[Any, ...]) -> dict[str, str]:
        """extFields of a JSON header: absent values are left out, everything is text."""
        texts = {}
        for field, value in zip(self.fields, header, strict=True):
            if value is None:
                continue
            if field.kind is bool:
                texts[field.wire_name] = "true" if value else "false"
            else:
                texts[field.wire_name] = value if type(value) is str else str(value)
        return texts

    def from_ext_fields(self, ext_fields: Mapping[str, Any]) -> tuple[Any, ...]:
        """Raises HeaderError naming a field that is missing or is not what it must be."""
        values = []
        for field in self.fields:
            value = ext_fields.get(field.wire_name)
            if value is None:
                if not field.optional:
                    raise HeaderError(f"the field {field.wire_name} ({field.name}) is missing")
                values.append(field.default)
            else:
                values.append(_COERCE[field.kind](field, value))
        header: tuple[Any, ...] = self._make(values)
        return header

    def from_positional(self, values: list[Any]) -> tuple[Any, ...]:
        """Raises HeaderError likewise. The types of a header that was right once are checked by one set look-up."""
        shape = tuple(map(type, values))
        if shape not in self._accepted_shapes:
            values = self._checked(values)
            if len(values) == len(shape) and len(self._accepted_shapes) < _SHAPES_MAX:
                self._accepted_shapes.add(shape)
        for i in self._int32:
            value = values[i]
            if value is not None and not -0x80000000 <= value <= 0x7FFFFFFF:
                raise _out_of_range(self.fields[i], value)
        for i in self._int64:
            value = values[i]
            if value is not None and value > 0x7FFFFFFFFFFFFFFF:  # msgpack itself stops at -2**63
                raise _out_of_range(self.fields[i], value)
        header: tuple[Any, ...] = self._make(values)
        return header

    def _checked(self, values: list[Any]) -> list[Any]:
        values = values[: len(self.fields)]
        for field in self.fields[len(values) :]:
            if not field.optional:
                raise HeaderError(f"the field {field.wire_name} ({field.name}) is missing")
            values.append(field.default)
        for field, value in zip(self.fields, values, strict=True):
            if type(value) is not field.kind and not (value is None and field.nullable):
                raise HeaderError(
                    f"the field {field.wire_name} must be of type {field.kind.__name__}, not {shown(value)}"
                )
        return values


def rename_on_wire(header_class: type[tuple[Any, ...]], names: Mapping[str, str]) -> None:
    """Give fields of a class JSON names of their own; call it where the class is declared."""
    _RENAMED[header_class] = names


@cache
def spec_of(header_class: type[tuple[Any, ...]]) -> HeaderSpec:
    return HeaderSpec(header_class)


def _fields_of(header_class: type[tuple[Any, ...]]) -> list[_Field]:
    hints = typing.get_type_hints(header_class, include_extras=True)
    renamed = _RENAMED.get(header_class, {})
    defaults = header_class._field_defaults  # type: ignore[attr-defined]
    fields = []
    for name in header_class._fields:  # type: ignore[attr-defined]
        hint, optional = hints[name], name in defaults
        if isinstance(hint, UnionType) or typing.get_origin(hint) is typing.Union:
            (hint,) = (arm for arm in typing.get_args(hint) if arm is not NoneType)
        bits = 64
        if typing.get_origin(hint) is Annotated:
            hint, bits = typing.get_args(hint)
        fields.append(_Field(name, renamed.get(name) or _camel(name), hint, bits, optional, defaults.get(name)))
    return fields


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def _out_of_range(field: _Field, value: int) -> HeaderError:
    return HeaderError(f"the field {field.wire_name} must fit {field.bits} bits, not {value}")


def _to_int(field: _Field, value: Any) -> int:
    """Java's parser takes ASCII digits with a sign; ali-ons sends numbers as they are."""
    number = value
    if type(value) is str and value.isascii() and (value.isdecimal() or (value[1:].isdecimal() and value[0] in "+-")):
        try:
            number = int(value)
        except ValueError:  # thousands of digits
            number = None
    if type(number) is not int:
        raise HeaderError(f"the field {field.wire_name} must be a number, not {shown(value)}")
    if not -(1 << field.bits - 1) <= number < 1 << field.bits - 1:
        raise _out_of_range(field, number)
    return number


def _to_bool(field: _Field, value: Any) -> bool:
    """Java's rule: true is only the text "true" in any case; "1" is false (wire.md 1.2)."""
    return value if type(value) is bool else _to_str(field, value).lower() == "true"


def _to_str(field: _Field, value: Any) -> str:
    if type(value) is str:
        return value
    if type(value) not in (int, float, bool):
        raise HeaderError(f"the field {field.wire_name} must be text, not {shown(value)}")
    return "true" if value is True else "false" if value is False else str(value)


_COERCE = {int: _to_int, bool: _to_bool, str: _to_str}
