package main

import (
	"os"

	"millrace/config"
	"millrace/server"
)

// hideSecrets hides this process if the environment contains secrets.
func hideSecrets() { hideProcess(config.SecretEnv()) }

// hideFromPrograms removes the variables with secrets of a configuration from the environment, so that child processes
// do not get them.
func hideFromPrograms(cfg *server.Config) {
	names := append(config.SecretEnv(), server.SourceVariables(cfg)...)
	hideProcess(names)
	for _, name := range names {
		_ = os.Unsetenv(name)
	}
}
