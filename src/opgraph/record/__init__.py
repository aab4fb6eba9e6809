"""Records: the graph, the profile and what else is saved, with their checks, files, units and errors.

Frozen, plain data without torch; a record knows nothing of how it is shown. Import from its modules."""
