"""What can be said about a data set: functions that return values. The command line prints them.

============  =====================================================================
``info``      what a data set holds, from its manifest and one index
``verify``    every byte compared with what was written; all problems, not the first
``members``   what ``verify`` checks of tar shards besides: the tar's own headers
============  =====================================================================
"""

from shardstream.diagnose.info import FieldInfo, Info, info
from shardstream.diagnose.verify import Problem, VerifyProgress, VerifyReport, verify

__all__ = ["FieldInfo", "Info", "Problem", "VerifyProgress", "VerifyReport", "info", "verify"]
