"""Find a Java for Spark, or install Debian's headless runtime if that is allowed.

Everything but the pipeline works without Java: its absence is one line on stderr, and an error only in CI.
"""

import os
import shutil
import subprocess
import sys

from lockstep.pipeline.spark.java import JavaMissing, find_java

__all__ = ["main"]

PACKAGE = "default-jre-headless"
APT_TIMEOUT_S = 900


def main() -> int:
    """Returns 0 with a Java, or without one outside of CI; 1 without one in CI or with `--needed`."""
    lack = missing()
    if lack and may_install():
        install()
        lack = missing()
    if not lack:
        return 0
    needed = "--needed" in sys.argv[1:] or bool(os.environ.get("CI"))
    without = "" if needed else " (all but `make pipeline` and its tests works without)"
    print(f"make: {lack}; on Debian and Ubuntu: apt install {PACKAGE}{without}", file=sys.stderr)
    return 1 if needed else 0


def missing() -> str | None:
    """The problem in one line; None when there is a Java."""
    try:
        find_java()
    except JavaMissing as lack:
        return str(lack)
    return None


def may_install() -> bool:
    """Whether to install: only as root on Debian, and not when JAVA_HOME is set."""
    return os.geteuid() == 0 and shutil.which("apt-get") is not None and not os.environ.get("JAVA_HOME")


def install() -> None:
    """Try apt without questions; the caller checks the result."""
    print(f"installing {PACKAGE} for Spark", file=sys.stderr)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for words in (["update", "-q"], ["install", "-q", "-y", "--no-install-recommends", PACKAGE]):
        try:
            subprocess.run(["apt-get", *words], env=environment, stdout=subprocess.DEVNULL, timeout=APT_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return


if __name__ == "__main__":
    sys.exit(main())
