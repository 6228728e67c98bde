"""Files that are written: every new file gets its name only once it is complete, and no link is followed.

Statistics, traces, pages, and figures go to directories that other accounts may write to, too. An account could plant
a symbolic link or a FIFO under any name that it can guess. So a new file begins under a random name that must not
exist, and a rename gives it its own; the rename replaces a link, not the file that the link names.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from contextlib import suppress
from io import FileIO
from pathlib import Path

from shardstream.errors import UsageError

TEMPORARY = ".shardstream-"
"""The names of unfinished files begin with this."""

_SPECIAL = {stat.S_IFIFO: "FIFO", stat.S_IFSOCK: "socket", stat.S_IFCHR: "device", stat.S_IFBLK: "device"}


def check_regular(path: str | os.PathLike[str]) -> None:
    """Refuse a FIFO, a socket, or a device, also behind links; nothing is opened.

    Raises:
        UsageError: The path names one of these.
    """
    with suppress(OSError):  # a file that does not exist can be made; another error is told by the write
        _check_mode(os.stat(path), path)


def _check_mode(info: os.stat_result, path: str | os.PathLike[str]) -> None:
    kind = _SPECIAL.get(stat.S_IFMT(info.st_mode))
    if kind is not None:
        what = f"a {kind} cannot hold what is written here"
        raise UsageError(what, url=os.fspath(path), hint="give the name of a regular file, or of a new one")


def create_temporary(target: Path) -> tuple[Path, FileIO]:
    """Create an unfinished file in the directory of ``target``, under a random name that did not exist.

    Raises:
        OSError: The file cannot be made.
    """
    path = target.with_name(f"{TEMPORARY}{secrets.token_hex(8)}")
    return path, FileIO(path, "x+")  # O_EXCL: an existing name, also that of a link, is an error


def create_file(path: str | os.PathLike[str], data: bytes | memoryview = b"") -> FileIO:
    """Create a file that begins with ``data``, in place of whatever has its name.

    Returns:
        It, open for more.

    Raises:
        OSError: The file cannot be made; what had its name stays.
    """
    target = Path(path)
    temporary, file = create_temporary(target)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[file.write(rest) :]
        os.replace(temporary, target)
    except BaseException:
        file.close()
        with suppress(OSError):
            temporary.unlink()
        raise
    return file


def write_file(path: str | os.PathLike[str], data: bytes | memoryview) -> None:
    """Create a whole file, in place of whatever has its name. Raises as `create_file`."""
    create_file(path, data).close()


def open_to_extend(path: str | os.PathLike[str]) -> int:
    """Open a file, to read it and to add to its end; it is made if there is none.

    Returns:
        Its descriptor.

    Raises:
        UsageError: The path names a link, a FIFO, a socket, or a device.
        OSError: The file cannot be opened.
    """
    check_regular(path)
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
    try:
        descriptor = os.open(path, flags, 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP:
            what = "a symbolic link is not followed: files of others could be written through it"
            raise UsageError(what, url=os.fspath(path), hint="give the name of the file itself") from None
        raise
    try:
        _check_mode(os.fstat(descriptor), path)
    except UsageError:  # planted since the first look
        os.close(descriptor)
        raise
    return descriptor


def make_directories(root: Path, path: str) -> Path:
    """Make the directories of an object below ``root``, and give the last one.

    Raises:
        UsageError: A symbolic link is among them, which could lead anywhere.
        OSError: One cannot be made.
    """
    root.mkdir(parents=True, exist_ok=True)
    directory = root
    for name in path.split("/")[:-1]:
        directory /= name
        try:
            directory.mkdir()
        except FileExistsError:
            if directory.is_symlink():
                what = "a symbolic link below a destination is not written through: it may lead anywhere"
                raise UsageError(what, url=str(directory), hint=f"remove it: rm {directory}") from None
            if not directory.is_dir():
                raise
    return directory
