"""Lets tests import the helper modules in tests/."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
