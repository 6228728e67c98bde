"""JPEG files whose parts can be decoded alone.

``scan``       what a header says of a file's one scan, if it can be addressed
``tables``     Huffman tables
``kernels``    the loops over a scan's bits, compiled
``cutting``    a rectangle of an addressable file as a small file
``segments``   what a header carries beside the picture
``transcode``  restart markers put in, losslessly, and taken out again
"""
