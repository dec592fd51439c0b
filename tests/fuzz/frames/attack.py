"""The next step of an attack: which peer, which frames, in which pieces."""

from pathlib import Path
from typing import Final

from lockstep.remoting.tls.session import TlsError
from tests.fuzz.frames.corpus import captured, captured_bytes
from tests.fuzz.frames.loose import BINARY, JSON, Account, Loose, sign, to_bytes
from tests.fuzz.frames.mutations import mutate_bytes, mutate_parts
from tests.fuzz.frames.peers import Peer, certificates, trusting
from tests.fuzz.frames.runtime import FuzzRuntime, Turns
from tests.fuzz.frames.servers import ADMIN, BROKER_PORT, FEW, NAME_SERVER_PORT, NONE
from tests.fuzz.frames.structured import BROKER_CODES, NAME_SERVER_CODES, answer, request
from tests.fuzz.frames.words import Words

__all__ = ["Attack"]

_PEERS_MAX: Final = 12
_STRANGERS: Final = ("stranger", "stranger", "thief")
_PERSONAS: Final = (*_STRANGERS, "none", "none", "few", "few", "few")
_ACCOUNTS: Final = {"few": FEW, "none": NONE, "admin": ADMIN}
_LIFE: Final = (250, 20)  # frames of a connection, and of one whose frames are never so wrong that it is closed
_PAUSES_MS: Final = (0, 0, 0, 0, 0, 1, 1, 5, 20)
_WRONG_KEYS: Final = (
    Account(ADMIN.access_key, "wrong-secret"), Account(FEW.access_key, ""), Account("unknown", "x"), Account("", ""),
    Account(FEW.access_key, NONE.secret_key),
)  # fmt: skip


class Attack:
    """Draws what the peers do. What a peer of one persona sent is never mixed into what another one sends.

    Args:
        number: Of the world.
        copies: Recorded requests of another account, signed, each with its number against copies.
    """

    def __init__(
        self,
        mode: str,
        number: int,
        runtime: FuzzRuntime,
        peers: dict[str, Peer],
        words: Words,
        copies: list[bytes],
        folder: Path,
    ) -> None:
        self._acl = mode in ("acl", "both")
        self._tls = trusting(certificates(folder)[1]) if mode in ("tls", "both") else None
        self._personas = ("admin",) if self.is_of_admins(mode, number) else _PERSONAS if self._acl else ("any",)
        self._runtime = runtime
        self._peers = peers
        self._words = words
        self._copies = copies
        self._open: list[Peer] = []
        self._last: dict[str, bytes] = {}  # by persona, to splice with
        self._number = len(peers)

    @staticmethod
    def is_of_admins(mode: str, number: int) -> bool:
        """In some worlds the frames are those of an administrator, who may change everything."""
        return mode in ("acl", "both") and number % 4 == 3

    def step(self, turns: Turns) -> tuple[Peer, int]:
        """Send one frame or a few. Returns the peer and the number of frames."""
        words = self._words
        self._runtime.advance(_PAUSES_MS[words.small(len(_PAUSES_MS))] if words.small(300) else words.small(40_000))
        peer = self._peer()
        if peer.outside:
            self._send_outside(peer, turns)
            return peer, 1
        count = 1 if words.small(25) else 2 + words.small(30)
        frames = [self._frame(peer, calm=count > 1 and words.small(20) > 0) for _ in range(count)]
        data = b"".join(frames)
        turns.what = repr(data[:400])
        if self._tls is not None and words.small(60) == 0:
            self._break_session(peer, data)
        else:
            cuts = () if words.small(6) else tuple(sorted(words.small(len(data) + 1) for _ in range(words.small(5))))
            peer.send(data, cuts)
        if words.small(60) == 0:
            peer.transport.unstick()
        if words.small(_LIFE[peer.persona == "thief"]) == 0:
            peer.transport.end(reset=words.small(2) == 0)
        return peer, count

    # Peers ---------------------------------------------------------------------------------------------------

    def _peer(self) -> Peer:
        words = self._words
        index = words.small(_PEERS_MAX)
        if index < len(self._open) and self._open[index].is_open:
            return self._open[index]
        peer = self._new_peer()
        if index < len(self._open):
            self._forget(self._open[index])
            self._open[index] = peer
        else:
            self._open.append(peer)
        return peer

    def _forget(self, peer: Peer) -> None:
        if peer.transport.is_lost and peer.persona != "admin":
            self._peers.pop(peer.key, None)

    def _new_peer(self) -> Peer:
        words = self._words
        self._number += 1
        persona = self._personas[words.small(len(self._personas))]
        name_server = words.small(5) == 0
        outside = self._tls is not None and words.small(4) == 0
        tls = None if outside and words.small(2) else self._tls
        stuck = words.small(15) == 0 and self._tls is None
        peer = Peer(self._runtime, self._number, persona, at_name_server=name_server, tls=tls, stuck=stuck)
        peer.outside = outside
        self._peers[peer.key] = peer
        peer.connect(NAME_SERVER_PORT if name_server else BROKER_PORT)
        if peer.session is not None and not outside:
            peer.shake_hands()
        return peer

    # TLS -----------------------------------------------------------------------------------------------------

    def _send_outside(self, peer: Peer, turns: Turns) -> None:
        """Plain frames, mutated handshakes, or the rest of a broken session."""
        words = self._words
        if peer.session is None:
            data = self._frame(peer)
            if words.small(3) == 0:
                data = b"\x16" + data
        else:
            data = self._hello(peer)
        turns.what = f"outside TLS: {data[:200]!r}"
        peer.transport.feed(data)

    def _hello(self, peer: Peer) -> bytes:
        """The next handshake message of an honest client, changed."""
        session = peer.session
        assert session is not None
        try:
            session.receive(peer.transport.take())
            if not session.is_open:
                session.shake_hands()
            data = session.outgoing()
        except TlsError:
            data = b""
        words = self._words
        data = data or b"\x16\x03\x01" + words.rng.randbytes(40)
        return mutate_bytes(data, words.rng, data[::-1], keep_lengths=False) or b"\x16"

    def _break_session(self, peer: Peer, data: bytes) -> None:
        """Records of an open session, changed on their way."""
        session = peer.session
        assert session is not None
        session.write(data or b"\0")  # without a byte there is no record
        record = bytearray(session.outgoing())
        peer.outside = True
        record[self._words.small(5) if self._words.small(2) else self._words.small(len(record))] ^= (
            1 << self._words.small(8)
        )
        peer.transport.feed(bytes(record))

    # Frames --------------------------------------------------------------------------------------------------

    def _frame(self, peer: Peer, *, calm: bool = False) -> bytes:
        """Args: calm: whole, so that the frames behind it are read too."""
        words = self._words
        if peer.persona == "thief" and self._copies:
            return self._copies[words.small(len(self._copies))]
        link = "NS" if peer.at_name_server else "BR"
        source = words.small(20)
        if source < 2 and not calm and peer.persona in ("any", "stranger"):
            frames = captured_bytes(link)
            data = frames[words.small(len(frames))]
            return mutate_bytes(data, words.rng, self._last.get(peer.persona, b""), keep_lengths=words.small(4) > 0)
        loose = self._parts(peer, link, source)
        if not calm and words.small(2):
            mutate_parts(loose, words)
        if self._acl:
            self._sign(peer, loose)
        data = to_bytes(loose)
        if not calm and words.small(8) == 0:
            data = mutate_bytes(data, words.rng, self._last.get(peer.persona, b""), keep_lengths=words.small(5) > 0)
        self._last[peer.persona] = data
        return data

    def _parts(self, peer: Peer, link: str, source: int) -> Loose:
        words = self._words
        if source < 6:
            loose = captured(link, words)
        elif source == 6 and peer.asked:
            return answer(peer.asked[words.small(len(peer.asked))], words)
        else:
            codes = NAME_SERVER_CODES if peer.at_name_server and words.small(5) else BROKER_CODES
            loose = request(codes[words.small(len(codes))], words)
        loose.opaque = words.small(1_000_000) if words.small(50) else words.number()
        return loose

    def _sign(self, peer: Peer, loose: Loose) -> None:
        words = self._words
        account = _ACCOUNTS.get(peer.persona)
        if account is None:
            if words.small(3) == 0:
                return
            account = _WRONG_KEYS[words.small(len(_WRONG_KEYS))]
        elif words.small(20) == 0:
            return  # without a signature, from a peer that has a key
        if words.small(4) == 0:
            loose.fields["lockstep.once"] = f"{self._runtime.now_ms()}-{peer.key}-{words.small(1 << 30)}"
        sign(loose, account)
        if loose.kind in (JSON, BINARY) and words.small(40) == 0:
            loose.fields["Signature"] = words.wrong()
