"""opgraph in other tools, each in a file that imports that tool alone: pytest, TensorBoard and loggers."""
