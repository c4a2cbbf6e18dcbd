package main

import (
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
		Short: "Change settings of a running stream",
		Long: `Change settings of a running stream: all given settings, or none if a setting is wrong. The keys are the keys of a
stream in the configuration, sinks without the prefix "sinks."; KEY= and KEY=0 go back to the default. model=NAME makes NAME
the only model. MODEL.KEY=VALUE changes the policy of a model of the stream, or adds the model; MODEL.remove=true removes the
model. rules=JSON replaces all lines and zones. Results continue: a new model replaces the old model when ready, a new source replaces the old source at its first frame.`,
		Example: `  millrace streams set door max_age_ms=400 priority=high
  millrace streams set door model=motion
  millrace streams set door source=rtsp://192.0.2.8/live fps=5
  millrace streams set door webhook=https://example.com/found
  millrace streams set yard faces.max_fps=5 motion.remove=true
  millrace streams set door max_fps=2.5 --json`,
		Args: wrongUsage(cobra.MinimumNArgs(2)),
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
			return suggestStream(c.Context(), cl, args[0], err)
		}
		return writeJSON(c.OutOrStdout(), s)
	}
	return c
}

// changeOf reads KEY=VALUE arguments. Errors begin with the key.
func changeOf(args []string) (change client.StreamChange, err error) {
	table := streams.NewDraft().Table()
	given, sinks, clips := map[string]any{}, map[string]any{}, map[string]any{}
	var models []any // changes of each model, in the order of their first keys
	of := map[string]map[string]any{}
	var errs []error
	for _, a := range args {
		name, text, ok := strings.Cut(a, "=")
		key := strings.ReplaceAll(name, "-", "_") // the notation of the flags of add
		into := given
		// MODEL.KEY
		if i := strings.LastIndexByte(key, '.'); i >= 0 &&
			(key[i+1:] == "remove" || slices.Contains(streams.ModelSettings, key[i+1:])) {
			model := name[:i]
			if of[model] == nil {
				of[model] = map[string]any{"model": model}
				models = append(models, of[model])
			}
			into, key = of[model], key[i+1:]
		}
		f, known := changeable(table, key)
		if strings.HasPrefix(f.Path, "sinks.") {
			into, key = sinks, strings.TrimPrefix(f.Path, "sinks.")
		}
		if own, of := strings.CutPrefix(f.Path, "clips."); of {
			into, key = clips, own
		}
		_, twice := into[key]
		switch {
		case !ok:
			err = usagef("%q is not KEY=VALUE", a)
		case twice:
			err = usagef("%s: is given twice", key)
		case key == "remove" && of[name[:max(0, len(name)-len(".remove"))]] != nil:
			into[key], err = text == "true", nil
			if text != "true" {
				err = usagef("%s: %q is not true", name, text)
			}
		case key == "rules":
			into[key], err = rulesOf(text)
		case !known:
			err = unknownKey(table, key)
		case text == "" && !f.IsBool():
			into[key], err = "", nil
		case text == "0" && !f.IsBool():
			into[key], err = 0, nil
		default:
			err = f.ForChange().Set(text)
			into[key] = f.Value()
		}
		errs = append(errs, err)
	}
	if len(models) > 0 {
		given["models"] = models
	}
	if len(sinks) > 0 {
		given["sinks"] = sinks
	}
	if len(clips) > 0 {
		given["clips"] = clips
	}
	return client.StreamChange{Settings: given}, setting.Join(errs...)
}

// changeable returns the setting named by a key, if a request may change the setting.
func changeable(table *setting.Table, key string) (setting.Field, bool) {
	for _, path := range []string{key, "sinks." + key} {
		if f, ok := table.Find(path); ok && f.Request != "" && path != "name" && !isRule(f) {
			return f, true
		}
	}
	return setting.Field{}, false
}

// unknownKey returns the error for a key that changeOf does not accept.
func unknownKey(table *setting.Table, key string) error {
	keys := []string{"rules"}
	for _, f := range table.Fields() {
		if isRule(f) {
			continue
		}
		if f.Path == key || f.Path == "sinks."+key {
			return usagef("%s: cannot be changed by a request: change the configuration, and send the server SIGHUP",
				key)
		}
		if _, ok := changeable(table, f.Path); ok {
			keys = append(keys, strings.TrimPrefix(f.Path, "sinks."))
		}
	}
	return usagef("%s: is not a setting of a stream%s (what can be changed: %s)", key, setting.Suggest(key, keys),
		strings.Join(keys, ", "))
}
