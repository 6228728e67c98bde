"""The process of one part: ``python -m gpu.child PART SETTING FILE``. Each row is a line of the file as it comes."""

from __future__ import annotations

import importlib
import json
import sys
import traceback
from pathlib import Path
from typing import Any

import torch

from gpu.setting import NeedsCuda, Setting


def main() -> int:
    """Run the part; 1 when it broke."""
    part, setting, path = sys.argv[1:]
    machine = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    with Path(path).open("w") as file:

        def put(line: dict[str, Any]) -> None:
            file.write(json.dumps(line) + "\n")
            file.flush()

        put({"machine": f"{machine}, torch {torch.__version__}"})
        try:
            for row in importlib.import_module(f"gpu.parts.{part}").run(Setting(**json.loads(setting))):
                put(row._asdict())
        except NeedsCuda as reason:
            put({"what": "left out", "found": str(reason), "aim": "", "failed": False})
            put({"ended": "left out"})
        except Exception as error:  # told in the report
            traceback.print_exc()
            put({"ended": f"{type(error).__name__}: {error}"})
            return 1
        else:
            put({"ended": "passed"})
    return 0


if __name__ == "__main__":
    sys.exit(main())
