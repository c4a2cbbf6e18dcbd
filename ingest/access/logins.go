package access

import (
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	loginBurst    = 10
	loginInterval = 2 * time.Second
	maxAddresses  = 65536 // addresses remembered
)

// Logins bounds the attempts of each address to log in. Logins is safe for concurrent use.
type Logins struct {
	mu  sync.Mutex
	of  map[netip.Addr]*rate.Limiter
	all *rate.Limiter // shared by the addresses beyond maxAddresses
}

// NewLogins returns Logins without attempts.
func NewLogins() *Logins { return &Logins{of: map[netip.Addr]*rate.Limiter{}, all: newLimiter()} }

func newLimiter() *rate.Limiter { return rate.NewLimiter(rate.Every(loginInterval), loginBurst) }

// Allow counts an attempt. Allow returns the time to wait before the next attempt; 0 = the attempt is allowed.
func (l *Logins) Allow(of netip.Addr, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	one := l.of[of]
	if one == nil {
		if len(l.of) >= maxAddresses {
			for a, old := range l.of {
				if old.TokensAt(now) >= loginBurst {
					delete(l.of, a)
				}
			}
		}
		if one = l.all; len(l.of) < maxAddresses {
			one = newLimiter()
			l.of[of] = one
		}
	}
	if one.AllowN(now, 1) {
		return 0
	}
	return loginInterval
}
