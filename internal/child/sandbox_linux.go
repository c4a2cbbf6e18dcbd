package child

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

func isFirstThread() bool { return unix.Gettid() == os.Getpid() }

// LandlockABI returns the version of the kernel's Landlock, 0 without Landlock.
var LandlockABI = sync.OnceValue(func() int {
	v, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0
	}
	return int(v)
})

// SandboxError returns the features missing on this machine for a Sandbox; nil if none.
func SandboxError() error {
	if LandlockABI() == 0 {
		return errors.New("the kernel has no Landlock: it needs Linux 5.13 with landlock among its security " +
			"modules, and a container that does not forbid it")
	}
	// A null filter address is an error; a kernel with filters reports EFAULT.
	if err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, 0, 0, 0); auditArch == 0 ||
		!errors.Is(err, unix.EFAULT) {
		return errors.New("the kernel has no filters of system calls (seccomp) for this processor")
	}
	return nil
}

const (
	// firstRights are the rights known to version 1 of Landlock.
	firstRights = unix.LANDLOCK_ACCESS_FS_MAKE_SYM<<1 - 1
	readRights  = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	// fileRights are the rights applicable to files other than folders.
	fileRights = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE |
		unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
)

// confine prevents the calling thread (of onOwnThread) and the children it starts from gaining rights beyond this
// process, for example by programs with the set-user-ID bit; and applies s unless s is nil.
func (s *Sandbox) confine(program string) error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no_new_privs: %w", err)
	}
	if s == nil {
		return nil
	}
	if err := SandboxError(); err != nil {
		return err
	}
	if err := s.landlock(program); err != nil {
		return fmt.Errorf("landlock: %w", err)
	}
	if s.NoCapabilities { // after Landlock, because Landlock opens the paths
		if err := dropCapabilities(); err != nil {
			return fmt.Errorf("capabilities: %w", err)
		}
	}
	may := none
	switch {
	case s.Network:
		may = network
	case len(s.Connect) > 0:
		may = tcp
	}
	filter := callFilter(may, s.SmallSegments)
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&prog)), 0,
		0); err != nil {
		return fmt.Errorf("seccomp: %w", err)
	}
	runtime.KeepAlive(filter)
	return nil
}

// dropCapabilities takes all capabilities from the calling thread. Because of no_new_privs, an exec restores no
// capability, even for root.
func dropCapabilities() error {
	header, has, none := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, [2]unix.CapUserData{},
		[2]unix.CapUserData{}
	if err := unix.Capget(&header, &has[0]); err != nil || has == none { // filters of systemd refuse the call below
		return err
	}
	return unix.Capset(&header, &none[0])
}

// landlock confines access to files, and, if supported by the kernel, connections and signals to other processes.
func (s *Sandbox) landlock(program string) error {
	abi := LandlockABI()
	attr := unix.LandlockRulesetAttr{Handled_access_fs: firstRights}
	if abi >= 2 {
		attr.Handled_access_fs |= unix.LANDLOCK_ACCESS_FS_REFER
	}
	if abi >= 3 {
		attr.Handled_access_fs |= unix.LANDLOCK_ACCESS_FS_TRUNCATE
	}
	if abi >= 4 && !s.Network {
		attr.Handled_access_net = unix.LANDLOCK_ACCESS_NET_BIND_TCP | unix.LANDLOCK_ACCESS_NET_CONNECT_TCP
	}
	if abi >= 5 {
		attr.Handled_access_fs |= unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	}
	if abi >= 6 {
		attr.Scoped = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL
	}
	n, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr),
		0)
	if errno != 0 {
		return errno
	}
	rules := int(n)
	defer func() { _ = unix.Close(rules) }()
	if err := allow(rules, os.DevNull, unix.LANDLOCK_ACCESS_FS_READ_FILE|
		unix.LANDLOCK_ACCESS_FS_WRITE_FILE); err != nil {
		return fmt.Errorf("%s: %w", os.DevNull, err)
	}
	for _, of := range []struct {
		paths  []string
		rights uint64
	}{
		{[]string{program}, readRights},
		{s.Read, readRights},
		{s.List, unix.LANDLOCK_ACCESS_FS_READ_DIR},
		{s.Write, attr.Handled_access_fs &^ (unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK)},
	} {
		for _, path := range of.paths {
			if err := allow(rules, path, of.rights); err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
		}
	}
	if attr.Handled_access_net != 0 {
		for _, port := range s.Connect {
			rule := struct{ access, port uint64 }{unix.LANDLOCK_ACCESS_NET_CONNECT_TCP, uint64(port)}
			if err := addRule(rules, ruleNetPort, unsafe.Pointer(&rule)); err != nil {
				return fmt.Errorf("port %d: %w", port, err)
			}
		}
	}
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(rules), 0, 0); errno != 0 {
		return errno
	}
	return nil
}

const ruleNetPort = 2 // LANDLOCK_RULE_NET_PORT

// allow gives rights to a folder and its contents, or to a file (only the rights of files); nothing for a missing
// path.
func allow(rules int, path string, rights uint64) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.EACCES):
		return nil
	case err != nil:
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		rights &= fileRights
	}
	rule := unix.LandlockPathBeneathAttr{Allowed_access: rights, Parent_fd: int32(fd)}
	return addRule(rules, unix.LANDLOCK_RULE_PATH_BENEATH, unsafe.Pointer(&rule))
}

func addRule(rules, kind int, rule unsafe.Pointer) error {
	if _, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(rules), uintptr(kind), uintptr(rule), 0, 0,
		0); errno != 0 {
		return errno
	}
	return nil
}

// sockets are the kinds of sockets allowed by a filter of system calls. Landlock knows TCP only, and not all ways to
// connect.
type sockets int

const (
	none    sockets = iota
	tcp             // over IPv4, only to connect
	network         // all
)

// maxSegment is the size of a segment of System V shared memory with Sandbox.SmallSegments. The kernel has at most 4096
// segments.
const maxSegment = 64 << 10

// callFilter returns a filter that refuses sockets other than may, and io_uring, because io_uring can make sockets,
// too. The filter also protects the limits of other processes of the same user, because Landlock does not, and a
// lowered limit makes the kernel end a process. smallSegments limits shmget.
func callFilter(may sockets, smallSegments bool) []unix.SockFilter {
	const (
		load     = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		and      = unix.BPF_ALU | unix.BPF_AND | unix.BPF_K
		equal    = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		atLeast  = unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K
		anyBit   = unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K
		number   = 0       // offsets in struct seccomp_data
		arch     = 4       //
		argument = 16      // 8 bytes each, the lower half first
		x32      = 1 << 30 // calls of another interface, on amd64
		kind     = 0xf     // of the type of a socket, without flags
	)
	refuse := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EACCES)}
	allow := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW}
	f := []unix.SockFilter{
		{Code: load, K: arch}, {Code: equal, Jt: 1, K: auditArch}, refuse,
		{Code: load, K: number}, {Code: atLeast, Jf: 1, K: x32}, refuse,
	}
	call := func(nr uint32, then ...unix.SockFilter) { // then returns
		f = append(append(f, unix.SockFilter{Code: equal, Jf: uint8(len(then)), K: nr}), then...)
	}
	call(unix.SYS_PRLIMIT64, unix.SockFilter{Code: load, K: argument}, unix.SockFilter{Code: equal, Jt: 1, K: 0},
		refuse, allow)
	if smallSegments {
		call(unix.SYS_SHMGET,
			unix.SockFilter{Code: load, K: argument + 8 + 4}, unix.SockFilter{Code: equal, Jt: 1, K: 0}, refuse,
			unix.SockFilter{Code: load, K: argument + 8}, unix.SockFilter{Code: atLeast, Jf: 1, K: maxSegment + 1},
			refuse, allow)
	}
	if may == network {
		return append(f, allow)
	}
	call(unix.SYS_IO_URING_SETUP, refuse)
	call(unix.SYS_BIND, refuse)
	call(unix.SYS_LISTEN, refuse)
	if may == none {
		call(unix.SYS_SOCKET, refuse)
		return append(f, allow)
	}
	call(unix.SYS_SOCKET,
		unix.SockFilter{Code: load, K: argument}, unix.SockFilter{Code: equal, Jt: 1, K: unix.AF_INET}, refuse,
		unix.SockFilter{Code: load, K: argument + 8}, unix.SockFilter{Code: and, K: kind},
		unix.SockFilter{Code: equal, Jt: 1, K: unix.SOCK_STREAM}, refuse,
		unix.SockFilter{Code: load, K: argument + 16}, unix.SockFilter{Code: equal, Jt: 2, K: 0},
		unix.SockFilter{Code: equal, Jt: 1, K: unix.IPPROTO_TCP}, refuse,
		allow)
	// with this flag the calls can connect
	for _, send := range []struct{ nr, flags uint32 }{{unix.SYS_SENDTO, 3}, {unix.SYS_SENDMSG, 2},
		{unix.SYS_SENDMMSG, 3}} {
		call(send.nr, unix.SockFilter{Code: load, K: argument + 8*send.flags},
			unix.SockFilter{Code: anyBit, Jf: 1, K: unix.MSG_FASTOPEN}, refuse, allow)
	}
	return append(f, allow)
}
