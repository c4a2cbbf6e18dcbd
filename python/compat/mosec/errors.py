"""Errors that workers raise. code decides the status of the response, msg begins its text."""

from mosec.protocol import HTTPStatusCode


class MosecError(Exception):
    """Base of the errors whose text the client gets."""

    code = HTTPStatusCode.INTERNAL_ERROR
    msg = "mosec error"


class ClientError(MosecError):
    """The request is at fault: 400."""

    code = HTTPStatusCode.BAD_REQUEST
    msg = "bad request"


class DecodingError(ClientError):
    """The body of the request could not be decoded: 400."""

    msg = "decoding error"


class ValidationError(MosecError):
    """The decoded data are not what the worker takes: 422."""

    code = HTTPStatusCode.VALIDATION_ERROR
    msg = "request validation error"


class ServerError(MosecError):
    """The worker is at fault, and the client may see the text: 500."""

    code = HTTPStatusCode.INTERNAL_ERROR
    msg = "internal error"


class EncodingError(ServerError):
    """The answer could not be encoded: 500."""

    msg = "encoding error"


class MosecTimeoutError(BaseException):
    """forward took longer than the stage's timeout: 408. It is no Exception, so that a worker's own handlers let it
    pass.
    """

    code = HTTPStatusCode.TIMEOUT_ERROR
    msg = "mosec timeout error"
