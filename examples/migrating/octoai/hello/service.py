"""A service in the form of OctoAI: repeats a text, counts its words, and reads uploaded ones."""

from typing import Dict

from octoai.service import Service, path
from octoai.types import File


class Hello(Service):
    """Repeats texts."""

    def setup(self) -> None:
        """Is called once, before the first request."""
        self.greeting = "Hello"

    def infer(self, prompt: str, times: int = 1) -> str:
        """Greet, as often as wanted."""
        if times > 100:
            raise ValueError("times is more than 100")
        return " ".join([f"{self.greeting}, {prompt}!"] * times)

    def count_words(self, text: str) -> Dict[str, int]:
        """Count the words of a text."""
        words = text.split()
        return {word: words.count(word) for word in words}

    @path("/upload")
    def infer_form_data(self, file: File, title: str) -> str:
        """Return the first line of a file."""
        return f"{title}: {file.file.readline().decode().strip()}"
