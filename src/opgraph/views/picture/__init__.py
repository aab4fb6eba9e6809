"""Pictures: what is drawn (boxes and edges), where (layout), how (scene), and a writer for each format."""
