"""``python -m orchestrator.cli``: the command where the console script is not on PATH."""

import sys

from orchestrator.cli.app import main

sys.exit(main())
