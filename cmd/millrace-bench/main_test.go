package main

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"millrace/workers/onnx"
)

// TestMain lets the test binary be its own client process.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == childArg {
		if childMain(os.Stdin, os.Stdout) != nil {
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// TestEveryRowIsMeasured runs the whole table in rounds too short to mean
// anything: what it checks is that each row is there and that no frame is lost.
func TestEveryRowIsMeasured(t *testing.T) {
	idleStreams, mlpHidden = 50, 64
	rows, want := "", []string{
		"WebSocket echo, 30 KB", "WebSocket echo, 300 KB", "REST tensor, 30 KB, read", "REST 224x224x3 JSON numbers", "native call",
		"JPEG video", "metrics on against off", "allocations a frame", "resident memory of an idle stream", "delay at 2x: goodput", "delay at 10x: p99 age",
	}
	if _, err := onnx.Library(); err != nil {
		t.Log("the rows of ONNX are left out:", err)
		rows = "^[^o]|^overload"
	} else {
		want = append(want, "ONNX MLP, batch", "ONNX small CNN, batch", "ONNX MLP, max_size 8 against 1", "through the small CNN, CPU a frame",
			"30 streams of JPEG video at 30 fps, small CNN: p99", "42 streams of JPEG video at 30 fps, small CNN: p99")
	}
	var out, errs bytes.Buffer
	if status := run([]string{"-json", "-round", "60ms", "-rounds", "1", "-rows", rows}, &out, &errs); status != 0 {
		t.Fatalf("status %d: %s", status, errs.String())
	}
	var table Table
	if err := json.Unmarshal(out.Bytes(), &table); err != nil {
		t.Fatal(err)
	}
	for _, want := range want {
		found := false
		for _, r := range table.Rows {
			found = found || strings.Contains(r.Name, want) && (r.Millrace > 0 || r.Unit == "KB") // which may come out as none
		}
		if !found {
			t.Errorf("there is no row %q", want)
		}
	}
	for _, r := range table.Rows {
		if r.Limit == "= 0" && !r.Met {
			t.Errorf("%+v", r)
		}
	}
	var text bytes.Buffer
	table.write(&text)
	lines := strings.Split(text.String(), "\n")
	if len(lines) < len(table.Rows)+4 || !strings.HasPrefix(lines[0], "row ") || !strings.Contains(lines[1], "frames/s") {
		t.Errorf("%q", lines)
	}
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{{"-rows", "("}, {"-round", "0"}, {"-rounds", "0"}, {"-none"}, {"more"}} {
		var out, errs bytes.Buffer
		if status := run(args, &out, &errs); status != 2 || errs.Len() == 0 || out.Len() > 0 {
			t.Errorf("%q: status %d: %s", args, status, errs.String())
		}
	}
}

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		v    []float64
		want float64
	}{{[]float64{3}, 3}, {[]float64{9, 1, 2}, 2}, {[]float64{4, 1, 2, 9}, 3}} {
		if m := median(c.v); m != c.want {
			t.Errorf("%v: %v", c.v, m)
		}
	}
}
