"""Tar files.

===============  =============================================================================
``webdataset``   members that follow one another and share their name are a sample
``tar_of_tars``  a tar of which each member is the tar of a class
``headers``      the headers of a tar's members, in all their dialects
``samples``      members grouped into samples
``rows``         samples as rows, and what damage there is
``names``        which files of a listing are tars, and what lies beside them
===============  =============================================================================
"""
