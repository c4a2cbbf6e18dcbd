package video

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
)

// ownsPeer reports whether the other end of a connection over 127.0.0.1 belongs to a process of the group. The group
// leader is checked first. The result is false where the kernel does not reveal the owner.
func ownsPeer(conn *net.TCPConn, group int) bool {
	socket := peerSocket(conn)
	if socket == "" {
		return false
	}
	if hasSocket(strconv.Itoa(group), socket) {
		return true
	}
	list, err := os.ReadDir("/proc")
	if err != nil {
		return false
	}
	for _, e := range list {
		if pid, err := strconv.Atoi(e.Name()); err == nil && groupOf(pid) == group && hasSocket(e.Name(), socket) {
			return true
		}
	}
	return false
}

// peerSocket returns the socket at the other end of a connection, in the form of /proc/PID/fd; "" if not found.
func peerSocket(conn *net.TCPConn) string {
	local, ok1 := conn.LocalAddr().(*net.TCPAddr)
	remote, ok2 := conn.RemoteAddr().(*net.TCPAddr)
	if !ok1 || !ok2 || local.IP.To4() == nil || remote.IP.To4() == nil {
		return ""
	}
	f, err := os.Open("/proc/net/tcp")
	if err != nil {
		return ""
	}
	defer f.Close()
	hex := func(a *net.TCPAddr) string {
		return fmt.Sprintf("%08X:%04X", binary.NativeEndian.Uint32(a.IP.To4()), a.Port)
	}
	want := []byte(" " + hex(remote) + " " + hex(local) + " ")
	for s := bufio.NewScanner(f); s.Scan(); {
		if fields := bytes.Fields(s.Bytes()); bytes.Contains(s.Bytes(), want) && len(fields) > 9 {
			return "socket:[" + string(fields[9]) + "]"
		}
	}
	return ""
}

func hasSocket(pid, socket string) bool {
	dir := "/proc/" + pid + "/fd/"
	list, err := os.ReadDir(dir)
	if err != nil {
		return false
	}
	for _, e := range list {
		if to, err := os.Readlink(dir + e.Name()); err == nil && to == socket {
			return true
		}
	}
	return false
}

// groupOf returns a process's process group, 0 if unknown.
func groupOf(pid int) int {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// After the name (any characters): state, parent, group.
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 3 {
		return 0
	}
	group, _ := strconv.Atoi(fields[2])
	return group
}
