"""A broker without the extra `grpc`."""

import pytest

from lockstep.broker.fronts.grpc import port
from lockstep.remoting.settings import SettingError
from lockstep.simulation import World, simulate
from tests.broker.cluster import serve


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line, before the port opens; also when the package around the module is missing.

    A broker that only takes the port when it can goes on without a word.
    """
    for needed in ("no_such_module", "no_such_package.module"):
        monkeypatch.setattr(port, "_NEEDED", (needed,))
        with pytest.raises(SettingError, match=rf"--grpc-port: needs {needed}; .*pip install 'lockstep-mq\[grpc\]'"):
            port.check_installed()

    async def scenario(world: World) -> None:
        served = await serve(world.host("broker"), grpc_port=8081, grpc_optional=True)
        assert (served.server.grpc_address, served.log.names("info")) == ("", [])
        await served.server.shutdown()

    simulate(scenario)
