"""What all stores have in common: the contract, names of places, ranges of bytes.

============  =================================================================================
``store``     the contract: ``Store``, ``ObjectWriter``, ``ObjectMeta``, ``Request``
``wrapper``   ``WrapperStore``, ``FolderStore``: stores in front of another one
``policy``    ``RetryPolicy``: when to try again, as arithmetic
``buffers``   ``Buffers``: what was read, addressed by object and byte range; vectorised gather
``memory``    values of many objects at once, by where they lie in memory
``verified``  bytes that stay what was verified: copied, or watched
``held``      ``HeldObject``: what a cache holds whole, copied from by the kernel
``location``  ``Location``: a URL that was looked at, with options that nobody sees
``address``   what a URL says, and which part of it is a secret; pure text
``placeholders``  objects that are placeholders, by their first bytes
``ranges``    which reads serve which ranges: neighbours joined, long ones split; pure
``no_ranges``  servers that send whole objects only: the error, and a server to use instead
``ranged``    bytes read by range, as a file for other libraries
``file_locks``  locks on files, where the system has them
``sorting``   names in order, any number of them in bounded memory
``counters``  what transfers did, counted
``awaited``   requests that have no answer yet
``heap``      a heap that suits a process whose work is to read
============  =================================================================================
"""
