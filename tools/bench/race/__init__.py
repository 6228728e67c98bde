"""The race: decoding and cropping beside every peer, each in its best configuration: ``tools/bench/run race``.

- `environments`: an environment for each group of peers, made where it is missing.
- `corpora`: photographs, large ones made of them, and small samples of one size.
- `stores`: writes them in each contender's own format; `prepared`: all of them, where they are missing.
- `epochs`: what is measured in an epoch, and how it is checked.
- `processes`: peers that decode in worker processes; `threads`: those that decode in threads of one process.
- `small`: peers on small samples; `raw`: everybody on bytes, with nothing to decode.
- `ours`: shardstream; `kernels`: its kernels in a plain loop, beside the data set.
- `lines`: who runs, with which settings; `bars`: what ours have to reach.
- `study`: runs it all; `page`: the section; `plot`: the chart.
"""
