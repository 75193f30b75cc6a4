"""Mode keys and the preprocessing of texts."""

from __future__ import annotations

from pathlib import Path

import pytest

import tfmini as tf

preprocessing = tf.contrib.learn.preprocessing


def test_mode_keys() -> None:
    assert tf.contrib.learn.ModeKeys.INFER == "infer"


def test_texts_become_rows_of_numbers(tmp_path: Path) -> None:
    texts = ["I like it", "it rains, I don't"]
    processor = preprocessing.VocabularyProcessor(4)
    assert [row.tolist() for row in processor.fit_transform(texts)] == [[1, 2, 3, 0], [3, 4, 1, 5]]
    assert len(processor.vocabulary_) == 6 and next(processor.reverse([[1, 2]])) == "I like"
    path = str(tmp_path / "words")
    processor.save(path)
    restored = preprocessing.VocabularyProcessor.restore(path)
    assert next(restored.transform(["it is rains"])).tolist() == [3, 0, 4, 0]
    (tmp_path / "pickled").write_bytes(b"\x80\x03ctensorflow")
    with pytest.raises(ValueError, match="not written by tfmini"):
        preprocessing.VocabularyProcessor.restore(str(tmp_path / "pickled"))


def test_rare_words_are_dropped() -> None:
    processor = preprocessing.VocabularyProcessor(3, min_frequency=1)
    assert [row.tolist() for row in processor.fit_transform(["a b a", "b a c"])] == [[1, 2, 1], [2, 1, 0]]


def test_bytes_of_texts() -> None:
    processor = preprocessing.ByteProcessor(3)
    assert [row.tolist() for row in processor.transform(["ab", "abcd"])] == [[97, 98, 0], [97, 98, 99]]
    texts = ["ab", "a0", "é", "aaé", "\\0"]
    assert list(processor.reverse(processor.transform(texts))) == ["ab", "a0", "é", "", "\\0"]
