"""How near is a training loop to what its machine could do? Callbacks of trainers that log what their graph
needs against what is reached: `opgraph.integrations.transformers` for the Trainer, and
`opgraph.integrations.lightning`. Each imports its library, which this room does not bring."""
