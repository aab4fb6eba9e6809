"""Pictures: what is drawn (boxes and edges), where (layout), how (scene), and the writers of each format."""
