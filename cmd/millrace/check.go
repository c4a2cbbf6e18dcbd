package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"millrace/internal/codec"
	"millrace/server"
	"millrace/workers/onnx"
)

const checkExamples = `  millrace check --config millrace.yaml
  millrace check --model find=motion --http 0.0.0.0:8000
  millrace check --json`

// finding is one line of a check.
type finding struct {
	What   string `json:"what"`
	State  string `json:"state"` // ok, missing or wrong; wrong fails the check
	Detail string `json:"detail"`
}

func checkCommand() *cobra.Command {
	c := &cobra.Command{
		Use:     "check",
		Short:   "Check the configuration and what this machine has",
		Long:    "Check a configuration without serving it, and report what this machine has for it. What is missing is optional; what is wrong makes the exit status 1.",
		Example: checkExamples,
		Args:    wrongUsage(cobra.NoArgs),
	}
	settings := configFlags(c.Flags())
	asJSON := c.Flags().Bool("json", false, "as JSON")
	c.RunE = func(c *cobra.Command, _ []string) error {
		cfg, err := settings.config(nil)
		var usage usageError
		if errors.As(err, &usage) {
			return err
		}
		found := checkConfig(cfg, err)
		found = append(found, checkMachine(c.Context(), cfg)...)
		if err == nil {
			found = append(found, checkPorts(cfg)...)
		}
		if err := report(c, found, *asJSON); err != nil {
			return err
		}
		for _, f := range found {
			if f.State == "wrong" {
				return fmt.Errorf("check: %s is wrong", f.What)
			}
		}
		return nil
	}
	return c
}

func report(c *cobra.Command, found []finding, asJSON bool) error {
	if asJSON {
		return writeJSON(c.OutOrStdout(), found)
	}
	var rows [][]string
	for _, f := range found {
		for i, line := range strings.Split(f.Detail, "\n") {
			row := []string{f.What, f.State, line}
			if i > 0 {
				row = []string{"", "", line}
			}
			rows = append(rows, row)
		}
	}
	return table(c.OutOrStdout(), rows...)
}

func checkConfig(cfg server.Config, err error) (found []finding) {
	if err != nil {
		return []finding{{"configuration", "wrong", err.Error()}}
	}
	found = append(found, finding{"configuration", "ok", fmt.Sprintf("%d models", len(cfg.Models))})
	for _, m := range cfg.Models {
		w, err := m.Worker()
		if err != nil {
			found = append(found, finding{"model " + m.Name, "wrong", err.Error()})
			continue
		}
		found = append(found, finding{"model " + m.Name, "ok", fmt.Sprintf("%s, %d workers, %s batching", w.Kind, w.Instances, w.Batching.Kind)})
	}
	return found
}

func checkMachine(ctx context.Context, cfg server.Config) []finding {
	found := []finding{{"machine", "ok", fmt.Sprintf("%s/%s, %d processors", runtime.GOOS, runtime.GOARCH, runtime.NumCPU())}}
	for _, p := range []struct{ name, why string }{{"ffmpeg", "videos cannot be read"}, {"ffprobe", "videos cannot be looked into"}} {
		f := finding{p.name, "ok", ""}
		if line, err := firstLine(ctx, p.name, "-version"); err != nil {
			f.State, f.Detail = "missing", p.why+": apt-get install ffmpeg"
		} else {
			f.Detail = line
		}
		found = append(found, f)
	}
	onnx.SetLibrary(cfg.ONNX.Library)
	if library, err := onnx.Library(); err != nil {
		found = append(found, finding{"onnx runtime", "missing", "ONNX models cannot be run: " + err.Error()})
	} else {
		found = append(found, finding{"onnx runtime", "ok", library})
	}
	if codec.Turbo {
		return append(found, finding{"libjpeg-turbo", "ok", "built in"})
	}
	return append(found, finding{"libjpeg-turbo", "missing", "JPEG pictures take several times as long: apt-get install libturbojpeg0-dev, then make build"})
}

func firstLine(ctx context.Context, program string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, program, args...).Output()
	line, _, _ := strings.Cut(string(out), "\n")
	return line, err
}

// checkPorts takes each address and gives it back.
func checkPorts(cfg server.Config) (found []finding) {
	for _, a := range []struct{ name, addr string }{{"http", cfg.HTTP}, {"grpc", cfg.GRPC}, {"metrics", cfg.Metrics}} {
		if a.addr == "" || a.addr == server.Off {
			continue
		}
		f := finding{a.name, "ok", a.addr + " is free"}
		if ln, err := net.Listen("tcp", a.addr); err != nil {
			f.State, f.Detail = "wrong", err.Error()
		} else if err := ln.Close(); err != nil {
			f.State, f.Detail = "wrong", err.Error()
		}
		found = append(found, f)
	}
	return found
}
