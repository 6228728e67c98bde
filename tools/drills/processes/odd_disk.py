"""A folder shown at another place, through FUSE, as a disk that is odd: names without case, or slow; see `limits`."""

from __future__ import annotations

import argparse
import os
import time
from typing import Any

from mfusepy import FUSE, Operations


class OddDisk(Operations):  # type: ignore[misc] # a package without types
    """What stands in a folder.

    Args:
        source: The folder.
        folds: Whether names that differ only in the case of letters are one name, as on macOS and Windows: that of
            whoever came first.
        slow: Seconds that it takes to make a file, to write a piece of it, to rename it and to flush it.
    """

    use_ns = True  # times are nanoseconds

    def __init__(self, source: str, *, folds: bool, slow: float) -> None:
        self._source, self._folds, self._slow = os.path.realpath(source), folds, slow

    def _real(self, path: str) -> str:
        found = self._source
        for part in filter(None, path.split("/")):
            there = os.path.join(found, part)
            if self._folds and not os.path.lexists(there) and os.path.isdir(found):
                same = (one for one in os.listdir(found) if one.casefold() == part.casefold())
                there = os.path.join(found, next(same, part))
            found = there
        return found

    def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
        found = os.lstat(self._real(path))
        told = {name: getattr(found, name) for name in ("st_mode", "st_nlink", "st_size", "st_uid", "st_gid")}
        return told | {f"st_{name}time": getattr(found, f"st_{name}time_ns") for name in "amc"}

    def readdir(self, path: str, fh: int) -> list[str]:
        return [".", "..", *os.listdir(self._real(path))]

    def open(self, path: str, flags: int) -> int:
        return os.open(self._real(path), flags)

    def create(self, path: str, mode: int, fi: Any = None) -> int:
        time.sleep(self._slow)
        return os.open(self._real(path), os.O_RDWR | os.O_CREAT, mode)

    def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
        return os.pread(fh, size, offset)

    def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
        time.sleep(self._slow)
        return os.pwrite(fh, data, offset)

    def truncate(self, path: str, length: int, fh: int | None = None) -> int:
        os.truncate(self._real(path), length)
        return 0

    def release(self, path: str, fh: int) -> int:
        os.close(fh)
        return 0

    def fsync(self, path: str, datasync: int, fh: int) -> int:
        time.sleep(self._slow)
        os.fsync(fh)
        return 0

    def unlink(self, path: str) -> int:
        os.unlink(self._real(path))
        return 0

    def mkdir(self, path: str, mode: int) -> int:
        os.mkdir(self._real(path), mode)
        return 0

    def rmdir(self, path: str) -> int:
        os.rmdir(self._real(path))
        return 0

    def rename(self, old: str, new: str) -> int:
        time.sleep(self._slow)
        os.rename(self._real(old), self._real(new))
        return 0

    def link(self, target: str, source: str) -> int:
        os.link(self._real(source), self._real(target))
        return 0

    def symlink(self, target: str, source: str) -> int:
        os.symlink(source, self._real(target))
        return 0

    def readlink(self, path: str) -> str:
        return os.readlink(self._real(path))

    def chmod(self, path: str, mode: int) -> int:
        os.chmod(self._real(path), mode)
        return 0

    def utimens(self, path: str, times: tuple[int, int] | None = None) -> int:
        now = time.time_ns()
        os.utime(self._real(path), ns=times or (now, now))
        return 0

    def statfs(self, path: str) -> dict[str, int]:
        found = os.statvfs(self._source)
        names = (
            "f_bsize",
            "f_frsize",
            "f_blocks",
            "f_bfree",
            "f_bavail",
            "f_files",
            "f_ffree",
            "f_favail",
            "f_namemax",
        )
        return {name: getattr(found, name) for name in names}


def main() -> None:
    """Show a folder until it is unmounted."""
    parser = argparse.ArgumentParser()
    parser.add_argument("source")
    parser.add_argument("at")
    parser.add_argument("--folds", action="store_true")
    parser.add_argument("--slow", type=float, default=0.0)
    given = parser.parse_args()
    FUSE(OddDisk(given.source, folds=given.folds, slow=given.slow), given.at, foreground=True)


if __name__ == "__main__":
    main()
