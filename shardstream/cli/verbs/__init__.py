"""The verbs of the command, a module each; ``cli/app.py`` has the list of them, and imports the one that is called.

==================  ====================================================================================
``pack``            ``shardstream pack SOURCE DEST``
``repack``          ``shardstream repack URL DEST``
``export``          ``shardstream export URL DEST --to files|webdataset|parquet|mds``
``merge``           ``shardstream merge URL... DEST``
``info``            ``shardstream info URL``
``verify``          ``shardstream verify URL``
``view``            ``shardstream view URL [SAMPLE]...``
``view_page``       its page, ``--html`` and ``--serve``
``bench``           ``shardstream bench URL``
``bench_decode``    ``shardstream bench decode [URL | FILE...]``
``bench_sweep``     what ``--sweep`` prints and draws
``doctor``          ``shardstream doctor [URL]``: whether this machine is fit for training
``top``             ``shardstream top PID``: what each worker of a run is at
``errors``          ``shardstream errors [CODE]``: what an error means
``cache``           ``shardstream cache status|warm|verify|clear``
==================  ====================================================================================
"""
