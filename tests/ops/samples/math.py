"""Samples of the ops in tfmini/ops/math."""

from tests.ops.samples.notation import each

_DIVISIONS = (
    "x=f32(2, 3), y=f32(3, low=0.5)",
    "x=f16(4), y=f16(4, low=0.5)",
    "x=[-7, 7, -7, 7], y=[2, 2, -2, -2]",
    "x=i8([-7, 7, -128]), y=i8([2, -2, 3])",
    "x=u8([7, 255]), y=u8([2, 254])",
)
_REMAINDERS = ("x=f32([-7.5, 7.5, 5.5, -0.5]), y=f32([2, -2, 3, 3])", "x=i64([-7, 7, -7, 7]), y=i64([2, 2, -2, -2])")
_REDUCED = (
    "input=f32(2, 3, 4), axis=[1]",
    "input=f32(2, 3), axis=[-1, 0], keep_dims=True",
    "input=i32(2, 3), axis=0",
    "input=f64(2, 2), axis=i64([1])",
    "input=f32(0, 3), axis=[1]",
    "input=f32(2, 3), axis=i32([])",
)

SAMPLES = (
    each("BitwiseAnd BitwiseOr BitwiseXor", "x=i32([-5, 3, 12]), y=i32([3, 6, 10])", "x=u8([200, 3]), y=uint8(240)")
    + each("LeftShift RightShift", "x=i32([-5, 3, 12]), y=i32([3, 1, 2])", "x=u8([200, 3]), y=u8([1, 2])",
           "x=i8([-128, 64]), y=i8([1, 1])")
    + each("Invert", "x=i32([-5, 3, 12])", "x=u16([200, 3])")
    + each("Sum Mean Max Min", *_REDUCED, "input=bf16(40, low=0), axis=[0]", "input=f16(40, low=0), axis=[0]")
    + each("Prod", *_REDUCED, "input=c64(2, 3), axis=[1]", "input=f32([[0, 2, 3], [0, 0, 5]]), axis=[1]")
    + each("EuclideanNorm", *_REDUCED[:2], "input=c64(2, 3), axis=[1]")
    + each("Sum Mean", "input=c64(2, 3), axis=[1]", "input=u8([[200, 100]]), axis=[1]")
    + each("Max Min", "input=f32([1, nan, 3]), axis=[0]", "input=f32([2, 2, 1, 1]), axis=[0]")
    + each("All Any", "input=b1(3, 4), axis=[1]", "input=b1(2, 0), axis=i64([1]), keep_dims=True")
    + each("ArgMax ArgMin", "input=f32(3, 4), dimension=1", "input=i32([[2, 1, 2, 1]]), dimension=int64(-1), "
           "output_type=int32", "input=f32([1, nan, 3]), dimension=0")
    + each("Cumsum Cumprod", "x=f32(2, 4), axis=1", "x=f32(2, 4), axis=int64(-1), exclusive=True, reverse=True",
           "x=i32(4), axis=0, reverse=True")
    + each("Cumsum", "x=c64(3), axis=0, exclusive=True")
    + each("Less LessEqual Greater GreaterEqual", "x=f32([1, 2, nan]), y=f32([2, 2, 2])", "x=u8([3, 200]), y=uint8(3)",
           "x=i64([[1], [5]]), y=i64([1, 3])", "x=bf16([1, 2]), y=bf16([2, 1])")
    + each("Equal NotEqual", "x=f32([1, 2, nan]), y=f32([2, 2, nan])", "x=['a', 'b'], y='a'", "x=b1(3), y=True",
           "x=c64([1, 1j]), y=c64([1, 1])", "x=[1, 2], y=[1, 2, 3], incompatible_shape_error=False")
    + each("LogicalAnd LogicalOr", "x=[True, True, False, False], y=[True, False, True, False]", "x=b1(2, 1), y=b1(3)")
    + each("Real Imag Angle", "input=c64(2, 3), Tout=float32", "input=c128(2), Tout=float64")
    + each("Add", "x=f32(2, 3), y=f32(3)", "x=['a', 'b'], y='c'", "x=u8([200]), y=u8([100])", "x=c64(2), y=c64(2, 1)",
           "x=bf16(3), y=bf16(3)", "x=f32(2, 0), y=f32(1)")
    + each("AddV2 Sub Mul SquaredDifference", "x=f32(2, 3), y=f32(3)", "x=i64(2), y=i64(2, 1)",
           "x=c64(2), y=c64(2, 1)", "x=f16(3), y=f16(3)")
    + each("Maximum Minimum", "x=f32(2, 3), y=f32(3)", "x=i64(2), y=i64(2, 1)", "x=bf16(3), y=bf16(3)",
           "x=f32([nan, 1]), y=f32([1, nan])")
    + each("Div RealDiv", "x=f32(2, 3), y=f32(3, low=0.5)", "x=c64(2), y=c64(2)", "x=bf16(3), y=bf16(3, low=0.5)")
    + each("Div FloorDiv TruncateDiv", *_DIVISIONS[2:])
    + each("FloorDiv", *_DIVISIONS[:2])
    + each("DivNoNan", "x=f64(2, 3), y=f64(3)", "x=c64(2), y=c64(2)")
    + each("MulNoNan", "x=f32([inf, nan, 2]), y=f32([0, 0, 3])", "x=f64(2, 3), y=f64(3)")
    + each("Mod FloorMod TruncateMod", *_REMAINDERS)
    + each("FloorMod", "x=f16([-7, 7]), y=f16([2, -2])")
    + each("Pow", "x=f32(2, 3, low=0.1), y=f32(3)", "x=[2, 3, -2], y=[10, 0, 3]", "x=c64(2), y=c64(2)",
           "x=f32([-2, -2, 0]), y=f32([2, 0.5, 0])", "x=f16([2, 3]), y=f16([0.5, 2])")
    + each("Xdivy Xlogy", "x=f64(2, 1), y=f64(3, low=0.1)")
    + each("Atan2", "y=f32(2, 3), x=f32(3)", "y=f16(2), x=f16(2)")
    + each("NextAfter", "x1=f32([1, 0, -1]), x2=f32([2, -1, -1])", "x1=f64([1, 1]), x2=f64([0, inf])")
    + each("SegmentSum SegmentMean SegmentMax SegmentMin", "data=f32(5, 2), segment_ids=[0, 0, 2, 2, 3]",
           "data=f64(4), segment_ids=i64([0, 1, 1, 1])")
    + each("SegmentSum SegmentMean SegmentProd SegmentMax SegmentMin", "data=i32(3, 2), segment_ids=[1, 1, 2]")
    + each("SegmentProd", "data=f32(5, 2), segment_ids=[0, 0, 2, 2, 3]")
    + each("UnsortedSegmentSum UnsortedSegmentProd UnsortedSegmentMax UnsortedSegmentMin",
           "data=f32(5, 2), segment_ids=[2, 0, 2, 4, 0], num_segments=5",
           "data=f32(2, 3), segment_ids=[[1, 0, 1], [0, -1, 1]], num_segments=2",
           "data=i64(3), segment_ids=i64([1, 1, 0]), num_segments=int64(3)")
    + each("SparseSegmentSum SparseSegmentMean SparseSegmentSqrtN",
           "data=f32(4, 2), indices=[3, 0, 3, 1], segment_ids=[0, 0, 1, 3]",
           "data=f64(4, 2), indices=i64([1, 2]), segment_ids=[0, 0]")
    + each("SparseSegmentSumWithNumSegments SparseSegmentMeanWithNumSegments SparseSegmentSqrtNWithNumSegments",
           "data=f32(4, 2), indices=[3, 0, 3, 1], segment_ids=[0, 0, 1, 3], num_segments=6",
           "data=f64(4, 2), indices=i64([1, 2]), segment_ids=[1, 1], num_segments=int64(3)")
    + each("SparseSegmentMeanGrad SparseSegmentSqrtNGrad",
           "grad=f32(3, 2), indices=[3, 0, 3, 1], segment_ids=[0, 0, 1, 2], output_dim0=4")
    + each("Igamma Igammac IgammaGradA", "a=f32([0.5, 3, 20, 2]), x=f32([0.2, 4, 15, 40])", "a=f64([2.5]), x=f64([2])")
    + each("RandomGammaGrad", "alpha=f32([0.5, 3, 20]), sample=f32([0.2, 4, 15])", "alpha=f64([2.5]), sample=f64([2])")
    + each("Betainc", "a=f32([0.5, 3, 20]), b=f32([2, 0.7, 15]), x=f32([0.2, 0.9, 0.6])",
           "a=f64(2.5), b=f64([1.5, 3]), x=f64([0.1, 0.9])")
    + each("BesselI0e BesselI1e", "x=f32([-3, 0.1, 40])", "x=f64([-9, 7.5])", "x=f16([1, 3])")
    + each("CumulativeLogsumexp", "x=f32(2, 4), axis=1", "x=f32([1, -2, 30, 5]), axis=0, exclusive=True, reverse=True",
           "x=f64(3), axis=int64(0)")
    + each("FFT IFFT", "input=c64(2, 5)", "input=c128(4)")
    + each("FFT2D IFFT2D", "input=c64(2, 3, 4)", "input=c128(2, 2)")
    + each("FFT3D IFFT3D", "input=c64(2, 3, 2)", "input=c128(1, 2, 2, 3)")
    + each("RFFT", "input=f32(2, 5), fft_length=[5]", "input=f64(4), fft_length=[4], Tcomplex=complex128")
    + each("RFFT2D", "input=f32(2, 3, 4), fft_length=[3, 4]", "input=f64(2, 6), fft_length=[2, 6], Tcomplex=complex128")
    + each("RFFT3D", "input=f32(2, 3, 4), fft_length=[2, 3, 4]")
    + each("IRFFT", "input=c64(2, 3), fft_length=[5]", "input=c64(2, 3), fft_length=[4]",
           "input=c128(4), fft_length=[4], Treal=float64")
    + each("IRFFT2D", "input=c64(3, 3), fft_length=[3, 4]", "input=c128(3, 3), fft_length=[2, 5], Treal=float64")
    + each("IRFFT3D", "input=c64(2, 3, 3), fft_length=[2, 3, 4]")
    # Unary ops: everywhere, above zero, between -1 and 1, and above 1.
    + each("Abs Sign Square Reciprocal Inv Tanh Sigmoid Exp Expm1 Sin Cos Tan Atan Sinh Cosh Asinh", "x=f32(2, 3)")
    + each("Sqrt Rsqrt Log Log1p Lgamma Digamma", "x=f32(2, 3, low=0.1)", "x=f16(3, low=0.5)")
    + each("Sqrt Rsqrt Log Log1p", "x=bf16(3, low=0.5)")
    + each("Asin Acos Atanh", "x=f32(2, 3, low=-0.9, high=0.9)", "x=f16(3, low=-0.9, high=0.9)")
    + each("Acosh", "x=f32(2, 3, low=1.1, high=9)")
    + each("Sqrt Rsqrt Log", "x=f32([0, -1, inf, nan])")
    + each("Abs Sign Square", "x=i32([-3, 2, 1])", "x=f64(3)")
    + each("Square Sqrt Rsqrt Reciprocal Sigmoid Tanh Exp Expm1 Log Log1p Sin Cos Tan Asin Acos Atan Sinh Cosh "
           "Asinh Acosh Atanh", "x=c64(3)")
    + each("Tanh Sigmoid Exp Expm1 Sin Cos Erf", "x=f16(3)", "x=bf16(3)", "x=f32([-80, 80, inf, nan])")
    + each("Floor Ceil Rint Round", "x=f32([-1.5, -0.5, 0.5, 1.5, 2.5, 2.2, -inf])", "x=f64(3)")
    + each("Floor Ceil Round", "x=f16([0.5, 1.7])")
    + each("Erf Erfc", "x=f32(2, 3)", "x=f64([-3, 0.1, 4])")
    + each("Lgamma Digamma", "x=f32([-0.5, -1.5, 30])", "x=f64([0.3, 12])")
    + each("IsNan IsInf IsFinite", "x=f32([nan, inf, -inf, 0])", "x=f16([nan, 1])", "x=bf16([inf])")
    + each("SqrtGrad RsqrtGrad ReciprocalGrad InvGrad SigmoidGrad TanhGrad", "y=f32(3, low=0.5), dy=f32(3)",
           "y=c64(2), dy=c64(2)", "y=f16(3, low=0.5), dy=f16(3)")
    + r"""
ApproximateEqual(x=f32([1, 2, 3]), y=f32([1.000001, 2.1, 3]))
ApproximateEqual(x=f64([1, 5]), y=f64([2, 9]), tolerance=3.0)
LogicalNot(x=b1(4))
Select(condition=b1(2, 3), x=f32(2, 3), y=f32(2, 3))
Select(condition=b1(3), x=f32(3, 2), y=f32(3, 2))
Select(condition=True, x=['a'], y=['b'])
SelectV2(condition=b1(3), t=f32(2, 3), e=f32(2, 1))
ComplexAbs(x=c64(2, 3), Tout=float32)
ComplexAbs(x=c128([3 + 4j, 0]), Tout=float64)
Complex(real=f32(3), imag=f32(2, 1), Tout=complex64)
Complex(real=f64(2), imag=f64(2), Tout=complex128)
Conj(input=c64(2, 3))
Neg(x=f32(2, 3))
Neg(x=i8([-128, 5]))
Neg(x=c64(2))
Einsum(inputs=[f32(2, 3), f32(3, 4)], equation='ij,jk->ik')
Einsum(inputs=[f32(2, 3, 4), f32(2, 4)], equation='bij,bj->bi')
Einsum(inputs=[f32(3, 3)], equation='ii->i')
Einsum(inputs=[f32(2, 4, 3), f32(2, 3)], equation='...ab,cb->a...c')
Einsum(inputs=[c64(2, 3), c64(3)], equation='ij,j->')
Einsum(inputs=[f64(2, 3)], equation='ij->j')
Einsum(inputs=[bf16(2, 3), bf16(3, 2)], equation='ij,jk->ik')
Log1p(x=c64([0.001, -0.0001 + 0.0001j]))
MatMul(a=f32(2, 3), b=f32(3, 4))
MatMul(a=f32(3, 2), b=f32(4, 3), transpose_a=True, transpose_b=True)
MatMul(a=c64(2, 3), b=c64(4, 3), transpose_b=True)
MatMul(a=i32(2, 3), b=i32(3, 2))
MatMul(a=bf16(2, 3), b=bf16(3, 2))
MatMul(a=f32(2, 0), b=f32(0, 3))
BatchMatMul(x=f32(2, 2, 3), y=f32(2, 3, 2))
BatchMatMul(x=c64(1, 3, 2), y=c64(1, 2, 3), adj_x=True, adj_y=True)
BatchMatMulV2(x=f32(2, 1, 2, 3), y=f32(3, 3, 2))
BatchMatMulV2(x=c64(2, 3, 2), y=c64(2, 3), adj_x=True, adj_y=True)
BatchMatMulV2(x=i32(2, 2), y=i32(3, 2, 1))
SparseMatMul(a=f32(2, 3), b=f32(3, 2), a_is_sparse=True)
SparseMatMul(a=bf16(3, 2), b=f32(2, 3), transpose_a=True, transpose_b=True, b_is_sparse=True)
Cross(a=f32(2, 3), b=f32(2, 3))
Cross(a=i32(3), b=i32(3))
Bincount(arr=[1, 1, 5, 2], size=4, weights=f32([1, 2, 4, 8]))
Bincount(arr=[1, 1, 0, 2], size=4, weights=i64([]))
LowerBound(sorted_inputs=f32([[1, 3, 3, 9]]), values=f32([[0, 3, 10]]))
LowerBound(sorted_inputs=[[1, 3], [2, 5]], values=[[3], [1]], out_type=int64)
UpperBound(sorted_inputs=f32([[1, 3, 3, 9]]), values=f32([[0, 3, 10]]))
UpperBound(sorted_inputs=[[1, 3], [2, 5]], values=[[3], [1]], out_type=int64)
UniqueV2(x=[[1, 1, 2], [2, 2, 1], [1, 1, 2]], axis=i64([0]))
UniqueV2(x=['b', 'a', 'b'], axis=i64([]), out_idx=int64)
UniqueV2(x=f32([[1, 2, 1], [3, 4, 3]]), axis=[1])
UniqueWithCountsV2(x=[[1, 1], [2, 2], [1, 1]], axis=i64([0]))
UniqueWithCountsV2(x=[4, 4, 1], axis=i64([]), out_idx=int64)
HistogramFixedWidth(values=f32([0, 1, 9, 4, -3]), value_range=f32([0, 8]), nbins=4)
HistogramFixedWidth(values=[1, 2, 5], value_range=[0, 5], nbins=5, dtype=int64)
Bucketize(input=f32([[-1, 2, 3], [3.5, 10, 11]]), boundaries=[0.0, 3.0, 10.0])
Bucketize(input=[5, -5], boundaries=[0.0])
AddN(inputs=[f32(2, 3), f32(2, 3), f32(2, 3)])
AddN(inputs=[i32(2)])
AddN(inputs=[c64(2), c64(2)])
AccumulateNV2(inputs=[f32(2, 3), f32(2, 3), f32(2, 3)], shape=[2, 3])
TopKV2(input=f32(2, 6), k=3)
TopKV2(input=[3, 1, 3, 2], k=2)
TopKV2(input=f16([1, 5, 2]), k=3, sorted=False)
InTopKV2(predictions=f32(3, 4), targets=[0, 3, 1], k=2)
InTopKV2(predictions=f32([[1, 1, 1], [inf, nan, 0]]), targets=i64([2, 0]), k=int64(1))
InTopK(predictions=f32(3, 4), targets=[0, 3, 1], k=2)
InTopK(predictions=f32(1, 3), targets=i64([5]), k=2)
NthElement(input=f32(2, 5), n=1)
NthElement(input=[[3, 1, 2]], n=0, reverse=True)
Zeta(x=f32([2, 3.5]), q=f32([1, 2.5]))
Zeta(x=f64([1.5]), q=f64([4]))
Polygamma(a=f32([1, 2]), x=f32([0.5, 3]))
Polygamma(a=f64([0, 3]), x=f64([2, 2.5]))
"""
)  # fmt: skip

NO_SLOPE = """
# At a jump.
DivNoNan(x=f32([1, 2, 0]), y=f32([0, 2, 0]))
gradients(DivNoNan, x=f32([1, 2, 0]), y=f32([0, 2, 0]))
gradients(MulNoNan, x=f32([1, 2, 0]), y=f32([0, 2, 0]))
gradients(Xdivy, x=f32([0, 1, 2]), y=f32([0, 0.5, 3]))
gradients(Xlogy, x=f32([0, 1, 2]), y=f32([0, 0.5, 3]))
Atan2(y=f64([0, -0.0, 1]), x=f64([-1, -1, 0]))
gradients(Atan2, y=f64([0, -0.0, 1]), x=f64([-1, -1, 0]))
gradients(Abs, x=f32([0, -1]))
gradients(Maximum, x=f32([1, 2]), y=f32([1, 3]))
gradients(Minimum, x=f32([1, 2]), y=f32([1, 3]))
gradients(Max, input=f32([1, 3, 3]), axis=[0])
gradients(Pow, x=f32([0, 0, -2]), y=f32([0, 2, 2]))
# Zeros are a case that its gradient divides by.
Cumprod(x=f32([2, 0, 3, 0, 4]), axis=0)
# No conjugates in the gradients.
gradients(MulNoNan, x=c64(2), y=c64([0, 2]))
gradients(Xdivy, x=c64(2), y=c64(2))
gradients(Xlogy, x=c64(2), y=c64(2))
gradients(Cumprod, x=c64(3), axis=0)
# The gradient of a sign is zero by definition.
Sign(x=c64(3))
gradients(Sign, x=c64(3))
# The gradient has the shape of the cropped input; tf.signal crops before the op.
RFFT(input=f32(2, 5), fft_length=[4])
RFFT2D(input=f64(3, 6), fft_length=[2, 4], Tcomplex=complex128)
"""

OURS = """
# TensorFlow 2.21 cannot build it in a graph.
CompareAndBitpack(input=f32(2, 16), threshold=float32(0.1))
CompareAndBitpack(input=b1(8), threshold=False)
# TensorFlow 2.21 answers zeros; tf.round doesn't use the op for integers.
Round(x=i32([-3, 2, 1]))
"""
