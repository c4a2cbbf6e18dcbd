package server

import (
	"bytes"
	"context"
	"image"
	"image/jpeg"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"millrace/config"
	"millrace/ingest/access"
	"millrace/ingest/native"
	"millrace/internal/role"
	"millrace/stream"
	"millrace/stream/coded"
	"millrace/workers"
)

// nativeCalls are all client calls with the role infer, for a model of any input.
var nativeCalls = []struct {
	name  string
	frame bool // the call has a frame
	call  func(ctx context.Context, c *native.Client, model string) error
}{
	{"Infer", true, func(ctx context.Context, c *native.Client, model string) error {
		return released(c.Infer(ctx, model, oneNative()))
	}},
	{"InferBytes", true, func(ctx context.Context, c *native.Client, model string) error {
		return released(c.InferBytes(ctx, model, stream.Opaque, []byte("four")))
	}},
	{"Do", true, func(ctx context.Context, c *native.Client, model string) error {
		return released(c.Do(ctx, model, "1", stream.Frame{Codec: stream.Tensors, Inputs: oneNative()}))
	}},
	{"Go", true, func(ctx context.Context, c *native.Client, model string) error {
		return released(c.Go(ctx, model, oneNative()).Wait())
	}},
	{"Stream", false, func(_ context.Context, c *native.Client, model string) error {
		st, err := c.Stream(model, stream.Options{}, func(*stream.Result) {}, nil)
		if err != nil {
			return err
		}
		st.Close(stream.ByClient)
		<-st.Finished()
		return nil
	}},
	{"Model", false, func(_ context.Context, c *native.Client, model string) error {
		_, _, err := c.Model(model)
		return err
	}},
}

func oneNative() []stream.Tensor {
	return []stream.Tensor{{Name: "x", Datatype: stream.Float32, Shape: []int{1}, Data: make([]byte, 4)}}
}

func released(r *stream.Result, err error) error {
	if err == nil {
		r.Release()
	}
	return err
}

// clientOf returns a client for a key of k.
func (k *keyed) clientOf(t *testing.T, name string) *native.Client {
	t.Helper()
	return must(k.Native().Authenticate(t.Context(), native.Credentials{Key: k.keys[name]}))
}

// revoke removes a key.
func (k *keyed) revoke(t *testing.T, name string) {
	t.Helper()
	k.all, _ = access.WithoutKey(k.all, name)
	k.write(t)
	k.access.Recheck()
}

// TestNativeCredentials: a Go program gets the rights of valid credentials, in the forms of the protocols, and no
// rights of invalid credentials; the rights end with a revocation or the end of the session.
func TestNativeCredentials(t *testing.T) {
	k := startKeyed(t, nil)
	k.add(t, "gone", role.All, time.Time{})
	k.write(t)
	k.access.Recheck()
	p, _ := k.access.Identify(t.Context(), access.Credentials{Keys: []string{k.keys["gone"]}})
	session := must(k.access.Begin(p))
	ended := must(k.access.Begin(p))
	k.access.End(ended)
	bad := []struct {
		with    native.Credentials
		outcome string
		text    string
	}{
		{native.Credentials{}, "missing", "the key is missing"},
		{native.Credentials{Key: "nobody's"}, "wrong", "the key or token is wrong"},
		{native.Credentials{Key: k.keys["gone"] + "x"}, "wrong", "the key or token is wrong"},
		{native.Credentials{Key: "Basic " + k.keys["gone"]}, "wrong", "the key or token is wrong"},
		{native.Credentials{Key: k.keys["old"]}, "expired", "has expired"},
		{native.Credentials{Session: ended}, "expired", "the session has ended"},
	}
	for _, c := range bad {
		before := k.access.Outcomes()[c.outcome]
		if _, err := k.Native().Authenticate(t.Context(), c.with); stream.CodeOf(err) != stream.Unauthenticated ||
			!strings.Contains(err.Error(), c.text) || k.access.Outcomes()[c.outcome] != before+1 {
			t.Errorf("%+v: %v; want %s, counted as %s", c.with, err, c.text, c.outcome)
		}
	}
	good := []native.Credentials{{Key: k.keys["gone"]}, {Key: "Bearer " + k.keys["gone"]},
		{Key: "bearer " + k.keys["gone"]}, {Session: session}}
	var clients []*native.Client
	allowed := k.access.Outcomes()["allowed"]
	for _, with := range good {
		c := must(k.Native().Authenticate(t.Context(), with))
		for _, of := range nativeCalls {
			if err := of.call(t.Context(), c, "echo"); err != nil {
				t.Errorf("%+v: %s: %v", with, of.name, err)
			}
		}
		clients = append(clients, c)
	}
	if n := k.access.Outcomes()["allowed"] - allowed; n != uint64(len(good)*len(nativeCalls)) {
		t.Errorf("%d calls are counted as allowed", n)
	}
	k.revoke(t, "gone")
	before := k.access.Outcomes()["expired"]
	for i, c := range clients {
		for _, of := range nativeCalls {
			if err := of.call(t.Context(), c, "echo"); stream.CodeOf(err) != stream.Unauthenticated {
				t.Errorf("%+v: %s after the key was revoked: %v", good[i], of.name, err)
			}
		}
		if got := c.Models(); got != nil {
			t.Errorf("%+v: models after the key was revoked: %v", good[i], got)
		}
	}
	if n := k.access.Outcomes()["expired"] - before; n != uint64(len(clients)*(len(nativeCalls)+1)) {
		t.Errorf("%d calls are counted as expired", n)
	}
	if _, err := k.clientOf(t, "all").As(native.User{Name: "eva"}); stream.CodeOf(err) != stream.PermissionDenied {
		t.Errorf("a client that acts for somebody acts for others: %v", err)
	}
	if k.access.Pending() != 0 {
		t.Errorf("%d streams are left", k.access.Pending())
	}
}

// TestNativeWithoutAuth: where clients need no credentials, credentials identify nobody, and a program may name its
// users.
func TestNativeWithoutAuth(t *testing.T) {
	k := startKeyed(t, func(c *Config) { c.Auth = config.Auth{} })
	if _, err := k.Native().Authenticate(t.Context(),
		native.Credentials{Key: k.keys["all"]}); stream.CodeOf(err) != stream.Unauthenticated {
		t.Error(err)
	}
	if err := released(must(k.Native().As(native.User{Name: "eva"})).Infer(t.Context(), "echo",
		oneNative())); err != nil {
		t.Error(err)
	}
}

// TestNativeRoles: each call needs its role, and the audit log has loads and unloads by principals, and not by the
// program.
func TestNativeRoles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "audit.log")
	k := startKeyed(t, func(c *Config) { c.Audit = file })
	user := must(k.Native().As(native.User{Name: "eva"}))
	for _, c := range []struct {
		name           string
		client         *native.Client
		infers, manage bool
	}{
		{"infer", k.clientOf(t, "infer"), true, false}, {"watch", k.clientOf(t, "watch"), false, false},
		{"manage", k.clientOf(t, "manage"), false, true},
		{"all", k.clientOf(t, "all"), true, true}, {"eva", user, true, false}, {"", k.Native(), true, true},
	} {
		may := func(what string, allowed bool, err error) {
			if allowed != (err == nil) || !allowed && stream.CodeOf(err) != stream.PermissionDenied {
				t.Errorf("%s: %s: %v", c.name, what, err)
			}
		}
		for _, of := range nativeCalls {
			may(of.name, c.infers, of.call(t.Context(), c.client, "echo"))
		}
		if c.infers != (len(c.client.Models()) > 0) {
			t.Errorf("%s: models %v", c.name, c.client.Models())
		}
		loaded, err := c.client.Load(t.Context(), "delay", nil)
		may("Load", c.manage, err)
		may("Unload", c.manage, c.client.Unload(t.Context(), "delay"))
		text := string(must(os.ReadFile(file)))
		outcome := map[bool]string{true: `"outcome":"done"`,
			false: `"outcome":"refused","code":"permission_denied"`}[c.manage]
		for _, verb := range []string{"Load", "Unload"} {
			line := `"principal":"` + c.name + `","authenticated":"`
			if want := `"protocol":"native","verb":"` + verb + `","target":"delay",` + outcome; c.name != "" &&
				(!strings.Contains(text, line) || !strings.Contains(text, want)) {
				t.Errorf("%s: %s (%s): the audit log has %s", c.name, verb, loaded, text)
			}
		}
		if strings.Contains(text, `"principal":""`) {
			t.Errorf("what the program did itself is in the audit log: %s", text)
		}
	}
}

// TestNativeModels: a principal limited to some models can neither use nor see other models, whether or not the
// models exist.
func TestNativeModels(t *testing.T) {
	k := startKeyed(t, func(c *Config) {
		c.Models = append(c.Models, workers.Config{Name: "door-1", Source: "identity"})
	})
	for name, c := range map[string]*native.Client{"key": k.clientOf(t, "door"),
		"user": must(k.Native().As(native.User{Name: "eva", Models: []string{"door-*"}}))} {
		for model, want := range map[string]stream.Code{"door-1": "", "door-9": stream.NotFound,
			"echo": stream.PermissionDenied, "nobody": stream.PermissionDenied} {
			for _, of := range nativeCalls {
				if err := of.call(t.Context(), c, model); want == "" && err != nil ||
					want != "" && stream.CodeOf(err) != want {
					t.Errorf("%s: %s of %s: %v, want %s", name, of.name, model, err, want)
				}
			}
		}
		for _, e := range c.Models() {
			if !strings.HasPrefix(e.Name, "door-") {
				t.Errorf("%s sees %s", name, e.Name)
			}
		}
		if _, err := c.Load(t.Context(), "delay", nil); stream.CodeOf(err) != stream.PermissionDenied {
			t.Errorf("%s loads others: %v", name, err)
		}
	}
	if g, err := k.models.Group("echo", ""); err != nil || g.Stats().Frames.Accepted != 0 {
		t.Errorf("frames of others have reached the model: %v", err)
	}
}

// TestNativeQuotas: calls of a principal above its quotas are refused with the retry time, or dropped; the metrics
// count the refusals under the principal, and the program itself has no quotas.
func TestNativeQuotas(t *testing.T) {
	var picture bytes.Buffer
	if err := jpeg.Encode(&picture, image.NewGray(image.Rect(0, 0, 640, 480)), nil); err != nil {
		t.Fatal(err)
	}
	infer := nativeCalls[0].call
	some := func(ctx context.Context, c *native.Client, n int) error {
		return nativeCalls[n%len(nativeCalls)].call(ctx, c, "echo")
	}
	type quotaCase struct {
		quota string
		limit float64
		takes int // number of allowed calls; the next calls are refused
		call  func(ctx context.Context, c *native.Client, n int) error
		keys  bool // for keys only: the call needs the role manage
	}
	cases := []quotaCase{
		{"requests", perHour(float64(len(nativeCalls))), len(nativeCalls), some, false},
		{"frames", perHour(2), 2, func(ctx context.Context, c *native.Client, n int) error {
			return nativeCalls[n%4].call(ctx, c, "echo")
		}, false},
		{"bytes", perHour(8), 2, func(ctx context.Context, c *native.Client, _ int) error {
			return infer(ctx, c, "echo")
		}, false},
		{"decode", 1e-9, 1, func(ctx context.Context, c *native.Client, _ int) error {
			return released(c.InferBytes(ctx, "find", stream.JPEG, picture.Bytes()))
		}, false},
		{"streams", 2, 2, func(_ context.Context, c *native.Client, _ int) error {
			st, err := c.Stream("echo", stream.Options{Account: &stream.Account{}}, func(*stream.Result) {}, nil)
			if err == nil {
				t.Cleanup(func() { st.Close(stream.ByClient) })
			}
			return err
		}, false},
		{"loads", perHour(1), 1, func(ctx context.Context, c *native.Client, _ int) error {
			_, err := c.Load(ctx, "echo", nil)
			return err
		}, true},
	}
	own := map[string]map[string]float64{}
	for _, c := range cases {
		own["key-"+c.quota] = map[string]float64{c.quota: c.limit}
	}
	k, all := startQuotas(t, own, func(c *Config) {
		c.Models = append(c.Models, workers.Config{Name: "find", Source: "motion"})
	})
	used := func(name string) access.Use {
		for _, u := range k.access.Uses() {
			if u.Name == name {
				return u
			}
		}
		return access.Use{}
	}
	check := func(t *testing.T, name string, c *native.Client, q quotaCase) {
		const refused = 6
		for n := range q.takes + refused {
			err := q.call(t.Context(), c, n)
			if n < q.takes {
				if err != nil {
					t.Errorf("%s: call %d: %v", name, n, err)
				}
				continue
			}
			if wait := coded.RetryAfter(err); stream.CodeOf(err) != stream.FlowControl ||
				!strings.HasPrefix(err.Error(), "quotas."+q.quota+":") || wait <= 0 {
				t.Errorf("%s: call %d: %v, again after %v", name, n, err, wait)
			}
		}
		u := used(name)
		for i := range u.Denied {
			if want := map[bool]uint64{true: refused}[stream.QuotaNames[i] == q.quota]; u.Denied[i] != want {
				t.Errorf("%s: %d refused because of %s, want %d", name, u.Denied[i], stream.QuotaNames[i], want)
			}
		}
		requests := int64(q.takes + refused)
		if q.quota == "requests" {
			requests = int64(q.takes)
		}
		if u.Used[stream.QuotaRequests] != requests {
			t.Errorf("%s: %d requests, want %d", name, u.Used[stream.QuotaRequests], requests)
		}
		if q.quota != "frames" {
			return
		}
		got := make(chan stream.Reason, 1)
		st, err := c.Stream("echo", stream.Options{}, func(r *stream.Result) { got <- r.Reason }, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer st.Close(stream.ByClient)
		for range 2 {
			if err := st.Send(0, stream.Opaque, []byte("four")); err != nil {
				t.Fatal(err)
			}
			if why := <-got; why != stream.OverQuota {
				t.Errorf("%s: a frame of a stream: %q", name, why)
			}
		}
		if user := st.Options().Account.Name(); user != name {
			t.Errorf("%s: the stream is of %s", name, user)
		}
	}
	for _, q := range cases {
		name := "key-" + q.quota
		check(t, name, must(k.Native().Authenticate(t.Context(), native.Credentials{Key: all[name].key})), q)
		if name = "user-" + q.quota; !q.keys {
			user := native.User{Name: name, Quotas: map[string]float64{q.quota: q.limit}}
			check(t, name, must(k.Native().As(user)), q)
			if err := q.call(t.Context(), must(k.Native().As(user)), 0); stream.CodeOf(err) != stream.FlowControl {
				t.Errorf("%s: a further client of the user: %v", name, err)
			}
		}
		for n := range q.takes + 2 {
			if err := q.call(t.Context(), k.Native(), n); err != nil {
				t.Errorf("the program, over %s: %v", q.quota, err)
			}
		}
	}
	if u := used(""); u != (access.Use{}) {
		t.Errorf("what the program did itself is counted: %+v", u)
	}
}

// TestNativeStreamsEnd: a stream of a Go program ends, with the reason, when its key is revoked or gets other rights;
// other keys' streams continue.
func TestNativeStreamsEnd(t *testing.T) {
	k := startKeyed(t, nil)
	names := []string{"gone", "changed", "expired", "stays"}
	for _, name := range names {
		k.add(t, name, role.All, time.Time{})
	}
	k.write(t)
	k.access.Recheck()
	clients := map[string]*native.Client{"program": k.Native(), "user": must(k.Native().As(native.User{Name: "gone"}))}
	for _, name := range names {
		clients[name] = k.clientOf(t, name)
	}
	type open struct {
		*native.Stream
		failed chan error
		done   chan stream.CloseReason
	}
	streams := map[string]open{}
	for name, c := range clients {
		o := open{failed: make(chan error, 1), done: make(chan stream.CloseReason, 1)}
		var err error
		if o.Stream, err = c.Stream("echo", stream.Options{Policy: stream.Policy{Mode: stream.Every}},
			func(r *stream.Result) {
				o.failed <- r.Err
			}, func(why stream.CloseReason) { o.done <- why }); err != nil {
			t.Fatal(err)
		}
		defer o.Close(stream.ByClient)
		o.Pause()
		if err := o.Send(1, stream.Opaque, []byte("waits")); err != nil {
			t.Fatal(err)
		}
		streams[name] = o
	}
	if n := k.access.Pending(); n != len(names) {
		t.Fatalf("%d streams may end", n)
	}
	for i := range k.all {
		switch k.all[i].Name {
		case "changed":
			k.all[i].Roles = []string{"infer"}
		case "expired":
			k.all[i].Expires = time.Now()
		}
	}
	k.revoke(t, "gone")
	now := time.Now()
	k.access.Check(now) // as each second
	for name, want := range map[string]string{"gone": "gone was removed",
		"changed": "roles or models of changed were changed", "expired": "expired was removed or has expired"} {
		o := streams[name]
		if err := <-o.failed; stream.CodeOf(err) != stream.Unauthenticated || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: the frame that waits: %v", name, err)
		}
		if why := <-o.done; why != stream.ByError {
			t.Errorf("%s: %s", name, why)
		}
		if err := o.Send(2, stream.Opaque, []byte("late")); stream.CodeOf(err) != stream.Unauthenticated ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: a later frame: %v", name, err)
		}
	}
	for _, name := range []string{"stays", "user", "program"} {
		o := streams[name]
		o.Resume()
		if err := <-o.failed; err != nil {
			t.Errorf("%s: %v", name, err)
		}
		o.Close(stream.ByClient)
		if why := <-o.done; why != stream.ByClient {
			t.Errorf("%s: %s", name, why)
		}
	}
	if n := k.access.Pending(); n != 0 {
		t.Errorf("%d streams that have ended are left", n)
	}
}

// TestNativeShare: the waiting frames of one principal of a Go program use at most the principal's share of the
// memory.
func TestNativeShare(t *testing.T) {
	const frame, share = 1<<20 - 1024, 8 // with its headroom, of 1 MiB
	k := startKeyed(t, func(c *Config) { c.Memory = config.Memory{Budget: 16 << 20, ClientShare: 50} })
	open := func(c *native.Client) *native.Stream {
		st, err := c.Stream("echo", stream.Options{Policy: stream.Policy{Mode: stream.Every, Window: 64}},
			func(*stream.Result) {}, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { st.Close(stream.ByClient) })
		st.Pause()
		return st
	}
	for name, c := range map[string]*native.Client{"key": k.clientOf(t, "all"),
		"user": must(k.Native().As(native.User{Name: "eva"}))} {
		two := []*native.Stream{open(c), open(c)}
		for n := range share + 2 {
			err := two[n%2].Send(uint64(n), stream.Opaque, make([]byte, frame))
			if n < share && err != nil || n >= share && (stream.CodeOf(err) != stream.Overloaded ||
				!strings.Contains(err.Error(), "memory.client_share")) {
				t.Errorf("%s: frame %d: %v", name, n, err)
			}
		}
		other := open(k.Native())
		if err := other.Send(1, stream.Opaque, make([]byte, frame)); err != nil {
			t.Errorf("%s: another client: %v", name, err)
		}
		for _, st := range append(two, other) {
			st.Close(stream.ByClient)
			<-st.Finished()
		}
		if err := open(c).Send(1, stream.Opaque, make([]byte, frame)); err != nil {
			t.Errorf("%s: after its streams were closed: %v", name, err)
		}
	}
}
