"""The Python service of the soak: clients make it fail, hang and end."""

import os
import time


class Words:
    def infer(self, text: str) -> int:
        if text == "raise":
            raise ValueError("asked to")
        if text.startswith("exit"):
            os._exit(3)
        if text == "hang":
            time.sleep(5)
        return len(text.split())
