"""Language model for training on one GPU: the two directions of the LSTM run together."""

from collections.abc import Sequence
from typing import Any

import torch
from torch.nn import Parameter, functional

from elmo_plugin.bilm.kernels import library, reference
from elmo_plugin.bilm.kernels.gradients import stored_clip
from elmo_plugin.bilm.manylangs.options import ManyLangsOptions
from elmo_plugin.bilm.model.bilm import BiLm
from elmo_plugin.bilm.model.lstm import DIRECTIONS, LstmCellWithProjection
from elmo_plugin.bilm.model.options import ElmoOptions
from elmo_plugin.bilm.training.softmax import WordSoftmax
from experiments.gpu_pretraining.kernels import kernel

# Hidden and cell states of one layer, both directions, at the start or the end of a batch.
LayerState = tuple[torch.Tensor, torch.Tensor]


def _power_of_two(number: int) -> int:
    """Return the smallest power of two that is not below `number`."""
    return 1 << (number - 1).bit_length()


class _LstmSteps(torch.autograd.Function):
    """
    All steps of one LSTM layer in both directions, with a hand-written gradient.

    Shapes are `(2, num_steps, batch_size, projection_dim)` for `inputs`, and
    `(2, num_outputs, num_inputs)` for weights. The results are the outputs, and the final hidden
    and cell states.
    """

    @staticmethod
    def forward(
        ctx: Any,
        inputs: torch.Tensor,
        input_weight: torch.Tensor,
        state_weight: torch.Tensor,
        bias: torch.Tensor,
        projection: torch.Tensor,
        hidden: torch.Tensor,
        cell: torch.Tensor,
        clips: tuple[float, float],
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        _, num_steps, batch_size, dim = inputs.shape
        cell_size = projection.shape[2]
        hiddens = inputs.new_empty(2, num_steps + 1, batch_size, dim)
        # Keep cell states in the dtype of `cell`: a clipped state rounded to half precision could
        # leave the clip value, and would wrongly get a gradient.
        cells = cell.new_empty(2, num_steps + 1, batch_size, cell_size)
        hiddens[:, 0], cells[:, 0] = hidden, cell
        activations = inputs.new_empty(2, num_steps, batch_size, 4 * cell_size)
        gated = inputs.new_empty(2, num_steps, batch_size, cell_size)
        input_products = torch.bmm(inputs.flatten(1, 2), input_weight.transpose(1, 2))
        input_products = input_products.view_as(activations)
        state_products = inputs.new_empty(2, batch_size, 4 * cell_size)
        grid, block = _grid(batch_size, cell_size)
        for step in range(num_steps):
            torch.bmm(hiddens[:, step], state_weight.transpose(1, 2), out=state_products)
            kernel("lstm_forward")[grid](
                state_products, input_products[:, step], bias, cells[:, step], cells[:, step + 1],
                gated[:, step], activations[:, step], input_products.stride(0), cells.stride(0),
                gated.stride(0), activations.stride(0), clips[0], batch_size, CELL_SIZE=cell_size,
                BLOCK=block,
            )  # fmt: skip
            torch.bmm(gated[:, step], projection.transpose(1, 2), out=hiddens[:, step + 1])
            hiddens[:, step + 1].clamp_(-clips[1], clips[1])
        ctx.save_for_backward(
            inputs, input_weight, state_weight, projection, hiddens, cells, activations, gated
        )
        ctx.clips = clips[0], stored_clip(clips[1], hiddens.dtype)
        finals = hiddens[:, -1].clone(), cells[:, -1].clone()
        ctx.mark_non_differentiable(*finals)
        return hiddens[:, 1:], *finals

    @staticmethod
    def backward(ctx: Any, grad_outputs: torch.Tensor, *_: Any) -> tuple[Any, ...]:
        inputs, input_weight, state_weight, projection, *saved = ctx.saved_tensors
        hiddens, cells, activations, gated = saved
        _, num_steps, batch_size, dim = inputs.shape
        cell_size = projection.shape[2]
        grad_outputs = grad_outputs.contiguous()
        grad_gates = torch.empty_like(activations)
        grad_projected = inputs.new_empty(inputs.shape)
        grad_hidden = inputs.new_zeros(2, batch_size, dim)
        grad_gated = inputs.new_empty(2, batch_size, cell_size)
        grad_cell = cells.new_zeros(2, batch_size, cell_size)
        grid, block = _grid(batch_size, cell_size)
        size = batch_size * dim
        for step in reversed(range(num_steps)):
            kernel("output_backward")[2, -(-size // 1024)](
                grad_outputs[:, step], grad_hidden, hiddens[:, step + 1], grad_projected[:, step],
                grad_outputs.stride(0), hiddens.stride(0), grad_projected.stride(0), ctx.clips[1],
                size, BLOCK=1024,
            )  # fmt: skip
            torch.bmm(grad_projected[:, step], projection, out=grad_gated)
            kernel("lstm_backward")[grid](
                grad_gated, activations[:, step], cells[:, step + 1], cells[:, step], grad_cell,
                grad_gates[:, step], activations.stride(0), cells.stride(0), grad_gates.stride(0),
                ctx.clips[0], batch_size, CELL_SIZE=cell_size, BLOCK=block,
            )  # fmt: skip
            torch.bmm(grad_gates[:, step], state_weight, out=grad_hidden)
        gates = grad_gates.flatten(1, 2)
        return (
            torch.bmm(gates, input_weight).view_as(inputs),
            torch.bmm(gates.transpose(1, 2), inputs.flatten(1, 2)),
            torch.bmm(gates.transpose(1, 2), hiddens[:, :-1].flatten(1, 2)),
            gates.sum(dim=1, dtype=torch.float32),
            torch.bmm(grad_projected.flatten(1, 2).transpose(1, 2), gated.flatten(1, 2)),
            None,
            None,
            None,
        )


def _grid(batch_size: int, cell_size: int) -> tuple[tuple[int, int], int]:
    """Return the launch grid of an LSTM kernel, and its block size."""
    block = min(1024, _power_of_two(cell_size))
    return (2 * batch_size, -(-cell_size // block)), block


class _CharacterEmbedding(torch.autograd.Function):
    """Lookup of character embeddings. Its gradient is a matrix product, not atomic additions."""

    @staticmethod
    def forward(
        ctx: Any, characters: torch.Tensor, weight: torch.Tensor, dtype: torch.dtype
    ) -> torch.Tensor:
        ctx.save_for_backward(characters)
        ctx.num_embeddings = len(weight)
        return weight.to(dtype)[characters]

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
        characters = ctx.saved_tensors[0].flatten()
        ids = torch.arange(ctx.num_embeddings, device=characters.device)
        one_hot = (characters[:, None] == ids).to(gradient.dtype)
        return None, (one_hot.t() @ gradient.flatten(0, -2)).float(), None


class _SampledSoftmax(torch.autograd.Function):
    """
    Sampled softmax: mean cross-entropy over each row's target and the candidates, which all rows
    share.

    See `GpuLanguageModel.loss`. The gradients are computed in `forward`.
    """

    @staticmethod
    def forward(
        ctx: Any,
        outputs: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor,
        targets: torch.Tensor,
        candidates: torch.Tensor,
        log_counts: torch.Tensor,
    ) -> torch.Tensor:
        num_rows, num_candidates = len(outputs), len(candidates)
        candidate_weight, target_weight = weight[candidates].to(outputs.dtype), weight[targets]
        logits = outputs @ candidate_weight.t()
        true_logits = (outputs.float() * target_weight).sum(dim=1) + bias[targets]
        losses, grad_true = torch.empty_like(true_logits), torch.empty_like(true_logits)
        kernel("sampled_softmax")[(num_rows,)](
            logits, bias[candidates] - log_counts, candidates, true_logits, targets, losses,
            grad_true, 1.0 / num_rows, NUM_CANDIDATES=num_candidates,
            BLOCK=_power_of_two(num_candidates), num_warps=8,
        )  # fmt: skip
        grad_logits, grad_true = logits, grad_true[:, None]  # the kernel overwrote `logits`
        grad_outputs = (grad_logits @ candidate_weight).float() + grad_true * target_weight
        grad_weight, grad_bias = torch.zeros_like(weight), torch.zeros_like(bias)
        grad_weight.index_add_(0, candidates, (grad_logits.t() @ outputs).float())
        grad_weight.index_add_(0, targets, grad_true * outputs.float())
        grad_bias.index_add_(0, candidates, grad_logits.sum(dim=0, dtype=torch.float32))
        grad_bias.index_add_(0, targets, grad_true[:, 0])
        ctx.save_for_backward(grad_outputs.to(outputs.dtype), grad_weight, grad_bias)
        return losses.mean()

    @staticmethod
    def backward(ctx: Any, _: torch.Tensor) -> tuple[Any, ...]:
        # `backward` was called on this loss, so its gradient is 1.
        return *ctx.saved_tensors, None, None, None


class _LstmLayer(torch.nn.Module):
    """LSTM layer whose weights are those of a forward and a backward layer, stacked."""

    def __init__(self, cells: Sequence[LstmCellWithProjection]) -> None:
        super().__init__()
        weights = [[weight.detach() for weight in _weights(cell)] for cell in cells]
        stacked = [Parameter(torch.stack(pair)) for pair in zip(*weights)]
        self.input_weight, self.state_weight, self.bias, self.projection = stacked
        self.clips = library.limit(cells[0].cell_clip), library.limit(cells[0].projection_clip)

    def forward(self, inputs: torch.Tensor, state: LayerState) -> tuple[torch.Tensor, LayerState]:
        dtype = inputs.dtype
        outputs, *final = _LstmSteps.apply(
            inputs, self.input_weight.to(dtype), self.state_weight.to(dtype), self.bias,
            self.projection.to(dtype), *state, self.clips,
        )  # fmt: skip
        return outputs, (final[0], final[1])


def _weights(cell: LstmCellWithProjection) -> list[torch.Tensor]:
    """Return the parameters of one direction, in the same order as those of `_LstmLayer`."""
    state = cell.state_linearity
    return [cell.input_linearity.weight, state.weight, state.bias, cell.state_projection.weight]


class GpuLanguageModel(torch.nn.Module):
    """
    Language model that computes the same as `LanguageModel`, in fewer and larger operations.

    Parameters, cell states and losses are in float32; matrix products and other activations are in
    `dtype`.

    # Parameters

    options : `ElmoOptions`
        Hyperparameters of the biLM.
    num_words : `int`
        Size of the softmax's vocabulary.
    dtype : `torch.dtype`, optional (default = `torch.bfloat16`)
        Dtype of the matrix products.

    # Raises

    `ValueError`
        If the options are those of an ELMoForManyLangs model.
    """

    # A tensor, so that it can be changed between two replays of a CUDA graph.
    dropout_probability: torch.Tensor

    def __init__(
        self, options: ElmoOptions, num_words: int, dtype: torch.dtype = torch.bfloat16
    ) -> None:
        super().__init__()
        if isinstance(options, ManyLangsOptions):
            raise ValueError("the options are those of ELMoForManyLangs, expected bilm-tf's")
        self.options, self.dtype = options, dtype
        bilm = BiLm(options)  # its initial weights are bilm-tf's
        self.char_cnn = bilm.char_cnn
        self.lstm_layers = torch.nn.ModuleList(map(_LstmLayer, _cells_by_layer(bilm)))
        self.softmax = WordSoftmax(num_words, options.projection_dim)
        self.register_buffer("dropout_probability", torch.zeros(()))

    def token_vectors(self, characters: torch.Tensor) -> torch.Tensor:
        """Return the token layer's vectors for character ids of shape `(num_rows, num_ids)`."""
        cnn, dtype = self.char_cnn, self.dtype
        widest = cnn.widest_filter
        num_windows = characters.shape[1] - widest + 1
        embedded = _CharacterEmbedding.apply(characters, cnn.char_embedding, dtype)
        windows = torch.cat([embedded[:, k : k + num_windows] for k in range(widest)], dim=2)
        # Compute all convolutions with one GEMM: zero-pad each filter to the widest and stack them.
        filters = [
            functional.pad(one.weight, (0, widest - one.kernel_size[0])).transpose(1, 2).flatten(1)
            for one in cnn.convolutions
        ]
        products = windows.flatten(0, 1) @ torch.cat(filters).t().to(dtype)
        largest = products.view(len(characters), num_windows, -1).max(dim=1)[0].float()
        bias = torch.cat([one.bias for one in cnn.convolutions])
        vectors = getattr(torch, self.options.activation)(largest + bias).to(dtype)
        for highway in cnn.highway_layers:
            vectors = reference.highway(vectors, highway.weight.to(dtype), highway.bias.to(dtype))
        if (last := cnn.projection) is not None:
            vectors = functional.linear(vectors, last.weight.to(dtype), last.bias.to(dtype))
        return vectors

    def dropout(self, values: torch.Tensor) -> torch.Tensor:
        """Apply dropout in training."""
        if not self.training:
            return values
        keep = torch.rand(values.shape, device=values.device) >= self.dropout_probability
        return values * (keep / (1 - self.dropout_probability)).to(values.dtype)

    def outputs(
        self, inputs: torch.Tensor, states: Sequence[LayerState]
    ) -> tuple[torch.Tensor, list[LayerState]]:
        """
        Return the top layer's outputs and the final states of all layers.

        `inputs` are token vectors, shape `(2, num_steps, batch_size, projection_dim)`, forward and
        then backward, each in the order in which its direction reads. Outputs have the same shape.
        `states` has the state of each layer, lowest first, see `initial_states`.
        """
        finals: list[LayerState] = []
        for index, (layer, state) in enumerate(zip(self.lstm_layers, states)):
            inputs = self.dropout(inputs)
            outputs, final = layer(inputs, state)
            finals.append(final)
            skip = index > 0 and self.options.use_skip_connections
            inputs = outputs + inputs if skip else outputs
        return self.dropout(inputs), finals

    def loss(
        self,
        outputs: torch.Tensor,
        targets: torch.Tensor,
        candidates: torch.Tensor,
        log_counts: torch.Tensor,
    ) -> torch.Tensor:
        """
        Return the mean cross-entropy over all tokens of both directions. Its gradients are computed
        with it: call `backward` on the result itself, since a factor would be ignored.

        The softmax of each token is over its target and the candidates. A candidate that equals the
        target is skipped, so that the target counts once.

        # Parameters

        outputs : `torch.Tensor`
            From `outputs`.
        targets : `torch.Tensor`
            Word ids, shape `(2, num_steps, batch_size)`.
        candidates, log_counts : `torch.Tensor`
            From `CandidateSampler.sample`, shape `(num_candidates,)`. The log of a candidate's
            expected count is subtracted from its logit.
        """
        return _SampledSoftmax.apply(
            outputs.flatten(0, 2), self.softmax.weight, self.softmax.bias.squeeze(1),
            targets.flatten().long(), candidates, log_counts,
        )  # fmt: skip

    def initial_states(self, batch_size: int) -> list[LayerState]:
        """Return states of zeros for all layers."""
        weight = self.softmax.weight
        hidden, cell = (2, batch_size, weight.shape[1]), (2, batch_size, self.options.cell_size)
        return [
            (weight.new_zeros(hidden, dtype=self.dtype), weight.new_zeros(cell))
            for _ in self.lstm_layers
        ]

    def to_bilm(self) -> BiLm:
        """Return a `BiLm` on the CPU, with a copy of the weights."""
        bilm = BiLm(self.options)
        bilm.char_cnn.load_state_dict(self.char_cnn.state_dict())
        with torch.no_grad():
            for layer, cells in zip(self.lstm_layers, _cells_by_layer(bilm)):
                for direction, cell in enumerate(cells):
                    for weight, stacked in zip(_weights(cell), layer.parameters()):
                        weight.copy_(stacked[direction])
        return bilm


def _cells_by_layer(bilm: BiLm) -> list[tuple[LstmCellWithProjection, ...]]:
    """Return the forward and the backward LSTM of each layer, lowest first."""
    return list(zip(*map(bilm.lstm.layers, DIRECTIONS)))
