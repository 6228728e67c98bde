"""Every drill, in a form that takes seconds; and what fuzzing found before."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

SHORT = {
    "accounts": ("accounts", "--only", "links,page", "--rounds", "2"),
    "crash_points, killed": ("crash_points", "--only", "append", "--how", "killed before"),
    "crash_points, refused": ("crash_points", "--only", "merge", "--how", "ENOSPC"),
    "damage": ("damage", "--only", "tar: dataset"),
    "fuzz": ("fuzz", "--minutes", "0.3"),
    "haul": ("haul", "--epochs", "4", "--batches", "500", "--methods", "fork"),
    "kills, writers": ("kills", "--writers", "1", "--trainings", "0"),
    "kills, training": ("kills", "--writers", "0", "--trainings", "1"),
    "limits": ("limits", "--only", "long_names"),
    "outages": ("outages", "--only", "deleted"),
    "even_costs": ("even_costs", "--clips", "30000", "--ranks", "4", "--budgets", "120"),
    "pack_documents": (
        "pack_documents",
        *("--documents", "20000", "--longest", "300000", "--workers", "1,2", "--killed-after", "3"),
    ),
    "soak": ("soak", "--minutes", "0.4", "--phase", "5"),
}


def python(folder: Path, *arguments: str) -> str:
    """What a module of the drills prints, which has to end well."""
    paths = f"{ROOT / 'tools'}:{ROOT}"
    environment = os.environ | {"PYTHONPATH": paths, "PYTHONWARNINGS": "ignore", "TMPDIR": str(folder)}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    return done.stdout


@pytest.mark.full
@pytest.mark.parametrize("name", SHORT)
def test_a_short_drill(name: str, tmp_path: Path) -> None:
    drill, *arguments = SHORT[name]
    if drill == "accounts":
        if subprocess.run(["unshare", "-m", "true"], check=False).returncode:
            pytest.skip("only root can be two accounts")
        with tempfile.TemporaryDirectory() as folder:  # others may not look into those of pytest
            Path(folder).chmod(0o755)
            assert python(tmp_path, "-m", f"drills.{drill}", f"{folder}/work", *arguments)
        return
    assert python(tmp_path, "-m", f"drills.{drill}", str(tmp_path / "work"), *arguments)


def test_mutants_change_text_that_is_there() -> None:
    mutants = tomllib.loads((ROOT / "tools/drills/mutants.toml").read_text())["mutant"]
    gone = [one for one in mutants if _count(one) <= one.get("nth", 0)]
    assert not gone


def _count(mutant: dict[str, str]) -> int:
    path = ROOT / "shardstream" / mutant["file"]
    return path.read_text().count(mutant["old"]) if path.exists() else 0


@pytest.mark.full
def test_what_fuzzing_found_is_refused_now(tmp_path: Path) -> None:
    code = "import sys\nfrom pathlib import Path\nfrom drills.fuzz import replay\nprint(replay(Path(sys.argv[1])))"
    assert python(tmp_path, "-c", code, str(tmp_path)) == "[]\n"
