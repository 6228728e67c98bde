"""JSON lines: an object a row, also compressed, and top-level lists of objects.

==============  =====================================================================
``first_rows``  what the first rows tell: whether they are samples, or name files
``structure``   where the members of many objects lie in some bytes, found by numpy
``values``      what these members are: text, numbers, lists; numbers are read
``broken``      single lines that are not rows, and why
``blocks``      an object of the store as blocks of rows, and what is damaged of it
``columns``     what the members of all rows become: fields and keys
``forms``       the stored JSON of a value as the bytes of our types
``format``      ``JsonLines``
==============  =====================================================================
"""
