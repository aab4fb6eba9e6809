"""What goes together? Partitions of a graph into what a compiler would run as one kernel."""
