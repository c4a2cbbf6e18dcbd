package main

import (
	"context"
	"net"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// commands returns all commands of ours.
func commands(t *testing.T) (all []*cobra.Command) {
	t.Helper()
	var visit func(c *cobra.Command)
	visit = func(c *cobra.Command) {
		if c.Name() == "help" || c.Name() == "completion" {
			return
		}
		all = append(all, c)
		for _, sub := range c.Commands() {
			visit(sub)
		}
	}
	for _, c := range newRoot().Commands() {
		visit(c)
	}
	if len(all) < 20 {
		t.Fatalf("%d commands", len(all))
	}
	return all
}

// The help of every command has an example.
func TestCommandsHaveExamples(t *testing.T) {
	for _, c := range commands(t) {
		if !strings.Contains(c.Example, c.CommandPath()) || c.Short == "" {
			t.Errorf("%s: %q", c.CommandPath(), c.Example)
		}
	}
}

// No line of help has more than 120 columns, so that help fits in a terminal and in a manual page.
func TestColumnsOfHelp(t *testing.T) {
	root := newRoot()
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		var help strings.Builder
		c.SetOut(&help)
		c.InitDefaultHelpFlag()
		if err := c.Help(); err != nil || !strings.Contains(help.String(), "Usage:\n  "+c.CommandPath()) {
			t.Errorf("%s --help: %v\n%s", c.CommandPath(), err, help.String())
		}
		for line := range strings.Lines(help.String()) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 120 {
				t.Errorf("%s --help has a line of %d columns: shorten a Short, break an Example, or indent no line of a "+
					"paragraph of Long:\n%s", c.CommandPath(), n, line)
			}
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(root)
}

// Filling text keeps words, paragraphs and indented lines.
func TestFilledHelp(t *testing.T) {
	long := strings.Repeat("word ", 40)
	if got, want := filled("a\nb\n\n  c\n  d\n\n"+long+"\n"), "a b\n\n  c\n  d\n\n"+
		strings.TrimSpace(strings.Repeat("word ", 20))+"\n"+strings.TrimSpace(strings.Repeat("word ", 20)); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// A flag has the same meaning and type in all commands, commands that connect to a server have the same flags for the
// server, and each thing has only one flag name.
func TestSameFlags(t *testing.T) {
	types := map[string]string{}
	// The flags of these commands are settings, with other meanings.
	servers := []string{"serve", "run", "check", "doctor", "work"}
	credentials := []string{"ca", "fingerprint", "token-file", "token"}
	otherwise := map[string]string{
		"url": "addr", "host": "addr", "server": "addr", "output": "out", "output-file": "out", "file-out": "out",
		"model-version": "version",
		"max-age":       "max-age-ms", "deadline": "deadline-ms", "quiet": "json", "length": "duration",
	}
	for _, c := range commands(t) {
		if slices.Contains(servers, c.Name()) {
			for _, name := range credentials {
				if c.Flags().Lookup("from") != nil && c.Flags().Lookup(name) == nil {
					t.Errorf("%s: --from without --%s", c.CommandPath(), name)
				}
			}
			continue
		}
		if c.Name() == "add" || c.Name() == "ssf" { // add: flags are settings as text; ssf: flags of gc-ssf
			continue
		}
		asksServer := c.Flags().Lookup("addr") != nil
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if typ, ok := types[f.Name]; ok && typ != f.Value.Type() {
				t.Errorf("%s --%s is a %s, elsewhere a %s", c.CommandPath(), f.Name, f.Value.Type(), typ)
			}
			types[f.Name] = f.Value.Type()
			// in bench, deadline is part of the report
			if name := otherwise[f.Name]; name != "" && c.Name() != "bench" {
				t.Errorf("%s --%s: is --%s elsewhere", c.CommandPath(), f.Name, name)
			}
		})
		for _, name := range credentials {
			if (c.Flags().Lookup(name) != nil) != asksServer {
				t.Errorf("%s: --addr without --%s, or the other way round", c.CommandPath(), name)
			}
		}
		if asksServer && strings.Contains(c.Use, " MODEL") && c.ValidArgsFunction == nil {
			t.Errorf("%s: the model is not completed", c.CommandPath())
		}
	}
}

// complete returns a shell's completions of the last argument.
func complete(t *testing.T, args ...string) []string {
	t.Helper()
	out, stderr, code := millrace(t, append([]string{"__complete"}, args...)...)
	if code != 0 {
		t.Fatalf("exit status %d\n%s", code, stderr)
	}
	var words []string
	for line := range strings.Lines(out) {
		if !strings.HasPrefix(line, ":") {
			word, _, _ := strings.Cut(strings.TrimSpace(line), "\t")
			words = append(words, word)
		}
	}
	return words
}

// TestCompletion: names of models come from the running server, and the keys of settings
// from the program.
func TestCompletion(t *testing.T) {
	_, addr := serve(t, "--model", "eyes=motion", "--model", "same=identity")
	for _, c := range []struct {
		args string
		want []string // among other completions
		not  string
	}{
		{"infer --addr ADDR ", []string{"eyes", "same"}, "jpg"},
		{"infer eyes ", []string{"jpg", "webp"}, "eyes"},
		{"stream x.mp4 --addr ADDR --model ", []string{"eyes", "same"}, ""},
		{"bench --addr ADDR --model ", []string{"eyes", "same"}, ""},
		{"examples --format ", []string{"curl", "python", "go", "js"}, "jpg"},
		{"bench --protocol ", []string{"ws", "rest"}, ""},
		{"streams add --addr ADDR a b --model ", []string{"eyes"}, ""},
		{"streams add a b --policy ", []string{"latest", "every"}, ""},
		{"models unload --addr ADDR ", []string{"eyes"}, ""},
		{"models load --addr ADDR ", []string{"eyes", "delay"}, ""},
		{"models load delay ", []string{"fixed=", "batching.kind="}, "eyes"},
		{"serve --model ", nil, "eyes"},
		{"serve --model a=", []string{"a=delay", "a=motion"}, ""},
		{"serve --model a=delay,fixed=5ms,", []string{"a=delay,fixed=5ms,per_item=",
			"a=delay,fixed=5ms,batching.max_size="}, "a=delay,fixed=5ms,name="},
		{"check --model a=motion,", []string{"a=motion,width="}, "a=motion,fixed="},
		{"serve --log-level ", []string{"debug", "warn"}, ""},
		{"mod", []string{"models"}, ""},
	} {
		var args []string
		for _, arg := range strings.Split(c.args, " ") {
			args = append(args, strings.Replace(arg, "ADDR", addr, 1))
		}
		words := complete(t, args...)
		for _, w := range c.want {
			if !slices.Contains(words, w) {
				t.Errorf("%q: %q is not in %q", c.args, w, words)
			}
		}
		if slices.Contains(words, c.not) {
			t.Errorf("%q: %q is in %q", c.args, c.not, words)
		}
	}
}

// A shell does not wait for a silent server.
func TestCompletionOfASilentServer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // accepts connections, and answers nothing
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	before := completeTime
	completeTime = 10 * time.Millisecond
	t.Cleanup(func() { completeTime = before })
	c := inferCommand()
	c.SetContext(context.Background())
	if err := c.ParseFlags([]string{"--addr", l.Addr().String()}); err != nil {
		t.Fatal(err)
	}
	if words, directive := completeModels(c, nil, ""); len(words) > 0 ||
		directive != cobra.ShellCompDirectiveNoFileComp {
		t.Errorf("%q, %d", words, directive)
	}
}
