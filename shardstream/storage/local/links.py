"""Symbolic links below a directory: which of them are followed.

Data are often directories of links: the Hugging Face cache, a selection of another dataset. But whoever may write to a
directory can plant a link in it to a file that only its reader may read, and get that file's content out of what the
reader makes of the directory. So a link is followed where its owner needs no help to read the target, or is trusted
anyway. Apache's ``SymLinksIfOwnerMatch`` is such a rule.
"""

from __future__ import annotations

import os
import stat

from shardstream.errors import AccessError

_ROOT = 0
_READERS = stat.S_IROTH


def may_follow(link: os.stat_result, target: os.stat_result, reader: int) -> bool:
    """Whether a link is followed: it is the reader's own or root's, or gives its owner nothing that it does not have.

    Args:
        link: Of the link itself.
        target: Of what it leads to in the end.
        reader: Effective user number of this process.
    """
    if link.st_uid in (reader, _ROOT, target.st_uid):
        return True
    return target.st_uid == _ROOT and bool(target.st_mode & _READERS)


def refuse_planted_link(path: str, opened: os.stat_result, root: str = "") -> None:
    """Refuse what was opened through a link that must not be followed.

    Whoever may rename files in a directory while it is read can still replace a link between the two steps; but so it
    can replace the data.

    Args:
        path: What was opened.
        opened: What its descriptor is of.
        root: The directory that a user named: it, and links above it, are the user's choice. Default: only the last
            part of the path is looked at.

    Raises:
        AccessError: A link on the way must not be followed; has its path.
        OSError: The file was removed meanwhile.
    """
    reader = os.geteuid()
    last = os.lstat(path)
    if stat.S_ISLNK(last.st_mode) and not may_follow(last, opened, reader):
        raise _refusal(path, last, opened)
    folder = os.path.dirname(path) if root else ""
    while len(folder) > len(root):
        here = os.lstat(folder)
        if stat.S_ISLNK(here.st_mode) and not may_follow(here, target := os.stat(folder), reader):
            raise _refusal(folder, here, target)
        folder = os.path.dirname(folder)


def _refusal(path: str, link: os.stat_result, target: os.stat_result) -> AccessError:
    return AccessError(
        f"a link that belongs to account {link.st_uid} leads to a file of account {target.st_uid}: it is not followed",
        url=path,
        hint="copy the file to where the link is, or make the link yourself",
    )
