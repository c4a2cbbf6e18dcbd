package main

import (
	"path/filepath"
	"testing"

	broker "github.com/nats-io/nats-server/v2/server"
)

// natsAddress starts a NATS server with JetStream and a password, and returns the address.
func natsAddress(t *testing.T) string {
	t.Helper()
	s, err := broker.NewServer(&broker.Options{Host: "127.0.0.1", Port: broker.RANDOM_PORT, NoSigs: true, NoLog: true,
		JetStream: true, StoreDir: t.TempDir(), Username: "tasks", Password: "a password"})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	return s.ClientURL()
}

// TestWorkNATS: consumers of NATS servers share the tasks with each other. The tasks of a killed consumer run again,
// and a second server of the same NATS servers knows all tasks.
func TestWorkNATS(t *testing.T) {
	t.Parallel()
	flags := []string{"--nats", natsAddress(t), "--nats-user", "tasks", "--nats-password", "a password",
		"--tasks-lease", "1s"}
	f := newFarm(t, flags...)
	work := func(name, slow string) *process {
		p := begin(t, command(t, append([]string{"work", "--data", f.data, "--consumer", name, "--model",
			"slow=delay,fixed=" + slow}, flags...)...))
		p.until("millrace works")
		return p
	}
	hangs := work("hangs", "10m")
	task := f.submit("slow")
	f.running(task.ID)
	if err := hangs.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = hangs.end()
	a, b := work("left", "50ms"), work("right", "50ms")
	const n = 20
	ids := []string{task.ID}
	for range n {
		ids = append(ids, f.submit("slow").ID)
	}
	by := map[string]int{}
	for _, id := range ids {
		by[f.finished(id).Consumer]++
	}
	if by["left"] < n/4 || by["right"] < n/4 || by["left"]+by["right"] != n+1 {
		t.Errorf("the tasks of the consumers: %v", by)
	}
	for _, p := range []*process{a, b} {
		if code := f.stop(p); code != 0 {
			t.Errorf("exit status %d: %s", code, &p.stderr)
		}
	}
	f.start("127.0.0.1:0", flags...) // beside the first server
	for _, id := range ids {
		f.finished(id)
		if _, err := f.cl.TaskResult(t.Context(), id, 0); err != nil {
			t.Error(err)
		}
	}
	if names, _ := filepath.Glob(filepath.Join(f.data, "jetstream")); names != nil {
		t.Error("the data folder has records of its own")
	}
}
