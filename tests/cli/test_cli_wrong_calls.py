"""Wrong calls of `lockstep`: one line that says what is allowed."""

import subprocess
from collections.abc import Iterator

import pytest

from tests.cli.cli_inside import Inside
from tests.cli.test_cli import one_line
from tests.commands import SCRIPTS, TIMEOUT_S, ForkedBroker, Lockstep, running_broker
from tests.integration.harness.ports import free_port
from tests.rows import by_row


@pytest.fixture(scope="module")
def lockstep() -> Iterator[Lockstep]:
    """The command with a broker of this module's own, and topic `orders`."""
    with running_broker("--topic", "orders:4") as command:
        yield command


@pytest.fixture
def inside(lockstep: Lockstep, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Inside:
    return Inside(lockstep.name_server, monkeypatch, capfd)


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Inside:
    """The command where no server listens."""
    return Inside("127.0.0.1:1", monkeypatch, capfd)


@by_row(
    "arguments, complaint",
    [
        ("consume orders", "give either --group, or --queue to read one queue without a group"),
        ("consume orders -g g --queue broker-a:0", "give either --group, or --queue"),
        ("consume orders -g g --offset 1", "--offset is for --queue; where a new group begins is --from"),
        ("consume orders --queue broker-a:0 --offset end", "--offset 'end': give a number, -N for N before the end"),
        ("consume orders --queue broker-a:0 --fenced", "--fenced is for --group: with --queue a queue is read"),
        ("consume orders --queue broker-a:0 --from last", "--from is for --group: with --queue a queue is read"),
        ("consume orders --queue nonsense", "--queue 'nonsense': write BROKER:N, as in broker-a:0"),
        ("consume orders -g g --from yesterday", "--from 'yesterday': give first, last, epoch milliseconds, a time"),
        ("consume orders -g g -f %x", "'%x' means nothing; allowed are %t"),
        ("consume orders -g g --tags ||", "names no tag; use '*' or 'TagA || TagB'"),
        ("consume or.ders -g g", "may hold only the characters"),
        ("consume orders -g g/g", "may hold only the characters"),
        ("consume orders -g g -c 0", "greater than or equal to 1"),
        ("consume orders -g g -D nonsense", "-D 'nonsense': write -D name=value"),
        ("consume orders -g g -D nonsense=1", "unknown property 'nonsense'; docs/settings.md lists all"),
        ("consume orders -g g -D PullBatchSise=1", "'PullBatchSise'; did you mean pullBatchSize or pull_batch_size"),
        ("consume orders -g g -D pullBatchSize=many", "must be a whole number, not 'many'"),
        ("consume orders -g g -D rocketmq.client.rebalance.lockInterval=40000", "must be below lock_max_live_time_ms"),
        ("consume orders -g g --lock-live-ms 100", "--lock-live-ms '100': give 3s or more"),
        ("bench handover --work-ms 11s", "--work-ms '11s': give 0s to 10s"),
        ("bench handover --queues 1", "--queues 1: two members need a queue each; give 2 or more"),
        ("bench send --messages 0", "greater than or equal to 1"),
        ("bench send --size 9999999", "less than or equal to 4194304"),
        ("bench consume --rate 0", "greater than or equal to 0.1"),
        ("bench nothing", "No such command 'nothing'"),
        (
            "bench consume --lock-live-ms soon",
            "give a duration such as 500ms, 2s or 1m30s, or a number of milliseconds",
        ),
        ("trace check x --clock-skew -1", "--clock-skew '-1': give a duration such as 500ms, 2s or 1m30s, or a number"),
        ("lock watch --interval 10ms", "--interval '10ms': give 50ms to 1h"),
        (
            "lock watch --seconds soon",
            "--seconds 'soon': give a duration such as 500ms, 2s or 1m30s, or a",
        ),
        ("group watch g --interval 2h", "--interval '2h': give 50ms to 1h"),
        ("group watch g --seconds -1", "--seconds '-1': give a duration such as 500ms, 2s or 1m30s, or a number of se"),
        ("consume orders -g g --mode fast", "'fast' is not one of 'orderly', 'by-key', 'concurrent'"),
        ("consume orders -g g --work soon", "--work 'soon': give a duration such as 500ms, 2s or 1m30s"),
        ("consume orders -g g --work-of N1", "--work-of 'N1': write --work-of KEY=DURATION"),
        ("consume orders -g g --work-of N1=1", "--work-of '1': give a duration such as 500ms, 2s or 1m30s"),
        ("consume orders -g g --fail 101%", "--fail '101%': give a percentage from 0% to 100%, such as 5%"),
        ("consume orders -g g --fail nan", "--fail 'nan': give a percentage from 0% to 100%, such as 5%"),
        ("consume orders -g g --suspend N1=1h", "--suspend N1: a queue can be suspended for 10ms to 30s"),
        ("consume orders -g g --mode concurrent --suspend N1=1s", "--suspend is for --mode orderly and by-key"),
        ("consume orders -g g --pop --fenced", "--fenced is for queues that a consumer owns; with --pop it owns none"),
        ("consume orders -g g --pop --mode concurrent --trace t", "--trace is for --mode orderly and by-key"),
        ("consume orders -g g --mode concurrent --fenced", "--fenced is for --mode orderly and by-key"),
        ("consume orders -g g --trace /", "--trace: cannot write /: Is a directory"),
        ("consume orders -g g --trace /dev/null/t", "--trace: cannot write /dev/null/t: Not a directory"),
        ("trace check nosuchfile --report /", "--report: cannot write /: Is a directory"),
        ("console --snapshot /", "--snapshot: cannot write /: Is a directory"),
        ("produce orders -k a --key-field b", "--key and --key-field exclude each other"),
        ("produce orders --text --body-field b", "--text and --body-field exclude each other"),
        ("produce orders -K : --key-field b", "--key-field and --key-delimiter exclude each other"),
        ("produce orders -K : --envelope", "--envelope and --key-delimiter exclude each other"),
        ("produce orders -K \\q", "--key-delimiter: '\\\\q' means nothing; allowed are \\n \\t"),
        ("produce orders -H nonsense", "--header 'nonsense': write --header NAME=VALUE"),
        ("produce orders -H TAGS=a", "--header TAGS: RocketMQ uses this name; give --key, --keys or --tags"),
        ("produce orders -H a=", "--header a is empty; leave it out, or give it a character"),
        ("produce orders --file nosuchfile", "'nosuchfile': No such file or directory"),
        ("produce orders --in-flight 0", "greater than or equal to 1"),
        ("produce SCHEDULE_TOPIC_XXXX --text", "is reserved by RocketMQ"),
        ("message get nonsense", "'nonsense' is no offset message id"),
        ("message get 0A -t or.ders", "may hold only the characters"),
        ("message hand 0A -g g/g", "may hold only the characters"),
        ("message find -t orders --queue nonsense --offset 1", "--queue 'nonsense': write BROKER:N"),
        ("message find -t orders --key k --begin soon", "--begin 'soon': give epoch milliseconds"),
        ("message find -t orders --key k --begin now --end 0", "--begin is after --end"),
        ("message find -t or.ders --key k", "may hold only the characters"),
        ("message tail -t orders --queue broker-a:x", "--queue 'broker-a:x': write BROKER:N"),
        ("message tail -t orders --format %x", "'%x' means nothing; allowed are %t"),
        ("message tail -t orders --from soon", "--from 'soon': give first, last, epoch milliseconds"),
        ("message tail -t orders --tag ||", "names no tag; use '*' or 'TagA || TagB'"),
        ("offset show g -t or.ders", "may hold only the characters"),
        ("offset reset g -t orders --to-time latest --queue -1", "--queue '-1': write BROKER:N"),
        ("offset reset g -t orders --to-time soon", "--to-time 'soon': give earliest, latest, epoch milliseconds"),
        ("offset reset g -t or.ders --to-time latest", "may hold only the characters"),
        ("offset seek g -t orders --queue nonsense --offset 1", "--queue 'nonsense': write BROKER:N"),
        ("offset seek g -t orders --queue b:0 --offset x", "--offset 'x': give a number, earliest or latest"),
        ("group describe g -t or.ders", "may hold only the characters"),
        ("group watch g -t or.ders", "may hold only the characters"),
        ("group delete g/g", "may hold only the characters"),
        ("lock list -g g/g", "may hold only the characters"),
        ("group deliveries g/g", "may hold only the characters"),
        ("group create g/g", "may hold only the characters"),
        ("group update g --retries -1", "greater than or equal to 0"),
        ("topic create orders --type mixed", "'mixed' is not one of 'normal', 'fifo'"),
        ("lock watch -g g/g", "may hold only the characters"),
        ("doctor -g g/g", "may hold only the characters"),
        ("status --behind soon", "--behind 'soon': give a duration"),
        ("topic create or.ders", "may hold only the characters"),
        ("topic stats or.ders", "may hold only the characters"),
        ("topic create orders --queues none", "valid integer"),
        ("topic list -n nonsense", "'nonsense' is not an address; write host:port"),
        ("topic list -n http://10.0.0.1:9876", "is a URL; write host:port without http://, for example 127.0.0.1:9876"),
        ("topic list -n 10.0.0.1/path:9876", "'10.0.0.1/path:9876' is not an address; write host:port"),
        ("topic list -o yaml", "'yaml' is not one of 'table', 'json'"),
        ("lock watch --nonsense", "No such option: --nonsense"),
        ("lick", "No such command 'lick'. Did you mean 'lock'?"),
    ],
)
def test_a_wrong_call_is_told_in_one_line(nowhere: Inside, arguments: str, complaint: str) -> None:
    """Exit 2, nothing on stdout, and what is allowed. No server is asked: none runs."""
    result = nowhere(*arguments.split(" "))
    assert result.out == ""
    assert complaint in one_line(result.err.splitlines(keepends=True)[-1])
    assert "Traceback" not in result.err
    assert result.status == 2


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ("consume nosuch -g g", "topic 'nosuch' does not exist; send to it, or make it with `lockstep topic create"),
        ("group describe nosuch", "no broker knows group 'nosuch'; there are no groups"),
        ("group describe g -t nosuch", "topic 'nosuch' does not exist"),
        ("group update nosuch --fifo", "there is no group 'nosuch': `lockstep group create` makes it"),
        ("topic create x --broker nosuch", "no broker 'nosuch'; registered are broker-a"),
    ],
)
def test_what_is_not_there_is_named(inside: Inside, arguments: str, complaint: str) -> None:
    """Exit 1 and one line."""
    result = inside(*arguments.split())
    assert (result.status, result.out) == (1, "")
    assert complaint in one_line(result.err)


@by_row(
    "arguments",
    ["topic list", "group list", "lock list", "lock watch", "consume t -g g", "produce t", "status", "bench send"],
)
def test_no_name_server_is_told_in_one_line(arguments: str) -> None:
    """Nobody listens there: exit 1 with the address, from every command."""
    address = f"127.0.0.1:{free_port()}"
    result = Lockstep("127.0.0.1:1")(*arguments.split(), "-n", address)
    assert (result.status, result.out) == (1, "")
    assert f"no name server answered: cannot connect to {address}" in one_line(result.err)


def test_a_cluster_without_brokers_is_no_empty_cluster() -> None:
    """An empty table or "nothing found" would hide that no broker is registered at the name server."""
    with ForkedBroker("--role", "name-server") as server:
        lockstep = Lockstep(server.name_server)
        for arguments in ("topic list", "group list -o json", "lock list", "doctor", "offset show shop"):
            result = lockstep(*arguments.split())
            assert (arguments, result.status, result.out) == (arguments, 1, "")
            assert result.err == "lockstep: no broker is registered\n"


def test_a_watch_without_brokers_says_what_it_waits_for() -> None:
    """Once. It goes on: who watches a cluster may start it before the brokers, and sees their locks."""
    watch = ("lock", "watch", "--interval", "0.05")
    with ForkedBroker("--role", "name-server") as server:
        result = Lockstep(server.name_server)(*watch, "--seconds", "0.5")
        assert (result.status, result.out) == (0, "")
        assert result.err == "lockstep: no broker is registered; asking again\n"
        assert result.err.count("\n") == 1


def test_nobody_reading_the_errors_changes_no_status() -> None:
    """As in `lockstep doctor 2>&1 | head`: the error cannot be written, and the status still says which it was."""
    with Lockstep("127.0.0.1:1").start("topic", "creat") as running:
        assert running.popen.stderr is not None
        running.popen.stderr.close()
        assert running.popen.wait(TIMEOUT_S) == 2


@pytest.mark.parametrize("program", ["lockstep", "lockstep-sim", "lockstep-pipeline"])
def test_nobody_reading_the_help_is_no_failure(program: str) -> None:
    """Each program ends as SIGPIPE would, with 141: 1 says that a seed, an audit or a request failed."""
    with subprocess.Popen([SCRIPTS / program, "--help"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.close()
        assert running.stderr.read() == b""
    assert running.returncode == 141


def test_help_names_the_commands() -> None:
    """Without a command the help comes with status 2; --help and --version are no errors."""
    nowhere = Lockstep("127.0.0.1:1")
    bare, helped, version = nowhere(), nowhere("--help"), nowhere("--version")
    assert (bare.status, helped.status, version.status) == (2, 0, 0)
    assert all(name in helped.out for name in ("produce", "consume", "topic", "group", "lock"))
    assert bare.err == helped.out
    assert version.out.startswith("lockstep ")
