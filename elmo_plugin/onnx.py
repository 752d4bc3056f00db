"""Export of a biLM to an ONNX graph, from character ids and LSTM states to layers and states."""

import json
import warnings
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

from elmo_plugin.bilm.files.atomic_write import atomic_write, check_output_path
from elmo_plugin.bilm.files.options import options_dict
from elmo_plugin.bilm.kernels import reference, torch_private
from elmo_plugin.bilm.kernels.backend import plain
from elmo_plugin.bilm.manylangs.many_langs_options import ManyLangsOptions
from elmo_plugin.bilm.model.bilm import BiLm, BiLmOutput
from elmo_plugin.bilm.model.lstm import DIRECTIONS, LstmCellWithProjection

IDS = "character_ids"
STATES = tuple(f"{direction}_{part}" for direction in DIRECTIONS for part in ("hidden", "cell"))
LAYERS = "layers"


class OnnxBilm(torch.nn.Module):
    """
    Module that `export_onnx` exports: a biLM for padded batches of only operations that ONNX
    supports, with the results of `kernels/reference.py`. Sentences start in the biLM's `state`,
    `"reset"` or `"primed"`.
    """

    begin: torch.Tensor
    end: torch.Tensor

    def __init__(self, bilm: BiLm) -> None:
        super().__init__()
        self.bilm = bilm
        begin, end = bilm.char_cnn.boundary_ids
        self.register_buffer("begin", begin)
        self.register_buffer("end", end)

    def start(self) -> list[torch.Tensor]:
        """
        Return the initial LSTM states of a sentence, as `forward` takes them, with a batch size of
        1: hidden and cell states of the forward LSTM, then those of the backward LSTM.
        """
        with torch.no_grad():
            return [tensor for state in self.bilm.start_states([0]) for tensor in state]

    def forward(
        self, character_ids: torch.Tensor, *states: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        """
        Compute all layers of a batch of sentences.

        `character_ids` are int64, shape `(batch_size, num_tokens, num_characters)`, zero at
        padding. `states` are the initial LSTM states in the order of `STATES`: hidden states of
        shape `(num_layers, batch_size, projection_dim)` and cell states of shape `(num_layers,
        batch_size, cell_size)`. States of batch size 1 are used for all sentences.

        # Returns

        `Tuple[torch.Tensor, ...]`
            `layers`, shape `(batch_size, mixture_size, num_tokens, embedding_dim)`, zero at
            padding, then the states at each sentence's end, in the order of `STATES`.
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
        # A state of batch size 1 is meant for every sentence, so its row 0 is used for all.
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
        output = BiLmOutput([torch.cat(half, dim=-1) for half in zip(*halves)], mask).tokens()
        return torch.stack(output.layers, dim=1), *ends

    def _tokens(self, ids: torch.Tensor) -> torch.Tensor:
        """
        Return the output of the token layer. `reference.token_layer` is not used: it calls `len`,
        which would make the number of tokens a constant in the exported graph.
        """
        layers = reference.token_modules(self.bilm.char_cnn.weights)
        characters = functional.embedding(ids.flatten(0, 1), layers.embedding).transpose(1, 2)
        maxima = [convolve(characters).amax(dim=2) for convolve in layers.convolutions]
        tokens = layers.highways(layers.activation(torch.cat(maxima, dim=1)))
        if layers.projection is not None:
            tokens = layers.projection(tokens)
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
        # The backward LSTM reads the padding before the tokens, so `alive` keeps the state there.
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

    return torch_private.scan(step, (hidden, memory), (inputs, alive))


def export_onnx(bilm: BiLm, path: str | Path) -> None:
    """
    Write a biLM as an ONNX file with the inputs and outputs of `OnnxBilm.forward`.

    The graph accepts any `batch_size` and `num_tokens`. The input states are optional; by default
    they are the biLM's own initial states. onnxruntime warns that these defaults are not constants;
    ignore it. The file's metadata has the biLM's options and `state`.

    The biLM has `state` `"reset"` or `"primed"` and float32 weights on the CPU. An existing file is
    replaced once the new one is complete.

    # Raises

    `ValueError`
        If the biLM is another or a model of ELMoForManyLangs, a layer was replaced or hooked, or
        the exported graph has a fixed `batch_size` or `num_tokens`. No file is written.
    `FileNotFoundError`
        If the output's folder does not exist.
    `ModuleNotFoundError`
        If `onnx` or `onnxscript` is not installed.
    """
    if isinstance(bilm.options, ManyLangsOptions):
        raise ValueError(
            "found an ELMoForManyLangs model, whose token layer looks words up in a dictionary; "
            "expected a biLM in the format of bilm-tf, such as the released ones"
        )
    plain(bilm.plain_weights)
    if bilm.state == "carry":
        raise ValueError(
            "state is 'carry', expected 'primed' or 'reset'; to carry the state, pass the states "
            "that come out to the next call"
        )
    dtypes = sorted({str(parameter.dtype) for parameter in bilm.parameters()})
    if dtypes != ["torch.float32"]:
        raise ValueError(
            f"the biLM's weights are {' and '.join(dtypes)}, expected torch.float32: call .float() "
            "on it"
        )
    if bilm.device.type != "cpu":
        raise ValueError(f"the biLM is on {bilm.device}, expected the CPU: call .cpu() on it")
    check_output_path(Path(path))
    import onnx
    import onnxscript  # noqa: F401 (checked now: the exporter imports it after a minute)

    model = OnnxBilm(bilm).eval()
    start = model.start()
    # torch.export may confuse a dimension of the example input with an equal one of the model. So
    # the example's dimensions are numbers that are unlikely in a biLM.
    ids = bilm.batch_to_ids([["a", "b", "c"], *[["d"]] * 6])
    dim = torch.export.Dim
    states = {1: dim("num_states", min=1)}
    torch.compiler.reset()  # discard the state of an earlier export that failed
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the warnings are about the exporter's own code
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
    for key, value in (("options", json.dumps(options_dict(bilm.options))), ("state", bilm.state)):
        proto.metadata_props.add(key=key, value=value)
    with atomic_write(path) as temporary:
        onnx.save(proto, str(temporary))


def _check_free(proto: Any, path: str | Path) -> None:
    """Check that `batch_size` and `num_tokens` are dynamic: the exporter may make one constant."""
    (ids,) = (one for one in proto.graph.input if one.name == IDS)
    shape = [one.dim_param or one.dim_value for one in ids.type.tensor_type.shape.dim]
    for axis, name in enumerate(("batch_size", "num_tokens")):
        if not isinstance(shape[axis], str):
            raise ValueError(
                f"{path} was not written: {name} of {IDS} is {shape[axis]} in the exported graph, "
                f"whose shape is {shape}; expected any {name}"
            )
