"""Folders of the local file system.

================  ======================================================================================
``store``         folders of the local file system: mapped for reads, temporary name + rename for writes
``mapped_files``  a file as read-only memory that holds no file descriptor
``whole_files``   small files that are read, not mapped; by many threads where that is slow
``links``         which symbolic links are followed
``output_files``  new files, which follow no links and appear whole
``write_behind``  writing a file in a thread, and bringing it to the disk as it grows
================  ======================================================================================
"""
