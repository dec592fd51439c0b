"""Certificates for tests of TLS."""

from pathlib import Path
from typing import NamedTuple

import trustme

__all__ = ["Files", "make_files"]


class Files(NamedTuple):
    """PEM files: `ca` signs `server` and `client`; `other_ca` signs nothing of this broker."""

    ca: str
    server: str
    client: str
    other_ca: str


def make_files(folder: Path) -> Files:
    """Files for a server at 127.0.0.1."""
    ca, other = trustme.CA(), trustme.CA()
    names = Files(*(str(folder / f"{name}.pem") for name in Files._fields))
    ca.cert_pem.write_to_path(names.ca)
    other.cert_pem.write_to_path(names.other_ca)
    ca.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(names.server)
    ca.issue_cert("a-client.example").private_key_and_cert_chain_pem.write_to_path(names.client)
    return names
