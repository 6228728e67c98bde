"""The libraries that speak to stores, and where their credentials come from.

==================  =============================================================
``obstore_client``  S3, Azure, GCS and web servers through obstore
``forked_obstore``  the obstore of this process, also after a fork
``obstore_errors``  what obstore's errors mean, without what they quote; pure
``odd_keys``        listings of S3 with keys that obstore refuses
``aws``             S3's credentials, endpoint and region, for obstore and s3fs
``region``          in which region a bucket lies
``azure``           Azure's account, credentials and endpoint, for obstore and adlfs
``gcs``             Google's credentials, for obstore and gcsfs
``web``             options of plain web servers
``web_client``      web servers through aiohttp, which sends headers to the user's host only
``no_bytes``        answers to requests for no bytes
``servers``         which server holds a store, and who gives the credentials for it, for people
``names``           what ``storage_options`` are called: by us and obstore, by fsspec, and elsewhere
``options``         ``storage_options`` as obstore takes them
``fsspec_client``   every other store, and on request these, through fsspec
==================  =============================================================
"""
