package main

import (
	"bytes"
	"os"
	"testing"

	"github.com/spf13/cobra"

	"millrace/config"
	"millrace/workers"
)

func TestConfigPageIsCurrent(t *testing.T) {
	var page bytes.Buffer
	c := newRoot()
	c.SetOut(&page)
	c.SetArgs([]string{"config", "--markdown"})
	if err := c.Execute(); err != nil {
		t.Fatal(err)
	}
	stands, err := os.ReadFile("../../docs/config.md")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(stands, page.Bytes()) {
		t.Error("docs/config.md is not what the code says: run go generate ./cmd/millrace")
	}
}

// Each setting is a flag of serve and check, and a row of docs/config.md.
func TestEverySettingIsAFlagAndDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/config.md")
	if err != nil {
		t.Fatal(err)
	}
	row := func(s config.Setting) {
		if !bytes.Contains(page, []byte("\n| `"+s.Path+"` |")) {
			t.Errorf("docs/config.md has no %s", s.Path)
		}
	}
	for _, s := range config.Settings() {
		row(s)
		for _, c := range []*cobra.Command{serveCommand(), checkCommand()} {
			if c.Flags().Lookup(s.Flag) == nil {
				t.Errorf("%s has no flag --%s", c.Name(), s.Flag)
			}
		}
		if !bytes.Contains(page, []byte("`--"+s.Flag+"` | `"+s.Env+"`")) {
			t.Errorf("docs/config.md has no --%s and %s", s.Flag, s.Env)
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
