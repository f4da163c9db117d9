"""``python -m benchmark``: our broker and Java's in one run. See README.md."""

import sys

from benchmark.run import main

if __name__ == "__main__":
    sys.exit(main())
