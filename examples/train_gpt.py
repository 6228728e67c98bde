"""Train a small GPT on texts in bins: no document is cut that fits, none sees another, a run goes on with other ranks.

    python examples/train_gpt.py run/
    torchrun --nproc-per-node=2 examples/train_gpt.py run/ --workers 1      # goes on where the other one was killed

Texts, data set and checkpoint lie in run/. Needs shardstream[text], for a tokenizer that is trained here.
"""

import argparse
import gzip
import json
import os
import sysconfig
from pathlib import Path

import tokenizers
import torch
import torch.distributed as dist
from torch import nn

import shardstream as ss

EPOCHS, LENGTH, WIDTH, HEADS = 3, 128, 64, 4
BINS = 12  # a step, of all ranks together: so a step is the same with any number
VOCABULARY, END, TEXTS = 1024, "<|end|>", 200


def make(folder: Path) -> None:
    """Texts that every Debian machine has, a tokenizer of them, and bins."""
    found = [*sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")), *sorted(Path("/usr/share/doc").glob("*/c*"))]
    with (folder / "texts.jsonl").open("w") as out:
        for path in [path for path in found if path.is_file()][:TEXTS]:
            with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
                print(json.dumps({"name": str(path), "text": file.read(4_000).decode(errors="ignore")}), file=out)
    tokenizer = tokenizers.ByteLevelBPETokenizer()
    tokenizer.train(str(folder / "texts.jsonl"), VOCABULARY, special_tokens=[END], show_progress=False)
    bins = ss.PackedSequences(LENGTH, tokenizer=tokenizer, eos=END)
    ss.pack(folder / "texts.jsonl", folder / "shards", bins=bins, dedup=True, format="record", shard_size="500kB")


class GPT(nn.Module):
    """A transformer whose tokens see the ones before them in their own document."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, 0.0, "gelu", batch_first=True, norm_first=True)
        for table in (self.tokens, self.places):
            nn.init.normal_(table.weight, std=0.02)
        self.layers = nn.TransformerEncoder(layer, 2, nn.LayerNorm(WIDTH), enable_nested_tensor=False)

    def forward(self, ids: torch.Tensor, positions: torch.Tensor, segments: torch.Tensor) -> torch.Tensor:
        """Logits, (rows, L, VOCABULARY), of three outputs of `Packed`."""
        later = torch.ones(LENGTH, LENGTH, dtype=torch.bool, device=ids.device).triu(1)
        hidden = (segments[:, :, None] != segments[:, None, :]) | later
        found: torch.Tensor = self.layers(self.tokens(ids) + self.places(positions), hidden.repeat_interleave(HEADS, 0))
        return found @ self.tokens.weight.T


def main() -> None:
    """Make the data set where there is none, train, go on where a run before this one was stopped."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="for the data set and the checkpoint; a run in it goes on")
    parser.add_argument("--workers", type=int, default=2, help="of each rank")
    args = parser.parse_args()
    checkpoint, device = args.folder / "checkpoint.pt", "cuda" if torch.cuda.is_available() else "cpu"
    if "RANK" not in os.environ:  # it was not started by torchrun: a group of one
        os.environ |= {
            "RANK": "0",
            "WORLD_SIZE": "1",
            "MASTER_ADDR": "localhost",
            "MASTER_PORT": "0",
            "LOCAL_RANK": "0",
        }
    if device == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group()
    if dist.get_rank() == 0 and not (args.folder / "shards" / "dataset.json").exists():
        args.folder.mkdir(parents=True, exist_ok=True)
        make(args.folder)
    dist.barrier()
    ds = ss.ShardDataset(args.folder / "shards", fields={"text": ss.decode.Packed(labels="next")}, shuffle=True)
    loader = ss.Loader(ds, batch_size=BINS // dist.get_world_size(), num_workers=args.workers)
    torch.manual_seed(0)
    model = GPT().to(device)
    optimizer, step = torch.optim.AdamW(model.parameters(), 3e-3), 0
    replica = nn.parallel.DistributedDataParallel(model)
    parts = (("model", model), ("optimizer", optimizer), ("loader", loader))
    if checkpoint.exists():
        saved = torch.load(checkpoint, map_location=device)
        step = saved["step"]
        for name, part in parts:
            part.load_state_dict(saved[name])
    while loader.epoch < EPOCHS:
        for batch in ss.DevicePrefetcher(loader, device):
            logits = replica(batch["ids"], batch["position_ids"], batch["segment_ids"])
            lost = nn.functional.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten(), reduction="sum")
            told = torch.stack([lost.detach(), (batch["labels"] >= 0).sum()])
            dist.all_reduce(told)  # a token counts the same, whichever rank has it
            optimizer.zero_grad()
            (lost * dist.get_world_size() / told[1]).backward()
            optimizer.step()
            step += 1
            if step % 10 == 0 and dist.get_rank() == 0:
                state = {name: part.state_dict() for name, part in parts} | {"step": step}
                torch.save(state, checkpoint.with_suffix(".part"))
                checkpoint.with_suffix(".part").replace(checkpoint)  # there is a whole one at any moment
                print(f"epoch {loader.epoch}  step {step}  loss {told[0] / told[1]:.5f}", flush=True)


if __name__ == "__main__":
    main()
