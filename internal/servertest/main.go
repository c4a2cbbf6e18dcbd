package servertest

import (
	"testing"

	"go.uber.org/goleak"
)

// CheckLeaks runs the tests of a package, and fails when goroutines are left. fasthttp keeps a clock for the Date
// header, and for each server a sweeper that ends up to ten seconds after the server.
func CheckLeaks(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"),
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).Start.func2"))
}
