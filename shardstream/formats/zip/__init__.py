"""Zip files: ``directory`` reads the central directory, and trusts none of it; ``format`` makes samples of members."""
