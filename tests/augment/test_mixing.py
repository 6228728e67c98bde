"""Mixup and cutmix: pixels and labels of each pair, and who is paired with whom."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from shardstream.augment import ImageBatch, chain
from shardstream.augment.draws import Draws
from shardstream.augment.mixing import Mix, soft_labels
from shardstream.errors import UsageError

from .references import MEAN, STD, normalized

CLASSES = 7
LABELS = torch.arange(24) % CLASSES


def reference(photos, mix, smoothing, key):
    """Each sample with the one before it, in a loop."""
    numbers = torch.from_numpy(mix.draw(Draws(key, len(photos)), tuple(photos.shape[2:])))
    images, labels = [], []
    hard = torch.eye(CLASSES) * (1 - smoothing) + smoothing / CLASSES
    for i in range(len(photos)):
        kept, *box, share = numbers[:, i].tolist()
        top, left, bottom, right = map(int, box)
        own, other = normalized(photos[i]), normalized(photos[i - 1])
        mixed = own * kept + other * (1 - kept)
        mixed[:, top:bottom, left:right] = other[:, top:bottom, left:right]
        images.append(mixed)
        labels.append(share * hard[LABELS[i]] + (1 - share) * hard[LABELS[i - 1]])
        # What the label says is what the pixels show.
        assert share == pytest.approx(kept * (1 - (bottom - top) * (right - left) / (40 * 48)), abs=1e-6)
    return torch.stack(images), torch.stack(labels)


@given(
    key=st.integers(0, 2**64 - 1),
    alphas=st.sampled_from([(0.2, 0), (0, 1.0), (0.2, 1.0), (4.0, 0.3)]),
    smoothing=st.sampled_from([0, 0.1]),
    block=st.integers(1, 24),
)
def test_pairs_by_rolling_whatever_the_blocks(photos, key, alphas, smoothing, block):
    images, labels = reference(photos, Mix(*alphas), smoothing, key)
    augment = ImageBatch(MEAN, STD, mixup=alphas[0], cutmix=alphas[1], label_smoothing=smoothing, classes=CLASSES)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chain, "_BLOCK", block * 12 * 40 * 48)
        mixed, soft = augment((photos, LABELS), key=key)
    torch.testing.assert_close(mixed, images, rtol=0, atol=1e-5)
    torch.testing.assert_close(soft, labels, rtol=0, atol=1e-6)
    torch.testing.assert_close(soft.sum(1), torch.ones(24))


def test_pixels_that_cutmix_leaves_are_untouched_to_the_bit(photos):
    mixed, _ = ImageBatch(MEAN, STD, cutmix=1.0, classes=CLASSES)((photos, LABELS), key=3)
    own = torch.stack([normalized(x) for x in photos])
    assert bool(((mixed == own) | (mixed == own.roll(1, 0))).all())


def test_a_batch_of_one_is_mixed_with_itself(photos):
    mixed, soft = ImageBatch(MEAN, STD, mixup=0.5, classes=CLASSES)((photos[:1], LABELS[:1]), key=3)
    torch.testing.assert_close(mixed[0], normalized(photos[0]), rtol=0, atol=1e-6)
    assert soft.tolist() == [[1, 0, 0, 0, 0, 0, 0]]


def test_smoothing_is_that_of_torchs_loss():
    scores = torch.randn(24, CLASSES, generator=torch.Generator().manual_seed(0))
    loss = torch.nn.functional.cross_entropy(scores, soft_labels(LABELS, CLASSES, 0.1))
    torch.testing.assert_close(loss, torch.nn.functional.cross_entropy(scores, LABELS, label_smoothing=0.1))


def test_labels_that_are_soft_already(photos):
    hard = torch.eye(CLASSES)[LABELS]
    augment = ImageBatch(MEAN, STD, mixup=0.2, label_smoothing=0.1, classes=CLASSES)
    torch.testing.assert_close(augment((photos, hard), key=2)[1], augment((photos, LABELS), key=2)[1])


def test_the_number_of_classes_is_told_later_or_asked_for(photos):
    augment = ImageBatch(MEAN, STD, mixup=0.2)
    with pytest.raises(UsageError, match="classes="):
        augment((photos, LABELS))
    augment.for_classes(CLASSES)
    assert augment((photos, LABELS))[1].shape == (24, CLASSES)
    given_before = ImageBatch(MEAN, STD, mixup=0.2, classes=9)
    given_before.for_classes(CLASSES)
    assert given_before((photos, LABELS))[1].shape == (24, 9)


@pytest.mark.parametrize("labels", [LABELS - 1, LABELS + 1])
def test_labels_outside_of_the_classes_are_named(photos, labels):
    with pytest.raises(UsageError, match=f"labels from {labels.min()} to {labels.max()} with classes=7"):
        ImageBatch(MEAN, STD, label_smoothing=0.1, classes=CLASSES)((photos, labels))


@pytest.mark.parametrize("alphas", [(-1, 0), (0, float("inf"))])
def test_alphas_out_of_range(alphas):
    with pytest.raises(UsageError, match="alpha"):
        Mix(*alphas)
