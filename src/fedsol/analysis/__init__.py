"""Why a method works: what happens to weights, gradients, knowledge and loss in local training, for any run."""
