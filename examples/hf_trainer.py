"""Fine-tune a transformer with Hugging Face's Trainer, which goes on without reading what it has seen.

    torchrun --nproc-per-node=2 examples/hf_trainer.py run/

Data and checkpoints lie in run/. Start it again, with other ranks and --workers too: it goes on with the samples left.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments

import shardstream as ss

EPOCHS, BATCH, LENGTH = 3, 16, 12  # BATCH: samples a step, of all ranks together
WORDS = {0: "fine great loved solid", 1: "poor dull hated weak"}


def make(shards: Path) -> None:
    """Pack reviews and what they say."""
    with ss.ShardWriter(shards, fields={"txt": "str", "cls": "int64"}, classes=["good", "bad"]) as writer:
        for number in range(512):
            text = f"it was {WORDS[number % 2].split()[number // 2 % 4]} in {number} ways"
            writer.write({"__key__": f"{number}", "txt": text, "cls": number % 2})


def tokenize(text: str) -> list[int]:
    """A number of each word; yours is the model's tokenizer."""
    return [int(word) + 100 if word.isdecimal() else 1 + sum(map(ord, word)) % 99 for word in text.split()]


def model_inputs(batch: dict[str, Any]) -> dict[str, Any]:
    """What the model takes."""
    return {"input_ids": batch["tokens"], "attention_mask": (batch["tokens"] > 0).long(), "labels": batch["cls"]}


class Place(TrainerCallback):
    """Writes the loader's place beside each checkpoint."""

    def on_save(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """``Trainer`` has made a checkpoint."""
        if state.is_world_process_zero:
            place = Path(args.output_dir, f"checkpoint-{state.global_step}", "loader.json")
            place.write_text(json.dumps(more["train_dataloader"].state_dict()))


def main() -> None:
    """Train, go on where a run before this one was stopped."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="for the data set and the checkpoints; a run in it goes on")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    shards, output = args.folder / "shards", args.folder / "checkpoints"
    every = {"save_steps": 10, "logging_steps": 10, "report_to": [], "use_cpu": not torch.cuda.is_available()}
    given = TrainingArguments(str(output), num_train_epochs=EPOCHS, learning_rate=2e-3, **every)
    with given.main_process_first():
        if not (shards / "dataset.json").exists():
            make(shards)
    fields = {"tokens": ss.decode.Text(tokenize, source="txt", pad_to=LENGTH), "cls": None}
    ds = ss.ShardDataset(shards, fields=fields, shuffle=True, batch_transform=model_inputs)
    loader = ss.Loader(ds, batch_size=BATCH // given.world_size, num_workers=args.workers)
    small = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    model = BertForSequenceClassification(BertConfig(vocab_size=1000, **small))
    trainer = Trainer(model, given, callbacks=[Place()])
    trainer.get_train_dataloader = lambda: loader  # in place of what it makes of a data set
    places = sorted(output.glob("*/loader.json"), key=lambda place: place.stat().st_mtime)
    if places:  # what Trainer would read and leave out is not read: the loader knows where it was
        loader.load_state_dict(json.loads(places[-1].read_text()))
        given.ignore_data_skip = True
    trainer.train(resume_from_checkpoint=str(places[-1].parent) if places else None)


if __name__ == "__main__":
    main()
