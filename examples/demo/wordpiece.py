# SPDX-License-Identifier: MIT
"""BERT's tokeniser for uncased models: lower case without accents, split at spaces and punctuation, then the longest pieces of the vocabulary."""
import unicodedata

LONGEST_WORD = 100  # BERT's; a longer one is unknown

# the ideographs that BERT takes as words of their own
IDEOGRAPHS = ((0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x2A6DF), (0x2A700, 0x2CEAF), (0x2F800, 0x2FA1F))


def read_vocabulary(path):
    """{piece: id}"""
    with open(path, encoding="utf-8") as file:
        return {line.rstrip("\n"): number for number, line in enumerate(file)}


def stands_alone(character):
    category = unicodedata.category(character)
    # BERT takes all of ASCII's signs for punctuation; for Unicode $, +, <, =, >, ^, `, | and ~ are symbols
    ascii_sign = character.isascii() and character.isprintable() and not character.isalnum() and character != " "
    return ascii_sign or category.startswith("P") or any(first <= ord(character) <= last for first, last in IDEOGRAPHS)


def split(text):
    """The words and signs of a text."""
    spaced = []
    for character in unicodedata.normalize("NFD", text.lower()):
        category = unicodedata.category(character)
        if character.isspace():
            spaced.append(" ")
        elif category == "Mn" or category.startswith("C") or character == "\ufffd":
            continue  # accents, and what cannot be seen
        elif stands_alone(character):
            spaced.append(f" {character} ")
        else:
            spaced.append(character)
    return "".join(spaced).split()


def pieces(word, vocabulary):
    """The word as the longest pieces from left to right; all but the first have ## before them."""
    found, start = [], 0
    while start < len(word) <= LONGEST_WORD:
        for end in range(len(word), start, -1):
            piece = ("##" if start else "") + word[start:end]
            if piece in vocabulary:
                found.append(piece)
                start = end
                break
        else:
            return ["[UNK]"]
    return found or ["[UNK]"]


def tokenise(text, vocabulary):
    """The pieces of a text between [CLS] and [SEP]."""
    return ["[CLS]"] + [piece for word in split(text) for piece in pieces(word, vocabulary)] + ["[SEP]"]
