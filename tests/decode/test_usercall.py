from __future__ import annotations

import functools
import pickle
import random

import numpy as np
import pytest
import torch

from shardstream.decode import UserCall, global_states_kept
from shardstream.errors import DecodeError, TransformError, UsageError

PLACE = {"seed": 1, "epoch": 2, "position": 3}


def from_all_globals(value):
    return [random.random(), random.gauss(0, 1), np.random.rand(), np.random.randn(), torch.rand(()).item()]


def with_both(value, *, rng, generator=None):
    return [rng.random(), torch.rand((), generator=generator).item()]


class Drawing:
    def __call__(self, value, generator):
        return torch.randint(1 << 60, (), generator=generator).item()


class Module(torch.nn.Module):
    def forward(self, value, rng=None):
        return rng.random()


def global_states():
    numpy = np.random.get_state()
    return random.getstate(), numpy[0], numpy[1].tolist(), numpy[2:], torch.get_rng_state().tolist()


@pytest.fixture(params=[False, True], ids=["fresh", "with half a pair of normals"])
def disturbed(request):
    """Global states in the middle of things, as a user's script has them."""
    before = global_states()
    np_state = np.random.get_state()
    random.seed(11)
    np.random.seed(12)
    torch.manual_seed(13)
    np.random.rand(700)
    if request.param:
        random.gauss(0, 1)
        np.random.randn()
    yield
    random.setstate(before[0])
    np.random.set_state(np_state)


CALLS = [from_all_globals, with_both, Drawing(), Module(), functools.partial(with_both)]


@pytest.mark.parametrize("function", CALLS)
def test_same_key_same_draws_and_untouched_states(function, disturbed):
    call = UserCall(function)
    before = global_states()
    first = call("x", **PLACE)
    assert global_states() == before
    expected = [np.random.randn(), random.gauss(0, 1), torch.rand(()).item()]
    again = [call("x", **PLACE), call("x", **{**PLACE, "position": 4}), call("x", **PLACE)]
    assert first == again[0] == again[2]
    others = [call("x", **{**PLACE, name: 9}) for name in PLACE] + [UserCall(function, "batch_transform")("x", **PLACE)]
    assert all(other != first for other in others)
    assert len(expected) == 3


def test_the_users_own_stream_is_not_seen_by_calls(disturbed):
    call = UserCall(from_all_globals)
    random.seed(5)
    first = call(None, **PLACE)
    random.seed(6)
    assert call(None, **PLACE) == first

    def own(_):
        return [random.random(), np.random.rand(), torch.rand(()).item()]

    random.seed(5)
    np.random.seed(5)
    torch.manual_seed(5)
    without = own(None), own(None)
    random.seed(5)
    np.random.seed(5)
    torch.manual_seed(5)
    one = own(None)
    call(None, **PLACE)
    assert (one, own(None)) == without


def test_kept_once_around_many_calls(disturbed):
    call = UserCall(from_all_globals)
    assert call.uses_global_states
    alone = [call(None, seed=0, epoch=0, position=n) for n in range(5)]
    before = global_states()
    with global_states_kept():
        together = [call(None, seed=0, epoch=0, position=n) for n in range(5)]
    assert together == alone
    assert global_states() == before


def test_states_survive_exceptions(disturbed):
    def fails(_):
        np.random.seed(0)
        raise KeyError("gone")

    before = global_states()
    with pytest.raises(TransformError):
        UserCall(fails)(None, **PLACE)
    assert global_states() == before
    with pytest.raises(ZeroDivisionError), global_states_kept():
        raise ZeroDivisionError
    assert global_states() == before
    assert UserCall(from_all_globals)(None, **PLACE) == UserCall(from_all_globals)(None, **PLACE)


def test_callables_may_seed_for_themselves(disturbed):
    def seeds(_):
        random.seed(1)
        np.random.seed(1)
        torch.manual_seed(1)
        return np.random.rand()

    before = global_states()
    UserCall(seeds)(None, **PLACE)
    assert global_states() == before


def test_other_bit_generators_are_kept_too():
    old = np.random.get_bit_generator()
    try:
        np.random.set_bit_generator(np.random.PCG64(3))
        UserCall(from_all_globals)(None, **PLACE)
        drawn = np.random.rand()
        np.random.set_bit_generator(np.random.PCG64(3))
        assert np.random.rand() == drawn
    finally:
        np.random.set_bit_generator(old)


def test_who_gets_a_generator():
    assert not UserCall(with_both).uses_global_states
    assert not UserCall(Drawing()).uses_global_states
    assert not UserCall(Module()).uses_global_states
    assert UserCall(lambda rng: rng).uses_global_states, "the first parameter is the value"
    assert UserCall(lambda value, **rng: rng).uses_global_states
    assert UserCall(np.negative).uses_global_states
    mine = np.random.default_rng(0)
    bound = UserCall(functools.partial(lambda value, rng: rng, rng=mine))
    assert bound("x", **PLACE) is mine


def test_generators_are_of_the_right_kinds_and_new_each_time():
    kept = []

    def keep(value, rng, generator):
        kept.append((rng, generator))

    call = UserCall(keep)
    call(None, **PLACE)
    call(None, **PLACE)
    (rng, generator), (rng2, generator2) = kept
    assert isinstance(rng, np.random.Generator)
    assert isinstance(generator, torch.Generator)
    assert rng is not rng2
    assert generator is not generator2
    assert rng.random() == rng2.random()


def test_errors_name_the_sample_and_the_callable():
    def broken_crop(value):
        raise ValueError("crop is larger than the image")

    call = UserCall(broken_crop, what="transform")
    with pytest.raises(TransformError) as caught:
        call(None, **PLACE, key="n01/7", shard="00003.tar", sample=12)
    text = str(caught.value)
    assert "transform (" in text
    assert "broken_crop) raised ValueError: crop is larger than the image" in text
    assert caught.value.place == {"shard": "00003.tar", "sample": 12, "key": "n01/7"}
    assert isinstance(caught.value.__cause__, ValueError)
    assert pickle.loads(pickle.dumps(caught.value)).place == caught.value.place

    def ours(value):
        raise DecodeError("as it is")

    with pytest.raises(DecodeError, match="as it is"):
        UserCall(ours)(None, **PLACE)

    def stops(value):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        UserCall(stops)(None, **PLACE)
    with pytest.raises(UsageError, match="not callable"):
        UserCall(3)  # type: ignore[arg-type]


def test_pickles_where_the_callable_does():
    for function in (from_all_globals, with_both, Drawing(), functools.partial(with_both)):
        copy = pickle.loads(pickle.dumps(UserCall(function, "fields['x']")))
        assert copy(None, **PLACE) == UserCall(function, "fields['x']")(None, **PLACE)
    with pytest.raises((pickle.PicklingError, AttributeError)):
        pickle.dumps(UserCall(lambda value: value))


# ------------------------------------------------------------------------------------------------------ Albumentations


@pytest.fixture
def albumentations():
    """Imported by the test that needs it: it takes as long as torch."""
    return pytest.importorskip("albumentations", reason="the peer Albumentations is not installed")


@pytest.fixture
def flips(albumentations):
    return albumentations.Compose([albumentations.HorizontalFlip(p=0.5), albumentations.VerticalFlip(p=0.5)])


def test_albumentations_of_a_value(flips, disturbed):
    image = np.random.default_rng(0).integers(0, 256, (8, 9, 3), np.uint8)
    call = UserCall(flips, what="fields['jpg']")
    assert not call.uses_global_states
    before = global_states()
    results = [call(image, seed=0, epoch=0, position=n) for n in range(80)]
    assert global_states() == before
    again = [call(image, seed=0, epoch=0, position=n) for n in reversed(range(80))][::-1]
    assert all(np.array_equal(a, b) for a, b in zip(results, again, strict=True))
    kinds = [
        next(
            i
            for i, each in enumerate((image, image[::-1], image[:, ::-1], image[::-1, ::-1]))
            if np.array_equal(r, each)
        )
        for r in results
    ]
    assert min(np.bincount(kinds, minlength=4)) >= 5, "the transforms of one pipeline must draw independently"


def test_a_single_albumentations_transform(albumentations):
    image = np.random.default_rng(0).integers(0, 256, (40, 40, 3), np.uint8)
    call = UserCall(albumentations.RandomCrop(8, 8))
    results = [call(image, seed=0, epoch=0, position=n) for n in range(10)]
    assert all(result.shape == (8, 8, 3) for result in results)
    assert len({result.tobytes() for result in results}) > 5


@pytest.mark.parametrize("name", ["image", "jpg"])
def test_albumentations_of_a_sample(flips, name):
    image = np.random.default_rng(0).integers(0, 256, (8, 9, 3), np.uint8)
    sample = {"__key__": "a", name: image, "mask": image[..., 0].copy(), "cls": 3}
    call = UserCall(flips)
    for position in range(10):
        result = call(sample, seed=0, epoch=0, position=position)
        assert list(result) == list(sample)
        assert result["cls"] == 3
        assert np.array_equal(result[name][..., 0], result["mask"])
    assert np.array_equal(sample[name], image)
    with pytest.raises(UsageError, match="needs an image, and none is in 'cls'"):
        call({"cls": 3}, **PLACE)


def test_albumentations_boxes_and_additional_targets(albumentations):
    transform = albumentations.Compose(
        [albumentations.HorizontalFlip(p=1)],
        bbox_params=albumentations.BboxParams(format="pascal_voc", label_fields=["labels"]),
        additional_targets={"depth": "image"},
    )
    image = np.random.default_rng(0).integers(0, 256, (10, 20, 3), np.uint8)
    sample = {"jpg": image, "depth": image[::-1].copy(), "bboxes": [[1, 2, 5, 6]], "labels": [4], "id": 9}
    result = UserCall(transform)(sample, **PLACE)
    assert np.array_equal(result["depth"], image[::-1, ::-1])
    assert np.allclose(result["bboxes"], [[15, 2, 19, 6]], atol=1e-3)
    assert list(result["labels"]) == [4]
    assert result["id"] == 9


def test_older_albumentations_are_seeded(albumentations, flips):
    class Older(albumentations.HorizontalFlip):
        set_random_state = property()  # as if it did not exist

        def __init__(self):
            super().__init__(p=0.5)
            self.seeds = []

        def set_random_seed(self, seed):
            if hasattr(self, "seeds"):
                self.seeds.append(seed)
            super().set_random_seed(seed)

    transform = Older()
    call = UserCall(transform)
    image = np.zeros((4, 4, 3), np.uint8)
    for position in (1, 2, 1):
        call(image, seed=0, epoch=0, position=position)
    assert transform.seeds[0] == transform.seeds[2] != transform.seeds[1]
