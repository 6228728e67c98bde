"""What is shown of values that ``diagnose`` found, as pages of HTML. Reads no data.

=============  =====================================================================
``viewing``    ``view``: the page of a data set or a loader, for notebooks and programs
``page``       an overview of a data set as one page, with ``page.css`` and ``page.js``
``serving``    one page, served to this machine alone
``parts``      markup of which nothing comes from the data: escaping, bars, charts, pictures
=============  =====================================================================

Whatever comes from a data set (keys, captions, class names, JSON) is text in these pages, never markup. They load
nothing: pictures and sounds are in them, and their policy (CSP) allows no other script than their own.
"""
