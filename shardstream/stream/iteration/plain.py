"""Parts of a content as plain values for pickles, which later versions of the package read, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from shardstream.dataset.costs import Costs, CostSpec
from shardstream.dataset.formats import Selection
from shardstream.dataset.opened import DatasetAddress, OpenedDataset
from shardstream.dataset.shared import SharedWords
from shardstream.dataset.weights import Weighing, WeightSpec, WholeWeights
from shardstream.storage.base.location import Access, Location, location_of, pickled_store
from shardstream.stream.iteration.settings import as_dict


def plain_weights(spec: WeightSpec, draws: int | None, weighing: Weighing) -> dict[str, Any]:
    """The weights of a source, for `weights_of`."""
    return {
        "spec": as_dict(spec),
        "draws": draws,
        "whole": as_dict(weighing.whole),
        "begins": weighing.begins.tobytes(),
        "digest": weighing.digest,
    }


def weights_of(plain: Mapping[str, Any]) -> tuple[WeightSpec, int | None, Weighing]:
    """What `plain_weights` described."""
    words = SharedWords.of(np.frombuffer(plain["begins"], np.int64))
    weighing = Weighing(WholeWeights(**plain["whole"]), words, plain["digest"])
    return WeightSpec(**plain["spec"]), plain["draws"], weighing


def plain_costs(costs: Costs) -> dict[str, Any]:
    """The costs of a source, for `costs_of`."""
    return {"spec": as_dict(costs.spec), "counts": costs.words.words.tobytes(), "digest": costs.digest}


def costs_of(plain: Mapping[str, Any]) -> Costs:
    """What `plain_costs` described."""
    return Costs(CostSpec(**plain["spec"]), SharedWords.of(np.frombuffer(plain["counts"], np.int64)), plain["digest"])


def plain_data_set(address: DatasetAddress) -> dict[str, Any]:
    """The address of a dataset, for `data_set_of`."""
    replicas = [_plain_location(one) for one in address.replicas]
    return {
        "location": _plain_location(address.location),
        "version": address.version,
        "replicas": replicas,
        "cache": address.cache,
        "foreign": as_dict(address.selection),
    }


def data_set_of(plain: Mapping[str, Any]) -> OpenedDataset:
    """The dataset that `plain_data_set` described, opened again."""
    replicas = tuple(map(_location_of, plain["replicas"]))
    location, selection = _location_of(plain["location"]), Selection(**plain.get("foreign", {}))
    others = {name: value for name, value in plain.items() if name != "foreign"}
    return DatasetAddress(**{**others, "location": location, "replicas": replicas, "selection": selection}).open()


def _plain_location(location: Location) -> dict[str, Any]:
    store = None if location.store is None else pickled_store(location.store)
    return {"url": location.url, "access": as_dict(location.access), "store": store}


def _location_of(plain: Mapping[str, Any]) -> Location:
    return location_of(plain["url"], Access(**plain["access"]), plain["store"])
