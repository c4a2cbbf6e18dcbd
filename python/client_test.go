package python_test

import (
	"os/exec"
	"path/filepath"
	"testing"

	"millrace/internal/testbuild"
)

// needServer are the modules of tests that need a server, beside those of the pages' examples.
var needServer = []string{"tests.test_client", "tests.test_client_streams", "tests.test_lost", "tests.test_aio",
	"tests.test_token", "tests.test_socket"}

// examples is the module that runs the pages' examples against a server.
const examples = "tests.test_docs"

// TestClient runs the tests of the client in Python, and the pages' examples, against a real
// server, with numpy and without. Without it, short, only those in which data become tensors.
func TestClient(t *testing.T) {
	t.Parallel()
	env := []string{"MILLRACE=" + build(t)}
	fewer := append([]string{"tests.test_client_pure"}, needServer...)
	if testing.Short() {
		fewer = []string{"tests.test_client_pure", "tests.test_client.TestCalls"}
	}
	for without, names := range map[string][]string{"": append([]string{examples}, needServer...), "numpy": fewer} {
		t.Run("without "+without, func(t *testing.T) {
			t.Parallel()
			runTests(t, without, env, names...)
		})
	}
}

// build returns the program, built with the tags of the tests, so that their packages need not be
// compiled again.
func build(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "millrace")
	if out, err := exec.Command("go", "build", "-tags", testbuild.Tags(), "-o", program,
		"../cmd/millrace").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}
