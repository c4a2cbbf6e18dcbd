"""The configuration of an application, as it gets it: ssf_config.yaml with defaults filled in."""

from argparse import Namespace
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional


@dataclass
class EndpointParam:
    """An input or output of an endpoint."""

    id: Optional[str] = None
    dtype: Optional[str] = None  # such as Integer or ListString
    description: str = " "
    example: Any = None


@dataclass
class PackageDescription:
    """How an image of the application is made. Millrace makes none."""

    name: Optional[str] = None
    tag: Optional[str] = None
    base_image: Optional[str] = None
    docker_run: str = ""
    inclusions: List[str] = field(default_factory=list)
    exclusions: List[str] = field(default_factory=list)
    docker: Dict[str, str] = field(default_factory=dict)


@dataclass
class EndpointDescription:
    """An endpoint: a version of it is a route."""

    index: Optional[int] = None
    file: Optional[str] = None
    id: str = "endpoint"
    version: Any = "1"
    description: str = " "
    custom: Optional[str] = None
    generate: bool = True
    http_param_format: Optional[str] = None  # json, query or None
    inputs: List[EndpointParam] = field(default_factory=list)
    outputs: List[EndpointParam] = field(default_factory=list)


@dataclass
class ApplicationDescription:
    """The application. Folders and files are absolute paths."""

    id: str = "untitled"
    name: str = "untitled API"
    description: str = " "
    version: Any = "1.0"
    license_name: Optional[str] = None
    license_url: Optional[str] = None
    terms_of_service: Optional[str] = None
    dir: Optional[str] = None  # of ssf_config.yaml
    venv_dir: Optional[str] = None
    file: Optional[str] = None  # of the module
    file_dir: Optional[str] = None
    syspaths: List[str] = field(default_factory=list)
    ipus: int = 1
    total_ipus: int = 1
    trace: bool = True
    max_batch_size: int = 1
    package: Optional[PackageDescription] = None
    interface = None
    dependencies: Dict[str, Any] = field(default_factory=dict)
    artifacts: List[str] = field(default_factory=list)
    startup_timeout: int = 600  # seconds


@dataclass
class SSFConfig:
    """All of it. config_dict is the file as it was read, args are the options of the command line."""

    ssf_version: str = "0.0.1"
    config_file: Optional[str] = None
    config_dict: Optional[dict] = None
    endpoints: List[EndpointDescription] = field(default_factory=list)
    application: Optional[ApplicationDescription] = None
    args: Optional[Namespace] = None
    unknown_args: Optional[List[str]] = None
    api: Optional[str] = None
