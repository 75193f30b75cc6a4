"""Samples of the ops in tfmini/ops/strings."""

from tests.ops.samples.notation import each

_TEXTS = r"['h\u00e9', '', b'\xff ok', '\u4f60\n']"

SAMPLES = (
    each("AsString", "input=[1, -5, 2**31 - 1]", "input=i64([7]), width=4, fill='0'", "input=b1(3)",
         "input=f32([1.5, -0.1, 1e10, nan])", "input=f64([1 / 3]), precision=3, scientific=True",
         "input=f32([0.1, 1e-7]), shortest=True", "input=c64([1 + 2j])", "input=i8([5]), width=3, fill=' '")
    + each("StringToNumber", "string_tensor=['1.5', ' -2e3 ', 'inf']", "string_tensor=['-7'], out_type=int32",
           "string_tensor=['123456789012'], out_type=int64", "string_tensor=['0.1'], out_type=float64")
    + each("DecodeRaw", r"bytes=[b'\x01\x02\x03\x04', b'abcd'], out_type=int16", "bytes=b'12345678', out_type=float64",
           "bytes=['ab'], out_type=uint16, little_endian=False", r"bytes=[b'\x00\x01'], out_type=bool", "bytes=[''], "
           "out_type=uint8")
    + each("ReduceJoin", "inputs=[['a', 'b'], ['c', 'd']], reduction_indices=[0], separator='-'",
           "inputs=[['a', 'b'], ['c', 'd']], reduction_indices=[1, 0]", "inputs=[[['a', 'b']], [['c', 'd']]], "
           "reduction_indices=[0, 2]",
           "inputs=[['a', 'b']], reduction_indices=-1, keep_dims=True", "inputs=['a', 'b'], reduction_indices=i32([])")
    + each("StringLower StringUpper", "input=['aB', 'C1']", r"input=['\u00c4\u00df'], encoding='utf-8'",
           r"input='\u00c4b'")
    + each("StringStrip", r"input=[' a b ', '\t\n', 'c']")
    + each("StringLength", f"input={_TEXTS}", f"input={_TEXTS}, unit='UTF8_CHAR'",
           r"input=[b'abc\x80', b'\x80\x82', b'\xe2\x82', b'a\xf0\x9f\x98\x80b', b'\xffa\x80\x80b'], unit='UTF8_CHAR'")
    + each("StringJoin", "inputs=[['a', 'b'], 'x', ['c', 'd']], separator=','", "inputs=['a']")
    + each("Substr", "input=['hello', 'world'], pos=1, len=3", "input=['hello', 'world'], pos=[-3, 1], len=[2, 9]",
           r"input=['\u4f60\u597dab'], pos=i64([1]), len=i64([2]), unit='UTF8_CHAR'",
           r"input=[b'abc\x80\x80d', b'\x80\x82\xacx', b'a\xe2\x82'], pos=[2, 0, -1], len=[1, 1, 3], unit='UTF8_CHAR'",
           "input='hello', pos=[0, 1], len=[1, 2]")
    + each("RegexReplace", r"input=['a1b2', 'xyz'], pattern='([a-z])([0-9])', rewrite=r'\2\1'",
           "input='aaa', pattern='a', rewrite='b', replace_global=False")
    + each("StaticRegexReplace", r"input=['a1b2', 'xyz'], pattern='([a-z])([0-9])', rewrite=r'\2\1'",
           "input='aaa', pattern='a', rewrite='b', replace_global=False")
    + each("RegexFullMatch StaticRegexFullMatch", "input=['ab', 'abc', ''], pattern='a.'", "input='x', pattern='.*'")
    + each("EncodeBase64", r"input=['a', 'ab', b'\xff\xfe\xfd']", "input='a', pad=True")
    + each("DecodeBase64", "input=['YQ', 'YWI', '__79', 'YQ==']")
    + each("StringSplit", "input=['a b  c', '', ' d'], delimiter=' '", "input=['a b'], delimiter=''",
           "input=['a,b;c'], delimiter=',;'", "input=['a,,b'], delimiter=',', skip_empty=False")
    + each("StringSplitV2", "input=['a b  c', '', ' d'], sep=''", "input=['a<>b<>c'], sep='<>'",
           "input=['a,b,c'], sep=',', maxsplit=1")
    + each("StringToHashBucket", "string_tensor=['', 'a', 'hello world'], num_buckets=10**9")
    + each("StringToHashBucketFast", "input=['', 'a', 'hello', 'x' * 30, 'y' * 70, 'z' * 150], num_buckets=2**40")
    + each("StringToHashBucketStrong", "input=['', 'a', 'hello world'], num_buckets=10**9, key=[3, 2**40]")
    + each("StringNGrams",
           "data=['a', 'b', 'c', 'd'], data_splits=i64([0, 3, 4]), separator='|', ngram_widths=[2, 3], left_pad='<', "
           "right_pad='>', pad_width=1, preserve_short_sequences=False",
           "data=['a', 'b', 'c', 'd'], data_splits=i32([0, 3, 4]), separator='', ngram_widths=[2], left_pad='', "
           "right_pad='', pad_width=0, preserve_short_sequences=True")
    + each("Fingerprint", "data=[[1, 2], [3, 4]], method='farmhash64'", "data=['abc', ''], method='farmhash64'")
    + each("UnsortedSegmentJoin", "inputs=['a', 'b', 'c'], segment_ids=[1, 0, 1], num_segments=3, separator='-'",
           "inputs=[['a', 'b'], ['c', 'd']], segment_ids=i64([0, 0]), num_segments=int64(1)")
    + each("UnicodeDecode UnicodeDecodeWithOffsets", f"input={_TEXTS}, input_encoding='UTF-8'",
           f"input={_TEXTS}, input_encoding='UTF-8', errors='ignore', replace_control_characters=True",
           r"input=[b'\x00a\xd8\x3d'], input_encoding='UTF-16-BE', replacement_char=63")
    + each("UnicodeEncode",
           "input_values=[72, 105, 233, 0x4f60], input_splits=i64([0, 2, 2, 4]), output_encoding='UTF-8'",
           "input_values=[72, -1], input_splits=[0, 1, 2], output_encoding='UTF-16-BE'",
           "input_values=[0x1f600], input_splits=i64([0, 1]), output_encoding='UTF-32-BE'")
    + each("UnicodeTranscode", f"input={_TEXTS}, input_encoding='UTF-8', output_encoding='UTF-16-BE'",
           f"input={_TEXTS}, input_encoding='UTF-8', output_encoding='UTF-8', errors='ignore'",
           r"input=[b'\xe9a'], input_encoding='ISO-8859-1', output_encoding='UTF-8'")
)  # fmt: skip
