"""COMMIT_TOGETHER: many offsets in one frame are stored or refused as single commits (docs/wire.md 17.2)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.protocol.codes import RequestCode, ResponseCode, SerializeType
from lockstep.protocol.errors import BodyError, HeaderError, LocalProtocolError
from lockstep.protocol.headers.messaging import UpdateConsumerOffsetRequestHeader
from lockstep.protocol.headers.together import CommitTogetherRequestHeader
from lockstep.protocol.messages.together import (
    COMMITS_MAX,
    NO_EPOCH,
    Commit,
    decode_commits,
    decode_rows,
    encode_commits,
    encode_rows,
)
from tests.broker.helpers import Peer

C = ResponseCode
CODE = RequestCode.COMMIT_TOGETHER


@pytest.fixture
def peer(header_encoding: SerializeType) -> Peer:
    peer = Peer(header_encoding)
    peer.make_topics("T", "U")
    return peer


def commit(peer: Peer, *commits: Commit, group: str = "G") -> tuple[list[int], list[str]]:
    header = CommitTogetherRequestHeader(group, len(commits))
    reply = peer.answer(CODE, header, encode_commits(commits))
    assert reply.code == C.SUCCESS
    rows, remarks = decode_rows(reply.body, len(commits))
    return [row.code for row in rows], remarks


def test_each_offset_is_stored_or_refused_by_itself(peer: Peer) -> None:
    """An unknown topic, a queue that is not there, an offset below -1."""
    commits = [Commit("T", 0, 7, NO_EPOCH), Commit("nowhere", 0, 1, NO_EPOCH), Commit("T", 9, 1, NO_EPOCH),
               Commit("T", 1, -2, NO_EPOCH), Commit("U", 3, 0, NO_EPOCH)]  # fmt: skip
    codes, remarks = commit(peer, *commits)
    assert codes == [0, C.TOPIC_NOT_EXIST, C.SYSTEM_ERROR, C.SYSTEM_ERROR, 0]
    assert ["not exist" in remarks[0], "queues 0 to 3" in remarks[1], "at least 0" in remarks[2]] == [True] * 3
    stored = peer.broker.catalog.offsets.stored
    assert [stored("G", "T", 0), stored("G", "T", 1), stored("G", "U", 3)] == [7, None, 0]


def test_a_long_name_in_a_refusal_is_cut(peer: Peer) -> None:
    """A header may have a group of 200,000 characters, and the length of a remark has 16 bits."""
    codes, remarks = commit(peer, *[Commit("T", 0, 7, NO_EPOCH)] * COMMITS_MAX, group="g" * 200_000)
    assert codes == [C.SYSTEM_ERROR] * COMMITS_MAX
    assert "has 200000 characters; at most 255 are allowed" in remarks[0]
    assert max(map(len, remarks)) < 300
    rows, (cut,) = decode_rows(encode_rows([(1, -1, -1)], ["x" * 100_000]), 1)
    assert (rows[0].code, len(cut)) == (1, 1000)


@pytest.mark.parametrize(
    "one",
    [Commit("T", 1 << 31, 0, -1), Commit("T", 0, 1 << 63, -1), Commit("T", 0, 0, 1 << 63), Commit("t" * 256, 0, 0, -1)],
)
def test_what_fits_no_field_is_an_error(one: Commit) -> None:
    """It says which commit, and what fits."""
    with pytest.raises(LocalProtocolError, match="cannot be sent: a queue has 32 bits, an offset 64, a topic 255"):
        encode_commits([Commit("T", 0, 3, NO_EPOCH), one])


def test_a_one_way_frame_is_stored(peer: Peer) -> None:
    """As Java's single commits, which want no answer."""
    body = encode_commits([Commit("T", 0, 3, NO_EPOCH), Commit("T", 1, 4, NO_EPOCH)])
    assert peer.call(CODE, CommitTogetherRequestHeader("G", 2), body, flag=2) is None
    assert [peer.broker.catalog.offsets.stored("G", "T", queue_id) for queue_id in (0, 1)] == [3, 4]


@given(st.lists(st.tuples(st.integers(-1, 4), st.integers(-3, 9)), min_size=1, max_size=9))
def test_a_frame_does_what_its_commits_do_one_by_one(commits: list[tuple[int, int]]) -> None:
    """Codes, remarks and stored offsets, also backwards."""
    together, single = Peer(), Peer()
    for one in (together, single):
        one.make_topics("T")
    codes, remarks = commit(together, *[Commit("T", queue_id, offset, NO_EPOCH) for queue_id, offset in commits])
    answers = [
        single.answer(RequestCode.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffsetRequestHeader("G", "T", *one))
        for one in commits
    ]
    assert codes == [answer.code for answer in answers]
    assert remarks == [answer.remark for answer in answers if answer.code]
    offsets = [
        [one.broker.catalog.offsets.stored("G", "T", queue_id) for queue_id in range(4)] for one in (together, single)
    ]
    assert offsets[0] == offsets[1]
    assert together.log.names("warning") == single.log.names("warning")


def test_a_fenced_queue_is_kept_from_others() -> None:
    """A commit without the epoch of the owner is refused; others of the frame are stored."""
    peer = Peer(lock_mode="fenced")
    peer.make_topics("T")
    header = CommitTogetherRequestHeader("G", 1, "a")
    codes, _ = commit(peer, Commit("T", 0, 1, 77), Commit("T", 1, 1, NO_EPOCH))
    single = peer.answer(RequestCode.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffsetRequestHeader("G", "T", 0, 1, 77, "a"))
    reply = peer.answer(CODE, header, encode_commits([Commit("T", 0, 1, 77)]))
    rows, remarks = decode_rows(reply.body, 1)
    assert (rows[0].code, remarks) == (single.code, [single.remark])
    assert codes[0] == single.code == C.NOT_HELD


GOOD = encode_commits([Commit("T", 0, 1, -1)])


@pytest.mark.parametrize(
    ("body", "count"), [(GOOD, 0), (GOOD, -1), (GOOD, 2), (GOOD[:-1], 1), (GOOD + b"x", 1), (b"", 1), (GOOD, 2**31 - 1)]
)
def test_a_frame_whose_lengths_are_wrong_stores_nothing(peer: Peer, body: bytes, count: int) -> None:
    """Nor does one with more commits than a request may have."""
    try:
        reply = peer.answer(CODE, CommitTogetherRequestHeader("G", count), body)
    except (BodyError, HeaderError):
        pass
    else:
        assert reply.code == C.SYSTEM_ERROR
    assert len(peer.broker.catalog.offsets) == 0


@given(st.binary(max_size=80), st.integers(-1, 5))
def test_noise_is_read_whole_or_refused(noise: bytes, count: int) -> None:
    """Never in part."""
    try:
        commits = decode_commits(noise, count)
    except BodyError:
        return
    assert len(commits) == count


def test_a_frame_with_too_many_commits(peer: Peer) -> None:
    """It is refused as a whole; what a client puts into a frame is taken, whatever the limits of locks are."""
    peer = Peer(peer.encoding, lock_queues_per_request_max=2)
    peer.make_topics("T")
    many = [Commit("T", 0, 1, NO_EPOCH)] * (COMMITS_MAX + 1)
    with pytest.raises(BodyError, match="at most 1000 commits, not 1001"):
        commit(peer, *many)
    assert peer.broker.catalog.offsets.stored("G", "T", 0) is None
    assert commit(peer, *many[:COMMITS_MAX]) == ([0] * COMMITS_MAX, [])
