"""What a run of a model may change, and how it is as before afterwards: what is reachable from a model and
its code (`reach`), the memory of tensors, copied before it is written to, and the process (`guard`)."""
