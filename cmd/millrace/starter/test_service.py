"""Tests of the service, without a server: `python3 -m unittest`."""

import unittest

from service import Service


class ServiceTest(unittest.TestCase):
    """Tests infer."""

    def setUp(self) -> None:
        self.service = Service()
        self.service.setup()

    def test_counts(self) -> None:
        answer = self.service.infer("To be, or not to be?")
        self.assertEqual(answer.words, 6)
        self.assertEqual(answer.counts["be"], 2)
        self.assertEqual(answer.most, "to")

    def test_case(self) -> None:
        self.assertEqual(self.service.infer("To to", ignore_case=False).counts, {"To": 1, "to": 1})

    def test_empty(self) -> None:
        self.assertEqual(self.service.infer("").words, 0)


if __name__ == "__main__":
    unittest.main()
