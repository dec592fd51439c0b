"""Changes of the rules by administrators, and what they see of them. Needs no PyYAML: `AclFiles` reads and writes.

A change is in the file and in force when it is answered. It begins with the files as they are: several brokers may
share them, and people edit them. RocketMQ writes some changes that it cannot read again; here they are refused.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from lockstep.broker.acl.addresses import address_pattern
from lockstep.broker.acl.errors import RuleError
from lockstep.broker.acl.fields import ACCOUNTS, WHITE_ADDRESSES
from lockstep.broker.acl.permissions import DENY, parse_permission
from lockstep.protocol.bodies.acl import AclConfigBody
from lockstep.protocol.bodies.broker import DataVersion

if TYPE_CHECKING:
    from lockstep.broker.acl.files import AclFiles

__all__ = ["all_rules", "delete_account", "put_account", "set_white_addresses", "versions"]

_KEY_LENGTH_MIN: Final = 7
_SHOWN: Final = (  # of an account, in this order
    "accessKey", "admin", "defaultGroupPerm", "defaultTopicPerm", "groupPerms", "secretKey", "topicPerms",
    "whiteRemoteAddress",
)  # fmt: skip


def put_account(files: "AclFiles", given: Mapping[str, Any], now_ms: int) -> None:
    """Add an account to the main file, or change the given fields of one where it is.

    Args:
        files: The rules.
        given: Fields of the account; None and empty texts change nothing.
        now_ms: For the version of the file.

    Raises:
        RuleError: A field is wrong, or a file cannot be used. The text is RocketMQ's, but for the secret key.
        OSError: The file cannot be written.
    """
    access_key, secret_key = given.get("accessKey"), given.get("secretKey")
    if len(access_key or "") < _KEY_LENGTH_MIN or len(secret_key or "") < _KEY_LENGTH_MIN:
        shown = "null" if secret_key is None else "***"
        raise RuleError(
            f"The accessKey={_java(access_key)} and secretKey={shown} cannot be null and length should longer than 6"
        )
    for resource in [*(given.get("topicPerms") or ()), *(given.get("groupPerms") or ())]:
        _check_resource(resource)
    address_pattern(given.get("whiteRemoteAddress"))
    files.catch_up()
    path = files.rules.file_of.get(str(access_key), files.path)
    document = files.document(path)
    accounts = document.get(ACCOUNTS) or []
    account: dict[str, Any] = next((each for each in accounts if str(each.get("accessKey")) == access_key), {})
    changed = {**account, **{name: value for name, value in given.items() if value is not None and value != ""}}
    document[ACCOUNTS] = [each for each in accounts if each is not account] + [changed]
    files.write(path, document, now_ms)


def delete_account(files: "AclFiles", access_key: str | None, now_ms: int) -> bool:
    """Remove an account from its file. Returns whether there was one. Raises RuleError, OSError."""
    was_known = access_key in files.rules.file_of
    files.catch_up()
    path = files.rules.file_of.get(access_key or "")
    if path is None:
        # Another broker of the same files was asked before this one.
        return was_known
    document = files.document(path)
    document[ACCOUNTS] = [each for each in document[ACCOUNTS] if str(each.get("accessKey")) != access_key]
    files.write(path, document, now_ms)
    return True


def set_white_addresses(files: "AclFiles", addresses: list[str], path: str | None, now_ms: int) -> bool:
    """Replace the global white addresses of a file, by default of the main one.

    Returns:
        False when there is no such file of rules.

    Raises:
        RuleError: An address is wrong, or a file cannot be used.
        OSError: The file cannot be written.
    """
    files.catch_up()
    path = path or files.path
    if path not in files.rules.files:
        return False
    document = files.document(path)
    document[WHITE_ADDRESSES] = addresses
    files.write(path, document, now_ms)
    return True


def all_rules(files: "AclFiles") -> AclConfigBody:
    """All accounts in force with their secret keys, and all global white addresses."""
    addresses: list[str] = []
    accounts: dict[str, dict[str, Any]] = {}
    for file in files.rules.files.values():
        addresses += [str(each) for each in file.document.get(WHITE_ADDRESSES) or ()]
        for given in file.document.get(ACCOUNTS) or ():
            shown = {name: given[name] for name in _SHOWN if given.get(name) is not None}
            accounts.setdefault(str(given["accessKey"]), {"admin": False, **shown})
    return AclConfigBody(tuple(addresses), tuple(accounts.values()))


def versions(files: "AclFiles") -> dict[str, DataVersion]:
    """The version of each file, by its path."""
    return {path: DataVersion(file.counter, file.changed_ms) for path, file in files.rules.files.items()}


def _check_resource(text: str) -> None:
    parts = [part for part in text.split("=") if part]
    if len(parts) != 2:
        raise RuleError(
            f"Parse Resource format error for {text}.\n"
            "The expected resource format is 'Res=Perm'. For example: topicA=SUB"
        )
    permission = parse_permission(parts[1])
    if permission is None or (permission == DENY and parts[1].strip() != "DENY"):
        raise RuleError(
            f"Parse resource permission error for {text}.\n"
            "The expected permissions are 'SUB' or 'PUB' or 'SUB|PUB' or 'PUB|SUB'."
        )


def _java(text: str | None) -> str:
    return "null" if text is None else text
