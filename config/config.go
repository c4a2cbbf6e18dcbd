package config

import (
	"fmt"
	"io/fs"
	"net/netip"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"millrace/ingest"
	"millrace/ingest/streams"
	"millrace/internal/setting"
	"millrace/stream/coded"
	"millrace/workers"
)

// Config holds all settings. A zero field has its default. The tags name the key of the
// file, from which the names of the flag and the variable are derived.
type Config struct {
	HTTP        string        `yaml:"http" form:"address" default:"127.0.0.1:8000" help:"address of REST and WebSocket, or off"`
	GRPC        string        `yaml:"grpc" form:"address" default:"127.0.0.1:8001" help:"address of gRPC, or off"`
	Metrics     Metrics       `yaml:"metrics"`
	Apps        Apps          `yaml:"apps"`
	Management  Management    `yaml:"management"`
	Name        string        `yaml:"name" default:"millrace" help:"name of the server in its metadata: triton for programs that look for that one"`
	Hosts       []string      `yaml:"hosts" help:"further names of the server that the Host header of a request may have; *.example.org = all that end so, * = any"`
	Origins     []string      `yaml:"origins" help:"further web origins whose pages may use the server; * = any"`
	Proxies     []string      `yaml:"trusted_proxies" example:"10.0.0.0/8" unset:"the loopback addresses" help:"addresses, or ranges of them, of proxies in front of the server: limits.max_connections_per_address does not hold for them, the quotas hold for the last address in X-Forwarded-For, which they must append, and memory.client_share holds for each of their connections"`
	APIKey      string        `yaml:"api_key" secret:"yes" example:"file:/run/secrets/key" help:"a key that requests must have, or file:PATH for the file with it: as header or cookie api_key, as Authorization: Bearer, or in the metadata api_key, authorization or rpc-auth-header of calls of gRPC; it has every role, see auth.keys for several; at least 16 characters where other machines can reach the server; pages and health need none. Other users of the machine can read flags in the list of processes: use the variable or a file"`
	Auth        Auth          `yaml:"auth"`
	Insecure    bool          `yaml:"insecure" help:"let everybody in who reaches the server, also from other machines: without it, and without auth.keys or an api_key of 16 characters, the server refuses to listen at an address that other machines can reach"`
	Memory      Memory        `yaml:"memory"`
	Limits      ingest.Limits `yaml:"limits"`
	Quotas      ingest.Quotas `yaml:"quotas"`
	Log         Log           `yaml:"log"`
	Audit       string        `yaml:"audit" path:"file" help:"a file to which a line of JSON is appended for each administrative act, also those that are refused: who did it, how they authenticated, from where, and what came of it; SIGHUP opens it again"`
	StreamsFile string        `yaml:"streams_file" path:"file" help:"a file that stores the server streams added by requests, so that they start again with the server"`
	Drain       time.Duration `yaml:"drain" default:"10s" max:"1h" help:"how long frames in flight may take when the server shuts down"`
	Sources     Sources       `yaml:"sources"`
	Sinks       Sinks         `yaml:"sinks"`
	Sandbox     string        `yaml:"sandbox" default:"auto" words:"auto off require" help:"confine ffmpeg to the files and connections that it needs: auto where the kernel can (Linux 5.13 with Landlock), require = do not start otherwise"`
	Confine     Confine       `yaml:"confine"`

	SharedMemory *bool `yaml:"shared_memory" default:"true" help:"clients on the same machine may have tensors in shared memory (POSIX, /dev/shm)"`

	Programs Programs `yaml:",inline"`

	TLS        TLS        `yaml:"tls"`
	ONNX       ONNX       `yaml:"onnx"`
	Repository Repository `yaml:",inline"`

	Models  []workers.Config // loaded at the start; entries of models in the file
	Streams []streams.Config // server streams; entries of streams in the file

	// Parts holds the settings of registered parts: pointers to their structs, which may
	// have a method Validate() error.
	Parts []any

	File    string // from which it was read, "" = none
	Version string // of the program, empty = "dev"; not in the file
	Clip    []byte // an MP4 that the console can stream, nil = none; not in the file
}

// Auth configures who may use the server.
type Auth struct {
	Keys     string        `yaml:"keys" path:"file" example:"keys.yaml" help:"a file with named API keys, each with its roles, as millrace keys add writes it: requests must have one; read again when it changes"`
	Users    string        `yaml:"users" path:"file" example:"users.yaml" help:"a file with users who log in with a password, each with its roles, as millrace users add writes it; read again when it changes. It also has the roles of users with that name whom a module, a certificate or a token names"`
	Module   string        `yaml:"module" path:"file" example:"users.py" help:"a file in Python with a function authenticate_user(username, password), which returns the id of a user who may log in, or None"`
	Python   string        `yaml:"python" unset:"python3" help:"interpreter of the module: a path, or a name that is looked up in PATH"`
	Roles    []string      `yaml:"roles" unset:"infer" example:"watch" help:"the roles of users whom a module, a certificate or a token names and who are not in the file of users: infer, watch, manage, metrics"`
	Sessions time.Duration `yaml:"session_time" default:"12h" min:"1s" max:"8760h" help:"how long a login lasts"`
	OIDC     OIDC          `yaml:"oidc"`
	Health   string        `yaml:"model_health" words:"open role" default:"role" help:"who may ask whether one model is ready (/v2/models/NAME/ready, ModelReady, a health check with the name of a model) where clients need credentials: everybody, such as probes that have none, or those with the role infer who may use the model"`
	Metrics  string        `yaml:"metrics" words:"open role" unset:"open where only this machine can reach them" help:"who may read the metrics where clients need credentials: everybody, or those with the role metrics"`
}

// OIDC configures tokens of an OpenID provider.
type OIDC struct {
	Issuer     string `yaml:"issuer" example:"https://id.example.org" help:"URL of an OpenID provider: its tokens (JWT), sent as Authorization: Bearer, are credentials"`
	Audience   string `yaml:"audience" example:"millrace" help:"whom a token must be for, its claim aud"`
	UserClaim  string `yaml:"user_claim" default:"sub" help:"the claim of a token with the name of the user"`
	RolesClaim string `yaml:"roles_claim" unset:"auth.roles" example:"realm_access.roles" help:"the claim of a token with the roles of the user, a list or words; dots lead into objects"`
}

// Memory bounds the memory of frames, results and batches. Batches use at most half of it.
type Memory struct {
	Budget int64 `yaml:"budget" default:"1GiB" min:"1MiB" unit:"bytes" help:"bytes of memory for frames, results and batches, and for ffmpegs that decode videos of clients, 12 MiB and 16 bytes for each pixel; its last eighth is for what takes 64 KiB or a 256th of it at most"`

	ClientShare int `yaml:"client_share" default:"75" min:"1" max:"100" help:"most percent of the budget that is held by one address, or one connection from the addresses of trusted_proxies, with its requests and messages of more than 64 KiB and its videos; and by the videos of one client, as for quotas, over all its connections, with the frames of more than 64 KiB that a Go program sends for it by streams"`
}

// Log configures the log.
type Log struct {
	Level  string `yaml:"level" default:"info" words:"debug info warn error" help:"least level that is logged"`
	Format string `yaml:"format" default:"text" words:"text json" help:"format of the lines"`
	File   string `yaml:"file" help:"a file to which the log is also appended, beside standard error"`

	DebugRate int `yaml:"debug_rate" default:"20" min:"1" max:"1000000" help:"most lines a second for the frames of one model, or the requests of one route, at level debug; the others are counted as suppressed"`
}

// Apps configures where programs are served.
type Apps struct {
	Address string `yaml:"address" form:"address" unset:"on the address http" example:"127.0.0.1:8010" help:"a separate address at which there are the routes of programs alone, so that their pages have an origin of their own: without the sandbox in which browsers show them on the address http, and with the headers by which a program lets pages of other origins read its replies"`
}

// Management configures where clients manage the server: do what needs the role manage.
type Management struct {
	Address string `yaml:"address" form:"socket" unset:"on the address http" example:"unix:/run/millrace/manage.sock" help:"an address, or unix:/PATH for a unix socket, at which alone requests of HTTP that need the role manage are answered, beside all others; off = nowhere, also not over gRPC. The address http answers them as if they did not exist. Clients have to authenticate as there; a unix socket is not encrypted"`
	GRPC    string `yaml:"grpc" form:"socket" unset:"nowhere" example:"unix:/run/millrace/manage-grpc.sock" help:"with management.address: an address, or unix:/PATH, at which alone calls of gRPC that need the role manage are answered, beside all others"`
	Socket  string `yaml:"socket" default:"user" words:"user group" help:"who may connect to the unix sockets of management: the user of the server, or also its group"`
}

// Apart reports whether what needs the role manage is not on the addresses http and grpc.
func (m Management) Apart() bool { return m.Address != "" }

// Mode returns the permissions of the files of unix sockets.
func (m Management) Mode() fs.FileMode {
	if m.Socket == "group" {
		return 0o660
	}
	return 0o600
}

func (c *Config) validateManagement() error {
	on := func(addr string) bool { return addr != "" && addr != Off }
	switch m := c.Management; {
	case on(c.Apps.Address) && c.HTTP == Off:
		return coded.Errorf(coded.InvalidArgument, "apps.address", "needs http, which is off")
	case on(m.Address) && c.HTTP == Off:
		return coded.Errorf(coded.InvalidArgument, "management.address", "needs http, which is off")
	case on(m.GRPC) && !m.Apart():
		return coded.Errorf(coded.InvalidArgument, "management.grpc", "needs management.address, or management.address off, since management is on the addresses http and grpc without it")
	case on(m.GRPC) && c.GRPC == Off:
		return coded.Errorf(coded.InvalidArgument, "management.grpc", "needs grpc, which is off")
	case strings.HasPrefix(m.Address, "unix:") && m.Address == m.GRPC:
		return coded.Errorf(coded.InvalidArgument, "management.grpc", "is management.address already: want another path")
	}
	return nil
}

// Metrics configures the metrics for Prometheus.
type Metrics struct {
	Address  string    `yaml:"address" form:"address" unset:"on the address http" help:"a separate address for the metrics, or off"`
	TLS      bool      `yaml:"tls" help:"encrypt metrics.address, with the certificate of http"`
	Path     string    `yaml:"path" default:"/metrics" form:"route" help:"the route of the metrics"`
	Requests *bool     `yaml:"requests" default:"true" help:"also count HTTP requests by route: the metrics whose names begin with http_"`
	Buckets  []float64 `yaml:"buckets" example:"0.1" unset:"0.01 to 60: see docs/metrics.md" help:"buckets of the durations of HTTP requests, in seconds, each more than the one before"`
	Streams  *int      `yaml:"streams" default:"500" min:"0" max:"100000" help:"server streams that have metrics of their own, one of several models counted as so many; those of the others are added up, and raise no alert of their sources and results"`
	Triton   bool      `yaml:"triton" help:"also give metrics under the names that dashboards of Triton Inference Server read: those that begin with nv_"`
	SSF      bool      `yaml:"ssf" help:"give the metrics of HTTP and gRPC requests the labels of Simple Server Framework, handler and status, and add its ssf_dispatch_latency"`
	Pprof    bool      `yaml:"pprof" help:"also serve profiles of the process, at /debug/pprof/ of metrics.address"`
}

// Separate reports whether the metrics are not on the address http.
func (m Metrics) Separate() bool { return m.Address != "" }

// FirstSet returns the path of a setting that differs from its default, or "".
func (m Metrics) FirstSet() string {
	d := Config{}.WithDefaults().Metrics
	switch {
	case m.Address != "":
		return "metrics.address"
	case m.TLS:
		return "metrics.tls"
	case m.Path != "" && m.Path != d.Path:
		return "metrics.path"
	case m.Requests != nil && *m.Requests != *d.Requests:
		return "metrics.requests"
	case len(m.Buckets) > 0:
		return "metrics.buckets"
	case m.Streams != nil && *m.Streams != *d.Streams:
		return "metrics.streams"
	case m.Triton:
		return "metrics.triton"
	case m.SSF:
		return "metrics.ssf"
	case m.Pprof:
		return "metrics.pprof"
	}
	return ""
}

func (m Metrics) validate() error {
	switch {
	case m.Pprof && (m.Address == "" || m.Address == Off):
		return coded.Errorf(coded.InvalidArgument, "metrics.pprof", "needs metrics.address: profiles are not served on the address http")
	case m.Pprof && strings.HasPrefix(m.Path, ProfilesRoute):
		return coded.Errorf(coded.InvalidArgument, "metrics.path", "%q is a route of metrics.pprof", m.Path)
	}
	if m.Path == "/" || underReserved(m.Path) {
		return coded.Errorf(coded.InvalidArgument, "metrics.path", "%q is a route of the server already", m.Path)
	}
	for i, b := range m.Buckets {
		switch {
		case b <= 0:
			return coded.Errorf(coded.InvalidArgument, "metrics.buckets", "%v is not more than 0", b)
		case i > 0 && b <= m.Buckets[i-1]:
			return coded.Errorf(coded.InvalidArgument, "metrics.buckets", "%v does not rise above %v, the bucket before it", b, m.Buckets[i-1])
		}
	}
	if n := len(m.Buckets); n > maxBuckets {
		return coded.Errorf(coded.InvalidArgument, "metrics.buckets", "has %d buckets: want at most %d, since each is a series for each route", n, maxBuckets)
	}
	return nil
}

const maxBuckets = 100

// ProfilesRoute is where metrics.pprof serves profiles.
const ProfilesRoute = "/debug/pprof"

// underReserved reports whether a route would hide routes of the server.
func underReserved(path string) bool {
	for _, taken := range []string{"/v2", "/console", "/models", "/apps"} {
		if path == taken || strings.HasPrefix(path, taken+"/") {
			return true
		}
	}
	return false
}

// Sources configures which videos clients may have the server read, and how videos are decoded.
type Sources struct {
	AllowPrivate bool   `yaml:"allow_private" help:"also read videos from private addresses, and those of this machine, that requests name"`
	HWAccel      string `yaml:"hwaccel" default:"none" words:"auto vaapi cuda none" help:"hardware that decodes video, of sources and of clients; auto takes what works; without any, and where it fails, ffmpeg decodes in software"`
}

// Sinks configures which files requests may have results written to.
type Sinks struct {
	Folder      string `yaml:"folder" path:"folder" example:"results" help:"a folder in which requests may name the files of sinks.file of server streams: no file outside of it, and none that exists already; without it they may name no file"`
	ClientBytes int64  `yaml:"client_bytes" unit:"bytes" default:"1GiB" min:"16KiB" help:"most bytes of one client's files in sinks.folder, old ones included, and of those that no client of this run of the server has made; a file that is written counts as 4 times its max_size"`
}

// TLS configures the encryption of HTTP, WebSocket and gRPC. Browsers allow cameras only
// on pages with https or on localhost.
type TLS struct {
	Cert       string `yaml:"cert" help:"a PEM file with the certificate, which turns TLS on for http and grpc; read again when it changes"`
	Key        string `yaml:"key" help:"a PEM file with the certificate's key"`
	ClientCA   string `yaml:"client_ca" path:"file" example:"clients.pem" help:"a PEM file with the certificates that sign those of clients: the common name of a client certificate is the name of a user, and such a certificate is a credential; read again when it changes"`
	SelfSigned bool   `yaml:"self_signed" help:"turn TLS on with a certificate that the server makes, for cameras of phones on the same network"`
	ACME       ACME   `yaml:"acme"`

	HSTS time.Duration `yaml:"hsts" max:"17520h" example:"4320h" help:"how long browsers that have been on a page of the server come back by https only (Strict-Transport-Security); 0 = it is not said"`
}

// On reports whether connections are encrypted.
func (t TLS) On() bool { return t.SelfSigned || t.Cert != "" || t.ACME.On() }

// ACME configures a certificate authority that gives certificates to who has the names (RFC 8555).
type ACME struct {
	Domains     []string `yaml:"domains" example:"models.example.org" help:"turn TLS on with certificates for these names, which a certificate authority gives when it reaches the address http at port 443 of each; the names need not be in hosts"`
	Email       string   `yaml:"email" example:"ops@example.org" help:"whom the authority writes to about the certificates"`
	AcceptTerms bool     `yaml:"accept_terms" help:"the terms of service of the authority are accepted: without it, none is asked"`
	Cache       string   `yaml:"cache" unset:"millrace/acme in the user's cache folder" help:"a folder for the certificates, their keys and the key of the account, which only the user of the server may read"`
	Directory   string   `yaml:"directory" default:"https://acme-v02.api.letsencrypt.org/directory" help:"URL of the authority's directory"`
	DirectoryCA string   `yaml:"directory_ca" path:"file" example:"authority.pem" unset:"the system's" help:"a PEM file with the certificates that sign that of the directory"`
}

// On reports whether certificates come from an authority.
func (a ACME) On() bool { return len(a.Domains) > 0 }

// ONNX configures ONNX Runtime.
type ONNX struct {
	Library string `yaml:"library" unset:"one beside the program, in the cache folder or of the system" help:"path of ONNX Runtime's shared library"`
	Memory  int64  `yaml:"memory" default:"1GiB" min:"16MiB" unit:"bytes" help:"most memory of all ONNX models together for the tensors of their runs and for packed weights; packed weights beyond it are loaded, and then nothing bounds the runs. The process of a model with isolate: true has so much for itself"`
	Isolate bool   `yaml:"isolate" help:"true: all ONNX models run in child processes, as with their setting isolate"`
	Program string `yaml:"program" path:"file" unset:"the millrace program itself" help:"path of the millrace program, which runs ONNX models in child processes (isolate): needed where another program embeds the server"`
}

// Programs configures programs: models that are computed by child processes, and may have HTTP
// routes of their own.
type Programs struct {
	Root     string `yaml:"root" help:"the name of a model that is a program with routes of its own: they are at the root of the address http, too, and the server ends when all its workers have failed"`
	Exit     *bool  `yaml:"exit_with_root" default:"true" help:"false: the server goes on when all workers of the program at the root have failed, and /health/live says so"`
	Failure  bool   `yaml:"exit_on_worker_failure" help:"true: the server ends as soon as one worker of the program at the root has failed, also when it could be replaced"`
	Replicas int    `yaml:"replicas" default:"1" min:"1" max:"256" help:"multiplies instances of the programs among the models"`
	Watch    bool   `yaml:"watch" help:"load programs of the configuration again when their files change: the source, and the files of Python and of settings in its folder; no request is lost"`
}

// Repository configures the models that are in a folder, and those that requests send.
type Repository struct {
	Dir     string        `yaml:"model_repository" path:"file" help:"a folder with models, each as NAME/VERSION/model.onnx with an optional NAME/config.yaml or NAME/config.pbtxt"`
	Mode    string        `yaml:"model_control_mode" default:"none" words:"none explicit poll" help:"which models of model_repository are loaded: none loads all at the start; explicit those of load_model and those that requests name; poll all, and again when their files change"`
	Load    []string      `yaml:"load_model" example:"digits" help:"with model_control_mode explicit: models that are loaded at the start; * = all"`
	Exit    *bool         `yaml:"exit_on_error" default:"true" help:"a model of model_repository of which no version can be loaded ends the start; false: the others are served, and the index has the reason. With model_control_mode poll it never does"`
	Poll    time.Duration `yaml:"repository_poll" default:"15s" min:"10ms" help:"with model_control_mode poll: time from one look for changed files to the next; a change is taken when two looks have found the same files"`
	MaxSent int64         `yaml:"sent_models" default:"1GiB" min:"1" unit:"bytes" help:"most bytes of files of models that load requests have sent, in the folder for temporary files, as long as they are loaded"`
}

// The modes.
const (
	LoadAll      = "none"
	LoadExplicit = "explicit"
	LoadPoll     = "poll"
)

func (r Repository) validate() error {
	switch {
	case r.Dir == "" && r.Mode != LoadAll:
		return coded.Errorf(coded.InvalidArgument, "model_control_mode", "is %s, which needs model_repository", r.Mode)
	case len(r.Load) > 0 && r.Mode != LoadExplicit:
		return coded.Errorf(coded.InvalidArgument, "load_model", "needs model_control_mode explicit: the others load all models")
	}
	return nil
}

// Confine bounds programs that run the code of models, and those of exec sources.
type Confine struct {
	Programs string   `yaml:"programs" default:"off" words:"off auto require" help:"confine programs, which are models of the kinds process and python, and those of exec sources, to reading the system's files and their own folder, to writing their own temporary folder, and to no network; no model and no request changes that: auto where the kernel can (Linux 5.13 with Landlock), require = do not start otherwise"`
	Read     []string `yaml:"read" path:"file" example:"/srv/weights" help:"further files, and folders with all in them, that confined programs may read"`
	Write    []string `yaml:"write" path:"file" example:"/srv/results" help:"files, devices, and folders with all in them, that confined programs may read and write"`
	Network  bool     `yaml:"network" help:"confined programs may use the network, and sockets of this machine"`
	Files    int      `yaml:"files" default:"4096" min:"64" max:"1048576" help:"most files, sockets and pipes that a confined program may have open, if the limit of the server is not lower (ulimit -Hn)"`
}

// Values of Sandbox and Confine.Programs.
const (
	SandboxOff     = "off"
	SandboxRequire = "require"
)

// Off as an address turns a listener off.
const Off = setting.Off

// table returns the settings of the server.
func (c *Config) table() *setting.Table {
	t := setting.Of("", c)
	t.AddParts(setting.Server, &c.Parts)
	return t
}

// WithDefaults returns c with the defaults of its zero fields, except those of models,
// whose defaults depend on the kind of worker.
func (c Config) WithDefaults() Config {
	c.Parts = slices.Clone(c.Parts)
	c.table().Fill()
	return c
}

// Changed returns the settings of c that have other values in to, by their paths. Models are not among them. Both have their
// defaults.
func (c *Config) Changed(to *Config) (paths []string) {
	next := to.table()
	for _, f := range c.table().Fields() {
		if n, ok := next.Find(f.Path); !ok || !reflect.DeepEqual(f.Value(), n.Value()) {
			paths = append(paths, f.Path)
		}
	}
	if !reflect.DeepEqual(c.Streams, to.Streams) {
		paths = append(paths, "streams")
	}
	return paths
}

// Validate returns all errors of the configuration, joined. Each is a *stream.Error with
// the path of the setting ("models[1].batching.max_size").
func (c Config) Validate() error {
	c = c.WithDefaults()
	errs := c.table().Check()
	bad := func(path, format string, args ...any) {
		errs = append(errs, coded.Errorf(coded.InvalidArgument, path, format, args...))
	}
	for _, p := range c.Parts {
		if p, ok := p.(interface{ Validate() error }); ok {
			errs = append(errs, p.Validate())
		}
	}
	_, err := c.TrustedProxies()
	errs = append(errs, c.Metrics.validate(), c.Repository.validate(), c.validateManagement(), err)
	switch t := c.TLS; {
	case t.SelfSigned && (t.Cert != "" || t.Key != ""):
		bad("tls.self_signed", "and tls.cert exclude each other")
	case t.ACME.On() && (t.SelfSigned || t.Cert != "" || t.Key != ""):
		bad("tls.acme.domains", "and tls.cert or tls.self_signed exclude each other")
	case t.Cert != "" && t.Key == "":
		bad("tls.key", "is missing: tls.cert needs its key")
	case t.Key != "" && t.Cert == "":
		bad("tls.cert", "is missing: tls.key needs its certificate")
	}
	switch o := c.Auth.OIDC; {
	case o.Issuer == "" && (o.Audience != "" || o.RolesClaim != ""):
		bad("auth.oidc.issuer", "is missing: auth.oidc needs the URL of the provider")
	case o.Issuer != "" && o.Audience == "":
		bad("auth.oidc.audience", "is missing: want whom tokens must be for, otherwise those for other services of the provider would be valid here")
	}
	errs = append(errs, c.validateACME()...)
	switch {
	case c.TLS.HSTS == 0:
	case c.TLS.SelfSigned:
		bad("tls.hsts", "and tls.self_signed exclude each other: browsers would let nobody in who has to accept the certificate")
	case !c.TLS.On():
		bad("tls.hsts", "is set, and connections are not encrypted: set tls.cert and tls.key")
	case c.TLS.HSTS < time.Second:
		bad("tls.hsts", "is %v: want at least 1s", c.TLS.HSTS)
	}
	if c.Metrics.TLS && (!c.TLS.On() || !c.Metrics.Separate() || c.Metrics.Address == Off) {
		bad("metrics.tls", "needs metrics.address, and tls.cert or another certificate")
	}
	if c.TLS.ClientCA != "" && !c.TLS.On() {
		bad("tls.client_ca", "is set, and connections are not encrypted: set tls.cert and tls.key")
	}
	named := func(m workers.Config) bool { return m.Name == c.Programs.Root }
	if c.Programs.Root != "" && c.Repository.Dir == "" && !slices.ContainsFunc(c.Models, named) {
		bad("root", "is %q, which is not the name of a model: see models", c.Programs.Root)
	}
	if c.Programs.Failure && c.Programs.Root == "" {
		bad("exit_on_worker_failure", "needs root, the name of the program whose workers it is about")
	}
	return setting.Join(slices.Concat(errs, c.validateModels(), c.validateStreams())...)
}

// TrustedProxies returns the ranges of addresses of trusted_proxies.
func (c Config) TrustedProxies() (out []netip.Prefix, err error) {
	texts := c.Proxies
	if len(texts) == 0 {
		texts = []string{"127.0.0.0/8", "::1"}
	}
	for _, text := range texts {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			a, err := netip.ParseAddr(text)
			if err != nil || a.Zone() != "" {
				return nil, coded.Errorf(coded.InvalidArgument, "trusted_proxies", "%.140q is not an address: want one such as 10.1.2.3 or 2001:db8::1, or a range such as 10.0.0.0/8", text)
			}
			p = netip.PrefixFrom(a, a.BitLen())
		}
		out = append(out, p)
	}
	return out, nil
}

func (c Config) validateModels() (errs []error) {
	first := map[string]int{}
	for i, m := range c.Models {
		at := fmt.Sprintf("models[%d]", i)
		for _, err := range setting.Split(m.Validate()) {
			errs = append(errs, coded.Within(at, err))
		}
		set, unset := m.WithDefaults(), workers.Config{}.WithDefaults()
		for _, s := range []struct {
			name  string
			isSet bool
		}{
			{"versions", !reflect.DeepEqual(set.Versions, unset.Versions)}, {"shadow", set.Shadow != unset.Shadow},
		} {
			if s.isSet {
				errs = append(errs, coded.Errorf(coded.InvalidArgument, at+"."+s.name, "has no effect here, where a model has one version: put the versions into a folder of model_repository, and the setting into the model's config.yaml there"))
			}
		}
		if j, twice := first[m.Name]; twice && m.Name != "" {
			errs = append(errs, coded.Errorf(coded.InvalidArgument, at+".name", "%q is the name of models[%d] already", m.Name, j))
		} else {
			first[m.Name] = i
		}
	}
	if _, err := workers.LoadOrder(c.Models); err != nil {
		errs = append(errs, coded.Within("models", err))
	}
	return errs
}

// inDir returns path relative to the folder dir, "" = the working directory.
func inDir(dir, path string) string {
	if path == "" || dir == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}
