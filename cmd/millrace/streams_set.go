package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"millrace/client"
	"millrace/config"
)

// settable names the keys that changeOf knows.
const settable = "paused, max_age_ms, deadline_ms, max_fps, window and priority"

func setStream() *cobra.Command {
	c := &cobra.Command{
		Use:   "set NAME KEY=VALUE...",
		Short: "Change settings of a stream while it runs",
		Long: `Change settings of a stream while it runs: all that are named, or none. Keys are those of the configuration; what can change are
` + settable + `.`,
		Example: "  millrace streams set door max_age_ms=400 priority=high\n  millrace streams set door max_fps=2.5 --json",
		Args:    wrongUsage(cobra.MinimumNArgs(2)),
	}
	host := remoteFlags(c)
	asJSON := c.Flags().Bool("json", false, "as JSON")
	c.RunE = func(c *cobra.Command, args []string) error {
		change, err := changeOf(args[1:])
		if err != nil {
			return usagef("set: %w", err)
		}
		cl, err := host.dial()
		if err != nil {
			return err
		}
		defer cl.Close()
		s, err := cl.ChangeServerStream(c.Context(), args[0], change)
		if err != nil || !*asJSON {
			return err
		}
		return writeJSON(c.OutOrStdout(), s)
	}
	return c
}

// changeOf reads KEY=VALUE arguments.
func changeOf(args []string) (change client.StreamChange, err error) {
	for _, a := range args {
		key, text, ok := strings.Cut(a, "=")
		if !ok {
			return change, fmt.Errorf("%q is not KEY=VALUE", a)
		}
		key = strings.ReplaceAll(key, "-", "_") // as the flags of add are written
		switch key {
		case "paused":
			err = read(&change.Paused, text, "true or false")
		case "max_age_ms":
			err = read(&change.MaxAgeMS, text, "a whole number")
		case "deadline_ms":
			err = read(&change.DeadlineMS, text, "a whole number")
		case "max_fps":
			err = read(&change.MaxFPS, text, "a number")
		case "window":
			err = read(&change.Window, text, "a whole number")
		case "priority":
			quoted, _ := json.Marshal(text) // of a string it cannot fail
			err = read(&change.Priority, string(quoted), "text")
		default:
			err = unchangeable(key)
		}
		if err != nil {
			return change, fmt.Errorf("%s: %w", key, err)
		}
	}
	return change, nil
}

// read reads a value in JSON's notation, which for true, false and numbers is the
// configuration's.
func read[T any](to **T, text, want string) error {
	if *to != nil {
		return errors.New("is given twice")
	}
	if err := json.Unmarshal([]byte(text), to); err != nil || *to == nil {
		return fmt.Errorf("%q is not %s", text, want)
	}
	return nil
}

// unchangeable tells a setting that cannot change from what is none.
func unchangeable(key string) error {
	if slices.ContainsFunc(config.StreamSettings(), func(s config.Setting) bool { return s.Path == key || s.Path == "sinks."+key }) {
		return fmt.Errorf("cannot be changed while the stream runs: remove the stream and add it anew with it (what can be changed: %s)", settable)
	}
	return fmt.Errorf("is no setting of a stream (what can be changed: %s)", settable)
}
