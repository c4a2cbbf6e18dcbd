#!/bin/bash
# Runs the tests of Simple Server Framework against millrace ssf: ssf-suite.sh CLONE [NAME...]
# CLONE is a clone of the framework's repository, whose files stay as they are; NAME is a file of tests without test_
# and .py. MILLRACE is the program (default: millrace in PATH), PYTHON an interpreter with pytest, requests, regex and
# grpcio (default: /usr/bin/python3). The tests use the ports 8183, 8200 and 8201. Tests of errors ask public addresses;
# sdk and venv download files, and run only when named.
#
# Without packages of PyPI, 115 of 155 tests pass. The others need:
#   errors: Paperspace* (8): Paperspace; PublishDockerBogusLogin (2): Docker Hub as default registry;
#     DeployGcoreBogusPackage (2): the boot script
#   errors, bash_cli: PackageSkipBuild, cli_build* (4): generated FastAPI files
#   cors: NoCors, CorsDefault, CorsCustom (2): unlisted origins, --cors-*
#   app_builder, cwd, test, simple_grpc: ImplicitBuildAndTest, Config*Builder (2), *_cwd (2), test_test, test_grpc* (2):
#     PyPI, Docker
#   venv, sdk: all but zero_dependencies: PyPI, IPU SDK
#   package, parse_config, python_cli: all: the original's code
set -euo pipefail
clone=$(cd "$1" && pwd)
shift
MILLRACE=$(command -v "${MILLRACE:-millrace}")
export MILLRACE
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/bin"
cp -r "$clone" "$work/clone"
# The user and the origins, which gc-ssf has by default, are named here.
cat > "$work/bin/gc-ssf" <<'S'
#!/bin/sh
case " $* " in *" --enable-session-authentication "*) export MILLRACE_AUTH_MODULE="$PWD/ssf/default_authentication.py" ;; esac
case " $* " in *" --enable-cors-middleware "*) export MILLRACE_ORIGINS=http://localhost,http://127.0.0.1 ;; esac
exec "$MILLRACE" ssf "$@"
S
chmod +x "$work/bin/gc-ssf"
cd "$work/clone"
[ $# -gt 0 ] || set -- app_builder bash_cli cors cwd errors health input_examples modify_config package parse_config \
  prometheus python_cli session_authentication simple_grpc test utils
export PATH="$work/bin:/usr/bin:$PATH" PYTHONPATH="$work/clone"
for name; do
  "${PYTHON:-/usr/bin/python3}" -m pytest "tests/test_$name.py" -m "fast and not ipu" -q -rfE -p no:cacheprovider \
    > "$work/log" 2>&1 || true
  grep -E '^(FAILED|ERROR) ' "$work/log" || true
  echo "$name: $(tail -1 "$work/log")"
done
