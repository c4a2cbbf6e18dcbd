package powercut

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"millrace/internal/testseed"
	"millrace/tasks"
	"millrace/tasks/blob"
)

var (
	points = flag.Int("powercut.points", 0, "power failures of each test of power failures; 0 = as many as fit its time")
	list   = flag.Bool("powercut.list", false, "print the steps of the first process of a test of power failures")
)

// known is what a process has acknowledged about a task.
type known struct {
	state   string
	input   string // SHA-256
	key     string
	attempt int
	result  string // SHA-256
	before  bool   // had ended when the process began
}

// history is what processes have acknowledged, by task.
type history map[string]known

// hear adds one acknowledgement.
func (h history) hear(t *testing.T, line string) {
	w := strings.Fields(line)
	k := h[w[1]]
	switch w[0] {
	case "submitted":
		k.input = w[2]
		if len(w) > 3 {
			k.key = w[3]
		}
		if k.state == "" { // the end may have been acknowledged before
			k.state = w[0]
		}
	case "finished":
		if k.result != "" {
			t.Errorf("the task %s has finished twice", w[1])
		}
		k.state, k.result = w[0], w[3]
		k.attempt, _ = strconv.Atoi(w[2])
	default:
		k.state = w[0]
	}
	h[w[1]] = k
}

// mounted runs f while the disk is mounted.
func mounted(t *testing.T, d *Disk, f func(folder string)) {
	t.Helper()
	if _, err := os.Stat("/dev/fuse"); err != nil {
		t.Skip("this machine has no /dev/fuse")
	}
	folder := t.TempDir()
	unmount, err := d.Mount(folder)
	if err != nil {
		if os.Getuid() != 0 {
			t.Skip("this user cannot mount file systems:", err)
		}
		t.Fatal(err)
	}
	defer func() {
		if err := unmount(); err != nil {
			t.Error(err)
		}
	}()
	f(folder)
}

// runProcess runs a process that works on a disk with n tasks, until the process has killed itself.
func runProcess(t *testing.T, d *Disk, work string, seed uint64, n int) {
	t.Helper()
	mounted(t, d, func(folder string) {
		d.Record()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, os.Args[0])
		cmd.Env = append(os.Environ(), victimFolder+"="+folder, fmt.Sprintf("%s=%d", victimSeed, seed),
			fmt.Sprintf("%s=%d", victimTasks, n), victimWork+"="+work)
		cmd.Stderr = os.Stderr
		if err := cmd.Run(); err == nil || err.Error() != "signal: killed" || ctx.Err() != nil {
			for _, s := range d.Steps() {
				if s.Kind == Ack {
					t.Log(string(s.Data))
				}
			}
			t.Errorf("seed %d: %v, %v", seed, err, ctx.Err())
		}
	})
}

// point is one power failure: what has survived, and what was acknowledged before.
type point struct {
	seed    uint64
	step    int
	kind    Kind
	variant Variant
	tree    Tree
	known   history
}

func (p *point) String() string {
	return fmt.Sprintf("seed %d, a power failure before step %d (%s), %s survives", p.seed, p.step, p.kind, p.variant)
}

// scratchFolder returns a folder in memory where there is one: the folders of a run have gigabytes in all.
func scratchFolder(t *testing.T) string {
	dir, err := os.MkdirTemp("/dev/shm", "powercut")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// TestPowerFailure: a process submits, runs, cancels and deletes tasks with tasks.sync=always on a disk that keeps
// what was synced only, and the power fails before each step that changes the disk. No acknowledged task or result is
// lost or differs, no deleted task returns, millrace data check finds nothing, and the tasks run to their end.
func TestPowerFailure(t *testing.T) {
	want := 400
	if testing.Short() {
		want = 60
	}
	failPower(t, "tasks", want, (*point).check, func(p *point, _ string) history { return p.known })
}

// failPower runs processes with the given work, and calls check for want power failures, or for as many as the flag
// says. Some processes begin with a disk that has survived a power failure; acknowledged returns what is known then.
func failPower(t *testing.T, work string, want int, check func(p *point, t *testing.T, folder string, drive bool) error,
	acknowledged func(p *point, folder string) history) {
	if *points != 0 {
		want = *points
	}
	seed := testseed.First()
	scratch := scratchFolder(t)
	jobs := make(chan *point)
	var done, driven atomic.Int64
	var all sync.WaitGroup
	for i := range 4 { // most of the time, the broker waits
		all.Go(func() {
			for p := range jobs {
				drive := p.step%16 == 0
				if err := check(p, t, filepath.Join(scratch, strconv.Itoa(i)), drive); err != nil {
					t.Errorf("%v: %v", p, err)
				}
				done.Add(1)
				if drive {
					driven.Add(1)
				}
			}
		})
	}
	kinds, variants := map[Kind]int{}, map[Variant]int{}
	tree, before, sent := Tree{}, history{}, 0
	for ; sent < want && !t.Failed(); seed++ {
		r := rand.New(rand.NewPCG(seed, 99))
		d := NewDisk(tree)
		runProcess(t, d, work, seed, 40)
		steps := d.Steps()
		share := 1.0
		if n := (want - sent) * 4; want < 1000 && n < 4*len(steps) {
			share = float64(want) / 2 / float64(len(steps))
		}
		again := NewDisk(tree)
		if *list && sent == 0 {
			t.Log(describe(steps))
		}
		now := maps.Clone(before)
		var next *point // where the next process goes on
		for n := range steps {
			s := steps[n]
			if r.Float64() < share && sent < want {
				p := &point{seed: seed, step: n, kind: s.Kind, variant: Variants[r.IntN(len(Variants))]}
				p.tree, p.known = again.Survive(p.variant, r), maps.Clone(now)
				if r.IntN(n+1) == 0 || n > len(steps)/2 && next == nil {
					next = p
				}
				kinds[s.Kind]++
				variants[p.variant]++
				sent++
				jobs <- p
			}
			if s.Kind == Ack {
				now.hear(t, string(s.Data))
			}
			if no := again.Apply(&s); no != 0 {
				t.Fatalf("step %d cannot be repeated: %v", n, no)
			}
		}
		if tree, before = (Tree{}), (history{}); seed%3 > 0 && next != nil { // else from an empty disk
			tree, before = next.tree, acknowledged(next, filepath.Join(scratch, "next"))
		}
	}
	close(jobs)
	all.Wait()
	t.Logf("%d power failures, seeds %d to %d; %d times all tasks were run to their end", done.Load(),
		testseed.First(), seed-1, driven.Load())
	for _, k := range slices.Sorted(maps.Keys(kinds)) {
		t.Logf("%6d before %s", kinds[k], k)
	}
	for _, v := range Variants {
		t.Logf("%6d with %s", variants[v], v)
	}
}

// describe lists steps that begin on an empty disk, with the paths of files.
func describe(steps []Step) string {
	var b strings.Builder
	paths := map[uint64]string{root: ""}
	for n, s := range steps {
		at := paths[s.Inode]
		switch s.Kind {
		case Create, Mkdir:
			at = paths[s.Dir] + "/" + s.Name
			paths[s.Inode] = at
		case Rename:
			at = paths[s.Dir] + "/" + s.Name + " to " + paths[s.To] + "/" + s.NewName
			for inode, path := range paths {
				if path == paths[s.Dir]+"/"+s.Name {
					paths[inode] = paths[s.To] + "/" + s.NewName
				}
			}
		case Unlink, Rmdir:
			at = paths[s.Dir] + "/" + s.Name
		case Ack:
			at = string(s.Data)
		}
		fmt.Fprintf(&b, "%5d %s %s %d+%d\n", n, s.Kind, strings.TrimSpace(at), s.Offset, len(s.Data))
	}
	return b.String()
}

// check opens the data folder that has survived, and returns what is wrong.
func (p *point) check(t *testing.T, folder string, drive bool) error {
	if err := errors.Join(os.RemoveAll(folder), p.tree.Write(folder)); err != nil {
		return err
	}
	data := filepath.Join(folder, dataFolder)
	if err := p.checkTasks(t.Context(), data, drive); err != nil {
		return err
	}
	report, err := tasks.CheckData(t.Context(), data, tasks.Options{})
	if err != nil {
		return fmt.Errorf("millrace data check: %w", err)
	}
	if len(report.Problems) > 0 {
		return fmt.Errorf("millrace data check: %+v", report.Problems)
	}
	return nil
}

func (p *point) checkTasks(ctx context.Context, folder string, drive bool) error {
	d, err := tasks.OpenData(ctx, folder, true, tasks.Options{Lease: 200 * time.Millisecond})
	if err != nil {
		return err
	}
	defer d.Close()
	for id, k := range p.known {
		if err := checkTask(ctx, d, id, k); err != nil {
			return fmt.Errorf("the task %s, %+v: %w", id, k, err)
		}
	}
	if !drive {
		return nil
	}
	return p.drive(ctx, d)
}

// checkTask compares a task with what was acknowledged.
func checkTask(ctx context.Context, d *tasks.Data, id string, k known) error {
	t, err := d.Get(id)
	switch {
	case k.state == "deleted" && err == nil:
		return fmt.Errorf("has returned as %s", t.State)
	case k.state == "deleted", k.state == "deleting" && err != nil:
		return nil
	case err != nil:
		return fmt.Errorf("is lost: %w", err)
	case k.state == "finished" && (t.State != tasks.Finished || t.Attempt != k.attempt || t.Result.SHA256 != k.result),
		k.state == "cancelled" && t.State != tasks.Cancelled, k.state == "failed" && t.State != tasks.Failed:
		return fmt.Errorf("is %s after attempt %d", t.State, t.Attempt)
	case k.input != "" && t.Input.SHA256 != k.input:
		return fmt.Errorf("has another input")
	}
	in, err := d.Input(ctx, t)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	if err := t.Input.Check(in); err != nil || t.State != tasks.Finished {
		return err
	}
	out, err := d.Result(ctx, t)
	if err != nil {
		return err
	}
	defer func() { _ = out.Close() }()
	return t.Result.Check(out)
}

// drive runs all tasks to their end, and submits those with keys again.
func (p *point) drive(ctx context.Context, d *tasks.Data) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for id, k := range p.known {
		if k.key == "" || k.state == "deleting" || k.state == "deleted" {
			continue
		}
		t, there, err := d.Submit(ctx, tasks.Submission{Task: tasks.Task{Model: "m", Key: k.key},
			Data: func(w blob.Writer) error { _, err := io.WriteString(w, "x"); return err }})
		if err != nil || !there || t.ID != id {
			return fmt.Errorf("the idempotency key of %s gives %s, %v, %v", id, t.ID, there, err)
		}
	}
	go d.Run(ctx)
	for {
		left, _ := d.List(tasks.Query{States: []tasks.State{tasks.Queued, tasks.Running}, Limit: 1000})
		if len(left) == 0 {
			return nil
		}
		c, err := d.Claim(ctx, "tester", func(string) bool { return true })
		if err != nil {
			return fmt.Errorf("%d tasks do not end, such as %+v: %w", len(left), left[0], err)
		}
		if k := p.known[c.Task().ID]; k.state == "finished" || k.state == "cancelled" || k.state == "failed" {
			return fmt.Errorf("the task %s, %+v, runs again", c.Task().ID, k)
		}
		w, err := c.Create()
		if err != nil {
			return err
		}
		info, err := w.Commit()
		if err == nil {
			err = c.Finish(tasks.File{Info: info})
		}
		if err != nil && !errors.Is(err, tasks.ErrClaimLost) { // a busy machine may renew too late
			return err
		}
	}
}
