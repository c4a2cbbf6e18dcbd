package child

import "runtime"

// Sandbox lists the resources a child may reach beside its program, /dev/null, Spec.Temp, the descriptors passed to
// the child, and memory. The child reads and writes nothing else, and cannot change the limits of other processes.
// The child cannot leave the Sandbox, and the child's own children inherit the Sandbox. [SandboxError] reports
// whether this machine supports a Sandbox. Missing paths are ignored.
type Sandbox struct {
	// Read are files, and folders with their contents, that the child may read and execute.
	Read []string
	// List are folders in which, and below which, the child may read the names but not the contents of files.
	List []string
	// Write are files, devices, and folders with their contents, that the child may read, execute, change, make and
	// remove.
	Write []string
	// NoCapabilities takes all capabilities away, even from root.
	NoCapabilities bool
	// SmallSegments refuses segments of System V shared memory above 64 KiB: segments belong to no process, and stay.
	SmallSegments bool
	// Network allows the whole network. Otherwise there are no sockets, except for TCP to the ports Connect, at any
	// address (to any port where [LandlockABI] is less than 4).
	Network bool
	Connect []uint16
}

// onOwnThread runs f in a goroutine on an exclusive thread that ends with f: changes of the thread by f apply only to
// the children started by f. Linux kills a child with the thread that started the child, so f must wait for its
// children.
func onOwnThread(f func()) {
	go func() {
		runtime.LockOSThread() // and not unlocked: the thread ends with the goroutine
		if !isFirstThread() {
			f()
			return
		}
		// The main thread never ends. While it is locked, another goroutine runs on another thread.
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
