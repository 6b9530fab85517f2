"""The commands of `surveyor plan` about topics themselves: new ones, more partitions, configs, deletion."""

from pathlib import Path
from typing import Annotated, Final

import typer

from jobs.core.errors import ExitCode, UsageError, raise_any
from jobs.runtime.completion import brokers as known_brokers
from jobs.runtime.completion import by_comma
from jobs.runtime.completion import topics as known_topics
from jobs.runtime.plan_options import PlanOptions, question
from jobs.runtime.settings import Settings

Topic = Annotated[str, typer.Option(help="A topic that exists.", autocompletion=known_topics)]
AllowInternal = Annotated[
    bool,
    typer.Option("--allow-internal", help="Plan it for topics that belong to Kafka or the tools around it, too."),
]
AllowUnknownConfig = Annotated[
    bool,
    typer.Option("--allow-unknown-config", help="Names that no Kafka from 2.4 to 3.9 knows are taken, unchecked."),
]

_MOST: Final = 2**31 - 1


@question
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
    brokers: Annotated[
        str | None,
        typer.Option(
            help="Brokers to use, in this order: 0,1,2 [default: all].", autocompletion=by_comma(known_brokers)
        ),
    ] = None,
    start_index: Annotated[
        int | None, typer.Option(min=0, max=_MOST, help="Where partition 0 leads [default: by name].")
    ] = None,
    shift: Annotated[
        int | None, typer.Option(min=0, max=_MOST, help="First shift of the followers [default: by name].")
    ] = None,
    strategy: Annotated[str, typer.Option(help="kafka, simple, or balanced: kafka's, with racks balanced.")] = "kafka",
    disable_rack_aware: Annotated[bool, typer.Option("--disable-rack-aware", help="Ignore racks.")] = False,
    options: PlanOptions,
) -> ExitCode:
    """Plan new topics: where their replicas go and who leads first."""
    from jobs.planning.plan import report_plan
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
        _refuse_beside_file([option for option, value in its_own.items() if value is not None])
        topics = topics_in(topics_json_file)
    elif topic is None:
        raise UsageError("say which topic: --topic, or --topics-json-file for many")
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
    )
    request.check()
    return report_plan(settings, options, request.plan)


def _refuse_beside_file(options: list[str]) -> None:
    if options:
        raise UsageError(f"--topics-json-file says it all for each topic: leave out {', '.join(options)}")


@question
def expand(
    settings: Settings,
    *,
    topic: Topic,
    partitions: Annotated[int, typer.Option(min=1, help="How many it is to have, with those there are.")],
    replica_assignment: Annotated[
        str | None,
        typer.Option(help="Replicas by hand, 1:2,2:0: of the added partitions, or of all as kafka-topics takes them."),
    ] = None,
    disable_rack_aware: Annotated[bool, typer.Option("--disable-rack-aware", help="Ignore racks.")] = False,
    allow_internal: AllowInternal = False,
    options: PlanOptions,
) -> ExitCode:
    """Plan more partitions for a topic; records of a key may land in another one afterwards."""
    from jobs.planning.plan import report_plan
    from jobs.planning.topics.existing_topic import topic_name
    from jobs.planning.topics.expand import ExpandRequest
    from jobs.runtime.input_files import parse_replica_assignment

    request = ExpandRequest(
        topic=topic_name(topic),
        partitions=partitions,
        by_hand=None if replica_assignment is None else parse_replica_assignment(replica_assignment),
        rack_aware=not disable_rack_aware,
        allow_internal=allow_internal,
    )
    request.check()
    return report_plan(settings, options, request.plan)


@question
def config(
    settings: Settings,
    *,
    topic: Topic,
    set_: Annotated[list[str] | None, typer.Option("--set", help="key=value, may be repeated")] = None,
    delete: Annotated[list[str] | None, typer.Option(help="A key to delete, may be repeated.")] = None,
    allow_unknown_config: AllowUnknownConfig = False,
    options: PlanOptions,
) -> ExitCode:
    """Plan changes of a topic's configuration."""
    from jobs.planning.plan import report_plan
    from jobs.planning.topics.config import ConfigRequest, parse_overrides
    from jobs.planning.topics.existing_topic import topic_name
    from jobs.repositories.plans.checked_configs import config_faults

    overrides = parse_overrides(set_ or [], delete or [])
    values = {key: value for key, value in overrides.items() if value is not None}
    raise_any((UsageError, f"--set {fault}") for fault in config_faults(values, unknown_allowed=allow_unknown_config))
    request = ConfigRequest(topic_name(topic), overrides, allow_unknown_config)
    return report_plan(settings, options, request.plan)


@question
def delete(
    settings: Settings,
    *,
    topics: Annotated[str, typer.Option(help="Topics by comma: T1,T2", autocompletion=by_comma(known_topics))],
    allow_internal: AllowInternal = False,
    options: PlanOptions,
) -> ExitCode:
    """Plan the deletion of topics, with all their records; it cannot be undone."""
    from jobs.planning.plan import report_plan
    from jobs.planning.topics.delete import DeleteRequest
    from jobs.planning.topics.existing_topic import topic_name

    names = (topic_name(topic.strip(), "--topics") for topic in topics.split(","))
    request = DeleteRequest(sorted(names), allow_internal)
    if len(set(request.topics)) < len(request.topics):
        raise UsageError(f"--topics {topics!r} names a topic twice")
    request.check()
    return report_plan(settings, options, request.plan)
