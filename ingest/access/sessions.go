package access

import (
	"crypto/rand"
	"crypto/sha256"
	"sync"
	"time"

	"millrace/stream"
)

// Bounds of sessions.
const (
	maxSessions = 10000
	maxOfOne    = 100 // per principal: a further session ends the oldest
)

// Sessions are the sessions of browsers after a login. Sessions is safe for concurrent use.
type Sessions struct {
	lifetime time.Duration

	mu          sync.Mutex
	of          map[[sha256.Size]byte]*session // by the hash of the cookie's text
	byPrincipal map[string][]*session          // by the principal's key, the oldest first
}

type session struct {
	id        [sha256.Size]byte
	principal *Principal // with the session's id
	until     time.Time

	listed, now *Principal // argument and result of the last call of InSession
}

// NewSessions returns sessions that are valid for lifetime.
func NewSessions(lifetime time.Duration) *Sessions {
	return &Sessions{lifetime: lifetime, of: map[[sha256.Size]byte]*session{}, byPrincipal: map[string][]*session{}}
}

// Begin begins a session of a principal, and returns the text of the session's cookie. The session ends with the
// principal's credentials at the latest.
func (s *Sessions) Begin(p *Principal, now time.Time) (string, error) {
	text := rand.Text()
	one := &session{id: sha256.Sum256([]byte(text)), until: now.Add(s.lifetime)}
	one.principal = p.InSession(string(one.id[:]))
	if !p.Expires.IsZero() && p.Expires.Before(one.until) {
		one.until = p.Expires
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if own := s.byPrincipal[p.Key]; len(own) >= maxOfOne {
		s.remove(own[0])
	}
	if len(s.of) >= maxSessions {
		for _, old := range s.of {
			if !now.Before(old.until) {
				s.remove(old)
			}
		}
	}
	if len(s.of) >= maxSessions {
		return "", stream.Errorf(stream.Overloaded, "",
			"%d sessions are open: log out elsewhere, or wait until some have ended", maxSessions)
	}
	s.of[one.id] = one
	s.byPrincipal[p.Key] = append(s.byPrincipal[p.Key], one)
	return text, nil
}

// Find returns the principal of a cookie's session, as of the begin of the session, and the end of the session; nil =
// there is no session.
func (s *Sessions) Find(text string, now time.Time) (*Principal, time.Time) {
	if text == "" {
		return nil, time.Time{}
	}
	id := sha256.Sum256([]byte(text))
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.of[id]
	if one == nil {
		return nil, time.Time{}
	}
	if !now.Before(one.until) {
		s.remove(one)
		return nil, time.Time{}
	}
	return one.principal, one.until
}

// InSession returns p with the id of a session; nil = the session has ended.
func (s *Sessions) InSession(id string, p *Principal, now time.Time) *Principal {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.of[[sha256.Size]byte([]byte(id))]
	if one == nil || !now.Before(one.until) {
		return nil
	}
	if one.listed != p {
		one.listed, one.now = p, p.InSession(id)
	}
	return one.now
}

// End ends the session of a cookie, and returns the principal of the session; nil = no session.
func (s *Sessions) End(text string) *Principal {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.of[sha256.Sum256([]byte(text))]
	if one == nil {
		return nil
	}
	s.remove(one)
	return one.principal
}

// remove is called with mu.
func (s *Sessions) remove(one *session) {
	delete(s.of, one.id)
	own := s.byPrincipal[one.principal.Key]
	for i, other := range own {
		if other == one {
			own = append(own[:i:i], own[i+1:]...)
			break
		}
	}
	if len(own) == 0 {
		delete(s.byPrincipal, one.principal.Key)
	} else {
		s.byPrincipal[one.principal.Key] = own
	}
}
