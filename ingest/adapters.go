package ingest

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"millrace/internal/httpd"
	"millrace/internal/openapi"
	"millrace/internal/setting"
)

// AdapterKind describes an adapter in a folder of its own, with settings O: a tagged struct (see internal/setting).
type AdapterKind[O any] struct {
	Name   string // of the listener, and of the section of the settings
	Scheme string // of the listener's URL; "" = not for clients of models
	// Address returns the address of the adapter. The adapter is off for "" and "off". A nil Address means an adapter
	// of routes under the setting http.
	Address func(O) string
	On      func(O) bool // whether an adapter of routes is on; nil = always
	// Routes returns the routes under http; nil = none. The server does not start with a route that has no role here.
	Routes func(O) []openapi.Route
	// New makes the adapter. An adapter with an address also has the methods Listen and Close.
	New func(O, AdapterEnv) (Interface, error)
}

// AdapterEnv is what the server gives to an adapter that is made.
type AdapterEnv struct {
	// Listen listens on TCP, within limits.max_connections, and encrypted when the server has a certificate.
	Listen func(address string) (net.Listener, error)
	HTTP   *httpd.Server // with the routes under http; nil when http is off
	Limits Limits
	Drain  time.Duration // the longest time from the end of Serve's context to the return of Serve
	Data   string        // the data folder, in use by the server; "" = none
	Models Definer       // adds models
	// Opened returns an adapter that the server made before this adapter, by its name, such as tasks; nil = the named
	// adapter is off.
	Opened func(name string) Interface
	Log    *slog.Logger
}

// Definer adds models to the configured models. A Definer is safe for concurrent use.
type Definer interface {
	// Define makes a model known, without loading the model. settings are key=value,... as in --model. Errors:
	// Conflict, when there is a model of the name; PermissionDenied for an image that is not in containers.images;
	// wrong settings.
	Define(name, source, settings string) error
	// Forget unloads a model of Define, and makes its name free.
	Forget(ctx context.Context, name string) error
}

// RegisteredAdapter is an AdapterKind whose functions get the parts of the server's configuration.
type RegisteredAdapter struct {
	Name, Scheme string
	Address      func(parts []any) string // nil: routes under http
	Routes       func(parts []any) []openapi.Route
	On           func(parts []any) bool
	New          func(parts []any, e AdapterEnv) (Interface, error)
}

var adapters struct {
	sync.Mutex
	all []RegisteredAdapter
}

// RegisterAdapter adds a kind of adapter. RegisterAdapter panics when the name is taken, or when a setting of the
// server has the name. Call RegisterAdapter from init.
func RegisterAdapter[O any](k AdapterKind[O]) {
	setting.Register[O](setting.Server, k.Name)
	r := RegisteredAdapter{Name: k.Name, Scheme: k.Scheme,
		Routes: func(parts []any) []openapi.Route {
			if k.Routes == nil {
				return nil
			}
			o, _ := setting.Part[O](parts)
			return k.Routes(o)
		},
		On: func(parts []any) bool {
			o, _ := setting.Part[O](parts)
			return k.On == nil || k.On(o)
		},
		New: func(parts []any, e AdapterEnv) (Interface, error) {
			o, _ := setting.Part[O](parts)
			return k.New(o, e)
		}}
	if k.Address != nil {
		r.Address = func(parts []any) string {
			o, _ := setting.Part[O](parts)
			return k.Address(o)
		}
	}
	adapters.Lock()
	defer adapters.Unlock()
	if slices.ContainsFunc(adapters.all, func(o RegisteredAdapter) bool { return o.Name == k.Name }) || k.New == nil {
		panic(fmt.Sprintf("ingest: adapter %q registered twice or without New", k.Name))
	}
	adapters.all = append(adapters.all, r)
}

// Adapters returns the registered kinds of adapters, in the order of their registration.
func Adapters() []RegisteredAdapter {
	adapters.Lock()
	defer adapters.Unlock()
	return slices.Clone(adapters.all)
}
