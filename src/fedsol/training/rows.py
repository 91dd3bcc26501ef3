"""make_row(): the row of a finished round, for metrics.jsonl."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from fedsol.core.messages import Update
from fedsol.federation.evaluation import summarize_hold_out
from fedsol.runs.rows import Row
from fedsol.training.evaluation import Evaluation, validation_columns
from fedsol.training.updates import RoundUpdates


def make_row(updates: RoundUpdates, accepted: Sequence[Update], evaluation: Evaluation, more: Mapping[str, Any]) -> Row:
    """Return the row of a finished round in metrics.jsonl, with `more` columns: its seconds, what privacy it spent."""
    federation, primary, test = updates.federation, updates.federation.objective.primary, evaluation.test
    worst, most = min if primary.higher_is_better else max, updates.required.limits.max_share
    summary = summarize_hold_out(evaluation.held_out.values(), most, worst)
    faults, counts = updates.faults.values(), updates.counts
    has_classes = federation.objective.kind != "regression"
    missing = dict.fromkeys(measure.key for measure in federation.objective.measures)
    values = federation.metrics(test) if test else missing
    losses = [update.share * update.metrics["train_loss"] for update in accepted if "train_loss" in update.metrics]
    row = {
        "round": updates.round,
        "test_accuracy": test.accuracy if test and has_classes else None,
        "test_loss": test.loss if test else None,
        **{f"test_{key}": value for key, value in values.items()},
        "train_loss": sum(losses) if losses else None,
        "clients": len(accepted),
        "examples": sum(update.examples for update in accepted),
        "seconds": more["seconds"],
        "bytes_up": counts.bytes_up,
        "bytes_down": counts.bytes_down,
        "rejected": counts.rejected,
        "clipped": counts.clipped,
        "dropped": sum(fault.dropped for fault in faults) + counts.missing,
        "stragglers": sum(fault.work < 1 and not fault.dropped for fault in faults),
        "late": counts.late,
        "corrupted": counts.corrupted,
        "restarted": counts.restarted,
        "client_ids": list(updates.faults),
        "class_accuracy": test.class_accuracy if test and has_classes else None,
        "held_out_clients": summary.clients,
        f"held_out_{primary.key}": summary.mean,
        "held_out_std": summary.std,
        "held_out_worst": summary.worst,
    }
    return cast(Row, {**row, **validation_columns(evaluation, federation, most), **more})
