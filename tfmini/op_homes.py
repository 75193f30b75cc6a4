"""Which module declares which op, so that a module of ops is imported at the first use of one of its ops.

`tfmini.graph.registry.OPS` looks here for a name that it does not have yet. A new op of `ops` or `data` gets its name
here: its declaration is refused otherwise, and a test compares the table with what the modules declare.
"""

from __future__ import annotations

_NAMES: dict[str, str] = {
    "data.components": "_PackSparse _UnpackSparse",
    "data.csv_datasets": "CSVDataset",
    "data.dataset_ops": (
        "ConcatenateDataset RangeDataset TensorDataset TensorSliceDataset ZipDataset _PyGeneratorDataset"
    ),
    "data.file_datasets": "FixedLengthRecordDatasetV2 TFRecordDataset TextLineDataset",
    "data.function_stages": (
        "DatasetCardinality DatasetToSingleElement FilterDataset FlatMapDataset InterleaveDataset MapAndBatchDataset "
        "MapDataset ParallelMapDataset ReduceDataset ScanDataset"
    ),
    "data.grouping": "GroupByReducerDataset GroupByWindowDataset",
    "data.iterator_ops": (
        "IteratorFromStringHandleV2 IteratorGetNext IteratorGetNextSync IteratorToStringHandle IteratorV2 "
        "MakeIterator OneShotIterator"
    ),
    "data.optional": "IteratorGetNextAsOptional OptionalFromValue OptionalGetValue OptionalHasValue OptionalNone",
    "data.record_writers": "DatasetToTFRecord",
    "data.selection": "DenseToSparseBatchDataset DirectedInterleaveDataset TakeWhileDataset UniqueDataset",
    "data.stages": (
        "BatchDatasetV2 CacheDataset IgnoreErrorsDataset PaddedBatchDatasetV2 PrefetchDataset RepeatDataset "
        "ShardDataset ShuffleDataset SkipDataset TakeDataset UnbatchDataset WindowDataset"
    ),
    "ops.array.bands": "MatrixDiagPartV2 MatrixDiagV2 MatrixSetDiagV2",
    "ops.array.blocks": "BatchToSpaceND DepthToSpace SpaceToBatchND SpaceToDepth",
    "ops.array.casting": "Bitcast Cast",
    "ops.array.constant": "Const",
    "ops.array.diagonals": "Diag DiagPart MatrixBandPart MatrixDiag MatrixDiagPart MatrixSetDiag",
    "ops.array.filling": "Fill LinSpace OnesLike Range ZerosLike",
    "ops.array.gather": "Gather GatherNd GatherV2",
    "ops.array.identity": (
        "CheckNumerics EnsureShape GuaranteeConst Identity IdentityN Placeholder PlaceholderV2 PlaceholderWithDefault "
        "PreventGradient Snapshot StopGradient"
    ),
    "ops.array.index_sets": "InvertPermutation ListDiff OneHot Unique UniqueWithCounts UnravelIndex",
    "ops.array.inplace": "DeepCopy Empty InplaceAdd InplaceSub InplaceUpdate",
    "ops.array.joining": "Concat ConcatOffset ConcatV2 Pack Unpack",
    "ops.array.layout": "ReverseSequence ReverseV2 Roll Tile",
    "ops.array.masking": "Where",
    "ops.array.padding": "MirrorPad MirrorPadGrad Pad PadV2",
    "ops.array.parallel_stack": "ParallelConcat",
    "ops.array.partition": "DynamicPartition DynamicStitch ParallelDynamicStitch",
    "ops.array.scatter": "ScatterNd ScatterNdNonAliasingAdd TensorScatterAdd TensorScatterSub TensorScatterUpdate",
    "ops.array.shape": (
        "BroadcastArgs BroadcastGradientArgs BroadcastTo ExpandDims Rank Reshape Shape ShapeN Size Squeeze"
    ),
    "ops.array.slicing": "Slice StridedSlice StridedSliceAssign StridedSliceGrad",
    "ops.array.splitting": "Split SplitV",
    "ops.array.transpose": "ConjugateTranspose Transpose",
    "ops.clock": "Timestamp",
    "ops.collectives": (
        "CollectiveAllToAll CollectiveBcastAlike CollectiveBcastRecv CollectiveBcastSend CollectiveGather "
        "CollectiveReduce CollectiveReduceScatter"
    ),
    "ops.control": "Abort ControlTrigger NoOp",
    "ops.debugging.logging_ops": "Assert Print PrintV2 StringFormat",
    "ops.flow.flow_ops": (
        "Enter Exit LoopCond Merge NextIteration RefEnter RefExit RefIdentity RefMerge RefNextIteration RefSelect "
        "RefSwitch Switch"
    ),
    "ops.flow.stacks": "Stack StackClose StackCloseV2 StackPop StackPopV2 StackPush StackPushV2 StackV2",
    "ops.flow.tensor_array_ops": (
        "TensorArrayCloseV3 TensorArrayConcatV3 TensorArrayGatherV3 TensorArrayGradV3 TensorArrayGradWithShape "
        "TensorArrayReadV3 TensorArrayScatterV3 TensorArraySizeV3 TensorArraySplitV3 TensorArrayV3 TensorArrayWriteV3"
    ),
    "ops.image.boxes": (
        "CropAndResize CropAndResizeGradBoxes CropAndResizeGradImage NonMaxSuppressionV3 NonMaxSuppressionV4 "
        "NonMaxSuppressionV5 NonMaxSuppressionWithOverlaps"
    ),
    "ops.image.codecs": (
        "DecodeAndCropJpeg DecodeBmp DecodeGif DecodeJpeg DecodePng EncodeJpeg EncodePng ExtractJpegShape"
    ),
    "ops.image.distortion": (
        "DrawBoundingBoxes DrawBoundingBoxesV2 SampleDistortedBoundingBox SampleDistortedBoundingBoxV2"
    ),
    "ops.image.patches": "ExtractImagePatches _PlaceImagePatches",
    "ops.image.resize": (
        "ResizeArea ResizeBicubic ResizeBicubicGrad ResizeBilinear ResizeBilinearGrad ResizeNearestNeighbor "
        "ResizeNearestNeighborGrad"
    ),
    "ops.io.csv_ops": "DecodeCSV DecodeCompressed",
    "ops.io.file_ops": "MatchingFiles ReadFile WriteFile",
    "ops.io.parsing_ops": (
        "DecodeJSONExample ParseExample ParseSequenceExample ParseSingleExample ParseSingleSequenceExample "
        "ParseTensor SerializeTensor"
    ),
    "ops.io.reader_ops": (
        "FixedLengthRecordReader FixedLengthRecordReaderV2 IdentityReader IdentityReaderV2 ReaderNumRecordsProduced "
        "ReaderNumRecordsProducedV2 ReaderNumWorkUnitsCompleted ReaderNumWorkUnitsCompletedV2 ReaderRead "
        "ReaderReadUpTo ReaderReadUpToV2 ReaderReadV2 ReaderReset ReaderResetV2 ReaderRestoreState "
        "ReaderRestoreStateV2 ReaderSerializeState ReaderSerializeStateV2 TFRecordReader TFRecordReaderV2 "
        "TextLineReader TextLineReaderV2 WholeFileReader WholeFileReaderV2"
    ),
    "ops.io.save_restore": (
        "MergeV2Checkpoints Restore RestoreSlice RestoreV2 Save SaveSlices SaveV2 ShardedFilename ShardedFilespec"
    ),
    "ops.linalg.decompositions": "Cholesky CholeskyGrad Lu Qr SelfAdjointEigV2 Svd",
    "ops.linalg.matrix_functions": "MatrixExponential MatrixLogarithm MatrixSquareRoot",
    "ops.linalg.solving": (
        "LogMatrixDeterminant MatrixDeterminant MatrixInverse MatrixSolve MatrixSolveLs MatrixTriangularSolve"
    ),
    "ops.math.bitwise": "BitwiseAnd BitwiseOr BitwiseXor Invert LeftShift RightShift",
    "ops.math.broadcast": "Sum",
    "ops.math.comparison": (
        "ApproximateEqual Equal Greater GreaterEqual Less LessEqual LogicalAnd LogicalNot LogicalOr NotEqual Select "
        "SelectV2"
    ),
    "ops.math.complex": "Angle Complex ComplexAbs Imag Real",
    "ops.math.einsum_op": "Einsum",
    "ops.math.elementwise": (
        "Add AddV2 Conj Div DivNoNan FloorDiv FloorMod Maximum Minimum Mod Mul MulNoNan Neg RealDiv SquaredDifference "
        "Sub TruncateDiv TruncateMod"
    ),
    "ops.math.matmul": "BatchMatMul BatchMatMulV2 Cross MatMul SparseMatMul",
    "ops.math.powers": "Atan2 NextAfter Pow Xdivy Xlogy",
    "ops.math.reduce_functions": "Bincount",
    "ops.math.reductions": "All Any ArgMax ArgMin Cumprod Cumsum EuclideanNorm Max Mean Min Prod",
    "ops.math.search": "Bucketize HistogramFixedWidth LowerBound UniqueV2 UniqueWithCountsV2 UpperBound",
    "ops.math.segments": (
        "SegmentMax SegmentMean SegmentMin SegmentProd SegmentSum UnsortedSegmentMax UnsortedSegmentMin "
        "UnsortedSegmentProd UnsortedSegmentSum"
    ),
    "ops.math.sparse_segments": (
        "SparseSegmentMean SparseSegmentMeanGrad SparseSegmentMeanWithNumSegments SparseSegmentSqrtN "
        "SparseSegmentSqrtNGrad SparseSegmentSqrtNWithNumSegments SparseSegmentSum SparseSegmentSumWithNumSegments"
    ),
    "ops.math.special": (
        "BesselI0e BesselI1e Betainc CumulativeLogsumexp Igamma IgammaGradA Igammac RandomGamma RandomGammaGrad"
    ),
    "ops.math.spectral": "FFT FFT2D FFT3D IFFT IFFT2D IFFT3D IRFFT IRFFT2D IRFFT3D RFFT RFFT2D RFFT3D",
    "ops.math.sums": "AccumulateNV2 AddN",
    "ops.math.topk": "InTopK InTopKV2 NthElement TopKV2",
    "ops.math.unary": (
        "Abs Acos Acosh Asin Asinh Atan Atanh Ceil Cos Cosh Digamma Erf Erfc Exp Expm1 Floor Inv InvGrad IsFinite "
        "IsInf IsNan Lgamma Log Log1p Polygamma Reciprocal ReciprocalGrad Rint Round Rsqrt RsqrtGrad Sigmoid "
        "SigmoidGrad Sign Sin Sinh Sqrt SqrtGrad Square Tan Tanh TanhGrad Zeta"
    ),
    "ops.nn.activation": (
        "Elu EluGrad LeakyRelu LeakyReluGrad Relu Relu6 Relu6Grad ReluGrad Selu SeluGrad Softplus SoftplusGrad "
        "Softsign SoftsignGrad"
    ),
    "ops.nn.batch_norm": (
        "FusedBatchNorm FusedBatchNormGrad FusedBatchNormGradV2 FusedBatchNormGradV3 FusedBatchNormV2 "
        "FusedBatchNormV3"
    ),
    "ops.nn.bias": "BiasAdd BiasAddGrad BiasAddV1 L2Loss",
    "ops.nn.candidate_sampling": (
        "AllCandidateSampler ComputeAccidentalHits FixedUnigramCandidateSampler LearnedUnigramCandidateSampler "
        "LogUniformCandidateSampler UniformCandidateSampler"
    ),
    "ops.nn.conv": (
        "Conv2D Conv2DBackpropFilter Conv2DBackpropInput Conv3D Conv3DBackpropFilterV2 Conv3DBackpropInputV2 "
        "DepthwiseConv2dNative DepthwiseConv2dNativeBackpropFilter DepthwiseConv2dNativeBackpropInput"
    ),
    "ops.nn.ctc_decoding": "CTCBeamSearchDecoder CTCGreedyDecoder",
    "ops.nn.ctc_loss": "CTCLoss CTCLossV2",
    "ops.nn.global_norm": "BatchNormWithGlobalNormalization BatchNormWithGlobalNormalizationGrad",
    "ops.nn.max_argmax": "MaxPoolGradGradWithArgmax MaxPoolGradWithArgmax MaxPoolWithArgmax",
    "ops.nn.morphology": "Dilation2D Dilation2DBackpropFilter Dilation2DBackpropInput",
    "ops.nn.normalization": "LRN LRNGrad",
    "ops.nn.pooling": (
        "AvgPool AvgPool3D AvgPool3DGrad AvgPoolGrad MaxPool MaxPool3D MaxPool3DGrad MaxPool3DGradGrad MaxPoolGrad "
        "MaxPoolGradGrad"
    ),
    "ops.nn.pooling_dynamic": "MaxPoolGradGradV2 MaxPoolGradV2 MaxPoolV2",
    "ops.nn.softmax": "LogSoftmax Softmax SoftmaxCrossEntropyWithLogits SparseSoftmaxCrossEntropyWithLogits",
    "ops.py_func": "EagerPyFunc PyFunc PyFuncStateless",
    "ops.queues.accumulator_ops": (
        "AccumulatorApplyGradient AccumulatorNumAccumulated AccumulatorSetGlobalStep AccumulatorTakeGradient "
        "ConditionalAccumulator ResourceAccumulatorApplyGradient ResourceAccumulatorNumAccumulated "
        "ResourceAccumulatorSetGlobalStep ResourceAccumulatorTakeGradient ResourceConditionalAccumulator "
        "SparseAccumulatorApplyGradient SparseAccumulatorTakeGradient SparseConditionalAccumulator _AccumulatorLedger "
        "_AccumulatorLedgerV1 _AccumulatorRenew _AccumulatorRenewV1 _AccumulatorStep _AccumulatorStepV1"
    ),
    "ops.queues.barrier": (
        "Barrier BarrierClose BarrierIncompleteSize BarrierInsertMany BarrierReadySize BarrierTakeMany"
    ),
    "ops.queues.mutex": "ConsumeMutexLock MutexLock MutexV2",
    "ops.queues.queue_ops": (
        "FIFOQueue FIFOQueueV2 FakeQueue PaddingFIFOQueue PaddingFIFOQueueV2 PriorityQueue PriorityQueueV2 QueueClose "
        "QueueCloseV2 QueueDequeue QueueDequeueMany QueueDequeueManyV2 QueueDequeueUpTo QueueDequeueUpToV2 "
        "QueueDequeueV2 QueueEnqueue QueueEnqueueMany QueueEnqueueManyV2 QueueEnqueueV2 QueueIsClosed QueueIsClosedV2 "
        "QueueSize QueueSizeV2 RandomShuffleQueue RandomShuffleQueueV2 _QueueBeginRun _QueueEndRun "
        "_QueueFailRun _QueueRenew _QueueReopen"
    ),
    "ops.queues.staging_ops": (
        "MapClear MapIncompleteSize MapPeek MapSize MapStage MapUnstage MapUnstageNoKey OrderedMapClear "
        "OrderedMapIncompleteSize OrderedMapPeek OrderedMapSize OrderedMapStage OrderedMapUnstage "
        "OrderedMapUnstageNoKey Stage StageClear StagePeek StageSize Unstage"
    ),
    "ops.random.sampling": (
        "Multinomial RandomPoissonV2 RandomShuffle RandomStandardNormal RandomUniform RandomUniformInt "
        "TruncatedNormal"
    ),
    "ops.random.stateless": (
        "StatelessMultinomial StatelessRandomNormal StatelessRandomUniform StatelessRandomUniformInt "
        "StatelessTruncatedNormal"
    ),
    "ops.random.truncated": "ParameterizedTruncatedNormal",
    "ops.sample_ops": (
        "A B Binary CopyOp FiveFloatOutputs FloatInput FloatOutput FloatOutputStringOutput Foo1 Foo2 Foo3 Int64Output "
        "IntAttr IntInput IntInputFloatInput IntInputIntOutput IntOutput IntOutputFloatOutput ListInput ListOutput "
        "NIntsIn NIntsOut NPolymorphicIn NPolymorphicOut None Old OpWithDefaultAttr Polymorphic PolymorphicOut RefIn "
        "RefInputFloatInput RefInputFloatInputIntOutput RefInputIntInput RefOut RefOutput RefOutputFloatOutput Simple "
        "TwoFloatInputs TwoFloatInputsFloatOutput TwoFloatInputsIntOutput TwoFloatOutputs TwoIntInputs TwoIntOutputs "
        "TwoRefsIn TypeList"
    ),
    "ops.session_tensors": "DeleteSessionTensor GetSessionHandle GetSessionTensor",
    "ops.sparse.crossing": "SparseCross",
    "ops.sparse.layout": (
        "SparseConcat SparseFillEmptyRows SparseFillEmptyRowsGrad SparseReorder SparseReshape SparseSlice "
        "SparseSliceGrad SparseSplit SparseToDense"
    ),
    "ops.sparse.math": (
        "SparseAdd SparseAddGrad SparseDenseCwiseAdd SparseDenseCwiseDiv SparseDenseCwiseMul SparseReduceMax "
        "SparseReduceMaxSparse SparseReduceSum SparseReduceSumSparse SparseSoftmax SparseSparseMaximum "
        "SparseSparseMinimum SparseTensorDenseAdd SparseTensorDenseMatMul"
    ),
    "ops.sparse.serialization": "DeserializeManySparse DeserializeSparse SerializeManySparse SerializeSparse",
    "ops.sparse.set_operations": (
        "DenseToDenseSetOperation DenseToSparseSetOperation EditDistance SetSize SparseToSparseSetOperation"
    ),
    "ops.sparse.tensors_map": "AddManySparseToTensorsMap AddSparseToTensorsMap TakeManySparseFromTensorsMap",
    "ops.strings.conversions": "AsString DecodeRaw ReduceJoin StringToNumber",
    "ops.strings.elementwise": (
        "DecodeBase64 EncodeBase64 RegexFullMatch RegexReplace StaticRegexFullMatch StaticRegexReplace StringJoin "
        "StringLength StringLower StringStrip StringUpper Substr"
    ),
    "ops.strings.pieces": (
        "Fingerprint StringNGrams StringSplit StringSplitV2 StringToHashBucket StringToHashBucketFast "
        "StringToHashBucketStrong UnsortedSegmentJoin"
    ),
    "ops.strings.unicode": "UnicodeDecode UnicodeDecodeWithOffsets UnicodeEncode UnicodeTranscode",
    "ops.summary.media_ops": "AudioSummary AudioSummaryV2 ImageSummary",
    "ops.summary.summary_ops": "HistogramSummary MergeSummary ScalarSummary TensorSummary TensorSummaryV2",
    "ops.summary.writer_ops": (
        "CloseSummaryWriter CreateSummaryFileWriter FlushSummaryWriter ImportEvent SummaryWriter WriteAudioSummary "
        "WriteGraphSummary WriteHistogramSummary WriteImageSummary WriteRawProtoSummary WriteScalarSummary "
        "WriteSummary"
    ),
    "ops.tables.table_ops": (
        "HashTable HashTableV2 InitializeTable InitializeTableFromTextFile InitializeTableFromTextFileV2 "
        "InitializeTableV2 LookupTableExport LookupTableExportV2 LookupTableFind LookupTableFindV2 LookupTableImport "
        "LookupTableImportV2 LookupTableInsert LookupTableInsertV2 LookupTableRemoveV2 LookupTableSize "
        "LookupTableSizeV2 MutableDenseHashTable MutableDenseHashTableV2 MutableHashTable MutableHashTableOfTensors "
        "MutableHashTableOfTensorsV2 MutableHashTableV2"
    ),
    "ops.tables.vocabulary_remapping": "GenerateVocabRemapping LoadAndRemapMatrix",
    "ops.training.update_ops": (
        "ApplyAdaMax ApplyAdadelta ApplyAdagrad ApplyAdagradDA ApplyAdagradV2 ApplyAdam ApplyAddSign "
        "ApplyCenteredRMSProp ApplyFtrl ApplyFtrlV2 ApplyGradientDescent ApplyMomentum ApplyPowerSign "
        "ApplyProximalAdagrad ApplyProximalGradientDescent ApplyRMSProp ResourceApplyAdaMax ResourceApplyAdadelta "
        "ResourceApplyAdagrad ResourceApplyAdagradDA ResourceApplyAdagradV2 ResourceApplyAdam "
        "ResourceApplyAdamWithAmsgrad ResourceApplyAddSign ResourceApplyCenteredRMSProp ResourceApplyFtrl "
        "ResourceApplyFtrlV2 ResourceApplyGradientDescent ResourceApplyKerasMomentum ResourceApplyMomentum "
        "ResourceApplyPowerSign ResourceApplyProximalAdagrad ResourceApplyProximalGradientDescent "
        "ResourceApplyRMSProp ResourceSparseApplyAdadelta ResourceSparseApplyAdagrad ResourceSparseApplyAdagradDA "
        "ResourceSparseApplyAdagradV2 ResourceSparseApplyCenteredRMSProp ResourceSparseApplyFtrl "
        "ResourceSparseApplyFtrlV2 ResourceSparseApplyKerasMomentum ResourceSparseApplyMomentum "
        "ResourceSparseApplyProximalAdagrad ResourceSparseApplyProximalGradientDescent ResourceSparseApplyRMSProp "
        "SparseApplyAdadelta SparseApplyAdagrad SparseApplyAdagradDA SparseApplyAdagradV2 SparseApplyCenteredRMSProp "
        "SparseApplyFtrl SparseApplyFtrlV2 SparseApplyMomentum SparseApplyProximalAdagrad "
        "SparseApplyProximalGradientDescent SparseApplyRMSProp"
    ),
    "ops.variables.ref_ops": (
        "Assign AssignAdd AssignSub CountUpTo DestroyTemporaryVariable IsVariableInitialized TemporaryVariable "
        "Variable VariableV2"
    ),
    "ops.variables.resource_ops": (
        "AssignAddVariableOp AssignSubVariableOp AssignVariableOp DestroyResourceOp ReadVariableOp ResourceCountUpTo "
        "ResourceGather ResourceGatherNd VarHandleOp VarIsInitializedOp VariableShape"
    ),
    "ops.variables.scatter_ops": (
        "ResourceScatterAdd ResourceScatterDiv ResourceScatterMax ResourceScatterMin ResourceScatterMul "
        "ResourceScatterNdAdd ResourceScatterNdSub ResourceScatterNdUpdate ResourceScatterSub ResourceScatterUpdate "
        "ScatterAdd ScatterDiv ScatterMax ScatterMin ScatterMul ScatterNdAdd ScatterNdSub ScatterNdUpdate ScatterSub "
        "ScatterUpdate"
    ),
    "ops.variables.sliced_assignment": "ResourceStridedSliceAssign TensorStridedSliceUpdate",
}
"""Module (relative to ``tfmini``) -> the names of its ops, separated by blanks."""

HOMES = {name: f"tfmini.{home}" for home, names in _NAMES.items() for name in names.split()}
"""Op type -> the module that declares it and attaches its shape function, kernels and gradient."""
