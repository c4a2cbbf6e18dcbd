"""Words of texts, counted in three stages: an application in the form of mosec.

    millrace run words.py -- --port 8000
    curl http://127.0.0.1:8000/inference -d '{"text": "to be or not to be"}'
    curl http://127.0.0.1:8000/long -d '{"text": "to be or not to be"}'
    curl -N http://127.0.0.1:8000/spell -d '{"text": "to be"}'
"""

import os
import subprocess
import sys
import time
from typing import List

from mosec import Runtime, Server, SSEWorker, ValidationError, Worker, get_logger

logger = get_logger()


class Split(Worker):
    """Splits texts into words."""

    example = {"text": "to be"}

    def forward(self, data: dict) -> List[str]:
        try:
            return data["text"].split()
        except (KeyError, TypeError) as err:
            raise ValidationError(f"text is needed: {err}") from err


class Count(Worker):
    """Counts words, for several texts at once."""

    def forward(self, data: List[List[str]]) -> List[dict]:
        for words in data:
            if words == ["wait"]:
                time.sleep(30)
            if words == ["crash"]:
                os._exit(9)
            if words == ["divide"]:
                raise ZeroDivisionError("by nothing")
        logger.info("a batch of %d", len(data))
        return [{w: words.count(w) for w in words} for words in data]


class Long(Worker):
    """Leaves short words out."""

    resp_mime_type = "application/vnd.words+json"

    def forward(self, data: dict) -> dict:
        return {
            "words": {w: n for w, n in data.items() if len(w) > int(os.environ["LONGER_THAN"])},
            "worker": self.worker_id,
        }


class Spell(SSEWorker):
    """Sends the letters of words as events."""

    def forward(self, data: List[List[str]]) -> List[None]:
        for i, words in enumerate(data):
            for word in words:
                self.send_stream_event("-".join(word), index=i)
            if "stop" in words:
                raise ValidationError("stop is no word")
        return [None] * len(data)


if __name__ == "__main__":
    keeper = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    server = Server()
    server.register_daemon("keeper", keeper)
    split, count = Runtime(Split), Runtime(Count, num=2, max_batch_size=8, max_wait_time=20, timeout=1.0)
    long = Runtime(Long, num=2, env=[{"LONGER_THAN": "2"}, {"LONGER_THAN": "2"}])
    server.register_runtime(
        {
            "/inference": [split, count],
            "/long": [split, count, long],
            "/spell": [split, Runtime(Spell, max_batch_size=2)],
        }
    )
    logger.info("the keeper is %d", keeper.pid)
    server.run()
