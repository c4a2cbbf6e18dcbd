package powercut

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// AckFile is the file of the root folder to which a process writes what is now durable: each write is one Ack. Acks
// have their place among the steps, and no bytes on the disk.
const AckFile = ".acks"

// ackNode is the inode of AckFile.
const ackNode = 1 << 62

// Mount mounts the disk in a folder until unmount. The process needs /dev/fuse, and the right to mount or the program
// fusermount3.
func (d *Disk) Mount(folder string) (unmount func() error, err error) {
	m := &mount{RawFileSystem: fuse.NewDefaultRawFileSystem(), disk: d, started: time.Now()}
	s, err := fuse.NewServer(m, folder, &fuse.MountOptions{
		DirectMount: true, FsName: "powercut", Name: "powercut", DisableXAttrs: true, DisableReadDirPlus: true,
		MaxWrite: 512 << 10,
	})
	if err != nil {
		return nil, err
	}
	go s.Serve()
	if err := s.WaitMount(); err != nil {
		return nil, err
	}
	return func() (err error) {
		for range 100 { // on a busy machine the kernel still closes files of a process that has ended
			if err = s.Unmount(); err == nil {
				break
			}
		}
		return err
	}, nil
}

// Record begins to keep the steps.
func (d *Disk) Record() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.record = true
}

// Before sets the function that is asked before each step with the bytes that the step needs. An error refuses the
// step. The function must not call the disk.
func (d *Disk) Before(f func(s *Step, more int64) syscall.Errno) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.before = f
}

// mount serves a disk to the kernel.
type mount struct {
	fuse.RawFileSystem
	disk    *Disk
	started time.Time

	handles sync.Map // of folders that are read: by number, the entries at the begin
	last    atomic.Uint64
}

// attr fills the attributes of an inode. The lock of the disk is held.
func (m *mount) attr(in *inode, out *fuse.Attr) {
	*out = fuse.Attr{Ino: in.number, Mode: syscall.S_IFREG | 0o600, Nlink: 1, Size: uint64(len(in.data)),
		Blksize: 4096, Blocks: uint64(len(in.data)+511) / 512}
	if in.folder {
		out.Mode, out.Nlink = syscall.S_IFDIR|0o700, 2
	}
	out.Uid, out.Gid = uint32(syscall.Getuid()), uint32(syscall.Getgid())
	out.SetTimes(&m.started, &m.started, &m.started)
}

func (m *mount) entry(in *inode, out *fuse.EntryOut) {
	out.NodeId, out.Generation = in.number, 1
	m.attr(in, &out.Attr)
}

func (m *mount) inode(n uint64) *inode {
	if n == ackNode {
		return &inode{number: ackNode}
	}
	return m.disk.inodes[n]
}

func (m *mount) String() string { return "powercut" }

func (m *mount) Lookup(_ <-chan struct{}, h *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	m.disk.mu.Lock()
	defer m.disk.mu.Unlock()
	if h.NodeId == root && name == AckFile {
		m.entry(m.inode(ackNode), out)
		return fuse.OK
	}
	in := m.disk.inodes[h.NodeId].names[name]
	if in == nil {
		return fuse.ENOENT
	}
	m.entry(in, out)
	return fuse.OK
}

func (m *mount) GetAttr(_ <-chan struct{}, i *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	m.disk.mu.Lock()
	defer m.disk.mu.Unlock()
	m.attr(m.inode(i.NodeId), &out.Attr)
	return fuse.OK
}

func (m *mount) SetAttr(_ <-chan struct{}, i *fuse.SetAttrIn, out *fuse.AttrOut) fuse.Status {
	m.disk.mu.Lock()
	defer m.disk.mu.Unlock()
	if i.Valid&fuse.FATTR_SIZE != 0 && i.NodeId != ackNode {
		if no := m.disk.apply(&Step{Kind: Truncate, Inode: i.NodeId, Offset: int64(i.Size)}); no != 0 {
			return fuse.Status(no)
		}
	}
	m.attr(m.inode(i.NodeId), &out.Attr)
	return fuse.OK
}

func (m *mount) make(s *Step, out *fuse.EntryOut) fuse.Status {
	m.disk.mu.Lock()
	defer m.disk.mu.Unlock()
	if no := m.disk.apply(s); no != 0 {
		return fuse.Status(no)
	}
	m.entry(m.inode(s.Inode), out)
	return fuse.OK
}

func (m *mount) Mkdir(_ <-chan struct{}, i *fuse.MkdirIn, name string, out *fuse.EntryOut) fuse.Status {
	return m.make(&Step{Kind: Mkdir, Dir: i.NodeId, Name: name}, out)
}

func (m *mount) Create(_ <-chan struct{}, i *fuse.CreateIn, name string, out *fuse.CreateOut) fuse.Status {
	out.OpenFlags = fuse.FOPEN_DIRECT_IO
	return m.make(&Step{Kind: Create, Dir: i.NodeId, Name: name}, &out.EntryOut)
}

func (m *mount) Unlink(_ <-chan struct{}, h *fuse.InHeader, name string) fuse.Status {
	return fuse.Status(m.disk.Apply(&Step{Kind: Unlink, Dir: h.NodeId, Name: name}))
}

func (m *mount) Rmdir(_ <-chan struct{}, h *fuse.InHeader, name string) fuse.Status {
	return fuse.Status(m.disk.Apply(&Step{Kind: Rmdir, Dir: h.NodeId, Name: name}))
}

func (m *mount) Rename(_ <-chan struct{}, i *fuse.RenameIn, from, to string) fuse.Status {
	return fuse.Status(m.disk.Apply(&Step{Kind: Rename, Dir: i.NodeId, Name: from, To: i.Newdir, NewName: to}))
}

func (m *mount) Open(_ <-chan struct{}, i *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	out.OpenFlags = fuse.FOPEN_DIRECT_IO // each write of the process is one write here
	if i.Flags&syscall.O_TRUNC != 0 && i.NodeId != ackNode {
		return fuse.Status(m.disk.Apply(&Step{Kind: Truncate, Inode: i.NodeId}))
	}
	return fuse.OK
}

func (m *mount) Read(_ <-chan struct{}, i *fuse.ReadIn, buf []byte) (fuse.ReadResult, fuse.Status) {
	m.disk.mu.Lock()
	defer m.disk.mu.Unlock()
	data := m.inode(i.NodeId).data
	if i.Offset >= uint64(len(data)) {
		return fuse.ReadResultData(nil), fuse.OK
	}
	return fuse.ReadResultData(buf[:copy(buf, data[i.Offset:])]), fuse.OK
}

func (m *mount) Write(_ <-chan struct{}, i *fuse.WriteIn, data []byte) (uint32, fuse.Status) {
	s := &Step{Kind: Write, Inode: i.NodeId, Offset: int64(i.Offset), Data: data}
	if i.NodeId == ackNode {
		s = &Step{Kind: Ack, Data: data}
	}
	m.disk.mu.Lock()
	defer m.disk.mu.Unlock()
	if i.Flags&syscall.O_APPEND != 0 && i.NodeId != ackNode {
		s.Offset = int64(len(m.inode(i.NodeId).data))
	}
	if no := m.disk.apply(s); no != 0 {
		return 0, fuse.Status(no)
	}
	if i.Flags&(syscall.O_SYNC|syscall.O_DSYNC) != 0 && i.NodeId != ackNode {
		if no := m.disk.apply(&Step{Kind: Fsync, Inode: i.NodeId}); no != 0 {
			return 0, fuse.Status(no)
		}
	}
	return uint32(len(data)), fuse.OK
}

func (m *mount) Fsync(_ <-chan struct{}, i *fuse.FsyncIn) fuse.Status {
	if i.NodeId == ackNode {
		return fuse.OK
	}
	return fuse.Status(m.disk.Apply(&Step{Kind: Fsync, Inode: i.NodeId}))
}

func (m *mount) FsyncDir(_ <-chan struct{}, i *fuse.FsyncIn) fuse.Status {
	return fuse.Status(m.disk.Apply(&Step{Kind: FsyncDir, Inode: i.NodeId}))
}

func (m *mount) Flush(<-chan struct{}, *fuse.FlushIn) fuse.Status { return fuse.OK }

func (m *mount) Access(<-chan struct{}, *fuse.AccessIn) fuse.Status { return fuse.OK }

// OpenDir keeps the names of the folder for ReadDir: names may be removed meanwhile.
func (m *mount) OpenDir(_ <-chan struct{}, i *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	m.disk.mu.Lock()
	defer m.disk.mu.Unlock()
	out.Fh = m.last.Add(1)
	m.handles.Store(out.Fh, maps.Clone(m.disk.inodes[i.NodeId].names))
	return fuse.OK
}

func (m *mount) ReleaseDir(i *fuse.ReleaseIn) { m.handles.Delete(i.Fh) }

func (m *mount) ReadDir(_ <-chan struct{}, i *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	m.disk.mu.Lock()
	defer m.disk.mu.Unlock()
	if i.Offset == 0 { // from the begin, again
		m.handles.Store(i.Fh, maps.Clone(m.disk.inodes[i.NodeId].names))
	}
	kept, _ := m.handles.Load(i.Fh)
	all, _ := kept.(map[string]*inode)
	for n, name := range slices.Sorted(maps.Keys(all)) {
		if uint64(n) < i.Offset {
			continue
		}
		mode := uint32(syscall.S_IFREG)
		if all[name].folder {
			mode = syscall.S_IFDIR
		}
		if !out.AddDirEntry(fuse.DirEntry{Mode: mode, Name: name, Ino: all[name].number, Off: uint64(n) + 1}) {
			break
		}
	}
	return fuse.OK
}

// blockSize is the unit of StatFs.
const blockSize = 4096

func (m *mount) StatFs(_ <-chan struct{}, _ *fuse.InHeader, out *fuse.StatfsOut) fuse.Status {
	m.disk.mu.Lock()
	defer m.disk.mu.Unlock()
	free := uint64(max(0, m.disk.free()) / blockSize)
	out.Bsize, out.Frsize, out.Bfree, out.Bavail, out.NameLen = blockSize, blockSize, free, free, 255
	out.Blocks = free + uint64(m.disk.used/blockSize)
	return fuse.OK
}
