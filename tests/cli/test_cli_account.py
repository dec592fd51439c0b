"""Accounts of commands, against a broker with ACL."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.cli_inside import Inside
from tests.commands import ForkedBroker

RULES = """\
accounts:
- {accessKey: adminadmin, secretKey: secret-admin, admin: true}
- {accessKey: account1, secretKey: secret-1234, topicPerms: [mine=PUB|SUB], defaultGroupPerm: SUB}
"""
ACCOUNT = ("--access-key", "account1", "--secret-key", "secret-1234")


@pytest.fixture(scope="module")
def name_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("acl")
    (folder / "plain_acl.yml").write_text(RULES)
    options = (
        "--acl",
        str(folder / "plain_acl.yml"),
        "--acl-checks",
        "strict",
        "--topic",
        "mine:1",
        "--topic",
        "other:1",
    )
    with ForkedBroker(*options, folder=folder) as broker:
        yield broker.name_server


@pytest.fixture
def inside(name_server: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Inside:
    for variable in ("LOCKSTEP_ACCESS_KEY", "LOCKSTEP_SECRET_KEY"):
        monkeypatch.setenv(variable, "")  # what a command sets is taken back after the test
    return Inside(name_server, monkeypatch, capfd)


def lines(tmp_path: Path) -> str:
    path = tmp_path / "lines.jsonl"
    path.write_text('{"a": 1}\n')
    return str(path)


def test_options_sign(inside: Inside, tmp_path: Path) -> None:
    """With its keys a command is served, and refused where the account may not; without them it is refused."""
    refused = inside("produce", "mine", "--file", lines(tmp_path))
    assert refused.status == 1
    assert "No accessKey is configured" in refused.err
    assert inside(*ACCOUNT, "produce", "mine", "--file", lines(tmp_path)).status == 0
    assert os.environ["LOCKSTEP_ACCESS_KEY"] == "account1"
    other = inside(*ACCOUNT, "produce", "other", "--file", lines(tmp_path))
    assert other.status == 1
    assert "No default permission for topic:other" in other.err
    assert "secret-1234" not in refused.err + other.err


def test_environment_signs(inside: Inside, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment's keys count, and an option wins over them."""
    monkeypatch.setenv("LOCKSTEP_ACCESS_KEY", "account1")
    monkeypatch.setenv("LOCKSTEP_SECRET_KEY", "secret-0000")
    wrong = inside("produce", "mine", "--file", lines(tmp_path))
    assert "Check signature failed for accessKey=account1" in wrong.err
    assert inside("--secret-key", "secret-1234", "produce", "mine", "--file", lines(tmp_path)).status == 0


def test_both_keys(inside: Inside) -> None:
    """A key without the other is a wrong call."""
    result = inside("--access-key", "account1", "topic", "list")
    assert result.status == 2
    assert "give --secret-key too, or set LOCKSTEP_SECRET_KEY" in result.err
