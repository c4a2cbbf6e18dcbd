package octoai

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/pflag"

	"millrace/compat/style"
	"millrace/python"
)

var command = style.Command{
	Use:   "octoai [OPTION...] COMMAND",
	Short: "Serve a service written for OctoAI, or describe the service",
	Long: `Serve a service written for OctoAI, or describe the service, with the options of OctoAI's own server: this is python3 -m octoai.server, of the python3 in
PATH. The commands are run, api-schema, generate-usage-examples, setup-service and store-assets; octoai --help and octoai COMMAND --help list their options.
docs/migrating.md has the differences.`,
	Example: `  millrace octoai run --port 8080
  millrace octoai --service-module package.service --service-class Mine run
  millrace octoai api-schema --output-file openapi.json
  millrace octoai generate-usage-examples --format curl
  millrace octoai store-assets --check-is-needed`,
	Begin: func(*pflag.FlagSet) func(*style.Call) error { return run },
}

// run replaces this process by octoai.server.
func run(c *style.Call) error {
	interpreter, err := exec.LookPath("python3")
	if err != nil {
		return fmt.Errorf("octoai: python3 was not found: install Python 3.9 or newer (%w)", err)
	}
	if interpreter, err = filepath.Abs(interpreter); err != nil {
		return err
	}
	dir, err := python.Unpack("")
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	paths := []string{filepath.Join(dir, python.Compat), dir}
	if before := os.Getenv("PYTHONPATH"); before != "" {
		paths = append(paths, before)
	}
	for name, value := range map[string]string{
		"PYTHONPATH": strings.Join(paths, string(os.PathListSeparator)), "MILLRACE_COMMAND": self,
		"PYTHONDONTWRITEBYTECODE": "1",
	} {
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	return syscall.Exec(interpreter, append([]string{interpreter, "-m", "octoai.server"}, c.Args...), os.Environ())
}
