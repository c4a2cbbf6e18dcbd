package ingest

import (
	"context"
	"slices"
	"strings"

	"millrace/internal/inferencepb"
	"millrace/stream"
)

// As returns b as a client may use it: models that its principal may not use are refused, and not listed, and its account is charged for
// the streams and models that it opens and loads. A nil principal is that of a server where clients need no credentials, a nil account has
// no quotas.
func As(b Backend, p *Principal, a *Account) Backend {
	if p == nil && a == nil {
		return b
	}
	return view{b, p, a}
}

// PrincipalOf returns the principal of a backend that As returned, or nil.
func PrincipalOf(b Backend) *Principal {
	v, _ := b.(view)
	return v.of
}

// AccountOf returns the account of a backend that As returned, or nil.
func AccountOf(b Backend) *Account {
	v, _ := b.(view)
	return v.account
}

// view is what As returns.
type view struct {
	Backend
	of      *Principal
	account *Account
}

func (v view) Open(model, version string, opts stream.Options, sink stream.Sink) (*stream.Stream, error) {
	if err := v.of.AllowsModel(model); err != nil {
		return nil, err
	}
	if v.account == nil || opts.OneShot || opts.Account != nil {
		return v.Backend.Open(model, version, opts, sink)
	}
	if err := v.account.Hold(stream.QuotaStreams); err != nil {
		return nil, err
	}
	opts.Account, opts.Place = &v.account.Account, true
	s, err := v.Backend.Open(model, version, opts, sink)
	if err != nil {
		v.account.Release(stream.QuotaStreams)
	}
	return s, err
}

func (v view) Models() Repository {
	all := v.Backend.Models()
	if v.account != nil {
		all = charged{all, v.account}
	}
	if v.of.Limited() {
		all = limited{all, v.of}
	}
	return all
}

// limited is a repository of which a principal may use some models.
type limited struct {
	Repository
	of *Principal
}

func (l limited) Model(name, version string) (*stream.Model, bool, error) {
	if err := l.of.AllowsModel(name); err != nil {
		return nil, false, err
	}
	return l.Repository.Model(name, version)
}

func (l limited) Choose(name string) string {
	if l.of.AllowsModel(name) != nil {
		return ""
	}
	return l.Repository.Choose(name)
}

func (l limited) Versions(name string) []string {
	if l.of.AllowsModel(name) != nil {
		return nil
	}
	return l.Repository.Versions(name)
}

func (l limited) Config(name, version string) (*inferencepb.ModelConfig, error) {
	if err := l.of.AllowsModel(name); err != nil {
		return nil, err
	}
	return l.Repository.Config(name, version)
}

func (l limited) Statistics(name, version string) ([]*inferencepb.ModelStatistics, error) {
	if name != "" {
		if err := l.of.AllowsModel(name); err != nil {
			return nil, err
		}
	}
	all, err := l.Repository.Statistics(name, version)
	return slices.DeleteFunc(all, func(s *inferencepb.ModelStatistics) bool { return l.of.AllowsModel(s.Name) != nil }), err
}

func (l limited) Index() []Entry {
	return slices.DeleteFunc(l.Repository.Index(), func(e Entry) bool { return l.of.AllowsModel(e.Name) != nil })
}

func (l limited) Load(ctx context.Context, name string, how Load) (string, error) {
	if err := l.of.AllowsModel(name); err != nil {
		return "", err
	}
	if len(how.Params) > 0 || how.Config != nil || how.Files != nil { // which could name the files and steps of others
		return "", stream.Errorf(stream.PermissionDenied, "parameters", "%s is limited to the models %s, and may load them only as they are configured", l.of.Name, strings.Join(l.of.Models, ", "))
	}
	return l.Repository.Load(ctx, name, how)
}

func (l limited) Unload(ctx context.Context, endpoint string, how Unload) error {
	if err := l.of.AllowsModel(endpoint); err != nil {
		return err
	}
	if how.Dependents {
		return stream.Errorf(stream.PermissionDenied, "unload_dependents", "%s is limited to the models %s, and these may be used by others", l.of.Name, strings.Join(l.of.Models, ", "))
	}
	return l.Repository.Unload(ctx, endpoint, how)
}

func (l limited) Scale(ctx context.Context, endpoint string, instances int) error {
	if err := l.of.AllowsModel(endpoint); err != nil {
		return err
	}
	return l.Repository.Scale(ctx, endpoint, instances)
}
