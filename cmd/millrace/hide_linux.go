package main

import (
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// hideProcess keeps other processes of this user, such as programs started by the command, from reading this
// process's memory and initial environment in /proc, if the environment has one of the variables. hideProcess removes
// no variables, and turns off core dumps.
func hideProcess(names []string) {
	if slices.ContainsFunc(names, func(name string) bool { return os.Getenv(name) != "" }) {
		_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) // cannot fail with 0
	}
}
