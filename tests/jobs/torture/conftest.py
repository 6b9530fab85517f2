"""What takes more processor time than a test run can spare: who asks for rounds has it."""

import os

collect_ignore = [] if "ROUNDS" in os.environ else ["test_rounds.py", "test_older_brokers.py"]
