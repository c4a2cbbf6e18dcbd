package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"millrace/config"
	"millrace/workers"
)

const configExamples = `  millrace config
  millrace config --all
  millrace config --all --json
  millrace config --yaml > millrace.yaml`

// settings lists all settings, for the three forms of output.
type settings struct {
	Server []config.Setting `json:"server"`
	Model  []config.Setting `json:"model"`
	Stream []config.Setting `json:"stream"`
	Kinds  []kindSettings   `json:"kinds"`
}

type kindSettings struct {
	Name     string           `json:"name"`
	Doc      string           `json:"doc"`
	Settings []config.Setting `json:"settings"`
}

func configCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "config",
		Short: "List the usual settings, or with --all every setting",
		Long: "List the usual settings of the server, of a model, of a server stream and of each kind of worker, " +
			"with their defaults.\n" +
			"--all adds the advanced settings. No file is read and no server is started.",
		Example: configExamples,
		Args:    wrongUsage(cobra.NoArgs),
	}
	asJSON := c.Flags().Bool("json", false, "as JSON")
	asMarkdown := c.Flags().Bool("markdown", false, "the usual settings, as the page docs/config.md")
	asYAML := c.Flags().Bool("yaml", false, "all settings, as a commented configuration file: docs/millrace.yaml")
	every := c.Flags().Bool("all", false, "also advanced settings, which most users never change")
	c.RunE = func(c *cobra.Command, _ []string) error {
		all := settings{Server: config.Settings(), Model: config.ModelSettings(), Stream: config.StreamSettings()}
		for _, k := range workers.Kinds() {
			all.Kinds = append(all.Kinds, kindSettings{k.Name, k.Doc, config.KindSettings(k)})
		}
		folded := 0
		if !*every && !*asYAML {
			folded = all.fold()
		}
		switch out := c.OutOrStdout(); {
		case *asMarkdown && *every:
			return usagef("--markdown writes the usual settings only: --yaml writes all")
		case *asJSON && (*asMarkdown || *asYAML) || *asMarkdown && *asYAML:
			return usagef("--json, --markdown and --yaml exclude each other")
		case *asJSON:
			return writeJSON(out, all)
		case *asYAML:
			return all.file(out)
		case *asMarkdown:
			return all.markdown(out)
		default:
			return all.text(out, folded)
		}
	}
	return c
}

// fold removes the advanced settings, and returns their number.
func (s *settings) fold() (folded int) {
	lists := []*[]config.Setting{&s.Server, &s.Model, &s.Stream}
	for i := range s.Kinds {
		lists = append(lists, &s.Kinds[i].Settings)
	}
	for _, list := range lists {
		before := len(*list)
		*list = slices.DeleteFunc(*list, func(k config.Setting) bool { return k.Advanced })
		folded += before - len(*list)
	}
	return folded
}

func (s settings) text(w io.Writer, folded int) error {
	var rows [][]string
	add := func(title string, list []config.Setting) {
		if len(rows) > 0 {
			rows = append(rows, []string{""})
		}
		rows = append(rows, []string{title})
		for _, s := range list {
			rows = append(rows, []string{"  " + s.Path, s.Text()})
		}
	}
	add("SERVER (file, flag, variable)", s.Server)
	add("MODEL (file, --model)", s.Model)
	add("STREAM (file)", s.Stream)
	for _, k := range s.Kinds {
		add("KIND "+k.Name+": "+k.Doc, k.Settings)
	}
	if folded > 0 {
		rows = append(rows, []string{""}, []string{fmt.Sprintf("millrace config --all lists %d further settings.",
			folded)})
	}
	return table(w, rows...)
}

// configPage begins the page with the usual settings.
const configPage = `# Configuration

<!-- Written by go generate ./cmd/millrace from the code. Do not edit. -->

    http: 127.0.0.1:8000
    models:
      - name: spotter
        source: examples/spotter/spotter.onnx
        batching: {max_size: 8}
        input: {image: {scale: 0.00392157}}
        output: {boxes: {threshold: 0.3}}

Millrace reads one YAML file (` + "`--config` or `MILLRACE_CONFIG`" +
	`). Variables override the file, and flags override both. An
unknown key is an error. ` + "`millrace check`" + ` loads the models of a configuration without serving.

The same model on the command line, with dots between nested keys:

    millrace serve --model spotter=examples/spotter/spotter.onnx,batching.max_size=8,input.image.scale=0.00392157,output.boxes.threshold=0.3

Sizes are written ` + "`512KiB`, `8MiB`, `1GB`" + `; durations ` + "`5ms`, `1.5s`, `2m`" + `.

This page and ` + "`millrace config`" +
	` list the usual settings. [millrace.yaml](millrace.yaml) is a configuration file with every
setting, the default and a comment: copy the lines that you change. Defaults are in brackets.
`

// markdown writes the page docs/config.md.
func (s settings) markdown(w io.Writer) error {
	var b strings.Builder
	b.WriteString(configPage)
	b.WriteString("\n## The server\n\nThe flag of `log.debug_rate` is `--log-debug-rate`, and the variable is " +
		"`MILLRACE_LOG_DEBUG_RATE`: all keys follow this rule.\n\n")
	keys(&b, s.Server, true)
	fmt.Fprintf(&b, "\n`%s` adds models, separated by semicolons, in the notation of `--model`.\n", config.EnvModels)
	b.WriteString(`
## A model

Keys of an entry under ` + "`models`" + `. A request that loads or swaps the model may also set the keys with ` +
		"`request`" + `, by
the whole path; the configuration and ` + "`serve --model`" + ` set all keys.

    millrace models load delay batching.max_size=4 fixed=5ms

`)
	keys(&b, s.Model, true)
	b.WriteString("\n## A stream\n\nKeys of an entry under `streams`, a [server stream](streams.md). Requests may " +
		"set all of these keys.\n\n")
	keys(&b, s.Stream, false)
	b.WriteString("\n## Kinds of workers\n\nA model of a kind takes the keys of a model and the keys of its kind.\n")
	for _, k := range s.Kinds {
		fmt.Fprintf(&b, "\n### %s\n\n%s.\n", k.Name, strings.ToUpper(k.Doc[:1])+k.Doc[1:])
		if len(k.Settings) > 0 {
			b.WriteByte('\n')
			keys(&b, k.Settings, true)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// keys writes a list of settings, with the values that requests may set if requests is true.
func keys(b *strings.Builder, list []config.Setting, requests bool) {
	for _, k := range list {
		fmt.Fprintf(b, "- `%s`: %s", k.Path, k.Doc)
		if k.Range != "" {
			fmt.Fprintf(b, " (%s)", k.Range)
		}
		if k.Default != "" {
			fmt.Fprintf(b, " [`%s`]", k.Default)
		} else if k.Unset != "" {
			fmt.Fprintf(b, " [%s]", k.Unset)
		}
		if r := requestText(k); requests && r != "" {
			fmt.Fprintf(b, "; `request`: %s", r)
		}
		b.WriteByte('\n')
	}
}

// requestText describes the values that a request may set; "" = none.
func requestText(k config.Setting) string {
	text := k.Request
	if text != "" && text != "any" {
		text = "at most " + text
	}
	if k.Short != "" {
		text += ", also as `" + strings.Join(strings.Fields(k.Short), "`, `") + "`"
	}
	return text
}
