"""Makes `python3 -m devcluster VERB` work; everything else is in `cli`."""

import sys

from devcluster.cli import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
