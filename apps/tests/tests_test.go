package tests

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"millrace/apps/program"
	"millrace/internal/testneeds"
)

// TestGoCases: a run of go test without a test fails.
func TestGoCases(t *testing.T) {
	for _, c := range []struct {
		lines  []string
		failed error
		want   []string // messages of failures, "" = passed
	}{
		{[]string{`{"Action":"output","Package":"a","Output":"testing: warning: no tests to run\n"}`,
			`{"Action":"pass","Package":"a"}`}, nil, []string{"no test ran"}},
		{nil, nil, []string{"no test ran"}},
		{nil, errors.New("exit status 1:\n x"), []string{"exit status 1"}},
		{[]string{`{"Action":"run","Package":"a","Test":"T"}`, `{"Action":"pass","Package":"a","Test":"T"}`}, nil,
			[]string{""}},
		{[]string{`{"Action":"run","Package":"a","Test":"T"}`}, nil, []string{"has not ended"}},
		{[]string{`{"Action":"fail","Package":"a","Test":"T"}`}, errors.New("exit status 1"), []string{"failed"}},
	} {
		events, order, other := map[string]*junitCase{}, []*junitCase{}, strings.Builder{}
		for _, line := range c.lines {
			goEvent(line, events, &order, &other)
		}
		got := []string{}
		for _, e := range goCases(order, c.failed, other.String()) {
			message := ""
			if e.Failure != nil {
				message = e.Failure.Message
			}
			got = append(got, message)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%q: %q, want %q", c.lines, got, c.want)
		}
	}
}

// TestPytestSuite: a report counts, whatever the tests print, and a report without a test is a failure.
func TestPytestSuite(t *testing.T) {
	const missing = "No module named pytest"
	report := filepath.Join(t.TempDir(), "report.xml")
	if _, err := pytestSuite(report, missing, 0, errors.New("exit status 1")); err == nil ||
		!strings.Contains(err.Error(), "write pytest into tests/requirements.txt") {
		t.Errorf("without pytest: %v", err)
	}
	for _, c := range []struct {
		tests, failures string
		failed          error
		want            int
	}{{"2", "1", errors.New("exit status 1"), 1}, {"2", "0", nil, 0}, {"0", "0", nil, 1}} {
		text := `<testsuites><testsuite tests="` + c.tests + `" failures="` + c.failures + `"></testsuite></testsuites>`
		if err := os.WriteFile(report, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := pytestSuite(report, missing, time.Second, c.failed)
		if err != nil || s.Failed != c.want {
			t.Errorf("%+v: %+v %v", c, s, err)
		}
	}
}

// TestGoFiles: tests may read the installation of Go, and not the folder above a program go.
func TestGoFiles(t *testing.T) {
	if err := program.Check(); err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	if err := os.Mkdir(filepath.Join(home, "bin"), 0o700); err != nil {
		t.Fatal(err)
	}
	script := "#!/bin/sh\nexec " + testneeds.Program(t, "go") + " \"$@\"\n"
	testneeds.WriteProgram(t, filepath.Join(home, "bin/go"), script)
	t.Setenv("PATH", filepath.Join(home, "bin")+":"+os.Getenv("PATH"))
	files := goFiles(t.Context())
	if slices.Contains(files, home) || !slices.Contains(files, filepath.Join(home, "bin")) {
		t.Errorf("%q", files)
	}
}
