"""Bodies of lock requests are remembered by their bytes, which changes no answer."""

from typing import Any

import pytest

from lockstep.broker.fronts.remoting import lock_bodies
from lockstep.protocol.bodies.codec import decode_body
from lockstep.protocol.bodies.locks import LockBatchBody, LockOkBody
from lockstep.protocol.codes import RequestCode, SerializeType
from lockstep.protocol.errors import BodyError
from tests.broker.helpers import Peer, queues_of

WAYS: dict[str, dict[str, Any]] = {"rocketmq": {}, "fenced": {"lock_mode": "fenced"}}


def asked(peer: Peer, client_id: str, epochs: tuple[int, ...] | None) -> bytes:
    """The body of the answer to a lock request for two queues."""
    body = LockBatchBody("G", client_id, queues_of("T", 2), epochs)
    return peer.answer(RequestCode.LOCK_BATCH_MQ, None, body).body


def story(peer: Peer, *, epochs: bool) -> list[bytes]:
    """Two clients ask again and again, and the lock goes from one to the other. Returns all answers."""
    answers: list[bytes] = []
    held: dict[str, tuple[int, ...]] = {"a": (0, 0), "b": (0, 0)}
    for wait_ms in (0, 20_000, 20_000, 60_001, 60_001):
        peer.now_ms += wait_ms
        for client_id in ("a", "b", "b", "a"):
            answers.append(asked(peer, client_id, held[client_id] if epochs else None))
            grants = decode_body(LockOkBody, answers[-1], peer.encoding).grants
            held[client_id] = tuple(grant.epoch for grant in grants) if grants else (0, 0)
    return answers


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("epochs", [False, True])
def test_answers_are_the_same_with_and_without_memory(
    header_encoding: SerializeType, way: str, epochs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock_bodies._remember_renewed.cache_clear()
    remembered = story(Peer(header_encoding, **WAYS[way]), epochs=epochs)
    hits = lock_bodies._remember_renewed.cache_info().hits
    # Under fenced locks a request without epochs has an answer for each queue: it is not remembered.
    assert (hits > 0) is (epochs or way == "rocketmq"), "the renewals were remembered"
    monkeypatch.setattr(lock_bodies, "_BYTES_MAX", -1)
    assert story(Peer(header_encoding, **WAYS[way]), epochs=epochs) == remembered
    assert lock_bodies._remember_renewed.cache_info().hits == hits


def test_a_broker_uses_nothing_that_depends_on_the_settings_of_another(header_encoding: SerializeType) -> None:
    def granted(**settings: Any) -> list[int]:
        peer = Peer(header_encoding, lock_mode="fenced", **settings)
        grants = decode_body(LockOkBody, asked(peer, "a", (0, 0)), peer.encoding).grants
        assert grants is not None
        renewed = decode_body(LockOkBody, asked(peer, "a", tuple(grant.epoch for grant in grants)), peer.encoding)
        assert renewed.grants == grants
        return [grant.lease_ms for grant in grants]

    assert granted() == [60_000] * 2
    assert granted(lock_max_live_time_ms=40_000) == [40_000] * 2
    with pytest.raises(BodyError, match="2 queues in one request; at most 1 are allowed"):
        granted(lock_queues_per_request_max=1)
