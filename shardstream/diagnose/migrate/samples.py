"""Programs with data sets that give a sample by its number: torchvision's, Hugging Face's, or of ten lines."""

from __future__ import annotations

from shardstream.diagnose.migrate.facts import Facts
from shardstream.diagnose.migrate.streams import augment, torchvision
from shardstream.diagnose.migrate.writing import LOADER, one_or_tuple, program, quoted

_DATASET = "from torch.utils.data import DataLoader, Dataset"
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
    imports, split = [], 'line.rstrip("\\n").split("\\t")'
    rows = f"[{split} for line in open({quoted(path)})]"
    if path.endswith(".csv"):
        imports, rows = ["import csv"], f"list(csv.reader(open({quoted(path)}, newline='')))"
    item = f"Image.open(os.path.join({quoted(facts.folder)}, path))"
    item = f'augment({item}.convert("RGB"))'
    body = (
        f"{augment(facts)}class Samples(Dataset):\n"
        "    def __init__(self):\n"
        f"        self.rows = {rows}\n\n"
        "    def __len__(self):\n"
        "        return len(self.rows)\n\n"
        "    def __getitem__(self, number):\n"
        "        path, label = self.rows[number][:2]\n"
        f"        return {item}, int(label)\n\n\n"
        f"{_loader(facts, 'Samples()')}"
    )
    return program(
        ["import os", *imports, "from PIL import Image", _DATASET, *torchvision(facts)], body, ["images", "labels"]
    )


def coco(facts: Facts) -> str:
    """With torchvision's CocoDetection."""
    annotations = next((name for name in facts.names if name.endswith(".json")), facts.names[0])
    body = (
        f"{augment(facts).replace('v2.RandomResizedCrop', '# boxes do not follow, unless wrap_dataset_for_transforms_v2 is used')}"
        f"dataset = CocoDetection({quoted(facts.folder)}, {quoted(facts.path(annotations))})\n"
        f"{_loader(facts)}"
    )
    return program(["from torchvision.datasets import CocoDetection", LOADER], body, ["images", "targets"])


def huggingface(facts: Facts) -> str:
    """With Hugging Face's datasets."""
    columns = [facts.column(name) for name in facts.chosen]
    values = []
    for name, column in zip(facts.chosen, columns, strict=True):
        value = f"rows[{quoted(column)}]"
        if name == facts.picture:
            value = f'[augment(one.convert("RGB")) for one in {value}]'
        values.append(f"{quoted(column)}: {value}")
    loaded = _loaded(facts)
    body = (
        f"{augment(facts)}def prepare(rows):\n    return {{{', '.join(values)}}}\n\n\n"
        f"dataset = {loaded}.with_transform(prepare)\n{_loader(facts)}"
    )
    batch = ", ".join(f"batch[{quoted(column)}]" for column in columns)
    name = loaded.partition("(")[0]
    return program([f"from datasets import {name}", LOADER, *torchvision(facts)], body, facts.variables, batch=batch)


def _loaded(facts: Facts) -> str:
    if facts.source == "arrow" and any(name.endswith("state.json") for name in facts.names):
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


def _samples(facts: Facts, imports: list[str], opening: str, count: str, item: str) -> str:
    """A data set that opens what it reads in its own process, and a loader."""
    pil = ["from io import BytesIO", "from PIL import Image"] if "Image.open(" in item else []
    body = (
        f"{augment(facts)}class Samples(Dataset):\n"
        "    def __init__(self):\n"
        "        self.opened = None\n"
        f"        self.count = {count}\n\n"
        "    def __len__(self):\n"
        "        return self.count\n\n"
        "    def __getitem__(self, number):\n"
        "        if self.opened is None:  # once in each worker\n"
        f"            self.opened = {opening}\n"
        f"        return {item}\n\n\n"
        f"{_loader(facts, 'Samples()')}"
    )
    return program([*imports, _DATASET, *torchvision(facts), *pil], body, facts.variables)


def _decoded(facts: Facts, name: str, data: str) -> str:
    """A stored value as what the loop takes."""
    if name == facts.picture and facts.fields[name].is_image:
        return f'augment(Image.open(BytesIO({data})).convert("RGB"))'
    if facts.fields[name].kind == "scalar":
        return f"int({data})"
    return f"{data}.decode()" if facts.fields[name].name == "str" else data


def numbered_lmdb(facts: Facts) -> str:
    """With lmdb, of text recognition's layout."""
    opening = f"lmdb.open({quoted(facts.path(_root(facts)))}, readonly=True, lock=False{_subdir(facts)}).begin()"
    own = {facts.picture: "image", "txt": "label"}
    values = [
        _decoded(facts, name, f'self.opened.get(b"{own.get(name, name)}-%09d" % (number + 1))')
        for name in facts.chosen
    ]
    count = f'int({opening}.get(b"num-samples"))'
    return _samples(facts, ["import lmdb"], opening, count, one_or_tuple(values))


def _root(facts: Facts) -> str:
    """What `lmdb.open` takes: the folder of a ``data.mdb``, else the file."""
    name = facts.names[0]
    return name.removesuffix("data.mdb").rstrip("/") if name.endswith("data.mdb") else name


def _subdir(facts: Facts) -> str:
    return "" if facts.names[0].endswith("data.mdb") else ", subdir=False"


def zipped(facts: Facts) -> str:
    """With Python's zipfile: members of one name with several extensions are a sample."""
    path = quoted(facts.path(facts.names[0]))
    first = facts.chosen[0]
    values = [_decoded(facts, name, f'self.opened.read(self.keys[number] + ".{name}")') for name in facts.chosen]
    listed = f'[name.removesuffix(".{first}") for name in zipfile.ZipFile({path}).namelist() if name.endswith(".{first}")]'
    made = _samples(facts, ["import zipfile"], f"zipfile.ZipFile({path})", "len(self.keys)", one_or_tuple(values))
    return made.replace("        self.count = ", f"        self.keys = {listed}\n        self.count = ", 1)


def numpy_arrays(facts: Facts) -> str:
    """With numpy."""
    path = quoted(facts.path(facts.names[0]))
    single = facts.names[0].endswith(".npy")
    opening = f'np.load({path}, mmap_mode="r")' if single else f"dict(np.load({path}))"
    values = ["self.opened[number]" if single else f"self.opened[{quoted(name)}][number]" for name in facts.chosen]
    shown = [
        f"augment({value})" if name == facts.picture else value
        for name, value in zip(facts.chosen, values, strict=True)
    ]
    count = f"len({opening})" if single else f"len(np.load({path})[{quoted(facts.chosen[0])}])"
    return _samples(facts, ["import numpy as np"], opening, count, one_or_tuple(shown))


def hdf5(facts: Facts) -> str:
    """With h5py."""
    path = quoted(facts.path(facts.names[0]))
    values = [f"self.opened[{quoted(facts.column(name))}][number]" for name in facts.chosen]
    shown = [
        f"augment({value})" if name == facts.picture else value
        for name, value in zip(facts.chosen, values, strict=True)
    ]
    opening = f'h5py.File({path}, "r")'
    count = f"len({opening}[{quoted(facts.column(facts.chosen[0]))}])"
    return _samples(facts, ["import h5py"], opening, count, one_or_tuple(shown))


def recordio(facts: Facts) -> str:
    """With MXNet."""
    record = facts.path(facts.names[0])
    index = f"{record.removesuffix('.rec')}.idx"
    opening = f'recordio.MXIndexedRecordIO({quoted(index)}, {quoted(record)}, "r")'
    body = (
        f"{augment(facts)}class Samples(Dataset):\n"
        "    def __init__(self):\n"
        f"        self.opened = {opening}\n\n"
        "    def __len__(self):\n"
        "        return len(self.opened.keys)\n\n"
        "    def __getitem__(self, number):\n"
        "        header, data = recordio.unpack(self.opened.read_idx(self.opened.keys[number]))\n"
        '        return augment(Image.open(BytesIO(data)).convert("RGB")), header.label\n\n\n'
        f"{_loader(facts, 'Samples()')}"
    )
    imports = ["from mxnet import recordio", _DATASET, *torchvision(facts)]
    imports += ["from io import BytesIO", "from PIL import Image"]
    return program(imports, body, ["images", "labels"])


def tokens(facts: Facts) -> str:
    """With numpy, as nanoGPT does: windows of one long row."""
    path = quoted(facts.path(next((name for name in facts.names if name.endswith(".bin")), facts.names[0])))
    kind = facts.fields[facts.chosen[0]]
    dtype = kind.dtype if kind.dtype is not None else getattr(kind, "elements", None)
    length = (kind.shape or (1025,))[0]
    body = (
        f'tokens = np.memmap({path}, np.{dtype.name if dtype is not None else "uint16"}, "r")\n\n\n'
        "def windows(batches):\n"
        "    for _ in range(batches):\n"
        f"        starts = torch.randint(len(tokens) - {length} + 1, ({facts.batch_size},)).tolist()\n"
        f"        yield torch.stack([torch.from_numpy(tokens[i : i + {length}].astype(np.int64)) for i in starts])\n\n\n"
        f"loader = windows(len(tokens) // {length} // {facts.batch_size})"
    )
    return program(["import numpy as np", "import torch"], body, ["tokens"])
