package tasks

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"millrace/internal/ctxio"
	"millrace/stream/coded"
)

// natsServer runs a NATS server with JetStream on a port of this machine, as a process elsewhere would.
type natsServer struct {
	*server.Server
	t testing.TB
	o server.Options
}

func startNATS(t testing.TB, with func(*server.Options)) *natsServer {
	t.Helper()
	n := &natsServer{t: t, o: server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, JetStream: true,
		StoreDir: t.TempDir(), NoLog: true}}
	if with != nil {
		with(&n.o)
	}
	n.start()
	n.o.Port = n.Addr().(*net.TCPAddr).Port
	t.Cleanup(n.end)
	return n
}

func (n *natsServer) start() {
	n.t.Helper()
	o := n.o
	s, err := server.NewServer(&o)
	if err != nil {
		n.t.Fatal(err)
	}
	s.Start()
	if !s.ReadyForConnections(startTimeout) {
		n.t.Fatal("the NATS server does not start")
	}
	n.Server = s
}

func (n *natsServer) end() {
	n.Shutdown()
	n.WaitForShutdown()
}

// open opens a data folder as a process of its own does.
func (n *natsServer) open(folder string, o Options) *Data {
	n.t.Helper()
	o.NATS = &NATS{Servers: []string{n.ClientURL()}}
	d, err := OpenData(n.t.Context(), folder, true, o)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(d.Close)
	return d
}

func submitTo(t testing.TB, d *Data, input string) Task {
	t.Helper()
	task, _, err := d.Submit(t.Context(), Submission{Task: Task{Model: "m"}, Data: text(input)})
	if err != nil {
		t.Fatal(err)
	}
	return task
}

// finishOne claims one task, and finishes it with the input as the result.
func finishOne(t testing.TB, d *Data) Task {
	t.Helper()
	c := claim(t, d.Store)
	in, err := c.Input()
	if err != nil {
		t.Fatal(err)
	}
	w, err := c.Create()
	if err == nil {
		_, err = io.Copy(w, in)
	}
	if err != nil {
		t.Fatal(err)
	}
	info, err := w.Commit()
	if err == nil {
		err = c.Finish(File{Info: info})
	}
	if err != nil {
		t.Fatal(err)
	}
	return c.Task()
}

// repeat calls f until a call succeeds while the NATS servers cannot be reached, for a minute at most.
func repeat(t testing.TB, f func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		err := f(ctx)
		if err == nil {
			return
		}
		if ctx.Err() != nil || coded.CodeOf(err) != coded.Unavailable {
			t.Fatal(err)
		}
		ctxio.Sleep(ctx, 50*time.Millisecond)
	}
}

// seen waits until a store knows a task in a state.
func seen(t testing.TB, s *Store, id string, state State) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for {
		task, err := s.Get(id)
		if err == nil && task.State == state {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("the task %s is %s, %v, not %s", id, task.State, err, state)
		}
		ctxio.Sleep(ctx, 10*time.Millisecond)
	}
}

// TestShared: two processes with one NATS server and one folder share tasks; files of a submission in progress outlive
// the start of a process, and old files without a record do not.
func TestShared(t *testing.T) {
	n, folder := startNATS(t, nil), t.TempDir()
	a := n.open(folder, Options{})
	young, old := newID(time.Now()), newID(time.Now().Add(-2*orphanAge))
	for _, id := range []string{young, old} {
		w, err := a.blobs.Create(t.Context(), inputKey(id))
		if err == nil {
			_, err = w.Commit()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	writing, err := a.blobs.Create(t.Context(), inputKey(newID(time.Now())))
	if err != nil {
		t.Fatal(err)
	}
	b := n.open(folder, Options{})
	if _, err := writing.Commit(); err != nil {
		t.Errorf("the start of another process ended a submission: %v", err)
	}
	if _, err := a.blobs.Open(t.Context(), inputKey(young)); err != nil {
		t.Errorf("the input of a submission in progress: %v", err)
	}
	if _, err := a.blobs.Open(t.Context(), inputKey(old)); coded.CodeOf(err) != coded.NotFound {
		t.Errorf("the input of an interrupted submission: %v", err)
	}
	for i := range 20 {
		task := submitTo(t, a, fmt.Sprint("input ", i))
		by := []*Data{a, b}[i%2]
		seen(t, by.Store, task.ID, Queued)
		if got := finishOne(t, by); got.ID != task.ID {
			t.Fatalf("claimed %s, want %s", got.ID, task.ID)
		}
		seen(t, a.Store, task.ID, Finished)
		done, _ := a.Get(task.ID)
		r, err := a.Result(t.Context(), done)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(r); err != nil || string(got) != fmt.Sprint("input ", i) {
			t.Errorf("result %q, %v", got, err)
		}
		_ = r.Close()
	}
	if s := b.Stats(); s.Bytes != a.Stats().Bytes || s.Stored[Finished] != 20 {
		t.Errorf("%+v and %+v", s, a.Stats())
	}
}

// TestPairs: records and files that do not belong together are refused before anything is deleted.
func TestPairs(t *testing.T) {
	n := startNATS(t, nil)
	folder, embedded := t.TempDir(), t.TempDir()
	d, err := OpenData(t.Context(), embedded, true, Options{})
	if err != nil {
		t.Fatal(err)
	}
	submitTo(t, d, "embedded")
	d.Close()
	d = n.open(folder, Options{})
	submitTo(t, d, "shared")
	d.Close()
	other := startNATS(t, nil)
	for _, c := range []struct {
		name, folder string
		nats         *natsServer
		want         string
	}{
		{"embedded folder with NATS", embedded, n, "has the records of its tasks itself"},
		{"shared folder without NATS", folder, nil, "NATS servers keep the records"},
		{"shared folder with other servers", folder, other, "have no records of the files"},
		{"empty folder with used servers", t.TempDir(), n, "records of another data folder"},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := tree(t, c.folder)
			o := Options{}
			if c.nats != nil {
				o.NATS = &NATS{Servers: []string{c.nats.ClientURL()}}
			}
			d, err := OpenData(t.Context(), c.folder, true, o)
			if err == nil {
				d.Close()
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if after := tree(t, c.folder); c.folder != "" && !strings.Contains(after, before) {
				t.Errorf("files before %s, after %s", before, after)
			}
		})
	}
}

// tree lists the inputs of a data folder.
func tree(t *testing.T, folder string) string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(folder, "files", "*", "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(names, " ")
}

// TestBrokerAway: while the NATS server is down, submissions are refused and known tasks can be read; after its start,
// both processes go on with all tasks.
func TestBrokerAway(t *testing.T) {
	if testing.Short() {
		t.Skip("a store notices after 10 s that it misses changes")
	}
	t.Parallel()
	n, folder := startNATS(t, nil), t.TempDir()
	a, b := n.open(folder, Options{}), n.open(folder, Options{})
	first := submitTo(t, a, "first")
	seen(t, b.Store, first.ID, Queued)
	running := claim(t, b.Store)
	n.end()
	_, _, err := a.Submit(t.Context(), Submission{Task: Task{Model: "m"}, Data: text("away")})
	if coded.CodeOf(err) != coded.Unavailable {
		t.Errorf("a submission without the broker: %v", err)
	}
	if _, err := a.Get(first.ID); err != nil {
		t.Errorf("a task without the broker: %v", err)
	}
	n.start()
	repeat(t, func(context.Context) error { return running.Renew() })
	w, err := running.Create()
	if err != nil {
		t.Fatal(err)
	}
	info, err := w.Commit()
	if err == nil {
		err = running.Finish(File{Info: info})
	}
	if err != nil {
		t.Fatal(err)
	}
	seen(t, a.Store, first.ID, Finished)
	var second Task
	repeat(t, func(ctx context.Context) error {
		second, _, err = a.Submit(ctx, Submission{Task: Task{Model: "m"}, Data: text("second")})
		return err
	})
	seen(t, b.Store, second.ID, Queued)
}

// startCluster runs a cluster of three NATS servers.
func startCluster(t *testing.T) (servers []*natsServer, addresses []string) {
	t.Helper()
	routes := make([]*url.URL, 3)
	for i := range routes {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		routes[i] = &url.URL{Scheme: "nats", Host: l.Addr().String()}
		_ = l.Close()
	}
	for i, r := range routes {
		_, port, _ := net.SplitHostPort(r.Host)
		n := &natsServer{t: t, o: server.Options{ServerName: fmt.Sprint("s", i), Host: "127.0.0.1",
			Port: server.RANDOM_PORT, NoSigs: true, JetStream: true, StoreDir: t.TempDir(), NoLog: true, Routes: routes,
			Cluster: server.ClusterOpts{Name: "c", Host: "127.0.0.1"}}}
		if _, err := fmt.Sscan(port, &n.o.Cluster.Port); err != nil {
			t.Fatal(err)
		}
		n.start()
		n.o.Port = n.Addr().(*net.TCPAddr).Port
		t.Cleanup(n.end)
		servers, addresses = append(servers, n), append(addresses, n.ClientURL())
	}
	return servers, addresses
}

// TestReplicas: the records have as many copies as the cluster has servers.
func TestReplicas(t *testing.T) {
	if testing.Short() {
		t.Skip("a cluster needs seconds to elect a leader")
	}
	t.Parallel()
	_, addresses := startCluster(t)
	o := Options{NATS: &NATS{Servers: addresses}}
	folder := t.TempDir()
	d, err := OpenData(t.Context(), folder, true, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	status, err := d.kv.Status(t.Context())
	if err != nil || status.Config().Replicas != 3 {
		t.Fatalf("%+v, %v", status, err)
	}
	task := submitTo(t, d, "input")
	second, err := OpenData(t.Context(), folder, true, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(second.Close)
	if got, err := second.Get(task.ID); err != nil || got.State != Queued {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestFailover: each of three NATS servers is stopped while it leads the records, and started again, while one process
// submits tasks and another one runs them. Every acknowledged task finishes once, with its own result.
func TestFailover(t *testing.T) {
	if testing.Short() {
		t.Skip("a cluster needs seconds to elect a leader")
	}
	t.Parallel()
	servers, addresses := startCluster(t)
	o := Options{NATS: &NATS{Servers: addresses}, Lease: 2 * time.Second}
	folder := t.TempDir()
	var of [2]*Data // submits, runs
	for i := range of {
		d, err := OpenData(t.Context(), folder, true, o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(d.Close)
		go d.Run(t.Context())
		of[i] = d
	}
	ctx, stop := context.WithCancel(t.Context())
	var work sync.WaitGroup
	defer work.Wait()
	defer stop()
	var mu sync.Mutex
	submitted, finished := map[string]string{}, map[string]int{}
	work.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			input := fmt.Sprint("input ", n)
			for ctx.Err() == nil { // with the key, a repeated submission is the same task
				task, _, err := of[0].Submit(ctx, Submission{Task: Task{Model: "m", Key: input, Attempts: 100},
					Data: text(input)})
				if err == nil {
					mu.Lock()
					submitted[task.ID] = input
					mu.Unlock()
					break
				}
				if ctx.Err() == nil && coded.CodeOf(err) != coded.Unavailable {
					t.Error(err)
					return
				}
				ctxio.Sleep(ctx, 20*time.Millisecond)
			}
			for waiting := true; waiting && ctx.Err() == nil; { // at most 50 tasks wait
				ctxio.Sleep(ctx, 5*time.Millisecond)
				mu.Lock()
				waiting = len(submitted) > len(finished)+50
				mu.Unlock()
			}
		}
	})
	work.Go(func() {
		for ctx.Err() == nil {
			c, err := of[1].Claim(ctx, "runner", func(string) bool { return true })
			if err != nil {
				ctxio.Sleep(ctx, 20*time.Millisecond)
				continue
			}
			in, err := c.Input()
			if err != nil {
				c.Close()
				continue
			}
			w, err := c.Create()
			if err == nil {
				_, err = io.Copy(w, in)
			}
			_ = in.Close()
			if err != nil {
				if ctx.Err() == nil {
					t.Error(err)
				}
				return
			}
			info, err := w.Commit()
			if err == nil {
				err = c.Finish(File{Info: info})
			}
			if err == nil {
				mu.Lock()
				finished[c.Task().ID]++
				mu.Unlock()
			}
		}
	})
	progress := func(why string) {
		t.Helper()
		count := func() int {
			mu.Lock()
			defer mu.Unlock()
			return len(finished)
		}
		before, deadline := count(), time.Now().Add(time.Minute)
		for count() < before+20 {
			if t.Failed() || time.Now().After(deadline) {
				t.Fatalf("%s: %d tasks finished within a minute", why, count()-before)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	progress("with all servers")
	const stream = "KV_" + bucketName
	for range servers {
		leader := slices.IndexFunc(servers, func(n *natsServer) bool {
			return n.JetStreamIsStreamLeader("$G", stream)
		})
		if leader < 0 {
			t.Fatal("no server leads the records")
		}
		n := servers[leader]
		n.end()
		progress("without the leader " + n.o.ServerName)
		n.start()
		for deadline := time.Now().Add(time.Minute); !n.JetStreamIsStreamCurrent("$G", stream); {
			if time.Now().After(deadline) {
				t.Fatal("a server that was started again misses records after a minute")
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	progress("with all servers again")
	stop()
	work.Wait()
	t.Logf("%d tasks were submitted, %d finished meanwhile", len(submitted), len(finished))
	for id, input := range submitted {
		for task, err := of[1].Get(id); err != nil || task.State != Finished; task, err = of[1].Get(id) {
			finished[finishOne(t, of[1]).ID]++
		}
		if finished[id] > 1 {
			t.Errorf("%s finished %d times", id, finished[id])
		}
		seen(t, of[0].Store, id, Finished)
		task, _ := of[0].Get(id)
		r, err := of[0].Result(t.Context(), task)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(r); err != nil || string(got) != input {
			t.Errorf("the result of %s: %q, want %q, %v", id, got, input, err)
		}
		_ = r.Close()
	}
}

// TestNATSCredentials: users with a wrong password, a missing file of credentials, and servers without JetStream are
// refused at once.
func TestNATSCredentials(t *testing.T) {
	n := startNATS(t, func(o *server.Options) { o.Username, o.Password = "tasks", "right" })
	plain := startNATS(t, func(o *server.Options) { o.JetStream = false })
	good := NATS{Servers: []string{n.ClientURL()}, User: "tasks", Password: "right"}
	b, err := Connect(t.Context(), good, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	b.Close()
	for _, c := range []struct {
		of   NATS
		want string
	}{
		{NATS{Servers: good.Servers, User: "tasks", Password: "wrong"}, "refuse the connection"},
		{NATS{Servers: good.Servers}, "refuse the connection"},
		{NATS{Servers: good.Servers, Credentials: filepath.Join(t.TempDir(), "none")}, "refuse the connection"},
		{NATS{Servers: good.Servers, CA: os.DevNull}, "refuse the connection"},
		{NATS{Servers: []string{plain.ClientURL()}}, "has no JetStream"},
	} {
		if b, err := Connect(t.Context(), c.of, slog.New(slog.DiscardHandler)); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c.of, err)
			if err == nil {
				b.Close()
			}
		}
	}
}
