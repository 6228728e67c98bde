"""How well an epoch is shuffled, beside a full shuffle and peers: ``tools/bench/run shuffle``.

- `measures`: class entropy, co-batch ratio, Kendall's tau, displacement; pure functions of arrays.
- `settings`: the data sets.
- `orders`: the orders of epochs, ours and by the peers' own code.
- `study`: what is compared, and what each reaches.
- `equal`: what becomes of equally long shards.
- `plots`, `page`: what is made of it in ``docs/``.
"""
