"""Other libraries' packages, each in a process of its own: what crashes or hangs there is an error here.

==========  =========================================================================
``host``    ``Program``: starts such processes, asks them, and looks whether they live
``child``   what runs in them: questions come in, answers and questions back go out
``wire``    messages between the two
==========  =========================================================================
"""
