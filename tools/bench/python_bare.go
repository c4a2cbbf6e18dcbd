package main

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	files "millrace/python"
)

// barePython is a child process of a service without a server: the child gets a batch in shared memory, and the next
// batch after the answer has been copied.
type barePython struct {
	cmd     *exec.Cmd
	conn    *net.UnixConn
	in      *bufio.Reader
	memory  [2][]byte // inputs, outputs
	message []byte    // batch
	payload []byte    // of all rows
	copied  []byte
	rows    int
}

// reserved is the size of the child's progress record at the start of the memory for results.
const reserved = 64

// startBarePython starts the child as the server does, with batches of rows rows of n bytes.
func startBarePython(path, class string, rows, n int) (p *barePython, err error) {
	dir, err := files.Unpack("")
	if err != nil {
		return nil, err
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "server"), os.NewFile(uintptr(fds[1]), "child")
	defer theirs.Close()
	c, err := net.FileConn(ours)
	ours.Close()
	if err != nil {
		return nil, err
	}
	p = &barePython{conn: c.(*net.UnixConn), in: bufio.NewReader(c), rows: rows, payload: make([]byte, rows*n),
		copied: make([]byte, rows*n)}
	p.cmd = exec.Command("/usr/bin/python3", "-u", filepath.Join(dir, filepath.FromSlash(files.Child)))
	p.cmd.Env = append(os.Environ(), "MILLRACE_SOCKET=3", "PYTHONDONTWRITEBYTECODE=1")
	p.cmd.ExtraFiles, p.cmd.Stderr = []*os.File{theirs}, os.Stderr
	if err := p.cmd.Start(); err != nil {
		return nil, errors.Join(err, p.conn.Close())
	}
	defer func(p *barePython) {
		if err != nil {
			p.close()
		}
	}(p)
	hello, err := json.Marshal(map[string]any{
		"type": "hello", "protocol": 1, "name": "bare", "version": "1", "instance": 0, "parameters": map[string]any{},
		"max_batch": rows, "shared_memory": true,
		"max_result": 1 << 30, "declared": map[string]any{"inputs": []any{}, "outputs": []any{}},
		"options": map[string]any{"source": path, "class": class, "argv": []string{}},
	})
	if err != nil {
		return nil, err
	}
	for _, c := range []struct{ send, want string }{{string(hello), "model"}, {`{"type":"setup"}`, "ready"}} {
		if err := p.ask([]byte(c.send), nil, c.want); err != nil {
			return nil, err
		}
	}
	room := rows*n + reserved + reserved*rows // outputs are aligned
	for i, size := range []int{rows * n, room} {
		if err := p.share(i+1, size); err != nil {
			return nil, err
		}
	}
	requests := strings.TrimSuffix(strings.Repeat(`{"rows":1},`, rows), ",")
	p.message = fmt.Appendf(nil, `{"type":"batch","id":1,"results":{"segment":2,"offset":0,"size":%[5]d},`+
		`"inputs":[{"name":"x","datatype":"UINT8","shape":[%[2]d,%[3]d],"segment":1,"offset":0,"size":%[1]d}],`+
		`"requests":[%[4]s]}`,
		rows*n, rows, n, requests, room)
	return p, nil
}

// share gives the child a segment of n bytes.
func (p *barePython) share(id, n int) error {
	fd, err := unix.MemfdCreate("bare", unix.MFD_CLOEXEC)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.Ftruncate(fd, int64(n)); err != nil {
		return err
	}
	if p.memory[id-1], err = unix.Mmap(fd, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		return err
	}
	return p.send([]byte(`{"type":"segment","id":`+strconv.Itoa(id)+`,"size":`+strconv.Itoa(n)+`,"writable":`+
		strconv.FormatBool(id == 2)+`}`), unix.UnixRights(fd))
}

func (p *barePython) send(text, rights []byte) error {
	head := binary.LittleEndian.AppendUint32(make([]byte, 0, 8+len(text)), uint32(len(text)))
	head = append(append(head, 0, 0, 0, 0), text...)
	_, _, err := p.conn.WriteMsgUnix(head, rights, nil)
	return err
}

// ask sends a message and reads messages until a message of the type want.
func (p *barePython) ask(text, rights []byte, want string) error {
	if err := p.send(text, rights); err != nil {
		return err
	}
	for {
		var head [8]byte
		if _, err := io.ReadFull(p.in, head[:]); err != nil {
			return err
		}
		answer := make([]byte, int(binary.LittleEndian.Uint32(head[:]))+int(binary.LittleEndian.Uint32(head[4:])))
		if _, err := io.ReadFull(p.in, answer); err != nil {
			return err
		}
		switch { // without full parsing, as cheap as possible
		case strings.HasPrefix(string(answer), `{"type":"`+want+`"`):
			if want == "result" && strings.Contains(string(answer), `"error"`) {
				return fmt.Errorf("the child answered %.300s", answer)
			}
			return nil
		case strings.HasPrefix(string(answer), `{"type":"failed"`):
			return fmt.Errorf("the child answered %.300s", answer)
		}
	}
}

// rate returns rows a second.
func (p *barePython) rate(d time.Duration) (float64, error) {
	n, began := 0, time.Now()
	for time.Since(began) < d {
		copy(p.memory[0], p.payload)
		if err := p.ask(p.message, nil, "result"); err != nil {
			return 0, err
		}
		copy(p.copied, p.memory[1][reserved:])
		n += p.rows
	}
	return float64(n) / time.Since(began).Seconds(), nil
}

func (p *barePython) close() {
	p.conn.Close() // makes the child exit
	if p.cmd.Process != nil {
		p.cmd.Wait()
	}
	for _, m := range p.memory {
		if m != nil {
			unix.Munmap(m)
		}
	}
}

// startUvicorn serves an application of the file at path by uvicorn, in one process without a log, with more
// environment variables, until end is called.
func startUvicorn(path, app string, environ ...string) (addr string, pid int, end func(), err error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", 0, nil, err
	}
	addr = ln.Addr().String()
	ln.Close()
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "", 0, nil, err
	}
	module := strings.TrimSuffix(filepath.Base(path), ".py")
	cmd := exec.Command("/usr/bin/python3", "-m", "uvicorn", module+":"+app, "--port", port, "--no-access-log",
		"--log-level", "error")
	cmd.Dir, cmd.Stderr, cmd.Env = filepath.Dir(path), os.Stderr, append(os.Environ(), environ...)
	if err := cmd.Start(); err != nil {
		return "", 0, nil, err
	}
	end = func() {
		cmd.Process.Kill()
		cmd.Wait()
	}
	for began := time.Now(); time.Since(began) < 20*time.Second; time.Sleep(20 * time.Millisecond) {
		if c, err := net.Dial("tcp", addr); err == nil {
			c.Close()
			return addr, cmd.Process.Pid, end, nil
		}
	}
	end()
	return "", 0, nil, fmt.Errorf("uvicorn did not start: needs python3-fastapi and python3-uvicorn")
}
