"""The methods once more, as naively as possible, to compare fedsol with.

Written from the papers' equations and nothing of fedsol's own: whole copies of modules, plain loops, one forward and
one backward pass for each gradient, SGD by hand. Only what both must share comes from fedsol: data, partition, initial
weights, sampled clients and batches. Gradients are lists in the order of `model.parameters()`.
"""

import copy
import math

import torch
import torch.nn.functional as F
from torch import nn

from fedsol.core.randomness import generator_for
from fedsol.data.batches import batches
from fedsol.federation.federation import build_federation
from fedsol.models import ModelShape
from fedsol.models.basic import CNN
from fedsol.models.build import build_model
from fedsol.training.loop import sample_clients


class Model(nn.Module):
    """A body, which makes features, and a head."""

    def __init__(self, body, features, classes):
        super().__init__()
        self.body, self.head = body, nn.Linear(features, classes)

    def features(self, inputs):
        return self.body(inputs.to(self.head.weight.dtype))

    def forward(self, inputs):
        return self.head(self.features(inputs))


def layers(activation):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), activation, nn.Linear(32, 32), activation)


def smooth(classes):
    """Without kinks: in float32 a relu on the edge could turn a difference of 1e-8 into one of 1e-4."""
    return Model(layers(nn.Tanh()), 32, classes)


def double(classes):
    return Model(layers(nn.ReLU()), 32, classes).double()


class Convolutional(CNN):
    """fedsol's own CNN, whose convolutions have gradients with other strides than their weights."""

    def features(self, inputs):
        return super().features(inputs.to(self.head.weight.dtype).expand(-1, 3, -1, -1))


def convolutional(classes):
    return Convolutional((3, 8, 8), classes).double()


def normalized(classes):
    body = nn.Sequential(nn.Conv2d(1, 4, kernel_size=3, stride=2), nn.BatchNorm2d(4), nn.Tanh(), nn.Flatten())
    return Model(body, 36, classes)


# Gradients. Each is taken on a copy in training mode that is thrown away, so that no pass here leaves a trace in the
# running statistics. Anchors and previous models are in evaluation mode all along.


def gradient_of(loss, model):
    found = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
    return [torch.zeros_like(p) if g is None else g.detach() for p, g in zip(model.parameters(), found, strict=True)]


def local_gradient(model, batch):
    model = copy.deepcopy(model).train()
    return gradient_of(F.cross_entropy(model(batch.inputs), batch.labels), model)


def distance_gradient(model, anchor):
    squares = [((w - a.detach()) ** 2).sum() for w, a in zip(model.parameters(), anchor.parameters(), strict=True)]
    return gradient_of(sum(squares) / 2, model)


def kl_gradient(model, anchor, batch, tau, not_true=False):
    model = copy.deepcopy(model).train()
    student, teacher = model(batch.inputs), anchor(batch.inputs).detach()
    if not_true:
        student, teacher = without_true_class(student, batch.labels), without_true_class(teacher, batch.labels)
    p, q = F.softmax(teacher / tau, dim=1), F.softmax(student / tau, dim=1)
    kl = (p * (p.log() - q.log())).sum(dim=1).mean()
    return gradient_of(kl * tau**2 if not_true else kl, model)


def without_true_class(logits, labels):
    rows = [torch.cat([row[:label], row[label + 1 :]]) for row, label in zip(logits, labels.tolist(), strict=True)]
    return torch.stack(rows)


def contrastive_gradient(model, anchor, previous, batch, tau):
    model = copy.deepcopy(model).train()
    z = model.features(batch.inputs)
    to_global = F.cosine_similarity(z, anchor.features(batch.inputs).detach()) / tau
    to_previous = F.cosine_similarity(z, previous.features(batch.inputs).detach()) / tau
    return gradient_of(-(to_global.exp() / (to_global.exp() + to_previous.exp())).log().mean(), model)


def dot(one, other):
    return sum((x * y).sum() for x, y in zip(one, other, strict=True))


def plus(gradient, factor, other):
    return [x + factor * y for x, y in zip(gradient, other, strict=True)]


def projected(local, proximal):
    if dot(local, proximal) >= 0:
        return local
    return plus(local, -dot(local, proximal) / dot(proximal, proximal), proximal)


def moved(model, step):
    model = copy.deepcopy(model)
    with torch.no_grad():
        for w, e in zip(model.parameters(), step, strict=True):
            w += e
    return model


def at_anchor(model, anchor):
    return all(torch.equal(w, a) for w, a in zip(model.parameters(), anchor.parameters(), strict=True))


def same(one, other):
    return all(torch.equal(x, other.state_dict()[name]) for name, x in one.state_dict().items())


def distance(model, anchor):
    return [(w - a).detach() for w, a in zip(model.parameters(), anchor.parameters(), strict=True)]


def proximal_perturbation(direction, model, anchor, settings):
    """`rho * Lambda * g / ||g||` on the perturbed parameters, 0 on the others."""
    chosen = []
    for name, _ in model.named_parameters():
        is_head = name.startswith("head.")
        chosen.append({"all": True, "head": is_head, "body": not is_head}[settings["perturb"]])
    norm = math.sqrt(sum(float((g**2).sum()) for g, yes in zip(direction, chosen, strict=True) if yes))
    step = []
    for g, yes, w, a in zip(direction, chosen, model.parameters(), anchor.parameters(), strict=True):
        change = strength_of((w - a).detach().abs(), settings["strength"]) * g / max(norm, 1e-12)
        step.append(settings["rho"] * change if yes else torch.zeros_like(w))
    return step


def strength_of(difference, strength):
    if strength == "fixed":
        return torch.ones_like(difference)
    by_column = (difference**2).sum(dim=0, keepdim=True).sqrt()
    length = difference.norm() if strength == "adaptive" else by_column
    return torch.where(length > 0, difference / length, torch.zeros_like(difference))


# The methods: what a client does with a batch, what it does at its end, what the server does with the models.


class FedAvg:
    def __init__(self, settings, initial, clients, momentum):
        self.settings, self.initial, self.clients, self.momentum = settings, initial, clients, momentum

    def zeros(self):
        return [torch.zeros_like(w) for w in self.initial.parameters()]

    def sent(self, server):
        """The model that the clients of a round receive."""
        return copy.deepcopy(server)

    def start(self, client, anchor):
        """The model from which a client starts."""
        return copy.deepcopy(anchor)

    def steps(self, epoch):
        """What each step of an epoch sees: here one batch."""
        return epoch

    def step_size(self, lr):
        return lr

    def is_trained(self, name, step, steps):
        return True

    def is_at_home(self, name):
        """Whether a client keeps its own."""
        return False

    def gradient(self, client, model, anchor, batch, lr):
        return local_gradient(model, batch)

    def client_done(self, client, model, anchor, steps, lr):
        pass

    def new_parameters(self, anchor, models, shares, steps):
        """The next global parameters; all but `anchor` are dictionaries over the sampled clients."""
        total = self.zeros()
        for client, model in models.items():
            total = plus(total, shares[client], [w.detach() for w in model.parameters()])
        return total

    def effective_steps(self, steps):
        """How often the first steps' gradients count in the end: momentum repeats each of them."""
        velocity = total = 0.0
        for _ in range(steps):
            velocity = self.momentum * velocity + 1
            total += velocity
        return total


class FedSAM(FedAvg):
    def gradient(self, client, model, anchor, batch, lr):
        g = local_gradient(model, batch)
        norm = math.sqrt(float(dot(g, g)))
        return local_gradient(moved(model, [self.settings["rho"] * x / norm for x in g]), batch)


class FedASAM(FedAvg):
    def gradient(self, client, model, anchor, batch, lr):
        g = local_gradient(model, batch)
        scaled = [w.detach().abs() * x for w, x in zip(model.parameters(), g, strict=True)]
        norm = math.sqrt(float(dot(scaled, scaled)))
        step = [self.settings["rho"] * w.detach() ** 2 * x / norm for w, x in zip(model.parameters(), g, strict=True)]
        return local_gradient(moved(model, step), batch)


class PerFedAvg(FedAvg):
    """First-order: a step on one batch, the gradient there on the next, applied where it began."""

    def steps(self, epoch):
        return [epoch[i : i + 2] for i in range(0, len(epoch), 2)]

    def step_size(self, lr):
        return self.settings["outer_lr"]

    def gradient(self, client, model, anchor, batch, lr):
        inner = local_gradient(model, batch[0])
        return local_gradient(moved(model, [-lr * g for g in inner]), batch[-1])


class FedBABU(FedAvg):
    def is_trained(self, name, step, steps):
        return not name.startswith("head.")


class FedPer(FedAvg):
    def is_at_home(self, name):
        return name.startswith("head.")


class LGFedAvg(FedAvg):
    def is_at_home(self, name):
        return not name.startswith("head.")


class FedBN(FedAvg):
    def is_at_home(self, name):
        return name.startswith("body.1.") and any(True for _ in self.initial.buffers())  # of `normalized`


class FedRep(FedPer):
    def is_trained(self, name, step, steps):
        return name.startswith("head.") == (step < round(self.settings["head_share"] * steps))


class Proximal(FedAvg):
    """Methods that use the gradient of a proximal loss in one of three ways."""

    zero_at_anchor = False
    """Whether that gradient is 0 at the anchor in exact arithmetic."""
    factor = None
    """The setting that multiplies the loss, if there is one."""

    def proximal_gradient(self, client, model, anchor, batch):
        raise NotImplementedError

    def perturbation(self, client, model, anchor, batch):
        if self.zero_at_anchor and at_anchor(model, anchor):
            return self.zeros()
        direction = self.proximal_gradient(client, model, anchor, batch)
        return proximal_perturbation(direction, model, anchor, self.settings)

    def gradient(self, client, model, anchor, batch, lr):
        if self.settings["usage"] == "perturbed":
            return local_gradient(moved(model, self.perturbation(client, model, anchor, batch)), batch)
        local = local_gradient(model, batch)
        proximal = self.proximal_gradient(client, model, anchor, batch)
        if self.settings["usage"] == "auxiliary":
            return plus(local, self.settings.get(self.factor, 1.0), proximal)
        if self.zero_at_anchor and at_anchor(model, anchor):
            return local
        return projected(local, proximal)


class FedProx(Proximal):
    zero_at_anchor, factor = True, "mu"

    def proximal_gradient(self, client, model, anchor, batch):
        return distance_gradient(model, anchor)


class FedNTD(Proximal):
    zero_at_anchor, factor = True, "beta"

    def proximal_gradient(self, client, model, anchor, batch):
        return kl_gradient(model, anchor, batch, self.settings["tau"], not_true=True)


class MOON(Proximal):
    factor = "mu"

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.previous = {client: copy.deepcopy(self.initial).eval() for client in range(self.clients)}

    def proximal_gradient(self, client, model, anchor, batch):
        previous = self.previous[client]
        if same(previous, anchor):  # the loss is log 2 whatever the weights: any gradient would be rounding noise
            return self.zeros()
        return contrastive_gradient(model, anchor, previous, batch, self.settings["tau"])

    def client_done(self, client, model, anchor, steps, lr):
        self.previous[client] = copy.deepcopy(model).eval()


class FedDyn(Proximal):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.h, self.own_h = self.zeros(), [self.zeros() for _ in range(self.clients)]

    def proximal_gradient(self, client, model, anchor, batch):
        return plus(plus(self.zeros(), -1, self.own_h[client]), self.settings["alpha"], distance(model, anchor))

    def client_done(self, client, model, anchor, steps, lr):
        self.own_h[client] = plus(self.own_h[client], -self.settings["alpha"], distance(model, anchor))

    def new_parameters(self, anchor, models, shares, steps):
        alpha = self.settings["alpha"]
        for model in models.values():
            self.h = plus(self.h, -alpha / self.clients, distance(model, anchor))
        return plus(super().new_parameters(anchor, models, shares, steps), -1 / alpha, self.h)


class Scaffold(Proximal):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.c, self.own_c = self.zeros(), [self.zeros() for _ in range(self.clients)]
        self.changes = []

    def proximal_gradient(self, client, model, anchor, batch):
        return plus(self.c, -1, self.own_c[client])

    def client_done(self, client, model, anchor, steps, lr):
        plain = self.settings.get("steps") == "plain"
        count = steps if plain else self.effective_steps(steps)
        old, new = self.own_c[client], plus(self.zeros(), -1 / (count * lr), distance(model, anchor))
        if self.settings["usage"] == "auxiliary":
            new = plus(new, 1, plus(old, -1, self.c))
        self.changes.append(plus(new, -1, old))
        self.own_c[client] = new

    def new_parameters(self, anchor, models, shares, steps):
        for change in self.changes:
            self.c = plus(self.c, len(models) / self.clients / len(models), change)
        self.changes = []
        return super().new_parameters(anchor, models, shares, steps)


class FedNova(Scaffold):
    def gradient(self, client, model, anchor, batch, lr):
        if not self.settings["control"]:
            return local_gradient(model, batch)
        return super().gradient(client, model, anchor, batch, lr)

    def new_parameters(self, anchor, models, shares, steps):
        super().new_parameters(anchor, models, shares, steps)
        average = sum(shares[client] * self.effective_steps(steps[client]) for client in models)
        result = [a.detach() for a in anchor.parameters()]
        for client, model in models.items():
            per_step = [x / self.effective_steps(steps[client]) for x in distance(model, anchor)]
            result = plus(result, average * shares[client], per_step)
        return result


class FedSOL(Proximal):
    zero_at_anchor, factor = True, "beta"

    def proximal_gradient(self, client, model, anchor, batch):
        if self.settings["proximal"] == "l2":
            return distance_gradient(model, anchor)
        return kl_gradient(model, anchor, batch, self.settings["tau"], self.settings["proximal"] == "not-true-kl")


class Ablation(FedSOL):
    """The paper's table of other perturbation strategies."""

    def gradient(self, client, model, anchor, batch, lr):
        def local(at):
            return local_gradient(at, batch)

        def proximal(at):
            return self.proximal_gradient(client, at, anchor, batch)

        strategy, beta = self.settings["strategy"], self.settings["beta"]
        if strategy == "A0":
            return local(model)
        if strategy == "A5":
            return plus(local(model), 1, proximal(model))
        if strategy == "A4":
            combined = plus(local(model), 1, proximal(model))
            perturbed = moved(model, proximal_perturbation(combined, model, anchor, self.settings))
        else:
            perturbed = moved(model, self.perturbation(client, model, anchor, batch))
        if strategy == "A1":
            return local(perturbed)
        local_at = model if strategy == "A2" else perturbed
        proximal_at = model if strategy == "A6" else perturbed
        return plus(local(local_at), beta, proximal(proximal_at))


# Methods that take another one's local gradient at perturbed weights. `local` is what they replace.


class FedCM(FedAvg):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.momentum_term, self.applied = self.zeros(), []

    def local(self, client, model, anchor, batch):
        return local_gradient(model, batch)

    def gradient(self, client, model, anchor, batch, lr):
        mixed = [self.settings["alpha"] * g for g in self.local(client, model, anchor, batch)]
        return plus(mixed, 1 - self.settings["alpha"], self.momentum_term)

    def client_done(self, client, model, anchor, steps, lr):
        self.applied.append([-d / (self.effective_steps(steps) * lr) for d in distance(model, anchor)])

    def new_parameters(self, anchor, models, shares, steps):
        self.momentum_term = [sum(parts) / len(self.applied) for parts in zip(*self.applied, strict=True)]
        self.applied = []
        return super().new_parameters(anchor, models, shares, steps)


class Sharp:
    """The local gradient at the end of a step of length rho along a direction."""

    def ascent(self, client, model, anchor, batch):
        return local_gradient(model, batch)

    def local(self, client, model, anchor, batch):
        direction = self.ascent(client, model, anchor, batch)
        norm = math.sqrt(float(dot(direction, direction)))
        step = [self.settings["rho"] * d / norm if norm else torch.zeros_like(d) for d in direction]
        self.stepped(client, step)
        return local_gradient(moved(model, step), batch)

    def stepped(self, client, step):
        pass


class Lookback(Sharp):
    """FedLESAM's direction: from what the client received now to what it received before."""

    def ascent(self, client, model, anchor, batch):
        seen = self.__dict__.setdefault("seen", {})
        return distance(seen[client], anchor) if client in seen else self.zeros()

    def client_done(self, client, model, anchor, steps, lr):
        super().client_done(client, model, anchor, steps, lr)
        self.__dict__.setdefault("seen", {})[client] = anchor


class Corrected:
    """The proximal gradient, added to a local gradient that was taken elsewhere."""

    def __init__(self, settings, *rest):
        super().__init__({"usage": "auxiliary", **settings}, *rest)

    def gradient(self, client, model, anchor, batch, lr):
        local = self.local(client, model, anchor, batch)
        return plus(local, 1, self.proximal_gradient(client, model, anchor, batch))


class MoFedSAM(Sharp, FedCM):
    pass


class FedGAMMA(Corrected, Sharp, Scaffold):
    pass


class FedLESAM(Lookback, FedAvg):
    def gradient(self, client, model, anchor, batch, lr):
        return self.local(client, model, anchor, batch)


class FedLESAMS(Corrected, Lookback, Scaffold):
    pass


class FedLESAMD(Corrected, Lookback, FedDyn):
    pass


class FedSMOO(Corrected, Sharp, FedDyn):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.s, self.mu = self.zeros(), [self.zeros() for _ in range(self.clients)]

    def ascent(self, client, model, anchor, batch):
        return plus(plus(local_gradient(model, batch), -1, self.mu[client]), -1, self.s)

    def stepped(self, client, step):
        self.mu[client] = plus(plus(self.mu[client], 1, step), -1, self.s)

    def new_parameters(self, anchor, models, shares, steps):
        average = [sum(parts) / len(models) for parts in zip(*(self.mu[client] for client in models), strict=True)]
        self.s = [self.settings["rho"] * x / math.sqrt(float(dot(average, average))) for x in average]
        return super().new_parameters(anchor, models, shares, steps)


class Forward(Sharp, FedCM):
    """A point of the grid without a name: perturbed along the momentum, which is not added."""

    def ascent(self, client, model, anchor, batch):
        return self.momentum_term

    def gradient(self, client, model, anchor, batch, lr):
        return self.local(client, model, anchor, batch)


class FedSpeed(Sharp, FedAvg):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.h = [self.zeros() for _ in range(self.clients)]

    def gradient(self, client, model, anchor, batch, lr):
        alpha, lam = self.settings["alpha"], self.settings["lam"]
        there = [alpha * g for g in self.local(client, model, anchor, batch)]
        mixed = plus(there, 1 - alpha, local_gradient(model, batch))
        return plus(plus(mixed, -1, self.h[client]), 1 / lam, distance(model, anchor))

    def client_done(self, client, model, anchor, steps, lr):
        self.h[client] = plus(self.h[client], -1 / self.settings["lam"], distance(model, anchor))

    def new_parameters(self, anchor, models, shares, steps):
        mean = super().new_parameters(anchor, models, shares, steps)
        for client in models:
            mean = plus(mean, -shares[client] * self.settings["lam"], self.h[client])
        return mean


class FedACG(FedAvg):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.m = self.zeros()

    def sent(self, server):
        return moved(server, [self.settings["lam"] * m for m in self.m])

    def gradient(self, client, model, anchor, batch, lr):
        return plus(local_gradient(model, batch), self.settings["beta"], distance(model, anchor))

    def new_parameters(self, anchor, models, shares, steps):
        mean = super().new_parameters(anchor, models, shares, steps)
        change = [w - a.detach() for w, a in zip(mean, anchor.parameters(), strict=True)]
        self.m = plus(change, self.settings["lam"], self.m)
        return mean


class FedInit(FedAvg):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.last = [copy.deepcopy(self.initial) for _ in range(self.clients)]

    def start(self, client, anchor):
        return moved(anchor, [-self.settings["beta"] * d for d in distance(self.last[client], anchor)])

    def client_done(self, client, model, anchor, steps, lr):
        self.last[client] = copy.deepcopy(model)


class FedExP(FedAvg):
    def new_parameters(self, anchor, models, shares, steps):
        old = [a.detach() for a in anchor.parameters()]
        change = plus(super().new_parameters(anchor, models, shares, steps), -1, old)
        squares = {client: dot(distance(model, anchor), distance(model, anchor)) for client, model in models.items()}
        numerator = sum(shares[client] * float(squares[client]) for client in models)
        return plus(old, max(1.0, numerator / (2 * (float(dot(change, change)) + self.settings["epsilon"]))), change)


class FedLC(FedAvg):
    def logits(self, client, logits):
        counts = [int((self.labels[client] == label).sum()) for label in range(logits.shape[1])]
        return logits - self.settings["tau"] * torch.tensor([max(count, 1e-8) ** -0.25 for count in counts])

    def gradient(self, client, model, anchor, batch, lr):
        model = copy.deepcopy(model).train()
        return gradient_of(F.cross_entropy(self.logits(client, model(batch.inputs)), batch.labels), model)


class FedRS(FedLC):
    def logits(self, client, logits):
        has = set(self.labels[client].tolist())
        return logits * torch.tensor([1 if c in has else self.settings["alpha"] for c in range(logits.shape[1])])


class FedDecorr(FedAvg):
    def gradient(self, client, model, anchor, batch, lr):
        model = copy.deepcopy(model).train()
        features = model.features(batch.inputs)
        correlation = (torch.corrcoef(features.T) ** 2).sum() / features.shape[1] ** 2
        loss = F.cross_entropy(model.head(features), batch.labels)
        return gradient_of(loss + self.settings["beta"] * correlation, model)


USE = {"usage": "auxiliary", "rho": 2.0, "strength": "adaptive-column", "perturb": "all"}
SOL = {"usage": "perturbed", "rho": 2.0, "strength": "adaptive-column", "perturb": "head"}
SOL |= {"proximal": "kl", "tau": 3.0, "beta": 1.0}
METHODS = {
    "fedavg": (FedAvg, {}),
    "fedprox": (FedProx, USE | {"mu": 1.0}),
    "fednova": (FedNova, USE | {"control": False}),
    "scaffold": (Scaffold, USE | {"steps": "momentum-corrected"}),
    "fedntd": (FedNTD, USE | {"beta": 1.0, "tau": 1.0}),
    "fedsam": (FedSAM, {"rho": 0.1}),
    "fedasam": (FedASAM, {"rho": 1.0}),
    "feddyn": (FedDyn, USE | {"alpha": 0.1}),
    "moon": (MOON, USE | {"mu": 0.1, "tau": 0.5}),
    "fedsol": (FedSOL, SOL),
    "fedsol-ablation": (Ablation, SOL),
    "fedcm": (FedCM, {"alpha": 0.1}),
    "mofedsam": (MoFedSAM, {"rho": 0.1, "alpha": 0.1}),
    "fedgamma": (FedGAMMA, {"rho": 0.1}),
    "fedsmoo": (FedSMOO, {"rho": 0.1, "alpha": 0.1}),
    "fedlesam": (FedLESAM, {"rho": 0.1}),
    "fedlesam-s": (FedLESAMS, {"rho": 0.1}),
    "fedlesam-d": (FedLESAMD, {"rho": 0.1, "alpha": 0.1}),
    "fedspeed": (FedSpeed, {"rho": 0.1, "alpha": 1.0, "lam": 10.0}),
    "fedacg": (FedACG, {"lam": 0.85, "beta": 0.01}),
    "fedinit": (FedInit, {"beta": 0.1}),
    "fedexp": (FedExP, {"epsilon": 1e-3}),
    "fedlc": (FedLC, {"tau": 1.0}),
    "fedrs": (FedRS, {"alpha": 0.5}),
    "feddecorr": (FedDecorr, {"beta": 0.1}),
    "perturbed": (Forward, {}),
    "perfedavg": (PerFedAvg, {"outer_lr": 0.01}),
    "fedbabu": (FedBABU, {}),
    "fedper": (FedPer, {}),
    "fedrep": (FedRep, {"head_share": 0.5}),
    "fedbn": (FedBN, {}),
    "lg-fedavg": (LGFedAvg, {}),
    "ditto": (FedAvg, {}),
    "knn-per": (FedAvg, {}),
}
"""Each method with the settings that a table may leave out: the values that FedSOL's authors selected."""


class ServerOptimizer:
    """FedAvgM (Hsu et al. 2019), FedAdam and FedYogi (Reddi et al. 2021, algorithm 2)."""

    def __init__(self, settings, zeros):
        self.settings, self.m = settings, zeros
        self.v = [torch.full_like(x, settings.optimizer_epsilon**2) for x in zeros]

    def step(self, old, average):
        s, delta = self.settings, plus(average, -1, old)
        if s.optimizer == "average":
            return plus(old, s.lr, delta)
        if s.optimizer == "momentum":
            self.m = plus(delta, s.optimizer_momentum, self.m)
            return plus(old, s.optimizer_lr, self.m)
        self.m = [s.optimizer_momentum * m + (1 - s.optimizer_momentum) * d for m, d in zip(self.m, delta, strict=True)]
        for i, d in enumerate(delta):
            if s.optimizer == "adam":
                self.v[i] = s.optimizer_beta2 * self.v[i] + (1 - s.optimizer_beta2) * d**2
            else:
                self.v[i] = self.v[i] - (1 - s.optimizer_beta2) * d**2 * torch.sign(self.v[i] - d**2)
        step = [m / (v.sqrt() + s.optimizer_epsilon) for m, v in zip(self.m, self.v, strict=True)]
        return plus(old, s.optimizer_lr, step)


def train_client(model, anchor, method, client, epochs, lr, settings):
    """SGD with momentum and weight decay, by hand, on lists of batches; returns the number of steps."""
    velocity, steps = {}, 0
    every = [step for epoch in epochs for step in method.steps(epoch)]
    for batch in every:
        gradient = method.gradient(client, model, anchor, batch, lr)
        with torch.no_grad():
            seen = batch[0] if isinstance(batch, list) else batch
            model.train()(seen.inputs)  # the one pass whose running statistics are kept
            for (name, w), g in zip(model.named_parameters(), gradient, strict=True):
                if method.is_trained(name, steps, len(every)) and (
                    settings.trains == "all" or not name.startswith("head.")
                ):
                    g = g + settings.weight_decay * w
                    velocity[name] = settings.momentum * velocity[name] + g if name in velocity else g
                    w -= method.step_size(lr) * velocity[name]
        steps += 1
    method.client_done(client, model, anchor, steps, lr)
    return steps


def epochs_of(settings, dataset, own, generator):
    """A round's batches, epoch by epoch: so many epochs, or so many steps of one batch each."""
    epochs = []
    while len(epochs) < settings.epochs if settings.steps is None else sum(map(len, epochs)) < settings.steps:
        epochs.append(list(batches(dataset, own, settings.batch_size, 1, generator)))
    too_many = 0 if settings.steps is None else sum(map(len, epochs)) - settings.steps
    return [*epochs[:-1], epochs[-1][: len(epochs[-1]) - too_many]]


def train(experiment, table):
    """The global weights after every round. Settings of the algorithm that `table` leaves out have their defaults."""
    federation = build_federation(experiment)
    experiment, dataset = federation.experiment, federation.dataset
    server = build_model(experiment.model.name, {}, ModelShape(dataset.input_shape, dataset.classes), 0)
    server.load_state_dict(federation.initial_weights())
    method_class, defaults = METHODS[table["name"]]
    method = method_class(defaults | table, copy.deepcopy(server), federation.clients, experiment.client.momentum)
    method.labels = [dataset.train.labels[indices] for indices in federation.partition]
    optimizer = ServerOptimizer(experiment.server, method.zeros())
    history, at_home = [], {}
    for t in range(1, experiment.rounds + 1):
        anchor, models, steps, lr = method.sent(server).eval(), {}, {}, experiment.learning_rate(t)
        clients = sample_clients(experiment, federation.clients, t)
        for client in clients:
            generator = generator_for(experiment.seed, "client", t, client)
            epochs = epochs_of(experiment.client, dataset, federation.partition[client], generator)
            models[client] = method.start(client, anchor)
            models[client].load_state_dict({**models[client].state_dict(), **at_home.get(client, {})})
            steps[client] = train_client(models[client], anchor, method, client, epochs, lr, experiment.client)
            trained = copy.deepcopy(models[client].state_dict())
            at_home[client] = {name: tensor for name, tensor in trained.items() if method.is_at_home(name)}
        sizes = {client: len(federation.partition[client]) for client in clients}
        if experiment.server.weighting == "uniform":
            sizes = dict.fromkeys(clients, 1)
        shares = {client: size / sum(sizes.values()) for client, size in sizes.items()}
        average = method.new_parameters(anchor, models, shares, steps)
        new = optimizer.step([a.detach() for a in anchor.parameters()], average)
        with torch.no_grad():
            for w, value in zip(server.parameters(), new, strict=True):
                w.copy_(value)
        average_buffers(server, models, shares)
        unknown = {name: tensor for name, tensor in anchor.state_dict().items() if method.is_at_home(name)}
        server.load_state_dict({**server.state_dict(), **unknown})
        history.append({name: tensor.clone() for name, tensor in server.state_dict().items()})
    return history


def average_buffers(server, models, shares):
    """Running statistics are averaged like weights."""
    for name, buffer in server.named_buffers():
        if buffer.is_floating_point():
            buffer.zero_()
            for client, model in models.items():
                buffer += shares[client] * dict(model.named_buffers())[name]
