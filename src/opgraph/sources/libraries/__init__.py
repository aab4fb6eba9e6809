"""One file a model library: which names it has, and how they are built without weights."""
