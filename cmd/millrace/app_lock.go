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
	needs, err := c.needs(app)
	if err != nil {
		return nil, err
	}
	release, err := app.Use(c.options.Dir) // not Step: for init, a lock file that is not committed is a local change
	if err != nil {
		return nil, err
	}
	defer release()
	if r.Lock, err = build.Relock(app, needs, c.options.Dir); err != nil {
		return nil, err
	}
	if r.Lock == nil {
		return nil, fmt.Errorf("%s has no requirements, and so no packages to lock", app.Name)
	}
	c.print("wrote %s: %s. Commit the file to the repository", r.File, quantity(len(r.Packages), "package", "packages"))
	return r, nil
}
