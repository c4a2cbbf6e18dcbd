"""The name that older applications import result codes by."""

from ssf.application_interface.results import *  # noqa: F401,F403
