"""`surveyor export`: a plan's target assignment in the format of another tool. No JVM.

`kafka` is what kafka-reassign-partitions reads and writes, to the byte: topics by name, partitions by number, a log dir
for each replica. `kafka-generate` is what its `--generate` prints: the assignment planned from, and the one proposed.
"""

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from jobs.adapters.delta.lake import Row
from jobs.basics.errors import ExitCode, RefusedError, UsageError
from jobs.records.plans import Plan, read_plan, refuse_edited
from jobs.runtime.console import Result, finish, say
from jobs.runtime.options import command, run_alone
from jobs.runtime.settings import Settings
from jobs.views.kafka_text import generated, kafka_json
from schemas.names import Action, PlanStatus


class Format(StrEnum):
    KAFKA = "kafka"
    KAFKA_GENERATE = "kafka-generate"


def targets_of(plan: Plan, wave: int | None = None, *, inverse: bool = False) -> list[Row]:
    """Where the plan, or one wave of it, moves partitions; with `inverse`, from where.

    Of several waves the last one says where a partition ends, and the first where it began.
    """
    moves = [change for change in plan.changes if change.action == Action.REASSIGN and wave in {None, change.wave}]
    if inverse:
        last = {change.key: change.replicas_before for change in reversed(moves)}
    else:
        last = {change.key: change.replicas_after for change in moves}
    return [{"topic": topic, "partition": number, "replicas": replicas} for (topic, number), replicas in last.items()]


def _refuse_no_wave(plan: Plan, wave: int | None) -> None:
    known = sorted({change.wave for change in plan.changes})
    if wave is not None and wave not in known:
        found = ", ".join(map(str, known)) or "none"
        raise UsageError(f"plan {plan.title} has no wave {wave}; its waves are {found}")


@command
def export(
    settings: Settings,
    *,
    plan: Annotated[str, typer.Argument(help="Id or alias of the plan.")],
    format: Annotated[  # noqa: A002 - the flag's name
        Format, typer.Option(help="The JSON of kafka-reassign-partitions, or what its --generate prints.")
    ] = Format.KAFKA,
    wave: Annotated[
        int | None, typer.Option(help="Only this wave, by its number in `show plan` [default: all].")
    ] = None,
    inverse: Annotated[
        bool,
        typer.Option("--inverse", help="What takes it back; of several waves, take back the last one first."),
    ] = False,
    out: Annotated[Path | None, typer.Option(help="File to write to [default: stdout].")] = None,
) -> ExitCode:
    """Write a plan's target assignment for another tool."""
    whole = read_plan(settings.lake, plan)
    refuse_edited(whole)
    if whole.row["status"] == PlanStatus.REFUSED:
        raise RefusedError(
            f"plan {whole.title} is refused: what fails the lint is none of its changes, so it is not whole"
        )
    _refuse_no_wave(whole, wave)
    targets = targets_of(whole, wave, inverse=inverse)
    if not targets:
        which = f"plan {whole.title} ({whole.row['kind']})"
        what = which if wave is None else f"wave {wave} of {which}"
        raise RefusedError(f"{what} moves no replicas: kafka-reassign-partitions takes no empty list")
    text = kafka_json(targets)
    if format is Format.KAFKA_GENERATE:
        text = generated(targets_of(whole, wave, inverse=not inverse), targets)
    result: Result = {"plan_id": whole.plan_id, "format": format.value, "partitions": len(targets), "file": None}
    part = "" if wave is None else f"wave {wave} of "
    said = f"{len(targets)} partitions of {'the way back from ' * inverse}{part}plan {whole.title}"
    if out is not None:
        _write(out, text)
        finish(settings, result | {"file": str(out)}, f"{said} in {out}")
        return ExitCode.DONE
    finish(settings, result | {"reassignment": msgspec.json.decode(kafka_json(targets))})
    if not settings.as_json:
        sys.stdout.write(f"{text}\n")
        say(f"  {said}")
    return ExitCode.DONE


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(f"{text}\n", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--out {path} cannot be written: {error.strerror}") from None


if __name__ == "__main__":
    run_alone(export)
