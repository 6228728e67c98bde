"""From a source to tasks: which sample goes into which shard.

==============  ===============================================================================
``pack_plan``   ``pack_plan``: the same as independent tasks, for any engine, and their commit
``layout``      which sample goes where: shards cut by count, the plan's fingerprint, the tasks
``permute``     the write-time shuffle: a keyed bijection, computed where it is needed
``inference``   types of fields that nobody declared, from a sample of the source
``document_fields``  text and integers of documents, checked before any is tokenized
``dedup``       exact copies, found by content before anything is packed
``first_pass``  the first pass over what can only be read in order, into temporary shards
==============  ===============================================================================
"""
