"""Signs the requests of one connection."""

from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.signature import ONCE, Credentials, sign

__all__ = ["Signer"]


class Signer:
    """Numbers and signs requests.

    Args:
        credentials: The account.
        session: A text that no other connection has; with the number of a request it makes copies recognizable.
    """

    def __init__(self, credentials: Credentials, session: str) -> None:
        self._credentials = credentials
        self._session = session
        self._count = 0

    def sign(self, command: RemotingCommand, now_ms: int, *, once: bool) -> None:
        """Sign a request just before it is encoded.

        Args:
            command: The request, complete.
            now_ms: The time that the request names.
            once: Add the number, for a broker of ours that then handles no copy of the request.
        """
        if once:
            self._count += 1
            command.ext_fields = {**(command.ext_fields or {}), ONCE: f"{now_ms}-{self._session}-{self._count}"}
        sign(command, self._credentials)
