"""What is it over several devices? Sharding, stages and what is sent, on paper."""
