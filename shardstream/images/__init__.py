"""What an image is: its header, the geometry of a crop, resizing and the decoders. Knows nothing of shards or ranks.

===============  =============================================================================
``formats``      the formats of picture files: magic, suffixes, Pillow's names; those that are refused by name
``opening``      whatever Pillow opens, by one format; the headers that only it reads
``header``       ``probe``: size, depth and orientation from the first bytes
``exif``         how an image is to be turned, by its EXIF and XMP blocks
``structure``    whether a file ends too early, without decoding it
``tiff``         numbers of a TIFF's first directory
``unsupported``  valid images of kinds that decoders do not read: which, where one has refused a file
``damage``       whether a file is damaged: by its structure, or by decoding all of it
``geometry``     ``Geometry``: crop, resize, window and flip as a value; torchvision's arithmetic and draws
``resize``       ``render``: pixels through a geometry into a slot of the batch; nearest for label maps; ``scratch``
``backends``     ``decode``: image bytes to uint8 RGB, by whichever library; ``decode_labels`` for masks
``region``       ``ImageFile``: an encoded image of which parts are decoded
``jpeg``         JPEG files whose parts can be decoded alone: made, cut and undone
``shrink``       images made smaller for good, for writers
``thumbnail``    pixels as a small JPEG file, for pages that show many
``encode``       pixels to JPEG, PNG or WebP bytes, for writers
===============  =============================================================================
"""
