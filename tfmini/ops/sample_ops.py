"""Ops without kernels that TensorFlow declares for tests of code that builds graphs.

Programs that test changes of graphs (``Graph.create_op("FloatOutput", …)``) use them. Running one fails because
it has no kernel, as in TensorFlow.
"""

from __future__ import annotations

from tfmini.graph.families import op, unknown_shapes

_DECLARATIONS = """
    A() -> out: float32
    B() -> out: float32
    Binary(a: T, b: T) -> out: T; T: type
    CopyOp(a: T) -> b: T; T: type
    FiveFloatOutputs() -> a: float32, b: float32, c: float32, d: float32, e: float32
    FloatInput(a: float32)
    FloatOutput() -> a: float32
    FloatOutputStringOutput() -> a: float32, b: string
    Foo1(a: float32, b: int32, c: int32) -> d: float32, e: int32
    Foo2(a: float32, b: string, c: string) -> d: float32, e: int32
    Foo3(a: float32, b: string, c: float32) -> d: float32, e: int32
    Int64Output() -> out: int64
    IntAttr() -> out: int64; foo: int = 1
    IntInput(a: int32)
    IntInputFloatInput(a: int32, b: float32)
    IntInputIntOutput(a: int32) -> b: int32
    IntOutput() -> a: int32
    IntOutputFloatOutput() -> a: int32, b: float32
    ListInput(a: N * T); N: int >= 1; T: type
    ListOutput() -> a: T; T: list(type) >= 1
    NIntsIn(a: N * int32); N: int >= 2
    NIntsOut() -> a: N * int32; N: int >= 2
    NPolymorphicIn(a: N * T); T: type; N: int >= 2
    NPolymorphicOut() -> a: N * T; T: type; N: int >= 2
    None()
    Old()
    OpWithDefaultAttr() -> a: int32; default_float: float = 123.0
    Polymorphic(a: T) -> out: T; T: type
    PolymorphicOut() -> out: T; T: type
    RefIn(a: Ref(T)); T: type
    RefInputFloatInput(a: Ref(float32), b: float32)
    RefInputFloatInputIntOutput(a: Ref(float32), b: float32) -> c: int32
    RefInputIntInput(a: Ref(int32), b: int32)
    RefOut() -> a: Ref(T); T: type
    RefOutput() -> a: Ref(int32)
    RefOutputFloatOutput() -> a: Ref(float32), b: float32
    Simple(a: int32) -> out: float32
    TwoFloatInputs(a: float32, b: float32)
    TwoFloatInputsFloatOutput(a: float32, b: float32) -> c: float32
    TwoFloatInputsIntOutput(a: float32, b: float32) -> c: int32
    TwoFloatOutputs() -> a: float32, b: float32
    TwoIntInputs(a: int32, b: int32)
    TwoIntOutputs() -> a: int32, b: int32
    TwoRefsIn(a: Ref(T), b: Ref(T)); T: type
    TypeList(a: T); T: list(type) >= 0
"""


sample_ops = {}
for _line in _DECLARATIONS.strip().splitlines():
    _handle = op(_line.strip())
    _handle.shape(unknown_shapes)
    sample_ops[_handle.name] = _handle
