"""Hyperparameters of a biLM."""

from dataclasses import dataclass

# Names of functions in `torch`.
ACTIVATIONS = ("relu", "tanh")


@dataclass(frozen=True)
class ElmoOptions:
    """
    Hyperparameters of a biLM.

    # Parameters

    projection_dim : `int`
        Width of a token vector, and of one direction's output.
    cell_size : `int`
        Width of one direction's cell state.
    num_layers : `int`
        Number of LSTM layers in each direction.
    char_embedding_dim : `int`
        Width of a character's embedding.
    filters : `tuple[tuple[int, int], ...]`
        `(width in characters, number of filters)` pairs of the char-CNN.
    num_highways : `int`
        Number of highway layers between the char-CNN's filters and its projection.
    num_characters : `int`, optional (default = `50`)
        Number of character ids per token, begin-of-word and end-of-word marks included.
    activation : `str`, optional (default = `"relu"`)
        The char-CNN's activation, `"relu"` or `"tanh"`.
    use_skip_connections : `bool`, optional (default = `True`)
        Whether layers above the first add their input to their output.
    cell_clip, projection_clip : `float | None`, optional (default = `3.0`)
        Largest absolute value of a cell state's and of an output's elements; `None` for no limit.
    """

    projection_dim: int
    cell_size: int
    num_layers: int
    char_embedding_dim: int
    filters: tuple[tuple[int, int], ...]
    num_highways: int
    num_characters: int = 50
    activation: str = "relu"
    use_skip_connections: bool = True
    cell_clip: float | None = 3.0
    projection_clip: float | None = 3.0

    @property
    def embedding_dim(self) -> int:
        """Width of a layer: both directions, concatenated."""
        return 2 * self.projection_dim

    @property
    def num_filters(self) -> int:
        """Total number of filters of all widths."""
        return sum(number for _, number in self.filters)
