package child

import "runtime"

// Sandbox is all that a child may reach beside its program, /dev/null, Spec.Temp, the descriptors that it is given, and
// memory: it reads and writes nothing else, nor changes the limits of other processes. It cannot be left, and holds for the
// child's own children. It needs what [SandboxError] looks for. Paths that do not exist are left out.
type Sandbox struct {
	// Read are files, and folders with all in them, that it may read and execute.
	Read []string
	// List are folders in which, and below which, it may read the names of files, and not what is in them.
	List []string
	// Write are files, devices, and folders with all in them, that it may read, execute, change, make and remove.
	Write []string
	// NoCapabilities takes all capabilities away, those of root included.
	NoCapabilities bool
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
