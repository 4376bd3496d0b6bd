"""A volume as a file system of this machine, by the kernel's FUSE protocol (7.31) without any library; needs root.

    python -m benchmarks.chaos.disk.fuse FOLDER...

serves one volume at each folder until its input ends. Each line of the input is a command: the number of a folder, and
``lose SEED``, ``fail``, ``slow SECONDS`` or ``mend``; the answer is a line, too.
"""

from __future__ import annotations

import ctypes
import errno
import os
import random
import select
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

from benchmarks.chaos.disk.volume import File, Volume

SIZE = 32 << 20
"""Bytes of a volume."""
MOST = 1 << 17
"""Bytes of one read or write."""
BLOCK = 4096
ROOT = 1
"""The node of the folder."""
FOLDER, PLAIN = 0o40755, 0o100644

IN = struct.Struct("<IIQQIIII")
OUT = struct.Struct("<IiQ")
ATTR = struct.Struct("<6Q10I")
DIRENT = struct.Struct("<QQII")
TIMES = struct.Struct("<Q")
FORGOTTEN = struct.Struct("<QQ")
SET_SIZE = 1 << 3
BIG_WRITES = 1 << 5

(LOOKUP, FORGET, GETATTR, SETATTR, UNLINK, RENAME, OPEN, READ, WRITE, STATFS, RELEASE, FSYNC, FLUSH, INIT, OPENDIR) = (
    *(1, 2, 3, 4, 10, 12, 14, 15, 16, 17, 18, 20, 25, 26, 27),
)
READDIR, RELEASEDIR, FSYNCDIR, ACCESS, CREATE, INTERRUPT, BATCH_FORGET, RENAME2 = 28, 29, 30, 34, 35, 36, 42, 45
SILENT = (FORGET, BATCH_FORGET, INTERRUPT)
"""Requests without an answer."""


class Mount:
    """One volume at one folder. Use `handle` whenever `fd` can be read."""

    def __init__(self, folder: str, volume: Volume) -> None:
        """Raises `OSError`."""
        self.volume = volume
        self.fd = os.open("/dev/fuse", os.O_RDWR | os.O_NONBLOCK)
        libc = ctypes.CDLL(None, use_errno=True)
        options = f"fd={self.fd},rootmode={FOLDER:o},user_id=0,group_id=0,allow_other,default_permissions"
        if libc.mount(b"saps-chaos", folder.encode(), b"fuse", 0, options.encode()):
            raise OSError(ctypes.get_errno(), f"cannot mount at {folder}")
        self._nodes: dict[int, File] = {}
        """The files that the kernel knows, by the number that it was told."""
        self._told: dict[int, int] = {}
        """How often it was told of each."""
        self._later: list[tuple[float, bytes, File]] = []
        """Answers to syncs of a slow disk: when, for whom, and of which file."""
        self._ways: dict[int, Callable[[int, bytes], bytes]] = {
            LOOKUP: lambda node, body: self._entry(self._file(_name(body))),
            GETATTR: lambda node, body: struct.pack("<QII", 0, 0, 0) + self._attributes(node),
            SETATTR: self._set,
            UNLINK: self._unlink,
            RENAME: lambda node, body: self._rename(body[8:]),
            RENAME2: lambda node, body: self._rename(body[16:]),
            OPEN: lambda node, body: bytes(16),
            OPENDIR: lambda node, body: bytes(16),
            READ: self._read,
            WRITE: self._write,
            STATFS: self._room,
            RELEASE: lambda node, body: b"",
            RELEASEDIR: lambda node, body: b"",
            FLUSH: lambda node, body: b"",
            ACCESS: lambda node, body: b"",
            FSYNC: lambda node, body: self._sync(node),
            FSYNCDIR: lambda node, body: self._sync(ROOT),
            INIT: lambda node, body: struct.pack("<4I2H2I2HI7I", 7, 31, MOST, BIG_WRITES, 16, 12, MOST, 1, *[0] * 10),
            READDIR: self._list,
            CREATE: lambda node, body: self._entry(self.volume.create(_name(body[16:]))) + bytes(16),
        }

    def handle(self) -> None:
        """Answer what the kernel asks. Raises `OSError` if it is not mounted any more."""
        try:
            request = os.read(self.fd, MOST + BLOCK)
        except BlockingIOError:
            return
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.EINTR):
                return
            raise
        _, code, _, node, *_ = IN.unpack_from(request)
        if code == FORGET:
            self._forget(node, *TIMES.unpack_from(request, IN.size))
        for number, times in FORGOTTEN.iter_unpack(request[IN.size + 8 :]) if code == BATCH_FORGET else ():
            self._forget(number, times)
        if code in SILENT:
            return
        if code == FSYNC and self.volume.slow and not self.volume.failing:
            self._later.append((time.monotonic() + self.volume.slow, request, self._nodes[node]))
            return
        self._answer(request)

    def due(self) -> float | None:
        """Seconds until the next sync of a slow disk is through, which is then answered; None if there is none."""
        now = time.monotonic()
        while self._later and (self._later[0][0] <= now or not self.volume.slow):
            self._answer(self._later.pop(0)[1])
        return self._later[0][0] - now if self._later else None

    def _answer(self, request: bytes) -> None:
        _, code, unique, node, *_ = IN.unpack_from(request)
        try:
            way = self._ways.get(code)
            if way is None:
                raise OSError(errno.ENOSYS, "")
            body, fault = way(node, request[IN.size :]), 0
        except OSError as error:
            body, fault = b"", -(error.errno or errno.EIO)
        with_head = OUT.pack(OUT.size + len(body), fault, unique) + body
        try:
            os.write(self.fd, with_head)
        except OSError as error:
            if error.errno != errno.ENOENT:  # who asked has gone
                raise

    def _file(self, name: str) -> File:
        if name not in self.volume.names:
            raise OSError(errno.ENOENT, name)
        return self.volume.names[name]

    def _forget(self, number: int, times: int) -> None:
        """The kernel forgets that it was told of a file so often."""
        if left := self._told.pop(number, times) - times:
            self._told[number] = left
        else:
            self._nodes.pop(number, None)

    def _entry(self, file: File) -> bytes:
        number = id(file)
        self._nodes[number] = file
        self._told[number] = self._told.get(number, 0) + 1
        return struct.pack("<4Q2I", number, 0, 0, 0, 0, 0) + self._attributes(number)

    def _attributes(self, node: int) -> bytes:
        size = 0 if node == ROOT else len(self._nodes[node].data)
        mode, now = FOLDER if node == ROOT else PLAIN, int(time.time())
        return ATTR.pack(node, size, -(-size // 512), now, now, now, 0, 0, 0, mode, 1, 0, 0, 0, BLOCK, 0)

    def _set(self, node: int, body: bytes) -> bytes:
        valid, _, _, size = struct.unpack_from("<IIQQ", body)
        if valid & SET_SIZE:
            self._nodes[node].truncate(size)
        return struct.pack("<QII", 0, 0, 0) + self._attributes(node)

    def _unlink(self, node: int, body: bytes) -> bytes:
        self._file(_name(body))
        del self.volume.names[_name(body)]
        return b""

    def _rename(self, names: bytes) -> bytes:
        old, new = (part.decode() for part in names.split(b"\0")[:2])
        self.volume.names[new] = self._file(old)
        del self.volume.names[old]
        return b""

    def _read(self, node: int, body: bytes) -> bytes:
        _, offset, size = struct.unpack_from("<QQI", body)
        return bytes(self._nodes[node].data[offset : offset + size])

    def _write(self, node: int, body: bytes) -> bytes:
        _, offset, size = struct.unpack_from("<QQI", body)
        self.volume.write(self._nodes[node], offset, body[40 : 40 + size])
        return struct.pack("<II", size, 0)

    def _sync(self, node: int) -> bytes:
        if node == ROOT:
            self.volume.sync_names()
        else:
            self.volume.sync(self._nodes[node])
        return b""

    def _room(self, node: int, body: bytes) -> bytes:
        free = self.volume.free // BLOCK
        return struct.pack("<5Q4I6I", SIZE // BLOCK, free, free, 1000, 900, BLOCK, 255, BLOCK, *[0] * 7)

    def _list(self, node: int, body: bytes) -> bytes:
        _, offset, size = struct.unpack_from("<QQI", body)
        found = b""
        for place, (name, file) in enumerate(list(self.volume.names.items())[offset:], offset + 1):
            word = name.encode()
            entry = DIRENT.pack(id(file), place, len(word), PLAIN >> 12) + word
            entry += bytes(-len(entry) % 8)
            if len(found) + len(entry) > size:
                break
            found += entry
        return found


def _name(body: bytes) -> str:
    return body.split(b"\0", 1)[0].decode()


def serve(folders: Sequence[str]) -> None:
    """Until the input ends. Raises `OSError` if the folders cannot be mounted."""
    mounts = [Mount(folder, Volume(SIZE)) for folder in folders]
    print("ready", flush=True)
    by_fd = {mount.fd: mount for mount in mounts}
    try:
        while True:
            waits = [due for mount in mounts if (due := mount.due()) is not None]
            readable, _, _ = select.select([*by_fd, 0], [], [], min(waits, default=None))
            for fd in readable:
                if fd:
                    by_fd[fd].handle()
            if 0 in readable:
                line = os.read(0, 200).decode().split()
                if not line:
                    return
                print(command(mounts[int(line[0])].volume, line[1:]), flush=True)
    finally:
        for folder in folders:
            subprocess.run(("umount", "--lazy", folder), check=False)


def command(volume: Volume, words: Sequence[str]) -> str:
    """Do it; gives the answer. Raises `ValueError`."""
    match words:
        case ["lose", seed]:
            return f"{volume.lose(random.Random(int(seed)))} changes lost"
        case ["fail"]:
            volume.failing = True
        case ["slow", seconds]:
            volume.slow = float(seconds)
        case ["mend"]:
            volume.failing, volume.slow = False, 0.0
        case _:
            raise ValueError(f"{' '.join(words)} is no command")
    return "done"


if __name__ == "__main__":
    serve(sys.argv[1:])
