"""Helpers of applications and their tests."""

from ssf.application_interface.utils import *  # noqa: F401,F403
