"""The interfaces that applications implement."""

from abc import ABCMeta, abstractmethod
from typing import Tuple, Union

from ssf.application_interface.config import SSFConfig  # noqa: F401  applications import it from here
from ssf.application_interface.results import *  # noqa: F401,F403
from ssf.application_interface.results import RESULT_OK
from ssf.application_interface.utils import load_module, temporary_cwd  # noqa: F401


class SSFApplicationInterface(metaclass=ABCMeta):
    """An application. One instance is made in each process; its methods run in the folder of its module."""

    @abstractmethod
    def build(self) -> int:
        """Makes what startup needs, by the command build. Returns RESULT_OK or another result code."""

    @abstractmethod
    def startup(self) -> int:
        """Is called once, before requests. Returns RESULT_OK or another result code."""

    @abstractmethod
    def request(self, params: Union[dict, list], meta: Union[dict, list]) -> Union[dict, list]:
        """Answers a request: inputs by name, and endpoint_id, endpoint_version, endpoint_index, replica and perhaps
        user_id. Returns outputs by name. With max_batch_size above 1 all three are lists with an element for each
        request, in the same order."""

    @abstractmethod
    def shutdown(self) -> int:
        """Is called once, after the last request. Returns RESULT_OK or another result code."""

    def watchdog(self) -> int:
        """Is called when there has been no request for a while. Another result than RESULT_OK restarts the process."""
        return RESULT_OK


class SSFApplicationTestInterface(metaclass=ABCMeta):
    """Tests of an application against a running server."""

    @abstractmethod
    def begin(self, session, ipaddr: str) -> int:
        """Is called before the tests, with a session of requests and the server's URL. Returns RESULT_OK."""

    @abstractmethod
    def subtest(self, session, ipaddr: str, index: int) -> Tuple[bool, str, bool]:
        """Runs the test with that index. Returns whether it passed, a description, and whether there are more."""

    @abstractmethod
    def end(self, session, ipaddr: str) -> int:
        """Is called after the tests. Returns RESULT_OK."""
