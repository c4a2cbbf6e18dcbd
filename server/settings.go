package server

import (
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

// logState is the log's level as the protocol has it: a switch for each level.
type logState struct {
	Info     bool `json:"log_info"`
	Warnings bool `json:"log_warnings"`
	Errors   bool `json:"log_errors"`
	Verbose  int  `json:"log_verbose_level"`
}

// logAnswer has the settings of the log under this server's names and the protocol's.
type logAnswer struct {
	client.Logging
	logState
	LogFile   string `json:"log_file"`
	LogFormat string `json:"log_format"`
}

func (s *Server) logState() logState {
	level := tracing.LevelName(s.observe.level.Level())
	st := logState{Info: level == "debug" || level == "info", Warnings: level != "error", Errors: true}
	if level == "debug" {
		st.Verbose = 1
	}
	return st
}

func (s *Server) logAnswer() logAnswer {
	l := s.logging()
	return logAnswer{Logging: l, logState: s.logState(), LogFile: l.File, LogFormat: "default"}
}

// LogSettings implements ingest.Settings.
func (d backend) LogSettings() map[string]any {
	a := d.s.logAnswer()
	return map[string]any{
		"log_file": a.LogFile, "log_format": a.LogFormat, "log_info": a.Info, "log_warnings": a.Warnings, "log_errors": a.Errors, "log_verbose_level": a.Verbose,
	}
}

// ChangeLog implements ingest.Settings. The levels are those of this server: the switch of
// a level cannot be off when that of one with more lines is on.
func (d backend) ChangeLog(change map[string]any) error {
	bad := func(name, format string, args ...any) error {
		return stream.Errorf(stream.InvalidArgument, name, format, args...)
	}
	st, is := d.s.logState(), d.LogSettings()
	level := ""
	for name, v := range change {
		var on, ok bool
		switch name {
		case "log_info", "log_warnings", "log_errors":
			if on, ok = v.(bool); !ok {
				return bad(name, "is not true or false")
			}
		}
		switch name {
		case "level":
			if level, ok = v.(string); !ok || level == "" {
				return bad(name, "is not a level: want debug, info, warn or error")
			}
		case "log_info":
			st.Info = on
		case "log_warnings":
			st.Warnings = on
		case "log_errors":
			if st.Errors = on; !on {
				return bad(name, "cannot be turned off: errors are always logged")
			}
		case "log_verbose_level":
			n, ok := v.(int64)
			if !ok || n < 0 || n > math.MaxUint32 {
				return bad(name, "is not a whole number, 0 or more: 0 turns the lines of requests off, and 1 or more on")
			}
			st.Verbose = int(n)
		case "log_file", "log_format":
			if v != is[name] {
				return stream.Errorf(stream.Unsupported, name, "cannot be changed while the server runs: set log.file or log.format in its configuration")
			}
		default:
			return bad(name, "is not a setting of the log: want level, log_verbose_level, log_info or log_warnings")
		}
	}
	if level != "" {
		if len(change) > 1 {
			return bad("level", "is given with other settings: send it alone")
		}
		return d.s.SetLogLevel(level)
	}
	switch {
	case st.Verbose > 0 && !st.Info:
		return bad("log_info", "is off while log_verbose_level is %d: send log_verbose_level 0, or log_info true", st.Verbose)
	case st.Info && !st.Warnings:
		return bad("log_warnings", "is off while log_info is on: turn that off, too")
	case st.Verbose > 0:
		level = "debug"
	case st.Info:
		level = "info"
	case st.Warnings:
		level = "warn"
	default:
		level = "error"
	}
	return d.s.SetLogLevel(level)
}

// TraceSettings implements ingest.Settings. They are the same for all models.
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
		"trace_level": {level}, "trace_rate": {rate}, "trace_count": {"-1"}, "log_frequency": {"0"}, "trace_file": {""}, "trace_mode": {"opentelemetry"},
	}, nil
}

// ChangeTraces implements ingest.Settings: trace_rate N keeps the traces of one frame of N,
// and trace_level OFF those that clients or the rules for slow and failed frames ask for.
func (d backend) ChangeTraces(model string, change map[string][]string) error {
	is, err := d.TraceSettings(model)
	if err != nil {
		return err
	}
	if model != "" && len(change) > 0 {
		return stream.Errorf(stream.Unsupported, "", "the settings of traces are those of all models: change them at /v2/trace/setting")
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
			return stream.Errorf(stream.Unsupported, name, "cannot be changed while the server runs: traces are exported as the section tracing of its configuration says")
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
				return bad(name, "%.32q is not a whole number, 1 or more: of so many frames, the traces of one are kept", values[0])
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

// traceSettingRoutes are those of the extension trace.
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
