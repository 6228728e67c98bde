# needs: tensorflow-cpu==2.21.0 tfrecord==1.14.6 tensorflow-datasets==4.9.10 importlib_resources==7.1.0
"""Writes ``tests/golden/foreign/tfrecord``: files of TensorFlow, and what TensorFlow reads from them.

Run it in an environment of its own::

    python3 -m venv /tmp/golden-tfrecord
    /tmp/golden-tfrecord/bin/pip install $(head -n 1 tools/foreign/golden_tfrecord.py | cut -d: -f2)
    /tmp/golden-tfrecord/bin/python tools/foreign/golden_tfrecord.py
"""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_datasets as tfds

# A process of its own, since the package and TensorFlow cannot be imported together.
_PACKAGE = """
import sys
from tfrecord import TFRecordWriter
writer = TFRecordWriter(sys.argv[1])
for row in range(3):
    image = open(sys.argv[2 + row], "rb").read()
    writer.write({"image": (image, "byte"), "label": (row, "int"), "weights": ([0.5, row], "float")})
writer.close()
"""
FOLDER = Path(__file__).parents[2] / "tests" / "golden" / "foreign" / "tfrecord"


def feature(value: Any) -> tf.train.Feature:
    """A list, or one value, of bytes, text, floats or integers; ``None``: a feature without a value."""
    if value is None:
        return tf.train.Feature()
    values = value if isinstance(value, list | np.ndarray) else [value]
    if len(values) and isinstance(values[0], str):
        values = [one.encode() for one in values]
    if len(values) and isinstance(values[0], bytes):
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))
    if len(values) and isinstance(values[0], int | np.integer):
        return tf.train.Feature(int64_list=tf.train.Int64List(value=values))
    return tf.train.Feature(float_list=tf.train.FloatList(value=values))


def features(values: dict[str, Any]) -> tf.train.Features:
    """A map of features."""
    return tf.train.Features(feature={name: feature(value) for name, value in values.items()})


def plain(one: tf.train.Feature) -> Any:
    """The values of a feature, as JSON."""
    kind = one.WhichOneof("kind")
    if kind is None:
        return None
    values = list(getattr(one, kind).value)
    return [{"bytes": base64.b64encode(one).decode()} if isinstance(one, bytes) else one for one in values]


def write(path: str, messages: Iterable[Any], compression: str = "") -> None:
    """A file of messages."""
    (FOLDER / path).parent.mkdir(parents=True, exist_ok=True)
    with tf.io.TFRecordWriter(str(FOLDER / path), compression) as out:
        for message in messages:
            out.write(message if isinstance(message, bytes) else message.SerializeToString())


def read(path: Path) -> list[dict[str, Any]]:
    """What TensorFlow reads from a file: features by name, and of lists of features a list each."""
    found = []
    for record in tf.data.TFRecordDataset(str(path)):
        one = tf.train.SequenceExample.FromString(record.numpy())
        sample = {name: plain(value) for name, value in one.context.feature.items()}
        for name, frames in one.feature_lists.feature_list.items():
            sample[name] = [plain(frame) for frame in frames.feature]
        found.append(dict(sorted(sample.items())))
    return found


def picture(seed: int, kind: str = "jpeg") -> bytes:
    """A small image."""
    pixels = tf.constant(np.random.default_rng(seed).integers(0, 256, (12, 16, 3), np.uint8))
    encoded: bytes = (tf.io.encode_jpeg(pixels) if kind == "jpeg" else tf.io.encode_png(pixels)).numpy()
    return encoded


def imagenet(row: int) -> dict[str, Any]:
    """The features that TF-Slim's script for ImageNet writes."""
    boxes = [0.1 * place for place in range(row % 3)]
    return {
        "image/height": 12,
        "image/width": 16,
        "image/colorspace": "RGB",
        "image/channels": 3,
        "image/class/label": row % 4 + 1,
        "image/class/synset": f"n{row % 4:08d}",
        "image/class/text": ["tench", "goldfish", "great white shark", "Käfer"][row % 4],
        "image/object/bbox/xmin": boxes,
        "image/object/bbox/xmax": [one + 0.5 for one in boxes],
        "image/object/bbox/label": [row % 4 + 1] * len(boxes) or None,
        "image/format": "JPEG",
        "image/filename": f"n{row % 4:08d}_{row}.JPEG",
        "image/encoded": picture(row),
    }


def lists(row: int) -> dict[str, Any]:
    """Every kind of list."""
    return {
        "one_int": -row,
        "extreme": [-(1 << 63), (1 << 63) - 1, 0, -1, 127, 128],
        "ints": list(range(-row, row + 1)),
        "one_float": row / 3,
        "floats4": [float(row), 0.5, -1e30, 1e-30],
        "floats": [0.25] * (row + 1),
        "text": f"sample {row}",
        "strings": [b"\x00\xff", b"", b"x" * 200],
        "some_strings": [b"a"] * (row % 3 + 1),
        "sometimes": row if row % 2 else None,
        **({"absent": 1.5} if row == 2 else {}),
        "picture": picture(row, "png"),
    }


def sequence(row: int) -> tf.train.SequenceExample:
    """Frames of one value, of equally many, and of any number."""
    frames: dict[str, list[Any]] = {
        "captions": [f"caption {place}" for place in range(row)],
        "ids": list(range(row)),
        "boxes": [[0.0, 0.5, 1.0, float(place)] for place in range(row)],
        "words": [[1] * place for place in range(1, row + 1)],
        "tags": [["a"] * place for place in range(1, row + 1)],
    }
    return tf.train.SequenceExample(
        context=features({"video": f"v{row}", "length": row}),
        feature_lists=tf.train.FeatureLists(
            feature_list={
                name: tf.train.FeatureList(feature=[feature(value) for value in values])
                for name, values in frames.items()
            }
        ),
    )


def write_tfds() -> None:
    """A data set of TensorFlow Datasets: its files, description and class names."""
    described = tfds.features.FeaturesDict(
        {
            "image": tfds.features.Image(shape=(None, None, 3), encoding_format="png"),
            "label": tfds.features.ClassLabel(names=["airplane", "cat", "sea lion"]),
            "file_name": tfds.features.Text(),
            "objects": tfds.features.Sequence({"bbox": tfds.features.BBoxFeature(), "id": np.int64}),
            "vector": tfds.features.Tensor(shape=(4,), dtype=np.float32),
            "flag": np.bool_,
        }
    )

    def samples() -> Iterable[Any]:
        for row in range(4):
            yield {
                "image": np.full((4, 5, 3), row, np.uint8),
                "label": row % 3,
                "file_name": f"{row}.png",
                "objects": [{"bbox": tfds.features.BBox(0.0, 0.0, 0.5, 1.0), "id": place} for place in range(1)],
                "vector": np.arange(4, dtype=np.float32) + row,
                "flag": row == 1,
            }

    folder = FOLDER / "tfds"
    folder.mkdir(parents=True)
    serialize = described.serialize_example
    write("tfds/small-train.tfrecord-00000-of-00001", [serialize(described.encode_example(one)) for one in samples()])
    described.save_config(str(folder))


def main() -> None:
    """Write everything anew."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    for shard in range(2):
        rows = range(shard * 6, shard * 6 + 6)
        write(f"imagenet/train-{shard:05d}-of-00002", [tf.train.Example(features=features(imagenet(r))) for r in rows])
    write("lists/lists.tfrecord", [tf.train.Example(features=features(lists(row))) for row in range(5)])
    write("sequences/videos.tfrecords", [sequence(row) for row in range(4)])
    write("bytes/notes.tfrecord", [b"no message", b"", b"\x0a\x03abc"])
    write("gzip/lists.tfrecord.gz", [tf.train.Example(features=features(lists(1)))], "GZIP")
    write("zlib/lists.tfrecord", [tf.train.Example(features=features(lists(1)))], "ZLIB")
    (FOLDER / "package").mkdir()
    pictures = [FOLDER / "package" / f"{row}.jpg" for row in range(3)]
    for row, path in enumerate(pictures):
        path.write_bytes(picture(row))
    target = FOLDER / "package" / "data.tfrecord"
    subprocess.run([sys.executable, "-c", _PACKAGE, target, *pictures], check=True, timeout=60)
    for path in pictures:
        path.unlink()
    write_tfds()
    expected = {
        folder: [
            sample
            for path in sorted((FOLDER / folder).glob("*tfrecord*")) or sorted((FOLDER / folder).iterdir())
            for sample in read(path)
        ]
        for folder in ("imagenet", "lists", "sequences", "package", "tfds")
    }
    (FOLDER / "expected.json").write_text(json.dumps(expected, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
