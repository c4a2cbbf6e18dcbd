package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"millrace/config"
	"millrace/workers"
)

func TestConfigPagesAreCurrent(t *testing.T) {
	for name, args := range map[string][]string{
		"config.md":     {"config", "--markdown"},
		"config-all.md": {"config", "--markdown", "--all"},
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
		t.Errorf("%d settings are listed: an operator reads about 70 at most", n)
	}
}

// Each setting is a flag of serve and check, and a row of docs/config-all.md.
func TestEverySettingIsAFlagAndDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/config-all.md")
	if err != nil {
		t.Fatal(err)
	}
	row := func(s config.Setting) {
		if !bytes.Contains(page, []byte("\n| `"+s.Path+"` |")) {
			t.Errorf("docs/config-all.md has no %s", s.Path)
		}
	}
	for _, s := range config.Settings() {
		row(s)
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
	lists := [][]config.Setting{config.ModelSettings(), config.StreamSettings()}
	for _, k := range workers.Kinds() {
		lists = append(lists, config.KindSettings(k))
	}
	for _, list := range lists {
		for _, s := range list {
			row(s)
		}
	}
}
