"""Two accounts of one machine, and processes of theirs. It takes root, and mounts that its own processes see alone."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import NamedTuple

YOU, THEY, GROUP = 40_001, 40_002, 40_009
ROOT = Path(__file__).resolve().parents[3]
LONGEST_S = 120
MEMORY = 6 << 30  # address space of a process: torch alone maps more than 2 GiB


class Done(NamedTuple):
    """What came of a process.

    Attributes:
        status: Its exit status; ``None`` where it did not end in time.
        said: What it printed.
    """

    status: int | None
    said: str

    def problem(self, name: str, *, fails: bool = True) -> list[str]:
        """What is wrong with it: it hangs, it ends in a traceback of ours, or fails where it must not.

        Args:
            name: What it was.
            fails: Whether it may end in one error.
        """
        end = self.said[-1200:]
        if self.status is None:
            return [f"{name} hangs: {end}"]
        last = ["", *self.said.strip().splitlines()][-1]
        ours = "shardstream.errors." in self.said or self.said.startswith("error: ") or "\nerror: " in self.said
        if self.status and not (fails and ours):
            return [f"{name} ended with {self.status}, {last!r}: {end}"]
        return []


class Machine:
    """A folder that both accounts can look into, with this checkout and its Python in it.

    Args:
        folder: Empty, and everybody may look into the folders above it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.chmod(0o755)
        self.home = self.make("home", owner=YOU, mode=0o700)
        self._show("python", Path(sys.base_prefix))
        self._show("source", ROOT)
        own = Path(sysconfig.get_path("purelib")).relative_to(ROOT)
        base = Path(".venv", *own.parts[1:])
        places = dict.fromkeys((own, base, Path("tools"), Path()))
        self._paths = os.pathsep.join(str(folder / "source" / place) for place in places)

    def make(self, name: str, *, owner: int, mode: int) -> Path:
        """A folder of an account, and of the group of both."""
        made = self.folder / name
        made.mkdir()
        os.chown(made, owner, GROUP)
        made.chmod(mode)
        return made

    def _show(self, name: str, place: Path) -> None:
        (self.folder / name).mkdir()
        subprocess.run(["mount", "--bind", str(place), str(self.folder / name)], check=True)

    def close(self) -> None:
        """Let go of what is mounted."""
        for name in ("python", "source"):
            subprocess.run(["umount", "--lazy", str(self.folder / name)], check=True)

    def start(self, account: int, *arguments: str | Path) -> subprocess.Popen[str]:
        """A Python process of an account, with little memory; of root where that is 0."""

        def become() -> None:
            os.umask(0o002)
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
            if account:
                os.setgroups([GROUP])
                os.setgid(account)
                os.setuid(account)

        home = self.home if account == YOU else self.folder
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "XDG_CACHE_HOME": str(home / "kept"),
            "PYTHONPATH": self._paths,
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONWARNINGS": "ignore",
            "HF_HUB_OFFLINE": "1",
        }
        return subprocess.Popen(
            [str(self.folder / "python/bin" / f"python3.{sys.version_info.minor}"), *map(str, arguments)],
            env=environment,
            cwd=self.folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            preexec_fn=become,
        )

    def run(self, account: int, *arguments: str | Path, answer: str = "") -> Done:
        """The same, to its end.

        Args:
            account: See `start`.
            arguments: Of the interpreter.
            answer: What it can read.
        """
        with self.start(account, *arguments) as process:
            try:
                said, _ = process.communicate(answer, timeout=LONGEST_S)
            except subprocess.TimeoutExpired:
                process.kill()
                return Done(None, process.communicate()[0])
        return Done(process.returncode, said)

    def act(self, account: int, name: str, *arguments: str | Path) -> Done:
        """One of `drills.processes.acts`."""
        return self.run(account, "-m", "drills.processes.acts", name, *arguments)

    def command(self, account: int, *arguments: str | Path, answer: str = "") -> Done:
        """A command of shardstream."""
        return self.run(account, "-m", "shardstream.cli", *arguments, answer=answer)
