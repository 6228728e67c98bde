"""Epochs of another size: cuts of the data set's epochs laid end to end."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shardstream.errors import UsageError
from shardstream.order import ORDER_VERSIONS, EpochOrder, OrderParameters, SizedOrder

from ..examples import thorough
from .reference import Epoch, Shape
from .strategies import counts, parameters, seeds


@thorough
@given(counts().filter(any), seeds, st.integers(0, 200), st.integers(0, 4), parameters(), st.booleans())
@example([3, 4], 0, 10, 4, OrderParameters(2, 1, 3), True)  # the epochs of the data set do not repeat after two
def test_epochs_are_cuts_of_the_epochs_laid_end_to_end(counts, seed, samples, epoch, parameters, shuffle):
    run = {"seed": seed, "parameters": parameters, "shuffle": shuffle}
    walk: list[list[int]] = []
    while len(walk) < (epoch + 1) * samples:
        number = len(walk) // sum(counts)
        order = EpochOrder(np.array(counts, np.int64), epoch=number, **run)
        walk += np.stack(order.locate(np.arange(order.samples)), axis=1).tolist()
    sized = SizedOrder(np.array(counts, np.int64), samples=samples, epoch=epoch, **run)
    assert sized.samples == samples
    expected = walk[epoch * samples : (epoch + 1) * samples]
    assert np.stack(sized.locate(np.arange(samples)), axis=1).tolist() == expected
    backwards = np.stack(sized.locate(np.arange(samples)[::-1].copy()), axis=1)
    assert backwards.tolist() == expected[::-1]


@pytest.mark.parametrize("version", ORDER_VERSIONS)
def test_a_late_epoch_by_the_reference(version):
    parameters = OrderParameters(2, 3, 4, version=version)
    sized = SizedOrder(np.array([5, 6]), samples=10, seed=3, epoch=10**6, parameters=parameters)
    number, first = divmod(10**7, 11)
    expected = [
        sample
        for one in (number, number + 1)
        for sample in Epoch([5, 6], seed=3, epoch=one, shape=Shape(**asdict(parameters))).sequence
    ]
    found = zip(*(part.tolist() for part in sized.locate(np.arange(10))), strict=True)
    assert list(found) == expected[first : first + 10]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"counts": np.array([0])}, "0 samples"),
        ({"samples": -1}, "-1 positions"),
        ({"epoch": 2**32}, "epoch"),
        ({"samples": 2**61, "epoch": 1}, "beyond"),
    ],
)
def test_arguments_out_of_range(arguments, message):
    good = {"counts": np.array([3]), "samples": 8, "seed": 0, "epoch": 0, "parameters": OrderParameters(1, 1, 1)}
    with pytest.raises(UsageError, match=message):
        SizedOrder(**{**good, **arguments})
