"""Base class of dense layers and convolutions: a kernel, a bias and an activation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tfmini.graph.scoping import name_scope
from tfmini.layers.base import Layer
from tfmini.ops.array.casting import cast
from tfmini.ops.array.shape import shape
from tfmini.ops.nn.bias import bias_add


class KernelLayer(Layer):
    """Base class of layers ``activation(kernel * inputs + bias)``; subclasses define the product ``*``.

    Args:
      activation: a function of a tensor, or None.
      use_bias: whether to add a bias.
      kernel_initializer: default: the variable scope's, else Glorot uniform.
      bias_initializer: default: zeros.
      kernel_regularizer, bias_regularizer, activity_regularizer: functions from a tensor to a loss.
      kernel_constraint, bias_constraint: functions that an optimizer applies after each update.
      trainable, name: see `Layer`.
    """

    def __init__(
        self,
        activation: Any,
        use_bias: bool,
        kernel_initializer: Any,
        bias_initializer: Any,
        kernel_regularizer: Any,
        bias_regularizer: Any,
        activity_regularizer: Any,
        kernel_constraint: Any,
        bias_constraint: Any,
        trainable: bool,
        name: str | None,
        **kwargs: Any,
    ) -> None:
        super().__init__(trainable, name, **kwargs)
        self.activation, self.use_bias = activation, use_bias
        self.kernel_initializer, self.bias_initializer = kernel_initializer, bias_initializer
        self.kernel_regularizer, self.bias_regularizer = kernel_regularizer, bias_regularizer
        self.activity_regularizer = activity_regularizer
        self.kernel_constraint, self.bias_constraint = kernel_constraint, bias_constraint

    def _build_kernel(self, shape: Sequence[int]) -> None:
        self.kernel = self.add_weight(
            "kernel",
            shape,
            initializer=self.kernel_initializer,
            regularizer=self.kernel_regularizer,
            constraint=self.kernel_constraint,
        )

    def _build_bias(self, length: int) -> None:
        self.bias = None
        if self.use_bias:
            self.bias = self.add_weight(
                "bias",
                [length],
                initializer=self.bias_initializer,
                regularizer=self.bias_regularizer,
                constraint=self.bias_constraint,
            )

    def _finished(self, outputs: Any, data_format: str | None = None) -> Any:
        """Applies bias and activation, and adds the loss of the activity regularizer."""
        if self.bias is not None:
            outputs = bias_add(outputs, self.bias, data_format, name="BiasAdd")
        if self.activation is not None:
            outputs = self.activation(outputs)
        if self.activity_regularizer is not None:
            self._regularize_activity(outputs)
        return outputs

    def _regularize_activity(self, outputs: Any) -> None:
        """Adds the loss of the outputs, divided by the batch size, as a loss of the inputs of this call."""
        with name_scope("ActivityRegularizer"):
            loss = self.activity_regularizer(outputs)
            if loss is not None:
                self.add_loss(loss / cast(shape(outputs)[0], loss.dtype), inputs=self._called_with)
