"""The errors of ``octoai.client``."""


class OctoAIError(Exception):
    """A request that has failed."""


class OctoAIClientError(OctoAIError):
    """The request was refused: status 400 to 499."""


class OctoAIValidationError(OctoAIClientError):
    """The inputs do not fit: status 422, or 400."""


class OctoAIServerError(OctoAIError):
    """The server has failed or cannot be reached: status 500 to 599."""
