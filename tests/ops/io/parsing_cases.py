"""Expressions that parse messages, see `tests.expressions`. ``E`` are Example messages, ``S`` SequenceExamples."""

NAMES = "from tests.ops.io.parsing_cases import messages; E, S = messages(tf)"

VALUES = {
    "dense": 'tf.parse_example(E, {"i": tf.FixedLenFeature([2], tf.int64, [0, 0])})["i"]',
    "padded": ('tf.parse_example(E, {"f": tf.FixedLenSequenceFeature([], tf.float32, True, 9.0)})["f"]'),
    "sparse_values": 'tf.parse_example(E, {"s": tf.VarLenFeature(tf.string)})["s"].values',
    "sparse_indices": 'tf.parse_example(E, {"f": tf.VarLenFeature(tf.float32)})["f"].indices',
    "sparse_shape": 'tf.parse_example(E, {"f": tf.VarLenFeature(tf.float32)})["f"].dense_shape',
    "merged": (
        'tf.sparse_tensor_to_dense(tf.parse_example(E[:1], {"m": tf.SparseFeature("i", "f", tf.float32, 9)})["m"])'
    ),
    "texts": 'tf.parse_example(E[:1], {"s": tf.FixedLenFeature([], tf.string)})["s"]',
    "default_texts": (
        'tf.decode_raw(tf.parse_example(E, {"n": tf.FixedLenFeature([], tf.string, "no")})["n"], tf.uint8)'
    ),
    "raw_texts": 'tf.decode_raw(tf.parse_example(E[:1], {"s": tf.FixedLenFeature([], tf.string)})["s"], tf.uint8)',
    "single": 'tf.parse_single_example(E[0], {"f": tf.FixedLenFeature([2], tf.float32)})["f"]',
    "single_rows": 'tf.parse_single_example(E[0], {"f": tf.FixedLenSequenceFeature([], tf.float32, True)})["f"]',
    "single_sparse": 'tf.parse_single_example(E[1], {"s": tf.VarLenFeature(tf.string)})["s"].values',
    "context": 'tf.parse_single_sequence_example(S[0], {"c": tf.FixedLenFeature([], tf.int64)})[0]["c"]',
    "steps": ('tf.parse_single_sequence_example(S[0], None, {"l": tf.FixedLenSequenceFeature([2], tf.int64)})[1]["l"]'),
    "step_texts": (
        "tf.decode_raw(tf.parse_single_sequence_example(S[0], None,"
        ' {"t": tf.FixedLenSequenceFeature([], tf.string)})[1]["t"], tf.uint8)'
    ),
    "steps_sparse": 'tf.parse_single_sequence_example(S[0], None, {"v": tf.VarLenFeature(tf.float32)})[1]["v"].indices',
    "batched_steps": (
        'tf.io.parse_sequence_example(S, None, {"l": tf.FixedLenSequenceFeature([2], tf.int64)})[1]["l"]'
    ),
    "batched_lengths": (
        'tf.io.parse_sequence_example(S, None, {"l": tf.FixedLenSequenceFeature([2], tf.int64)})[2]["l"]'
    ),
    "batched_sparse": 'tf.io.parse_sequence_example(S, None, {"v": tf.VarLenFeature(tf.float32)})[1]["v"].indices',
    "csv": 'tf.decode_csv(["1,\\"a,\\"\\"b\\",", ",x,3"], [[7], [""], [0.5]])[0]',
    "csv_text": 'tf.decode_csv(["1,\\"a,\\"\\"b\\",", ",x,3"], [[7], [""], [0.5]])[1]',
    "csv_float": 'tf.decode_csv(["1,\\"a,\\"\\"b\\",", ",x,3"], [[7], [""], [0.5]])[2]',
    "csv_columns": 'tf.decode_csv("1,2,3", [[0]], select_cols=[2])[0]',
    "csv_na": 'tf.decode_csv("NA;2", [[4], [0]], field_delim=";", na_value="NA")[0]',
    "tensor": "tf.parse_tensor(tf.serialize_tensor(tf.constant([[1.5, 2], [3, 4]])), tf.float32)",
    "serialized": "tf.serialize_tensor(tf.constant([1, 2, 3]))",
    "serialized_text": 'tf.serialize_tensor(tf.constant(["a", "bc"]))',
    "json": (
        'tf.parse_single_example(tf.decode_json_example(\'{"features": {"feature": {"x": {"int64List": {"value": [5]'
        '}}}}}\'), {"x": tf.FixedLenFeature([], tf.int64)})["x"]'
    ),
}
ERRORS = {
    "missing": 'tf.parse_example(E, {"i": tf.FixedLenFeature([2], tf.int64)})["i"]',
    "wrong_size": 'tf.parse_example(E, {"f": tf.FixedLenFeature([3], tf.float32)})["f"]',
    "wrong_type": 'tf.parse_example(E, {"f": tf.VarLenFeature(tf.int64)})["f"].values',
    "stride": 'tf.parse_example(E[1:], {"s": tf.FixedLenSequenceFeature([2], tf.string, True)})["s"]',
    "single_missing": 'tf.parse_single_example(E[0], {"n": tf.FixedLenFeature([], tf.int64)})["n"]',
    "csv_short": 'tf.decode_csv("1,2", [[0], [0], [0]])[0]',
    "csv_required": 'tf.decode_csv(",2", [tf.constant([], tf.int32), [0]])[0]',
    "csv_number": 'tf.decode_csv("x", [[0]])[0]',
    "csv_quote": 'tf.decode_csv("a\\"b", [[""]])[0]',
    "tensor_type": "tf.parse_tensor(tf.serialize_tensor(tf.constant([1])), tf.float32)",
    "steps_missing": (
        'tf.parse_single_sequence_example(S[0], None, {"n": tf.FixedLenSequenceFeature([2], tf.int64)})[1]["n"]'
    ),
}


def messages(tf):
    """(Example messages, SequenceExample messages)."""

    def feature(kind, values):
        return tf.train.Feature(**{f"{kind}_list": getattr(tf.train, f"{kind.capitalize()}List")(value=values)})

    def example(**features):
        return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()

    def sequence(context, lists):
        return tf.train.SequenceExample(
            context=tf.train.Features(feature=context),
            feature_lists=tf.train.FeatureLists(
                feature_list={k: tf.train.FeatureList(feature=v) for k, v in lists.items()}
            ),
        ).SerializeToString()

    e = [
        example(i=feature("int64", [4, 2]), f=feature("float", [1.5, 2.5]), s=feature("bytes", [b"x"])),
        example(f=feature("float", [3.5]), s=feature("bytes", [b"y", b"z", b"w"])),
    ]
    s = [
        sequence(
            {"c": feature("int64", [7])},
            {
                "l": [feature("int64", [1, 2]), feature("int64", [3, 4])],
                "v": [feature("float", []), feature("float", [5.0, 6.0])],
                "t": [feature("bytes", [b"ab"]), feature("bytes", [b"cd"])],
            },
        ),
        sequence({"c": feature("int64", [8])}, {"l": [feature("int64", [5, 6])], "v": [feature("float", [7.0])]}),
    ]
    return e, s
