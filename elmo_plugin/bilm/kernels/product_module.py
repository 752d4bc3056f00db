"""Modules that keep products with their frozen weights prepared."""

import weakref
from typing import Any, Callable, NamedTuple, Optional, Sequence

import torch

from elmo_plugin.bilm.kernels.prepacked_linear import Product, prepare


class _Prepared(NamedTuple):
    parameters: list[Any]
    state: tuple[Any, ...]
    product: Product

    def is_of(self, parameters: Sequence[torch.Tensor]) -> bool:
        return all(known() is one for known, one in zip(self.parameters, parameters))


class ProductModule(torch.nn.Module):
    """
    A module whose weights are prepared when first used without gradients, and again when they have
    changed. Prepared weights are never part of a `state_dict`, nor of a copy, deep or pickled.

    # Attributes

    dtype : `Optional[str]`
        See `prepared_linear.prepare`.
    training_dtype : `Optional[str]`
        The same while gradients are wanted; `"bfloat16"` alone, see `trained_linear`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.dtype: Optional[str] = None
        self.training_dtype: Optional[str] = None
        self._products: dict[int, _Prepared] = {}  # by the first parameter's id

    def product(
        self,
        *parameters: torch.Tensor,
        convert: Callable[..., torch.Tensor] = torch.Tensor.detach,
        for_many_rows: bool = False,
        precise: bool = False,
    ) -> Product:
        """
        # Parameters

        parameters : `torch.Tensor`
            What the weight is made of; no parameter is the first one of two weights.
        convert : `Callable[..., torch.Tensor]`
            From the parameters to the weight, shape `(output_dim, input_dim)`.
        for_many_rows : `bool`
            See `prepare`.
        precise : `bool`
            Whether 8-bit integers are too few here: bfloat16 in their place.

        # Returns

        `Product`
        """
        state = (self.dtype, *((one._version, one.data_ptr()) for one in parameters))
        known = self._products.get(id(parameters[0]))
        if known is None or known.state != state or not known.is_of(parameters):
            with torch.no_grad():
                weight = convert(*(one.detach() for one in parameters))
                dtype = "bfloat16" if precise and self.dtype == "int8" else self.dtype
                product = prepare(weight, dtype, for_many_rows)
            known = _Prepared([weakref.ref(one) for one in parameters], state, product)
            self._products[id(parameters[0])] = known
        return known.product

    def forget_derived(self) -> None:
        """Frees what was made of the parameters; it is made again when needed."""
        self._products.clear()

    def train(self, mode: bool = True) -> "ProductModule":
        """
        Also forgets the prepared weights: parameters changed by way of `.data`, as AllenNLP's
        moving average does it before and after an evaluation, show no sign of it.
        """
        self.forget_derived()
        return super().train(mode)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_products": {}}

    def _apply(self, fn: Any, recurse: bool = True) -> "ProductModule":
        """`.to()` puts new values into old parameters."""
        self.forget_derived()
        return super()._apply(fn, recurse)
