"""The rounds take more processor time than a test run has; they run only if ROUNDS is set."""

import os

collect_ignore = [] if "ROUNDS" in os.environ else ["test_rounds.py", "test_kraft_rounds.py", "test_older_brokers.py"]
