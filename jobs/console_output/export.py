"""Output of `surveyor export`: a plan's target assignment in a format of kafka-reassign-partitions.

`kafka` is byte for byte the JSON that kafka-reassign-partitions reads and writes, sorted by topic and partition, with a
log dir for each replica. `kafka-generate` is the output of its `--generate`: the current and the proposed assignment.
"""

import sys
from pathlib import Path

import msgspec

from jobs.console_output.reassign_partitions_text import generated, kafka_json
from jobs.core.errors import ExitCode, RefusedError, UsageError
from jobs.repositories.plans.plans_reader import read_plan, refuse_edited
from jobs.runtime.cli_enums import Format
from jobs.runtime.console import CommandResult, Result, log, next_in_json
from jobs.runtime.output import emit, next_lines
from jobs.runtime.settings import Settings
from jobs.runtime.suggestions import suggestion
from schemas.enums import Action, PlanStatus
from schemas.rows import Key
from schemas.stored_plan import Plan
from schemas.text import join_ids, pluralise


def targets_of(plan: Plan, wave: int | None = None, *, inverse: bool = False) -> dict[Key, list[int]]:
    """Return the replicas after the plan or one of its waves; with `inverse`, those before it.

    If several waves move a partition, the last wave has its final replicas, and the first wave its original ones.
    """
    moves = [change for change in plan.changes if change.action == Action.REASSIGN and wave in {None, change.wave}]
    if inverse:
        return {change.key: change.replicas_before or [] for change in reversed(moves)}
    return {change.key: change.replicas_after for change in moves}


def _refuse_no_wave(plan: Plan, wave: int | None) -> None:
    waves = sorted({change.wave for change in plan.changes})
    if wave is not None and wave not in waves:
        listed = join_ids(waves) or "none"
        raise UsageError(f"plan {plan.title} has no wave {wave}; its waves are {listed}")


def export_plan(
    settings: Settings,
    plan: str,
    form: Format,
    wave: int | None,
    out: Path | None,
    *,
    inverse: bool,
) -> ExitCode:
    """Write the targets of a plan, or of one wave, to a file or to stdout."""
    whole = read_plan(settings.warehouse, plan)
    refuse_edited(whole)
    if whole.row.status == PlanStatus.REFUSED:
        raise RefusedError(
            f"plan {whole.title} is refused and incomplete: the targets that fail the lint are not among its changes"
        )
    _refuse_no_wave(whole, wave)
    targets = targets_of(whole, wave, inverse=inverse)
    if not targets:
        which = f"plan {whole.title} ({whole.row.kind})"
        content = which if wave is None else f"wave {wave} of {which}"
        raise RefusedError(f"{content} moves no replicas, and kafka-reassign-partitions accepts no empty list")
    text = kafka_json(targets)
    if form is Format.KAFKA_GENERATE:
        text = generated(targets_of(whole, wave, inverse=not inverse), targets)
    result: Result = {"plan_id": whole.plan_id, "format": form.value, "partitions": len(targets), "file": None}
    part = "" if wave is None else f"wave {wave} of "
    summary = f"{pluralise(len(targets), 'partition')} of {'the reversal of ' * inverse}{part}plan {whole.title}"
    steps = [] if inverse else [suggestion(settings, "once the other tool has started", "verify", whole.called)]
    if out is not None:
        _write(out, text)
        emit(settings, CommandResult(result | {"file": str(out)}, f"{summary} in {out}", steps=steps))
        return ExitCode.DONE
    reassignment = {"reassignment": msgspec.json.decode(kafka_json(targets))}
    emit(settings, CommandResult(result | reassignment | next_in_json(steps)))
    if settings.for_people:
        sys.stdout.write(f"{text}\n")
        for line in (f"  {summary}", *next_lines(steps)):
            log(line)
    return ExitCode.DONE


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(f"{text}\n", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--out {path} cannot be written: {error.strerror}") from None
