package child_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"millrace/internal/child"
	"millrace/internal/testneeds"
)

// Where the kernel has no lists of children, the error of Adopt names the option of the kernel.
func TestAdoptWithoutLists(t *testing.T) {
	const asked = "MILLRACE_NO_LISTS"
	if os.Getenv(asked) != "" {
		if err := child.Adopt(t.Context()); err == nil || !strings.Contains(err.Error(), "CONFIG_PROC_CHILDREN") {
			t.Error(err)
		}
		return
	}
	args := []string{"--mount"}
	if os.Geteuid() != 0 {
		args = append(args, "--user", "--map-root-user")
	}
	prepare := append(args, "sh", "-c", `mount -t tmpfs none /proc/$$/task && mkdir /proc/$$/task/$$ && exec "$@"`, "sh")
	unshare := func(command ...string) ([]byte, error) {
		cmd := exec.Command(testneeds.Program(t, "unshare"), append(prepare, command...)...)
		cmd.Env = append(os.Environ(), asked+"=1")
		return cmd.CombinedOutput()
	}
	if out, err := unshare("true"); err != nil {
		t.Skipf("%s %v", out, err)
	}
	if out, err := unshare(os.Args[0], "-test.run=^TestAdoptWithoutLists$"); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
