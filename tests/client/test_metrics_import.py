"""prometheus_client is imported by a client that gets a registry, and by no other."""

import subprocess
import sys

CLIENTS = """
import sys
from lockstep.client import LitePullConsumer, Producer, PullConsumer, PushConsumer, TransactionProducer
import lockstep.client.consumer.push_member
Producer("g", name_server="127.0.0.1:1"), PushConsumer("g", name_server="127.0.0.1:1")
print("prometheus_client" in sys.modules)
"""


def test_clients_do_without_prometheus() -> None:
    """Also those that are made without a registry: it is an extra."""
    done = subprocess.run([sys.executable, "-c", CLIENTS], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "False\n"
