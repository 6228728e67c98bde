"""The page of each error: what ``shardstream errors CODE`` prints, and ``docs/errors.md`` shows.

Examples run in a folder that holds ``shards/``, a packed data set with the fields ``jpg``, ``cls`` and ``txt``, and
``photos/``, with folders of classes. They raise the error of their page with its message; a test says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from shardstream import errors


@dataclass(frozen=True)
class ErrorPage:
    """What is to be known of one error.

    Attributes:
        cause: What brings it about.
        fix: What to do.
        example: Python that raises it.
        message: The first line of what it says, ``...`` standing for what differs from run to run.
    """

    cause: str
    fix: str
    example: str
    message: str


def kinds() -> dict[str, type[errors.ShardStreamError]]:
    """Every class of errors that has a page, by its code, the general ones first."""
    found: dict[str, type[errors.ShardStreamError]] = {}
    for kind in vars(errors).values():
        if isinstance(kind, type) and issubclass(kind, errors.ShardStreamError):
            found[kind.code] = kind
    return {code: kind for code, kind in found.items() if code in PAGES}


def summary(kind: type[errors.ShardStreamError]) -> str:
    """What an error means, in a line."""
    return (kind.__doc__ or "").splitlines()[0].replace("``", "`")


def markdown(code: str) -> Iterator[str]:
    """The lines of the page of this code, in Markdown."""
    page, kind = PAGES[code], kinds()[code]
    bases = " and ".join(f"`{base.__name__}`" for base in kind.__bases__ if base is not errors.ShardStreamError)
    yield f"`ss.errors.{kind.__name__}`{f', also a {bases}' if bases else ''}: {summary(kind)}"
    yield from ("", f"**Cause.** {page.cause}", "", f"**Fix.** {page.fix}", "", "**Example.**", "", "```py")
    yield from page.example.strip().splitlines()
    yield from ("```", "", "It says:", "", "```text", page.message, "```")


PAGES = {
    "usage": ErrorPage(
        "An argument has a value that cannot work, or two arguments contradict each other.",
        "The message names the argument, what it got and what it takes. Correct the call; the hint shows how it is "
        "written. `help(ss.pack)`, or `--help` of a verb, lists the arguments with their defaults.",
        'import shardstream as ss\n\nss.pack("photos/", "out/", shard_size="big")',
        "shard_size must be a size of at least one byte, got 'big'",
    ),
    "field": ErrorPage(
        "A field is asked for that the data set does not have, or a decoder is given a field of another type: a "
        "crop of text, for example.",
        "`shardstream info URL` lists the fields and their types. Names are those of file extensions when files were "
        "packed. `image` reads whichever image a sample has. To call a stored field by another name, write "
        "`fields={'photo': ss.decode.Image(source='jpg')}`.",
        'import shardstream as ss\n\nss.ShardDataset("shards/", fields=["caption"])',
        "no field 'caption' is stored",
    ),
    "destination": ErrorPage(
        "The place that is written to already holds something else: a data set of other samples or other options, "
        "or files that are no data set.",
        "Choose another folder. `overwrite=True` (`--overwrite`) replaces a data set once the new one is complete; "
        "`append=True` (`--append`) adds to it. A run that was interrupted goes on when it is given the very same "
        "arguments again: compare them if you meant that.",
        'import shardstream as ss\n\nss.pack("photos/", "shards/")',
        "the folder already holds another data set, of ... samples [url ...]",
    ),
    "missing-key": ErrorPage(
        "No sample has this key. Keys are paths without their extensions, unless `key=` of `pack` said otherwise.",
        "`shardstream view URL 0 1 2` shows what keys look like. `reader.get(key)` and `reader[number]` are two "
        "things: the first takes keys, the second takes numbers in stored order.",
        'import shardstream as ss\n\nss.Reader("shards/").get("cat-17")',
        "no sample has this key [url ..., key cat-17]",
    ),
    "batch": ErrorPage(
        "The samples of a batch differ in shape, in dtype, or in the fields that they have, so that they cannot "
        "become one tensor.",
        "Make images equal with `ss.decode.RandomResizedCrop(224)` or `CenterCrop(224, resize=256)`. Values of "
        "different lengths become `ss.Ragged` (docs/ragged.md). To put batches together yourself, give "
        "`collate_fn=` to `ss.Loader`. Leave out fields that some samples lack.",
        'import shardstream as ss\n\nds = ss.ShardDataset("shards/", fields={"jpg": ss.decode.Image()}, batch_size=8)\n'
        "next(iter(ds))",
        "values of ... different shapes or dtypes cannot become one batch (...) [shard ..., field jpg]",
    ),
    "rank": ErrorPage(
        "The ranks of a run read different things: another dataset, seed, epoch, state, batch size, or number of "
        "workers. Samples would be read twice, or not at all. All ranks that begin or end an iteration after that "
        "raise the same error. From `ss.gather_stats`: some ranks did not call it.",
        "Give all ranks the same arguments, make loaders in the same order, and call `set_epoch`, `load_state_dict`, "
        "and `break` on all ranks or on none. If one rank reads a dataset of its own, pass `ranks=(0, 1)`. For "
        "separate trainings in one job, pass `ss.Loader(..., compare_ranks=False)`.",
        "import torch.distributed as dist\nimport shardstream as ss\n\n"
        'dist.init_process_group("gloo")  # started by torchrun, two processes\n'
        'ds = ss.ShardDataset("shards/", shuffle=True, seed=dist.get_rank(), batch_size=8)  # differs: the mistake\n'
        "next(iter(ss.Loader(ds, num_workers=0)))",
        "ranks do not read the same: seed is 1 on rank 1 and 0 on rank 0",
    ),
    "missing-extra": ErrorPage(
        "What was asked for needs an optional package that is not installed, or cannot be imported here.",
        "The hint is the line that installs it. If it is installed, it is so in another environment: compare `which "
        "python` and `python -m pip --version`. `shardstream doctor` lists what this one has.",
        'import shardstream as ss\n\nss.Reader("s3://bucket/set")  # where obstore is not installed',
        "the package 'obstore' is needed for s3:// URLs, but cannot be imported (...) [url s3://bucket/set]",
    ),
    "storage": ErrorPage(
        "The store could not be read or written: the disk is full or failing, or the network was in trouble for "
        "longer than it is waited for. Requests over a network were repeated before this was raised.",
        "The message says what was tried, for how long, and what went wrong last. `shardstream doctor URL` looks at "
        "credentials, latency and the clock. For outages that last longer, raise "
        "`storage_options={'patience': 600}` (seconds).",
        "import shardstream as ss\nfrom shardstream.testing import MemoryStore, make_dataset\n\n"
        'store = make_dataset(MemoryStore(patience=1), samples=10, fields={"id": "int64"})\n'
        'store.fail("reset", "shard-*")  # every connection breaks\n'
        "list(ss.ShardDataset(store, batch_size=10))",
        "gave up reading after ... s; tried ... times, 0 bytes came: the connection was reset [url ...]",
    ),
    "not-found": ErrorPage(
        "There is no object of this name: a path or URL that was mistyped, a data set that was moved, or a shard "
        "that somebody deleted.",
        "Compare the URL in the message, letter by letter, with `ls` or the tool of the store. Paths are relative to "
        "the folder that the program runs in. If only a shard is missing, restore it from a copy: "
        "`replicas=[URL]` (`--replica`) reads it from there meanwhile, and `shardstream verify` lists all that "
        "are missing.",
        'import shardstream as ss\n\nss.Reader("nowhere/")',
        "there is no data set here: no such file or folder [url ...]",
    ),
    "access": ErrorPage(
        "The store refuses: there are no credentials, they are wrong or have expired, or they lack the right to read "
        "(or list, or write) this bucket. Asking again would not help, so it is not done.",
        "`shardstream doctor URL` says which credentials were found, and where. `aws sso login`, `gcloud auth "
        "application-default login` or `az login` renew them; `storage_options={'anon': True}` "
        "(`--storage-option anon=true`) reads public buckets. A clock that is wrong by minutes makes signatures "
        "invalid. See docs/storage.md.",
        "import shardstream as ss\nfrom shardstream.testing import MemoryStore, make_dataset\n\n"
        'store = make_dataset(MemoryStore(), samples=10, fields={"id": "int64"})\n'
        'store.fail("denied")\n'
        "ss.Reader(store)",
        "access denied, as this store was told [url ...]",
    ),
    "changed": ErrorPage(
        "An object was replaced by another one while it was being read. What was read before and what would be read "
        "now need not belong together.",
        "Do not write to a data set that is in use: pack into a new folder, or use `append=True`, which only adds. "
        "Then start the run again, from its last state.",
        "import shardstream as ss\nfrom shardstream.testing import MemoryStore, make_dataset\n\n"
        'store = make_dataset(MemoryStore(), samples=100, fields={"raw": "bytes"}, shards=3)\n'
        'store.fail("changed", "shard-*")  # somebody writes them anew, again and again\n'
        "reader = ss.Reader(store)\n"
        "for number in range(10):\n"
        "    reader[number]",
        "the object was replaced by another one [url ...]",
    ),
    "source": ErrorPage(
        "The list or folder that is being packed cannot be used as it is: a line that has no label, a column that is "
        "missing, a file of another format than its name says.",
        "The message names the file and the line. Correct it there, or say how it is to be read: `labels='name'`, "
        "`fields=`, `SourceOptions(format=...)`. Single files that cannot be read end no run: they are listed in "
        "`rejects.jsonl` beside the shards.",
        "import pathlib\nimport shardstream as ss\n\n"
        'pathlib.Path("list.tsv").write_text("photos/cat/0.jpg\\tcat\\n")\n'
        'ss.pack("list.tsv", "out/")',
        "the label 'cat' is not a 64-bit integer [url ..., line 1]",
    ),
    "duplicate-key": ErrorPage(
        "Two samples of one data set would have the same key. Keys are how samples are found again, in "
        "`rejects.jsonl`, in error messages and by `reader.get`.",
        "Make keys unique: `key='auto'` (`--key auto`) numbers equal ones, `key='line'` takes line numbers, "
        "`key='path'` whole paths. If the samples are the same, remove one, or let `dedup=True` (`--dedup`) leave out "
        "exact copies.",
        'import shardstream as ss\n\nwith ss.ShardWriter("out/") as writer:\n'
        '    writer.write({"__key__": "cat", "cls": 0})\n'
        '    writer.write({"__key__": "cat", "cls": 1})',
        "sample 0 of shard-000000.tar has the same key [shard shard-000000.tar, sample 1, key cat]",
    ),
    "too-many-rejects": ErrorPage(
        "More samples could not be packed than `SourceOptions(max_rejects=...)` (`--max-rejects`) allows, or a file is "
        "damaged so that the number of its lost samples is unknown.",
        "`shardstream pack SOURCE DEST --dry-run` shows some of the rejected samples with their reasons. Correct the "
        "data and give the same command again: finished shards are kept, and rejected samples are read again. To list "
        "all of them in `rejects.jsonl`, raise the limit or leave it out.",
        'import shardstream as ss\n\nsamples = [{"__key__": "a", "txt": "sound"}, {"txt": "without a key"}]\n'
        'ss.pack(samples, "new/", reading=ss.SourceOptions(max_rejects=0))',
        "1 of 2 samples read so far cannot be packed; max_rejects is 0 [...]",
    ),
    "data": ErrorPage(
        "Stored data are damaged or foreign; reading them again gives the same. The classes below it say more: see "
        "`format`, `version`, `checksum`, `decode`, `unsupported` and `placeholder`.",
        "Catch it to handle all kinds of damage at once. `on_error='skip'` of `ss.ShardDataset` leaves out what is "
        "damaged, up to `max_skips=`. `shardstream verify URL` finds all of it.",
        "import pathlib\nimport shardstream as ss\n\n"
        'shard = pathlib.Path("shards/shard-000000.tar")\n'
        "data = bytearray(shard.read_bytes())\n"
        "data[3000] ^= 1\n"
        "shard.write_bytes(data)\n"
        "try:\n"
        '    ss.Reader("shards/")[0]\n'
        "except ss.errors.DataError as error:\n"
        "    print(error.code, error.place)\n"
        "    raise",
        "stored bytes differ from those that were written [url ..., field jpg, offset ...]",
    ),
    "format": ErrorPage(
        "What lies there is no data set, no shard or no index, or it is cut off: a copy that did not finish, an "
        "editor that changed `dataset.json`, a folder that is something else.",
        "`shardstream verify URL` says which objects are not as they were written. Copy these again from their "
        "source, or pack again with `overwrite=True`. After an edit of class names or meta in `dataset.json`, run "
        "`shardstream verify --reseal URL`.",
        "import pathlib\nimport shardstream as ss\n\n"
        'pathlib.Path("shards/dataset.json").write_text("oops")\n'
        'ss.Reader("shards/")',
        "the manifest is malformed: JSONDecodeError(...) [url ...]",
    ),
    "version": ErrorPage(
        "The data set was written by a newer version of this library, in a form that this one does not know.",
        "Upgrade here: `pip install --upgrade shardstream`. Every version reads what earlier ones wrote, so upgrade "
        "readers before writers.",
        "import json\nimport pathlib\nimport shardstream as ss\n\n"
        'head = pathlib.Path("shards/dataset.json")\n'
        "values = json.loads(head.read_text()) | {'format_version': 99}\n"
        "del values['checksum']\n"
        "head.write_text(json.dumps(values))\n"
        'ss.Reader("shards/")',
        "format version 99 is newer than 1, the newest that this shardstream reads [url ...]",
    ),
    "checksum": ErrorPage(
        "Bytes differ from those that were written: a disk, a copy or a cable changed them. The checksum in the shard "
        "shows it before anything is decoded.",
        "`shardstream verify URL` lists all damage. Copy the shards it names again from a sound copy; with "
        "`replicas=[URL]` (`--replica`) they are read from there meanwhile. If it comes again and again, look at the "
        "machine's memory and disks. `on_error='skip'` trains without these samples.",
        "import pathlib\nimport shardstream as ss\n\n"
        'shard = pathlib.Path("shards/shard-000000.tar")\n'
        "data = bytearray(shard.read_bytes())\n"
        "data[3000] ^= 1  # one bit of the first sample\n"
        "shard.write_bytes(data)\n"
        'ss.Reader("shards/")[0]',
        "stored bytes differ from those that were written [url ..., field jpg, offset ...]",
    ),
    "decode": ErrorPage(
        "The bytes are as they were written, but no picture, text or array comes out of them: the file was damaged, "
        "or of another type than its extension says, before it was packed.",
        "`on_error='skip'` of `ss.ShardDataset` leaves such samples out. `shardstream verify URL --decode` names "
        "all of them, and `shardstream repack URL DEST --drop-damaged` writes a data set without them. When packing, "
        "`ImageOptions(check='decode')` (`--check decode`) rejects them.",
        'import shardstream as ss\n\nwith ss.ShardWriter("out/") as writer:\n'
        '    writer.write({"__key__": "a", "raw": b"no picture"})\n'
        'ds = ss.ShardDataset("out/", fields={"raw": ss.decode.Image()})\n'
        "next(iter(ds))",
        "neither JPEG, PNG nor WebP, nor of another format that is read: begins with ... [..., field raw, offset 0]",
    ),
    "unsupported": ErrorPage(
        "The data is valid, and of a kind that is not read: a 12-bit JPEG, a float TIFF, encrypted Parquet, big-endian "
        "arrays, NPY files of Python objects, text in another encoding than UTF-8. Nothing is damaged.",
        "The message names the kind, and the hint says how to convert it. For tables, leave the column out: "
        '`--field NAME=COLUMN`, `fields=`. `pack` rejects such files with `"kind": "unsupported"` in '
        "`rejects.jsonl`; `on_error='skip'` of `ss.ShardDataset` leaves such samples out. The error is also a "
        "`DecodeError` and a `FormatError`.",
        "import numpy as np\nimport shardstream as ss\n\n"
        'np.save("labels.npy", np.arange(4, dtype=">i4"))\nss.Reader("labels.npy")',
        "'labels' is big-endian, and values are read where they lie [url ..., offset 0]",
    ),
    "placeholder": ErrorPage(
        "A file is in the place of the data: a Git LFS pointer, in a clone without `git lfs pull`; or a web page, if a "
        "download gave a login, an error, or a preview.",
        "Run `git lfs pull` in the repository. For a web page, download the file again and look at its first bytes "
        "(`head -c 100 FILE`): the URL must give the file itself, on Hugging Face `/resolve/` in place of `/blob/`. "
        '`pack` rejects such files with `"kind": "missing"` in `rejects.jsonl`.',
        "import pathlib\nimport shardstream as ss\n\n"
        'pointer = "version https://git-lfs.github.com/spec/v1\\noid sha256:4d7a2146\\nsize 12345\\n"\n'
        'pathlib.Path("train.parquet").write_text(pointer)\nss.Reader("train.parquet")',
        "a Git LFS pointer is here, not the data [url ...]",
    ),
    "transform": ErrorPage(
        "A function of yours, given to `map`, `fields=`, `transform=` or as a backend, raised an error. It is quoted, "
        "and chained: the traceback shows the line in your code.",
        "The message names the sample. `sample = ss.Reader(URL)[number]` fetches it, so that the function can be "
        "tried by itself: `function(sample)`. In worker processes no debugger helps; `num_workers=0` has none.",
        'import shardstream as ss\n\nds = ss.ShardDataset("shards/", fields=["cls"]).map(lambda sample: 1 // 0)\n'
        "next(iter(ds))",
        "transform (<lambda>) raised ZeroDivisionError: ... [shard shard-000000.tar, sample 0, key 000000]",
    ),
    "worker": ErrorPage(
        "A worker process ended without a word, or gave no batch within `timeout=`. Mostly the kernel killed it, "
        "since memory ran out, or `/dev/shm` was full; or a package of C code crashed over a sample. Or workers could "
        "not start: the system refused, or the script starts workers when a worker imports it.",
        "The message says what the worker was at. Look at `dmesg` for `Out of memory`; use fewer workers or a smaller "
        "`prefetch_factor`. `shardstream doctor` compares `/dev/shm` and memory with what the workers need. If it is "
        "always the same sample, fetch it with `ss.Reader` and decode it alone. If a worker ended as it started, move "
        'the loop below `if __name__ == "__main__":`. Under `spawn` and `forkserver`, the default from Python 3.14 on, '
        "each worker runs the script from its top.",
        "import os\nimport shardstream as ss\n\n\ndef crash(sample):\n    os._exit(1)\n\n\n"
        'if __name__ == "__main__":\n'
        '    ds = ss.ShardDataset("shards/", fields=["cls"], batch_size=8).map(crash)\n'
        "    next(iter(ss.Loader(ds, num_workers=1)))",
        "DataLoader worker 0 (process ...) exited with code 1 while it was at the sample named here [..., sample 0]",
    ),
    "too-many-skips": ErrorPage(
        "With `on_error='skip'`, more samples had to be left out than `max_skips=` allows. A few damaged samples do "
        "no harm; many mean that something else is wrong.",
        "`loader.stats.skipped_places` lists what was skipped and why. If a whole shard is damaged, restore it. If "
        "the samples are to be left out for good, `shardstream repack URL DEST --drop-damaged`, or name them in "
        "`exclude_keys=`. Else raise `max_skips=`.",
        "import pathlib\nimport shardstream as ss\n\n"
        'shard = pathlib.Path("shards/shard-000000.tar")\n'
        "data = bytearray(shard.read_bytes())\n"
        "data[3000] ^= 1\n"
        "shard.write_bytes(data)\n"
        'list(ss.ShardDataset("shards/", fields=["jpg"], on_error="skip", max_skips=0))',
        "1 sample had to be skipped, max_skips is 0; the last: stored bytes differ from those that were written [...]",
    ),
}
