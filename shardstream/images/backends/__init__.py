"""Image bytes to uint8 RGB pixels, by whichever library the caller names.

==============  ===================================================================================================
``dispatch``    ``decode``, ``decode_scaled``, ``decode_labels``: what callers use; names -> backends, and ``auto``
``contract``    ``Backend``: what a library, or a user's own decoder, has to offer; ``Job``
``simplejpeg``  JPEG; what ``auto`` takes for it
``pillow``      everything; what ``auto`` takes for the rest. Pillow-SIMD where that is what is installed
``others``      OpenCV, torchvision, imageio, accimage, which ``auto`` never takes
==============  ===================================================================================================

Whichever decodes, the pixels are these (`shardstream.testing.BackendConformance` compares them; where a library's
differ, its tests say by how much and why):

=====================================  ======================================================================
file                                   becomes
=====================================  ======================================================================
JPEG                                   what libjpeg-turbo's accurate DCT and fancy upsampling give: the pixels
                                       of Pillow and torchvision
grey (JPEG, PNG)                       three equal channels
palette (PNG, GIF and others)          its colours; transparency is dropped
alpha                                  dropped, not composed: ``Image.convert("RGB")``, as torchvision's loader
16 bits (PNG, TIFF, PGM, JPEG 2000)    scaled: the high byte (Pillow's own ``convert`` clips 16-bit grey)
32 bits (TIFF)                         clipped to 0...255, as by Pillow's ``convert``
CMYK, YCCK JPEG                        Pillow's conversion; OpenCV's, and without Pillow simplejpeg's, some grey
                                       levels apart
animation, TIFF of several pages       the first frame
EXIF orientation                       ignored, as torchvision's ``ImageFolder`` does; `probe` reports it, and
                                       ``upright=True`` of the decoders turns what was decoded. Pillow turns TIFF,
                                       and the readers of HEIC turn that, by themselves
truncated file                         ``DecodeError``, for JPEG also where only the end marker lacks.
                                       ``tolerant=True`` takes what there is of a JPEG or PNG, grey or black below
JPEG damage that libjpeg only warns    decoded as libjpeg does, like Pillow and torchvision. Bytes that changed since
of (bad Huffman code, stray bytes)     they were packed never come this far: their checksum differs
lossless JPEG                          decoded at full size. ``UnsupportedError`` if its colors are stored as YCbCr
JPEG header of two frames, or stray    decoded at full size: DCT scales need a header that all readers read alike
bytes between its segments
hierarchical JPEG, or other than 8     ``UnsupportedError``, before any library sees it
bits a sample
more than `MAX_PIXELS`                 ``UnsupportedError``, before anything is allocated
=====================================  ======================================================================
"""

from shardstream.images.backends.contract import Backend, BackendName, Job
from shardstream.images.backends.dispatch import (
    MAX_PIXELS,
    NAMES,
    check_backend,
    check_pixels,
    decode,
    decode_deep,
    decode_frames,
    decode_labels,
    decode_scaled,
    find,
    jpeg_scale,
)

__all__ = [
    "MAX_PIXELS",
    "NAMES",
    "Backend",
    "BackendName",
    "Job",
    "check_backend",
    "check_pixels",
    "decode",
    "decode_deep",
    "decode_frames",
    "decode_labels",
    "decode_scaled",
    "find",
    "jpeg_scale",
]
