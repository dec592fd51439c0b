"""`lockstep context`, and which of option, context and environment wins."""

import json
import os
import stat
from pathlib import Path

import pytest

from lockstep.cli.context.contexts import Context, ContextFile, Contexts, decode, encode
from lockstep.remoting.host.os_storage import OsStorage
from tests.cli.cli_inside import Inside
from tests.commands import ForkedBroker, Lockstep, Result
from tests.integration.harness.certificates import make_files
from tests.rows import by_row

HERE, THERE = "127.0.0.1:1", "127.0.0.1:2"  # nothing listens there
FILE = Path("lockstep/contexts.json")


@pytest.fixture
def inside(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Inside:
    monkeypatch.setenv("LOCKSTEP_CONTEXT", "")
    return Inside("", monkeypatch, capfd, tmp_path)


def asked(error: str) -> str:
    """The name server that a command asked in vain."""
    return error.partition("cannot connect to ")[2].split(": ")[0]


def test_contexts_are_added_used_listed_shown_and_removed(inside: Inside, tmp_path: Path) -> None:
    """The first one becomes the current one; only its owner may read the file."""
    assert "and is the current one" in inside("context", "add", "dev", "-n", HERE).err
    added = inside("context", "add", "prod", "-n", THERE, "-g", "shop", "--lock-mode", "fenced", "-o", "json")
    assert (added.status, added.out) == (0, "")
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600
    assert not list((tmp_path / "lockstep").glob("*.tmp"))
    assert [row["name"] for row in inside("context", "list", "-o", "json").rows if row["current"]] == ["dev"]
    assert inside("context", "use", "prod").err == "lockstep: the current context is prod\n"
    assert inside("context", "list").out.splitlines()[2].split()[:5] == ["*", "prod", THERE, "shop", "fenced"]
    (shown,) = inside("context", "show", "-o", "json").rows
    assert (shown["name"], shown["name_server"], shown["lock_mode"]) == ("prod", THERE, "fenced")
    assert shown["file"] == str(tmp_path / FILE)
    assert inside("--context", "dev", "context", "show", "-o", "json").rows[0]["name_server"] == HERE
    assert "which was the current one" in inside("context", "remove", "prod").err
    none = inside("context", "show")
    assert (none.status, none.err) == (
        1,
        "lockstep: no context is in use; known are dev (`lockstep context use` chooses one)\n",
    )


def test_without_contexts_the_way_to_make_one_is_named(inside: Inside) -> None:
    """A list of known ones would be empty."""
    assert inside("context", "show").err == "lockstep: there are no contexts (`lockstep context add` makes one)\n"
    used = inside("context", "use", "prod")
    assert used.err == "lockstep: no context 'prod'; there are none (`lockstep context add` makes one)\n"


def test_an_option_wins_then_a_named_context_then_the_environment(
    inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NAMESRV_ADDR wins over the current context alone."""
    inside("context", "add", "dev", "-n", HERE)
    inside("context", "add", "prod", "-n", THERE)
    assert asked(inside("topic", "list").err) == HERE
    assert asked(inside("--context", "prod", "topic", "list").err) == THERE
    assert asked(inside("--context", "prod", "topic", "list", "-n", "127.0.0.1:3").err) == "127.0.0.1:3"
    monkeypatch.setenv("LOCKSTEP_CONTEXT", "prod")
    assert asked(inside("topic", "list").err) == THERE
    in_environment = Lockstep("127.0.0.1:4")
    monkeypatch.setattr(Lockstep, "environment", {**os.environ, "NAMESRV_ADDR": "127.0.0.1:4"})
    assert asked(in_environment("topic", "list").err) == THERE
    monkeypatch.setattr(Lockstep, "environment", {**os.environ, "NAMESRV_ADDR": "127.0.0.1:4", "LOCKSTEP_CONTEXT": ""})
    assert asked(in_environment("topic", "list").err) == "127.0.0.1:4"


def test_a_group_is_a_default_where_nothing_changes(inside: Inside) -> None:
    """Looking at it needs no name; deleting it does. It does not clash with a queue that is read without a group."""
    inside("context", "add", "dev", "-n", HERE, "-g", "shop", "--lock-mode", "fenced", "--lock-live-ms", "9000")
    for command in ("group describe", "group watch", "offset show", "consume orders"):
        assert asked(inside(*command.split()).err) == HERE
    assert "Missing argument 'GROUP'" in inside("group", "delete").err
    assert asked(inside("consume", "orders", "--queue", "broker-a:0").err) == HERE
    assert asked(inside("consume", "orders", "--mode", "concurrent").err) == HERE
    assert "--fenced is for --mode orderly" in inside("consume", "orders", "--mode", "concurrent", "--fenced").err
    helped = inside("consume", "--help").out
    assert "[default: shop]" in helped
    assert "[default: 9000;" in helped or "[default: 9000]" in helped


def test_an_account_is_kept_and_its_secret_not_shown(
    inside: Inside, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It comes from the environment, so that no shell history has it."""
    missing = inside("context", "add", "dev", "-n", HERE, "--account")
    assert (missing.status, "--account: set LOCKSTEP_ACCESS_KEY" in missing.err) == (2, True)
    monkeypatch.setenv("LOCKSTEP_ACCESS_KEY", "reader")
    monkeypatch.setenv("LOCKSTEP_SECRET_KEY", "hidden-words")
    assert inside("context", "add", "dev", "-n", HERE, "--account").status == 0
    shown = inside("context", "show").out + inside("context", "list", "-o", "json").out
    assert "reader" in shown
    assert "hidden-words" not in shown
    assert json.loads((tmp_path / FILE).read_text("utf-8"))["contexts"]["dev"]["secret_key"] == "hidden-words"
    for empty in (None, ""):  # a variable that is empty is not set
        for name in ("ACCESS", "SECRET"):
            if empty is None:
                monkeypatch.delenv(f"LOCKSTEP_{name}_KEY")
            else:
                monkeypatch.setenv(f"LOCKSTEP_{name}_KEY", empty)
        inside("topic", "list")
        given = {name: os.environ[f"LOCKSTEP_{name}_KEY"] for name in ("ACCESS", "SECRET")}
        assert given == {"ACCESS": "reader", "SECRET": "hidden-words"}


def test_the_current_contexts_account_and_tls_are_for_its_own_servers(
    inside: Inside, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Another server, by an option or the environment, gets neither, unless the context was chosen by name."""
    names = ("LOCKSTEP_ACCESS_KEY", "LOCKSTEP_SECRET_KEY", "LOCKSTEP_TLS")

    def used(*arguments: str, called: Inside = inside) -> list[str]:
        for name in names:
            monkeypatch.delenv(name, raising=False)
        called(*arguments)
        found = [name for name in names if os.environ.get(name)]
        for name in names:
            os.environ.pop(name, None)
        return found

    for name, value in zip(names, ("reader", "hidden-words", ""), strict=True):
        monkeypatch.setenv(name, value)
    inside("context", "add", "here", "--name-server", HERE, "--account", "--tls", "unverified")
    inside("context", "use", "here")
    assert used("topic", "list") == list(names)
    assert used("topic", "list", "-n", HERE) == list(names)
    assert used("topic", "list", "-n", THERE) == []
    assert used("--context", "here", "topic", "list", "-n", THERE) == list(names)
    elsewhere = Inside(THERE, monkeypatch, capfd, tmp_path)
    assert used("topic", "list", called=elsewhere) == []
    assert used("produce", "orders", "--file", os.devnull, called=elsewhere) == []
    assert used("--context", "here", "topic", "list", called=elsewhere) == list(names)


RULES = """\
accounts:
- {accessKey: account1, secretKey: hidden-words, topicPerms: [mine=PUB|SUB], defaultGroupPerm: SUB}
"""
TLS = ("TLS", "TLS_CA", "TLS_CERT", "TLS_KEY")


def test_a_broker_with_tls_and_accounts_needs_its_context_alone(
    inside: Inside, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The account and the files of TLS, named from any folder; options and the environment win over them."""
    files = make_files(tmp_path)
    (tmp_path / "plain_acl.yml").write_text(RULES)
    (tmp_path / "lines.jsonl").write_text('{"a": 1}\n')
    acl = ("--acl", str(tmp_path / "plain_acl.yml"), "--acl-checks", "strict", "--topic", "mine:1")
    tls = ("--tls", "enforcing", "--tls-cert", files.server, "--tls-client-ca", files.ca)
    for name in (*TLS, "ACCESS_KEY", "SECRET_KEY"):
        monkeypatch.setenv(f"LOCKSTEP_{name}", "")  # what a command sets is taken back after the test

    def produced(*options: str) -> Result:
        for name in (*TLS, "ACCESS_KEY", "SECRET_KEY"):
            monkeypatch.delenv(f"LOCKSTEP_{name}")
        return inside("--context", "safe", *options, "produce", "mine", "--file", str(tmp_path / "lines.jsonl"))

    with ForkedBroker(*acl, *tls, folder=tmp_path) as broker:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("LOCKSTEP_ACCESS_KEY", "account1")
        monkeypatch.setenv("LOCKSTEP_SECRET_KEY", "hidden-words")
        added = inside(
            "context", "add", "safe", "-n", broker.name_server, "--account", "--tls-ca", "ca.pem",
            "--tls-cert", "client.pem",
        )  # fmt: skip
        assert added.status == 0
        monkeypatch.chdir("/")
        assert produced().status == 0
        (shown,) = inside("context", "show", "safe", "-o", "json").rows
        assert (shown["tls"], shown["tls_ca"], shown["tls_cert"]) == ("on", files.ca, files.client)
        assert "hidden-words" not in json.dumps(shown) + added.out + added.err
        assert "the certificate is not accepted" in produced("--tls-ca", files.other_ca).err
        assert "perhaps it wants TLS" in produced("--tls", "off").err
        assert "Check signature failed" in produced("--access-key", "account1", "--secret-key", "other-words").err
        monkeypatch.setenv("LOCKSTEP_TLS", "off")
        assert "perhaps it wants TLS" in inside("--context", "safe", "topic", "list").err


DAMAGED = '{"version": 1,\n "current": oops}'


def test_a_damaged_file_is_an_error_when_it_is_needed(inside: Inside, tmp_path: Path) -> None:
    """With its line; help, and a command with its own name server, go on."""
    (tmp_path / "lockstep").mkdir()
    (tmp_path / FILE).write_text(DAMAGED, "utf-8")
    said = (
        f"lockstep: the contexts in {tmp_path / FILE} are damaged: line 2, character 13: Expecting value; "
        f"correct the file, or remove it and add them again\n"
    )
    for command in ("topic list", "context list", "context add dev -n 127.0.0.1:1", "--context dev topic list"):
        result = inside(*command.split())
        assert (result.status, result.out, result.err) == (1, "", said)
    assert inside("consume", "--help").status == 0
    assert asked(inside("topic", "list", "-n", THERE).err) == THERE
    assert (tmp_path / FILE).read_text("utf-8") == DAMAGED


@by_row(
    "text, complaint",
    [
        ("[]", "it is no object with version 1"),
        ('{"version": 2}', "it is no object with version 1"),
        ('{"version": 1}', "field 'contexts' must be an object"),
        ('{"version": 1, "contexts": {}, "current": "x"}', "the current context 'x' is not among its contexts"),
        ('{"version": 1, "contexts": {"/": {}}}', "context '/': no such name is allowed"),
        ('{"version": 1, "contexts": {"x": {}}}', "context 'x': it must be an object with a name_server"),
        ('{"version": 1, "contexts": {"x": {"name_server": 1}}}', "context 'x': name_server must be a text"),
        ('{"version": 1, "contexts": {"x": {"name_server": null}}}', "context 'x': name_server must be a text"),
        ('{"version": 1, "contexts": {"x": {"name_server": "a:1", "color": 1}}}', "unknown field 'color'; known are"),
        ('{"version": 1, "contexts": {"x": {"name_server": "a:1", "lock_mode": "no"}}}', "faithful, fenced"),
        ('{"version": 1, "contexts": {"x": {"name_server": "a:1", "tls": "no"}}}', "on, unverified, off"),
        ('{"version": 1, "contexts": {"x": {"name_server": "a:1", "tls_ca": "a"}}}', "tls_ca must be an absolute path"),
        ("[" * 100_000, "it is nested too deeply"),
    ],
)
def test_damage_is_named(text: str, complaint: str) -> None:
    """What is wrong, and in which context."""
    with pytest.raises(ValueError, match=complaint.replace("[", r"\[")):
        decode(text.encode())


def test_what_is_written_is_read() -> None:
    """All fields, and those that are not set."""
    every = Context(
        name_server="a:1;b:2", group="g", lock_mode="fenced", lock_live_ms=5000, output="json",
        access_key="reader", secret_key="words", tls="unverified", tls_ca="/a.pem", tls_cert="/b.pem", tls_key="/c.pem",
    )  # fmt: skip
    contexts = Contexts("x", {"x": every, "y": Context(name_server="c:3")})
    assert decode(encode(contexts)) == contexts
    assert "words" not in repr(every)


@by_row(
    "arguments, status, complaint",
    [
        ("context add dev", 2, "Missing option '--name-server' / '-n'"),
        ("context add dev/1 -n a:1", 2, "context name 'dev/1': give up to 64 letters, digits and . _ -"),
        ("context add dev -n nonsense", 2, "'nonsense' is not an address; write host:port"),
        ("context add dev -n a:1 -g g/g", 2, "may hold only the characters"),
        ("context add dev -n a:1 --lock-mode loose", 2, "lock_mode must be one of faithful, fenced"),
        ("context add dev -n a:1 --lock-live-ms 10", 2, "lock_live_ms must be 3000 or more"),
        ("context add dev -n a:1 --tls perhaps", 2, "'perhaps' is not one of 'on', 'unverified', 'off'"),
        ("context add dev -n a:1 --tls-key key.pem", 2, "tls_key needs tls_cert"),
        ("context add kept -n a:1", 1, "there is a context 'kept' already; --replace changes it"),
        ("context use", 2, "give either the name of a context or --none"),
        ("context use nosuch", 1, "no context 'nosuch'; known are kept (`lockstep context add` makes one)"),
        ("context remove nosuch", 1, "no context 'nosuch'; known are kept"),
        ("--context nosuch topic list", 1, "no context 'nosuch'; known are kept"),
    ],
)
def test_a_wrong_call_is_told_in_one_line(inside: Inside, arguments: str, status: int, complaint: str) -> None:
    """What is allowed, and nothing has changed."""
    inside("context", "add", "kept", "-n", HERE)
    result = inside(*arguments.split())
    assert (result.status, result.out) == (status, "")
    assert complaint in result.err
    assert result.err.count("\n") == 1
    assert [row["name"] for row in inside("context", "list", "-o", "json").rows] == ["kept"]


def test_the_file_is_in_the_users_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """XDG_CONFIG_HOME, if it is an absolute path; else .config of HOME. A folder that cannot be made is an error."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", "relative")
    assert ContextFile(OsStorage()).path == str(tmp_path / ".config" / FILE)
    monkeypatch.delenv("XDG_CONFIG_HOME")
    assert ContextFile(OsStorage()).path == str(tmp_path / ".config" / FILE)
    (tmp_path / "file").write_text("", "utf-8")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "file"))
    assert ContextFile(OsStorage()).read() == Contexts()
    with pytest.raises(Exception, match="cannot write the contexts to"):
        ContextFile(OsStorage()).write(Contexts())


def test_a_user_without_home_and_name_has_no_contexts(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container that runs under any number: commands go on without them."""

    def unknown(number: int) -> None:
        raise KeyError(f"getpwuid(): uid not found: {number}")

    for name in ("HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", unknown)
    assert ContextFile(OsStorage()).path == f"/.config/{FILE}"
