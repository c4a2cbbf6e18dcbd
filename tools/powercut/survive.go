package powercut

import (
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Tree is the files of a disk by path; a folder has nil.
type Tree map[string][]byte

// Variant says which of the changes that were not synced survive a power failure.
type Variant string

// The variants.
const (
	None    Variant = "none"    // no change survives
	Subset  Variant = "subset"  // a random part survives: changes are missing, torn, or zeros
	Journal Variant = "journal" // the first changes of names survive, and no bytes
	Torn    Variant = "torn"    // all changes survive, but for the end of the last write of each file
	All     Variant = "all"     // all changes survive, as after kill -9
)

// Variants lists the variants.
var Variants = []Variant{None, Subset, Journal, Torn, All}

// Survive returns what the disk may hold after a power failure at this moment. The disk is not changed.
func (d *Disk) Survive(v Variant, r *rand.Rand) Tree {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := survivors{variant: v, rand: r, folders: map[*inode]map[string]*inode{}, tree: Tree{}}
	kept := make([]bool, len(d.pending))
	first := 0
	if len(kept) > 0 && v == Journal {
		first = r.IntN(len(kept) + 1)
	}
	for i := range kept {
		switch v {
		case Subset:
			kept[i] = r.IntN(2) == 0
		case Journal:
			kept[i] = i < first
		case Torn, All:
			kept[i] = true
		}
	}
	addEarlier(d.pending, kept)
	for i, n := range d.pending {
		for _, p := range n {
			if kept[i] {
				set(s.names(p.dir), p)
			}
		}
	}
	s.add(d.inodes[root], "")
	return s.tree
}

// survivors collects the files that survive.
type survivors struct {
	variant Variant
	rand    *rand.Rand
	folders map[*inode]map[string]*inode // whose names differ from the durable ones
	tree    Tree
}

// names returns the surviving names of a folder, for changes.
func (s *survivors) names(dir *inode) map[string]*inode {
	m, ok := s.folders[dir]
	if !ok {
		m = map[string]*inode{}
		for name, in := range dir.disk {
			m[name] = in
		}
		s.folders[dir] = m
	}
	return m
}

func (s *survivors) add(dir *inode, path string) {
	m, ok := s.folders[dir]
	if !ok {
		m = dir.disk
	}
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names) // the random numbers of a seed are the same each time
	for _, name := range names {
		in, at := m[name], filepath.Join(path, name)
		if in.folder {
			s.tree[at] = nil
			s.add(in, at)
			continue
		}
		s.tree[at] = s.bytes(in)
	}
}

// sector is the unit of a write that is torn.
const sector = 512

// bytes returns the surviving bytes of a file; never nil.
func (s *survivors) bytes(in *inode) []byte {
	if s.variant == All {
		return append([]byte{}, in.data...)
	}
	b := append([]byte{}, in.durable...)
	for i, c := range in.pending {
		switch last := i == len(in.pending)-1; {
		case s.variant == None || s.variant == Journal:
		case s.variant == Torn && last:
			b = s.torn(c).apply(b)
		case s.variant == Torn:
			b = c.apply(b)
		default:
			switch s.rand.IntN(4) {
			case 0:
				b = c.apply(b)
			case 1:
				b = s.torn(c).apply(b)
			case 2:
				if c.data != nil {
					c.data = make([]byte, len(c.data)) // the size is on the disk, and the bytes are not
				}
				b = c.apply(b)
			}
		}
	}
	return b
}

// torn returns the first sectors of a change.
func (s *survivors) torn(c change) change {
	if c.data != nil {
		c.data = c.data[:sector*s.rand.IntN(len(c.data)/sector+1)]
	}
	return c
}

// Write writes the files of a tree below a folder.
func (t Tree) Write(folder string) error {
	for path, data := range t {
		name := filepath.Join(folder, path)
		if data == nil {
			if err := os.MkdirAll(name, 0o700); err != nil {
				return err
			}
			continue
		}
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(name, data, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// ReadTree returns the files of a folder.
func ReadTree(folder string) (Tree, error) {
	t := Tree{}
	err := filepath.WalkDir(folder, func(path string, e fs.DirEntry, err error) error {
		if err != nil || path == folder {
			return err
		}
		name, err := filepath.Rel(folder, path)
		if err != nil {
			return err
		}
		if e.IsDir() {
			t[name] = nil
			return nil
		}
		b, err := os.ReadFile(path)
		t[name] = append([]byte{}, b...)
		return err
	})
	return t, err
}

func cut(path string) (name, rest string, deeper bool) { return strings.Cut(path, "/") }
