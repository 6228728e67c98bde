"""The program with this library."""

from __future__ import annotations

from shardstream.formats.migrate.facts import Facts
from shardstream.formats.migrate.writing import indented, program, quoted
from shardstream.options import SourceOptions
from shardstream.shards.fields import ValuesType


def after(facts: Facts) -> str:
    """A program that trains on the data set where it lies; it runs as it is."""
    fields = ",\n".join(f"{quoted(name)}: {_spec(facts, name)}" for name in facts.chosen)
    arguments = [quoted(facts.url), f"fields={{\n{indented(fields)},\n}}", "shuffle=True"]
    arguments += [f"reading=ss.SourceOptions({_reading(facts.reading)})"] if facts.reading != SourceOptions() else []
    arguments += ['on_error="skip"'] if facts.damaged else []
    inner = indented(",\n".join(arguments))
    names, alone = ", ".join(map(quoted, facts.chosen)), len(facts.chosen) == 1
    said = "" if facts.named else "  # the largest label, and one"
    classes = f"num_classes = {facts.classes}{said}\n" if facts.classes else ""
    source = "ds" if alone else f"ds.to_tuple({names})"
    body = (
        f"{classes}ds = ss.ShardDataset(\n{inner},\n)\n"
        f"loader = ss.Loader({source}, batch_size={facts.batch_size}, num_workers={facts.workers})"
    )
    batch = f"batch[{names}]" if alone else ""
    return program(["import shardstream as ss"], body, facts.variables, _held(facts), batch=batch)


def _reading(reading: SourceOptions) -> str:
    format = [] if reading.format is None else [f"format={quoted(reading.format)}"]
    pairs = ", ".join(f"{quoted(name)}: {quoted(text)}" for name, text in (reading.options or {}).items())
    return ", ".join([*format, *([f"options={{{pairs}}}"] if pairs else [])])


def _spec(facts: Facts, name: str) -> str:
    if name == facts.picture:
        return f"ss.decode.RandomResizedCrop({facts.crop}, flip=True)"
    if facts.boxes:
        if name != "boxes":
            return 'ss.decode.PerBox(like="boxes")'
        return f"ss.decode.Boxes(like={quoted(str(facts.picture))}{_stored_boxes(facts)})"
    return "None"


def _stored_boxes(facts: Facts) -> str:
    """What `Boxes` has to know of boxes that are not corners in pixels."""
    if facts.source != "yolo":
        return ""
    corners = (facts.reading.options or {}).get("boxes") == "xyxy"
    return ", relative=True" if corners else ', format="cxcywh", relative=True'


def _held(facts: Facts) -> str:
    """What a batch holds, as a comment."""
    return ", ".join(_shape(facts, name) for name in facts.chosen)


def _shape(facts: Facts, name: str) -> str:
    kind, batch = facts.fields[name], facts.batch_size
    if name == facts.picture:
        return f"uint8 ({batch}, 3, {facts.crop}, {facts.crop})"
    if facts.boxes:
        return "boxes of each" if name == "boxes" else "one of each box"
    if kind.kind == "scalar":
        return f"{kind.name} ({batch},)"
    if kind.kind == "fixed":
        assert kind.dtype is not None
        return f"{kind.dtype.name} ({', '.join(map(str, (batch, *(kind.shape or ()))))})"
    if isinstance(kind, ValuesType):
        return f"ss.Ragged of {kind.elements.name}"
    return f"a list of {batch}"
