"""Training updates that a CUDA graph can replay, and held-out perplexity."""

import math

import torch
from torch.nn import functional

from experiments.gpu_pretraining.model import GpuLanguageModel
from experiments.gpu_pretraining.streams import Streams

# The NUM_FREQUENT most frequent words are always candidates of the sampled softmax. NUM_DRAWS
# others are drawn in addition, with probability proportional to count ** EXPONENT.
NUM_FREQUENT, NUM_DRAWS, EXPONENT = 4096, 4096, 0.8
# Probability that a stream's LSTM state is reset to zeros before a batch. Without resets, training
# would never see the states that follow from zeros, with which other text begins.
RESET_PROBABILITY = 0.02
MAX_GRADIENT_NORM = 1.0
WEIGHT_DECAY = 0.01


class CandidateSampler:
    """
    Sampler of the softmax's candidates: the `NUM_FREQUENT` most frequent words, and `NUM_DRAWS`
    random draws of the others, with probability proportional to count ** `EXPONENT`.

    Draws are with replacement, and repeated words stay. The expected count is how often a word is
    drawn on average, and 1 for a frequent word. The sum of `exp(logit - log(expected count))` over
    the candidates is an unbiased estimate of the full softmax's normalizer. If the vocabulary is
    small, all words are candidates and none is drawn.

    # Parameters

    counts : `torch.Tensor`
        Frequency of each word of the softmax, the most frequent first, shape `(num_words,)`.
    """

    def __init__(self, counts: torch.Tensor) -> None:
        self._frequent = torch.arange(min(NUM_FREQUENT, len(counts)), device=counts.device)
        weights = counts[NUM_FREQUENT:].double().clamp(min=1) ** EXPONENT
        self._num_draws = NUM_DRAWS if len(weights) else 0
        self._cumulative = (weights.cumsum(0) / weights.sum()).float()
        self._log_probabilities = (weights / weights.sum()).log().float()

    def sample(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the candidates' word ids and the logs of their expected counts."""
        log_counts = torch.zeros(len(self._frequent), device=self._frequent.device)
        if not self._num_draws:
            return self._frequent, log_counts
        uniform = torch.rand(self._num_draws, device=log_counts.device)
        # Rounding can leave the last cumulative probability below 1.
        drawn = torch.searchsorted(self._cumulative, uniform).clamp(max=len(self._cumulative) - 1)
        log_drawn = self._log_probabilities[drawn] + math.log(self._num_draws)
        candidates = torch.cat([self._frequent, drawn + len(self._frequent)])
        return candidates, torch.cat([log_counts, log_drawn])


class Trainer:
    """
    Trainer of a language model. An update reads and writes only tensors that are made once, so that
    a CUDA graph can replay it.

    # Parameters

    model : `GpuLanguageModel`
    characters : `torch.Tensor`
        Character ids of all types (distinct tokens), see `character_table`.
    streams : `Streams`
        Training text.
    counts : `torch.Tensor`
        Frequency of each word of the softmax, the most frequent first, shape `(num_words,)`.

    # Attributes

    learning_rate : `torch.Tensor`
        Learning rate of the next update, a scalar. Set it with `fill_`, never by assignment; so too
        the model's `dropout_probability`.
    loss, gradient_norm, num_types : `torch.Tensor`
        Loss, norm of the gradient before clipping, and number of types of the last batch; scalars.
    num_slots : `int`
        Number of types whose vectors are computed for each batch. If a batch has more types, its
        rarest ones all get the vector of one of them.
    """

    def __init__(
        self,
        model: GpuLanguageModel,
        characters: torch.Tensor,
        streams: Streams,
        counts: torch.Tensor,
    ) -> None:
        self.model, self.streams = model, streams
        self._characters, self._sampler = characters, CandidateSampler(counts)
        device = characters.device
        # A large batch has far fewer types than tokens.
        num_tokens = 2 * streams.num_steps * streams.batch_size
        self.num_slots = min(num_tokens, max(8192, num_tokens * 2 // 5))
        shape = 2, streams.num_steps, streams.batch_size
        self._inputs = torch.zeros(shape, dtype=torch.int32, device=device)
        self._targets = torch.zeros_like(self._inputs)
        self._states = model.initial_states(streams.batch_size)
        self.loss, self.gradient_norm = torch.zeros(2, device=device)
        self.num_types = torch.zeros((), dtype=torch.int64, device=device)
        self.learning_rate = torch.zeros((), device=device)
        biases = [one for name, one in model.named_parameters() if name.endswith("bias")]
        weights = [one for name, one in model.named_parameters() if not name.endswith("bias")]
        self._optimizer = torch.optim.AdamW(
            [{"params": weights, "weight_decay": WEIGHT_DECAY}, {"params": biases}],
            lr=self.learning_rate,
            weight_decay=0.0,
            fused=characters.is_cuda,
            capturable=characters.is_cuda,
        )
        self._graph: torch.cuda.CUDAGraph | None = None

    def capture(self) -> None:
        """
        Capture the update as a CUDA graph, which `step` replays from then on.

        Call it while the learning rate is zero: it first runs three updates, which then leave the
        weights unchanged.
        """
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                self.step()
        torch.cuda.current_stream().wait_stream(stream)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._update()
        self._graph = graph

    def step(self) -> None:
        """Train on the next batch."""
        inputs, targets = self.streams.next_batch()
        self._inputs.copy_(inputs)
        self._targets.copy_(targets)
        if self._graph is None:
            self._update()
        else:
            self._graph.replay()

    def _update(self) -> None:
        model, device = self.model, self._inputs.device
        keep = torch.rand(2, self.streams.batch_size, 1, device=device) >= RESET_PROBABILITY
        states = [(hidden * keep, cell * keep) for hidden, cell in self._states]
        outputs, finals = model.outputs(self._token_vectors(), states)
        loss = model.loss(outputs, self._targets, *self._sampler.sample())
        self._optimizer.zero_grad()
        loss.backward()
        self.loss.copy_(loss.detach())
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_GRADIENT_NORM)
        self.gradient_norm.copy_(norm)
        self._optimizer.step()
        with torch.no_grad():
            for state, final in zip(self._states, finals):
                for place, value in zip(state, final):
                    place.copy_(value)

    def _token_vectors(self) -> torch.Tensor:
        """
        Return the batch's token vectors. The vector of each type is computed once
        and copied to all its tokens.
        """
        sorted_ids, order = torch.sort(self._inputs.flatten())
        changes = (sorted_ids[1:] != sorted_ids[:-1]).cumsum(0)
        slots = torch.cat([changes.new_zeros(1), changes])
        self.num_types.copy_(slots[-1] + 1)
        slots = slots.clamp(max=self.num_slots - 1)
        slot_of_token = torch.empty_like(slots).scatter_(0, order, slots)
        types = slots.new_zeros(self.num_slots).scatter_(0, slots, sorted_ids.long())
        vectors = self.model.token_vectors(self._characters[types].long())
        # In float32, so that the gradient is summed over a type's tokens in float32.
        tokens = vectors.float().index_select(0, slot_of_token).to(vectors.dtype)
        return tokens.view(*self._inputs.shape, -1)


@torch.no_grad()
def perplexities(
    model: GpuLanguageModel,
    characters: torch.Tensor,
    streams: Streams,
    max_batches: int | None = None,
) -> list[float]:
    """
    Return the forward and the backward perplexity of a text, with the full softmax.

    The LSTM states start with zeros. `max_batches` limits the text to its first batches.
    """
    num_batches = min(streams.num_batches, max_batches or streams.num_batches)
    states = model.initial_states(streams.batch_size)
    weight, bias = model.softmax.weight.to(model.dtype), model.softmax.bias.squeeze(1)
    sums = torch.zeros(2, device=characters.device)
    model.eval()
    for index in range(num_batches):
        inputs, targets = streams.batch(index)
        tokens = model.token_vectors(characters[inputs.flatten()].long())
        outputs, states = model.outputs(tokens.view(*inputs.shape, -1), states)
        for direction in range(2):
            logits = (outputs[direction].flatten(0, 1) @ weight.t()).float() + bias
            expected = targets[direction].flatten().long()
            sums[direction] += functional.cross_entropy(logits, expected, reduction="sum")
    model.train()
    num_tokens = num_batches * streams.num_steps * streams.batch_size
    return [round(math.exp(one / num_tokens), 2) for one in sums.tolist()]
