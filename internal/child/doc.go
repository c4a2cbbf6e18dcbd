// Package child supervises child processes: it starts them so that they cannot outlive this process,
// stops them completely, and returns how they ended.
//
// It owns the process group, the descendants, the death signal, the limits, the sandbox, the temporary files, the pipes, the tail of standard error and the reaping.
// It must not know what the child is for: not video, not Python, not models. It works on plain types and
// imports nothing of Millrace but internal/scratch.
//
// For every child:
//   - It leads a process group of its own. When the leader ends, the other processes of the group are killed.
//     After Adopt, descendants that have left the group (setsid) are, too (Linux only).
//   - If this process ends, even by SIGKILL, the kernel kills the child (Linux only), but not grandchildren. KillLeft of a
//     later process does.
//   - It is always reaped, also if Wait is not called.
//   - It makes no core dump (Linux only).
//   - It cannot get rights that this process has not (no_new_privs, Linux only), and with a Sandbox reaches only what
//     that allows.
//   - After Stop has returned, no goroutine and no descriptor of it is left.
package child
