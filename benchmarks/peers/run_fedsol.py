"""The workload in fedsol: its public interface, the default engine, no run directory."""

import sys

from workload import Record, Workload

import fedsol


class Clock(fedsol.Callback):
    """Notes when rounds end; changes nothing."""

    needs_updates = False

    def __init__(self) -> None:
        self.record = Record()

    def started(self, _federation: object, _rows: object) -> None:
        self.record.stamp()

    def round_finished(self, result: fedsol.RoundResult) -> None:
        self.record.stamp()
        self.record.steps.append(sum(update.steps for update in result.updates))
        self.record.accuracies.append(result.row["test_accuracy"])


def experiment_for(workload: Workload) -> fedsol.Experiment:
    """The workload as an experiment. `digits` comes with fedsol; other data is read from the file."""
    small = workload.network == "small"
    return fedsol.Experiment(
        rounds=workload.rounds,
        data={
            "name": "digits" if small else workload.data,
            "partition": {"kind": "file", "file": workload.partition},
            "augmentation": {"pad": 0, "flip": False, "cutout": 0},
        },
        model={"name": "small" if small else "cnn"},
        algorithm={"name": "fedavg"},
        client={
            "epochs": workload.epochs,
            "batch_size": workload.batch_size,
            "lr": workload.lr,
            "momentum": workload.momentum,
            "weight_decay": workload.weight_decay,
        },
        server={"fraction": workload.sampled / workload.clients, "lr_decay": 1.0},
    )


def main() -> None:
    """Arguments: the file of the workload, the file to write."""
    clock = Clock()
    fedsol.train(experiment_for(Workload.read(sys.argv[1])), callbacks=[clock])
    clock.record.write(sys.argv[2], ("fedsol", "torch", "numpy"))


if __name__ == "__main__":
    main()
