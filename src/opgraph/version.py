"""The version of opgraph, once."""

__version__ = "0.1.0"
