"""Batches of a model's vocabulary, and losses of training steps."""

import torch
from allennlp.data import Batch


def tensors(model, chosen):
    """What `forward` takes."""
    batch = Batch(chosen)
    batch.index_instances(model.vocab)
    return batch.as_tensor_dict()


def losses(model, batch, steps=3):
    """Of training steps with dropout; every random number is drawn in AllenNLP's order."""
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    torch.manual_seed(0)
    model.train()
    found = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(**batch)["loss"]
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found
