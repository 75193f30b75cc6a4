"""All ops: each family has a file of its own, from declaration to kernel and gradient.

An op exists once its file has been imported, so importing this package imports every file of the
list below; a test compares the list with the folder.
"""

from __future__ import annotations

from importlib import import_module

ROOMS = {
    "": "clock collectives control kept_values py_func sample_ops session_tensors shared_state type_specs waiting_line",
    "array": (
        "bands blocks casting constant constant_value diagonals filling gather identity index_sets inplace "
        "inplace_functions joining kernel_arguments layout masking padding parallel_stack partition scatter shape "
        "slicing splitting tensor_protos transpose"
    ),
    "debugging": "assertion check_numerics logging_ops rank_checks shape_checks value_checks",
    "flow": (
        "case cond cond_context context_protos control_flow_context flow_ops functional gradients "
        "loop_accumulators loop_state stacks tensor_array tensor_array_gradients tensor_array_ops "
        "tensor_array_state while_context while_loop zeros_of_branches"
    ),
    "gradients": "backprop custom_gradient inputs registry sums wanted",
    "image": "boxes codecs colours distortion geometry measures patches resize",
    "io": (
        "checkpoint_v1 csv_ops event_file example_parsing file_ops parsing_functions parsing_ops reader_kinds "
        "reader_ops reader_state readers record_files save_restore tf_record"
    ),
    "linalg": "decompositions functions lapack matrix_functions solving",
    "math": (
        "bitwise broadcast clip comparison complex contraction einsum_op elementwise indexed_slices matmul "
        "operators powers reduce_functions reductions search segments sparse_segments special spectral sums topk "
        "unary"
    ),
    "nn": (
        "activation arguments batch_norm bias candidate_sampling conv convolution cross_entropy ctc_decoding "
        "ctc_loss dilated embedding global_norm max_argmax morphology normalization pooling pooling_dynamic "
        "sampled_losses softmax transposed window_attrs"
    ),
    "queues": (
        "accumulator_ledger accumulator_ops accumulator_state accumulators attempts barrier component_arguments "
        "critical_section mutex queue_ops queue_state queues staging staging_ops staging_state users"
    ),
    "ragged": "factory ragged_tensor",
    "random": "functions sampling stateless truncated",
    "sparse": (
        "arithmetic crossing functions kernel_values layout math serialization set_operations sparse_tensor tensors_map"
    ),
    "strings": "conversions elementwise pieces unicode",
    "summary": "functions media_ops summary_ops writer_ops",
    "tables": "dense_buckets functions initializers table_ops table_state vocabulary_remapping vocabulary_tables",
    "training": "dense sparse update_ops",
    "variables": (
        "assignment base functions guard initializers kind partitioned_variable partitioners read_gradients "
        "ref_ops ref_variable resource_collections resource_ops resource_variable save_slice scatter_ops scope "
        "scope_defaults sliced_assignment state store template"
    ),
}
"""Folder of ``tfmini/ops`` ("" is the package itself) -> its files."""

for _room, _files in ROOMS.items():
    for _file in _files.split():
        import_module(".".join(filter(None, (__name__, _room, _file))))
