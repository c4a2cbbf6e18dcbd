package ingest

import (
	"context"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"millrace/ingest/access"
	"millrace/internal/role"
	"millrace/stream"
	"millrace/stream/buf"
)

// everything is a backend in which every method succeeds.
type everything struct{ memory *buf.Pool }

func (everything) Open(string, string, stream.Options, stream.Sink) (*stream.Stream, error) {
	return nil, nil
}
func (everything) Models() Repository    { return everyModel{} }
func (e everything) Memory() *buf.Pool   { return e.memory }
func (everything) Sequences() *Sequences { return new(Sequences) }
func (everything) State() State          { return State{Ready: true} }

type everyModel struct{}

func (everyModel) Model(string, string) (*stream.Model, bool, error) {
	return &stream.Model{}, true, nil
}
func (everyModel) Choose(string) string     { return "1" }
func (everyModel) Versions(string) []string { return []string{"1"} }
func (everyModel) Config(string, string) ([]byte, error) {
	return []byte(`{}`), nil
}
func (everyModel) Statistics(string, string) ([]Statistics, error) {
	return []Statistics{{Model: "a"}, {Model: "b"}}, nil
}
func (everyModel) Index() []Entry { return []Entry{{Name: "a"}, {Name: "b"}} }
func (everyModel) Load(context.Context, string, Load) (Loaded, error) {
	return Loaded{Endpoint: "a"}, nil
}
func (everyModel) Unload(context.Context, string, Unload) error { return nil }
func (everyModel) Scale(context.Context, string, int) error     { return nil }

// uses returns the methods of a client that succeed for model a.
func uses(t *testing.T, c *Client) (did []string) {
	models, f := c.Models(), stream.Frame{}
	_, err := c.Open("a", "", stream.Options{}, nil)
	_, held := c.OpenHeld("a", "", stream.Options{}, nil)
	_, _, model := models.Model("a", "")
	_, config := models.Config("a", "")
	rows, statistics := models.Statistics("", "")
	_, load := models.Load(t.Context(), "a", Load{Params: stream.Params{"x": 1}})
	for _, did1 := range []struct {
		name string
		is   bool
	}{
		{"open", err == nil}, {"open held", held == nil}, {"charge", c.Charge("a", &f) == nil},
		{"infer", c.CheckRights(access.Need{Role: role.Infer, Model: "a"}) == nil},
		{"manage", c.CheckRights(access.Need{Role: role.Manage, Scope: access.ClientScope}) == nil},
		{"whole", c.CheckRights(access.Need{Role: role.Infer}) == nil}, {"model", model == nil},
		{"choose", models.Choose("a") != ""}, {"versions", len(models.Versions("a")) > 0},
		{"config", config == nil}, {"statistics", statistics == nil && len(rows) > 0},
		{"index", len(models.Index()) > 0}, {"load", load == nil},
		{"unload", models.Unload(t.Context(), "a", Unload{Dependents: true}) == nil},
		{"scale", models.Scale(t.Context(), "a", 1) == nil},
	} {
		if did1.is {
			did = append(did, did1.name)
		}
	}
	return did
}

// keyed returns the clients with keys of these grants, and the credentials of each client, by name.
func keyed(t *testing.T, grants map[string]access.Grant) (*access.Access, map[string]access.Credentials) {
	t.Helper()
	var entries []access.Key
	all := map[string]access.Credentials{}
	for name, g := range grants {
		k, text := access.NewKey(name, g)
		entries, all[name] = append(entries, k), access.Credentials{Keys: []string{text}}
	}
	file := filepath.Join(t.TempDir(), "keys")
	if err := access.WriteKeys(file, entries); err != nil {
		t.Fatal(err)
	}
	a, err := access.New(access.Options{Keys: file})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	return a, all
}

// TestForgottenIsRefused: the gate refuses a client that never entered, a call before the gate opens, and a call
// without a role.
func TestForgottenIsRefused(t *testing.T) {
	clients, keys := keyed(t, map[string]access.Grant{"all": {Roles: role.All.Names()},
		"few": {Roles: []string{"metrics"}}})
	gate := NewGate(everything{buf.NewPool(0)}, clients)
	refused, err := gate.Enter(t.Context(), keys["few"], access.Need{Role: role.Infer})
	if stream.CodeOf(err) != stream.PermissionDenied || refused.Name() != "few" {
		t.Fatalf("%v, %v", refused, err)
	}
	for name, c := range map[string]*Client{"nil": nil, "zero": {}, "refused": refused} {
		if did := uses(t, c); did != nil || c.Known() || c.Err() == nil || c.Core() != nil || c.SameAs(c) {
			t.Errorf("a client that is %s may %q", name, did)
		}
		if _, err := c.Call(access.Need{Role: role.Infer}); err == nil {
			t.Errorf("a client that is %s begins a call", name)
		}
	}
	open, err := gate.Enter(t.Context(), access.Credentials{}, access.Need{Role: role.Open})
	if did := uses(t, open); err != nil || len(did) != 1 || did[0] != "model" || open.Known() {
		t.Errorf("a call that needs no credentials may %q, %v", did, err)
	}
	for name, g := range map[string]*Gate{"nil": nil, "zero": {}, "without access": NewGate(everything{}, nil),
		"of a zero access": NewGate(everything{}, new(access.Access))} {
		if c, err := g.Redeem(""); err == nil || uses(t, c) != nil {
			t.Errorf("a gate that is %s redeems a ticket for %v", name, c)
		}
		if c, err := g.Enter(t.Context(), keys["all"],
			access.Need{Role: role.Infer}); err == nil || uses(t, c) != nil {
			t.Errorf("a gate that is %s lets %v in", name, c)
		}
		if c, err := g.Identify(t.Context(), keys["all"]); err == nil ||
			uses(t, c) != nil {
			t.Errorf("a gate that is %s identifies %v", name, c)
		}
	}
	everybody := NewGate(everything{buf.NewPool(0)}, access.AllowEverybody(access.Quotas{}))
	for name, g := range map[string]*Gate{"keys": gate, "no keys": everybody} {
		if c, err := g.Enter(t.Context(), keys["all"],
			access.Need{}); stream.CodeOf(err) != stream.PermissionDenied || uses(t, c) != nil {
			t.Errorf("with %s, a call without a role enters: %v", name, err)
		}
		if _, err := g.Enter(t.Context(), access.Credentials{},
			access.Need{Role: role.Infer}); (err == nil) != (name == "no keys") {
			t.Errorf("with %s, a client without credentials: %v", name, err)
		}
	}
	for name, c := range map[string]*Client{"owner": gate.Owner(), "owner without access": NewGate(everything{},
		nil).Owner()} {
		if did := uses(t, c); len(did) != 15 {
			t.Errorf("%s may only %q", name, did)
		}
	}
}

// TestKeptClientEnds: an adapter that keeps a client, and forgets Call and OnEnd, has a client that may do nothing one
// second after the end of the client's key.
func TestKeptClientEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clients, keys := keyed(t, map[string]access.Grant{"all": {Roles: role.All.Names(),
			Expires: time.Now().Add(time.Minute)}})
		gate := NewGate(everything{buf.NewPool(0)}, clients)
		kept, err := gate.Enter(t.Context(), keys["all"], access.Need{Role: role.Infer})
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			time.Sleep(checkInterval)
			if did := uses(t, kept.ForProgram("a")); len(did) != 15 {
				t.Fatalf("a client with a valid key may only %q", did)
			}
		}
		time.Sleep(time.Minute)
		err = kept.Charge("a", &stream.Frame{})
		if stream.CodeOf(err) != stream.Unauthenticated {
			t.Errorf("a frame after the end of the key: %v", err)
		}
		for name, c := range map[string]*Client{"client": kept, "client for a program": kept.ForProgram("a")} {
			if did := uses(t, c); len(did) > 0 {
				t.Errorf("a kept %s with a key that has expired may %q", name, did)
			}
		}
	})
}

// TestLimitedClients: a client limited to some models uses, lists and loads only these models, with the configured
// settings; calls about the whole server are refused.
func TestLimitedClients(t *testing.T) {
	clients, keys := keyed(t, map[string]access.Grant{
		"a": {Roles: role.All.Names(), Models: []string{"a*"}},
		"b": {Roles: role.All.Names(), Models: []string{"b"}},
	})
	gate := NewGate(everything{buf.NewPool(0)}, clients)
	enter := func(name string, n access.Need) (*Client, error) { return gate.Enter(t.Context(), keys[name], n) }
	a, err := enter("a", access.Need{Role: role.Manage, Scope: access.LaterScope})
	// the others: a call about all models, a load with parameters, an unload of other models
	if did := uses(t, a); err != nil || len(did) != 12 {
		t.Errorf("%q, %v", did, err)
	}
	if rows, _ := a.Models().Statistics("", ""); len(rows) != 1 || rows[0].Model != "a" {
		t.Errorf("%v", rows)
	}
	if _, err := a.Models().Load(t.Context(), "a", Load{}); err != nil {
		t.Error(err)
	}
	b, err := enter("b", access.Need{Role: role.Manage, Scope: access.ClientScope})
	if did := uses(t, b); err != nil || len(did) != 3 { // a role, statistics, and a list
		t.Errorf("%q, %v", did, err)
	}
	in, f := b.ForProgram("b"), stream.Frame{}
	for model, may := range map[string]bool{"b": true, "b.stage": true, "bc": false, "c.stage": false} {
		if _, _, err := in.Models().Model(model, ""); (err == nil) != may || (in.Charge(model, &f) == nil) != may {
			t.Errorf("in the program b, model %s: %v", model, err)
		}
	}
	if _, _, err := b.Models().Model("b.stage", ""); err == nil || b.ForProgram("c") != b {
		t.Error("a model of a program is used by its own name, or a program of others")
	}
	for _, n := range []access.Need{{Role: role.Infer}, {Role: role.Infer, Model: "c"},
		{Role: role.Infer, Model: "c", Scope: access.LaterScope}} {
		if _, err := enter("a", n); stream.CodeOf(err) != stream.PermissionDenied {
			t.Errorf("%+v: %v", n, err)
		}
	}
}

// TestQuotasOfAClient: requests, streams, frames and loads of a client are charged to the client's account; the owner
// is not charged.
func TestQuotasOfAClient(t *testing.T) {
	one := 1
	gate := NewGate(everything{buf.NewPool(0)},
		access.AllowEverybody(access.Quotas{Requests: 2. / 3600, Frames: 1. / 3600, Loads: 1. / 3600, Streams: &one,
			Burst: time.Hour}))
	enter := func() (*Client, error) {
		return gate.Enter(t.Context(), access.Credentials{}, access.Need{Role: role.Infer})
	}
	client, err := enter()
	if err != nil {
		t.Fatal(err)
	}
	if again, err := enter(); err != nil || again != client {
		t.Errorf("%p and %p, %v", again, client, err)
	}
	if _, err := enter(); stream.CodeOf(err) != stream.FlowControl {
		t.Errorf("a third request: %v", err)
	}
	for range 3 {
		if did := uses(t, gate.Owner()); len(did) != 15 {
			t.Errorf("the owner may only %q", did)
		}
	}
	for i, want := range []stream.Code{"", stream.FlowControl} {
		_, opens := client.Open("a", "", stream.Options{OneShot: true, Account: &stream.Account{}}, nil)
		_, loads := client.Models().Load(t.Context(), "a", Load{})
		for what, err := range map[string]error{"frame": client.Charge("a", &stream.Frame{Account: &stream.Account{}}),
			"stream": opens, "load": loads} {
			if stream.CodeOf(err) != want {
				t.Errorf("%s %d: %v", what, i, err)
			}
		}
	}
}
