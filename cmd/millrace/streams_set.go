package main

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"millrace/client"
	"millrace/ingest/streams"
	"millrace/internal/setting"
)

func setStream() *cobra.Command {
	c := &cobra.Command{
		Use:   "set NAME KEY=VALUE...",
		Short: "Change settings of a stream while it runs",
		Long: `Change settings of a stream while it runs: all that are given, or none if one is wrong. The keys are those of the configuration;
the settings that can change are ` + settable() + `. MODEL.KEY=VALUE changes the policy of one of several models.`,
		Example: "  millrace streams set door max_age_ms=400 priority=high\n  millrace streams set yard faces.max_fps=5\n  millrace streams set door max_fps=2.5 --json",
		Args:    wrongUsage(cobra.MinimumNArgs(2)),
	}
	host := remoteFlags(c)
	asJSON := c.Flags().Bool("json", false, "as JSON")
	c.RunE = func(c *cobra.Command, args []string) error {
		change, err := changeOf(args[1:])
		if err != nil {
			return usageError{err}
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

// settable names the keys that changeOf knows.
func settable() string {
	last := len(streams.Changeable) - 1
	return strings.Join(streams.Changeable[:last], ", ") + " and " + streams.Changeable[last]
}

// changeOf reads KEY=VALUE arguments. Errors begin with the key.
func changeOf(args []string) (change client.StreamChange, err error) {
	table, given := streams.NewDraft().Table(), map[string]any{}
	var models []any // what changes of each model, in the order of their first keys
	of := map[string]map[string]any{}
	var errs []error
	for _, a := range args {
		key, text, ok := strings.Cut(a, "=")
		key = strings.ReplaceAll(key, "-", "_") // the notation of the flags of add
		into := given
		if i := strings.LastIndexByte(key, '.'); i >= 0 && slices.Contains(streams.Changeable[1:], key[i+1:]) { // MODEL.KEY
			name, _, _ := strings.Cut(a, "=")
			name = name[:i]
			if of[name] == nil {
				of[name] = map[string]any{"model": name}
				models = append(models, of[name])
			}
			into, key = of[name], key[i+1:]
		}
		f, _ := table.Find(key)
		_, twice := into[key]
		switch {
		case !ok:
			err = usagef("%q is not KEY=VALUE", a)
		case twice:
			err = usagef("%s: is given twice", key)
		case !slices.Contains(streams.Changeable, key):
			err = unchangeable(table, key)
		default:
			err = f.ForChange().Set(text)
			into[key] = f.Value()
		}
		errs = append(errs, err)
	}
	if err := setting.Join(errs...); err != nil {
		return change, err
	}
	if models != nil {
		given["models"] = models
	}
	object, err := json.Marshal(given)
	if err != nil {
		return change, err
	}
	return change, json.Unmarshal(object, &change)
}

// unchangeable returns the error of a key that changeOf does not accept: a setting that
// cannot be changed, or not a setting.
func unchangeable(table *setting.Table, key string) error {
	isKey := func(f setting.Field) bool { return f.Path == key || f.Path == "sinks."+key }
	if slices.ContainsFunc(table.Fields(), isKey) {
		return usagef("%s: cannot be changed while the stream runs: remove the stream and add it again with the new value, or change the configuration and restart the server if the stream is in it (what can be changed: %s)", key, settable())
	}
	return usagef("%s: is not a setting of a stream%s (what can be changed: %s)", key, setting.Suggest(key, streams.Changeable), settable())
}
