"""From files to the values of a sample.

===========  =========================================================================
``files``    the content of a file by path or URL, or the reason why not
``reading``  the files of samples in order, many on their way where that takes time
``sample``   from contents to encoded values: the user's transform, images
``images``   what becomes of image files: made addressable, smaller, stripped, or kept
===========  =========================================================================
"""
