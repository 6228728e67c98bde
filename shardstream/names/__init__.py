"""What names of files say, and patterns of them.

==========  ===========================================================================
``braces``  places written with braces: ``part-{08..10}``
``globs``   patterns of paths, whose wildcards leave out names that are not data
``missing`` what to write in place of a path that is not there
``splits``  names of splits, which are never mixed
``strays``  which names are not data, for all listings and members of archives
==========  ===========================================================================
"""
