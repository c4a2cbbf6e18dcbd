//go:build !notracing

package service_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"millrace/internal/servertest"
	"millrace/internal/testneeds"
	"millrace/stream"
	"millrace/tracing/spans"
	"millrace/workers"
)

// A span opened by a program's code is in the span tree of the frame, below the frame's run, and has the parent
// passed to the program: for requests and for calls of routes.
func TestSpansOfPrograms(t *testing.T) {
	file := filepath.Join(t.TempDir(), "service.py")
	program := `import time
import millrace

def infer(x: int, trace) -> str:
    with millrace.span(f"look {x}"):
        time.sleep(0.002)
    return trace
`
	if err := os.WriteFile(file, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	s := servertest.TracedServer(t, servertest.KeepAll(), workers.Config{Name: "service", Source: file,
		Params: stream.Params{"python": testneeds.Python(t)}})
	const requests = 8
	var wg sync.WaitGroup
	for i := range requests {
		wg.Go(func() {
			path, body := "/v2/models/service/infer",
				fmt.Sprintf(`{"inputs":[{"name":"x","datatype":"INT64","shape":[1],"data":[%d]}]}`, i)
			if i%2 == 1 {
				path, body = "/apps/service/infer", fmt.Sprintf(`{"x":%d}`, i)
			}
			id := fmt.Sprintf("%02x%s", i+1, traceID[2:])
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+s.Addr("http")+path,
				strings.NewReader(body))
			if err != nil {
				t.Error(err)
				return
			}
			req.Header.Set("Content-Type", "application/json")
			req.Header.Set("traceparent", "00-"+id+"-"+servertest.SpanID+"-01")
			r, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Error(err)
				return
			}
			defer r.Body.Close()
			text, err := io.ReadAll(r.Body)
			if err != nil || r.StatusCode != 200 {
				t.Errorf("%s: %s %s, %v", path, r.Status, text, err)
				return
			}
			k := servertest.Kept(t, s, "", ofTrace(id))
			servertest.CheckTree(t, k)
			if want := "00-" + id + "-" + k.SpanID; !strings.Contains(string(text), want) {
				t.Errorf("%s: the program was told the trace %s, want %s", path, text, want)
			}
			named := func(prefix string) (sp spans.KeptSpan) {
				if n := slices.IndexFunc(k.Spans, func(sp spans.KeptSpan) bool {
					return strings.HasPrefix(sp.Name, prefix)
				}); n >= 0 {
					sp = k.Spans[n]
				}
				return sp
			}
			own, run := named("step "), named("run")
			if own.Name != fmt.Sprintf("step look %d", i) || own.ParentID == "" || own.ParentID != run.SpanID {
				t.Errorf("%s: the program's span is %+v, and run %+v", path, own, run)
			}
		})
	}
	wg.Wait()
}
