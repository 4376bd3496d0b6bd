"""Files that are there whole or not at all: saps.runtime.atomic_file."""

import errno
import os
import stat
from pathlib import Path

import pytest

from saps.runtime.atomic_file import replacing


@pytest.mark.parametrize(
    ("number", "tolerated"), [(errno.EINVAL, True), (errno.ENOTSUP, True), (errno.ENOSYS, True), (errno.EIO, False)]
)
def test_a_file_system_may_not_be_able_to_sync_a_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, tolerated: bool
) -> None:
    fsync = os.fsync

    def refuse(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(number, os.strerror(number))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", refuse)
    file, raised = tmp_path / "file", False
    try:
        with replacing(file) as out:
            out.write(b"content")
    except OSError as error:
        raised = error.errno == number
    assert raised is not tolerated
    assert file.read_bytes() == b"content"
