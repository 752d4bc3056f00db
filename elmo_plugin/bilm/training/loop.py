"""Pretraining as a plain loop, for machines without AllenNLP."""

import json
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from elmo_plugin.bilm.model.lstm import LstmState
from elmo_plugin.bilm.training.evaluation import perplexity
from elmo_plugin.bilm.training.export import export_bilm
from elmo_plugin.bilm.training.language_model import LanguageModel
from elmo_plugin.bilm.training.streams import BatchPair, both_directions
from elmo_plugin.bilm.training.vocabulary import WordVocabulary


@dataclass(frozen=True)
class LoopSettings:
    """
    # Parameters

    num_updates : `int`
        Steps of the optimizer.
    batch_size, num_steps : `int`
        Streams, and tokens of each in a step.
    learning_rate : `float`
        The highest, reached after `warm_up` steps; a cosine brings it to a hundredth of that at the
        end.
    warm_up : `int`
        Steps of linear rise.
    weight_decay : `float`
        AdamW's, not on biases.
    clip_norm : `float`
        Largest norm of all gradients together.
    evaluate_every : `int`
        Steps between looks at the held-out text.
    evaluation_batches : `int`
        Batches of such a look; the last one reads all.
    seed : `int`
        Of the order of sentences.
    files_at_once : `int`
        Files whose sentences are shuffled together, and held in memory at a time.
    """

    num_updates: int
    batch_size: int = 64
    num_steps: int = 20
    learning_rate: float = 2e-3
    warm_up: int = 300
    weight_decay: float = 0.01
    clip_norm: float = 1.0
    evaluate_every: int = 500
    evaluation_batches: int = 50
    seed: int = 0
    files_at_once: int = 1


def pretrain(
    model: LanguageModel,
    vocabulary: WordVocabulary,
    train_paths: Sequence[Path],
    heldout_paths: Sequence[Path],
    directory: Path,
    settings: LoopSettings,
    card: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """
    Trains with AdamW and writes the released format at every evaluation (to `directory/latest`) and
    at the end (to `directory`); a line of figures goes to `directory/log.jsonl` each time.

    # Parameters

    model, vocabulary
        What is trained, and the words of its softmax.
    train_paths, heldout_paths : `Sequence[Path]`
        Text files, one tokenized sentence a line.
    directory : `Path`
        Where to write.
    settings : `LoopSettings`
    card : `Optional[dict[str, Any]]`, optional (default = `None`)
        What the card says beside the figures.

    # Returns

    `dict[str, Any]`
        The card.

    # Raises

    `FloatingPointError`
        If the loss is no longer a number; the text says at which step.
    """
    directory.mkdir(parents=True, exist_ok=True)
    matrices = [parameter for parameter in model.parameters() if parameter.dim() > 1]
    vectors = [parameter for parameter in model.parameters() if parameter.dim() <= 1]
    optimizer = torch.optim.AdamW(
        [
            {"params": matrices, "weight_decay": settings.weight_decay},
            {"params": vectors, "weight_decay": 0.0},
        ],
        lr=settings.learning_rate,
        fused=True,
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: _warm_up_and_cosine(step, settings)
    )
    shape = {"batch_size": settings.batch_size, "num_steps": settings.num_steps}
    started, states, mean_loss = time.time(), None, 0.0
    model.train()
    batches = _endless(train_paths, vocabulary, settings)
    progress = tqdm(range(1, settings.num_updates + 1), desc="pretraining", mininterval=5)
    figures: dict[str, Any] = {}
    for update in progress:
        loss, states = _update(model, next(batches), states, optimizer, settings.clip_norm)
        if not math.isfinite(loss):
            raise FloatingPointError(
                f"the loss is {loss} at step {update}, expected a finite number"
            )
        schedule.step()
        mean_loss = loss if update == 1 else 0.99 * mean_loss + 0.01 * loss
        progress.set_postfix(loss=f"{mean_loss:.3f}", refresh=False)
        last = update == settings.num_updates
        if update % settings.evaluate_every == 0 or last:
            # Before the evaluation: what was trained is safe whatever happens there.
            export_bilm(model.bilm, directory / "latest")
            heldout = perplexity(
                model,
                both_directions(
                    heldout_paths,
                    vocabulary,
                    limit=None if last else settings.evaluation_batches,
                    shuffle=False,
                    **shape,
                ),
            )
            figures = {
                "update": update,
                "tokens": update * settings.batch_size * settings.num_steps,
                "seconds": round(time.time() - started),
                "training_loss": round(mean_loss, 4),
                "heldout_forward_perplexity": round(heldout.forward, 2),
                "heldout_backward_perplexity": round(heldout.backward, 2),
            }
            with (directory / "log.jsonl").open("a", encoding="utf-8") as log:
                log.write(json.dumps(figures) + "\n")
    card = {**(card or {}), "settings": asdict(settings), "result": figures}
    export_bilm(model.bilm, directory, vocabulary=vocabulary, softmax=model.softmax, card=card)
    return card


def _update(
    model: LanguageModel,
    batch: BatchPair,
    states: tuple[LstmState, LstmState] | None,
    optimizer: torch.optim.Optimizer,
    clip_norm: float,
) -> tuple[float, tuple[LstmState, LstmState]]:
    output = model(batch, states)
    optimizer.zero_grad()
    output.loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), clip_norm)
    optimizer.step()
    return output.loss.item(), output.states


def _endless(
    paths: Sequence[Path], vocabulary: WordVocabulary, settings: LoopSettings
) -> Iterator[BatchPair]:
    epoch = 0
    while True:
        yield from both_directions(
            paths,
            vocabulary,
            epoch,
            batch_size=settings.batch_size,
            num_steps=settings.num_steps,
            seed=settings.seed,
            files_at_once=settings.files_at_once,
        )
        epoch += 1


def _warm_up_and_cosine(step: int, settings: LoopSettings) -> float:
    if step < settings.warm_up:
        return (step + 1) / settings.warm_up
    done = (step - settings.warm_up) / max(1, settings.num_updates - settings.warm_up)
    return 0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * min(1.0, done)))
