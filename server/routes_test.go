package server

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"millrace/ingest/rest"
	"millrace/internal/inferencepb"
	"millrace/internal/openapi"
)

// TestRoutesAreDescribed: the OpenAPI document has exactly the routes of the HTTP listener.
func TestRoutesAreDescribed(t *testing.T) {
	s, err := New(Config{HTTP: "127.0.0.1:0", GRPC: Off})
	if err != nil {
		t.Fatal(err)
	}
	defer s.abandon()
	var served []string
	for _, r := range s.http.App.GetRoutes(true) {
		served = append(served, r.Method+" "+r.Path)
	}
	if len(served) < 40 {
		t.Errorf("%d routes", len(served))
	}
	for _, difference := range openapi.Compare(served, s.routes()) {
		t.Errorf("%s: the routes of a package are described in its openapi.go", difference)
	}
}

// TestCallsAreDocumented: the documentation's table of calls has exactly the routes and methods of the protocol.
func TestCallsAreDocumented(t *testing.T) {
	s, err := New(Config{HTTP: "127.0.0.1:0", GRPC: Off})
	if err != nil {
		t.Fatal(err)
	}
	defer s.abandon()
	text, err := os.ReadFile("../docs/open-inference-protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	table, _, _ := strings.Cut(string(text), "## ")
	var served, documented []string
	inRest := func(r openapi.Route) bool {
		return slices.ContainsFunc(rest.Routes, func(o openapi.Route) bool {
			return o.Path == r.Path && strings.HasPrefix(r.Path, "/v2")
		})
	}
	for _, r := range s.routes() {
		if !inRest(r) && r.Path != loggingRoute && !strings.HasSuffix(r.Path, "/trace/setting") {
			continue
		}
		path := strings.NewReplacer(":model", "M", ":version", "V", ":region", "R", ":repository",
			"NAME").Replace(r.Path)
		for _, method := range strings.Split(r.Method, "|") {
			served = append(served, method+" "+path)
		}
	}
	for _, m := range inferencepb.GRPCInferenceService_ServiceDesc.Methods {
		served = append(served, m.MethodName)
	}
	for _, m := range inferencepb.GRPCInferenceService_ServiceDesc.Streams {
		served = append(served, m.StreamName)
	}
	for _, m := range regexp.MustCompile("`((?:GET|POST) [^`]+|[A-Z][A-Za-z]+)`").FindAllStringSubmatch(table, -1) {
		documented = append(documented, m[1])
	}
	for _, call := range served {
		if !slices.Contains(documented, call) {
			t.Errorf("%s is not in docs/open-inference-protocol.md", call)
		}
	}
	for _, call := range documented {
		if !slices.Contains(served, call) {
			t.Errorf("docs/open-inference-protocol.md has %s, which is not served", call)
		}
	}
	if len(served) < 50 {
		t.Errorf("%d calls", len(served))
	}
}
