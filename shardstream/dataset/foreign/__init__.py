"""Data sets of other libraries: their catalogue is found, or made, and then they are opened like ours.

=============  =============================================================================
``spec``       which objects a user means, and how they are to be read
``scan``       one object to the indexes of its samples
``journal``    what was scanned, on the disk, so that a killed run goes on
``kept``       where a catalogue lies: beside the data, or in a folder of this machine
``make``       from a listing to a catalogue; what is known already is not scanned again
=============  =============================================================================
"""
