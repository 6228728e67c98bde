"""How a batch gets to a device.

==================  ====================================================================
``device_copy``     pinned memory, streams, events
``packing``         the tensors of a batch side by side in one piece of memory
``static_buffers``  the same tensors in each step, for CUDA graphs
==================  ====================================================================
"""
