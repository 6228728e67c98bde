"""Commands about data of other libraries.

===========  ====================================================================
``index``    finds every sample once, so that data are streamed where they lie
``migrate``  says what it takes to move a project of another library
===========  ====================================================================
"""

_PANEL = "Data of other libraries"
COMMANDS = {
    "index": (
        _PANEL,
        "Find every sample once, so that the data are streamed where they lie.",
        "shardstream.formats.commands.index",
    ),
    "migrate": (
        _PANEL,
        "Say what it takes to train on data of another library with this one.",
        "shardstream.formats.commands.migrate",
    ),
}
"""For ``shardstream --help``: the panel of each command, what it does, and its module, which is imported for a call."""
