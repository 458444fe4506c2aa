"""`python -m edgepanda`: the same as the command `edgepanda`."""

import sys

from edgepanda.cli import main

if __name__ == "__main__":
    sys.exit(main())
