package ssf

import (
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"millrace/apps"
	"millrace/compat/style"
)

func TestPackaging(t *testing.T) {
	config, err := parse([]byte("application: {id: app, version: 1.0, package: {tag: 'team/{{application.id}}:" +
		"{{ application.version }}', exclusions: [intermediates/**/*, '*.bin', 'a[!b]c', 'x?/y']}}\nendpoints: []\n"))
	if err != nil {
		t.Fatal(err)
	}
	n := &apps.Needs{}
	app := config.Get("application").(Section)
	if err := pack(n, config, app.Get("package")); err != nil || n.Image != "team/app:1.0" {
		t.Fatalf("%q %v", n.Image, err)
	}
	for name, want := range map[string]bool{
		"intermediates/a": true, "intermediates/a/b.txt": true, "intermediates": false, "a.bin": true,
		"sub/a.bin": false,
		"adc":       true, "abc": false, "x1/y": true, "x1/z": false, "app.py": false, "abin": false,
		logFile: true, "sub/" + earlierLog: true, "ssf.log.py": false,
	} {
		if n.Exclude(name) != want {
			t.Errorf("%s is left out: %v", name, !want)
		}
	}
	// The log of publish is no change since package.
	plain := &apps.Needs{}
	if err := pack(plain, config, nil); err != nil || !plain.Exclude(logFile) || plain.Exclude("app.py") {
		t.Errorf("without the section package: %v", err)
	}
	for text, want := range map[string]string{
		"{tags: x}": "package.tags: is not known", "{exclusions: ['[a']}": "no pattern",
		"{exclusions: [../x]}": "no pattern",
		"{exclusions: 3}":      "want a text or a list", "x": "want fields",
	} {
		config, err := parse([]byte("package: " + text))
		if err != nil {
			t.Fatal(err)
		}
		if err := pack(n, config, config.Get("package")); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	if got := expand("{{a.b}} {{application.package}} {{application.id}}", config); got !=
		"{{a.b}} {{application.package}} app" {
		t.Error(got)
	}
}

// TestAppArguments: package, publish and deploy run millrace app with the options of gc-ssf, and fail with the result
// codes of gc-ssf.
func TestAppArguments(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for name, section := range map[string]string{"tagged.yaml": "tag: 'registry.example.org/a:{{application.id}}'",
		"plain.yaml": "tag: team/a", "docker.yaml": "docker: {run: RUN true}"} {
		text := "application: {id: app, module: app.py, package: {" + section + ", exclusions: [none, '*.yaml']}}\n" +
			"endpoints: [{id: E}]\n"
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("KEY", "private")
	for _, of := range []struct {
		args, want string
		status     int
	}{
		{"-c tagged.yaml package", "package --python python3 --image registry.example.org/a:app", 0},
		{"-c plain.yaml package --package-baseimage base.tar", "package --python python3 --image localhost/team/a --base " +
			"base.tar", 0},
		{"-c docker.yaml package", "", 36}, {"-c plain.yaml package --modify-config a=b", "", 36},
		{"-c plain.yaml publish", "", 7}, {"-c tagged.yaml deploy", "", 177},
		{"-c plain.yaml publish --package-tag localhost:5000/a:1 --docker-username u --docker-password p",
			"publish --image localhost:5000/a:1 --registry-user u --registry-password MILLRACE_SSF_PASSWORD", 0},
		{"-c tagged.yaml deploy --deploy-gcore-target-address h --deploy-gcore-target-username u --key k --port 80 " +
			"--add-ssh-key KEY", "deploy --target u@h --http 127.0.0.1:80 --grpc off --image registry.example.org/a:app " +
			"--secret MILLRACE_API_KEY:MILLRACE_SSF_KEY --add-ssh-key KEY:KEY", 0},
		{"-c tagged.yaml deploy --add-ssh-key NONE", "", 5},
	} {
		o, err := Parse(strings.Fields(of.args))
		if err != nil {
			t.Fatal(err)
		}
		var got string
		o.sshKeys = map[string]string{}
		for _, name := range o.AddSSHKey {
			o.sshKeys[name] = os.Getenv(name)
		}
		c := &style.Call{Context: t.Context(), Out: io.Discard, Err: io.Discard, App: func(args []string) error {
			config := dir + "|" + o.Config
			if got = strings.Join(args, " "); !strings.HasPrefix(got, "--config "+config+" ") {
				t.Errorf("%s: %s", of.args, got)
			}
			got = strings.TrimPrefix(got, "--config "+config+" ")
			for variable, want := range map[string]string{"MILLRACE_SSF_PASSWORD": "p", "MILLRACE_SSF_KEY": "k"} {
				if strings.Contains(got, variable) && os.Getenv(variable) != want {
					t.Errorf("%s: %s is %q", of.args, variable, os.Getenv(variable))
				}
			}
			return nil
		}}
		if of.status == 5 {
			_, err = o.locate(c)
		} else {
			a, fault := readApplication(o)
			if fault != nil {
				t.Fatal(fault)
			}
			switch o.Commands[0] {
			case "package":
				err = a.pack(c, o)
			case "publish":
				err = a.publish(c, o)
			case "deploy":
				err = a.deploy(c, o)
			}
		}
		var exit style.StatusError
		_ = errors.As(err, &exit)
		if exit.Status != of.status || got != of.want || of.status == 0 && err != nil {
			t.Errorf("%s: %s, %v, want %s", of.args, got, err, of.want)
		}
	}
}
