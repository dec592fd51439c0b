"""Accounts of clients: given, from the environment, and on each request of a connection."""

from dataclasses import replace
from typing import Any

import pytest

from lockstep.client import AdminClient, ClientConfig, Credentials, Producer, PullConsumer, PushConsumer
from lockstep.client.credentials import credentials_of_environment, with_credentials
from lockstep.protocol.codes import RequestCode, SerializeType
from lockstep.protocol.command import SERIALIZE_FIELD, RemotingCommand, decode_command
from lockstep.protocol.frame import FrameDecoder
from lockstep.protocol.signature import ACCESS_KEY, ONCE, SIGNATURE, field_texts, signature_of, signed_bytes
from lockstep.remoting.connections.connection import EndpointSettings, RemotingConnection
from lockstep.remoting.settings import SettingError, as_properties, with_properties

ACCOUNT = Credentials("account1", "secret-1234")
OTHER = Credentials("account2", "secret-5678")
NAME_SERVER = "127.0.0.1:9876"


def connected(offer: SerializeType | None = SerializeType.MSGPACK) -> RemotingConnection[str]:
    settings = EndpointSettings(server=False, offer=offer, credentials=ACCOUNT)
    connection: RemotingConnection[str] = RemotingConnection(settings, "s1")
    connection.connected("broker:1", 0)
    return connection


def arrived(parts: tuple[bytes, ...]) -> RemotingCommand:
    decoder = FrameDecoder()
    decoder.feed(b"".join(parts))
    (frame,) = decoder.frames()
    return decode_command(frame)


def is_signed(command: RemotingCommand) -> bool:
    texts = field_texts(command)
    good = signature_of(signed_bytes(texts, command.body), ACCOUNT.secret_key)
    return texts[ACCESS_KEY] == ACCOUNT.access_key and texts[SIGNATURE] == good


def test_offer_is_signed() -> None:
    """Requests have a number of their own before the broker has agreed or declined; the first has the offer."""
    connection = connected()
    first = arrived(connection.request(RemotingCommand(RequestCode.HEART_BEAT, body=b"{}"), 3000, 7, "w"))
    assert is_signed(first)
    assert {SERIALIZE_FIELD, ONCE} <= set(field_texts(first))
    assert field_texts(first)[ONCE] == "7-s1-1"
    second = arrived(connection.request(RemotingCommand(RequestCode.HEART_BEAT, body=b"{}"), 3000, 8, "w"))
    assert is_signed(second)
    assert field_texts(second)[ONCE] == "8-s1-2"
    one_way = arrived(connection.one_way(RemotingCommand(RequestCode.HEART_BEAT, body=b"{}"), 9))
    assert is_signed(one_way)


def test_no_private_field() -> None:
    """A client that offers nothing sends RocketMQ's fields alone."""
    connection = connected(offer=None)
    command = arrived(connection.request(RemotingCommand(RequestCode.HEART_BEAT, body=b"{}"), 3000, 7, "w"))
    assert is_signed(command)
    assert set(field_texts(command)) == {ACCESS_KEY, SIGNATURE}


def test_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment names an account with both keys; one of them alone is an error that names the other."""
    assert credentials_of_environment() is None
    monkeypatch.setenv("LOCKSTEP_ACCESS_KEY", "account2")
    with pytest.raises(SettingError, match="LOCKSTEP_SECRET_KEY is not set"):
        credentials_of_environment()
    monkeypatch.setenv("LOCKSTEP_SECRET_KEY", "secret-5678")
    assert credentials_of_environment() == OTHER
    monkeypatch.delenv("LOCKSTEP_ACCESS_KEY")
    with pytest.raises(SettingError, match="LOCKSTEP_ACCESS_KEY is not set"):
        credentials_of_environment()


def test_which_account_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A given account counts before that of the settings, and that one before the environment."""
    monkeypatch.setenv("LOCKSTEP_ACCESS_KEY", "account2")
    monkeypatch.setenv("LOCKSTEP_SECRET_KEY", "secret-5678")
    third = Credentials("account3", "secret-9012")
    assert with_credentials(ClientConfig(), None).credentials == OTHER
    assert with_credentials(ClientConfig(credentials=ACCOUNT), None).credentials == ACCOUNT
    assert with_credentials(ClientConfig(credentials=ACCOUNT), third).credentials == third


@pytest.mark.parametrize("kind", [Producer, PushConsumer, PullConsumer])
def test_clients_take_credentials(kind: Any) -> None:
    """Producers and consumers take an account, and keep it in their settings."""
    client = kind("G", name_server=NAME_SERVER, credentials=ACCOUNT)
    assert client.config.credentials == ACCOUNT


def test_admin_takes_credentials() -> None:
    """The admin client takes an account too."""
    assert AdminClient(name_server=NAME_SERVER, credentials=ACCOUNT) is not None


def test_settings_show_no_account() -> None:
    """An account is no property: it is neither shown with the settings nor read from a text."""
    config = replace(ClientConfig(), credentials=ACCOUNT)
    assert not [value for value in as_properties(config).values() if "secret" in value or "account1" in value]
    assert "secret-1234" not in repr(config)
    with pytest.raises(SettingError, match="unknown property 'credentials'"):
        with_properties(config, {"credentials": "x"})
