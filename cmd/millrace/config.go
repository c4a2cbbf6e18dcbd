package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"millrace/server"
	"millrace/workers"
)

const configExamples = `  millrace config
  millrace config --markdown > docs/config.md
  millrace config --json`

// settings is what can be set, for the three forms of output.
type settings struct {
	Server []server.Setting `json:"server"`
	Model  []server.Setting `json:"model"`
	Stream []server.Setting `json:"stream"`
	Kinds  []kindSettings   `json:"kinds"`
}

type kindSettings struct {
	Name string            `json:"name"`
	Doc  string            `json:"doc"`
	Keys map[string]string `json:"keys"`
}

func configCommand() *cobra.Command {
	c := &cobra.Command{
		Use:     "config",
		Short:   "List everything that can be set",
		Long:    "List the settings of the server, of a model, and of each kind of worker, with their defaults. Nothing is read or started.",
		Example: configExamples,
		Args:    wrongUsage(cobra.NoArgs),
	}
	asJSON := c.Flags().Bool("json", false, "as JSON")
	asMarkdown := c.Flags().Bool("markdown", false, "as the page docs/config.md")
	c.RunE = func(c *cobra.Command, _ []string) error {
		all := settings{Server: server.Settings(), Model: server.ModelSettings(), Stream: server.StreamSettings()}
		for _, k := range workers.Kinds() {
			kind := kindSettings{k.Name, k.Doc, map[string]string{}}
			for _, f := range k.Table().Fields() {
				kind.Keys[f.Path] = f.Help
				if f.Default != "" {
					kind.Keys[f.Path] += " (" + f.Default + ")"
				}
			}
			all.Kinds = append(all.Kinds, kind)
		}
		switch out := c.OutOrStdout(); {
		case *asJSON && *asMarkdown:
			return usagef("config: --json and --markdown exclude each other")
		case *asJSON:
			return writeJSON(out, all)
		case *asMarkdown:
			return all.markdown(out)
		default:
			return all.text(out)
		}
	}
	return c
}

func (s settings) text(w io.Writer) error {
	var rows [][]string
	add := func(title string) { rows = append(rows, []string{""}, []string{title}) }
	rows = append(rows, []string{"SERVER (file, flag, variable)"})
	for _, k := range s.Server {
		rows = append(rows, []string{"  " + k.Path, k.Default, k.Doc})
	}
	add("MODEL (file, --model)")
	for _, k := range s.Model {
		rows = append(rows, []string{"  " + k.Path, k.Default, k.Doc})
	}
	add("STREAM (file)")
	for _, k := range s.Stream {
		rows = append(rows, []string{"  " + k.Path, k.Default, k.Doc})
	}
	for _, k := range s.Kinds {
		add("KIND " + k.Name + ": " + k.Doc)
		for _, name := range slices.Sorted(maps.Keys(k.Keys)) {
			rows = append(rows, []string{"  " + name, "", k.Keys[name]})
		}
	}
	return table(w, rows...)
}

const configPage = `# Configuration

<!-- Written by go generate ./cmd/millrace from the code. Do not edit. -->

Millrace reads one YAML file (` + "`--config`" + ` or ` + "`MILLRACE_CONFIG`" + `), then variables, then flags; the later wins. A key that is
none is refused with its path. ` + "`millrace config`" + ` prints this page's tables, ` + "`millrace check`" + ` looks a configuration over and loads its models, without serving them.

    http: 127.0.0.1:8000
    models:
      - name: spotter
        source: examples/spotter/spotter.onnx
        batching: {max_size: 8}
        input: {image: {scale: 0.00392157}}
        output: {boxes: {threshold: 0.3}}

The same model on the command line, nested keys joined by dots:

    millrace serve --model spotter=examples/spotter/spotter.onnx,batching.max_size=8,input.image.scale=0.00392157,output.boxes.threshold=0.3

Sizes are written ` + "`512KiB`, `8MiB`, `1GB`" + `; spans of time ` + "`5ms`, `1.5s`, `2m`" + `.
`

func (s settings) markdown(w io.Writer) error {
	var b strings.Builder
	b.WriteString(configPage)
	b.WriteString("\n## The server\n\n| key | flag | variable | default | meaning |\n|---|---|---|---|---|\n")
	for _, k := range s.Server {
		fmt.Fprintf(&b, "| `%s` | `--%s` | `%s` | %s | %s |\n", k.Path, k.Flag, k.Env, code(k.Default), cell(k.Doc))
	}
	fmt.Fprintf(&b, "\n`%s` adds models, separated by semicolons, as `--model` does.\n", server.EnvModels)
	b.WriteString("\n## A model\n\nKeys of an entry under `models`. An empty default is the worker's or the model's own.\n\n| key | default | meaning |\n|---|---|---|\n")
	for _, k := range s.Model {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", k.Path, code(k.Default), cell(k.Doc))
	}
	b.WriteString("\n## A stream\n\nKeys of an entry under `streams`: a camera that the server watches itself, see [streams.md](streams.md).\n\n| key | default | meaning |\n|---|---|---|\n")
	for _, k := range s.Stream {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", k.Path, code(k.Default), cell(k.Doc))
	}
	b.WriteString("\n## Kinds of workers\n\nEach takes the keys of a model and these.\n")
	for _, k := range s.Kinds {
		fmt.Fprintf(&b, "\n### %s\n\n%s.\n", k.Name, strings.ToUpper(k.Doc[:1])+k.Doc[1:])
		if len(k.Keys) == 0 {
			continue
		}
		b.WriteString("\n| key | meaning |\n|---|---|\n")
		for _, name := range slices.Sorted(maps.Keys(k.Keys)) {
			fmt.Fprintf(&b, "| `%s` | %s |\n", name, cell(k.Keys[name]))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// code marks a value up, if there is one.
func code(s string) string {
	if s == "" {
		return ""
	}
	return "`" + s + "`"
}

// cell keeps text from ending a table's cell.
func cell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }
