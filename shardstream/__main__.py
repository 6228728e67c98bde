"""``python -m shardstream``: the same as the command."""

from shardstream.cli import main

if __name__ == "__main__":
    main()
