package main

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"millrace/client"
	"millrace/config"
	"millrace/internal/openapi"
	"millrace/internal/yamltext"
	"millrace/stream"
	"millrace/workers"
)

const modelsExamples = `  millrace models
  millrace models --kinds
  millrace models show motion
  millrace models load delay fixed=5ms per_item=1ms instances=2
  millrace models swap delay fixed=2ms
  millrace models scale delay 4
  millrace models unload delay`

func modelsCommand() *cobra.Command {
	var kinds, asJSON bool
	c := &cobra.Command{
		Use:     "models",
		Short:   "List, load and unload models",
		Example: modelsExamples,
		Args:    wrongUsage(cobra.NoArgs),
	}
	host := remoteFlags(c)
	c.Flags().BoolVar(&kinds, "kinds", false, "the kinds of workers in this program, with their parameters")
	c.Flags().BoolVar(&asJSON, "json", false, "as JSON")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if kinds {
			if err := without(c.Flags(), "with --kinds, which needs no server", "addr", "ca", "fingerprint", "cert",
				"key"); err != nil {
				return err
			}
			return listKinds(c, asJSON)
		}
		cl, err := host.dial()
		if err != nil {
			return err
		}
		defer cl.Close()
		return listModels(c, cl, asJSON)
	}
	c.AddCommand(showCommand(), loadCommand(), swapCommand(), scaleCommand(), unloadCommand())
	return c
}

func listModels(c *cobra.Command, cl *client.Client, asJSON bool) error {
	rows, err := cl.Index(c.Context())
	if err != nil {
		return err
	}
	if asJSON {
		if rows == nil {
			rows = []client.Entry{}
		}
		return writeJSON(c.OutOrStdout(), rows)
	}
	lines := [][]string{{"NAME", "VERSION", "STATE", "REASON"}}
	for _, r := range rows {
		lines = append(lines, []string{r.Name, r.Version, r.State, oneLine(r.Reason)})
	}
	return table(c.OutOrStdout(), lines...)
}

func showCommand() *cobra.Command {
	c := &cobra.Command{
		Use:     "show MODEL",
		Short:   "Show the inputs and outputs of a loaded model",
		Example: "  millrace models show motion\n  millrace models show motion --json",
		Args:    wrongUsage(cobra.ExactArgs(1)),

		ValidArgsFunction: completeArgs(completeModels, completeNothing),
	}
	host := remoteFlags(c)
	version := c.Flags().String("version", "", "version of the model (any)")
	asJSON := c.Flags().Bool("json", false, "as JSON")
	c.RunE = func(c *cobra.Command, args []string) error {
		cl, err := host.dial()
		if err != nil {
			return err
		}
		defer cl.Close()
		m, err := cl.Metadata(c.Context(), args[0], *version)
		if err != nil {
			return withVersionFlag(withReason(c.Context(), cl, args[0], *version,
				suggestModel(c.Context(), cl, args[0], err)))
		}
		takes, err := takesOf(c.Context(), cl, m, *version)
		if err != nil {
			return err
		}
		if *asJSON {
			return writeJSON(c.OutOrStdout(), struct {
				client.Metadata
				openapi.InputRules
			}{m, takes})
		}
		rows := [][]string{{"model", m.Name, "version " + strings.Join(m.Versions, ", "), m.Platform}}
		switch {
		case takes.Picture != nil:
			rows = append(rows, []string{"takes", takes.Picture.String()})
		case len(m.Inputs) == 0:
			rows = append(rows, []string{"takes", "any tensors: the model declares no inputs"})
		}
		for _, side := range []struct {
			name string
			of   []client.Tensor
		}{{"input", m.Inputs}, {"output", m.Outputs}} {
			for _, t := range side.of {
				row := []string{side.name, t.Name, t.Datatype, fmt.Sprint(t.Shape)}
				if side.name == "input" && slices.Contains(takes.Optional, t.Name) {
					row = append(row, "may be left out")
				}
				rows = append(rows, row)
			}
		}
		return table(c.OutOrStdout(), rows...)
	}
	return c
}

// withReason returns err, with the reason known to the server for the model not being loaded.
func withReason(ctx context.Context, cl *client.Client, model, version string, err error) error {
	if code := stream.CodeOf(err); code != stream.NotFound && code != stream.Unavailable {
		return err
	}
	list, indexErr := cl.Index(ctx)
	if indexErr != nil {
		return err
	}
	for _, m := range list {
		if m.Name == model && m.Reason != "" && (version == "" || version == m.Version) {
			return &stream.Error{Code: stream.CodeOf(err), Field: "model",
				Msg: fmt.Sprintf("%q is %s: %s", model, strings.ToLower(strings.ReplaceAll(m.State, "_", " ")),
					m.Reason), Err: err}
		}
	}
	return err
}

// takesOf returns input properties of a model version beyond the metadata; version "" = the version for requests
// without a version. For a version missing in the server's document, the properties are unknown.
func takesOf(ctx context.Context, cl *client.Client, m client.Metadata, version string) (openapi.InputRules, error) {
	document, err := cl.OpenAPI(ctx)
	if err != nil {
		return openapi.InputRules{}, err
	}
	return openapi.InputRulesOf(document, m.Name, version)
}

func listKinds(c *cobra.Command, asJSON bool) error {
	type kind struct {
		Name string            `json:"name"`
		Doc  string            `json:"doc"`
		Keys map[string]string `json:"parameters"`
	}
	list := []kind{}
	var lines [][]string
	for _, k := range workers.Kinds() {
		keys := map[string]string{}
		lines = append(lines, []string{k.Name, k.Doc})
		for _, s := range config.KindSettings(k) {
			keys[s.Path] = s.Text()
			lines = append(lines, []string{"  " + s.Path, s.Text()})
		}
		list = append(list, kind{k.Name, k.Doc, keys})
	}
	if asJSON {
		return writeJSON(c.OutOrStdout(), list)
	}
	return table(c.OutOrStdout(), lines...)
}

// parameter reads a load parameter as YAML: true, false and numbers keep their types. Other text, and text in quotes
// ("), is a string.
func parameter(text string) any {
	var v any
	if err := yamltext.Decode([]byte(text), yamltext.MaxSettings, &v, false); err != nil {
		return text
	}
	switch v := v.(type) {
	case bool, int64, string:
		return v
	case uint64:
		if v <= math.MaxInt64 {
			return int64(v)
		}
	case float64:
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			return v
		}
	}
	return text
}

func loadCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "load MODEL [FILE] [key=value...]",
		Short: "Load a model or a file, and print the name of its endpoint",
		Long: "Load a model of the configuration or the repository, a kind of worker, or a file, and print the " +
			"name of its endpoint.\nA file, such as ./digits.onnx, is sent to the server, with the files that have " +
			"its weights, and loaded under its name without the ending, or under MODEL. Its settings are the " +
			"defaults, and those given here.",
		Example: "  millrace models load delay fixed=5ms per_item=1ms instances=2\n  millrace models load delay " +
			"share=false\n  millrace models load ./digits.onnx\n  millrace models load digits ./digits/1/model.onnx",
	}
	return loadWith(c, nil)
}

func swapCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "swap MODEL [FILE] [key=value...]",
		Short: "Replace a loaded model, with no frame lost",
		Long: `Replace a loaded model with other parameters or another file. The open streams of the model stay open: the server
loads the new model beside the old one, moves the waiting frames to the new model, and unloads the old model
after its last batch. When the new model cannot be loaded, the old one stays. What the command does not name stays as
it is in the running model: the file, the settings of the configuration such as input and output, the parameters of earlier loads and
swaps, and the number of workers. To go back to the configuration, unload the model and load it again. A file, such as ./digits.onnx,
is sent to the server and replaces the file of MODEL, or of the model of the file's name. It must be of the same kind: ONNX or Python.`,
		Example: "  millrace models swap delay fixed=2ms\n  millrace models swap ./digits.onnx\n  millrace models " +
			"swap digits ./new.onnx\n  millrace models swap digits ./new.onnx batching.max_size=4",
	}
	return loadWith(c, stream.Params{"swap": true})
}

// loadWith makes c a command that loads a model. how is added to the parameters of each load.
func loadWith(c *cobra.Command, how stream.Params) *cobra.Command {
	c.Args = wrongUsage(cobra.MinimumNArgs(1))
	c.ValidArgsFunction = completeArgs(completeLoadable, completeParameters)
	host := remoteFlags(c)
	asJSON := c.Flags().Bool("json", false, "as JSON")
	as := c.Flags().String("name", "", "name of a model that is loaded from a file, as MODEL (the file's name "+
		"without the ending)")
	c.RunE = func(c *cobra.Command, args []string) error {
		name, path, given, err := loadArgs(args, *as)
		if err != nil {
			return err
		}
		params, err := loadParams(given, how)
		if err != nil {
			return err
		}
		_, swap := how["swap"]
		changed := append([]string{}, given...)
		slices.Sort(changed)
		cl, err := host.dial()
		if err != nil {
			return err
		}
		defer cl.Close()
		if path != "" {
			of, err := sendFile(path, params)
			if err != nil {
				return err
			}
			name = cmp.Or(name, of)
		}
		before, _ := cl.Index(c.Context()) // without the index, graphs are unknown
		loaded, err := cl.Load(c.Context(), name, params)
		if err != nil {
			err = suggestLoad(c.Context(), cl, name, err)
			return withSentFile(withName(err, func(field string) string {
				return strings.TrimPrefix(field, "parameters.")
			}), path)
		}
		warnUnavailable(c, cl, name, before)
		if *asJSON {
			answer := map[string]any{"endpoint": loaded.Endpoint, "result": loaded.Result}
			if swap {
				answer["changed"] = changed
			}
			return writeJSON(c.OutOrStdout(), answer)
		}
		said := loadResults[loaded.Result] // on standard error: scripts read the endpoint
		switch {
		case swap:
			said = swapped(path, changed)
		case loaded.Endpoint != name:
			said = fmt.Sprintf("%s: endpoint %s, because %s runs with other parameters: millrace models swap %s "+
				"changes %s itself", loaded.Result, loaded.Endpoint, name, name, name)
		}
		if said != "" { // otherwise the server does not report the change
			_, _ = fmt.Fprintln(c.ErrOrStderr(), said)
		}
		_, err = fmt.Fprintln(c.OutOrStdout(), loaded.Endpoint)
		return err
	}
	return c
}

// loadResults describes the change by a load, for each result in the server's answer.
var loadResults = map[string]string{
	workers.ResultLoaded:    "loaded: the model was not loaded before",
	workers.ResultReloaded:  "reloaded: a file or a setting of the model has changed, or a worker had failed",
	workers.ResultScaled:    "scaled: the number of workers has changed, and nothing else",
	workers.ResultUnchanged: "unchanged: the files, settings and workers of the model are as before",
}

// warnUnavailable writes a line for each other model made unavailable by a load of the model name, for example a graph
// that no longer fits the model. before is the index before the load.
func warnUnavailable(c *cobra.Command, cl *client.Client, name string, before []client.Entry) {
	if len(before) == 0 {
		return
	}
	after, _ := cl.Index(c.Context()) // the load itself has succeeded
	for _, m := range after {
		if m.State == workers.StateUnavailable && m.Name != name && !slices.Contains(before, m) {
			_, _ = fmt.Fprintf(c.ErrOrStderr(), "warning: model %s is unavailable since this %s: %s\n", m.Name,
				c.Name(), oneLine(m.Reason))
		}
	}
}

// swapped describes the change by a swap: a file, and parameters as key=value.
func swapped(path string, changed []string) string {
	if path != "" {
		changed = append([]string{"the file"}, changed...)
	}
	if len(changed) == 0 {
		return "loaded again: all settings stay"
	}
	return "changed: " + strings.Join(changed, ", ") + "; all other settings stay"
}

// loadArgs reads the arguments of a load: MODEL, FILE or MODEL FILE, and key=value. as is the flag --name. Without
// MODEL and --name, the file determines the name.
func loadArgs(args []string, as string) (name, path string, params []string, err error) {
	switch {
	case isModelFile(args[0]):
		return as, args[0], args[1:], nil
	case as != "":
		return "", "", nil, usagef("--name: is for a model that is loaded from a file: %q is a name already", args[0])
	case len(args) > 1 && !strings.Contains(args[1], "=") && isModelFile(args[1]):
		return args[0], args[1], args[2:], nil
	}
	return args[0], "", args[1:], nil
}

// isModelFile reports whether an argument of a load is a file and not the name of a model: a path, a name with the
// ending .onnx, or a file of the working directory that a kind of worker loads.
func isModelFile(arg string) bool {
	if strings.ContainsAny(arg, `/\`) || strings.EqualFold(filepath.Ext(arg), ".onnx") {
		return true
	}
	kind, load, err := workers.KindOf(arg) // an error for a missing file
	of, _ := workers.Lookup(kind)
	return err == nil && load != "" && of.File != ""
}

// withSentFile returns the error of a load of a file with the path of the file on this machine.
func withSentFile(err error, path string) error {
	var e *stream.Error
	if path == "" || !errors.As(err, &e) {
		return err
	}
	kind, _, _ := workers.KindOf(path)
	of, _ := workers.Lookup(kind)
	if msg := strings.ReplaceAll(e.Msg, "1/"+of.File, path); msg != e.Msg {
		return &stream.Error{Code: e.Code, Field: e.Field, Msg: msg, Err: err}
	}
	return err
}

// loadParams reads the parameters key=value of a load, and adds how.
func loadParams(args []string, how stream.Params) (stream.Params, error) {
	params := maps.Clone(how)
	if params == nil {
		params = stream.Params{}
	}
	for _, a := range args {
		key, value, ok := strings.Cut(a, "=")
		if !ok || key == "" {
			return nil, usagef("%q is neither key=value nor a file that is here", a)
		}
		if _, given := params[key]; given {
			return nil, usagef("%s: is given twice", key)
		}
		params[key] = parameter(value)
	}
	return params, nil
}

func scaleCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "scale MODEL INSTANCES",
		Short: "Set the number of workers of a loaded model",
		Long: "Set the number of workers of a loaded model, while it serves: further ones are started, or some " +
			"end after their batch. It holds until the model is loaded\nagain or the server ends.",
		Example: "  millrace models scale service 8",
		Args:    wrongUsage(cobra.ExactArgs(2)),

		ValidArgsFunction: completeArgs(completeModels, completeNothing),
	}
	host := remoteFlags(c)
	asJSON := c.Flags().Bool("json", false, "as JSON")
	c.RunE = func(c *cobra.Command, args []string) error {
		n, err := strconv.Atoi(args[1])
		if err != nil || n < 1 {
			return usagef("%q is not a number of workers: want 1 or more", args[1])
		}
		cl, err := host.dial()
		if err != nil {
			return err
		}
		defer cl.Close()
		if err := cl.Scale(c.Context(), args[0], n); err != nil {
			return suggestModel(c.Context(), cl, args[0], err)
		}
		if *asJSON {
			return writeJSON(c.OutOrStdout(), map[string]any{"endpoint": args[0], "instances": n})
		}
		return nil
	}
	return c
}

// sendFile adds the content of a model's file to the parameters of a load, and returns
// the model's name.
func sendFile(path string, params stream.Params) (name string, err error) {
	kind, _, err := workers.KindOf(path)
	if err != nil {
		return "", err
	}
	of, _ := workers.Lookup(kind)
	if of.File == "" {
		return "", usagef("%s: models of kind %s are not loaded from a file", path, kind)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	if strings.HasSuffix(of.File, ".onnx") {
		beside, err := readExternal(path, data)
		if err != nil {
			return "", err
		}
		for at, data := range beside {
			params["file:1/"+at] = base64.StdEncoding.EncodeToString(data)
		}
	}
	params["file:1/"+of.File] = base64.StdEncoding.EncodeToString(data)
	return config.ModelFor(path).Name, nil
}

func unloadCommand() *cobra.Command {
	c := &cobra.Command{
		Use:     "unload ENDPOINT",
		Short:   "Undo one load: remove a worker that was added with share=false, or else the endpoint",
		Example: "  millrace models unload delay",
		Args:    wrongUsage(cobra.ExactArgs(1)),

		ValidArgsFunction: completeArgs(completeModels, completeNothing),
	}
	host := remoteFlags(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		cl, err := host.dial()
		if err != nil {
			return err
		}
		defer cl.Close()
		return suggestModel(c.Context(), cl, args[0], cl.Unload(c.Context(), args[0]))
	}
	return c
}
