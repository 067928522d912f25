"""Makes `python3 -m hack.devcluster VERB` work; everything else is in `cli`."""

import sys

from hack.devcluster.cli import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
