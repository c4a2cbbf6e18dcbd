// Package child supervises child processes: it starts them so that they cannot outlive this process,
// stops them completely, and returns how they ended.
//
// It owns the process group, the death signal, the pipes, the tail of standard error and the reaping.
// It must not know what the child is for: not video, not Python, not models. It works on plain types and
// imports nothing of Millrace.
//
// For every child:
//   - It leads a process group of its own. When the leader ends, the other processes of the group are killed.
//     A grandchild that has left the group (setsid) is not.
//   - If this process ends, even by SIGKILL, the kernel kills the child (Linux only), but not grandchildren.
//   - It is always reaped, also if Wait is not called.
//   - After Stop has returned, no goroutine and no descriptor of it is left.
package child
