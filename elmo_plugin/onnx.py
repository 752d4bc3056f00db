"""A biLM as an ONNX file: character ids and a state to layers and a state."""

import json
from pathlib import Path
from typing import Any

import torch
from torch._higher_order_ops.scan import scan
from torch.nn import functional

from elmo_plugin.bilm.files.options import options_dict
from elmo_plugin.bilm.files.whole_file import whole_file
from elmo_plugin.bilm.kernels import reference
from elmo_plugin.bilm.manylangs.options import ManyLangsOptions
from elmo_plugin.bilm.model.bilm import BiLm
from elmo_plugin.bilm.model.lstm import DIRECTIONS, LstmCellWithProjection

IDS = "character_ids"
STATES = tuple(f"{direction}_{part}" for direction in DIRECTIONS for part in ("hidden", "cell"))
LAYERS = "layers"


class OnnxBilm(torch.nn.Module):
    """
    What is exported: `BiLm.run` over padded batches, in operators that ONNX has. Its steps are
    those of `kernels/reference.py`.

    # Parameters

    bilm : `BiLm`
        In `"reset"` or `"primed"`: this gives the state that sentences start at.
    """

    begin: torch.Tensor
    end: torch.Tensor

    def __init__(self, bilm: BiLm) -> None:
        super().__init__()
        self.bilm = bilm
        begin, end = bilm.batch_to_ids([bilm.char_cnn.boundaries])[0]
        self.register_buffer("begin", begin)
        self.register_buffer("end", end)

    def start(self) -> list[torch.Tensor]:
        """`STATES` of one sentence."""
        with torch.no_grad():
            return [tensor for state in self.bilm.start_states(1) for tensor in state]

    def forward(
        self, character_ids: torch.Tensor, *states: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        """
        # Parameters

        character_ids : `torch.Tensor`
            Int64, shape `(batch_size, num_tokens, num_characters)`, zero at padding.

        Behind it `STATES`, shapes `(num_layers, batch_size, projection_dim)` and
        `(num_layers, batch_size, cell_size)`; or those of one sentence, for all of them.

        # Returns

        `Tuple[torch.Tensor, ...]`
            `layers`, shape `(batch_size, mixture_size, num_tokens, embedding_dim)`, zero at
            padding, then `STATES` at each sentence's end.
        """
        batch_size, num_tokens, _ = character_ids.shape
        real = (character_ids > 0).any(dim=-1)
        lengths = real.sum(dim=1, keepdim=True) + 2
        steps = torch.arange(num_tokens + 2, device=character_ids.device).unsqueeze(0)
        ids = functional.pad(character_ids, (0, 0, 1, 1))
        ids = torch.where((steps == 0).unsqueeze(-1), self.begin, ids)
        ids = torch.where((steps == lengths - 1).unsqueeze(-1), self.end, ids)
        mask = steps < lengths
        tokens = self._tokens(ids) * mask.unsqueeze(-1)
        # A state of one sentence is for all of them.
        rows = torch.arange(batch_size, device=ids.device)
        halves, ends = [], []
        for number, direction in enumerate(DIRECTIONS):
            hidden, cell = (
                state[:, torch.minimum(rows, torch.arange(state.shape[1], device=ids.device)[-1:])]
                for state in states[2 * number : 2 * number + 2]
            )
            layers, end = self._stack(direction, tokens, mask, hidden, cell)
            halves.append([tokens, *layers])
            ends += end
        both = torch.stack([torch.cat(half, dim=-1) for half in zip(*halves)], dim=1)
        return both[:, :, 1:-1] * real[:, None, :, None], *ends

    def _tokens(self, ids: torch.Tensor) -> torch.Tensor:
        """`reference.token_layer` of tokens in any number: that one asks for it by `len`."""
        weights = self.bilm.char_cnn.weights
        characters = functional.embedding(ids.flatten(0, 1), weights.embedding).transpose(1, 2)
        maxima = [functional.conv1d(characters, *one).amax(dim=2) for one in weights.convolutions]
        tokens = weights.activation(torch.cat(maxima, dim=1))
        for weight, bias in weights.highways:
            tokens = reference.highway(tokens, weight, bias)
        if weights.projection is not None:
            tokens = functional.linear(tokens, *weights.projection)
        return tokens.unflatten(0, ids.shape[:2])

    def _stack(
        self,
        direction: str,
        inputs: torch.Tensor,
        mask: torch.Tensor,
        hidden: torch.Tensor,
        cell: torch.Tensor,
    ) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        lstm = self.bilm.lstm
        # Backward, padding comes first, and leaves the state as it was.
        order = (lambda one: one.flip(0)) if direction == "backward" else (lambda one: one)
        # Shape: (num_steps, batch_size, ...)
        inputs, alive = order(inputs.transpose(0, 1)), order(mask.t().unsqueeze(-1))
        layers, hiddens, cells = [], [], []
        for index, one in enumerate(lstm.layers(direction)):
            (last_hidden, last_cell), outputs = _layer(
                one, inputs, alive, hidden[index], cell[index]
            )
            if index > 0 and lstm.use_skip_connections:
                outputs = outputs + inputs
            layers.append(order(outputs).transpose(0, 1))
            hiddens.append(last_hidden)
            cells.append(last_cell)
            inputs = outputs
        return layers, [torch.stack(hiddens), torch.stack(cells)]


def _layer(
    cell: LstmCellWithProjection,
    inputs: torch.Tensor,
    alive: torch.Tensor,
    hidden: torch.Tensor,
    memory: torch.Tensor,
) -> Any:
    weights = cell.weights

    def step(before: tuple[torch.Tensor, ...], now: tuple[torch.Tensor, ...]) -> Any:
        (h, c), (x, is_alive) = before, now
        new_h, new_c = reference.lstm_step(x, h, c, weights)
        output = torch.where(is_alive, new_h, torch.zeros_like(new_h))
        return (torch.where(is_alive, new_h, h), torch.where(is_alive, new_c, c)), output

    return scan(step, (hidden, memory), (inputs, alive))


def export_onnx(bilm: BiLm, path: str | Path) -> None:
    """
    Writes a biLM as an ONNX file with the inputs and outputs of `OnnxBilm.forward`, free in
    `batch_size` and `num_tokens`. The state inputs may be left out: sentences then start where the
    biLM's `state` says. Its options are in the file's metadata.

    # Parameters

    bilm : `BiLm`
        In `"reset"` or `"primed"`.
    path : `Union[str, Path]`
        The file to write; replaced when the new one is whole.

    # Raises

    `ValueError`
        If the biLM's state is `"carry"`: feed the states that come out to the next call instead. If
        it is a model of ELMoForManyLangs, whose token layer reads dictionaries. If the exporter has
        fixed `batch_size` or `num_tokens`; no file is written then.
    """
    if isinstance(bilm.options, ManyLangsOptions):
        raise ValueError("found an ELMoForManyLangs model, expected one of bilm-tf's kind")
    if bilm.state == "carry":
        raise ValueError(
            "state is 'carry', expected 'primed' or 'reset'; to carry, give the states that come "
            "out to the next call"
        )
    import onnx
    import onnxscript  # noqa: F401 (the exporter's; missed now, not after a minute)

    model = OnnxBilm(bilm).eval()
    start = model.start()
    # Sizes that none of a biLM's are likely to have: torch.export may take one that another size
    # has too for the same, and fix it.
    ids = bilm.batch_to_ids([["a", "b", "c"], *[["d"]] * 6])
    dim = torch.export.Dim
    states = {1: dim("num_states", min=1)}
    with torch.no_grad():
        program = torch.onnx.export(
            model,
            (ids, *(one.repeat(1, 5, 1) for one in start)),
            dynamo=True,
            input_names=[IDS, *STATES],
            output_names=[LAYERS, *(f"end_{name}" for name in STATES)],
            dynamic_shapes=(
                {0: dim("batch_size", min=1), 1: dim("num_tokens", min=1)},
                tuple(states for _ in start),
            ),
            verbose=False,
        )
    assert program is not None
    proto = program.model_proto
    _check_free(proto, path)
    for name, tensor in zip(STATES, start):
        proto.graph.initializer.append(onnx.numpy_helper.from_array(tensor.numpy(), name))
    for key, value in (
        ("options", json.dumps(options_dict(bilm.options))),
        ("state", bilm.state),
    ):
        proto.metadata_props.add(key=key, value=value)
    with whole_file(path) as aside:
        onnx.save(proto, str(aside))


def _check_free(proto: Any, path: str | Path) -> None:
    """The exporter fixes a size without a word where it takes it for a constant."""
    (ids,) = (one for one in proto.graph.input if one.name == IDS)
    shape = [one.dim_param or one.dim_value for one in ids.type.tensor_type.shape.dim]
    for axis, name in enumerate(("batch_size", "num_tokens")):
        if not isinstance(shape[axis], str):
            raise ValueError(
                f"{path} was not written: {name} of {IDS} is {shape[axis]} in the exported graph, "
                f"whose shape is {shape}; expected any {name}"
            )
