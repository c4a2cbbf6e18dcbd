package main

import (
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"millrace/config"
)

// hideSecrets keeps other processes of this user, which programs that the command starts are, from reading the variables with which this process
// was started in /proc, and its memory, if some of these are secrets. It removes none. There is no core dump then either.
func hideSecrets() {
	if slices.ContainsFunc(config.SecretEnv(), func(name string) bool { return os.Getenv(name) != "" }) {
		_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) // cannot fail with 0
	}
}
