from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shardstream import rng
from shardstream.images.geometry import (
    CROP_WORDS,
    TURNS,
    Box,
    Geometry,
    aligned_scale,
    as_stored,
    center_window,
    covering_scale,
    excerpt,
    on_grid,
    random_resized_box,
    resized_size,
    scaled_box,
    scaled_size,
    whole,
)
from shardstream.images.resize import render_labels

from ..examples import thorough

SCALE, RATIO = (0.08, 1.0), (3 / 4, 4 / 3)
sides = st.integers(1, 3000)
sizes = st.tuples(st.integers(1, 700), st.integers(1, 700))
words = st.lists(st.integers(0, 2**64 - 1), min_size=CROP_WORDS, max_size=CROP_WORDS)


def reference_params(height, width, scale, ratio, uniform, randint):
    """torchvision.transforms.RandomResizedCrop.get_params, as documented, over two sources of chance."""
    area = height * width
    log_ratio = (math.log(ratio[0]), math.log(ratio[1]))
    for _ in range(10):
        target_area = area * uniform(scale[0], scale[1])
        aspect_ratio = math.exp(uniform(log_ratio[0], log_ratio[1]))
        w = round(math.sqrt(target_area * aspect_ratio))
        h = round(math.sqrt(target_area / aspect_ratio))
        if 0 < w <= width and 0 < h <= height:
            i = randint(0, height - h + 1)
            j = randint(0, width - w + 1)
            return i, j, h, w
    in_ratio = float(width) / float(height)
    if in_ratio < min(ratio):
        w = width
        h = round(w / min(ratio))
    elif in_ratio > max(ratio):
        h = height
        w = round(h * max(ratio))
    else:
        w = width
        h = height
    return (height - h) // 2, (width - w) // 2, h, w


def scripted(drawn):
    """The reference's two sources of chance, reading our words in our layout."""
    attempts = iter(drawn[3:])
    places = iter(drawn[1:3])
    return (
        lambda low, high: low + (high - low) * (next(attempts) >> 11) * 2.0**-53,
        lambda low, high: low + ((next(places) >> 32) * (high - low) >> 32),
    )


@thorough
@given(
    sides,
    sides,
    words,
    st.sampled_from([SCALE, (0.5, 0.6), (1.0, 1.0), (0.001, 0.01)]),
    st.sampled_from([RATIO, (1.0, 1.0), (0.1, 10.0)]),
)
def test_box_equals_torchvisions_for_the_same_numbers(height, width, drawn, scale, ratio):
    box = random_resized_box((height, width), drawn, scale=scale, ratio=ratio)
    expected = reference_params(height, width, scale, ratio, *scripted(drawn))
    assert tuple(box) == (*expected[:2], max(1, expected[2]), max(1, expected[3]))
    assert 0 <= box.top <= box.top + box.height <= height
    assert 0 <= box.left <= box.left + box.width <= width


def test_distribution_is_torchvisions():
    source, n = (375, 500), 20_000
    generator = random.Random(5)
    theirs = np.array(
        [reference_params(*source, SCALE, RATIO, generator.uniform, generator.randrange) for _ in range(n)], float
    )
    raw = rng.words(n * CROP_WORDS, seed=3, domain=rng.Domain.AUGMENT).reshape(n, CROP_WORDS)
    ours = np.array([random_resized_box(source, row.tolist(), scale=SCALE, ratio=RATIO) for row in raw], float)
    features = {
        "area": lambda b: b[:, 2] * b[:, 3],
        "log ratio": lambda b: np.log(b[:, 3] / b[:, 2]),
        "place down": lambda b: b[:, 0] / (source[0] - b[:, 2] + 1),
        "place across": lambda b: b[:, 1] / (source[1] - b[:, 3] + 1),
    }
    for name, feature in features.items():
        a, b = np.sort(feature(ours)), np.sort(feature(theirs))
        both = np.concatenate([a, b])
        distance = np.abs(np.searchsorted(a, both, "right") - np.searchsorted(b, both, "right")).max() / n
        assert distance < 1.95 * math.sqrt(2 / n), name  # Kolmogorov-Smirnov at 0.1 %


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ((1000, 10), Box(493, 0, 13, 10)),  # too tall: the widest ratio below 3/4 that fits, centred
        ((10, 1000), Box(0, 493, 10, 13)),
        ((10, 10), Box(0, 0, 10, 10)),
    ],
)
def test_fallback(source, expected):
    # Areas so large that no attempt can fit.
    assert random_resized_box(source, [0] * CROP_WORDS, scale=(4.0, 4.0), ratio=RATIO) == expected


@pytest.mark.parametrize(("word", "size"), [(0, (707, 354)), (2**64 - 1, (289, 866))])
def test_ratios_go_from_one_bound_to_the_other(word, size):
    words = [2**63] * 4 + [word] + [2**63] * CROP_WORDS  # of the first attempt
    assert random_resized_box((1000, 1000), words, scale=(0.25, 0.25), ratio=(0.5, 3.0)).size == size


def test_box_is_never_empty():
    assert random_resized_box((1, 1), [2**64 - 1] * CROP_WORDS, scale=SCALE, ratio=RATIO) == Box(0, 0, 1, 1)
    assert random_resized_box((1, 500), [0] * CROP_WORDS, scale=(1, 1), ratio=(0.1, 0.2)).size == (1, 1)


@thorough
@given(st.integers(0, 2**64 - 1), st.integers(1, 2**31))
def test_words_become_the_same_numbers_one_by_one_and_as_arrays(word, n):
    raw = np.array([word], np.uint64)
    assert rng.unit(word) == rng.unit(raw)[0]
    assert rng.below(word, n) == rng.below(raw, n)[0]


@pytest.mark.parametrize(
    ("source", "size", "expected"),
    [
        ((375, 500), 256, (256, 341)),  # int(256 * 500 / 375) = int(341.33)
        ((500, 375), 256, (341, 256)),
        ((333, 500), 224, (224, 336)),
        ((100, 100), 32, (32, 32)),
        ((375, 500), (7, 9), (7, 9)),
        ((1, 1000), 1, (1, 1000)),
    ],
)
def test_resized_size(source, size, expected):
    assert resized_size(source, size) == expected


def reference_center_crop(source, size):
    """torchvision.transforms.functional.center_crop: where the crop begins, negative for padding."""
    starts = []
    for have, want in zip(source, size, strict=True):
        starts.append(-((want - have) // 2) if want > have else round((have - want) / 2.0))
    return tuple(starts)


@thorough
@given(sides, sides, sides, sides)
def test_center_window(height, width, h, w):
    window = center_window((height, width), (h, w))
    assert window[:2] == reference_center_crop((height, width), (h, w))
    assert window.size == (h, w)


@thorough
@given(sides, sides, sides, sides)
def test_covering_scale_covers_and_is_the_largest(height, width, h, w):
    scale = covering_scale((height, width), (h, w))
    assert scale in (1, 2, 4, 8)
    if scale > 1:
        assert height / scale >= h
        assert width / scale >= w
    if scale < 8:
        assert height < 2 * scale * h or width < 2 * scale * w


@thorough
@given(sides, sides, words, st.integers(1, 300), st.integers(1, 300))
def test_boxes_on_the_grid_of_a_scale(height, width, drawn, h, w):
    source = (height, width)
    box = random_resized_box(source, drawn, scale=SCALE, ratio=RATIO)
    scale = covering_scale(box.size, (h, w))
    small, moved = scaled_box(box, scale), on_grid(box, source, scale)
    decoded = scaled_size(source, scale)
    assert small.top + small.height <= decoded[0]
    assert small.left + small.width <= decoded[1]
    assert small.height >= min(h, box.height)
    assert small.width >= min(w, box.width)
    assert moved.top + moved.height <= height
    assert moved.left + moved.width <= width
    ends = [(b.top, b.left, b.top + b.height, b.left + b.width) for b in (box, moved)]
    assert max(abs(a - b) for a, b in zip(*ends, strict=True)) <= scale / 2
    assert on_grid(moved, source, scale) == moved, "moving once is enough"
    assert scaled_box(moved, scale) == small
    assert aligned_scale(moved, source, scale) == scale
    assert on_grid(box, source, aligned_scale(box, source, 8)) == box


def test_geometry_knows_its_output():
    assert Geometry((10, 20), Box(0, 0, 5, 5), (3, 4)).output == (3, 4)
    assert Geometry((10, 20), whole((10, 20)), (10, 20), Box(-1, 0, 12, 7)).output == (12, 7)
    assert Geometry((10, 20), whole((10, 20)), (10, 20)).is_identity
    assert not Geometry((10, 20), whole((10, 20)), (10, 20), flip=True).is_identity


@st.composite
def geometries(draw):
    """Any geometry of an image of some 20 pixels a side, with its output as small."""
    source = draw(st.tuples(st.integers(1, 20), st.integers(1, 20)))
    top, left = (draw(st.integers(0, side - 1)) for side in source)
    box = Box(top, left, draw(st.integers(1, source[0] - top)), draw(st.integers(1, source[1] - left)))
    size = draw(st.one_of(st.just(box.size), st.tuples(st.integers(1, 20), st.integers(1, 20))))
    window = None
    if draw(st.booleans()):
        window = center_window(size, draw(st.tuples(st.integers(1, 25), st.integers(1, 25))))
    return Geometry(source, box, size, window, draw(st.booleans()))


def turned(array, turn):
    array = array.T if turn.transposed else array
    array = array[::-1] if turn.upside_down else array
    return array[:, ::-1] if turn.mirrored else array


@thorough
@given(geometries())
def test_the_matrix_takes_each_output_pixel_to_the_label_it_shows(geometry):
    """The nearest source pixel of an output pixel's centre is the one whose centre the matrix takes there."""
    labels = np.arange(geometry.source[0] * geometry.source[1]).reshape(geometry.source)
    shown = render_labels(labels, geometry, fill=-1)
    (a, _, c), (_, e, f) = geometry.matrix
    for row, column in np.ndindex(shown.shape):
        x, y = (column + 0.5 - c) / a, (row + 0.5 - f) / e
        near = {(int(np.floor(y + dy)), int(np.floor(x + dx))) for dx in (-1e-9, 1e-9) for dy in (-1e-9, 1e-9)}
        box = geometry.box
        inside = {
            labels[at]
            for at in near
            if box.top <= at[0] < box.top + box.height and box.left <= at[1] < box.left + box.width
        }
        assert shown[row, column] in (inside or {-1})


@thorough
@given(geometries(), st.integers(1, 8))
def test_what_is_cut_from_the_stored_picture_is_the_upright_cut_turned(geometry, orientation):
    turn = TURNS[orientation]
    upright = np.arange(geometry.source[0] * geometry.source[1]).reshape(geometry.source)
    stored = turned(upright, turn.inverse)
    assert np.array_equal(turned(stored, turn), upright)
    cut, rest = as_stored(geometry, turn)
    assert cut.source == stored.shape
    assert turn.box(cut.box, stored.shape) == geometry.box
    assert np.array_equal(turned(stored[cut.box.slices()], turn), upright[geometry.box.slices()])
    assert rest.size(cut.output) == geometry.output
    if geometry.size == geometry.box.size:  # label maps pick single pixels, which turn with the picture
        assert np.array_equal(turned(render_labels(stored, cut), rest), render_labels(upright, geometry))


@thorough
@given(sizes, sizes, st.integers(-50, 600), st.integers(-50, 600), sizes, st.sampled_from([1, 2, 4, 8]))
@example((1, 395), (1, 512), 0, 109, (1, 1), 2)  # 106 columns of 512 lie 1/128 beside 41 of 198, exactly
def test_an_excerpt_shows_the_window_where_the_whole_shows_it(source, size, top, left, shape, scale) -> None:
    window = Box(min(top, size[0] - 1), min(left, size[1] - 1), *shape)
    if window.top + window.height <= 0 or window.left + window.width <= 0:
        return  # nothing of the picture in it
    geometry = Geometry(source, whole(source), size, window)
    have = scaled_box(whole(source), scale).size
    shown = excerpt(geometry, scale)
    assert shown.window is not None
    assert shown.zoom is not None
    assert shown.window.size == window.size
    for axis in (0, 1):
        first, count = shown.box[axis], shown.box[axis + 2]
        assert first >= 0
        assert first + count <= have[axis]
        before = window[axis] - shown.window[axis]
        ratio = 1 / shown.zoom[axis]
        # Every pixel of the window lies where it lies in the whole, and what its filter looks at is there.
        assert abs(first - before * ratio) <= 1 / 128 + 1e-9 or first == before == 0
        start, stop = max(0, window[axis]), min(size[axis], window[axis] + window[axis + 2])
        reach = max(1.0, ratio) if ratio != 1 else 0.5
        seen, end = shown.seen[axis], shown.seen[axis] + shown.seen[axis + 2]
        assert first <= seen <= max(0, (start + 0.5) * ratio - reach + 1 / 64)
        assert end == first + count
        assert first + count >= min(have[axis], math.floor((stop - 0.5) * ratio + reach))
        assert shown.size[axis] == stop - before


def test_an_excerpt_of_the_usual_evaluation_looks_at_six_tenths_of_the_pixels() -> None:
    shown = excerpt(Geometry((375, 500), whole((375, 500)), (256, 341), Box(16, 58, 224, 224)))
    assert shown.seen.height * shown.seen.width < 0.6 * 375 * 500
    assert shown.box.height * shown.box.width < 0.75 * 375 * 500
    exact = excerpt(Geometry((375, 500), whole((375, 500)), (256, 341), Box(16, 58, 224, 224)), exact=True)
    assert exact == (whole((375, 500)), whole((375, 500)), (256, 341), Box(16, 58, 224, 224), None)
    assert excerpt(Geometry((375, 500), Box(10, 20, 100, 200), (224, 224))) == (
        Box(10, 20, 100, 200),
        Box(10, 20, 100, 200),
        (224, 224),
        None,
        None,
    )
