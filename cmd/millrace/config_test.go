package main

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"millrace/config"
	"millrace/workers"
)

func TestConfigPagesAreCurrent(t *testing.T) {
	for name, args := range map[string][]string{
		"config.md":     {"config", "--markdown"},
		"millrace.yaml": {"config", "--yaml"},
	} {
		var page bytes.Buffer
		c := newRoot()
		c.SetOut(&page)
		c.SetArgs(args)
		if err := c.Execute(); err != nil {
			t.Fatal(err)
		}
		stands, err := os.ReadFile("../../docs/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(stands, page.Bytes()) {
			t.Errorf("docs/%s is not what the code says: run go generate ./cmd/millrace", name)
		}
	}
}

// TestAdvancedSettingsAreFolded: the list of settings has the usual settings and says how many are left out; --all
// adds the advanced settings.
func TestAdvancedSettingsAreFolded(t *testing.T) {
	usual, _, _ := millrace(t, "config")
	all, _, _ := millrace(t, "config", "--all")
	if strings.Contains(usual, "limits.max_pixels_per_byte") || !strings.Contains(all, "limits.max_pixels_per_byte") {
		t.Error("an advanced setting is not folded away, or is not in the list of all settings")
	}
	if !strings.Contains(usual, "memory.budget") || !strings.Contains(usual, "millrace config --all lists") ||
		strings.Contains(all, "--all lists") {
		t.Error(usual)
	}
	if n := strings.Count(usual, "\n  "); n < 40 || n > 80 {
		t.Errorf("%d settings are listed, of 80 at most: give advanced:\"yes\" to settings that most users never set", n)
	}
}

// Each setting is a flag of serve and check, and a line of docs/millrace.yaml.
func TestEverySettingIsAFlagAndDocumented(t *testing.T) {
	paths := filePaths(t)
	line := func(place string, s config.Setting) {
		if !paths[place+strings.TrimSuffix(strings.TrimSuffix(s.Path, ".NAME"), "[]")] {
			t.Errorf("docs/millrace.yaml has no %s%s: run go generate ./cmd/millrace", place, s.Path)
		}
	}
	for _, s := range config.Settings() {
		line("", s)
		for _, c := range []*cobra.Command{serveCommand(), checkCommand()} {
			if c.Flags().Lookup(s.Flag) == nil {
				t.Errorf("%s has no flag --%s", c.Name(), s.Flag)
			}
		}
		if env := "MILLRACE_" + strings.ToUpper(strings.ReplaceAll(s.Flag, "-", "_")); s.Env != env ||
			strings.NewReplacer(".", "-", "_", "-").Replace(s.Path) != s.Flag {
			t.Errorf("%s has the flag --%s and the variable %s, against the rule of docs/config.md", s.Path, s.Flag,
				s.Env)
		}
	}
	for _, s := range config.StreamSettings() {
		line("streams[].", s)
	}
	for _, s := range config.ModelSettings() {
		line("models[].", s)
	}
	for _, k := range workers.Kinds() {
		for _, s := range config.KindSettings(k) {
			line("models[].", s)
		}
	}
}

// fileLines returns docs/millrace.yaml without the # of the settings; examples says whether the lines of examples are
// among them.
func fileLines(t *testing.T, examples bool) (lines []string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/millrace.yaml")
	if err != nil {
		t.Fatal(err)
	}
	key := regexp.MustCompile("^( *)#([^ ].*)$")
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		if examples || !strings.HasSuffix(line, exampleMark) {
			lines = append(lines, key.ReplaceAllString(line, "$1$2"))
		}
	}
	return lines
}

// filePaths returns the paths of all keys in docs/millrace.yaml, with [] behind the names of lists.
func filePaths(t *testing.T) map[string]bool {
	t.Helper()
	type open struct {
		column int
		name   string
	}
	var at []open
	paths := map[string]bool{}
	key := regexp.MustCompile(`^( *)(- )?([a-z0-9_]+):`)
	for _, line := range fileLines(t, true) {
		m := key.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		column := len(m[1]) + len(m[2])
		for len(at) > 0 && at[len(at)-1].column >= column {
			at = at[:len(at)-1]
		}
		if m[2] != "" {
			at[len(at)-1].name = strings.TrimSuffix(at[len(at)-1].name, "[]") + "[]"
		}
		path := ""
		for _, o := range at {
			path += o.name + "."
		}
		paths[path+m[3]] = true
		at = append(at, open{column, m[3]})
	}
	return paths
}

// TestConfigFileHasTheDefaults: docs/millrace.yaml, with all settings uncommented except examples, is a valid
// configuration and means the same as a file with the required keys only.
func TestConfigFileHasTheDefaults(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"model.onnx", "program.py"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	load := func(text string) (config.Config, error) {
		file := filepath.Join(dir, "millrace.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return config.Load(file)
	}
	required := "streams: [{name: example, source: \"rtsp://127.0.0.1/camera\", model: example}]\nmodels:\n" +
		"- {name: example, source: identity}\n"
	for _, k := range workers.Kinds() {
		required += "- {name: " + k.Name + ", source: " + cmp.Or(kindSources[k.Name], k.Name) +
			map[string]string{"graph": ", steps: [{model: example}]", "process": ", command: ./program"}[k.Name] + "}\n"
	}
	want, err := load(required)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(fileLines(t, false), "\n")
	if got, err := load(text); err != nil || !sameConfig(got, want) {
		t.Errorf("%v\n%s", err, firstDifferences(fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", want)))
	}
	for was, other := range map[string]string{
		"\n  budget: 1GiB\n": "\n  budget: 2GiB\n", "\n  sampler_refresh: 1m\n": "\n  sampler_refresh: 2m\n",
		"\n    instances: 1\n": "\n    instances: 2\n", "\n    fixed: 5ms\n": "\n    fixed: 6ms\n",
		"\n      track_iou: 0.2\n": "\n      track_iou: 0.3\n", "\n    loop: false\n": "\n    loop: true\n",
	} {
		changed := strings.Replace(text, was, other, 1)
		got, err := load(changed)
		if changed == text || err == nil && sameConfig(got, want) {
			t.Errorf("a file with %q for %q means the same", other, was)
		}
	}
}

// firstDifferences returns at most three of the words that differ in the texts of two configurations, with the words
// around them.
func firstDifferences(got, want string) string {
	g, w := strings.Fields(got), strings.Fields(want)
	var out []string
	for i := 0; i < min(len(g), len(w)) && len(out) < 3; i++ {
		// texts of pointers are addresses
		if g[i] == w[i] || strings.Contains(g[i], ":0x") && strings.Contains(w[i], ":0x") {
			continue
		}
		part := func(words []string) string {
			text := strings.Join(words[max(0, i-2):min(len(words), i+3)], " ")
			return text[:min(len(text), 200)]
		}
		out = append(out, "got "+part(g)+"\nwant "+part(w))
	}
	if len(g) != len(w) {
		out = append(out, fmt.Sprintf("%d words, want %d", len(g), len(w)))
	}
	return strings.Join(out, "\n")
}

// TestColumnsOfConfigFile finds lines of docs/millrace.yaml above 100 columns.
func TestColumnsOfConfigFile(t *testing.T) {
	for _, line := range fileLines(t, true) {
		if len(line) > fileColumns {
			t.Errorf("wider than %d columns: %s", fileColumns, line)
		}
	}
}
