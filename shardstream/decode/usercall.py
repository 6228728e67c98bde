"""A user's callable, called so that the same sample gives the same result in any worker.

What it draws is keyed by (seed, epoch, position), and the user's own random states stay as they were:

* a parameter named ``generator`` gets a new ``torch.Generator``, one named ``rng`` a new ``numpy.random.Generator``;
* an Albumentations transform is recognised (without importing the package) and called by keywords. One pair of keyed
  generators is given to the whole pipeline by its ``set_random_state``; ``set_random_seed`` is used only where that
  is missing, since it starts every transform of a pipeline with the *same* numbers (then a horizontal and a vertical
  flip always come together);
* for any other callable the global states of ``random``, ``numpy.random`` and torch's CPU generator are saved, seeded
  from the key, and restored after the call. The seeding takes 8 µs a call, saving and restoring 70: a worker does the
  latter once a batch with `global_states_kept`.

The states are global, so callables of one process must not run in several threads at once.
"""

from __future__ import annotations

import hashlib
import inspect
import random
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from numpy.random.mtrand import get_bit_generator, set_bit_generator

from shardstream.decode.context import SampleContext
from shardstream.errors import ShardStreamError, TransformError, UsageError
from shardstream.rng import Domain, words

_Style: TypeAlias = Literal["keyword", "albumentations", "plain"]
_KEYWORDS = ("generator", "rng")
# What Albumentations knows by name, besides a Compose's own additional targets.
_TARGETS = ("image", "images", "mask", "masks", "bboxes", "keypoints", "volume", "volumes", "mask3d", "masks3d")
_TORCH_SEED = (1 << 63) - 1


def stream_of(name: str) -> int:
    """The random stream of whatever is called ``name``: so adding another changes none of the others."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")


class UserCall:
    """A callable of a user with its random numbers and its errors in order. Pickles where the callable does.

    Args:
        function: The callable: of one value for ``what="fields['jpg']"``, of a sample or batch dict for transforms.
        what: What it is to the user, for messages; callables of different ``what`` draw independently.

    Raises:
        UsageError: Not callable.

        >>> call = UserCall(lambda value, rng: value + rng.random(), what="transform")
        >>> call(3, seed=0, epoch=0, position=17) == call(3, seed=0, epoch=0, position=17)
        True
    """

    def __init__(self, function: Callable[..., Any], what: str = "transform") -> None:
        if not callable(function):
            raise UsageError(f"{what}: {function!r} is not callable", hint="give a function or an object with __call__")
        self.function = function
        self.what = what
        self._stream = stream_of(what)
        self._keywords = _random_keywords(function)
        self._style: _Style = "plain"
        if _is_albumentations(function):
            self._style = "albumentations"
        elif self._keywords:
            self._style = "keyword"

    def __repr__(self) -> str:
        return f"UserCall({_name(self.function)}, what={self.what!r})"

    @property
    def uses_global_states(self) -> bool:
        """Whether calls seed the global generators, so that `global_states_kept` around many of them pays."""
        return self._style == "plain"

    def __call__(self, value: Any, *, seed: int, epoch: int, position: int, **place: str | int) -> Any:
        """Call it for the sample at ``position``.

        Args:
            value: The argument: a value, a sample or a batch.
            seed: Of the data set.
            epoch: Of the data set.
            position: Of the sample, or of the first one of a batch.
            place: Where the sample is, for messages: parts of the place of a `ShardStreamError`.

        Raises:
            TransformError: The callable raised; its exception is the cause. Errors of this package pass through.
        """
        drawn: list[int] = words(
            4, seed=seed, domain=Domain.TRANSFORM, epoch=epoch, a=position, b=self._stream
        ).tolist()
        try:
            if self._style == "plain":
                with global_states_kept():
                    _seed_globals(drawn)
                    return self.function(value)
            if self._style == "keyword":
                return self.function(value, **{name: _generator(name, drawn) for name in self._keywords})
            return _call_albumentations(self.function, value, drawn)
        except ShardStreamError:
            raise
        except Exception as error:  # whatever a user's code raises gets its place, with the original chained
            raise TransformError(
                f"{self.what} ({_name(self.function)}) raised {type(error).__name__}: {error}",
                hint="the traceback shows the line in your code",
                **place,
            ) from error

    def on_sample(self, value: Any, context: SampleContext) -> Any:
        """Call it with the sample itself, or with a value of it."""
        return self(value, seed=context.seed, epoch=context.epoch, position=context.position, **context.place)


def is_output_name(name: object) -> bool:
    """Whether this can name an output: names that begin with ``__`` are this package's own."""
    return isinstance(name, str) and bool(name) and not name.startswith("__")


@dataclass(frozen=True, slots=True)
class Names:
    """A step between transforms of samples that keeps some of their entries, under other names; it draws nothing.

    Attributes:
        new: Entries to keep, each with its new name.
        rest: Whether all others are kept as well. What is called ``__...__`` always is.
    """

    new: tuple[tuple[str, str], ...]
    rest: bool

    def on_sample(self, sample: Any, context: SampleContext) -> Any:
        """The sample with these entries; UsageError where it has no such entry, or is not a dict."""
        new = dict(self.new)
        lacking = next((name for name in new if not isinstance(sample, dict) or name not in sample), None)
        if lacking is not None:
            got = f"there are {', '.join(sample)}" if isinstance(sample, dict) else f"it is {type(sample).__name__}"
            what = f"a sample after a transform has no {lacking!r} to select or rename"
            raise UsageError(what, **context.place, field=lacking, hint=got)
        kept = [name for name in sample if self.rest or name in new or str(name).startswith("__")]
        named = {new.get(name, name): sample[name] for name in kept}
        if len(named) < len(kept):
            later = [new.get(name, name) for name in kept]
            twice = next(name for name in later if later.count(name) > 1)
            hint = "give each its own, or leave one out by select"
            raise UsageError(f"two entries would have the name {twice!r}", **context.place, field=twice, hint=hint)
        return named


def names_behind(functions: Sequence[Any], names: Iterable[str]) -> dict[str, str]:
    """The names that outputs have behind the callables and `Names` of a user, without those that are left out."""
    found = {name: name for name in names}
    for one in functions:
        if isinstance(one, Names):
            new = dict(one.new)
            found = {name: new.get(now, now) for name, now in found.items() if one.rest or now in new}
    return found


class SampleCalls:
    """Several callables of samples, called in turn, until one returns ``None``. As of `UserCall`."""

    def __init__(self, calls: Sequence[UserCall | Names | SampleCalls]) -> None:
        self._calls = calls

    @property
    def uses_global_states(self) -> bool:
        """Whether any of them does."""
        return any(not isinstance(call, Names) and call.uses_global_states for call in self._calls)

    def on_sample(self, value: Any, context: SampleContext) -> Any:
        """Call them with the sample, and with what the one before returned."""
        for call in self._calls:
            if value is None:
                break
            value = call.on_sample(value, context)
        return value


def sample_call(functions: Sequence[Any]) -> UserCall | SampleCalls | None:
    """What is called for each sample, of the callables and `Names` that a user has given one after another.

    The first draws as the only one would, each of the others from a stream of its own.
    """
    whats = ["transform", *(f"transform[{number}]" for number in range(1, len(functions)))]
    calls = [
        one if isinstance(one, Names) else UserCall(one, what) for one, what in zip(functions, whats, strict=False)
    ]
    if len(calls) == 1 and isinstance(calls[0], UserCall):
        return calls[0]
    return SampleCalls(calls) if calls else None


def _name(function: Any) -> str:
    name = getattr(function, "__qualname__", None)
    return name if isinstance(name, str) else type(function).__qualname__


def _random_keywords(function: Callable[..., Any]) -> tuple[str, ...]:
    """Which of the parameters ``generator`` and ``rng`` it has, not counting those a ``partial`` has given already."""
    bound = getattr(function, "keywords", None)
    given = bound if isinstance(bound, Mapping) else {}
    # A torch module's own __call__ takes anything; what it really takes is in forward.
    target = function.forward if isinstance(function, torch.nn.Module) else function
    try:
        parameters = inspect.signature(target).parameters
    except (ValueError, TypeError):  # builtins without a signature
        return ()
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    names = (name for name in _KEYWORDS if name in parameters and parameters[name].kind in by_name)
    return tuple(name for name in names if name not in given and name != next(iter(parameters)))


def _generator(name: str, drawn: list[int]) -> torch.Generator | np.random.Generator:
    if name == "generator":
        return torch.Generator().manual_seed(drawn[0] & _TORCH_SEED)
    return np.random.Generator(np.random.Philox(key=drawn[1] << 64 | drawn[2]))


# ------------------------------------------------------------------------------------------------------ global states

_depth = 0


@contextmanager
def global_states_kept() -> Iterator[None]:
    """Leave the global random states afterwards as they were: ``random``, ``numpy.random``, torch's CPU generator.

    Nested uses cost nothing; a worker wraps the making of a whole batch in one.

    Example:
        >>> before = torch.get_rng_state()
        >>> with global_states_kept():
        ...     inside = torch.rand(3)
        >>> torch.equal(before, torch.get_rng_state())
        True
    """
    global _depth
    if _depth:
        yield
        return
    python = random.getstate()
    # numpy copies the state of its Mersenne twister number by number (50 µs), so ours is put in its place instead. That
    # loses the second half of a pair of normals, if one is waiting: then the state is set as a whole.
    numpy_bits = get_bit_generator()
    numpy_state = np.random.get_state(legacy=False)  # noqa: NPY002 - the global state is what is kept
    torch_state = torch.default_generator.get_state()
    _depth += 1
    try:
        set_bit_generator(_own_twister())
        yield
    finally:
        _depth -= 1
        set_bit_generator(numpy_bits)
        if numpy_state["has_gauss"]:
            np.random.set_state(numpy_state)  # noqa: NPY002 - as above
        random.setstate(python)
        torch.default_generator.set_state(torch_state)


@cache
def _own_twister() -> np.random.MT19937:
    return np.random.MT19937(0)


def _seed_globals(drawn: list[int]) -> None:
    random.seed(drawn[0])
    np.random.seed(drawn[1] >> 32)  # noqa: NPY002 - users' code draws from it
    torch.default_generator.manual_seed(drawn[2] & _TORCH_SEED)


# ------------------------------------------------------------------------------------------------------ Albumentations


def _is_albumentations(function: object) -> bool:
    """Whether this is a transform of Albumentations (or AlbumentationsX, which has the same module name)."""
    if "albumentations" not in sys.modules:
        return False
    return any(
        kind.__module__.split(".", 1)[0] == "albumentations" and kind.__name__ in ("BaseCompose", "BasicTransform")
        for kind in type(function).__mro__
    )


def _call_albumentations(transform: Any, value: Any, drawn: list[int]) -> Any:
    if hasattr(transform, "set_random_state"):
        numbers = np.random.Generator(np.random.Philox(key=drawn[1] << 64 | drawn[2]))
        transform.set_random_state(numbers, random.Random(drawn[0]))  # noqa: S311 - augmentation, no secret
    else:
        transform.set_random_seed(drawn[0] >> 32)
    if not isinstance(value, dict):
        return transform(image=value)["image"]
    return _transform_sample(transform, value)


def _transform_sample(transform: Any, sample: dict[str, Any]) -> dict[str, Any]:
    """A sample dict through Albumentations: what it knows by name is passed by name, and replaced in a copy.

    The image is ``sample["image"]``, or else the first uint8 (H, W, 3) array, whatever its name. Passed too, where
    they are there: mask(s), bboxes, keypoints, the names in ``additional_targets``, and the ``label_fields`` of box
    and keypoint parameters. Everything else stays as it is.
    """
    names = {name: name for name in (*_TARGETS, *_extra_targets(transform)) if name in sample}
    if "image" not in names:
        names["image"] = _first_image(sample)
    result = transform(**{target: sample[name] for target, name in names.items()})
    return {**sample, **{name: result[target] for target, name in names.items() if target in result}}


def _extra_targets(transform: Any) -> list[str]:
    extra = list(getattr(transform, "additional_targets", None) or ())
    for processor in (getattr(transform, "processors", None) or {}).values():
        extra += getattr(processor.params, "label_fields", None) or ()
    return extra


def _first_image(sample: dict[str, Any]) -> str:
    for name, value in sample.items():
        if isinstance(value, np.ndarray) and value.dtype == np.uint8 and value.ndim == 3 and value.shape[2] == 3:
            return name
    raise UsageError(
        "an Albumentations transform of samples needs an image, and none is in " + ", ".join(map(repr, sample)),
        hint="decode a field as an image, or give the transform in fields={'jpg': [Image(), transform]}",
    )
