"""Models from transformers, made from small configurations: named inputs, the `logits` of their outputs, heads."""

from importlib.util import find_spec

import pytest
import torch

from fedsol.config.model import ModelSettings
from fedsol.errors import InputError
from fedsol.models import ModelShape
from fedsol.models.build import build_split_model

# It takes seconds to import: only the process that runs these tests does.
pytestmark = pytest.mark.skipif(find_spec("transformers") is None, reason="pip install 'fedsol[text]'")

IDS = torch.tensor([[3, 1, 4, 1], [5, 2, 0, 0]])
NAMED = {"input_ids": IDS, "attention_mask": torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])}
SENTENCES = ModelShape((), 3, vocabulary=6, examples=NAMED)
NEXT = ModelShape((), 6, vocabulary=6, output_shape=(4, 6), examples=NAMED)
SMALL = {"n_embd": 8, "n_layer": 1, "n_head": 2, "n_positions": 8, "use_cache": False}
NO_DROPOUT = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}


def gpt2(vocab_size, tied=False):
    """A decoder whose head may share its weights with the embedding of the tokens."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=vocab_size, tie_word_embeddings=tied, **SMALL, **NO_DROPOUT)
    return GPT2LMHeadModel(config)


def distilbert(vocab_size, num_labels):
    """An encoder with another name for its head, and with dropout."""
    from transformers import DistilBertConfig, DistilBertForSequenceClassification

    sizes = {"dim": 8, "n_layers": 1, "n_heads": 2, "hidden_dim": 8, "max_position_embeddings": 8}
    config = DistilBertConfig(vocab_size=vocab_size, num_labels=num_labels, **sizes)
    return DistilBertForSequenceClassification(config)


def settings(name, **options):
    return ModelSettings(name=f"{__name__}:{name}", options=options)


@pytest.mark.parametrize(
    ("name", "shape", "head"), [("gpt2", NEXT, "lm_head"), ("distilbert", SENTENCES, "classifier")]
)
def test_the_head_is_found_and_the_parts_are_the_model(name, shape, head):
    model = build_split_model(settings(name), shape, 0)
    assert model.head == head
    model.train(False)
    weights = model.initial_weights()
    logits = model.outputs(weights, NAMED)[1]
    assert logits.shape == (2, *shape.outputs)
    assert torch.equal(model.logits(weights, model.features(weights, NAMED)), logits)
    other = {**NAMED, "input_ids": torch.where(NAMED["attention_mask"] == 1, IDS, 5)}
    changed = model.outputs(weights, other)[1]
    real = changed[1, :2] if shape is NEXT else changed[1]
    torch.testing.assert_close(real, logits[1, :2] if shape is NEXT else logits[1])  # padding is not seen


def test_a_head_with_the_weights_of_the_embedding_is_refused():
    with pytest.raises(InputError, match=r"model.head: 'lm_head' must have its own weights \(it shares .*wte.weight"):
        build_split_model(settings("gpt2", tied=True), NEXT, 0)


def test_a_model_for_another_task_is_refused():
    with pytest.raises(InputError, match=r"must turn 2 inputs into logits of shape \(2, 3\) .*got shape \(2, 4, 6\)"):
        build_split_model(settings("gpt2"), SENTENCES, 0)
