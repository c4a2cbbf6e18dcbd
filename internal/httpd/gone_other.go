//go:build !linux

package httpd

// watcher watches no connection on this system: the requests of a client that has left run
// to their end.
type watcher struct{}

func (*watcher) add(*conn)    {}
func (*watcher) remove(*conn) {}
func (*watcher) close()       {}
