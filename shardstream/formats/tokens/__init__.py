"""Rows of tokens: ``megatron`` with its index beside, ``nanogpt`` as options say; ``windows`` cut them into lengths."""
