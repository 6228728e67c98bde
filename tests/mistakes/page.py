"""What is said of each mistake; ``python tests/mistakes/page.py`` writes docs/mistakes.md."""

from __future__ import annotations

import io
import logging
import os
import re
import tempfile
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np

import shardstream as ss

if __package__:
    from .cases import MISTAKES, Mistake
else:  # as a program
    from cases import MISTAKES, Mistake

PAGE = Path(__file__).resolve().parents[2] / "docs" / "mistakes.md"


def forgets(sample: dict[str, Any]) -> None:
    sample["cls"] += 1


def fails(sample: dict[str, Any]) -> Any:
    return sample["label"]


def needs_pil(image: Any) -> Any:
    return image.convert("L")


def prepare(folder: Path) -> None:
    from PIL import Image

    lines = []
    for name in ("cat", "dog"):
        (folder / "photos" / name).mkdir(parents=True)
        for i in range(32):
            buffer = io.BytesIO()
            Image.fromarray(np.full((32 + i, 40, 3), 4 * i, np.uint8)).save(buffer, "JPEG")
            (folder / "photos" / name / f"{i}.jpg").write_bytes(buffer.getvalue())
            lines.append(f"photos/{name}/{i}.jpg\t{name}\n")
    (folder / "list.tsv").write_text("".join(lines))
    (folder / "moved.tsv").write_text("".join(f"pictures/{i}.jpg\t{i}\n" for i in range(4)))
    (folder / "empty").mkdir()
    ss.pack(folder / "photos", folder / "out", images=ss.ImageOptions(jpeg="keep"), workers=0)
    ss.testing.make_dataset(str(folder / "val"), samples=20, fields={"cls": "int64"})


def message(mistake: Mistake, folder: Path) -> str:
    """What somebody reads who makes it, with paths from the folder on."""
    jpeg = (folder / "photos/cat/0.jpg").read_bytes()
    names = {"ss": ss, "np": np, "jpeg": jpeg}
    names |= {made.__name__: made for made in (forgets, fails, needs_pil)}
    here, environment = Path.cwd(), dict(os.environ)
    text, log = io.StringIO(), logging.getLogger("shardstream")
    handler = logging.StreamHandler(text)
    handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
    log.addHandler(handler)
    os.chdir(folder)
    try:
        with redirect_stdout(text):
            exec(compile(mistake.code, "<mistake>", "exec"), names)
    except Exception as error:
        text = io.StringIO(f"{type(error).__name__}: {error}")
    finally:
        os.chdir(here)
        os.environ.clear()
        os.environ.update(environment)
        log.removeHandler(handler)
    return _the_same_everywhere(text.getvalue().strip(), mistake, folder)


def _the_same_everywhere(text: str, mistake: Mistake, folder: Path) -> str:
    if not text:
        raise AssertionError(f"{mistake.title}: nothing was said")
    for changing, shown in (
        (r"0x[0-9a-f]+", "0x..."),
        (r"on \d+ cores?", "on 2 cores"),
        (r"memory-store://\w+", "memory-store://..."),
    ):
        text = re.sub(changing, shown, text)
    return text.replace(str(folder.resolve()) + "/", "").replace(str(folder.resolve()), ".")


def section(mistake: Mistake, said: str) -> str:
    """What the page has of it."""
    about = f"\n## {mistake.title}\n\n<!-- not run: it is a mistake; tests/mistakes runs it -->\n"
    return f"{about}```python\n{mistake.code}\n```\n\n```text\n{said}\n```\n"


TOP = f"""# Mistakes

{len(MISTAKES)} mistakes that are made often, and what is said then. Each is run in the tests, which compare
this page with the messages; `python tests/mistakes/page.py` writes it anew.
"""


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        prepare(Path(made))
        PAGE.write_text(TOP + "".join(section(one, message(one, Path(made))) for one in MISTAKES))
