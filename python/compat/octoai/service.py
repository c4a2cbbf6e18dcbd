"""The class that services written for OctoAI extend."""

import functools
import os
from abc import ABC, abstractmethod
from typing import Any, Callable, Dict

from ._model import Field, Model

DEFAULT_VOLUME_PATH = "/octoai/cache"

STORE_ASSETS_NOT_OVERRIDDEN = "NOT_OVERRIDDEN"
"""An attribute of ``store_assets`` in services that have no ``store_assets`` of their own."""


def volume_path() -> str:
    """Return the folder for assets: the variable ``OCTOAI_VOLUME_PATH``, or ``DEFAULT_VOLUME_PATH``."""
    return os.environ.get("OCTOAI_VOLUME_PATH") or DEFAULT_VOLUME_PATH


VOLUME_ENVIRONMENT: Dict[str, str] = {
    "HUGGINGFACE_HUB_CACHE": os.path.join(volume_path(), "huggingface_hub_cache"),
    "TORCH_HOME": os.path.join(volume_path(), "torch_home"),
}
"""Variables that are set for services with a ``store_assets`` of their own."""


class Service(ABC):
    """Base class of services. Public methods besides those named here become endpoints."""

    def setup(self) -> None:
        """Load what ``infer`` needs. It is called once in each process, before its first request."""

    def store_assets(self) -> None:
        """Download files into ``volume_path()``. It is called by the command ``store-assets``."""

    setattr(store_assets, STORE_ASSETS_NOT_OVERRIDDEN, True)

    def on_server_startup(self) -> None:
        """Is called before ``setup`` when the service is served."""

    def on_server_shutdown(self) -> None:
        """Is called after the last request."""

    @abstractmethod
    def infer(self, **kwargs: Any) -> Any:
        """Return the answer to one request. Arguments and result have type hints."""


class ResponseAnalytics(Model):
    """The times in a reply, in milliseconds."""

    inference_time_ms: float = Field(description="Time that the method has run")
    performance_time_ms: float = Field(description="Time that the request has taken, its wait included")


def path(path: str) -> Callable[[Callable], Callable]:
    """Set the path of the endpoint that a method becomes; without it the path is ``/method-name``."""

    def decorate(method: Callable) -> Callable:
        @functools.wraps(method)
        def call(*args: Any, **kwargs: Any) -> Any:
            return method(*args, **kwargs)

        call.__path__ = path  # type: ignore[attr-defined]
        return call

    return decorate
