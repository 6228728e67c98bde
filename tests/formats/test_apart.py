"""Packages in processes of their own: what crashes, hangs or is missing there is an error here that names the file."""

import os

import pytest

from shardstream.errors import FormatError, MissingExtraError, StorageError
from shardstream.extras import install_command
from shardstream.formats.isolated import host
from shardstream.formats.isolated.host import Program

ANSWERS = "tests.formats.answering"


@pytest.fixture
def program():
    made = Program(ANSWERS, "the library", "zarr", patience=20.0)
    yield made
    for child in made._idle:
        child.kill()


def test_it_answers_and_is_kept(program):
    first = list(program.ask({"do": "print", "ask": 3}, "u", lambda number: number * 2))
    assert first[:3] == [0, 2, 4]
    (second,) = program.ask({"do": "", "bytes": 5 << 20}, "u")
    assert second == [first[3][0], bytes(5 << 20)]


@pytest.mark.parametrize(
    ("what", "match"),
    [
        ("crash", "the library crashed \\(SIGSEGV\\) over it"),
        ("refuse", "not this one"),
        ("fail", "RuntimeError: whatever"),
        ("memory", "MemoryError"),
    ],
)
def test_what_goes_wrong_is_an_error_and_the_next_one_is_answered(what, match):
    program = Program(ANSWERS, "the library", "zarr", memory=1 << 30)
    with pytest.raises(FormatError, match=match) as caught:
        list(program.ask({"do": what}, "file:///a.h5"))
    assert caught.value.place["url"] == "file:///a.h5"
    assert caught.value.place.get("offset") == (7 if what == "refuse" else None)
    assert len(list(program.ask({"do": ""}, "u"))) == 1


def test_what_hangs_is_ended():
    program = Program(ANSWERS, "the library", "zarr", patience=1.0)
    with pytest.raises(FormatError, match="said nothing for 1 s"):
        list(program.ask({"do": "hang"}, "u"))


def test_what_is_missing_is_named(program):
    with pytest.raises(MissingExtraError, match="'no_such_package'") as caught:
        list(program.ask({"do": "lack"}, "u"))
    assert caught.value.hint == install_command("zarr")


def test_an_error_of_the_host_ends_the_process(program):
    def fail(question):
        raise StorageError("gone")

    with pytest.raises(StorageError, match="gone"):
        list(program.ask({"do": "", "ask": 1}, "u", fail))
    assert not program._idle
    stopped = program.ask({"do": "", "ask": 9}, "u", lambda number: number)
    assert next(stopped) == 0
    stopped.close()
    assert not program._idle


def test_old_ones_and_those_of_a_parent_are_not_asked(program, monkeypatch):
    ((first, _),) = program.ask({"do": ""}, "u")
    monkeypatch.setattr(host, "_KEPT_S", 0.0)
    ((second, _),) = program.ask({"do": ""}, "u")
    assert first != second
    if not (child := os.fork()):
        taken = program._idle[0]
        os._exit(0 if not taken.fresh and taken.kill() is None else 1)
    assert os.waitpid(child, 0)[1] == 0
    monkeypatch.undo()
    assert next(iter(program.ask({"do": ""}, "u")))[0] == second
