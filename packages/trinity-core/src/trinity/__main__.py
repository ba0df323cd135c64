"""``python -m trinity``: the command line."""

from trinity.cli.main import main

if __name__ == "__main__":
    main()
