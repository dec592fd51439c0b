"""Accounts of the source and the sink: options, the driver's environment, and signed requests of an executor."""

import pickle
from pathlib import Path

import pytest

from lockstep.client.blocking import Addresses
from lockstep.pipeline.errors import OptionError
from lockstep.pipeline.options import Use, parse_options
from lockstep.pipeline.source.planning import addresses_of
from lockstep.protocol.signature import Credentials
from lockstep.remoting.errors import RequestRefused
from tests.commands import ForkedBroker

ACCOUNT = Credentials("account1", "secret-1234")
RULES = "accounts: [{accessKey: account1, secretKey: secret-1234, topicPerms: [mine=PUB|SUB], defaultGroupPerm: SUB}]\n"
GIVEN = {"nameServer": "mq:9876", "topic": "mine"}
KEYS = {"accessKey": "account1", "secretKey": "secret-1234"}


def test_options(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both keys go with what an executor gets; without them those of the driver's environment do."""
    for use in (Use.READ, Use.WRITE):
        options = parse_options({**GIVEN, **KEYS}, use)
        assert "secret-1234" not in repr(options)
        assert pickle.loads(pickle.dumps(addresses_of(options))).credentials == ACCOUNT
        assert parse_options(GIVEN, use).credentials is None
        with pytest.raises(OptionError, match="accessKey and secretKey go together"):
            parse_options({**GIVEN, "accessKey": "account1"}, use)
    monkeypatch.setenv("LOCKSTEP_ACCESS_KEY", "account1")
    monkeypatch.setenv("LOCKSTEP_SECRET_KEY", "secret-1234")
    assert addresses_of(parse_options(GIVEN, Use.READ)).credentials == ACCOUNT


def test_executor_signs(tmp_path: Path) -> None:
    """Strict checks serve a client with an account, also after it agreed on an encoding, and no other client."""
    (tmp_path / "plain_acl.yml").write_text(RULES)
    options = ("--acl", str(tmp_path / "plain_acl.yml"), "--acl-checks", "strict", "--topic", "mine:1")
    with ForkedBroker(*options, folder=tmp_path) as broker:
        for credentials in (ACCOUNT, None):
            with Addresses((broker.name_server,), credentials=credentials).open() as client:
                (queue,) = client.route("mine").readable_queues("mine")
                if credentials is None:
                    with pytest.raises(RequestRefused, match="No accessKey is configured"):
                        client.max_offset(queue)
                else:
                    assert [client.max_offset(queue) for _ in range(3)] == [0, 0, 0]
                    assert client.agrees(queue)
