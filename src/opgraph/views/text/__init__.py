"""Text for terminals and Markdown: tables, lists of nodes, summaries."""
