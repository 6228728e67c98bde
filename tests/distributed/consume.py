"""A training job of which only the samples matter; `launching.Job` starts it under torchrun.

Every rank writes down the ids of each batch before the ranks meet in an all-reduce, as gradients do, so no rank is ever
a step ahead. Rank 0 saves the state of its loader every so many steps, by rename. Lines are
``[epoch, step, [id, ...]]``; steps are counted by this file, from the start of this process on.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import shardstream as ss


def main() -> None:
    job: dict[str, Any] = json.loads(sys.argv[1])
    folder, checkpoint = Path(job["folder"]), Path(job["checkpoint"])
    torch.set_num_threads(1)
    dataset = ss.ShardDataset(job["data"], fields=[job["field"]], shuffle=True, **job["dataset"])
    loader = ss.Loader(dataset, **job["loader"])
    dist.init_process_group("gloo")  # after the loader: ranks are looked up when an iteration begins
    rank = dist.get_rank()
    if checkpoint.exists():
        loader.load_state_dict(json.loads(checkpoint.read_text())["loader"])
    log = os.open(folder / f"rank-{rank}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    step = 0
    while loader.epoch < job["epochs"]:
        epoch = loader.epoch
        for batch in loader:
            os.write(log, json.dumps([epoch, step, batch[job["field"]].tolist()]).encode() + b"\n")
            dist.all_reduce(torch.zeros(1))
            step += 1
            if rank == 0 and step % job["save_every"] == 0:
                text = json.dumps({"run": job["run"], "steps": step, "loader": loader.state_dict()})
                unfinished = checkpoint.with_suffix(".unfinished")
                unfinished.write_text(text)
                os.replace(unfinished, checkpoint)
            time.sleep(job["pause"])
            while step == 10 and job["gate"] and not Path(job["gate"]).exists():
                time.sleep(0.01)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
