"""``python -m reality_check``: the command line."""

import sys

from reality_check.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
