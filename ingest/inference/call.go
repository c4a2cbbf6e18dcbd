package inference

import (
	"millrace/ingest"
	"millrace/ingest/shm"
	"millrace/internal/oip"
	"millrace/stream"
	"millrace/stream/buf"
)

// Call is the state of an inference request besides its frame: the messages, the memory for decoding the messages,
// and the result. After Reset, an adapter reuses the Call for later requests. The frame's tensors are separate,
// because a worker may read the tensors after the end of the request. A Call is not safe for concurrent use.
type Call struct {
	Request  oip.InferRequest
	Response oip.InferResponse
	Result   *stream.Result  // released by Reset
	Sequence ingest.Sequence // the request's sequence; set by Frame
	Several  bool            // the client takes several answers, of a decoupled model

	pool  *buf.Pool
	share *buf.ClientShare // nil: none
	body  *buf.Buf         // the message
	old   *buf.Buf         // the previous lease, while a body of unknown length grows
	data  []*buf.Buf       // one for each tensor outside of the body

	charged int64 // by Charge

	shared  *shm.Registry
	sharing shm.Client    // the client of the request, for shared
	places  []part        // of the outputs in shared memory; empty when none is
	regions []*shm.Region // regions used by the request, until releaseRegions
}

// Use sets the pool for leases, and the share charged for the client's message.
func (c *Call) Use(pool *buf.Pool, share *buf.ClientShare) { c.pool, c.share = pool, share }

// Reset releases all memory and empties the messages; their slices are used again.
func (c *Call) Reset() {
	c.releaseLeases()
	if c.charged > 0 {
		c.pool.Refund(c.charged)
		c.charged = 0
	}
	c.Result.Recycle()
	c.Result = nil
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

// Charge charges n bytes of unleased memory to the budget, until Reset.
func (c *Call) Charge(n int64) error {
	err := c.pool.Charge(n)
	if err == nil {
		c.charged += n
	}
	return err
}

// ReceiveBody returns memory for reading the message of n bytes, like [buf.Pool.Receive].
func (c *Call) ReceiveBody(n, at int) ([]byte, error) {
	b, err := c.pool.Receive(c.share, c.body, n, at)
	if err != nil {
		return nil, err
	}
	c.body = b
	return b.Bytes(), nil
}

// LeaseBody leases the memory for reading the message. A second call leases more memory; memory from one call stays
// valid during the next call.
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

// ResizeBody sets the length of the body, up to its capacity.
func (c *Call) ResizeBody(n int) { c.body.Resize(n) }

// TakeBody hands the lease of the body over to the caller.
func (c *Call) TakeBody() *buf.Buf {
	b := c.body
	c.body = nil
	return b
}

// LeaseTensor leases memory for the data of one tensor outside of the body. LeaseTensor returns nil when the memory
// budget is used up, as oip.DecodeRequest expects.
func (c *Call) LeaseTensor(n int) []byte {
	b, err := c.pool.Lease(n)
	if err != nil {
		return nil
	}
	c.data = append(c.data, b)
	return b.Bytes()
}
