package ssf

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"millrace/apps/source"
	"millrace/internal/setting"
	"millrace/tracing"
)

// Options are the options of the command line.
type Options struct {
	Config, API                                  string
	ModifyConfig, FileLogLevel, StdoutLogLevel   string
	Host                                         string
	Port                                         int
	ReplicateApplication, ReplicateServer        int
	Key                                          string
	WatchdogRequestThreshold                     float64 // seconds
	WatchdogRequestAverage                       int
	WatchdogReadyPeriod                          int     // seconds
	BatchingTimeout                              float64 // seconds
	MaxAllowedRestarts                           int
	StopOnError                                  bool
	PrometheusDisabled                           bool
	PrometheusBuckets                            []float64 // seconds
	PrometheusEndpoint, PrometheusPort           string
	EnableSSL                                    bool
	SSLCertificateFile, SSLKeyFile               string
	EnableCORS                                   bool
	CORSAllowOriginRegex, CORSAllowCredentials   string
	CORSAllowMethods, CORSAllowHeaders           string
	CORSExposeHeaders                            string
	CORSMaxAge                                   int // seconds
	EnableSession                                bool
	SessionModuleFile                            string
	SessionTimeout                               int
	GRPCMaxConnections                           int
	AddSSHKey                                    []string
	PackageBaseimage, PackageName, PackageTag    string
	DockerUsername, DockerPassword, DockerServer string
	TestSkipStop, TestSkipStart                  bool
	DeployPlatform                               string
	DeployAddress, DeployUsername                string

	Words

	flags   *pflag.FlagSet
	log     *log              // nil = the log of the server
	sshKeys map[string]string // private keys for deploy, by variable
}

// The interfaces that --api chooses.
const (
	FastAPI = "fastapi"
	GRPC    = "grpc"
)

// Buckets are the default buckets of durations, in seconds.
var Buckets = []float64{0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5, 7.5, 10, 30,
	60}

// commands in the order in which they run.
var commands = []string{"init", "build", "run", "package", "test", "publish", "deploy"}

// Flags adds the options to flags, with their defaults. The returned Options have the values after flags has parsed the
// result of Arguments.
func Flags(flags *pflag.FlagSet) *Options {
	o := &Options{flags: flags}
	flags.StringVarP(&o.Config, "config", "c", configFile,
		"the application's configuration file, or REPO{@BRANCH|@SHA}|path/to/ssf_config.yaml")
	flags.StringVarP(&o.API, "api", "a", FastAPI, "fastapi: HTTP; grpc: gRPC")
	flags.StringVar(&o.ModifyConfig, "modify-config", "",
		"fields of the configuration to change: field=value;field[0]=value")
	flags.StringVar(&o.FileLogLevel, "file-log-level", "INFO",
		"DEBUG, INFO, WARNING, ERROR or CRITICAL: least level in the file ssf.log (gc-ssf's default is DEBUG)")
	flags.StringVar(&o.StdoutLogLevel, "stdout-log-level", "INFO", "least level on standard output and error")
	flags.StringVar(&o.Host, "host", "127.0.0.1", "address to listen on; 0.0.0.0 = all (gc-ssf's default)")
	flags.IntVarP(&o.Port, "port", "p", 8100, "port to listen on")
	flags.IntVar(&o.ReplicateApplication, "replicate-application", 1, "instances of the application (also -ra)")
	flags.IntVar(&o.ReplicateServer, "fastapi-replicate-server", 1,
		"multiplies the instances of the application; there is one server (also -rs)")
	flags.StringVarP(&o.Key, "key", "k", "", "key that requests must have")
	flags.Float64Var(&o.WatchdogRequestThreshold, "watchdog-request-threshold", 0,
		"mean seconds of the last requests above which an instance is restarted; 0 = none")
	flags.IntVar(&o.WatchdogRequestAverage, "watchdog-request-average", 3,
		"requests of which --watchdog-request-threshold is the mean")
	flags.IntVar(&o.WatchdogReadyPeriod, "watchdog-ready-period", 5,
		"seconds without a request after which the application's watchdog is called; 0 = never")
	flags.Float64Var(&o.BatchingTimeout, "batching-timeout", 1,
		"seconds after the first request in which a batch is filled")
	flags.IntVar(&o.MaxAllowedRestarts, "max-allowed-restarts", 2,
		"failures in a row after which an instance is not restarted; 0 and 1 = it is never restarted")
	flags.BoolVar(&o.StopOnError, "stop-on-error", false,
		"end the server when an instance fails, also when it could be restarted")
	flags.BoolVar(&o.PrometheusDisabled, "prometheus-disabled", false, "no metrics")
	flags.Float64SliceVar(&o.PrometheusBuckets, "prometheus-buckets", Buckets, "buckets of durations in seconds")
	flags.Lookup("prometheus-buckets").DefValue = fmt.Sprint(Buckets) // with spaces, where help can break the line
	flags.StringVar(&o.PrometheusEndpoint, "prometheus-endpoint", "/metrics", "route of the metrics")
	flags.StringVar(&o.PrometheusPort, "prometheus-port", "",
		"port of the metrics; default: --port, and with gRPC the one after it")
	flags.BoolVar(&o.EnableSSL, "enable-ssl", false, "encrypt connections")
	flags.StringVar(&o.SSLCertificateFile, "ssl-certificate-file", "ssl-cert.pem", "PEM file with the certificate")
	flags.StringVar(&o.SSLKeyFile, "ssl-key-file", "ssl-key.pem", "PEM file with the certificate's key")
	flags.BoolVar(&o.EnableCORS, "enable-cors-middleware", false, "let pages of other origins use the server")
	flags.StringVar(&o.CORSAllowOriginRegex, "cors-allow-origin-regex", defaultOrigins,
		"origins whose pages may use the server")
	flags.StringVar(&o.CORSAllowCredentials, "cors-allow-credentials", "True", "")
	flags.StringVar(&o.CORSAllowMethods, "cors-allow-methods", "*", "")
	flags.StringVar(&o.CORSAllowHeaders, "cors-allow-headers", "*", "")
	flags.StringVar(&o.CORSExposeHeaders, "cors-expose-headers", "", "")
	flags.IntVar(&o.CORSMaxAge, "cors-max-age", 600, "")
	flags.BoolVar(&o.EnableSession, "enable-session-authentication", false,
		"users log in with a name and a password at /session_login")
	flags.StringVar(&o.SessionModuleFile, "session-authentication-module-file", "",
		"a file in Python with authenticate_user(username, password), which decides")
	flags.IntVar(&o.SessionTimeout, "session-authentication-timeout", 10080, "seconds that a login lasts")
	flags.IntVar(&o.GRPCMaxConnections, "grpc-max-connections", 10, "requests over gRPC that are worked on at once")
	flags.StringArrayVar(&o.AddSSHKey, "add-ssh-key", nil,
		"variable with a private key for SSH, or NAME:VARIABLE; it stays in memory")
	flags.StringVar(&o.PackageBaseimage, "package-baseimage", "",
		"image to build upon, in place of this machine's libraries")
	flags.StringVar(&o.PackageName, "package-name", "", "")
	flags.StringVar(&o.PackageTag, "package-tag", "", "name of the image; publish needs REGISTRY/NAME:TAG")
	flags.StringVar(&o.DockerUsername, "docker-username", "", "user at the registry")
	flags.StringVar(&o.DockerPassword, "docker-password", "", "password of --docker-username")
	flags.StringVar(&o.DockerServer, "container-server", "", "")
	flags.BoolVar(&o.TestSkipStop, "test-skip-stop", false, "")
	flags.BoolVar(&o.TestSkipStart, "test-skip-start", false, "test: a server runs already at --host and --port")
	flags.StringVar(&o.DeployPlatform, "deploy-platform", "Gcore", "Gcore: a host, over SSH")
	flags.StringVar(&o.DeployAddress, "deploy-gcore-target-address", "", "host for deploy")
	flags.StringVar(&o.DeployUsername, "deploy-gcore-target-username", "", "user at the host")
	flags.Bool("deploy-package", false, "deploy the image of package; the only way here")
	for _, name := range []string{"deploy-name", "deploy-custom-args", "deploy-paperspace-registry",
		"deploy-paperspace-project-id", "deploy-paperspace-cluster-id", "deploy-paperspace-api-key",
		"deploy-paperspace-replicas", "deploy-paperspace-spec-file"} {
		flags.String(name, "", "")
	}
	for name := range refused {
		_ = flags.MarkHidden(name)
	}
	return o
}

// defaultOrigins is the default of --cors-allow-origin-regex: pages of the same machine.
const defaultOrigins = `http.*://(?:localhost|127\.0\.0\.1)(?::\d+)?`

// refused are the options that cannot be honoured, and what to do instead.
var refused = map[string]string{
	"cors-allow-origin-regex":      "origins are listed: use MILLRACE_ORIGINS=https://app.example.org,...",
	"cors-allow-credentials":       "the answers to pages of other origins are those of MILLRACE_ORIGINS",
	"cors-allow-methods":           "the answers to pages of other origins are those of MILLRACE_ORIGINS",
	"cors-allow-headers":           "the answers to pages of other origins are those of MILLRACE_ORIGINS",
	"cors-expose-headers":          "the answers to pages of other origins are those of MILLRACE_ORIGINS",
	"cors-max-age":                 "the answers to pages of other origins are those of MILLRACE_ORIGINS",
	"package-name":                 "use millrace app ... package --out FILE (docs/apps.md)",
	"container-server":             "name the registry in --package-tag REGISTRY/NAME:TAG",
	"test-skip-stop":               "the server of test ends with the command: use run and test --test-skip-start",
	"deploy-name":                  "use millrace app ... deploy (docs/apps.md)",
	"deploy-custom-args":           "use millrace app ... deploy (docs/apps.md)",
	"deploy-paperspace-registry":   paperspace,
	"deploy-paperspace-project-id": paperspace,
	"deploy-paperspace-cluster-id": paperspace,
	"deploy-paperspace-api-key":    paperspace,
	"deploy-paperspace-replicas":   paperspace,
	"deploy-paperspace-spec-file":  paperspace,
}

const paperspace = "there is no deploy to Paperspace: use a host of your own, --deploy-gcore-target-address"

// Words are the words of a command line.
type Words struct {
	Flags    []string // options and words as pflag reads them
	Commands []string // in the order in which they run
	Given    []string // commands in the order of the command line
	Unknown  []string // options of the application
	Masked   []string // Unknown for the log: without values, and without what may be the value of the option before
	Further  []string // words behind options of the application, other than commands
	Logged   []string // Further for the log: only a word behind a command is no value of an option
}

// Arguments sorts args into words. Flags has long names for options of several letters and a hyphen, and one value for
// the buckets. Unknown options are those that fs does not have: they are for the application. pflag refuses an unknown
// option that resembles an option of fs.
func Arguments(fs *pflag.FlagSet, args []string) (w Words, err error) {
	var buckets []string
	after := 0 // index of the argument that may be the value of an unknown option
	for i := 0; i < len(args); i++ {
		a := args[i]
		name, value, has := strings.Cut(a, "=")
		switch {
		case slices.Contains(commands, a):
			w.Given = append(w.Given, a)
		case a == "--": // what follows are no options
			w.Flags = append(w.Flags, a)
			for _, a := range args[i+1:] {
				if slices.Contains(commands, a) {
					w.Given = append(w.Given, a)
				} else {
					w.Flags = append(w.Flags, a)
				}
			}
			i = len(args)
		case name == "-ra", name == "-rs":
			a = map[string]string{"-ra": "--replicate-application", "-rs": "--fastapi-replicate-server"}[name]
			if has {
				a += "=" + value
			}
			w.Flags = append(w.Flags, a)
			if !has && i+1 < len(args) {
				i++
				w.Flags = append(w.Flags, args[i])
			}
		case name == "--prometheus-buckets":
			if has {
				buckets = append(buckets, value)
			}
			for i+1 < len(args) && isNumber(args[i+1]) {
				i++
				buckets = append(buckets, args[i])
			}
			if len(buckets) == 0 {
				return w, errors.New("--prometheus-buckets: has no numbers")
			}
			w.Flags = append(w.Flags, "--prometheus-buckets="+strings.Join(buckets, ","))
		case isUnknown(fs, name):
			shown := masked(a)
			if i > 0 && i == after {
				shown = hidden
			}
			w.Unknown, w.Masked = append(w.Unknown, a), append(w.Masked, shown)
			if !has {
				after = i + 1
			}
		case len(w.Unknown) > 0 && !strings.HasPrefix(a, "-"):
			w.Further = append(w.Further, a)
			if has || !slices.Contains(commands, args[i-1]) {
				a = hidden
			}
			w.Logged = append(w.Logged, a)
		default:
			w.Flags = append(w.Flags, a)
			if takesNext(fs, a) && i+1 < len(args) {
				i++
				w.Flags = append(w.Flags, args[i]) // also one that is the word of a command
			}
		}
	}
	w.Commands = slices.Clone(w.Given)
	slices.SortStableFunc(w.Commands, func(a, b string) int {
		return slices.Index(commands, a) - slices.Index(commands, b)
	})
	w.Commands = slices.Compact(w.Commands)
	return w, nil
}

// isUnknown reports whether an argument is an option that fs does not have and that resembles none of it.
func isUnknown(fs *pflag.FlagSet, arg string) bool {
	name, long := strings.CutPrefix(arg, "--")
	if !long {
		return len(arg) > 1 && arg[0] == '-' && arg != "-h" && fs.ShorthandLookup(arg[1:2]) == nil
	}
	known := []string{"help"}
	fs.VisitAll(func(f *pflag.Flag) { known = append(known, f.Name) })
	return !slices.Contains(known, name) && setting.Suggest(name, known) == ""
}

// takesNext reports whether the value of an option is the argument after it.
func takesNext(fs *pflag.FlagSet, arg string) bool {
	var f *pflag.Flag
	if name, long := strings.CutPrefix(arg, "--"); long {
		f = fs.Lookup(name) // nil with =value
	} else if len(arg) == 2 && arg[0] == '-' { // -pVALUE has its value
		f = fs.ShorthandLookup(arg[1:])
	}
	return f != nil && f.NoOptDefVal == ""
}

func isNumber(s string) bool {
	_, err := strconv.ParseFloat(s, 64)
	return err == nil
}

// Parse reads the arguments of a command line.
func Parse(args []string) (*Options, error) {
	fs := pflag.NewFlagSet("ssf", pflag.ContinueOnError)
	fs.SetOutput(discard{})
	o := Flags(fs)
	words, err := Arguments(fs, args)
	if err != nil {
		return nil, err
	}
	if err := fs.Parse(words.Flags); err != nil {
		return nil, err
	}
	return o, o.Check(fs.Args(), words)
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

// Check takes the words of the command line, and returns what is wrong with options that were parsed. positional are
// the words that are no options.
func (o *Options) Check(positional []string, w Words) error {
	o.Words = w
	if len(positional) > 0 {
		return fmt.Errorf("%q is not a command: want %s", positional[0], strings.Join(commands, ", "))
	}
	var wrong []error
	o.flags.Visit(func(f *pflag.Flag) {
		if why, ok := refused[f.Name]; ok {
			wrong = append(wrong, fmt.Errorf("--%s: %s", f.Name, why))
		}
	})
	check := func(ok bool, name, format string, args ...any) {
		if !ok {
			wrong = append(wrong, fmt.Errorf("--"+name+": "+format, args...))
		}
	}
	if source.IsRemote(o.Config) {
		_, err := source.Parse(o.Config)
		check(err == nil, "config", "%w", err)
	}
	check(o.DeployPlatform == "Gcore", "deploy-platform", "%q is not Gcore, a host over SSH", o.DeployPlatform)
	check((o.DockerUsername == "") == (o.DockerPassword == ""), "docker-password",
		"needs --docker-username, and vice versa")
	check(o.API == FastAPI || o.API == GRPC, "api", "%q is not fastapi or grpc", o.API)
	check(o.Port >= 0 && o.Port < 65535, "port", "%d is not a port", o.Port)
	for name, value := range map[string]string{"stdout-log-level": o.StdoutLogLevel, "file-log-level": o.FileLogLevel} {
		_, is := levels[value]
		check(is, name, "%q is not DEBUG, INFO, WARNING, ERROR or CRITICAL", value)
	}
	check(o.ReplicateApplication >= 1, "replicate-application", "%d is less than 1", o.ReplicateApplication)
	check(o.ReplicateServer >= 1, "fastapi-replicate-server", "%d is less than 1", o.ReplicateServer)
	check(o.WatchdogRequestThreshold >= 0 && o.WatchdogRequestThreshold <= 86400, "watchdog-request-threshold",
		"%v is not 0 to 86400 seconds", o.WatchdogRequestThreshold)
	check(o.WatchdogRequestAverage >= 1, "watchdog-request-average", "%d is less than 1", o.WatchdogRequestAverage)
	check(o.WatchdogReadyPeriod >= 0 && o.WatchdogReadyPeriod <= 3600, "watchdog-ready-period",
		"%d is not 0 to 3600 seconds", o.WatchdogReadyPeriod)
	check(o.BatchingTimeout >= 0 && o.BatchingTimeout <= 3600, "batching-timeout", "%v is not 0 to 3600 seconds",
		o.BatchingTimeout)
	check(o.MaxAllowedRestarts >= 0, "max-allowed-restarts", "%d is less than 0", o.MaxAllowedRestarts)
	check(o.GRPCMaxConnections >= 1, "grpc-max-connections", "%d is less than 1", o.GRPCMaxConnections)
	check(o.API == FastAPI || !o.EnableSSL, "enable-ssl", "is for --api fastapi only")
	check(o.API == FastAPI || !o.EnableSession, "enable-session-authentication", "is for --api fastapi only")
	check(o.EnableSession || o.SessionModuleFile == "", "session-authentication-module-file",
		"has no effect without --enable-session-authentication")
	check(o.SessionTimeout >= 1 && o.SessionTimeout <= 365*86400, "session-authentication-timeout",
		"%d is not 1 second to 365 days", o.SessionTimeout)
	check(o.API == FastAPI || o.ReplicateServer == 1, "fastapi-replicate-server",
		"is for --api fastapi only: use --replicate-application")
	return errors.Join(wrong...)
}

// Given reports whether the option of that name was given.
func (o *Options) Given(name string) bool { return o.flags.Changed(name) }

// Level returns the level of standard output as the server names it.
func (o *Options) Level() string { return tracing.LevelName(levels[o.StdoutLogLevel]) }

// Values returns all options by their names with underscores, as the application gets them. commands are the words
// that are no options, and unknown_args the options of the application.
func (o *Options) Values() map[string]any {
	out := map[string]any{"commands": slices.Concat([]string{}, o.Further, o.Words.Given),
		"unknown_args": append([]string{}, o.Unknown...)}
	o.flags.VisitAll(func(f *pflag.Flag) {
		var v any = f.Value.String()
		switch f.Value.Type() {
		case "bool":
			v = v == "true"
		case "int":
			v, _ = strconv.Atoi(f.Value.String())
		case "float64":
			n, _ := strconv.ParseFloat(f.Value.String(), 64)
			v = n
		case "float64Slice":
			v = o.PrometheusBuckets
		case "stringArray":
			v = o.AddSSHKey
		case "string":
			if v == "" && !f.Changed && f.Name != "prometheus-port" && f.Name != "cors-expose-headers" {
				v = nil
			}
		}
		out[strings.ReplaceAll(f.Name, "-", "_")] = v
	})
	return out
}
