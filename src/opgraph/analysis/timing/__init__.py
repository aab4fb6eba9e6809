"""How long does it take on a device? The work of each kernel, its predicted time, and the roofline."""
