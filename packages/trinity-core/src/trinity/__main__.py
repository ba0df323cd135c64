"""``python -m trinity``: the command line."""

from trinity.cli.program import program

if __name__ == "__main__":
    program()
