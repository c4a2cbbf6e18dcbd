// Package modelsource fetches models and model repositories from Git, S3, HTTPS and registries into a cache on disk.
//
// The package owns the cache, its limits and locks, and the folders in which a process uses the fetched files. Several
// processes may share a cache. The package must not know how models are loaded. Addresses: package modelurl.
package modelsource

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/docker/go-units"

	"millrace/internal/cachedir"
	"millrace/internal/filelock"
	"millrace/internal/modelurl"
	"millrace/internal/outbound"
)

// Defaults of Options.
const (
	DefaultSize    = 16 << 30
	DefaultMaxSize = 4 << 30
	DefaultTimeout = 30 * time.Minute
	DefaultIdle    = time.Minute
)

// Options are the arguments of Open. The zero value has no credentials and the default limits.
type Options struct {
	Dir     string        // the folder of the cache; "" = DefaultDir
	Size    int64         // most bytes of the cache
	MaxSize int64         // most bytes of a source, received and unpacked
	Timeout time.Duration // of the fetch of a source
	Idle    time.Duration // a connection that carries no byte for this time ends
	Offline bool          // nothing is fetched
	Private bool          // hosts to which a named host leads may have private addresses
	CA      string        // PEM file with further authorities of servers, for all schemes but S3; "" = none
	// Foreign means that the addresses come from an application, and not from an operator: a named host, too, must have
	// a public address, unless Private. Errors then name flags of millrace app in place of settings.
	Foreign bool

	Tokens   []Token
	GitToken string   // token of GitHost, unless Tokens has an entry
	GitHost  string   // HOST:PORT in lower case; "" = GitToken is sent to no host
	Agent    string   // socket of an SSH agent; "" = none
	SSHKey   string   // file with a private key; "" = none
	Hosts    []string // files with known hosts of SSH; nil = of the user and the machine

	S3 S3

	Log *slog.Logger // nil = no log
	// Progress is called often during a fetch, by one goroutine for each source; nil = never.
	Progress func(Progress)
}

// Token is a password or token for a host.
type Token struct {
	User   string // "" = a bearer token
	Host   string // HOST or HOST:PORT
	Secret string
}

// Progress is the state of a fetch.
type Progress struct {
	Source      string
	Done, Total int64 // bytes; Total 0 = unknown
}

// Counts are totals since Open.
type Counts struct {
	Fetched uint64 // sources fetched
	Current uint64 // looks that found the cached state
	Failed  uint64 // looks and fetches that failed
}

// Cache is an open cache. A Cache is safe for concurrent use.
type Cache struct {
	o       Options
	pool    *x509.CertPool // nil = the system's
	origins map[modelurl.Scheme]origin

	mu       sync.Mutex
	view     *view           // made at the first use
	verified map[string]bool // digests whose files were compared with the manifest

	fetched, current, failed atomic.Uint64
}

// origin fetches the sources of a scheme.
type origin interface {
	// check returns an error for a wrong address, without a connection.
	check(u modelurl.URL) error
	// id returns what distinguishes a source from all others of the scheme, except for the state of the source.
	id(u modelurl.URL) string
	// revision returns the present state of a source. Equal revisions have equal files.
	revision(ctx context.Context, u modelurl.URL) (string, error)
	// fetch writes the files of a revision, or of a later revision, into the folder w.tree, which does not exist. fetch
	// returns the revision.
	fetch(ctx context.Context, u modelurl.URL, revision string, w *work) (string, error)
}

// work is a fetch. Only one process at a time works on a source.
type work struct {
	dir      string // keeps what a fetch has received when it fails
	tree     string // gets the files
	max      int64
	progress func(done, total int64)
}

// DefaultDir returns models in the user's cache folder, see cachedir.Dir.
func DefaultDir() (string, error) {
	dir, err := cachedir.Dir()
	return filepath.Join(dir, "models"), err
}

// Open opens the cache of a folder, and makes the folder if missing. Open removes what killed processes left.
func Open(o Options) (*Cache, error) {
	for set, to := range map[*int64]int64{&o.Size: DefaultSize, &o.MaxSize: DefaultMaxSize} {
		if *set <= 0 {
			*set = to
		}
	}
	for set, to := range map[*time.Duration]time.Duration{&o.Timeout: DefaultTimeout, &o.Idle: DefaultIdle} {
		if *set <= 0 {
			*set = to
		}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	c := &Cache{o: o, verified: map[string]bool{}}
	var err error
	if c.o.Dir == "" {
		if c.o.Dir, err = DefaultDir(); err != nil {
			return nil, fmt.Errorf("the folder of the cache: %w", err)
		}
	}
	if c.o.Dir, err = filepath.Abs(c.o.Dir); err != nil {
		return nil, err
	}
	if o.CA != "" {
		if c.pool, err = x509.SystemCertPool(); err != nil {
			c.pool = x509.NewCertPool()
		}
		text, err := os.ReadFile(o.CA)
		if err != nil {
			return nil, fmt.Errorf("model_sources.ca: %w", err)
		}
		if !c.pool.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("model_sources.ca: %s has no certificate in PEM", o.CA)
		}
	}
	for _, dir := range []string{contentDir, pointerDir, partialDir, useDir} {
		if err := os.MkdirAll(filepath.Join(c.o.Dir, dir), 0o700); err != nil {
			return nil, fmt.Errorf("the folder of the cache: %w", err)
		}
	}
	if err := c.sweep(); err != nil {
		return nil, err
	}
	c.origins = map[modelurl.Scheme]origin{modelurl.HTTP: httpOrigin{c}}
	for scheme, open := range map[modelurl.Scheme]func() (origin, error){modelurl.Git: c.openGit, modelurl.S3: c.openS3,
		modelurl.OCI: c.openOCI} {
		if c.origins[scheme], err = open(); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// Close removes the folders in which this process used files. The files stay in the cache.
func (c *Cache) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.view == nil {
		return nil
	}
	v := c.view
	c.view = nil
	return v.remove()
}

// Dir returns the folder of the cache.
func (c *Cache) Dir() string { return c.o.Dir }

// Counts returns the totals.
func (c *Cache) Counts() Counts {
	return Counts{Fetched: c.fetched.Load(), Current: c.current.Load(), Failed: c.failed.Load()}
}

// Parse reads an address and checks all its parts, without a connection.
func (c *Cache) Parse(address string) (modelurl.URL, error) {
	u, err := modelurl.Parse(address)
	if err != nil {
		return u, err
	}
	at, known := c.origins[u.Scheme]
	if !known {
		return u, fmt.Errorf("is of %s, which is not supported", u.Scheme)
	}
	return u, at.check(u)
}

// Source is the cached state of a source. Its files stay in the cache until Release.
type Source struct {
	URL      modelurl.URL
	Revision string // of Git the commit, of others what the server says about the state
	Digest   string // of the files
	Bytes    int64
	Stale    error // why the source could not be reached: the files are of the last fetch; nil = they are present

	files []file
	dir   string
	lock  *os.File
	cache *Cache
}

// Release lets the cache remove the files. The folders of Place stay.
func (s *Source) Release() { _ = filelock.Close(s.lock) }

// errOffline ends errors of sources that are not in the cache.
var errOffline = errors.New("is not in the cache, and model_sources.offline is set: unset it once, or run millrace " +
	"check with a connection")

// Get returns the present state of a source, and fetches it unless cached. When the source cannot be reached, Get
// returns the last state with the error in Stale. A refusal, such as of a token or certificate, is an error.
func (c *Cache) Get(ctx context.Context, u modelurl.URL) (*Source, error) {
	return c.get(ctx, u, c.origins[u.Scheme])
}

func (c *Cache) get(ctx context.Context, u modelurl.URL, from origin) (*Source, error) {
	if from == nil {
		return nil, fmt.Errorf("%s: sources of %s are not supported", u, u.Scheme)
	}
	key := keyOf(u, from)
	limit := fmt.Errorf("the fetch has taken longer than %s: %s allows more", c.o.Timeout, c.o.setting("timeout"))
	caller := ctx
	ctx, cancel := context.WithTimeoutCause(ctx, c.o.Timeout, limit)
	defer cancel()
	fail := func(err error) (*Source, error) {
		if ctx.Err() != nil && errors.Is(context.Cause(ctx), limit) {
			err = limit
		}
		if errors.As(err, new(sizeError)) {
			err = fmt.Errorf("%w, and %s allows more", err, c.o.setting("max_size"))
		}
		c.failed.Add(1)
		return nil, fmt.Errorf("%s: %w", u.Source(), err)
	}
	if c.o.Offline {
		s, err := c.cached(ctx, u, key, "")
		if s == nil && err == nil {
			err = errOffline
		}
		if err != nil {
			return fail(err)
		}
		c.current.Add(1)
		return s, nil
	}
	revision, err := from.revision(ctx, u)
	if err == nil {
		var s *Source
		if s, err = c.cached(ctx, u, key, revision); s != nil {
			c.current.Add(1)
			return s, nil
		}
		if err == nil {
			if s, err = c.fetchLocked(ctx, u, from, key, revision); s != nil {
				return s, nil
			}
		}
	}
	if !isUnreached(err) && (ctx.Err() == nil || !errors.Is(context.Cause(ctx), limit)) {
		return fail(err)
	}
	if s, _ := c.cached(caller, u, key, ""); s != nil {
		_, s.Stale = fail(err)
		return s, nil
	}
	return fail(err)
}

// keyOf returns the name of a source in the cache.
func keyOf(u modelurl.URL, from origin) string {
	sum := sha256.Sum256([]byte(string(u.Scheme) + " " + from.id(u)))
	return hex.EncodeToString(sum[:16])
}

// logEvery is the time between two lines of the log about a long fetch.
const logEvery = 10 * time.Second

// fetchLocked fetches a source, after other processes that fetch the source.
func (c *Cache) fetchLocked(ctx context.Context, u modelurl.URL, from origin, key, revision string) (*Source, error) {
	lock, err := c.lockSource(ctx, u, key)
	if err != nil {
		return nil, err
	}
	defer func() { _ = filelock.Close(lock) }()
	if s, err := c.cached(ctx, u, key, revision); s != nil || err != nil { // of another process
		return s, err
	}
	began := time.Now()
	c.o.Log.Info("a model source is fetched", "source", u.Source(), "revision", short(revision))
	w := &work{dir: filepath.Join(c.o.Dir, partialDir, key), max: c.o.MaxSize}
	w.tree = filepath.Join(w.dir, "tree")
	logged := began
	w.progress = func(done, total int64) {
		if c.o.Progress != nil {
			c.o.Progress(Progress{u.Source(), done, total})
		}
		if now := time.Now(); now.Sub(logged) >= logEvery {
			logged = now
			c.o.Log.Info("a model source is being fetched", "source", u.Source(), "received", done, "total", total)
		}
	}
	if err := os.MkdirAll(w.dir, 0o700); err != nil {
		return nil, err
	}
	if err := os.RemoveAll(w.tree); err != nil { // of a killed process
		return nil, err
	}
	// parts of many failed fetches stay below the limit of the cache
	err = c.change(func() error { return c.makeRoom(sizeOf(w.dir), key) })
	if err != nil && !errors.As(err, new(fullError)) { // the files may be there already, under another address
		return nil, err
	}
	if revision, err = from.fetch(ctx, u, revision, w); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, err
	}
	s, err := c.store(ctx, u, key, revision, w)
	if err != nil {
		return nil, err
	}
	c.fetched.Add(1)
	c.o.Log.Info("a model source was fetched", "source", u.Source(), "revision", short(revision), "bytes", s.Bytes,
		"took", time.Since(began))
	return s, nil
}

func short(revision string) string { return revision[:min(len(revision), 19)] }

// rule returns the rule of addresses for a source on the named hosts.
func (c *Cache) rule(named ...string) *outbound.Rule {
	r := &outbound.Rule{Named: named, Private: c.o.Private, Idle: c.o.Idle,
		Hint: "to which the source leads: " + c.o.setting("allow_private") + " allows it"}
	if c.o.Foreign {
		r.Named = nil
	}
	return r
}

// setting returns the name of a setting of model sources for errors, or of the flag in its place.
func (o *Options) setting(name string) string {
	if o.Foreign {
		return "--" + strings.ReplaceAll(name, "_", "-")
	}
	return "model_sources." + name
}

// token returns the token of a host, HOST:PORT; ok = false: none.
func (c *Cache) token(hostPort, host string) (t Token, ok bool) {
	for _, t := range c.o.Tokens {
		if t.Host == hostPort || t.Host == host {
			return t, true
		}
	}
	return Token{}, false
}

// sizeError is the error of a source with more bytes than the limit.
type sizeError int64

func (e sizeError) Error() string {
	return "the source is too large: it has more than " + units.BytesSize(float64(e))
}

func tooLarge(max int64) error { return sizeError(max) }
