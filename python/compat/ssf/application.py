"""The name that older applications import the interfaces by."""

from ssf.application_interface.application import *  # noqa: F401,F403
