"""Folders by path or URI: on this machine, or in a store that Arrow reaches (S3, GCS, and HDFS by hdfs-native).

The job keeps its small files in a `Folder` and reads counts from one. Spark reads and writes the large files of the
same folder through its own file systems, under the name that `Folder.uri` returns.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from urllib.parse import SplitResult, unquote, urlsplit

from saps.runtime.atomic_file import replacing, sync_directory

if TYPE_CHECKING:
    import pyarrow as pa

S3 = ("s3", "s3a", "s3n")
"""Schemes of the same store: Arrow calls it s3, Hadoop s3a."""
OBJECT_STORES = ("s3", "gcs", "abfs")
"""Arrow's names of the file systems that show a file only once it is closed."""
HDFS_SETTINGS = {"dfs.client.failover.max.attempts": "4"}
"""About 15 s until a NameNode is said to be away; by hdfs-native's default it takes 3 min."""


class Names(NamedTuple):
    """The names directly inside a folder, without its path."""

    files: set[str]
    folders: set[str]


class Folder(Protocol):
    """A folder and everything below it.

    Names are relative to the folder and use slashes. All methods raise OSError, and `FileNotFoundError` for a missing
    file."""

    def __str__(self) -> str: ...

    def uri(self, name: str = "") -> str:
        """Return the URI by which Spark addresses a file or folder in this folder."""

    def local(self, name: str) -> Path | None:
        """Return the path of a file on this machine, or None if the folder is elsewhere."""

    def changed(self, name: str = "") -> int | None:
        """Return when a name was last added to or removed from a folder, in ns.

        Returns None if the file system does not record it."""

    def names(self, name: str = "", kinds: bool = True) -> Names:
        """Return the names in a folder; empty for a missing folder below this one.

        Without `kinds`, `Names.files` may also hold the names of folders, which saves one query for each name."""

    def read(self, name: str) -> bytes:
        """Return the content of a file."""

    def write(self, name: str, content: bytes) -> None:
        """Create or replace a file and the folders above it. Readers see the file complete or not at all."""

    def delete(self, name: str) -> None:
        """Delete a file, or a folder with everything in it. A missing name is no error."""

    def table(self, name: str, columns: list[str] | None = None) -> pa.Table:
        """Return the rows of a Parquet file or of a folder of Parquet files. `columns` None: all columns."""

    def measured(self, name: str) -> tuple[int, int]:
        """Return the size in bytes and the number of rows of a Parquet file."""


class LocalFolder:
    """A `Folder` on this machine. Written files survive a loss of power."""

    def __init__(self, root: Path) -> None:
        self._root = root.absolute()

    def __str__(self) -> str:
        return str(self._root)

    def uri(self, name: str = "") -> str:
        return (self._root / name).as_uri()

    def local(self, name: str) -> Path | None:
        return self._root / name

    def changed(self, name: str = "") -> int | None:
        return (self._root / name).stat().st_mtime_ns

    def names(self, name: str = "", kinds: bool = True) -> Names:
        path = self._root / name
        try:
            found = set(os.listdir(path))
        except FileNotFoundError:
            if not name:
                raise
            return Names(set(), set())
        folders = {each for each in found if (path / each).is_dir()} if kinds else set[str]()
        return Names(found - folders, folders)

    def read(self, name: str) -> bytes:
        return (self._root / name).read_bytes()

    def write(self, name: str, content: bytes) -> None:
        file = self._root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        with replacing(file) as out:
            out.write(content)
        sync_directory(file.parent)

    def delete(self, name: str) -> None:
        path = self._root / name
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)

    def table(self, name: str, columns: list[str] | None = None) -> pa.Table:
        import pyarrow.parquet as pq

        return pq.read_table(self._root / name, columns=columns)

    def measured(self, name: str) -> tuple[int, int]:
        import pyarrow.parquet as pq

        return (self._root / name).stat().st_size, pq.read_metadata(self._root / name).num_rows


class RemoteFolder:
    """A `Folder` in one of Arrow's file systems."""

    def __init__(self, system: Any, root: str, uri: str, replace: Callable[[str, str], None] | None = None) -> None:
        """`system` is a `pyarrow.fs.FileSystem`, `root` the folder's path in it, and `uri` the folder's URI for
        Spark.

        `replace` renames a file over another, for a file system that shows files before they are closed."""
        self._system = system
        self._root = root.rstrip("/")
        self._uri = uri.rstrip("/")
        self._replace = replace

    def __str__(self) -> str:
        return self._uri

    def uri(self, name: str = "") -> str:
        return f"{self._uri}/{name}".rstrip("/")

    def local(self, name: str) -> Path | None:
        return None

    def changed(self, name: str = "") -> int | None:
        return None

    def names(self, name: str = "", kinds: bool = True) -> Names:
        from pyarrow.fs import FileSelector, FileType

        found = self._system.get_file_info(FileSelector(self._at(name), allow_not_found=bool(name)))
        folders = {info.base_name for info in found if info.type == FileType.Directory}
        return Names({info.base_name for info in found} - folders, folders)

    def read(self, name: str) -> bytes:
        with self._system.open_input_stream(self._at(name)) as file:
            content: bytes = file.read()
        return content

    def write(self, name: str, content: bytes) -> None:
        path = self._at(name)
        above, _, last = path.rpartition("/")
        written = f"{above}/.{last}.partial" if self._replace else path
        if self._replace:
            self._system.create_dir(above)
        with self._system.open_output_stream(written) as out:
            out.write(content)
        if self._replace:
            self._replace(written, path)

    def delete(self, name: str) -> None:
        from pyarrow.fs import FileType

        path = self._at(name)
        kind = self._system.get_file_info(path).type
        if kind == FileType.Directory:
            self._system.delete_dir(path)
        elif kind != FileType.NotFound:
            self._system.delete_file(path)

    def table(self, name: str, columns: list[str] | None = None) -> pa.Table:
        import pyarrow.parquet as pq

        return pq.read_table(self._at(name), columns=columns, filesystem=self._system)

    def measured(self, name: str) -> tuple[int, int]:
        import pyarrow.parquet as pq

        path = self._at(name)
        return self._system.get_file_info(path).size, pq.read_metadata(path, filesystem=self._system).num_rows

    def _at(self, name: str) -> str:
        return f"{self._root}/{name}".rstrip("/")


def shown(place: str) -> str:
    """Return a path or URI fit for display: without credentials and query."""
    parts = urlsplit(place)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="").geturl() if parts.netloc else place


def first_line(error: Exception) -> str:
    """Return an error's message without what some libraries append: stacks of a server, and advice."""
    return str(error).strip().partition("\n")[0]


def folder_of(place: str | Path) -> Folder:
    """Return the folder at a path or URI.

    Accepts ``/var/lib/x``, ``file:///var/lib/x``, ``s3://bucket/x`` (``s3a`` is the same;
    ``?endpoint_override=HOST:PORT&scheme=http`` for MinIO), ``hdfs://HOST:PORT/x`` and ``gs://bucket/x``. Credentials
    come from the environment, HDFS's settings from ``HADOOP_CONF_DIR``. Raises ValueError for any other URI, OSError if
    the folder cannot be reached, and ImportError without HDFS's library."""
    text = str(place)
    if "://" not in text:
        return LocalFolder(Path(text))
    parts = urlsplit(text)
    if parts.scheme == "file":
        return LocalFolder(Path(unquote(parts.path)))
    if parts.scheme == "hdfs":
        return _in_hdfs(parts)
    import pyarrow as pa
    from pyarrow.fs import FileSystem

    is_s3 = parts.scheme in S3
    try:
        system, root = FileSystem.from_uri(parts._replace(scheme="s3").geturl() if is_s3 else text)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ValueError(f"{shown(text)}: {first_line(error)}") from None
    if system.type_name not in OBJECT_STORES:
        raise ValueError(f"{shown(text)}: not a directory, s3://, gs:// or hdfs://")
    hosts = parts.netloc.rpartition("@")[2]  # a key in the URI is for Arrow only
    return RemoteFolder(system, root, f"{'s3a' if is_s3 else parts.scheme}://{hosts}{parts.path}")


def _in_hdfs(parts: SplitResult) -> RemoteFolder:
    from hdfs_native.fsspec import HdfsFileSystem
    from pyarrow.fs import FSSpecHandler, PyFileSystem

    store = HdfsFileSystem(parts.hostname, parts.port, **HDFS_SETTINGS)
    replace = partial(store.client.rename, overwrite=True)
    return RemoteFolder(PyFileSystem(FSSpecHandler(store)), parts.path, parts._replace(query="").geturl(), replace)


def write_table(folder: Folder, name: str, table: pa.Table) -> None:
    """Write `table` as the Parquet file `name`, compressed by zstd. Raises OSError."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    out = pa.BufferOutputStream()
    pq.write_table(table, out, compression="zstd")
    folder.write(name, out.getvalue().to_pybytes())
