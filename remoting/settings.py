"""Settings: frozen dataclasses whose fields may also be given under RocketMQ's own property names."""

import typing
from collections.abc import Callable, Mapping
from dataclasses import field, fields, replace
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, NamedTuple, TypeVar

from lockstep.protocol.errors import ClientError
from lockstep.remoting.texts import known_names

__all__ = [
    "PORT_MAX",
    "Address",
    "SettingError",
    "Unit",
    "as_properties",
    "check_types",
    "is_everywhere",
    "is_ipv6",
    "is_loopback",
    "live_properties",
    "parse_address",
    "parse_addresses",
    "parse_properties",
    "scaled",
    "setting",
    "with_properties",
]

C = TypeVar("C")

PORT_MAX = 65535
_PORT_DIGITS_MAX = 5


class SettingError(ClientError, ValueError):
    """A setting is wrong; the text names it and says what is allowed."""


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> Address:
    """Parse "host:port". An IPv6 host may be in brackets, as in "[::1]:9876". Raises SettingError."""
    scheme, is_url, _ = text.strip().partition("://")
    if is_url:
        raise SettingError(f"{text!r} is a URL; write host:port without {scheme}://, for example 127.0.0.1:9876")
    host, colon, port = text.strip().rpartition(":")
    number = int(port) if port.isascii() and port.isdigit() and len(port) <= _PORT_DIGITS_MAX else PORT_MAX + 1
    bracketed = host.startswith("[") and host.endswith("]")
    if bracketed:
        host = host[1:-1]
    wrong_host = not host or "/" in host or ((bracketed or ":" in host) and not is_ipv6(host))
    if not colon or wrong_host or number > PORT_MAX:
        raise SettingError(f"{text!r} is not an address; write host:port, for example 127.0.0.1:9876 or [::1]:9876")
    return Address(host, number)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches what listens on a host."""
    if host.lower() == "localhost":
        return True
    # imported here: few need it, and it slows the start
    from ipaddress import ip_address

    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def is_ipv6(host: str) -> bool:
    """Whether a text is an IPv6 address without brackets."""
    if ":" not in host:
        return False
    from ipaddress import IPv6Address  # imported here: rarely needed, and it slows the start

    try:
        IPv6Address(host)
    except ValueError:
        return False
    return True


def is_everywhere(host: str) -> bool:
    """Whether a host to listen at stands for every address of the machine, in any spelling."""
    if not is_ipv6(host):
        # The system takes "0" for 0.0.0.0, too.
        return not host.strip("0.")
    from ipaddress import IPv6Address

    address = IPv6Address(host)
    return (address.ipv4_mapped or address).is_unspecified


def parse_addresses(text: str) -> tuple[Address, ...]:
    """Addresses separated by semicolons, as in NAMESRV_ADDR, or by commas. Raises SettingError."""
    if not isinstance(text, str):
        raise SettingError(f"addresses are a text such as '127.0.0.1:9876', not {type(text).__name__} {text!r:.80}")
    addresses = tuple(parse_address(part) for part in text.replace(",", ";").split(";") if part.strip())
    if not addresses:
        raise SettingError("at least one address is needed; write host:port, for example 127.0.0.1:9876")
    return addresses


class Unit(NamedTuple):
    """Converts a property whose unit differs between RocketMQ and our settings.

    `read` raises ValueError for other texts; `wanted` describes the allowed ones.
    """

    read: Callable[[str], Any]
    write: Callable[[Any], str]
    wanted: str


def scaled(factor: int, wanted: str) -> Unit:
    """Whole numbers whose unit is `factor` times ours. Numbers up to 0 have special meanings and are not converted."""

    def read(text: str) -> int:
        number = int(text)
        return number * factor if number > 0 else number

    def write(value: int) -> str:
        return str(value // factor if value > 0 else value)

    return Unit(read, write, wanted)


def setting(
    default: Any, *, name: str | None = None, live: bool = False, unit: Unit | None = None, text: bool = True
) -> Any:
    """A dataclass field with a default and, in `name`, RocketMQ's own name of the same property.

    `live`: it may be changed while the program runs. `unit`: the unit of RocketMQ's property, where the field has
    another one. `text`: False for a value that is never given or shown as text, such as a secret.
    """
    named = {"property": name} if name else {}
    return field(default=default, metadata={"live": live, "unit": unit, "text": text, **named})


def _shown(config: Any) -> list[Any]:
    return [f for f in fields(config) if f.metadata.get("text", True)]


def parse_properties(text: str) -> dict[str, str]:
    """Lines of "name=value", as Java writes properties; blank lines and comments are skipped. Raises SettingError."""
    properties = {}
    for line in text.splitlines():
        line = line.strip()
        if not line or line[0] in "#!":
            continue
        name, equals, value = line.partition("=")
        if not equals or not name.strip():
            raise SettingError(f"{line[:80]!r} is not a line of name=value")
        properties[name.strip()] = value.strip()
    return properties


def _property_name(f: Any) -> str:
    name: str = f.metadata.get("property", f.name)
    return name


def as_properties(config: Any) -> dict[str, str]:
    """Every setting as text, under RocketMQ's name and in RocketMQ's unit where there is one.

    `with_properties` reads them.
    """
    return {_property_name(f): _as_property(f, getattr(config, f.name)) for f in _shown(config)}


def _as_property(known: Any, value: Any) -> str:
    unit: Unit | None = known.metadata.get("unit")
    return _text(value) if unit is None or value is None else unit.write(value)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.name if isinstance(value, Enum) else str(value)


def live_properties(config: Any) -> tuple[str, ...]:
    """The names of the settings that may be changed while the program runs."""
    return tuple(_property_name(f) for f in fields(config) if f.metadata.get("live"))


@cache
def _known_of(config_class: type[Any]) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Fields by all their names, fields by RocketMQ's names, and the types of fields."""
    ours = {f.name: f for f in _shown(config_class)}
    theirs = {f.metadata["property"]: f for f in ours.values() if "property" in f.metadata}
    return ours | theirs, theirs, typing.get_type_hints(config_class)


def check_types(config: Any) -> None:
    """Raise SettingError for the first field that has a value of another type than its annotation says.

    A type checker says the same; but a wrong value would fail later, in the midst of work, or mean something else.
    """
    kinds_by_name = _known_of(type(config))[2]  # type: ignore[arg-type]  # a class is hashable
    for name, kind in kinds_by_name.items():
        value = getattr(config, name)
        kinds = typing.get_args(kind) if isinstance(kind, UnionType) else (kind,)
        # A bool is an int to Python, and as a number it is a mistake.
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            wanted = " or ".join("None" if one is NoneType else _wanted(one) for one in kinds)
            raise SettingError(f"{name} must be {wanted}, not {type(value).__name__} {value!r:.80}")


def _wanted(kind: type) -> str:
    if issubclass(kind, Enum):
        return " or ".join(str(member) for member in kind)
    return {int: "a whole number (int)", bool: "True or False", str: "a text (str)"}.get(kind, f"a {kind.__name__}")


def with_properties(config: C, properties: Mapping[str, str], **settings: Any) -> C:
    """`config` changed by properties, under our names or RocketMQ's. Raises SettingError with the wrong name.

    Args:
        settings: Changed in the same step, so that rules about several settings see the whole. Properties win.
    """
    by_name, theirs, kinds = _known_of(type(config))  # type: ignore[arg-type]  # a class is hashable
    changes: dict[str, Any] = {}
    for name, text in properties.items():
        if name not in by_name:
            known_ones = known_names(name, sorted(by_name), "docs/settings.md", begin="known are")
            raise SettingError(f"unknown property {name!r}; {known_ones}")
        known = by_name[name]
        unit: Unit | None = known.metadata.get("unit") if name in theirs else None
        changes[known.name] = _parse(name, text, kinds[known.name]) if unit is None else _converted(name, text, unit)
    changed: C = replace(config, **settings | changes)  # type: ignore[type-var]
    return changed


def _converted(name: str, text: str, unit: Unit) -> Any:
    try:
        return unit.read(text)
    except (ValueError, OverflowError, OSError):
        # ValueError: no date at all. The others: dates that the platform cannot represent.
        raise SettingError(f"property {name!r} must be {unit.wanted}, not {text!r}") from None


def _parse(name: str, text: str, kind: Any) -> Any:
    """`kind` is bool, int, str or an enum, or one of them with None beside it."""
    if isinstance(kind, UnionType):
        (kind,) = (arm for arm in typing.get_args(kind) if arm is not NoneType)
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise SettingError(f"property {name!r} must be true or false, not {text!r}")
        return text.lower() == "true"
    if kind is int:
        try:
            return int(text)
        except ValueError:
            raise SettingError(f"property {name!r} must be a whole number, not {text!r}") from None
    if issubclass(kind, Enum):
        if text not in kind.__members__:
            raise SettingError(f"property {name!r} must be one of {', '.join(kind.__members__)}, not {text!r}")
        return kind[text]
    return text
