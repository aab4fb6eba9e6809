"""`python -m opgraph`."""

from opgraph.cli import process

if __name__ == "__main__":
    process()
