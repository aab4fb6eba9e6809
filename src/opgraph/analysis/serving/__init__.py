"""How does a model that generates run in an inference engine? Batches on paper, the kernels of an engine,
the time of its steps, and the requests that it serves."""
