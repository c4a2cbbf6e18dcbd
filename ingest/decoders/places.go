package decoders

import (
	"sync"

	"millrace/stream"
)

// places limits the number of videos decoded at the same time: for all clients together, and by the quota of each
// client.
type places struct {
	max int

	mu    sync.Mutex
	taken int
}

// free returns nil if there is a place for a client, Overloaded if not, or FlowControl if the client's quota is used
// up.
func (p *places) free(of *stream.Account) error {
	err := p.take(of)
	if err == nil {
		p.release(of)
	}
	return err
}

// take takes a place; see free.
func (p *places) take(of *stream.Account) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.taken >= p.max {
		return stream.Errorf(stream.Overloaded, "limits.max_decoders",
			"%d videos are being decoded, and that is the limit: send jpeg, or try again later", p.max)
	}
	if err := of.Hold(stream.QuotaDecoders); err != nil {
		return err
	}
	p.taken++
	return nil
}

// release gives a place back.
func (p *places) release(of *stream.Account) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken--
	of.Release(stream.QuotaDecoders)
}

func (p *places) used() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.taken
}
