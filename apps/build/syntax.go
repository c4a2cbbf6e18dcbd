package build

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"millrace/apps/program"
)

// compiles prints the files of standard input that do not compile, a line each.
const compiles = `import sys
for name in sys.stdin.read().split("\0"):
    try:
        with open(name, "rb") as f:
            compile(f.read(), name, "exec", dont_inherit=True)
    except SyntaxError as e:
        print(f"{name!r}, line {e.lineno or 0}: {e.msg}")
    except (OSError, ValueError, RecursionError, MemoryError) as e:
        print(f"{name!r}: {e}")`

// syntaxLimit is the time in which an interpreter reads the files of an application.
const syntaxLimit = 5 * time.Minute

// SyntaxErrors returns the errors of syntax in Python files, which are paths within the folder root. The interpreter
// reads the files and does not run the code there.
func SyntaxErrors(ctx context.Context, interpreter, root string, files []string) ([]string, error) {
	if len(files) == 0 {
		return nil, nil
	}
	path, err := exec.LookPath(interpreter)
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return nil, err
	}
	p := &program.Program{Args: []string{path, "-IS", "-W", "ignore", "-c", compiles}, Dir: root,
		Read: append(program.Installation(path), root), Stdin: []byte(strings.Join(files, "\x00")), Limit: syntaxLimit,
		LimitName: "--python"}
	out, err := p.Run(ctx)
	if err != nil {
		return nil, err
	}
	return strings.Split(strings.TrimSuffix(out, "\n"), "\n")[:strings.Count(out, "\n")], nil
}
