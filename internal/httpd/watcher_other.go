//go:build !linux

package httpd

// The watched events.
const departed, readable = 0, 0

// watcher watches no connection on this system: the requests of a client that has left run to their end.
type watcher struct{}

func (*watcher) add(*conn, uint32, func()) (number uint64) { return 0 }
func (*watcher) release(*conn)                             {}
func (*watcher) remove(uint64) func()                      { return nil }
func (*watcher) close()                                    {}
