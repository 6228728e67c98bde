"""What `shardstream.testing` needs: no pytest, and nothing before it is used."""

from __future__ import annotations

import subprocess
import sys
import unittest

import pytest

import shardstream as ss
from shardstream import testing
from shardstream.extras import install_command


def run(code: str, folder) -> str:
    """What a new interpreter prints that finds none of the modules in ``missing``."""
    blocking = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in missing:
            raise ImportError(f"{name} is not installed here")

sys.meta_path.insert(0, Blocked())
"""
    done = subprocess.run(
        [sys.executable, "-c", f"missing = {{'pytest', '_pytest', 'hypothesis'}}\n{blocking}\n{code}"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.full
def test_all_of_it_works_without_pytest(tmp_path) -> None:
    code = """
import shardstream as ss
assert "shardstream.testing" not in sys.modules
import shardstream.testing
assert not {"numpy.testing", "torch", "shardstream.testing.memory"} & set(sys.modules)
for name in ss.testing.__all__:
    assert getattr(shardstream.testing, name).__name__ == name

class Memory(ss.testing.StoreConformance):
    def make_store(self):
        self.made = ss.testing.MemoryStore()
        return self.made
    def plant(self, path, data):
        self.made.plant(path, data)
    def dig(self, path):
        return self.made.dig(path)

Memory().test_delete()
print(ss.Manifest.load(ss.testing.make_dataset("made", fields={"cls": "int8"}, samples=5)).samples)
"""
    assert run(code, tmp_path) == "5\n"


def test_an_encoder_that_is_missing_is_named(tmp_path) -> None:
    code = """
missing |= {"PIL", "simplejpeg"}
import shardstream as ss
for kind in ("jpg", "png"):
    try:
        ss.testing.make_dataset(kind, fields={"x": kind}, samples=1)
    except ss.errors.MissingExtraError as error:
        print(error)
"""
    said = run(code, tmp_path)
    assert said.count(install_command("pillow")) == 2
    assert "'PIL' is needed" in said


def test_unittest_runs_them_too() -> None:
    class TestMine(ss.testing.SourceConformance, unittest.TestCase):
        def make_source(self):
            return [{"__key__": str(number), "id": number} for number in range(5)]

    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(TestMine).run(result)
    assert result.wasSuccessful(), result.errors + result.failures
    assert result.testsRun > 5
    assert len(result.skipped) == 2


def test_names_are_found_and_others_are_not() -> None:
    assert set(testing.__all__) <= set(dir(testing))
    assert ss.testing is testing
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        testing.nothing  # noqa: B018 - the access is what is tested
