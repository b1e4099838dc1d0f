"""`python -m rollcall` is `rollcall`."""

from rollcall.cli import main

if __name__ == "__main__":
    main()
