"""Fetch what `make interop` runs, from the registries, into build/interop: `set_up.py java java5 apache5 node cpp`.

`drivers` and `drivers5` compile our Java programs with the clients of `java` and `java5`.

A client that cannot be had here is no error of this program: one line says what is missing, and is left in
build/interop/NAME/missing.txt, where its tests find it. They fail with it in CI, and are skipped with it elsewhere.
A part that is complete has a stamp, `.ready`. Drivers that do not compile are an error.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

__all__ = ["BUILD", "ROOT", "Missing", "fetch", "main"]

ROOT = Path(__file__).parents[2]
HERE = ROOT / "scripts" / "interop"
BUILD = ROOT / "build" / "interop"
JAVA_OLDEST = 11
NODE_OLDEST = 18
GO_OLDEST = 1
CARGO_OLDEST = 1
DEBIAN_PACKAGES = {
    "javac": "default-jdk-headless",
    "java": "default-jdk-headless",
    "mvn": "maven",
    "node": "nodejs",
    "npm": "npm",
    "go": "golang-go",
    "cargo": "cargo",
}
WITH_TOOLS_ONLY = ("MqAdmin.java", "Signatures.java")  # drivers of what is fetched beside the client 4.9.8 alone
FETCH_TIMEOUT_S = 900
RUST_TIMEOUT_S = 3600  # it compiles 250 crates
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class Missing(Exception):
    """What this machine lacks, in one line."""


def main() -> int:
    """Set up the parts that are named; 1 when drivers do not compile."""
    for name in sys.argv[1:]:
        folder = BUILD / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ".ready").unlink(missing_ok=True)
        (folder / "missing.txt").unlink(missing_ok=True)
        try:
            PARTS[name](folder)
            (folder / ".ready").touch()
        except Missing as missing:
            print(f"make interop: {name}: {missing}", file=sys.stderr)
            (folder / "missing.txt").write_text(f"{missing}\n", encoding="utf-8")
        except subprocess.CalledProcessError as error:
            print(f"make interop: {name}: {error}", file=sys.stderr)
            return 1
    return 0


def set_up_java(folder: Path) -> None:
    """RocketMQ's Java client and mqadmin."""
    need("javac", JAVA_OLDEST, "a JDK")
    copy_jars(HERE / "java" / "pom.xml", folder / "lib")


def set_up_java5(folder: Path) -> None:
    """RocketMQ's Java clients 5.x: of the same protocol, and of gRPC."""
    need("javac", JAVA_OLDEST, "a JDK")
    copy_jars(HERE / "java5" / "pom.xml", folder / "lib")


def set_up_apache(folder: Path) -> None:
    """Apache's name server and broker, of 5.5 with its proxy: the pom is that of the folder's name."""
    need("java", JAVA_OLDEST, "a Java runtime", "-version")
    copy_jars(HERE / folder.name / "pom.xml", folder / "lib")


def set_up_drivers(folder: Path) -> None:
    """Our Java drivers, compiled. Raises CalledProcessError when they do not compile."""
    compile_drivers("java", HERE.glob("java/*.java"))


def set_up_drivers5(folder: Path) -> None:
    """The same and those of java5, with the clients 5.x. Raises CalledProcessError when they do not compile."""
    both = [*HERE.glob("java/*.java"), *HERE.glob("java5/*.java")]
    compile_drivers("java5", [path for path in both if path.name not in WITH_TOOLS_ONLY])


def compile_drivers(part: str, sources: Iterable[Path]) -> None:
    """With the jars of `part`, into its folder. Raises Missing, CalledProcessError."""
    java = BUILD / part
    if not (java / ".ready").exists():
        raise Missing((java / "missing.txt").read_text(encoding="utf-8").strip())
    shutil.rmtree(java / "classes", ignore_errors=True)
    (java / "classes").mkdir()
    command = ["javac", "-nowarn", "-Xlint:none", "-encoding", "UTF-8", "-d", str(java / "classes")]
    subprocess.run([*command, "-cp", f"{java / 'lib'}/*", *sorted(map(str, sources))], check=True)


def set_up_node(folder: Path) -> None:
    """The Node client of the folder's name, as its lock file says."""
    need("node", NODE_OLDEST, "Node.js")
    need("npm", 0, "npm")
    for name in ("package.json", "package-lock.json"):
        shutil.copy(HERE / folder.name / name, folder / name)
    fetch(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"], folder)


def set_up_cpp(folder: Path) -> None:
    """The C++ client, out of the wheel that carries it."""
    fetch_wheels("interop.txt", folder)


def set_up_python5(folder: Path) -> None:
    """The Python client of RocketMQ 5, which speaks gRPC."""
    fetch_wheels("interop5.txt", folder)


def fetch_wheels(lock: str, folder: Path) -> None:
    """What a lock names, into a folder of its own. Raises Missing."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--require-hashes"]
    fetch([*pip, "--only-binary", ":all:", "--target", str(folder), "-r", f"requirements/{lock}"], ROOT)


def set_up_go(folder: Path) -> None:
    """A Go driver, with the client that its go.sum names. Raises CalledProcessError when it does not compile."""
    need("go", GO_OLDEST, "Go", "version")
    source = HERE / folder.name
    fetch(["go", "mod", "download"], source)
    subprocess.run(["go", "build", "-o", str(folder / "driver"), "."], cwd=source, check=True)


def set_up_rust5(folder: Path) -> None:
    """The Rust driver, with the client that Cargo.lock names; cargo compiles what changed since. Raises Missing."""
    need("cargo", CARGO_OLDEST, "Rust")
    manifest = ["--locked", "--quiet", "--manifest-path", str(HERE / "rust5" / "Cargo.toml")]
    fetch(["cargo", "fetch", *manifest], ROOT)
    target = folder / "target"
    fetch(["cargo", "build", "--release", *manifest, "--target-dir", str(target)], ROOT, RUST_TIMEOUT_S)
    shutil.copy(target / "release" / "driver", folder / "driver")


PARTS: dict[str, Callable[[Path], None]] = {
    "java": set_up_java,
    "java5": set_up_java5,
    "apache": set_up_apache,
    "apache5": set_up_apache,
    "drivers": set_up_drivers,
    "drivers5": set_up_drivers5,
    "node": set_up_node,
    "node5": set_up_node,
    "cpp": set_up_cpp,
    "python5": set_up_python5,
    "go": set_up_go,
    "go5": set_up_go,
    "rust5": set_up_rust5,
}


def copy_jars(pom: Path, folder: Path) -> None:
    """What a pom names and all that it needs. Raises Missing."""
    need("mvn", 3, "Maven")
    shutil.rmtree(folder, ignore_errors=True)
    fetch(["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={folder}"], ROOT)


def need(program: str, oldest: int, what: str, asked: str = "--version") -> None:
    """Have a program of at least this major version, from apt where that is possible. Raises Missing.

    `asked`: the argument to which it tells its version.
    """
    if shutil.which(program) is None and shutil.which("apt-get") and os.geteuid() == 0:
        install(DEBIAN_PACKAGES[program])
    if shutil.which(program) is None:
        package = DEBIAN_PACKAGES[program]
        raise Missing(f"{what} is missing: no `{program}` on the PATH; on Debian and Ubuntu: apt install {package}")
    answer = subprocess.run([program, asked], capture_output=True, text=True)
    found = re.search(r"(\d+)(?:\.\d+)*", COLOURS.sub("", answer.stdout + answer.stderr))
    if found is None or int(found[1]) < oldest:
        has = found[0] if found else "one that does not tell its version"
        raise Missing(f"{what} of version {oldest} or newer is needed; `{program}` is {has}")


def install(package: str) -> None:
    """Try apt; whether it helped is for the caller to see."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for words in (["update", "-q"], ["install", "-q", "-y", "--no-install-recommends", package]):
        subprocess.run(["apt-get", *words], env=environment, stdout=subprocess.DEVNULL, timeout=FETCH_TIMEOUT_S)


def fetch(command: list[str], folder: Path, timeout_s: float = FETCH_TIMEOUT_S) -> None:
    """Run a registry's client. Raises Missing with the first line of its complaint."""
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=timeout_s)
    except subprocess.TimeoutExpired:
        raise Missing(f"`{command[0]}` did not end within {timeout_s:g} s") from None
    if done.returncode:
        said = [
            line for line in (done.stdout + done.stderr).splitlines() if re.search(r"(?i)error|err!|no match", line)
        ]
        raise Missing(f"`{' '.join(command[:3])} ...` failed: {said[0] if said else 'it did not say why'}")


if __name__ == "__main__":
    sys.exit(main())
