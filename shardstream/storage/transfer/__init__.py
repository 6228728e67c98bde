"""Bytes over a network, whatever library speaks to the store.

=============  =======================================================================================
``remote``     ``RemoteStore``: stores behind a network, read and written over a client made where it is used
``client``     one attempt at one request, whatever library speaks to the store: ``Client``, ``Fault``
``fetch``      one range, whatever the network does: attempts, resumption, second attempts, checks
``stream``     all of one object in order, without ranges
``retry``      other requests, made again until they are answered; how fast a store has answered lately
``readahead``  many reads on their way at once, those needed first first
``listing``    a listing of any length, page by page
``loop``       the event loop of this process on which all transfers run
=============  =======================================================================================
"""
