// Package child supervises child processes: it starts them so that they cannot outlive this process,
// stops them so that nothing of them is left, and says clearly how they ended.
//
// It owns the process group, the death signal, the pipes, the tail of standard error and the reaping.
// It must not know what the child is for: not video, not Python, not models. It works on plain types and
// imports nothing of Millrace.
//
// What holds for every child:
//   - It leads a process group of its own, and when the leader ends, whatever else is in the group is killed.
//     A grandchild that left the group (setsid) is out of reach.
//   - If this process dies, by SIGKILL too, the kernel kills the child (Linux only). The kernel does this for
//     the child itself, not for grandchildren.
//   - It is always reaped, whether or not anybody calls Wait.
//   - After Stop has returned, no goroutine and no descriptor of it is left.
package child
