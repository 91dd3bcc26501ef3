"""A model from `transformers` on token ids with an attention mask; it is made from a small configuration, not loaded.

pip install 'fedsol[text]'
"""

from pydoc_data.topics import topics

import numpy as np

PAGES = ("assignment", "class", "for", "function", "import", "try", "with", "yield")
LENGTH = 48


def lines_of_help():
    """Is a line of Python's help code or prose? The tokens are its bytes, and 0 is padding. Clients: the pages."""
    ids, labels, clients = [], [], []
    for page in PAGES:
        for line in topics[page].splitlines():
            text = line.strip().encode("ascii", "replace")[:LENGTH]
            if text:
                ids.append(np.frombuffer(text.ljust(LENGTH, b"\0"), dtype=np.uint8).astype(np.int64))
                labels.append("code" if line.startswith("   ") else "prose")
                clients.append(page)
    tokens, targets, owners = np.stack(ids), np.array(labels), np.array(clients)
    in_test = np.arange(len(tokens)) % 5 == 0

    def named(rows):
        return {"input_ids": rows, "attention_mask": (rows > 0).astype(np.int64)}

    return {
        "x_train": named(tokens[~in_test]),
        "y_train": targets[~in_test],
        "clients_train": owners[~in_test],
        "x_test": named(tokens[in_test]),
        "y_test": targets[in_test],
    }


def tiny_bert(vocab_size, num_labels):
    """An encoder with two layers; fedsol finds its head, `classifier`."""
    from transformers import BertConfig, BertForSequenceClassification

    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    no_dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    config = BertConfig(
        vocab_size=vocab_size, num_labels=num_labels, max_position_embeddings=LENGTH, **sizes, **no_dropout
    )
    return BertForSequenceClassification(config)
