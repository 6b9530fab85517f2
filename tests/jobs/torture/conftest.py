"""Rounds take a minute each, and more processor time than a test run can spare: who asks for them has them."""

import os

collect_ignore = [] if "ROUNDS" in os.environ else ["test_rounds.py"]
