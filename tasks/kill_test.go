package tasks

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"millrace/internal/testseed"
)

// The variables of the process that TestKill kills: the folder, and the value of tasks.sync.
const (
	victimFolder = "MILLRACE_TEST_TASKS"
	victimSync   = "MILLRACE_TEST_TASKS_SYNC"
)

var kills = flag.Int("tasks.kills", 0, "kills of TestKill; 0 = as many as fit its time")

func TestMain(m *testing.M) {
	if dir := os.Getenv(victimFolder); dir != "" {
		if err := victim(dir); err != nil {
			fmt.Println("failed", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// victim submits and runs tasks until it is killed, and prints each acknowledged submission, begun attempt, result and
// deletion.
func victim(dir string) error {
	ctx := context.Background()
	s, err := OpenData(ctx, dir, os.Getenv(victimSync) == "always", Options{Lease: 300 * time.Millisecond})
	if err != nil {
		return err
	}
	go s.Run(ctx)
	var out sync.Mutex
	say := func(verb, id string) {
		out.Lock()
		defer out.Unlock()
		fmt.Println(verb, id)
	}
	say("open", "")
	for i := range 4 {
		go func() {
			for n := 0; ; n++ {
				t, _, err := s.Submit(ctx, Submission{Task: Task{Model: "m", Attempts: 100},
					Data: text(fmt.Sprint(i, n)), File: n%8 == 0})
				if err != nil {
					say("failed", err.Error())
					return
				}
				say("submitted", t.ID)
				if n%8 == 7 {
					time.Sleep(20 * time.Millisecond) // the consumers catch up
				}
			}
		}()
	}
	for {
		c, err := s.Claim(ctx, "victim", func(string) bool { return true })
		if err != nil {
			return err
		}
		say("begun", fmt.Sprint(c.id, " ", c.attempt))
		w, err := c.Create()
		if err != nil {
			return err
		}
		_, _ = w.Write([]byte("result of " + c.id))
		info, err := w.Commit()
		if err != nil {
			return err
		}
		if err := c.Finish(File{Info: info}); err != nil {
			say("failed", err.Error())
			continue
		}
		say("finished", c.id)
		if rand.IntN(4) == 0 {
			say("deleting", c.id)
			if err := s.Delete(ctx, c.id); err != nil {
				say("failed", err.Error())
				continue
			}
			say("deleted", c.id)
		}
	}
}

// TestKill kills a process with SIGKILL again and again while it submits and runs tasks. No acknowledged task, begun
// attempt or result is lost, and no deleted task returns.
func TestKill(t *testing.T) {
	rounds := *kills
	switch {
	case rounds > 0:
	case testing.Short():
		rounds = 4
	default:
		rounds = 40
	}
	seed := testseed.First()
	r := rand.New(rand.NewPCG(seed, 0))
	dir := t.TempDir()
	known := map[string]string{} // the newest acknowledged state of each task
	begun := map[string]int{}    // the newest attempt of each task
	for round := range rounds {
		wait := time.Duration(20+r.IntN(400)) * time.Millisecond
		killOne(t, dir, []string{"always", "interval"}[r.IntN(2)], wait, known, begun)
		if t.Failed() {
			t.Fatalf("in round %d, %v after the start", round, wait)
		}
	}
	s, err := OpenData(t.Context(), dir, false, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for id, state := range known {
		task, err := s.Get(id)
		switch {
		case state == "deleted" && err == nil:
			t.Errorf("%s was deleted, and is %s", id, task.State)
		case state == "deleted", state == "deleting":
		case err != nil:
			t.Errorf("%s was %s: %v", id, state, err)
		case state == "finished" && task.State != Finished:
			t.Errorf("%s was finished, and is %s", id, task.State)
		case task.Attempt < begun[id]:
			t.Errorf("the attempt %d of %s was begun, and the record has %d", begun[id], id, task.Attempt)
		case task.State == Finished:
			r, err := s.Result(t.Context(), task)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := io.ReadAll(r); string(got) != "result of "+id || err != nil {
				t.Errorf("the result of %s is %q, %v", id, got, err)
			}
			_ = r.Close()
		}
		if t.Failed() {
			break
		}
	}
	t.Logf("%d acknowledged tasks after %d kills, seed %d", len(known), rounds, seed)
	if len(known) < 5*rounds {
		t.Errorf("only %d tasks were submitted", len(known))
	}
}

// killOne runs the victim for a time and kills it. The acknowledgements go into known and begun.
func killOne(t *testing.T, dir, sync string, wait time.Duration, known map[string]string, begun map[string]int) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), victimFolder+"="+dir, victimSync+"="+sync)
	cmd.Stderr = os.Stderr
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(pipe)
	for lines.Scan() {
		verb, id, _ := strings.Cut(lines.Text(), " ")
		switch verb {
		case "open":
			time.AfterFunc(wait, func() { _ = cmd.Process.Kill() })
		case "failed":
			t.Errorf("the victim: %s", id)
		case "begun":
			id, attempt, _ := strings.Cut(id, " ")
			begun[id], _ = strconv.Atoi(attempt)
		case "submitted":
			if known[id] == "" { // its result may have been acknowledged before
				known[id] = verb
			}
		case "finished":
			if known[id] == "" || known[id] == "submitted" {
				known[id] = verb
			}
		case "deleting", "deleted":
			known[id] = verb
		}
	}
	_ = cmd.Wait() // killed
}
