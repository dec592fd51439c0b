"""These tests need the extra `grpc`."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("h2") and find_spec("google") else ["test_*.py"]
