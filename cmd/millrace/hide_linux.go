package main

import (
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"millrace/config"
)

// hideSecrets keeps other processes of this user, such as programs started by the command, from reading this
// process's memory and initial environment in /proc, if the environment contains secrets. hideSecrets removes no
// variables, and turns off core dumps.
func hideSecrets() {
	if slices.ContainsFunc(config.SecretEnv(), func(name string) bool { return os.Getenv(name) != "" }) {
		_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) // cannot fail with 0
	}
}
