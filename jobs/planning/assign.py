"""`surveyor plan assign`: new topics, one from the command line or many from a file."""

from pathlib import Path
from typing import Annotated

import typer

from jobs.basics.errors import ExitCode, UsageError
from jobs.planning.assign_request import AssignRequest
from jobs.planning.new_topics import NewTopic, topics_in
from jobs.planning.plan import SnapshotId, report_plan
from jobs.planning.topics import topic_name
from jobs.records.checked_configs import AllowUnknownConfig
from jobs.records.plan_names import Alias, Name, ReplaceName
from jobs.runtime.inputs import parse_broker_ids, parse_configs, parse_replica_assignment
from jobs.runtime.options import DetailedExitcode, command
from jobs.runtime.settings import Settings

_MOST = 2**31 - 1


@command
def assign(
    settings: Settings,
    *,
    topic: Annotated[str | None, typer.Option(help="The new topic.")] = None,
    partitions: Annotated[int | None, typer.Option(min=1, max=_MOST)] = None,
    replication_factor: Annotated[int | None, typer.Option(min=1, max=_MOST)] = None,
    replica_assignment: Annotated[str | None, typer.Option(help="Replicas by hand: 0:1:2,1:2:0")] = None,
    config: Annotated[list[str] | None, typer.Option(help="key=value, may be repeated")] = None,
    allow_unknown_config: AllowUnknownConfig = False,
    topics_json_file: Annotated[
        Path | None,
        typer.Option(help="Many new topics, each with its name, sizes or replicas, and config, instead of --topic."),
    ] = None,
    brokers: Annotated[str | None, typer.Option(help="Brokers to use, in this order: 0,1,2 [default: all].")] = None,
    start_index: Annotated[
        int | None, typer.Option(min=0, max=_MOST, help="Where partition 0 leads [default: by name].")
    ] = None,
    shift: Annotated[
        int | None, typer.Option(min=0, max=_MOST, help="First shift of the followers [default: by name].")
    ] = None,
    strategy: Annotated[str, typer.Option(help="kafka or simple")] = "kafka",
    disable_rack_aware: Annotated[bool, typer.Option("--disable-rack-aware", help="Ignore racks.")] = False,
    snapshot: SnapshotId = None,
    name: Name = None,
    replace_name: ReplaceName = False,
    detailed_exitcode: DetailedExitcode = False,
) -> ExitCode:
    """Plan new topics: where their replicas go and who leads first."""
    its_own = {
        "--topic": topic,
        "--partitions": partitions,
        "--replication-factor": replication_factor,
        "--replica-assignment": replica_assignment,
        "--config": config or None,
    }
    if topics_json_file is not None:
        _refuse_beside_file([option for option, value in its_own.items() if value is not None])
        topics = topics_in(topics_json_file)
    elif topic is None:
        raise UsageError("say which topic: --topic, or --topics-json-file for many")
    else:
        by_hand = None if replica_assignment is None else parse_replica_assignment(replica_assignment)
        asked_for = NewTopic(
            name=topic_name(topic),
            partitions=partitions,
            replication_factor=replication_factor,
            by_hand=by_hand,
            configs=parse_configs(config or []),
        )
        topics = [asked_for]
    asked = AssignRequest(
        topics=topics,
        from_file=topics_json_file is not None,
        brokers=None if brokers is None else parse_broker_ids(brokers),
        start_index=start_index,
        shift=shift,
        strategy=strategy,
        rack_aware=not disable_rack_aware,
        unknown_config_allowed=allow_unknown_config,
    )
    asked.check()
    return report_plan(settings, snapshot, Alias(name, replace_name), asked.plan, detailed=detailed_exitcode)


def _refuse_beside_file(options: list[str]) -> None:
    if options:
        raise UsageError(f"--topics-json-file says it all for each topic: leave out {', '.join(options)}")
