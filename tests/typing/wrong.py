"""What users write by mistake. Each line that says ``# wrong`` is one that a type checker has to find, and no other."""

import shardstream as ss

ss.ShardDatset("out/")  # wrong
ss.decode.RandomResizeCrop(224)  # wrong
ss.augment.RandomErase()  # wrong
ss.testing.make_datasets("out/")  # wrong
print(ss.errors.NoSuchError)  # wrong
print(ss.info("out/").sample)  # wrong
ss.view("out/").write("page.html")  # wrong
ss.bench("out/", seconds="ten")  # wrong
ss.doctor("out/", cash="/nvme")  # wrong
ss.verify("out/", decode="yes")  # wrong
ss.pack("photos/", "out/", format="zip")  # wrong
ss.pack("photos/")  # wrong
ds = ss.ShardDataset("out/", field=["cls"])  # wrong
ss.ShardDataset("out/", fields=["cls"], tail="keep")  # wrong
ss.ShardDataset("out/", fields=3)  # wrong
ds.set_epoch("3")  # wrong
ds.to_tuples("jpg", "cls")  # wrong
loader = ss.Loader(ds, num_workers="all")  # wrong
print(loader.stats.samples_per_seconds)  # wrong
loader.load_state_dict(3)  # wrong
ss.DevicePrefetcher(loader, depth="two")  # wrong
