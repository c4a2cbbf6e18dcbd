package docs

import (
	"bufio"
	"fmt"
	"image"
	_ "image/jpeg" // decodes the saved pictures
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"millrace/internal/testbuild"
	"millrace/internal/testneeds"
)

// TestRecipes runs each recipe of recipes.md as printed: TestRecipes writes the files, runs the commands, compares
// the output with the page, and then runs the recipe's own check.
func TestRecipes(t *testing.T) {
	checks := map[string]func(*testing.T, *recipe){
		"Blur faces":                      checkBlur,
		"Answer a picture file":           checkAnswer,
		"Save pictures":                   checkSave,
		"Count what crosses a line":       checkCount,
		"Two machines behind nginx":       checkMachines,
		"A language model behind a class": checkTokens,
	}
	page, err := os.ReadFile("recipes.md")
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	cmd := exec.Command("go", "build", "-tags", testbuild.Tags(), "-o", filepath.Join(bin, "millrace"),
		"./cmd/millrace")
	cmd.Dir = testneeds.Root()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	interpreter := testneeds.Python(t, "numpy", "PIL")
	testneeds.Program(t, "curl")
	testneeds.Program(t, "nginx")
	path := strings.Join([]string{bin, filepath.Dir(interpreter), "/usr/sbin", os.Getenv("PATH")},
		string(os.PathListSeparator))
	for _, section := range strings.Split(string(page), "\n## ")[1:] {
		title, text, _ := strings.Cut(section, "\n")
		check := checks[title]
		if check == nil {
			t.Errorf("the recipe %q has no check", title)
			continue
		}
		delete(checks, title)
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			r := newRecipe(t, text, path)
			r.long = !testing.Short()
			switch title {
			case "Blur faces":
				writeFaces(t, r)
			case "Answer a picture file":
				writeSpot(t, r)
			}
			if title != "Count what crosses a line" || r.long { // the detector takes seconds for the whole video
				r.play(t)
			}
			check(t, r)
		})
	}
	for title := range checks {
		t.Errorf("recipes.md has no recipe %q", title)
	}
}

// recipe is a section of recipes.md with its files in dir. In the files and commands, addr replaces 127.0.0.1, so
// that the ports can be as on the page.
type recipe struct {
	text, dir, addr string
	env             []string
	programs        map[string]*program // running in the background, by command as printed
	long            bool                // without -short
}

// newRecipe writes the files of a recipe into a folder beside a link to the folder of examples.
func newRecipe(t *testing.T, text, path string) *recipe {
	t.Helper()
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	above := t.TempDir()
	r := &recipe{dir: filepath.Join(above, "recipe"), programs: map[string]*program{},
		addr: fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254))}
	r.text = strings.ReplaceAll(text, "127.0.0.1", r.addr)
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "MILLRACE_") {
			r.env = append(r.env, v)
		}
	}
	r.env = append(r.env, "PATH="+path, "PYTHONPATH="+filepath.Join(root, "python"), "PYTHONDONTWRITEBYTECODE=1",
		"MILLRACE_HTTP="+r.addr+":8000", "MILLRACE_GRPC="+r.addr+":8001", "MILLRACE_ADDR="+r.addr+":8000")
	if err := os.Mkdir(r.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(root, "examples"), filepath.Join(above, "examples")); err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile("(?ms)^```\\w+\n# (\\S+)\n.*?^```$").FindAllStringSubmatch(r.text, -1) {
		_, file, _ := strings.Cut(strings.TrimSuffix(m[0], "```"), "\n")
		r.write(t, m[1], file)
	}
	return r
}

// write writes a file of the recipe.
func (r *recipe) write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(r.dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// play runs the commands of the recipe: the lines beginning with $ in indented blocks. The other lines of a block are
// the command's output. A line ... stands for any lines.
func (r *recipe) play(t *testing.T) {
	t.Helper()
	for _, block := range regexp.MustCompile(`(?m)^    \$ .*\n(?:(?:    .*)?\n)*`).FindAllString(r.text, -1) {
		block = regexp.MustCompile(`(?m)^    `).ReplaceAllString(block, "")
		for _, typed := range strings.Split("\n"+block, "\n$ ")[1:] {
			command, want, _ := strings.Cut(typed, "\n")
			if strings.HasPrefix(command, "millrace serve ") || strings.HasPrefix(command, "nginx ") {
				r.start(t, command, "is ready|start worker process ")
				continue
			}
			r.compare(t, command, want)
		}
	}
}

// compare runs a command and compares the output.
func (r *recipe) compare(t *testing.T, command, want string) {
	t.Helper()
	got := r.run(t, command)
	pattern := strings.ReplaceAll(regexp.QuoteMeta(strings.TrimSpace(want)), `\.\.\.`, `(?s:.*)`)
	if !regexp.MustCompile(`^` + pattern + `$`).MatchString(strings.TrimSpace(got)) {
		t.Errorf("%s\nprints\n%s\nwant\n%s", command, got, want)
	}
}

// run runs a command and returns the output.
func (r *recipe) run(t *testing.T, command string) string {
	t.Helper()
	cmd := exec.Command("bash", "-c", command)
	cmd.Dir, cmd.Env = r.dir, r.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", command, err, out)
	}
	return string(out)
}

// program is a command running in the background.
type program struct {
	command *exec.Cmd
	ended   chan struct{}
	mu      sync.Mutex
	lines   []string
	grown   chan struct{} // closed when another line is available
}

// start starts a program of the recipe and waits for the given line. The end of the test stops the program.
func (r *recipe) start(t *testing.T, command, line string) *program {
	t.Helper()
	cmd := exec.Command("bash", "-c", "exec "+command)
	cmd.Dir, cmd.Env = r.dir, r.env
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	from, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = to, to
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = to.Close()
	p := &program{command: cmd, ended: make(chan struct{}), grown: make(chan struct{})}
	r.programs[command] = p
	go p.read(from)
	t.Cleanup(func() {
		p.stop()
		if t.Failed() {
			t.Logf("%s\n%s", command, strings.Join(p.lines, "\n"))
		}
	})
	p.wait(t, line)
	return p
}

// read keeps the lines printed by the program until its end.
func (p *program) read(from io.ReadCloser) {
	defer close(p.ended)
	defer from.Close()
	for lines := bufio.NewScanner(from); lines.Scan(); {
		p.mu.Lock()
		p.lines = append(p.lines, lines.Text())
		close(p.grown)
		p.grown = make(chan struct{})
		p.mu.Unlock()
	}
}

// wait waits for a line of the program.
func (p *program) wait(t *testing.T, pattern string) {
	t.Helper()
	late := time.After(time.Minute)
	for line := regexp.MustCompile(pattern); ; {
		p.mu.Lock()
		all, grown := strings.Join(p.lines, "\n")+"\n", p.grown
		p.mu.Unlock()
		if line.MatchString(all) {
			return
		}
		select {
		case <-grown:
		case <-p.ended:
			t.Fatalf("the program has ended without a line %s:\n%s", pattern, all)
		case <-late:
			t.Fatalf("no line %s in a minute:\n%s", pattern, all)
		}
	}
}

// stop ends the program by SIGTERM and waits for its end. A second call does nothing.
func (p *program) stop() {
	_ = p.command.Process.Signal(syscall.SIGTERM)
	_ = p.command.Wait()
	<-p.ended
}

// read returns the text of a file of the recipe.
func (r *recipe) read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(r.dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// picture returns a picture written by the recipe.
func (r *recipe) picture(t *testing.T, name string) image.Image {
	t.Helper()
	img, _, err := image.Decode(strings.NewReader(r.read(t, name)))
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return img
}
