package main

import (
	"fmt"

	"github.com/spf13/pflag"

	"millrace/apps/build"
)

// appLock writes the lock file of the environment.
func appLock(*pflag.FlagSet) appStep {
	return appStep{name: "lock", short: "write the packages of the environment into a lock file, which build then uses",
		run: func(c *appCall) (any, error) { return c.lock() }}
}

// appLockResult is what lock prints as JSON.
type appLockResult struct {
	Command string `json:"command"`
	File    string `json:"file"`
	*build.Lock
}

func (c *appCall) lock() (*appLockResult, error) {
	app, err := c.application()
	if err != nil {
		return nil, err
	}
	r := &appLockResult{Command: "lock", File: build.LockFile(app)}
	err = app.Step(c.options.Dir, func() error {
		env, release, err := c.environment(app)
		if err != nil {
			return err
		}
		defer release()
		if env == nil {
			return fmt.Errorf("%s has no environment: add the command build, and requirements", app.Name)
		}
		r.Lock, err = build.WriteLock(app, env)
		return err
	})
	if err != nil {
		return nil, err
	}
	c.print("wrote %s: %d packages. Add the file to the repository", r.File, len(r.Packages))
	return r, nil
}
