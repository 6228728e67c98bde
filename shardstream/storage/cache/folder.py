"""``Folder``: a folder of a cache, held by its descriptor. All that a cache does with files goes through it.

A cache may lie where others can write: in ``/dev/shm``, on a scratch disk. What they plant there under a name that the
cache uses may lead elsewhere (a symbolic link, another name of somebody's file), wait for ever (a FIFO), or hold
forged data. So nothing is opened by a path: each name is looked up in the descriptor of its folder, links are not
followed, and what was opened is looked at before it is used. It has to be

- a regular file with one name, or a folder,
- owned by this user or by root; in a shared cache it may also be of the folder's group,
- and, a file or a folder of a shared cache, nothing that everybody may write to.

What is made gets its rights explicitly. In a shared cache they are those of the group, whatever the umask says;
otherwise nobody but this user may write, even where the umask would let others.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

T = TypeVar("T")

NEW = ".new-"
"""What the names of files begin with that are being made."""

_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY  # non-blocking: a FIFO has nobody at its other end
_FOLDER = os.O_RDONLY | os.O_DIRECTORY
_LINKS = 8  # to the folder of a cache, one after another
_YOUNG = 2.0  # seconds within which who made something has given it its rights
_PAUSE = 0.01


class Untrusted(PermissionError):
    """Something lies in a cache, or is one, that this user has no reason to trust."""


class Folder:
    """An open folder. Made by `Folder.root`, and by `folder` for those in it.

    It stays the same folder if it gets another name meanwhile, or none. It is closed with its last reference, and is
    of no use to a process that was started anew, which opens it, and looks at it, for itself.

    Args:
        path: Its name, for messages.
        descriptor: The open folder; becomes this object's.
        group: In a shared cache the group whose members are trusted, else ``None``.
    """

    def __init__(self, path: str, descriptor: int, group: int | None) -> None:
        self.path = path
        self.descriptor = descriptor
        self.group = group

    def __del__(self) -> None:
        os.close(self.descriptor)

    @classmethod
    def root(
        cls, path: str, *, shared: bool = False, group: int | None = None, make: bool = False, parents: bool = True
    ) -> Folder:
        """The folder of a cache.

        Args:
            path: Its name, the only one that may be a symbolic link: of this user, or of root.
            shared: Whether the members of its group share it.
            group: Of a shared folder that is made, its group; an existing one has to be of this one. Default: that of
                the folder, which has to be one of this user's.
            make: Whether to make it where there is none.
            parents: And the folders above it.

        Raises:
            Untrusted: It is somebody else's.
            OSError: It cannot be opened, or made.
        """
        made = make and _make_root(path, shared=shared, parents=parents)
        opened = _until_settled(lambda: _open_root(path), lambda: os.stat(path)) if shared else _open_root(path)
        folder = cls(path, opened, None)
        if shared:
            if made:
                if group is not None:
                    os.fchown(folder.descriptor, -1, group)
                os.fchmod(folder.descriptor, 0o2770)
            _until_settled(lambda: folder._share(group), lambda: os.fstat(folder.descriptor))
        _check(os.fstat(folder.descriptor), path, folder.group, folder=True)
        return folder

    def _share(self, group: int | None) -> None:
        """Be of a group from now on, if the folder is fit for that."""
        info = os.fstat(self.descriptor)
        if info.st_uid == os.geteuid() and info.st_mode & 0o2070 != 0o2070:
            os.fchmod(self.descriptor, stat.S_IMODE(info.st_mode) | 0o2070)
        elif not info.st_mode & stat.S_ISGID:
            raise _untrusted(self.path, "does not give its group to what is made in it: chmod g+s")
        if group is None and info.st_gid not in {os.getegid(), *os.getgroups()}:
            raise _untrusted(self.path, f"is shared by group {info.st_gid}, which this user is not in")
        self.group = info.st_gid if group is None else group

    # ------------------------------------------------------------------------------------------------------- looking

    def names(self) -> list[str]:
        """What is in the folder; nothing is said about any of it.

        Raises:
            OSError: It cannot be listed. FileNotFoundError: It was removed.
        """
        own = os.open(".", _FOLDER | os.O_CLOEXEC, dir_fd=self.descriptor)  # its position is no other thread's
        try:
            return sorted(os.listdir(own))
        finally:
            os.close(own)

    def check(self, name: str, *, folder: bool = False) -> os.stat_result:
        """What the file (or folder) of this name is.

        Raises:
            Untrusted: It is something else, or somebody else's.
            FileNotFoundError: There is none.
        """
        info = os.stat(name, dir_fd=self.descriptor, follow_symlinks=False)
        _check(info, self.place(name), self.group, folder=folder)
        return info

    def stat(self, name: str) -> os.stat_result | None:
        """The same, ``None`` where there is no such file, or one that is not to be trusted."""
        with suppress(OSError):
            return self.check(name)
        return None

    def files(self) -> Iterator[tuple[str, os.stat_result]]:
        """The files that can be trusted; none if the folder is gone."""
        with suppress(FileNotFoundError):
            for name in self.names():
                if (info := self.stat(name)) is not None:
                    yield name, info

    def folders(self) -> list[str]:
        """The names of the folders that can be trusted; none if this one cannot be listed."""
        found = []
        with suppress(OSError):
            for name in self.names():
                with suppress(OSError):
                    self.check(name, folder=True)
                    found.append(name)
        return found

    def named(self) -> bool:
        """Whether the folder still has its name."""
        try:
            return os.path.samestat(os.stat(self.path), os.fstat(self.descriptor))
        except OSError:
            return False

    @property
    def name(self) -> str:
        """Its name in the folder above."""
        return os.path.basename(self.path)

    def place(self, name: str) -> str:
        """The path of something in it, for messages."""
        return os.path.join(self.path, name)

    # ------------------------------------------------------------------------------------------------------- opening

    def folder(self, name: str, *, make: bool = False) -> Folder:
        """The folder of this name in it.

        Raises:
            Untrusted: It is not a folder, or somebody else's.
            OSError: It cannot be opened, or made. FileNotFoundError: There is none.
        """
        made = make and self._make_folder(name)
        descriptor = self._open(name, _FOLDER, folder=True)
        if made and self.group is not None:
            os.fchmod(descriptor, 0o2770)
        return Folder(self.place(name), descriptor, self.group)

    def _make_folder(self, name: str) -> bool:
        try:
            self._until_settled(lambda: os.mkdir(name, 0o755, dir_fd=self.descriptor), ".")
        except FileExistsError:
            return False
        return True

    def open(self, name: str, flags: int) -> int:
        """A descriptor of the file of this name.

        Args:
            name: Its name.
            flags: ``os.O_RDONLY`` or ``os.O_RDWR``.

        Raises:
            Untrusted: It is not a regular file, has other names, or is somebody else's.
            OSError: It cannot be opened. FileNotFoundError: There is none.
        """
        return self._open(name, flags, folder=False)

    def _open(self, name: str, flags: int, *, folder: bool) -> int:
        return self._until_settled(lambda: self._open_now(name, flags, folder=folder), name)

    def _open_now(self, name: str, flags: int, *, folder: bool) -> int:
        try:
            descriptor = os.open(name, flags | _FLAGS, dir_fd=self.descriptor)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.ENXIO):
                self.check(name, folder=folder)  # says what lies there instead
            raise
        try:
            _check(os.fstat(descriptor), self.place(name), self.group, folder=folder)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def open_most(self, name: str) -> tuple[int, bool]:
        """A descriptor of the file of this name, and whether it can be written to. Raises as `open`."""
        try:
            return self.open(name, os.O_RDWR), True
        except OSError as error:
            if isinstance(error, Untrusted) or error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
                raise
            return self.open(name, os.O_RDONLY), False

    def reopen(self, name: str, flags: int) -> int:
        """A descriptor of a file that was opened before. Whoever asks sees for himself that it is still the same."""
        return os.open(name, flags | _FLAGS, dir_fd=self.descriptor)

    def create(self, name: str) -> int:
        """A descriptor of a new file, to read and write.

        Raises:
            FileExistsError: There is something of this name.
            OSError: It cannot be made.
        """
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | _FLAGS
        descriptor = self._until_settled(lambda: os.open(name, flags, 0o644, dir_fd=self.descriptor), ".")
        if self.group is not None:
            os.fchmod(descriptor, 0o660)
        return descriptor

    def open_or_create(self, name: str) -> int:
        """A descriptor of the file of this name, to read and write, made if there is none.

        Raises:
            Untrusted: See `open`.
            OSError: It cannot be opened or made.
        """
        while True:
            with suppress(FileNotFoundError):
                return self.open(name, os.O_RDWR)
            with suppress(FileExistsError):
                return self.create(name)

    # ------------------------------------------------------------------------------------------------- whole files

    def read(self, name: str, most: int) -> tuple[bytes, os.stat_result]:
        """All of a file of at most ``most`` bytes, and its status: whoever shares a cache can make a file of any size.

        Raises:
            OSError: As `open`; EFBIG: the file is longer.
        """
        with open(self.open(name, os.O_RDONLY), "rb") as file:
            info = os.fstat(file.fileno())
            data = b"" if info.st_size > most else file.read(most + 1)  # it may grow while it is read
            if max(info.st_size, len(data)) > most:
                raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), self.place(name))
            return data, info

    def write(self, name: str, data: bytes) -> None:
        """Replace a file as a whole.

        Raises:
            OSError: It cannot be written; the old one stays.
        """
        with self.replacing(name) as descriptor, open(descriptor, "wb", closefd=False) as file:
            file.write(data)

    def write_json(self, name: str, value: object) -> None:
        """Replace a small file as a whole. Raises as `write`."""
        self.write(name, json.dumps(value).encode())

    @contextmanager
    def replacing(self, name: str) -> Iterator[int]:
        """A descriptor of a new file, which gets this name at the end of the block, in place of whatever has it.

        Raises:
            OSError: It cannot be made.
        """
        new = f"{NEW}{secrets.token_hex(8)}"
        descriptor = self.create(new)
        try:
            yield descriptor
            os.replace(new, name, src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor)
        except BaseException as error:
            with suppress(OSError):
                self.unlink(new)
            if isinstance(error, IsADirectoryError):
                self.check(name)  # says so with its name
            raise
        finally:
            os.close(descriptor)

    def unlink(self, name: str) -> None:
        """Remove a file; of a link the link, not what it leads to."""
        os.unlink(name, dir_fd=self.descriptor)

    def rmdir(self, name: str) -> None:
        """Remove an empty folder."""
        os.rmdir(name, dir_fd=self.descriptor)

    def _until_settled(self, work: Callable[[], T], name: str) -> T:
        if self.group is None:
            return work()
        return _until_settled(work, lambda: os.stat(name, dir_fd=self.descriptor, follow_symlinks=False))


def users_own() -> Folder:
    """The user's own folder for what can be made again: ``$XDG_CACHE_HOME/shardstream``, else in ``~/.cache``.

    Raises:
        OSError: It cannot be made, or there is no home to make it in.
    """
    base = os.environ.get("XDG_CACHE_HOME", "")
    root = base if os.path.isabs(base) else os.path.expanduser("~/.cache")
    if not os.path.isabs(root):
        raise FileNotFoundError(errno.ENOENT, "there is no home")
    return Folder.root(os.path.join(root, "shardstream"), make=True)


def _until_settled(work: Callable[[], T], look: Callable[[], os.stat_result]) -> T:
    """Do something; what another member of the group makes in this moment has its rights in the next one."""
    end = time.monotonic() + _YOUNG
    while True:
        try:
            return work()
        except PermissionError:
            if time.monotonic() > end or not _young(look):
                raise
            time.sleep(_PAUSE)


def _young(look: Callable[[], os.stat_result]) -> bool:
    with suppress(OSError):
        return abs(time.time() - look().st_ctime) < _YOUNG
    return False


def _make_root(path: str, *, shared: bool, parents: bool) -> bool:
    """Make the folder of a cache; False if there is one."""
    if parents:
        os.makedirs(os.path.dirname(path), exist_ok=True)
    try:
        os.mkdir(path, 0o700 if shared else 0o755)
    except FileExistsError:
        return False
    return True


def _open_root(path: str) -> int:
    for _ in range(_LINKS):
        try:
            return os.open(path, _FOLDER | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError as error:
            if error.errno not in (errno.ENOTDIR, errno.ELOOP):
                raise
            target = _target(path)
            if target is None:
                raise
            path = target
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)


def _target(path: str) -> str | None:
    """What a symbolic link leads to; ``None`` if it is none."""
    link = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        info = os.fstat(link)
        if not stat.S_ISLNK(info.st_mode):
            return None
        if info.st_uid not in (os.geteuid(), 0):
            raise _untrusted(path, f"is a symbolic link of user {info.st_uid}: name the folder itself")
        return os.path.join(os.path.dirname(path), os.readlink("", dir_fd=link))
    finally:
        os.close(link)


def _check(info: os.stat_result, path: str, group: int | None, *, folder: bool) -> None:
    """Refuse what lies in a cache, or is one, unless it is what it should be, and of somebody who is trusted."""
    mode = info.st_mode
    if stat.S_ISLNK(mode):
        raise _untrusted(path, "is a symbolic link, which no cache makes: remove it")
    if not (stat.S_ISDIR if folder else stat.S_ISREG)(mode):
        raise _untrusted(path, f"is not a {'folder' if folder else 'regular file'}: remove it")
    if info.st_uid not in (os.geteuid(), 0) and (group is None or info.st_gid != group):
        advice = "name a folder of your own, or share one with a group (shared=True)"
        raise _untrusted(path, f"belongs to user {info.st_uid}: {advice if group is None else 'remove it'}")
    if mode & stat.S_IWOTH and (group is not None or not folder):
        raise _untrusted(path, "may be written by everybody: chmod o-w")
    if not folder and info.st_nlink > 1:
        raise _untrusted(path, "has another name as well, which no cache gives: remove it")


def _untrusted(path: str, what: str) -> Untrusted:
    return Untrusted(errno.EPERM, f"{path} {what}", path)
