"""``python -m normatch``: the command line."""

import sys

from normatch.cli import main

sys.exit(main())
