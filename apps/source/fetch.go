package source

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/docker/go-units"
	"github.com/go-git/go-billy/v5/osfs"
	"github.com/go-git/go-git/v5"
	gitconfig "github.com/go-git/go-git/v5/config"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/cache"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/storage/filesystem"

	"millrace/internal/outbound"
	"millrace/internal/sshclient"
)

// Result is what Fetch wrote.
type Result struct {
	Commit     string      `json:"commit"`        // 40 digits
	Ref        string      `json:"ref,omitempty"` // full name of the branch or tag
	Tip        string      `json:"-"`             // what Resolve returns for this state
	Files      int         `json:"files"`         // also of submodules
	Bytes      int64       `json:"bytes"`         // of the files
	LFS        []string    `json:"lfs,omitempty"` // files that are pointers of Git LFS, whose content is missing
	Submodules []Submodule `json:"submodules,omitempty"`
}

// Submodule is a repository inside a repository.
type Submodule struct {
	Path    string `json:"path"`
	Address string `json:"address"`
	Commit  string `json:"commit"`
}

// Notes returns sentences for the user about what is missing in the clone.
func (r *Result) Notes() (lines []string) {
	if n := len(r.LFS); n > 0 {
		files, more := r.LFS, ""
		if n > maxListed {
			files, more = files[:maxListed], fmt.Sprintf(" and %d more", n-maxListed)
		}
		lines = append(lines, fmt.Sprintf("Git LFS is not supported: these files are pointers without the content: "+
			"%s%s. Put the content in the repository, or download the content",
			sshclient.Printable(strings.Join(files, ", ")), more))
	}
	return lines
}

// Limits of submodules.
const (
	modulesFile     = ".gitmodules"
	maxModules      = 100
	maxModulesDepth = 8
)

func tooLarge(limit int64, what string) error {
	return fmt.Errorf("the repository is too large: %s than %s; --max-size allows more", what,
		units.BytesSize(float64(limit)))
}

// fetcher is a call of Fetch.
type fetcher struct {
	Options
	net      outbound.Rule
	received int64 // bytes of packs
	result   Result
}

// allowPrivate ends errors of private addresses.
const allowPrivate = "to which the repository leads: --allow-private allows it"

// Resolve returns the commit of the repository s that Fetch would clone, with 40 digits, or of an annotated tag the
// tag. Resolve reads the references only.
func Resolve(ctx context.Context, s Source, o Options) (string, error) {
	o = o.withDefaults()
	if s.Kind == Folder {
		return "", errors.New("a folder has no commit")
	}
	if s.IsCommit() {
		return s.Ref, nil
	}
	f := &fetcher{Options: o}
	ctx, cancel := f.begin(ctx, s)
	defer cancel()
	want, err := f.resolve(ctx, s)
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return "", fmt.Errorf("%s: %w", s.Address(), err)
	}
	return want.hash.String(), nil
}

func (f *fetcher) resolve(ctx context.Context, s Source) (target, error) {
	p, err := f.open(ctx, s)
	if err != nil {
		return target{}, err
	}
	defer func() { _ = p.close() }()
	refs, err := p.references(ctx)
	if err != nil {
		return target{}, err
	}
	return refs.resolve(s.Ref)
}

// begin sets the limits of the fetcher.
func (f *fetcher) begin(ctx context.Context, s Source) (context.Context, context.CancelFunc) {
	f.net.Private, f.net.Idle, f.net.Hint = f.AllowPrivate, f.Idle, allowPrivate
	if s.Kind != File {
		f.net.Named = []string{outbound.HostPort(s.url)}
	}
	limit := fmt.Errorf("fetching has taken longer than %s: --timeout allows more", f.Timeout)
	return context.WithTimeoutCause(ctx, f.Timeout, limit)
}

// Fetch clones the repository s into the folder dir, which must not exist: a single commit, with its submodules.
// Nothing of the repository is run. After an error the caller removes dir. Errors never contain a password or a token.
func Fetch(ctx context.Context, s Source, dir string, o Options) (*Result, error) {
	o = o.withDefaults()
	if s.Kind == Folder {
		return nil, errors.New("a folder is used in place, and is not fetched")
	}
	f := &fetcher{Options: o}
	ctx, cancel := f.begin(ctx, s)
	defer cancel()
	err := f.clone(ctx, s, dir, filepath.Join(dir, ".git"), "", plumbing.ZeroHash, 0)
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, fmt.Errorf("%s: %w", s.Address(), err)
	}
	return &f.result, nil
}

// clone fetches one repository. at is the path inside the first repository; commit is the commit of a submodule.
func (f *fetcher) clone(ctx context.Context, s Source, dir, gitDir, at string, commit plumbing.Hash, depth int) error {
	p, err := f.open(ctx, s)
	if err != nil {
		return err
	}
	defer func() { _ = p.close() }()
	refs, err := p.references(ctx)
	if err != nil {
		return err
	}
	ref := s.Ref
	if !commit.IsZero() {
		ref = commit.String()
	}
	want, err := refs.resolve(ref)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(gitDir, 0o777); err != nil {
		return err
	}
	store := filesystem.NewStorageWithOptions(osfs.New(gitDir, osfs.WithBoundOS()), cache.NewObjectLRUDefault(),
		filesystem.Options{ExclusiveAccess: true, LargeObjectThreshold: 16 << 20})
	repo, err := git.Init(store, osfs.New(dir, osfs.WithBoundOS()))
	if err != nil {
		return err
	}
	wants, history := []plumbing.Hash{want.hash}, 1
	if !want.reported && p.lacks() {
		wants, history = nil, 0
		for _, h := range refs.hashes {
			if !slices.Contains(wants, h) {
				wants = append(wants, h)
			}
		}
	}
	shallow, err := f.receive(ctx, p, s, store, wants, history)
	if err != nil {
		return err
	}
	if len(shallow) > 0 {
		if err := store.SetShallow(shallow); err != nil {
			return err
		}
	}
	found, err := commitOf(repo, want.hash)
	if err != nil {
		return err
	}
	files, err := list(ctx, store, found.TreeHash, f.MaxSize-f.result.Bytes)
	if err != nil {
		return err
	}
	for _, name := range files.lfs {
		f.result.LFS = append(f.result.LFS, path.Join(at, name))
	}
	f.result.Bytes += files.bytes
	for _, e := range files.entries {
		if e.Mode.IsFile() {
			f.result.Files++
		}
	}
	if err := checkOut(repo, s, want, found.Hash); err != nil {
		return err
	}
	if at == "" {
		f.result.Commit, f.result.Ref, f.result.Tip = found.Hash.String(), want.name, want.hash.String()
	}
	return f.modules(ctx, s, files, dir, gitDir, at, depth)
}

func (f *fetcher) open(ctx context.Context, s Source) (peer, error) {
	switch s.Kind {
	case File:
		return openLocal(s.path)
	case HTTP:
		return openHTTP(s, f.Options, &f.net)
	default:
		return openSSH(ctx, s, f.Options, &f.net)
	}
}

// receive reads a pack into store.
func (f *fetcher) receive(ctx context.Context, p peer, s Source, store *filesystem.Storage, wants []plumbing.Hash,
	depth int) ([]plumbing.Hash, error) {
	pack, shallow, err := p.pack(ctx, wants, depth)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = errors.Join(pack.Close(), p.close()) })
	defer stop()
	in := &limited{r: pack, f: f, address: s.Address(), ctx: ctx}
	err = keep(ctx, in, store, f.MaxSize)
	_ = pack.Close()
	switch {
	case in.err != nil:
		return nil, in.err
	case err != nil:
		return nil, err
	}
	return shallow, nil
}

func damaged(err error) error { return fmt.Errorf("the data of the repository: %w", err) }

// keep writes a pack into store. go-git has whole objects in memory, so their sizes are checked before.
func keep(ctx context.Context, pack io.Reader, store *filesystem.Storage, limit int64) error {
	file, err := os.CreateTemp(store.Filesystem().Root(), "received-*")
	if err != nil {
		return err
	}
	defer func() { _ = errors.Join(file.Close(), os.Remove(file.Name())) }()
	if _, err := io.Copy(file, pack); err != nil {
		return err
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if err := checkPack(ctx, file, limit); err != nil {
		return err
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if err := packfile.UpdateObjectStorage(store, file); err != nil {
		return damaged(err)
	}
	return nil
}

// checkPack refuses a pack with an object of more than limit bytes.
func checkPack(ctx context.Context, pack io.Reader, limit int64) error {
	s := packfile.NewScanner(pack)
	_, n, err := s.Header()
	if err != nil {
		return damaged(err)
	}
	for range n {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		h, err := s.NextObjectHeader()
		if err != nil {
			return damaged(err)
		}
		size := uint64(h.Length)
		if h.Type.IsDelta() && h.Length <= limit {
			var start first
			if _, _, err := s.NextObject(&start); err != nil {
				return damaged(err)
			}
			_, at := binary.Uvarint(start) // the size of the base
			size, _ = binary.Uvarint(start[max(at, 0):])
		}
		if size > uint64(limit) {
			return tooLarge(limit, "its files have more bytes")
		}
	}
	return nil
}

// first keeps the first bytes that are written: more than two numbers need.
type first []byte

func (f *first) Write(p []byte) (int, error) {
	*f = append(*f, p[:min(len(p), 2*binary.MaxVarintLen64-len(*f))]...)
	return len(p), nil
}

// limited reads a pack up to the limit of bytes.
type limited struct {
	r       io.Reader
	f       *fetcher
	ctx     context.Context
	address string
	err     error
}

func (l *limited) Read(p []byte) (int, error) {
	if l.err != nil {
		return 0, l.err
	}
	if l.ctx.Err() != nil {
		l.err = context.Cause(l.ctx)
		return 0, l.err
	}
	n, err := l.r.Read(p)
	if l.f.received += int64(n); l.f.received > l.f.MaxSize {
		l.err = tooLarge(l.f.MaxSize, "the server sends more bytes")
		return 0, l.err
	}
	if err != nil && !errors.Is(err, io.EOF) && l.err == nil {
		l.err = fmt.Errorf("the connection ended before the repository was complete: %w", err)
	}
	if l.f.Progress != nil && n > 0 {
		l.f.Progress(l.address, l.f.received)
	}
	return n, err
}

// commitOf returns the commit of a hash, which may be of an annotated tag.
func commitOf(repo *git.Repository, h plumbing.Hash) (*object.Commit, error) {
	if tag, err := repo.TagObject(h); err == nil {
		c, err := tag.Commit()
		if err != nil {
			return nil, fmt.Errorf("the tag %s does not name a commit: name a branch, or another tag", tag.Name)
		}
		return c, nil
	}
	c, err := repo.CommitObject(h)
	if errors.Is(err, plumbing.ErrObjectNotFound) {
		return nil, noCommit(h)
	}
	return c, err
}

// checkOut writes the files of the commit, and names the repository for the git program.
func checkOut(repo *git.Repository, s Source, want target, commit plumbing.Hash) error {
	cfg, err := repo.Config()
	if err != nil {
		return err
	}
	cfg.Remotes["origin"] = &gitconfig.RemoteConfig{Name: "origin", URLs: []string{s.plain()}}
	if err := repo.SetConfig(cfg); err != nil {
		return err
	}
	o := &git.CheckoutOptions{Hash: commit, Force: true}
	switch name := plumbing.ReferenceName(want.name); {
	case name.IsBranch():
		o = &git.CheckoutOptions{Branch: name, Force: true}
		err = errors.Join(repo.Storer.SetReference(plumbing.NewHashReference(name, commit)),
			repo.Storer.SetReference(plumbing.NewHashReference(plumbing.NewRemoteReferenceName("origin", name.Short()),
				commit)))
	case name.IsTag():
		err = repo.Storer.SetReference(plumbing.NewHashReference(name, want.hash))
	}
	if err != nil {
		return err
	}
	tree, err := repo.Worktree()
	if err != nil {
		return err
	}
	return tree.Checkout(o)
}

// plain returns the repository without a user that may be a token.
func (s Source) plain() string {
	if s.Kind != HTTP {
		return s.Repo
	}
	u := *s.url
	u.User = nil
	return u.String()
}

// modules fetches the submodules of a repository.
func (f *fetcher) modules(ctx context.Context, s Source, files *listing, dir, gitDir, at string, depth int) error {
	listed := gitconfig.NewModules()
	if e, ok := files.entries[modulesFile]; ok && e.Mode.IsFile() {
		text, err := files.read(e.Hash, maxModule)
		if err == nil {
			err = listed.Unmarshal([]byte(text))
		}
		if err != nil {
			return fmt.Errorf("%s: %w", path.Join(at, modulesFile), err)
		}
	}
	byPath := map[string]*gitconfig.Submodule{}
	for _, m := range listed.Submodules {
		byPath[m.Path] = m
	}
	var paths []string
	for name, e := range files.entries {
		if byPath[name] != nil && e.Mode == filemode.Submodule {
			paths = append(paths, name)
		}
	}
	slices.Sort(paths)
	for _, name := range paths {
		m, here := byPath[name], path.Join(at, name)
		if err := f.module(ctx, s, m, files.entries[name].Hash, dir, gitDir, here, depth); err != nil {
			return fmt.Errorf("the submodule %q (%s): %w", here, Mask(m.URL), err)
		}
	}
	return nil
}

func (f *fetcher) module(ctx context.Context, parent Source, m *gitconfig.Submodule, commit plumbing.Hash,
	dir, gitDir, at string, depth int) error {
	switch {
	case depth >= maxModulesDepth:
		return fmt.Errorf("is more than %d repositories deep", maxModulesDepth)
	case len(f.result.Submodules) >= maxModules:
		return fmt.Errorf("there are more than %d submodules", maxModules)
	case !filepath.IsLocal(m.Name) || strings.HasPrefix(m.Name, ".") || strings.Contains(m.Name, `\`):
		return fmt.Errorf("its name %q leads out of .git/modules", m.Name)
	}
	s, err := moduleSource(parent, m.URL)
	if err != nil {
		return err
	}
	if parent.Kind != File && s.Kind == File && !f.AllowPrivate {
		return errors.New("names a file of this machine, which a remote repository may not do: --allow-private " +
			"allows it")
	}
	f.result.Submodules = append(f.result.Submodules,
		Submodule{Path: at, Address: s.Address(), Commit: commit.String()})
	o := f.Options
	if s.Kind == HTTP && s.url.Scheme == "http" && !f.net.Trusts(outbound.HostPort(s.url)) && !o.AllowHTTP {
		return errors.New("http:// is not encrypted: --allow-http allows it")
	}
	return f.clone(ctx, s, filepath.Join(dir, filepath.FromSlash(m.Path)),
		filepath.Join(gitDir, "modules", filepath.FromSlash(m.Name)), at, commit, depth+1)
}

// moduleSource returns the repository of a submodule: an address, or a path that is relative to the parent's.
func moduleSource(parent Source, address string) (Source, error) {
	if strings.HasPrefix(address, "./") || strings.HasPrefix(address, "../") {
		base := parent.Repo
		scheme, rest, isURL := strings.Cut(base, "://")
		sep := "/"
		if !isURL {
			scheme, rest, _ = strings.Cut(base, ":") // USER@HOST:PATH
			sep = ":"
		}
		root, inside := "", rest
		if isURL {
			scheme += "://"
			host, p, _ := strings.Cut(rest, "/")
			root, inside = host, p
		}
		joined := path.Join("/", inside, address)
		if strings.Count(address, "..") > strings.Count(strings.Trim(inside, "/"), "/")+1 {
			return Source{}, errors.New("leads above the top of the host")
		}
		address = scheme + root + sep + strings.TrimPrefix(joined, "/")
		if !isURL && strings.HasPrefix(rest, "/") {
			address = scheme + sep + joined
		}
	}
	s, err := Parse(address)
	switch {
	case err != nil:
		return s, err
	case s.Kind == Folder && filepath.IsAbs(address) && parent.Kind == File:
		return Parse("file://" + address)
	case s.Kind == Folder:
		return s, errors.New("is not an address of a repository that is supported here")
	case s.Ref != "" || s.File != "":
		return s, errors.New("has an @ or |, which addresses of submodules do not have")
	}
	return s, nil
}
