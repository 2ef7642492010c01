"""Converts text to tokens and back: chat templates, tries of admissible answers, a word-level tokenizer."""

from agentrl.chat.shortening import Tagged, first_tagged, shorten, tagged
from agentrl.chat.template import Chat, template_report
from agentrl.chat.trie import Trie, Tries
from agentrl.chat.word_tokenizer import CHAT_TEMPLATE, ENTITY, build_word_tokenizer, kept_together

__all__ = [
    "CHAT_TEMPLATE",
    "ENTITY",
    "Chat",
    "Tagged",
    "Trie",
    "Tries",
    "build_word_tokenizer",
    "first_tagged",
    "kept_together",
    "shorten",
    "tagged",
    "template_report",
]
