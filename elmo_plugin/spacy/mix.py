"""Scalar mix of a biLM's layers (Peters et al. 2018, equation 1), as a Thinc model for spaCy."""

from collections.abc import Callable

from spacy import registry
from spacy.tokens import Doc
from thinc.api import Model
from thinc.types import Floats2d, Floats3d

# Key in `Doc.user_data` of sample Docs, which initialize a model and need no layers.
SAMPLE = "elmo_plugin_sample"


@registry.architectures("elmo_plugin.ElmoMix.v1")
def elmo_mix(width: int, num_layers: int = 3) -> Model[list[Doc], list[Floats2d]]:
    """
    Return a Thinc model that computes `gamma * sum_j softmax(s)_j * h_j` for each token, where the
    `h_j` are the layers in `doc._.elmo`. `width` is the biLM's `embedding_dim`: 512 for the
    embedded biLM, 1024 for the released `original`. `num_layers` is the biLM's `mixture_size`.

    A spaCy component uses the model as its `tok2vec` and trains `s` and `gamma`. The component
    `elmo` must come earlier in the pipeline, and the training config must list it in
    `annotating_components`. The training config's `dropout` is applied to the output.
    """
    return Model(
        "elmo_mix",
        forward,
        init=init,
        dims={"nO": width, "nL": num_layers},
        params={"s": None, "gamma": None},
        attrs={"dropout_rate": 0.0},
    )


def init(model: Model, X: list[Doc] | None = None, Y: list[Floats2d] | None = None) -> None:
    """Set `s` to 0 and `gamma` to 1, which averages the layers. Mark the Docs `X` as samples."""
    if not model.has_param("s"):
        model.set_param("s", model.ops.alloc1f(model.get_dim("nL")))
        model.set_param("gamma", model.ops.alloc1f(1) + 1.0)
    for doc in X or []:
        doc.user_data[SAMPLE] = True


def forward(
    model: Model, docs: list[Doc], is_train: bool
) -> tuple[list[Floats2d], Callable[[list[Floats2d]], list[Doc]]]:
    """
    Return the mix of each Doc, shape `(num_tokens, width)`, and a backward function. That function
    takes the gradients of the mixes, adds to the gradients of `s` and `gamma`, and returns `[]`.
    """
    xp, s, gamma = model.ops.xp, model.get_param("s"), model.get_param("gamma")
    weights = model.ops.softmax(s)
    layers = [model.ops.asarray(_layers(model, doc)) for doc in docs]
    means = [xp.tensordot(weights, one, axes=1) for one in layers]
    drop = model.attrs["dropout_rate"] if is_train else 0.0
    masks = [model.ops.get_dropout_mask(mean.shape, drop) for mean in means]
    outputs = [gamma * mean * mask for mean, mask in zip(means, masks)]

    def backprop(gradients: list[Floats2d]) -> list[Doc]:
        # Gradient of each layer's weight, without the factor gamma.
        by_layer = sum(
            xp.tensordot(one, gradient * mask, axes=[[1, 2], [0, 1]])
            for one, gradient, mask in zip(layers, gradients, masks)
        )
        mean = (weights * by_layer).sum()
        model.inc_grad("gamma", xp.asarray([mean], dtype="f"))
        model.inc_grad("s", (gamma * weights * (by_layer - mean)).astype("f"))
        return []

    return outputs, backprop


def _layers(model: Model, doc: Doc) -> Floats3d:
    expected = (model.get_dim("nL"), len(doc), model.get_dim("nO"))
    if doc._.elmo is None:
        if SAMPLE in doc.user_data:
            return model.ops.alloc3f(*expected)
        raise ValueError(
            "a Doc has no layers in doc._.elmo, expected the component 'elmo' before the one with "
            "elmo_plugin.ElmoMix.v1, and in training.annotating_components"
        )
    if doc._.elmo.shape != expected:
        num_layers, _, width = doc._.elmo.shape
        raise ValueError(
            f"doc._.elmo has {num_layers} layers of width {width} for {doc._.elmo.shape[1]} "
            f"tokens, expected {expected[0]} of width {expected[2]} for {expected[1]}: "
            "elmo_plugin.ElmoMix.v1's num_layers and width are those of the biLM"
        )
    return doc._.elmo
