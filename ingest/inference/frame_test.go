package inference

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"millrace/ingest/shm"
	"millrace/internal/oip"
	"millrace/stream"
	"millrace/stream/buf"
)

// A model with declared outputs refuses unknown outputs.
func TestUnknownOutputs(t *testing.T) {
	outputs := []stream.TensorSpec{{Name: "a"}, {Name: "b"}}
	for i, c := range []struct {
		m     stream.Model
		asked []string
		field string
	}{
		{stream.Model{Outputs: outputs}, []string{"b", "a"}, ""}, {stream.Model{Outputs: outputs}, nil, ""},
		{stream.Model{Outputs: outputs}, []string{"a", "c"}, "outputs[1].name"},
		{stream.Model{AcceptsAnyInput: true, Outputs: outputs}, []string{"c"}, ""}, {stream.Model{}, []string{"c"}, ""},
	} {
		k := &Call{}
		for _, name := range c.asked {
			k.Request.Outputs = append(k.Request.Outputs, oip.RequestedOutput{Name: name})
		}
		err := k.checkOutputs(&c.m)
		var coded *stream.Error
		if errors.As(err, &coded) != (c.field != "") || coded != nil && coded.Field != c.field {
			t.Errorf("%d: %v", i, err)
		}
	}
}

// TestGather checks that gather does not copy data in a single lease, copies data in several leases into one lease,
// and releases the other leases.
func TestGather(t *testing.T) {
	for name, c := range map[string]struct {
		body  string
		data  []string // in leases of their own
		also  string   // lies in the body
		moved bool
	}{
		"in the body":        {"abcd", nil, "cd", false},
		"in one":             {"{}", []string{"ab"}, "", false},
		"in two":             {"{}", []string{"ab", "cd"}, "", true},
		"in one and body":    {"{}xy", []string{"ab"}, "xy", true},
		"in one and nothing": {"{}", []string{"ab", ""}, "", true},
		"nothing and body":   {"{}xy", []string{""}, "xy", true},
	} {
		mem := buf.NewPool(0)
		k := &Call{pool: mem}
		k.body, _ = mem.Copy([]byte(c.body))
		var tensors []stream.Tensor
		want := ""
		for _, d := range c.data {
			l, _ := mem.Copy([]byte(d))
			k.data = append(k.data, l)
			tensors = append(tensors, stream.Tensor{Data: l.Bytes()})
			want += d
		}
		if c.also != "" {
			tensors = append(tensors, stream.Tensor{Data: k.body.Bytes()[2:]})
			want += c.also
		}
		at := len(tensors) - 1
		for at > 0 && len(tensors[at].Data) == 0 {
			at--
		}
		before := tensors[at].Data
		owner, err := k.gather(tensors)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, x := range tensors {
			got += string(x.Data)
		}
		if moved := &before[0] != &tensors[at].Data[0]; moved != c.moved || got != want || mem.Stats().Leases != 1 {
			t.Errorf("%s: %q, want %q, moved %v, %+v", name, got, want, moved, mem.Stats())
		}
		owner.Release()
		if k.body != nil || len(k.data) != 0 || mem.Stats().Leases != 0 {
			t.Errorf("%s: %+v", name, mem.Stats())
		}
	}
}

// A region registered by a local client is hidden from clients on other machines.
func TestSharedMemoryOfOtherMachines(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "in"), make([]byte, 4), 0o600); err != nil {
		t.Fatal(err)
	}
	memory := shm.New(dir, 1)
	defer memory.UnregisterAll(shm.Owner{})
	if err := memory.Register(shm.Client{}, "in", "in", 0, 4); err != nil {
		t.Fatal(err)
	}
	at := oip.Params{{Key: oip.SharedRegion, Kind: oip.String, Str: "in"}, {Key: oip.SharedSize, Kind: oip.Int, Int: 4}}
	for _, of := range []string{"input", "output"} {
		for local, want := range map[bool]stream.Code{true: "", false: stream.PermissionDenied} {
			c := &Call{}
			c.Use(buf.NewPool(0), nil)
			c.Share(memory, shm.Client{Local: local})
			if of == "input" {
				c.Request.Inputs = []oip.Tensor{{Name: "a", Datatype: "FP32", Shape: []int{1}, Params: at}}
			} else {
				c.Request.Outputs = []oip.RequestedOutput{{Name: "a", Params: at}}
			}
			f, err := c.Frame(&stream.Model{AcceptsAnyInput: true})
			if local != (err == nil) || err != nil && stream.CodeOf(err) != want {
				t.Errorf("%s, local %v: %v", of, local, err)
			}
			f.Lease.Release()
			c.Reset()
		}
	}
}

// A region unregistered during a request stays until the request's reply is made.
func TestUnregisteredDuringARequest(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "memory")
	if err := os.WriteFile(path, []byte("12345678"), 0o600); err != nil {
		t.Fatal(err)
	}
	memory := shm.New(dir, 2)
	for _, name := range []string{"in", "out"} {
		if err := memory.Register(shm.Client{}, name, "memory", 0, 8); err != nil {
			t.Fatal(err)
		}
	}
	at := func(name string, offset int64) oip.Params {
		return oip.Params{{Key: oip.SharedRegion, Kind: oip.String, Str: name},
			{Key: oip.SharedOffset, Kind: oip.Int, Int: offset}, {Key: oip.SharedSize, Kind: oip.Int, Int: 4}}
	}
	m := &stream.Model{AcceptsAnyInput: true}
	c := &Call{}
	c.Use(buf.NewPool(0), nil)
	c.Share(memory, shm.Client{Local: true})
	c.Request.Inputs = []oip.Tensor{{Name: "a", Datatype: "FP32", Shape: []int{1}, Params: at("in", 0)}}
	c.Request.Outputs = []oip.RequestedOutput{{Name: "a", Params: at("out", 4)}}
	f, err := c.Frame(m)
	if err != nil {
		t.Fatal(err)
	}
	memory.UnregisterAll(shm.Owner{})
	if all, _ := memory.Status(shm.Owner{}, ""); len(all) != 2 {
		t.Errorf("during the request: %+v", all)
	}
	c.Result = &stream.Result{Model: m, Outputs: f.Inputs}
	if err := c.Reply(); err != nil {
		t.Error(err)
	}
	if all, _ := memory.Status(shm.Owner{}, ""); len(all) != 0 {
		t.Errorf("after the reply: %+v", all)
	}
	if got, _ := os.ReadFile(path); string(got) != "12341234" {
		t.Errorf("the memory has %q", got)
	}
	f.Lease.Release()
	c.Result = nil
	c.Reset()
}
