"""A language model that learns from a text which word follows which word. The text is this file."""

import random
import re
import time
from dataclasses import dataclass
from typing import List

import millrace


@dataclass
class Message:
    role: str
    content: str


class Tokens:
    """Completes a chat with words of the text."""

    def setup(self, parameters):
        self.most = int(parameters.get("most", 4096))  # tokens of an answer
        with open(parameters.get("text", __file__), encoding="utf-8") as file:
            words = re.findall("[A-Za-z]+", file.read())
        self.next = {}
        for word, following in zip(words, words[1:]):
            self.next.setdefault(word, []).append(following)
        # A model of llama-cpp-python: self.model = llama_cpp.Llama("model.gguf")

    def tokens(self, prompt, count, seed):
        """Yields tokens one after another."""
        # With llama-cpp-python, instead of the lines below:
        # for part in self.model(prompt, max_tokens=count, seed=seed, stream=True):
        #     yield part["choices"][0]["text"]
        numbers = random.Random(seed)
        known = [word for word in prompt.split() if word in self.next]
        word = known[-1] if known else "A"
        for _ in range(count):
            following = self.next.get(word) or ["A"]
            word = following[int(numbers.random() * len(following))]
            time.sleep(0.01)  # the time that a larger model computes
            yield word + " "

    @millrace.endpoint("/v1/chat/completions", openai=True)
    def complete(
        self, messages: List[Message], stream: bool = False, max_tokens: int = 16, seed: int = 0, model: str = ""
    ):
        """Answers a chat in the form of OpenAI's API."""
        prompt = " ".join(message.content for message in messages)
        tokens = self.tokens(prompt, min(max_tokens, self.most), seed)
        if not stream:
            message = {"role": "assistant", "content": "".join(tokens)}
            yield {"object": "chat.completion", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
            return
        try:
            for token in tokens:
                yield {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": token}}]}
        except GeneratorExit:  # raised at the yield when the client leaves
            print("the client left")
            raise
