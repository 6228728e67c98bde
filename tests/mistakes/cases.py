"""Mistakes that are made often: a title, the code, and what the message has to say: thing, place, fix.

The code runs in a folder with ``photos/`` (class folders), ``list.tsv``, ``out/`` (packed photographs, of different
sizes, fields ``jpg`` and ``cls``), ``val/`` (another data set), and the functions of `page`. It ends in an error,
or something is said in the log, or printed.
``docs/mistakes.md`` is made of this list and of the messages.
"""

from __future__ import annotations

from typing import NamedTuple


class Mistake(NamedTuple):
    """One of them: what is done, and the parts of the message that name thing, place and fix."""

    title: str
    code: str
    thing: str
    place: str
    fix: str


MISTAKES = [
    Mistake("A path that holds no data set", 'ss.ShardDataset("outt/")', "no data set", "outt", "shardstream pack"),
    Mistake(
        "A folder that holds no data set",
        'ss.Reader("empty/")',
        "data set",
        "empty",
        "pack",
    ),
    Mistake("A list that is not there", 'ss.pack("lists.tsv", "new/")', "no such list", "lists.tsv", "list.tsv"),
    Mistake(
        "A list whose paths are relative to another folder",
        'ss.pack("moved.tsv", "new/")',
        "pictures/",
        "moved.tsv",
        "directory of the list",
    ),
    Mistake(
        "Packing into a folder that holds another data set",
        'ss.pack("photos/", "out/")',
        "already holds",
        "out",
        "overwrite",
    ),
    Mistake(
        "A typo in the format of shards", 'ss.pack("photos/", "new/", format="tars")', "format", "'tars'", "tar, record"
    ),
    Mistake(
        "A size without a unit that is one",
        'ss.pack("photos/", "new/", shard_size="256 megs")',
        "256 megs",
        "shard_size",
        "256MB",
    ),
    Mistake(
        "Two samples with one key",
        'ss.pack([{"__key__": "a", "n": 1}, {"__key__": "a", "n": 2}], "new/")',
        "same key",
        "sample 0 and sample 1",
        "key=",
    ),
    Mistake(
        "A sample without a key",
        'with ss.ShardWriter("new/") as writer:\n    writer.write({"jpg": jpeg})',
        "key",
        "None",
        "__key__",
    ),
    Mistake(
        "Labels that are text in one sample and numbers in the next",
        'with ss.ShardWriter("new/") as writer:\n'
        '    writer.write({"__key__": "a", "cls": 3})\n'
        '    writer.write({"__key__": "b", "cls": "cat"})',
        "cls",
        "key b",
        "int64",
    ),
    Mistake(
        "A label that does not fit its type",
        'with ss.ShardWriter("new/", fields={"cls": "uint8"}) as writer:\n'
        '    writer.write({"__key__": "a", "cls": 300})',
        "300",
        "cls",
        "uint8",
    ),
    Mistake(
        "An array of another shape than was declared",
        'with ss.ShardWriter("new/", fields={"emb": "array:float32:8"}) as writer:\n'
        '    writer.write({"__key__": "a", "emb": np.zeros(9, np.float32)})',
        "9",
        "key a",
        "8",
    ),
    Mistake(
        "A field that is not stored", 'ss.ShardDataset("out/", fields=["jpg", "label"])', "'label'", "'cls'", "source="
    ),
    Mistake(
        "A field of another name without source=",
        'ss.ShardDataset("out/", fields={"photo": ss.decode.CenterCrop(32)})',
        "'photo'",
        "'jpg'",
        "source=",
    ),
    Mistake(
        "A mask like an image that is not there",
        'ss.ShardDataset("out/", fields={"cls": None, "mask": ss.decode.Mask(source="jpg", like="image")})',
        "'image'",
        "mask",
        "like",
    ),
    Mistake(
        "Images of different sizes in one batch",
        'ss.ShardDataset("out/", batch_size=8).peek()',
        "shapes",
        "field jpg",
        "RandomResizedCrop",
    ),
    Mistake(
        "A transform that forgets to return the sample",
        'ss.ShardDataset("out/", transform=forgets, batch_size=8, fields=["cls"]).peek()',
        "none of the 8 samples",
        "transform",
        "return the sample",
    ),
    Mistake(
        "A transform that raises",
        'ss.ShardDataset("out/", transform=fails, batch_size=8, fields=["cls"]).peek()',
        "KeyError",
        "key",
        "traceback",
    ),
    Mistake(
        "A torchvision transform for PIL images in fields=",
        'ss.ShardDataset("out/", fields={"jpg": needs_pil, "cls": None}, batch_size=8).peek()',
        "AttributeError",
        "field jpg",
        "your code",
    ),
    Mistake(
        "A batch larger than the share of a rank",
        'len(ss.ShardDataset("out/", batch_size=4096, shuffle=True, fields=["cls"]).peek()["cls"])',
        "4096",
        "64 samples",
        "batch_size",
    ),
    Mistake(
        "No batch size at all",
        'next(iter(ss.DevicePrefetcher(ss.Loader(ss.ShardDataset("out/", fields=["cls"])), "cuda")))',
        "cuda",
        "device",
        "cpu",
    ),
    Mistake(
        "shuffle= given to the loader",
        'ss.Loader(ss.ShardDataset("out/"), batch_size=8, shuffle=True)',
        "shuffle",
        "ShardDataset",
        "shuffle=True",
    ),
    Mistake(
        "A DistributedSampler",
        'ss.Loader(ss.ShardDataset("out/"), batch_size=8, sampler=range(8))',
        "sampler",
        "dataset",
        "by themselves",
    ),
    Mistake(
        "drop_last= given to the loader",
        'ss.Loader(ss.ShardDataset("out/"), batch_size=8, drop_last=True)',
        "drop_last",
        "tail",
        "drop",
    ),
    Mistake(
        "An index into a data set that is streamed", 'ss.ShardDataset("out/")[0]', "[0]", "url out", "ss.Reader(url)[0]"
    ),
    Mistake(
        "A key that no sample has", 'ss.Reader("out/").get("cat/999")', "no sample has this key", "cat/999", "number"
    ),
    Mistake("A number past the end", 'ss.Reader("out/")[1000]', "1000", "url out", "from 0 to 63"),
    Mistake("set_epoch with what is no number", 'ss.ShardDataset("out/").set_epoch("3")', "epoch", "'3'", "from 0"),
    Mistake(
        "The state of another data set",
        'ds = ss.ShardDataset("val/", batch_size=8, fields=["cls"])\n'
        'ds.load_state_dict(ss.ShardDataset("out/", batch_size=8, fields=["cls"]).state_dict())',
        "state",
        "val",
        "data",
    ),
    Mistake(
        "A state with another seed",
        'ds = ss.ShardDataset("out/", batch_size=8, seed=1, shuffle=True)\n'
        'ds.load_state_dict(ss.ShardDataset("out/", batch_size=8, seed=0, shuffle=True).state_dict())',
        "seed",
        "1",
        "seed=0",
    ),
    Mistake(
        "A checkpoint in place of the state in it",
        'ss.Loader(ss.ShardDataset("out/"), batch_size=8).load_state_dict({"model": {}, "data": {}})',
        "state",
        "order_version",
        "state_dict()",
    ),
    Mistake(
        "A rank that is not below the number of ranks",
        'ss.ShardDataset("out/", ranks=(8, 8))',
        "rank 8",
        "of 8",
        "from 0",
    ),
    Mistake(
        "A rank without the number of ranks", 'ss.ShardDataset("out/", ranks=1)', "world_size", "rank", "ranks=(0, 8)"
    ),
    Mistake(
        "A split that is not one of the parts",
        'ss.ShardDataset("out/", split=("valid", {"train": 0.9, "val": 0.1}))',
        "'valid'",
        "'val'",
        "split",
    ),
    Mistake(
        "Shares of a split that do not make one",
        'ss.ShardDataset("out/", split=("val", {"train": 0.9, "val": 0.2}))',
        "1.1",
        "split",
        "1",
    ),
    Mistake("A condition on a field of text", 'ss.ShardDataset("out/", where={"jpg": [1]})', "jpg", "where", "number"),
    Mistake(
        "Credentials for a folder of this machine",
        'ss.ShardDataset("out/", storage_options={"access_key_id": "A"})',
        "storage_options",
        "access_key_id",
        "leave storage_options out",
    ),
    Mistake(
        "A URL of a scheme that nobody knows", 'ss.ShardDataset("s4://bucket/photos")', "s4", "s4://bucket/photos", "s3"
    ),
    Mistake(
        "A lambda under spawn",
        'loader = ss.Loader(ss.ShardDataset("out/", fields=["cls"], transform=lambda sample: sample),'
        ' batch_size=8, num_workers=1, multiprocessing_context="spawn")\n'
        "next(iter(loader))",
        "lambda",
        "pickle",
        "module",
    ),
    Mistake("A misspelt name", 'ss.ShardDatset("out/")', "ShardDatset", "shardstream", "did you mean 'ShardDataset'"),
    Mistake(
        "Samples in place of a path", 'ss.ShardDataset([{"n": 1}])', "path or a URL", "dict", "ss.pack(samples, dest)"
    ),
    Mistake(
        "Ranks that are dealt out twice: the data set has done it",
        "from torch.utils.data import DistributedSampler\n\n"
        'ds = ss.ShardDataset("out/")\n'
        "ss.Loader(ds, batch_size=8, sampler=DistributedSampler(range(64), num_replicas=2, rank=0))",
        "sampler",
        "dataset",
        "found by themselves",
    ),
    Mistake(
        "More threads than cores, in each of the workers",
        "import os\n\n"
        'os.environ["OMP_NUM_THREADS"] = "8"\n'
        'print(*[found for found in ss.doctor(num_workers=1000) if found.check == "threads"])',
        "threads",
        "OMP_NUM_THREADS=8",
        "export OMP_NUM_THREADS=1",
    ),
    Mistake(
        "A cache that is full",
        "store = ss.testing.make_dataset(ss.testing.MemoryStore(), samples=20)  # in place of a bucket\n"
        'for sample in ss.ShardDataset(store, cache=ss.Cache("cache/", size="8KB")):\n'
        "    pass",
        "8,000 bytes",
        "the cache cache",
        "size=",
    ),
]
