package deploy

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"millrace/apps/image"
	"millrace/internal/gittest"
	"millrace/internal/podmantest"
	"millrace/internal/testneeds"
)

// The unit of a release has the rules of the unit that documents show, and words of an application cannot end a line
// or name variables.
func TestUnit(t *testing.T) {
	shown, err := os.ReadFile("../../deploy/systemd/millrace.service")
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Name: "plain"}
	d := &systemd{&site{o: &o, folder: "/srv/100%/plain"}}
	text := d.text(&release{Number: 3, Arguments: []string{"serve", "--name", "a b\"c$D%i\nExecStart=x\rExecStart=y"},
		Health: "127.0.0.1:8000", Secrets: []string{"A"}}, []string{"PATH=/usr/bin", "X=$Y%", "Z=\rExecStartPre=z"})
	lines := strings.Split(text, "\n")
	// A release has its own folders, files of secrets and description, and no bound of memory that nobody chose.
	differs := []string{"Description", "Documentation", "ExecStart", "StateDirectory", "CacheDirectory",
		"LogsDirectory", "RuntimeDirectory", "ConfigurationDirectory", "WorkingDirectory",
		"Environment", "EnvironmentFile", "MemoryMax"}
	for line := range strings.SplitSeq(string(shown), "\n") {
		key, _, is := strings.Cut(line, "=")
		if is && !strings.HasPrefix(line, "#") && !slices.Contains(differs, key) && !slices.Contains(lines, line) {
			t.Errorf("the unit lacks %s", line)
		}
	}
	for _, want := range []string{
		`ExecStart=/usr/local/bin/millrace "serve" "--name" "a b\"c$$D%%i\x0aExecStart=x\x0dExecStart=y"`,
		`Environment="X=$Y%%"`, `Environment="Z=\x0dExecStartPre=z"`, "EnvironmentFile=/srv/100%%/plain/releases/3/secrets",
		"RootDirectory=/srv/100%%/plain/releases/3/root", "User=" + d.user(),
	} {
		if !slices.Contains(lines, want) {
			t.Errorf("the unit lacks %s:\n%s", want, text)
		}
	}
	if got := quoteValue("a\"b\\c$d`\ne"); got != "\"a\\\"b\\\\c\\$d\\`\ne\"" {
		t.Errorf("a value: %s", got)
	}
}

// The program of an image gets the rights of the service, but not those of root, which a new process has until systemd
// has changed its user.
func TestHealthyAsRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("make check runs the test, as root")
	}
	s := gittest.NewSSH(t)
	dir, ran := t.TempDir(), filepath.Join(t.TempDir(), "ran")
	for name, text := range map[string]string{"systemctl": "echo " + strconv.Itoa(os.Getpid()),
		"setpriv": "echo \"$@\" >" + ran} {
		testneeds.WriteProgram(t, filepath.Join(dir, name), "#!/bin/sh\n"+text+"\n")
	}
	s.Configure("SetEnv PATH=" + dir + ":/usr/sbin:/usr/bin:/sbin:/bin")
	d := &systemd{opened(t, s, options(t, s))}
	err := d.healthy(&release{Number: 1})
	if err == nil || !strings.Contains(err.Error(), "the rights of root") {
		t.Errorf("%v", err)
	}
	if text, err := os.ReadFile(ran); err == nil {
		t.Errorf("ran %s", text)
	}
	// A process of another user.
	c := exec.CommandContext(t.Context(), "/bin/sh") // reads a script, which does not come
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65533, Gid: 65532}}
	c.Dir = "/"
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = in.Close(), c.Wait() }()
	testneeds.WriteProgram(t, filepath.Join(dir, "systemctl"), "#!/bin/sh\necho "+strconv.Itoa(c.Process.Pid)+"\n")
	if err := d.healthy(&release{Number: 1}); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(ran); err != nil || !strings.Contains(string(text), "--userspec=+65533:+65532 ") {
		t.Errorf("ran %s, %v", text, err)
	}
}

// systemd finds no mistake in the unit of a release.
func TestUnitVerified(t *testing.T) {
	if testing.Short() {
		t.Skip("make check runs the tests with systemd")
	}
	o := Options{Name: "plain"}
	d := &systemd{&site{o: &o, folder: t.TempDir()}}
	r := &release{Number: 3, Arguments: []string{"serve", "--name", "a b$c%d"}, Health: "127.0.0.1:8000",
		Secrets: []string{"A"}}
	text := d.text(r, []string{"PATH=/usr/bin"})
	verify := func(text string) string {
		t.Helper()
		file := filepath.Join(t.TempDir(), d.unit(r))
		// systemd-analyze looks for the program on this machine, not in the root folder.
		text = strings.Replace(text, "ExecStart=/usr/local/bin/millrace", "ExecStart=/bin/true", 1)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		out, _ := exec.Command(testneeds.Program(t, "systemd-analyze"), "verify", file).CombinedOutput()
		return strings.TrimSpace(string(out))
	}
	if said := verify(text); said != "" {
		t.Errorf("systemd-analyze: %s", said)
	}
	if said := verify(strings.Replace(text, "KillMode=mixed", "KillMode=mixd", 1)); !strings.Contains(said, "mixd") {
		t.Errorf("systemd-analyze does not see a mistake: %s", said)
	}
}

// machine is a container with systemd as the first process, which has the programs and the network of this machine.
type machine struct {
	*podmantest.Service
	t    *testing.T
	root string       // the folder of its files
	host *gittest.SSH // on the machine
}

const machineName = "machine"

// newMachine starts a machine. Nothing of this machine can be written there.
func newMachine(t *testing.T) *machine {
	t.Helper()
	service := podmantest.Start(t)
	testneeds.Program(t, "systemd-analyze")
	testneeds.Program(t, "dbus-daemon")
	sshd := testneeds.Program(t, "sshd")
	root := t.TempDir()
	for _, dir := range []string{"usr", "var/lib", "var/log", "var/tmp", "var/cache", "run", "tmp", "proc", "sys",
		"dev", "srv", "root/ssh", "etc/systemd/system", "etc/pam.d", "var/lib/systemd/linger", "home/ann"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"bin", "sbin", "lib", "lib64"} {
		if err := os.Symlink("usr/"+name, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{"machine-id": "", "nsswitch.conf": "passwd: files systemd\n",
		"passwd": "root:x:0:0:root:/root:/bin/sh\nsshd:x:104:65534::/run/sshd:/usr/sbin/nologin\n" +
			"messagebus:x:105:105::/:/usr/sbin/nologin\nann:x:1000:1000::/home/ann:/bin/sh\n",
		"group": "root:x:0:\nnogroup:x:65534:\nmessagebus:x:105:\nann:x:1000:\n",
		"pam.d/systemd-user": "account required pam_permit.so\nsession required pam_permit.so\n" +
			"session optional pam_systemd.so\n",
		"shadow": "root:*:19000:0:99999:7:::\n"} {
		if err := os.WriteFile(filepath.Join(root, "etc", name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	m := &machine{Service: service, t: t, root: root}
	program := filepath.Join(service.Program(), "podman")
	m.do("run", "--detach", "--name", machineName, "--systemd", "always", "--network", "host", "--cap-add", "all",
		"--security-opt", "seccomp=unconfined", "--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024",
		"--volume", "/usr:/usr:ro", "--env", "container=podman", "--rootfs", root, "/lib/systemd/systemd",
		"--unit=basic.target")
	t.Cleanup(func() { m.do("rm", "--force", "--time", "0", machineName) })
	m.awaitBoot()
	// The server of SSH runs on the machine, with the files of its folder here.
	dir := t.TempDir()
	testneeds.WriteProgram(t, filepath.Join(dir, "sshd"), fmt.Sprintf(`#!/bin/sh
d=$(dirname "$4")
cp "$d"/* %[1]s/root/ssh/
sed -i "s#$d#/root/ssh#g" %[1]s/root/ssh/sshd_config
exec %[2]s exec -i %[3]s %[4]s -i -e -f /root/ssh/sshd_config
`, root, program, machineName, sshd))
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	m.host = gittest.NewSSH(t)
	return m
}

// awaitBoot waits until the services have started.
func (m *machine) awaitBoot() {
	m.t.Helper()
	for {
		state, _ := m.Do("exec", machineName, "systemctl", "is-system-running")
		if state == "running" || state == "degraded" {
			break
		}
		if m.t.Context().Err() != nil {
			m.t.Fatalf("systemd is %s", state)
		}
		time.Sleep(50 * time.Millisecond)
	}
	m.in("mkdir", "-p", "/run/sshd")
}

// reboot ends all processes of the machine, and starts it again.
func (m *machine) reboot() {
	m.t.Helper()
	m.do("restart", "--time", "10", machineName)
	m.awaitBoot()
	m.in("systemctl", "start", "multi-user.target")
}

// do runs a command of podman.
func (m *machine) do(args ...string) string {
	m.t.Helper()
	out, err := m.Do(args...)
	if err != nil {
		m.t.Errorf("%v: %v: %s", args, err, out)
	}
	return out
}

// in runs a command on the machine.
func (m *machine) in(args ...string) string {
	m.t.Helper()
	return m.do(append([]string{"exec", machineName}, args...)...)
}

// A host with systemd gets releases as services: no request is lost in a switch, a release that does not start is
// rolled back, and remove, and a first release that does not start, leave nothing.
func TestSystemd(t *testing.T) {
	m := newMachine(t)
	at := []Target{target(m.host)}
	o := options(t, m.host)
	o.Folder, o.With, o.HTTP, o.GRPC = "", Systemd, freePort(t), "off"
	o.Secrets = []Secret{{"GREETING", []byte(secret + " \"$x`\n\\")}}
	var got Result
	deploy := func(c *image.Contents) error {
		t.Helper()
		o.Image = c
		return Run(t.Context(), at, o, "ann", func(r Result) { got = r })
	}
	first, second := packed(t), repack(t, sameModels+"# changed\n")
	nothing := func(after string) {
		t.Helper()
		left := m.in("find", "/etc", "/var", "/home", "-name", "*millrace-other*", "-o", "-name", "*millrace-anns*",
			"-o", "-name", "*millrace-plain*", "-o",
			"-path", "/var/lib/millrace-apps/*")
		if left != "" {
			t.Errorf("left after %s: %s", after, left)
		}
	}
	broken := repack(t, brokenModels)
	if err := deploy(broken); err == nil || !strings.Contains(err.Error(), "no other release is there") {
		t.Errorf("a broken first release: %v", err)
	}
	nothing("a broken first release")
	if err := deploy(first); err != nil {
		t.Fatal(err)
	}
	pid := m.in("systemctl", "show", "--property=MainPID", "--value", "millrace-plain-r1")
	if env := m.in("cat", "/proc/"+pid+"/environ"); !strings.Contains(env, "GREETING="+string(o.Secrets[0].Value)+
		"\x00") {
		t.Errorf("the application does not have the secret: %q", env)
	}
	if text := m.in("cat", "/etc/systemd/system/millrace-plain-r1.service"); strings.Contains(text, secret) {
		t.Error("the unit has the secret")
	}
	stop := load(o.HTTP)
	err := deploy(second)
	sent, lost, why := stop(1000)
	t.Logf("%+v; %d requests, %d lost", got, sent, lost)
	if err != nil || lost > 0 || got.Release != 2 || got.Copied > 100<<10 {
		t.Fatalf("%+v, %v, lost %d: %v", got, err, lost, why)
	}
	if err := deploy(broken); err == nil ||
		!strings.Contains(err.Error(), "none-such") || !strings.Contains(err.Error(), "release 2 serves") {
		t.Errorf("a broken release: %v", err)
	}
	units := m.in("systemctl", "list-units", "--all", "--plain", "--no-legend", "millrace-*")
	if !strings.HasPrefix(units, "millrace-plain-r2.service") || strings.Contains(units, "\n") {
		t.Errorf("units: %s", units)
	}
	if text := m.in("systemctl", "is-enabled", "millrace-plain-r2"); text != "enabled" {
		t.Errorf("at boot: %s", text)
	}
	starts := m.containersAtBoot(o)
	m.reboot()
	for {
		text, err := os.ReadFile(starts)
		if err == nil && strings.Contains(string(text), "root start millrace-other-r7\n") &&
			strings.Contains(string(text), "ann start millrace-anns-r8\n") {
			break
		}
		if state, _ := m.Do("exec", machineName, "systemctl", "is-active", "user@1000"); state == "failed" ||
			t.Context().Err() != nil {
			t.Fatalf("podman after a boot: %q, %v; the user's systemd is %s: %s", text, err, state,
				m.in("journalctl", "--boot", "--no-pager", "--lines", "50"))
		}
		time.Sleep(100 * time.Millisecond)
	}
	for at := opened(t, m.host, o); ; {
		err := ask(&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}, o.HTTP, "same")
		if err == nil {
			at.close()
			break
		}
		if st, e := (&systemd{at}).status(&release{Number: 2}); e != nil || !st[0].running || t.Context().Err() != nil {
			t.Fatalf("after a boot: %v, %+v, %v", err, st, e)
		}
		time.Sleep(10 * time.Millisecond)
	}
	var log bytes.Buffer
	if err := Logs(t.Context(), at, o, 5, false, func(Target) io.Writer { return &log }); err != nil ||
		!strings.Contains(log.String(), "millrace is ready: http://"+o.HTTP) {
		t.Errorf("logs: %v, %s", err, &log)
	}
	if err := Remove(t.Context(), at, o, "ann", true, func(Target, bool) {}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"other", "anns"} {
		at := opened(t, m.host, Options{Name: name, SSH: o.SSH, With: Podman})
		if name == "anns" {
			at.uid, at.home = "1000", "/home/ann"
		}
		if err := at.removeAll(false); err != nil {
			t.Error(err)
		}
	}
	nothing("remove")
}

// containersAtBoot lets a container of root and a container of the user ann start with the machine, which cannot run
// containers itself, and returns the file in which the program podman there writes its user and its arguments.
func (m *machine) containersAtBoot(o Options) (file string) {
	m.t.Helper()
	testneeds.WriteProgram(m.t, filepath.Join(m.root, "srv/podman"),
		"#!/bin/sh\necho \"$(id -un) $*\" >>/srv/starts\n")
	m.host.Configure("SetEnv PATH=/srv:/usr/sbin:/usr/bin")
	m.in("install", "-m", "666", "/dev/null", "/srv/starts")
	o.Name = "other"
	at := opened(m.t, m.host, o)
	if err := (&podman{at}).boot(&release{Number: 7}, nil); err != nil {
		m.t.Error(err)
	}
	at.close()
	o.Name = "anns"
	at = opened(m.t, m.host, o)
	defer at.close()
	at.uid, at.home = "1000", "/home/ann" // as in a session of ann
	if err := (&podman{at}).boot(&release{Number: 8}, nil); err != nil {
		m.t.Error(err)
	}
	m.in("chown", "-R", "ann:ann", "/home/ann")
	m.in("touch", "/var/lib/systemd/linger/ann") // what loginctl enable-linger does
	return filepath.Join(m.root, "srv/starts")
}
