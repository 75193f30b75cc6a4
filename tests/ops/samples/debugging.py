"""Samples of the ops in tfmini/ops/debugging."""

SAMPLES = r"""
Print(input=f32(2), data=[i32(5), 'text'], message='seen: ', first_n=2, summarize=3)
PrintV2(input='printed', output_stream='log(info)')
PrintV2(input='printed', output_stream='stderr', end='')
StringFormat(inputs=[f32(2, 3), i32(5), 'text'], template='a %s b %s c %s', summarize=2)
StringFormat(inputs=[f64(2), b1(2)], template='{} {}', placeholder='{}', summarize=-1)
StringFormat(inputs=[f32([1e-7, 1e10, 0.1, nan]), i64(2, 2, 2)], template='%s%s', summarize=4)
Assert(condition=True, data=['fine', f32(2)])
"""
