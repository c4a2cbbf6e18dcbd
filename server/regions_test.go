package server

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"millrace/ingest/access"
	"millrace/ingest/shm"
	"millrace/internal/inferencepb"
	"millrace/internal/role"
)

// memoryOf creates a POSIX shared memory until the end of the test, and returns its key.
func memoryOf(t *testing.T, content string) (key, path string) {
	t.Helper()
	f, err := os.CreateTemp(shm.Folder, "millrace-test-")
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { _ = os.Remove(f.Name()) })
	if _, err := f.WriteString(content); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return "/" + filepath.Base(f.Name()), f.Name()
}

// sharer is a client of shared memory, over REST or gRPC.
type sharer struct {
	t       *testing.T
	s       *Server
	grpc    bool
	key     string   // of the server
	forward []string // a header of a proxy and its value
	at      string   // the listener to which it sends; "" = http or grpc
}

// over returns the client over the other protocol.
func (x sharer) over(grpc bool) *sharer {
	x.grpc = grpc
	return &x
}

// rest sends a request, and returns the answer, or the error's code and message.
func (x *sharer) rest(method, path, body string) string {
	x.t.Helper()
	c := dialListener(x.t, x.s, cmp.Or(x.at, "http"))
	tr := &http.Transport{DisableKeepAlives: true, DialContext: func(context.Context, string, string) (net.Conn,
		error) {
		return c, nil
	}}
	r, err := http.NewRequestWithContext(x.t.Context(), method, "http://localhost"+path, strings.NewReader(body))
	if err != nil {
		x.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	if x.key != "" {
		r.Header.Set(access.KeyName, x.key)
	}
	if x.forward != nil {
		r.Header.Set(x.forward[0], x.forward[1])
	}
	a, err := tr.RoundTrip(r)
	if err != nil {
		x.t.Fatal(err)
	}
	defer a.Body.Close()
	text, err := io.ReadAll(a.Body)
	if err != nil {
		x.t.Fatal(err)
	}
	var e struct{ Code, Error string }
	if a.StatusCode >= 300 && json.Unmarshal(text, &e) == nil {
		return e.Code + ": " + e.Error
	}
	return string(text)
}

// call makes calls of gRPC, and returns the error's message, or "".
func (x *sharer) call(do func(ctx context.Context, c inferencepb.GRPCInferenceServiceClient) error) string {
	x.t.Helper()
	conn, err := grpc.NewClient(x.s.Addr("grpc"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		x.t.Fatal(err)
	}
	defer conn.Close()
	md := append([]string{}, x.forward...)
	if x.key != "" {
		md = append(md, access.KeyName, x.key)
	}
	if err := do(metadata.AppendToOutgoingContext(x.t.Context(), md...),
		inferencepb.NewGRPCInferenceServiceClient(conn)); err != nil {
		return status.Code(err).String() + ": " + status.Convert(err).Message()
	}
	return ""
}

// register registers 4 bytes of the memory of a key.
func (x *sharer) register(name, key string) string {
	x.t.Helper()
	if x.grpc {
		return x.call(func(ctx context.Context, c inferencepb.GRPCInferenceServiceClient) error {
			_, err := c.SystemSharedMemoryRegister(ctx, &inferencepb.SystemSharedMemoryRegisterRequest{Name: name,
				Key: key, ByteSize: 4})
			return err
		})
	}
	return x.rest("POST", "/v2/systemsharedmemory/region/"+name+"/register",
		fmt.Sprintf(`{"key":%q,"byte_size":4}`, key))
}

// unregister forgets a region, or with "" all.
func (x *sharer) unregister(name string) string {
	x.t.Helper()
	switch {
	case x.grpc:
		return x.call(func(ctx context.Context, c inferencepb.GRPCInferenceServiceClient) error {
			_, err := c.SystemSharedMemoryUnregister(ctx, &inferencepb.SystemSharedMemoryUnregisterRequest{Name: name})
			return err
		})
	case name == "":
		return x.rest("POST", "/v2/systemsharedmemory/unregister", "")
	}
	return x.rest("POST", "/v2/systemsharedmemory/region/"+name+"/unregister", "")
}

// regions returns the names of the regions, or of the named region, or the error.
func (x *sharer) regions(name string) (out string) {
	x.t.Helper()
	var names []string
	if x.grpc {
		if e := x.call(func(ctx context.Context, c inferencepb.GRPCInferenceServiceClient) error {
			r, err := c.SystemSharedMemoryStatus(ctx, &inferencepb.SystemSharedMemoryStatusRequest{Name: name})
			for name := range r.GetRegions() {
				names = append(names, name)
			}
			return err
		}); e != "" {
			return e
		}
		return strings.Join(names, " ")
	}
	path := "/v2/systemsharedmemory/status"
	if name != "" {
		path = "/v2/systemsharedmemory/region/" + name + "/status"
	}
	text := x.rest("GET", path, "")
	var all []shm.Status
	if json.Unmarshal([]byte(text), &all) != nil {
		return text
	}
	for _, r := range all {
		names = append(names, r.Name)
		if r.Owner != "" {
			x.t.Errorf("its owner is told: %s", text)
		}
	}
	return strings.Join(names, " ")
}

// infer sends the content of the region from to door-1, which returns its inputs, or a text if from is "", and
// returns the answer, read from the region to unless to is "".
func (x *sharer) infer(from, to string, streamed bool) (out string) {
	x.t.Helper()
	if !x.grpc {
		input, output := `"data":[110,101,119,33]`, ""
		if from != "" {
			input = fmt.Sprintf(`"parameters":{"shared_memory_region":%q,"shared_memory_byte_size":4}`, from)
		}
		if to != "" {
			output = fmt.Sprintf(`,"outputs":[{"name":"x","parameters":{"shared_memory_region":%q,`+
				`"shared_memory_byte_size":4}}]`, to)
		}
		text := x.rest("POST", "/v2/models/door-1/infer", `{"inputs":[{"name":"x","datatype":"UINT8","shape":[4],`+
			input+`}]`+output+`}`)
		var r struct{ Outputs []struct{ Data []rune } }
		if json.Unmarshal([]byte(text), &r) != nil || len(r.Outputs) == 0 {
			return text
		}
		for _, v := range r.Outputs[0].Data {
			out += string(v)
		}
		return out
	}
	at := func(name string) map[string]*inferencepb.InferParameter {
		return map[string]*inferencepb.InferParameter{
			"shared_memory_region":    {ParameterChoice: &inferencepb.InferParameter_StringParam{StringParam: name}},
			"shared_memory_byte_size": {ParameterChoice: &inferencepb.InferParameter_Int64Param{Int64Param: 4}},
		}
	}
	in := &inferencepb.ModelInferRequest{ModelName: "door-1",
		Inputs: []*inferencepb.ModelInferRequest_InferInputTensor{{Name: "x", Datatype: "UINT8", Shape: []int64{4}}}}
	if from == "" {
		in.RawInputContents = [][]byte{[]byte("new!")}
	} else {
		in.Inputs[0].Parameters = at(from)
	}
	if to != "" {
		in.Outputs = []*inferencepb.ModelInferRequest_InferRequestedOutputTensor{{Name: "x", Parameters: at(to)}}
	}
	e := x.call(func(ctx context.Context, c inferencepb.GRPCInferenceServiceClient) error {
		r := &inferencepb.ModelInferResponse{}
		var err error
		if streamed {
			var s inferencepb.GRPCInferenceService_ModelStreamInferClient
			if s, err = c.ModelStreamInfer(ctx); err != nil {
				return err
			}
			if err = s.Send(in); err != nil && err != io.EOF { // Recv returns the reason of a refusal
				return err
			}
			var a *inferencepb.ModelStreamInferResponse
			if a, err = s.Recv(); err != nil {
				return err
			}
			if out = a.ErrorMessage; out != "" {
				return nil
			}
			r = a.InferResponse
		} else if r, err = c.ModelInfer(ctx, in); err != nil {
			return err
		}
		if len(r.RawOutputContents) > 0 {
			out = string(r.RawOutputContents[0])
		}
		return nil
	})
	return e + out
}

// TestRegionsOfClients: over each protocol only the client that registered a shared memory region can use the region:
// to other clients of any role the region seems not to exist, and other clients cannot register its memory.
func TestRegionsOfClients(t *testing.T) {
	k := startKeyed(t, func(c *Config) { c.Models[0].Name = "door-1" })
	for _, name := range []string{"a", "b"} {
		k.add(t, name, role.All, time.Time{})
	}
	k.write(t)
	k.access.Recheck()
	of := func(name string) *sharer { return &sharer{t: t, s: k.Server, key: k.keys[name]} }
	want := func(what, got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	for _, owned := range []bool{false, true} { // over gRPC
		a := of("a").over(owned)
		key, path := memoryOf(t, "mine")
		other, _ := memoryOf(t, "hers")
		for _, name := range []string{"b", "all", "manage", "infer", "door"} {
			for _, over := range []bool{false, true} {
				b := of(name).over(over)
				what := fmt.Sprintf("registered over gRPC: %v, %s over gRPC: %v", owned, name, over)
				asks := func() (answers []string) {
					answers = append(answers, b.infer("in", "", false), b.infer("", "in", false), b.regions("in"),
						b.regions(""))
					if over {
						answers = append(answers, b.infer("in", "", true), b.infer("", "in", true))
					}
					return append(answers, b.unregister("in"), b.unregister(""))
				}
				before := asks()
				if name == "b" && (!strings.Contains(before[0],
					"shared_memory_region: no shared memory is registered as") ||
					!strings.Contains(before[2], "no shared memory is registered as")) {
					t.Errorf("%s: %q", what, before)
				}
				want(what, a.register("in", key), "")
				if after := asks(); fmt.Sprint(after) != fmt.Sprint(before) {
					t.Errorf("%s: with the region of another client\n%q\nwithout it\n%q", what, after, before)
				}
				if name == "b" {
					conflict := b.register("mine", key)
					if !strings.Contains(conflict, "key: the shared memory") ||
						!strings.Contains(conflict, "another client") || strings.Contains(conflict, `"in"`) {
						t.Errorf("%s: the memory of another client: %s", what, conflict)
					}
					want(what, b.register("in", other), "")
					want(what, b.infer("in", "", false), "hers")
					want(what, b.regions(""), "in")
					want(what, b.unregister("in"), "")
					if got := b.infer("in", "", false); got != before[0] {
						t.Errorf("%s: %s", what, got)
					}
				}
				for _, over := range []bool{false, true} {
					a := a.over(over)
					want(what, a.infer("in", "", false), "mine")
					want(what, a.regions("in"), "in")
				}
				if got, err := os.ReadFile(path); err != nil || string(got) != "mine" {
					t.Errorf("%s: the memory has become %q: %v", what, got, err)
				}
				want(what, a.over(!owned).unregister("in"), "")
				want(what, a.regions(""), "")
			}
		}
		want("after it is unregistered", of("b").over(owned).register("in", key), "")
		want("its answer", a.over(owned).register("in", other), "")
		a.infer("", "in", false)
		if got, err := os.ReadFile(path); err != nil || string(got) != "mine" {
			t.Errorf("the memory of b has become %q: %v", got, err)
		}
		want("of all", of("b").rest("POST", "/v2/systemsharedmemory/unregister?all=true", ""), "")
		want("of all", a.regions("")+of("b").regions(""), "")
	}
}

// TestRegionsOfAll: a client with the role manage can list and unregister the regions of all clients on request.
func TestRegionsOfAll(t *testing.T) {
	k := startKeyed(t, func(c *Config) { c.Models[0].Name = "door-1" })
	entry := map[string]*sharer{}
	for _, name := range []string{"manage", "all", "infer"} {
		entry[name] = &sharer{t: t, s: k.Server, key: k.keys[name]}
	}
	one, _ := memoryOf(t, "mine")
	two, _ := memoryOf(t, "hers")
	for _, e := range []string{entry["manage"].register("in", one), entry["all"].register("in", two),
		entry["all"].register("out", two)} {
		if e != "" {
			t.Fatal(e)
		}
	}
	ids := map[string]string{}
	for _, e := range k.all {
		ids[e.Name] = "key:" + e.ID
	}
	list := func(path string) (out string) {
		t.Helper()
		text := entry["all"].rest("GET", path, "")
		var all []shm.Status
		if err := json.Unmarshal([]byte(text), &all); err != nil {
			t.Fatal(text)
		}
		for _, r := range all {
			for name, id := range ids {
				if r.Owner == id {
					out += r.Name + " of " + name + ", "
				}
			}
		}
		return out
	}
	const base = "/v2/systemsharedmemory"
	got := list(base + "/status?all=true")
	if want := "in of manage, in of all, out of all, "; len(got) != len(want) ||
		!strings.HasSuffix(got, "out of all, ") || !strings.Contains(got, "in of manage, ") {
		t.Errorf("all of all: %s, want %s in some order", got, want)
	}
	if got := list(base + "/region/out/status?all=true"); got != "out of all, " {
		t.Errorf("one of all: %s", got)
	}
	if got := entry["infer"].rest("GET", base+"/status?all=true", ""); !strings.HasPrefix(got,
		"permission_denied: infer has not the role manage") {
		t.Errorf("without the role: %s", got)
	}
	for path, want := range map[string]string{"/status?all=yes": "invalid_argument: all: ",
		"/region/x/register?all=true": "invalid_argument: all: "} {
		method := "POST"
		if strings.HasPrefix(path, "/status") {
			method = "GET"
		}
		if got := entry["all"].rest(method, base+path, `{"key":"x","byte_size":1}`); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s", path, got)
		}
	}
	if got := entry["manage"].rest("POST", base+"/region/in/unregister?all=true", ""); got != "" {
		t.Error(got)
	}
	if got := list(base + "/status?all=true"); got != "out of all, " {
		t.Errorf("after one was unregistered: %s", got)
	}
	if got := entry["manage"].rest("POST", base+"/unregister?all=true", ""); got != "" {
		t.Error(got)
	}
	if got := list(base + "/status?all=true"); got != "" {
		t.Errorf("after all were: %s", got)
	}
}

// TestRegionsBehindAProxy: a request with a proxy's header is not local, for any address of the proxy and any key.
func TestRegionsBehindAProxy(t *testing.T) {
	k := startKeyed(t, func(c *Config) { c.Models[0].Name = "door-1" })
	key, path := memoryOf(t, "mine")
	near := &sharer{t: t, s: k.Server, key: k.keys["all"]}
	if e := near.register("in", key); e != "" {
		t.Fatal(e)
	}
	for _, name := range shm.ProxyHeaders {
		for _, over := range []bool{false, true} {
			far := near.over(over)
			far.forward = []string{name, "192.0.2.7"}
			for what, got := range map[string]string{
				"register": far.register("x", key), "unregister": far.unregister("in"),
				"unregister all": far.unregister(""), "status": far.regions(""),
				"input": far.infer("in", "", false), "output": far.infer("", "in", false),
			} {
				if header := strings.ToLower(name); !strings.Contains(strings.ToLower(got),
					"shared_memory: is for clients on the same machine, and this request came through a proxy (it "+
						"has the header "+header+")") {
					t.Errorf("%s with %s, over gRPC %v: %s", what, name, over, got)
				}
			}
			if got := far.infer("", "", false); got != "new!" {
				t.Errorf("without shared memory, with %s: %s", name, got)
			}
		}
	}
	if got := near.infer("in", "", false); got != "mine" {
		t.Error(got)
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, []byte("mine")) {
		t.Errorf("the memory has become %q: %v", got, err)
	}
}

// TestRegionsWithoutCredentials: where clients need no credentials, clients of all addresses share the regions, also
// regions registered at the management address.
func TestRegionsWithoutCredentials(t *testing.T) {
	k := startKeyed(t, func(c *Config) {
		c.Auth.Keys, c.Models[0].Name = "", "door-1"
		c.Auth.Metrics = ""
		c.Management.Address = "unix:" + socketPath(t)
	})
	key, _ := memoryOf(t, "mine")
	x := &sharer{t: t, s: k.Server, at: management}
	if e := x.register("in", key); e != "" {
		t.Fatal(e)
	}
	x.at = ""
	for _, over := range []bool{false, true} {
		x := x.over(over)
		if got := x.infer("in", "", false); got != "mine" {
			t.Errorf("over gRPC %v: %s", over, got)
		}
		if got := x.regions(""); got != "in" {
			t.Errorf("over gRPC %v: %s", over, got)
		}
	}
}

// TestRegionsOfFormerUsers: a user has no access to regions of a removed user with the same name, and the removed
// user's memory becomes free.
func TestRegionsOfFormerUsers(t *testing.T) {
	users := filepath.Join(t.TempDir(), "users.yaml")
	k := startKeyed(t, func(c *Config) {
		c.Models[0].Name, c.Auth.Users = "door-1", users
		if err := access.WriteUsers(users, nil); err != nil {
			t.Fatal(err)
		}
	})
	// login creates the only user, and returns the user's logged-in client.
	login := func(password string) *sharer {
		t.Helper()
		if err := access.WriteUsers(users, []access.User{{Name: "eva", Password: access.HashPassword(password),
			Grant: access.Grant{Roles: role.All.Names()}}}); err != nil {
			t.Fatal(err)
		}
		k.access.Recheck()
		r, text := newBrowser(t, k.URL("http")).ask(t, "POST", "/session_login", "eva:"+password)
		if r.StatusCode != http.StatusOK {
			t.Fatal(text)
		}
		return &sharer{t: t, s: k.Server, forward: []string{"Cookie", sessionName + "=" + r.Cookies()[0].Value}}
	}
	key, path := memoryOf(t, "mine")
	old := login("of the former one")
	if e := old.register("in", key); e != "" {
		t.Fatal(e)
	}
	if got := old.infer("in", "", false); got != "mine" {
		t.Error(got)
	}
	eva := login("of the next one")
	unknown := "no shared memory is registered as"
	for what, got := range map[string]string{"input": eva.infer("in", "", false), "output": eva.infer("", "in", false),
		"status": eva.regions("in")} {
		if !strings.Contains(got, unknown) {
			t.Errorf("%s: %s", what, got)
		}
	}
	if got := eva.regions("") + eva.unregister(""); got != "" {
		t.Error(got)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "mine" {
		t.Errorf("the memory has become %q: %v", got, err)
	}
	if e := eva.register("own", key); e != "" {
		t.Errorf("memory of a former user: %s", e)
	}
	if got := eva.rest("GET", "/v2/systemsharedmemory/status?all=true", ""); strings.Contains(got, `"in"`) ||
		!strings.Contains(got, `"owner":"user:eva"`) || strings.Contains(got, "argon") {
		t.Error(got)
	}
}
