"""Names for the leaves of a pytree, of the JSON in which torch and LitData write down its structure.

The JSON is ``[1, NODE]``, a node ``{"type": ..., "context": ..., "children_spec": [NODE, ...]}``; leaves have no type.
Nothing is imported, called or built of what it names: only keys of dictionaries are taken.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from shardstream.errors import UnsupportedError

_PROTOCOL = 1
_DEPTH = 64
_KEYED = ("builtins.dict", "collections.OrderedDict", "collections.defaultdict")
_NUMBERED = ("builtins.list", "builtins.tuple", "collections.deque")


def leaf_names(text: str) -> list[str]:
    """The path of each leaf, in the order of flattening, keys and positions joined by dots; of a lone leaf empty.

    Raises:
        UnsupportedError: It is of another version, has a kind of node that is not known, or is nested too deep.
        ValueError: It is no such JSON.
    """
    try:
        protocol, root = json.loads(text)
    except (TypeError, RecursionError) as error:
        raise ValueError("it is not a pair of a version and a node") from error
    if protocol != _PROTOCOL:
        raise UnsupportedError(f"it is of version {protocol!r:.40}")
    return [".".join(path) for path in _leaves(root, ())]


def _leaves(node: Any, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    if len(path) > _DEPTH:
        raise UnsupportedError(f"it is nested more than {_DEPTH} deep")
    kind, children = (node.get("type"), node.get("children_spec")) if isinstance(node, dict) else (None, None)
    if not isinstance(children, list):
        raise ValueError("a node has no children_spec")  # noqa: TRY004 # what is wrong is the file
    if kind is None:
        if children:
            raise ValueError("a leaf has children")
        yield path
    elif kind in _KEYED:
        keys = _keys(node.get("context"), kind)
        if len(keys) != len(children):
            raise ValueError(f"a dictionary of {len(keys)} keys has {len(children)} values")
        for key, child in zip(keys, children, strict=True):
            yield from _leaves(child, (*path, key))
    elif kind in _NUMBERED:
        for position, child in enumerate(children):
            yield from _leaves(child, (*path, str(position)))
    else:
        raise UnsupportedError(f"a node is a {kind!r:.80}")


def _keys(context: Any, kind: str) -> list[str]:
    if kind == "collections.defaultdict" and isinstance(context, dict):
        keys = context.get("dict_context")
    else:
        keys = json.loads(context) if isinstance(context, str) else None
    if not isinstance(keys, list) or not all(type(key) in (str, int) for key in keys):
        raise ValueError("the keys of a dictionary are not a list of texts and integers")
    return [str(key) for key in keys]
