package stream

import "sync"

// Loan is an idle worker lent to the goroutine of a Caller.
type Loan interface {
	// Run runs waiting batches in the goroutine of by, in place of the worker's goroutine, and gives the worker back.
	// When by has its ending, Run begins no further batch.
	Run(by *Caller)
	// GiveBack gives the worker back without a run: the worker's goroutine runs the waiting batches.
	GiveBack()
}

// Caller is a goroutine that waits for the ending of one request at a time and reads nothing else. While a Caller is
// open, a queue may lend one idle worker to the Caller in place of waking the worker's goroutine: the request then
// needs no switch between goroutines. Only the goroutine itself calls Open and Work.
type Caller struct {
	Ended func() bool // reports whether the ending has come; set before the first Open

	mu   sync.Mutex
	open bool
	loan Loan
}

// Open lets queues lend workers. Work must follow.
func (c *Caller) Open() {
	c.mu.Lock()
	c.open = true
	c.mu.Unlock()
}

// Lend lends a worker to the caller. Lend returns false when the caller is closed or has a worker already.
func (c *Caller) Lend(l Loan) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.open || c.loan != nil {
		return false
	}
	c.loan = l
	return true
}

// Work runs the batches of lent workers until the ending has come or no worker is lent, and closes the caller.
func (c *Caller) Work() {
	for {
		c.mu.Lock()
		l := c.loan
		c.loan = nil
		over := l == nil || c.Ended()
		if over {
			c.open = false
		}
		c.mu.Unlock()
		switch {
		case !over:
			l.Run(c)
			continue
		case l != nil:
			l.GiveBack()
		}
		return
	}
}
