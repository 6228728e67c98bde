"""Streaming from an object store, beside peers and beside a bare GET: ``tools/bench/run stream`` and ``memory``.

- `servers`: a server that speaks S3, and a proxy that adds latency and counts requests.
- `records`: the data, in each contender's own format, on that server.
- `loaders`: an epoch in a fresh process: ours and the peers'.
- `bare`: the same bytes by obstore alone, and uploads by it.
- `starts`: requests up to the first batches of many workers, counted.
- `packing`: packing to the store, and packing to a disk followed by an upload.
- `study`: what is measured, the bars, and the tables.
- `memory`: a drill: private memory of workers over time while they stream 20 GB.
- `plot`: its picture.
"""
