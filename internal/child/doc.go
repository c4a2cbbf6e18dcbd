// Package child starts child processes that cannot outlive this process, stops child processes completely, and
// reports how a child ended.
//
// The package owns the process group, the descendants, the death signal, the limits, the sandbox, the temporary
// files, the pipes, the tail of standard error and the reaping. The package must not know the purpose of a child: not
// video, not Python, not models. The package works on plain types and imports nothing of Millrace but
// internal/scratch.
//
// For every child:
//   - The child leads its own process group. When the leader ends, the other processes of the group are killed.
//     After Adopt, descendants that have left the group (setsid) are killed, too (Linux only). Root's contained
//     children end with all of their descendants, by a namespace. An unconfined program of root can escape.
//   - If this process ends, even by SIGKILL, the kernel kills the child (Linux only), but not grandchildren.
//     KillOrphans in a later process kills the grandchildren.
//   - The child is always reaped, even if Wait is not called.
//   - The child makes no core dump (Linux only).
//   - The child cannot gain rights beyond this process (no_new_privs, Linux only), and with a Sandbox reaches
//     only the resources allowed by the Sandbox.
//   - After Stop has returned, no goroutine and no descriptor of the child is left.
package child
