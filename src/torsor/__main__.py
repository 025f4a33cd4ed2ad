"""The command line: ``python -m torsor`` is the same as ``torsor``."""

import sys

from torsor._cli import main

if __name__ == "__main__":
    sys.exit(main())
