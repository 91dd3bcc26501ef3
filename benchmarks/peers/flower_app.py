"""The workload as a Flower app: a ClientApp and a ServerApp of the message interface, with the stock FedAvg."""

import os
from functools import cache

import torch
import torch.nn.functional as F
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from networks import NETWORKS
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from workload import Record, Workload

WORKLOAD_VARIABLE = "FEDSOL_BENCHMARK_WORKLOAD"
OUTPUT_VARIABLE = "FEDSOL_BENCHMARK_OUTPUT"

client_app = ClientApp()
server_app = ServerApp()


@cache
def workload() -> Workload:
    """The workload, read once in each process."""
    return Workload.read(os.environ[WORKLOAD_VARIABLE])


@cache
def arrays_and_indices() -> tuple[dict, list]:
    """The stored data, read once in each process, as Flower's own examples keep their dataset."""
    return workload().arrays(), workload().indices()


def training_loader(client: int) -> DataLoader:
    """Shuffled batches of one client's images."""
    arrays, indices = arrays_and_indices()
    chosen = indices[client]
    inputs = torch.from_numpy(workload().normalized(arrays["x_train"][chosen]))
    labels = torch.from_numpy(arrays["y_train"][chosen])
    return DataLoader(TensorDataset(inputs, labels), batch_size=workload().batch_size, shuffle=True)


@client_app.train()
def train(message: Message, context: Context) -> Message:
    """Local training of one client."""
    work = workload()
    torch.set_num_threads(work.threads)
    network = NETWORKS[work.network]()
    network.load_state_dict(message.content["arrays"].to_torch_state_dict())
    loader = training_loader(int(context.node_config["partition-id"]))
    optimizer = torch.optim.SGD(
        network.parameters(), lr=work.lr, momentum=work.momentum, weight_decay=work.weight_decay
    )
    network.train()
    steps = 0
    for _ in range(work.epochs):
        for inputs, labels in loader:
            optimizer.zero_grad()
            F.cross_entropy(network(inputs), labels).backward()
            optimizer.step()
            steps += 1
    metrics = MetricRecord({"num-examples": len(loader.dataset), "steps": steps})
    return Message(RecordDict({"arrays": ArrayRecord(network.state_dict()), "metrics": metrics}), reply_to=message)


def sum_of_steps(replies: list[RecordDict], _weighted_by: str) -> MetricRecord:
    """The local steps of a round."""
    return MetricRecord({"steps": sum(int(reply["metrics"]["steps"]) for reply in replies)})


@torch.inference_mode()
def accuracy(network: nn.Module, loader: DataLoader) -> float:
    """Share of correct answers on the test set."""
    network.eval()
    loss, correct = 0.0, 0
    for inputs, labels in loader:
        logits = network(inputs)
        loss += float(F.cross_entropy(logits, labels, reduction="sum"))
        correct += int((logits.argmax(dim=1) == labels).sum())
    return correct / len(loader.dataset)


@server_app.main()
def main(grid: Grid, _context: Context) -> None:
    """All rounds; the global model is evaluated by the server after each, on all cores."""
    work, record = workload(), Record()
    torch.set_num_threads(os.cpu_count() or 1)
    arrays, _ = arrays_and_indices()
    test_set = TensorDataset(torch.from_numpy(work.normalized(arrays["x_test"])), torch.from_numpy(arrays["y_test"]))
    test_loader = DataLoader(test_set, batch_size=work.evaluate_batch)
    network = NETWORKS[work.network]()

    def evaluate(server_round: int, weights: ArrayRecord) -> MetricRecord:
        network.load_state_dict(weights.to_torch_state_dict())
        found = accuracy(network, test_loader)
        record.stamp()
        if server_round > 0:
            record.accuracies.append(found)
        return MetricRecord({"accuracy": found})

    strategy = FedAvg(
        fraction_train=work.sampled / work.clients,
        fraction_evaluate=0.0,
        min_available_nodes=work.clients,
        train_metrics_aggr_fn=sum_of_steps,
    )
    result = strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(network.state_dict()),
        num_rounds=work.rounds,
        evaluate_fn=evaluate,
    )
    record.steps = [int(result.train_metrics_clientapp[number]["steps"]) for number in range(1, work.rounds + 1)]
    record.write(os.environ[OUTPUT_VARIABLE], ("flwr", "ray", "torch", "numpy"))
