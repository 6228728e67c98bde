"""Benchmarks against peers, and studies of our own: ``tools/bench/run``.

A benchmark is a list of contenders. Each round runs every contender once, in a process of its own, in an order
shuffled anew. Figures are medians over the rounds, and ratios medians of the ratios inside each round, since machines
drift.

- `harness`: contenders, rounds, what is checked, memory; knows no benchmark.
- `child`: the process a contender runs in: calls one function and prints its result as one line of JSON.
- `train`: a training pipeline: what is compared, and the functions that do it.
- `pack`: packing, beside peers and the bare transcoder; with bars.
- `engines`: packing on clusters, beside our own processes; with a bar.
- `device_resize`: what workers gain where the device resizes.
- `race`: decoding, cropping and raw bytes beside every peer, in environments of their own; with bars and a chart.
- `foreign`: data of other libraries in place, beside shards of ours and their own readers; with bars.
- `augment`: augmentation of batches, operation by operation, beside torchvision v2 and kornia; with a bar.
- `scale`: what the order costs at ten billion samples, and starting, resuming and changing epochs; with bars.
- `stream`: streaming from an object store, beside peers and a bare GET, the memory of its workers (with a
  plot), and what a start asks for.
- `tails`: what a few large photographs do to the steps, beside equal ones.
- `text`: tokens out of bins beside loops over mapped files, and texts into tokens beside the bare tokenizer.
- `shuffle`: how well epochs are shuffled, beside peers; with plots.
- `watching`: what counters and the watchdog cost; a command by itself, as `step`.
- `cluster`: a simulation of what many nodes would fetch.
- `data`: the photographs, and the shards made from them.
- `drawing`: how plots look.
- `peers`: peers that need help to be imported.
- `report`: machine and versions, the tables, the pages of ``docs/benchmarks/`` and ``docs/shuffle.md``.
- `__main__`: the command.
"""
