"""FedBABU: only the body is federated."""

from dataclasses import dataclass

from fedsol.algorithms.base import Algorithm


@dataclass(frozen=True)
class FedBABU(Algorithm):
    """FedAvg of all but the classifier, which stays as it was initialized; fine-tuning trains everything.

    Oh et al., "FedBABU: Toward Enhanced Representation for Federated Image Classification", ICLR 2022, algorithm 1. The
    head is left out of the optimizer (a gradient of 0 would still decay it). `client.trains = "body"` does the same on
    top of other methods (FedSOL then perturbs the body).
    """

    trains = "body"
