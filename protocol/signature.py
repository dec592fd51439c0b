"""The signature of a request, as RocketMQ's ACL wants it (wire.md 1.6).

The signed bytes are the values of all header fields, in the order of their names, then the body. Names are not signed.
A MSGPACK header has its fields by position; its signed bytes are those of the JSON header with the same fields.
"""

import hmac
from base64 import b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from lockstep.protocol.codecs.json_header import to_text
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.headers.messaging import REQUEST_HEADERS
from lockstep.protocol.headers.spec import spec_of

__all__ = [
    "ACCESS_KEY",
    "ONCE",
    "SECURITY_TOKEN",
    "SIGNATURE",
    "Credentials",
    "field_texts",
    "sign",
    "signature_of",
    "signed_bytes",
]

ACCESS_KEY: Final = "AccessKey"
SECURITY_TOKEN: Final = "SecurityToken"
SIGNATURE: Final = "Signature"
ONCE: Final = "lockstep.once"  # time, session and number of a request; sent only to peers that may be ours


@dataclass(frozen=True, slots=True)
class Credentials:
    """An account of a broker with ACL. The text of this object does not show the keys that must stay secret.

    Args:
        access_key: The name of the account.
        secret_key: The key that signs; it is never sent.
        security_token: Sent and signed with each request, for proxies that want one.
    """

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not self.access_key or not self.secret_key:
            raise ValueError("credentials need an access key and a secret key, and neither may be empty")


def field_texts(command: RemotingCommand) -> dict[str, str]:
    """The header fields of a request by name, as the JSON header has them.

    A MSGPACK request with a code that has no header class keeps only its further fields.
    """
    texts = {} if command.header is None else spec_of(type(command.header)).to_texts(command.header)
    if command.ext_fields:
        for name, value in command.ext_fields.items():
            texts[name] = value if type(value) is str else _text(value)
    header_class = REQUEST_HEADERS.get(command.code) if command.positional is not None else None
    if command.positional is not None and header_class is not None:
        # A handler reads the positions, so no other field may stand in for one of them. A newer peer may send more
        # positions than are known here, an older one fewer.
        for name, value in zip(spec_of(header_class).wire_names, command.positional, strict=False):
            if value is not None:
                texts[name] = value if type(value) is str else str(value) if type(value) is int else _text(value)
    return texts


def _text(value: Any) -> str:
    if type(value) is str:
        return value
    # Java's StringBuilder writes null as this word.
    return "null" if value is None else to_text(value)


def signed_bytes(texts: Mapping[str, str], body: bytes, without: Iterable[str] = ()) -> bytes:
    """The bytes that are signed.

    Args:
        texts: The header fields; `Signature` among them is left out.
        body: The body of the frame.
        without: Names of more fields to leave out.
    """
    names = sorted(texts) if "".join(texts).isascii() else sorted(texts, key=_java_order)
    for name in (SIGNATURE, *without):
        if name in texts:
            names.remove(name)
    values = "".join([texts[name] for name in names])
    return values.encode("utf-8", "replace") + body


def _java_order(name: str) -> bytes:
    """Java compares texts by UTF-16 units."""
    return name.encode("utf-16-be", "surrogatepass")


def signature_of(data: bytes, secret_key: str) -> str:
    """HMAC-SHA1 in Base64."""
    return b64encode(hmac.digest(secret_key.encode("utf-8", "replace"), data, "sha1")).decode("ascii")


def sign(command: RemotingCommand, credentials: Credentials) -> None:
    """Sign a request that is about to be encoded. A second call replaces the signature."""
    fields = dict(command.ext_fields or {})
    fields.pop(SIGNATURE, None)
    fields[ACCESS_KEY] = credentials.access_key
    if credentials.security_token is not None:
        fields[SECURITY_TOKEN] = credentials.security_token
    command.ext_fields = fields
    fields[SIGNATURE] = signature_of(signed_bytes(field_texts(command), command.body), credentials.secret_key)
