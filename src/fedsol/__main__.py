"""`python -m fedsol` is the command `fedsol`."""

from fedsol.cli.app import main

if __name__ == "__main__":
    main()
