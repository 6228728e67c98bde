"""Text of programs. What comes from data stands in quotes, in ASCII where it would not print."""

from __future__ import annotations

import builtins
import json
import keyword
import re
from collections.abc import Iterable, Sequence

AUGMENT = "augment = v2.Compose([v2.ToImage(), v2.RandomResizedCrop({crop}), v2.RandomHorizontalFlip()])"
"""What training does to a picture, by torchvision."""
V2 = "from torchvision.transforms import v2"
LOADER = "from torch.utils.data import DataLoader"


def quoted(text: str) -> str:
    r"""A string as Python writes it.

    >>> quoted('a"b')
    '"a\\"b"'
    """
    return json.dumps(text, ensure_ascii=not text.isprintable())


def variable(name: str) -> str:
    """A name of a variable for the values of a field.

    >>> variable("image.class.text"), variable("class"), variable("0")
    ('image_class_text', 'class_', 'value_0')
    """
    plain = re.sub(r"\W", "_", name, flags=re.ASCII)
    plain = f"value_{plain}" if plain[:1].isdigit() else plain
    return f"{plain}_" if keyword.iskeyword(plain) or hasattr(builtins, plain) else plain


def indented(text: str, by: int = 4) -> str:
    """The same, so many blanks further right; empty lines stay empty."""
    return "\n".join(f"{' ' * by}{line}" if line else "" for line in text.split("\n"))


def one_or_tuple(values: Sequence[str]) -> str:
    """One expression as it is, several as a tuple without brackets."""
    return ", ".join(values)


def program(imports: Iterable[str], body: str, variables: Sequence[str], comment: str = "", *, batch: str = "") -> str:
    """A program that ends in a loop over ``loader``.

    Args:
        imports: Its import statements.
        body: What makes the loader.
        variables: What a batch is taken apart into.
        comment: What these are.
        batch: The expression for the variables, if the loader gives something else: a name, ``batch``, stands for it.
    """
    names, said = one_or_tuple(variables), f"  # {comment}" if comment else ""
    loop = f"for {names} in loader:{said}\n    pass"
    loop = f"for batch in loader:\n    {names} = {batch}{said}" if batch else loop
    lines = "\n".join(sorted(imports, key=lambda line: (line.startswith("from"), line.lower())))
    start = "\n" if body.lstrip().startswith(("class ", "def ")) else ""
    # Where worker processes are not forked, they import the program.
    return f'{lines}\n{start}\n{body.strip()}\n\nif __name__ == "__main__":\n{indented(loop)}\n'
