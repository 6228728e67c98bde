"""What a pickle says, without unpickling it: plain values, and where bytes, text and numpy arrays lie in it.

An interpreter of the opcodes that plain values and arrays need, of protocols 2 to 5. Nothing is called and nothing is
imported: a global is two words, and a call is understood only where these words and its arguments are those that
numpy, or Python for its bytes, writes. All else is refused, by the name of the global or opcode that it asks for.

https://docs.python.org/3/library/pickletools.html
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from shardstream.formats.lmdb.values import (
    Blob,
    EndsEarly,
    Found,
    NotUnderstood,
    StoredArray,
    array_of,
    dtype_of,
    scalar_of,
)

_PROTOCOLS = (2, 3, 4, 5)
_MEMOIZE, _STOP = 0x94, ord(".")
_LARGEST_INT = 9  # bytes: what 64 bits hold, and a sign
_MOST = 1 << 26  # opcodes: a list of 2**25 keys
# Opcodes that are refused, as pickletools calls them.
_REFUSED = dict(
    zip(
        b"PQio\x81\x92\x82\x83\x84\x97\x98\x8f\x90\x91012ILSVFgpdl",
        (
            *("PERSID", "BINPERSID", "INST", "OBJ", "NEWOBJ", "NEWOBJ_EX", "EXT1", "EXT2", "EXT4", "NEXT_BUFFER"),
            *("READONLY_BUFFER", "EMPTY_SET", "ADDITEMS", "FROZENSET", "POP", "POP_MARK", "DUP", "INT", "LONG"),
            *("STRING", "UNICODE", "FLOAT", "GET", "PUT", "DICT", "LIST"),
        ),
        strict=True,
    )
)
# What the globals that are understood are called here.
_GLOBALS = {
    ("numpy", "ndarray"): "ndarray",
    ("numpy", "dtype"): "dtype",
    ("numpy.core.multiarray", "_reconstruct"): "reconstruct",
    ("numpy._core.multiarray", "_reconstruct"): "reconstruct",
    ("numpy.core.multiarray", "scalar"): "scalar",
    ("numpy._core.multiarray", "scalar"): "scalar",
    ("numpy.core.numeric", "_frombuffer"): "frombuffer",
    ("numpy._core.numeric", "_frombuffer"): "frombuffer",
    ("_codecs", "encode"): "encode",
    ("builtins", "bytearray"): "bytearray",
    ("__builtin__", "bytearray"): "bytearray",
    ("__builtin__", "bytes"): "bytes",
}


class _Word:
    """A global: a word that calls are told by."""

    __slots__ = ("meaning", "name")

    def __init__(self, name: str, meaning: str) -> None:
        self.name = name
        self.meaning = meaning


_WORDS = {names: _Word(".".join(names), meaning) for names, meaning in _GLOBALS.items()}


class _Dtype:
    """A dtype: its code, then its byte order."""

    __slots__ = ("code", "order")

    def __init__(self, code: str) -> None:
        self.code = code
        self.order: str | None = "|" if code.endswith("1") else None

    def numpy(self, at: int) -> np.dtype[Any]:
        return dtype_of(self.code, self.order or "<", at)


class _Draft:
    """An array whose state comes later."""

    __slots__ = ("array",)

    def __init__(self) -> None:
        self.array: StoredArray | None = None


def read_pickle(data: memoryview) -> Found:
    """What a pickle says.

    Raises:
        NotUnderstood: It holds more than plain values and numpy arrays of plain elements, or is damaged.
    """
    return _Machine(data).run()


def read_names(data: memoryview) -> Any:
    """What a pickle says, with bytes and text both as bytes; raises as `read_pickle`."""
    return _Names(data).run()


def is_pickle(start: bytes | memoryview, last: bytes | memoryview) -> bool:
    """Whether a value of these first and last bytes looks like a pickle of protocol 2 to 5."""
    return len(start) >= 2 and start[0] == 0x80 and start[1] in _PROTOCOLS and bytes(last) == b"."


class _Machine:
    """A stack, marks on it, and a memo, as an unpickler has them; but nothing that it could call.

    Args:
        data: The pickle.
    """

    def __init__(self, data: memoryview) -> None:
        self.data = data
        self.pos = 0
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: list[Any] = []

    def run(self) -> Found:
        data, opcodes, stack, memo = self.data, _OPCODES, self.stack, self.memo
        if len(data) < 2 or data[0] != 0x80 or data[1] not in _PROTOCOLS:
            raise NotUnderstood("a pickle of protocol 0 or 1, or none; protocols 2 to 5 are read", 0)
        self.pos, at = 2, 2
        try:
            for _ in range(_MOST):
                at = self.pos
                opcode = data[at]
                self.pos = at + 1
                if opcode == _MEMOIZE:  # half of what there is
                    memo.append(stack[-1])
                    continue
                if opcode == _STOP:
                    return self._result(at)
                act = opcodes.get(opcode)
                if act is None:
                    name = _REFUSED.get(opcode, f"{opcode:#04x}")
                    raise NotUnderstood(f"a pickle with opcode {name}, which plain values do not need", at)
                act(self)
        except (IndexError, struct.error, TypeError, AttributeError):
            raise EndsEarly("a pickle that is damaged or cut off", at) from None
        except UnicodeError:
            raise EndsEarly("a pickle whose text is none", at) from None
        raise NotUnderstood(f"a pickle of more than {_MOST} parts", at)

    def _result(self, at: int) -> Found:
        if len(self.stack) != 1 or self.marks:
            raise EndsEarly("a pickle that ends too early", at)
        found: Found = settled(self.stack[0])
        return found

    # ------------------------------------------------------------------------------------------------- what opcodes do

    def found(self, offset: int, length: int, kind: Literal["bytes", "text"]) -> Any:
        """What stands for bytes or text."""
        return Blob(offset, length, kind)

    def take(self, length: int) -> int:
        """Where the next bytes begin, which are as many."""
        begin = self.pos
        if length > len(self.data) - begin:
            raise EndsEarly(f"{length} bytes in a pickle that has not so many left", begin)
        self.pos = begin + length
        return begin

    def size(self, width: int) -> int:
        begin = self.take(width)
        return int.from_bytes(self.data[begin : begin + width], "little")

    def pop_mark(self) -> list[Any]:
        mark = self.marks.pop()
        found = self.stack[mark:]
        del self.stack[mark:]
        return found

    def frame(self) -> None:
        length, begin = self.size(8), self.pos
        self.take(length)  # a pickle has what it announces, or is cut off
        self.pos = begin

    def protocol(self) -> None:
        raise NotUnderstood("a pickle inside of a pickle", self.pos - 1)

    def integer(self, width: int) -> None:
        length = self.size(width)
        if length > _LARGEST_INT:
            raise NotUnderstood(f"an integer of {length} bytes", self.pos)
        begin = self.take(length)
        self.stack.append(int.from_bytes(self.data[begin : begin + length], "little", signed=True))

    def put(self, width: int) -> None:
        number = self.size(width)
        if number > len(self.memo):
            raise NotUnderstood("a memo that is not numbered in order", self.pos - width)
        self.memo[number : number + 1] = [self.stack[-1]]

    def get(self, width: int) -> None:
        self.stack.append(self.memo[self.size(width)])

    def tuple_of(self, count: int) -> None:
        if len(self.stack) < count:
            raise IndexError
        found = tuple(self.stack[-count:])
        self.stack[-count:] = [found]

    def marked_tuple(self) -> None:
        self.stack.append(tuple(self.pop_mark()))

    def append(self) -> None:
        found = self.stack.pop()
        self.extend([found])

    def appends(self) -> None:
        self.extend(self.pop_mark())

    def extend(self, items: list[Any]) -> None:
        if type(self.stack[-1]) is not list:
            raise TypeError
        self.stack[-1].extend(items)

    def set_item(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self.update([key, value])

    def set_items(self) -> None:
        self.update(self.pop_mark())

    def update(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if type(target) is not dict or len(items) % 2:
            raise TypeError
        for key, value in zip(items[::2], items[1::2], strict=True):
            target[self.name(key)] = value

    def name(self, found: Any) -> str:
        """The text of a name: a key, or part of what a global or dtype is called."""
        if isinstance(found, Blob):
            return found.text(self.data)
        if type(found) is int:
            return str(found)
        raise NotUnderstood("a key or name that is neither text nor an integer", self.pos - 1)

    def global_line(self) -> None:
        at, words = self.pos, []
        for _ in range(2):
            line = bytes(self.data[self.pos : self.pos + 256])
            end = line.index(b"\n") if b"\n" in line else None
            if end is None:
                raise EndsEarly("a global whose name does not end", at)
            words.append(line[:end].decode())
            self.pos += end + 1
        self.word(words[0], words[1], at - 1)

    def stack_global(self) -> None:
        at = self.pos - 1
        name, module = self.stack.pop(), self.stack.pop()
        self.word(self.name(module), self.name(name), at)

    def word(self, module: str, name: str, at: int) -> None:
        found = _WORDS.get((module, name))
        if found is None:
            raise NotUnderstood(f"a pickle that asks for {module[:80]}.{name[:80]}, which is not called", at)
        self.stack.append(found)

    # --------------------------------------------------------------------------- what numpy and Python's bytes write

    def reduce(self) -> None:
        at = self.pos - 1
        arguments, word = self.stack.pop(), self.stack.pop()
        if type(word) is not _Word or type(arguments) is not tuple:
            raise NotUnderstood("a pickle that calls what is not a name", at)
        understood = _CALLS.get(word.meaning)
        if understood is None:
            raise NotUnderstood(f"a pickle that calls {word.name} as numpy does not", at)
        try:
            self.stack.append(understood(self, arguments, at))
        except (TypeError, ValueError, LookupError) as error:
            if isinstance(error, NotUnderstood):
                raise
            raise NotUnderstood(f"a pickle that calls {word.name} as numpy does not", at) from None

    def called_dtype(self, arguments: tuple[Any, ...], at: int) -> _Dtype:
        code, *_ = arguments
        found = _Dtype(self.name(code))
        found.numpy(at)  # or it is refused
        return found

    def called_reconstruct(self, arguments: tuple[Any, ...], at: int) -> _Draft:
        kind, shape, _ = arguments
        if type(kind) is not _Word or kind.meaning != "ndarray" or shape != (0,):
            raise TypeError
        return _Draft()

    def called_frombuffer(self, arguments: tuple[Any, ...], at: int) -> StoredArray:
        raw, dtype, shape, order = arguments
        if type(raw) is not Blob or type(dtype) is not _Dtype:
            raise TypeError
        return array_of(dtype.numpy(at), shape, raw, self.data, {"C": False, "F": True}[self.name(order)])

    def called_scalar(self, arguments: tuple[Any, ...], at: int) -> bool | int | float:
        dtype, raw = arguments
        if type(raw) is not Blob or type(dtype) is not _Dtype:
            raise TypeError
        return scalar_of(dtype.numpy(at), raw, self.data)

    def called_encode(self, arguments: tuple[Any, ...], at: int) -> Any:
        text, codec = arguments
        if type(text) is not Blob or text.kind != "text" or self.name(codec) != "latin1":
            raise TypeError
        return Blob(text.offset, text.length, "latin1")

    def called_bytes(self, arguments: tuple[Any, ...], at: int) -> Blob:
        if not arguments:
            return Blob(at, 0, "bytes")
        (raw,) = arguments
        if type(raw) is not Blob or raw.kind == "text":
            raise TypeError
        return raw

    def build(self) -> None:
        at = self.pos - 1
        state, target = self.stack.pop(), self.stack[-1]
        if type(state) is not tuple:
            raise NotUnderstood("a pickle of a class with a state of its own", at)
        if type(target) is _Dtype and len(state) >= 5 and state[2:5] == (None, None, None):
            target.order = self.name(state[1])
            target.numpy(at)
        elif type(target) is _Draft and len(state) == 5 and type(state[2]) is _Dtype and type(state[4]) is Blob:
            target.array = array_of(state[2].numpy(at), state[1], state[4], self.data, state[3] is True)
        else:
            raise NotUnderstood("a pickle of an array of objects or records, or of a class with a state", at)


class _Names(_Machine):
    """Takes bytes and text as they are: of a list of keys, places would be larger."""

    def found(self, offset: int, length: int, kind: Literal["bytes", "text"]) -> Any:
        return bytes(self.data[offset : offset + length])

    def name(self, found: Any) -> str:
        return found.decode() if type(found) is bytes else super().name(found)

    def called_encode(self, arguments: tuple[Any, ...], at: int) -> Any:
        text, codec = arguments
        if codec != b"latin1":
            raise TypeError
        return text.decode().encode("latin1")


def settled(found: Any) -> Any:
    """A value whose arrays are whole; lists and dicts inside of others are settled when they are looked at."""
    if type(found) is _Draft:
        return found.array
    if type(found) is list or type(found) is tuple:
        return type(found)([one.array if type(one) is _Draft else one for one in found])
    if type(found) is dict:
        return {key: one.array if type(one) is _Draft else one for key, one in found.items()}
    return found


def _short(kind: Literal["bytes", "text"]) -> Callable[[_Machine], None]:
    def act(machine: _Machine) -> None:
        begin = machine.pos + 1
        length = machine.data[begin - 1]
        if length > len(machine.data) - begin:
            raise IndexError
        machine.pos = begin + length
        machine.stack.append(machine.found(begin, length, kind))

    return act


def _blob(width: int, kind: Literal["bytes", "text"]) -> Callable[[_Machine], None]:
    def act(machine: _Machine) -> None:
        length = machine.size(width)
        machine.stack.append(machine.found(machine.take(length), length, kind))

    return act


def _number(code: str) -> Callable[[_Machine], None]:
    form = struct.Struct(code)

    def act(machine: _Machine) -> None:
        machine.stack.append(form.unpack_from(machine.data, machine.pos)[0])
        machine.pos += form.size

    return act


def _push(make: Callable[[], Any]) -> Callable[[_Machine], None]:
    return lambda machine: machine.stack.append(make())


_CALLS: dict[str, Callable[[_Machine, tuple[Any, ...], int], Any]] = {
    "dtype": _Machine.called_dtype,
    "reconstruct": _Machine.called_reconstruct,
    "frombuffer": _Machine.called_frombuffer,
    "scalar": _Machine.called_scalar,
    "encode": lambda machine, arguments, at: machine.called_encode(arguments, at),
    "bytearray": _Machine.called_bytes,
    "bytes": _Machine.called_bytes,
}
_OPCODES: dict[int, Callable[[_Machine], None]] = {
    ord(code): act
    for code, act in {
        "\x80": _Machine.protocol,
        "\x95": _Machine.frame,
        "N": _push(lambda: None),
        "\x88": _push(lambda: True),
        "\x89": _push(lambda: False),
        "]": _push(list),
        "}": _push(dict),
        ")": _push(tuple),
        "K": _number("<B"),
        "M": _number("<H"),
        "J": _number("<i"),
        "G": _number(">d"),
        "\x8a": lambda machine: machine.integer(1),
        "\x8b": lambda machine: machine.integer(4),
        "\x8c": _short("text"),
        "X": _blob(4, "text"),
        "\x8d": _blob(8, "text"),
        "C": _short("bytes"),
        "B": _blob(4, "bytes"),
        "\x8e": _blob(8, "bytes"),
        "\x96": _blob(8, "bytes"),
        "U": _short("bytes"),
        "T": _blob(4, "bytes"),
        "(": lambda machine: machine.marks.append(len(machine.stack)),
        "t": _Machine.marked_tuple,
        "\x85": lambda machine: machine.tuple_of(1),
        "\x86": lambda machine: machine.tuple_of(2),
        "\x87": lambda machine: machine.tuple_of(3),
        "a": _Machine.append,
        "e": _Machine.appends,
        "s": _Machine.set_item,
        "u": _Machine.set_items,
        "q": lambda machine: machine.put(1),
        "r": lambda machine: machine.put(4),
        "h": lambda machine: machine.get(1),
        "j": lambda machine: machine.get(4),
        "c": _Machine.global_line,
        "\x93": _Machine.stack_global,
        "R": _Machine.reduce,
        "b": _Machine.build,
    }.items()
}
