"""The interactive page, in a file and in a notebook: Python gives the data, `viewer/` draws it. Beside it,
the plots of a sweep, alone and in a page."""
