package shm

import (
	"cmp"
	"errors"
	"io"
	"io/fs"
	"math"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"millrace/stream"
	"millrace/stream/coded"
)

// Folder has the POSIX shared memory of a machine: shm_open of a name opens the file of this name in Folder.
const Folder = "/dev/shm"

// maxName is the most bytes of a region's name.
const maxName = 256

// Registry has the regions registered by clients. A region belongs to the owner that registered the region. The
// region is invisible to other owners, who may use the same name. Registry is safe for concurrent use.
type Registry struct {
	folder  string
	max     int
	mu      sync.RWMutex
	regions map[id]*Region
}

// Owner is the identity of a client. The zero value is the identity of all clients where clients need no credentials.
type Owner struct {
	Key string // visible to other clients
	// distinguishes users with the same Key; regions of a former user end when the new user registers a region
	Entry string
}

// id names a region.
type id struct {
	owner Owner
	name  string
}

// New returns a registry for at most max regions of the files in a folder.
func New(folder string, max int) *Registry {
	return &Registry{folder: folder, max: max, regions: make(map[id]*Region)}
}

// Status describes a region, in the form of the protocol.
type Status struct {
	Name     string `json:"name"`
	Key      string `json:"key"`
	Offset   uint64 `json:"offset"`
	ByteSize uint64 `json:"byte_size"`
	Owner    string `json:"owner,omitempty"` // its Key; in StatusOfAll only
}

// Region is a registered part of a shared memory. Its methods are safe for concurrent use.
type Region struct {
	Status
	owner   Owner
	file    *os.File
	memory  fs.FileInfo     // of file, for comparing files
	account *stream.Account // charged for stream.QuotaRegions
	// Under Registry.mu:
	users        int  // Parts without their Release
	unregistered bool // the last use closes the region
}

// Register opens the shared memory with a key (its name for shm_open), and makes size bytes from offset available to
// a client, the region's owner, under the region's name. Errors: InvalidArgument, NotFound (no such shared memory),
// PermissionDenied, Conflict (the owner has a region of the name, or another owner has registered the memory),
// Overloaded (too many regions), FlowControl (too many regions of this client). Each error names its field.
func (r *Registry) Register(of Client, name, key string, offset, size uint64) (err error) {
	if name == "" || len(name) > maxName {
		return coded.Errorf(coded.InvalidArgument, "name", "has %d bytes: want 1 to %d", len(name), maxName)
	}
	base := strings.TrimPrefix(key, "/")
	if base == "" || base == "." || base == ".." || strings.ContainsAny(base, "/\x00") || len(base) > 255 {
		return coded.Errorf(coded.InvalidArgument, "key", "cannot register shared memory region '%s' - invalid shm "+
			"key '%.64s': want a name for shm_open, such as /input, without further slashes", name, key)
	}
	switch {
	case size == 0:
		return coded.Errorf(coded.InvalidArgument, "byte_size",
			"failed to register shared memory region '%s': invalid args: is 0, want the bytes of the region", name)
	case offset > math.MaxInt64 || size > math.MaxInt64-offset:
		return coded.Errorf(coded.InvalidArgument, "byte_size", "failed to register shared memory region '%s': "+
			"invalid args: offset %d and %d bytes end beyond what a file can have", name, offset, size)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for other, region := range r.regions {
		if other.owner.Key == of.Owner.Key && other.owner.Entry != of.Owner.Entry {
			r.unregister(region)
		}
	}
	at := id{of.Owner, name}
	if old, taken := r.regions[at]; taken {
		if old.unregistered {
			return coded.Errorf(coded.Conflict, "name", "shared memory region '%s' already in manager: it was "+
				"unregistered, and requests that use it have not ended", name)
		}
		return coded.Errorf(coded.Conflict, "name",
			"shared memory region '%s' already in manager, for the key %q: unregister it first", name, old.Key)
	}
	if len(r.regions) >= r.max {
		return coded.Errorf(coded.Overloaded, "limits.max_regions",
			"%d regions of shared memory are registered already: unregister one, or raise the setting", r.max)
	}
	if err := of.Account.Hold(stream.QuotaRegions); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			of.Account.Release(stream.QuotaRegions)
		}
	}()
	file, err := r.open(base, key)
	if err != nil {
		return err
	}
	memory, err := r.claim(of.Owner, key, file)
	if err != nil {
		_ = file.Close()
		return err
	}
	if length, err := fits(file, offset+size); err != nil {
		_ = file.Close()
		if err == errShort {
			return coded.Errorf(coded.InvalidArgument, "byte_size", "failed to register shared memory region '%s': "+
				"invalid args: it ends at byte %d, and the shared memory has %d", name, offset+size, length)
		}
		return err
	}
	r.regions[at] = &Region{Status: Status{Name: name, Key: key, Offset: offset, ByteSize: size, Owner: of.Owner.Key},
		owner: of.Owner, file: file, memory: memory, account: of.Account}
	return nil
}

// claim returns an error if another owner has registered a region of the memory in file, under any key: otherwise
// owners could read and write each other's data. mu is held.
func (r *Registry) claim(owner Owner, key string, file *os.File) (memory fs.FileInfo, err error) {
	if memory, err = file.Stat(); err != nil {
		return nil, coded.Errorf(coded.InvalidArgument, "key", "%q is not a shared memory", key)
	}
	for at, other := range r.regions {
		if at.owner != owner && os.SameFile(other.memory, memory) {
			return nil, coded.Errorf(coded.Conflict, "key", "the shared memory %q is registered by another client: "+
				"use one of your own, or register it when that client has unregistered it", key)
		}
	}
	return memory, nil
}

// open opens a file of the folder. open does not follow symbolic links, since a link could lead out of the folder,
// and does not wait for the other end of a named pipe.
func (r *Registry) open(base, key string) (*os.File, error) {
	file, err := os.OpenFile(filepath.Join(r.folder, base), os.O_RDWR|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, coded.Errorf(coded.NotFound, "key", "there is no shared memory %q on the machine of the server",
			key)
	case errors.Is(err, fs.ErrPermission):
		return nil, coded.Errorf(coded.PermissionDenied, "key",
			"the server's user may not read and write the shared memory %q", key)
	case err != nil:
		return nil, coded.Errorf(coded.InvalidArgument, "key", "%q is not a shared memory", key)
	}
	if st, err := file.Stat(); err != nil || !st.Mode().IsRegular() {
		_ = file.Close()
		return nil, coded.Errorf(coded.InvalidArgument, "key", "%q is not a shared memory", key)
	}
	return file, nil
}

// errShort means that a file is too short for a region.
var errShort = coded.Errorf(coded.InvalidArgument, "", "the shared memory is too short")

// fits returns the length of the file, and errShort when the length is less than end.
func fits(file *os.File, end uint64) (length int64, err error) {
	st, err := file.Stat()
	if err != nil {
		return 0, err
	}
	if uint64(st.Size()) < end {
		err = errShort
	}
	return st.Size(), err
}

// Unregister closes a region of an owner after the end of the last request that uses the region. An unknown name is
// no error, so that clients can remove the regions of an earlier run.
func (r *Registry) Unregister(owner Owner, name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if region := r.regions[id{owner, name}]; region != nil {
		r.unregister(region)
	}
}

// UnregisterAll does so with all regions of an owner.
func (r *Registry) UnregisterAll(owner Owner) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for at, region := range r.regions {
		if at.owner == owner {
			r.unregister(region)
		}
	}
}

// UnregisterOfAll unregisters the regions called name of all owners; with "", all regions.
func (r *Registry) UnregisterOfAll(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for at, region := range r.regions {
		if name == "" || at.name == name {
			r.unregister(region)
		}
	}
}

// unregister is called with mu.
func (r *Registry) unregister(region *Region) {
	region.unregistered = true
	r.closeUnused(region)
}

// Release ends the use of a region returned by Part.
func (r *Registry) Release(region *Region) {
	r.mu.Lock()
	defer r.mu.Unlock()
	region.users--
	r.closeUnused(region)
}

// closeUnused closes an unregistered region that no request uses. mu is held.
func (r *Registry) closeUnused(region *Region) {
	if region.unregistered && region.users == 0 {
		_ = region.file.Close()
		region.account.Release(stream.QuotaRegions)
		delete(r.regions, id{region.owner, region.Name})
	}
}

// Status returns the regions of an owner, sorted by name; with a name, only the region of this name. Error: NotFound.
func (r *Registry) Status(owner Owner, name string) ([]Status, error) {
	out := r.status(func(at id) bool { return at.owner == owner && (name == "" || at.name == name) })
	if name != "" && len(out) == 0 {
		return nil, unknown(name)
	}
	for i := range out {
		out[i].Owner = ""
	}
	return out, nil
}

// StatusOfAll returns the regions of all owners, sorted by name and owner; with a name, only the regions of this
// name.
func (r *Registry) StatusOfAll(name string) []Status {
	return r.status(func(at id) bool { return name == "" || at.name == name })
}

func (r *Registry) status(of func(id) bool) []Status {
	r.mu.RLock()
	defer r.mu.RUnlock()
	out := make([]Status, 0, len(r.regions))
	for at, region := range r.regions {
		if of(at) {
			out = append(out, region.Status)
		}
	}
	slices.SortFunc(out, func(a, b Status) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Owner, b.Owner))
	})
	return out
}

func unknown(name string) error {
	return coded.Errorf(coded.NotFound, "shared_memory_region", "no shared memory is registered as %.64q", name)
}

// Acquire returns an owner's region for a request that uses size bytes from offset. The request must call Release after
// the use. Errors: NotFound, InvalidArgument. Clients of Triton look for the first words of these errors.
func (r *Registry) Acquire(owner Owner, name string, offset, size uint64) (*Region, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	region := r.regions[id{owner, name}]
	switch {
	case region == nil || region.unregistered:
		return nil, unknown(name)
	case offset >= region.ByteSize:
		return nil, coded.Errorf(coded.InvalidArgument, "shared_memory_offset",
			"Invalid offset for shared memory region: is %d, and region '%s' has %d bytes", offset, name,
			region.ByteSize)
	case size > math.MaxUint64-offset:
		return nil, coded.Errorf(coded.InvalidArgument, "shared_memory_byte_size",
			"Integer overflow detected: byte_size %d + offset %d, and region '%s' has %d bytes", size, offset, name,
			region.ByteSize)
	case size > region.ByteSize-offset:
		return nil, coded.Errorf(coded.InvalidArgument, "shared_memory_byte_size",
			"Invalid offset + byte size for shared memory region: is %d, and region '%s' has %d bytes from offset %d",
			size, name, region.ByteSize-offset, offset)
	}
	region.users++
	return region, nil
}

// Read copies bytes of the region, from offset, to p. The server does not map the region, since a client that
// shortens the memory meanwhile would crash the process.
func (g *Region) Read(p []byte, offset uint64) error {
	n, err := g.file.ReadAt(p, int64(g.Offset+offset))
	if errors.Is(err, io.EOF) {
		return coded.Errorf(coded.InvalidArgument, "shared_memory_region",
			"region %q was made shorter by its owner: %d of %d bytes could be read", g.Name, n, len(p))
	}
	return g.failure(err)
}

// Write copies p to the region, at offset.
func (g *Region) Write(p []byte, offset uint64) error {
	at := g.Offset + offset
	// Writing beyond the end would make the memory longer, at the cost of the machine.
	if _, err := fits(g.file, at+uint64(len(p))); err != nil {
		if err == errShort {
			return coded.Errorf(coded.InvalidArgument, "shared_memory_region",
				"region %q was made shorter by its owner: %d bytes at %d do not fit", g.Name, len(p), at)
		}
		return g.failure(err)
	}
	_, err := g.file.WriteAt(p, int64(at))
	return g.failure(err)
}

func (g *Region) failure(err error) error {
	if err == nil {
		return nil
	}
	return coded.Errorf(coded.Unavailable, "shared_memory_region", "region %q: %w", g.Name, err)
}

// Local reports whether a connection from addr comes from the same machine: by a loopback
// address or a Unix socket.
func Local(addr net.Addr) bool {
	switch a := addr.(type) {
	case *net.UnixAddr:
		return true
	case *net.TCPAddr:
		ip, _ := netip.AddrFromSlice(a.IP)
		return ip.Unmap().IsLoopback()
	}
	return false
}

// Client is a client of shared memory.
type Client struct {
	Owner   Owner           // owner of the client's regions
	Account *stream.Account // charged for the regions the client registers; nil = no quotas
	Local   bool            // the connection is from the same machine
	Proxy   string          // the header of its request by which it came through a proxy; "" = none
}

// ProxyHeaders are headers of requests through a proxy: the client may be on another machine although the proxy is on
// this machine.
var ProxyHeaders = []string{"X-Forwarded-For", "Forwarded", "X-Real-Ip", "X-Forwarded-Host", "X-Forwarded-Proto", "Via"}

// CheckClient returns an error for a client that may not use shared memory. r is nil when shared memory is turned
// off.
func (r *Registry) CheckClient(c Client) error {
	switch {
	case r == nil:
		return coded.Errorf(coded.Unsupported, "shared_memory",
			"Client shared memory is disabled by the server's configuration: send the tensors' data")
	case !c.Local:
		return coded.Errorf(coded.PermissionDenied, "",
			"shared memory is for clients on the same machine, by a loopback address: send the tensors' data")
	case c.Proxy != "":
		return coded.Errorf(coded.PermissionDenied, "shared_memory", "is for clients on the same machine, and this "+
			"request came through a proxy (it has the header %s): connect to the server itself, or send the "+
			"tensors' data", c.Proxy)
	}
	return nil
}
