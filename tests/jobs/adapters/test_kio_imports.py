"""kio's codecs are loaded without Hypothesis, which is installed here and would be slow, large, and leave a folder."""

import subprocess
import sys

from tests.docs.markdown import ROOT

MODULES = "jobs.controller.lifecycle, jobs.adapters.brokers.responses, jobs.adapters.request_server.server"
PROGRAM = f"import sys, {MODULES}; sys.exit('hypothesis' in sys.modules)"


def test_hypothesis_is_not_imported() -> None:
    assert subprocess.run([sys.executable, "-c", PROGRAM], cwd=ROOT, check=False).returncode == 0
