package server

import (
	"log/slog"
	"math"
	"strconv"

	"github.com/gofiber/fiber/v2"

	"millrace/client"
	"millrace/ingest"
	"millrace/ingest/rest/request"
	"millrace/stream"
	"millrace/tracing"
)

var _ ingest.Settings = backend{}

// logState has the settings of the log in the form of the logging extension: a switch for each level.
type logState struct {
	File    string `json:"log_file"`
	Info    bool   `json:"log_info"`
	Warning bool   `json:"log_warning"`
	Error   bool   `json:"log_error"`
	Verbose int    `json:"log_verbose_level"`
	Format  string `json:"log_format"`
}

// logAnswer has the settings of the log under this server's names, too.
type logAnswer struct {
	client.Logging
	logState
}

// The values of the protocol's log_format. This server's log uses ISO 8601 times with both values.
const (
	formatDefault = "default"
	formatISO     = "ISO8601"
)

func (o *observer) logState() logState {
	on := func(level slog.Level) bool { return o.level.Level() <= level && o.switches.On(level) }
	st := logState{File: o.settings.File, Info: on(slog.LevelInfo), Warning: on(slog.LevelWarn),
		Error: on(slog.LevelError), Format: formatDefault}
	if on(slog.LevelDebug) {
		st.Verbose = 1
	}
	if o.isoTimes.Load() {
		st.Format = formatISO
	}
	return st
}

func (o *observer) logAnswer() logAnswer { return logAnswer{o.logging(), o.logState()} }

// LogSettings implements ingest.Settings.
func (d backend) LogSettings() map[string]any {
	a := d.s.observe.logState()
	return map[string]any{
		"log_file": a.File, "log_format": a.Format, "log_info": a.Info, "log_warning": a.Warning, "log_error": a.Error,
		"log_verbose_level": a.Verbose,
	}
}

// ChangeLog implements ingest.Settings.
func (d backend) ChangeLog(change map[string]any) error {
	bad := func(name, format string, args ...any) error {
		return stream.Errorf(stream.InvalidArgument, name, format, args...)
	}
	st := d.s.observe.logState()
	level := ""
	for name, v := range change {
		ok := true
		switch name {
		case "level":
			if level, ok = v.(string); !ok || level == "" {
				return bad(name, "is not a level: want debug, info, warn or error")
			}
		case "log_info":
			st.Info, ok = v.(bool)
		case "log_warning":
			st.Warning, ok = v.(bool)
		case "log_error":
			st.Error, ok = v.(bool)
		case "log_verbose_level":
			n, whole := v.(int64)
			if !whole || n < 0 || n > math.MaxUint32 {
				return bad(name,
					"is not a whole number, 0 or more: 0 turns the lines of requests off, and 1 or more on")
			}
			st.Verbose = int(n)
		case "log_file":
			if v != st.File {
				return stream.Errorf(stream.Unsupported, name,
					"log file location can not be updated through network protocol: set log.file in the configuration")
			}
		case "log_format":
			if v != formatDefault && v != formatISO {
				return bad(name, "is not %s or %s", formatDefault, formatISO)
			}
			st.Format = v.(string)
		default:
			return bad(name, "is not a setting of the log: want level, log_verbose_level, log_info, log_warning, "+
				"log_error or log_format")
		}
		if !ok {
			return bad(name, "is not true or false")
		}
	}
	if level != "" {
		if len(change) > 1 {
			return bad("level", "is given with other settings: send it alone")
		}
		return d.s.SetLogLevel(level)
	}
	return d.s.observe.setLogState(st)
}

// setLogState sets the lowest enabled level, and disables the switched-off levels above.
func (o *observer) setLogState(st logState) error {
	levels := []struct {
		of slog.Level
		on bool
	}{{slog.LevelDebug, st.Verbose > 0}, {slog.LevelInfo, st.Info}, {slog.LevelWarn, st.Warning},
		{slog.LevelError, st.Error}}
	least, off := slog.LevelError, []slog.Level(nil)
	for i := len(levels) - 1; i >= 0; i-- {
		if levels[i].on {
			least = levels[i].of
		} else {
			off = append(off, levels[i].of)
		}
	}
	o.isoTimes.Store(st.Format == formatISO)
	if err := o.setLevel(tracing.LevelName(least)); err != nil {
		return err
	}
	o.switches.Set(off...) // after the change was logged
	return nil
}

// TraceSettings implements ingest.Settings. All models have the same settings.
func (d backend) TraceSettings(model string) (map[string][]string, error) {
	if model != "" {
		if _, err := d.s.group(model, ""); err != nil {
			return nil, err
		}
	}
	level, rate := "TIMESTAMPS", "0"
	ratio := d.s.observe.tracer.Ratio()
	if ratio > 0 {
		rate = strconv.FormatFloat(math.Round(1/ratio), 'f', -1, 64)
	} else {
		level = "OFF"
	}
	return map[string][]string{
		"trace_level": {level}, "trace_rate": {rate}, "trace_count": {"-1"}, "log_frequency": {"0"},
		"trace_file": {""}, "trace_mode": {"opentelemetry"},
	}, nil
}

// ChangeTraces implements ingest.Settings: trace_rate N keeps the traces of one frame in N; trace_level OFF keeps
// only traces requested by clients or by the rules for slow and failed frames.
func (d backend) ChangeTraces(model string, change map[string][]string) error {
	is, err := d.TraceSettings(model)
	if err != nil {
		return err
	}
	if model != "" && len(change) > 0 {
		return stream.Errorf(stream.Unsupported, "",
			"the settings of traces are those of all models: change them at /v2/trace/setting")
	}
	bad := func(name, format string, args ...any) error {
		return stream.Errorf(stream.InvalidArgument, name, format, args...)
	}
	t := d.s.observe.tracer
	ratio, configured := t.Ratio(), t.ConfiguredRatio()
	off := ratio == 0
	for name, values := range change {
		switch name {
		case "trace_level", "trace_rate":
		default:
			if _, known := is[name]; !known {
				return bad(name, "is not a setting of traces: want trace_level or trace_rate")
			}
			if len(values) == 0 || len(values) == 1 && values[0] == is[name][0] {
				continue
			}
			return stream.Errorf(stream.Unsupported, name, "cannot be changed while the server runs: traces are "+
				"exported as the section tracing of its configuration says")
		}
		if len(values) > 1 {
			return bad(name, "has %d values: want one", len(values))
		}
		switch {
		case len(values) == 0:
			ratio, off = configured, configured == 0
		case name == "trace_rate":
			n, err := strconv.ParseUint(values[0], 10, 32)
			if err != nil || n == 0 {
				return bad(name,
					"%.32q is not a whole number, 1 or more: of so many frames, the traces of one are kept", values[0])
			}
			ratio = 1 / float64(n)
		case values[0] == "OFF":
			off = true
		case values[0] == "TIMESTAMPS":
			off = false
		default:
			return bad(name, "%.32q is not a level: want OFF or TIMESTAMPS", values[0])
		}
	}
	if _, leveled := change["trace_level"]; !leveled && change["trace_rate"] != nil {
		off = false
	}
	switch {
	case off:
		ratio = 0
	case ratio == 0:
		ratio = configured
	}
	return t.SetRatio(ratio)
}

// maxSettings is the largest body of a change of settings, in bytes.
const maxSettings = 4 << 10

func (s *Server) readSettings(c *fiber.Ctx) ([]byte, error) {
	return s.http.ReadSmall(c, maxSettings)
}

// traceSettingRoutes adds the routes of the trace extension.
func (s *Server) traceSettingRoutes(app *fiber.App) {
	for _, path := range []string{"/v2/trace/setting", "/v2/models/:model/trace/setting"} {
		app.Get(path, func(c *fiber.Ctx) error { return s.answerTraces(c) })
		app.Post(path, func(c *fiber.Ctx) error {
			body, err := s.readSettings(c)
			if err != nil {
				return err
			}
			change, err := request.TraceChange(body)
			if err != nil {
				return err
			}
			if err := (backend{s}).ChangeTraces(c.Params("model"), change); err != nil {
				return err
			}
			return s.answerTraces(c)
		})
	}
}

func (s *Server) answerTraces(c *fiber.Ctx) error {
	all, err := (backend{s}).TraceSettings(c.Params("model"))
	if err != nil {
		return err
	}
	out := fiber.Map{}
	for name, values := range all {
		out[name] = values[0]
	}
	out["trace_level"] = all["trace_level"]
	return c.JSON(out)
}
