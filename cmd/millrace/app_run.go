package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"millrace/apps"
	"millrace/apps/build"
)

// appRun serves the application.
func appRun(*pflag.FlagSet) appStep {
	return appStep{name: "run", short: "serve the application; what follows on -- are flags of the server",
		takesArgs: true, run: func(c *appCall) (any, error) {
			app, release, err := c.use()
			if err != nil {
				return nil, err
			}
			defer release()
			env, releaseEnvironment, err := c.environment(app)
			if err != nil {
				return nil, err
			}
			defer releaseEnvironment()
			if env != nil {
				if err := activate(env); err != nil {
					return nil, err
				}
			}
			return nil, c.serve(app)
		}}
}

// activate makes python3 the interpreter of the environment, for the server and for all programs that it starts.
func activate(env *build.Environment) error {
	bin := filepath.Join(env.Path, "bin")
	return errors.Join(os.Setenv("PATH", bin+string(filepath.ListSeparator)+os.Getenv("PATH")),
		os.Setenv("VIRTUAL_ENV", env.Path), os.Unsetenv("PYTHONHOME"))
}

// appLogFormat makes the commands of other systems log in the form of this server.
const appLogFormat = "MILLRACE_LOG_FORMAT=text"

// serve runs the command that serves applications of the form: serve, or the command of a system.
func (c *appCall) serve(app *apps.App) error {
	args := append([]string{"--config", app.File}, c.args...)
	name := "serve"
	if app.Format != apps.Millrace.Name {
		name, args = app.Format, append(args, "run")
		if variable, value, _ := strings.Cut(appLogFormat, "="); os.Getenv(variable) == "" {
			if err := os.Setenv(variable, value); err != nil {
				return err
			}
		}
	}
	all := c.Root().Commands()
	i := slices.IndexFunc(all, func(c *cobra.Command) bool { return c.Name() == name })
	if i < 0 {
		return fmt.Errorf("there is no command %s", name)
	}
	of := all[i]
	of.SetContext(c.Context())
	if of.DisableFlagParsing {
		return of.RunE(of, args)
	}
	if err := of.ParseFlags(args); err != nil {
		return flagError(of, err)
	}
	return of.RunE(of, of.Flags().Args())
}
