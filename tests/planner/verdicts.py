"""Changes and rejections of a rule, from its verdicts, as a plan has them."""

from pyspark.sql import DataFrame

from planner.leadership import failure_handling, preferred_election


def reconcile_changes(*tables: DataFrame, allow_unclean: bool = False) -> DataFrame:
    return failure_handling.changes_of(failure_handling.reconcile_verdicts(*tables, allow_unclean=allow_unclean))


def reconcile_rejections(*tables: DataFrame, allow_unclean: bool = False) -> DataFrame:
    return failure_handling.rejections_of(failure_handling.reconcile_verdicts(*tables, allow_unclean=allow_unclean))


def preferred_changes(*tables: DataFrame) -> DataFrame:
    return preferred_election.changes_of(preferred_election.preferred_verdicts(*tables))


def preferred_rejections(*tables: DataFrame) -> DataFrame:
    return preferred_election.rejections_of(preferred_election.preferred_verdicts(*tables))
