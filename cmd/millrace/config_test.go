package main

import (
	"bytes"
	"os"
	"testing"
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
