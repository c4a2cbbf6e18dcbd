package spans

import (
	"net/url"
	"strings"
	"time"

	"millrace/internal/setting"
	"millrace/stream/coded"
)

// Config has the settings for keeping traces, a part of the section tracing. setting.Fill replaces zero fields by
// defaults.
type Config struct {
	Sampler string   `yaml:"sampler" default:"parent" words:"parent ratio rate jaeger-remote" advanced:"yes" help:"which traces are kept: parent = the client decides, else tracing.ratio; ratio; rate = tracing.rate frames a second; jaeger-remote = a Jaeger server decides"`
	Ratio   *float64 `yaml:"ratio" default:"0.01" min:"0" max:"1" help:"share of frames whose traces are kept (samplers parent and ratio, and jaeger-remote before the first reply)"`
	Rate    int      `yaml:"rate" default:"10" min:"1" max:"1000000" advanced:"yes" help:"sampler rate: frames a second whose traces are kept"`
	MaxRate int      `yaml:"max_rate" default:"1000" min:"1" max:"1000000" advanced:"yes" help:"most frames a second that a sampler keeps, frames traced for clients included"`

	Slow     *time.Duration `yaml:"slow" default:"500ms" min:"0s" max:"1h" advanced:"yes" help:"also keep frames that took longer than this from receipt to result; 0 = off"`
	Dropped  *bool          `yaml:"dropped" default:"true" advanced:"yes" help:"also keep dropped frames"`
	Failed   *bool          `yaml:"failed" default:"true" advanced:"yes" help:"also keep frames that ended with an error or were refused"`
	Gated    *bool          `yaml:"gated" default:"false" advanced:"yes" help:"also keep frames answered by the gate (output.gate)"`
	TailRate int            `yaml:"tail_rate" default:"10" min:"1" max:"1000000" advanced:"yes" help:"most frames a second kept by each of slow, dropped, failed and gated"`

	Shown *int   `yaml:"shown" default:"64" min:"0" max:"4096" advanced:"yes" help:"most kept frames of each kind (sampled, slow, dropped, failed, gated) in GET /v2/traces; 0 = none"`
	UIURL string `yaml:"ui_url" example:"http://127.0.0.1:16686" advanced:"yes" help:"address of the Jaeger user interface, for links to traces; another interface needs {trace_id} in the address"`
}

// Validate returns all errors of the settings, joined; each error names its setting.
func (c Config) Validate() error {
	if c.UIURL == "" {
		return nil
	}
	u, err := url.Parse(strings.ReplaceAll(c.UIURL, traceIDMark, "0"))
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return coded.Errorf(coded.InvalidArgument, section+".ui_url",
			"%.140q is not an address of a web page: want http://HOST:PORT, or a URL with %s in it", c.UIURL,
			traceIDMark)
	}
	return nil
}

// filled returns c with defaults.
func (c Config) filled() Config {
	setting.Fill(&c)
	return c
}

// section is the section of the settings, for messages.
const section = "tracing"

// traceIDMark is where ui_url has the id of the trace.
const traceIDMark = "{trace_id}"

// link returns the address of a trace's page, or "".
func (c *Config) link(traceID string) string {
	switch {
	case c.UIURL == "":
		return ""
	case strings.Contains(c.UIURL, traceIDMark):
		return strings.ReplaceAll(c.UIURL, traceIDMark, traceID)
	}
	return strings.TrimSuffix(c.UIURL, "/") + "/trace/" + traceID
}
