"""Settings and the command line."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lockstep.broker.config import BrokerConfig
from lockstep.broker.options import parse_options, parse_size, parse_topic
from lockstep.protocol.codes import PROPERTIES_BYTES_MAX, TOPIC_LENGTH_MAX, SysFlag
from lockstep.remoting.host.os_storage import OsStorage
from lockstep.remoting.settings import SettingError, with_properties
from lockstep.store.file.store import FileStore
from lockstep.store.file_settings import FileStoreSettings
from lockstep.store.format.layout import FILE_END_BYTES
from tests.broker.helpers import RecordingLog
from tests.rows import by_row
from tests.store.stores import record

EVERYWHERE = ("", "0.0.0.0", "0", "::", "::0", "0:0:0:0:0:0:0:0", "::ffff:0.0.0.0")


@by_row(
    "changes, said",
    [
        ({"lock_mode": "loose"}, "must be 'faithful' or 'fenced', not 'loose'"),
        ({"fence_legacy": "maybe"}, "must be 'refuse' or 'warn' or 'off', not 'maybe'"),
        ({"lock_delay_ms": -1}, "must be 0 or more"),
        ({"lock_delay_legacy_ms": -1}, "must be 0 or more"),
        ({"lock_grace_ms": -1}, "must be 0 or more"),
        ({"lock_max_live_time_ms": 0}, "above 0"),
        ({"lock_max_live_time_ms": 999, "lock_mode": "fenced"}, "at least 1000 with fenced locks: renewals must be"),
        ({"port": 70_000}, "0 to 65535"),
        *[({"host": host}, "give the one that clients must use") for host in EVERYWHERE],
        *[({"advertise": host}, "every address") for host in EVERYWHERE if host],
        ({"advertise": "fe80::1%eth0"}, "neither a host name nor an IP address"),
        *[
            ({"host": host, "advertise": "10.0.0.9"}, "every address of IPv6, and 10.0.0.9 is none")
            for host in ("::", "0::0")
        ],
        ({"serve_name_server": False}, "needs the address of one"),
        ({"serve_name_server": False, "serve_broker": False}, "must have a broker or a name server"),
        ({"name_servers": "nowhere"}, "host:port"),
        ({"memory_limit_bytes": 1000}, "at least one message"),
        ({"max_message_bytes": 1 << 25}, "no frame"),
        ({"broker_name": "broker a"}, "broker_name"),
        ({"scan_interval_ms": 120_000}, "noticed much too late"),
        ({"hold_check_interval_ms": 5001}, "clients time out before a held pull"),
        ({"register_interval_ms": 120_000}, "remove a healthy broker"),
        ({"segment_bytes": -1}, "segment_bytes"),
        ({"flush_sync": True}, "a store in memory is not flushed"),
        ({"data_dir": "store", "segment_bytes": 1 << 20}, "must hold a message of the largest size"),
        ({"data_dir": "store", "queue_file_bytes": 6001}, "multiple of 20"),
        ({"operator_addresses": "10.0.0.*,10.0.0.1"}, "operator_addresses: .* is not a pattern of addresses, such as"),
    ],
)
def test_settings_that_cannot_work_are_refused_with_the_reason(changes: dict[str, Any], said: str) -> None:
    """At construction, before anything is started."""
    with pytest.raises(SettingError, match=said):
        replace(BrokerConfig(), **changes)


@pytest.mark.parametrize("name", ["lock_max_live_time_ms", "channel_expired_timeout_ms", "idle_close_ms"])
def test_settings_that_default_clients_cannot_work_with_are_named(name: str) -> None:
    """They are allowed, because clients may have matching settings; the broker logs which ones they need."""
    assert BrokerConfig().too_short_for_default_clients() == []
    short: dict[str, Any] = {name: 30_000}
    ((named, above, why),) = replace(BrokerConfig(), **short).too_short_for_default_clients()
    assert (named, above) == (name, 30_000)
    assert "30000 ms" in why
    assert replace(BrokerConfig(), **(short | {name: 30_001})).too_short_for_default_clients() == []


def test_a_lock_without_a_fence_may_be_as_short_as_in_rocketmq() -> None:
    """Its clients renew by a setting of their own; the fenced lease is the broker's."""
    assert replace(BrokerConfig(), lock_max_live_time_ms=1).lock_max_live_time_ms == 1
    assert replace(BrokerConfig(), lock_max_live_time_ms=1000, lock_mode="fenced").lock_mode == "fenced"


def test_rocketmqs_own_names_are_known() -> None:
    """The same setting under either name."""
    properties = {
        "rocketmq.broker.rebalance.lockMaxLiveTime": "10000",
        "autoCreateTopicEnable": "false",
        "maxTransferCountOnMessageInMemory": "64",
        "brokerName": "b1",
    }
    config = with_properties(BrokerConfig(), properties)
    assert (config.lock_max_live_time_ms, config.auto_create_topics) == (10_000, False)
    assert (config.pull_messages_max, config.broker_name) == (64, "b1")


def test_segments_are_an_eighth_of_the_limit_up_to_64_mib() -> None:
    """Unless their size is given."""
    assert BrokerConfig().segment_capacity_bytes == 64 << 20
    assert BrokerConfig(memory_limit_bytes=64 << 20).segment_capacity_bytes == 8 << 20
    assert BrokerConfig(segment_bytes=12345).segment_capacity_bytes == 12345


@pytest.mark.parametrize(
    ("text", "size"), [("4096", 4096), ("1GiB", 1 << 30), ("512M", 512 << 20), ("2 kb", 2000), ("1g", 1 << 30)]
)
def test_sizes(text: str, size: int) -> None:
    """With and without a unit."""
    assert parse_size(text) == size


def test_topics() -> None:
    """Retry topics may be named too, for they hold no colon."""
    assert parse_topic("orders:8") == ("orders", 8)
    assert parse_topic("%RETRY%g:1") == ("%RETRY%g", 1)


def test_options_become_a_config() -> None:
    """Every option lands where it belongs, -D after the others."""
    given = (
        "--host 127.0.0.2 --advertise 10.1.2.3 --port 0 --name-server-port 1 --broker-name b --cluster c "
        "--topic a:1 --topic b:2 --no-auto-create-topics --memory-limit 64MiB --lock-live-ms 3000 "
        "-D maxMessageSize=1000 -D lock_max_live_time_ms=4000 --log-format json --log-level debug"
    )
    options = parse_options(given.split())
    config = options.config
    assert (config.host, config.advertised_host, config.port, config.name_server_port) == (
        "127.0.0.2",
        "10.1.2.3",
        0,
        1,
    )
    assert (config.broker_name, config.cluster, config.auto_create_topics) == ("b", "c", False)
    assert (config.memory_limit_bytes, config.lock_max_live_time_ms) == (64 << 20, 4000)
    assert (config.max_message_bytes, config.log_debug) == (1000, True)
    assert (options.topics, options.log_format, options.log_level) == ((("a", 1), ("b", 2)), "json", "debug")


@pytest.mark.parametrize(
    ("arguments", "port", "optional"),
    [
        ("", 8081, True),
        ("--port 0", None, False),
        ("--grpc-port none", None, False),
        ("--grpc-port 0 --port 0", 0, False),
        ("--grpc-port 8081", 8081, False),
        ("-D grpc_port=9000", 9000, False),
        ("--name-server-port 8081", None, False),
        ("--metrics-port 8081", None, False),
        ("--port 8083", None, False),  # its VIP channel
        ("--brokers 2 --port 8072", None, False),
    ],
)
def test_the_grpc_port_is_there_unless_something_needs_it(arguments: str, port: int | None, optional: bool) -> None:
    """Only its default may be missing at the start."""
    config = parse_options(arguments.split()).config
    assert (config.grpc_port, config.grpc_optional) == (port, optional)


@pytest.mark.parametrize(
    ("arguments", "serves"),
    [
        ("", (True, True)),
        ("--role name-server", (False, True)),
        ("--role broker --name-server h:1", (True, False)),
        ("--name-server h:1 --name-server i:2", (True, False)),
        ("--role all --name-server h:1", (True, True)),
    ],
)
def test_roles(arguments: str, serves: tuple[bool, bool]) -> None:
    """A broker that joins another name server serves no name server itself unless it is told to."""
    config = parse_options(arguments.split()).config
    assert (config.serve_broker, config.serve_name_server) == serves


@pytest.mark.parametrize(
    "arguments",
    [
        ["--tls", "enforcing", "-D", "tls.server.certPath=x.pem"],
        ["--tls-cert", "x.pem", "-D", "tls.server.mode=enforcing"],
    ],
)
def test_options_and_properties_are_checked_together(arguments: list[str]) -> None:
    """A setting may come from an option and the one that it needs from a property; of both the property wins."""
    config = parse_options(arguments).config
    assert (config.tls_mode, config.tls_cert) == ("enforcing", "x.pem")
    assert parse_options([*arguments, "-D", "tls_cert=y.pem"]).config.tls_cert == "y.pem"


def test_a_file_of_the_log_holds_a_message_of_the_largest_size(tmp_path: Path) -> None:
    """The smallest size is named with its setting, and such a file takes the largest message there can be."""
    sizes: dict[str, Any] = {"data_dir": "store", "max_message_bytes": 4096}
    with pytest.raises(SettingError, match=r"segment_bytes: .* at least 37113 bytes"):
        BrokerConfig(segment_bytes=37_112, **sizes)
    assert BrokerConfig(segment_bytes=37_113, **sizes).log_file_bytes == 37_113
    host = bytes(16)
    both = int(SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6)
    topic, properties = "T" * TOPIC_LENGTH_MAX, b"p" * PROPERTIES_BYTES_MAX
    largest = record(b"x" * 4096, topic=topic)._replace(sys_flag=both, born_host=host, properties=properties)
    settings = FileStoreSettings(str(tmp_path), 37_113, 2000, 1 << 20, 32, False, 64, 100)
    store = FileStore(OsStorage(), settings, host, 1, RecordingLog())
    for _ in range(2):
        store.append(largest)
    assert store.max_commit_log_offset == 2 * 37_113 - FILE_END_BYTES
    store.close()


def test_times_are_milliseconds_or_durations() -> None:
    """As those of `lockstep` are."""
    config = parse_options(["--lock-live-ms", "1m30s", "--lock-delay-ms", "250ms", "--lock-grace-ms", "70000"]).config
    assert (config.lock_max_live_time_ms, config.lock_delay_ms, config.lock_grace_ms) == (90_000, 250, 70_000)
