"""The sizes of a biLM."""

from dataclasses import dataclass

ACTIVATIONS = ("relu", "tanh")


@dataclass(frozen=True)
class ElmoOptions:
    """
    Sizes of a biLM.

    # Parameters

    projection_dim : `int`
        Width of one direction's output and of the token layer.
    cell_size : `int`
        Width of one direction's memory cell.
    num_layers : `int`
        LSTM layers in each direction.
    char_embedding_dim : `int`
        Width of a character's embedding.
    filters : `tuple[tuple[int, int], ...]`
        `(width in characters, number of filters)` pairs of the char-CNN.
    num_highways : `int`
        Highway layers between the char-CNN and its projection; 0 for none.
    num_characters : `int`, optional (default = `50`)
        Character ids per token, the marks at both ends of the word included.
    activation : `str`, optional (default = `"relu"`)
        The char-CNN's activation, `"relu"` or `"tanh"`.
    use_skip_connections : `bool`, optional (default = `True`)
        Whether layers above the first add their input to their output.
    cell_clip, projection_clip : `float | None`, optional (default = `3.0`)
        Largest absolute value of a memory cell and of an output; `None` for no limit.
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
        """Width of a layer, both directions side by side."""
        return 2 * self.projection_dim

    @property
    def num_filters(self) -> int:
        """Number of filters of all widths together."""
        return sum(number for _, number in self.filters)
