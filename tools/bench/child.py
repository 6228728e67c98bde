"""The process of one contender: ``python -m bench.child MODULE:FUNCTION '{"argument": ...}'``.

Calls the function with the arguments and prints what it returns as one line of JSON, the last one on stdout.
"""

from __future__ import annotations

import importlib
import json
import sys


def main() -> None:
    """Call the function."""
    module, _, function = sys.argv[1].partition(":")
    result = getattr(importlib.import_module(module), function)(**json.loads(sys.argv[2]))
    print(json.dumps(result))


if __name__ == "__main__":
    main()
