"""`python -m rfa`: the same as the command `rfa`."""

from rfa.cli.main import main

if __name__ == "__main__":
    main()
