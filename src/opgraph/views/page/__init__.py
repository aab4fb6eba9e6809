"""The interactive page, in a file and in a notebook: Python gives the data, `viewer/` draws it."""
