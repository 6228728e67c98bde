"""Programs with data sets that give a sample by its number: torchvision's, Hugging Face's, or of ten lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from shardstream.formats.migrate.facts import Facts
from shardstream.formats.migrate.streams import augment, torchvision
from shardstream.formats.migrate.writing import LOADER, indented, program, quoted

_DATASET = "from torch.utils.data import DataLoader, Dataset"
_DATASETS = "from torch.utils.data import ConcatDataset, DataLoader, Dataset"
_LISTED = 8  # names that a program lists
_READERS = {"jsonl": "json"}  # what `datasets` calls formats, where it is something else


def _loader(facts: Facts, dataset: str = "dataset", more: str = "") -> str:
    settings = f"batch_size={facts.batch_size}, shuffle=True, num_workers={facts.workers}, drop_last=True{more}"
    return f"loader = DataLoader({dataset}, {settings})"


def image_folder(facts: Facts) -> str:
    """With torchvision's ImageFolder."""
    body = f"{augment(facts)}dataset = ImageFolder({quoted(facts.folder)}, augment)\n{_loader(facts)}"
    return program(["from torchvision.datasets import ImageFolder", LOADER, *torchvision(facts)], body, facts.variables)


def mp_dataset(facts: Facts) -> str:
    """With MPDataset, as ZCls has it."""
    body = (
        f"{augment(facts)}"
        f"dataset = MPDataset({quoted(facts.folder)}, transform=augment, keep_rgb=True, shuffle=True)\n"
        "dataset.set_epoch(0)\n"
        f"loader = DataLoader(dataset, batch_size={facts.batch_size}, num_workers={facts.workers}, drop_last=True)"
    )
    imports = ["from zcls.data.datasets.mp_dataset import MPDataset", LOADER, *torchvision(facts)]
    return program(imports, body, facts.variables)


def listed_files(facts: Facts) -> str:
    """With a list of files, and a data set of ten lines."""
    path = facts.path(facts.names[0])
    imports, rows, opened, cells = list[str](), _split(facts), "", facts.first_line.split("\t")
    if path.endswith(".csv"):
        imports, rows, opened = ["import csv"], "list(csv.reader(lines))", ', newline=""'
        cells = facts.first_line.split(",")
    taken = "path, label = self.rows[number][:2]"
    if path.endswith(".lst"):  # a number, the label, the path
        taken, cells = "_, label, path = self.rows[number]", cells[::-1]
    rows = rows if "." in cells[0] else f"{rows}[1:]  # without its titles"
    classes = "        self.classes = sorted({row[1] for row in self.rows})\n" if facts.named else ""
    label = "self.classes.index(label)" if facts.named else "int(float(label))"
    body = (
        f"{augment(facts)}\n\nclass Samples(Dataset):\n"
        "    def __init__(self):\n"
        f"        with open({quoted(path)}{opened}) as lines:\n"
        f"            self.rows = {rows}\n{classes}\n"
        "    def __len__(self):\n"
        "        return len(self.rows)\n\n"
        "    def __getitem__(self, number):\n"
        f"        {taken}\n"
        f"        image = Image.open(os.path.join({quoted(facts.folder)}, path))\n"
        f'        return augment(image.convert("RGB")), {label}\n\n\n'
        f"{_loader(facts, 'Samples()')}"
    )
    imports += ["import os", "from PIL import Image", _DATASET, *torchvision(facts)]
    return program(imports, body, ["images", "labels"])


def _split(facts: Facts) -> str:
    """The cells of all lines, where they are not csv."""
    separator = '"\\t"' if "\t" in facts.first_line else ""
    return f'[line.rstrip("\\n").split({separator}) for line in lines]'


def coco(facts: Facts) -> str:
    """With torchvision's CocoDetection."""
    pictures = facts.path(facts.first_file.rpartition("/")[0])
    body = (
        f"{augment(facts)}\n\ndef collate(rows):\n    return tuple(zip(*rows))\n\n\n"
        f"dataset = CocoDetection({quoted(pictures)}, {quoted(facts.path(facts.names[0]))}, transforms=augment)\n"
        'dataset = wrap_dataset_for_transforms_v2(dataset, target_keys=("boxes", "labels"))\n'
        f"{_loader(facts, more=', collate_fn=collate')}"
    )
    datasets = "from torchvision.datasets import CocoDetection, wrap_dataset_for_transforms_v2"
    return program([datasets, LOADER, *torchvision(facts)], body, ["images", "targets"])


def huggingface(facts: Facts) -> str:
    """With Hugging Face's datasets."""
    columns = [facts.column(name) for name in facts.chosen]
    values = []
    for name, column in zip(facts.chosen, columns, strict=True):
        value = f"rows[{quoted(column)}]"
        if name == facts.picture:
            value = f'[augment(one.convert("RGB")) for one in {value}]'
        values.append(f"{quoted(column)}: {value}")
    loaded, collate, more = _loaded(facts), "", ""
    payloads = [facts.fields[name] for name in facts.chosen if name != facts.picture]
    if any(kind.kind == "payload" and kind.name != "str" for kind in payloads):  # of several lengths: no tensor
        collate = "def collate(rows):\n    return {name: [row[name] for row in rows] for name in rows[0]}\n\n\n"
        more = ", collate_fn=collate"
    body = (
        f"{augment(facts)}\n\ndef prepare(rows):\n    return {{{', '.join(values)}}}\n\n\n{collate}"
        f"dataset = {loaded}\ndataset = dataset.with_transform(prepare)\n{_loader(facts, more=more)}"
    )
    batch = ", ".join(f"batch[{quoted(column)}]" for column in columns)
    name = loaded.partition("(")[0]
    return program([f"from datasets import {name}", LOADER, *torchvision(facts)], body, facts.variables, batch=batch)


def _loaded(facts: Facts) -> str:
    if facts.source == "arrow" and "state.json" in facts.beside:
        return f"load_from_disk({quoted(facts.folder)})"
    kind = _READERS.get(facts.source, facts.source)
    if len(facts.names) == 1:
        files = quoted(facts.path(facts.names[0]))
    else:
        files = f"[{', '.join(quoted(facts.path(name)) for name in facts.names[:4])}]"
        if len(facts.names) > 4:
            ending = facts.names[0].partition(".")[2]
            files = quoted(facts.path(f"**/*.{ending}"))
    return f'load_dataset("{kind}", data_files={files}, split="train")'


# --------------------------------------------------------------------------------------------------- of ten lines


class _Lines(NamedTuple):
    """What differs between data sets of ten lines.

    Attributes:
        imports: Import statements.
        opening: What opens the file ``path``, once in each process.
        number: How many samples it has.
        values: What a sample is, of ``self.opened`` and ``number``, an expression for each chosen field.
        first: A line before it is counted.
    """

    imports: Sequence[str]
    opening: str
    number: str
    values: Sequence[str]
    first: str = ""


def _samples(facts: Facts, lines: _Lines) -> str:
    """A data set that opens what it reads in its own process, and a loader."""
    values = ",\n".join(lines.values)
    item = f"(\n{indented(values, 12)},\n        )" if len(lines.values) > 1 else values
    first = f"        {lines.first}\n" if lines.first else ""
    single = len(facts.names) == 1
    dataset = f"Samples({quoted(facts.path(facts.names[0]))})"
    dataset = dataset if single else f"ConcatDataset([Samples(path) for path in {_paths(facts)}])"
    body = (
        f"{augment(facts)}\n\nclass Samples(Dataset):\n"
        "    def __init__(self, path):\n"
        "        self.path, self.opened = path, None\n"
        f"{first}"
        f"        self.count = {lines.number}\n\n"
        "    def __len__(self):\n"
        "        return self.count\n\n"
        "    def __getitem__(self, number):\n"
        "        if self.opened is None:  # once in each worker\n"
        f"            self.opened = {lines.opening.replace('path', 'self.path')}\n"
        f"        return {item}\n\n\n"
        f"dataset = {dataset}\n{_loader(facts)}"
    )
    imports = [*lines.imports, _DATASET if single else _DATASETS, *torchvision(facts)]
    imports += ["from io import BytesIO", "from PIL import Image"] if "Image.open(" in item else []
    return program(imports + (["from glob import glob"] if "glob(" in body else []), body, facts.variables)


def _paths(facts: Facts) -> str:
    """The files, as an expression."""
    if len(facts.names) <= _LISTED:
        return f"[{', '.join(quoted(facts.path(name)) for name in facts.names)}]"
    ending = facts.names[0].rpartition(".")[2]
    return f"sorted(glob({quoted(facts.path('**/*.' + ending))}, recursive=True))"


def _decoded(facts: Facts, name: str, data: str) -> str:
    """A stored value as what the loop takes."""
    if name == facts.picture and facts.fields[name].is_image:
        return f'augment(Image.open(BytesIO({data})).convert("RGB"))'
    if facts.fields[name].kind == "scalar":
        return f"int({data})"
    return f"{data}.decode()" if facts.fields[name].name == "str" else data


def numbered_lmdb(facts: Facts) -> str:
    """With lmdb, of text recognition's layout."""
    subdir = "" if facts.names[0].endswith("data.mdb") else ", subdir=False"
    opening = f"lmdb.open(path, readonly=True, lock=False{subdir}).begin()"
    own = {facts.picture: "image", "txt": "label"}
    values = [
        _decoded(facts, name, f'self.opened.get(b"{own.get(name, name)}-%09d" % (number + 1))') for name in facts.chosen
    ]
    made = _samples(facts, _Lines(["import lmdb"], opening, f'int({opening}.get(b"num-samples"))', values))
    return made.replace("/data.mdb", "")


def zipped(facts: Facts) -> str:
    """With Python's zipfile: members of one name with several extensions are a sample."""
    first = f".{facts.chosen[0]}"
    values = [
        _decoded(facts, name, f"self.opened.read(self.keys[number] + {quoted('.' + name)})") for name in facts.chosen
    ]
    names = f"names = zipfile.ZipFile(path).namelist()\n        self.keys = [name[:-{len(first)}] for name in names"
    names += f" if name.endswith({quoted(first)})]"
    return _samples(facts, _Lines(["import zipfile"], "zipfile.ZipFile(path)", "len(self.keys)", values, names))


def numpy_arrays(facts: Facts) -> str:
    """With numpy."""
    single = facts.names[0].endswith(".npy")
    values = [
        _augmented(facts, name, "self.opened[number]" if single else f"self.opened[{quoted(name)}][number]")
        for name in facts.chosen
    ]
    opening, count = "dict(np.load(path))", f"len(np.load(path)[{quoted(facts.chosen[0])}])"
    if single:
        opening = 'np.load(path, mmap_mode="r")'
        count = f"len({opening})"
    return _samples(facts, _Lines(["import numpy as np"], opening, count, values))


def hdf5(facts: Facts) -> str:
    """With h5py."""
    columns = [quoted(facts.column(name)) for name in facts.chosen]
    values = [
        _augmented(facts, name, f"self.opened[{column}][number]")
        for name, column in zip(facts.chosen, columns, strict=True)
    ]
    opening = 'h5py.File(path, "r")'
    return _samples(facts, _Lines(["import h5py"], opening, f"len({opening}[{columns[0]}])", values))


def _augmented(facts: Facts, name: str, value: str) -> str:
    return f"augment({value})" if name == facts.picture else value


def recordio(facts: Facts) -> str:
    """With MXNet."""
    values = [
        _decoded(facts, name, "self.record(number)[1]") if name == facts.picture else "self.record(number)[0].label"
        for name in facts.chosen
    ]
    opening = 'recordio.MXIndexedRecordIO(path.replace(".rec", ".idx"), path, "r")'
    made = _samples(facts, _Lines(["from mxnet import recordio"], opening, f"len({opening}.keys)", values))
    return made.replace(
        "\n\n\ndataset = ",
        "\n\n    def record(self, number):\n"
        "        return recordio.unpack(self.opened.read_idx(self.opened.keys[number]))\n\n\ndataset = ",
        1,
    )


def tokens(facts: Facts) -> str:
    """With numpy, as nanoGPT does: windows of one long row."""
    path = quoted(facts.path(next((name for name in facts.names if name.endswith(".bin")), facts.names[0])))
    kind = facts.fields[facts.chosen[0]]
    assert kind.dtype is not None
    assert kind.shape is not None
    (length,) = kind.shape
    body = (
        f'data = np.memmap({path}, np.{kind.dtype.name}, "r")\n\n\n'
        "def windows(batches):\n"
        "    for _ in range(batches):\n"
        f"        starts = torch.randint(len(data) - {length} + 1, ({facts.batch_size},)).tolist()\n"
        f"        rows = [data[i : i + {length}].astype(np.int64) for i in starts]\n"
        "        yield torch.from_numpy(np.stack(rows))\n\n\n"
        f"loader = windows(len(data) // {length} // {facts.batch_size})"
    )
    return program(["import numpy as np", "import torch"], body, ["tokens"])
