"""Commands about data of other libraries.

===========  ====================================================================
``index``    finds every sample once, so that data are streamed where they lie
``migrate``  says what it takes to move a project of another library
===========  ====================================================================
"""
