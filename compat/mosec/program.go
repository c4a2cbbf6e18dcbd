package mosec

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"millrace/config"
	"millrace/python"
	"millrace/stream"
	"millrace/workers"
)

// importLine is the line by which a program uses mosec.
var importLine = regexp.MustCompile(`(?m)^[ \t]*(from|import)[ \t]+mosec\b`)

// isProgram reports whether a source is a program that was written for mosec.
func isProgram(source string) bool {
	if filepath.Ext(source) != ".py" {
		return false
	}
	text, err := os.ReadFile(source)
	return err == nil && importLine.Match(text)
}

// option returns an option of such a program: from its arguments, or else from the
// variable MOSEC_NAME.
func option(args []string, name string) (value string) {
	value = os.Getenv("MOSEC_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_")))
	for i, a := range args {
		if v, ok := strings.CutPrefix(a, "--"+name+"="); ok {
			value = v
		} else if a == "--"+name && i+1 < len(args) {
			value = args[i+1]
		}
	}
	return value
}

// address returns where the arguments of such a program want the server to listen, if
// they do.
func address(args []string) string {
	host, port := option(args, "address"), option(args, "port")
	if host == "" && port == "" {
		return ""
	}
	if host == "" {
		host = "127.0.0.1"
	}
	if port == "" {
		port = "8000"
	}
	return net.JoinHostPort(host, port)
}

// logLevel returns which lines of such a program, and of the server, its arguments want in
// the log; "" is the server's default.
func logLevel(args []string) string {
	level := option(args, "log-level")
	switch {
	case slices.Contains(args, "--debug") || os.Getenv("MOSEC_DEBUG") != "":
		return "debug"
	case level == "warning":
		return "warn"
	case level == "debug" || level == "error":
		return level
	}
	return "" // also for values that the program refuses
}

// configure listens where the program's arguments say, with their level of the log.
func configure(cfg *config.Config, m *workers.Config, args []string) {
	if !isProgram(m.Source) {
		return
	}
	if cfg.HTTP == "" {
		cfg.HTTP = address(args)
	}
	if cfg.Log.Level == "" {
		cfg.Log.Level = logLevel(args)
	}
	if m.Params == nil {
		m.Params = stream.Params{}
	}
	m.Params["style"] = name // so that requests wait until it is loaded
}

// dryRun runs such a program in place of this process if it is asked for a dry run or for
// its help, which need no server.
func dryRun(source string, args []string) error {
	asked := os.Getenv("MOSEC_DRY_RUN") != ""
	for _, a := range args {
		asked = asked || a == "--dry-run" || a == "--help" || a == "-h"
	}
	if !asked || !isProgram(source) {
		return nil
	}
	interpreter, err := exec.LookPath("python3")
	if err != nil {
		return fmt.Errorf("run: python3 was not found: install Python 3.9 or newer (%w)", err)
	}
	dir, err := python.Unpack("")
	if err != nil {
		return err
	}
	path := filepath.Join(dir, python.Compat)
	if before := os.Getenv("PYTHONPATH"); before != "" {
		path += string(os.PathListSeparator) + before
	}
	env := append(config.WithoutSecrets(os.Environ()), "PYTHONPATH="+path, "PYTHONDONTWRITEBYTECODE=1")
	return syscall.Exec(interpreter, append([]string{interpreter, source}, args...), env)
}
