"""Do tracers agree, and why do other counters not?"""
