"""The tokeniser of the demo, on a small vocabulary."""
import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples", "demo"))
import wordpiece

PIECES = "[UNK] [CLS] [SEP] the un ##aff ##able ##a una café cafe naive 中 文 ##! ! - $ ` a ##b ##bc b".split()


class WordPiece(unittest.TestCase):
    def setUp(self):
        self.vocabulary = {piece: number for number, piece in enumerate(PIECES)}

    def check(self, text, expected):
        with self.subTest(text=text):
            self.assertEqual(wordpiece.tokenise(text, self.vocabulary), ["[CLS]"] + expected.split() + ["[SEP]"])

    def test_texts(self):
        self.check("", "")
        self.check(" \t\n\u00a0\u3000", "")
        self.check("THE the\tThe", "the the the")
        self.check("theable", "the ##able")
        self.check("unaffable", "[UNK]")  # the longest piece is taken, and there is no way back from una to un ##aff ##able
        self.check("abc", "a ##bc")
        self.check("abb", "a ##b ##b")
        self.check("xyz a", "[UNK] a")
        self.check("Café NAI\u0308VE cafe\u0301", "cafe naive cafe")
        self.check("a!b-the$`", "a ! b - the $ `")
        self.check("a中文b", "a 中 文 b")
        self.check("a\u200b\u0000\ufffdb", "a ##b")
        self.check("a" * 101, "[UNK]")

    def test_word_of_a_hundred_letters(self):
        self.check("b" + "b" * 99, "b" + " ##b" * 99)

    def test_vocabulary(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "vocab.txt")
            with open(path, "w", encoding="utf-8") as file:
                file.write("[PAD]\nthe\n##é\n\u2028\n")
            self.assertEqual(wordpiece.read_vocabulary(path), {"[PAD]": 0, "the": 1, "##é": 2, "\u2028": 3})


unittest.main()
