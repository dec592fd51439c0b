"""The check of a request against the rules, in RocketMQ's order.

A global white address needs nothing. Else: an access key, a known one, the account's own white address, the signature,
the permissions. RocketMQ reads the body of a heartbeat before all that; here nothing is read without an account.
"""

import hmac
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from lockstep.broker.acl.errors import AccessDenied
from lockstep.broker.acl.files import AclFiles
from lockstep.broker.acl.permissions import PUB, Account, check_permissions
from lockstep.broker.acl.replay import ReplayWindow
from lockstep.broker.acl.required_permissions import (
    NAME_SERVER_ADMIN,
    CheckedRequest,
    Requirement,
    required_of,
    stand_ins_of,
)
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.errors import RemoteProtocolError
from lockstep.protocol.names import RESERVED_TOPICS, TRACE_TOPIC
from lockstep.protocol.signature import ACCESS_KEY, ONCE, SIGNATURE, field_texts, signature_of, signed_bytes

__all__ = ["AccessControl"]

_UNIQUE_KEY_QUERY: Final = "_UNIQUE_KEY_QUERY"


class AccessControl:
    """Decides about requests.

    Args:
        files: The rules.
        strict: Close what RocketMQ 4.9 leaves open (docs/security.md).
        replay: Recognizes copies of requests, or None.
        message_at: A stored message by its commit log offset; None: there are no messages.
    """

    def __init__(
        self,
        files: AclFiles,
        *,
        strict: bool = False,
        replay: ReplayWindow | None = None,
        message_at: Callable[[int], bytes | None] | None = None,
    ) -> None:
        self.files = files
        self._strict = strict
        self._replay = replay
        self._message_at = message_at or (lambda _: None)

    def check(self, command: RemotingCommand, host: str, now_ms: int) -> None:
        """Raises AccessDenied unless a broker may serve the request."""
        if not self._is_trusted(host):
            texts = field_texts(command)
            account, by_address = self._account(command, texts, host, now_ms)
            if not by_address or self._strict:
                self._check_requirement(command, texts, account, required_of(command.code, strict=self._strict))

    def check_name_server(self, command: RemotingCommand, host: str, now_ms: int) -> None:
        """Raises AccessDenied unless a name server may serve the request: its changes are for administrators."""
        if command.code in NAME_SERVER_ADMIN and not self._is_trusted(host):
            account, _ = self._account(command, field_texts(command), host, now_ms)
            check_permissions(account, command.code, admin=True, wanted=())

    def _is_trusted(self, host: str) -> bool:
        return any(fits(host) for fits in self.files.rules.white_addresses)

    def _account(
        self, command: RemotingCommand, texts: Mapping[str, str], host: str, now_ms: int
    ) -> tuple[Account, bool]:
        """The account of a request, and whether its white address stands for the signature. Raises AccessDenied."""
        access_key = texts.get(ACCESS_KEY)
        if access_key is None:
            raise AccessDenied("No accessKey is configured")
        account = self.files.rules.accounts.get(access_key)
        if account is None:
            raise AccessDenied(f"No acl config for {access_key}")
        if account.fits_address(host):
            return account, True
        if not self._is_signed(command, texts, account.secret_key):
            raise AccessDenied(f"Check signature failed for accessKey={access_key}")
        if self._replay is not None and ONCE in texts:
            self._replay.check(access_key, texts[ONCE], now_ms)
        return account, False

    def _is_signed(self, command: RemotingCommand, texts: Mapping[str, str], secret_key: str) -> bool:
        """Java signs the flag of a query by UNIQ_KEY since 4.9.4; RocketMQ's broker leaves it out, and refuses it."""
        given = texts.get(SIGNATURE, "").encode("utf-8", "replace")
        expected = signature_of(signed_bytes(texts, command.body), secret_key)
        if hmac.compare_digest(given, expected.encode("ascii")):
            return True
        if self._strict or _UNIQUE_KEY_QUERY not in texts:
            return False
        expected = signature_of(signed_bytes(texts, command.body, [_UNIQUE_KEY_QUERY]), secret_key)
        return hmac.compare_digest(given, expected.encode("ascii"))

    def _check_requirement(
        self, command: RemotingCommand, texts: Mapping[str, str], account: Account, requirement: Requirement
    ) -> None:
        request = CheckedRequest(command, texts, self._message_at, stand_ins_of(command.code) if self._strict else {})
        try:
            wanted = [(each, pair) for each in requirement.permissions for pair in each.find(request)]
        except RemoteProtocolError as error:
            raise AccessDenied(str(error)) from None
        # Traces of clients may always be sent, but other topics of the same request need their permissions.
        named = [pair for each, pair in wanted if not each.of_stored and pair != (TRACE_TOPIC, PUB)]
        self._check_pairs(command, account, named, admin=requirement.admin)
        of_stored = [pair for each, pair in wanted if each.of_stored]
        if of_stored:
            try:
                self._check_pairs(command, account, of_stored, admin=False)
            except AccessDenied:
                raise AccessDenied("No default permission for the topic of this message") from None

    def _check_pairs(
        self, command: RemotingCommand, account: Account, pairs: Iterable[tuple[str, int]], *, admin: bool
    ) -> None:
        for resource, _ in pairs if self._strict and not account.admin else ():
            if resource in RESERVED_TOPICS:  # they hold messages of all topics
                raise AccessDenied(f"No default permission for topic:{resource}")
        check_permissions(account, command.code, admin=admin, wanted=pairs)
