"""AdamW in one pass over each parameter."""

from typing import Any

from allennlp.training.optimizers import AdamWOptimizer, Optimizer


@Optimizer.register("fused_adamw", exist_ok=True)
class FusedAdamW(AdamWOptimizer):
    """
    AllenNLP's `adamw` with PyTorch's fused step: the same update several times faster, which counts
    for a large softmax. Its parameters are those of `adamw`.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        # AllenNLP's constructor has no argument for it.
        for group in self.param_groups:
            group["fused"] = True
