"""`python -m opgraph`."""

from opgraph.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
