"""
Classes with the names, arguments and attributes of AllenNLP 0.9, for programs written for it.

`elmo_plugin.as_allennlp` puts them into `allennlp.commands.elmo` and `allennlp.modules`.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from elmo_plugin.bilm.files.load import load_bilm
from elmo_plugin.bilm.files.names import NAMED_BILMS
from elmo_plugin.bilm.files.stderr import stderr
from elmo_plugin.bilm.model.bilm import BiLm
from elmo_plugin.bilm.model.state import STATE_MODES
from elmo_plugin.bilm.use import elmo, embedder

DEFAULT_OPTIONS_FILE, DEFAULT_WEIGHT_FILE = NAMED_BILMS["original"]
DEFAULT_BATCH_SIZE = embedder.DEFAULT_BATCH_SIZE
# Environment variable, also named in `elmo_plugin.as_allennlp`, which `bilm` must not import.
STATE = "ELMO_PLUGIN_STATE"
# Environment variable with the biLM to load in place of what a program names.
OPTIONS_FILE = "ELMO_PLUGIN_OPTIONS_FILE"


def _chosen(
    caller: str, files: Sequence[Any], state: str | None = None
) -> tuple[str, Sequence[Any]]:
    """
    Return the state and the two files of a program, or what the environment variables name in
    their place; the state is `"carry"` by default. Print to stderr what the class `caller` does.

    Raise a `ValueError` if `ELMO_PLUGIN_STATE` is not one of `"carry"`, `"reset"` and `"primed"`.
    """
    if not state:
        state = os.environ.get(STATE) or "carry"
        if state not in STATE_MODES:
            raise ValueError(f"{STATE} is {state!r}, expected one of {STATE_MODES}")
    about = "the same vectors for a sentence each time"
    if state == "carry":
        about = (
            "as in AllenNLP, a sentence's vectors depend on the sentences before it; "
            f"{STATE}=primed (or run --state primed) for the same ones each time"
        )
    print(f"elmo_plugin: {caller} with state {state!r}: {about}", file=stderr())
    if named := os.environ.get(OPTIONS_FILE):
        print(f"elmo_plugin: {named} in place of {files[0]} ({OPTIONS_FILE})", file=stderr())
        files = named, None
    return state, files


class ElmoEmbedder(embedder.ElmoEmbedder):
    """
    AllenNLP 0.9's `ElmoEmbedder`, with its arguments and defaults.

    `cuda_device` `None` is PyTorch's current GPU, if there is one. `state` is by default the value
    of the environment variable `ELMO_PLUGIN_STATE`, else `"carry"`.
    """

    def __init__(
        self,
        options_file: str | Path | dict[str, Any] | None = DEFAULT_OPTIONS_FILE,
        weight_file: str | Path | None = DEFAULT_WEIGHT_FILE,
        cuda_device: int | None = -1,
        state: str | None = None,
    ) -> None:
        state, files = _chosen("ElmoEmbedder", (options_file, weight_file), state)
        if cuda_device is None:
            cuda_device = torch.cuda.current_device() if torch.cuda.is_available() else -1
        bilm = load_bilm(*files, state=state)
        self.name = str(files[0])
        self.place(bilm, cuda_device)


class Elmo(elmo.Elmo):
    """
    `elmo_plugin.Elmo`, with the default `state` from the environment variable `ELMO_PLUGIN_STATE`.

    Arguments are those of `elmo_plugin.Elmo`.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        if named.get("module") is None:
            given = [*arguments[:2]]
            given += [
                named.pop(name, None) for name in ("options_file", "weight_file")[len(given) :]
            ]
            named["state"], files = _chosen("Elmo", given, named.get("state"))
            arguments = (*files, *arguments[2:])
        super().__init__(*arguments, **named)


def _ElmoBiLm(
    options_file: str,
    weight_file: str,
    requires_grad: bool = False,
    vocab_to_cache: Sequence[str] | None = None,
) -> BiLm:
    """Load a biLM, with the arguments of AllenNLP's class `_ElmoBiLm`."""
    state, files = _chosen("_ElmoBiLm", (options_file, weight_file))
    bilm = load_bilm(*files, requires_grad=requires_grad, state=state)
    if vocab_to_cache:
        bilm.cache_vocabulary(vocab_to_cache, requires_grad)
    return bilm
