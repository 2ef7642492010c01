"""Byte-level tokenizers with one token per byte, for templates whose published vocabularies cannot be had here."""

from tokenizers import Tokenizer, decoders, models, pre_tokenizers


def byte_letters() -> Tokenizer:
    made = Tokenizer(models.BPE({c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    return made
