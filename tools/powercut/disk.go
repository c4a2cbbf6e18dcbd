package powercut

import (
	"maps"
	"slices"
	"sync"
	"syscall"
)

// Kind is the kind of a step.
type Kind string

// The kinds of steps.
const (
	Create   Kind = "create"
	Mkdir    Kind = "mkdir"
	Write    Kind = "write"
	Truncate Kind = "truncate"
	Rename   Kind = "rename"
	Unlink   Kind = "unlink"
	Rmdir    Kind = "rmdir"
	Fsync    Kind = "fsync"
	FsyncDir Kind = "fsyncdir"
	Ack      Kind = "ack" // the process told the test what is now durable
)

// Step is one change of a Disk. Inodes are named by numbers, which replays repeat.
type Step struct {
	Kind    Kind
	Dir     uint64 // of the name
	Name    string
	To      uint64 // folder of the new name of Rename
	NewName string
	Inode   uint64 // of Create, Mkdir, Write, Truncate, Fsync, FsyncDir
	Offset  int64  // of Write; the size of Truncate
	Data    []byte // of Write and Ack
}

// root is the inode of the root folder, as in FUSE.
const root = 1

// inode is a file or a folder.
type inode struct {
	number uint64
	folder bool

	data    []byte   // as processes see the file
	durable []byte   // as of the last fsync
	pending []change // of the bytes since the last fsync

	names map[string]*inode // as processes see the folder
	disk  map[string]*inode // as of the last fsync
}

// change is a change of the bytes of a file.
type change struct {
	offset int64
	data   []byte // nil = Truncate to offset
}

func (c change) apply(b []byte) []byte {
	if c.data == nil {
		return resize(b, c.offset)
	}
	if end := c.offset + int64(len(c.data)); end > int64(len(b)) {
		b = resize(b, end)
	}
	copy(b[c.offset:], c.data)
	return b
}

func resize(b []byte, size int64) []byte {
	if size <= int64(len(b)) {
		return b[:size:size]
	}
	return append(b, make([]byte, size-int64(len(b)))...)
}

// naming is a change of names that is not durable. All of its parts survive a power failure, or none.
type naming []nameSet

// nameSet gives a name to an inode, or with nil removes the name.
type nameSet struct {
	dir  *inode
	name string
	to   *inode
}

// Disk is a file system in memory. All methods are safe for concurrent use.
type Disk struct {
	mu      sync.Mutex
	inodes  map[uint64]*inode
	next    uint64
	pending []naming
	used    int64 // bytes of all files
	size    int64 // bytes that fit; 0 = any number

	steps  []Step
	record bool

	// before is asked before each step with the bytes that the step needs. An error refuses the step; nil = none.
	before func(s *Step, more int64) syscall.Errno
}

// NewDisk returns a disk with the files of a tree, all of them durable.
func NewDisk(t Tree) *Disk {
	d := &Disk{inodes: map[uint64]*inode{}}
	d.add(true)
	for _, path := range slices.Sorted(maps.Keys(t)) {
		d.put(path, t[path])
	}
	return d
}

// put adds a durable file, or with nil a folder.
func (d *Disk) put(path string, data []byte) {
	at := d.inodes[root]
	for rest := path; ; {
		name, more, deeper := cut(rest)
		in := at.names[name]
		if in == nil {
			in = d.add(deeper || data == nil)
			at.names[name], at.disk[name] = in, in
		}
		if !deeper {
			in.data, in.durable = slices.Clone(data), slices.Clone(data)
			d.used += int64(len(data))
			return
		}
		at, rest = in, more
	}
}

// add makes an inode without a name.
func (d *Disk) add(folder bool) *inode {
	d.next++
	in := &inode{number: d.next, folder: folder}
	if folder {
		in.names, in.disk = map[string]*inode{}, map[string]*inode{}
	}
	d.inodes[in.number] = in
	return in
}

// Steps returns the recorded steps.
func (d *Disk) Steps() []Step {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.steps)
}

// Used returns the bytes of all files.
func (d *Disk) Used() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.used
}

// Apply does a step. Create and Mkdir set Step.Inode.
func (d *Disk) Apply(s *Step) syscall.Errno {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.apply(s)
}

func (d *Disk) apply(s *Step) syscall.Errno {
	if d.before != nil {
		if no := d.before(s, d.more(s)); no != 0 {
			return no
		}
	}
	if d.size > 0 && (s.Kind == Create || s.Kind == Mkdir || s.Kind == Write) && d.more(s) > d.free() {
		return syscall.ENOSPC
	}
	if no := d.do(s); no != 0 {
		return no
	}
	if d.record {
		kept := *s
		kept.Data = slices.Clone(s.Data)
		d.steps = append(d.steps, kept)
	}
	return 0
}

// Resize sets how many bytes fit on the disk; 0 = any number.
func (d *Disk) Resize(size int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.size = size
}

// free returns how many further bytes fit.
func (d *Disk) free() int64 {
	if d.size == 0 {
		return 1 << 40
	}
	return d.size - d.used
}

// more returns by how many bytes a step makes the files longer. A new name needs a block.
func (d *Disk) more(s *Step) int64 {
	if s.Kind == Create || s.Kind == Mkdir {
		return blockSize
	}
	if in := d.inodes[s.Inode]; in != nil && s.Kind == Write {
		return max(0, s.Offset+int64(len(s.Data))-int64(len(in.data)))
	}
	return 0
}

func (d *Disk) do(s *Step) syscall.Errno {
	switch s.Kind {
	case Create, Mkdir:
		dir := d.inodes[s.Dir]
		if dir.names[s.Name] != nil {
			return syscall.EEXIST
		}
		in := d.add(s.Kind == Mkdir)
		s.Inode = in.number
		d.name(naming{{dir, s.Name, in}})
	case Write, Truncate:
		c := change{s.Offset, nil}
		if s.Kind == Write {
			c.data = append([]byte{}, s.Data...)
		}
		in := d.inodes[s.Inode]
		before := len(in.data)
		in.data = c.apply(in.data)
		d.used += int64(len(in.data) - before)
		in.pending = append(in.pending, c)
	case Rename:
		return d.rename(s)
	case Unlink, Rmdir:
		return d.remove(s)
	case Fsync:
		in := d.inodes[s.Inode]
		for _, c := range in.pending {
			in.durable = c.apply(in.durable)
		}
		in.pending = nil
	case FsyncDir:
		d.syncNames(d.inodes[s.Inode])
	case Ack:
	}
	return 0
}

// name changes names, and keeps the change as one that is not durable.
func (d *Disk) name(n naming) {
	for _, p := range n {
		set(p.dir.names, p)
	}
	d.pending = append(d.pending, n)
}

func set(names map[string]*inode, p nameSet) {
	if p.to == nil {
		delete(names, p.name)
	} else {
		names[p.name] = p.to
	}
}

func (d *Disk) rename(s *Step) syscall.Errno {
	from, to := d.inodes[s.Dir], d.inodes[s.To]
	in := from.names[s.Name]
	if in == nil {
		return syscall.ENOENT
	}
	old := to.names[s.NewName]
	switch {
	case old == in:
		return 0
	case old != nil && old.folder && len(old.names) > 0:
		return syscall.ENOTEMPTY
	case old != nil && old.folder != in.folder:
		return syscall.EISDIR
	case old != nil:
		d.used -= int64(len(old.data))
	}
	d.name(naming{{from, s.Name, nil}, {to, s.NewName, in}})
	return 0
}

func (d *Disk) remove(s *Step) syscall.Errno {
	dir := d.inodes[s.Dir]
	in := dir.names[s.Name]
	switch {
	case in == nil:
		return syscall.ENOENT
	case in.folder != (s.Kind == Rmdir):
		return map[bool]syscall.Errno{true: syscall.EISDIR, false: syscall.ENOTDIR}[in.folder]
	case len(in.names) > 0:
		return syscall.ENOTEMPTY
	}
	d.used -= int64(len(in.data))
	d.name(naming{{dir, s.Name, nil}})
	return 0
}

// syncNames makes the changes of names in a folder durable.
func (d *Disk) syncNames(dir *inode) {
	wanted := make([]bool, len(d.pending))
	for i, n := range d.pending {
		wanted[i] = slices.ContainsFunc(n, func(p nameSet) bool { return p.dir == dir })
	}
	addEarlier(d.pending, wanted)
	rest := d.pending[:0]
	for i, n := range d.pending {
		if !wanted[i] {
			rest = append(rest, n)
			continue
		}
		for _, p := range n {
			set(p.dir.disk, p)
		}
	}
	clear(d.pending[len(rest):])
	d.pending = rest
}

// addEarlier adds to the wanted changes the earlier changes of the same names.
func addEarlier(all []naming, wanted []bool) {
	type key struct {
		dir  *inode
		name string
	}
	names := map[key]bool{}
	for i := len(all) - 1; i >= 0; i-- {
		wanted[i] = wanted[i] || slices.ContainsFunc(all[i], func(p nameSet) bool { return names[key{p.dir, p.name}] })
		if wanted[i] {
			for _, p := range all[i] {
				names[key{p.dir, p.name}] = true
			}
		}
	}
}
