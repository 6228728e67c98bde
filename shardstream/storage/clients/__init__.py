"""The libraries that speak to stores, and where their credentials come from.

==================  =============================================================
``obstore_client``  S3, Azure, GCS and web servers through obstore
``forked_obstore``  the obstore of this process, also after a fork
``obstore_errors``  what obstore's errors mean, without what they quote; pure
``odd_keys``        listings of S3 with keys that obstore refuses
``aws``             S3's credentials, endpoint and region
``region``          in which region a bucket lies
``azure``           Azure's account, credentials and endpoint
``gcs``             Google's credentials
``web``             options of plain web servers
``web_client``      web servers through aiohttp, which sends headers to the user's host only
``no_bytes``        answers to requests for no bytes
``servers``         which server holds a store, and who gives the credentials for it, for people
``options``         ``storage_options`` of every ecosystem, as obstore takes them
``fsspec_client``   every other store, and on request these, through fsspec
``fsspec_options``  the same options, as fsspec's file systems take them
==================  =============================================================
"""
