package rest

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/gofiber/fiber/v2"

	"millrace/ingest/rest/request"
	"millrace/internal/openapi"
)

// TestRoutesAreDescribed: each route of the adapter has a line in Routes, and each line a
// route.
func TestRoutesAreDescribed(t *testing.T) {
	app := fiber.New()
	new(Adapter).routes(app)
	var served []string
	for _, r := range app.GetRoutes(true) {
		served = append(served, r.Method+" "+r.Path)
	}
	for _, difference := range openapi.Compare(served, Routes) {
		t.Errorf("%s: see Routes in openapi.go", difference)
	}
}

// The description of infer lists exactly the options accepted by the route.
func TestInferQueryIsDescribed(t *testing.T) {
	var names []string
	for _, p := range inferQuery {
		names = append(names, p.Name)
		var o request.Options
		if err := o.Set(p.Name, "\x00"); err == nil || strings.Contains(err.Error(), "is not a query option") {
			t.Errorf("%s is described and not taken: %v", p.Name, err)
		}
	}
	var o request.Options
	err := o.Set("nosuch", "")
	if err == nil {
		err = errors.New("nosuch is an option")
	}
	_, listed, _ := strings.Cut(err.Error(), "the options are ")
	if want := regexp.MustCompile(`, | and `).Split(listed, -1); strings.Join(names, " ") != strings.Join(want, " ") {
		t.Errorf("%q are described, and %q taken", names, want)
	}
}
