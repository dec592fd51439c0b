"""The content of plain_acl.yml."""

import pytest

from lockstep.broker.acl.errors import RuleError
from lockstep.broker.acl.permissions import DENY, PUB, SUB
from lockstep.broker.acl.rules import parse_file
from tests.broker.acl.accounts import RULES
from tests.rows import by_row


def test_all_fields() -> None:
    """An account has its keys, its address, its role and its permissions; groups are kept as retry topics."""
    file = parse_file(RULES.encode())
    admin, account = file.accounts
    assert admin.admin
    assert not account.admin
    assert account.default_topic == DENY
    assert account.default_group == SUB
    assert account.resources["both"] == PUB | SUB
    assert account.resources["%RETRY%closed"] == DENY
    assert account.fits_address("10.1.1.1")
    assert not account.fits_address("10.1.1.2")
    assert len(file.white_addresses) == 1
    assert file.warnings == ()
    assert "secret-1234" not in repr(file)


def test_defaults() -> None:
    """An account without permissions may do nothing, and an empty file has no account."""
    (account,) = parse_file(b"accounts: [{accessKey: 12345678, secretKey: secret-1}]").accounts
    assert account.access_key == "12345678"
    assert (account.default_topic, account.default_group, account.resources) == (DENY, DENY, {})
    assert parse_file(b"").accounts == ()


def test_what_is_just_allowed() -> None:
    """Keys of seven characters; "==" in a permission, as in RocketMQ; a version that is none counts as 0."""
    file = parse_file(
        b"accounts: [{accessKey: account, secretKey: secret7, topicPerms: [a==PUB, b=SUB|PUB]}]\n"
        b"dataVersion: [7, {counter: x, timestamp: 5}]"
    )
    (account,) = file.accounts
    assert account.resources == {"a": PUB, "b": PUB | SUB}
    assert (file.counter, file.changed_ms) == (0, 5)


@by_row(
    "text, says",
    [
        ("accounts: [", "not YAML in line 1"),
        ("- a\n- b", "must be a map"),
        ("accounts: 7", "accounts must be a list"),
        ("accounts: [7]", "account 1 must be a map"),
        ("accounts: [{accessKey: short, secretKey: secret-1}]", "account short: accessKey must have at least 7"),
        ("accounts: [{accessKey: account1, secretKey: short}]", "account account1: secretKey must have at least 7"),
        ("accounts: [{accessKey: account1}]", "account account1: secretKey must have"),
        ("accounts: [{accessKey: account1, secretKey: secret-1, topicPerms: [a]}]", "failed for topic:a"),
        ("accounts: [{accessKey: account1, secretKey: secret-1, groupPerms: {a: PUB}}]", "groupPerms must be a list"),
        ("accounts: [{accessKey: account1, secretKey: secret-1, whiteRemoteAddress: 1.2.3}]", "examine"),
        ("accounts: [{accessKey: [a], secretKey: secret-1}]", "a text is expected, not a list"),
        ("globalWhiteRemoteAddresses: [nonsense]", "examine Exception netaddress is nonsense"),
        ("x: !!python/object/apply:os.system [ls]", "not YAML"),
    ],
)
def test_bad_files(text: str, says: str) -> None:
    """A fault refuses the file, names the place, and does not show a secret."""
    with pytest.raises(RuleError, match=says) as refused:
        parse_file(text.encode())
    assert "secret-1" not in str(refused.value)


def test_warnings() -> None:
    """What is ignored or counts as DENY, as in RocketMQ, is a warning."""
    text = b"account: []\naccounts: [{accessKey: account1, secretKey: secret-1, topicPerm: [], topicPerms: [a=READ]}]"
    file = parse_file(text)
    assert file.accounts[0].resources == {"a": DENY}
    assert len(file.warnings) == 3
