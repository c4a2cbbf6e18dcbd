package build

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"millrace/apps/program"
)

// interpreter is a Python of this machine, no interpreter of an environment.
type interpreter struct {
	Path     string `json:"path"`
	Version  string `json:"version"`  // such as 3.11.2
	Platform string `json:"platform"` // such as linux-x86_64
	Pip      string `json:"pip"`      // version; "" = none
}

// installs reports whether the interpreter's own pip can install into an environment, which then needs no pip.
func (i interpreter) installs() bool {
	var major, minor int
	_, err := fmt.Sscanf(i.Pip, "%d.%d", &major, &minor)
	return err == nil && (major > 22 || major == 22 && minor >= 3)
}

// minor returns the version without the last part, such as 3.11.
func minor(version string) string {
	if i := strings.LastIndex(version, "."); i > 0 {
		return version[:i]
	}
	return version
}

const describe = `import importlib.metadata, json, os, platform, sys, sysconfig
try:
    pip = importlib.metadata.version("pip")
except importlib.metadata.PackageNotFoundError:
    pip = ""
path = getattr(sys, "_base_executable", None) or sys.executable
print(json.dumps({"path": os.path.realpath(path), "version": platform.python_version(),
                  "platform": sysconfig.get_platform(), "pip": pip}))`

// describeLimit is the time in which an interpreter describes itself.
const describeLimit = 30 * time.Second

// findInterpreter asks the interpreter of a name in PATH, or of a path, about itself.
func findInterpreter(ctx context.Context, name string) (interpreter, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return interpreter{}, fmt.Errorf("--python: %s was not found: install Python 3.9 or newer, or name its path",
			name)
	}
	if path, err = filepath.Abs(path); err != nil {
		return interpreter{}, err
	}
	p := &program.Program{Args: []string{path, "-I", "-c", describe}, Dir: "/", Limit: describeLimit,
		LimitName: "--python"}
	out, err := p.Run(ctx)
	if err != nil {
		return interpreter{}, fmt.Errorf("--python: %w", err)
	}
	var i interpreter
	if err := json.Unmarshal([]byte(out), &i); err != nil {
		return interpreter{}, fmt.Errorf("--python: %s is no Python interpreter", path)
	}
	return i, nil
}

// tool installs packages.
type tool struct {
	name string // pip or uv
	path string // of uv
	text string // name and version, for the key; of pip without the version, which interpreter has
}

// Tools are the values of Options.Tool.
var Tools = []string{"auto", "pip", "uv"}

// findTool returns the tool of a name of Tools. uv looks for packages in the environment alone, and would install
// packages that the system has.
func findTool(ctx context.Context, name string, systemSite bool) (tool, error) {
	pip := tool{name: "pip", text: "pip"}
	switch {
	case name == "uv" && systemSite:
		return tool{}, errors.New("--installer: uv does not see the packages of --system-site-packages: take pip")
	case name == "pip", systemSite:
		return pip, nil
	}
	path, err := exec.LookPath("uv")
	switch {
	case err != nil && name == "uv":
		return tool{}, fmt.Errorf("--installer: PATH has no uv: install uv, or take pip")
	case err != nil:
		return pip, nil
	}
	p := &program.Program{Args: []string{path, "--version"}, Dir: "/", Limit: describeLimit, LimitName: "--installer"}
	out, err := p.Run(ctx)
	if err != nil {
		return tool{}, fmt.Errorf("--installer: %w", err)
	}
	return tool{name: "uv", path: path, text: strings.TrimSpace(out)}, nil
}

// dependencies prints the dependencies of a pyproject.toml as a requirements file.
const dependencies = `import re, sys
try:
    import tomllib
except ImportError:
    try:
        from pip._vendor import tomli as tomllib
    except ImportError:
        sys.exit("reading the file needs Python 3.11 or pip: write the packages into requirements.txt")
with open(sys.argv[1], "rb") as f:
    whole = tomllib.load(f)
p = whole.get("project") or {}
if "dependencies" in p.get("dynamic", []):
    sys.exit("project.dependencies is dynamic: write the packages into requirements.txt")
normal = lambda name: re.sub(r"[-_.]+", "-", name).lower()
sources = {normal(s) for s in ((whole.get("tool") or {}).get("uv") or {}).get("sources") or {}}
for d in p.get("dependencies") or []:
    name = re.match(r"\s*([\w.-]*)", d).group(1)
    if normal(name) in sources and "@" not in d: # an index may have another package with this name
        sys.exit(f"tool.uv.sources is not read: write the address of {name} into project.dependencies, as NAME @ URL")
    print(d)`
