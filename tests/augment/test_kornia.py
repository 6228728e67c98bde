"""Modules of kornia between uint8 batches and a network."""

from __future__ import annotations

import sys

import pytest
import torch

import shardstream as ss
from shardstream.errors import MissingExtraError, UsageError

from .references import MEAN, STD, normalized

augmentation = pytest.importorskip("kornia.augmentation")


def test_the_module_sees_floats_and_what_it_gives_is_normalised(photos):
    module = augmentation.AugmentationSequential(
        augmentation.RandomAffine(20.0), augmentation.RandomGaussianNoise(std=0.1), augmentation.RandomHorizontalFlip()
    )
    torch.manual_seed(4)
    expected = torch.stack([normalized(image * 255) for image in module(photos.contiguous() / 255)])
    torch.manual_seed(4)
    labels = torch.arange(24)
    before = photos.clone()
    result = ss.augment.Kornia(module, MEAN, STD)({"jpg": photos, "cls": labels})
    torch.testing.assert_close(result["jpg"], expected, rtol=0, atol=1e-6)
    assert result["jpg"].is_contiguous(memory_format=torch.channels_last)
    assert result["cls"] is labels
    assert torch.equal(photos, before)


def test_without_mean_images_stay_in_0_to_1(photos):
    result = ss.augment.Kornia(augmentation.RandomVerticalFlip(p=1.0), dtype=torch.bfloat16)((photos, 5))
    assert torch.equal(result[0], (photos.flip(2) / 255).bfloat16())
    assert result[1] == 5


def test_a_module_that_gives_its_input_back(photos):
    images = (photos / 255).contiguous()
    before = images.clone()
    result = ss.augment.Kornia(torch.nn.Identity(), MEAN, STD)(images)
    assert torch.equal(images, before)
    assert not torch.equal(result, before)


def test_what_is_missing_is_named(monkeypatch):
    with pytest.raises(UsageError, match="mean= and std= go together"):
        ss.augment.Kornia(torch.nn.Identity(), mean=MEAN)
    monkeypatch.setitem(sys.modules, "kornia", None)
    with pytest.raises(MissingExtraError, match=r"pip install .*\[kornia\]"):
        ss.augment.Kornia(torch.nn.Identity())
