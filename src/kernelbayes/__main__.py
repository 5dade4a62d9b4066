"""``python -m kernelbayes`` is the command ``kernelbayes``."""

import sys

from kernelbayes.cli import main

if __name__ == "__main__":
    sys.exit(main())
