package container_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"millrace/batching"
	"millrace/config"
	"millrace/internal/podmantest"
	"millrace/server"
	"millrace/stream"
	"millrace/workers"
)

// serveImage is the image with the program testdata/serve. Its tag is the behavior of the program.
const serveImage = "localhost/serve:"

// startServing returns a Podman service with the images of serveImage.
func startServing(t *testing.T, behaviors ...string) *podman {
	t.Helper()
	p := &podman{Service: podmantest.Start(t), t: t, program: podmantest.Build(t, "./testdata/serve", "serve")}
	for _, b := range behaviors {
		p.Import(serveImage+b, p.program, fmt.Sprintf(`ENTRYPOINT ["/serve", %q]`, b))
	}
	return p
}

// serving is a model with an image of serveImage.
func serving(behavior string, more ...any) workers.Config {
	c := workers.Config{Name: "people", Source: "container://" + serveImage + behavior,
		Params: params(append([]any{"container.serve.port", int64(8000), "container.serve.model", "sum"}, more...)...)}
	c.Limits.Start = time.Minute
	return c
}

func servingConfig(socket, data string, models ...workers.Config) server.Config {
	return server.Config{
		HTTP: "127.0.0.1:0", GRPC: server.Off, Data: data, Models: models,
		Log:        config.Log{Level: "info", File: filepath.Join(data, "log")},
		Containers: config.Containers{Host: "unix://" + socket, Images: []string{"localhost/serve"}},
	}
}

func (r *rig) log() string {
	b, err := os.ReadFile(filepath.Join(r.data, "log"))
	if err != nil {
		r.t.Fatal(err)
	}
	return string(b)
}

// awaitLog waits until the server's log has a text n times.
func (r *rig) awaitLog(text string, n int) {
	r.t.Helper()
	for strings.Count(r.log(), text) < n {
		if r.t.Context().Err() != nil {
			r.t.Fatalf("no %q in the log", text)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// infer sends x and 1 to the model people.
func (r *rig) infer(x int) (int, string) {
	return r.do("POST", "/v2/models/people/infer", "application/json",
		fmt.Appendf(nil, `{"inputs":[{"name":"x","datatype":"FP32","shape":[1,2],"data":[%d,1]}]}`, x))
}

func (r *rig) mustInfer(x int, want string) {
	r.t.Helper()
	if status, text := r.infer(x); status != http.StatusOK || !strings.Contains(text, want) {
		r.t.Errorf("infer: %d %s, want %s", status, text, want)
	}
}

// TestServe: requests are batched and answered by the container, which is replaced after its end, and drained at the
// unload.
func TestServe(t *testing.T) {
	p := startServing(t, "serve")
	model := serving("serve", "container.grace", "20s")
	model.Batching = workers.Batching{Kind: batching.Soft, MaxSize: 8}
	model.Parts = []any{&batching.SoftSettings{MaxDelay: time.Minute}}
	r := startServer(t, servingConfig(p.Socket, t.TempDir(), model))
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() { r.mustInfer(10+i, fmt.Sprintf(`"data":[%d]`, 11+i)) })
	}
	wg.Wait()
	r.awaitLog(`line="rows 8"`, 1)
	about, err := p.Do("inspect", "--format", "{{.HostConfig.ReadonlyRootfs}} {{.HostConfig.SecurityOpt}} "+
		"{{.HostConfig.CapDrop}} {{.HostConfig.Memory}} {{.HostConfig.PidsLimit}} {{.Config.User}} "+
		"{{.HostConfig.PortBindings}}", p.awaitContainer())
	if want := "67108864 128 65532:65532 map[]"; err != nil || !strings.HasPrefix(about, "true [") ||
		!strings.Contains(about, "no-new-privileges") || !strings.HasSuffix(about, want) {
		t.Errorf("the container: %s %v", about, err)
	}
	if nets := p.Networks(); len(nets) != 1 {
		t.Fatalf("networks: %v", nets)
	} else if about, err := p.Do("network", "inspect", "--format", "{{.Internal}}", nets[0]); err != nil ||
		about != "true" {
		t.Errorf("the network is internal: %s %v", about, err)
	}
	if status, text := r.do("POST", "/v2/repository/models/people/unload", "", nil); status != http.StatusOK {
		t.Fatalf("unload: %d %s", status, text)
	}
	if left, nets := p.Containers(), p.Networks(); left != "" || len(nets) > 0 {
		t.Errorf("after the unload: container %s, networks %v", left, nets)
	}
	r.awaitLog("it was asked to end", 1)
	r.awaitCount("people", 0, 1)
}

// TestServeEnds: a request of a container that ends by itself fails with the container's last lines, a request that
// comes later waits for the next container, and a request under way ends before the container at an unload.
func TestServeEnds(t *testing.T) {
	p := startServing(t, "serve")
	r := startServer(t, servingConfig(p.Socket, t.TempDir(), serving("serve", "container.grace", "20s")))
	if status, text := r.infer(666); status != http.StatusServiceUnavailable || !strings.Contains(text, "status 9") ||
		!strings.Contains(text, "the last line") {
		t.Errorf("the end of the container: %d %s", status, text)
	}
	r.mustInfer(1, `"data":[2]`)
	r.mustInfer(668, `"data":[0]`) // no route out
	killed := p.awaitContainer()
	if out, err := p.Do("kill", killed); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	r.awaitLog("the container of a model has ended", 2)
	r.mustInfer(2, `"data":[3]`)
	next := p.awaitContainer()
	if next == killed || strings.Contains(next, "\n") {
		t.Errorf("containers after the restart: %s, before: %s", next, killed)
	}
	answered, unloaded := make(chan struct{}), make(chan struct{})
	go func() { defer close(answered); r.mustInfer(667, `"data":[668]`) }()
	r.awaitLog(`line="it blocks"`, 1)
	go func() {
		defer close(unloaded)
		if status, text := r.do("POST", "/v2/repository/models/people/unload", "", nil); status != http.StatusOK {
			t.Errorf("unload: %d %s", status, text)
		}
	}()
	for {
		status, _ := r.do("GET", "/v2/models/people/ready", "", nil)
		if status != http.StatusOK {
			break
		}
		select {
		case <-unloaded:
			t.Fatal("the unload does not wait for the request")
		default:
		}
	}
	if out, err := p.Do("kill", "--signal", "USR1", next); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	<-answered
	<-unloaded
	if left, nets := p.Containers(), p.Networks(); left != "" || len(nets) > 0 {
		t.Errorf("after the unload: container %s, networks %v", left, nets)
	}
}

// TestServeGRPC: requests over gRPC are batched and answered. After the end of the container, the next one answers.
func TestServeGRPC(t *testing.T) {
	p := startServing(t, "grpc")
	model := serving("grpc", "container.serve.protocol", "grpc")
	model.Batching = workers.Batching{Kind: batching.Soft, MaxSize: 4}
	model.Parts = []any{&batching.SoftSettings{MaxDelay: time.Minute}}
	r := startServer(t, servingConfig(p.Socket, t.TempDir(), model))
	four := func(numbers ...int) (failed int) {
		var wg sync.WaitGroup
		var bad atomic.Int32
		for _, x := range numbers {
			wg.Go(func() {
				status, text := r.infer(x)
				switch {
				case status == http.StatusServiceUnavailable && strings.Contains(text, "status 9"):
					bad.Add(1)
				case status != http.StatusOK || !strings.Contains(text, fmt.Sprintf(`"data":[%d]`, x+1)):
					t.Errorf("infer: %d %s", status, text)
				}
			})
		}
		wg.Wait()
		return int(bad.Load())
	}
	if n := four(10, 11, 12, 13); n != 0 {
		t.Errorf("%d of 4 requests failed", n)
	}
	r.awaitLog(`line="rows 4"`, 1)
	if n := four(666, 666, 666, 666); n != 4 {
		t.Errorf("%d of 4 requests failed with the end of the container", n)
	}
	if n := four(20, 21, 22, 23); n != 0 {
		t.Errorf("%d of 4 requests failed after the restart", n)
	}
}

// TestServeInstances: two instances are two containers, each with one request in progress. The end of one container
// fails only its own request, and while the server in one container is not ready, the other container answers.
func TestServeInstances(t *testing.T) {
	p := startServing(t, "serve")
	model := serving("serve", "container.grace", "20s", "container.serve.health", "20ms")
	model.Instances = 2
	r := startServer(t, servingConfig(p.Socket, t.TempDir(), model))
	all := strings.Fields(p.Containers())
	if nets := p.Networks(); len(all) != 2 || len(nets) != 2 {
		t.Fatalf("containers %v, networks %v", all, nets)
	}
	signal := func(name, container string) {
		if out, err := p.Do("kill", "--signal", name, container); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	codes := make(chan int, 2)
	block := func(blocked int) {
		for range 2 {
			go func() {
				status, _ := r.infer(667)
				codes <- status
			}()
		}
		r.awaitLog(`line="it blocks"`, blocked)
	}
	r.awaitCount("people", 2, 2)
	block(2)
	signal("KILL", all[0])
	if status := <-codes; status != http.StatusServiceUnavailable {
		t.Errorf("the request of the container that ended: %d", status)
	}
	signal("USR1", all[1])
	if status := <-codes; status != http.StatusOK {
		t.Errorf("the request of the other container: %d", status)
	}
	block(4)
	for _, c := range strings.Fields(p.Containers()) {
		signal("USR1", c)
		if status := <-codes; status != http.StatusOK {
			t.Errorf("a request after the restart of a container: %d", status)
		}
	}
	r.awaitCount("people", 2, 3)
	rows := strings.Count(r.log(), `line="rows 1"`)
	signal("USR2", all[1])
	r.awaitLog("it loads", 1)
	if status, text := r.do("GET", "/v2/models/people/ready", "", nil); status != http.StatusOK {
		t.Errorf("ready with one of two servers: %d %s", status, text)
	}
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() { r.mustInfer(i, fmt.Sprintf(`"data":[%d]`, i+1)) })
	}
	r.awaitLog(`line="rows 1"`, rows+7) // at most one request waits with the server that is not ready
	signal("USR2", all[1])
	wg.Wait()
}

// awaitReplacement sends requests until the given number of containers has begun to serve, and the last one answers.
func (r *rig) awaitReplacement(containers int) {
	r.t.Helper()
	for {
		begun := strings.Count(r.log(), `line="it begins to serve"`)
		if status, _ := r.infer(1); begun >= containers && status == http.StatusOK {
			break
		}
	}
	r.awaitLog("container.serve.unready: ", containers-1)
}

// TestServeHangs: a container whose server answers nothing is replaced although requests are always under way.
func TestServeHangs(t *testing.T) {
	p := startServing(t, "serve")
	model := serving("serve", "container.serve.unready", "10ms", "container.serve.health", "10ms")
	model.Limits.Run = time.Second
	r := startServer(t, servingConfig(p.Socket, t.TempDir(), model))
	if status, text := r.infer(669); status != http.StatusGatewayTimeout {
		t.Fatalf("a request without an answer: %d %s", status, text)
	}
	r.awaitReplacement(2)
}

// TestServeUnready: a container whose server is not ready any more is replaced, and also a container that loses its
// network, whose request under way fails.
func TestServeUnready(t *testing.T) {
	p := startServing(t, "serve")
	model := serving("serve", "container.serve.unready", "10ms", "container.serve.health", "20ms")
	model.Limits.Run = 5 * time.Second
	r := startServer(t, servingConfig(p.Socket, t.TempDir(), model))
	first := p.awaitContainer()
	if out, err := p.Do("kill", "--signal", "USR2", first); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	r.awaitReplacement(2)
	second, networks := p.awaitContainer(), p.Networks()
	if second == first || len(networks) != 1 {
		t.Fatalf("containers %s and %s, networks %v", first, second, networks)
	}
	blocked := make(chan int, 1)
	go func() {
		status, _ := r.infer(667)
		blocked <- status
	}()
	r.awaitLog(`line="it blocks"`, 1)
	for _, args := range [][]string{{"disconnect", "--force", networks[0], second}, {"rm", networks[0]}} {
		if out, err := p.Do(append([]string{"network"}, args...)...); err != nil {
			t.Fatalf("%v: %v: %s", args, err, out)
		}
	}
	if status := <-blocked; status != http.StatusServiceUnavailable && status != http.StatusGatewayTimeout {
		t.Errorf("the request of the container without a network: %d", status)
	}
	r.awaitReplacement(3)
	if last := p.awaitContainer(); last == second || strings.Contains(last, "\n") {
		t.Errorf("containers after the loss of the network: %s, before: %s", last, second)
	}
}

// TestServeRedirects: a redirect of the server in a container is not followed.
func TestServeRedirects(t *testing.T) {
	p := startServing(t)
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
		t.Errorf("the redirect was followed: %s", q.URL)
	}))
	defer other.Close()
	p.Import(serveImage+"redirect", p.program, fmt.Sprintf(`ENTRYPOINT ["/serve", "redirect", %q]`, other.URL))
	s, err := server.New(servingConfig(p.Socket, t.TempDir(), serving("redirect")))
	if err == nil {
		err = s.Run(t.Context())
	}
	if want := "container.serve.port: "; err == nil || !strings.Contains(err.Error(), want) ||
		!strings.Contains(err.Error(), "redirects to another address, which is not followed") {
		t.Errorf("%v, want %q", err, want)
	}
}

// serveServerEnv makes the test's program a server with a model that serves: the socket and the data folder.
const serveServerEnv = "MILLRACE_TEST_SERVING"

func init() {
	socket, data, found := strings.Cut(os.Getenv(serveServerEnv), ",")
	if !found {
		return
	}
	s, err := server.New(servingConfig(socket, data, serving("serve")))
	if err == nil {
		err = s.Run(context.Background())
	}
	if err != nil {
		panic(err)
	}
	os.Exit(0)
}

// TestServeKill: the container and the network of a server that SIGKILL has ended are removed at the next start.
func TestServeKill(t *testing.T) {
	p := startServing(t, "serve")
	data := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), serveServerEnv+"="+p.Socket+","+data)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.awaitContainer()
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if left, nets := p.Containers(), p.Networks(); left == "" || len(nets) != 1 {
		t.Fatalf("after SIGKILL: container %q, networks %v", left, nets)
	}
	startServer(t, servingConfig(p.Socket, data))
	if left, nets := p.Containers(), p.Networks(); left != "" || len(nets) > 0 {
		t.Errorf("after the next start: container %s, networks %v", left, nets)
	}
}

// TestServeLoads: the error of a load names the setting, and has the last lines of the container. Nothing is left.
func TestServeLoads(t *testing.T) {
	p := startServing(t, "serve", "fail", "wait", "talk", "login")
	short := func(c workers.Config) workers.Config { c.Limits.Start = 8 * time.Second; return c }
	for _, c := range []struct {
		name  string
		model workers.Config
		want  []string
	}{
		{"not in the list", workers.Config{Name: "people", Source: "container://localhost/other:1",
			Params: stream.Params{"container.serve.port": int64(8000)}}, []string{"containers.images: has no entry"}},
		{"no scheme", workers.Config{Name: "people", Kind: "container", Source: "serve:1",
			Params: stream.Params{"container.serve.port": int64(8000)}},
			[]string{"source: ", `"serve:1"`, "container://IMAGE"}},
		{"no image", serving("none"), []string{"container.image: ", "has no image localhost/serve:none"}},
		{"ends", serving("fail"), []string{"container.image: ", "status 7 before its server was ready", "a reason"}},
		{"no answer", short(serving("wait")), []string{"container.serve.port: ", "limits.start", "it begins to wait"}},
		{"another protocol", short(serving("talk")), []string{"container.serve.protocol: is http"}},
		{"credentials", serving("login"), []string{"container.serve.port: ", "wants credentials, and gets none: no key"}},
		{"no gRPC", short(serving("serve", "container.serve.protocol", "grpc")),
			[]string{"container.serve.protocol: is grpc"}},
		{"no model", short(serving("serve", "container.serve.model", "other")),
			[]string{"container.serve.model: ", `has no model "other"`}},
		{"no port", workers.Config{Name: "people", Source: "container://" + serveImage + "serve",
			Params: stream.Params{"container.serve.model": "sum"}}, []string{"container.serve.port: is missing"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := server.New(servingConfig(p.Socket, t.TempDir(), c.model))
			if err == nil {
				err = s.Run(t.Context())
			}
			for _, want := range c.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%v, want %q", err, want)
				}
			}
			if left, nets := p.Containers(), p.Networks(); left != "" || len(nets) > 0 {
				t.Errorf("left: container %s, networks %v", left, nets)
			}
		})
	}
}
