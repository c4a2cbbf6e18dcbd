package access

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"millrace/internal/setting"
	"millrace/stream"
)

// Quotas limit the use of each client: each principal, and each address of clients without a principal. 0 = any
// number.
type Quotas struct {
	Requests  float64 `yaml:"requests" min:"0" max:"1e9" help:"most requests and calls a second of one client: a key, a user, or an address when no credentials are needed (IPv6: a /64). 0 = no limit, for all quotas"`
	Frames    float64 `yaml:"frames" min:"0" max:"1e9" advanced:"yes" help:"most frames a second of one client; further frames of streams are dropped, further requests are refused"`
	Bytes     float64 `yaml:"bytes" min:"0" max:"1e15" advanced:"yes" help:"most bytes of frames a second of one client; of a video, the decoded pictures count"`
	Decode    float64 `yaml:"decode" min:"0" max:"1e6" advanced:"yes" help:"most seconds of decoding a second of one client (pictures, and processor time of ffmpeg); beyond, pictures and chunks of video are dropped or refused, and pulled videos wait"`
	Loads     float64 `yaml:"loads" min:"0" max:"1e9" advanced:"yes" help:"most model loads a second of one client"`
	Streams   *int    `yaml:"streams" default:"7500" min:"0" max:"1048576" advanced:"yes" help:"most streams of one client at once: WebSocket streams, pulled videos, calls of ModelStreamInfer, sequences. Less than max_flows of a model"`
	Sequences *int    `yaml:"sequences" default:"3072" min:"0" max:"1048576" advanced:"yes" help:"most sequences of one client at once, over all models; less than sequences.max of a model"`
	Sessions  *int    `yaml:"sessions" unset:"three quarters of limits.max_sessions" example:"2000" min:"0" max:"1048576" advanced:"yes" help:"most WebSocket connections of one client at once. Sessions waiting to be resumed count"`
	Decoders  *int    `yaml:"decoders" unset:"three quarters of limits.max_decoders" example:"8" min:"0" max:"1048576" advanced:"yes" help:"most videos of one client decoded at once (millrace.v1: H.264, VP8, VP9, AV1)"`
	Pulls     *int    `yaml:"pulls" unset:"three quarters of limits.max_pulls" example:"8" min:"0" max:"1048576" advanced:"yes" help:"most videos pulled at once for one client"`
	Watchers  *int    `yaml:"watchers" unset:"three quarters of limits.max_watchers" example:"128" min:"0" max:"1048576" advanced:"yes" help:"most watchers of server streams of one client at once"`
	Endpoints *int    `yaml:"endpoints" default:"256" min:"0" max:"1048576" advanced:"yes" help:"most endpoints created by one client's load requests at once"`
	Regions   *int    `yaml:"regions" unset:"three quarters of limits.max_regions" example:"64" min:"0" max:"65536" advanced:"yes" help:"most shared memory regions of one client at once"`
	Tasks     *int    `yaml:"tasks" unset:"three quarters of tasks.max_waiting" example:"10000" min:"0" max:"10000000" advanced:"yes" help:"most tasks of one client that have not ended"`
	TaskBytes *int64  `yaml:"task_bytes" unset:"three quarters of tasks.max_bytes" example:"8GiB" min:"0" unit:"bytes" advanced:"yes" help:"bytes of inputs, results and logs of one client from which further tasks of the client are refused"`

	Burst time.Duration `yaml:"burst" default:"1s" min:"1ms" max:"1h" advanced:"yes" help:"a client may use the quota of this time at once"`
}

// Totals are the server's limits for all clients together, from which quotas that are not set follow.
type Totals struct {
	Sessions, Decoders, Pulls, Watchers, Regions, Tasks int
	TaskBytes                                           int64
}

// From returns the quotas of each client at a server with these limits. An unset quota of a resource in Totals is
// three quarters of the limit, and at least 1.
func (q Quotas) From(t Totals) Quotas {
	for _, derived := range []struct {
		quota **int
		total int
	}{{&q.Sessions, t.Sessions}, {&q.Decoders, t.Decoders}, {&q.Pulls, t.Pulls}, {&q.Watchers, t.Watchers},
		{&q.Regions, t.Regions}, {&q.Tasks, t.Tasks}} {
		if *derived.quota == nil && derived.total > 0 {
			n := max(1, derived.total-(derived.total+3)/4)
			*derived.quota = &n
		}
	}
	if q.TaskBytes == nil && t.TaskBytes > 0 {
		n := max(1, t.TaskBytes-(t.TaskBytes+3)/4)
		q.TaskBytes = &n
	}
	return q
}

// number returns the quota at p; unset = 0, which means no limit.
func number[N int | int64](p *N) float64 {
	if p == nil {
		return 0
	}
	return float64(*p)
}

// limits returns the limits of an account, with the quotas in own in place of the quotas of the settings.
func (q *Quotas) limits(own map[string]float64) stream.Limits {
	l := stream.Limits{
		stream.QuotaRequests: q.Requests, stream.QuotaFrames: q.Frames, stream.QuotaBytes: q.Bytes,
		stream.QuotaDecode: q.Decode, stream.QuotaLoads: q.Loads,
		stream.QuotaStreams: number(q.Streams), stream.QuotaSequences: number(q.Sequences),
		stream.QuotaSessions: number(q.Sessions), stream.QuotaDecoders: number(q.Decoders),
		stream.QuotaEndpoints:    number(q.Endpoints),
		stream.QuotaPulledVideos: number(q.Pulls), stream.QuotaWatchers: number(q.Watchers),
		stream.QuotaRegions: number(q.Regions), stream.QuotaTasks: number(q.Tasks),
		stream.QuotaTaskBytes: number(q.TaskBytes),
	}
	for name, n := range own {
		if i := slices.Index(stream.QuotaNames[:], name); i >= 0 {
			l[i] = n
		}
	}
	return l
}

// CheckQuotas returns an error if quotas by their names are wrong.
func CheckQuotas(own map[string]float64) error {
	for _, name := range slices.Sorted(maps.Keys(own)) {
		if !slices.Contains(stream.QuotaNames[:], name) {
			return stream.Errorf(stream.InvalidArgument, "quotas", "%.40q is not a quota: want one of %s", name,
				strings.Join(stream.QuotaNames[:], ", "))
		}
		if n := own[name]; !(n >= 0 && n <= 1e15) {
			return stream.Errorf(stream.InvalidArgument, "quotas."+name,
				"%v is not allowed: want a number from 0, which means any number", n)
		}
	}
	return nil
}

// Bounds of accounts.
const (
	maxAccounts = 16384 // per kind, addresses and principals; further clients share an account
	maxLabelled = 500   // principals with a name of their own in the metrics
	sampled     = 64    // accounts examined at a time to forget idle accounts
)

// Account is the account of one client. A nil Account is the account of the owner, and has no quotas.
type Account struct {
	stream.Account
	table           *Accounts
	name            string             // in metrics; "" = not its own
	principalQuotas map[string]float64 // the principal's quotas; guarded by the table
	gone            atomic.Bool
	endpoint        endpoints
	Client          atomic.Value // the gate's *ingest.Client of an address
}

// Core returns the part of the account for frames.
func (a *Account) Core() *stream.Account {
	if a == nil {
		return nil
	}
	return &a.Account
}

// Live reports whether the account is in use. Another account may have replaced an account that is not in use.
func (a *Account) Live() bool { return a != nil && !a.gone.Load() }

// Accounts has the accounts of all clients. Accounts is safe for concurrent use.
type Accounts struct {
	quotas Quotas
	max    int

	mu         sync.Mutex
	addresses  map[netip.Addr]*Account
	names      map[string]*Account // by Principal.Key
	labelled   int
	shared     [2]*Account // shared accounts of addresses and of principals without room for their own
	evictedUse Use
}

// NewAccounts returns accounts with these quotas.
func NewAccounts(q Quotas) *Accounts {
	setting.Fill(&q)
	return &Accounts{quotas: q, max: maxAccounts, addresses: map[netip.Addr]*Account{}, names: map[string]*Account{}}
}

// Of returns the account of a principal.
func (t *Accounts) Of(p *Principal) *Account {
	if a := p.account.Load(); a.Live() && a.table == t {
		return a
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	a := t.names[p.Key]
	if a == nil {
		if a = addAccount(t, t.names, &t.shared[1], p.Key); a != t.shared[1] {
			a.User = p.Name
			if t.labelled < maxLabelled {
				a.name = cmp.Or(p.Name, p.Key)
				t.labelled++
			}
		}
	}
	if a != t.shared[1] {
		a.principalQuotas = p.Quotas
		// the principal may have new quotas: the file may have changed
		a.SetLimits(t.quotas.limits(a.principalQuotas), t.quotas.Burst)
	}
	p.account.Store(a)
	return a
}

// SetQuotas changes the quotas of all accounts, and keeps the use of the accounts.
func (t *Accounts) SetQuotas(q Quotas) {
	setting.Fill(&q)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.quotas = q
	for _, a := range t.addresses {
		a.SetLimits(q.limits(nil), q.Burst)
	}
	for _, a := range t.shared {
		if a != nil {
			a.SetLimits(q.limits(nil), q.Burst)
		}
	}
	for _, a := range t.names {
		a.SetLimits(q.limits(a.principalQuotas), q.Burst)
	}
}

// OfAddress returns the account of the clients without credentials at an address.
func (t *Accounts) OfAddress(of netip.Addr) *Account {
	t.mu.Lock()
	defer t.mu.Unlock()
	if a := t.addresses[of]; a != nil {
		return a
	}
	return addAccount(t, t.addresses, &t.shared[0], of)
}

// addAccount adds an account to a map. In a full map, addAccount replaces idle accounts; without an idle account,
// addAccount returns others.
func addAccount[K comparable](t *Accounts, all map[K]*Account, others **Account, key K) *Account {
	if len(all) >= t.max {
		now, seen := stream.Now(), 0
		for k, a := range all { // in no order
			if a.Idle(now) {
				t.forget(a)
				delete(all, k)
			}
			if seen++; seen == sampled {
				break
			}
		}
	}
	if len(all) >= t.max {
		if *others == nil {
			*others = t.account()
		}
		return *others
	}
	a := t.account()
	all[key] = a
	return a
}

func (t *Accounts) account() *Account {
	a := &Account{table: t}
	a.SetLimits(t.quotas.limits(nil), t.quotas.Burst)
	return a
}

// forget keeps the counts of an account before the removal of the account. Counts during forget are lost.
func (t *Accounts) forget(a *Account) {
	a.gone.Store(true)
	if a.name != "" {
		t.labelled--
	}
	u := useOf(a)
	t.evictedUse.add(&u)
}

// Use is the use of clients.
type Use struct {
	Name   string // of the principal; "" = of all that have no name of their own
	Used   [stream.Quotas]int64
	Denied [stream.Quotas]uint64
}

func useOf(a *Account) (u Use) {
	for q := range stream.Quotas {
		u.Used[q], u.Denied[q] = a.Used(stream.Quota(q)), a.Denied(stream.Quota(q))
	}
	return u
}

func (u *Use) add(other *Use) {
	for q := range u.Used {
		u.Used[q] += other.Used[q]
		u.Denied[q] += other.Denied[q]
	}
}

// Uses returns the use of each principal with a name in the metrics, and the use of all other clients together.
func (t *Accounts) Uses() []Use {
	t.mu.Lock()
	defer t.mu.Unlock()
	by := map[string]*Use{"": {}}
	by[""].add(&t.evictedUse)
	add := func(a *Account) {
		if a == nil {
			return
		}
		u := useOf(a)
		if by[a.name] == nil {
			by[a.name] = &Use{Name: a.name}
		}
		by[a.name].add(&u)
	}
	for _, a := range t.names {
		add(a)
	}
	for _, a := range t.addresses {
		add(a)
	}
	for _, a := range t.shared {
		add(a)
	}
	out := make([]Use, 0, len(by))
	for _, name := range slices.Sorted(maps.Keys(by)) {
		out = append(out, *by[name])
	}
	return out
}

// endpoints are the endpoints created by loads of an account.
type endpoints struct {
	mu   sync.Mutex
	made map[string]int // the number of loads in progress, during which an endpoint may be missing for a while
}

type Loaded interface {
	// Versions returns the loaded versions of a model.
	Versions(name string) []string
}

// Reserve is ingest.Load.Reserve. The account holds an endpoint from before the load until the endpoint is unloaded:
// an endpoint of a load that fails late, or of a client that has left, counts. A load of a loaded endpoint needs no
// room.
func (a *Account) Reserve(all Loaded, endpoint string, there bool) (settle func(there bool), err error) {
	a.ForgetUnloaded(all)
	e := &a.endpoint
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, own := e.made[endpoint]; !own {
		if there {
			return func(bool) {}, nil
		}
		if err := a.Hold(stream.QuotaEndpoints); err != nil {
			return nil, err
		}
	}
	if e.made == nil {
		e.made = map[string]int{}
	}
	e.made[endpoint]++
	return func(there bool) {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.made[endpoint]--; e.made[endpoint] == 0 && !there {
			delete(e.made, endpoint)
			a.Release(stream.QuotaEndpoints)
		}
	}, nil
}

// ForgetUnloaded releases the account's endpoints that any client has unloaded.
func (a *Account) ForgetUnloaded(all Loaded) {
	e := &a.endpoint
	e.mu.Lock()
	defer e.mu.Unlock()
	for name, loading := range e.made {
		if loading == 0 && len(all.Versions(name)) == 0 {
			delete(e.made, name)
			a.Release(stream.QuotaEndpoints)
		}
	}
}
