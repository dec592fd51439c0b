"""Files of rules: where they are, how changes come into force, and what happens with bad ones."""

from pathlib import Path

import pytest

from lockstep.broker.acl import files as rule_files
from lockstep.broker.acl.changes import delete_account, put_account, set_white_addresses
from lockstep.broker.acl.errors import RuleError
from lockstep.broker.acl.files import AclFiles
from lockstep.broker.acl.permissions import PUB
from lockstep.remoting.host.os_storage import OsStorage
from tests.broker.acl.accounts import RULES, files, rules_file
from tests.remoting.helpers import RecordingLog

OTHER = "accounts: [{accessKey: account2, secretKey: secret-5678}]\n"


def test_folder_beside(tmp_path: Path) -> None:
    """All YAML files in the folder acl beside the file, and below it, count; the first account with a key counts."""
    (tmp_path / "acl" / "more").mkdir(parents=True)
    (tmp_path / "acl" / "one.yml").write_text(OTHER)
    (tmp_path / "acl" / "more" / "two.yaml").write_text(OTHER.replace("account2", "account3"))
    (tmp_path / "acl" / "no.txt").write_text("accounts: [")
    log = RecordingLog()
    found = files(tmp_path, RULES + "- {accessKey: account2, secretKey: secret-of-another}\n", log)
    assert list(found.rules.accounts) == ["account3", "account2", "adminadmin", "account1"]
    assert found.rules.accounts["account2"].secret_key == "secret-5678"
    assert [event for _, event, _ in log.events] == ["acl_key_repeated"]


def test_what_is_said_of_doubtful_rules(tmp_path: Path) -> None:
    """A key that comes twice in one file or in two, and a field that is none."""
    log = RecordingLog()
    twice = OTHER.replace("}]", "}, {accessKey: account2, secretKey: secret-other, role: x}]")
    found = files(tmp_path, twice, log)
    assert found.rules.accounts["account2"].secret_key == "secret-5678"
    assert sorted(event for _, event, _ in log.events) == ["acl_key_repeated", "acl_rule_doubtful"]


def test_a_long_file_and_a_deep_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file over the limit is refused before it is parsed; folders are followed eight deep, so that a circle ends."""
    monkeypatch.setattr(rule_files, "_FILE_BYTES_MAX", len(OTHER))
    files(tmp_path, OTHER)
    with pytest.raises(RuleError, match=rf"{len(OTHER) + 1} bytes; at most {len(OTHER)} are allowed"):
        files(tmp_path, OTHER + "#")
    folder = tmp_path / "acl"
    for depth in range(11):
        folder.mkdir()
        (folder / "one.yml").write_text(OTHER.replace("account2", f"account-{depth:02}"))
        folder /= "in"
    monkeypatch.setattr(rule_files, "_FILE_BYTES_MAX", 1000)
    assert sorted(files(tmp_path, OTHER).rules.accounts) == [*(f"account-{depth:02}" for depth in range(9)), "account2"]


def test_white_addresses_make_the_main_file(tmp_path: Path) -> None:
    """It need not be there before."""
    found = AclFiles(OsStorage(), str(tmp_path / "plain_acl.yml"), RecordingLog())
    assert set_white_addresses(found, ["10.1.1.1"], None, 4)
    put_account(found, {"accessKey": "account8", "secretKey": "secret-8888"}, 5)
    assert [fits("10.1.1.1") for fits in found.rules.white_addresses] == [True]


def test_reload(tmp_path: Path) -> None:
    """A changed file, a new one and a deleted one come into force at the next look."""
    log = RecordingLog()
    found = files(tmp_path, log=log)
    assert not found.look()
    (tmp_path / "acl").mkdir()
    (tmp_path / "acl" / "one.yml").write_text(OTHER)
    assert found.look()
    assert "account2" in found.rules.accounts
    (tmp_path / "acl" / "one.yml").unlink()
    rules_file(tmp_path, OTHER.replace("account2", "account4"))
    assert found.look()
    assert list(found.rules.accounts) == ["account4"]
    assert [event for _, event, _ in log.events] == ["acl_reloaded", "acl_reloaded"]


def test_bad_file_changes_nothing(tmp_path: Path) -> None:
    """The old rules stay in force while a file is bad; that is said once, and without secrets."""
    log = RecordingLog()
    found = files(tmp_path, log=log)
    rules_file(tmp_path, RULES + "- {accessKey: account2, secretKey: hidden}\n")
    assert not found.look()
    assert not found.look()
    assert list(found.rules.accounts) == ["adminadmin", "account1"]
    ((level, event, fields),) = log.events
    assert (level, event) == ("error", "acl_file_refused")
    assert "plain_acl.yml: account account2: secretKey must have" in fields["reason"]
    assert "hidden" not in str(log.events)
    rules_file(tmp_path)
    assert not found.look()  # these are the rules in force
    rules_file(tmp_path, OTHER)
    assert found.look()


def test_bad_at_the_start(tmp_path: Path) -> None:
    """A bad file is an error at the start, with its path; a missing one has no accounts."""
    with pytest.raises(RuleError, match=r"plain_acl\.yml: this is not YAML in line 1"):
        files(tmp_path, "accounts: [")
    assert AclFiles(OsStorage(), str(tmp_path / "none" / "plain_acl.yml"), RecordingLog()).rules.accounts == {}


def test_a_written_file_is_for_its_owner(tmp_path: Path) -> None:
    """The file has secret keys: also one that everybody could read before, and one that an earlier write left half."""
    path = rules_file(tmp_path)
    path.chmod(0o644)
    path.with_name("plain_acl.yml.tmp").write_text("half")
    found = AclFiles(OsStorage(), str(path), RecordingLog())
    found.write(str(path), found.document(str(path)), 1234)
    assert path.stat().st_mode & 0o777 == 0o600


def test_write(tmp_path: Path) -> None:
    """A change is in the file and in force at once, with the next version; the next look finds nothing new."""
    found = files(tmp_path)
    path = found.path
    document = found.document(path)
    document["accounts"].append({"accessKey": "account9", "secretKey": "secret-9999"})
    found.write(path, document, 1234)
    assert "account9" in found.rules.accounts
    assert found.rules.files[path].counter == 1
    assert found.rules.files[path].changed_ms == 1234
    assert not found.look()
    assert "account9" in files(tmp_path, Path(path).read_text()).rules.accounts
    document["accounts"].append({"accessKey": "x"})
    with pytest.raises(RuleError):
        found.write(path, document, 1235)
    assert found.rules.files[path].counter == 1
    assert "accessKey: x" not in Path(path).read_text().splitlines()


def test_a_change_keeps_what_others_wrote(tmp_path: Path) -> None:
    """Two brokers of one file, as with --brokers: an account that one deleted does not come back with the other's."""
    first = files(tmp_path)
    second = AclFiles(OsStorage(), first.path, RecordingLog())
    put_account(first, {"accessKey": "account8", "secretKey": "secret-8888"}, 1)
    assert delete_account(first, "account1", 2)
    put_account(second, {"accessKey": "account9", "secretKey": "secret-9999"}, 3)
    assert set_white_addresses(first, ["10.1.1.1"], None, 4)
    assert delete_account(second, "account8", 5)
    assert delete_account(first, "account8", 6), "it was there for this broker, and is gone"
    assert not delete_account(first, "account8", 7)
    last = AclFiles(OsStorage(), first.path, RecordingLog())
    assert "account9" in last.rules.accounts
    assert not {"account1", "account8"} & set(last.rules.accounts)
    assert last.rules.white_addresses[0]("10.1.1.1")


def test_a_deletion_keeps_what_others_wrote(tmp_path: Path) -> None:
    """It begins with the file as it is now, not as this broker read it last."""
    first = files(tmp_path)
    second = AclFiles(OsStorage(), first.path, RecordingLog())
    put_account(first, {"accessKey": "account8", "secretKey": "secret-8888"}, 1)
    assert delete_account(second, "account1", 2)
    assert set(AclFiles(OsStorage(), first.path, RecordingLog()).rules.accounts) == {"adminadmin", "account8"}


def test_the_first_account_of_a_file_and_empty_fields(tmp_path: Path) -> None:
    """A file may have white addresses alone. A field without a value keeps what is there; keys of seven are enough."""
    found = files(tmp_path, "globalWhiteRemoteAddresses: [10.9.9.1]")
    keys = {"accessKey": "account", "secretKey": "secret7"}
    put_account(found, {**keys, "whiteRemoteAddress": "10.1.1.1", "topicPerms": ["T=PUB"]}, 1)
    put_account(found, {**keys, "whiteRemoteAddress": "", "topicPerms": None, "admin": True}, 2)
    account = found.rules.accounts["account"]
    assert (account.admin, account.resources, account.fits_address("10.1.1.1")) == (True, {"T": PUB}, True)


def test_a_change_does_not_replace_a_bad_file(tmp_path: Path) -> None:
    """Somebody edits it: the change is refused with the reason, the old rules stay, and the edit is kept."""
    found = files(tmp_path)
    path = rules_file(tmp_path, "accounts: [")
    with pytest.raises(RuleError, match=r"plain_acl\.yml: this is not YAML in line 1"):
        put_account(found, {"accessKey": "account9", "secretKey": "secret-9999"}, 1)
    assert path.read_text() == "accounts: ["
    assert "account1" in found.rules.accounts
