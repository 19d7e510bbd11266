"""The model and the data: a small BERT with LoRA adapters that tells the mood of a sentence.

Nothing here has to do with how updates are aggregated: put a model and data of yours in its place,
say `AutoModelForSequenceClassification.from_pretrained(...)` where one is built from a config here.
"""

import numpy as np
import torch
from flwr.app import Array, ArrayRecord
from peft import (
    LoraConfig,
    get_peft_model,
    get_peft_model_state_dict,
    set_peft_model_state_dict,
)
from transformers import BertConfig, BertForSequenceClassification

CLS, LENGTH, BATCH, EPOCHS = 0, 10, 32, 2
GOOD, BAD, WORDS = range(1, 9), range(9, 17), 32
SERVER = 1000
"""The part of the data that no node has."""

torch.set_num_threads(1)  # small models are fastest so, and nodes share a machine here


def load_part(part, test=False):
    """Sentences as tokens, and whether they have more good words than bad ones.

    Each node has favorite words of its own.
    """
    rng = np.random.default_rng([17, part, test])
    size = 600 if part == SERVER else rng.integers(150, 350)
    taste = np.random.default_rng([17, part]).dirichlet(np.ones(WORDS - 1))
    chances = (
        np.full(WORDS - 1, 1 / (WORDS - 1)) if part == SERVER else taste / 2 + 0.5 / (WORDS - 1)
    )
    tokens = rng.choice(np.arange(1, WORDS), size=(2 * size, LENGTH), p=chances)
    mood = np.isin(tokens, GOOD).sum(axis=1) - np.isin(tokens, BAD).sum(axis=1)
    tokens, mood = tokens[mood != 0][:size], mood[mood != 0][:size]
    tokens = np.concatenate([np.full((len(tokens), 1), CLS), tokens], axis=1)
    return torch.tensor(tokens), torch.tensor((mood > 0).astype(int))


def build_model():
    """The Transformer, which all nodes have from the start and which stays as it is; and adapters.

    The same ones whenever they are asked for: the seed stands for the download of a trained model.
    """
    torch.manual_seed(17)
    config = BertConfig(
        vocab_size=WORDS,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=128,
        max_position_embeddings=LENGTH + 1,
        initializer_range=0.2,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        num_labels=2,
    )
    adapters = LoraConfig(task_type="SEQ_CLS", r=4, lora_alpha=8, target_modules=["query", "value"])
    return get_peft_model(BertForSequenceClassification(config), adapters)


def adapters_of(model):
    """What travels: the adapters and the head, and nothing of the Transformer below."""
    state = get_peft_model_state_dict(model)
    return ArrayRecord({name: Array(values.numpy()) for name, values in state.items()})


def load_adapters(arrays):
    """The model with the adapters that Flower brought."""
    model = build_model()
    set_peft_model_state_dict(model, arrays.to_torch_state_dict())
    return model


def train_model(model, tokens, labels, rate, seed):
    """Some epochs of Adam on the adapters, and the mean loss of the last."""
    torch.manual_seed(int(np.random.default_rng(seed).integers(2**63)))
    adapters = [weights for weights in model.parameters() if weights.requires_grad]
    optimizer, losses = torch.optim.Adam(adapters, lr=rate), []
    model.train()
    for _ in range(EPOCHS):
        losses = []
        for rows in torch.randperm(len(labels)).split(BATCH):
            optimizer.zero_grad()
            loss = model(input_ids=tokens[rows], labels=labels[rows]).loss
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return float(np.mean(losses))


@torch.no_grad()
def test_model(model, tokens, labels):
    """The share of sentences whose mood is told."""
    model.eval()
    return float((model(input_ids=tokens).logits.argmax(dim=1) == labels).float().mean())


def times(before, after, factor):
    """What an attacker sends: its update, made large."""
    return ArrayRecord(
        {
            name: Array(old.numpy() + factor * (after[name].numpy() - old.numpy()))
            for name, old in before.items()
        }
    )
