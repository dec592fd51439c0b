"""`lockstep-broker` with wrong options or ports in use: one line on stderr, and the right exit status."""

import shlex
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from lockstep.broker.catalog.topics import QUEUE_NUMS_MAX
from lockstep.broker.options import parse_options
from tests.rows import each_row

MODULE = (sys.executable, "-m", "lockstep.broker")
FREE_PORTS = ("--port", "0", "--name-server-port", "0")

# Options -> words of the one line.
NONSENSE: dict[str, tuple[str, ...]] = {
    "--nonsense": ("unrecognized arguments: --nonsense",),
    "--por 0": ("unrecognized arguments: --por 0",),
    "extra": ("unrecognized arguments: extra",),
    "--port": ("--port", "expected one argument"),
    "--port http": ("--port", "'http'"),
    "--port 65536": ("--port: must be a port, 0 to 65535",),
    "--port -1": ("port",),
    "--name-server-port 1e4": ("--name-server-port", "'1e4'"),
    "--advertise 'x y'": ("'x y' is neither a host name nor an IP address",),
    "--host 0.0.0.0": ("advertise", "is every address"),
    "--topic orders": ("--topic", "'orders' is not NAME:QUEUES"),
    "--topic orders:": ("--topic", "'orders:' is not NAME:QUEUES"),
    "--topic :4": ("--topic", "must not be empty"),
    "--topic orders:0": ("--topic", "'orders:0' is not NAME:QUEUES"),
    "--topic orders:-4": ("--topic", "'orders:-4' is not NAME:QUEUES"),
    "--topic orders:four": ("--topic", "'orders:four' is not NAME:QUEUES"),
    "--topic or/ders:4": ("--topic", "'or/ders' may hold only"),
    f"--topic {'t' * 128}:4": ("--topic", "at most 127"),
    "--role name-server --topic orders:4": ("--topic", "a name server without a broker has no topics"),
    "--role name-server --data-dir kept": ("--data-dir", "a name server without a broker has no store"),
    "--data-dir=": ("--data-dir", "must name a folder"),
    "--role everything": ("--role", "invalid choice: 'everything'"),
    "--role broker": ("--name-server", "needs the address of one"),
    "--name-server here": ("'here' is not an address",),
    "--name-server ;": ("at least one address",),
    "--broker-name a/b": ("--broker-name: broker 'a/b'", "may hold only"),
    "--memory-limit lots": ("--memory-limit", "'lots' is not a size"),
    "--memory-limit 1.5GiB": ("--memory-limit", "'1.5GiB' is not a size"),
    "--memory-limit -1": ("--memory-limit",),
    "--memory-limit 1TiB2": ("--memory-limit", "is not a size"),
    "--memory-limit 0": ("--memory-limit", "must be above 0"),
    "--memory-limit 1MiB": ("--memory-limit", "must hold at least one message"),
    "--lock-live-ms 0": ("--lock-live-ms", "must be above 0"),
    "--lock-live-ms 60x": ("--lock-live-ms", "'60x' is no time; write for example 10s, 500ms or 10000"),
    "--lock-mode strict": ("--lock-mode", "must be 'faithful' or 'fenced', not 'strict'"),
    "--lock-delay-ms -1": ("--lock-delay-ms", "must be 0 or more"),
    "--fence-legacy never": ("--fence-legacy", "invalid choice: 'never'"),
    "-D lockMaxLiveTime": ("-D", "'lockMaxLiveTime' is not PROPERTY=VALUE"),
    "-D =1": ("-D", "'=1' is not PROPERTY=VALUE"),
    "-D noSuchProperty=1": ("unknown property 'noSuchProperty'; docs/settings.md lists all",),
    "-D brokerNme=a": ("did you mean brokerName", "docs/settings.md lists all"),
    "-D maxMessageSize=big": ("'maxMessageSize' must be a whole number, not 'big'",),
    "-D maxMessageSize=999999999": ("max_message_bytes", "at most"),
    "-D autoCreateTopicEnable=perhaps": ("'autoCreateTopicEnable' must be true or false",),
    "--log-format xml": ("--log-format", "invalid choice: 'xml'"),
    "--log-level loud": ("--log-level", "invalid choice: 'loud'"),
    "--metrics-port 99999": ("--metrics-port: must be a port, 0 to 65535",),
    "--flush sync": ("--flush: needs --data-dir: a store in memory is not flushed",),
    "-D flush_sync=true": ("flush_sync: needs --data-dir",),  # settings are called by their option, but for those of -D
    "-D segment_bytes=-1": ("segment_bytes: must be 0 to --memory-limit",),
    "--tls enforcing": ("--tls-cert: --tls 'enforcing' needs a certificate",),
    "--tls-cert x.pem": ("--tls: is disabled",),
    "--tls perhaps": ("--tls", "invalid choice: 'perhaps'"),
    "--acl-checks strict": ("needs --acl FILE or -D aclEnable=true",),
    "-D acl_checks=strict": ("needs --acl FILE or -D aclEnable=true",),
    "-D aclEnable=true": ("needs --acl, or --data-dir",),
    "--brokers 0": ("'0' is not a number of brokers; 1 to 26 are allowed",),
    "--brokers 27": ("1 to 26 are allowed",),
    "--brokers two": ("1 to 26 are allowed",),
    "--brokers 2 --role name-server": ("--role name-server has no brokers",),
    "--brokers 2 --control-port 0": ("--control-port: is of one broker",),
    "--brokers 2 --tls test --data-dir x": ("--tls test: with --brokers and --data-dir, give a",),
    "--brokers 2 -D brokerId=1": ("brokerId: must be 0",),
    "--brokers 2 --name-server h:1 --role all": ("either join its brokers",),
    "--brokers 3 --port 65520": ("--port: 3 brokers need the ports 65520 to 65540",),
    "--brokers 2 --metrics-port 65535": ("--metrics-port: 2 brokers need the ports 65535 to 65536",),
    f"--brokers 2 --broker-name {'x' * 126}": ("--broker-name: with --brokers at most 125 characters",),
    "--grpc-port any": ("--grpc-port: 'any' is not a port, 0 to 65535, nor 'none'",),
    "--brokers 2 --grpc-port 10921": ("port 10921 is needed twice",),
    "--brokers 2 --name-server-port 10921": ("port 10921 is needed twice",),
    "--brokers 2 --metrics-port 10920": ("port 10921 is needed twice",),
    "--brokers 2 --metrics-port 9875": ("port 9876 is needed twice",),
}


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(arguments, capture_output=True, text=True, timeout=120, check=False)


def check_one_line(ended: "subprocess.CompletedProcess[str]", status: int, words: tuple[str, ...]) -> None:
    assert (ended.returncode, ended.stdout) == (status, ""), ended.stderr
    check_line(ended.stderr, words)


def check_line(text: str, words: tuple[str, ...]) -> None:
    assert text.startswith("lockstep-broker: ")
    assert text.count("\n") == 1
    assert text.endswith("\n")
    for word in words:
        assert word in text


def test_nonsense_ends_with_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    """One line names the option and says which values are allowed. No port was opened, and there is no traceback."""
    with each_row() as row:
        for options, words in NONSENSE.items():
            with row(options):
                with pytest.raises(SystemExit) as ended:
                    parse_options(shlex.split(options))
                shown = capsys.readouterr()
                assert (ended.value.code, shown.out) == (2, "")
                check_line(shown.err, words)


@pytest.mark.long
@pytest.mark.parametrize("topic", ["SELF_TEST_TOPIC:4", "TBW102:8", "broker-a:4", f"orders:{QUEUE_NUMS_MAX + 1}"])
def test_a_topic_that_may_not_be_ends_with_status_1(topic: str) -> None:
    """The name is well formed but taken, or the topic has more queues than a route should list."""
    check_one_line(run(*MODULE, *FREE_PORTS, "--topic", topic), 1, ())


@pytest.mark.parametrize(
    ("option", "other"),
    [
        pytest.param("--port", "--name-server-port", id="broker"),
        pytest.param("--name-server-port", "--port", id="ns", marks=pytest.mark.long),
    ],
)
def test_a_taken_port_ends_with_status_1(option: str, other: str) -> None:
    """The line names the port and the option that chooses another one."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        check_one_line(run(*MODULE, option, port, other, "0"), 1, (f"port {port} on 127.0.0.1 is in use", option))


@pytest.mark.long
def test_an_address_that_is_not_ours_ends_with_status_1() -> None:
    """No machine has an address of 192.0.2.0/24, which is reserved for documents."""
    words = ("the broker cannot listen on 192.0.2.1:0",)
    check_one_line(run(*MODULE, *FREE_PORTS, "--host", "192.0.2.1"), 1, words)


def test_the_installed_command_is_the_module(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command `lockstep-broker` prints the same as the module does here."""
    monkeypatch.setenv("COLUMNS", "100")  # a terminal here has another width than the pipe there
    command = str(Path(sys.executable).with_name("lockstep-broker"))
    check_one_line(run(command, "--nonsense"), 2, NONSENSE["--nonsense"])
    with pytest.raises(SystemExit):
        parse_options(["--help"])
    assert run(command, "--help").stdout == capsys.readouterr().out != ""
