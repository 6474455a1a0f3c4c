"""Serve one large language model over several machines, and show why it is served the way it is."""

__version__ = "0.1.0"
