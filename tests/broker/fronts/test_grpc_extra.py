"""A broker without the extra `grpc`."""

import pytest

from lockstep.broker.fronts.grpc import port
from lockstep.remoting.settings import SettingError


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line, before the port opens; also when the package around the module is missing."""
    for needed in ("no_such_module", "no_such_package.module"):
        monkeypatch.setattr(port, "_NEEDED", (needed,))
        with pytest.raises(SettingError, match=rf"grpc_port needs {needed}; .*pip install 'lockstep-mq\[grpc\]'"):
            port.check_installed()
