"""What each ATen operator costs. `registry` says how formulas are written; the files beside it hold them
by kind of work; `count` applies them to one call."""
