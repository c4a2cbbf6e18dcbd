package ssf

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

func TestRead(t *testing.T) {
	for _, c := range []struct{ yaml, want string }{
		{"a: 1.0\nb: 1\nc: \"1.0\"\nd: 1.0.0\ne: ~\nf: True\ng: [1.5, x]\nh: 1.0e+3",
			`{"a":1.0,"b":1,"c":"1.0","d":"1.0.0","e":null,"f":true,"g":[1.5,"x"],"h":1000.0}`},
		{"endpoints:\n  - id: A\n    version: 2\n  - 7: x", `{"endpoints":[{"id":"A","version":2},{"7":"x"}]}`},
		{"z: {b: 1, a: 2}\nm: [{y: 1, x: 2}]\na: 3\n9: 4", `{"z":{"b":1,"a":2},"m":[{"y":1,"x":2}],"a":3,"9":4}`},
		{"d: &d {b: 1, a: 2}\nc: {<<: *d, z: 3}", `{"d":{"b":1,"a":2},"c":{"b":1,"a":2,"z":3}}`},
		{"x: -0.5\ny: 1.0e+300", `{"x":-0.5,"y":1e+300}`},
		{"", "has no fields"}, {"- 1", "has no fields"}, {"a: [", ""}, {"a: .nan", "not finite"},
		{"a: .inf", "not finite"},
	} {
		v, err := parse([]byte(c.yaml))
		if err != nil {
			if strings.HasPrefix(c.want, "{") || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%q: error %q, want %q", c.yaml, err, c.want)
			}
			continue
		}
		if got, err := json.Marshal(v); err != nil || string(got) != c.want {
			t.Errorf("%q: %s, want %s", c.yaml, got, c.want)
		}
	}
	path := filepath.Join(t.TempDir(), "large.yaml")
	if err := os.WriteFile(path, make([]byte, maxFile+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(path); err == nil || !strings.Contains(err.Error(), "larger") {
		t.Errorf("a large file: %v", err)
	}
}

func TestParse(t *testing.T) {
	o, err := Parse(strings.Fields("run -c x.yaml -p 9000 --replicate-application 2 -rs=3 --prometheus-buckets 0.1 " +
		"0.5 1 build --key k --stdout-log-level WARNING init"))
	if err != nil {
		t.Fatal(err)
	}
	if o.Config != "x.yaml" || o.Port != 9000 || o.ReplicateApplication != 2 || o.ReplicateServer != 3 ||
		!slices.Equal(o.PrometheusBuckets, []float64{0.1, 0.5, 1}) ||
		o.Key != "k" || o.Level() != "warn" || !slices.Equal(o.Commands, []string{"init", "build", "run"}) {
		t.Errorf("read %+v", o)
	}
	if o, err := Parse([]string{"run", "-ra", "4"}); err != nil || o.ReplicateApplication != 4 || o.Port != 8100 ||
		o.BatchingTimeout != 1 || o.MaxAllowedRestarts != 2 {
		t.Errorf("read %+v, %v", o, err)
	}
}

// TestCommandsAreNoValues: the name of a command is the value of the option before the name, if the option needs a
// value.
func TestCommandsAreNoValues(t *testing.T) {
	for args, want := range map[string]struct {
		key      string
		commands []string
	}{
		"--key run build":        {"run", []string{"build"}},
		"-k run build":           {"run", []string{"build"}},
		"-krun run":              {"run", []string{"run"}},
		"--key=run run":          {"run", []string{"run"}},
		"--key build --host run": {"build", nil},
		"--stop-on-error run":    {"", []string{"run"}},
		"--key k -- run init":    {"k", []string{"init", "run"}},
		"--add-ssh-key":          {"", nil},
		"run --key init init":    {"init", []string{"init", "run"}},
	} {
		fs := pflag.NewFlagSet("ssf", pflag.ContinueOnError)
		o := Flags(fs)
		w, err := Arguments(fs, strings.Fields(args))
		if err != nil {
			t.Fatal(err)
		}
		if err := fs.Parse(w.Flags); (err != nil) != (args == "--add-ssh-key") || o.Key != want.key ||
			!slices.Equal(w.Commands, want.commands) || len(fs.Args()) > 0 {
			t.Errorf("%s: key %q, commands %q, left %q, %v", args, o.Key, w.Commands, fs.Args(), err)
		}
	}
	if _, err := Parse([]string{"-ra", "run"}); err == nil || !strings.Contains(err.Error(), "replicate-application") {
		t.Errorf("a number that is none: %v", err)
	}
	if _, err := Parse([]string{"--", "--stop-on-error"}); err == nil ||
		!strings.Contains(err.Error(), `"--stop-on-error" is not a command`) {
		t.Errorf("a command that is none: %v", err)
	}
}

func TestValues(t *testing.T) {
	o, err := Parse(strings.Fields("run --batching-timeout 2.5 --stop-on-error"))
	if err != nil {
		t.Fatal(err)
	}
	v := o.Values()
	for name, want := range map[string]any{
		"batching_timeout": 2.5, "stop_on_error": true, "key": nil, "modify_config": nil, "prometheus_port": "",
		"watchdog_ready_period": 5, "api": "fastapi",
		"replicate_application": 1, "max_allowed_restarts": 2, "fastapi_replicate_server": 1,
		"watchdog_request_threshold": 0.0,
	} {
		if v[name] != want {
			t.Errorf("%s is %#v, want %#v", name, v[name], want)
		}
	}
	if _, err := json.Marshal(v); err != nil {
		t.Error(err)
	}
}

// TestRefused has an error that names the option for each that cannot be honoured.
func TestRefused(t *testing.T) {
	for _, args := range []string{
		"fly", "--deploy-platform Paperspace", "--docker-username x", "--port x", "--port 70000", "--port=65535", "--api rest",
		"--config git@x.org:a/../b.git@", "--config https://x.org/a|../b.yaml",
		"--replicate-application 0", "-rs 0", "--batching-timeout -1", "--batching-timeout nan",
		"--watchdog-request-threshold -1", "--watchdog-ready-period -1",
		"--stdout-log-level LOUD", "--file-log-level LOUD", "--confg x", "--prometheus-buckets",
		"--prometheus-buckets x",
		"--api grpc --enable-ssl", "--api grpc -rs 2", "--grpc-max-connections 0",
		"--max-allowed-restarts -1", "--session-authentication-module-file x.py", "--session-authentication-timeout 0",
		"--watchdog-request-average 0",
	} {
		_, err := Parse(strings.Fields(args))
		name := strings.TrimLeft(strings.FieldsFunc(args, func(r rune) bool { return r == ' ' || r == '=' })[0], "-")
		if args == "-rs 0" || strings.HasSuffix(args, "-rs 2") {
			name = "fastapi-replicate-server"
		} else if strings.HasSuffix(args, "enable-ssl") {
			name = "enable-ssl"
		}
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: error %v", args, err)
		}
	}
	fs := pflag.NewFlagSet("ssf", pflag.ContinueOnError)
	Flags(fs)
	for name := range refused {
		f := fs.Lookup(name)
		if f == nil {
			t.Fatalf("%s is no option", name)
		}
		arg := "--" + name
		if f.Value.Type() != "bool" {
			arg += "=1"
		}
		if _, err := Parse([]string{arg}); err == nil || !strings.Contains(err.Error(), "--"+name+": ") {
			t.Errorf("%s: error %v", arg, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("run --prometheus-buckets 1 2 -ra 3 --modify-config=a=b")
	f.Fuzz(func(t *testing.T, args string) {
		if o, err := Parse(strings.Fields(args)); err == nil {
			if _, err := json.Marshal(o.Values()); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestUnknownOptions: options of the application, and words behind such options, are handed over, wherever they are; a
// typing error is refused.
func TestUnknownOptions(t *testing.T) {
	for args, want := range map[string]struct{ unknown, commands string }{
		"build --unknown run X init Y":              {"--unknown", "X Y build run init"},
		"--model small --depth=3 run -z 1 -p 80":    {"--model --depth=3 -z", "small 1 run"},
		"run --host h --verbose --key --flag build": {"--verbose", "run build"},
		"run": {"", "run"},
	} {
		o, err := Parse(strings.Fields(args))
		if err != nil {
			t.Errorf("%s: %v", args, err)
			continue
		}
		v := o.Values()
		if unknown, commands := v["unknown_args"].([]string), v["commands"].([]string); strings.Join(unknown, " ") !=
			want.unknown || strings.Join(commands, " ") != want.commands {
			t.Errorf("%s: %q %q, want %q", args, unknown, commands, want)
		}
	}
}

// TestMasked: options of the application have their names in the log, and no values.
func TestMasked(t *testing.T) {
	for args, want := range map[string]string{
		"--mine run --token=secret --model=b=c -t run -tsecret run -t=secret": "--mine --token=*** --model=*** -t -t*** -t=***",
		"--token -secret run":       "--token ***",
		"--token --secretly=x":      "--token ***",
		"-t -s -e --depth=1 --mine": "-t *** *** *** --mine",
		"-secret run":               "-s***",
		"--token x --flag":          "--token --flag",
	} {
		o, err := Parse(strings.Fields(args))
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(o.Masked, " "); got != want {
			t.Errorf("%s: %q, want %q", args, got, want)
		}
	}
	o, err := Parse(strings.Fields("build --mine secret run X secret init x=secret"))
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"***", "X", "***", "***"}; !slices.Equal(o.Logged, want) {
		t.Errorf("further words in the log: %q, want %q", o.Logged, want)
	}
}
