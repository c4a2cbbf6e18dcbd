package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"millrace/config"
	"millrace/workers"
)

const configExamples = `  millrace config
  millrace config --markdown > docs/config.md
  millrace config --json`

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
		Use:     "config",
		Short:   "List all settings",
		Long:    "List the settings of the server, of a model, and of each kind of worker, with their defaults. No file is read and no server is started.",
		Example: configExamples,
		Args:    wrongUsage(cobra.NoArgs),
	}
	asJSON := c.Flags().Bool("json", false, "as JSON")
	asMarkdown := c.Flags().Bool("markdown", false, "as the page docs/config.md")
	c.RunE = func(c *cobra.Command, _ []string) error {
		all := settings{Server: config.Settings(), Model: config.ModelSettings(), Stream: config.StreamSettings()}
		for _, k := range workers.Kinds() {
			all.Kinds = append(all.Kinds, kindSettings{k.Name, k.Doc, config.KindSettings(k)})
		}
		switch out := c.OutOrStdout(); {
		case *asJSON && *asMarkdown:
			return usagef("--json and --markdown exclude each other")
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
	return table(w, rows...)
}

const configPage = `# Configuration

<!-- Written by go generate ./cmd/millrace from the code. Do not edit. -->

Millrace reads one YAML file (` + "`--config`" + ` or ` + "`MILLRACE_CONFIG`" + `), then variables, then flags; each overrides those before it. An
unknown key is an error, which names its path. ` + "`millrace config`" + ` prints the tables of this page; ` + "`millrace check`" + ` checks a configuration and loads its models, without serving them.

    http: 127.0.0.1:8000
    models:
      - name: spotter
        source: examples/spotter/spotter.onnx
        batching: {max_size: 8}
        input: {image: {scale: 0.00392157}}
        output: {boxes: {threshold: 0.3}}

The same model on the command line, nested keys joined by dots:

    millrace serve --model spotter=examples/spotter/spotter.onnx,batching.max_size=8,input.image.scale=0.00392157,output.boxes.threshold=0.3

Sizes are written ` + "`512KiB`, `8MiB`, `1GB`" + `; durations ` + "`5ms`, `1.5s`, `2m`" + `.
`

func (s settings) markdown(w io.Writer) error {
	var b strings.Builder
	b.WriteString(configPage)
	b.WriteString("\n## The server\n\n| key | flag | variable | default | values | meaning |\n|---|---|---|---|---|---|\n")
	for _, k := range s.Server {
		fmt.Fprintf(&b, "| `%s` | `--%s` | `%s` | %s | %s | %s |\n", k.Path, k.Flag, k.Env, defaultText(k), cell(k.Range), cell(k.Meaning()))
	}
	fmt.Fprintf(&b, "\n`%s` adds models, separated by semicolons, as `--model` does.\n", config.EnvModels)
	b.WriteString("\n## A model\n\nKeys of an entry under `models`. The column `request` says which of them the parameters of a load or swap may set, too, by their whole path: any value,\nor values up to a largest one. Without an entry, only the configuration and `serve --model` can set the key. The same column of the other tables says it of the parameters of a kind of worker, and\nof the keys of a stream that a request adds or changes.\n\n    millrace models load delay batching.max_size=4 fixed=5ms\n\n")
	keys(&b, s.Model)
	b.WriteString("\n## A stream\n\nKeys of an entry under `streams`: a server stream, see [streams.md](streams.md).\n\n")
	keys(&b, s.Stream)
	b.WriteString("\n## Kinds of workers\n\nEach takes the keys of a model and these.\n")
	for _, k := range s.Kinds {
		fmt.Fprintf(&b, "\n### %s\n\n%s.\n", k.Name, strings.ToUpper(k.Doc[:1])+k.Doc[1:])
		if len(k.Settings) > 0 {
			b.WriteByte('\n')
			keys(&b, k.Settings)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// keys writes the table of settings that are keys of the file only.
func keys(b *strings.Builder, list []config.Setting) {
	b.WriteString("| key | default | values | request | meaning |\n|---|---|---|---|---|\n")
	for _, k := range list {
		fmt.Fprintf(b, "| `%s` | %s | %s | %s | %s |\n", k.Path, defaultText(k), cell(k.Range), requestText(k), cell(k.Doc))
	}
}

// requestText says what a request may set; "" = nothing.
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

// defaultText describes the value of a setting that is left out.
func defaultText(k config.Setting) string {
	if k.Default == "" {
		return cell(k.Unset)
	}
	return "`" + k.Default + "`"
}

// cell escapes the character that ends a cell of a table.
func cell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }
