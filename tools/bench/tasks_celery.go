package main

import (
	_ "embed"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

//go:embed tasks_celery.py
var celeryScript []byte

// celeryClients is the number of clients, each a process of Python. With more clients, Celery does fewer tasks a second
// on two processors.
const celeryClients = 4

// tasksBesideCelery compares tasks that do nothing with the tasks of Celery, whose broker and result store is Redis:
// two Python workers, and the same clients.
func tasksBesideCelery(b *bench) error {
	const python = "/usr/bin/python3" // Debian's packages are for this interpreter
	if err := exec.Command(python, "-c", "import celery, redis").Run(); err != nil {
		return errors.New("needs python3-celery, python3-redis and redis-server: scripts/deps.sh bench")
	}
	for _, of := range [][2]string{{"interval", "everysec"}, {"always", "always"}} {
		if err := b.besideCelery(python, of[0], of[1]); err != nil {
			return fmt.Errorf("sync %s: %w", of[0], err)
		}
	}
	return nil
}

func (b *bench) besideCelery(python, sync, appendfsync string) (err error) {
	dir, err := os.MkdirTemp(b.dir, "celery")
	if err != nil {
		return err
	}
	script := filepath.Join(dir, "tasks_celery.py")
	if err := os.WriteFile(script, celeryScript, 0o600); err != nil {
		return err
	}
	port, err := freePort()
	if err != nil {
		return err
	}
	redis := exec.Command("redis-server", "--bind", "127.0.0.1", "--port", port, "--dir", dir, "--save", "",
		"--appendonly", "yes", "--appendfsync", appendfsync)
	broker := "redis://127.0.0.1:" + port
	worker := exec.Command(python, "-m", "celery", "-A", "tasks_celery", "worker", "--concurrency", "2", "--loglevel",
		"error", "--without-gossip", "--without-mingle")
	for _, cmd := range []*exec.Cmd{redis, worker} {
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "BROKER="+broker, "C_FORCE_ROOT=1")
		if err := cmd.Start(); err != nil {
			return err
		}
		defer func() {
			_ = cmd.Process.Signal(syscall.SIGTERM)
			_ = cmd.Wait()
		}()
	}
	s, err := startServer(fmt.Sprintf("data: %s\ntasks: {sync: %s, slots: 2}\nmodels: [{name: nothing, source: %s, "+
		"instances: 2, class: Nothing, python: %s}]\n", filepath.Join(dir, "data"), sync, script, python))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.end()) }()
	var medians [2][]float64
	client := func(side int, address string) measurement {
		return func(d time.Duration) (float64, error) {
			var rate, p50 float64
			cmd := exec.Command(python, script, address, fmt.Sprint(celeryClients), fmt.Sprint(4*d.Seconds()))
			cmd.Env = append(os.Environ(), "BROKER="+broker)
			var said strings.Builder
			cmd.Stderr = &said
			out, err := cmd.Output()
			if err == nil {
				_, err = fmt.Sscan(string(out), &rate, &p50)
			}
			if err != nil {
				return 0, fmt.Errorf("tasks_celery.py %s: %w: %.500s", address, err, said.String())
			}
			medians[side] = append(medians[side], p50)
			return rate, nil
		}
	}
	for i, address := range []string{"celery", s.addr} { // until the workers are ready
		if _, err := client(i, address)(100 * time.Millisecond); err != nil {
			return err
		}
		medians[i] = nil
	}
	of := fmt.Sprintf(", %d Python clients, sync %s, against Celery with Redis, appendfsync %s", celeryClients, sync,
		appendfsync)
	row, err := b.pair("tasks that do nothing"+of, "/s", client(0, "celery"), client(1, s.addr))
	if err != nil {
		return err
	}
	b.add(row.atLeast(3))
	p := Row{Name: "p50 of tasks that do nothing" + of, Unit: "ms", Bare: median(medians[0]),
		Millrace: median(medians[1])}
	p.Ratio = p.Millrace / p.Bare
	b.add(p.atMost(0.5))
	return nil
}

func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, err
}
