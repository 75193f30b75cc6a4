"""``tf.contrib.learn``'s mode keys and text preprocessing."""

from __future__ import annotations

import collections
import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from tfmini import errors
from tfmini.compat.file_object import GFile
from tfmini.export import export

_WORD = re.compile(r"[A-Z]{2,}(?![a-z])|[A-Z][a-z]+(?=[A-Z])|[\'\w\-]+")


@export("tf.contrib.learn.ModeKeys")
class LearnModeKeys:
    """The names of the modes (``tf.contrib.learn.ModeKeys``)."""

    TRAIN, EVAL, INFER = "train", "eval", "infer"

    @classmethod
    def validate(cls, key: str) -> None:
        """Raises ValueError for another mode."""
        if key not in (cls.TRAIN, cls.EVAL, cls.INFER):
            raise ValueError(f"Invalid mode {key}.")


@export("tf.contrib.learn.preprocessing.tokenizer")
def tokenizer(iterator: Iterable[str]) -> Iterator[list[str]]:
    """The words of each text."""
    for text in iterator:
        yield _WORD.findall(text)


@export("tf.contrib.learn.preprocessing.CategoricalVocabulary")
class CategoricalVocabulary:
    """Numbers for categories; 0 stands for unknown ones (``contrib.learn.preprocessing.CategoricalVocabulary``).

    Args:
      unknown_token: the name of unknown categories.
      support_reverse: keep the categories in order, for `reverse`.
    """

    def __init__(self, unknown_token: str = "<UNK>", support_reverse: bool = True) -> None:
        self._unknown_token = unknown_token
        self._mapping = {unknown_token: 0}
        self._freq: collections.Counter[str] = collections.Counter()
        self._reverse_mapping = [unknown_token] if support_reverse else []
        self._support_reverse = support_reverse
        self._frozen = False

    def __len__(self) -> int:
        return len(self._mapping)

    def freeze(self, freeze: bool = True) -> None:
        """Gives unknown categories no number from now on, or again."""
        self._frozen = freeze

    def get(self, category: str) -> int:
        """The number of a category: a new one, unless the vocabulary is frozen."""
        if category not in self._mapping:
            if self._frozen:
                return 0
            self._mapping[category] = len(self._mapping)
            if self._support_reverse:
                self._reverse_mapping.append(category)
        return self._mapping[category]

    def add(self, category: str, count: int = 1) -> None:
        """Counts a category."""
        if self.get(category) > 0:
            self._freq[category] += count

    def trim(self, min_frequency: int, max_frequency: int = -1) -> None:
        """Keeps the categories that are more frequent than ``min_frequency``, the most frequent first."""
        kept = sorted(sorted(self._freq.items()), key=lambda item: item[1], reverse=True)
        kept = [(c, n) for c, n in kept if n > min_frequency and (max_frequency <= 0 or n < max_frequency)]
        names = [self._unknown_token, *(category for category, _ in kept)]
        self._mapping = {category: number for number, category in enumerate(names)}
        self._freq = collections.Counter(dict(kept))
        self._reverse_mapping = names if self._support_reverse else []

    def reverse(self, class_id: int) -> str:
        """The category of a number; raises ValueError without ``support_reverse``."""
        if not self._support_reverse:
            raise ValueError("This vocabulary wasn't initialized with support_reverse to support reverse() function.")
        return self._reverse_mapping[class_id]


@export("tf.contrib.learn.preprocessing.VocabularyProcessor")
class VocabularyProcessor:
    """Texts as rows of the numbers of their words (``contrib.learn.preprocessing.VocabularyProcessor``).

    Args:
      max_document_length: the length of a row; longer texts are cut, shorter ones padded with 0.
      min_frequency: words that are not more frequent are dropped after `fit`.
      vocabulary: a `CategoricalVocabulary`; default: an empty one.
      tokenizer_fn: from texts to lists of words; default: `tokenizer`.
    """

    def __init__(
        self, max_document_length: int, min_frequency: int = 0, vocabulary: CategoricalVocabulary | None = None,
        tokenizer_fn: Callable[..., Any] | None = None,
    ) -> None:  # fmt: skip
        self.max_document_length, self.min_frequency = max_document_length, min_frequency
        self.vocabulary_ = vocabulary if vocabulary is not None else CategoricalVocabulary()
        self._tokenizer = tokenizer_fn or tokenizer

    def fit(self, raw_documents: Iterable[str], unused_y: object = None) -> VocabularyProcessor:
        """Learns the words of the texts."""
        for words in self._tokenizer(raw_documents):
            for word in words:
                self.vocabulary_.add(word)
        if self.min_frequency > 0:
            self.vocabulary_.trim(self.min_frequency)
        self.vocabulary_.freeze()
        return self

    def fit_transform(self, raw_documents: Any, unused_y: object = None) -> Iterator[np.ndarray]:
        """`fit`, then `transform`."""
        self.fit(raw_documents)
        return self.transform(raw_documents)

    def transform(self, raw_documents: Iterable[str]) -> Iterator[np.ndarray]:
        """The int64 row of each text."""
        for words in self._tokenizer(raw_documents):
            row = np.zeros(self.max_document_length, np.int64)
            numbers = [self.vocabulary_.get(word) for word in words[: self.max_document_length]]
            row[: len(numbers)] = numbers
            yield row

    def reverse(self, documents: Iterable[Iterable[int]]) -> Iterator[str]:
        """The text of each row."""
        for row in documents:
            yield " ".join(self.vocabulary_.reverse(int(number)) for number in row)

    def save(self, filename: str) -> None:
        """Writes the settings and the vocabulary as JSON; TensorFlow pickles them."""
        words = self.vocabulary_
        state = [self.max_document_length, self.min_frequency, list(words._mapping), dict(words._freq)]
        with GFile(filename, "w") as file:
            file.write(json.dumps(state))

    @classmethod
    def restore(cls, filename: str) -> VocabularyProcessor:
        """Reads what `save` has written; raises ValueError for a file of TensorFlow, which would run code."""
        what = f"{filename} was not written by tfmini's VocabularyProcessor.save"
        with errors.reading(what, ValueError, also_own=True):
            with GFile(filename, "r") as file:
                length, least, names, counts = json.loads(file.read())
            made = cls(length, least)
            made.vocabulary_._mapping = {name: number for number, name in enumerate(names)}
            made.vocabulary_._reverse_mapping, made.vocabulary_._freq = names, collections.Counter(counts)
        made.vocabulary_.freeze()
        return made


@export("tf.contrib.learn.preprocessing.ByteProcessor")
class ByteProcessor:
    """Texts as rows of their bytes (``contrib.learn.preprocessing.ByteProcessor``).

    Args:
      max_document_length: the length of a row.
    """

    def __init__(self, max_document_length: int) -> None:
        self.max_document_length = max_document_length

    def fit(self, x: object) -> ByteProcessor:
        """Does nothing."""
        return self

    def fit_transform(self, x: Iterable[Any]) -> Iterator[np.ndarray]:
        """`transform`."""
        return self.transform(x)

    def transform(self, x: Iterable[Any]) -> Iterator[np.ndarray]:
        """The uint8 row of each text."""
        for text in x:
            data = text if isinstance(text, bytes) else str(text).encode()
            row = np.zeros(self.max_document_length, np.uint8)
            cut = np.frombuffer(data[: self.max_document_length], np.uint8)
            row[: len(cut)] = cut
            yield row

    def reverse(self, x: Iterable[Any]) -> Iterator[str]:
        """The text of each row, without the zeros at its end; "" for bytes that are no UTF-8."""
        for row in x:
            try:
                yield bytes(bytearray(row)).rstrip(b"\0").decode()
            except UnicodeDecodeError:  # a character was cut in two
                yield ""
