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

// mosecImport is the line by which a program uses mosec.
var mosecImport = regexp.MustCompile(`(?m)^[ \t]*(from|import)[ \t]+mosec\b`)

// isMosec reports whether a source is a program that was written for mosec.
func isMosec(source string) bool {
	if filepath.Ext(source) != ".py" {
		return false
	}
	text, err := os.ReadFile(source)
	return err == nil && mosecImport.Match(text)
}

// mosecOption returns an option of such a program: from its arguments, or else from the
// variable MOSEC_NAME.
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

// mosecAddress returns where the arguments of such a program want the server to listen, if
// they do.
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

// mosecLogLevel returns which lines of such a program, and of the server, its arguments want in
// the log; "" is the server's default.
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
	return "" // also for what the program refuses
}

// mosecDryRun runs such a program in place of this process if it is asked for a dry run or for
// its help, which need no server.
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
