package server

import (
	"testing"

	"millrace/internal/openapi"
)

// TestRoutesAreDescribed: the OpenAPI document has every route that the HTTP listener
// serves, and no other.
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
