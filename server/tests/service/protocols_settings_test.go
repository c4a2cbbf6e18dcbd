//go:build !notracing

package service_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"millrace/internal/servertest"
	"millrace/workers"
)

// TestSettingsOfTheProtocol: the extensions logging and trace change the log's level and the ratio of traces, and
// refuse other settings by name.
func TestSettingsOfTheProtocol(t *testing.T) {
	s, end := servertest.Run(t, workers.Config{Name: "echo", Source: "identity"})
	defer func() {
		if err := end(); err != nil {
			t.Error(err)
		}
	}()
	ask := func(path, body string) (int, map[string]any, string) {
		t.Helper()
		method := http.MethodPost
		if body == "" {
			method = http.MethodGet
		}
		req, _ := http.NewRequest(method, "http://"+s.Addr("http")+path, strings.NewReader(body))
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		var got map[string]any
		_ = json.Unmarshal(text, &got)
		return resp.StatusCode, got, string(text)
	}
	const log, trace = "/v2/logging", "/v2/trace/setting"
	for _, c := range []struct{ path, body, keys, want string }{
		{log, `{"log_verbose_level":1}`, "log_verbose_level log_info", "1 true"},
		{log, `{"log_verbose_level":0}`, "log_verbose_level log_info", "0 true"},
		{log, `{"log_info":false}`, "level log_info log_warning", "<nil> false true"},
		{log + "?own=true", "", "level log_info", "warn false"},
		{log, `{"log_warning":false}`, "log_warning log_error", "false true"},
		{log, `{"log_error":false}`, "log_info log_warning log_error log_verbose_level", "false false false 0"},
		{log, `{"log_verbose_level":1,"log_format":"ISO8601"}`,
			"log_info log_warning log_error log_verbose_level log_format", "false false false 1 ISO8601"},
		{log, `{"log_verbose_level":0,"log_info":true,"log_error":true}`,
			"log_info log_warning log_error log_verbose_level", "true false true 0"},
		{log, `{"log_info":true,"log_warning":true,"log_file":"","log_format":"default"}`,
			"log_file log_format log_warning", " default true"},
		{log, `{"level":"warn"}`, "level", "warn"},
		{log, "", "level log_info", "<nil> false"},
		{trace, "", "trace_level trace_rate trace_count trace_mode", "[TIMESTAMPS] 100 -1 opentelemetry"},
		{trace, `{"trace_rate":"10"}`, "trace_level trace_rate", "[TIMESTAMPS] 10"},
		{trace, `{"trace_level":["OFF"]}`, "trace_level trace_rate", "[OFF] 0"},
		{trace, `{"trace_level":["TIMESTAMPS"],"trace_rate":"1"}`, "trace_level trace_rate", "[TIMESTAMPS] 1"},
		{trace, `{"trace_rate":null,"log_frequency":"0","trace_count":["-1"]}`, "trace_level trace_rate",
			"[TIMESTAMPS] 100"},
		{"/v2/models/echo/trace/setting", "", "trace_rate", "100"},
		{"/v2/models/echo/trace/setting", "{}", "trace_rate", "100"},
	} {
		status, got, text := ask(c.path, c.body)
		var values []string
		for _, key := range strings.Split(c.keys, " ") {
			values = append(values, fmt.Sprint(got[key]))
		}
		if status != 200 || strings.Join(values, " ") != c.want {
			t.Errorf("%s %s: %d %s, want %s", c.path, c.body, status, text, c.want)
		}
	}
	for _, c := range []struct {
		path, body string
		status     int
		says       string
	}{
		{log, `[]`, 400, "the body"}, {log, `{"log_level":1}`, 400, "log_level: "},
		{log, `{"log_errors":false}`, 400, "log_errors: "}, {log, `{"log_error":"no"}`, 400, "log_error: "},
		{log, `{"log_info":1}`, 400, "log_info: "}, {log, `{"log_verbose_level":-1}`, 400, "log_verbose_level: "},
		{log, `{"log_verbose_level":1.5}`, 400, "log_verbose_level: "},
		{log, `{"log_file":"/tmp/x"}`, 400, "log_file: "}, {log, `{"log_format":"short"}`, 400, "log_format: "},
		{log, `{"level":"loud"}`, 400, "level: "},
		{log, `{"level":"info","log_info":true}`, 400, "level: "},
		{trace, `{"trace_rate":"0"}`, 400, "trace_rate: "}, {trace, `{"trace_rate":10}`, 400, "trace_rate: "},
		{trace, `{"trace_level":["TENSORS"]}`, 400, "trace_level: "},
		{trace, `{"trace_level":["TIMESTAMPS","OFF"]}`, 400, "trace_level: "},
		{trace, `{"trace_file":"/tmp/x"}`, 400, "trace_file: "}, {trace, `{"rate":"1"}`, 400, "rate: "},
		{"/v2/models/echo/trace/setting", `{"trace_rate":"5"}`, 400, "/v2/trace/setting"},
		{"/v2/models/none/trace/setting", "", 404, "none"},
	} {
		if status, _, text := ask(c.path, c.body); status != c.status || !strings.Contains(text, c.says) {
			t.Errorf("%s %s: %d %s, want %d with %s", c.path, c.body, status, text, c.status, c.says)
		}
	}
}
