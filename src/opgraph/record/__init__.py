"""Records: the graph, the profile, their files, units and errors.

Frozen, plain data without torch; a record knows nothing of how it is shown. Import from its modules."""
