package powercut

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"millrace/tasks"
	"millrace/tasks/blob"
)

// The variables of the process that works on the disk.
const (
	victimFolder = "MILLRACE_TEST_POWERCUT" // where the disk is mounted
	victimSeed   = "MILLRACE_TEST_POWERCUT_SEED"
	victimTasks  = "MILLRACE_TEST_POWERCUT_TASKS"
	victimWork   = "MILLRACE_TEST_POWERCUT_WORK"
)

// dataFolder is the data folder on the disk.
const dataFolder = "data"

func TestMain(m *testing.M) {
	folder := os.Getenv(victimFolder)
	if folder == "" {
		os.Exit(m.Run())
	}
	seed, _ := strconv.ParseUint(os.Getenv(victimSeed), 10, 64)
	n, _ := strconv.Atoi(os.Getenv(victimTasks))
	var err error
	switch os.Getenv(victimWork) {
	case "full":
		err = workFull(folder, seed, n)
	case "small":
		err = workSmall(folder)
	case "interval":
		err = work(folder, false, seed, n)
	default:
		err = work(folder, true, seed, n)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "the process on the disk:", err)
		os.Exit(1)
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL) // nothing is closed
	select {}
}

// worker submits and runs tasks on the disk, and acknowledges each change.
type worker struct {
	*tasks.Data
	acks  *os.File
	seed  uint64
	large bool         // records of tasks are large, so that the broker begins new files
	left  atomic.Int64 // tasks that have not ended
}

// work submits n tasks and runs all queued tasks. always is as of tasks.OpenData.
func work(folder string, always bool, seed uint64, n int) error {
	acks, err := os.OpenFile(filepath.Join(folder, AckFile), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	ctx := context.Background()
	d, err := tasks.OpenData(ctx, filepath.Join(folder, dataFolder), always, tasks.Options{Lease: 2 * time.Second})
	if err != nil {
		return err
	}
	go d.Run(ctx)
	w := &worker{Data: d, acks: acks, seed: seed, large: seed%4 == 3}
	waiting, _ := d.List(tasks.Query{States: []tasks.State{tasks.Queued}, Limit: 1 << 20})
	w.left.Store(int64(len(waiting) + n))
	errs := make(chan error, 4)
	var all sync.WaitGroup
	for i := range uint64(2) {
		all.Go(func() { errs <- w.submit(ctx, rand.New(rand.NewPCG(seed, i)), n/2) })
		all.Go(func() { errs <- w.consume(ctx, rand.New(rand.NewPCG(seed, 10+i))) })
	}
	all.Wait()
	for range cap(errs) {
		if err := <-errs; err != nil {
			return err
		}
	}
	return nil
}

// say acknowledges a change: one write to AckFile.
func (w *worker) say(words ...any) error {
	_, err := w.acks.WriteString(fmt.Sprintln(words...))
	return err
}

func (w *worker) submit(ctx context.Context, r *rand.Rand, n int) error {
	for i := range n {
		input := make([]byte, r.IntN(9000))
		for i := range input {
			input[i] = byte(r.Uint32())
		}
		t := tasks.Task{Model: "m", Attempts: 100, Retention: 24 * 3600}
		if r.IntN(3) == 0 {
			t.Key = fmt.Sprintf("%d-%d-%d", w.seed, r.Uint32(), i)
		}
		if w.large {
			t.Trace = strings.Repeat("x", 150<<10)
		}
		t, _, err := w.Submit(ctx, tasks.Submission{Task: t, Data: func(b blob.Writer) error {
			_, err := io.Copy(b, bytes.NewReader(input))
			return err
		}})
		if err != nil {
			return err
		}
		if err := w.say("submitted", t.ID, sum(input), t.Key); err != nil {
			return err
		}
	}
	return nil
}

// resultOf returns the result of a task: large enough for several writes, and different for each task.
func resultOf(id string, attempt int) []byte {
	return bytes.Repeat([]byte(fmt.Sprint(id, attempt, " ")), 40)
}

func sum(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}

func (w *worker) consume(ctx context.Context, r *rand.Rand) error {
	for w.left.Add(-1) >= 0 {
		c, err := w.Claim(ctx, "victim", func(string) bool { return true })
		if err != nil {
			return err
		}
		if err := w.end(ctx, r, c); err != nil {
			return err
		}
	}
	return nil
}

// end ends a claimed task, most often with a result.
func (w *worker) end(ctx context.Context, r *rand.Rand, c *tasks.StoreClaim) error {
	t := c.Task()
	switch r.IntN(8) {
	case 0:
		if err := w.say("cancelling", t.ID); err != nil {
			return err
		}
		if _, err := w.Cancel(ctx, t.ID); err != nil {
			return err
		}
		return w.say("cancelled", t.ID)
	case 1:
		if err := c.Fail(tasks.Failure{Code: "invalid_argument", Message: "no"}, false); err != nil {
			return err
		}
		return w.say("failed", t.ID)
	}
	_, _ = c.Log().Write([]byte("a line\n"))
	result, err := c.Create()
	if err != nil {
		return err
	}
	b := resultOf(t.ID, t.Attempt)
	for part := range slices.Chunk(b, 700) {
		if _, err := result.Write(part); err != nil {
			return err
		}
	}
	info, err := result.Commit()
	if err != nil {
		return err
	}
	if err := c.Finish(tasks.File{Info: info}); err != nil {
		return err
	}
	if err := w.say("finished", t.ID, t.Attempt, info.SHA256); err != nil || r.IntN(5) > 0 {
		return err
	}
	if err := w.say("deleting", t.ID); err != nil {
		return err
	}
	if err := w.Delete(ctx, t.ID); err != nil {
		return err
	}
	return w.say("deleted", t.ID)
}
