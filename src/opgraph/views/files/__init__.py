"""Files for other programs: records by node, graphs and timelines."""
