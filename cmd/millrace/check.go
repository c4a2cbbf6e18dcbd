package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"millrace/client"
	"millrace/ingest/sources"
	"millrace/ingest/streams"
	"millrace/internal/accept"
	"millrace/internal/codec"
	"millrace/internal/openapi"
	"millrace/internal/video"
	"millrace/server"
	"millrace/workers/onnx"
)

const checkExamples = `  millrace check --config millrace.yaml
  millrace check ./model.onnx
  millrace check --model find=motion --http 0.0.0.0:8000 --auth-keys keys.yaml
  millrace check --model-repository ./models
  millrace check --json`

// wrong is the state of a finding that makes the exit status 1.
const wrong = "wrong"

type finding struct {
	What    string          `json:"what"`
	State   string          `json:"state"` // ok, missing or wrong
	Detail  string          `json:"detail"`
	Inputs  []client.Tensor `json:"inputs,omitempty"` // of a model
	Outputs []client.Tensor `json:"outputs,omitempty"`
	openapi.InputRules
}

func checkCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "check [SOURCE]",
		Short: "Check the configuration, the models and this machine",
		Long: `Check a configuration without serving: load all models of the configuration and the repository together, with the
stages of programs, as serve does, and unload the models. Report models and files missing for streams, and the
optional libraries and programs of this machine. A missing item is optional, or may come from elsewhere: keys from
the variables of a service, or the folder of the service's socket. A fault makes the exit status 1.`,
		Example: checkExamples,
		Args:    wrongUsage(cobra.MaximumNArgs(1)),
	}
	settings := configFlags(c.Flags())
	foldSettings(c)
	asJSON := c.Flags().Bool("json", false, "as JSON")
	c.RunE = func(c *cobra.Command, args []string) error {
		cfg, err := settings.config(args)
		var usage usageError
		if errors.As(err, &usage) {
			return err
		}
		onnx.SetLibrary(cfg.ONNX.Library)
		onnx.SetMemory(cfg.ONNX.Memory)
		server.IsolateModels(&cfg)
		found := []finding{checkConfig(cfg, err)}
		if err == nil {
			models := checkModels(c.Context(), cfg, c.ErrOrStderr())
			found = append(found, models...)
			found = append(found, checkStreams(cfg, models)...)
		}
		found = append(found, checkMachine(c.Context())...)
		if err == nil {
			found = append(found, checkPorts(c.Context(), cfg)...)
			for _, err := range server.Exposed(c.Context(), cfg) { // the key may come with the variables of the service
				found = append(found, finding{What: "keys", State: "missing",
					Detail: "millrace serve will not start: " + settings.withFlagNames(cfg, err).Error()})
			}
		}
		if err := c.Context().Err(); err != nil {
			return fmt.Errorf("check: %w", err)
		}
		if err := writeFindings(c, found, *asJSON); err != nil {
			return err
		}
		var bad []string
		for _, f := range found {
			if f.State == wrong {
				bad = append(bad, f.What+" is wrong")
			}
		}
		if len(bad) > 0 {
			return fmt.Errorf("check: %s", strings.Join(bad, ", "))
		}
		return nil
	}
	return c
}

func writeFindings(c *cobra.Command, found []finding, asJSON bool) error {
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

func checkConfig(cfg server.Config, err error) finding {
	if err != nil {
		return finding{What: "configuration", State: wrong, Detail: err.Error()}
	}
	return finding{What: "configuration", State: "ok", Detail: fmt.Sprintf("%d models, %d streams", len(cfg.Models),
		len(cfg.Streams))}
}

// checkStreams checks that the models of the streams are configured, and that the streams' files and folders exist.
// Missing models and files are no errors, because both may come later.
func checkStreams(cfg server.Config, models []finding) (found []finding) {
	for _, s := range cfg.Streams {
		var missing []string
		for _, m := range append([]streams.ModelConfig{{Model: s.Model}}, s.Models...) {
			known := func(f finding) bool {
				return f.What == "model "+m.Model || strings.HasPrefix(f.What, "model "+m.Model+" version ")
			}
			if m.Model != "" && !slices.ContainsFunc(models, known) {
				missing = append(missing, fmt.Sprintf("there is no model %q: the stream waits until it is loaded",
					m.Model))
			}
		}
		if path := sources.LocalPath(s.Source); path != "" {
			if _, err := os.Stat(path); err != nil {
				missing = append(missing, fmt.Sprintf("source: %v: the stream waits until it is there", err))
			}
		}
		f := finding{What: "stream " + s.Name, State: "ok", Detail: video.Redact(s.Source)}
		if missing != nil {
			f.State, f.Detail = "missing", strings.Join(missing, "\n")
		}
		found = append(found, f)
	}
	return found
}

func checkMachine(ctx context.Context) []finding {
	found := []finding{{What: "machine", State: "ok", Detail: fmt.Sprintf("%s/%s, %d processors", runtime.GOOS,
		runtime.GOARCH, runtime.NumCPU())}}
	for _, p := range []struct{ name, why string }{{"ffmpeg", "videos cannot be read"},
		{"ffprobe", "video files cannot be read"}} {
		f := finding{What: p.name, State: "ok"}
		if line, err := firstLine(ctx, p.name, "-version"); err != nil {
			f.State, f.Detail = "missing", p.why+": apt-get install ffmpeg"
		} else {
			f.Detail = line
		}
		found = append(found, f)
	}
	if library, err := onnx.Library(); err != nil {
		found = append(found, finding{What: "onnx runtime", State: "missing", Detail: "ONNX models cannot be run: " +
			err.Error()})
	} else {
		found = append(found, finding{What: "onnx runtime", State: "ok", Detail: library})
	}
	if codec.Turbo {
		return append(found, finding{What: "libjpeg-turbo", State: "ok", Detail: "built in"})
	}
	return append(found, finding{What: "libjpeg-turbo", State: "missing",
		Detail: "JPEG pictures take several times as long: install the archive of the release without pure-go in " +
			"its name, or in a checkout: apt-get install libjpeg-dev, make build"})
}

func firstLine(ctx context.Context, program string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, program, args...).Output()
	line, _, _ := strings.Cut(string(out), "\n")
	return line, err
}

// checkPorts checks the addresses without binding, since the present server may still listen there.
func checkPorts(ctx context.Context, cfg server.Config) (found []finding) {
	for _, l := range server.Listeners(cfg) {
		f := finding{What: l.Name, State: "ok", Detail: l.Addr}
		if err := checkAddr(ctx, l.Addr); errors.Is(err, fs.ErrNotExist) {
			f.State, f.Detail = "missing", err.Error()
		} else if err != nil {
			f.State, f.Detail = wrong, err.Error()
		} else if listens(ctx, l.Addr) {
			f.Detail += " is in use: the program that listens there must end before serve can use it"
		}
		found = append(found, f)
	}
	return found
}

// checkAddr returns an error if this machine lacks the address, or the folder of a unix socket. A missing folder is
// fs.ErrNotExist, since systemd makes the folder at the start of the service.
func checkAddr(ctx context.Context, addr string) error {
	if path, local := accept.SocketPath(addr); local {
		at, err := os.Stat(filepath.Dir(path))
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("the folder of %s is not there: make it, unless the service makes it when it starts "+
				"(RuntimeDirectory of systemd), or choose another path (%w)", path, fs.ErrNotExist)
		}
		if err == nil && !at.IsDir() {
			err = fmt.Errorf("%s is not a folder: choose another path", filepath.Dir(path))
		}
		return err
	}
	host, _, err := net.SplitHostPort(addr)
	if err != nil || host == "" {
		return err
	}
	ips, err := net.DefaultResolver.LookupIPAddr(ctx, host)
	if err != nil {
		return fmt.Errorf("%s: cannot resolve the host: %w", addr, err)
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		return err
	}
	for _, ip := range ips {
		if ip.IP.IsUnspecified() || ip.IP.IsLoopback() || slices.ContainsFunc(own, func(a net.Addr) bool {
			n, ok := a.(*net.IPNet)
			return ok && n.IP.Equal(ip.IP)
		}) {
			return nil
		}
	}
	return fmt.Errorf("%s is not an address of this machine: choose one that it has, or 0.0.0.0 for all", addr)
}

// listens reports whether a program listens at the address.
func listens(ctx context.Context, addr string) bool {
	network := "tcp"
	if path, local := accept.SocketPath(addr); local {
		network, addr = "unix", path
	} else if _, port, _ := net.SplitHostPort(addr); port == "0" {
		return false
	}
	d := net.Dialer{Timeout: time.Second}
	c, err := d.DialContext(ctx, network, addr)
	if err != nil {
		return false
	}
	_ = c.Close()
	return true
}
