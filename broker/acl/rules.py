"""The content of plain_acl.yml and of the files in conf/acl: global white addresses, and accounts.

Field names and their meaning are RocketMQ's. A file with a fault is refused as a whole; RocketMQ loads what comes
before the fault. What RocketMQ reads without a word, but hardly as it was meant, is a warning.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from lockstep.broker.acl.addresses import AddressPattern, address_pattern
from lockstep.broker.acl.errors import RuleError
from lockstep.broker.acl.fields import ACCOUNTS, VERSION, WHITE_ADDRESSES
from lockstep.broker.acl.permissions import DENY, Account, parse_permission
from lockstep.protocol.names import retry_topic

__all__ = ["AclFile", "account_of", "parse_file"]

_KEY_LENGTH_MIN: Final = 7
_FIELDS: Final = frozenset(
    {"accessKey", "secretKey", "whiteRemoteAddress", "admin", "defaultTopicPerm", "defaultGroupPerm", "topicPerms"}
    | {"groupPerms"}
)
_TRUE: Final = ("true", "1", "yes")


@dataclass(frozen=True, slots=True)
class AclFile:
    """One file.

    Args:
        document: As YAML has it, to show and to change.
        white_addresses: The patterns of addresses that need no signature.
        accounts: In the order of the file.
        counter: How often administrators changed the file.
        changed_ms: When they did so last; 0: never.
        warnings: What is read otherwise than it looks.
    """

    document: dict[str, Any] = field(default_factory=dict, repr=False)
    white_addresses: tuple[AddressPattern, ...] = ()
    accounts: tuple[Account, ...] = ()
    counter: int = 0
    changed_ms: int = 0
    warnings: tuple[str, ...] = ()


def parse_file(content: bytes) -> AclFile:
    """Read a file. Raises RuleError with the account and the field that are wrong."""
    try:
        document = yaml.safe_load(content)
    except (yaml.YAMLError, UnicodeDecodeError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f" in line {mark.line + 1}" if mark is not None else ""
        raise RuleError(f"this is not YAML{where}: {getattr(error, 'problem', None) or type(error).__name__}") from None
    if document is None:
        return AclFile()
    if not isinstance(document, dict):
        raise RuleError(f"the file must be a map with {WHITE_ADDRESSES} and {ACCOUNTS}")
    warnings = [f"{name} is no part of such a file" for name in document if name not in _TOP]
    patterns = tuple(address_pattern(_text(each)) for each in _list(document, WHITE_ADDRESSES))
    accounts = tuple(_account(number, each, warnings) for number, each in enumerate(_list(document, ACCOUNTS), 1))
    counter, changed_ms = _version(document)
    return AclFile(document, patterns, accounts, counter, changed_ms, tuple(warnings))


_TOP: Final = (WHITE_ADDRESSES, ACCOUNTS, VERSION)


def _account(number: int, given: Any, warnings: list[str]) -> Account:
    if not isinstance(given, dict):
        raise RuleError(f"account {number} must be a map that begins with accessKey")
    name = _text(given.get("accessKey"))
    try:
        return account_of(given, warnings)
    except RuleError as error:
        raise RuleError(f"account {name or number}: {error}") from None


def account_of(given: dict[str, Any], warnings: list[str] | None = None) -> Account:
    """An account of the fields of a file. Raises RuleError; its text has no secret key."""
    access_key, secret_key = _text(given.get("accessKey")), _text(given.get("secretKey"))
    _check_keys(access_key, secret_key)
    notes = [] if warnings is None else warnings
    notes += [f"account {access_key}: {name} is no field of an account" for name in given if name not in _FIELDS]
    resources: dict[str, int] = {}
    for member, is_topic in (("groupPerms", False), ("topicPerms", True)):
        for text in _list(given, member):
            name, permission = _entry(_text(text), is_topic=is_topic, access_key=access_key, notes=notes)
            resources[name if is_topic else retry_topic(name)] = permission
    topics, groups = (_default(given, name, access_key, notes) for name in ("defaultTopicPerm", "defaultGroupPerm"))
    admin = _text(given.get("admin")).lower() in _TRUE
    white = address_pattern(_text(given.get("whiteRemoteAddress")))
    return Account(access_key, secret_key, white, admin, topics, groups, resources)


def _check_keys(access_key: str, secret_key: str) -> None:
    """Raises RuleError for a key that is too short."""
    for name, key in (("accessKey", access_key), ("secretKey", secret_key)):
        if len(key) < _KEY_LENGTH_MIN:
            raise RuleError(f"{name} must have at least {_KEY_LENGTH_MIN} characters")


def _entry(text: str, *, is_topic: bool, access_key: str, notes: list[str]) -> tuple[str, int]:
    """ "orders=PUB|SUB" as a name and a permission."""
    parts = [part for part in text.split("=") if part]
    if len(parts) != 2:
        raise RuleError(f"Parse resource permission failed for {'topic' if is_topic else 'group'}:{text}")
    return parts[0].strip(), _known(parts[1], text, access_key, notes)


def _default(given: dict[str, Any], name: str, access_key: str, notes: list[str]) -> int:
    text = _text(given.get(name))
    return _known(text, f"{name}: {text}", access_key, notes) if text else DENY


def _known(text: str, shown: str, access_key: str, notes: list[str]) -> int:
    permission = parse_permission(text)
    if permission is None:
        notes.append(f"account {access_key}: {shown} counts as DENY; allowed are DENY, PUB, SUB, PUB|SUB, SUB|PUB")
        return DENY
    return permission


def _list(given: dict[str, Any], name: str) -> Iterable[Any]:
    value = given.get(name)
    if value is None:
        return ()
    if not isinstance(value, list):
        raise RuleError(f"{name} must be a list")
    return value


def _text(value: Any) -> str:
    """YAML reads a key of digits as a number, and `true` as a boolean."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str | int | float):
        raise RuleError(f"a text is expected, not a {type(value).__name__}")
    return str(value)


def _version(document: dict[str, Any]) -> tuple[int, int]:
    entries = [each for each in _list(document, VERSION) if isinstance(each, dict)]
    first = entries[0] if entries else {}
    numbers = [first.get(name, 0) for name in ("counter", "timestamp")]
    counter, changed_ms = (number if isinstance(number, int) else 0 for number in numbers)
    return counter, changed_ms
