package access

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"millrace/stream"
)

func addressOf(i int) netip.Addr {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], uint32(i))
	return netip.AddrFrom4(b)
}

// TestAccountsAreBounded: in a full table, idle accounts are forgotten and their counts kept, and accounts in use
// stay. Further clients share an account with the quotas of one client.
func TestAccountsAreBounded(t *testing.T) {
	for _, held := range []bool{false, true} {
		two := 2
		accounts := NewAccounts(Quotas{Requests: 1e9, Streams: &two})
		accounts.max = 100
		first := accounts.OfAddress(addressOf(0))
		if err := first.Hold(stream.QuotaStreams); err != nil {
			t.Fatal(err)
		}
		refused := 0
		for i := range 1000 {
			a := accounts.OfAddress(addressOf(1 + i))
			if err := a.Take(stream.QuotaRequests, 1, stream.Now()); err != nil {
				t.Fatal(err)
			}
			if held && a.Hold(stream.QuotaStreams) != nil {
				refused++
			}
			p := accounts.Of(&Principal{Key: fmt.Sprint("user:", i), Name: fmt.Sprint(i)})
			if err := p.Take(stream.QuotaRequests, 1, stream.Now()); err != nil {
				t.Fatal(err)
			}
			if len(accounts.addresses) > 100 || len(accounts.names) > 100 {
				t.Fatalf("%d and %d accounts", len(accounts.addresses), len(accounts.names))
			}
		}
		if !first.Live() || accounts.OfAddress(addressOf(0)) != first {
			t.Error("an account that holds a stream is forgotten")
		}
		if held && refused != 1000-99-2 {
			t.Errorf("%d refused of those without an account of their own", refused)
		}
		sum := int64(0)
		for _, u := range accounts.Uses() {
			sum += u.Used[stream.QuotaRequests]
		}
		if sum != 2000 {
			t.Errorf("%d of 2000 requests are counted", sum)
		}
	}
}

// TestAccountsOfPrincipals: a principal read again has the same account, with the newest quotas; a bounded number of
// principals have their name in the metrics.
func TestAccountsOfPrincipals(t *testing.T) {
	one := 1
	accounts := NewAccounts(Quotas{Streams: &one})
	old, changed := &Principal{Key: "key:1", Name: "camera"}, &Principal{Key: "key:1", Name: "camera",
		Quotas: map[string]float64{"streams": 3}}
	a := accounts.Of(old)
	if accounts.Of(old) != a || accounts.Of(changed) != a || NewAccounts(Quotas{}).Of(old) == a {
		t.Error("not one account for a principal of a server")
	}
	for range 3 {
		if err := a.Hold(stream.QuotaStreams); err != nil {
			t.Error(err)
		}
	}
	if a.Hold(stream.QuotaStreams) == nil {
		t.Error("no quota is left")
	}
	for i := range 2 * maxLabelled {
		_ = accounts.Of(&Principal{Key: fmt.Sprint("oidc:", i), Name: fmt.Sprint(i)}).Take(stream.QuotaRequests, 1, 1)
	}
	uses := accounts.Uses()
	if len(uses) != maxLabelled+1 || uses[0].Name != "" || uses[0].Used[stream.QuotaRequests] != maxLabelled+1 {
		t.Errorf("%d names, %d requests without one", len(uses)-1, uses[0].Used[stream.QuotaRequests])
	}
}

// TestAccountsForgottenInUse: a principal with a forgotten account gets a new account.
func TestAccountsForgottenInUse(t *testing.T) {
	accounts := NewAccounts(Quotas{})
	accounts.max = 1
	p := &Principal{Key: "key:1", Name: "a"}
	a := accounts.Of(p)
	if b := accounts.Of(&Principal{Key: "key:2", Name: "b"}); a == b || a.Live() || !b.Live() {
		t.Fatal("the idle account is not forgotten")
	}
	if again := accounts.Of(p); again == a || !again.Live() {
		t.Error("a forgotten account is used")
	}
}

// TestCheckQuotas checks that errors name the quota.
func TestCheckQuotas(t *testing.T) {
	for name, n := range map[string]float64{"frame": 1, "frames": -1} {
		if CheckQuotas(map[string]float64{name: n}) == nil {
			t.Errorf("%s=%v", name, n)
		}
	}
	all := map[string]float64{}
	for _, name := range stream.QuotaNames {
		all[name] = 0
	}
	if err := CheckQuotas(all); err != nil {
		t.Error(err)
	}
	q := NewAccounts(Quotas{Burst: time.Minute}).quotas
	if l := q.limits(all); l != (stream.Limits{}) {
		t.Errorf("%v", l)
	}
	own := stream.Limits{stream.QuotaStreams: 7500, stream.QuotaSequences: 3072, stream.QuotaEndpoints: 256}
	if l := q.limits(nil); l != own {
		t.Errorf("without the limits of a server: %v", l)
	}
	set := 5
	q.Pulls = &set
	q = q.From(Totals{Sessions: 10_000, Decoders: 1, Pulls: 64, Watchers: 2, Regions: 256, Tasks: 7,
		TaskBytes: 64 << 30})
	for quota, n := range map[stream.Quota]float64{stream.QuotaSessions: 7500, stream.QuotaDecoders: 1,
		stream.QuotaPulledVideos: 5, stream.QuotaWatchers: 1, stream.QuotaRegions: 192, stream.QuotaTasks: 5,
		stream.QuotaTaskBytes: 48 << 30} {
		own[quota] = n
	}
	if l := q.limits(nil); l != own {
		t.Errorf("%v, want %v", l, own)
	}
}
