"""Ways of running a model other than one forward: a step of training, prefill and decode."""
