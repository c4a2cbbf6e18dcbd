package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"millrace/client"
	"millrace/config"
	"millrace/internal/accept"
	"millrace/server"
	"millrace/stream/coded"
	"millrace/workers/onnx"
)

// The states of a diagnosis.
const (
	healthy = "ok"
	warns   = "warn"
	fails   = "fail" // makes the exit status 1
)

// diagnosis is the doctor's finding about one part of the machine or of the server.
type diagnosis struct {
	What   string `json:"what"`
	State  string `json:"state"` // ok, warn or fail
	Detail string `json:"detail"`
	Do     string `json:"do,omitempty"` // what to do about it
}

// healthyDiagnosis returns the diagnosis of a successful check.
func healthyDiagnosis(what, format string, args ...any) diagnosis {
	return diagnosis{What: what, State: healthy, Detail: fmt.Sprintf(format, args...)}
}

func doctorCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Find faults of this machine or a running server, and their remedies",
		Long: `Check the libraries and codecs, the limits of this machine, the ports, the clock, GPUs, the configuration, and
a running server. A server at --addr or MILLRACE_ADDR must answer; without an address, doctor asks the server of the
configuration if the server runs.

Each line is ok, warn (works with the named loss) or fail, and names the remedy. A fail makes the exit status 1.
doctor takes the settings of millrace serve. doctor loads no models: use millrace check.`,
		Example: "  millrace doctor\n  millrace doctor --config millrace.yaml\n  millrace doctor --addr " +
			"192.0.2.7:8000\n  millrace doctor --json | jq '.[] | select(.state != \"ok\")'",
		Args: wrongUsage(cobra.NoArgs),
	}
	settings := configFlags(c.Flags())
	foldSettings(c)
	host := remoteFlags(c)
	asJSON := c.Flags().Bool("json", false, "as JSON")
	c.RunE = func(c *cobra.Command, _ []string) error {
		cfg, err := settings.config(nil)
		var usage usageError
		if errors.As(err, &usage) {
			return err
		}
		d := doctor{cfg: cfg, host: host, named: c.Flags().Changed("addr") || os.Getenv(config.EnvAddr) != ""}
		if err == nil && !d.named {
			d.host.addr = ownAddr(cfg, d.host.addr)
		}
		// other commands read the variable too
		if c.Flags().Changed("addr") || host.addr != c.Flags().Lookup("addr").DefValue {
			d.at = " --addr " + host.addr
		}
		if err != nil {
			d.found = append(d.found, diagnosis{"configuration", fails, err.Error(),
				"mend it; docs/millrace.yaml lists all settings"})
			d.cfg = server.Config{}.WithDefaults()
		} else {
			d.found = append(d.found, healthyDiagnosis("configuration", "%d models, %d streams", len(cfg.Models),
				len(cfg.Streams)))
		}
		d.examine(c.Context())
		if err := c.Context().Err(); err != nil {
			return fmt.Errorf("doctor: %w", err)
		}
		return d.report(c, *asJSON)
	}
	return c
}

// ownAddr returns the HTTP address of a configured server for clients on this machine, or def without HTTP.
func ownAddr(cfg server.Config, def string) string {
	for _, l := range server.Listeners(cfg) {
		if l.Name != "http" {
			continue
		}
		addr := strings.TrimPrefix(l.URL, "http://")
		if host, port, err := net.SplitHostPort(l.Addr); err == nil &&
			(host == "" || net.ParseIP(host).IsUnspecified()) {
			addr = strings.TrimSuffix(addr, l.Addr) + net.JoinHostPort("127.0.0.1", port)
		}
		return addr
	}
	return def
}

// doctor examines a machine for the configured server.
type doctor struct {
	cfg   server.Config
	host  *remote
	named bool   // --addr or the variable was given: a server must answer
	at    string // --addr for commands to the same server, if needed
	found []diagnosis
}

// examine makes all checks.
func (d *doctor) examine(ctx context.Context) {
	d.found = append(d.found, processorsUsed(), d.memory(), d.openFiles(), d.onnx(), turbojpeg(), libwebp())
	d.found = append(d.found, ffmpegSymptoms(ctx)...)
	d.found = append(d.found, sandbox(ctx, d.cfg.Sandbox), d.programs(ctx), hardware(ctx, d.cfg.Sources.HWAccel))
	d.found = append(d.found, clock())
	d.found = append(d.found, gpus(ctx)...)
	d.found = append(d.found, d.ports(ctx)...)
	for _, err := range server.Exposed(ctx, d.cfg) { // the key may come with the variables of a service
		d.found = append(d.found, diagnosis{"keys", warns, err.Error(), "until then, millrace serve does not start"})
	}
	d.found = append(d.found, d.certificates(ctx)...)
	d.found = append(d.found, d.server(ctx)...)
}

// certificates reports the certificates given by an authority.
func (d *doctor) certificates(ctx context.Context) (found []diagnosis) {
	acme := d.cfg.TLS.ACME
	for _, name := range acme.Domains {
		leaf, late, err := server.ACMECertificate(acme, name, time.Now())
		if err == nil && !late {
			found = append(found, healthyDiagnosis("certificate", "for %s until %s", name,
				leaf.NotAfter.UTC().Format(time.DateTime)))
			continue
		}
		s := diagnosis{"certificate", warns, "there is none for " + name + " in tls.acme.cache of this user",
			"millrace serve requests it, for which port 443 of the name has to lead to the address http, " + d.cfg.HTTP}
		if err == nil {
			s.Detail = fmt.Sprintf("that for %s is valid until %s, and should have been renewed", name,
				leaf.NotAfter.UTC().Format(time.DateTime))
			s.Do = "see why in the log of the server"
		}
		if _, err := net.DefaultResolver.LookupHost(ctx, name); err != nil {
			s.Detail += "; " + err.Error()
			s.Do = "add the name to the DNS"
		}
		found = append(found, s)
	}
	return found
}

// report writes all findings.
func (d *doctor) report(c *cobra.Command, asJSON bool) error {
	if asJSON {
		if err := writeJSON(c.OutOrStdout(), d.found); err != nil {
			return err
		}
	} else {
		var rows [][]string
		for _, s := range d.found {
			for i, line := range strings.Split(s.Detail, "\n") {
				row := []string{s.State, s.What, line}
				if i > 0 {
					row = []string{"", "", line}
				}
				rows = append(rows, row)
			}
			if s.Do != "" {
				rows = append(rows, []string{"", "", "-> " + s.Do})
			}
		}
		if err := table(c.OutOrStdout(), rows...); err != nil {
			return err
		}
	}
	var bad []string
	for _, s := range d.found {
		if s.State == fails {
			bad = append(bad, s.What)
		}
	}
	if len(bad) > 0 {
		return fmt.Errorf("doctor: failed: %s", strings.Join(bad, ", "))
	}
	return nil
}

// onnx loads ONNX Runtime. The library is optional unless named.
func (d *doctor) onnx() diagnosis {
	onnx.SetLibrary(d.cfg.ONNX.Library)
	path, err := onnx.Library()
	switch {
	case err == nil:
		return healthyDiagnosis("onnx runtime", "%s", path)
	case !onnx.Built:
		return diagnosis{"onnx runtime", warns, err.Error(), "install that archive, if there are ONNX models"}
	case d.cfg.ONNX.Library != "" || os.Getenv(onnx.EnvLibrary) != "" ||
		strings.Contains(err.Error(), "cannot be used"):
		return diagnosis{"onnx runtime", fails, err.Error(),
			"name another library with onnx.library, or leave the setting out"}
	}
	return diagnosis{"onnx runtime", warns, "ONNX models cannot be run: " + err.Error(),
		"if there are ONNX models: copy libonnxruntime.so.1, libstdc++.so.6 and libgcc_s.so.1 of the release's " +
			"archive into the program's folder or ../lib/millrace; in a checkout: make onnxruntime"}
}

// ports tries to listen at each address of the configuration.
func (d *doctor) ports(ctx context.Context) (found []diagnosis) {
	for _, l := range server.Listeners(d.cfg) {
		what := "port of " + l.Name
		if _, local := accept.SocketPath(l.Addr); local {
			found = append(found, socketSymptom(ctx, "socket of "+l.Name, l))
			continue
		}
		ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", l.Addr)
		if err == nil {
			_ = ln.Close()
			found = append(found, healthyDiagnosis(what, "%s is free", l.Addr))
			continue
		}
		owner := portOwner(l.Addr)
		switch {
		case !listens(ctx, l.Addr):
			found = append(found, diagnosis{what, fails, err.Error(),
				"choose an address that this machine has, and a port above 1024 unless root runs the server"})
		case strings.HasPrefix(owner, " by millrace (") || l.Name == "http" && isNamed(ctx, l.Addr, d.cfg.Name):
			found = append(found, healthyDiagnosis(what, "%s is in use%s, which is a millrace server", l.Addr,
				cmp.Or(owner, " by a program")))
		default:
			found = append(found, diagnosis{what, fails, l.Addr + " is in use" + owner,
				"end that program, or choose another address: --" + strings.ReplaceAll(l.Setting, ".", "-")})
		}
	}
	return found
}

// socketSymptom checks a unix socket of the configuration without listening, since listening would replace the file.
func socketSymptom(ctx context.Context, what string, l server.Listener) diagnosis {
	flag := "--" + strings.ReplaceAll(l.Setting, ".", "-")
	if err := checkAddr(ctx, l.Addr); errors.Is(err, fs.ErrNotExist) {
		return diagnosis{what, warns, err.Error(),
			"until then, millrace serve does not start; for another path: " + flag}
	} else if err != nil {
		return diagnosis{what, fails, err.Error(), "choose another path: " + flag}
	}
	if listens(ctx, l.Addr) {
		return healthyDiagnosis(what, "%s is in use by a server", l.Addr)
	}
	path, _ := accept.SocketPath(l.Addr)
	if at, err := os.Lstat(path); err == nil && at.Mode().Type() != fs.ModeSocket {
		return diagnosis{what, fails, path + " is not a unix socket", "remove it, or choose another path: " + flag}
	}
	return healthyDiagnosis(what, "%s is free", l.Addr)
}

// isNamed reports whether a server called name answers at an address.
func isNamed(ctx context.Context, addr, name string) bool {
	c, err := client.New(addr)
	if err != nil {
		return false
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	m, err := c.Server(ctx)
	// the server wants a key, but doctor sends none
	return err == nil && m.Name == name || coded.CodeOf(err) == coded.Unauthenticated
}

// clockSkew is the difference of two machines' clocks above which computed ages mislead.
const clockSkew = time.Second

// server asks a running server for its state.
func (d *doctor) server(ctx context.Context) (found []diagnosis) {
	cl, err := d.host.dial()
	if err != nil {
		return []diagnosis{{"server", fails, err.Error(),
			"correct --addr, --ca, --fingerprint, --token or --token-file"}}
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	asked := time.Now()
	st, err := cl.Status(ctx)
	if err != nil {
		state, do := fails, nextStep(err)
		switch code := coded.CodeOf(err); {
		case code == coded.Unauthenticated, code == coded.PermissionDenied:
			if !d.named {
				state = warns
			}
			do = "give a key that has the role watch, with --token-file FILE or the variable " + config.EnvToken
		case !d.named:
			return []diagnosis{healthyDiagnosis("server", "none answers at %s", cl.Addr())}
		}
		return []diagnosis{{"server", state, err.Error(), do}}
	}
	skew := st.Time.Sub(asked.Add(time.Since(asked) / 2)).Round(time.Millisecond)
	s := healthyDiagnosis("server", "%s is %s, version %s, up %v", cl.Addr(), st.State, st.Version,
		time.Duration(st.UptimeSeconds)*time.Second)
	if st.State != "ready" && st.State != "starting" {
		s.State, s.Do = fails, "see the models below, and the server's log"
	}
	found = append(found, s)
	if skew.Abs() > clockSkew {
		found = append(found, diagnosis{"server's clock", warns, fmt.Sprintf("differs from this machine's by %v", skew),
			"synchronise both with NTP: ages of frames are computed from both"})
	}
	for i := range st.Models {
		if m := &st.Models[i]; m.State != "READY" {
			found = append(found, diagnosis{"model " + m.Name, fails, m.State + ": " + m.Reason,
				"see the server's log; load it again: millrace models load " + m.Name + d.at})
		} else if m.Quarantined > 0 {
			found = append(found, diagnosis{"model " + m.Name, warns, fmt.Sprintf("%d workers hang", m.Quarantined),
				"see limits.run of the model, and the server's log"})
		}
	}
	if st.Memory.Denied > 0 {
		found = append(found, diagnosis{"server's memory", warns, fmt.Sprintf("memory was refused %d times",
			st.Memory.Denied), "raise memory.budget, or send fewer or smaller frames"})
	}
	for name, l := range st.Connections {
		if l.Refused+l.Failed > 0 {
			found = append(found, diagnosis{"connections of " + name, warns,
				fmt.Sprintf("%d were refused, %d could not be accepted", l.Refused, l.Failed),
				"raise limits.max_connections or limits.max_connections_per_address, and the number of open files"})
		}
	}
	for _, s := range streamSymptoms(ctx, cl) {
		s.Detail = withCommands(s.Detail)
		if s.Do != "" { // ends with a command
			s.Do += d.at
		}
		found = append(found, s)
	}
	return found
}

// streamSymptoms reports server streams that do not run, and streams of several models in which a model waits.
func streamSymptoms(ctx context.Context, cl *client.Client) (found []diagnosis) {
	list, err := cl.ServerStreams(ctx)
	if err != nil {
		return []diagnosis{{"streams", warns, err.Error(), ""}}
	}
	for i := range list {
		s := &list[i]
		if s.Error != nil && s.State != "running" && s.State != "ended" {
			do := "check its source: millrace streams show " + s.Name
			if len(s.Models) > 0 && !slices.ContainsFunc(s.Models, func(m client.StreamModel) bool {
				return m.State != "waiting"
			}) {
				do = "load the model, if it is not loaded: millrace models load " + s.Models[0].Model
			}
			found = append(found, diagnosis{"stream " + s.Name, warns, s.State + ": " + s.Error.Message, do})
		}
		for j := range s.Models {
			if m := &s.Models[j]; m.State == "waiting" && m.Error != nil && len(s.Models) > 1 {
				found = append(found, diagnosis{"model " + m.Model + " of stream " + s.Name, warns,
					m.State + ": " + m.Error.Message, "load the model, if it is not loaded: millrace models load " +
						m.Model})
			}
		}
	}
	return found
}
