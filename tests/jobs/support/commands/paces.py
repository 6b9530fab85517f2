"""Paces of commands on a tree without Kafka."""

from dataclasses import replace
from typing import Final

from jobs.runtime.pace import Pace

NO_TAKEOVER: Final = Pace(resignation=0.0)
"""After a resignation no broker becomes the controller."""

SMALL_BATCHES: Final = replace(NO_TAKEOVER, batch_changes=1)
"""Each change is written by itself."""
