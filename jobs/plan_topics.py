"""The commands of `surveyor plan` that create, expand, configure and delete topics."""

from pathlib import Path
from typing import Annotated, Final

import typer

from jobs.core.errors import UsageError, raise_any
from jobs.plan_commit import plan_and_commit
from jobs.runtime.console import CommandResult
from jobs.runtime.plan_options import PlanOptions, plan_command, plan_command_of_one_cluster
from jobs.runtime.settings import Settings

Topic = Annotated[str, typer.Option(help="Name of an existing topic.")]
AllowInternal = Annotated[
    bool,
    typer.Option("--allow-internal", help="Allow topics internal to Kafka or its tools."),
]
AllowUnknownConfig = Annotated[
    bool,
    typer.Option("--allow-unknown-config", help="Accept config names unknown to Kafka 2.4 to 3.9, unchecked."),
]

_INT32_MAX: Final = 2**31 - 1


@plan_command
def assign(
    settings: Settings,
    *,
    topic: Annotated[str | None, typer.Option(help="Name of the new topic.")] = None,
    partitions: Annotated[int | None, typer.Option(min=1, max=_INT32_MAX, help="Number of partitions.")] = None,
    replication_factor: Annotated[
        int | None, typer.Option(min=1, max=_INT32_MAX, help="Replicas of each partition.")
    ] = None,
    replica_assignment: Annotated[str | None, typer.Option(help="Replicas of each partition, as 0:1:2,1:2:0.")] = None,
    config: Annotated[list[str] | None, typer.Option(help="Topic config as key=value; may be repeated.")] = None,
    allow_unknown_config: AllowUnknownConfig = False,
    allow_internal: AllowInternal = False,
    topics_json_file: Annotated[
        Path | None,
        typer.Option(help="Create the topics of this file instead of --topic, each with its own replicas and configs."),
    ] = None,
    brokers: Annotated[
        str | None,
        typer.Option(
            help="Brokers to use, in this order, as 0,1,2 [default: all].",
        ),
    ] = None,
    start_index: Annotated[
        int | None,
        typer.Option(
            min=0, max=_INT32_MAX, help="Index of the broker that leads partition 0 [default: derived from the name]."
        ),
    ] = None,
    shift: Annotated[
        int | None,
        typer.Option(min=0, max=_INT32_MAX, help="First shift of the followers [default: derived from the name]."),
    ] = None,
    strategy: Annotated[str, typer.Option(help="kafka, simple, or balanced (kafka with balanced racks).")] = "kafka",
    disable_rack_aware: Annotated[bool, typer.Option("--disable-rack-aware", help="Ignore racks.")] = False,
    options: PlanOptions,
) -> CommandResult:
    """Plan new topics with their replicas and first leaders."""
    from jobs.planning.internal_topic_permission import InternalTopics
    from jobs.planning.topics.assign import AssignRequest
    from jobs.planning.topics.existing_topic import topic_name
    from jobs.planning.topics.new_topics import NewTopic, topics_in
    from jobs.runtime.input_files import parse_broker_ids, parse_configs, parse_replica_assignment

    its_own = {
        "--topic": topic,
        "--partitions": partitions,
        "--replication-factor": replication_factor,
        "--replica-assignment": replica_assignment,
        "--config": config or None,
    }
    if topics_json_file is not None:
        _refuse_with_file([option for option, value in its_own.items() if value is not None])
        topics = topics_in(topics_json_file)
    elif topic is None:
        raise UsageError("no topic is given: expected --topic, or --topics-json-file for several")
    else:
        by_hand = None if replica_assignment is None else parse_replica_assignment(replica_assignment)
        new_topic = NewTopic(
            name=topic_name(topic),
            partitions=partitions,
            replication_factor=replication_factor,
            by_hand=by_hand,
            configs=parse_configs(config or []),
        )
        topics = [new_topic]
    request = AssignRequest(
        topics=topics,
        from_file=topics_json_file is not None,
        brokers=None if brokers is None else parse_broker_ids(brokers),
        start_index=start_index,
        shift=shift,
        strategy=strategy,
        rack_aware=not disable_rack_aware,
        unknown_config_allowed=allow_unknown_config,
        internal=InternalTopics(allow_internal, settings.conf.internal_topics),
    )
    request.check()
    return plan_and_commit(settings, options, request.plan)


def _refuse_with_file(options: list[str]) -> None:
    if options:
        raise UsageError(f"--topics-json-file has all options of each topic: leave out {', '.join(options)}")


@plan_command
def expand(
    settings: Settings,
    *,
    topic: Topic,
    partitions: Annotated[
        int, typer.Option(min=1, help="Number of partitions afterwards, including the existing ones.")
    ],
    replica_assignment: Annotated[
        str | None,
        typer.Option(
            help="Replicas of the added partitions, as 1:2,2:0, or of all partitions, as kafka-topics takes them."
        ),
    ] = None,
    disable_rack_aware: Annotated[bool, typer.Option("--disable-rack-aware", help="Ignore racks.")] = False,
    allow_internal: AllowInternal = False,
    options: PlanOptions,
) -> CommandResult:
    """Plan more partitions for a topic; keys may map to other partitions afterwards."""
    from jobs.planning.internal_topic_permission import InternalTopics
    from jobs.planning.topics.existing_topic import topic_name
    from jobs.planning.topics.expand import ExpandRequest
    from jobs.runtime.input_files import parse_replica_assignment

    request = ExpandRequest(
        topic=topic_name(topic),
        partitions=partitions,
        by_hand=None if replica_assignment is None else parse_replica_assignment(replica_assignment),
        rack_aware=not disable_rack_aware,
        internal=InternalTopics(allow_internal, settings.conf.internal_topics),
    )
    request.check()
    return plan_and_commit(settings, options, request.plan)


@plan_command
def config(
    settings: Settings,
    *,
    topic: Topic,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="Config to set, as key=value; may be repeated.")
    ] = None,
    delete: Annotated[list[str] | None, typer.Option(help="Config to delete; may be repeated.")] = None,
    allow_unknown_config: AllowUnknownConfig = False,
    allow_internal: AllowInternal = False,
    options: PlanOptions,
) -> CommandResult:
    """Plan changes to a topic's configuration."""
    from jobs.planning.internal_topic_permission import InternalTopics
    from jobs.planning.topics.config import ConfigRequest, parse_overrides
    from jobs.planning.topics.existing_topic import topic_name
    from jobs.preconditions.config_validation import config_faults

    overrides = parse_overrides(set_ or [], delete or [])
    values = {key: value for key, value in overrides.items() if value is not None}
    raise_any((UsageError, f"--set {fault}") for fault in config_faults(values, unknown_allowed=allow_unknown_config))
    internal = InternalTopics(allow_internal, settings.conf.internal_topics)
    request = ConfigRequest(topic_name(topic), overrides, allow_unknown_config, internal)
    return plan_and_commit(settings, options, request.plan)


@plan_command_of_one_cluster
def delete(
    settings: Settings,
    *,
    topics: Annotated[str, typer.Option(help="Comma-separated topics, as T1,T2; regexes match whole names.")],
    allow_internal: AllowInternal = False,
    options: PlanOptions,
) -> CommandResult:
    """Plan the deletion of topics with all their records, which cannot be undone."""
    from jobs.planning.internal_topic_permission import InternalTopics
    from jobs.planning.topics.delete import DeleteRequest
    from jobs.planning.topics.existing_topic import topic_or_regex

    parts = (topic_or_regex(part.strip(), "--topics") for part in topics.split(","))
    request = DeleteRequest(sorted(parts), InternalTopics(allow_internal, settings.conf.internal_topics))
    if len(set(request.topics)) < len(request.topics):
        raise UsageError(f"--topics {topics!r} names a topic twice")
    request.check()
    return plan_and_commit(settings, options, request.plan)
