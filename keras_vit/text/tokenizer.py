"""Texts to ids of tokens, cleaned as by the model's authors."""

import html
import json
import pathlib
import re
import string
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from keras_vit.io.checks import check_installed

__all__ = ["MAX_TEXT", "Tokenizer"]

MAX_TEXT = 10**6  # letters, of which a context holds a fraction
PUNCTUATION = str.maketrans("", "", string.punctuation)
# CLIP's words, of which each is a token or several; "</w>" ends one.
WORDS = (
    r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+"
    r"|[\p{N}]|[^\s\p{L}\p{N}]+"
)
BEGIN, END = "<|startoftext|>", "<|endoftext|>"


def _lower(text):
    """Lower-case each letter alone: sigma has no form of its own at the end."""
    return "".join(map(str.lower, text))


def _repaired(text):
    """Repair broken encodings and entities, as open_clip does."""
    check_installed("The tokenizer of this model", "ftfy")
    import ftfy

    text = html.unescape(html.unescape(ftfy.fix_text(text)))
    return " ".join(text.split())


def _canonical(text):
    """Lower-case without punctuation ("Sigmoid Loss", arXiv:2303.15343)."""
    text = text.lower().translate(PUNCTUATION)
    return re.sub(r"\s+", " ", text).strip()


CLEANING = {
    "repaired": _repaired,
    "lower": str.lower,
    "blank_underscores": lambda text: text.replace("_", " "),
    # Of sentencepiece, for a blank; transformers takes a text's own as one.
    "blank_lower_blocks": lambda text: text.replace(
        "\N{LOWER ONE EIGHTH BLOCK}", " "
    ),
    "canonical": _canonical,
}


class Tokenizer:
    """The tokenizer of a text tower, made of the files beside its weights.

    Files of Hugging Face's tokenizers and of sentencepiece are read by these
    libraries (`pip install "keras-vision-transformer[text]"`).

    Args:
        rule: dict: "files", names of files; "cleaning", the steps before, of
            `CLEANING`; "padding", an id or a token; and what the files do not
            say: "end", an id that follows each text; "marks", dict from tokens
            to ids that a text may hold as such; "lowercase", whether all but
            these is lower-cased; "renamed", dict from the files' names of
            tokens to others.
        contents: dict from the last parts of these names to bytes.

    Example:

    >>> tokenizer = Tokenizer.of_files({"files": ("clip/tokenizer.json",),
    ...     "cleaning": (), "padding": "<|endoftext|>"})
    >>> tokenizer(["a photo of a cat"], 77).shape
    (1, 77)
    """

    def __init__(self, rule: dict[str, Any], contents: dict[str, bytes]):
        unknown = [x for x in rule["cleaning"] if x not in CLEANING]
        if unknown:
            raise ValueError(
                f"Cleaning is by {', '.join(CLEANING)}. Received: {unknown}."
            )
        names = [pathlib.PurePath(x).name for x in rule["files"]]
        self.rule = {**rule, "files": names, "cleaning": [*rule["cleaning"]]}
        self.contents = contents
        self._made = None

    @classmethod
    def of_files(cls, rule: dict[str, Any]) -> "Tokenizer":
        """Read the files of a rule.

        Args:
            rule: see `Tokenizer`, its files by their paths.

        Raises:
            OSError: when one cannot be read.
        """
        paths = map(pathlib.Path, rule["files"])
        return cls(rule, {x.name: x.read_bytes() for x in paths})

    def save(self, folder: Any) -> None:
        """Write the files into a folder, which is made."""
        folder = pathlib.Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in self.contents.items():
            (folder / name).write_bytes(content)

    def read(self, folder: str) -> "Tokenizer":
        """Return the tokenizer of the same rule, of the files in a folder."""
        names = self.rule["files"]
        files = tuple(str(pathlib.Path(folder) / x) for x in names)
        return type(self).of_files({**self.rule, "files": files})

    def __call__(self, texts: str | Sequence[str], length: int) -> np.ndarray:
        """Return ids (T, length) of texts, cut or padded.

        Args:
            texts: one or several.
            length: int, the context length of the tower.

        Raises:
            ValueError: for no text, something else than texts, and a file that
                is no tokenizer's.
        """
        texts = [texts] if isinstance(texts, str) else list(texts)
        wrong = [x for x in texts if not isinstance(x, str)]
        if wrong or not texts:
            raise ValueError(
                "A tokenizer takes a text or several. Received: "
                f"{wrong[0] if wrong else texts!r}."
            )
        rows = np.full((len(texts), length), self._model().padding, "int64")
        for row, ids in zip(rows, self.ids(texts, length), strict=True):
            row[: len(ids)] = ids
        return rows

    def ids(
        self, texts: Iterable[str], length: int | None = None
    ) -> list[list[int]]:
        """Return the ids of texts without padding.

        Args:
            texts: any number.
            length: int, most ids of a text; None for all.
        """
        model = self._model()
        return [model.ids(self._parts(x), length) for x in texts]

    def _parts(self, text):
        """Return a text, cleaned, in parts between the ids of its marks."""
        if len(text) > MAX_TEXT:
            raise ValueError(
                f"A text has at most {MAX_TEXT:,} letters. Received: "
                f"{len(text):,}, {text[:40]!r} ... Cut it."
            )
        marks = self.rule.get("marks")
        if not marks:
            return [self._cleaned(text)]
        parts = re.split(f"({'|'.join(map(re.escape, marks))})", text)
        return [marks.get(x, self._cleaned(x)) for x in parts]

    def _cleaned(self, text):
        for step in self.rule["cleaning"]:
            text = CLEANING[step](text)
        return text

    def _model(self):
        if self._made is None:
            kinds = {".json": _of_json, ".model": _of_sentences}
            suffix = pathlib.PurePath(self.rule["files"][0]).suffix
            self._made = kinds[suffix](self.rule, self.contents)
        return self._made


class _Fast:
    """A tokenizer of Hugging Face's library."""

    def __init__(self, tokenizer, padding):
        self.tokenizer = tokenizer
        found = padding
        if isinstance(padding, str):
            found = tokenizer.token_to_id(padding)
        if found is None:
            raise ValueError(
                f"The tokenizer has no token {padding!r}, which pads texts. "
                "Take the files that belong to the weights."
            )
        self.padding = found

    def ids(self, parts, length):
        if length is None:
            self.tokenizer.no_truncation()
        else:
            self.tokenizer.enable_truncation(length)
        return self.tokenizer.encode(*parts).ids


def _of_json(rule, contents):
    check_installed("A tokenizer", "tokenizers")
    import tokenizers

    first, *rest = rule["files"]
    try:
        if rest:
            found = _byte_pairs(contents[first], contents[rest[0]])
        else:
            found = tokenizers.Tokenizer.from_str(contents[first].decode())
        found = _renamed(found, rule.get("renamed", {}))
        found.no_padding()
        if rule.get("lowercase"):
            lower = tokenizers.normalizers.Lowercase()
            steps = [lower, *filter(None, [found.normalizer])]
            found.normalizer = tokenizers.normalizers.Sequence(steps)
    except Exception as error:  # The library raises no class of its own.
        raise ValueError(
            f"{first} is not a tokenizer: {str(error)[:200]}. Fetch it again."
        ) from error
    return _Fast(found, rule["padding"])


def _renamed(tokenizer, names):
    """Return the tokenizer with other names of its marks, in its JSON."""
    text = tokenizer.to_str() if names else ""
    for old, new in names.items():
        in_pattern = old.replace("|", r"\\|")
        text = text.replace(old, new).replace(in_pattern, new)
    return type(tokenizer).from_str(text) if names else tokenizer


def _byte_pairs(vocabulary, merges):
    """Make CLIP's tokenizer of the two files of older folders."""
    from tokenizers import (
        Regex,
        Tokenizer,
        models,
        normalizers,
        pre_tokenizers,
        processors,
    )

    ids = json.loads(vocabulary)
    lines = merges.decode().splitlines()
    pairs = [tuple(x.split()) for x in lines if not x.startswith("#version")]
    found = Tokenizer(
        models.BPE(
            ids,
            [x for x in pairs if x],
            unk_token=END,
            end_of_word_suffix="</w>",
            continuing_subword_prefix="",
        )
    )
    found.normalizer = normalizers.Sequence(
        [
            normalizers.NFC(),
            normalizers.Replace(Regex(r"\s+"), " "),
            normalizers.Lowercase(),
        ]
    )
    found.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(WORDS), "removed", invert=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    found.add_special_tokens([BEGIN, END])
    found.post_processor = processors.RobertaProcessing(
        (END, ids[END]), (BEGIN, ids[BEGIN]), False, False
    )
    return found


class _Sentences:
    """A tokenizer of sentencepiece."""

    def __init__(self, model, rule):
        self.model = model
        self.rule = rule
        self.padding = rule["padding"]

    def ids(self, parts, length):
        found = []
        for i, part in enumerate(parts):
            found += [part] if isinstance(part, int) else self._of(part, i > 0)
        end = self.rule.get("end")
        if end is None:
            return found[:length]
        found = found[:-1] if found[-1:] == [end] else found
        return [*(found if length is None else found[: length - 1]), end]

    def _of(self, text, follows):
        if self.rule.get("lowercase"):
            text = _lower(text)
        if not follows:
            return self.model.encode(text)
        # What follows a mark has no blank in front, which the library adds.
        unknown = "<unk>"
        before = len(self.model.encode(unknown))
        return self.model.encode(unknown + text)[before:]


def _of_sentences(rule, contents):
    check_installed("A tokenizer", "sentencepiece")
    import sentencepiece

    name = rule["files"][0]
    try:
        model = sentencepiece.SentencePieceProcessor(model_proto=contents[name])
    except RuntimeError as error:
        raise ValueError(
            f"{name} is not a tokenizer: {str(error)[:200]}. Fetch it again."
        ) from error
    return _Sentences(model, rule)
