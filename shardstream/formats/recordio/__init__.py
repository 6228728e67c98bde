"""RecordIO files of MXNet: ``format`` recognises them, with what lies beside; ``samples`` reads their records."""
