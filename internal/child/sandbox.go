package child

import "runtime"

// Sandbox is all that a child may reach beside its program, /dev/null, the descriptors that it is given, and memory: it
// reads nothing else and writes no file. It cannot be left, and holds for the child's own children. It needs what
// [SandboxError] looks for.
type Sandbox struct {
	// Read are files, and folders with all in them, that it may read and execute. Those that do not exist are left out.
	Read []string
	// Network allows all of the network. Otherwise there are no sockets, but for TCP to the ports Connect, at any
	// address (to any port where [LandlockABI] is less than 4).
	Network bool
	Connect []uint16
}

// onOwnThread runs f in a goroutine on a thread that nothing else uses, and that ends with f: what f changes of the
// thread holds for the children that f starts, and for nothing else. Linux kills a child with the thread that
// started it, so f must wait for its children.
func onOwnThread(f func()) {
	go func() {
		runtime.LockOSThread() // and not unlocked: the thread ends with the goroutine
		if !isFirstThread() {
			f()
			return
		}
		// This one never ends. While it is locked, another goroutine is on another thread.
		locked := make(chan struct{})
		go func() {
			runtime.LockOSThread()
			close(locked)
			f()
		}()
		<-locked
		runtime.UnlockOSThread()
	}()
}
