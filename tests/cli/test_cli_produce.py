"""`lockstep produce` with keys before a delimiter, user properties, several files, and on a terminal."""

import json
import os
import pty
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands import END_S, Lockstep, running_broker
from tests.forked.process import Forked


@pytest.fixture(scope="module")
def lockstep() -> Iterator[Lockstep]:
    with running_broker() as command:
        yield command


@pytest.mark.parametrize(("delimiter", "between"), [(":", ":"), (r"\t", "\t"), ("=>", "=>")])
def test_the_key_stands_before_a_delimiter(lockstep: Lockstep, delimiter: str, between: str, tmp_path: Path) -> None:
    """The first delimiter of a line ends the key; the body is what follows, byte for byte."""
    topic = tmp_path.name
    lines = f"N1{between}a\nN2{between}{{}}{between}b\n"
    sent = lockstep("produce", topic, "-K", delimiter, stdin=lines)
    assert sent.status == 0, sent.err
    got = lockstep("consume", topic, "-g", topic, "-c", "2", "-f", r"%k|%s\n")
    assert sorted(got.out.splitlines()) == ["N1|a", f"N2|{{}}{between}b"]


def test_message_groups(lockstep: Lockstep) -> None:
    """The queue of a key is RocketMQ 5's, a line without a key goes anywhere."""
    assert lockstep("topic", "create", "groups", "--queues", "4").status == 0
    options = ("--key-field", "k", "--message-groups", "-o", "json")
    sent = lockstep("produce", "groups", *options, stdin='{"k":"order-13"}\n{"k":"order-17"}\n')
    assert [row["queue_id"] for row in sent.rows] == [0, 3]
    assert lockstep("produce", "groups", "--text", "--message-groups", stdin="plain\n").status == 0


def test_a_line_without_its_key_is_refused(lockstep: Lockstep) -> None:
    """It would go to any queue, out of order."""
    missing = lockstep("produce", "keyless", "-K", ":", stdin="N1:a\nplain\n")
    assert missing.status == 1
    assert "line 2: has no ':' after a key (--key-delimiter)" in missing.err
    assert "line 1: the key is empty" in lockstep("produce", "keyless", "-K", ":", stdin=":a\n").err


def test_messages_have_properties_and_keys_of_all(lockstep: Lockstep) -> None:
    """They come out as `consume` prints them, and a message is found by one of its KEYS."""
    options = ("-H", "color=red", "-H", "note=a=b", "--keys", "k1 k2", "--text")
    assert lockstep("produce", "with-properties", *options, stdin="x\n").status == 0
    (row,) = lockstep("consume", "with-properties", "-g", "properties", "-c", "1").rows
    assert (row["properties"], row["keys"]) == ({"color": "red", "note": "a=b"}, "k1 k2")
    (found,) = lockstep("message", "find", "-t", "with-properties", "--keys", "k2", "-o", "json").rows
    assert found["body"] == "x"


def test_files_of_envelopes_are_sent_one_after_the_other(lockstep: Lockstep, tmp_path: Path) -> None:
    """What `consume` printed into two files; options win over an envelope's own; an error names file and line."""
    first, second = tmp_path / "first.jsonl", tmp_path / "second.jsonl"
    envelope = {"key": "k", "tags": "t", "properties": {"color": "red", "size": "1"}}
    first.write_text(json.dumps(envelope | {"body": "a"}) + "\n" + json.dumps(envelope | {"body": "b"}), "utf-8")
    second.write_text(json.dumps(envelope | {"body": "c"}) + "\n", "utf-8")
    files = ("--envelope", "--file", str(first), "--file", str(second))
    sent = lockstep("produce", "restored", *files, "-H", "color=blue", "-o", "json")
    assert [(row["file"], row["line"]) for row in sent.rows] == [(str(first), 1), (str(first), 2), (str(second), 1)]
    rows = lockstep("consume", "restored", "-g", "restored", "-c", "3").rows
    assert [(row["body"], row["key"], row["tags"]) for row in rows] == [(body, "k", "t") for body in "abc"]
    assert rows[0]["properties"] == {"color": "blue", "size": "1"}
    second.write_text("nonsense\n", "utf-8")
    assert f"{second}, line 1: is not JSON" in lockstep("produce", "restored", *files).err


def test_on_a_terminal_ctrl_d_ends(lockstep: Lockstep) -> None:
    """The command says so, and takes each line as it is typed."""
    ours, theirs = pty.openpty()
    command = lockstep.command("produce", "typed", "--text", "-o", "json")
    with Forked(
        command, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=lockstep.environment
    ) as typing:
        os.close(theirs)
        assert typing.stdout is not None
        assert typing.stderr is not None
        assert typing.stderr.readline() == b"lockstep: a message a line; Ctrl-D ends\n"
        os.write(ours, b"hello\n")
        assert json.loads(typing.stdout.readline())["line"] == 1
        os.write(ours, b"\x04")
        assert typing.wait(END_S) == 0
    os.close(ours)
