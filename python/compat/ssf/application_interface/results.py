"""Result codes of applications, and the exceptions that carry them."""

import logging

RESULT_OK = 0
RESULT_ARGUMENT_ERROR = 1
RESULT_FAIL = 2
RESULT_INTERNAL_ERROR = 3
RESULT_FRAMEWORK_RESOURCE_ERROR = 4
RESULT_SSH_ERROR = 5
RESULT_DOCKER_BUILD_ERROR = 6
RESULT_DOCKER_SERVER_ERROR = 7
RESULT_DOCKER_STATUS_ERROR = 8
RESULT_NETWORK_ERROR = 9
RESULT_INSTALLATION_ERROR = 10
RESULT_DEPLOYMENT_ERROR = 11
RESULT_NOT_IMPLEMENTED_ERROR = 12
RESULT_GIT_REPO_ERROR = 13
RESULT_APPLICATION_ERROR = 32
RESULT_APPLICATION_TEST_ERROR = 33
RESULT_APPLICATION_CONFIG_ERROR = 34
RESULT_APPLICATION_MODULE_ERROR = 35
RESULT_PACKAGING_ERROR = 36
RESULT_UVICORN_ERROR = 128
RESULT_GRPC_SERVER_ERROR = 152
RESULT_GRPC_SSF_ERROR = 153
RESULT_GRPC_REQUEST_ERROR = 154
RESULT_GRPC_APP_CONFIG_ERROR = 155
RESULT_PAPERSPACE_DEPLOYMENT_ERROR = 176
RESULT_GCORE_DEPLOYMENT_ERROR = 177
RESULT_UNMET_REQUIREMENT = 255

result_strings = {value: name for name, value in globals().copy().items() if name.startswith("RESULT_")}

RESULT_SKIPPED = RESULT_UNMET_REQUIREMENT  # the name that applications of version 1.0 use


def result_to_string(result_code: int) -> str:
    """Returns the name of a result code; KeyError when it is none."""
    return result_strings[result_code]


class SSFException(Exception):
    """An error with a result code. Subclasses differ in the code only."""

    result_code: int = RESULT_INTERNAL_ERROR
    log_with_level = None  # the level at which it is logged without a traceback; None = with one, as an error

    def __init__(self, *args: object) -> None:
        super().__init__(f"{result_to_string(self.result_code)} ({self.result_code})", *args)

    def __str__(self) -> str:
        return ": ".join(str(a) for a in self.args)


def _coded(name: str, code: int, level=None) -> type:
    return type(name, (SSFException,), {"__module__": __name__, "result_code": code, "log_with_level": level})


SSFExceptionInternalError = _coded("SSFExceptionInternalError", RESULT_INTERNAL_ERROR)
SSFExceptionSshError = _coded("SSFExceptionSshError", RESULT_SSH_ERROR)
SSFExceptionDockerBuildError = _coded("SSFExceptionDockerBuildError", RESULT_DOCKER_BUILD_ERROR)
SSFExceptionDockerServerError = _coded("SSFExceptionDockerServerError", RESULT_DOCKER_SERVER_ERROR)
SSFExceptionDockerStatusError = _coded("SSFExceptionDockerStatusError", RESULT_DOCKER_STATUS_ERROR)
SSFExceptionNetworkError = _coded("SSFExceptionNetworkError", RESULT_NETWORK_ERROR)
SSFExceptionInstallationError = _coded("SSFExceptionInstallationError", RESULT_INSTALLATION_ERROR)
SSFExceptionDeploymentError = _coded("SSFExceptionDeploymentError", RESULT_DEPLOYMENT_ERROR)
SSFExceptionNotImplementedError = _coded("SSFExceptionNotImplementedError", RESULT_NOT_IMPLEMENTED_ERROR)
SSFExceptionGitRepoError = _coded("SSFExceptionGitRepoError", RESULT_GIT_REPO_ERROR)
SSFExceptionApplicationError = _coded("SSFExceptionApplicationError", RESULT_APPLICATION_ERROR)
SSFExceptionApplicationConfigError = _coded("SSFExceptionApplicationConfigError", RESULT_APPLICATION_CONFIG_ERROR)
SSFExceptionApplicationModuleError = _coded("SSFExceptionApplicationModuleError", RESULT_APPLICATION_MODULE_ERROR)
SSFExceptionPackagingError = _coded("SSFExceptionPackagingError", RESULT_PACKAGING_ERROR)
SSFExceptionUvicornError = _coded("SSFExceptionUvicornError", RESULT_UVICORN_ERROR)
SSFExceptionGRPCServerError = _coded("SSFExceptionGRPCServerError", RESULT_GRPC_SERVER_ERROR)
SSFExceptionGRPCSSFError = _coded("SSFExceptionGRPCSSFError", RESULT_GRPC_SSF_ERROR)
SSFExceptionGRPCRequestError = _coded("SSFExceptionGRPCRequestError", RESULT_GRPC_REQUEST_ERROR)
SSFExceptionGRPCAppConfigError = _coded("SSFExceptionGRPCAppConfigError", RESULT_GRPC_APP_CONFIG_ERROR)
SSFExceptionPaperspaceDeploymentError = _coded(
    "SSFExceptionPaperspaceDeploymentError", RESULT_PAPERSPACE_DEPLOYMENT_ERROR
)
SSFExceptionGcoreDeploymentError = _coded("SSFExceptionGcoreDeploymentError", RESULT_GCORE_DEPLOYMENT_ERROR)
SSFExceptionArgumentsError = _coded("SSFExceptionArgumentsError", RESULT_ARGUMENT_ERROR, logging.ERROR)
SSFExceptionFrameworkResourceError = _coded(
    "SSFExceptionFrameworkResourceError", RESULT_FRAMEWORK_RESOURCE_ERROR, logging.ERROR
)
SSFExceptionApplicationTestError = _coded(
    "SSFExceptionApplicationTestError", RESULT_APPLICATION_TEST_ERROR, logging.ERROR
)
SSFExceptionUnmetRequirement = _coded("SSFExceptionUnmetRequirement", RESULT_UNMET_REQUIREMENT, logging.WARNING)

__all__ = [n for n in globals() if n.startswith(("RESULT_", "SSFException"))] + ["result_strings", "result_to_string"]
