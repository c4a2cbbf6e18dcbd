package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestDemo(t *testing.T) {
	dir := t.TempDir()
	out, stderr, code := millrace(t, "demo", "--out", dir, "--json")
	var j judged
	if err := json.Unmarshal([]byte(out), &j); err != nil || code != 0 {
		t.Fatalf("exit status %d, %v\n%s%s", code, err, out, stderr)
	}
	if j.Frames != j.Results+j.Dropped() || j.Results < j.Frames/2 || j.Judged == 0 || j.Hits == 0 || j.Precision < 0.4 || j.Recall < 0.4 {
		t.Errorf("%+v", j)
	}
	if n := framesOf(t, j.Overlay); n != j.Frames || j.Overlay != filepath.Join(dir, "overlay.mp4") {
		t.Errorf("%d frames in %s", n, j.Overlay)
	}
	whole(t, filepath.Join(dir, "overlay.png"))

	c := command(t, "demo", "--serve")
	p := begin(t, c)
	p.until("millrace is ready: http://127.0.0.1:")
	p.until("precision, recall")
	line := p.until("The console is at")
	addr, _, _ := strings.Cut(httpAddr.FindStringSubmatch(line)[1], "/")
	if out, stderr, code := millrace(t, "models", "--addr", addr); code != 0 || !strings.Contains(out, "READY") {
		t.Errorf("exit status %d\n%s%s", code, out, stderr)
	}
	whole(t, filepath.Join(c.Dir, "out", "demo", "overlay.png"))
	if _, code := p.signal(syscall.SIGINT); code != 0 {
		t.Errorf("Ctrl-C: exit status %d\n%s", code, &p.stderr)
	}
}
