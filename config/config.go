package config

import (
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"millrace/ingest"
	"millrace/ingest/access"
	"millrace/ingest/clips"
	"millrace/ingest/streams"
	"millrace/internal/modelurl"
	"millrace/internal/setting"
	"millrace/stream/coded"
	"millrace/workers"
)

// Config holds all settings. Zero fields take their defaults. A tag names the key in the file; the names of the flag
// and the variable are derived from the key.
type Config struct {
	HTTP        string        `yaml:"http" form:"address" default:"127.0.0.1:8000" help:"address of REST and WebSocket, or off"`
	GRPC        string        `yaml:"grpc" form:"address" default:"127.0.0.1:8001" help:"address of gRPC, or off"`
	Metrics     Metrics       `yaml:"metrics"`
	Apps        Apps          `yaml:"apps"`
	Management  Management    `yaml:"management"`
	Name        string        `yaml:"name" default:"millrace" advanced:"yes" help:"name of the server in its metadata; some clients of Triton want triton"`
	Hosts       []string      `yaml:"hosts" help:"further host names, accepted in the Host header of a request; *.example.org = all subdomains, * = any name"`
	Origins     []string      `yaml:"origins" help:"further web origins whose pages may use the server; * = any origin"`
	Proxies     []string      `yaml:"trusted_proxies" example:"10.0.0.0/8" unset:"the loopback addresses" help:"addresses or ranges of reverse proxies. The quotas count the last address in X-Forwarded-For, which the proxies must append; limits.max_connections_per_address does not apply to the proxies"`
	APIKey      string        `yaml:"api_key" secret:"yes" example:"file:/run/secrets/key" help:"an API key with every role and no name, of 16 characters or more, or file:PATH. Other users of the machine can read a flag: use the variable or a file"`
	Auth        Auth          `yaml:"auth"`
	Insecure    bool          `yaml:"insecure" help:"serve other machines without credentials, which the commands otherwise refuse"`
	Memory      Memory        `yaml:"memory"`
	Limits      ingest.Limits `yaml:"limits"`
	Quotas      access.Quotas `yaml:"quotas"`
	Log         Log           `yaml:"log"`
	Audit       string        `yaml:"audit" path:"file" help:"a file that gets a line of JSON for each administrative request, refused requests included. SIGHUP reopens the file"`
	StreamsFile string        `yaml:"streams_file" path:"file" help:"a file for the server streams added by requests: the streams start again with the server"`
	Data        string        `yaml:"data" path:"file" example:"data" help:"a folder that survives restarts, for tasks (docs/tasks.md), events and counts (docs/events.md). One server at a time may use the folder, unless nats is set. Without the folder there are no tasks and no history of events"`
	NATS        NATS          `yaml:",inline"`
	Tasks       Tasks         `yaml:"tasks"`
	Events      Events        `yaml:"events"`
	Containers  Containers    `yaml:"containers"`
	Drain       time.Duration `yaml:"drain" default:"10s" max:"1h" help:"time for frames in flight when the server shuts down"`
	Handover    string        `yaml:"handover" form:"socket" unset:"off" example:"unix:/var/lib/millrace/handover.sock" advanced:"yes" help:"a unix socket by which a server with the same setting replaces this server without losing a connection: the new server loads its models, takes the listening sockets, and this server ends when its clients have left, within drain (docs/operations.md)"`
	Sources     Sources       `yaml:"sources"`
	Sinks       Sinks         `yaml:"sinks"`
	Clips       Clips         `yaml:"clips"`
	Sandbox     string        `yaml:"sandbox" default:"auto" words:"auto off require" advanced:"yes" help:"confine ffmpeg to its own files and connections: auto = where the kernel has Landlock (Linux 5.13), require = do not start without Landlock"`
	Confine     Confine       `yaml:"confine"`

	SharedMemory *bool `yaml:"shared_memory" default:"true" advanced:"yes" help:"let clients on the same machine put tensors into shared memory (POSIX, /dev/shm)"`

	Programs Programs `yaml:",inline"`

	TLS        TLS        `yaml:"tls"`
	ONNX       ONNX       `yaml:"onnx"`
	Repository Repository `yaml:",inline"`

	ModelSources ModelSources `yaml:"model_sources"`

	Models  []workers.Config // loaded at the start; entries of models in the file
	Streams []streams.Config // server streams; entries of streams in the file

	part bool // the settings of a file, to which variables and flags are added

	// Parts holds the settings of registered parts: pointers to structs, optionally with a method Validate() error.
	Parts []any

	File    string // from which it was read, "" = none
	Version string // of the program, empty = "dev"; not in the file
	// OwnProcess says that the process is the server's alone: Run limits Go's heap by memory.budget, and makes a
	// small heap larger, so that the garbage collector runs seldom; not in the file.
	OwnProcess bool
	// Inside says that a server without the address http has the routes of http for the server itself, which runs tasks
	// by them (Server.Work); not in the file.
	Inside bool
	Clip   []byte // an MP4 for streaming in the console, nil = none; not in the file
	// Records takes the records of the log in place of standard error; nil = standard error; not in the file.
	Records slog.Handler
	// StartsWithout reports whether the server starts although the root program has failed to start with the error:
	// the server then serves health and management. nil = the server ends; not in the file.
	StartsWithout func(error) bool
}

type Auth struct {
	Keys     string        `yaml:"keys" path:"file" example:"keys.yaml" help:"a file with named API keys and their roles, written by millrace keys add. Requests then need credentials"`
	Users    string        `yaml:"users" path:"file" example:"users.yaml" help:"a file with users, passwords and roles, written by millrace users add, also for the users of auth.module, certificates and tokens"`
	Module   string        `yaml:"module" path:"file" example:"users.py" advanced:"yes" help:"a Python file with a function authenticate_user(username, password), which returns the user's id, or None to refuse the login"`
	Python   string        `yaml:"python" unset:"python3" advanced:"yes" help:"Python interpreter of auth.module: a path, or a name in PATH"`
	Roles    []string      `yaml:"roles" unset:"infer" example:"watch" advanced:"yes" help:"roles of users named by auth.module, a certificate or a token, for users who are not in auth.users: infer, watch, manage, metrics, work"`
	Sessions time.Duration `yaml:"session_time" default:"12h" min:"1s" max:"8760h" advanced:"yes" help:"how long a login lasts"`
	OIDC     OIDC          `yaml:"oidc"`
	Health   string        `yaml:"model_health" words:"open role" default:"role" advanced:"yes" help:"who may ask whether a model is ready (/v2/models/NAME/ready, ModelReady, gRPC health): open = everybody, role = clients with the role infer for the model"`
	Metrics  string        `yaml:"metrics" words:"open role" unset:"open where only this machine can reach them" advanced:"yes" help:"who may read the metrics: open = everybody, role = clients with the role metrics"`
}

// OIDC configures tokens of an OpenID provider.
type OIDC struct {
	Issuer     string `yaml:"issuer" example:"https://id.example.org" advanced:"yes" help:"URL of an OpenID provider whose tokens (JWT, sent as Authorization: Bearer) are credentials"`
	Audience   string `yaml:"audience" example:"millrace" advanced:"yes" help:"the audience (claim aud) that a token must have"`
	UserClaim  string `yaml:"user_claim" default:"sub" advanced:"yes" help:"the claim of a token with the user's name"`
	RolesClaim string `yaml:"roles_claim" unset:"auth.roles" example:"realm_access.roles" advanced:"yes" help:"the claim of a token with the user's roles, as a list or as words; dots lead into objects"`
}

// Memory limits the memory of frames, results and batches. Batches use at most half.
type Memory struct {
	Budget int64 `yaml:"budget" default:"1GiB" min:"1MiB" unit:"bytes" help:"memory for frames, results, batches and the ffmpeg processes of clients' videos. The last eighth is reserved for small frames (docs/operations.md)"`

	ClientShare int `yaml:"client_share" default:"75" min:"1" max:"100" advanced:"yes" help:"most percent of memory.budget for the large requests, messages and videos of a single client"`
}

// Log configures the log.
type Log struct {
	Level  string `yaml:"level" default:"info" words:"debug info warn error" help:"lowest level of the log"`
	Format string `yaml:"format" default:"text" words:"text json" help:"format of the lines of the log"`
	File   string `yaml:"file" advanced:"yes" help:"a file to which the log is also appended, beside standard error"`

	DebugRate int `yaml:"debug_rate" default:"20" min:"1" max:"1000000" advanced:"yes" help:"most lines a second at level debug for each model or route; further lines are counted as suppressed"`
}

// Apps configures where programs are served.
type Apps struct {
	Address string `yaml:"address" form:"address" unset:"on the address http" example:"127.0.0.1:8010" advanced:"yes" help:"a separate address for the routes of programs, so that the pages of programs have a web origin of their own (docs/security.md)"`
}

// Management configures the address of calls that need the role manage.
type Management struct {
	Address string `yaml:"address" form:"socket" unset:"on the address http" example:"unix:/run/millrace/manage.sock" advanced:"yes" help:"a separate address, or unix:/PATH, for HTTP requests of the role manage; the address http then answers 404 to management requests. off = no management over HTTP; over gRPC only at management.grpc"`
	GRPC    string `yaml:"grpc" form:"socket" unset:"nowhere" example:"unix:/run/millrace/manage-grpc.sock" advanced:"yes" help:"with management.address: an address, or unix:/PATH, for gRPC calls of the role manage"`
	Socket  string `yaml:"socket" default:"user" words:"user group" advanced:"yes" help:"who may connect to the unix sockets of management: the server's user, or also the server's group"`
}

// Separate reports whether the addresses http and grpc refuse calls that need the role manage.
func (m Management) Separate() bool { return m.Address != "" }

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
	case on(m.GRPC) && !m.Separate():
		return coded.Errorf(coded.InvalidArgument, "management.grpc", "needs management.address, or "+
			"management.address off, since management is on the addresses http and grpc without it")
	case on(m.GRPC) && c.GRPC == Off:
		return coded.Errorf(coded.InvalidArgument, "management.grpc", "needs grpc, which is off")
	case strings.HasPrefix(m.Address, "unix:") && m.Address == m.GRPC:
		return coded.Errorf(coded.InvalidArgument, "management.grpc",
			"is management.address already: want another path")
	}
	return nil
}

func (c *Config) validateHandover() error {
	if c.Handover != "" && !strings.HasPrefix(c.Handover, "unix:") {
		return coded.Errorf(coded.InvalidArgument, "handover",
			"%q is not the address of a unix socket: want unix:/PATH", c.Handover)
	}
	if c.Handover != "" && c.Clips.Folder != "" { // the servers would not know the clips of each other
		return coded.Errorf(coded.InvalidArgument, "handover",
			"and clips.folder exclude each other: only one server can use a folder of clips. Leave one of both out")
	}
	return nil
}

// Metrics configures the metrics for Prometheus.
type Metrics struct {
	Address  string    `yaml:"address" form:"address" unset:"on the address http" example:"127.0.0.1:8002" help:"a separate address for the metrics, or off"`
	TLS      bool      `yaml:"tls" advanced:"yes" help:"encrypt metrics.address with the certificate of http"`
	Path     string    `yaml:"path" default:"/metrics" form:"route" advanced:"yes" help:"the route of the metrics; / = every route of metrics.address"`
	Requests *bool     `yaml:"requests" default:"true" advanced:"yes" help:"also count HTTP requests by route, in the metrics http_*"`
	Buckets  []float64 `yaml:"buckets" example:"0.1" unset:"0.01 to 60: see docs/metrics.md" advanced:"yes" help:"buckets of the durations of HTTP requests, in seconds, in rising order"`
	Streams  *int      `yaml:"streams" default:"500" min:"0" max:"100000" advanced:"yes" help:"most server streams with metrics of their own (a stream of N models counts N times); further streams are added up and raise no alerts"`
	Triton   bool      `yaml:"triton" advanced:"yes" help:"add the metrics nv_*, which dashboards of Triton Inference Server read"`
	Pprof    bool      `yaml:"pprof" advanced:"yes" help:"serve profiles of the process at /debug/pprof/ of metrics.address"`
}

// Separate reports whether the metrics are not on the address http.
func (m Metrics) Separate() bool { return m.Address != "" }

// FirstSet returns the path of a setting with another value than the default, or "".
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
	case m.Pprof:
		return "metrics.pprof"
	}
	return ""
}

func (m Metrics) validate() error {
	switch {
	case m.Pprof && (m.Address == "" || m.Address == Off):
		return coded.Errorf(coded.InvalidArgument, "metrics.pprof",
			"needs metrics.address: profiles are not served on the address http")
	case m.Pprof && strings.HasPrefix(m.Path, ProfilesRoute):
		return coded.Errorf(coded.InvalidArgument, "metrics.path", "%q is a route of metrics.pprof", m.Path)
	}
	if m.Path == "/" && !m.Separate() || underReserved(m.Path) {
		return coded.Errorf(coded.InvalidArgument, "metrics.path", "%q is a route of the server already", m.Path)
	}
	for i, b := range m.Buckets {
		switch {
		case b <= 0:
			return coded.Errorf(coded.InvalidArgument, "metrics.buckets", "%v is not more than 0", b)
		case i > 0 && b <= m.Buckets[i-1]:
			return coded.Errorf(coded.InvalidArgument, "metrics.buckets",
				"%v does not rise above %v, the bucket before it", b, m.Buckets[i-1])
		}
	}
	if n := len(m.Buckets); n > maxBuckets {
		return coded.Errorf(coded.InvalidArgument, "metrics.buckets",
			"has %d buckets: want at most %d, since each is a series for each route", n, maxBuckets)
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

// Sources configures the videos that clients may have the server read, and the decoding of videos.
type Sources struct {
	AllowPrivate bool   `yaml:"allow_private" help:"let requests name private addresses and addresses of this machine, for sources, webhooks and remote models"`
	HWAccel      string `yaml:"hwaccel" default:"none" words:"auto vaapi cuda none" advanced:"yes" help:"hardware that decodes video, and encodes watched video: auto takes cuda, else vaapi, else software. Where hardware fails, ffmpeg works in software"`
}

// Sinks configures the files to which requests may have results written.
type Sinks struct {
	Folder      string `yaml:"folder" path:"folder" example:"results" help:"the folder in which requests may create files with sinks.file; existing files are not overwritten. Without the folder, requests may name no files"`
	ClientBytes int64  `yaml:"client_bytes" unit:"bytes" default:"1GiB" min:"16KiB" advanced:"yes" help:"most bytes of a client's files in sinks.folder; a file being written counts 4 times max_size"`
}

// Clips configures the folder of the clips of streams.
type Clips struct {
	Folder   string        `yaml:"folder" path:"folder" example:"clips" unset:"clips in data" advanced:"yes" help:"the folder of the clips of streams (docs/events.md#clips); without this setting and data, streams can have no clips"`
	MaxAge   time.Duration `yaml:"max_age" default:"720h" min:"1m" max:"87840h" advanced:"yes" help:"clips are removed after this time, unless they are favourites"`
	MaxBytes int64         `yaml:"max_bytes" default:"16GiB" min:"1MiB" unit:"bytes" advanced:"yes" help:"most bytes of clips; beyond, the oldest are removed, unless they are favourites"`
	Memory   int64         `yaml:"memory" default:"32MiB" min:"1MiB" max:"1GiB" unit:"bytes" advanced:"yes" help:"most bytes of compressed video that a stream with clips keeps in memory for the time before an event; part of memory.budget"`

	Clients clips.ClientSettings `yaml:"clients"`
}

// ClipsFolder returns the folder of clips; "" for none. Servers that share data share no clips.
func (c *Config) ClipsFolder() string {
	if c.Clips.Folder == "" && c.Data != "" && len(c.NATS.Servers) == 0 {
		return filepath.Join(c.Data, "clips")
	}
	return c.Clips.Folder
}

// Tasks configures the inferences whose answers are kept in the folder of data.
type Tasks struct {
	Sync      string        `yaml:"sync" default:"always" words:"always interval" advanced:"yes" help:"when a task is on the disk: always = before the server acknowledges the task; interval = within a minute, so that a power failure loses the newest tasks"`
	Consume   string        `yaml:"consume" default:"on" words:"on off" advanced:"yes" help:"off: the server takes tasks and does not run them"`
	Slots     int           `yaml:"slots" default:"1" min:"1" max:"1024" help:"tasks that this server runs at once"`
	Share     float64       `yaml:"share" default:"0.0625" min:"0.001" max:"1" advanced:"yes" help:"share of the time that the server works on frames of a task with a video or pictures, while frames above priority low arrive; 1 = no pauses (docs/tasks.md)"`
	Retention time.Duration `yaml:"retention" default:"168h" min:"1s" max:"8784h" help:"time from the end of a task to its deletion"`
	MaxInput  int64         `yaml:"max_input" default:"1GiB" min:"1" unit:"bytes" advanced:"yes" help:"largest input of a task"`

	UploadExpiry time.Duration `yaml:"upload_expiry" default:"24h" min:"1s" max:"744h" advanced:"yes" help:"an unfinished upload of an input is removed when no byte has arrived for this time (docs/tasks.md)"`

	MaxWaiting int           `yaml:"max_waiting" default:"100000" min:"1" max:"10000000" advanced:"yes" help:"tasks that wait or run, at most; further tasks are refused as overloaded"`
	MaxBytes   int64         `yaml:"max_bytes" default:"64GiB" min:"1" unit:"bytes" advanced:"yes" help:"stored bytes of inputs, results and logs from which further tasks are refused as overloaded"`
	Lease      time.Duration `yaml:"lease" default:"30s" min:"1s" max:"1h" advanced:"yes" help:"a task whose consumer sends no sign of life for this time is queued again"`

	Blobs string `yaml:"blobs" example:"s3://bucket/prefix" unset:"inputs and results are in data" advanced:"yes" help:"bucket of an S3 server that keeps inputs and results of tasks (docs/tasks.md)"`
	S3    S3     `yaml:"s3"`

	Webhooks      string `yaml:"webhooks" default:"off" words:"off on" advanced:"yes" help:"on: a submission may name an address that is told of the end of the task; a private address only with sources.allow_private"`
	WebhookSecret string `yaml:"webhook_secret" secret:"yes" example:"file:/run/secrets/webhook" advanced:"yes" help:"key of the signature of messages to webhooks (docs/tasks.md), or file:PATH"`
}

// Events configures the history of events.
type Events struct {
	Folder    string        `yaml:"folder" path:"file" unset:"the folder events in data; with nats no history" advanced:"yes" help:"the folder for the history of events and the counts of rules, for this server alone (docs/events.md)"`
	Retention time.Duration `yaml:"retention" default:"720h" min:"1m" max:"87840h" advanced:"yes" help:"time from an event to its removal from the history"`
	MaxBytes  int64         `yaml:"max_bytes" default:"1GiB" min:"1MiB" unit:"bytes" advanced:"yes" help:"size of the history beyond which the oldest events are removed"`
}

// HistoryFolder returns the folder for the history of events, or "".
func (c *Config) HistoryFolder() string {
	switch {
	case c.Events.Folder != "":
		return c.Events.Folder
	case c.Data == "" || len(c.NATS.Servers) > 0: // a folder of several servers
		return ""
	}
	return filepath.Join(c.Data, "events")
}

// Containers configures the engine that runs the models of the kind container.
type Containers struct {
	Host   string   `yaml:"host" example:"unix:///run/docker.sock" unset:"no containers" help:"socket of the container engine, Docker or Podman, for models of the kind container (docs/container-models.md)"`
	Images []string `yaml:"images" example:"localhost/segment" unset:"none" help:"images that models of the kind container may run: a name without tag and digest allows all of the name"`
	User   string   `yaml:"user" example:"65532:65532" unset:"65532:65532 for a server that runs as root, else the server's own" advanced:"yes" help:"user and group (UID:GID) of the processes in containers"`
}

// TLS configures the encryption of HTTP, WebSocket and gRPC. Browsers allow cameras only
// on pages with https or on localhost.
type TLS struct {
	Cert       string `yaml:"cert" help:"PEM file with the server's certificate; turns on TLS for http and grpc"`
	Key        string `yaml:"key" help:"PEM file with the certificate's private key"`
	ClientCA   string `yaml:"client_ca" path:"file" example:"clients.pem" advanced:"yes" help:"PEM file with the authorities of client certificates. A client certificate is a credential, and the common name is the user's name. The file is read again after a change"`
	SelfSigned bool   `yaml:"self_signed" help:"turn on TLS with a certificate that the server makes: for the cameras of phones on the same network"`
	ACME       ACME   `yaml:"acme"`

	HSTS time.Duration `yaml:"hsts" max:"17520h" example:"4320h" advanced:"yes" help:"how long browsers use https only after a visit (Strict-Transport-Security); 0 = the header is not sent"`
}

// On reports whether connections are encrypted.
func (t TLS) On() bool { return t.SelfSigned || t.Cert != "" || t.ACME.On() }

// ACME configures a certificate authority that gives certificates to the owner of a domain name (RFC 8555).
type ACME struct {
	Domains     []string `yaml:"domains" example:"models.example.org" advanced:"yes" help:"turn on TLS with certificates of an ACME authority for these names. The authority must reach the address http at port 443 of each name"`
	Email       string   `yaml:"email" example:"ops@example.org" advanced:"yes" help:"email address that the ACME authority may write to"`
	AcceptTerms bool     `yaml:"accept_terms" advanced:"yes" help:"accept the terms of service of the ACME authority: required by tls.acme.domains"`
	Cache       string   `yaml:"cache" unset:"millrace/acme in the user's cache folder" advanced:"yes" help:"a folder for the ACME certificates, their keys and the account's key; readable by the server's user only"`
	Directory   string   `yaml:"directory" default:"https://acme-v02.api.letsencrypt.org/directory" advanced:"yes" help:"URL of the ACME authority's directory"`
	DirectoryCA string   `yaml:"directory_ca" path:"file" example:"authority.pem" unset:"the system's" advanced:"yes" help:"PEM file with the authorities that sign the certificate of the ACME directory"`
}

// On reports whether certificates come from an authority.
func (a ACME) On() bool { return len(a.Domains) > 0 }

// ONNX configures ONNX Runtime.
type ONNX struct {
	Library string `yaml:"library" unset:"one beside the program, in the cache folder or of the system" advanced:"yes" help:"path of ONNX Runtime's shared library"`
	Memory  int64  `yaml:"memory" default:"1GiB" min:"16MiB" unit:"bytes" advanced:"yes" help:"most memory of all ONNX models together for the tensors of runs and for packed weights; an isolated model has this limit for itself (docs/onnx.md)"`
	Isolate bool   `yaml:"isolate" advanced:"yes" help:"run all ONNX models in child processes: the default of the model setting isolate"`
	Program string `yaml:"program" path:"file" unset:"the millrace program itself" advanced:"yes" help:"path of the millrace program, which runs isolated ONNX models; needed where another program embeds the server"`
}

// Programs configures programs: models computed by child processes, optionally with their own HTTP routes.
type Programs struct {
	Root     string `yaml:"root" advanced:"yes" help:"name of the model whose program's routes are also at the root of the address http. The server ends when all workers of the program have failed"`
	Exit     *bool  `yaml:"exit_with_root" default:"true" advanced:"yes" help:"false: the server continues when all workers of the root program have failed, and /health/live reports the failure"`
	Failure  bool   `yaml:"exit_on_worker_failure" advanced:"yes" help:"true: the server ends at the first failure of a worker of the root program, even when the worker could be replaced"`
	Replicas int    `yaml:"replicas" default:"1" min:"1" max:"256" advanced:"yes" help:"multiplies the instances of each program among the models"`
	Watch    bool   `yaml:"watch" help:"load programs of the configuration again when their Python or settings files change; no request is lost"`
}

// Repository configures the models in a folder and the models sent by requests.
type Repository struct {
	Dir     string        `yaml:"model_repository" path:"file" help:"a folder of models: NAME/VERSION/model.onnx, with an optional NAME/config.yaml or NAME/config.pbtxt, or the address of such a folder (docs/repository.md)"`
	Mode    string        `yaml:"model_control_mode" default:"none" words:"none explicit poll" advanced:"yes" help:"none = load all models of model_repository at the start; explicit = load the models of load_model and of requests; poll = load all, and again when files change"`
	Load    []string      `yaml:"load_model" example:"digits" advanced:"yes" help:"with model_control_mode explicit: the models loaded at the start; * = all"`
	Exit    *bool         `yaml:"exit_on_error" default:"true" advanced:"yes" help:"end the start when no version of a model of model_repository can be loaded; false: serve the other models, and show the error in the index. Not with model_control_mode poll"`
	Poll    time.Duration `yaml:"repository_poll" default:"15s" min:"10ms" advanced:"yes" help:"with model_control_mode poll: time between two looks for changed files, or at the address; a change of files is loaded after two equal looks"`
	MaxSent int64         `yaml:"sent_models" default:"1GiB" min:"1" unit:"bytes" advanced:"yes" help:"most bytes of model files sent in load requests; the files are in the temporary folder while the model is loaded"`
}

// The modes.
const (
	LoadAll      = "none"
	LoadExplicit = "explicit"
	LoadPoll     = "poll"
)

func (r Repository) validate() error {
	if modelurl.Is(r.Dir) {
		if _, err := modelurl.Parse(r.Dir); err != nil {
			return coded.Errorf(coded.InvalidArgument, "model_repository", "%w", err)
		}
	}
	switch {
	case r.Dir == "" && r.Mode != LoadAll:
		return coded.Errorf(coded.InvalidArgument, "model_control_mode", "is %s, which needs model_repository", r.Mode)
	case len(r.Load) > 0 && r.Mode != LoadExplicit:
		return coded.Errorf(coded.InvalidArgument, "load_model",
			"needs model_control_mode explicit: the others load all models")
	}
	return nil
}

// Confine limits the programs that run the code of models, and the programs of exec sources.
type Confine struct {
	Programs string   `yaml:"programs" default:"off" words:"off auto require" help:"confine the programs of models (kinds process and python) and of exec sources to their own folder, a temporary folder and no network. auto and require as for sandbox"`
	Read     []string `yaml:"read" path:"file" example:"/srv/weights" advanced:"yes" help:"further files and folders that confined programs may read"`
	Write    []string `yaml:"write" path:"file" example:"/srv/results" advanced:"yes" help:"further files, devices and folders that confined programs may read and write"`
	Network  bool     `yaml:"network" advanced:"yes" help:"let confined programs use the network and the sockets of this machine"`
	Files    int      `yaml:"files" default:"4096" min:"64" max:"1048576" advanced:"yes" help:"most open files, sockets and pipes of a confined program"`
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
	t := setting.TableOf("", c)
	t.AddParts(setting.Server, &c.Parts)
	return t
}

// ClientQuotas returns the quotas of each client. Unset quotas follow from the limits of the server, see
// access.Quotas.From.
func (c Config) ClientQuotas() access.Quotas {
	return c.Quotas.From(access.Totals{Sessions: c.Limits.MaxSessions, Decoders: c.Limits.MaxDecoders,
		Pulls: c.Limits.MaxPulls, Watchers: c.Limits.MaxWatchers, Regions: c.Limits.MaxRegions,
		Tasks: c.Tasks.MaxWaiting, TaskBytes: c.Tasks.MaxBytes})
}

// WithDefaults returns c with defaults for zero fields, except in models, whose defaults depend on the kind of
// worker.
func (c Config) WithDefaults() Config {
	c.Parts = slices.Clone(c.Parts)
	c.table().Fill()
	return c
}

// Changed returns the paths of the settings that differ between c and to, without models. Both must have their
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
	errs = append(errs, c.NATS.validate(c.Data), c.Tasks.validateBlobs(c.Data, c.part, c.usesS3()),
		c.Metrics.validate(), c.Repository.validate(), c.ModelSources.validate(), c.validateManagement(),
		c.validateHandover(), err)
	if c.HTTP == Off && c.Data != "" {
		bad("http", "is off, and tasks (data) need it: give it an address, such as 127.0.0.1:8000")
	}
	for i, s := range c.Streams {
		if s.Clips.Enabled() && c.ClipsFolder() == "" {
			bad(fmt.Sprintf("streams[%d].clips", i), "need a folder: set clips.folder, or data")
		}
	}
	if c.Clips.Clients.Enabled() && c.ClipsFolder() == "" {
		bad("clips.clients", "need a folder: set clips.folder, or data")
	}
	errs = append(errs, coded.PrefixField("clips.clients", c.Clips.Clients.Validate()))
	if most := c.Clips.Clients.MaxBytes; most > c.Clips.MaxBytes {
		bad("clips.clients.max_bytes", "is more than clips.max_bytes, of which it is a part: want at most %d",
			c.Clips.MaxBytes)
	}
	if c.Containers.Host != "" && len(c.NATS.Servers) > 0 {
		bad("containers.host", "and nats exclude each other: models of the kind container need a folder data of the "+
			"server alone")
	}
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
		bad("auth.oidc.audience", "is missing: want whom tokens must be for, otherwise those for other services of "+
			"the provider would be valid here")
	}
	errs = append(errs, c.validateACME()...)
	switch {
	case c.TLS.HSTS == 0:
	case c.TLS.SelfSigned:
		bad("tls.hsts", "and tls.self_signed exclude each other: browsers would let nobody in who has to accept the "+
			"certificate")
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
				return nil, coded.Errorf(coded.InvalidArgument, "trusted_proxies",
					"%.140q is not an address: want one such as 10.1.2.3 or 2001:db8::1, "+
						"or a range such as 10.0.0.0/8", text)
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
			errs = append(errs, coded.PrefixField(at, err))
		}
		set, unset := m.WithDefaults(), workers.Config{}.WithDefaults()
		for _, s := range []struct {
			name  string
			isSet bool
		}{
			{"versions", !reflect.DeepEqual(set.Versions, unset.Versions)}, {"shadow", set.Shadow != unset.Shadow},
		} {
			if s.isSet {
				errs = append(errs, coded.Errorf(coded.InvalidArgument, at+"."+s.name,
					"has no effect here, where a model has one version: put the versions into a folder of "+
						"model_repository, and the setting into the model's config.yaml there"))
			}
		}
		if j, twice := first[m.Name]; twice && m.Name != "" {
			errs = append(errs, coded.Errorf(coded.InvalidArgument, at+".name", "%q is the name of models[%d] already",
				m.Name, j))
		} else {
			first[m.Name] = i
		}
	}
	if _, err := workers.LoadOrder(c.Models); err != nil {
		errs = append(errs, coded.PrefixField("models", err))
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
