"""What to do about the errors of the operating system, by their number."""

from __future__ import annotations

import errno

HINTS = {
    errno.ENOSPC: "make room on that disk, and run it again",
    errno.EDQUOT: "remove files of this account there, or have its quota raised, and run it again",
    errno.EFBIG: "the file system or a limit (ulimit -f) allows no larger files: write smaller shards, or elsewhere",
    errno.EROFS: "mount it for writing, or write elsewhere; a disk with errors becomes read-only (dmesg tells)",
    errno.EMFILE: "raise the limit of open files (ulimit -n), or use fewer workers",
    errno.ENFILE: "the machine has no more open files: end what holds them, or raise fs.file-max",
    errno.EIO: "a disk or a network file system is at fault: dmesg tells; copy what can still be read",
    errno.ESTALE: "the network file system was changed under its mount: mount it again",
    errno.EACCES: "let this account do it: look at owner and rights of the file and of the folders above it",
    errno.EPERM: "let this account do it: look at owner and rights, and whether the file may change (lsattr)",
    errno.ENAMETOOLONG: "use a shorter name",
    errno.ELOOP: "links lead back to themselves: look where they point",
    errno.ETIMEDOUT: "the network file system does not answer: is its server up?",
}
