"""Stand-in for the module mosec: applications that were written for it run in Millrace.

Server.run() hands the stages and routes to Millrace, which runs each stage in processes of its own. docs/migrating.md
says what differs.
"""

from mosec.errors import ClientError, DecodingError, EncodingError, ServerError, ValidationError
from mosec.log import get_logger
from mosec.runtime import Runtime
from mosec.server import Server
from mosec.worker import SSEWorker, Worker

__all__ = [
    "ClientError",
    "DecodingError",
    "EncodingError",
    "Runtime",
    "SSEWorker",
    "Server",
    "ServerError",
    "ValidationError",
    "Worker",
    "get_logger",
]
