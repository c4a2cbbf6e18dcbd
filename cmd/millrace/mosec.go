package main

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
)

// mosecImport matches an import of mosec in a program.
var mosecImport = regexp.MustCompile(`(?m)^[ \t]*(from|import)[ \t]+mosec\b`)

// isMosec reports whether a source is a program written for mosec.
func isMosec(source string) bool {
	if filepath.Ext(source) != ".py" {
		return false
	}
	text, err := os.ReadFile(source)
	return err == nil && mosecImport.Match(text)
}

// mosecOption returns an option of a mosec program: from the arguments, or else from the variable MOSEC_NAME.
func mosecOption(args []string, name string) (value string) {
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

// mosecAddress returns the listening address set by the arguments or variables of a mosec program, or "".
func mosecAddress(args []string) string {
	host, port := mosecOption(args, "address"), mosecOption(args, "port")
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

// mosecLogLevel returns the log level, for a mosec program and for the server, set by the program's options; "" is
// the server's default.
func mosecLogLevel(args []string) string {
	level := mosecOption(args, "log-level")
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

// mosecDryRun replaces this process by a mosec program whose arguments ask for a dry run or for help, since neither
// needs a server.
func mosecDryRun(source string, args []string) error {
	asked := os.Getenv("MOSEC_DRY_RUN") != ""
	for _, a := range args {
		asked = asked || a == "--dry-run" || a == "--help" || a == "-h"
	}
	if !asked || !isMosec(source) {
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
	path := filepath.Join(dir, "stand_ins")
	if before := os.Getenv("PYTHONPATH"); before != "" {
		path += string(os.PathListSeparator) + before
	}
	env := append(config.WithoutSecrets(os.Environ()), "PYTHONPATH="+path, "PYTHONDONTWRITEBYTECODE=1")
	return syscall.Exec(interpreter, append([]string{interpreter, source}, args...), env)
}
