"""The version whose interfaces the stand-in has."""

VERSION = "1.2.0"
ID = "simple-server-framework"
NAME = "Simple Server Framework"
MINIMUM_SUPPORTED_VERSION = "0.0.1"
MAXIMUM_SUPPORTED_VERSION = "1.2.0"
