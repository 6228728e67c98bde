"""Programs with libraries that stream: webdataset, mosaicml-streaming, litdata, ffcv, tfrecord."""

from __future__ import annotations

from shardstream.formats.migrate.facts import Facts
from shardstream.formats.migrate.writing import AUGMENT, LOADER, V2, indented, one_or_tuple, program, quoted

_PIPES = {"s3": "pipe:aws s3 cp {} -", "gs": "pipe:gcloud storage cat {}"}
_LISTED = 16  # names that a program lists


def webdataset(facts: Facts) -> str:
    """With the webdataset package."""
    names = ", ".join(quoted(facts.column(name)) for name in facts.chosen)
    steps = [".shuffle(1000)", '.decode("pil")', f".to_tuple({names})"]
    steps += [".map_tuple(augment)"] if facts.picture in facts.chosen else []
    steps += [f".batched({facts.batch_size}, partial=False)"]
    head = augment(facts)
    body = (
        f"{head}urls = {_tars(facts)}\n"
        "dataset = (\n"
        "    wds.WebDataset(urls, shardshuffle=100)\n" + indented("\n".join(steps)) + "\n)\n"
        f"loader = wds.WebLoader(dataset, batch_size=None, num_workers={facts.workers})"
    )
    imports = ["import webdataset as wds", *torchvision(facts)]
    variables = facts.variables if len(facts.variables) > 1 else [f"({facts.variables[0]},)"]
    return program(imports + (["from glob import glob"] if "glob(" in body else []), body, variables)


def _tars(facts: Facts) -> str:
    """The tar files, as webdataset takes them."""
    scheme = facts.folder.partition("://")[0] if not facts.local else ""
    pipe = _PIPES.get(scheme, "{}")
    if facts.pattern is not None:
        return quoted(pipe.format(facts.path(facts.pattern)))
    if len(facts.names) > _LISTED and facts.local:
        return f"sorted(glob({quoted(facts.path('**/*.tar*'))}, recursive=True))"
    listed = ",\n".join(quoted(pipe.format(facts.path(name))) for name in facts.names)
    return f"[\n{indented(listed)},\n]"


def streaming(facts: Facts) -> str:
    """With mosaicml-streaming."""
    place = f"local={quoted(facts.folder)}"
    if not facts.local:
        place = f'remote={quoted(facts.folder)}, local="/tmp/streaming"'
    body = (
        f"{augment(facts)}"
        + _subclass(facts, _mds_value)
        + f"dataset = Samples({place}, shuffle=True, batch_size={facts.batch_size})\n"
        f"loader = DataLoader(dataset, batch_size={facts.batch_size}, num_workers={facts.workers}, drop_last=True)"
    )
    imports = ["from streaming import StreamingDataset", LOADER, *torchvision(facts)]
    return program(imports + _pil(body), body, facts.variables)


def _mds_value(facts: Facts, name: str) -> str:
    column = facts.column(name)
    value = f"sample[{quoted(column)}]"
    if name != facts.picture:
        return value
    encoding = facts.encodings.get(name, "jpeg")
    if encoding in ("bytes", "str"):
        value = f"Image.open(BytesIO({value}))"
    return value if encoding.startswith("ndarray") else f'{value}.convert("RGB")'


def litdata(facts: Facts) -> str:
    """With litdata."""
    body = (
        f"{augment(facts)}"
        + _subclass(facts, _leaf)
        + f"dataset = Samples({quoted(facts.folder)}, shuffle=True, drop_last=True)\n"
        f"loader = StreamingDataLoader(dataset, batch_size={facts.batch_size}, num_workers={facts.workers})"
    )
    imports = ["from litdata import StreamingDataLoader, StreamingDataset", *torchvision(facts)]
    return program(imports, body, facts.variables)


def _leaf(facts: Facts, name: str) -> str:
    if name == "value":  # of samples that are not a dict
        return "sample"
    parts = [part if part.isdecimal() else quoted(part) for part in name.split(".")]
    return "sample" + "".join(f"[{part}]" for part in parts)


def _subclass(facts: Facts, value: object) -> str:
    """A data set of theirs of which a sample is what the loop takes."""
    assert callable(value)
    values = [value(facts, name) for name in facts.chosen]
    shown = [
        f"augment({one})" if name == facts.picture else one for name, one in zip(facts.chosen, values, strict=True)
    ]
    return (
        "\n\nclass Samples(StreamingDataset):\n"
        "    def __getitem__(self, index):\n"
        "        sample = super().__getitem__(index)\n"
        f"        return {one_or_tuple(shown)}\n\n\n"
    )


def ffcv(facts: Facts) -> str:
    """With FFCV."""
    pipelines = ",\n".join(f"{quoted(name)}: [{_ffcv_pipeline(facts, name)}]" for name in facts.chosen)
    path = facts.path(facts.names[0])
    body = (
        f"loader = Loader(\n    {quoted(path)},\n    batch_size={facts.batch_size},\n    num_workers={facts.workers},\n"
        f"    order=OrderOption.RANDOM,\n    drop_last=True,\n    pipelines={{\n{indented(pipelines, 8)},\n    }},\n)"
    )
    decoders = sorted(name for name in _FFCV_DECODERS if f"{name}(" in body)
    steps = sorted(name for name in ("RandomHorizontalFlip", "Squeeze", "ToTensor", "ToTorchImage") if name in body)
    imports = [
        "from ffcv.loader import Loader, OrderOption",
        f"from ffcv.fields.decoders import {', '.join(decoders)}",
        f"from ffcv.transforms import {', '.join(steps)}",
    ]
    return program(imports, body, facts.variables)


_FFCV_DECODERS = (
    *("BytesDecoder", "FloatDecoder", "IntDecoder", "NDArrayDecoder", "RandomResizedCropRGBImageDecoder"),
)


def _ffcv_pipeline(facts: Facts, name: str) -> str:
    kind = facts.fields[name]
    if name == facts.picture:
        size = f"({facts.crop}, {facts.crop})"
        return f"RandomResizedCropRGBImageDecoder({size}), RandomHorizontalFlip(), ToTensor(), ToTorchImage()"
    if kind.kind == "scalar":
        decoder = "FloatDecoder" if kind.name.startswith("float") else "IntDecoder"
        return f"{decoder}(), ToTensor(), Squeeze()"
    return f"{'NDArrayDecoder' if kind.kind == 'fixed' else 'BytesDecoder'}(), ToTensor()"


def tfrecord(facts: Facts) -> str:
    """With the tfrecord package, which reads TFRecord without TensorFlow."""
    described = ",\n".join(f"{quoted(facts.column(name))}: {quoted(_feature(facts, name))}" for name in facts.chosen)
    values = []
    for name in facts.chosen:
        value = f"sample[{quoted(facts.column(name))}]"
        if name == facts.picture:
            value = f'augment(Image.open(BytesIO({value})).convert("RGB"))'
        elif facts.fields[name].kind == "scalar":
            value += "[0]"
        elif facts.fields[name].name == "str":
            value = f"bytes({value}).decode()"
        values.append(value)
    if len(facts.names) == 1:
        made = f"TFRecordDataset({quoted(facts.path(facts.names[0]))}, None, description, shuffle_queue_size=1000"
    else:
        listed = f"glob({quoted(facts.path('**/*'))}, recursive=True)"
        if facts.pattern is not None:
            head, _, tail = facts.pattern.partition("{")
            listed = f"glob({quoted(facts.path(head + '*' + tail.partition('}')[2]))})"
        made = (
            f"paths = {{path: 1.0 for path in {listed}}}\n"
            'dataset = MultiTFRecordDataset("{}", None, paths, description, shuffle_queue_size=1000, infinite=False'
        )
    made = made if made.startswith("paths") else f"dataset = {made}"
    workers = min(1, facts.workers)
    body = (
        f"{augment(facts)}description = {{\n{indented(described)},\n}}\n"
        f"\n\ndef prepare(sample):\n    return {one_or_tuple(values)}\n\n\n"
        f"{made}, transform=prepare)\n"
        "# Each worker would read all.\n"
        f"loader = DataLoader(dataset, batch_size={facts.batch_size}, num_workers={workers}, drop_last=True)"
    )
    kind = "MultiTFRecordDataset" if "paths = " in body else "TFRecordDataset"
    imports = [f"from tfrecord.torch.dataset import {kind}", LOADER, *torchvision(facts), *_pil(body)]
    return program(imports + (["from glob import glob"] if "glob(" in body else []), body, facts.variables)


def _feature(facts: Facts, name: str) -> str:
    numbers = facts.fields[name].elements
    if numbers is None:
        return "byte"
    return "float" if numbers.kind == "f" else "int"


def augment(facts: Facts) -> str:
    """What training does to a picture, where there is one."""
    return AUGMENT.format(crop=facts.crop) + "\n" if facts.picture in facts.chosen else ""


def torchvision(facts: Facts) -> list[str]:
    """The import for it."""
    return [V2] if facts.picture in facts.chosen else []


def _pil(body: str) -> list[str]:
    return ["from io import BytesIO", "from PIL import Image"] if "Image.open(" in body else []
