"""A service. Serve it by `millrace serve ./service.py --watch`, and put your model in the place of the counting."""

from dataclasses import dataclass
from typing import Dict


@dataclass
class Answer:
    """What infer answers with, as JSON."""

    words: int
    most: str
    counts: Dict[str, int]


class Service:
    """Counts the words of a text."""

    def setup(self) -> None:
        """Is called once in each worker, before its first request: load the model here."""
        self.strip = ".,;:!?\"'()"

    def infer(self, text: str, ignore_case: bool = True) -> Answer:
        """Answers POST /infer with the counts of a text's words.

        The types say what a request may have: one without text, or with a number in its place, is answered with
        status 422, which names the field. An exception fails its request only.
        """
        counts: Dict[str, int] = {}
        for word in (text.lower() if ignore_case else text).split():
            word = word.strip(self.strip)
            if word:
                counts[word] = counts.get(word, 0) + 1
        most = max(counts, key=lambda word: counts[word]) if counts else ""
        return Answer(words=sum(counts.values()), most=most, counts=counts)
