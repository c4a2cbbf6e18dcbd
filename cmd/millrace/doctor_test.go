package main

import (
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"millrace/internal/child"
	"millrace/internal/testneeds"
)

// diagnose runs the doctor in an environment, and returns the findings by name and the exit status.
func diagnose(t *testing.T, c *exec.Cmd) (found map[string]diagnosis, code int) {
	t.Helper()
	out, stderr, code := finish(t, c)
	var list []diagnosis
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		t.Fatalf("exit status %d, %v\n%s%s", code, err, out, stderr)
	}
	found = map[string]diagnosis{}
	for _, s := range list {
		found[s.What] = s
		if s.State != healthy && s.Do == "" {
			t.Errorf("%+v does not say what to do", s)
		}
		if (s.State == fails) && !strings.Contains(stderr, s.What) {
			t.Errorf("%q is not in %q", s.What, stderr)
		}
	}
	return found, code
}

func wantSymptom(t *testing.T, found map[string]diagnosis, what, state string, words ...string) {
	t.Helper()
	s, has := found[what]
	if !has || s.State != state {
		t.Errorf("%s is %+v, want %s", what, s, state)
	}
	for _, w := range words {
		if !strings.Contains(s.Detail+s.Do, w) {
			t.Errorf("%s: %+v does not have %q", what, s, w)
		}
	}
}

// withoutPrograms hides the machine's programs from a command. With ffmpeg in PATH, a doctor starts ffmpeg five times
// and ffprobe once, which takes a second of processor time.
func withoutPrograms(t *testing.T, c *exec.Cmd) *exec.Cmd {
	t.Helper()
	c.Env = append(c.Env, "PATH="+t.TempDir())
	return c
}

// freeAddr returns an address on which nothing listens.
func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// A named method that cannot be used fails; auto does not fail.
func TestDoctorTriesHardware(t *testing.T) {
	off := []string{"doctor", "--json", "--grpc", "off", "--http", freeAddr(t)}
	for set, want := range map[string]string{"vaapi": fails, "auto": healthy} {
		c := command(t, append(off, "--sources-hwaccel", set)...)
		c.Env = append(c.Env, "LIBVA_DRIVER_NAME=none")
		found, _ := diagnose(t, c)
		s := found["hardware decoding"]
		if s.State != want || !strings.Contains(s.Detail, "sources.hwaccel is "+set) ||
			(s.Do == "") != (want == healthy) {
			t.Errorf("%s: %+v", set, s)
		}
		if set == "vaapi" && !strings.Contains(s.Detail, "vaapi cannot be used: ") {
			t.Errorf("%s: %+v", set, s)
		}
	}
}

func TestDoctorTriesTheSandbox(t *testing.T) {
	off := []string{"doctor", "--json", "--grpc", "off", "--http", freeAddr(t)}
	found, _ := diagnose(t, command(t, append(off, "--sandbox", "off")...))
	wantSymptom(t, found, "sandbox of ffmpeg", warns, "sandbox is off")
	if err := child.SandboxError(); err != nil {
		t.Skip(err)
	}
	folder := t.TempDir() // with a program that reads its own folder, like a snap's program
	testneeds.WriteProgram(t, filepath.Join(folder, "ffmpeg"), "#!/bin/sh\nread -r line <\"${0%/*}/part\"\n")
	if err := os.WriteFile(filepath.Join(folder, "part"), []byte("part"), 0o600); err != nil {
		t.Fatal(err)
	}
	for set, want := range map[string]string{"auto": warns, "require": fails} {
		c := command(t, append(off, "--sandbox", set)...)
		c.Env = append(c.Env, "PATH="+folder)
		found, _ := diagnose(t, c)
		wantSymptom(t, found, "sandbox of ffmpeg", want, "ermission denied")
	}
}

func TestDoctorTriesPrograms(t *testing.T) {
	off := []string{"doctor", "--json", "--grpc", "off", "--http", freeAddr(t)}
	found, _ := diagnose(t, command(t, off...))
	wantSymptom(t, found, "sandbox of programs", healthy, "confine.programs is off")
	if err := child.SandboxError(); err != nil {
		t.Skip(err)
	}
	found, _ = diagnose(t, command(t, append(off, "--confine-programs", "require")...))
	wantSymptom(t, found, "sandbox of programs", healthy, "with Landlock")
	folder := t.TempDir() // with an interpreter that reads its own folder
	testneeds.WriteProgram(t, filepath.Join(folder, "python3"), "#!/bin/sh\nread -r line <\"${0%/*}/part\"\n")
	if err := os.WriteFile(filepath.Join(folder, "part"), []byte("part"), 0o600); err != nil {
		t.Fatal(err)
	}
	for set, want := range map[string]string{"auto": warns, "require": fails} {
		c := command(t, append(off, "--confine-programs", set)...)
		c.Env = append(c.Env, "PATH="+folder)
		found, _ := diagnose(t, c)
		wantSymptom(t, found, "sandbox of programs", want, "ermission denied")
	}
	found, _ = diagnose(t, command(t, append(off, "--confine-programs", "auto", "--auth-keys",
		filepath.Join(folder, "part"), "--confine-write", folder)...))
	wantSymptom(t, found, "sandbox of programs", warns, "confine.write: programs could change")
}

func TestDoctorOnAHealthyMachine(t *testing.T) {
	addr := freeAddr(t)
	found, code := diagnose(t, command(t, "doctor", "--json", "--grpc", "off", "--http", addr))
	if code != 0 {
		t.Errorf("exit status %d", code)
	}
	for _, what := range []string{"configuration", "processors", "memory", "ffmpeg", "ffprobe", "ffmpeg's decoders",
		"ffmpeg's demuxers", "ffmpeg's protocols", "hardware decoding", "port of http", "server"} {
		s := found[what]
		if what == "processors" && s.State == warns { // a container may have fewer than the machine
			continue
		}
		wantSymptom(t, found, what, healthy)
	}
	wantSymptom(t, found, "server", healthy, "none answers at http://"+addr)
	if child.SandboxError() == nil {
		wantSymptom(t, found, "sandbox of ffmpeg", healthy, "with Landlock")
	}
	if s, has := found["clock"]; !has || s.State == fails {
		t.Errorf("clock: %+v", s)
	}
	if _, has := found["port of grpc"]; has {
		t.Error("a listener that is off has a port")
	}
}

// TestDoctorFindsWhatIsWrong provokes faults one by one.
func TestDoctorFindsWhatIsWrong(t *testing.T) {
	off := []string{"doctor", "--json", "--grpc", "off", "--http", freeAddr(t)}
	garbage := filepath.Join(t.TempDir(), "libonnxruntime.so")
	if err := os.WriteFile(garbage, []byte("no library"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Run("no ffmpeg", func(t *testing.T) {
		c := command(t, off...)
		c.Env = append(c.Env, "PATH="+t.TempDir())
		found, code := diagnose(t, c)
		wantSymptom(t, found, "ffmpeg", warns, "cameras cannot be read", "apt-get install ffmpeg")
		wantSymptom(t, found, "ffprobe", warns)
		if code != 0 {
			t.Errorf("exit status %d for what is optional", code)
		}
	})
	t.Run("an ffmpeg without codecs, and a gpu whose driver fails", func(t *testing.T) {
		dir := t.TempDir()
		for name, script := range map[string]string{
			"ffmpeg": "echo 'ffmpeg version 0'; echo ' V..... mjpeg one'", "ffprobe": "echo ffprobe",
			"nvidia-smi": "echo no devices were found; exit 6",
		} {
			testneeds.WriteProgram(t, filepath.Join(dir, name), "#!/bin/sh\n"+script+"\n")
		}
		c := command(t, off...)
		c.Env = append(c.Env, "PATH="+dir)
		found, _ := diagnose(t, c)
		wantSymptom(t, found, "ffmpeg", healthy)
		wantSymptom(t, found, "ffmpeg's decoders", warns, "missing: h264", "mpeg4")
		if strings.Contains(found["ffmpeg's decoders"].Detail, "mjpeg") {
			t.Errorf("%+v", found["ffmpeg's decoders"])
		}
		wantSymptom(t, found, "ffmpeg's demuxers", warns, "rtsp")
		wantSymptom(t, found, "nvidia gpu", warns, "no devices were found")
	})
	t.Run("few open files", func(t *testing.T) {
		for limit, state := range map[string]string{"200": fails, "1000": warns} {
			c := withoutPrograms(t, command(t, off...))
			path := testneeds.Program(t, "prlimit")
			c.Args = append([]string{path, "--nofile=" + limit + ":" + limit},
				append([]string{c.Path}, c.Args[1:]...)...)
			c.Path = path
			found, code := diagnose(t, c)
			wantSymptom(t, found, "open files", state, limit, "ulimit -n 16640")
			if (code == 1) != (state == fails) {
				t.Errorf("exit status %d", code)
			}
		}
	})
	t.Run("a port that is taken", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		found, _ := diagnose(t, withoutPrograms(t, command(t, "doctor", "--json", "--http", "127.0.0.1:0", "--grpc",
			"off", "--metrics-address", l.Addr().String())))
		wantSymptom(t, found, "port of metrics", fails, l.Addr().String()+" is in use by ", "--metrics-address")
		found, code := diagnose(t, withoutPrograms(t, command(t, "doctor", "--json", "--http", "off", "--grpc",
			l.Addr().String())))
		wantSymptom(t, found, "port of grpc", fails, l.Addr().String()+" is in use by ", "--grpc")
		if pid := found["port of grpc"].Detail; !strings.Contains(pid, "process ") || code != 1 {
			t.Errorf("exit status %d, %s", code, pid)
		}
		found, _ = diagnose(t, withoutPrograms(t, command(t, "doctor", "--json", "--http", "192.0.2.1:80", "--grpc",
			"off")))
		wantSymptom(t, found, "port of http", fails, "192.0.2.1")
	})
	t.Run("a broken library, and too much memory", func(t *testing.T) {
		found, code := diagnose(t, withoutPrograms(t, command(t, append(off, "--onnx-library", garbage,
			"--memory-budget", "900GiB")...)))
		wantSymptom(t, found, "onnx runtime", fails, garbage)
		wantSymptom(t, found, "memory", fails, "900.0 GiB")
		if code != 1 {
			t.Errorf("exit status %d", code)
		}
	})
	t.Run("no library", func(t *testing.T) { // the cache folder of the tests is empty
		found, _ := diagnose(t, withoutPrograms(t, command(t, off...)))
		if s := found["onnx runtime"]; s.State == fails {
			t.Errorf("%+v", s)
		}
	})
	t.Run("a configuration", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "m.yaml")
		if err := os.WriteFile(file, []byte("modles: []\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		found, code := diagnose(t, withoutPrograms(t, command(t, append(off, "--config", file)...)))
		wantSymptom(t, found, "configuration", fails, "modles")
		if code != 1 {
			t.Errorf("exit status %d", code)
		}
	})
	t.Run("no server", func(t *testing.T) {
		addr := freeAddr(t)
		found, code := diagnose(t, withoutPrograms(t, command(t, append(off, "--addr", addr)...)))
		wantSymptom(t, found, "server", fails, addr, "start a server")
		if code != 1 {
			t.Errorf("exit status %d", code)
		}
	})
	if _, stderr, code := millrace(t, "doctor", "--loud"); code != 2 || !strings.Contains(stderr, "--loud") {
		t.Errorf("exit status %d\n%s", code, stderr)
	}
}

// TestDoctorAsksTheServer checks a server with a stream without a source, and a stream that runs although one of its
// models is not loaded.
func TestDoctorAsksTheServer(t *testing.T) {
	file := filepath.Join(t.TempDir(), "m.yaml")
	text := "models: [{name: echo, source: identity}]\nstreams:\n  - {name: gone, source: \"http://" + freeAddr(t) +
		"/v\", model: echo}\n" +
		"  - {name: half, source: \"folder:" + filepath.Dir(picture(t)) +
		"\", loop: true, fps: 10, models: [{model: echo}, {model: missing}]}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	_, addr := serve(t, "--config", file)
	var found map[string]diagnosis
	var code int
	limit := time.Now().Add(time.Minute)
	for { // until the source has failed and is not being reopened, and the other stream runs
		found, code = diagnose(t, withoutPrograms(t, command(t, "doctor", "--json", "--http", addr, "--grpc", "off",
			"--addr", addr)))
		_, waits := found["stream half"] // the streams wait for echo before the load of echo
		gone := found["stream gone"]
		if gone.State != "" && !strings.HasPrefix(gone.Detail, "waiting: ") &&
			found["model missing of stream half"].State != "" && !waits {
			break
		}
		if time.Now().After(limit) {
			t.Fatalf("exit status %d, and never the diagnoses of both streams: %+v", code, found)
		}
	}
	wantSymptom(t, found, "server", healthy, addr, "is ready", "v1.2.3")
	wantSymptom(t, found, "port of http", healthy, "is in use by ", "), which is a millrace server")
	wantSymptom(t, found, "stream gone", warns, "refused")
	wantSymptom(t, found, "model missing of stream half", warns, "waiting", "not loaded",
		"millrace models load missing")
	for _, well := range []string{"stream half", "model echo of stream half", "model echo of stream gone"} {
		if s, has := found[well]; has {
			t.Errorf("%+v", s)
		}
	}
	if code != 0 {
		t.Errorf("exit status %d", code)
	}
	var out string
	for !strings.Contains(out, "stream gone") {
		var stderr string
		out, stderr, code = finish(t, withoutPrograms(t, command(t, "doctor", "--http", addr, "--grpc", "off", "--addr",
			addr)))
		if code != 0 || time.Now().After(limit) {
			t.Fatalf("exit status %d\n%s%s", code, out, stderr)
		}
	}
	if code != 0 || !strings.Contains(out, "warn  stream gone") || !strings.Contains(out, "-> check its source") {
		t.Errorf("exit status %d\n%s", code, out)
	}
}

// Without --addr the doctor asks the configured server, and advised commands name this server. The advice for a
// stream with an unloaded model is about the model.
func TestDoctorAsksTheServerOfTheConfiguration(t *testing.T) {
	file := filepath.Join(t.TempDir(), "m.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("streams: [{name: six, source: clip.mp4, model: ghost}]\n")
	_, addr := serve(t, "--config", file)
	for limit := time.Now().Add(time.Minute); ; {
		out, stderr, code := millrace(t, "streams", "--addr", addr)
		if strings.Contains(out, "waiting") {
			break
		}
		if code != 0 || time.Now().After(limit) {
			t.Fatalf("exit status %d, and the stream does not wait\n%s%s", code, out, stderr)
		}
	}
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	for _, http := range []string{addr, "0.0.0.0:" + port} {
		write("http: \"" + http + "\"\ngrpc: \"off\"\ninsecure: true\n")
		found, _ := diagnose(t, withoutPrograms(t, command(t, "doctor", "--json", "--config", file)))
		wantSymptom(t, found, "server", healthy, "127.0.0.1:"+port+" is ready")
		wantSymptom(t, found, "stream six", warns, `"ghost" is not loaded: see millrace models`)
		if do := found["stream six"].Do; do != "load the model, if it is not loaded: millrace models load ghost "+
			"--addr 127.0.0.1:"+port {
			t.Errorf("%s", do)
		}
	}
}

// The certificates of tls.acme, without any certificate.
func TestDoctorLooksForCertificates(t *testing.T) {
	found, _ := diagnose(t, withoutPrograms(t, command(t, "doctor", "--json", "--http", freeAddr(t), "--grpc", "off",
		"--tls-acme-domains", "models.invalid", "--tls-acme-accept-terms", "--tls-acme-cache", t.TempDir())))
	wantSymptom(t, found, "certificate", warns, "there is none for models.invalid in tls.acme.cache",
		"add the name to the DNS")
}
