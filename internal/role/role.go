// Package role has the roles required of clients by routes and calls, and owns the names of the roles. The package
// must not know the roles of any client.
package role

import (
	"fmt"
	"slices"
	"strings"
)

// Role is the requirement of a route or a call. The zero value is no role, and not allowed for a route.
type Role uint8

// The roles.
const (
	Open    Role = iota + 1 // anybody may call, without credentials
	Infer                   // run inferences, and read the inputs and outputs of models
	Watch                   // read the state of the server, its streams and statistics
	Manage                  // change the server's behaviour
	Metrics                 // read the metrics
	Work                    // take tasks, and give results back, as a consumer on another host
)

var names = []string{Infer: "infer", Watch: "watch", Manage: "manage", Metrics: "metrics", Work: "work"}

// String returns the name of the role as written by users.
func (r Role) String() string {
	switch {
	case r == Open:
		return "open"
	case int(r) < len(names) && names[r] != "":
		return names[r]
	}
	return "none"
}

// Names returns the names of the roles that a client can have.
func Names() []string { return slices.Clone(names[Infer:]) }

// Set is a set of roles.
type Set uint8

// All has every role.
const All = Set(1<<Infer | 1<<Watch | 1<<Manage | 1<<Metrics | 1<<Work)

// With returns s and r.
func (s Set) With(r Role) Set { return s | 1<<r }

// Has reports whether s has r. Every set has Open.
func (s Set) Has(r Role) bool { return r == Open || r != 0 && s&(1<<r) != 0 }

// Names returns the names of the roles in s.
func (s Set) Names() (out []string) {
	for r := Infer; int(r) < len(names); r++ {
		if s.Has(r) {
			out = append(out, names[r])
		}
	}
	return out
}

// Parse returns the roles with the names.
func Parse(of []string) (s Set, err error) {
	for _, name := range of {
		i := slices.Index(names, strings.TrimSpace(name))
		if i < int(Infer) {
			return 0, fmt.Errorf("%q is not a role: want %s", name, strings.Join(Names(), ", "))
		}
		s = s.With(Role(i))
	}
	return s, nil
}
