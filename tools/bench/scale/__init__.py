"""What the order costs at scale, and what starting, resuming and changing epochs cost: ``tools/bench/run order``.

- `data`: a manifest of a million shards, record shards of 55 KB a sample, and ten million small samples.
- `arithmetic`: what a fresh process does with the order alone.
- `pipeline`: what it does with data sets and loaders.
- `study`: the measurements, their bars, and the table.
"""
