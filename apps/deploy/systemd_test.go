package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"millrace/internal/testneeds"
)

// The unit of a release has the rules of the unit that documents show, and words of an application cannot end a line
// or name variables.
func TestUnit(t *testing.T) {
	shown, err := os.ReadFile("../../deploy/systemd/millrace.service")
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Name: "plain"}
	d := &systemd{&site{o: &o, folder: "/srv/100%/plain"}}
	text := d.text(&release{Number: 3, Arguments: []string{"serve", "--name", "a b\"c$D%i\nExecStart=x"},
		Health: "127.0.0.1:8000", Secrets: []string{"A"}}, []string{"PATH=/usr/bin", "X=$Y%"})
	lines := strings.Split(text, "\n")
	// A release has its own folders, files of secrets and description, and no bound of memory that nobody chose.
	differs := []string{"Description", "Documentation", "ExecStart", "StateDirectory", "CacheDirectory",
		"LogsDirectory", "RuntimeDirectory", "ConfigurationDirectory", "WorkingDirectory",
		"Environment", "EnvironmentFile", "MemoryMax"}
	for line := range strings.SplitSeq(string(shown), "\n") {
		key, _, is := strings.Cut(line, "=")
		if is && !strings.HasPrefix(line, "#") && !slices.Contains(differs, key) && !slices.Contains(lines, line) {
			t.Errorf("the unit lacks %s", line)
		}
	}
	for _, want := range []string{
		`ExecStart=/usr/local/bin/millrace "serve" "--name" "a b\"c$$D%%i\nExecStart=x"`,
		`Environment="X=$Y%%"`, "EnvironmentFile=/srv/100%%/plain/releases/3/secrets",
		"RootDirectory=/srv/100%%/plain/releases/3/root", "User=" + d.user(),
	} {
		if !slices.Contains(lines, want) {
			t.Errorf("the unit lacks %s:\n%s", want, text)
		}
	}
	if got := quoteValue("a\"b\\c$d`\ne"); got != "\"a\\\"b\\\\c\\$d\\`\ne\"" {
		t.Errorf("a value: %s", got)
	}
}

// systemd finds no mistake in the unit of a release.
func TestUnitVerified(t *testing.T) {
	if testing.Short() {
		t.Skip("make check runs the tests with systemd")
	}
	o := Options{Name: "plain"}
	d := &systemd{&site{o: &o, folder: t.TempDir()}}
	r := &release{Number: 3, Arguments: []string{"serve", "--name", "a b$c%d"}, Health: "127.0.0.1:8000",
		Secrets: []string{"A"}}
	text := d.text(r, []string{"PATH=/usr/bin"})
	verify := func(text string) string {
		t.Helper()
		file := filepath.Join(t.TempDir(), d.unit(r))
		// systemd-analyze looks for the program on this machine, not in the root folder.
		text = strings.Replace(text, "ExecStart=/usr/local/bin/millrace", "ExecStart=/bin/true", 1)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		out, _ := exec.Command(testneeds.Program(t, "systemd-analyze"), "verify", file).CombinedOutput()
		return strings.TrimSpace(string(out))
	}
	if said := verify(text); said != "" {
		t.Errorf("systemd-analyze: %s", said)
	}
	if said := verify(strings.Replace(text, "KillMode=mixed", "KillMode=mixd", 1)); !strings.Contains(said, "mixd") {
		t.Errorf("systemd-analyze does not see a mistake: %s", said)
	}
}
