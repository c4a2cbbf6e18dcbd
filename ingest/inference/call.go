package inference

import (
	"millrace/ingest"
	"millrace/ingest/shm"
	"millrace/internal/oip"
	"millrace/stream"
	"millrace/stream/buf"
)

// Call is what one inference request needs besides its frame: the messages, the memory
// that they are decoded into, and the result. An adapter uses it again for later requests,
// after Reset. The frame's tensors are not part of it, because a worker may read them
// after their request has ended. It is for one goroutine at a time.
type Call struct {
	Request  oip.InferRequest
	Response oip.InferResponse
	Result   *stream.Result  // released by Reset
	Sequence ingest.Sequence // to which the request belongs, once Frame has returned
	Several  bool            // the client takes several answers, of a decoupled model

	pool  *buf.Pool
	share *buf.Share // nil: none
	body  *buf.Buf   // the message
	old   *buf.Buf   // the lease before it, while a body of unknown length grows
	data  []*buf.Buf // one for each tensor that was not in the body

	charged int64 // by Charge

	shared  *shm.Registry
	sharing shm.Client    // whose request it is, for shared
	places  []part        // of the outputs in shared memory; empty when none is
	regions []*shm.Region // that the request uses, until releaseRegions
}

// Use sets the pool from which memory is leased, and in what the client's message counts.
func (c *Call) Use(pool *buf.Pool, share *buf.Share) { c.pool, c.share = pool, share }

// Reset releases all memory and empties the messages; their slices are used again.
func (c *Call) Reset() {
	c.releaseLeases()
	if c.charged > 0 {
		c.pool.Refund(c.charged)
		c.charged = 0
	}
	if c.Result != nil {
		c.Result.Release()
		c.Result = nil
	}
	c.Request.Reset()
	clear(c.Response.Outputs) // their shapes are the worker's
	c.Response.Outputs, c.Response.Params = c.Response.Outputs[:0], c.Response.Params[:0]
	c.releaseRegions()
	clear(c.places)
	c.places, c.shared, c.sharing = c.places[:0], nil, shm.Client{}
	c.pool, c.share, c.Several, c.Sequence = nil, nil, false, ingest.Sequence{}
}

func (c *Call) releaseLeases() {
	c.body.Release()
	c.old.Release()
	c.body, c.old = nil, nil
	for i, b := range c.data {
		b.Release()
		c.data[i] = nil
	}
	c.data = c.data[:0]
}

// Charge charges n bytes of memory that is not leased to the budget, until Reset.
func (c *Call) Charge(n int64) error {
	err := c.pool.Charge(n)
	if err == nil {
		c.charged += n
	}
	return err
}

// ReceiveBody returns memory that the message of n bytes is read into, as [buf.Pool.Receive] does.
func (c *Call) ReceiveBody(n, at int) ([]byte, error) {
	b, err := c.pool.Receive(c.share, c.body, n, at)
	if err != nil {
		return nil, err
	}
	c.body = b
	return b.Bytes(), nil
}

// LeaseBody leases the memory that the message is read into. A second call leases more;
// what the call before it returned stays valid until a third.
func (c *Call) LeaseBody(n int) ([]byte, error) {
	c.old.Release()
	c.old = c.body
	b, err := c.pool.Lease(n)
	c.body = b
	if err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// ResizeBody sets the length of the body, at most that of its memory.
func (c *Call) ResizeBody(n int) { c.body.Resize(n) }

// TakeBody returns the lease of the body, which the caller then owns.
func (c *Call) TakeBody() *buf.Buf {
	b := c.body
	c.body = nil
	return b
}

// LeaseTensor leases the memory for the data of one tensor that are not views into the
// body. It returns nil when the memory budget is used up, as oip.DecodeRequest expects.
func (c *Call) LeaseTensor(n int) []byte {
	b, err := c.pool.Lease(n)
	if err != nil {
		return nil
	}
	c.data = append(c.data, b)
	return b.Bytes()
}
