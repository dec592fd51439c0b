"""hpack's two sides with less work say and understand what hpack does."""

import hpack
from hypothesis import given
from hypothesis import strategies as st

from lockstep.broker.fronts.grpc.http2.headers import Decoder, Encoder

# Few of them, so that most are in the table; the long ones are no single byte's length, and push others out.
_TEXTS = st.one_of(st.sampled_from([b"", b"a", b"te", b":path", b"x-mq-client-id", b"POST"]), st.binary(max_size=1500))
_BLOCKS = st.lists(st.lists(st.tuples(_TEXTS, _TEXTS, st.booleans()), max_size=6), max_size=8)
_CHANGE = st.none() | st.tuples(st.integers(0, 400), st.binary(max_size=3))
_LIST_BYTES_MAX = 4000


def _read(decoder: hpack.Decoder, block: bytes) -> object:
    """The headers, or of which kind the fault is."""
    try:
        return [tuple(header) for header in decoder.decode(block, raw=True)]
    except hpack.HPACKError as error:
        return type(error)
    except IndexError:
        return hpack.HPACKDecodingError  # so h2 takes it


@given(_BLOCKS, st.booleans(), _CHANGE, st.sampled_from([None, 0, 100, 4096]))
def test_headers_are_read_as_hpack_reads_them(
    blocks: list[list[tuple[bytes, bytes, bool]]],
    huffman: bool,
    change: tuple[int, bytes] | None,
    table_bytes: int | None,
) -> None:
    """Whole and damaged, with what may not be indexed, with a table that shrinks, and up to the same size."""
    encoder, ours, theirs = hpack.Encoder(), Decoder(), hpack.Decoder(_LIST_BYTES_MAX)
    ours.max_header_list_size = _LIST_BYTES_MAX
    for number, headers in enumerate(blocks):
        if number == 1 and table_bytes is not None:
            encoder.header_table_size = table_bytes
        block = encoder.encode(headers, huffman)
        if number == len(blocks) - 1 and change is not None:
            at, data = change
            block = block[:at] + data + block[at + len(data) + 1 :]
        read = _read(ours, block)
        assert read == _read(theirs, block)
        if isinstance(read, type):
            return
        assert ours.header_table.dynamic_entries == theirs.header_table.dynamic_entries


def test_the_table_changes_its_size_only_before_headers() -> None:
    """As hpack: also in front of headers that it would read by itself."""
    for block in (b"\x83\x20", b"\x83\x3f\xe1\x1f\x83"):
        assert _read(Decoder(), block) is hpack.HPACKDecodingError is _read(hpack.Decoder(), block)


def test_a_short_block_names_no_more_than_the_limit() -> None:
    """Each byte may stand for 4 KiB."""
    decoder = Decoder()
    decoder.max_header_list_size = 16_384
    decoder.decode(hpack.Encoder().encode([(b"a", b"x" * 4000)], huffman=False), raw=True)
    assert len(list(decoder.decode(b"\xbe" * 4, raw=True))) == 4
    # One more of the table, and one of 300 bytes, which hpack reads.
    for behind in (b"\xbe", b"\x00\x01a\x7f\xad\x01" + b"x" * 300):
        assert _read(decoder, b"\xbe" * 4 + behind) is hpack.OversizedHeaderListError


@given(st.lists(st.lists(st.tuples(_TEXTS, _TEXTS), min_size=1, max_size=4), max_size=12))
def test_headers_are_written_as_hpack_writes_them(lists: list[list[tuple[bytes, bytes]]]) -> None:
    """Also those that were written before, when the table has changed since."""
    ours, theirs = Encoder(), hpack.Encoder()
    for headers in [one for one in lists for _ in range(3)] + lists:
        assert ours.encode(headers) == theirs.encode(headers)


def test_entries_far_down_the_table_are_found() -> None:
    """Their number has two bytes, as the name of another header too; of three bytes hpack reads them."""
    encoder, ours, theirs = hpack.Encoder(), Decoder(), hpack.Decoder()
    for coder in (encoder, ours, theirs):
        coder.header_table.maxsize = 16_384
        coder.header_table.resized = False
    ours.max_allowed_table_size = theirs.max_allowed_table_size = 16_384
    # 256 entries have numbers up to 317: three bytes from 255 on, and for the name of another header from 191 on.
    all_headers = [(b"%d" % number, b"") for number in range(256)]
    for headers in (all_headers, *([header] for header in all_headers)):
        block = encoder.encode(headers)
        assert _read(ours, block) == _read(theirs, block) == headers
    for name, _ in all_headers[::3]:
        block = encoder.encode([(name, b"other")])
        assert _read(ours, block) == _read(theirs, block) == [(name, b"other")]
