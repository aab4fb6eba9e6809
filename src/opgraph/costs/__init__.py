"""What each ATen operator costs. `registry` says how formulas are written, `formulas` holds them by kind of
work, and `count` applies them to one call."""
