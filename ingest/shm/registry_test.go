package shm

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"millrace/stream"
	"millrace/stream/coded"
)

func file(t *testing.T, folder, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(folder, name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// newRegistry returns a registry, closed at the end of the test.
func newRegistry(t *testing.T, folder string, most int) *Registry {
	r := New(folder, most)
	t.Cleanup(func() { r.UnregisterOfAll("") })
	return r
}

func isError(t *testing.T, err error, code coded.Code, field string) {
	t.Helper()
	var e *coded.Error
	if !errors.As(err, &e) || e.Code != code || e.Field != field {
		t.Errorf("%v: want %s of %q", err, code, field)
	}
}

func TestRegionsAreReadAndWritten(t *testing.T) {
	dir := t.TempDir()
	path := file(t, dir, "in", []byte("0123456789"))
	r := newRegistry(t, dir, 2)
	if err := r.Register(Client{}, "a", "/in", 2, 6); err != nil {
		t.Fatal(err)
	}
	g, err := r.Acquire(Owner{}, "a", 1, 5)
	if err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 5)
	if err := g.Read(got, 1); err != nil || string(got) != "34567" {
		t.Errorf("read %q, %v", got, err)
	}
	if err := g.Write([]byte("xy"), 4); err != nil {
		t.Error(err)
	}
	if now, _ := os.ReadFile(path); string(now) != "012345xy89" {
		t.Errorf("the memory has %q", now)
	}
	all, err := r.Status(Owner{}, "")
	if err != nil || len(all) != 1 || all[0] != (Status{Name: "a", Key: "/in", Offset: 2, ByteSize: 6}) {
		t.Errorf("status: %+v, %v", all, err)
	}
	r.Release(g)
	r.Unregister(Owner{}, "a")
	r.Unregister(Owner{}, "a")
	if _, err := r.Status(Owner{}, "a"); coded.CodeOf(err) != coded.NotFound {
		t.Errorf("after unregister: %v", err)
	}
}

// An unregistered region stays until the end of the last request that uses the region.
func TestUnregisteredWhileUsed(t *testing.T) {
	dir := t.TempDir()
	file(t, dir, "in", []byte("0123456789"))
	r := newRegistry(t, dir, 2)
	var used [2]*Region
	if err := r.Register(Client{}, "a", "in", 0, 10); err != nil {
		t.Fatal(err)
	}
	for i := range used {
		var err error
		if used[i], err = r.Acquire(Owner{}, "a", 0, 10); err != nil {
			t.Fatal(err)
		}
	}
	r.UnregisterAll(Owner{})
	_, err := r.Acquire(Owner{}, "a", 0, 10) // an unregistered region must be hidden, or it could stay for ever
	isError(t, err, coded.NotFound, "shared_memory_region")
	for _, g := range used {
		isError(t, r.Register(Client{}, "a", "in", 0, 10), coded.Conflict, "name")
		if got := make([]byte, 10); g.Read(got, 0) != nil || string(got) != "0123456789" {
			t.Errorf("read %q", got)
		}
		r.Release(g)
	}
	if all, _ := r.Status(Owner{}, ""); len(all) > 0 {
		t.Errorf("still there: %+v", all)
	}
	if n := descriptors(t, dir); n != 0 {
		t.Errorf("%d descriptors are open", n)
	}
}

func TestRegisterRefuses(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	file(t, dir, "in", make([]byte, 100))
	if err := os.Symlink(file(t, outside, "secret", make([]byte, 100)), filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "folder"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := newRegistry(t, dir, 2)
	if err := r.Register(Client{}, "taken", "in", 0, 100); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, key    string
		offset, size uint64
		code         coded.Code
		field        string
	}{
		{"taken", "in", 0, 1, coded.Conflict, "name"}, {"", "in", 0, 1, coded.InvalidArgument, "name"},
		{string(make([]byte, 257)), "in", 0, 1, coded.InvalidArgument, "name"},
		{"a", "", 0, 1, coded.InvalidArgument, "key"}, {"a", "/", 0, 1, coded.InvalidArgument, "key"},
		{"a", "..", 0, 1, coded.InvalidArgument, "key"},
		{"a", "//in", 0, 1, coded.InvalidArgument, "key"}, {"a", "../" + filepath.Base(outside) + "/secret", 0, 1,
			coded.InvalidArgument, "key"}, {"a", "in\x00", 0, 1, coded.InvalidArgument, "key"},
		{"a", "link", 0, 1, coded.InvalidArgument, "key"}, {"a", "folder", 0, 1, coded.InvalidArgument, "key"},
		{"a", "pipe", 0, 1, coded.InvalidArgument, "key"},
		{"a", "absent", 0, 1, coded.NotFound, "key"}, {"a", "in", 0, 0, coded.InvalidArgument, "byte_size"},
		{"a", "in", 0, 101, coded.InvalidArgument, "byte_size"},
		{"a", "in", 100, 1, coded.InvalidArgument, "byte_size"}, {"a", "in", math.MaxUint64, 2, coded.InvalidArgument,
			"byte_size"}, {"a", "in", 1, math.MaxUint64, coded.InvalidArgument, "byte_size"},
		{"a", "in", math.MaxInt64, 1, coded.InvalidArgument, "byte_size"},
	} {
		isError(t, r.Register(Client{}, c.name, c.key, c.offset, c.size), c.code, c.field)
		if n := descriptors(t, filepath.Dir(dir)); n != 1 { // that of "taken"
			t.Errorf("%q: %d descriptors are open", c.key, n)
		}
	}
	if err := r.Register(Client{}, "b", "in", 0, 1); err != nil {
		t.Error(err)
	}
	isError(t, r.Register(Client{}, "c", "in", 0, 1), coded.Overloaded, "limits.max_regions")
	r.UnregisterAll(Owner{})
	if err := r.Register(Client{}, "c", "in", 0, 1); err != nil {
		t.Error(err)
	}
}

// A region is visible only to its owner. Other owners may use the same name, but cannot register the same memory
// meanwhile, under any key.
func TestOwners(t *testing.T) {
	dir := t.TempDir()
	in := file(t, dir, "in", []byte("0123456789"))
	file(t, dir, "other", []byte("abcdefghij"))
	if err := os.Link(in, filepath.Join(dir, "same")); err != nil {
		t.Fatal(err)
	}
	r := newRegistry(t, dir, 4)
	for _, c := range []struct{ owner, name, key string }{{"a", "x", "in"}, {"b", "x", "other"}, {"a", "y", "same"}} {
		if err := r.Register(Client{Owner: Owner{Key: c.owner}}, c.name, c.key, 0, 10); err != nil {
			t.Fatal(c, err)
		}
	}
	for _, key := range []string{"in", "/in", "same"} {
		for _, owner := range []string{"b", "c", ""} {
			isError(t, r.Register(Client{Owner: Owner{Key: owner}}, "z", key, 0, 10), coded.Conflict, "key")
		}
	}
	if n := descriptors(t, dir); n != 3 {
		t.Errorf("%d descriptors are open", n)
	}
	for owner, want := range map[string]string{"a": "0", "b": "a"} {
		g, err := r.Acquire(Owner{Key: owner}, "x", 0, 1)
		if err != nil {
			t.Fatal(err)
		}
		got := make([]byte, 1)
		if err := g.Read(got, 0); err != nil || string(got) != want {
			t.Errorf("x of %s: %q, %v", owner, got, err)
		}
		r.Release(g)
	}
	for _, owner := range []string{"b", "c", ""} {
		_, err := r.Acquire(Owner{Key: owner}, "y", 0, 1)
		isError(t, err, coded.NotFound, "shared_memory_region")
		_, err = r.Status(Owner{Key: owner}, "y")
		isError(t, err, coded.NotFound, "shared_memory_region")
		r.Unregister(Owner{Key: owner}, "y")
	}
	if all := fmt.Sprint(r.StatusOfAll("")); all != "[{x in 0 10 a} {x other 0 10 b} {y same 0 10 a}]" {
		t.Error(all)
	}
	if all := fmt.Sprint(r.StatusOfAll("y")); all != "[{y same 0 10 a}]" {
		t.Error(all)
	}
	r.UnregisterAll(Owner{Key: "a"})
	if all, err := r.Status(Owner{Key: "b"}, ""); err != nil || fmt.Sprint(all) != "[{x other 0 10 }]" {
		t.Error(all, err)
	}
	if err := r.Register(Client{Owner: Owner{Key: "c"}}, "x", "in", 0, 10); err != nil {
		t.Errorf("memory that is not registered any more: %v", err)
	}
	r.UnregisterOfAll("x")
	if all := r.StatusOfAll(""); len(all) != 0 {
		t.Error(all)
	}
}

// Regions of a former user do not belong to the next user of the same name, and end when the next user registers a
// region.
func TestFormerOwner(t *testing.T) {
	dir := t.TempDir()
	file(t, dir, "in", []byte("0123456789"))
	r := newRegistry(t, dir, 3)
	old, now, other := Owner{Key: "user:eva", Entry: "1"}, Owner{Key: "user:eva", Entry: "2"},
		Owner{Key: "user:boss", Entry: "2"}
	file(t, dir, "other", []byte("abcdefghij"))
	for _, c := range []struct {
		owner     Owner
		name, key string
	}{{old, "x", "in"}, {old, "y", "in"}, {other, "x", "other"}} {
		if err := r.Register(Client{Owner: c.owner}, c.name, c.key, 0, 10); err != nil {
			t.Fatal(err)
		}
	}
	_, err := r.Acquire(now, "x", 0, 10)
	isError(t, err, coded.NotFound, "shared_memory_region")
	r.UnregisterAll(now)
	if all, _ := r.Status(now, ""); len(all) != 0 {
		t.Error(all)
	}
	g, err := r.Acquire(old, "y", 0, 10)
	if err != nil {
		t.Fatal(err)
	}
	// a request of the former user goes on
	isError(t, r.Register(Client{Owner: now}, "x", "in", 0, 10), coded.Conflict, "key")
	r.Release(g)
	if err := r.Register(Client{Owner: now}, "x", "in", 0, 10); err != nil {
		t.Error(err)
	}
	if all := fmt.Sprint(r.StatusOfAll("")); all != "[{x other 0 10 user:boss} {x in 0 10 user:eva}]" {
		t.Error(all)
	}
}

// Each client may have as many regions as its quota. A failed registration or a closed region takes no place.
func TestQuotaOfRegions(t *testing.T) {
	dir := t.TempDir()
	file(t, dir, "in", make([]byte, 64))
	file(t, dir, "other", make([]byte, 64))
	r := newRegistry(t, dir, 4)
	of := func(owner string) Client {
		c := Client{Owner: Owner{Key: owner}, Account: &stream.Account{}}
		c.Account.SetLimits(stream.Limits{stream.QuotaRegions: 2}, time.Second)
		return c
	}
	a, b := of("a"), of("b")
	holds := func(want int64) {
		t.Helper()
		if n := a.Account.Used(stream.QuotaRegions); n != want {
			t.Errorf("%d places are held, want %d", n, want)
		}
	}
	for _, name := range []string{"x", "y"} {
		if err := r.Register(a, name, "in", 0, 64); err != nil {
			t.Fatal(err)
		}
	}
	isError(t, r.Register(a, "z", "in", 0, 64), coded.FlowControl, "quotas.regions")
	if err := r.Register(b, "x", "other", 0, 64); err != nil {
		t.Error(err)
	}
	g, err := r.Acquire(Owner{Key: "a"}, "x", 0, 64)
	if err != nil {
		t.Fatal(err)
	}
	r.Unregister(Owner{Key: "a"}, "x")
	holds(2) // a request uses the region
	r.Release(g)
	holds(1)
	for _, key := range []string{"absent", "other"} {
		if err := r.Register(a, "x", key, 0, 64); err == nil {
			t.Error(key)
		}
	}
	isError(t, r.Register(a, "x", "in", 0, 65), coded.InvalidArgument, "byte_size")
	isError(t, r.Register(a, "y", "in", 0, 64), coded.Conflict, "name")
	holds(1)
	r.UnregisterOfAll("")
	holds(0)
}

// descriptors returns how many files in a folder are open.
func descriptors(t *testing.T, folder string) (n int) {
	t.Helper()
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip(err)
	}
	for _, fd := range open {
		if to, err := os.Readlink(filepath.Join("/proc/self/fd", fd.Name())); err == nil &&
			strings.HasPrefix(to, folder) {
			n++
		}
	}
	return n
}

func TestPartsAreWithinTheirRegion(t *testing.T) {
	dir := t.TempDir()
	file(t, dir, "in", make([]byte, 100))
	r := newRegistry(t, dir, 2)
	if err := r.Register(Client{}, "a", "in", 50, 50); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name         string
		offset, size uint64
		code         coded.Code
		field        string
	}{
		{"b", 0, 1, coded.NotFound, "shared_memory_region"},
		{"a", 50, 0, coded.InvalidArgument, "shared_memory_offset"},
		{"a", math.MaxUint64, 2, coded.InvalidArgument, "shared_memory_offset"},
		{"a", 49, 2, coded.InvalidArgument, "shared_memory_byte_size"},
		{"a", 1, math.MaxUint64, coded.InvalidArgument, "shared_memory_byte_size"},
	} {
		_, err := r.Acquire(Owner{}, c.name, c.offset, c.size)
		isError(t, err, c.code, c.field)
	}
	if _, err := r.Acquire(Owner{}, "a", 49, 1); err != nil {
		t.Error(err)
	}
}

// TestMemoryMadeShorter: with mapped memory this would end the process.
func TestMemoryMadeShorter(t *testing.T) {
	dir := t.TempDir()
	path := file(t, dir, "in", bytes.Repeat([]byte("a"), 1<<16))
	r := newRegistry(t, dir, 1)
	if err := r.Register(Client{}, "a", "in", 0, 1<<16); err != nil {
		t.Fatal(err)
	}
	g, err := r.Acquire(Owner{}, "a", 0, 1<<16)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 10); err != nil {
		t.Fatal(err)
	}
	isError(t, g.Read(make([]byte, 1<<16), 0), coded.InvalidArgument, "shared_memory_region")
	isError(t, g.Write(make([]byte, 11), 0), coded.InvalidArgument, "shared_memory_region")
	if st, _ := os.Stat(path); st.Size() != 10 {
		t.Errorf("the memory has %d bytes: the server made it longer", st.Size())
	}
	if err := g.Write(make([]byte, 10), 0); err != nil {
		t.Error(err)
	}
}

// TestManyClients: regions are registered, used and unregistered at the same time.
func TestManyClients(t *testing.T) {
	dir := t.TempDir()
	file(t, dir, "in", make([]byte, 64))
	r := newRegistry(t, dir, 64)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 200 {
				name := fmt.Sprint(i / 2)
				_ = r.Register(Client{}, name, "in", 0, 64)
				if g, err := r.Acquire(Owner{}, name, 0, 64); err == nil {
					if err := g.Read(make([]byte, 64), 0); err != nil {
						t.Error(err)
					}
					r.Release(g)
				}
				r.Unregister(Owner{}, name)
			}
		})
	}
	wg.Wait()
	if n := descriptors(t, dir); n != 0 {
		t.Errorf("%d descriptors are open", n)
	}
}

func TestLocal(t *testing.T) {
	for addr, want := range map[net.Addr]bool{
		&net.TCPAddr{IP: net.ParseIP("127.0.0.9")}: true, &net.TCPAddr{IP: net.ParseIP("::1")}: true,
		&net.TCPAddr{IP: net.ParseIP("::ffff:127.0.0.1")}: true,
		&net.UnixAddr{}: true, &net.TCPAddr{IP: net.ParseIP("10.0.0.1")}: false, &net.TCPAddr{}: false,
		&net.UDPAddr{IP: net.ParseIP("127.0.0.1")}: false,
	} {
		if Local(addr) != want {
			t.Errorf("%v: want %v", addr, want)
		}
	}
	var off *Registry
	isError(t, off.CheckClient(Client{Local: true}), coded.Unsupported, "shared_memory")
	isError(t, New(Folder, 1).CheckClient(Client{}), coded.PermissionDenied, "")
	isError(t, New(Folder, 1).CheckClient(Client{Local: true, Proxy: "Via"}), coded.PermissionDenied, "shared_memory")
	if err := New(Folder, 1).CheckClient(Client{Local: true}); err != nil {
		t.Error(err)
	}
}
